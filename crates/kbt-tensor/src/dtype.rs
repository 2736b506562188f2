//! Element types: their widths, names, and exact decoding to f64.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// IEEE binary64.
    F64,
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of binary32.
    Bf16,
    /// 8-bit float, 4 exponent bits, 3 mantissa bits, maximum 448, no infinity, NaN 7f and ff.
    E4m3,
    /// 8-bit float, 5 exponent bits, 2 mantissa bits, with infinity: the upper half of binary16.
    E5m2,
    /// 8-bit power of two, 2^(code - 127), NaN ff, no zero and no sign.
    E8m0,
    /// 4-bit float, 2 exponent bits, 1 mantissa bit, maximum 6; two codes a byte, the first in the low nibble.
    E2m1,
    /// Signed 64-bit integer.
    I64,
    /// Signed 32-bit integer.
    I32,
    /// Signed 16-bit integer.
    I16,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned 64-bit integer.
    U64,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 8-bit integer.
    U8,
    /// One byte, 0 or 1.
    Bool,
}

/// One row a type: the type, bits, its name here, its name in safetensors.
const TABLE: [(Dtype, usize, &str, &str); 17] = [
    (Dtype::F64, 64, "f64", "F64"),
    (Dtype::F32, 32, "f32", "F32"),
    (Dtype::F16, 16, "f16", "F16"),
    (Dtype::Bf16, 16, "bf16", "BF16"),
    (Dtype::E4m3, 8, "e4m3", "F8_E4M3"),
    (Dtype::E5m2, 8, "e5m2", "F8_E5M2"),
    (Dtype::E8m0, 8, "e8m0", "F8_E8M0"),
    (Dtype::E2m1, 4, "e2m1", "F4"),
    (Dtype::I64, 64, "i64", "I64"),
    (Dtype::I32, 32, "i32", "I32"),
    (Dtype::I16, 16, "i16", "I16"),
    (Dtype::I8, 8, "i8", "I8"),
    (Dtype::U64, 64, "u64", "U64"),
    (Dtype::U32, 32, "u32", "U32"),
    (Dtype::U16, 16, "u16", "U16"),
    (Dtype::U8, 8, "u8", "U8"),
    (Dtype::Bool, 8, "bool", "BOOL"),
];

/// A name that is no element type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no element type; accepted: {names}", names = names())]
pub struct UnknownDtype(pub String);

fn names() -> String {
    TABLE.map(|row| row.2).join(" ")
}

impl Dtype {
    /// Every type.
    pub const ALL: [Self; 17] = {
        let mut all = [Self::F64; 17];
        let mut i = 0;
        while i < all.len() {
            all[i] = TABLE[i].0;
            i += 1;
        }
        all
    };

    const fn row(self) -> (Self, usize, &'static str, &'static str) {
        TABLE[self as usize]
    }

    /// Bits an element; 4 for `e2m1`.
    #[must_use]
    pub const fn bits(self) -> usize {
        self.row().1
    }

    /// Bytes that `elements` elements take; `None` where that overflows.
    #[must_use]
    pub fn bytes_for(self, elements: usize) -> Option<usize> {
        match self {
            Self::E2m1 => Some(elements.div_ceil(2)),
            _ => elements.checked_mul(self.bits() / 8),
        }
    }

    /// The type's name in options, files and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().2
    }

    /// Whether it is one of the floating-point formats, exponent-only `e8m0` among them.
    #[must_use]
    pub const fn is_float(self) -> bool {
        !matches!(
            self,
            Self::I64
                | Self::I32
                | Self::I16
                | Self::I8
                | Self::U64
                | Self::U32
                | Self::U16
                | Self::U8
                | Self::Bool
        )
    }

    pub(crate) const fn safetensors_name(self) -> &'static str {
        self.row().3
    }

    pub(crate) fn from_safetensors(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.3 == name).map(|row| row.0)
    }

    /// Whether every value of the type is an f32.
    pub(crate) const fn fits_f32(self) -> bool {
        !matches!(self, Self::F64 | Self::I64 | Self::I32 | Self::U64 | Self::U32)
    }

    /// Appends the values of whole elements to `out`, in order. Every value of every type but `i64` and `u64`
    /// is an f64 exactly; those two round to nearest beyond 2^53. A trailing partial element is left alone.
    #[inline(always)]
    pub fn decode_f64(self, bytes: &[u8], out: &mut Vec<f64>) {
        macro_rules! each {
            ($n:literal, $from:expr) => {
                out.extend(bytes.as_chunks::<$n>().0.iter().map(|b| $from(*b)))
            };
        }
        match self {
            Self::F64 => each!(8, f64::from_le_bytes),
            Self::F32 => each!(4, |b| f64::from(f32::from_le_bytes(b))),
            Self::F16 => each!(2, |b| f64::from(f16_to_f32(u16::from_le_bytes(b)))),
            Self::Bf16 => each!(2, |b| f64::from(bf16_to_f32(u16::from_le_bytes(b)))),
            Self::E4m3 => each!(1, |[b]: [u8; 1]| f64::from(e4m3_to_f32(b))),
            Self::E5m2 => each!(1, |[b]: [u8; 1]| f64::from(f16_to_f32(u16::from(b) << 8))),
            Self::E8m0 => each!(1, |[b]: [u8; 1]| f64::from(e8m0_to_f32(b))),
            Self::E2m1 => out.extend(
                bytes.iter().flat_map(|&b| [b & 15, b >> 4]).map(|code| f64::from(E2M1[usize::from(code)])),
            ),
            #[expect(clippy::cast_precision_loss, reason = "documented")]
            Self::I64 => each!(8, |b| i64::from_le_bytes(b) as f64),
            #[expect(clippy::cast_precision_loss, reason = "documented")]
            Self::U64 => each!(8, |b| u64::from_le_bytes(b) as f64),
            Self::I32 => each!(4, |b| f64::from(i32::from_le_bytes(b))),
            Self::U32 => each!(4, |b| f64::from(u32::from_le_bytes(b))),
            Self::I16 => each!(2, |b| f64::from(i16::from_le_bytes(b))),
            Self::U16 => each!(2, |b| f64::from(u16::from_le_bytes(b))),
            Self::I8 => each!(1, |b| f64::from(i8::from_le_bytes(b))),
            Self::U8 | Self::Bool => each!(1, |[b]: [u8; 1]| f64::from(b)),
        }
    }

    /// The bit pattern of element `index`, in the low bits; `None` past the end.
    #[must_use]
    pub fn code(self, bytes: &[u8], index: usize) -> Option<u64> {
        if self == Self::E2m1 {
            let byte = *bytes.get(index / 2)?;
            return Some(u64::from(if index.is_multiple_of(2) { byte & 15 } else { byte >> 4 }));
        }
        let width = self.bits() / 8;
        let start = index.checked_mul(width)?;
        let mut code = [0; 8];
        code[..width].copy_from_slice(bytes.get(start..start.checked_add(width)?)?);
        Some(u64::from_le_bytes(code))
    }

    /// Where a bit pattern stands in the order of the type's values: neighbouring values differ by 1, both
    /// zeros are 0. The difference of two positions is the distance in units in the last place.
    #[must_use]
    pub fn rank(self, code: u64) -> i128 {
        let bits = self.bits();
        match self {
            Self::U64 | Self::U32 | Self::U16 | Self::U8 | Self::Bool | Self::E8m0 => i128::from(code),
            Self::I64 | Self::I32 | Self::I16 | Self::I8 => {
                // Sign-extends from the type's width.
                let shift = 64 - bits;
                i128::from((code << shift).cast_signed() >> shift)
            }
            _ => {
                let sign = 1u64 << (bits - 1);
                let magnitude = i128::from(code & (sign - 1));
                if code & sign == 0 { magnitude } else { -magnitude }
            }
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Dtype {
    type Err = UnknownDtype;

    fn from_str(text: &str) -> Result<Self, UnknownDtype> {
        TABLE.iter().find(|row| row.2 == text).map(|row| row.0).ok_or_else(|| UnknownDtype(text.to_owned()))
    }
}

/// The sixteen values of e2m1, by code (OCP MX 1.0).
const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

#[inline(always)]
pub(crate) const fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// Round to nearest even; NaN stays NaN, with its sign and a quiet bit.
pub(crate) const fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    // Adding just under half, and one more where the kept part is odd, carries exactly when RNE rounds up.
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// Without branches, so that a loop over it becomes vector code.
#[inline(always)]
pub(crate) fn f16_to_f32(bits: u16) -> f32 {
    let sign = u32::from(bits >> 15) << 31;
    let magnitude = u32::from(bits & 0x7fff);
    // The exponent's bias goes from 15 to 127; that of NaN and infinity to the top.
    let rebias = if magnitude < 0x7c00 { 112 << 23 } else { 224 << 23 };
    let normal = (magnitude << 13) + rebias;
    // Through the integer's value: a subnormal f32 on the way would be slow.
    #[expect(clippy::cast_precision_loss, reason = "below 2^15")]
    let subnormal = (magnitude as f32 * f32::from_bits((127 - 24) << 23)).to_bits();
    f32::from_bits(sign | if magnitude < 0x0400 { subnormal } else { normal })
}

/// Round to nearest even; overflow gives infinity, NaN stays NaN.
pub(crate) fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = ((bits >> 16) & 0x8000) as u16;
    let magnitude = bits & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return sign | 0x7e00;
    }
    // 65520 = 0x477f_f000 is the midpoint above the largest f16; it rounds up to infinity.
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    let rounded = if magnitude >= 0x3880_0000 {
        (magnitude + 0x0fff + ((magnitude >> 13) & 1) - (112 << 23)) >> 13
    } else {
        // Below the least normal f16, adding 0.5 aligns the last place with 2^-24 and rounds to even.
        (f32::from_bits(magnitude) + 0.5).to_bits() - 0.5f32.to_bits()
    };
    sign | rounded as u16
}

#[inline(always)]
fn e4m3_to_f32(code: u8) -> f32 {
    let magnitude = match code & 0x7f {
        0x7f => f32::NAN,
        m @ 0..8 => f32::from(m) * (1.0 / 512.0),
        // The exponent's bias goes from 7 to 127.
        m => f32::from_bits((u32::from(m) << 20) + (120 << 23)),
    };
    if code & 0x80 == 0 { magnitude } else { -magnitude }
}

#[inline(always)]
const fn e8m0_to_f32(code: u8) -> f32 {
    match code {
        0xff => f32::NAN,
        // 2^-127 is subnormal in f32.
        0 => f32::from_bits(0x0040_0000),
        c => f32::from_bits((c as u32) << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(dtype: Dtype, bytes: &[u8]) -> Vec<f64> {
        let mut out = Vec::new();
        dtype.decode_f64(bytes, &mut out);
        out
    }

    #[test]
    fn every_name_reads_back_and_the_table_is_in_the_order_of_the_enum() {
        for dtype in Dtype::ALL {
            assert_eq!(dtype.as_str().parse::<Dtype>().unwrap(), dtype);
            assert_eq!(Dtype::from_safetensors(dtype.safetensors_name()), Some(dtype));
            assert_eq!(serde_json::to_string(&dtype).unwrap(), format!("\"{dtype}\""));
        }
        assert!("float9".parse::<Dtype>().unwrap_err().to_string().contains("bf16"));
    }

    #[test]
    fn small_formats_decode_to_their_published_values() {
        for (code, value) in
            [(0x7e, 448.0), (0x08, 0.015625), (0x01, 0.001953125), (0xb8, -1.0), (0x39, 1.125)]
        {
            assert_eq!(decode(Dtype::E4m3, &[code]), [value], "e4m3 {code:02x}");
        }
        assert!(decode(Dtype::E4m3, &[0xff])[0].is_nan());
        for (code, value) in
            [(0x7b, 57344.0), (0x04, 2f64.powi(-14)), (0x01, 2f64.powi(-16)), (0xfc, f64::NEG_INFINITY)]
        {
            assert_eq!(decode(Dtype::E5m2, &[code]), [value], "e5m2 {code:02x}");
        }
        assert_eq!(
            decode(Dtype::E8m0, &[0, 1, 127, 254]),
            [2f64.powi(-127), 2f64.powi(-126), 1.0, 2f64.powi(127)]
        );
        assert!(decode(Dtype::E8m0, &[255])[0].is_nan());
        assert_eq!(decode(Dtype::E2m1, &[0x71, 0xaf]), [0.5, 6.0, -6.0, -1.0]);
    }

    #[test]
    fn f16_round_trips_and_rounds_to_nearest_even_everywhere() {
        for bits in 0..=u16::MAX {
            let value = f16_to_f32(bits);
            if value.is_nan() {
                assert!(f16_to_f32(f32_to_f16(value)).is_nan());
                continue;
            }
            assert_eq!(f32_to_f16(value), bits, "{bits:04x}");
            // Between neighbours: below the midpoint down, at it to even, above it up.
            let up = f16_to_f32(bits.wrapping_add(1));
            if !up.is_finite() || !value.is_finite() || value.is_sign_negative() != up.is_sign_negative() {
                continue;
            }
            let middle = value / 2.0 + up / 2.0;
            let even = if bits & 1 == 0 { bits } else { bits + 1 };
            assert_eq!(f32_to_f16(middle), even, "{bits:04x}");
            let toward = |m: f32, d: i32| f32::from_bits(m.to_bits().wrapping_add_signed(d));
            assert_eq!(f32_to_f16(toward(middle, 1)), bits + 1, "{bits:04x}");
            assert_eq!(f32_to_f16(toward(middle, -1)), bits, "{bits:04x}");
        }
        assert_eq!((f32_to_f16(65519.99), f32_to_f16(65520.0)), (0x7bff, 0x7c00));
    }

    #[test]
    fn bf16_rounds_to_nearest_even() {
        for (bits, expect) in [
            (0x3f80_8000u32, 0x3f80), // tie to even
            (0x3f81_8000, 0x3f82),
            (0x3f80_8001, 0x3f81),
            (0x7f7f_ffff, 0x7f80), // overflows
            (0xff80_0000, 0xff80),
        ] {
            assert_eq!(f32_to_bf16(f32::from_bits(bits)), expect, "{bits:08x}");
        }
        assert!(bf16_to_f32(f32_to_bf16(f32::from_bits(0x7f80_0001))).is_nan());
    }

    #[test]
    fn ranks_are_neighbours_where_values_are() {
        let rank = |dtype: Dtype, code| dtype.rank(code);
        assert_eq!(rank(Dtype::F32, 0x8000_0000), rank(Dtype::F32, 0));
        assert_eq!(rank(Dtype::Bf16, 0x8001), -1);
        assert_eq!(rank(Dtype::I8, 0xff), -1);
        assert_eq!(rank(Dtype::I64, u64::MAX), -1);
        assert_eq!(rank(Dtype::U64, u64::MAX), i128::from(u64::MAX));
        assert_eq!(rank(Dtype::E2m1, 0x9) - rank(Dtype::E2m1, 0x1), -2);
    }

    #[test]
    fn codes_are_taken_by_index_and_only_where_they_are() {
        assert_eq!(Dtype::E2m1.code(&[0x71], 1), Some(7));
        assert_eq!(Dtype::E2m1.code(&[0x71], 2), None);
        assert_eq!(Dtype::U16.code(&[1, 2, 3], 0), Some(0x201));
        assert_eq!(Dtype::U16.code(&[1, 2, 3], 1), None);
    }
}
