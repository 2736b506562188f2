//! The run directory's own files as this crate reads them: `run.json`, step files, `summary.json`. Only the fields that
//! a report needs; the files' writer has the whole of them.

use kbt_evidence::{FixClass, Known, Provenance, Standing, Step, Verdict};
use serde::Deserialize;
use serde_json::Value;

/// What a run was asked to do (`kbt.run/1`).
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Spec {
    pub(crate) schema: String,
    #[serde(default)]
    pub(crate) pv_mode: Option<String>,
    #[serde(default)]
    pub(crate) target: Option<String>,
    pub(crate) device: String,
    pub(crate) quick: bool,
}

impl Spec {
    /// What was tuned, in a few words.
    pub(crate) fn subject(&self) -> String {
        match (&self.target, &self.pv_mode) {
            (Some(target), Some(mode)) => format!("{target} ({mode})"),
            (Some(target), None) => target.clone(),
            (None, Some(mode)) => format!("attention, P·V in {mode}"),
            (None, None) => "a kernel".into(),
        }
    }
}

/// Where a step's numbers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    Live,
    Recorded,
    Refused,
}

/// How long a step took.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Timing {
    pub(crate) wall_s: f64,
    pub(crate) provenance: Provenance,
}

/// A step file (`kbt.step/1`).
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct StepFile {
    pub(crate) schema: String,
    pub(crate) step: Step,
    pub(crate) origin: Origin,
    pub(crate) headline: String,
    pub(crate) verdicts: Vec<Verdict>,
    #[serde(default)]
    pub(crate) outcome: Option<Value>,
    #[serde(default)]
    pub(crate) needs: Option<String>,
    pub(crate) timing: Timing,
}

/// A class of fix in `summary.json`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ClassLine {
    pub(crate) class: FixClass,
    pub(crate) standing: Standing,
    pub(crate) step: Step,
    pub(crate) reason: String,
    #[serde(default)]
    pub(crate) known: Option<Known>,
}

/// A recommendation in `summary.json`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Recommendation {
    pub(crate) verdict: Verdict,
}

/// A verdict against an earlier one.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Conflict {
    pub(crate) class: FixClass,
    pub(crate) ruled_out_by: Step,
    pub(crate) reason: String,
    pub(crate) contradicted_by: Step,
    pub(crate) claim: String,
}

/// `summary.json` (`kbt.summary/1`), without what the step files say themselves.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Summary {
    pub(crate) schema: String,
    pub(crate) classes: Vec<ClassLine>,
    pub(crate) recommendations: Vec<Recommendation>,
    pub(crate) struck: Vec<Conflict>,
    pub(crate) sent_back: Vec<Conflict>,
}
