//! The run directory: what a run was asked, its step files, its journal; created, resumed, never overwritten.

use crate::{Event, Journal, StepRecord};
use kbt_evidence::Step;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What a run was asked to do: two runs with the same spec may be resumed into each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// Always `kbt.run/1`.
    pub schema: String,
    /// The pv mode of the built-in kernel; absent for a target of the user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pv_mode: Option<String>,
    /// The target file; absent for the built-in kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The device as it was resolved, so that a resumed run cannot change it silently.
    pub device: String,
    /// Fewer repetitions and points.
    pub quick: bool,
    /// The kbt that started it: version and commit. A resumed run may be another.
    pub kbt: String,
}

/// Why a run directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// It exists and neither `--resume` nor `--force` was given.
    #[error("{0} exists; give --resume to continue it, --force to overwrite it, or another --out")]
    Exists(PathBuf),
    /// `--force` on a folder that no run wrote.
    #[error("{0} is not a run directory (it has no run.json); --force only replaces runs")]
    NotARun(PathBuf),
    /// `--resume` with nothing to resume.
    #[error("no unfinished run to resume under {0}")]
    NothingToResume(PathBuf),
    /// `--resume` of a run that was asked something else.
    #[error("{path}: the run was started with {field} `{was}`, not `{now}`")]
    SpecDiffers {
        /// The run.
        path: PathBuf,
        /// The setting that differs.
        field: &'static str,
        /// Its value then.
        was: String,
        /// Its value now.
        now: String,
    },
    /// A file of the run that does not read.
    #[error("{path}: {message}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// The file system said no.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

/// An open run directory.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    journal: Journal,
    finished: BTreeMap<Step, StepRecord>,
    sent_back: Vec<crate::Conflict>,
}

impl RunDir {
    /// Starts a new run in `path`; with `force`, replaces a run that is there.
    pub fn create(path: &Path, spec: &RunSpec, force: bool) -> Result<Self, RunError> {
        if path.exists() && fs::read_dir(path).map_err(io_at(path))?.next().is_some() {
            if !force {
                return Err(RunError::Exists(path.to_owned()));
            }
            // A start that was killed has written the first file of a run, whole or not.
            if !["run.json", "run.json.partial"].iter().any(|name| path.join(name).exists()) {
                return Err(RunError::NotARun(path.to_owned()));
            }
            fs::remove_dir_all(path).map_err(io_at(path))?;
        }
        fs::create_dir_all(path).map_err(io_at(path))?;
        write_json(&path.join("run.json"), spec)?;
        let mut run = Self::open(path)?;
        run.append(&Event::Started { at: now_iso() })?;
        Ok(run)
    }

    /// Continues the run in `path`, which must have been asked the same.
    pub fn resume(path: &Path, spec: &RunSpec) -> Result<Self, RunError> {
        let file = path.join("run.json");
        if !file.exists() {
            return Err(RunError::NothingToResume(path.to_owned()));
        }
        let was: RunSpec = read_json(&file)?;
        let differs = |field, was: String, now: String| {
            Err(RunError::SpecDiffers { path: path.to_owned(), field, was, now })
        };
        let text = |o: &Option<String>| o.clone().unwrap_or_else(|| "none".into());
        if was.pv_mode != spec.pv_mode {
            return differs("--pv-mode", text(&was.pv_mode), text(&spec.pv_mode));
        }
        if was.target != spec.target {
            return differs("--target", text(&was.target), text(&spec.target));
        }
        if was.device != spec.device {
            return differs("--device", was.device, spec.device.clone());
        }
        if was.quick != spec.quick {
            return differs("--quick", was.quick.to_string(), spec.quick.to_string());
        }
        Self::open(path)
    }

    /// The newest run under `parent` that has not finished.
    pub fn newest_unfinished(parent: &Path) -> Result<PathBuf, RunError> {
        let nothing = || RunError::NothingToResume(parent.to_owned());
        let entries = match fs::read_dir(parent) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(nothing()),
            Err(e) => return Err(io_at(parent)(e)),
        };
        let mut runs: Vec<PathBuf> = entries
            .filter_map(Result::ok)
            .map(|e| e.path())
            .filter(|p| p.join("run.json").exists() && !is_finished(p))
            .collect();
        // Names begin with the time they were started at.
        runs.sort();
        runs.pop().ok_or_else(nothing)
    }

    /// What a run was asked.
    pub fn spec(path: &Path) -> Result<RunSpec, RunError> {
        read_json(&path.join("run.json"))
    }

    /// Opens a run directory for reading or continuing: only steps whose file matches the journal count.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let steps = path.join("steps");
        fs::create_dir_all(&steps).map_err(io_at(&steps))?;
        let journal_path = path.join("journal.jsonl");
        let (journal, events) = Journal::open(&journal_path).map_err(|source| match source.kind() {
            io::ErrorKind::InvalidData => {
                RunError::Damaged { path: journal_path.clone(), message: source.to_string() }
            }
            _ => RunError::Io { path: journal_path.clone(), source },
        })?;
        let mut digests = BTreeMap::new();
        let mut sent_back = Vec::new();
        for event in events {
            match event {
                Event::StepFinished { step, digest } => {
                    digests.insert(step, digest);
                }
                Event::SentBack { conflict } => {
                    digests.retain(|step, _| *step < conflict.ruled_out_by);
                    sent_back.push(conflict);
                }
                Event::Started { .. } | Event::Finished { .. } => {}
            }
        }
        let mut run = Self { path: path.to_owned(), journal, finished: BTreeMap::new(), sent_back };
        for (step, digest) in digests {
            let file = run.step_file(step);
            let bytes = fs::read(&file).map_err(|e| RunError::Damaged {
                path: file.clone(),
                message: format!("{e}; the journal finished it: delete the run or use --force"),
            })?;
            if blake3::hash(&bytes).to_string() != digest {
                return Err(RunError::Damaged {
                    path: file,
                    message:
                        "the file is not the one that the journal finished; delete the run or use --force"
                            .into(),
                });
            }
            run.finished.insert(step, parse_json(&file, &bytes)?);
        }
        Ok(run)
    }

    /// Where the run is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The steps that are complete.
    #[must_use]
    pub fn finished(&self) -> &BTreeMap<Step, StepRecord> {
        &self.finished
    }

    /// The conflicts that sent the ladder back so far.
    #[must_use]
    pub fn sent_back(&self) -> &[crate::Conflict] {
        &self.sent_back
    }

    /// Keeps a finished step: the file first, then the journal's word for it.
    pub fn keep(&mut self, record: StepRecord) -> Result<(), RunError> {
        let file = self.step_file(record.step);
        let bytes = write_json(&file, &record)?;
        let digest = blake3::hash(&bytes).to_string();
        self.append(&Event::StepFinished { step: record.step, digest })?;
        self.finished.insert(record.step, record);
        Ok(())
    }

    /// Notes that the ladder goes back, and forgets the steps that will be run again.
    pub fn send_back(&mut self, conflict: &crate::Conflict) -> Result<(), RunError> {
        self.append(&Event::SentBack { conflict: conflict.clone() })?;
        self.finished.retain(|step, _| *step < conflict.ruled_out_by);
        self.sent_back.push(conflict.clone());
        Ok(())
    }

    /// Marks the run finished.
    pub fn finish(&mut self) -> Result<(), RunError> {
        self.append(&Event::Finished { at: now_iso() })
    }

    /// Writes another file of the run, whole or not at all.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, RunError> {
        let path = self.path.join(name);
        write_atomic(&path, bytes)?;
        Ok(path)
    }

    fn append(&mut self, event: &Event) -> Result<(), RunError> {
        self.journal.append(event).map_err(io_at(self.journal.path()))
    }

    fn step_file(&self, step: Step) -> PathBuf {
        self.path.join("steps").join(format!("{}-{step}.json", step.index()))
    }
}

fn is_finished(run: &Path) -> bool {
    let Ok(text) = fs::read_to_string(run.join("journal.jsonl")) else { return false };
    text.lines().any(|l| matches!(serde_json::from_str(l), Ok(Event::Finished { .. })))
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> RunError + '_ {
    move |source| RunError::Io { path: path.to_owned(), source }
}

/// Writes beside the target and renames, so that a reader sees the old file or the new one.
pub(crate) fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let write = || {
        let mut file = fs::File::create(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&partial, path)
    };
    write().map_err(io_at(path))
}

pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<Vec<u8>, RunError> {
    let mut bytes = serde_json::to_vec_pretty(value)
        .map_err(|e| RunError::Damaged { path: path.to_owned(), message: e.to_string() })?;
    bytes.push(b'\n');
    write_atomic(path, &bytes)?;
    Ok(bytes)
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, RunError> {
    parse_json(path, &fs::read(path).map_err(io_at(path))?)
}

fn parse_json<T: serde::de::DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<T, RunError> {
    serde_json::from_slice(bytes)
        .map_err(|e| RunError::Damaged { path: path.to_owned(), message: e.to_string() })
}

/// The time now, UTC, as `2026-11-30T13:05:09Z`.
pub(crate) fn now_iso() -> String {
    let seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs());
    iso(seconds)
}

/// Days to civil date after Howard Hinnant's well-known algorithm.
fn iso(seconds: u64) -> String {
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (h, m, s) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}Z")
}

/// A folder for a new run under `parent`, not there yet: its start time, so that names sort by age, and its mode.
#[must_use]
pub fn new_run_path(parent: &Path, mode: &str) -> PathBuf {
    let stamp: String = now_iso().chars().filter(|c| c.is_ascii_digit() || *c == 'T').collect();
    let first = parent.join(format!("{stamp}-{mode}"));
    // Two runs of one second.
    let more = (2..).map(|n| parent.join(format!("{stamp}-{mode}-{n}")));
    std::iter::once(first.clone()).chain(more).find(|path| !path.exists()).unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil() {
        assert_eq!(iso(0), "1970-01-01T00:00:00Z");
        assert_eq!(iso(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(iso(1_796_040_309), "2026-11-30T12:05:09Z");
    }
}
