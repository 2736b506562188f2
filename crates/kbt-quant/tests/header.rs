//! kbt/quant.cuh compiled for the host, against the Rust reference: every form of the quantisation of P, bit by bit.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]

mod cpp_compiler;

use kbt_quant::attention::{
    Approximations, Form, OFFSET_FP8, OFFSET_FULL, OFFSET_UNIT, Row, quantise_fixed_offset, quantise_group,
};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn hash(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn unit(seed: u64) -> f32 {
    (hash(seed) >> 40) as f32 / 16_777_216.0
}

/// Scores of one group: random, partly or wholly masked, huge, tiny, or such that elements lie at cut points of e2m1.
fn scores(case: u64, row: Row) -> [f32; 16] {
    let cuts = [0.25f32, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0];
    let top = -unit(case) * 40.0 / row.c;
    std::array::from_fn(|i| {
        let seed = case * 16 + i as u64;
        let u = unit(seed ^ 0x5555_0000);
        match case % 6 {
            0 => top - u * 20.0 / row.c,
            1 if hash(seed).is_multiple_of(3) => f32::NEG_INFINITY,
            1 => top - u * 5.0 / row.c,
            2 => f32::NEG_INFINITY,
            3 => -u * 3000.0 / row.c,
            4 => top - u * 1e-4,
            // The argument whose exp2 is cut/6 of the greatest, and a few f32 beside it.
            _ if i == 0 => top,
            _ => {
                let x = top + (cuts[i % 8] / 6.0).log2() / row.c;
                f32::from_bits(x.to_bits().wrapping_add((hash(seed) % 5) as u32).wrapping_sub(2))
            }
        }
    })
}

/// Builds `tests/cpp/quantise_p.cpp` under a name of the test's own.
fn build(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut compiler = cpp_compiler::command();
    let built = compiler
        .args(["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(dir.join("../../kernels/include"))
        .arg(dir.join("tests/cpp/quantise_p.cpp"))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(built.status.success(), "{compiler:?}: {}", String::from_utf8_lossy(&built.stderr));
    program
}

fn run(program: &Path, input: String) -> String {
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn bits(x: f32) -> String {
    format!("{:08x}", x.to_bits())
}

fn line(xs: &[f32]) -> String {
    xs.iter().map(|x| bits(*x)).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_offsets_are_the_headers() {
    let output = Command::new(build("quantise-p-offsets")).arg("offsets").output().unwrap();
    let expected = [OFFSET_UNIT, OFFSET_FULL, OFFSET_FP8].map(bits).join(" ");
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), expected);
}

#[test]
fn the_fixed_offset_is_the_header_bit_by_bit() {
    let (mut input, mut expected) = (String::new(), String::new());
    for case in 0..6000u64 {
        let row = Row { c: 0.02 + unit(case ^ 0xabcd) * 0.5, bias: OFFSET_FP8 - unit(case) * 30.0 };
        let scores = scores(case, row);
        writeln!(input, "-1 0 {} {} {}", bits(row.c), bits(row.bias), line(&scores)).unwrap();
        let (codes, sum) = quantise_fixed_offset(&scores, row, Approximations::HOST);
        let codes: String = codes.iter().map(|c| format!("{c:02x}")).collect();
        writeln!(expected, "{codes} {}", bits(sum)).unwrap();
    }
    let output = run(&build("quantise-p-fixed"), input);
    for (case, (theirs, ours)) in output.lines().zip(expected.lines()).enumerate() {
        assert_eq!(theirs, ours, "case {case}");
    }
    assert_eq!(output.lines().count(), expected.lines().count());
}

#[test]
fn every_form_is_the_header_bit_by_bit() {
    let program = build("quantise-p");
    let (mut input, mut expected) = (String::new(), String::new());
    let exp2 = Approximations::HOST.exp2;
    for case in 0..6000u64 {
        let offset = [0.0, OFFSET_UNIT, OFFSET_FULL][(case % 3) as usize];
        let row = Row { c: 0.02 + unit(case ^ 0xabcd) * 0.5, bias: offset };
        let scores = scores(case, row);
        for (number, form) in Form::ALL.into_iter().enumerate() {
            let elements: [f32; 16] = std::array::from_fn(|i| {
                let arg = row.c.mul_add(scores[i], row.bias);
                match form {
                    Form::Linear | Form::LinearRcp => exp2(arg),
                    Form::Log2 => arg,
                    Form::Log2Fused | Form::TwoLevel => scores[i],
                }
            });
            let max = elements.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let group = quantise_group(form, &elements, max, row, Approximations::HOST);
            writeln!(input, "{number} {} {} {} {}", bits(max), bits(row.c), bits(row.bias), line(&elements))
                .unwrap();
            let codes: String = group.codes.iter().map(|c| format!("{c:x}")).collect();
            writeln!(
                expected,
                "{codes} {:02x} {} {} {}",
                group.scale_code,
                bits(group.weight),
                bits(group.psum),
                line(&group.values)
            )
            .unwrap();
        }
    }
    let output = run(&program, input);
    for (i, (theirs, ours)) in output.lines().zip(expected.lines()).enumerate() {
        let (case, form) = (i / Form::ALL.len(), Form::ALL[i % Form::ALL.len()]);
        assert_eq!(theirs, ours, "case {case} form {form:?}");
    }
    assert_eq!(output.lines().count(), expected.lines().count());
}
