//! Whole tensors, at the speed of memory: scales and packed codes, the same as block by block.
//!
//! Blocks are taken in chunks that stay in the first-level cache, and each stage (greatest magnitudes, scales,
//! element codes, packing) is a loop over the chunk without branches. See `simd` for how it meets the processor.

use super::scale::{Scale, WithScale};
use super::{BlockFormat, Quantiser};
use crate::format::{Element, Format, element};
use crate::simd::{Kernel, Level, prefetch};
use std::marker::PhantomData;

/// Blocks in a chunk.
const CHUNK: usize = 64;
/// Elements of the longest block.
const LONGEST: usize = 32;
/// How many chunks ahead memory is asked for.
const AHEAD: usize = 2;
/// Elements of a cache line.
const LINE: usize = 16;

/// A tensor or an output of a length that does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LengthError {
    /// The elements are no whole number of blocks.
    #[error("{elements} elements are no whole number of {format} blocks of {}", format.elements())]
    Elements {
        /// How many there are.
        elements: usize,
        /// The format.
        format: BlockFormat,
    },
    /// An output is too short or too long.
    #[error("{blocks} {format} blocks give {expected} bytes of {what}, not {found}")]
    Output {
        /// The format.
        format: BlockFormat,
        /// The blocks of the input.
        blocks: usize,
        /// Which output.
        what: &'static str,
        /// Its bytes.
        found: usize,
        /// What they should be.
        expected: usize,
    },
}

impl BlockFormat {
    /// Bytes that a block's element codes take: two e2m1 codes share a byte, all others have one each (FP6 too, as
    /// PTX packs it).
    #[must_use]
    pub const fn code_bytes(self) -> usize {
        if matches!(self.element(), Format::E2m1) { self.elements() / 2 } else { self.elements() }
    }
}

impl Quantiser {
    /// Quantises a whole tensor, whose rows are whole blocks: `codes` takes [`BlockFormat::code_bytes`] bytes a block,
    /// the element of the lower index in the lower nibble, and `scales` one byte a block, in the order of the blocks
    /// ([`super::scale_offset`] says where tensor cores want them). The same codes as [`Quantiser::block`].
    pub fn tensor(&self, xs: &[f32], codes: &mut [u8], scales: &mut [u8]) -> Result<(), LengthError> {
        self.tensor_at(Level::widest(), xs, codes, scales)
    }

    fn tensor_at(
        &self,
        level: Level,
        xs: &[f32],
        codes: &mut [u8],
        scales: &mut [u8],
    ) -> Result<(), LengthError> {
        let format = self.format;
        let (elements, bytes) = (format.elements(), format.code_bytes());
        let blocks = xs.len() / elements;
        if !xs.len().is_multiple_of(elements) {
            return Err(LengthError::Elements { elements: xs.len(), format });
        }
        for (what, found, expected) in
            [("codes", codes.len(), blocks * bytes), ("scales", scales.len(), blocks)]
        {
            if found != expected {
                return Err(LengthError::Output { format, blocks, what, found, expected });
            }
        }
        if elements == 16 {
            self.chunks::<16>(level, xs, codes, scales)
        } else {
            self.chunks::<32>(level, xs, codes, scales)
        }
        Ok(())
    }

    /// Chunk by chunk, with the greatest magnitudes of the next chunk found while this one is encoded, so that memory
    /// is read while there is arithmetic to do.
    fn chunks<const N: usize>(&self, level: Level, xs: &[f32], codes: &mut [u8], scales: &mut [u8]) {
        let bytes = self.format.code_bytes();
        let mut amax = [0.0f32; CHUNK];
        let mut factors = [0.0f32; CHUNK];
        let mut unpacked = [0u8; CHUNK * LONGEST];
        let mut chunks = xs.chunks(CHUNK * N);
        let mut current = chunks.next().unwrap_or_default();
        let mut ahead = xs.get(AHEAD * CHUNK * N..).unwrap_or_default();
        level.run(Greatest::<N> { xs: current, amax: &mut amax });
        for (codes, scales) in codes.chunks_mut(CHUNK * bytes).zip(scales.chunks_mut(CHUNK)) {
            let next = chunks.next().unwrap_or_default();
            let scaling = Scales { level, amax: &amax, scales, factors: &mut factors };
            self.rule.visit(self.format, self.tensor_amax, scaling);
            let (xs, factors, amax) = (current, &factors, &mut amax);
            macro_rules! encode {
                ($element:ident, $to:expr) => {
                    level.run(Encode::<element::$element, N> {
                        xs,
                        factors,
                        to: $to,
                        next,
                        amax,
                        ahead,
                        element: PhantomData,
                    })
                };
            }
            match self.format.element() {
                Format::E2m1 => {
                    encode!(E2m1, &mut unpacked);
                    level.run(Pack { unpacked: &unpacked, codes });
                }
                Format::E2m3 => encode!(E2m3, codes),
                Format::E3m2 => encode!(E3m2, codes),
                Format::E5m2 => encode!(E5m2, codes),
                _ => encode!(E4m3, codes),
            }
            current = next;
            ahead = ahead.get(CHUNK * N..).unwrap_or_default();
        }
    }
}

/// The greatest magnitude of each block; NaN where an element is NaN.
struct Greatest<'a, const N: usize> {
    xs: &'a [f32],
    amax: &'a mut [f32],
}

impl<const N: usize> Kernel for Greatest<'_, N> {
    #[inline(always)]
    fn run(self) {
        let (blocks, _) = self.xs.as_chunks::<N>();
        for (xs, amax) in blocks.iter().zip(self.amax) {
            *amax = greatest(xs);
        }
    }
}

/// As integers, magnitudes are ordered as they are as numbers, and NaN lies above infinity.
#[inline(always)]
pub(super) fn greatest(xs: &[f32]) -> f32 {
    f32::from_bits(xs.iter().fold(0, |m, x| m.max(x.to_bits() & 0x7fff_ffff)))
}

struct Scales<'a> {
    level: Level,
    amax: &'a [f32],
    scales: &'a mut [u8],
    factors: &'a mut [f32],
}

impl WithScale for Scales<'_> {
    type Output = ();

    #[inline]
    fn with<S: Scale>(self, scale: S) {
        let Self { level, amax, scales, factors } = self;
        level.run(ScaleLoop { scale, amax, scales, factors });
    }
}

struct ScaleLoop<'a, S> {
    scale: S,
    amax: &'a [f32],
    scales: &'a mut [u8],
    factors: &'a mut [f32],
}

impl<S: Scale> Kernel for ScaleLoop<'_, S> {
    #[inline(always)]
    fn run(self) {
        for ((&amax, code), factor) in self.amax.iter().zip(self.scales).zip(self.factors) {
            (*code, *factor) = self.scale.of(amax);
        }
    }
}

/// Codes of a byte each for the blocks of `xs`, and the greatest magnitudes of the blocks of `next`.
struct Encode<'a, F, const N: usize> {
    xs: &'a [f32],
    factors: &'a [f32],
    to: &'a mut [u8],
    next: &'a [f32],
    amax: &'a mut [f32],
    ahead: &'a [f32],
    element: PhantomData<F>,
}

impl<F: Element, const N: usize> Kernel for Encode<'_, F, N> {
    #[inline(always)]
    fn run(self) {
        let (blocks, _) = self.xs.as_chunks::<N>();
        let (places, _) = self.to.as_chunks_mut::<N>();
        let (next, _) = self.next.as_chunks::<N>();
        // The next chunk is shorter only at the end of the tensor.
        let (with, without) = blocks.split_at(next.len().min(blocks.len()));
        let mut line = 0;
        let work = with.iter().zip(self.factors).zip(places.iter_mut()).zip(next).zip(self.amax);
        for ((((xs, factor), to), next), amax) in work {
            *to = encode::<F, N>(xs, *factor);
            *amax = greatest(next);
            for _ in 0..N / LINE {
                prefetch(self.ahead, line);
                line += LINE;
            }
        }
        let factors = self.factors.iter().skip(with.len());
        for ((xs, factor), to) in without.iter().zip(factors).zip(places.iter_mut().skip(with.len())) {
            *to = encode::<F, N>(xs, *factor);
        }
    }
}

#[inline(always)]
fn encode<F: Element, const N: usize>(xs: &[f32; N], factor: f32) -> [u8; N] {
    let mut codes = [0; N];
    for (code, &x) in codes.iter_mut().zip(xs) {
        *code = F::USUAL.encode(x * factor) as u8;
    }
    codes
}

/// Codes of a byte each to two a byte.
struct Pack<'a> {
    unpacked: &'a [u8],
    codes: &'a mut [u8],
}

impl Kernel for Pack<'_> {
    #[inline(always)]
    fn run(self) {
        let (eights, _) = self.unpacked.as_chunks::<8>();
        let (fours, _) = self.codes.as_chunks_mut::<4>();
        for (codes, packed) in eights.iter().zip(fours) {
            *packed = pack_nibbles(u64::from_le_bytes(*codes)).to_le_bytes();
        }
    }
}

/// Eight codes in the low halves of eight bytes, as eight nibbles.
#[inline(always)]
fn pack_nibbles(codes: u64) -> u32 {
    let pairs = (codes | codes >> 4) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    (fours | fours >> 16) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::ScaleRule;

    /// Blocks whose greatest elements and whose scaled elements lie at cut points, beside them, and far from them.
    fn tensor(elements: usize) -> Vec<f32> {
        let cuts = [0.25f32, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 0.062_5, 7.25, 27.0, 464.0, 57_344.0];
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u32
        };
        let mut xs = Vec::new();
        for block in 0..1000u32 {
            let top = match block % 8 {
                0 => 0.0,
                1 => f32::from_bits(random() & 0x7fff_ffff),
                2 => 2f32.powi(block as i32 % 250 - 126),
                3 => f32::from_bits(2f32.powi(block as i32 % 250 - 126).to_bits() - 1),
                4 => f32::from_bits(random() % 0x0080_0000),
                _ => (random() as f32 / 1e9).exp2() * 1e-2,
            };
            for i in 0..elements as u32 {
                let word = random();
                let x = match (block % 11, i) {
                    (9, 3) => f32::from_bits(word),
                    (10, 5) => [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN][word as usize % 4],
                    (_, 0) => top,
                    (5, _) => top * (word as f32 / 4_294_967_296.0),
                    _ => {
                        let at = top * (cuts[word as usize % cuts.len()] / 6.0);
                        f32::from_bits(at.to_bits().wrapping_add(word >> 8 & 3).wrapping_sub(1))
                    }
                };
                xs.push(if word & 0x8000_0000 == 0 { x } else { -x });
            }
        }
        xs
    }

    #[test]
    fn every_level_is_block_by_block_in_every_format_and_rule() {
        let levels = Level::available();
        for format in BlockFormat::ALL {
            let xs = tensor(format.elements());
            for rule in ScaleRule::ALL.into_iter().filter(|r| r.check(format).is_ok()) {
                for tensor_amax in [0.0, 1e-30, 168.375, 3e38] {
                    let quantiser = Quantiser::new(format, rule, tensor_amax).unwrap();
                    let (mut codes, mut scales) = (Vec::new(), Vec::new());
                    let mut block = vec![0u16; format.elements()];
                    for xs in xs.chunks(format.elements()) {
                        scales.push(quantiser.block(xs, &mut block) as u8);
                        match format.code_bytes() == format.elements() {
                            true => codes.extend(block.iter().map(|&c| c as u8)),
                            false => codes.extend(block.chunks(2).map(|c| (c[0] | c[1] << 4) as u8)),
                        }
                    }
                    for level in &levels {
                        let (mut c, mut s) = (vec![0xaa; codes.len()], vec![0xaa; scales.len()]);
                        quantiser.tensor_at(*level, &xs, &mut c, &mut s).unwrap();
                        assert_eq!(s, scales, "{format} {rule} {tensor_amax:e} {level:?}");
                        assert_eq!(c, codes, "{format} {rule} {tensor_amax:e} {level:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn lengths_that_do_not_fit_are_refused() {
        let quantiser = Quantiser::new(BlockFormat::Nvfp4, ScaleRule::TransformerEngine, 1.0).unwrap();
        let error = quantiser.tensor(&[0.0; 17], &mut [], &mut []).unwrap_err().to_string();
        assert_eq!(error, "17 elements are no whole number of nvfp4 blocks of 16");
        let error = quantiser.tensor(&[0.0; 32], &mut [0; 16], &mut [0; 3]).unwrap_err().to_string();
        assert_eq!(error, "2 nvfp4 blocks give 2 bytes of scales, not 3");
        assert_eq!(quantiser.tensor(&[], &mut [], &mut []), Ok(()));
    }
}
