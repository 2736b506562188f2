//! f32 to codes: integer arithmetic on the bits, in every rounding mode that PTX has.
//!
//! NaN, infinity, overflow and signed zero follow PTX's `cvt`; `cvt.rs` (stochastic) is not here, as its use of
//! the random bits is not documented to the bit.

use super::{Conversion, Format, Layout, Overflow, Rounding, Specials};

impl Conversion {
    /// The code of `x`.
    #[must_use]
    #[inline(always)]
    pub fn encode(self, x: f32) -> u16 {
        match self.format {
            Format::E2m1 => self.e2m1(x),
            Format::E2m3 => self.float::<3, 0>(Format::E2m3.layout(), x),
            Format::E3m2 => self.float::<2, { -2 }>(Format::E3m2.layout(), x),
            Format::E4m3 => self.float::<3, { -6 }>(Format::E4m3.layout(), x),
            Format::E5m2 => self.float::<2, { -14 }>(Format::E5m2.layout(), x),
            Format::Bf16 => self.float::<7, { -126 }>(Format::Bf16.layout(), x),
            Format::F16 => self.float::<10, { -14 }>(Format::F16.layout(), x),
            Format::Ue8m0 => self.power_of_two(x),
        }
    }

    /// The value of the code of `x`.
    #[must_use]
    pub fn round(self, x: f32) -> f32 {
        self.format.decode(self.encode(x))
    }

    /// The same as `float::<1, 0>`, in fewer operations under `rn`.
    #[inline(always)]
    fn e2m1(self, x: f32) -> u16 {
        if self.rounding != Rounding::Rn {
            return self.float::<1, 0>(Format::E2m1.layout(), x);
        }
        let bits = x.to_bits();
        let magnitude = bits & 0x7fff_ffff;
        let sign = if self.relu { 0 } else { bits >> 28 & 8 };
        let code = if self.relu && bits >> 31 == 1 { 0 } else { nearest_e2m1(magnitude) };
        (if magnitude > 0x7f80_0000 { 7 } else { code | sign }) as u16
    }

    /// `M` mantissa bits, `E` the exponent of the least normal value. Inlined with a constant layout.
    #[inline(always)]
    fn float<const M: u32, const E: i32>(self, layout: Layout, x: f32) -> u16 {
        let past = if self.overflow == Overflow::Saturate || layout.specials == Specials::None {
            u32::from(layout.max_code)
        } else {
            u32::from(layout.max_code) + 1
        };
        let bits = x.to_bits();
        let negative = bits >> 31;
        let magnitude = bits & 0x7fff_ffff;
        let code = match self.rounding {
            Rounding::Rn => nearest::<M, E>(magnitude).min(past),
            _ => self.directed::<M, E>(layout, magnitude, negative == 1, past),
        };
        let signed = if self.relu && negative == 1 { 0 } else { code | negative << (layout.bits - 1) };
        (if magnitude > 0x7f80_0000 { u32::from(layout.nan_code) } else { signed }) as u16
    }

    /// The magnitude's code under `rz`, `rm` or `rp`; `past` is what an overflow away from zero gives.
    fn directed<const M: u32, const E: i32>(
        self,
        layout: Layout,
        magnitude: u32,
        negative: bool,
        past: u32,
    ) -> u32 {
        // The significand as an integer; f32 subnormals have no implicit one.
        let field = magnitude >> 23;
        let (significand, exponent) = if field == 0 {
            (magnitude, -126)
        } else {
            (magnitude & 0x007f_ffff | 0x0080_0000, field as i32 - 127)
        };
        // Below the least normal value the step stays. The code counts steps, so a carry out of the significand
        // becomes the next exponent by itself.
        let shift = (23 - M + (E - exponent).max(0) as u32).min(31);
        let away = match self.rounding {
            Rounding::Rm => negative,
            Rounding::Rp => !negative,
            Rounding::Rn | Rounding::Rz => false,
        };
        let up = away && significand & ((1 << shift) - 1) != 0;
        let code = (((exponent.max(E) - E) as u32) << M) + (significand >> shift) + u32::from(up);
        // Rounding towards zero stops at the greatest finite value, unless infinity itself was given.
        let limit = if away || magnitude == 0x7f80_0000 { past } else { u32::from(layout.max_code) };
        code.min(limit)
    }

    fn power_of_two(self, x: f32) -> u16 {
        let magnitude = x.to_bits() & 0x7fff_ffff;
        if magnitude > 0x7f80_0000 {
            return 0xff;
        }
        let (floor, fraction) = (magnitude >> 23, magnitude & 0x007f_ffff);
        // Code 0 is 2^-127, whose f32 is subnormal with the top fraction bit set; smaller values give it too.
        let up = match self.rounding {
            Rounding::Rz | Rounding::Rm => false,
            Rounding::Rp => fraction > if floor == 0 { 0x0040_0000 } else { 0 },
            Rounding::Rn => fraction >= if floor == 0 { 0x0060_0000 } else { 0x0040_0000 },
        };
        let code = floor + u32::from(up);
        let past = if self.overflow == Overflow::Saturate { 0xfe } else { 0xff };
        if code > 0xfe { past } else { code as u16 }
    }
}

/// The e2m1 code of a magnitude under `rn`, saturated; NaN gives something to be replaced.
///
/// Codes as a function of values are the concave line through (0, 0), (2, 4), (4, 6), (8, 8), so the code is the least
/// of what its three pieces give: 2x, x + 2, x/2 + 4, each rounded to an integer once, by adding a power of two whose
/// last bit is the piece's step. The offsets are even, so ties go to the even code.
#[inline(always)]
fn nearest_e2m1(magnitude: u32) -> u32 {
    const HALVES: f32 = 4_194_304.0; // 2^22
    const ONES: f32 = 8_388_608.0;
    const TWOS: f32 = 16_777_216.0;
    let x = f32::from_bits(magnitude);
    let halves = (x + HALVES).to_bits().wrapping_sub(HALVES.to_bits());
    let ones = (x + ONES).to_bits().wrapping_sub(ONES.to_bits() - 2);
    let twos = (x + TWOS).to_bits().wrapping_sub(TWOS.to_bits() - 4);
    halves.min(ones).min(twos).min(7)
}

/// The code of a magnitude under `rn`, without an upper limit: branch-free, so that loops over it vectorise.
/// NaNs give something to be replaced.
#[inline(always)]
pub(crate) fn nearest<const M: u32, const E: i32>(magnitude: u32) -> u32 {
    // Above the least normal value: add half a step less one, one more if the kept part is odd, and cut.
    let least = (E + 127) as u32;
    let odd = magnitude >> (23 - M) & 1;
    let rounded = magnitude.wrapping_add((1 << (22 - M)) - 1).wrapping_add(odd) >> (23 - M);
    let normal = rounded.wrapping_sub((least - 1) << M);
    // Below it: adding a power of two whose last bit is the format's step rounds to that step.
    let anchor = f32::from_bits((least + 23 - M) << 23);
    let subnormal = (f32::from_bits(magnitude) + anchor).to_bits().wrapping_sub(anchor.to_bits());
    if magnitude < least << 23 { subnormal } else { normal }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(format: Format, cases: &[(f32, u16)]) {
        for &(x, code) in cases {
            let got = Conversion::usual(format).encode(x);
            assert_eq!(got, code, "{format} of {x:e} ({:08x}): {got:02x}, not {code:02x}", x.to_bits());
        }
    }

    #[test]
    fn ties_and_specials_are_as_ptx_has_them() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        check(
            Format::E2m1,
            &[(0.25, 0), (0.250_000_06, 1), (0.75, 2), (1.25, 2), (1.75, 4), (2.5, 4), (3.5, 6), (5.0, 6)],
        );
        check(Format::E2m1, &[(5.000_001, 7), (1e9, 7), (inf, 7), (-inf, 0xf), (nan, 7), (-nan, 7)]);
        check(Format::E2m1, &[(0.0, 0), (-0.0, 8), (-1e-30, 8), (-0.25, 8)]);
        check(Format::E2m3, &[(nan, 0x1f), (-0.0, 0x20), (7.75, 0x1f), (0.0625, 0)]);
        check(Format::E3m2, &[(-nan, 0x1f), (1e9, 0x1f), (-1e9, 0x3f), (0.03125, 0)]);
        check(
            Format::E4m3,
            &[(464.0, 0x7e), (465.0, 0x7e), (inf, 0x7e), (-inf, 0xfe), (nan, 0x7f), (-nan, 0x7f)],
        );
        check(Format::E4m3, &[(-0.0, 0x80), (1.0625, 0x38), (f32::from_bits(0x3f88_0001), 0x39)]);
        check(Format::E5m2, &[(61440.0, 0x7b), (inf, 0x7b), (-inf, 0xfb), (-nan, 0x7f)]);
        check(Format::Bf16, &[(1.0, 0x3f80), (f32::MAX, 0x7f80), (nan, 0x7fff), (1e-45, 0)]);
        check(Format::F16, &[(65519.0, 0x7bff), (65520.0, 0x7c00), (-nan, 0x7fff), (1e-9, 0)]);
    }

    #[test]
    fn ue8m0_takes_each_mode() {
        let of = |rounding, x: f32| {
            Conversion { rounding, ..Conversion::usual(Format::Ue8m0) }.checked().unwrap().encode(x)
        };
        use Rounding::{Rn, Rp, Rz};
        for (rounding, x, code) in [
            (Rz, 1.9, 0x7f),
            (Rp, 1.0, 0x7f),
            (Rp, 1.000_001, 0x80),
            (Rn, 1.5, 0x80),
            (Rz, -4.0, 0x81),
            (Rz, 0.0, 0),
            (Rp, 1e-45, 0),
            (Rp, f32::from_bits(0x0040_0001), 1),
            (Rz, f32::INFINITY, 0xfe),
            (Rp, f32::MAX, 0xfe),
            (Rz, f32::NAN, 0xff),
        ] {
            assert_eq!(of(rounding, x), code, "{rounding:?} {x:e}");
        }
        let special = Conversion { overflow: Overflow::Special, ..Conversion::usual(Format::Ue8m0) };
        assert_eq!(special.encode(f32::INFINITY), 0xff);
    }

    #[test]
    fn directed_modes_and_relu() {
        let f16 = Conversion::usual(Format::F16);
        for (rounding, x, value) in [
            (Rounding::Rz, 65519.9, 65504.0),
            (Rounding::Rp, 65504.5, f32::INFINITY),
            (Rounding::Rm, -65504.5, f32::NEG_INFINITY),
            (Rounding::Rp, -65504.5, -65504.0),
            (Rounding::Rp, 1e-9, 2f32.powi(-24)),
            (Rounding::Rm, -1e-9, -(2f32.powi(-24))),
            (Rounding::Rz, f32::INFINITY, f32::INFINITY),
        ] {
            assert_eq!(Conversion { rounding, ..f16 }.round(x), value, "{rounding:?} {x:e}");
        }
        let relu = Conversion { relu: true, ..Conversion::usual(Format::E2m1) };
        assert_eq!((relu.encode(-3.0), relu.encode(-0.0), relu.encode(3.0)), (0, 0, 5));
        let special = Conversion { overflow: Overflow::Special, ..Conversion::usual(Format::E4m3) };
        assert_eq!(
            (special.encode(464.0), special.encode(464.001), special.encode(-1e9)),
            (0x7e, 0x7f, 0xff)
        );
        let error = Conversion { rounding: Rounding::Rz, ..relu }.checked().unwrap_err().to_string();
        assert!(error.contains("`.rz`") && error.ends_with("rn"), "{error}");
    }

    #[test]
    fn every_code_is_the_code_of_its_value() {
        for format in Format::ALL {
            for code in 0..1u32 << format.layout().bits {
                let (code, value) = (code as u16, format.decode(code as u16));
                if value.is_finite() {
                    assert_eq!(Conversion::usual(format).encode(value), code, "{format} {code:x}");
                }
            }
        }
    }
}
