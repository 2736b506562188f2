//! The loop: submits what is not finished in arrays, follows each task, and submits lost ones again.

use super::read::{Ended, Fate, TaskId};
use super::{Cluster, ClusterError, SlurmOptions};
use crate::journal::{self, Entries, Journal};
use crate::outcome::SplitOutcome;
use crate::ranking::{confirmation_candidates, confirmation_settles};
use crate::record::{Confirmation, Ending, Record};
use crate::spec::{Spec, SweepDir, open_dir, write_whole};
use crate::sweep::{Progress, SweepError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// One thing for a task to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Point(usize),
    Confirm(usize),
}

impl Work {
    /// The arguments that ask `run-one` for it.
    fn arguments(self) -> String {
        match self {
            Self::Point(index) => format!("--index {index}"),
            Self::Confirm(index) => format!("--index {index} --confirm"),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let index = words.nth(1)?.parse().ok()?;
        Some(if words.next().is_some() { Self::Confirm(index) } else { Self::Point(index) })
    }

    /// Whether it is done, as far as it is done in one run of the sweep: what measured nothing `before` that is tried again
    /// once.
    fn is_finished(self, entries: &Entries, before: &Entries) -> bool {
        match self {
            Self::Point(index) => {
                let is_new = |r: &Record| before.record(index) != Some(r);
                entries.record(index).is_some_and(|r| r.is_finished() || is_new(r))
            }
            Self::Confirm(index) => {
                let is_new = |c: &Confirmation| before.confirmation(index) != Some(c);
                entries.confirmation(index).is_some_and(|c| c.comparison.is_some() || is_new(c))
            }
        }
    }
}

/// An array that was submitted: a line of `slurm/jobs.jsonl`, so that a sweep that was killed finds its tasks again.
#[derive(Debug, Serialize, Deserialize)]
struct Submitted {
    job: u64,
    /// The file with one line of arguments a task.
    tasks: PathBuf,
}

/// A sweep whose points run as tasks of a cluster.
pub struct SlurmSweep<'a> {
    dir: SweepDir,
    spec: Spec,
    cluster: &'a dyn Cluster,
    options: SlurmOptions,
    /// Called on progress.
    pub watch: &'a dyn Fn(&Progress<'_>),
    /// Whether to end now: what is queued or running is then cancelled.
    pub stop: &'a dyn Fn() -> bool,
    _lock: File,
}

/// What the loop knows.
struct State {
    waiting: VecDeque<Work>,
    /// Tasks out there, with the moment from which one was missing from the queue.
    tasks: BTreeMap<TaskId, (Work, Option<Instant>)>,
    attempts: BTreeMap<Work, u32>,
    /// Since when the cluster has not answered.
    silent: Option<Instant>,
    /// What the journal held when this run began.
    before: Entries,
    /// Points that were told of.
    told: Vec<usize>,
}

impl<'a> SlurmSweep<'a> {
    /// Prepares the directory as [`crate::Sweep::prepare`] does.
    ///
    /// # Errors
    /// Where the directory holds another sweep, or this one without `resume`, or cannot be written.
    pub fn prepare(
        dir: &Path,
        spec: Spec,
        resume: bool,
        cluster: &'a dyn Cluster,
        options: SlurmOptions,
    ) -> Result<Self, SweepError> {
        let (dir, lock) = open_dir(dir, &spec, resume)?;
        let slurm = dir.slurm();
        fs::create_dir_all(&slurm).map_err(SweepError::io(&slurm))?;
        Ok(Self { dir, spec, cluster, options, watch: &|_| {}, stop: &|| false, _lock: lock })
    }

    /// Runs what is not finished yet, the baseline first, and confirms the best at the end.
    ///
    /// # Errors
    /// Where a file of the sweep cannot be read or written, or the cluster does not take or answer for its tasks.
    pub fn run(&self) -> Result<SplitOutcome, SweepError> {
        // Begins the journal, so that tasks only ever append to one.
        let (_, entries) = Journal::open(&self.dir.journal(), &self.spec.digest())?;
        self.dir.holds_baseline(&self.spec, &entries)?;
        let of = self.spec.space.points.len();
        let told: Vec<usize> = entries.records.iter().filter(|r| r.is_finished()).map(|r| r.index).collect();
        (self.watch)(&Progress::Resumed { finished: told.len(), of });
        let mut state = State {
            waiting: VecDeque::new(),
            tasks: BTreeMap::new(),
            attempts: BTreeMap::new(),
            silent: None,
            before: entries,
            told,
        };
        self.adopt(&mut state)?;
        let mut entries = self.follow(&mut state, [Work::Point(0)])?;
        if entries.record(0).is_some_and(|r| r.ending == Ending::Timed) {
            entries = self.follow(&mut state, (1..of).map(Work::Point))?;
            if entries.records.len() == of {
                for index in confirmation_candidates(&entries) {
                    (self.watch)(&Progress::Confirming { index });
                    entries = self.follow(&mut state, [Work::Confirm(index)])?;
                    if confirmation_settles(&entries, index) {
                        break;
                    }
                }
            }
        }
        Ok(SplitOutcome::new(&self.spec, &entries))
    }

    /// Takes over the tasks that an earlier run of this sweep left in the queue.
    fn adopt(&self, state: &mut State) -> Result<(), SweepError> {
        let path = self.dir.slurm().join("jobs.jsonl");
        let Ok(text) = fs::read_to_string(&path) else { return Ok(()) };
        let live = self.cluster.live().map_err(SweepError::Cluster)?;
        // A torn last line is a job that nobody follows: its points run, and a second task finds them finished.
        for job in text.lines().filter_map(|l| serde_json::from_str::<Submitted>(l).ok()) {
            let lines = fs::read_to_string(&job.tasks).map_err(SweepError::io(&job.tasks))?;
            for (task, work) in (0..).zip(lines.lines().filter_map(Work::parse)) {
                let id = TaskId { job: job.job, task };
                if live.contains(&id) {
                    state.tasks.insert(id, (work, None));
                }
            }
        }
        Ok(())
    }

    /// Brings this work to its end, or to the moment when the sweep is told to stop.
    fn follow(&self, state: &mut State, work: impl IntoIterator<Item = Work>) -> Result<Entries, SweepError> {
        let followed = self.follow_to_end(state, work);
        if followed.is_err() || (self.stop)() {
            let mut jobs: Vec<u64> = state.tasks.keys().map(|t| t.job).collect();
            jobs.dedup();
            state.waiting.clear();
            state.tasks.clear();
            if !jobs.is_empty() && !matches!(followed, Err(SweepError::Cluster(_))) {
                self.cluster.cancel(&jobs).map_err(SweepError::Cluster)?;
            }
        }
        followed
    }

    fn follow_to_end(
        &self,
        state: &mut State,
        work: impl IntoIterator<Item = Work>,
    ) -> Result<Entries, SweepError> {
        let entries = journal::load(&self.dir.journal())?;
        let adopted: Vec<Work> = state.tasks.values().map(|(w, _)| *w).collect();
        let is_new = |w: &Work| !w.is_finished(&entries, &state.before) && !adopted.contains(w);
        state.waiting.extend(work.into_iter().filter(is_new));
        loop {
            if !(self.stop)() {
                self.submit(state)?;
            }
            if (self.stop)() || (state.waiting.is_empty() && state.tasks.is_empty()) {
                let entries = journal::load(&self.dir.journal())?;
                self.tell(state, &entries);
                return Ok(entries);
            }
            std::thread::sleep(self.options.poll);
            // The queue first: a task that is not in it any more has written its line before.
            let live = self.cluster.live();
            let entries = journal::load(&self.dir.journal())?;
            self.tell(state, &entries);
            state.tasks.retain(|_, (work, _)| !work.is_finished(&entries, &state.before));
            let Some(live) = self.heard(state, live)? else { continue };
            let mut missing = Vec::new();
            for (id, (work, since)) in &mut state.tasks {
                if live.contains(id) {
                    *since = None;
                } else if since.get_or_insert_with(Instant::now).elapsed() >= self.options.grace {
                    missing.push((*id, *work));
                }
            }
            for (id, work) in missing {
                let Some(known) = self.heard(state, self.cluster.ended(id.job))? else { break };
                state.tasks.remove(&id);
                self.missing(state, id, work, known.get(&id))?;
            }
        }
    }

    /// An answer of the cluster; `None` where it did not give one, which is borne for a while.
    fn heard<T>(&self, state: &mut State, answer: Result<T, ClusterError>) -> Result<Option<T>, SweepError> {
        match answer {
            Ok(answer) => {
                state.silent = None;
                Ok(Some(answer))
            }
            Err(error) => {
                let since = state.silent.get_or_insert_with(Instant::now);
                if since.elapsed() >= self.options.patience {
                    Err(SweepError::Cluster(error))
                } else {
                    Ok(None)
                }
            }
        }
    }

    fn tell(&self, state: &mut State, entries: &Entries) {
        for record in &entries.records {
            let is_new = record.is_finished() || state.before.record(record.index) != Some(record);
            if is_new && !state.told.contains(&record.index) {
                state.told.push(record.index);
                let of = self.spec.space.points.len();
                (self.watch)(&Progress::Finished { record, finished: state.told.len(), of });
            }
        }
    }

    /// Submits what waits, in arrays as large as the cluster takes. A full queue is waited for.
    fn submit(&self, state: &mut State) -> Result<(), SweepError> {
        while !state.waiting.is_empty() {
            let most = usize::try_from(self.cluster.max_tasks().max(1)).unwrap_or(usize::MAX);
            let chunk: Vec<Work> = state.waiting.iter().take(most).copied().collect();
            let (script, tasks) = self.write_array(&chunk)?;
            let count = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
            match self.cluster.submit(&script, count, &self.sbatch_options()) {
                Ok(job) => {
                    self.note(&Submitted { job, tasks })?;
                    state.waiting.drain(..chunk.len());
                    for (task, work) in (0..).zip(chunk) {
                        *state.attempts.entry(work).or_default() += 1;
                        state.tasks.insert(TaskId { job, task }, (work, None));
                    }
                }
                Err(error) => {
                    for file in [&script, &tasks] {
                        fs::remove_file(file).map_err(SweepError::io(file))?;
                    }
                    // Limits on a user's tasks: the next place is free when one of ours has ended.
                    return if state.tasks.is_empty() { Err(SweepError::Cluster(error)) } else { Ok(()) };
                }
            }
        }
        Ok(())
    }

    fn sbatch_options(&self) -> Vec<String> {
        let folder = self.dir.slurm();
        let mut options = vec![
            format!("--job-name=kbt-{}", self.spec.target.name),
            format!("--output={}", folder.join("%A_%a.log").display()),
            format!("--chdir={}", self.dir.0.display()),
        ];
        options.extend(self.options.sbatch.iter().cloned());
        options
    }

    /// The script of an array and the file with its tasks' arguments, named by their place in the order.
    fn write_array(&self, chunk: &[Work]) -> Result<(PathBuf, PathBuf), SweepError> {
        let folder = self.dir.slurm();
        // Never a name that was used before: tasks of an earlier array may still have to read its file.
        let name = |place: u32, kind: &str| folder.join(format!("array-{place}.{kind}"));
        let place = (0..u32::MAX).find(|n| !name(*n, "tasks").exists()).unwrap_or(u32::MAX);
        let [script, tasks] = ["sh", "tasks"].map(|kind| name(place, kind));
        let lines: String = chunk.iter().map(|w| w.arguments() + "\n").collect();
        write_whole(&tasks, lines.as_bytes())?;
        // The task's own words stay unquoted: they are options that this sweep wrote itself.
        let text = format!(
            "#!/bin/sh\n# One point of a sweep a task; any other engine may run the same command.\n\
             arguments=$(sed -n \"$((SLURM_ARRAY_TASK_ID + 1))p\" {})\nexec {} split run-one {} $arguments\n",
            quoted(&tasks.to_string_lossy()),
            quoted(&self.options.program.to_string_lossy()),
            quoted(&self.dir.spec().to_string_lossy()),
        );
        write_whole(&script, text.as_bytes())?;
        Ok((script, tasks))
    }

    fn note(&self, submitted: &Submitted) -> Result<(), SweepError> {
        let path = self.dir.slurm().join("jobs.jsonl");
        let bad = |e: serde_json::Error| SweepError::Content { file: path.clone(), problem: e.to_string() };
        let line = serde_json::to_string(submitted).map_err(bad)? + "\n";
        let append = || {
            let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
            file.write_all(line.as_bytes())?;
            file.sync_data()
        };
        append().map_err(SweepError::io(&path))
    }

    /// A task has ended without its line: it is submitted again where that can help, and given up where not.
    fn missing(
        &self,
        state: &mut State,
        id: TaskId,
        work: Work,
        ended: Option<&Ended>,
    ) -> Result<(), SweepError> {
        let attempts = state.attempts.get(&work).copied().unwrap_or(1);
        let fate = ended.map_or(Fate::Lost, |e| Fate::of(&e.state));
        if fate == Fate::Cancelled {
            // Somebody's wish; the point stays unrun, and `--resume` runs it.
            return Ok(());
        }
        if fate == Fate::Lost && attempts < self.options.attempts {
            state.waiting.push_back(work);
            (self.watch)(&Progress::Requeued { index: work.index(), attempts });
            return Ok(());
        }
        let Work::Point(index) = work else { return Ok(()) };
        let said = ended.map_or_else(|| "Slurm knows nothing of it".to_owned(), ToString::to_string);
        let log = self.dir.slurm().join(format!("{id}.log"));
        let times = if attempts == 1 { String::new() } else { format!(", submitted {attempts} times") };
        let reason =
            format!("its Slurm task {id} ended without a result{times}: {said}; see {}", log.display());
        let setting = self.spec.space.points[index].setting.clone();
        let record = Record::unmeasured(index, setting, reason);
        let (mut journal, _) = Journal::open(&self.dir.journal(), &self.spec.digest())?;
        journal.point(&record).map(drop)
    }
}

impl Work {
    const fn index(self) -> usize {
        match self {
            Self::Point(index) | Self::Confirm(index) => index,
        }
    }
}

/// A word for the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_written_as_arguments_and_read_back() {
        for work in [Work::Point(0), Work::Point(41), Work::Confirm(7)] {
            assert_eq!(Work::parse(&work.arguments()), Some(work));
        }
        assert_eq!(Work::parse("--index x"), None);
    }

    #[test]
    fn words_for_the_shell_are_one_word_whatever_they_hold() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }
}
