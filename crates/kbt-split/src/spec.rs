//! `spec.json`: everything that a sweep's points need, so that any engine can run one by its index.

use crate::error::SweepError;
use crate::journal::Entries;
use crate::record::Ending;
use crate::screen::Screening;
use crate::space::Space;
use kbt_target::{Target, TimingPolicy};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a process may take to end that was killed with its sweep.
const LAST_MOMENT: Duration = Duration::from_secs(5);

/// The schema that spec files state.
pub const SPEC_SCHEMA: &str = "kbt.split.spec/1";

/// A sweep as planned: the target, its points, and how they are timed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Always [`SPEC_SCHEMA`].
    pub schema: String,
    /// The target.
    pub target: Target,
    /// The folder that the target's relative paths start from, absolute.
    pub folder: PathBuf,
    /// What is run, what the contract forbids, what the constraints exclude.
    pub space: Space,
    /// How a point is timed.
    pub timing: TimingPolicy,
    /// How the space is narrowed before points are compared; each point is compared where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screening: Option<Screening>,
}

impl Spec {
    /// The plan of a sweep.
    #[must_use]
    pub fn new(mut target: Target, space: Space, timing: TimingPolicy) -> Self {
        // The empty path, which an embedded target has, is the current directory.
        let relative = if target.folder.as_os_str().is_empty() { Path::new(".") } else { &target.folder };
        let folder = std::path::absolute(relative).unwrap_or_else(|_| target.folder.clone());
        target.folder.clone_from(&folder);
        // A plan is read back without the target file's text: its lines have served once it was read.
        target.source = kbt_target::Source::default();
        Self { schema: SPEC_SCHEMA.to_owned(), target, folder, space, timing, screening: None }
    }

    /// The same plan, with the space narrowed first where it is large.
    #[must_use]
    pub fn screened(mut self) -> Self {
        self.screening = Screening::of(self.space.points.len());
        self
    }

    /// Reads a spec file.
    ///
    /// # Errors
    /// Where it cannot be read or is no spec of this version.
    pub fn load(path: &Path) -> Result<Self, SweepError> {
        let text = fs::read_to_string(path).map_err(SweepError::io(path))?;
        let bad = |problem: String| SweepError::Content { file: path.to_owned(), problem };
        let mut spec: Self = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
        if spec.schema != SPEC_SCHEMA {
            return Err(bad(format!("schema `{}` is not known; accepted: {SPEC_SCHEMA}", spec.schema)));
        }
        if spec.space.points.is_empty() {
            return Err(bad("it has no points".to_owned()));
        }
        if let Some((place, point)) = spec.space.points.iter().enumerate().find(|(i, p)| p.index != *i) {
            return Err(bad(format!("the point in place {place} says that its index is {}", point.index)));
        }
        spec.target.folder.clone_from(&spec.folder);
        Ok(spec)
    }

    /// Writes the spec so that it is there whole or not at all.
    ///
    /// # Errors
    /// Where the file system refuses.
    pub fn store(&self, path: &Path) -> Result<(), SweepError> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|e| SweepError::Content { file: path.to_owned(), problem: e.to_string() })?;
        write_whole(path, text.as_bytes())
    }

    /// A digest of what decides the points' results: a journal belongs to one spec.
    #[must_use]
    pub fn digest(&self) -> String {
        // 64-bit FNV-1a: enough to tell one plan from another; nobody forges a sweep plan.
        let text = serde_json::to_string(self).unwrap_or_default();
        let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, fold))
    }
}

/// The files and folders of a sweep's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepDir(pub PathBuf);

impl SweepDir {
    /// The plan.
    #[must_use]
    pub fn spec(&self) -> PathBuf {
        self.0.join("spec.json")
    }

    /// By what settings that change the arithmetic are judged.
    #[must_use]
    pub fn judging(&self) -> PathBuf {
        self.0.join("judging.json")
    }

    /// The finished points.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.0.join("journal.jsonl")
    }

    /// Held by the process that sweeps.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// The saved inputs, one folder a set.
    #[must_use]
    pub fn inputs(&self) -> PathBuf {
        self.0.join("inputs")
    }

    /// The baseline's outputs, against which every point is checked.
    #[must_use]
    pub fn reference(&self) -> PathBuf {
        self.0.join("reference.safetensors")
    }

    /// That what the baseline left is still there, once it has run and points are left: without it they would end
    /// unmeasured, or be run on other inputs.
    pub(crate) fn holds_baseline(&self, spec: &Spec, entries: &Entries) -> Result<(), SweepError> {
        let has_run = entries.record(0).is_some_and(|r| r.ending == Ending::Timed);
        if !has_run || spec.space.points.iter().all(|p| entries.finished(p.index).is_some()) {
            return Ok(());
        }
        let outputs = Some(self.reference()).filter(|_| !spec.target.outputs.is_empty());
        let own = spec.target.inputs.folder.is_none();
        let inputs = Some(spec.target.input_folder(0, &self.inputs())).filter(|_| own);
        match [outputs, inputs].into_iter().flatten().find(|path| !path.exists()) {
            None => Ok(()),
            Some(file) => Err(SweepError::Content {
                file,
                problem: "it is gone, and the sweep's baseline has run with it; accepted: the sweep's directory as it \
                          was, or another one"
                    .to_owned(),
            }),
        }
    }

    /// That no process of a sweep which was killed here runs on, beside which others would be timed. What is being killed
    /// gets a moment to end.
    pub(crate) fn nothing_runs_on(&self) -> Result<(), SweepError> {
        let deadline = Instant::now() + LAST_MOMENT;
        loop {
            let left = kbt_target::left_behind(&self.0);
            match left.is_empty() {
                true => return Ok(()),
                false if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
                false => return Err(SweepError::RunsOn { dir: self.0.clone(), processes: left.join(", ") }),
            }
        }
    }

    /// A point's own folder.
    #[must_use]
    pub fn point(&self, index: usize) -> PathBuf {
        self.0.join("points").join(index.to_string())
    }

    /// Held by the process that runs a point by its index.
    #[must_use]
    pub fn point_lock(&self, index: usize) -> PathBuf {
        self.0.join("locks").join(index.to_string())
    }

    /// The arrays that were submitted to a cluster, and the tasks' own output.
    #[must_use]
    pub fn slurm(&self) -> PathBuf {
        self.0.join("slurm")
    }
}

/// Opens a sweep's directory for the one process that sweeps there: writes `spec.json`, or checks that the one there is
/// the same.
pub(crate) fn open_dir(dir: &Path, spec: &Spec, resume: bool) -> Result<(SweepDir, File), SweepError> {
    fs::create_dir_all(dir).map_err(SweepError::io(dir))?;
    let dir = SweepDir(std::path::absolute(dir).map_err(SweepError::io(dir))?);
    let lock = lock(&dir)?;
    if dir.spec().exists() {
        if !resume {
            return Err(SweepError::NotEmpty(dir.0));
        }
        if Spec::load(&dir.spec())?.digest() != spec.digest() {
            return Err(SweepError::OtherSpec(dir.0));
        }
    } else {
        spec.store(&dir.spec())?;
    }
    Ok((dir, lock))
}

fn lock(dir: &SweepDir) -> Result<File, SweepError> {
    let path = dir.lock();
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(SweepError::io(&path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err(SweepError::Locked(dir.0.clone())),
        Err(fs::TryLockError::Error(source)) => Err(SweepError::Io { file: path, source }),
    }
}

/// Writes a file beside its place and renames it into it, so that no reader sees half of it.
///
/// # Errors
/// Where the file system refuses.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), SweepError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    let write = || {
        let mut file = File::create(&beside)?;
        std::io::Write::write_all(&mut file, bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().map_err(SweepError::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Choice;

    #[test]
    fn a_spec_is_read_back_as_written_and_its_digest_tells_plans_apart() {
        let target = kbt_target::embedded_target("attention").unwrap().unwrap();
        let space = Space::new(&target, &Choice::default()).unwrap();
        let spec = Spec::new(target, space, TimingPolicy::default());
        assert!(spec.target.folder.is_absolute());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spec.json");
        spec.store(&path).unwrap();
        let read = Spec::load(&path).unwrap();
        assert_eq!(read, spec);
        assert_eq!(read.digest(), spec.digest());
        let quick = Spec { timing: TimingPolicy::quick(), ..spec.clone() };
        assert_ne!(quick.digest(), spec.digest());
        let damaged = |text: &str| {
            fs::write(&path, text).unwrap();
            Spec::load(&path).unwrap_err().to_string()
        };
        assert!(damaged(r#"{"schema": "x"}"#).contains("spec.json"));
        let text = serde_json::to_string(&spec).unwrap();
        assert!(damaged(&text.replacen("kbt.split.spec/1", "x", 1)).contains("accepted: kbt.split.spec/1"));
        assert!(damaged(&text.replacen("\"index\":1", "\"index\":7", 1)).contains("place 1"), "{text}");
    }
}
