//! The encoders over every f32: against the definition by cut points, against the C++ header that kernels use,
//! and against NVIDIA's host functions where a CUDA toolkit is present.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]

mod cpp_compiler;

use kbt_quant::format::{Conversion, Format, Overflow, Rounding, pack_x2, runs};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
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
    runs::to_text(&Conversion::usual(format).definition())
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

/// The first, a middle and the last input of every run of equal codes.
fn cut_points(conversion: Conversion) -> Vec<(u32, u16)> {
    let runs = conversion.definition();
    let mut points = Vec::with_capacity(3 * runs.len());
    for (i, run) in runs.iter().enumerate() {
        let last = runs.get(i + 1).map_or(u32::MAX, |next| next.start - 1);
        for bits in [run.start, run.start + (last - run.start) / 2, last] {
            points.push((bits, run.code));
        }
    }
    points
}

#[test]
fn every_conversion_that_ptx_has_is_its_definition_at_every_cut_point() {
    let all: Vec<Conversion> = Conversion::all().collect();
    // 4 of each FP4, FP6 and FP8 format, 6 of ue8m0, 10 of bf16 and of f16.
    assert_eq!(all.len(), 5 * 4 + 6 + 2 * 10);
    for conversion in all {
        for (bits, code) in cut_points(conversion) {
            let got = conversion.encode(f32::from_bits(bits));
            assert_eq!(got, code, "{conversion:?} of {bits:08x}: {got:x}, not {code:x}");
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

/// Whether NVIDIA's headers convert so on the host: they have no relu, and of bf16 and f16 no saturation.
fn nvidia_has(conversion: Conversion) -> bool {
    !conversion.relu
        && match conversion.format {
            Format::Bf16 | Format::F16 => conversion.overflow == Overflow::Special,
            Format::Ue8m0 => conversion.rounding != Rounding::Rn,
            _ => true,
        }
}

#[test]
fn nvidias_host_functions_agree_at_every_cut_point_in_every_mode_and_packed() {
    let Some(cuda) = std::env::var_os("KBT_CUDA").map(PathBuf::from) else {
        eprintln!("SKIPPED: KBT_CUDA names no CUDA toolkit, so its host functions were not compared");
        return;
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpp/nvidia.cpp");
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("nvidia");
    let mut command = cpp_compiler::command();
    command.args(["-std=c++17", "-O2", "-w", "-I"]).arg(cuda.join("include"));
    let built = command.arg(&source).arg("-o").arg(&program).output().unwrap();
    assert!(built.status.success(), "{command:?}: {}", String::from_utf8_lossy(&built.stderr));
    for conversion in Conversion::all().filter(|c| nvidia_has(*c)) {
        let points = cut_points(conversion);
        let pack = |hi, lo| pack_x2(conversion.format, hi, lo).unwrap_or(0);
        let (mut input, mut expected) = (String::new(), String::new());
        // Each point with the next, so that either half of a pair sees every point.
        for (i, &(hi, hi_code)) in points.iter().enumerate() {
            let (lo, lo_code) = points[(i + 1) % points.len()];
            writeln!(input, "{hi:08x} {lo:08x}").unwrap();
            writeln!(expected, "{hi_code:x} {lo_code:x} {:x}", pack(hi_code, lo_code)).unwrap();
        }
        let saturation = if conversion.overflow == Overflow::Saturate { "sat" } else { "nosat" };
        let mut child = Command::new(&program)
            .args([conversion.format.as_str(), conversion.rounding.as_str(), saturation])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let text = input.clone();
        let writer = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success(), "{conversion:?}");
        let output = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.lines().count(), points.len(), "{conversion:?}");
        for ((theirs, ours), at) in output.lines().zip(expected.lines()).zip(input.lines()) {
            assert_eq!(theirs, ours, "{conversion:?} of {at}");
        }
    }
}
