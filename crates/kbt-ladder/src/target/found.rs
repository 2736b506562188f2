//! What the build and a first run of the target left: machine code, copied into the run directory so that a resumed run
//! reads the same, and notes of whatever did not go as the target file promises.

use super::TargetTuner;
use crate::StepFailure;
use crate::steps::fatal;
use kbt_target::artifacts::{self, Artifact, ArtifactKind, Snapshot};
use kbt_target::{Launch, LaunchRequest, Launcher};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The folder of the run directory that holds the machine code.
pub(super) const CODE: &str = "code";
const FILE: &str = "found.json";

/// What there is to study.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Found {
    /// Machine code in the order of preference within its kind: this build's first.
    pub(super) files: Vec<Artifact>,
    /// What did not go as promised, by command: `the build failed: exit code 1; its last words: …`.
    pub(super) notes: Vec<String>,
    /// How the build failed. What an earlier build left is not run then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) build_failed: Option<String>,
}

impl Found {
    pub(super) fn of(&self, kind: ArtifactKind) -> impl Iterator<Item = &Artifact> {
        self.files.iter().filter(move |f| f.kind == kind)
    }

    /// The notes as one clause of a refusal.
    pub(super) fn because(&self) -> String {
        self.notes.iter().map(|n| format!("; {n}")).collect()
    }
}

impl TargetTuner<'_> {
    /// Builds the target and, on a live device, runs it once for the machine code that it dumps; once a run.
    pub(super) fn found(&mut self) -> Result<Found, StepFailure> {
        if let Some(found) = &self.found {
            return Ok(found.clone());
        }
        let kept = self.run.join(CODE).join(FILE);
        let found = match std::fs::read(&kept) {
            Ok(bytes) => {
                serde_json::from_slice(&bytes).map_err(|e| fatal(format!("{}: {e}", kept.display())))?
            }
            Err(_) => {
                let found = self.find()?;
                let bytes = serde_json::to_vec_pretty(&found).map_err(fatal)?;
                crate::rundir::write_atomic(&kept, &bytes).map_err(fatal)?;
                found
            }
        };
        for note in &found.notes {
            self.note(format!("  {note}"));
        }
        self.found = Some(found.clone());
        Ok(found)
    }

    /// Whether the target's program is this build's.
    ///
    /// # Errors
    /// Where the build failed: what would run is another build's.
    pub(super) fn launchable(&mut self) -> Result<(), StepFailure> {
        match self.found()?.build_failed {
            None => Ok(()),
            Some(why) => Err(StepFailure::Refused {
                reason: format!("not launched, since {why}"),
                needs: "a build that succeeds: `kbt target check` runs each command once".into(),
            }),
        }
    }

    fn find(&mut self) -> Result<Found, StepFailure> {
        let folder = self.run.join(CODE);
        let (build, dump, inputs) = (folder.join("build"), folder.join("dump"), self.inputs(0));
        for made in [&build, &dump, &inputs] {
            std::fs::create_dir_all(made).map_err(|e| fatal(format!("{}: {e}", made.display())))?;
        }
        let mut notes = Vec::new();
        let before = Snapshot::of(&self.target);
        if self.target.build.is_some() {
            self.note("  building the target");
        }
        let built = self.launcher().build(Some(&build));
        let build_failed = built.filter(|b| !b.is_ok()).map(|b| failed("the build", &b));
        notes.extend(build_failed.clone());
        if self.is_live() && build_failed.is_none() {
            self.note("  a first run of the target");
            let request = LaunchRequest {
                inputs: Some(inputs),
                dump: Some(dump.clone()),
                ..LaunchRequest::timed(self.target.default_setting())
            };
            let launch = self.launcher().launch(&request);
            notes.extend((!launch.is_ok()).then(|| failed("the run", &launch)));
        }
        for path in artifacts::missing(&self.target) {
            notes.push(format!("{} is not there after the build", path.display()));
        }
        let mut files = Vec::new();
        for (n, artifact) in artifacts::find(&self.target, &[&build, &dump], &before).into_iter().enumerate()
        {
            if let Some(why) = &artifact.stale {
                notes.push(format!("{} is STALE: {why}", artifact.path.display()));
            }
            let path = keep(&folder, n, &artifact.path)?;
            files.push(Artifact { path, ..artifact });
        }
        files.sort_by_key(|f| f.stale.is_some());
        Ok(Found { files, notes, build_failed })
    }
}

/// A copy of a file in the run's own folder, numbered, since names may repeat.
fn keep(folder: &Path, n: usize, path: &Path) -> Result<PathBuf, StepFailure> {
    let name = path.file_name().map(|f| f.to_string_lossy().into_owned()).unwrap_or_default();
    // Names of compilers' files can be as long as a file name may be.
    let tail: String = name.chars().rev().take(80).collect::<Vec<_>>().into_iter().rev().collect();
    let to = folder.join(format!("{n}-{tail}"));
    std::fs::copy(path, &to).map_err(|e| fatal(format!("{}: {e}", path.display())))?;
    Ok(to)
}

/// How a command failed, with the last line that it wrote about that.
pub(super) fn failed(what: &str, launch: &Launch) -> String {
    let last = launch.stderr_tail.lines().rev().map(str::trim).find(|l| !l.is_empty());
    match last {
        Some(line) => format!("{what} failed: {}; its last words: {line}", launch.status),
        None => format!("{what} failed: {}", launch.status),
    }
}
