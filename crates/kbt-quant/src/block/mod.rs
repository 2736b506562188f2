//! Block formats: a few elements share a scale. NVFP4, and OCP's MXFP4, MXFP6 and MXFP8.
//!
//! How the scale is found is a parameter: the rules in use differ in the last bit on inputs that random testing does
//! not hit. Reciprocals that kernels take with `rcp.approx.ftz.f32` are correctly rounded here.

mod flashinfer;
mod layout;
mod rule;
mod scale;
mod tensor;

pub use layout::{scale_offset, scale_storage};
pub use rule::{RuleError, ScaleRule};
pub use tensor::LengthError;

use crate::format::{Conversion, Format};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A block format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockFormat {
    /// 16 e2m1 elements, an e4m3 scale, an f32 scale for the tensor.
    Nvfp4,
    /// 32 e2m1 elements, a ue8m0 scale.
    Mxfp4,
    /// 32 e2m3 elements, a ue8m0 scale.
    Mxfp6E2m3,
    /// 32 e3m2 elements, a ue8m0 scale.
    Mxfp6E3m2,
    /// 32 e4m3 elements, a ue8m0 scale.
    Mxfp8,
    /// 32 e5m2 elements, a ue8m0 scale.
    Mxfp8E5m2,
}

impl BlockFormat {
    /// Every block format.
    pub const ALL: [Self; 6] =
        [Self::Nvfp4, Self::Mxfp4, Self::Mxfp6E2m3, Self::Mxfp6E3m2, Self::Mxfp8, Self::Mxfp8E5m2];

    /// The name in options.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nvfp4 => "nvfp4",
            Self::Mxfp4 => "mxfp4",
            Self::Mxfp6E2m3 => "mxfp6-e2m3",
            Self::Mxfp6E3m2 => "mxfp6-e3m2",
            Self::Mxfp8 => "mxfp8",
            Self::Mxfp8E5m2 => "mxfp8-e5m2",
        }
    }

    /// Elements of a block.
    #[must_use]
    pub const fn elements(self) -> usize {
        if matches!(self, Self::Nvfp4) { 16 } else { 32 }
    }

    /// The elements' format.
    #[must_use]
    pub const fn element(self) -> Format {
        match self {
            Self::Nvfp4 | Self::Mxfp4 => Format::E2m1,
            Self::Mxfp6E2m3 => Format::E2m3,
            Self::Mxfp6E3m2 => Format::E3m2,
            Self::Mxfp8 => Format::E4m3,
            Self::Mxfp8E5m2 => Format::E5m2,
        }
    }

    /// The scale's format.
    #[must_use]
    pub const fn scale(self) -> Format {
        if matches!(self, Self::Nvfp4) { Format::E4m3 } else { Format::Ue8m0 }
    }
}

impl fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for BlockFormat {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        Self::ALL.into_iter().find(|f| f.as_str() == text).ok_or_else(|| RuleError::Format(text.to_owned()))
    }
}

/// A quantiser: format, rule and what the rule needs to know of the whole tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantiser {
    format: BlockFormat,
    rule: ScaleRule,
    /// The greatest magnitude of the tensor, for rules with a scale for it.
    tensor_amax: f32,
}

impl Quantiser {
    /// A quantiser; `tensor_amax` is the greatest magnitude of the whole tensor, and only rules with two levels use
    /// it; 0 is a tensor of zeros, or none known. Fails if the rule is not one of the format's, and on a magnitude that
    /// is negative or NaN.
    pub fn new(format: BlockFormat, rule: ScaleRule, tensor_amax: f32) -> Result<Self, RuleError> {
        rule.check(format)?;
        if tensor_amax.is_nan() || tensor_amax < 0.0 {
            return Err(RuleError::TensorAmax(tensor_amax));
        }
        Ok(Self { format, rule, tensor_amax })
    }

    /// The format.
    #[must_use]
    pub const fn format(&self) -> BlockFormat {
        self.format
    }

    /// Quantises one block, or the shorter one at the end of a row: one element code for each of `xs` into `codes`,
    /// and the scale's code as the result.
    pub fn block(&self, xs: &[f32], codes: &mut [u16]) -> u16 {
        let (scale, factor) =
            self.rule.visit(self.format, self.tensor_amax, OneScale { amax: tensor::greatest(xs) });
        let to = Conversion::usual(self.format.element());
        for (code, x) in codes.iter_mut().zip(xs) {
            *code = to.encode(x * factor);
        }
        u16::from(scale)
    }

    /// What code times scale is multiplied by to give a value: the tensor's own scale, 1 where the rule has none.
    #[must_use]
    pub fn tensor_scale(&self) -> f32 {
        self.rule.tensor_factor(self.format, self.tensor_amax)
    }

    /// The value that an element code and a scale code stand for.
    #[must_use]
    pub fn dequantise(&self, scale: u16, code: u16) -> f32 {
        let product = self.format.element().decode(code) * self.format.scale().decode(scale);
        product * self.tensor_scale()
    }
}

/// Finds the scale of one block.
struct OneScale {
    amax: f32,
}

impl scale::WithScale for OneScale {
    type Output = (u8, f32);

    fn with<S: scale::Scale>(self, scale: S) -> (u8, f32) {
        scale.of(self.amax)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantise(format: BlockFormat, rule: ScaleRule, amax: f32, xs: &[f32]) -> (u16, Vec<u16>) {
        let mut codes = vec![0; xs.len()];
        let scale = Quantiser::new(format, rule, amax).unwrap().block(xs, &mut codes);
        (scale, codes)
    }

    #[test]
    fn known_cases_give_the_published_codes() {
        // torchao clamps the scale at 2^-6: a block of 0.01 loses its value (scale 08, code 1, .0078).
        let xs = [0.01f32; 16];
        assert_eq!(quantise(BlockFormat::Nvfp4, ScaleRule::Torchao, 0.0, &xs), (0x08, vec![1; 16]));
        // Unclamped: scale 01, code 7, .0117.
        assert_eq!(quantise(BlockFormat::Nvfp4, ScaleRule::Sage3, 0.0, &xs), (0x01, vec![7; 16]));
        // OCP's floor of the logarithm: a maximum just below 32 has exponent 4, and 32 - ulp becomes 24.
        let mut xs = [0.0f32; 32];
        xs[0] = f32::from_bits(0x41ff_ffff);
        let (scale, codes) = quantise(BlockFormat::Mxfp4, ScaleRule::Floor, 0.0, &xs);
        assert_eq!((scale, codes[0]), (0x7f + 2, 7));
        // vLLM: amax 2.7, exponent of amax / 6 rounded up is 126, not 125.
        xs[0] = 2.7;
        assert_eq!(quantise(BlockFormat::Mxfp4, ScaleRule::RoundUp, 0.0, &xs).0, 126);
    }

    #[test]
    fn the_order_of_two_multiplications_is_visible() {
        // TransformerEngine multiplies by S * (1/6); dividing by 6 first gives another code.
        let amax = f32::from_bits(0x3ee4_8249);
        let (te, _) = quantise(BlockFormat::Nvfp4, ScaleRule::TransformerEngine, 168.375, &[amax; 16]);
        assert_eq!(te, 0x3a);
        let naive = Conversion::usual(Format::E4m3).encode(amax / 6.0 * (2688.0 / 168.375));
        assert_eq!(naive, 0x39);
    }

    #[test]
    fn codes_times_scales_are_the_values_whatever_the_tensor_s_scale() {
        for format in BlockFormat::ALL {
            for rule in ScaleRule::ALL.into_iter().filter(|r| r.check(format).is_ok()) {
                // As great as the tensor's greatest, so that no scale is small.
                let xs: Vec<f32> = (0..format.elements()).map(|i| i as f32 - 5.0).collect();
                let amax = xs.iter().fold(0.0f32, |m, x| m.max(x.abs()));
                let (scale, codes) = quantise(format, rule, amax, &xs);
                let q = Quantiser::new(format, rule, amax).unwrap();
                assert_eq!(q.tensor_scale() == 1.0, !rule.has_tensor_scale(format), "{format} {rule}");
                for (x, &code) in xs.iter().zip(&codes) {
                    let apart = (q.dequantise(scale, code) - x).abs();
                    assert!(apart <= amax / 4.0, "{format} {rule}: {x} became {}", q.dequantise(scale, code));
                }
            }
        }
    }

    #[test]
    fn a_zero_block_is_zero_and_nan_is_not_lost() {
        for format in BlockFormat::ALL {
            let rule = ScaleRule::ALL.into_iter().find(|r| r.check(format).is_ok()).unwrap();
            let n = format.elements();
            let (scale, codes) = quantise(format, rule, 1.0, &vec![0.0; n]);
            assert!(codes.iter().all(|&c| c == 0), "{format} {codes:?}");
            let q = Quantiser::new(format, rule, 1.0).unwrap();
            assert_eq!(q.dequantise(scale, 0), 0.0);
            let mut xs = vec![1.0; n];
            xs[3] = f32::NAN;
            let (scale, _) = quantise(format, rule, 1.0, &xs);
            assert!(format.scale().decode(scale).is_nan(), "{format} scale {scale:02x}");
        }
    }

    #[test]
    fn a_power_of_two_scale_leaves_exact_values_exact() {
        let xs: Vec<f32> =
            (0..32).map(|i| [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][i % 8] * 2f32.powi(-20)).collect();
        for rule in [ScaleRule::Floor, ScaleRule::RoundUp] {
            let (scale, codes) = quantise(BlockFormat::Mxfp4, rule, 0.0, &xs);
            let q = Quantiser::new(BlockFormat::Mxfp4, rule, 0.0).unwrap();
            for (x, c) in xs.iter().zip(codes) {
                assert_eq!(q.dequantise(scale, c), *x, "{rule:?}");
            }
        }
    }

    #[test]
    fn a_rule_of_another_format_is_refused_with_what_is_accepted() {
        let error =
            Quantiser::new(BlockFormat::Mxfp4, ScaleRule::TransformerEngine, 1.0).unwrap_err().to_string();
        assert!(error.contains("floor, round-up"), "{error}");
        assert!("fp4".parse::<BlockFormat>().unwrap_err().to_string().contains("nvfp4"));
    }

    #[test]
    fn an_infinite_or_greatest_element_saturates_and_nothing_panics() {
        for format in BlockFormat::ALL {
            for rule in ScaleRule::ALL.into_iter().filter(|r| r.check(format).is_ok()) {
                for x in [f32::INFINITY, f32::MAX, f32::MIN_POSITIVE, f32::from_bits(1)] {
                    for tensor_amax in [0.0, f32::MIN_POSITIVE, f32::MAX] {
                        let mut xs = vec![0.0; format.elements()];
                        xs[1] = -x;
                        let (scale, codes) = quantise(format, rule, tensor_amax, &xs);
                        let context = format!("{format} {rule} {x:e} of {tensor_amax:e}");
                        assert!(!format.scale().decode(scale).is_nan(), "{context}");
                        // flashinfer's factor for an infinite maximum is 0, and infinity times it NaN.
                        let lost = rule == ScaleRule::Flashinfer && format.scale() == Format::Ue8m0;
                        if x.is_finite() || !lost {
                            assert!(format.element().decode(codes[1]) <= 0.0, "{context}: {:x}", codes[1]);
                        }
                    }
                }
            }
        }
        let bad = Quantiser::new(BlockFormat::Nvfp4, ScaleRule::TransformerEngine, f32::NAN);
        assert!(bad.unwrap_err().to_string().contains("NaN"));
    }

    #[test]
    fn a_power_of_two_scale_is_the_definition_of_its_rule() {
        // OCP: the exponent of the greatest element becomes that of the format's maximum. Rounding up: the least power
        // of two under which the greatest element does not exceed the format's maximum.
        for format in BlockFormat::ALL.into_iter().filter(|f| f.scale() == Format::Ue8m0) {
            let max = f64::from(format.element().max());
            for i in 0..4000u32 {
                let amax = f32::from_bits(0x2000_0000 + i * 0x0004_0001 + i * i);
                let mut xs = vec![0.0; format.elements()];
                xs[7] = amax;
                let power = |rule| {
                    let (scale, _) = quantise(format, rule, 0.0, &xs);
                    f64::from(format.scale().decode(scale))
                };
                let floor = f64::from(amax).log2().floor().exp2() / max.log2().floor().exp2();
                assert_eq!(power(ScaleRule::Floor), floor, "{format} {amax:e}");
                let up = power(ScaleRule::RoundUp);
                // amax / max is rounded to f32 before its exponent is taken.
                let fits = |p: f64| f64::from((f64::from(amax) / max) as f32) <= p;
                assert!(fits(up) && !fits(up / 2.0), "{format} {amax:e}: {up:e}");
            }
        }
    }
}
