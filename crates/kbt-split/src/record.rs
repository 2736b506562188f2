//! What the journal says of a finished point. Everything a table or a resumed sweep needs, and nothing that is
//! computed from it.

use kbt_target::{Comparison, Report, Sample, Setting, Status};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Whether a point's outputs are right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CheckOutcome {
    /// The same bits as the reference.
    Bitwise,
    /// Not the same bits, but as accurate as its class of change asks.
    Accurate {
        /// How accurate, and by which rule.
        statement: String,
    },
    /// Wrong: it gets no time.
    Wrong {
        /// What differs.
        statement: String,
    },
    /// Nobody looked.
    Unchecked {
        /// Why not.
        why: String,
    },
}

impl CheckOutcome {
    /// Whether the point may be timed.
    #[must_use]
    pub const fn may_be_timed(&self) -> bool {
        !matches!(self, Self::Wrong { .. })
    }
}

/// Says whether a point's outputs are right. kbt-validate's comparison is passed in through this.
pub trait Correctness: Sync {
    /// Checks the outputs of `setting` against those of the baseline. Both are files as the target wrote them to
    /// `KBT_OUT`; for the baseline itself they are the same file.
    ///
    /// # Errors
    /// Where the files cannot be compared; the point then has no time either.
    fn check(&self, reference: &Path, outputs: &Path, setting: &Setting) -> Result<CheckOutcome, String>;
}

/// The strictest check, which needs no reader: the two files are the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SameBytes;

impl Correctness for SameBytes {
    fn check(&self, reference: &Path, outputs: &Path, _setting: &Setting) -> Result<CheckOutcome, String> {
        let read = |path: &Path| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
        let (a, b) = (read(reference)?, read(outputs)?);
        if a == b {
            return Ok(CheckOutcome::Bitwise);
        }
        let place = a.iter().zip(&b).position(|(x, y)| x != y).unwrap_or(a.len().min(b.len()));
        let statement =
            format!("the output files differ, first at byte {place} ({} and {} bytes)", a.len(), b.len());
        Ok(CheckOutcome::Wrong { statement })
    }
}

/// During which of a point's two stages something failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The run whose outputs are checked.
    Check,
    /// The timed runs.
    Timing,
}

/// How a point ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Ending {
    /// Right, and timed.
    Timed,
    /// Its outputs are wrong, so it has no time.
    Wrong {
        /// What differs.
        statement: String,
    },
    /// A process of it failed.
    Failed {
        /// In which stage.
        stage: Stage,
        /// How the process ended.
        status: Status,
        /// The end of its standard error.
        stderr: String,
    },
    /// It could not be checked or timed through no fault of its own.
    Unmeasured {
        /// Why.
        reason: String,
    },
}

/// A point that came to an end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its index in the spec.
    pub index: usize,
    /// Its knobs, so that the journal can be read alone.
    pub setting: Setting,
    /// How it ended.
    pub ending: Ending,
    /// Whether its outputs are right; absent where it did not come so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckOutcome>,
    /// The index of the setting that it was timed against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<usize>,
    /// It timed against that setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// Samples outside a comparison: the baseline's own, or the one of a point that was only screened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
    /// Its time over the baseline's around it, where it was only screened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screened_ratio: Option<f64>,
    /// What its first process printed about the device; its times are dropped.
    pub report: Report,
    /// The environment of that process.
    pub environment: BTreeMap<String, String>,
    /// The GPU that the worker held, where one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// Wall-clock seconds of all its processes and rests.
    pub elapsed_s: f64,
    /// The ISO date.
    pub date: String,
}

impl Record {
    /// Whether this end is final. What could not be measured, as the baseline beside it failed or its task was lost, runs
    /// again when the sweep goes on; and so does a baseline that has no time, without which there is no sweep.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        match self.ending {
            Ending::Timed => true,
            Ending::Wrong { .. } | Ending::Failed { .. } => self.index != 0,
            Ending::Unmeasured { .. } => false,
        }
    }

    /// A point that has no result, and why.
    #[must_use]
    pub fn unmeasured(index: usize, setting: Setting, reason: String) -> Self {
        Self {
            index,
            setting,
            ending: Ending::Unmeasured { reason },
            check: None,
            against: None,
            comparison: None,
            samples: Vec::new(),
            screened_ratio: None,
            report: Report::default(),
            environment: BTreeMap::new(),
            gpu: None,
            elapsed_s: 0.0,
            date: kbt_target::today(),
        }
    }

    /// Its samples of time: its side of the comparison, or the baseline's own.
    #[must_use]
    pub fn times_us(&self) -> Vec<f64> {
        let compared = self.comparison.iter().flat_map(|c| &c.b);
        compared.chain(&self.samples).map(|s| s.time_us).collect()
    }
}

/// The best setting timed against the baseline once more, with fresh samples: the choice among many is biased
/// towards lucky ones, and this is not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Confirmation {
    /// The index of the setting.
    pub index: usize,
    /// It timed against the baseline; absent where a process failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
    /// What failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Wall-clock seconds of its processes and rests.
    #[serde(default)]
    pub elapsed_s: f64,
}
