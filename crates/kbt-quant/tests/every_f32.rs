//! The encoders over every f32: against the definition by cut points, against the C++ header that kernels use,
//! and against NVIDIA's host functions where a CUDA toolkit is present.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]

mod cpp_compiler;

use kbt_quant::format::{Conversion, Format, Overflow, runs};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The encoder's runs, once a format: a scan takes seconds.
fn encoder(format: Format) -> &'static str {
    static E2M1: OnceLock<String> = OnceLock::new();
    static E4M3: OnceLock<String> = OnceLock::new();
    static E5M2: OnceLock<String> = OnceLock::new();
    let cell = match format {
        Format::E2m1 => &E2M1,
        Format::E4m3 => &E4M3,
        _ => &E5M2,
    };
    cell.get_or_init(|| runs::to_text(&Conversion::usual(format).runs()))
}

fn definition(format: Format) -> String {
    runs::to_text(&runs::nearest_even(format, Overflow::Saturate).unwrap())
}

#[test]
fn e2m1_is_its_definition() {
    assert_eq!(encoder(Format::E2m1), definition(Format::E2m1));
}

#[test]
fn e4m3_is_its_definition() {
    assert_eq!(encoder(Format::E4m3), definition(Format::E4m3));
}

#[test]
fn e5m2_is_its_definition() {
    assert_eq!(encoder(Format::E5m2), definition(Format::E5m2));
}

#[test]
fn fp6_is_its_definition() {
    for format in [Format::E2m3, Format::E3m2] {
        assert_eq!(runs::to_text(&Conversion::usual(format).runs()), definition(format), "{format}");
    }
}

#[test]
fn wide_formats_and_unsaturated_ones_are_their_definition_at_every_cut_point() {
    for (format, overflow) in [
        (Format::Bf16, Overflow::Special),
        (Format::F16, Overflow::Special),
        (Format::F16, Overflow::Saturate),
        (Format::E4m3, Overflow::Special),
        (Format::E5m2, Overflow::Special),
    ] {
        let conversion = Conversion { overflow, ..Conversion::usual(format) };
        let expected = runs::nearest_even(format, overflow).unwrap();
        for (i, run) in expected.iter().enumerate() {
            let last = expected.get(i + 1).map_or(u32::MAX, |next| next.start - 1);
            for bits in [run.start, run.start + (last - run.start) / 2, last] {
                let code = conversion.encode(f32::from_bits(bits));
                assert_eq!(code, run.code, "{format} {overflow:?} of {bits:08x}");
            }
        }
    }
}

fn kernels_include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/include")
}

/// Builds `tests/cpp/scan.cpp` and runs it for the named conversion.
fn cpp(defines: &[&str], include: &[&Path], conversion: &str) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpp/scan.cpp");
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("scan-{conversion}"));
    let mut command = cpp_compiler::command();
    command.args(["-std=c++17", "-O3", "-pthread", "-w"]).args(defines);
    for dir in include {
        command.arg("-I").arg(dir);
    }
    let built = command.arg(&source).arg("-o").arg(&program).output().unwrap();
    assert!(built.status.success(), "{command:?}: {}", String::from_utf8_lossy(&built.stderr));
    let output = Command::new(&program).arg(conversion).output().unwrap();
    assert!(output.status.success(), "{conversion}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_kernels_header_converts_every_f32_alike() {
    let include = kernels_include();
    for format in [Format::E2m1, Format::E4m3, Format::E5m2] {
        let name = format!("kbt-{format}");
        assert_eq!(cpp(&[], &[&include], &name), definition(format), "{format}");
    }
    // For non-negative input the rounding without sign and saturation is the same function, up to where it holds.
    let short = cpp(&[], &[&include], "kbt-e2m1-below7");
    let expected: String = definition(Format::E2m1).lines().take(8).map(|l| format!("{l}\n")).collect();
    assert_eq!(short, expected);
}

#[test]
fn nvidias_host_functions_convert_every_f32_alike() {
    let Some(cuda) = std::env::var_os("KBT_CUDA").map(PathBuf::from) else {
        eprintln!("SKIPPED: KBT_CUDA names no CUDA toolkit, so its host functions were not compared");
        return;
    };
    let (own, toolkit) = (kernels_include(), cuda.join("include"));
    for format in [Format::E2m1, Format::E4m3, Format::E5m2] {
        let name = format!("nvidia-{format}");
        assert_eq!(cpp(&["-DWITH_CUDA_HEADERS"], &[&own, &toolkit], &name), definition(format), "{format}");
    }
}
