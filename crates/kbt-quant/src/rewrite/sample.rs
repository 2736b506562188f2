//! Inputs to evaluate programs on: drawn at random within the declared ranges, masked elements included, such that
//! the program's assumptions hold.

use crate::lang::eval::Extent;
use crate::lang::{Program, Range, Shape};

/// A small generator: the same inputs on every run and machine.
#[derive(Debug, Clone)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn bits(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }
}

/// How large drawn values are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Size {
    /// Within about 12 of zero.
    Usual,
    /// Up to thousands: exp2 underflows, groups flush.
    Huge,
    /// Within 2^-8 of zero: everything nearly equal.
    Tiny,
}

/// Which elements are masked (given -inf, where their range has it).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Mask {
    /// None.
    None,
    /// A quarter of them, and one whole group.
    Some,
    /// All of them.
    All,
}

/// How often inputs are drawn before giving up, and after how many tries the upper end is halved: programs whose
/// assumptions bound a sum or product from above are met by smaller inputs, and the lower end stays far out.
const TRIES: usize = 640;
const PATIENCE: usize = 32;

fn draw(range: Range, size: Size, tries: usize, rng: &mut Rng) -> f64 {
    let reach = match size {
        Size::Usual => 12.0,
        Size::Huge => 4096.0,
        Size::Tiny => 1.0 / 256.0,
    };
    let above = reach * f64::exp2(-((tries / PATIENCE) as f64));
    let value = if range.lo > 0.0 {
        // A positive quantity: its magnitude varies, not its distance from zero.
        let lo = range.lo.max(1.0 / 64.0).min(range.hi);
        let hi = range.hi.min(above.min(8.0)).max(lo);
        (lo.log2() + rng.unit() * (hi.log2() - lo.log2())).exp2()
    } else {
        let lo = range.lo.max(-reach).min(range.hi);
        let hi = range.hi.min(above).max(lo);
        lo + rng.unit() * (hi - lo)
    };
    // Inputs are f32: round, and stay within the range.
    f64::from(value as f32).clamp(range.lo, range.hi)
}

/// One set of inputs, or `None` if the assumptions could not be met in [`TRIES`].
pub(super) fn inputs(
    program: &Program,
    extent: Extent,
    size: Size,
    mask: Mask,
    rng: &mut Rng,
) -> Option<Vec<Vec<f64>>> {
    for tries in 0..TRIES {
        let drawn: Vec<Vec<f64>> = program
            .inputs
            .iter()
            .map(|input| {
                let count = extent.len(input.shape);
                let maskable = input.shape == Shape::Elem && input.range.lo == f64::NEG_INFINITY;
                let group = count / extent.len(Shape::Group).max(1);
                let lost = rng.below(extent.len(Shape::Group));
                let mut values: Vec<f64> = (0..count).map(|_| draw(input.range, size, tries, rng)).collect();
                for (i, value) in values.iter_mut().enumerate() {
                    let masked = match mask {
                        Mask::None => false,
                        Mask::Some => i / group.max(1) == lost || rng.below(4) == 0,
                        Mask::All => true,
                    };
                    if maskable && masked {
                        *value = f64::NEG_INFINITY;
                    }
                }
                values
            })
            .collect();
        if holds(program, &drawn, extent) {
            return Some(drawn);
        }
    }
    None
}

/// Whether the program's assumptions hold on these inputs.
pub(super) fn holds(program: &Program, inputs: &[Vec<f64>], extent: Extent) -> bool {
    if program.assumptions.is_empty() {
        return true;
    }
    let values = program.evaluate(inputs, extent);
    program.assumptions.iter().all(|a| {
        // NaN is what the rules' own conditions are about; rounding may exceed a bound by a little.
        values[a.node].iter().all(|&x| {
            let slack = 1e-6 * a.range.hi.abs().max(1.0);
            x.is_nan() || (a.range.lo - slack <= x && x <= a.range.hi + slack)
        })
    })
}
