//! Finished runs into a recording: everything is read and written beside it first, and moved where all of it reads.

use super::{
    FACTS_FILE, PROFILE_FILE, Recording, RecordingError, RecordingMeta, TARGET_FILE, TRACE_FILE, describe,
    key_of_target,
};
use crate::RunDir;
use kbt_device::DeviceProfile;
use kbt_evidence::Step;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Copies what a recording keeps of finished runs into the folder `into`: the device profile, and into a folder of each
/// run's own its step files, fact sheet, target file and trace. Returns what was written.
///
/// # Errors
/// Where a run is no finished live run, two runs have one key, the recording is of another device, or it has a run's key
/// and `force` does not say that it may be replaced. Nothing is changed then.
pub fn import(runs: &[PathBuf], into: &Path, force: bool) -> Result<Vec<PathBuf>, RecordingError> {
    let name = into.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let mut keys: BTreeMap<String, &Path> = BTreeMap::new();
    let mut meta: Option<RecordingMeta> = None;
    if into.join("recording.yaml").is_file() {
        meta = Some(Recording::load(into)?.meta);
    }
    let mut metas = Vec::new();
    for run in runs {
        let key = key_of(run)?;
        let found = describe(run, &name)?;
        if let Some(other) = keys.get(&key) {
            let message = format!(
                "is of `{key}`, as {} is; a recording keeps one run of each: import one of the two",
                other.display()
            );
            return Err(damaged(run, message));
        }
        if into.join(&key).exists() && !force {
            let message =
                format!("the recording has a run of `{key}`; --force replaces it by {}", run.display());
            return Err(damaged(&into.join(&key), message));
        }
        if let Some(known) = meta.as_ref().filter(|m| m.device != found.device) {
            let message = format!(
                "was measured on {}, but the recording {} is of {}; a recording is of one device",
                found.device,
                into.display(),
                known.device
            );
            return Err(damaged(run, message));
        }
        meta.get_or_insert_with(|| found.clone());
        metas.push(found);
        keys.insert(key, run);
    }
    let staged = into.with_file_name(format!(".{name}.partial-{}", std::process::id()));
    let moved = stage(&keys, &metas, &staged).and_then(|()| put(&keys, &staged, into));
    // What is left there was never a recording.
    let _ = std::fs::remove_dir_all(&staged);
    moved
}

fn damaged(path: &Path, message: impl Into<String>) -> RecordingError {
    RecordingError::Damaged { file: path.display().to_string(), message: message.into() }
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> RecordingError + '_ {
    move |e| damaged(path, e.to_string())
}

/// The folder of a run in a recording; only a finished run has one.
fn key_of(run: &Path) -> Result<String, RecordingError> {
    let spec = RunDir::spec(run)?;
    let opened = RunDir::open(run)?;
    let missing: Vec<_> =
        Step::ALL.iter().filter(|s| !opened.finished().contains_key(s)).map(|s| s.as_str()).collect();
    if !missing.is_empty() {
        let message =
            format!("the run did not finish {}; only a finished run is a recording", missing.join(", "));
        return Err(damaged(run, message));
    }
    Ok(match (&spec.pv_mode, &spec.target) {
        (Some(mode), None) => mode.clone(),
        (_, Some(target)) => key_of_target(target),
        (None, None) => "target".to_owned(),
    })
}

/// Writes a whole recording of the runs into an empty folder, and reads it back.
fn stage(
    keys: &BTreeMap<String, &Path>,
    metas: &[RecordingMeta],
    staged: &Path,
) -> Result<(), RecordingError> {
    for (key, run) in keys {
        let folder = staged.join(key);
        std::fs::create_dir_all(&folder).map_err(io(&folder))?;
        for step in Step::ALL {
            let file = format!("{}-{step}.json", step.index());
            let from = run.join("steps").join(&file);
            std::fs::copy(&from, folder.join(&file)).map_err(io(&from))?;
        }
        for file in [TRACE_FILE, FACTS_FILE, TARGET_FILE] {
            let from = run.join(file);
            if from.exists() {
                std::fs::copy(&from, folder.join(file)).map_err(io(&from))?;
            }
        }
        let from = run.join(PROFILE_FILE);
        let text = std::fs::read_to_string(&from).map_err(io(&from))?;
        let mut profile = DeviceProfile::from_yaml(&text, &from.display().to_string())?;
        if let Some(meta) = metas.last() {
            profile.name.clone_from(&meta.name);
            let path = staged.join("recording.yaml");
            let yaml = serde_yaml::to_string(meta).map_err(|e| damaged(&path, e.to_string()))?;
            std::fs::write(&path, yaml).map_err(io(&path))?;
        }
        let path = staged.join(PROFILE_FILE);
        std::fs::write(&path, profile.to_yaml()?).map_err(io(&path))?;
    }
    let made = Recording::load(staged)?;
    for key in keys.keys() {
        for step in Step::ALL {
            made.step(key, step)?;
        }
    }
    Ok(())
}

/// Moves what was written into place.
fn put(keys: &BTreeMap<String, &Path>, staged: &Path, into: &Path) -> Result<Vec<PathBuf>, RecordingError> {
    std::fs::create_dir_all(into).map_err(io(into))?;
    let mut written = Vec::new();
    for key in keys.keys() {
        let to = into.join(key);
        if to.exists() {
            std::fs::remove_dir_all(&to).map_err(io(&to))?;
        }
        std::fs::rename(staged.join(key), &to).map_err(io(&to))?;
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(&to).map_err(io(&to))?.flatten().map(|e| e.path()).collect();
        files.sort();
        written.extend(files);
    }
    for file in ["recording.yaml", PROFILE_FILE] {
        let to = into.join(file);
        std::fs::rename(staged.join(file), &to).map_err(io(&to))?;
        written.push(to);
    }
    Ok(written)
}
