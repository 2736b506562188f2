//! Runs a sweep: prepares its directory, hands points to one worker a GPU, and confirms the best at the end.
//!
//! What happens to one point is in `point`; what the results mean is in `outcome`.

use crate::draft::Asked;
use crate::journal::{Entries, Glance, Journal, Probe};
use crate::outcome::SplitOutcome;
use crate::point::{Checked, PointRunner};
use crate::ranking::{confirmation_candidates, confirmation_settles, fastest};
use crate::record::{Correctness, Ending, Record};
use crate::screen;
use crate::spec::{Spec, SweepDir, open_dir};
use crate::together::{Seen, Step};
use kbt_target::Launcher;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Of a sweep's time so much may go into screening; with the rest the best seen by then are compared and confirmed.
const SCREENING_SHARE: f64 = 0.6;

pub use crate::error::SweepError;
pub use crate::progress::Progress;

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
        let (dir, lock) = open_dir(dir, &spec, resume)?;
        if resume {
            dir.nothing_runs_on()?;
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
        self.dir.holds_baseline(&self.spec, &entries)?;
        (self.watch)(&Progress::Resumed {
            finished: entries.records.iter().filter(|r| r.is_finished()).count(),
            of,
        });
        let incumbent = fastest(&entries);
        let has_baseline = entries.finished(0).is_some();
        let waiting = if has_baseline { Vec::new() } else { vec![0] };
        let state = Mutex::new(State { entries, journal, waiting, incumbent, failed: None });
        let mut workers = self.gpus.iter().map(|g| Some(g.as_str())).collect::<Vec<_>>();
        if workers.is_empty() {
            workers.push(None);
        }
        // The baseline comes first and alone: it makes the inputs and the reference.
        self.work(&state, started, workers[0]);
        let usable = held(&state).entries.record(0).is_some_and(|r| r.ending == Ending::Timed);
        if usable {
            self.begin_screening(&state);
            self.all_at(&workers, |gpu| self.screen(&state, started, gpu));
            self.begin_comparing(&state)?;
            self.all_at(&workers, |gpu| self.work(&state, started, gpu));
        }
        // Where the time ended between two comparisons, the fastest so far may not be the fastest; after a screening it is
        // among the first that are compared.
        if usable && (self.spec.screening.is_some() || held(&state).waiting.is_empty()) {
            self.confirm(&state, &workers);
        }
        let mut state = state.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        Ok(SplitOutcome::new(&self.spec, &state.entries))
    }

    fn all_at<'w>(&self, workers: &[Option<&'w str>], work: impl Fn(Option<&'w str>) + Sync) {
        let work = &work;
        std::thread::scope(|scope| {
            for gpu in workers {
                scope.spawn(move || work(*gpu));
            }
        });
    }

    /// Hands out what has to be screened yet; nothing where the space is compared whole.
    fn begin_screening(&self, state: &Mutex<State>) {
        let mut state = held(state);
        if self.spec.screening.is_some() {
            let seen = |i: &usize| {
                state.entries.finished(*i).is_some() || state.entries.screened.iter().any(|r| r.index == *i)
            };
            let order = screen::spread(self.spec.space.points.len());
            let waiting = order.into_iter().rev().filter(|i| *i != 0 && !seen(i)).collect();
            state.waiting = waiting;
        }
    }

    /// Hands out what has to be compared yet: everything, or what the screening leaves, the fastest first. What a
    /// whole screening leaves out is finished with that; where it ended early the fastest of those seen are compared, and
    /// the others may be yet, when the sweep goes on.
    fn begin_comparing(&self, state: &Mutex<State>) -> Result<(), SweepError> {
        let mut guard = held(state);
        let state = &mut *guard;
        let Some(screening) = &self.spec.screening else {
            let points = (1..self.spec.space.points.len()).rev();
            state.waiting = points.filter(|i| state.entries.finished(*i).is_none()).collect();
            return Ok(());
        };
        if state.failed.is_some() {
            state.waiting.clear();
            return Ok(());
        }
        let is_whole = state.waiting.is_empty();
        let ranked = screen::ranked(&state.entries);
        let kept = screening.kept(ranked.len());
        (self.watch)(&Progress::Narrowed { kept, of: ranked.len() });
        for (index, ratio) in ranked[kept..].iter().filter(|_| is_whole) {
            let screened = state.entries.screened.iter().find(|r| r.index == *index);
            if let Some(record) = screened.filter(|_| state.entries.finished(*index).is_none()) {
                let record = Record { screened_ratio: Some(*ratio), ..record.clone() };
                state.journal.point(&record)?;
                state.entries.add(record);
            }
        }
        state.waiting = ranked[..kept].iter().rev().map(|r| r.0).collect();
        state.waiting.retain(|i| state.entries.finished(*i).is_none());
        Ok(())
    }

    /// Takes the next point; `None` where none is left, this share of the time is over, or something failed.
    fn next(&self, state: &mut State, started: Instant, share: f64) -> Option<usize> {
        // A sweep without its baseline has nothing to say, whatever the budget.
        let is_over = self.is_over(state, started, share);
        if is_over && (state.failed.is_some() || state.waiting.last() != Some(&0)) {
            return None;
        }
        state.waiting.pop()
    }

    /// Whether no further point is to be begun within this share of the time.
    fn is_over(&self, state: &State, started: Instant, share: f64) -> bool {
        state.failed.is_some() || self.budget_s.is_some_and(|s| started.elapsed().as_secs_f64() >= s * share)
    }

    /// Screens points, with a run of the baseline before the first and now and then.
    fn screen(&self, state: &Mutex<State>, started: Instant, gpu: Option<&str>) {
        let Some(screening) = &self.spec.screening else { return };
        let runner = self.runner(gpu);
        let (mut since, mut probe) = (screening.probe_every, None::<Probe>);
        loop {
            let (steps, baseline) = {
                let mut state = held(state);
                let steps = self.next_steps(&mut state, started, screening.probe_every, &mut since);
                (steps, state.entries.record(0).cloned())
            };
            if steps.is_empty() {
                return;
            }
            let done = runner.screen_together(&steps, probe.clone(), baseline.as_ref(), |seen| {
                let mut guard = held(state);
                let state = &mut *guard;
                match seen {
                    Seen::Probe(fresh) => {
                        state.journal.probe(&fresh)?;
                        state.entries.trail.push(Glance::Probe(fresh.clone()));
                        probe = Some(fresh);
                    }
                    Seen::Point(record) if record.ending == Ending::Timed => {
                        state.journal.screened(&record)?;
                        state.entries.add_screened(*record);
                        self.tell_screened(state);
                    }
                    Seen::Point(record) => {
                        state.journal.point(&record)?;
                        state.entries.add(*record);
                        self.tell_screened(state);
                    }
                }
                Ok(())
            });
            if let Err(error) = done {
                held(state).failed = Some(error);
            }
        }
    }

    /// As many of the next points as are set up together, and the baseline where it is due.
    fn next_steps(&self, state: &mut State, started: Instant, every: u32, since: &mut u32) -> Vec<Step> {
        let (places, mut steps) = (self.share(state), Vec::new());
        loop {
            let due = *since >= every;
            let needed = 1 + usize::from(due);
            if !steps.is_empty() && steps.len() + needed > places {
                return steps;
            }
            let Some(index) = self.next(state, started, SCREENING_SHARE) else { return steps };
            if due {
                steps.push(Step::Probe);
                *since = 0;
            }
            steps.push(Step::Point(index));
            *since += 1;
        }
    }

    /// How many of the next points one worker takes: as many as are set up together, but no more than leaves some for
    /// every worker.
    fn share(&self, state: &State) -> usize {
        let workers = self.gpus.len().max(1);
        self.launcher.at_once().min(state.waiting.len().div_ceil(workers)).max(1)
    }

    fn tell_screened(&self, state: &State) {
        let entries = &state.entries;
        let (screened, of) = (entries.screened.len(), self.spec.space.points.len());
        let last = match entries.trail.last() {
            Some(Glance::Screened(index)) => entries.screened.iter().find(|r| r.index == *index),
            _ => entries.records.last(),
        };
        if let Some(record) = last {
            (self.watch)(&Progress::Screened { record, screened, of });
        }
    }

    /// Compares points until none is left, the time is over, or the journal cannot be written.
    fn work(&self, state: &Mutex<State>, started: Instant, gpu: Option<&str>) {
        let runner = self.runner(gpu);
        loop {
            let batch: Vec<(usize, Option<Record>)> = {
                let mut state = held(state);
                let take: Vec<usize> =
                    (0..self.share(&state)).map_while(|_| self.next(&mut state, started, 1.0)).collect();
                let screened = |i: usize| state.entries.screened.iter().find(|r| r.index == i).cloned();
                take.into_iter().map(|i| (i, screened(i))).collect()
            };
            if batch.is_empty() {
                return;
            }
            let unknown: Vec<usize> = batch.iter().filter(|b| b.1.is_none()).map(|b| b.0).collect();
            // One alone is checked when it is run.
            let unknown = if unknown.len() > 1 { unknown } else { Vec::new() };
            let mut checked: BTreeMap<usize, Result<Checked, SweepError>> =
                unknown.iter().copied().zip(runner.check_together(&unknown)).collect();
            let mut batch = batch.into_iter().peekable();
            while batch.peek().is_some() {
                let group: Vec<_> = batch.by_ref().take(self.timed_together()).collect();
                let (against, baseline) = {
                    let mut state = held(state);
                    if self.is_over(&state, started, 1.0) && group.iter().all(|(index, _)| *index != 0) {
                        state.waiting.extend(group.iter().map(|(index, _)| *index));
                        continue;
                    }
                    (state.incumbent, state.entries.record(0).cloned())
                };
                let asked = group.into_iter().map(|(index, screened)| {
                    let checked = checked.remove(&index).transpose()?;
                    Ok(Asked { index, screened, checked })
                });
                let finished = |record: Result<Record, SweepError>| self.finished(&mut held(state), record);
                match asked.collect::<Result<Vec<_>, SweepError>>() {
                    Ok(asked) => runner.run_together(asked, against, baseline.as_ref(), finished),
                    Err(error) => finished(Err(error)),
                }
            }
        }
    }

    /// Puts a finished point into the journal.
    fn finished(&self, state: &mut State, record: Result<Record, SweepError>) {
        match record.and_then(|record| state.journal.point(&record).map(|_| record)) {
            Ok(record) => {
                state.entries.add(record.clone());
                let (finished, of) = (state.entries.records.len(), self.spec.space.points.len());
                (self.watch)(&Progress::Finished { record: &record, finished, of });
                state.incumbent = fastest(&state.entries);
            }
            Err(error) => state.failed = Some(error),
        }
    }

    /// How many points are timed against the same one: one, or where several have room for their first look at once, some
    /// rounds of them, so that those that need more looks are joined by others.
    fn timed_together(&self) -> usize {
        const ROUNDS: usize = 4;
        let first_look = self.spec.timing.looks().first().copied().unwrap_or(2);
        let room = self.launcher.at_once() / (4 * usize::try_from(first_look).unwrap_or(1)).max(1);
        if room > 1 { ROUNDS * room } else { 1 }
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

    /// Times the settings that may be the best against the baseline again, with fresh samples and no early stop. After
    /// a screening these are a few, and the workers share them; else each is tried only if the one before did not
    /// settle it, on one worker.
    fn confirm(&self, state: &Mutex<State>, workers: &[Option<&str>]) {
        let mut guard = held(state);
        let is_new = |i: &usize| guard.entries.confirmation(*i).is_none_or(|c| c.comparison.is_none());
        let mut candidates = confirmation_candidates(&guard.entries);
        if guard.entries.records.len() < self.spec.space.points.len() {
            // The time is over: the best that was seen is worth its confirmation, the next ones are not.
            candidates.truncate(1);
        }
        let settled = candidates.iter().any(|i| confirmation_settles(&guard.entries, *i));
        let waiting: Vec<usize> = candidates.into_iter().rev().filter(is_new).collect();
        guard.waiting = if settled { Vec::new() } else { waiting };
        let together = if guard.entries.screened.is_empty() { &workers[..1] } else { workers };
        drop(guard);
        self.all_at(together, |gpu| {
            loop {
                let next: Vec<usize> = {
                    let mut state = held(state);
                    if state.failed.is_some() || state.waiting.is_empty() {
                        return;
                    }
                    // After a screening they are compared with each other, so none ends the search.
                    let room = if state.entries.screened.is_empty() { 1 } else { self.share(&state) };
                    let rest = state.waiting.len().saturating_sub(room);
                    state.waiting.split_off(rest).into_iter().rev().collect()
                };
                next.iter().for_each(|index| (self.watch)(&Progress::Confirming { index: *index }));
                self.runner(gpu).confirm(&next, |confirmation| {
                    let (mut state, index) = (held(state), confirmation.index);
                    match state.journal.confirmation(&confirmation) {
                        Ok(()) => state.entries.add_confirmation(confirmation),
                        Err(error) => state.failed = Some(error),
                    }
                    if confirmation_settles(&state.entries, index) {
                        state.waiting.clear();
                    }
                });
            }
        });
    }
}

fn held(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
