//! Runs a sweep: prepares its directory, hands points to one worker a GPU, and confirms the best at the end.
//!
//! What happens to one point is in `point`; what the results mean is in `outcome`.

use crate::journal::{self, Entries, Journal};
use crate::outcome::{PointOutcome, SplitOutcome};
use crate::point::PointRunner;
use crate::record::{Confirmation, Correctness, Ending, Record};
use crate::spec::{Spec, SweepDir};
use kbt_target::{Launcher, Speed, TimingPolicy, compare};
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Why a sweep cannot run. What happens to a point is never one of these.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// A file or folder of the sweep cannot be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// Which.
        file: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// A file of the sweep says something that is not accepted.
    #[error("{}: {problem}", file.display())]
    Content {
        /// Which.
        file: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The directory holds a sweep already.
    #[error("{} holds a sweep already; accepted: --resume to go on with it, or another directory", .0.display())]
    NotEmpty(PathBuf),
    /// The directory holds another sweep.
    #[error(
        "{}/spec.json was made from another target file or other options; accepted: the same ones, or another \
         directory", .0.display()
    )]
    OtherSpec(PathBuf),
    /// Another process sweeps there now.
    #[error("{} is in use by another sweep", .0.display())]
    Locked(PathBuf),
    /// There is no point of that index.
    #[error("there is no point {index}; accepted: 0 to {last}")]
    NoPoint {
        /// As asked.
        index: usize,
        /// The last there is.
        last: usize,
    },
}

impl SweepError {
    pub(crate) fn io(file: &Path) -> impl Fn(std::io::Error) -> Self {
        |source| Self::Io { file: file.to_owned(), source }
    }
}

/// What a sweep is doing, for those who watch.
#[derive(Debug)]
#[non_exhaustive]
pub enum Progress<'a> {
    /// The journal had these points already.
    Resumed {
        /// How many.
        finished: usize,
        /// Of how many.
        of: usize,
    },
    /// A point has finished.
    Finished {
        /// Its record.
        record: &'a Record,
        /// How many are finished.
        finished: usize,
        /// Of how many.
        of: usize,
    },
    /// The best setting is timed against the baseline once more.
    Confirming {
        /// Its index.
        index: usize,
    },
}

/// A sweep ready to run in its directory.
pub struct Sweep<'a> {
    dir: SweepDir,
    spec: Spec,
    launcher: &'a dyn Launcher,
    correctness: &'a dyn Correctness,
    /// `CUDA_VISIBLE_DEVICES` of each worker; one worker with kbt's own where empty.
    pub gpus: Vec<String>,
    /// Seconds after which no further point is begun.
    pub budget_s: Option<f64>,
    /// Called on progress, from the workers' threads.
    pub watch: &'a (dyn Fn(&Progress<'_>) + Sync),
    _lock: File,
}

struct State {
    entries: Entries,
    journal: Journal,
    /// Points not yet handed out, the next one last.
    waiting: Vec<usize>,
    /// The fastest setting so far, beyond noise.
    incumbent: usize,
    failed: Option<SweepError>,
}

impl<'a> Sweep<'a> {
    /// Prepares the directory: writes `spec.json`, or checks that the one there is the same.
    ///
    /// # Errors
    /// Where the directory holds another sweep, or this one without `resume`, or cannot be written.
    pub fn prepare(
        dir: &Path,
        spec: Spec,
        resume: bool,
        launcher: &'a dyn Launcher,
        correctness: &'a dyn Correctness,
    ) -> Result<Self, SweepError> {
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
        Ok(Self {
            dir,
            spec,
            launcher,
            correctness,
            gpus: Vec::new(),
            budget_s: None,
            watch: &|_| {},
            _lock: lock,
        })
    }

    /// Runs what is not finished yet and says what came of it all. Points that fail are results; a baseline that
    /// fails ends the sweep, since nothing could be compared with it, and the outcome says so.
    ///
    /// # Errors
    /// Where a file of the sweep cannot be read or written.
    pub fn run(&self) -> Result<SplitOutcome, SweepError> {
        let started = Instant::now();
        let (journal, mut entries) = Journal::open(&self.dir.journal(), &self.spec.digest())?;
        let of = self.spec.space.points.len();
        // The journal is a file, and may say anything.
        entries.records.retain(|r| r.index < of);
        (self.watch)(&Progress::Resumed { finished: entries.records.len(), of });
        let waiting = (0..of).rev().filter(|i| entries.record(*i).is_none()).collect();
        let incumbent = fastest(&entries);
        let state = Mutex::new(State { entries, journal, waiting, incumbent, failed: None });
        // The baseline comes first and alone: it makes the inputs and the reference.
        let mut workers = self.gpus.iter().map(|g| Some(g.as_str())).collect::<Vec<_>>();
        if workers.is_empty() {
            workers.push(None);
        }
        if held(&state).waiting.last() == Some(&0) {
            self.work(&state, started, workers[0], true);
        }
        let usable = held(&state).entries.record(0).is_some_and(|r| r.ending == Ending::Timed);
        if usable {
            std::thread::scope(|scope| {
                for gpu in &workers {
                    scope.spawn(|| self.work(&state, started, *gpu, false));
                }
            });
        }
        let mut state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        if usable && state.waiting.is_empty() {
            self.confirm(&mut state, workers[0])?;
        }
        Ok(SplitOutcome::new(&self.spec, &state.entries))
    }

    /// Takes points until none is left, the time is over, or the journal cannot be written.
    fn work(&self, state: &Mutex<State>, started: Instant, gpu: Option<&str>, only_one: bool) {
        loop {
            let (index, against) = {
                let mut state = held(state);
                let over = self.budget_s.is_some_and(|s| started.elapsed().as_secs_f64() >= s);
                // A sweep without its baseline has nothing to say, whatever the budget.
                if state.failed.is_some() || (over && state.waiting.last() != Some(&0)) {
                    return;
                }
                let Some(index) = state.waiting.pop() else { return };
                (index, (state.incumbent, state.entries.record(0).cloned()))
            };
            let done = self.runner(gpu).run(index, against.0, against.1.as_ref());
            let mut state = held(state);
            match done.and_then(|record| state.journal.point(&record).map(|()| record)) {
                Ok(record) => {
                    state.entries.records.push(record);
                    state.incumbent = fastest(&state.entries);
                    let of = self.spec.space.points.len();
                    if let Some(record) = state.entries.records.last() {
                        (self.watch)(&Progress::Finished {
                            record,
                            finished: state.entries.records.len(),
                            of,
                        });
                    }
                }
                Err(error) => state.failed = Some(error),
            }
            if only_one {
                return;
            }
        }
    }

    fn runner(&self, gpu: Option<&str>) -> PointRunner<'_> {
        PointRunner {
            dir: &self.dir,
            spec: &self.spec,
            launcher: self.launcher,
            correctness: self.correctness,
            gpu: gpu.map(str::to_owned),
        }
    }

    /// Times the best setting against the baseline again, with fresh samples and no early stop; where that does
    /// not stand, the fastest beyond noise, if that is another one.
    fn confirm(&self, state: &mut State, gpu: Option<&str>) -> Result<(), SweepError> {
        let mut candidates = vec![state.incumbent];
        // A setting that is the same as the incumbent within noise is no better for having the luckier sample.
        if let Some(lowest) = lowest_ratio(&state.entries).filter(|r| r.index != state.incumbent)
            && lowest.comparison.as_ref().is_some_and(|c| c.speed != Speed::Same)
        {
            candidates.insert(0, lowest.index);
        }
        for index in candidates.into_iter().filter(|i| *i != 0) {
            if !state.entries.confirmations.iter().any(|c| c.index == index) {
                (self.watch)(&Progress::Confirming { index });
                let confirmation = self.confirmation(index, gpu);
                state.journal.confirmation(&confirmation)?;
                state.entries.confirmations.push(confirmation);
            }
            let stands = |c: &Confirmation| {
                c.index == index && c.comparison.as_ref().is_some_and(|c| c.speed == Speed::Faster)
            };
            if state.entries.confirmations.iter().any(stands) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn confirmation(&self, index: usize, gpu: Option<&str>) -> Confirmation {
        let runner = self.runner(gpu);
        let [a, b] = [0, index].map(|i| runner.timed(&self.spec.space.points[i].setting));
        let policy = TimingPolicy { slow_margin: None, ..self.spec.timing.clone() };
        match compare(self.launcher, &a, &b, &policy, self.spec.target.limits.cooldown_s) {
            Ok(comparison) => Confirmation { index, comparison: Some(comparison), problem: None },
            Err(error) => Confirmation { index, comparison: None, problem: Some(error.to_string()) },
        }
    }
}

/// Runs one point of a sweep's directory, for another engine: the baseline first where it is not there yet. The
/// point is timed against the baseline. A point that the journal has already is not run again.
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
    let spec = Spec::load(spec_path)?;
    let folder = spec_path.parent().unwrap_or(Path::new(""));
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let dir = SweepDir(std::path::absolute(folder).map_err(SweepError::io(folder))?);
    let last = spec.space.points.len().saturating_sub(1);
    if index > last {
        return Err(SweepError::NoPoint { index, last });
    }
    let (mut journal, mut entries) = Journal::open(&dir.journal(), &spec.digest())?;
    let runner = PointRunner { dir: &dir, spec: &spec, launcher, correctness, gpu };
    if entries.record(0).is_none() {
        // One process makes the inputs and the reference; the others wait for it here.
        let baseline_lock = dir.0.join("baseline.lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&baseline_lock);
        let file = file.map_err(SweepError::io(&baseline_lock))?;
        file.lock().map_err(SweepError::io(&baseline_lock))?;
        entries = journal::load(&dir.journal())?;
        if entries.record(0).is_none() {
            let record = runner.run(0, 0, None)?;
            journal.point(&record)?;
            entries.records.push(record);
        }
    }
    if entries.record(index).is_none() {
        let record = runner.run(index, 0, entries.record(0))?;
        journal.point(&record)?;
        entries.records.push(record);
    }
    Ok(PointOutcome::new(&spec, &entries, &spec.space.points[index]))
}

/// The setting that no other beats beyond noise, as far as the records go.
fn fastest(entries: &Entries) -> usize {
    let faster = entries.records.iter().filter(|r| {
        r.ending == Ending::Timed && r.comparison.as_ref().is_some_and(|c| c.speed == Speed::Faster)
    });
    let ratio = |r: &&Record| ratio_to_baseline(entries, r.index).unwrap_or(1.0);
    faster.min_by(|a, b| ratio(a).total_cmp(&ratio(b))).filter(|r| ratio(r) < 1.0).map_or(0, |r| r.index)
}

fn lowest_ratio(entries: &Entries) -> Option<&Record> {
    let timed = entries.records.iter().filter(|r| r.ending == Ending::Timed);
    let ratios = timed.filter_map(|r| Some((r, ratio_to_baseline(entries, r.index)?)));
    ratios.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(record, _)| record)
}

/// A point's time over the baseline's, through the settings that it was timed against.
pub(crate) fn ratio_to_baseline(entries: &Entries, index: usize) -> Option<f64> {
    let (mut at, mut ratio) = (index, 1.0);
    // The chain ends at the baseline; a damaged journal could make a ring.
    for _ in 0..=entries.records.len() {
        if at == 0 {
            return Some(ratio);
        }
        let record = entries.record(at)?;
        ratio *= record.comparison.as_ref()?.ratio;
        at = record.against?;
    }
    None
}

fn held(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
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
