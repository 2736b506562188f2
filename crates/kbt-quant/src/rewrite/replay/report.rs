//! What a comparison of two programs found.

use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the comparison found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// Rows of inputs that both programs ran on.
    pub rows_count: usize,
    /// Rows placed at the boundaries between codes.
    pub tie_rows_count: usize,
    /// Codes compared.
    pub codes_count: usize,
    /// Codes that differ.
    pub differing_count: usize,
    /// Those that lie within the error bounds of a boundary.
    pub explained_count: usize,
    /// Outputs that are not codes, compared within the error bounds.
    pub values_count: usize,
    /// Codes and values that no error bound explains.
    #[serde(default)]
    pub wrong_count: usize,
    /// The first of them, with the inputs' row.
    pub wrong: Vec<String>,
    /// Rows by kind of input. A kind that is missing has no inputs on which the assumptions hold.
    #[serde(default)]
    pub kinds: BTreeMap<String, usize>,
    /// Conversions at whose boundaries nothing was compared, for want of steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// What the error of each output that is no code is bounded by, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, ErrorBound>,
    /// How the counts are known.
    pub provenance: Provenance,
}

/// A bound on an output's error against real arithmetic, over its greatest magnitude in the row: the greatest over the
/// rows of usual size, exact conversions and the stated errors of approximate instructions taken in. Of an output that
/// takes what a conversion gives, also over the rows at its boundaries, where an operand's error may be a step's.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ErrorBound {
    /// Of the program given.
    pub baseline_ratio: f64,
    /// Of the candidate.
    pub candidate_ratio: f64,
    /// Of the program given, over the rows of inputs up to thousands on which the guards hold.
    #[serde(default)]
    pub baseline_huge_ratio: f64,
    /// Of the candidate, over the same rows.
    #[serde(default)]
    pub candidate_huge_ratio: f64,
}

impl Replay {
    /// The error bounds for people, empty where every output is a code.
    #[must_use]
    pub fn errors_text(&self) -> String {
        // A bound that the value itself is within bounds nothing.
        let bound = |x: f64| if x < 1.0 { format!("{x:.1e}") } else { "no useful bound".to_owned() };
        let one = |(name, e): (&String, &ErrorBound)| {
            format!(
                "{name} {}, before {} (inputs in thousands: {}, before {})",
                bound(e.candidate_ratio),
                bound(e.baseline_ratio),
                bound(e.candidate_huge_ratio),
                bound(e.baseline_huge_ratio)
            )
        };
        self.errors.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    pub(super) fn new() -> Self {
        Self {
            rows_count: 0,
            tie_rows_count: 0,
            codes_count: 0,
            differing_count: 0,
            explained_count: 0,
            values_count: 0,
            wrong_count: 0,
            wrong: Vec::new(),
            kinds: BTreeMap::new(),
            left_out: Vec::new(),
            errors: BTreeMap::new(),
            provenance: Provenance::modelled(
                "f32 evaluation of both programs; exp2, log2 and rcp correctly rounded, where a GPU's are approximate \
                 within the error bounds used",
            ),
        }
    }

    /// Whether every difference is explained.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.wrong_count == 0 && self.wrong.is_empty()
    }
}
