//! The quantisation of P in attention as Rust, operation by operation as kbt/quant.cuh has it.
//!
//! Given the same exp2 and reciprocal, this and the header agree to the bit (`tests/header.rs`). On a GPU both are
//! approximate, so codes of elements at a boundary may differ there.

use crate::format::{Conversion, Format};

/// How the group's scale is found and applied; the first four by the names of the header's `Form`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// Elements are p; divided by p_max / 6.
    Linear,
    /// Elements are p; multiplied by an approximate reciprocal.
    LinearRcp,
    /// Elements are exp2's arguments; the scale is subtracted from them.
    Log2,
    /// Elements are scores; argument and scale come from one multiply-add.
    Log2Fused,
    /// Elements are scores; the scale is exp2 of the greatest one's argument, and p is divided by it. SageAttention3's
    /// (softmax_fused.h at d1a57a5); in kbt/quant_published.cuh, not in the header's `Form`.
    TwoLevel,
}

impl Form {
    /// Every form, those of the header's `Form` first and in its order.
    pub const ALL: [Self; 5] = [Self::Linear, Self::LinearRcp, Self::Log2, Self::Log2Fused, Self::TwoLevel];
}

/// exp2 and reciprocal: approximate instructions on a GPU, something else elsewhere.
#[derive(Debug, Clone, Copy)]
pub struct Approximations {
    /// 2^x, flushed to zero below 2^-126.
    pub exp2: fn(f32) -> f32,
    /// 1 / x.
    pub rcp: fn(f32) -> f32,
}

impl Approximations {
    /// The host's exp2 and division, as the header has them outside a GPU.
    pub const HOST: Self = Self { exp2: host_exp2, rcp: host_rcp };
}

fn host_exp2(x: f32) -> f32 {
    let y = x.exp2();
    if y < f32::MIN_POSITIVE { 0.0 } else { y }
}

fn host_rcp(x: f32) -> f32 {
    1.0 / x
}

/// The offset that uses the whole range of an e4m3 scale: log2 2688.
pub const OFFSET_FULL: f32 = 11.392_318;
/// The offset that puts the scale in (0, 1]: log2 6.
pub const OFFSET_UNIT: f32 = LOG2_OF_6;
const LOG2_OF_6: f32 = 2.584_962_5;
const CLAMP: f32 = -100.0;
/// 2^-126 is the least scale that exp2 does not flush; a masked group has it, and divides zeros by it.
const LEAST_EXPONENT: f32 = -126.0;
/// The offset of P without a scale, in e4m3: P reaches 256 of 448.
pub const OFFSET_FP8: f32 = 8.0;

/// A row's constants: the exp2 argument of a score s is `c * s + bias`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row {
    /// Softmax scale times log2 e; positive.
    pub c: f32,
    /// Offset less `c` times the row maximum.
    pub bias: f32,
}

/// A quantised group.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Element codes.
    pub codes: Vec<u16>,
    /// The scale's e4m3 code.
    pub scale_code: u16,
    /// Code times scale for each element.
    pub values: Vec<f32>,
    /// The factor and the sum whose product the row sum gains.
    pub weight: f32,
    /// The sum over the elements, in their order.
    pub psum: f32,
}

/// Quantises one group of NVFP4: `elements` and their maximum `group_max` are p, arguments or scores, as the form has
/// them. Masked elements are 0, -inf or -inf; a group of nothing else gives codes 0 and scale 0.
#[must_use]
pub fn quantise_group(
    form: Form,
    elements: &[f32],
    group_max: f32,
    row: Row,
    approximations: Approximations,
) -> Group {
    let Approximations { exp2, rcp } = approximations;
    let linear = matches!(form, Form::Linear | Form::LinearRcp);
    let (unrounded, t) = match form {
        Form::Linear | Form::LinearRcp => {
            let scale = if form == Form::Linear { group_max / 6.0 } else { group_max * (1.0 / 6.0) };
            let divisor = scale.max(f32::MIN_POSITIVE);
            (scale, if form == Form::Linear { divisor } else { rcp(divisor) })
        }
        Form::Log2 => {
            let b = group_max.max(CLAMP) + -LOG2_OF_6;
            (exp2(b), b)
        }
        Form::Log2Fused => {
            let b = row.c.mul_add(group_max, row.bias + -LOG2_OF_6).max(CLAMP - LOG2_OF_6);
            (exp2(b), row.bias + -b)
        }
        Form::TwoLevel => {
            let b = row.c.mul_add(group_max, row.bias + -LOG2_OF_6).max(LEAST_EXPONENT);
            let scale = exp2(b);
            (scale, scale)
        }
    };
    let scale_code = Conversion::usual(Format::E4m3).encode(unrounded);
    let scale = Format::E4m3.decode(scale_code);
    let to = Conversion::usual(Format::E2m1);
    let mut group = Group { codes: Vec::new(), scale_code, values: Vec::new(), weight: unrounded, psum: 0.0 };
    if linear || form == Form::TwoLevel {
        group.weight = 1.0;
    }
    for (i, &x) in elements.iter().enumerate() {
        let (scaled, term) = match form {
            Form::Linear => (x / t, x),
            Form::LinearRcp => (x * t, x),
            Form::Log2 => same(exp2(x + -t)),
            Form::Log2Fused => same(exp2(row.c.mul_add(x, t))),
            Form::TwoLevel => {
                let p = exp2(row.c.mul_add(x, row.bias));
                (p / t, p)
            }
        };
        group.psum = if i == 0 { term } else { group.psum + term };
        let code = to.encode(scaled);
        group.codes.push(code);
        group.values.push(Format::E2m1.decode(code) * scale);
    }
    group
}

/// The element as it is quantised, which is also what the sum takes.
const fn same(x: f32) -> (f32, f32) {
    (x, x)
}

/// P in e4m3 without a scale, with a fixed offset in the row's bias ([`OFFSET_FP8`] less `c` times the row maximum):
/// the codes of these scores, and the sum of P before quantisation in their order. Output and sum both carry the
/// offset. Masked scores are -inf.
#[must_use]
pub fn quantise_fixed_offset(scores: &[f32], row: Row, approximations: Approximations) -> (Vec<u16>, f32) {
    let to = Conversion::usual(Format::E4m3);
    let p = scores.iter().map(|&s| (approximations.exp2)(row.c.mul_add(s, row.bias)));
    (p.clone().map(|p| to.encode(p)).collect(), p.reduce(|sum, p| sum + p).unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: Row = Row { c: 0.18, bias: OFFSET_FULL };

    /// A group of scores in the terms of each form.
    fn group(form: Form, scores: &[f32]) -> Group {
        let args: Vec<f32> = scores.iter().map(|s| ROW.c.mul_add(*s, ROW.bias)).collect();
        let elements: Vec<f32> = match form {
            Form::Linear | Form::LinearRcp => args.iter().map(|a| host_exp2(*a)).collect(),
            Form::Log2 => args,
            Form::Log2Fused | Form::TwoLevel => scores.to_vec(),
        };
        let max = elements.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        quantise_group(form, &elements, max, ROW, Approximations::HOST)
    }

    #[test]
    fn all_forms_agree_and_a_masked_group_is_zero_in_each() {
        let mut scores: Vec<f32> = (0..16).map(|i| -(i as f32) * 2.3).collect();
        scores[5] = f32::NEG_INFINITY;
        let linear = group(Form::Linear, &scores);
        assert_eq!(linear.codes[0], 7, "the greatest element is the format's maximum");
        for form in Form::ALL {
            let g = group(form, &scores);
            assert_eq!((g.codes, g.scale_code), (linear.codes.clone(), linear.scale_code), "{form:?}");
            assert!((g.weight * g.psum / linear.psum - 1.0).abs() < 1e-5, "{form:?}");
            let masked = group(form, &[f32::NEG_INFINITY; 16]);
            assert_eq!((masked.scale_code, masked.psum * masked.weight), (0, 0.0), "{form:?}");
            assert!(masked.codes.iter().all(|&c| c == 0), "{form:?}");
        }
    }

    #[test]
    fn values_are_exact_in_bf16() {
        for form in Form::ALL {
            let g = group(form, &(0..16).map(|i| -(i as f32) * 3.7).collect::<Vec<_>>());
            for v in g.values {
                assert_eq!(Conversion::usual(Format::Bf16).round(v), v);
            }
        }
    }

    #[test]
    fn offsets_are_the_nearest_f32_of_the_logarithms() {
        assert_eq!(OFFSET_FULL, 2688f64.log2() as f32);
        assert_eq!(OFFSET_UNIT, 6f64.log2() as f32);
        assert_eq!(OFFSET_FP8, 256f64.log2() as f32);
    }
}
