//! Points run by their index, for another engine: `kbt split run-one`.

use crate::error::SweepError;
use crate::journal::{self, Entries, Journal};
use crate::outcome::PointOutcome;
use crate::point::PointRunner;
use crate::record::{Correctness, Ending};
use crate::spec::{Spec, SweepDir};
use kbt_target::Launcher;
use std::fs::{self, File, OpenOptions};
use std::path::Path;

/// One point of a sweep's directory, to be run by this process alone.
struct One {
    dir: SweepDir,
    spec: Spec,
    journal: Journal,
    entries: Entries,
}

impl One {
    fn open(spec_path: &Path, index: usize) -> Result<Self, SweepError> {
        let spec = Spec::load(spec_path)?;
        let folder = spec_path.parent().unwrap_or(Path::new(""));
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let dir = SweepDir(std::path::absolute(folder).map_err(SweepError::io(folder))?);
        let last = spec.space.points.len().saturating_sub(1);
        if index > last {
            return Err(SweepError::NoPoint { index, last });
        }
        let (journal, entries) = Journal::open(&dir.journal(), &spec.digest())?;
        Ok(Self { dir, spec, journal, entries })
    }

    /// Waits until no other process runs this point, and reads again what was finished meanwhile.
    fn hold(&mut self, index: usize) -> Result<File, SweepError> {
        let path = self.dir.point_lock(index);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(SweepError::io(folder))?;
        }
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = open.map_err(SweepError::io(&path))?;
        file.lock().map_err(SweepError::io(&path))?;
        self.entries = journal::load(&self.dir.journal())?;
        Ok(file)
    }
}

/// Runs one point of a sweep's directory: the baseline first where it is not there yet. The point is timed against
/// the baseline. A point that the journal has finished already is not run again, nor one that another process runs at this
/// moment: its result is waited for.
///
/// # Errors
/// Where there is no such point, or a file of the sweep cannot be read or written.
pub fn run_one(
    spec_path: &Path,
    index: usize,
    gpu: Option<String>,
    launcher: &dyn Launcher,
    correctness: &dyn Correctness,
) -> Result<PointOutcome, SweepError> {
    let mut one = One::open(spec_path, index)?;
    one.dir.holds_baseline(&one.spec, &one.entries)?;
    // The baseline makes the inputs and the reference, so it comes first.
    for index in [0, index] {
        if one.entries.finished(index).is_some() {
            continue;
        }
        let before = one.entries.record(index).cloned();
        let _held = one.hold(index)?;
        // Whoever ran it meanwhile has left a line, be it one that measured nothing.
        if one.entries.record(index) == before.as_ref() {
            let (dir, spec, gpu) = (&one.dir, &one.spec, gpu.clone());
            let runner = PointRunner { dir, spec, launcher, correctness, gpu };
            let record = runner.run(index, 0, one.entries.record(0), None, None)?;
            one.journal.point(&record)?;
            one.entries.add(record);
        }
    }
    Ok(PointOutcome::new(&one.spec, &one.entries, &one.spec.space.points[index]))
}

/// Times a finished point of a sweep's directory against the baseline once more, with fresh samples, as a sweep does
/// with its best at the end.
///
/// # Errors
/// Where there is no such point or it has no time, or a file of the sweep cannot be read or written.
pub fn confirm_one(
    spec_path: &Path,
    index: usize,
    gpu: Option<String>,
    launcher: &dyn Launcher,
    correctness: &dyn Correctness,
) -> Result<PointOutcome, SweepError> {
    let mut one = One::open(spec_path, index)?;
    let _held = one.hold(index)?;
    for needed in [0, index] {
        if one.entries.record(needed).is_none_or(|r| r.ending != Ending::Timed) {
            let why = format!(
                "point {needed} has no time in the journal; accepted: after run-one --index {needed}"
            );
            return Err(SweepError::NotTimed { index, why });
        }
    }
    if one.entries.confirmation(index).is_none_or(|c| c.comparison.is_none()) {
        let (dir, spec) = (&one.dir, &one.spec);
        let runner = PointRunner { dir, spec, launcher, correctness, gpu };
        let mut confirmations = Vec::new();
        runner.confirm(&[index], |confirmation| confirmations.push(confirmation));
        for confirmation in confirmations {
            one.journal.confirmation(&confirmation)?;
            one.entries.add_confirmation(confirmation);
        }
    }
    Ok(PointOutcome::new(&one.spec, &one.entries, &one.spec.space.points[index]))
}
