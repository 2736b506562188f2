//! flashinfer's scale rules to the bit, where a scale is 0 too.
//!
//! flashinfer is compiled with `-use_fast_math`: every product flushes subnormal operands and results, and so do its
//! reciprocals. It takes a block as empty where the greatest magnitude is 0, not where the scale is: a small block whose
//! scale rounds to 0 is multiplied by 1/0, so that its elements become the greatest code. What is not followed: elements that
//! are subnormal f32 themselves, and a NaN element, over which flashinfer's maximum passes.

use super::scale::{Scale, e4m3, e4m3_value, inverse_of_ue8m0, ue8m0_up};

#[inline(always)]
fn flushed(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE { 0.0 } else { x }
}

/// `rcp.approx.ftz.f32`, and `div.rn.ftz.f32` of 1: infinity of 0.
#[inline(always)]
fn reciprocal(x: f32) -> f32 {
    flushed(1.0 / flushed(x))
}

/// NVFP4 by approximate reciprocals.
#[derive(Clone, Copy)]
pub(super) struct Nvfp4 {
    encode: f32,
    inverse: f32,
}

impl Nvfp4 {
    pub(super) fn new(encode: f32) -> Self {
        Self { encode, inverse: reciprocal(encode) }
    }
}

impl Scale for Nvfp4 {
    #[inline(always)]
    fn of(self, amax: f32) -> (u8, f32) {
        let amax = flushed(amax);
        let code = e4m3(flushed(self.encode * flushed(amax * (1.0 / 6.0))));
        let factor = reciprocal(e4m3_value(code) * self.inverse);
        (code, if amax == 0.0 { 0.0 } else { factor })
    }
}

/// NVFP4 by divisions, in TransformerEngine's order.
#[derive(Clone, Copy)]
pub(super) struct Exact {
    product: f32,
    inverse: f32,
}

impl Exact {
    pub(super) fn new(encode: f32) -> Self {
        Self { product: encode * (1.0 / 6.0), inverse: reciprocal(encode) }
    }
}

impl Scale for Exact {
    #[inline(always)]
    fn of(self, amax: f32) -> (u8, f32) {
        let amax = flushed(amax);
        let code = e4m3(flushed(amax * self.product));
        let factor = reciprocal(e4m3_value(code) * self.inverse);
        (code, if amax == 0.0 { 0.0 } else { factor })
    }
}

/// MXFP4, and MXFP6 by the same rule: 2^(127 - code) by `ex2.approx.ftz`.
#[derive(Clone, Copy)]
pub(super) struct Mxfp4 {
    inverse: f32,
}

impl Mxfp4 {
    pub(super) fn new(max: f32) -> Self {
        Self { inverse: 1.0 / max }
    }
}

impl Scale for Mxfp4 {
    #[inline(always)]
    fn of(self, amax: f32) -> (u8, f32) {
        let code = ue8m0_up(flushed(flushed(amax) * self.inverse));
        // What is not flushed has code 1 at least.
        (code, if code == 0 { 0.0 } else { flushed(inverse_of_ue8m0(code)) })
    }
}

/// MXFP8: the reciprocal of the scale as f32, where the least, 2^-127, counts as 0.
#[derive(Clone, Copy)]
pub(super) struct Mxfp8 {
    inverse: f32,
}

impl Mxfp8 {
    pub(super) fn new(max: f32) -> Self {
        Self { inverse: 1.0 / max }
    }
}

impl Scale for Mxfp8 {
    #[inline(always)]
    fn of(self, amax: f32) -> (u8, f32) {
        let code = ue8m0_up(flushed(flushed(amax) * self.inverse));
        let factor = flushed(inverse_of_ue8m0(code));
        (
            code,
            if code == 0xff {
                f32::NAN
            } else if code == 0 {
                0.0
            } else {
                factor
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BlockFormat, Quantiser, ScaleRule};

    fn codes(format: BlockFormat, rule: ScaleRule, tensor_amax: f32, first: [f32; 4]) -> (u16, [u16; 5]) {
        let mut xs = vec![0.0; format.elements()];
        xs[..4].copy_from_slice(&first);
        let mut codes = vec![0; xs.len()];
        let scale = Quantiser::new(format, rule, tensor_amax).unwrap().block(&xs, &mut codes);
        (scale, codes[..5].try_into().unwrap())
    }

    #[test]
    fn a_block_of_zeros_keeps_its_zeros_and_signs() {
        let zeros = [0.0, -0.0, 0.0, -0.0];
        for rule in [ScaleRule::Flashinfer, ScaleRule::FlashinferExact] {
            assert_eq!(codes(BlockFormat::Nvfp4, rule, 3.0, zeros), (0, [0, 8, 0, 8, 0]), "{rule}");
        }
        assert_eq!(codes(BlockFormat::Mxfp4, ScaleRule::Flashinfer, 0.0, zeros), (0, [0, 8, 0, 8, 0]));
        assert_eq!(codes(BlockFormat::Mxfp8, ScaleRule::Flashinfer, 0.0, zeros), (0, [0, 0x80, 0, 0x80, 0]));
        // Flushed, a block of subnormal numbers is one of zeros.
        let tiny = f32::from_bits(0x0040_0000);
        let small = [tiny, -tiny, 0.0, 0.0];
        assert_eq!(codes(BlockFormat::Nvfp4, ScaleRule::Flashinfer, 3.0, small), (0, [0, 8, 0, 0, 0]));
        assert_eq!(codes(BlockFormat::Mxfp4, ScaleRule::Flashinfer, 0.0, small), (0, [0, 8, 0, 0, 0]));
    }

    #[test]
    fn a_scale_that_rounds_to_zero_makes_elements_the_greatest() {
        // 2^-10 of an amax of 2688: the scale is below half of the least code.
        let small = [2f32.powi(-10), -2f32.powi(-10), 2f32.powi(-20), -0.0];
        for rule in [ScaleRule::Flashinfer, ScaleRule::FlashinferExact] {
            // 0 times infinity is NaN, and e2m1 of NaN is the greatest.
            assert_eq!(codes(BlockFormat::Nvfp4, rule, 2688.0, small), (0, [7, 0xf, 7, 7, 7]), "{rule}");
        }
        // TransformerEngine bounds the factor instead.
        assert_eq!(
            codes(BlockFormat::Nvfp4, ScaleRule::TransformerEngine, 2688.0, small),
            (0, [7, 0xf, 7, 8, 0])
        );
    }

    #[test]
    fn the_ends_of_an_exponent_scale() {
        // Below the least scale that is not flushed, a sixth or 448th of 2^-126, everything is 0.
        let first = |format, exponent| {
            let (scale, codes) =
                codes(format, ScaleRule::Flashinfer, 0.0, [2f32.powi(exponent), 0.0, 0.0, 0.0]);
            (scale, codes[0])
        };
        assert_eq!((first(BlockFormat::Mxfp4, -124), first(BlockFormat::Mxfp4, -123)), ((0, 0), (2, 6)));
        assert_eq!((first(BlockFormat::Mxfp8, -118), first(BlockFormat::Mxfp8, -117)), ((0, 0), (2, 0x78)));
        // An infinite element: the factor 2^-127 is flushed, and infinity times 0 is NaN.
        let infinite = [f32::INFINITY, f32::MAX, -f32::MAX, 0.0];
        assert_eq!(codes(BlockFormat::Mxfp4, ScaleRule::Flashinfer, 0.0, infinite), (0xfe, [7, 0, 8, 0, 0]));
    }

    #[test]
    fn where_no_scale_is_at_an_end_the_rule_rounds_up() {
        for i in 0..20_000u32 {
            let x = f32::from_bits(0x2000_0000 + i * 0x0001_2345);
            let xs = [x, -x / 3.0, x / 7.0, x * 0.49];
            for format in [BlockFormat::Mxfp4, BlockFormat::Mxfp8] {
                let rule = |rule| codes(format, rule, 0.0, xs);
                let up = rule(ScaleRule::RoundUp);
                let scaled = x * (1.0 / format.element().max());
                // amax rcp(max) and amax / max may lie on either side of a power of two.
                if scaled == x / format.element().max() {
                    assert_eq!(rule(ScaleRule::Flashinfer), up, "{format} {x:e}");
                }
            }
            let exact = codes(BlockFormat::Nvfp4, ScaleRule::FlashinferExact, 2.0 * x, xs);
            assert_eq!(exact, codes(BlockFormat::Nvfp4, ScaleRule::TransformerEngine, 2.0 * x, xs), "{x:e}");
        }
    }
}
