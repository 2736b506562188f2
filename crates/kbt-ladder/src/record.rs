//! What one step left behind: the file `steps/N-NAME.json` of a run directory.

use kbt_evidence::{Provenance, Step, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Where a step's numbers came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The step ran now, on a GPU or on what needs none.
    Live,
    /// The step's outcome was read back from a recording.
    Recorded,
    /// The step could not tell for want of evidence.
    Refused,
}

/// One step of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepRecord {
    /// Always `kbt.step/1`.
    pub schema: String,
    /// The step.
    pub step: Step,
    /// Where its numbers came from.
    pub origin: Origin,
    /// One line for the terminal.
    pub headline: String,
    /// Its verdicts, as the step gave them.
    pub verdicts: Vec<Verdict>,
    /// The step crate's own outcome, with its own schema; absent if refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Value>,
    /// If refused: the measurement or setting that would give the evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
    /// How long the step took, and how that is known.
    pub timing: Timing,
}

/// The wall time of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Seconds on the wall.
    pub wall_s: f64,
    /// Always measured, by this process.
    pub provenance: Provenance,
}

impl StepRecord {
    /// The schema that step files state.
    pub const SCHEMA: &'static str = "kbt.step/1";
}

/// Turns every `measured` provenance within a value into `recorded`: what a replay must do to a recording.
pub(crate) fn read_back(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::Object(provenance)) = map.get_mut("provenance")
                && provenance.get("kind").and_then(Value::as_str) == Some("measured")
            {
                provenance.insert("kind".into(), "recorded".into());
            }
            map.values_mut().for_each(read_back);
        }
        Value::Array(items) => items.iter_mut().for_each(read_back),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::read_back;
    use serde_json::json;

    #[test]
    fn only_measurements_become_recordings() {
        let mut value = json!({"a": [{"x": 1, "provenance": {"kind": "measured", "by": "c"}}],
                               "provenance": {"kind": "mined", "by": "ptxas"}});
        read_back(&mut value);
        assert_eq!(value["a"][0]["provenance"]["kind"], "recorded");
        assert_eq!(value["provenance"]["kind"], "mined");
    }
}
