//! Bit for bit: how many elements differ, where the first one is, and by how many units in the last place.

use super::unravel;
use kbt_tensor::Dtype;
use serde::{Deserialize, Serialize};

/// The count of one range of distances, in units in the last place (ulp): steps between neighbouring values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UlpRange {
    /// From this distance; 0 is a change of a zero's sign.
    pub from_ulps: u64,
    /// To this distance, itself included.
    pub to_ulps: u64,
    /// Elements.
    pub elements_count: u64,
}

/// What two tensors of one type and shape have in common, bit for bit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bits {
    /// Elements compared.
    pub elements_count: u64,
    /// Elements whose bits differ.
    pub differing_count: u64,
    /// The place of the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_index: Option<Vec<usize>>,
    /// The largest distance between two numbers.
    pub max_ulps: u64,
    /// How the distances are distributed; ranges without elements are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distribution: Vec<UlpRange>,
    /// Elements that are NaN or infinite on one side and not the same on the other.
    pub special_differing_count: u64,
    /// Elements that are NaN on both sides, with other bits.
    pub nan_payload_count: u64,
}

/// Counts as the chunks come by.
pub(crate) struct BitCounter {
    dtype: Dtype,
    elements: usize,
    differing: u64,
    first: Option<usize>,
    max_ulps: u64,
    /// By the number of bits that the distance takes: 0, 1, 2-3, 4-7, …
    ranges: [u64; 65],
    special: u64,
    payload: u64,
}

#[derive(PartialEq, Clone, Copy)]
enum Kind {
    Number,
    Infinite,
    Nan,
}

impl BitCounter {
    pub(crate) const fn new(dtype: Dtype) -> Self {
        Self {
            dtype,
            elements: 0,
            differing: 0,
            first: None,
            max_ulps: 0,
            ranges: [0; 65],
            special: 0,
            payload: 0,
        }
    }

    /// One chunk of whole elements of both sides.
    pub(crate) fn push(&mut self, saved: &[u8], variant: &[u8]) {
        let count = saved.len() * 8 / self.dtype.bits();
        if saved != variant {
            // Blocks of even length hold whole elements, packed ones too.
            const BLOCK: usize = 512;
            for (block, (a, b)) in saved.chunks(BLOCK).zip(variant.chunks(BLOCK)).enumerate() {
                if a != b {
                    self.block(a, b, self.elements + block * BLOCK * 8 / self.dtype.bits());
                }
            }
        }
        self.elements += count;
    }

    fn block(&mut self, saved: &[u8], variant: &[u8], start: usize) {
        for index in 0..saved.len() * 8 / self.dtype.bits() {
            let (Some(a), Some(b)) = (self.dtype.code(saved, index), self.dtype.code(variant, index)) else {
                break;
            };
            if a != b {
                self.differing += 1;
                self.first.get_or_insert(start + index);
                self.element(a, b);
            }
        }
    }

    fn element(&mut self, a: u64, b: u64) {
        match (kind(self.dtype, a), kind(self.dtype, b)) {
            (Kind::Number, Kind::Number) => {
                let distance = self.dtype.rank(a).abs_diff(self.dtype.rank(b));
                let ulps = u64::try_from(distance).unwrap_or(u64::MAX);
                self.max_ulps = self.max_ulps.max(ulps);
                self.ranges[(64 - ulps.leading_zeros()) as usize] += 1;
            }
            (Kind::Nan, Kind::Nan) => self.payload += 1,
            _ => self.special += 1,
        }
    }

    pub(crate) fn finish(self, shape: &[usize]) -> Bits {
        let range = |(bits, &count): (usize, &u64)| {
            let top = 1u128 << bits;
            UlpRange {
                from_ulps: if bits == 0 { 0 } else { (top / 2) as u64 },
                to_ulps: (top - 1) as u64,
                elements_count: count,
            }
        };
        Bits {
            elements_count: self.elements as u64,
            differing_count: self.differing,
            first_index: self.first.map(|index| unravel(index, shape)),
            max_ulps: self.max_ulps,
            distribution: self
                .ranges
                .iter()
                .enumerate()
                .filter(|(_, count)| **count > 0)
                .map(range)
                .collect(),
            special_differing_count: self.special,
            nan_payload_count: self.payload,
        }
    }
}

/// Whether a bit pattern is a number, an infinity or NaN.
fn kind(dtype: Dtype, code: u64) -> Kind {
    // Exponent and mantissa without the sign; the least pattern that is infinite, and whether NaNs lie above it.
    let (magnitude, infinity) = match dtype {
        Dtype::F64 => (code & (u64::MAX >> 1), 0x7ff0_0000_0000_0000),
        Dtype::F32 => (code & 0x7fff_ffff, 0x7f80_0000),
        Dtype::F16 => (code & 0x7fff, 0x7c00),
        Dtype::Bf16 => (code & 0x7fff, 0x7f80),
        Dtype::E5m2 => (code & 0x7f, 0x7c),
        Dtype::E4m3 if code & 0x7f == 0x7f => return Kind::Nan,
        Dtype::E8m0 if code == 0xff => return Kind::Nan,
        _ => return Kind::Number,
    };
    match magnitude.cmp(&infinity) {
        std::cmp::Ordering::Less => Kind::Number,
        std::cmp::Ordering::Equal => Kind::Infinite,
        std::cmp::Ordering::Greater => Kind::Nan,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(dtype: Dtype, saved: &[u64], variant: &[u64]) -> Bits {
        let bytes = |codes: &[u64]| -> Vec<u8> {
            match dtype {
                Dtype::E2m1 => codes.as_chunks::<2>().0.iter().map(|[a, b]| (a | b << 4) as u8).collect(),
                _ => codes.iter().flat_map(|c| c.to_le_bytes()[..dtype.bits() / 8].to_vec()).collect(),
            }
        };
        let mut counter = BitCounter::new(dtype);
        // Two chunks, so that places carry over.
        let (a, b) = (bytes(saved), bytes(variant));
        let half = a.len() / 2;
        counter.push(&a[..half], &b[..half]);
        counter.push(&a[half..], &b[half..]);
        counter.finish(&[2, saved.len() / 2])
    }

    fn ranges(bits: &Bits) -> Vec<(u64, u64, u64)> {
        bits.distribution.iter().map(|r| (r.from_ulps, r.to_ulps, r.elements_count)).collect()
    }

    #[test]
    fn distances_are_counted_in_ulps_and_the_first_place_is_named() {
        let bits = count(Dtype::Bf16, &[0x3f80, 0x3f80, 0x0000, 0x8001], &[0x3f80, 0x3f85, 0x8000, 0x0001]);
        assert_eq!((bits.elements_count, bits.differing_count, bits.max_ulps), (4, 3, 5));
        assert_eq!(bits.first_index.as_deref(), Some(&[0, 1][..]));
        assert_eq!(ranges(&bits), [(0, 0, 1), (2, 3, 1), (4, 7, 1)]);
    }

    #[test]
    fn a_place_far_into_a_tensor_is_counted_from_its_start() {
        let saved = vec![7; 4000];
        let mut variant = saved.clone();
        variant[3456] = 8;
        let bits = count(Dtype::F32, &saved, &variant);
        assert_eq!((bits.differing_count, bits.first_index), (1, Some(vec![1, 1456])));
    }

    #[test]
    fn specials_are_placed_exactly_and_are_no_distances() {
        // NaN to NaN with other bits, infinity to number, number to NaN, one infinity to the other.
        let saved = [0x7fc0_0000, 0x7f80_0000, 0x3f80_0000, 0x7f80_0000];
        let variant = [0xffc0_0001, 0x7f7f_ffff, 0x7fc0_0000, 0xff80_0000];
        let bits = count(Dtype::F32, &saved, &variant);
        assert_eq!((bits.special_differing_count, bits.nan_payload_count, bits.max_ulps), (3, 1, 0));
        assert!(bits.distribution.is_empty());
        let bits = count(Dtype::E4m3, &[0x7e, 0x7f], &[0x7f, 0xff]);
        assert_eq!((bits.special_differing_count, bits.nan_payload_count), (1, 1));
    }

    #[test]
    fn packed_codes_and_whole_ranges_work() {
        let bits = count(Dtype::E2m1, &[1, 2, 3, 0xf], &[1, 3, 3, 0x7]);
        assert_eq!((bits.differing_count, bits.max_ulps), (2, 14));
        assert_eq!(bits.first_index.as_deref(), Some(&[0, 1][..]));
        let bits = count(Dtype::U64, &[0, 5], &[u64::MAX, 5]);
        assert_eq!(ranges(&bits), [(1 << 63, u64::MAX, 1)]);
        let same = count(Dtype::F64, &[7, 8], &[7, 8]);
        assert_eq!((same.differing_count, same.first_index, same.distribution.len()), (0, None, 0));
    }
}
