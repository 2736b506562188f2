//! Bit for bit: how many elements differ, where the first one is, and by how many units in the last place.

use super::unravel;
use crate::simd::{Kernel, Level};
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
    /// The place of the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_special_index: Option<Vec<usize>>,
    /// Elements that are NaN on both sides, with other bits.
    pub nan_payload_count: u64,
}

/// How the bit patterns of a type stand for numbers.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// The sign's bit; 0 where there is none.
    sign: u64,
    order: Order,
    /// The bits without the sign, for the types that have specials.
    mask: u64,
    /// The least of them that is infinite or NaN.
    special: u64,
    /// Whether that one is infinite.
    infinite: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Unsigned,
    TwosComplement,
    /// A sign and a magnitude.
    Magnitude,
}

impl Form {
    pub(super) const fn of(dtype: Dtype) -> Self {
        let sign = 1 << (dtype.bits() - 1);
        let (mask, special, infinite) = match dtype {
            Dtype::F64 => (sign - 1, 0x7ff0_0000_0000_0000, true),
            Dtype::F32 => (sign - 1, 0x7f80_0000, true),
            Dtype::F16 => (sign - 1, 0x7c00, true),
            Dtype::Bf16 => (sign - 1, 0x7f80, true),
            Dtype::E5m2 => (sign - 1, 0x7c, true),
            Dtype::E4m3 => (sign - 1, 0x7f, false),
            Dtype::E8m0 => (0xff, 0xff, false),
            _ => (0, u64::MAX, false),
        };
        let order = match dtype {
            Dtype::I64 | Dtype::I32 | Dtype::I16 | Dtype::I8 => Order::TwosComplement,
            Dtype::U64 | Dtype::U32 | Dtype::U16 | Dtype::U8 | Dtype::Bool | Dtype::E8m0 => Order::Unsigned,
            _ => Order::Magnitude,
        };
        Self { sign, order, mask, special, infinite }
    }

    /// The bits to look at, and the least of them that is infinite or NaN; `None` where no code is.
    pub(super) fn specials(self) -> Option<(u64, u64)> {
        (self.mask != 0).then_some((self.mask, self.special))
    }

    const fn is_special(self, code: u64) -> bool {
        code & self.mask >= self.special
    }

    const fn is_nan(self, code: u64) -> bool {
        self.is_special(code) && !(self.infinite && code & self.mask == self.special)
    }

    /// A number that grows with the value, in steps of 1 from one value to the next; both zeros have the same.
    const fn place(self, code: u64) -> u64 {
        match self.order {
            Order::Unsigned => code,
            Order::TwosComplement => code ^ self.sign,
            Order::Magnitude if code & self.sign == 0 => self.sign + code,
            Order::Magnitude => self.sign - (code & (self.sign - 1)),
        }
    }
}

/// Bytes looked at together. Even, so that they hold whole elements, packed ones too.
const BLOCK: usize = 512;
/// Up to so many bits of the largest distance, a pass over the block for each range is faster than to look up each range.
const PASSES: usize = 12;

/// Counts as the chunks come by.
pub(crate) struct BitCounter {
    level: Level,
    dtype: Dtype,
    form: Form,
    /// Elements before the next one, from the tensor's start.
    at: usize,
    elements: u64,
    differing: u64,
    first: Option<usize>,
    max_ulps: u64,
    /// By the number of bits that the distance takes: 0, 1, 2-3, 4-7, …
    ranges: [u64; 65],
    special: u64,
    first_special: Option<usize>,
    payload: u64,
}

impl BitCounter {
    /// Counts from element `at` on.
    pub(crate) fn new(dtype: Dtype, at: usize) -> Self {
        Self {
            level: Level::widest(),
            dtype,
            form: Form::of(dtype),
            at,
            elements: 0,
            differing: 0,
            first: None,
            max_ulps: 0,
            ranges: [0; 65],
            special: 0,
            first_special: None,
            payload: 0,
        }
    }

    /// One chunk of whole elements of both sides.
    pub(crate) fn push(&mut self, saved: &[u8], variant: &[u8]) {
        let count = saved.len() * 8 / self.dtype.bits();
        if saved != variant {
            let mut start = self.at;
            for (a, b) in saved.chunks(BLOCK).zip(variant.chunks(BLOCK)) {
                if a != b {
                    self.level.run(Block { counter: self, saved: a, variant: b, start });
                }
                start += BLOCK * 8 / self.dtype.bits();
            }
        }
        self.at += count;
        self.elements += count as u64;
    }

    /// A block of any type, and of those with specials in them.
    #[cold]
    fn one_by_one(&mut self, saved: &[u8], variant: &[u8], start: usize) {
        for index in 0..saved.len() * 8 / self.dtype.bits() {
            let (Some(a), Some(b)) = (self.dtype.code(saved, index), self.dtype.code(variant, index)) else {
                break;
            };
            if a != b {
                self.differing += 1;
                self.first.get_or_insert(start + index);
                self.element(a, b, start + index);
            }
        }
    }

    fn element(&mut self, a: u64, b: u64, index: usize) {
        let form = self.form;
        match (form.is_special(a), form.is_special(b)) {
            (false, false) => {
                let ulps = form.place(a).abs_diff(form.place(b));
                self.max_ulps = self.max_ulps.max(ulps);
                self.ranges[bits_of(ulps)] += 1;
            }
            (true, true) if form.is_nan(a) && form.is_nan(b) => self.payload += 1,
            _ => {
                self.special += 1;
                self.first_special.get_or_insert(index);
            }
        }
    }

    /// The counts of what came right after.
    pub(crate) fn merge(&mut self, next: &Self) {
        self.at = next.at;
        self.elements += next.elements;
        self.differing += next.differing;
        self.first = self.first.or(next.first);
        self.max_ulps = self.max_ulps.max(next.max_ulps);
        self.ranges.iter_mut().zip(next.ranges).for_each(|(count, more)| *count += more);
        self.special += next.special;
        self.first_special = self.first_special.or(next.first_special);
        self.payload += next.payload;
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
            elements_count: self.elements,
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
            first_special_index: self.first_special.map(|index| unravel(index, shape)),
            nan_payload_count: self.payload,
        }
    }
}

/// The number of bits that a distance takes.
const fn bits_of(ulps: u64) -> usize {
    (64 - ulps.leading_zeros()) as usize
}

/// A block of elements of one width, in loops without branches that become vector code; a block with a special in it
/// goes one by one. The last type counts a block's elements.
macro_rules! block {
    ($name:ident, $code:ty, $bytes:literal, $count:ty) => {
        impl BitCounter {
            #[inline(always)]
            fn $name(&mut self, saved: &[u8], variant: &[u8], start: usize) {
                const LENGTH: usize = BLOCK / $bytes;
                let Form { sign, order, mask, special, .. } = self.form;
                // All of them fit the code's own width but the bound that nothing reaches.
                let (sign, mask) = (sign as $code, mask as $code);
                let special = <$code>::try_from(special).unwrap_or(<$code>::MAX);
                let (a, b) = (saved.as_chunks::<$bytes>().0, variant.as_chunks::<$bytes>().0);
                let pairs =
                    || a.iter().zip(b).map(|(a, b)| (<$code>::from_le_bytes(*a), <$code>::from_le_bytes(*b)));
                if pairs().fold(false, |any, (a, b)| any | (a & mask >= special) | (b & mask >= special)) {
                    return self.one_by_one(saved, variant, start);
                }
                let mut ulps: [$code; LENGTH] = [0; LENGTH];
                let places = ulps.iter_mut().zip(pairs());
                match order {
                    Order::Unsigned => places.for_each(|(u, (a, b))| *u = a.abs_diff(b)),
                    Order::TwosComplement => {
                        places.for_each(|(u, (a, b))| *u = (a ^ sign).abs_diff(b ^ sign));
                    }
                    Order::Magnitude => {
                        let place = |c: $code| if c & sign == 0 { sign + c } else { sign - (c & (sign - 1)) };
                        places.for_each(|(u, (a, b))| *u = place(a).abs_diff(place(b)));
                    }
                }
                let ulps = &ulps[..a.len()];
                let count = |holds: &dyn Fn($code) -> bool| -> u64 {
                    ulps.iter().fold(0 as $count, |count, &u| count + <$count>::from(holds(u))).into()
                };
                let differing =
                    pairs().fold(0 as $count, |count, (a, b)| count + <$count>::from(a != b)).into();
                self.differing += differing;
                if self.first.is_none() {
                    self.first = pairs().position(|(a, b)| a != b).map(|place| start + place);
                }
                let most = ulps.iter().fold(0, |most, &u| most.max(u)).into();
                self.max_ulps = self.max_ulps.max(most);
                if bits_of(most) > PASSES {
                    ulps.iter().for_each(|&u| self.ranges[bits_of(u.into())] += 1);
                    self.ranges[0] -= a.len() as u64 - differing;
                    return;
                }
                // Those of at least so many bits, less those of more.
                let mut at_least = differing;
                for bits in 0..=bits_of(most) {
                    let more = if bits < bits_of(most) { count(&|u| u >> bits != 0) } else { 0 };
                    self.ranges[bits] += at_least - more;
                    at_least = more;
                }
            }
        }
    };
}

/// A block whose sides differ, as a loop for the widest vectors.
struct Block<'a> {
    counter: &'a mut BitCounter,
    saved: &'a [u8],
    variant: &'a [u8],
    start: usize,
}

impl Kernel for Block<'_> {
    #[inline(always)]
    fn run(self) {
        let Self { counter, saved, variant, start } = self;
        match counter.dtype.bits() {
            8 => counter.bytes(saved, variant, start),
            16 => counter.halves(saved, variant, start),
            32 => counter.words(saved, variant, start),
            64 => counter.doubles(saved, variant, start),
            _ => counter.one_by_one(saved, variant, start),
        }
    }
}

block!(bytes, u8, 1, u16);
block!(halves, u16, 2, u16);
block!(words, u32, 4, u32);
block!(doubles, u64, 8, u64);

#[cfg(test)]
mod tests;
