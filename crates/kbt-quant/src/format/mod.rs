//! Number formats of eight bits and fewer, and bf16 and f16: what they are. Conversions live beside.

mod conversion;
mod decode;
mod encode;
mod many;
mod pack;
mod ptx;
pub mod runs;

pub use conversion::{Conversion, ConversionError, Overflow, Rounding};
pub(crate) use many::{Element, element};
pub use pack::{PackError, pack_x2, pack_x4, unpack_x2};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A number format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// FP4: 1 sign, 2 exponent, 1 mantissa bit; 0 to 6, no NaN, no infinity.
    E2m1,
    /// FP6 with three mantissa bits; up to 7.5.
    E2m3,
    /// FP6 with two mantissa bits; up to 28.
    E3m2,
    /// FP8 with three mantissa bits (`e4m3fn`); up to 448, NaN, no infinity.
    E4m3,
    /// FP8 with two mantissa bits; up to 57344, NaN and infinity.
    E5m2,
    /// A power of two from 2^-127 to 2^127, unsigned, no zero; `ff` is NaN. The scale of MX blocks.
    Ue8m0,
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
}

/// Which codes are not numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Specials {
    /// Every code is finite.
    None,
    /// The code with all exponent and mantissa bits set is NaN; no infinity.
    NanOnly,
    /// As in IEEE 754: infinity, then NaNs.
    Ieee,
}

/// The numbers that define a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bits of a code.
    pub bits: u32,
    /// Mantissa bits.
    pub mantissa: u32,
    /// Exponent bias.
    pub bias: i32,
    /// Whether the top bit is a sign.
    pub signed: bool,
    /// Which codes are not numbers.
    pub specials: Specials,
    /// The code of the greatest finite value.
    pub max_code: u16,
    /// The code that conversions give for NaN (FP4 and FP6 have none: PTX gives the greatest value).
    pub nan_code: u16,
}

const fn float(bits: u32, mantissa: u32, bias: i32, specials: Specials, max: u16, nan: u16) -> Layout {
    Layout { bits, mantissa, bias, signed: true, specials, max_code: max, nan_code: nan }
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 8] =
        [Self::E2m1, Self::E2m3, Self::E3m2, Self::E4m3, Self::E5m2, Self::Ue8m0, Self::Bf16, Self::F16];

    /// The numbers that define it. Sources: OCP MX v1.0, PTX ISA 9.0 (`cvt`), cuda_fp4.hpp and cuda_fp8.hpp.
    #[must_use]
    pub const fn layout(self) -> Layout {
        match self {
            Self::E2m1 => float(4, 1, 1, Specials::None, 0x7, 0x7),
            Self::E2m3 => float(6, 3, 1, Specials::None, 0x1f, 0x1f),
            Self::E3m2 => float(6, 2, 3, Specials::None, 0x1f, 0x1f),
            Self::E4m3 => float(8, 3, 7, Specials::NanOnly, 0x7e, 0x7f),
            Self::E5m2 => float(8, 2, 15, Specials::Ieee, 0x7b, 0x7f),
            Self::Ue8m0 => Layout {
                bits: 8,
                mantissa: 0,
                bias: 127,
                signed: false,
                specials: Specials::NanOnly,
                max_code: 0xfe,
                nan_code: 0xff,
            },
            Self::Bf16 => float(16, 7, 127, Specials::Ieee, 0x7f7f, 0x7fff),
            Self::F16 => float(16, 10, 15, Specials::Ieee, 0x7bff, 0x7fff),
        }
    }

    /// The name in files and options.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::E2m1 => "e2m1",
            Self::E2m3 => "e2m3",
            Self::E3m2 => "e3m2",
            Self::E4m3 => "e4m3",
            Self::E5m2 => "e5m2",
            Self::Ue8m0 => "ue8m0",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    /// The greatest finite value.
    #[must_use]
    pub fn max(self) -> f32 {
        self.decode(self.layout().max_code)
    }

    /// The least positive value.
    #[must_use]
    pub fn min_positive(self) -> f32 {
        self.decode(if self == Self::Ue8m0 { 0 } else { 1 })
    }

    /// Hexadecimal digits of a code.
    #[must_use]
    pub const fn hex_digits(self) -> usize {
        if self.layout().bits > 8 { 4 } else { 2 }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is no format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no number format; accepted: e2m1, e2m3, e3m2, e4m3, e5m2, ue8m0, bf16, f16")]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        Self::ALL.into_iter().find(|f| f.as_str() == text).ok_or_else(|| UnknownFormat(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_others_say_what_is_accepted() {
        for format in Format::ALL {
            assert_eq!(format.as_str().parse::<Format>(), Ok(format));
        }
        assert!("fp8".parse::<Format>().unwrap_err().to_string().contains("e4m3"));
    }

    #[test]
    fn greatest_and_least_values_are_the_published_ones() {
        for (format, max, min) in [
            (Format::E2m1, 6.0, 0.5),
            (Format::E2m3, 7.5, 0.125),
            (Format::E3m2, 28.0, 0.0625),
            (Format::E4m3, 448.0, 2f32.powi(-9)),
            (Format::E5m2, 57344.0, 2f32.powi(-16)),
            (Format::Ue8m0, 2f32.powi(127), 2f32.powi(-127)),
            (Format::F16, 65504.0, 2f32.powi(-24)),
        ] {
            assert_eq!((format.max(), format.min_positive()), (max, min), "{format}");
        }
    }
}
