//! Codes to values. Every value of every format here is an f32 exactly.

use super::{Format, Specials};

impl Format {
    /// The value of a code; bits above the format's are ignored.
    #[must_use]
    pub fn decode(self, code: u16) -> f32 {
        let layout = self.layout();
        let value_bits = layout.bits - u32::from(layout.signed);
        let magnitude = u32::from(code) & ((1 << value_bits) - 1);
        let negative = layout.signed && code >> value_bits & 1 == 1;
        let top = (1 << value_bits) - 1;
        let infinity = top & !((1 << layout.mantissa) - 1);
        let absolute = match layout.specials {
            Specials::NanOnly if magnitude == top => f32::NAN,
            Specials::Ieee if magnitude > infinity => f32::NAN,
            Specials::Ieee if magnitude == infinity => f32::INFINITY,
            _ => {
                let exponent = (magnitude >> layout.mantissa) as i32;
                let fraction = magnitude & ((1 << layout.mantissa) - 1);
                // ue8m0 has no subnormals: code 0 is 2^-127 like any other.
                let (significand, power) = if exponent == 0 && self != Self::Ue8m0 {
                    (fraction, 1 - layout.bias)
                } else {
                    (fraction | 1 << layout.mantissa, exponent - layout.bias)
                };
                // Exact: at most eleven significant bits, and never below the least f32 subnormal.
                (f64::from(significand) * f64::from(power - layout.mantissa as i32).exp2()) as f32
            }
        };
        if negative { -absolute } else { absolute }
    }

    /// The values of all codes, in the order of the codes. For the 16-bit formats this is 65536 values.
    #[must_use]
    pub fn values(self) -> Vec<f32> {
        (0..1u32 << self.layout().bits).map(|code| self.decode(code as u16)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_tables_are_the_published_ones() {
        assert_eq!(
            Format::E2m1.values(),
            [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]
        );
        assert!(Format::E2m1.decode(8).is_sign_negative());
        for (format, code, value) in [
            (Format::E4m3, 0x01, 2f32.powi(-9)),
            (Format::E4m3, 0x07, 0.013_671_875),
            (Format::E4m3, 0x08, 2f32.powi(-6)),
            (Format::E4m3, 0xfe, -448.0),
            (Format::E5m2, 0x7c, f32::INFINITY),
            (Format::E5m2, 0x01, 2f32.powi(-16)),
            (Format::Ue8m0, 0x00, 2f32.powi(-127)),
            (Format::Ue8m0, 0x7f, 1.0),
            (Format::Bf16, 0x0001, 2f32.powi(-133)),
            (Format::F16, 0x3c01, 1.0 + 2f32.powi(-10)),
        ] {
            assert_eq!(format.decode(code), value, "{format} {code:02x}");
        }
        for (format, code) in
            [(Format::E4m3, 0x7f), (Format::E4m3, 0xff), (Format::E5m2, 0x7d), (Format::Ue8m0, 0xff)]
        {
            assert!(format.decode(code).is_nan(), "{format} {code:02x}");
        }
    }
}
