//! The least that shows a change to be right: a correctness test, a boundary test, one falsifiable experiment.

use crate::dtype::Dtype;
use crate::facts::{FactSheet, OperatorKind};
use crate::outcome::{Experiment, Status, TriageOutcome, Validation};

/// Bits of a value with the implicit one. Rounding to nearest errs by up to half of the last, which of the smallest value
/// of a binade is 2 to the minus so many.
const fn significant_bits(format: Dtype) -> Option<u32> {
    match format {
        Dtype::Bf16 => Some(8),
        Dtype::Fp16 => Some(11),
        Dtype::Fp32 => Some(24),
        _ => None,
    }
}

pub(crate) fn validation(outcome: &TriageOutcome, sheet: &FactSheet, kind: OperatorKind) -> Validation {
    let d = sheet.dtypes.clone().unwrap_or_default();
    let out = d.output.or_else(|| d.inputs.as_ref().and_then(|i| i.first().copied()));
    let rounding = match (out.and_then(significant_bits), out) {
        (Some(bits), _) => format!("2^-{bits} of the value a rounding"),
        (None, Some(Dtype::Int8 | Dtype::Int4 | Dtype::Int32)) => {
            "integer sums are exact in any order: bitwise equal".to_owned()
        }
        _ => "half a unit in the last place of the output format".to_owned(),
    };
    let correctness = format!(
        "saved inputs, fp64 reference: the error of the changed kernel is no larger than the present one's ({} output: {rounding}); a pure reordering is bitwise equal; 20 repeats (kbt validate compare, kbt validate flake)",
        out.map_or("unstated", Dtype::as_str),
    );
    Validation {
        correctness,
        boundary: boundary(sheet, kind),
        experiment: match (outcome.experiments.first(), outcome.status) {
            (Some(e), _) if outcome.confirmed().is_none() => first_experiment(e),
            (_, Status::Diagnosed) => {
                let next = outcome.next();
                format!("{}: {}", next.action, next.falsified)
            }
            (_, _) => {
                "take the missing timing, with its spread: it is what would contradict the initial call"
                    .to_owned()
            }
        },
    }
}

/// An experiment with what it predicts and what would prove that wrong.
pub(crate) fn first_experiment(e: &Experiment) -> String {
    format!("{}: predicted {}; wrong if {}", e.factor, e.prediction, e.falsified_by)
}

pub(crate) fn boundary(sheet: &FactSheet, kind: OperatorKind) -> String {
    let s = sheet.shape.clone().unwrap_or_default();
    let i = sheet.implementation.clone().unwrap_or_default();
    let off = |v: Option<u64>, tile: Option<u64>| {
        // The end of the number range has no neighbour above; that size is then its own boundary.
        let past = |v: u64| (v - v % tile.unwrap_or(1).max(1)).saturating_add(1);
        // A size within its first tile is followed by the one past it.
        let past = |v: u64| {
            if v <= tile.unwrap_or(1).max(1) { tile.unwrap_or(1).saturating_add(1) } else { past(v) }
        };
        v.map_or_else(|| "?".to_owned(), |v| past(v).to_string())
    };
    // No access and no vector of more than one element divides an odd size; the largest number is odd.
    let odd = |v: Option<u64>| {
        v.map_or_else(|| "?".to_owned(), |v| v.saturating_add(if v % 2 == 0 { 1 } else { 2 }).to_string())
    };
    let past = match (i.tile_m, i.tile_n) {
        (Some(_), Some(_)) => "one past a tile",
        _ => "one past the size: state tile_m and tile_n for one past a tile",
    };
    match kind {
        OperatorKind::Gemm => format!(
            "m = {} and n = {} ({past}), k one past a multiple of the MMA's k, m = 1",
            off(s.m, i.tile_m),
            off(s.n, i.tile_n)
        ),
        OperatorKind::Attention => format!(
            "seqlen = {} and 1, seqlen_kv no multiple of the tile, {}, a row that is masked whole",
            off(s.seqlen, i.tile_m),
            if s.causal == Some(true) { "not causal" } else { "causal" }
        ),
        OperatorKind::Normalization => format!(
            "columns = {} (no multiple of the access width), one row, a row of equal values, a row with one huge value",
            odd(s.columns)
        ),
        OperatorKind::Elementwise => {
            format!("elements = {} and 1, NaN and infinity, unaligned pointers", off(s.elements, None))
        }
        OperatorKind::Reduction => {
            format!("elements = {} and 1, all equal, values that cancel", off(s.elements, None))
        }
        OperatorKind::Convolution => format!(
            "channels = {} (no multiple of the vector), a window larger than the padded edge, batch 1",
            odd(s.channels)
        ),
        OperatorKind::Counts => {
            "the smallest and the largest problem that callers send, and one that no tile divides".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nearest value of so many significant bits, ties to even.
    fn rounded(x: f64, bits: u32) -> f64 {
        let dropped = 53 - bits;
        let (raw, half) = (x.to_bits(), 1u64 << (dropped - 1));
        let odd = raw >> dropped & 1;
        f64::from_bits((raw + half - 1 + odd) >> dropped << dropped)
    }

    #[test]
    fn the_boundary_is_the_size_that_the_sentence_says() {
        let said = |text: &str| {
            let sheet = FactSheet::from_yaml(text, "f.yaml").unwrap();
            boundary(&sheet, sheet.operator.as_ref().and_then(|o| o.kind).unwrap())
        };
        for (text, wanted) in [
            ("operator: {kind: normalization}\nshape: {columns: 8191}\n", "columns = 8193 (no multiple"),
            ("operator: {kind: normalization}\nshape: {columns: 8192}\n", "columns = 8193 (no multiple"),
            ("operator: {kind: convolution}\nshape: {channels: 3}\n", "channels = 5 (no multiple"),
            (
                "operator: {kind: gemm}\nshape: {m: 127, n: 256}\nimplementation: {tile_m: 128, tile_n: 128}\n",
                "m = 129 and n = 257 (one past a tile)",
            ),
            ("operator: {kind: gemm}\nshape: {m: 127, n: 256}\n", "m = 128 and n = 257 (one past the size"),
        ] {
            assert!(said(text).contains(wanted), "{}", said(text));
        }
    }

    #[test]
    fn the_error_of_one_rounding_is_within_the_criterion_and_reaches_it() {
        for (format, bits) in [(Dtype::Bf16, 8), (Dtype::Fp16, 11), (Dtype::Fp32, 24)] {
            let bound = 0.5_f64.powi(significant_bits(format).unwrap() as i32);
            // Above 1 and just short of half a step the relative error is largest.
            let worst = 1.0 + 0.5_f64.powi(bits) * 0.999;
            let values = (1..2000).map(|i| f64::from(i) * 0.037_11 + 1e-7).chain([worst, 2.0 * worst]);
            let error = |x: f64| (rounded(x, bits as u32) - x).abs() / x;
            let most = values.map(error).fold(0.0, f64::max);
            assert!(most <= bound && most > 0.9 * bound, "{format:?}: {most} of {bound}");
        }
        let x = 1.000_000_1_f64;
        assert_eq!(rounded(x, 24), f64::from(x as f32), "the test rounds as the machine does");
    }
}
