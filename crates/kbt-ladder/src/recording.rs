//! Recordings of real devices: the outcomes of runs that were measured, to be replayed where there is no GPU.
//!
//! A recording is a folder: `recording.yaml` (device, driver, date, commit), `profile.yaml` (kbt.device/1), and one
//! folder a pv mode or target with that run's step files and one trace. The recordings under
//! `fixtures/recordings/` are embedded. What is read from one is `recorded`, never `measured`.

mod import;

pub use import::import;

use crate::record::read_back;
use crate::{RunDir, RunError, StepRecord};
use kbt_device::{DeviceProfile, ProfileError};
use kbt_evidence::Step;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Every file of the embedded recordings: recording name, path within it, bytes.
static EMBEDDED: &[(&str, &str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/recordings.rs"));

/// `recording.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordingMeta {
    /// Always `kbt.recording/1`.
    pub schema: String,
    /// The recording's name: that of its folder.
    pub name: String,
    /// The day of the runs, ISO.
    pub date: String,
    /// The device's own name.
    pub device: String,
    /// Its driver.
    pub driver: String,
    /// The commit of kbt that measured.
    pub commit: String,
}

impl RecordingMeta {
    /// The schema that recordings state.
    pub const SCHEMA: &'static str = "kbt.recording/1";
}

/// A recording that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// There is none of that name.
    #[error("no recording `{name}`; known: {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A file is missing or does not read.
    #[error("{file}: {message}")]
    Damaged {
        /// The file.
        file: String,
        /// What is wrong with it and what was expected.
        message: String,
    },
    /// The profile.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The run that was to be imported.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// A recording, read whole.
#[derive(Debug, Clone)]
pub struct Recording {
    /// What it is of.
    pub meta: RecordingMeta,
    profile: DeviceProfile,
    origin: String,
    files: BTreeMap<String, Cow<'static, [u8]>>,
}

impl Recording {
    /// The names of the embedded recordings.
    #[must_use]
    pub fn embedded_names() -> Vec<&'static str> {
        let mut names: Vec<_> = EMBEDDED.iter().map(|(name, ..)| *name).collect();
        names.dedup();
        names
    }

    /// An embedded recording.
    pub fn embedded(name: &str) -> Result<Self, RecordingError> {
        let files: BTreeMap<_, _> = EMBEDDED
            .iter()
            .filter(|(n, ..)| *n == name)
            .map(|(_, path, bytes)| ((*path).to_owned(), Cow::Borrowed(*bytes)))
            .collect();
        if files.is_empty() {
            let known = Self::embedded_names().join(", ");
            return Err(RecordingError::Unknown { name: name.to_owned(), known });
        }
        Self::from_files(format!("recorded:{name}"), files)
    }

    /// The embedded recording with the newest date.
    pub fn newest() -> Result<Self, RecordingError> {
        let mut all =
            Self::embedded_names().into_iter().map(Self::embedded).collect::<Result<Vec<_>, _>>()?;
        all.sort_by(|a, b| (&a.meta.date, &a.meta.name).cmp(&(&b.meta.date, &b.meta.name)));
        all.pop().ok_or_else(|| RecordingError::Unknown { name: "(any)".into(), known: "none".into() })
    }

    /// A recording's folder.
    pub fn load(dir: &Path) -> Result<Self, RecordingError> {
        let mut files = BTreeMap::new();
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let at = dir.join(&folder);
            let damaged = |e: std::io::Error| RecordingError::Damaged {
                file: at.display().to_string(),
                message: e.to_string(),
            };
            for entry in std::fs::read_dir(&at).map_err(damaged)? {
                let entry = entry.map_err(damaged)?;
                let path = folder.join(entry.file_name());
                if entry.path().is_dir() {
                    folders.push(path);
                } else {
                    let bytes = std::fs::read(entry.path()).map_err(damaged)?;
                    files.insert(path.to_string_lossy().replace('\\', "/"), Cow::Owned(bytes));
                }
            }
        }
        Self::from_files(dir.display().to_string(), files)
    }

    fn from_files(
        origin: String,
        files: BTreeMap<String, Cow<'static, [u8]>>,
    ) -> Result<Self, RecordingError> {
        let damaged = |name: &str, message: String| RecordingError::Damaged {
            file: format!("{origin}/{name}"),
            message,
        };
        let text = |name: &str| {
            let bytes = files.get(name).ok_or_else(|| damaged(name, "missing; a recording has it".into()))?;
            std::str::from_utf8(bytes).map_err(|e| damaged(name, e.to_string()))
        };
        let meta: RecordingMeta = serde_yaml::from_str(text("recording.yaml")?)
            .map_err(|e| damaged("recording.yaml", e.to_string()))?;
        if meta.schema != RecordingMeta::SCHEMA {
            let message = format!("schema `{}` is not `{}`", meta.schema, RecordingMeta::SCHEMA);
            return Err(damaged("recording.yaml", message));
        }
        let profile =
            DeviceProfile::from_yaml(text(PROFILE_FILE)?, &format!("{origin}/{PROFILE_FILE}"))?.read_back();
        Ok(Self { meta, profile, origin, files })
    }

    /// The device's rates and ceilings, as recorded.
    #[must_use]
    pub const fn profile(&self) -> &DeviceProfile {
        &self.profile
    }

    /// The pv modes and targets that were run.
    #[must_use]
    pub fn keys(&self) -> Vec<&str> {
        let mut keys: Vec<_> =
            self.files.keys().filter_map(|f| f.split_once('/')).map(|(key, _)| key).collect();
        keys.dedup();
        keys
    }

    /// A step of the run of a pv mode or target, its measurements marked as recorded; `None` where that run did not
    /// reach the step.
    pub fn step(&self, key: &str, step: Step) -> Result<Option<StepRecord>, RecordingError> {
        let name = format!("{key}/{}-{step}.json", step.index());
        let Some(bytes) = self.files.get(&name) else { return Ok(None) };
        let damaged = |e: serde_json::Error| RecordingError::Damaged {
            file: format!("{}/{name}", self.origin),
            message: e.to_string(),
        };
        let mut value = serde_json::from_slice(bytes).map_err(damaged)?;
        read_back(&mut value);
        let record: StepRecord = serde_json::from_value(value).map_err(damaged)?;
        if record.schema != StepRecord::SCHEMA || record.step != step {
            return Err(RecordingError::Damaged {
                file: format!("{}/{name}", self.origin),
                message: format!(
                    "is `{}` of step {}; expected `{}` of {step}",
                    record.schema,
                    record.step,
                    StepRecord::SCHEMA
                ),
            });
        }
        Ok(Some(record))
    }

    /// Another file of a run: its trace, say.
    #[must_use]
    pub fn file(&self, key: &str, name: &str) -> Option<&[u8]> {
        self.files.get(&format!("{key}/{name}")).map(AsRef::as_ref)
    }
}

/// The name of a run's trace, in run directories and recordings.
pub const TRACE_FILE: &str = "trace.kbttrace";
/// The name of a run's fact sheet.
pub const FACTS_FILE: &str = "facts.yaml";

/// The target file of a run, as it was read.
pub const TARGET_FILE: &str = "target.json";

/// The name of a run's device profile.
pub const PROFILE_FILE: &str = "profile.yaml";

/// What a recording of a run would say of itself: the device, driver and day of its first live measurement.
pub fn describe(run: &Path, name: &str) -> Result<RecordingMeta, RecordingError> {
    let spec = RunDir::spec(run)?;
    let opened = RunDir::open(run)?;
    let mut found = None;
    for record in opened.finished().values() {
        let value = serde_json::to_value(&record.outcome).map_err(|e| RecordingError::Damaged {
            file: run.display().to_string(),
            message: e.to_string(),
        })?;
        found = found.or_else(|| measured_on(&value));
    }
    let Some((device, driver, date)) = found else {
        return Err(RecordingError::Damaged {
            file: run.display().to_string(),
            message: "no step of the run measured a device; only a live run is a recording".into(),
        });
    };
    let commit = spec.kbt.rsplit(' ').next().unwrap_or("unknown").to_owned();
    Ok(RecordingMeta {
        schema: RecordingMeta::SCHEMA.into(),
        name: name.to_owned(),
        date,
        device,
        driver,
        commit,
    })
}

/// Device, driver and date of the first provenance that is measured and names all three.
fn measured_on(value: &serde_json::Value) -> Option<(String, String, String)> {
    match value {
        serde_json::Value::Object(map) => {
            let text = |key: &str| map.get(key)?.as_str().map(str::to_owned);
            if text("kind").as_deref() == Some("measured")
                && let (Some(device), Some(driver), Some(date)) =
                    (text("device"), text("driver"), text("date"))
            {
                return Some((device, driver, date));
            }
            map.values().find_map(measured_on)
        }
        serde_json::Value::Array(items) => items.iter().find_map(measured_on),
        _ => None,
    }
}

/// The name of a target's folder in a recording: that of its file.
#[must_use]
pub fn key_of_target(file: &str) -> String {
    Path::new(file).file_stem().map_or_else(|| file.to_owned(), |s| s.to_string_lossy().into_owned())
}
