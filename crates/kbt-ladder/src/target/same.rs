//! Whether a recorded run was of this target file: a recording answers by the file's name, and two files may share one.

use super::TargetTuner;
use crate::recording::{FACTS_FILE, Recording, TARGET_FILE};
use crate::{Backend, StepFailure};
use kbt_evidence::Step;
use kbt_roofline::FactSheet;
use serde_json::Value;

/// The parts of a target file that every run depends on.
const ALWAYS: &[&str] = &["build", "run"];

/// The parts that the outcome of a step depends on beside those.
const RESTS_ON: &[(Step, &[&str])] = &[
    (Step::Triage, &["facts", "outputs", "time"]),
    (Step::Trace, &["trace"]),
    (Step::Handoff, &["facts", "knobs", "constraints", "handoff", "time", "outputs", "reference", "inputs"]),
    (Step::Validate, &["facts", "knobs", "outputs", "reference", "inputs"]),
];

impl TargetTuner<'_> {
    /// What a reader of a replayed step must know of the file that it was recorded with.
    ///
    /// # Errors
    /// Where that file differs from this one in what the step depends on.
    pub(super) fn recorded_with(&self, step: Step) -> Result<Option<String>, StepFailure> {
        let Backend::Recorded(recording) = self.backend else { return Ok(None) };
        let key = self.key();
        let name = &recording.meta.name;
        let refused = |parts: &[&str]| StepFailure::Refused {
            reason: format!(
                "recording {name} has a {step} of another target file named {key}: its {} differ from this one's",
                parts.join(", ")
            ),
            needs: self.there(),
        };
        let Some(bytes) = recording.file(&key, TARGET_FILE) else {
            return match self.facts_differ(recording, &key) {
                Some(part) => Err(refused(&[part])),
                None => Ok(Some("recorded with an unknown target file".to_owned())),
            };
        };
        let fatal =
            |e: serde_json::Error| crate::steps::fatal(format!("recording {name}, {key}/{TARGET_FILE}: {e}"));
        let was: Value = serde_json::from_slice(bytes).map_err(fatal)?;
        let now = serde_json::to_value(&self.target).map_err(fatal)?;
        let differ: Vec<&str> = RESTS_ON
            .iter()
            .filter(|(s, _)| *s == step)
            .flat_map(|(_, parts)| parts.iter().chain(ALWAYS))
            .filter(|part| was.get(**part) != now.get(**part))
            .copied()
            .collect();
        if differ.is_empty() { Ok(None) } else { Err(refused(&differ)) }
    }

    /// The part in which the facts that a recording without a target file kept differ from this file's.
    fn facts_differ(&self, recording: &Recording, key: &str) -> Option<&'static str> {
        let text = String::from_utf8_lossy(recording.file(key, FACTS_FILE)?).into_owned();
        let was = FactSheet::from_yaml(&text, FACTS_FILE).ok()?;
        let now = self.facts().ok()?;
        let kind = |s: &FactSheet| s.operator.as_ref().and_then(|o| o.kind);
        let shape = |s: &FactSheet| {
            s.shape.clone().map(|mut shape| {
                shape.provenance = None;
                shape
            })
        };
        if kind(&was) != kind(&now) {
            Some("facts.operator")
        } else if shape(&was) != shape(&now) {
            Some("facts.shapes")
        } else {
            None
        }
    }
}
