//! The least that shows a change to be right: a correctness test, a boundary test, one falsifiable experiment.

use crate::dtype::Dtype;
use crate::facts::{FactSheet, OperatorKind};
use crate::outcome::{Experiment, Status, TriageOutcome, Validation};

pub(crate) fn validation(outcome: &TriageOutcome, sheet: &FactSheet, kind: OperatorKind) -> Validation {
    let d = sheet.dtypes.clone().unwrap_or_default();
    let out = d.output.or_else(|| d.inputs.as_ref().and_then(|i| i.first().copied()));
    let rounding = match out {
        Some(Dtype::Bf16) => "2^-9 of the value a rounding",
        Some(Dtype::Fp16) => "2^-12 of the value a rounding",
        Some(Dtype::Fp32) => "2^-25 of the value a rounding",
        Some(Dtype::Int8 | Dtype::Int4 | Dtype::Int32) => {
            "integer sums are exact in any order: bitwise equal"
        }
        _ => "half a unit in the last place of the output format",
    };
    let correctness = format!(
        "saved inputs, fp64 reference: the error of the changed kernel is no larger than the present one's ({} output: {rounding}); a pure reordering is bitwise equal; 20 repeats (kbt validate compare, kbt validate flake)",
        out.map_or("unstated", Dtype::as_str),
    );
    Validation {
        correctness,
        boundary: boundary(sheet, kind),
        experiment: match (outcome.experiments.first(), outcome.status) {
            (Some(e), _) => first_experiment(e),
            (None, Status::Diagnosed) => {
                let next = outcome.next();
                format!("{}: {}", next.action, next.falsified)
            }
            (None, _) => {
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
    match kind {
        OperatorKind::Gemm => format!(
            "m = {} and n = {} (one past a tile), k one past a multiple of the MMA's k, m = 1",
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
            off(s.columns, None)
        ),
        OperatorKind::Elementwise => {
            format!("elements = {} and 1, NaN and infinity, unaligned pointers", off(s.elements, None))
        }
        OperatorKind::Reduction => {
            format!("elements = {} and 1, all equal, values that cancel", off(s.elements, None))
        }
        OperatorKind::Convolution => format!(
            "channels = {} (no multiple of the vector), a window larger than the padded edge, batch 1",
            off(s.channels, None)
        ),
        OperatorKind::Counts => {
            "the smallest and the largest problem that callers send, and one that no tile divides".to_owned()
        }
    }
}
