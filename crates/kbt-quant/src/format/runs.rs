//! A conversion over all 2^32 inputs, as runs of equal codes.
//!
//! Read as an unsigned integer, an f32's bits are ordered like its magnitude, so a conversion is a step function
//! of them: a few hundred runs say everything. Two conversions are equal on every input exactly if their runs
//! are. [`Conversion::definition`] writes the runs down without the encoder.

use super::{Conversion, Overflow, Rounding, Specials};
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

impl Conversion {
    /// The runs of this conversion by its definition, from the values of the codes and nothing of the encoder.
    ///
    /// To nearest, the boundary between neighbouring codes is the midpoint of their values, which belongs to the even
    /// code (for ue8m0 to the upper one); towards zero a code begins at its own value, away from zero just past the value
    /// below. Overflow, NaN and the sign are as stated for the format.
    #[must_use]
    pub fn definition(self) -> Vec<Run> {
        let layout = self.format.layout();
        let mut runs: Vec<Run> = Vec::new();
        for negative in [false, true] {
            let magnitudes = self.magnitudes(negative);
            let nan = std::iter::once(Run { start: 0x7f80_0001, code: layout.nan_code });
            for run in magnitudes.into_iter().chain(nan) {
                let is_nan = run.start > 0x7f80_0000;
                let code = match negative && layout.signed && !is_nan {
                    true if self.relu => 0,
                    true => run.code | 1 << (layout.bits - 1),
                    false => run.code,
                };
                if runs.last().is_none_or(|last| last.code != code) {
                    runs.push(Run { start: run.start | u32::from(negative) << 31, code });
                }
            }
        }
        runs
    }

    /// The runs of the magnitudes up to infinity, as codes without a sign.
    fn magnitudes(self, negative: bool) -> Vec<Run> {
        let (format, layout) = (self.format, self.format.layout());
        let direction = match self.rounding {
            Rounding::Rn => Direction::Nearest,
            Rounding::Rz => Direction::Zero,
            // ue8m0 has no sign: up is away from zero, and there is no down.
            Rounding::Rp if !layout.signed => Direction::Away,
            Rounding::Rm if !layout.signed => Direction::Zero,
            Rounding::Rm if negative => Direction::Away,
            Rounding::Rp if !negative => Direction::Away,
            Rounding::Rm | Rounding::Rp => Direction::Zero,
        };
        let mut runs = vec![Run { start: 0, code: 0 }];
        let mut begin = |low: f64, high: f64, code: u16| {
            // Exact in f64, and a midpoint in f32 too: it has one bit more than the format's values.
            let middle = (low + high) / 2.0;
            let start = match direction {
                Direction::Zero => (high as f32).to_bits(),
                Direction::Away => (low as f32).to_bits() + 1,
                Direction::Nearest if layout.signed && code & 1 == 1 => (middle as f32).to_bits() + 1,
                Direction::Nearest => (middle as f32).to_bits(),
            };
            runs.push(Run { start, code });
        };
        for code in 1..=layout.max_code {
            begin(f64::from(format.decode(code - 1)), f64::from(format.decode(code)), code);
        }
        let past = layout.max_code + 1;
        if self.overflow == Overflow::Special && layout.specials != Specials::None {
            match direction {
                // Only infinity itself goes past the greatest finite value.
                Direction::Zero => runs.push(Run { start: 0x7f80_0000, code: past }),
                // Overflow begins where the next value of an unbounded exponent would be due.
                Direction::Nearest | Direction::Away => {
                    let (below, max) =
                        (f64::from(format.decode(layout.max_code - 1)), f64::from(format.max()));
                    let next = if layout.signed { 2.0 * max - below } else { 2.0 * max };
                    begin(max, next, past);
                }
            }
        }
        runs
    }
}

/// Which of two neighbouring magnitudes a value between them becomes.
#[derive(Clone, Copy)]
enum Direction {
    Nearest,
    Zero,
    Away,
}

/// Collects runs from codes that come in the order of their inputs.
#[derive(Debug, Default)]
pub struct Collector {
    runs: Vec<Run>,
}

impl Collector {
    /// Adds the codes of the inputs from `first` on.
    pub fn add(&mut self, first: u32, codes: &[u16]) {
        let mut last = self.runs.last().map(|run| run.code);
        for (start, codes) in (first..=u32::MAX).step_by(BLOCK).zip(codes.chunks(BLOCK)) {
            // Most blocks lie within one run.
            let lone = codes[0];
            if last == Some(lone) && codes.iter().fold(true, |same, &code| same & (code == lone)) {
                continue;
            }
            for (start, &code) in (start..=u32::MAX).zip(codes) {
                if last != Some(code) {
                    self.runs.push(Run { start, code });
                    last = Some(code);
                }
            }
        }
    }

    /// Adds the runs of a part that follows.
    pub fn append(&mut self, part: Self) {
        let last = self.runs.last().map(|run| run.code);
        let same = usize::from(last.is_some() && last == part.runs.first().map(|run| run.code));
        self.runs.extend(part.runs.into_iter().skip(same));
    }

    /// The runs.
    #[must_use]
    pub fn into_runs(self) -> Vec<Run> {
        self.runs
    }
}

/// Inputs that are looked at together.
const BLOCK: usize = 4096;

impl Conversion {
    /// The runs of this conversion, by running the encoder over every input: seconds.
    #[must_use]
    pub fn runs(self) -> Vec<Run> {
        let mut inputs = [0f32; BLOCK];
        let mut codes = [0u16; BLOCK];
        let mut collector = Collector::default();
        for first in (0..=u32::MAX).step_by(BLOCK) {
            for (bits, x) in (first..=u32::MAX).zip(&mut inputs) {
                *x = f32::from_bits(bits);
            }
            self.encode_all(&inputs, &mut codes);
            collector.add(first, &codes);
        }
        collector.into_runs()
    }

    /// Compares codes that someone else gave to the inputs from `first` on with this conversion's. Calls `differs` with
    /// input, their code and ours, for each that is another.
    pub fn compare(self, first: u32, theirs: &[u16], mut differs: impl FnMut(u32, u16, u16)) {
        let mut inputs = [0f32; BLOCK];
        let mut ours = [0u16; BLOCK];
        for (first, theirs) in (first..=u32::MAX).step_by(BLOCK).zip(theirs.chunks(BLOCK)) {
            for (bits, x) in (first..=u32::MAX).zip(&mut inputs) {
                *x = f32::from_bits(bits);
            }
            self.encode_all(&inputs, &mut ours);
            if theirs == &ours[..theirs.len()] {
                continue;
            }
            for ((bits, &theirs), &ours) in (first..=u32::MAX).zip(theirs).zip(&ours) {
                if theirs != ours {
                    differs(bits, theirs, ours);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;

    #[test]
    fn runs_collected_in_parts_are_those_of_the_whole_and_one_changed_code_is_found() {
        let to = Conversion::usual(Format::E4m3);
        let first = 0x3f7f_0000u32;
        let codes: Vec<u16> = (first..first + 100_000).map(|b| to.encode(f32::from_bits(b))).collect();
        let mut whole = Collector::default();
        whole.add(first, &codes);
        let (mut a, mut b) = (Collector::default(), Collector::default());
        a.add(first, &codes[..40_000]);
        b.add(first + 40_000, &codes[40_000..]);
        a.append(b);
        let (a, whole) = (a.into_runs(), whole.into_runs());
        assert_eq!(a, whole);
        let defined: Vec<Run> = to.definition();
        for run in &whole[1..] {
            assert!(defined.contains(run), "{run:x?}");
        }
        let mut theirs = codes;
        theirs[54_321] ^= 1;
        let mut found = Vec::new();
        to.compare(first, &theirs, |bits, theirs, ours| found.push((bits, theirs ^ ours)));
        assert_eq!(found, [(first + 54_321, 1)]);
    }
}
