//! NaN and infinity in the saved output itself: where both sides hold the same one no bit differs, and yet the reader must
//! know.

use super::bits::Form;
use super::unravel;
use kbt_tensor::Dtype;

/// Elements looked at together, in a loop that becomes vector code.
const BLOCK: usize = 4096;

/// Counts as the chunks come by.
pub(crate) struct SpecialCounter {
    dtype: Dtype,
    form: Form,
    at: usize,
    count: u64,
    first: Option<usize>,
}

impl SpecialCounter {
    /// Counts from element `at` on.
    pub(crate) const fn new(dtype: Dtype, at: usize) -> Self {
        Self { dtype, form: Form::of(dtype), at, count: 0, first: None }
    }

    /// One chunk of whole elements.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let elements = bytes.len() * 8 / self.dtype.bits();
        if let Some((mask, special)) = self.form.specials() {
            // In the code's own width, so that many fit a vector.
            match self.dtype.bits() {
                8 => {
                    let (mask, special) = (mask as u8, special as u8);
                    self.scan::<1>(bytes, |c| u8::from_le_bytes(*c) & mask >= special);
                }
                16 => {
                    let (mask, special) = (mask as u16, special as u16);
                    self.scan::<2>(bytes, |c| u16::from_le_bytes(*c) & mask >= special);
                }
                32 => {
                    let (mask, special) = (mask as u32, special as u32);
                    self.scan::<4>(bytes, |c| u32::from_le_bytes(*c) & mask >= special);
                }
                _ => self.scan::<8>(bytes, |c| u64::from_le_bytes(*c) & mask >= special),
            }
        }
        self.at += elements;
    }

    fn scan<const BYTES: usize>(&mut self, bytes: &[u8], is_special: impl Fn(&[u8; BYTES]) -> bool) {
        for (block, codes) in bytes.as_chunks::<BYTES>().0.chunks(BLOCK).enumerate() {
            // Whether there is any is quick to say, and there are seldom any to count.
            if codes.iter().fold(false, |any, c| any | is_special(c)) {
                if self.first.is_none() {
                    self.first = codes.iter().position(&is_special).map(|p| self.at + block * BLOCK + p);
                }
                self.count += codes.iter().filter(|c| is_special(c)).count() as u64;
            }
        }
    }

    /// The counts of what came right after.
    pub(crate) fn merge(&mut self, next: &Self) {
        self.at = next.at;
        self.count += next.count;
        self.first = self.first.or(next.first);
    }

    /// How many there are, and the place of the first.
    pub(crate) fn finish(&self, shape: &[usize]) -> (u64, Option<Vec<usize>>) {
        (self.count, self.first.map(|index| unravel(index, shape)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_that_has_specials_counts_them_and_names_the_first_through_chunks() {
        for (dtype, code, plain) in [
            (Dtype::F64, 0x7ff0_0000_0000_0001_u64, 0x3ff0_0000_0000_0000_u64),
            (Dtype::F32, 0xff80_0000, 0x3f80_0000),
            (Dtype::F16, 0x7e00, 0x3c00),
            (Dtype::Bf16, 0x7f80, 0x3f80),
            (Dtype::E5m2, 0x7c, 0x3c),
            (Dtype::E4m3, 0xff, 0x7e),
        ] {
            let width = dtype.bits() / 8;
            let mut bytes: Vec<u8> =
                (0..10_000_u64).flat_map(|_| plain.to_le_bytes()[..width].to_vec()).collect();
            for at in [7003, 9999] {
                bytes[at * width..(at + 1) * width].copy_from_slice(&code.to_le_bytes()[..width]);
            }
            let mut counter = SpecialCounter::new(dtype, 0);
            let (a, b) = bytes.split_at(5000 * width);
            counter.push(a);
            counter.push(b);
            assert_eq!(counter.finish(&[10, 1000]), (2, Some(vec![7, 3])), "{dtype}");
        }
        let mut counter = SpecialCounter::new(Dtype::I32, 0);
        counter.push(&[0xff; 64]);
        assert_eq!(counter.finish(&[16]), (0, None));
    }
}
