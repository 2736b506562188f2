//! The built-in programs, evaluated operation by operation in f32, against the Rust reference of the same form, bit by bit.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]

use kbt_quant::attention::{Approximations, Form, OFFSET_FP8, OFFSET_FULL, Row};
use kbt_quant::attention::{quantise_fixed_offset, quantise_group};
use kbt_quant::format::Format;
use kbt_quant::lang::eval::{Extent, Tracked};
use kbt_quant::lang::{Program, builtin};

/// exp2 and reciprocal as the programs' evaluation has them: correctly rounded, flushed below 2^-126.
const EVALUATED: Approximations = Approximations { exp2, rcp };

fn exp2(x: f32) -> f32 {
    flush(f64::from(x).exp2() as f32)
}

fn rcp(x: f32) -> f32 {
    flush(1.0 / x)
}

fn flush(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { 0.0 } else { x }
}

fn hash(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

fn unit(seed: u64) -> f32 {
    (hash(seed) >> 40) as f32 / 16_777_216.0
}

/// A row of one group: its running maximum, softmax scale and scores, some of them masked.
struct Case {
    m_old: f32,
    c: f32,
    scores: [f32; 16],
}

fn case(n: u64) -> Case {
    let c = 0.02 + unit(n ^ 0xabcd) * 0.5;
    let spread = [1.0, 20.0, 300.0][(n % 3) as usize];
    let scores = std::array::from_fn(|i| {
        let seed = n * 16 + i as u64;
        let masked = n % 7 == 6 || n % 5 == 4 && hash(seed).is_multiple_of(3);
        if masked { f32::NEG_INFINITY } else { (unit(seed) - 0.7) * spread / c }
    });
    Case { m_old: (unit(n ^ 0x77) - 0.5) * spread / c, c, scores }
}

/// Values of the outputs, by name.
fn evaluate(program: &Program, case: &Case, offset: f32) -> Vec<(String, Vec<f32>)> {
    let inputs: Vec<Vec<Tracked>> = program
        .inputs
        .iter()
        .map(|input| {
            let values: &[f32] = match input.name.as_str() {
                "s" => &case.scores,
                "m_old" => &[case.m_old],
                "c" => &[case.c],
                "offset" => &[offset],
                other => panic!("no value for input {other}"),
            };
            values.iter().map(|&x| Tracked::input(x)).collect()
        })
        .collect();
    let values = program.evaluate(&inputs, Extent::new(program.layout, 1));
    let output = |(name, node): &(String, usize)| {
        (name.clone(), values[*node].iter().map(|v| v.value).collect::<Vec<f32>>())
    };
    program.outputs.iter().map(output).collect()
}

fn bits(xs: &[f32]) -> Vec<u32> {
    xs.iter().map(|x| x.to_bits()).collect()
}

/// The outputs `code` and `sf` decoded, and `sum`.
fn expect(outputs: &[(String, Vec<f32>)], name: &str, values: &[f32], context: &str) {
    let (_, got) = outputs.iter().find(|(n, _)| n == name).unwrap();
    assert_eq!(bits(got), bits(values), "{context}: {name}: {got:?}, not {values:?}");
}

fn row(case: &Case, offset: f32) -> (Row, f32) {
    let m = case.scores.iter().copied().fold(case.m_old, f32::max);
    let bias = (-m).mul_add(case.c, offset);
    (Row { c: case.c, bias }, m)
}

#[test]
fn each_form_is_its_program() {
    for (name, form) in [
        ("softmax-nvfp4-linear", Form::Linear),
        ("softmax-nvfp4-linear-rcp", Form::LinearRcp),
        ("softmax-nvfp4-log2", Form::Log2),
        ("softmax-nvfp4-log2-fused", Form::Log2Fused),
        ("softmax-nvfp4-two-level", Form::TwoLevel),
    ] {
        let program: Program = builtin(name).unwrap().parse().unwrap();
        for n in 0..3000 {
            let case = case(n);
            let (row, m) = row(&case, OFFSET_FULL);
            let elements = case.scores.map(|s| match form {
                Form::Linear | Form::LinearRcp => exp2(row.c.mul_add(s, row.bias)),
                Form::Log2 => row.c.mul_add(s, row.bias),
                Form::Log2Fused | Form::TwoLevel => s,
            });
            let max = elements.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let group = quantise_group(form, &elements, max, row, EVALUATED);
            // The forms with a weight sum a lane's elements, scale the sum, and add the four lanes.
            let sum = match form {
                Form::Log2 | Form::Log2Fused => {
                    let lane = |x: &[f32]| quantise_group(form, x, max, row, EVALUATED);
                    let lanes = elements.chunks(4).map(lane).map(|g| g.psum * g.weight);
                    lanes.reduce(|a, b| a + b).unwrap()
                }
                _ => group.psum,
            };
            let outputs = evaluate(&program, &case, OFFSET_FULL);
            let context = format!("{name} case {n}");
            let codes: Vec<f32> = group.codes.iter().map(|&c| Format::E2m1.decode(c)).collect();
            expect(&outputs, "code", &codes, &context);
            expect(&outputs, "sf", &[Format::E4m3.decode(group.scale_code)], &context);
            expect(&outputs, "sum", &[sum], &context);
            expect(&outputs, "m_new", &[m], &context);
        }
    }
}

#[test]
fn the_fixed_offset_is_its_program() {
    let program: Program = builtin("softmax-fp8").unwrap().parse().unwrap();
    for n in 0..3000 {
        let case = case(n);
        let (row, _) = row(&case, OFFSET_FP8);
        let (codes, sum) = quantise_fixed_offset(&case.scores, row, EVALUATED);
        let outputs = evaluate(&program, &case, 0.0);
        let codes: Vec<f32> = codes.iter().map(|&c| Format::E4m3.decode(c)).collect();
        expect(&outputs, "code", &codes, &format!("case {n}"));
        expect(&outputs, "sum", &[sum], &format!("case {n}"));
    }
}
