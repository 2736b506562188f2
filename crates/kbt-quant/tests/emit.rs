//! Generated source: compiled for the host it has the bits of this crate's own evaluation, and nvcc takes it.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]

mod cpp_compiler;
mod nvcc;

use kbt_device::{Arch, embedded_profile};
use kbt_quant::cost::CostModel;
use kbt_quant::emit::{PRELUDE, function};
use kbt_quant::lang::eval::{Extent, Tracked};
use kbt_quant::lang::{BUILTIN, Program, Shape};
use kbt_quant::rewrite::{Limits, search};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Every built-in program and the cheapest form found of it, with a C++ name each.
fn programs(edit: impl Fn(&str) -> String) -> Vec<(String, Program)> {
    let device = embedded_profile("h200-sxm").unwrap().unwrap();
    let mut out = Vec::new();
    for (name, text) in BUILTIN {
        let program: Program = edit(text).parse().unwrap();
        let model = CostModel::new(&device, program.layout);
        let found = search(&program, &model, &Limits::default()).unwrap();
        let name = name.replace('-', "_");
        if let Some(best) = found.candidates.first() {
            out.push((format!("{name}_best"), best.priced.program.clone()));
        }
        out.push((name, program));
    }
    out
}

/// Operations that the built-in programs do not have: every format, negative numbers, constants of all sizes.
const CORNERS: &str = "layout group=8 lanes=1 row=32\n\
    elem s in [-inf, inf]\nrow m\nconst c\n\
    out a = cvt_e2m3(s)\nout b = cvt_e3m2(s)\nout d = cvt_e5m2(s)\nout e = cvt_ue8m0(s)\nout f = cvt_bf16(s)\n\
    out g = cvt_f16(s)\nout h = cvt_e2m1(s)\nout i = cvt_e4m3(s)\nout j = -s\nout k = rcp(s)\nout l = log2(s)\n\
    out n = s / m\nout o = group_sum(s * c)\nout p = row_max(group_max(s)) - 1e-40\nout q = max(-s, m) + 3e38\n\
    t = s - m\nassume t in [0, 6.9]\nout u = exp2(s) + cvt_e2m1(max(0, t))\n\
    out v = sqrt(s)\nout w = sqrt_rn(s)\nout x = rsqrt(s)\nout y = tanh(s * 0.01)\n\
    out ab = abs(s)\nout ac = -abs(s) + m\nout z = select(lt(s, m), s, -inf)\nout aa = select(le(s, c), s, m) + eq(s, 5)\n";

fn hash(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 31)
}

/// Elements of all sizes, special ones among them; rows and constants ordinary.
fn inputs(program: &Program, extent: Extent, case: u64) -> Vec<Vec<f32>> {
    let special =
        [0.0f32, -0.0, f32::NEG_INFINITY, f32::INFINITY, 1e-40, -1e-40, 0.25, 5.0, -2.5, 448.0, 1e30];
    let corners = program.inputs.iter().any(|i| i.range.hi == f64::INFINITY);
    program
        .inputs
        .iter()
        .enumerate()
        .map(|(n, input)| {
            (0..extent.len(input.shape) as u64)
                .map(|i| {
                    let h = hash(case << 32 | (n as u64) << 24 | i);
                    let unit = (h >> 40) as f32 / 16_777_216.0;
                    match input.shape {
                        Shape::Elem if corners && h.is_multiple_of(3) => {
                            special[(h >> 8) as usize % special.len()]
                        }
                        Shape::Elem if corners && h % 3 == 1 => f32::from_bits((h >> 20) as u32),
                        Shape::Elem if h.is_multiple_of(5) && case % 4 == 1 => f32::NEG_INFINITY,
                        Shape::Elem if case % 4 == 2 => f32::NEG_INFINITY,
                        Shape::Elem => (unit - 0.7) * if case % 4 == 3 { 3000.0 } else { 30.0 },
                        Shape::Const if input.name == "offset" => unit * 11.0,
                        Shape::Const => 0.1 + unit,
                        _ => unit * 9.0 + 1.0,
                    }
                })
                .collect()
        })
        .collect()
}

/// A C++ main that calls every step on the rows that standard input has, in hex, and prints the outputs' bits.
fn host_main(programs: &[(String, Program)], cases: u64) -> String {
    let mut text = format!("#include <stdio.h>\n{PRELUDE}");
    for (name, program) in programs {
        text += &function(program, name, &[]);
    }
    text += "static float read() { unsigned u = 0; if (scanf(\"%x\", &u) != 1) u = 0; return kbt_step::from_bits(u); }\n\
             static void show(float x) { printf(\"%08x \", kbt_step::bits(x)); }\nint main() {\n";
    for (name, program) in programs {
        let groups = program.layout.row / program.layout.group;
        let each = program.layout.elements_a_lane();
        let count = |shape: Shape| match shape {
            Shape::Elem => groups * each,
            Shape::Group | Shape::Lane => groups,
            _ => 1,
        };
        let declare = |name: &str, shape: Shape| match shape {
            Shape::Elem => format!("float {name}[{groups}][{each}];"),
            Shape::Group | Shape::Lane => format!("float {name}[{groups}];"),
            _ => format!("float {name};"),
        };
        let _ = writeln!(text, "for (int k = 0; k < {cases}; ++k) {{");
        let mut names = Vec::new();
        for (i, input) in program.inputs.iter().enumerate() {
            let _ = writeln!(text, "{}", declare(&format!("in{i}"), input.shape));
            let _ = writeln!(
                text,
                "for (int i = 0; i < {}; ++i) ((float*)&in{i})[i] = read();",
                count(input.shape)
            );
            names.push(format!("in{i}"));
        }
        names.push("kbt_step::OneLane{}".to_owned());
        for (i, (_, node)) in program.outputs.iter().enumerate() {
            let _ = writeln!(text, "{}", declare(&format!("out{i}"), program.shapes[*node]));
            names.push(format!("out{i}"));
        }
        // Rows and constants alone do not say how many groups there are.
        let _ = writeln!(text, "kbt_step::{name}<{groups}>({});", names.join(", "));
        for (i, (_, node)) in program.outputs.iter().enumerate() {
            let n = count(program.shapes[*node]);
            let _ = writeln!(text, "for (int i = 0; i < {n}; ++i) show(((float*)&out{i})[i]);");
        }
        text += "printf(\"\\n\"); }\n";
    }
    text + "}\n"
}

#[test]
fn on_the_host_every_step_has_the_bits_of_the_reference() {
    const CASES: u64 = 40;
    let mut programs = programs(|text| text.replace("lanes=4", "lanes=1"));
    programs.push(("corners".to_owned(), CORNERS.parse().unwrap()));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, binary) = (folder.join("emitted.cpp"), folder.join("emitted"));
    std::fs::write(&source, host_main(&programs, CASES)).unwrap();
    let mut compiler = cpp_compiler::command();
    let built = compiler
        .args([
            "-std=c++17",
            "-O2",
            "-ffp-contract=off",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-Wno-strict-aliasing",
        ])
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .output()
        .unwrap();
    assert!(built.status.success(), "{compiler:?}: {}", String::from_utf8_lossy(&built.stderr));
    let (mut input, mut expected) = (String::new(), Vec::new());
    for (name, program) in &programs {
        let extent = Extent::new(program.layout, (program.layout.row / program.layout.group) as usize);
        for case in 0..CASES {
            let given = inputs(program, extent, case);
            for x in given.iter().flatten() {
                let _ = write!(input, "{:08x} ", x.to_bits());
            }
            input.push('\n');
            let tracked: Vec<Vec<Tracked>> =
                given.iter().map(|v| v.iter().map(|&x| Tracked::input(x)).collect()).collect();
            let values = program.evaluate(&tracked, extent);
            let outputs: Vec<Vec<f32>> =
                program.outputs.iter().map(|(_, n)| values[*n].iter().map(|t| t.value).collect()).collect();
            expected.push((name, case, given, outputs));
        }
    }
    let mut child = Command::new(&binary).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let output = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.lines().count(), expected.len());
    for (line, (name, case, given, outputs)) in output.lines().zip(&expected) {
        let theirs: Vec<u32> = line.split_whitespace().map(|w| u32::from_str_radix(w, 16).unwrap()).collect();
        let ours: Vec<f32> = outputs.iter().flatten().copied().collect();
        assert_eq!(theirs.len(), ours.len(), "{name}");
        for (i, (their, our)) in theirs.iter().zip(&ours).enumerate() {
            let their = f32::from_bits(*their);
            let same = their.to_bits() == our.to_bits() || (their.is_nan() && our.is_nan());
            // The greater of zeros of both signs is either.
            let zeros = their == 0.0 && *our == 0.0;
            assert!(
                same || zeros,
                "{name} case {case} output value {i}: {their:e}, expected {our:e}; {given:?}"
            );
        }
    }
}

#[test]
fn nvcc_compiles_the_best_candidate_of_every_built_in_program() {
    let Some(tools) = nvcc::tools("no generated source was compiled for a device") else { return };
    let mut text = PRELUDE.to_owned();
    for (name, program) in programs(str::to_owned) {
        text += &function(&program, &name, &["a guard".to_owned()]);
        let groups = program.layout.row / program.layout.group;
        let each = program.layout.elements_a_lane();
        let bounds = |shape: Shape| match shape {
            Shape::Elem => format!("[{groups}][{each}]"),
            Shape::Group | Shape::Lane => format!("[{groups}]"),
            _ => String::new(),
        };
        let count = |shape: Shape| if shape == Shape::Elem { groups * each } else { groups };
        let (mut before, mut after, mut names) = (String::new(), String::new(), Vec::new());
        for (i, input) in program.inputs.iter().enumerate() {
            let (bounds, n) = (bounds(input.shape), count(input.shape));
            let fill = if bounds.is_empty() {
                format!("const float in{i} = from[{i}];\n")
            } else {
                format!(
                    "float in{i}{bounds};\nfor (int k = 0; k < {n}; ++k) ((float*)in{i})[k] = from[{i} + k];\n"
                )
            };
            before += &fill;
            names.push(format!("in{i}"));
        }
        names.push(format!("kbt_step::Butterfly<{}>{{}}", program.layout.lanes));
        for (i, (_, node)) in program.outputs.iter().enumerate() {
            let (bounds, n) = (bounds(program.shapes[*node]), count(program.shapes[*node]));
            before += &format!("float out{i}{bounds};\n");
            after += &if bounds.is_empty() {
                format!("to[{i}] = out{i};\n")
            } else {
                format!("for (int k = 0; k < {n}; ++k) to[{i} + k] = ((float*)out{i})[k];\n")
            };
            names.push(format!("out{i}"));
        }
        text += &format!(
            "extern \"C\" __global__ void k_{name}(const float* from, float* to) {{\n{before}\
             kbt_step::{name}<{groups}>({});\n{after}}}\n",
            names.join(", ")
        );
    }
    let source = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("emitted.cu");
    std::fs::write(&source, text).unwrap();
    for arch in [Arch::SM_90A, Arch::SM_103A] {
        let options = kbt_toolchain::NvccOptions {
            extra: vec!["-Werror=all-warnings".into()],
            ..kbt_toolchain::NvccOptions::new(arch)
        };
        assert!(!nvcc::compile(&tools, &source, &options).is_empty());
    }
}
