//! A conversion over all 2^32 inputs, as runs of equal codes.
//!
//! Read as an unsigned integer, an f32's bits are ordered like its magnitude, so a conversion is a step function
//! of them: a few hundred runs say everything. Two conversions are equal on every input exactly if their runs
//! are. [`nearest_even`] writes the runs down from the definition alone, without the encoder.

use super::{Conversion, Format, Overflow, Specials};
use std::fmt::Write;

/// Inputs from `start` up to the next run's start give `code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first input, as the bits of an f32.
    pub start: u32,
    /// The code of the whole run.
    pub code: u16,
}

/// One line a run: first input and code in hex.
#[must_use]
pub fn to_text(runs: &[Run]) -> String {
    let mut text = String::new();
    for run in runs {
        let _ = writeln!(text, "{:08x} {:02x}", run.start, run.code);
    }
    text
}

/// The runs of a saturating (or not) `rn` conversion by its definition: the boundary between neighbouring codes
/// is the midpoint of their values, the midpoint itself belongs to the even code, signs mirror, and NaN and
/// overflow are as stated for the format. `None` for ue8m0, which has no such mode.
#[must_use]
pub fn nearest_even(format: Format, overflow: Overflow) -> Option<Vec<Run>> {
    let layout = format.layout();
    if !layout.signed {
        return None;
    }
    let past = if overflow == Overflow::Saturate || layout.specials == Specials::None {
        layout.max_code
    } else {
        layout.max_code + 1
    };
    let mut magnitudes = vec![Run { start: 0, code: 0 }];
    for code in 0..layout.max_code {
        let (low, high) = (f64::from(format.decode(code)), f64::from(format.decode(code + 1)));
        magnitudes.push(boundary(low, high, code, code + 1));
    }
    if past != layout.max_code {
        // Overflow begins where the next value of an unbounded exponent would be nearer.
        let (below, max) = (format.decode(layout.max_code - 1), format.decode(layout.max_code));
        let next = 2.0 * f64::from(max) - f64::from(below);
        magnitudes.push(boundary(f64::from(max), next, layout.max_code, past));
    }
    magnitudes.push(Run { start: 0x7f80_0001, code: layout.nan_code });
    let sign = 1 << (layout.bits - 1);
    let negative = magnitudes.iter().map(|run| Run {
        start: run.start | 0x8000_0000,
        code: if run.start > 0x7f80_0000 { run.code } else { run.code | sign },
    });
    let mut runs: Vec<Run> = Vec::new();
    for run in magnitudes.iter().copied().chain(negative) {
        if runs.last().is_none_or(|last| last.code != run.code) {
            runs.push(run);
        }
    }
    Some(runs)
}

/// Where `above` begins: at the midpoint, or one f32 past it if the midpoint is `below`'s by evenness.
fn boundary(low: f64, high: f64, below: u16, above: u16) -> Run {
    // Exact in f64 and in f32: one bit more than the format's own.
    let middle = ((low + high) / 2.0) as f32;
    Run { start: middle.to_bits() + u32::from(below & 1 == 0), code: above }
}

impl Conversion {
    /// The runs of this conversion, by running the encoder over every input: seconds.
    #[must_use]
    pub fn runs(self) -> Vec<Run> {
        const BLOCK: u32 = 4096;
        let mut inputs = vec![0f32; BLOCK as usize];
        let mut codes = vec![0u16; BLOCK as usize];
        let mut runs: Vec<Run> = Vec::new();
        let mut last = None;
        for block in 0..=u32::MAX / BLOCK {
            let first = block * BLOCK;
            let bits = first..=first + (BLOCK - 1);
            for (bits, x) in bits.clone().zip(&mut inputs) {
                *x = f32::from_bits(bits);
            }
            self.encode_all(&inputs, &mut codes);
            let lone = codes[0];
            if last == Some(lone) && codes.iter().fold(true, |same, &code| same & (code == lone)) {
                continue;
            }
            for (start, &code) in bits.zip(&codes) {
                if last != Some(code) {
                    runs.push(Run { start, code });
                    last = Some(code);
                }
            }
        }
        runs
    }
}
