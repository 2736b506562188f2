//! The engine for clusters on a fake one: arrays of at most so many tasks, lost nodes, tasks that end without a
//! result, cancelled ones, a controller that does not answer, and a sweep that is begun again.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use kbt_split::outcome::{PointStatus, SplitOutcome};
use kbt_split::slurm::{Cluster, ClusterError, Ended, SlurmOptions, SlurmSweep, TaskId};
use kbt_split::{
    CheckOutcome, Choice, Correctness, Progress, SameBytes, Space, Spec, SweepError, confirm_one, journal,
    run_one,
};
use kbt_target::{FakeLauncher, Launch, LaunchRequest, Setting, Target, TimingPolicy};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

const POINTS: usize = 40;
const LARGEST_ARRAY: u32 = 17;

fn spec() -> Spec {
    let values = (0..POINTS).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
    let text = format!(
        "schema: kbt.target/1\nname: fake\nrun: {{command: [fake]}}\nknobs:\n  - {{name: N, values: [{values}], \
         default: 0}}\noutputs: [{{name: o}}]\n"
    );
    let target = Target::from_yaml(&text, "fake.yaml", Path::new("")).unwrap();
    let space = Space::new(&target, &Choice::default()).unwrap();
    let timing = TimingPolicy { min_blocks: 2, max_blocks: 2, resamples: 50, ..TimingPolicy::default() };
    Spec::new(target, space, timing)
}

/// Point 7 is the fastest, the others are slower than the baseline.
fn kernel(request: &LaunchRequest) -> Launch {
    if let Some(out) = &request.out {
        std::fs::write(out, "o").unwrap();
    }
    let n: f64 = request.setting.get("N").unwrap().parse().unwrap();
    Launch::timed(vec![if n == 7.0 { 80.0 } else { 100.0 + n }])
}

/// Runs a few tasks whenever somebody looks at the queue.
#[derive(Default)]
struct Fake {
    spec: PathBuf,
    queued: RefCell<Vec<(TaskId, String)>>,
    ended: RefCell<BTreeMap<TaskId, Ended>>,
    arrays: RefCell<Vec<u32>>,
    options: RefCell<Vec<String>>,
    cancelled: RefCell<Vec<u64>>,
    /// Points that end in a state without a result, and how many times.
    fates: RefCell<BTreeMap<usize, (&'static str, usize)>>,
    runs: RefCell<BTreeMap<String, usize>>,
    deaf: Cell<bool>,
    /// Arrays that are refused while others are queued.
    full: Cell<usize>,
    tasks_per_look: usize,
    /// A point whose outputs nobody can check.
    blind: Cell<Option<usize>>,
}

/// Cannot check a point.
struct Blind(Option<usize>);

impl Correctness for Blind {
    fn check(&self, reference: &Path, outputs: &Path, setting: &Setting) -> Result<CheckOutcome, String> {
        match self.0.filter(|n| setting.get("N") == Some(&n.to_string())) {
            Some(_) => Err("the disk is full".to_owned()),
            None => SameBytes.check(reference, outputs, setting),
        }
    }
}

impl Fake {
    fn new(folder: &Path) -> Self {
        Self { spec: folder.join("spec.json"), tasks_per_look: 5, ..Self::default() }
    }

    fn run(&self, id: TaskId, line: &str) {
        *self.runs.borrow_mut().entry(line.to_owned()).or_default() += 1;
        let mut words = line.split(' ');
        let index: usize = words.nth(1).unwrap().parse().unwrap();
        let ends = |state: &str| Ended { state: state.into(), exit: "0:0".into(), node: "n1".into() };
        if let Some((state, times)) = self.fates.borrow_mut().get_mut(&index)
            && *times > 0
        {
            *times -= 1;
            self.ended.borrow_mut().insert(id, ends(state));
            return;
        }
        let launcher = FakeLauncher(kernel);
        if words.next() == Some("--confirm") {
            confirm_one(&self.spec, index, None, &launcher, &SameBytes).unwrap();
        } else {
            run_one(&self.spec, index, None, &launcher, &Blind(self.blind.get())).unwrap();
        }
        self.ended.borrow_mut().insert(id, ends("COMPLETED"));
    }
}

impl Cluster for Fake {
    fn max_tasks(&self) -> u32 {
        LARGEST_ARRAY
    }

    fn submit(&self, script: &Path, tasks: u32, options: &[String]) -> Result<u64, ClusterError> {
        if self.full.get() > 0 && !self.queued.borrow().is_empty() {
            self.full.set(self.full.get() - 1);
            return Err(ClusterError { command: "sbatch".into(), problem: "too many tasks".into() });
        }
        let lines = std::fs::read_to_string(script.with_extension("tasks")).unwrap();
        assert_eq!(lines.lines().count(), usize::try_from(tasks).unwrap());
        assert!(std::fs::read_to_string(script).unwrap().contains("split run-one"));
        self.arrays.borrow_mut().push(tasks);
        *self.options.borrow_mut() = options.to_vec();
        let job = 100 + self.arrays.borrow().len() as u64;
        let ids = (0..tasks).map(|task| TaskId { job, task });
        self.queued.borrow_mut().extend(ids.zip(lines.lines().map(str::to_owned)));
        Ok(job)
    }

    fn live(&self) -> Result<BTreeSet<TaskId>, ClusterError> {
        if self.deaf.get() {
            return Err(ClusterError { command: "squeue".into(), problem: "no controller".into() });
        }
        let some = self.tasks_per_look.min(self.queued.borrow().len());
        let now: Vec<_> = self.queued.borrow_mut().drain(..some).collect();
        now.iter().for_each(|(id, line)| self.run(*id, line));
        Ok(self.queued.borrow().iter().map(|(id, _)| *id).collect())
    }

    fn ended(&self, job: u64) -> Result<BTreeMap<TaskId, Ended>, ClusterError> {
        Ok(self.ended.borrow().iter().filter(|(id, _)| id.job == job).map(|(i, e)| (*i, e.clone())).collect())
    }

    fn cancel(&self, jobs: &[u64]) -> Result<(), ClusterError> {
        self.queued.borrow_mut().retain(|(id, _)| !jobs.contains(&id.job));
        self.cancelled.borrow_mut().extend(jobs);
        Ok(())
    }
}

fn options() -> SlurmOptions {
    SlurmOptions {
        poll: Duration::from_millis(1),
        grace: Duration::ZERO,
        patience: Duration::from_millis(30),
        ..SlurmOptions::new("/opt/it's kbt")
    }
}

fn sweep(folder: &Path, cluster: &Fake, resume: bool) -> Result<SplitOutcome, SweepError> {
    SlurmSweep::prepare(folder, spec(), resume, cluster, options())?.run()
}

fn indices(folder: &Path) -> Vec<usize> {
    let text = std::fs::read_to_string(folder.join("journal.jsonl")).unwrap();
    let points = text.lines().filter(|l| l.contains("\"kind\":\"point\"")).count();
    let records = journal::load(&folder.join("journal.jsonl")).unwrap().records;
    assert_eq!(records.len(), points, "a point has one line");
    let mut indices: Vec<usize> = records.iter().map(|r| r.index).collect();
    indices.sort_unstable();
    indices
}

#[test]
fn every_point_is_accounted_for_once_whatever_becomes_of_its_task() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Fake::new(folder.path());
    cluster.full.set(2);
    *cluster.fates.borrow_mut() =
        [(3, ("NODE_FAIL", 1)), (4, ("PREEMPTED", 2)), (5, ("OUT_OF_MEMORY", 9)), (6, ("NODE_FAIL", 9))]
            .into();
    let outcome = sweep(folder.path(), &cluster, false).unwrap();
    assert_eq!(indices(folder.path()), (0..POINTS).collect::<Vec<_>>());
    let status = |i: usize| &outcome.points[i].status;
    assert!([3, 4].iter().all(|i| *status(*i) == PointStatus::Timed), "{outcome}");
    let why = |i: usize| status(i).why().unwrap().to_owned();
    assert!(why(5).contains("OUT_OF_MEMORY (exit 0:0) on n1; see "), "{}", why(5));
    assert!(why(6).contains("submitted 3 times: NODE_FAIL"), "{}", why(6));
    let runs = |i: usize| cluster.runs.borrow()[&format!("--index {i}")];
    assert_eq!([3, 4, 5, 6, 8].map(runs), [2, 3, 1, 3, 1]);
    // The baseline, then no array above the cluster's largest, then the lost ones, then the confirmation.
    let arrays = cluster.arrays.borrow().clone();
    assert_eq!(arrays[..3], [1, 17, 17]);
    assert_eq!(cluster.full.get(), 0, "a full queue was waited for");
    let scripts = std::fs::read_dir(folder.path().join("slurm")).unwrap().flatten();
    let scripts = scripts.filter(|f| f.path().extension().is_some_and(|e| e == "sh")).count();
    assert_eq!(scripts, arrays.len(), "an array that was refused leaves no script");
    assert!(arrays.iter().all(|n| *n <= LARGEST_ARRAY));
    assert_eq!((outcome.best, outcome.confirmed.len()), (Some(7), 1), "{outcome}");
    let options = cluster.options.borrow().join(" ");
    assert!(options.contains("--job-name=kbt-fake") && options.contains("--gpus=1"), "{options}");
}

#[test]
fn a_point_that_was_given_up_is_tried_again_when_the_sweep_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Fake::new(folder.path());
    *cluster.fates.borrow_mut() = [(5, ("OUT_OF_MEMORY", 2)), (6, ("NODE_FAIL", 3))].into();
    let first = sweep(folder.path(), &cluster, false).unwrap();
    let word = |o: &SplitOutcome, i: usize| o.points[i].status.word();
    assert_eq!([5, 6, 8].map(|i| word(&first, i)), ["unmeasured", "unmeasured", "timed"]);
    let runs = |i: usize| cluster.runs.borrow()[&format!("--index {i}")];
    assert_eq!([5, 6, 8].map(runs), [1, 3, 1]);
    let (resumed, told) = (Cell::new(0), RefCell::new(BTreeMap::new()));
    let mut again = SlurmSweep::prepare(folder.path(), spec(), true, &cluster, options()).unwrap();
    let watch = |p: &Progress<'_>| match p {
        Progress::Resumed { finished, .. } => resumed.set(*finished),
        Progress::Finished { record, .. } => {
            told.borrow_mut().insert(record.index, record.is_finished());
        }
        _ => {}
    };
    again.watch = &watch;
    let second = again.run().unwrap();
    drop(again);
    // Point 5 has failed once more, which ends its attempt of this run.
    assert_eq!([5, 6, 8].map(|i| word(&second, i)), ["unmeasured", "timed", "timed"]);
    assert_eq!([5, 6, 8].map(runs), [2, 4, 1]);
    assert_eq!(resumed.get(), POINTS - 2);
    assert_eq!(told.into_inner(), [(5, false), (6, true)].into(), "what was given up before is no news");
    let third = sweep(folder.path(), &cluster, true).unwrap();
    assert_eq!((word(&third, 5), [5, 6, 8].map(runs)), ("timed", [3, 4, 1]));
}

#[test]
fn a_task_that_could_measure_nothing_ran_once_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Fake::new(folder.path());
    cluster.blind.set(Some(11));
    let runs = || cluster.runs.borrow()["--index 11"];
    for time in 1..3 {
        let outcome = sweep(folder.path(), &cluster, time > 1).unwrap();
        assert_eq!((outcome.points[11].status.word(), runs()), ("unmeasured", time));
        assert_eq!(outcome.points[11].status.why(), Some("not checked: the disk is full"));
    }
    cluster.blind.set(None);
    let outcome = sweep(folder.path(), &cluster, true).unwrap();
    assert_eq!((outcome.points[11].status.word(), runs()), ("timed", 3));
}

#[test]
fn a_point_script_is_plain_run_one_with_every_path_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("a sweep");
    sweep(&dir, &Fake::new(&dir), false).unwrap();
    let script = std::fs::read_to_string(dir.join("slurm/array-0.sh")).unwrap();
    let spec = std::path::absolute(dir.join("spec.json")).unwrap();
    let expect = format!("exec '/opt/it'\\''s kbt' split run-one '{}' $arguments\n", spec.display());
    assert!(script.starts_with("#!/bin/sh\n") && script.ends_with(&expect), "{script}");
}

#[test]
fn a_cancelled_task_leaves_its_point_for_the_next_time() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Fake::new(folder.path());
    cluster.fates.borrow_mut().insert(9, ("CANCELLED by 0", 1));
    let outcome = sweep(folder.path(), &cluster, false).unwrap();
    assert_eq!(outcome.points[9].status, PointStatus::NotRun);
    assert_eq!(indices(folder.path()).len(), POINTS - 1);
    let before = cluster.runs.borrow().values().sum::<usize>();
    let outcome = sweep(folder.path(), &cluster, true).unwrap();
    assert_eq!(outcome.points[9].status, PointStatus::Timed);
    // Point 9 and the confirmation, which waits for every point.
    assert_eq!(cluster.runs.borrow().values().sum::<usize>() - before, 2);
}

#[test]
fn a_controller_that_falls_silent_ends_the_sweep_and_its_tasks_are_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Fake::new(folder.path());
    let looks = Cell::new(0);
    let mut first = SlurmSweep::prepare(folder.path(), spec(), false, &cluster, options()).unwrap();
    let stop = || {
        looks.set(looks.get() + 1);
        cluster.deaf.set(looks.get() > 6);
        false
    };
    first.stop = &stop;
    let error = first.run().unwrap_err().to_string();
    assert_eq!(error, "squeue: no controller");
    drop(first);
    let left = cluster.queued.borrow().len();
    assert!(left > 10 && cluster.cancelled.borrow().is_empty(), "{left} tasks are still queued");
    cluster.deaf.set(false);
    let submitted = cluster.arrays.borrow().len();
    sweep(folder.path(), &cluster, true).unwrap();
    assert_eq!(indices(folder.path()), (0..POINTS).collect::<Vec<_>>());
    assert_eq!(
        cluster.arrays.borrow().len(),
        submitted + 1,
        "nothing but the confirmation is submitted again"
    );
    assert!(cluster.runs.borrow().values().all(|n| *n == 1), "{:?}", cluster.runs.borrow());
}

#[test]
fn a_sweep_that_is_told_to_stop_cancels_its_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Fake::new(folder.path());
    let mut first = SlurmSweep::prepare(folder.path(), spec(), false, &cluster, options()).unwrap();
    let stop = || cluster.runs.borrow().len() > 12;
    first.stop = &stop;
    let outcome = first.run().unwrap();
    assert!(cluster.queued.borrow().is_empty() && !cluster.cancelled.borrow().is_empty());
    let not_run = outcome.points.iter().filter(|p| p.status == PointStatus::NotRun).count();
    assert!(not_run > 20 && not_run < POINTS - 1, "{not_run}");
}
