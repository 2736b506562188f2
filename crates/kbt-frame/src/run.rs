//! A run directory as JSON values: what was asked, the steps that are finished, the profile. No tables here.
//!
//! A step's file counts only if the journal holds its digest, as for everyone who reads a run.

use crate::FrameError;
use kbt_evidence::Step;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The schema of each step's outcome, in the order of the ladder.
const OUTCOMES: [&str; 7] = [
    "kbt.roofline/1",
    "kbt.microbench/1",
    "kbt.trace/1",
    "kbt.sass/1",
    "kbt.quant/1",
    "kbt.split/1",
    "kbt.validate/1",
];

/// What a run was asked, as `run.json` states it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSpec {
    /// The pv mode of the built-in kernel; absent for a target of the user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pv_mode: Option<String>,
    /// The target file; absent for the built-in kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The device as it was resolved.
    pub device: String,
    /// Fewer repetitions and points.
    pub quick: bool,
    /// The kbt that started it: version and commit.
    pub kbt: String,
}

/// A finished step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepFile {
    /// Its file.
    pub path: PathBuf,
    /// What is in it.
    pub value: Value,
}

/// A run directory that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Where it is.
    pub dir: PathBuf,
    /// What was asked.
    pub spec: RunSpec,
    /// The steps that are finished; those that were refused have no outcome.
    pub steps: BTreeMap<Step, StepFile>,
    /// The device profile, where the run measured one.
    pub profile: Option<Value>,
}

impl Run {
    /// Reads a run directory.
    ///
    /// # Errors
    /// Where `dir` is no run, and where a file of it is damaged: the file and the field are named.
    pub fn read(dir: &Path) -> Result<Self, FrameError> {
        let file = dir.join("run.json");
        let Some(bytes) = read_if_there(&file)? else { return Err(FrameError::NotARun(dir.to_owned())) };
        let value = parse(&file, &bytes)?;
        check_schema(&file, "schema", &value, "kbt.run/1")?;
        let spec =
            serde_json::from_value(value).map_err(|e| FrameError::damaged(&file, ".", e.to_string()))?;
        let mut run = Self { dir: dir.to_owned(), spec, steps: BTreeMap::new(), profile: profile(dir)? };
        for (step, digest) in finished(&dir.join("journal.jsonl"))? {
            let path = run.step_path(step);
            let bytes = fs::read(&path).map_err(FrameError::io(&path))?;
            if blake3::hash(&bytes).to_string() != digest {
                let message = "the file is not the one that journal.jsonl finished; `kbt tune --force` makes the run again";
                return Err(FrameError::damaged(&path, ".", message));
            }
            let value = parse(&path, &bytes)?;
            check_schema(&path, "schema", &value, "kbt.step/1")?;
            if let Some(outcome) = value.get("outcome") {
                check_schema(&path, "outcome.schema", outcome, OUTCOMES[step.index()])?;
            }
            run.steps.insert(step, StepFile { path, value });
        }
        run.add_spreads();
        Ok(run)
    }

    /// The outcome of the rates leaves their spread to the profile that it was made from: here they come together.
    fn add_spreads(&mut self) {
        let profile = self.profile.as_ref().and_then(|p| p["rates"].as_array());
        let rates = self
            .steps
            .get_mut(&Step::Rates)
            .and_then(|f| f.value.pointer_mut("/outcome/rates")?.as_array_mut());
        let (Some(profile), Some(rates)) = (profile, rates) else { return };
        for rate in rates.iter_mut().filter_map(Value::as_object_mut) {
            let same = |row: &&Value| {
                ["instruction", "lanes_per_clk_sm"].iter().all(|field| row.get(field) == rate.get(*field))
            };
            let spread = profile.iter().find(same).and_then(|row| row.get("spread_percent"));
            if let Some(spread) = spread {
                rate.entry("spread_percent").or_insert_with(|| spread.clone());
            }
        }
    }

    /// Where a step's file is, finished or not.
    #[must_use]
    pub fn step_path(&self, step: Step) -> PathBuf {
        self.dir.join("steps").join(format!("{}-{step}.json", step.index()))
    }
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, FrameError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(FrameError::io(path)(e)),
    }
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Value, FrameError> {
    serde_json::from_slice(bytes).map_err(|e| FrameError::damaged(path, ".", e.to_string()))
}

fn check_schema(path: &Path, field: &str, value: &Value, expected: &str) -> Result<(), FrameError> {
    match value.get("schema").and_then(Value::as_str) {
        Some(found) if found == expected => Ok(()),
        Some(found) => Err(FrameError::damaged(path, field, format!("`{found}`; expected `{expected}`"))),
        None => Err(FrameError::damaged(path, field, format!("missing; expected `{expected}`"))),
    }
}

/// The profile as a value, so that a field that is new to this crate is no error.
fn profile(dir: &Path) -> Result<Option<Value>, FrameError> {
    let path = dir.join("profile.yaml");
    let Some(bytes) = read_if_there(&path)? else { return Ok(None) };
    let value: Value =
        serde_yaml::from_slice(&bytes).map_err(|e| FrameError::damaged(&path, ".", e.to_string()))?;
    check_schema(&path, "schema", &value, "kbt.device/1")?;
    Ok(Some(value))
}

/// The steps that the journal finished, with the digests of their files. A torn end is what a kill leaves.
fn finished(path: &Path) -> Result<BTreeMap<Step, String>, FrameError> {
    let mut steps = BTreeMap::new();
    let bytes = read_if_there(path)?.unwrap_or_default();
    // A line without its end is one that was being written.
    let lines: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').filter(|l| l.ends_with(b"\n")).collect();
    for (number, line) in lines.iter().enumerate() {
        let damaged = |message: String| FrameError::damaged(path, format!("line {}", number + 1), message);
        let event: Value = match serde_json::from_slice(line) {
            Ok(event) => event,
            Err(_) if number + 1 == lines.len() => break,
            Err(e) => return Err(damaged(e.to_string())),
        };
        let step = |value: &Value| {
            Step::deserialize(value).map_err(|_| damaged(format!("`{value}` is no step of the ladder")))
        };
        match event["event"].as_str() {
            Some("step_finished") => {
                let digest =
                    event["digest"].as_str().ok_or_else(|| damaged("`digest` is no text".to_owned()))?;
                steps.insert(step(&event["step"])?, digest.to_owned());
            }
            Some("sent_back") => {
                let to = step(&event["conflict"]["ruled_out_by"])?;
                steps.retain(|finished, _| *finished < to);
            }
            _ => {}
        }
    }
    Ok(steps)
}
