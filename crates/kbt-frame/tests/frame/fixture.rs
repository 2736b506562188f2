//! A synthetic run directory: one outcome file a step, in the shapes that the step crates write (`shape` holds them
//! against the types). A test changes what it is about by JSON pointer.

use kbt_evidence::Step;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const PROFILE: &str = r"
schema: kbt.device/1
name: live
arch: sm_90a
device: Test GPU
provenance: &p {kind: measured, by: kbt microbench run, device: Test GPU, date: 2026-11-30}
rates:
  - {instruction: ex2.approx.ftz.f32, opcode: MUFU.EX2, pipe: xu, lanes_per_clk_sm: 16.0, results_per_clk_sm: 16.0,
     latency_clk: 18.0, spread_percent: 0.5, provenance: *p}
  - {instruction: lop3.b32, pipe: alu, refused: the loop was not what was asked for, provenance: *p}
mixes:
  - {parts: [[ex2.approx.ftz.f32, 1], [fma.rn.f32, 4]], lanes_per_clk_sm: 79.0, separate_lanes_per_clk_sm: 80.0,
     shared_lanes_per_clk_sm: 53.3, provenance: *p}
  - {parts: [[ex2.approx.ftz.f32, 1], [max.f32, 1]], refused: no rate of max.f32, provenance: *p}
ceilings:
  - {kind: hbm_read, bytes_per_s: 4.3e+12, spread_percent: 0.4, provenance: *p}
  - {kind: tensor_bf16, flop_per_s: 8.0e+14, provenance: *p}
  - {kind: launch_latency, seconds: 2.0e-6, provenance: *p}
";

/// The outcome of a step, as it lies beside this file.
pub(crate) fn outcome(step: Step) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/frame/outcomes/{step}.json"));
    serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap()
}

pub(crate) fn profile() -> &'static str {
    PROFILE
}

/// A run that is written to a folder of its own.
pub(crate) struct Fixture {
    pub(crate) run: Value,
    pub(crate) steps: BTreeMap<Step, Value>,
    pub(crate) profile: Option<String>,
}

/// A written run; the folder goes with it.
pub(crate) struct Written {
    dir: TempDir,
}

impl Written {
    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn step(&self, step: Step) -> PathBuf {
        self.path().join(format!("steps/{}-{step}.json", step.index()))
    }
}

impl Fixture {
    /// A finished run with everything in it.
    pub(crate) fn new() -> Self {
        let steps = Step::ALL.iter().map(|step| (*step, record(*step, Some(outcome(*step))))).collect();
        let run = json!({"schema": "kbt.run/1", "pv_mode": "fp8", "device": "Test GPU", "quick": false,
                         "kbt": "0.1.0 0123abc"});
        Self { run, steps, profile: Some(PROFILE.to_owned()) }
    }

    /// Changes a field of a step's outcome, which must be there.
    pub(crate) fn set(mut self, step: Step, pointer: &str, value: Value) -> Self {
        let file = self.steps.get_mut(&step).unwrap();
        *file["outcome"].pointer_mut(pointer).unwrap_or_else(|| panic!("{step} has no {pointer}")) = value;
        self
    }

    /// Takes a field out of a step's outcome.
    pub(crate) fn remove(mut self, step: Step, parent: &str, field: &str) -> Self {
        let file = self.steps.get_mut(&step).unwrap();
        let parent = file["outcome"].pointer_mut(parent).unwrap().as_object_mut().unwrap();
        parent.remove(field).unwrap_or_else(|| panic!("{step} has no {field}"));
        self
    }

    /// Refuses a step.
    pub(crate) fn refuse(mut self, step: Step) -> Self {
        self.steps.insert(step, record(step, None));
        self
    }

    /// Writes the run, with a journal that holds every step's digest.
    pub(crate) fn write(&self) -> Written {
        let written = Written { dir: tempfile::tempdir().unwrap() };
        let dir = written.path();
        fs::create_dir(dir.join("steps")).unwrap();
        fs::write(dir.join("run.json"), self.run.to_string()).unwrap();
        if let Some(profile) = &self.profile {
            fs::write(dir.join("profile.yaml"), profile).unwrap();
        }
        let mut journal = vec![json!({"event": "started", "at": "2026-11-30T13:05:09Z"}).to_string()];
        for (step, value) in &self.steps {
            let text = serde_json::to_string_pretty(value).unwrap();
            let digest = blake3::hash(text.as_bytes()).to_string();
            journal.push(json!({"event": "step_finished", "step": step, "digest": digest}).to_string());
            fs::write(written.step(*step), text).unwrap();
        }
        fs::write(dir.join("journal.jsonl"), journal.join("\n") + "\n").unwrap();
        written
    }
}

/// A step file; without an outcome it is a refusal.
fn record(step: Step, outcome: Option<Value>) -> Value {
    let measured = json!({"kind": "measured", "by": "kbt tune", "device": "Test GPU", "date": "2026-11-30"});
    let figure = json!({"name": "time", "us": 900.0, "low_us": 895.0, "high_us": 905.0, "spread": "p10 to p90",
                        "provenance": measured});
    let (origin, headline) =
        if outcome.is_some() { ("live", "found") } else { ("refused", "refused: no GPU") };
    let mut record = json!({
        "schema": "kbt.step/1", "step": step, "origin": origin, "headline": headline,
        "verdicts": [{
            "class": "reorder", "standing": "ruled_out", "step": step, "reason": "it is near its bound",
            "evidence": [{"direction": "for", "statement": "it takes that long", "figures": [figure]}],
            "next": "nothing",
        }],
        "timing": {"wall_s": 1.5, "provenance": measured},
    });
    match outcome {
        Some(outcome) => record["outcome"] = outcome,
        None => record["needs"] = json!("a GPU"),
    }
    record
}
