//! How far a right kernel may be off on a probe: what the formats of P and of the output lose, output by output.
//!
//! A right output shrinks with the number of keys that are averaged, so a fixed allowance would let any output pass
//! where there are many. What is allowed follows from the weights that the probe's construction gives. Weights are
//! taken relative to the row's largest, `S` is their sum, and weight `w` is stored with an error of at most `d`:
//!
//! - The output is rounded once: `|o|` times half a unit in the last place.
//! - An error that all weights share scales the output: `|o|` times that error.
//! - Errors of single weights meet values of V whose signs are random and know nothing of the weights, so that they add
//!   like a random walk, as the right output itself does: a standard deviation of `sqrt(sum d²) rms(V) / S`, of which
//!   seven are allowed, and never more than `sum d max|V| / S`. With V = 1 they add up: `sum d / S`.
//! - The row sum may be taken of the stored weights or of those before: `|o|` times `sum d / S`.
//! - f32 arithmetic, with exp2 by a polynomial: a relative error of every weight, which adds in the same way.

use super::{PFormat, ProbeKind};
use kbt_tensor::Dtype;

/// Mean square and largest magnitude of the random-signed values of V: ±4 one time in 16, else ±1 or ±2.
const V_MEAN_SQUARE: f64 = (16.0 + 15.0 * 2.5) / 16.0;
const V_MAX: f64 = 4.0;
/// Standard deviations: beyond seven lies one output in 10^11.
const DEVIATIONS: f64 = 7.0;
/// exp2 by the polynomial of degree 3 is off by 8.8e-5 of its value, in hardware by much less.
const EXP2: f64 = 1.0 / 8192.0;
/// Rounding of the accumulator, a key: eight keys or more are added at once, in f32 cut off at 23 bits.
const ACCUMULATED_A_KEY: f64 = 1.0 / ((1u64 << 26) as f64);
/// Keys that one fp8 matrix instruction takes; Hopper's accumulates to about 14 bits.
const FP8_KEYS: f64 = 32.0;
const FP8_ACCUMULATOR: f64 = 1.0 / 8192.0;
/// A natural logarithm and the score it is added to, in f32.
const LSE_ARITHMETIC: f64 = 1.0 / ((1u64 << 21) as f64);
/// Keys an NVFP4 group.
const GROUP: usize = 16;
/// Magnitudes of e2m1.
const E2M1: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// What a row's outputs and its log-sum may be off by.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Allowance {
    /// Of an output's own magnitude, beside its rounding.
    relative: f64,
    /// Of any output.
    absolute: f64,
    /// Of the log-sum, beside its rounding.
    lse: f64,
}

impl Allowance {
    /// What a row may be off by whose visible keys have these weights.
    #[expect(clippy::cast_precision_loss, reason = "keys are fewer than 2^53")]
    pub(super) fn of(kind: ProbeKind, format: PFormat, weights: &[f64]) -> Self {
        let sum: f64 = weights.iter().sum();
        if weights.is_empty() {
            return Self::default();
        }
        let errors: Vec<f64> = weights
            .chunks(GROUP)
            .flat_map(|group| {
                let largest = group.iter().copied().fold(0.0, f64::max);
                group.iter().map(move |&w| stored(kind, format, w, largest))
            })
            .collect();
        // What values of V make of errors of the weights.
        let spread = |errors: &[f64]| {
            let all: f64 = errors.iter().sum();
            if kind == ProbeKind::VOne {
                return all / sum;
            }
            let squares: f64 = errors.iter().map(|e| e * e).sum();
            (DEVIATIONS * (V_MEAN_SQUARE * squares).sqrt()).min(V_MAX * all) / sum
        };
        let keys = weights.len() as f64;
        let arithmetic = EXP2 + keys * ACCUMULATED_A_KEY;
        let share = errors.iter().sum::<f64>() / sum;
        // With V = 1 that is all there is; its weights have no error in common but a group's scale.
        let single = if kind == ProbeKind::VOne { 0.0 } else { spread(&errors) };
        Self {
            relative: common(kind, format) + share,
            absolute: single + (arithmetic + accumulator(kind, format, keys)) * spread(weights),
            lse: if format == PFormat::Nvfp4 { common(kind, format) } else { 0.0 } + share + arithmetic,
        }
    }

    /// What an output may be off by that is rounded to `rounding`.
    pub(super) fn output(self, right: f64, rounding: f64) -> f64 {
        right.abs() * (self.relative + rounding) + self.absolute
    }

    /// What a natural log-sum may be off by that is rounded to `rounding`.
    pub(super) fn lse(self, right: f64, rounding: f64) -> f64 {
        // A sum that is low by a share e has a logarithm that is low by -ln(1 - e).
        -(-self.lse.min(0.9)).ln_1p() + right.abs() * (LSE_ARITHMETIC + rounding)
    }
}

/// The error with which a weight is stored, where `largest` is the largest of its group of 16.
fn stored(kind: ProbeKind, format: PFormat, weight: f64, largest: f64) -> f64 {
    let rounded = kind == ProbeKind::VOne;
    match format {
        // Weights of every probe but v-one are powers of two, which both hold, whatever the row's maximum was when the
        // weight was computed.
        PFormat::Bf16 if !rounded => 0.0,
        PFormat::Bf16 => weight / 256.0,
        // Scaled by 2^6 or more (2^8 is usual), nothing of weight 2^-15 or more is lost.
        PFormat::E4m3 if weight < 1.0 / 32768.0 => weight,
        PFormat::E4m3 if !rounded => 0.0,
        PFormat::E4m3 => weight / 16.0,
        // The scale of a group of small weights may vanish in e4m3. v-one asks just whether its range is used.
        PFormat::Nvfp4 if !rounded && largest < 1.0 / 128.0 => weight,
        PFormat::Nvfp4 => {
            let code = 6.0 * weight / largest;
            let off = E2M1.iter().map(|c| (code - c).abs()).fold(f64::INFINITY, f64::min);
            off * largest / 6.0
        }
    }
}

/// The error that all weights of a row share.
const fn common(kind: ProbeKind, format: PFormat) -> f64 {
    match (kind, format) {
        // A weight that is divided by the row's sum before it is stored is no power of two, but its mantissa is that of
        // all others.
        (ProbeKind::VOne, PFormat::Bf16) | (_, PFormat::E4m3) => 0.0,
        (_, PFormat::Bf16) => 1.0 / 256.0,
        // The largest weight of each group is a power of two, so all scales are rounded alike (in v-one, each up to
        // so much). e4m3 has 4 significant bits.
        (_, PFormat::Nvfp4) => 1.0 / 16.0,
    }
}

/// What an fp8 accumulator of 14 bits loses, where it loses anything: sums of equal weights times 1, 2 and 4 are whole
/// multiples of one unit and stay below 2^13 of them. With V = 1 it is not allowed for: a kernel that loses more there
/// than the rounding of P explains (with 1000 keys it is 1.8 %) is to know of it.
fn accumulator(kind: ProbeKind, format: PFormat, keys: f64) -> f64 {
    match (kind, format) {
        (ProbeKind::TieAligned | ProbeKind::Extremes, PFormat::E4m3) => keys / FP8_KEYS * FP8_ACCUMULATOR,
        _ => 0.0,
    }
}

/// Half a unit in the last place of a type, relative to the value; wider types than f32 are taken as that.
pub(super) const fn rounding(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::Bf16 => 1.0 / 256.0,
        Dtype::F16 => 1.0 / 2048.0,
        Dtype::E4m3 => 1.0 / 16.0,
        Dtype::E5m2 => 1.0 / 8.0,
        _ => f32::EPSILON as f64 / 2.0,
    }
}

/// The rounding of an output: outputs in bf16 or f16 that were saved as f32 are rounded as those are.
pub(super) fn output_rounding(dtype: Dtype, values: &[f64]) -> f64 {
    let significant = |bits: u32| {
        values
            .iter()
            .filter(|v| v.is_finite())
            .all(|v| v.to_bits().trailing_zeros() >= f64::MANTISSA_DIGITS - bits)
    };
    let saved_as = if significant(8) {
        Dtype::Bf16
    } else if significant(11) {
        Dtype::F16
    } else {
        Dtype::F32
    };
    rounding(dtype).max(rounding(saved_as))
}

#[cfg(test)]
mod tests;
