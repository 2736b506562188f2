//! Types of the values a chain works on: which register holds them and which random values they start with.

use serde::Deserialize;
use std::fmt;
use std::str::FromStr;

/// What a register holds at the start.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DataKind {
    /// An f32 in a range.
    F32,
    /// An f64 in a range.
    F64,
    /// An f16 in a range.
    F16,
    /// A bf16 in a range.
    Bf16,
    /// Two f16 in a range.
    F16x2,
    /// Two bf16 in a range.
    Bf16x2,
    /// An integer in a range, 32 bits.
    Int,
    /// Random bits.
    B16,
    /// Random bits.
    B32,
    /// Random bits.
    B64,
    /// A random predicate.
    Pred,
    /// The shared-memory address of a slot of the thread's own, of so many bytes; the slot holds its address.
    Shared(u32),
    /// The shared-memory address of a 16-byte slot of the thread's own; the slots of a warp hold addresses such
    /// that a matrix load through them gives each lane its own address back.
    Matrix,
    /// The shared-memory address of an mbarrier of the thread's own, with the largest count of arrivals.
    Mbarrier,
    /// A matrix descriptor, without swizzling, of random values in shared memory.
    Descriptor,
}

/// Kind, range and number of registers, written `f32`, `f32[0.5,2]`, `b32*4`, `shared4`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub struct DataType {
    /// What one register holds.
    pub kind: DataKind,
    /// Lowest and highest value, for kinds that have a range.
    pub range: (f64, f64),
    /// How many registers.
    pub count: u32,
}

/// Text that names no data type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataTypeError(String);

impl fmt::Display for DataTypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no data type; f32, f64, f16, bf16, f16x2, bf16x2, int (each with a range as in \
             f32[0.5,2], the lower first), b16, b32, b64, pred, shared4, shared8, shared16, matrix16, mbarrier or descriptor, with *N for N registers, 1 to 64",
            self.0
        )
    }
}

impl std::error::Error for DataTypeError {}

/// Kinds of PTX register that a temp may have.
pub(super) const REGISTER_KINDS: &str = "b8, b16, b32, b64 or pred, with *N for N registers, 1 to 64";

/// Whether a temp's kind is one of them.
pub(super) fn is_register_kind(text: &str) -> bool {
    let (kind, count) = split_count(text);
    matches!(kind, "b8" | "b16" | "b32" | "b64" | "pred") && count.is_some()
}

/// The kind and number of `b16*2`.
pub(crate) fn split_count(text: &str) -> (&str, Option<u32>) {
    match text.split_once('*') {
        None => (text, Some(1)),
        Some((kind, n)) => (kind, n.parse().ok().filter(|n| (1..=64).contains(n))),
    }
}

impl DataType {
    /// The PTX register type.
    #[must_use]
    pub const fn register(&self) -> &'static str {
        match self.kind {
            DataKind::F64 | DataKind::B64 | DataKind::Descriptor => "b64",
            DataKind::F16 | DataKind::Bf16 | DataKind::B16 => "b16",
            DataKind::Pred => "pred",
            _ => "b32",
        }
    }

    /// Eight bytes of a start value, from a random word.
    #[must_use]
    pub fn value(&self, random: u64) -> u64 {
        let (low, high) = self.range;
        // 53 random bits give a uniform double below 1.
        let real = |r: u64| low + (high - low) * ((r >> 11) as f64 / (1u64 << 53) as f64);
        let half = |r: u64| u64::from(f16_bits(real(r)));
        let bf16 = |r: u64| u64::from((real(r) as f32).to_bits() >> 16);
        let again = random.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        match self.kind {
            DataKind::F32 => u64::from((real(random) as f32).to_bits()),
            DataKind::F64 => real(random).to_bits(),
            DataKind::F16 => half(random),
            DataKind::Bf16 => bf16(random),
            DataKind::F16x2 => half(random) | half(again) << 16,
            DataKind::Bf16x2 => bf16(random) | bf16(again) << 16,
            DataKind::Int => u64::from(real(random).floor() as i64 as u32),
            DataKind::B16 => random & 0xffff,
            DataKind::B32 => random & 0xffff_ffff,
            DataKind::B64 => random,
            DataKind::Pred => random >> 63,
            DataKind::Shared(_) | DataKind::Matrix | DataKind::Mbarrier | DataKind::Descriptor => 0,
        }
    }
}

/// The nearest-below f16 of a value within f16's normal range; start values need no exact rounding.
fn f16_bits(value: f64) -> u16 {
    let bits = (value as f32).to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
    match exponent {
        ..=0 => sign,
        1..=30 => sign | (exponent as u16) << 10 | (bits >> 13 & 0x3ff) as u16,
        _ => sign | 0x7bff,
    }
}

impl FromStr for DataType {
    type Err = DataTypeError;

    fn from_str(text: &str) -> Result<Self, DataTypeError> {
        let error = || DataTypeError(text.to_owned());
        let (body, count) = split_count(text.trim());
        let count = count.ok_or_else(error)?;
        let (name, range) = match body.split_once('[') {
            None => (body, None),
            Some((name, rest)) => {
                let (low, high) = rest.strip_suffix(']').and_then(|r| r.split_once(',')).ok_or_else(error)?;
                let number = |t: &str| t.trim().parse::<f64>().ok().filter(|n| n.is_finite());
                let range = (number(low).ok_or_else(error)?, number(high).ok_or_else(error)?);
                (name, Some(range).filter(|(low, high)| low <= high).map(Some).ok_or_else(error)?)
            }
        };
        let kind = match name {
            "f32" => DataKind::F32,
            "f64" => DataKind::F64,
            "f16" => DataKind::F16,
            "bf16" => DataKind::Bf16,
            "f16x2" => DataKind::F16x2,
            "bf16x2" => DataKind::Bf16x2,
            "int" => DataKind::Int,
            "b16" if range.is_none() => DataKind::B16,
            "b32" if range.is_none() => DataKind::B32,
            "b64" if range.is_none() => DataKind::B64,
            "pred" if range.is_none() => DataKind::Pred,
            "shared4" if range.is_none() => DataKind::Shared(4),
            "shared8" if range.is_none() => DataKind::Shared(8),
            "matrix16" if range.is_none() => DataKind::Matrix,
            "shared16" if range.is_none() => DataKind::Shared(16),
            "mbarrier" if range.is_none() => DataKind::Mbarrier,
            "descriptor" if range.is_none() => DataKind::Descriptor,
            _ => return Err(error()),
        };
        // Away from 0 and from powers of two: no subnormals, no bits that are all alike.
        Ok(Self { kind, range: range.unwrap_or((0.5, 1.5)), count })
    }
}

impl TryFrom<String> for DataType {
    type Error = DataTypeError;

    fn try_from(text: String) -> Result<Self, DataTypeError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_with_range_and_count() {
        let t: DataType = "f32[-1, 2.5]*4".parse().unwrap();
        assert_eq!((t.kind, t.range, t.count, t.register()), (DataKind::F32, (-1.0, 2.5), 4, "b32"));
        assert_eq!("shared16".parse::<DataType>().unwrap().kind, DataKind::Shared(16));
        for text in
            ["", "f33", "f32[1]", "f32[a,b]", "b32[0,1]", "b32*0", "f32[1,inf]", "f32[2,1]", "shared5"]
        {
            assert!(text.parse::<DataType>().is_err(), "{text}");
        }
    }

    #[test]
    fn values_lie_in_their_range() {
        let mut random = 1u64;
        for _ in 0..1000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let f = f32::from_bits("f32[-2,3]".parse::<DataType>().unwrap().value(random) as u32);
            assert!((-2.0..=3.0).contains(&f));
            let pair = "f16x2[0.5,1.5]".parse::<DataType>().unwrap().value(random);
            for half in [pair & 0xffff, pair >> 16] {
                assert!((0x3800..=0x3e00).contains(&half), "{half:#x}");
            }
            assert!("int[0,31]".parse::<DataType>().unwrap().value(random) <= 31);
        }
        assert_eq!(f16_bits(1.0), 0x3c00);
        assert_eq!(f16_bits(-2.0), 0xc000);
    }
}
