//! `kbt record`: makes a recording of a real device out of finished runs.

pub(crate) use super::record_args::Args;
use super::record_args::Command;
use crate::output::{Failure, Outcome, print};
use kbt_ladder::recording::{self, RecordingMeta};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(crate) fn run(args: Args) -> Outcome {
    let Command::Import { runs, into, force, format } = args.command;
    let mut all = Vec::new();
    for path in &runs {
        all.extend(runs_in(path)?);
    }
    let into = match into {
        Some(into) => into,
        None => Path::new("recordings").join(name_of(&recording::describe(&all[0], "")?)),
    };
    if into.file_name().is_none() {
        return Err(Failure::input(format!("--into {}: has no last part to name it by", into.display())));
    }
    let written = recording::import(&all, &into, force)?;
    let made = recording::Recording::load(&into)?;
    let imported = Imported {
        schema: "kbt.record.import/1",
        recording: &into,
        device: &made.meta.device,
        keys: made.keys().into_iter().map(|k| k.to_string()).collect(),
        files: &written,
    };
    print(format, &imported, |made| {
        made.files.iter().map(|path| format!("{}\n", path.display())).collect::<String>()
    })?;
    crate::output::tell!(
        "kbt: recording of {}: {}; use it with --device {}",
        made.meta.device,
        made.keys().join(", "),
        if into.is_absolute() { into.display().to_string() } else { format!("./{}", into.display()) }
    );
    Ok(ExitCode::SUCCESS)
}

/// The recording that was made.
#[derive(Serialize)]
struct Imported<'a> {
    schema: &'static str,
    /// Its folder.
    recording: &'a Path,
    device: &'a str,
    /// The pv modes and targets that it has runs of.
    keys: Vec<String>,
    /// The files that were written.
    files: &'a [PathBuf],
}

/// The run that a path is, or the runs that its folder holds.
fn runs_in(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let is_run = |p: &Path| p.join("run.json").is_file();
    if is_run(path) {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
    let mut found: Vec<PathBuf> = entries.flatten().map(|e| e.path()).filter(|p| is_run(p)).collect();
    found.sort();
    if found.is_empty() {
        return Err(Failure::input(format!(
            "{}: no run directory, and none in it; one has a run.json, and `kbt tune` makes it",
            path.display()
        )));
    }
    Ok(found)
}

/// A recording's name: its device and day.
fn name_of(meta: &RecordingMeta) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    format!("{}-{}", meta.device.chars().map(word).collect::<String>(), meta.date)
}
