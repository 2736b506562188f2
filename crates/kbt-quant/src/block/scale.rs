//! The arithmetic of the scale rules, operation by operation, without branches so that loops over blocks vectorise.

use super::{BlockFormat, ScaleRule, flashinfer};
use crate::format::{Conversion, Format, Rounding};

/// A rule with what follows from the format and the tensor worked out.
pub(super) trait Scale: Copy {
    /// The scale's code, and what the block's elements are multiplied by; `amax` is the block's greatest magnitude.
    fn of(self, amax: f32) -> (u8, f32);
}

/// What is done with a rule, whichever it is.
pub(super) trait WithScale {
    /// The result.
    type Output;
    /// Does it.
    fn with<S: Scale>(self, scale: S) -> Self::Output;
}

impl ScaleRule {
    /// Calls `visit` with this rule's arithmetic.
    #[inline]
    pub(super) fn visit<V: WithScale>(self, format: BlockFormat, tensor_amax: f32, visit: V) -> V::Output {
        let max = format.element().max();
        match self {
            Self::TransformerEngine => {
                let encode = encode_scale(tensor_amax);
                visit.with(TransformerEngine { product: encode * (1.0 / 6.0), inverse: 1.0 / encode })
            }
            Self::Flashinfer if format == BlockFormat::Nvfp4 => {
                visit.with(flashinfer::Nvfp4::new(encode_scale(tensor_amax)))
            }
            Self::FlashinferExact => visit.with(flashinfer::Exact::new(encode_scale(tensor_amax))),
            Self::Torchao => {
                let tensor = if tensor_amax > 0.0 { tensor_amax / 2688.0 } else { 1.0 };
                visit.with(Torchao { tensor, inverse: 1.0 / tensor })
            }
            Self::Sage3 => visit.with(Sage3),
            // The exponent of the greatest element: 2 for e2m1, 8 for e4m3.
            Self::Floor => visit.with(Floor { top: (max.to_bits() >> 23) - 127 }),
            Self::Flashinfer if matches!(format.element(), Format::E4m3 | Format::E5m2) => {
                visit.with(flashinfer::Mxfp8::new(max))
            }
            Self::Flashinfer => visit.with(flashinfer::Mxfp4::new(max)),
            Self::RoundUp => visit.with(RoundUp { max }),
        }
    }
}

/// 448 * 6 / amax; 1 for a tensor of zeros, or where none is given.
pub(super) fn encode_scale(tensor_amax: f32) -> f32 {
    let scale = (2688.0 / tensor_amax).min(f32::MAX);
    if tensor_amax == 0.0 || scale == 0.0 { 1.0 } else { scale }
}

#[derive(Clone, Copy)]
struct TransformerEngine {
    product: f32,
    inverse: f32,
}

impl Scale for TransformerEngine {
    #[inline(always)]
    fn of(self, amax: f32) -> (u8, f32) {
        let code = e4m3(amax * self.product);
        (code, (1.0 / (e4m3_value(code) * self.inverse)).min(f32::MAX))
    }
}

#[derive(Clone, Copy)]
struct Torchao {
    tensor: f32,
    inverse: f32,
}

impl Scale for Torchao {
    #[inline(always)]
    fn of(self, amax: f32) -> (u8, f32) {
        // torch's clamp keeps a NaN, and so do these comparisons.
        let wanted = amax / 6.0 / self.tensor;
        let raised = if wanted < 0.015_625 { 0.015_625 } else { wanted };
        let code = e4m3(if raised > 448.0 { 448.0 } else { raised });
        (code, self.inverse / e4m3_value(code))
    }
}

#[derive(Clone, Copy)]
struct Sage3;

impl Scale for Sage3 {
    #[inline(always)]
    fn of(self, amax: f32) -> (u8, f32) {
        let code = e4m3(amax / 6.0);
        (code, if code == 0 { 0.0 } else { 1.0 / e4m3_value(code) })
    }
}

#[derive(Clone, Copy)]
struct Floor {
    top: u32,
}

impl Scale for Floor {
    #[inline(always)]
    fn of(self, amax: f32) -> (u8, f32) {
        // The f32's own exponent field is floor(log2 amax) + 127 for normal numbers. Subnormal ones have 0 there and
        // lie at 2^-127 or below, where the least scale is due anyway, as for zero.
        let bits = amax.to_bits();
        let code = (bits >> 23).saturating_sub(self.top);
        let code = if bits >= 0x7f80_0000 { 0xfe + (bits > 0x7f80_0000) as u32 } else { code } as u8;
        (code, inverse_of_ue8m0(code))
    }
}

#[derive(Clone, Copy)]
struct RoundUp {
    max: f32,
}

impl Scale for RoundUp {
    #[inline(always)]
    fn of(self, amax: f32) -> (u8, f32) {
        let code = ue8m0_up(amax / self.max);
        (code, inverse_of_ue8m0(code))
    }
}

#[inline(always)]
pub(super) fn e4m3(x: f32) -> u8 {
    const TO: Conversion = Conversion::usual(Format::E4m3);
    TO.encode(x) as u8
}

/// The value of a code that no negative number gave. Not [`Format::decode`], which is written for reading, not for loops.
#[inline(always)]
pub(super) fn e4m3_value(code: u8) -> f32 {
    let code = u32::from(code);
    let normal = f32::from_bits((code << 20) + (120 << 23));
    let value = if code < 8 { code as f32 * (1.0 / 512.0) } else { normal };
    if code == 0x7f { f32::NAN } else { value }
}

#[inline(always)]
pub(super) fn ue8m0_up(x: f32) -> u8 {
    const TO: Conversion = Conversion { rounding: Rounding::Rp, ..Conversion::usual(Format::Ue8m0) };
    TO.encode(x) as u8
}

/// 2^(127 - code). Code ff, NaN, gives 2^-128: its block is NaN whatever the elements are.
#[inline(always)]
pub(super) fn inverse_of_ue8m0(code: u8) -> f32 {
    let code = u32::from(code);
    // 2^-127 and 2^-128 are subnormal, and multiplying by them is as exact as by any power of two.
    f32::from_bits(if code < 254 { (254 - code) << 23 } else { 1 << (276 - code) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loops_own_decoding_is_the_formats() {
        for code in 0..=0x7fu8 {
            let (fast, value) = (e4m3_value(code), Format::E4m3.decode(u16::from(code)));
            assert!(fast == value || fast.is_nan() && value.is_nan(), "{code:02x}");
        }
        for code in 0..=0xfeu8 {
            assert_eq!(inverse_of_ue8m0(code), 1.0 / Format::Ue8m0.decode(u16::from(code)), "{code:02x}");
        }
    }

    #[test]
    fn the_exponent_field_is_the_floor_of_the_logarithm() {
        let floor = Floor { top: 2 };
        for exponent in -149..=127 {
            let power = f64::from(exponent).exp2() as f32;
            for amax in [power, f32::from_bits(power.to_bits() + 1), f32::from_bits(power.to_bits() - 1)] {
                let log2 = f64::from(amax).log2().floor();
                let expected = (log2 - 2.0 + 127.0).clamp(0.0, 254.0);
                assert_eq!(f64::from(floor.of(amax).0), expected, "{amax:e}");
            }
        }
        assert_eq!((floor.of(f32::INFINITY).0, floor.of(f32::NAN).0), (0xfe, 0xff));
    }
}
