//! What could not be measured, through no fault of its own, runs again when a sweep goes on, and nothing else does.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use kbt_split::outcome::{PointStatus, SplitOutcome};
use kbt_split::record::{CheckOutcome, Correctness, Ending};
use kbt_split::{Choice, SameBytes, Space, Spec, Sweep, confirm_one, journal, run_one};
use kbt_target::{FakeLauncher, Launch, LaunchRequest, Setting, Status, Target, TimingPolicy};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

/// A space of so many settings of one knob.
fn spec(points: usize) -> Spec {
    let values = (0..points).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
    let text = format!(
        "schema: kbt.target/1\nname: fake\nrun: {{command: [fake]}}\nknobs:\n  - {{name: N, values: [{values}], \
         default: 0}}\noutputs: [{{name: o}}]\n"
    );
    let target = Target::from_yaml(&text, "fake.yaml", Path::new("")).unwrap();
    let space = Space::new(&target, &Choice::default()).unwrap();
    Spec::new(target, space, TimingPolicy { resamples: 50, ..TimingPolicy::default() })
}

fn knob(setting: &Setting) -> usize {
    setting.get("N").unwrap().parse().unwrap()
}

/// How often each setting was launched.
#[derive(Default)]
struct Counts(Mutex<BTreeMap<usize, usize>>);

impl Counts {
    /// Counts a launch and runs it: the higher the knob the slower, unless `fails` says of the setting and the number of
    /// its launch that it crashes.
    fn run(&self, request: &LaunchRequest, fails: impl Fn(usize, usize) -> bool) -> Launch {
        let n = knob(&request.setting);
        let mut counts = self.0.lock().unwrap();
        let count = counts.entry(n).or_default();
        *count += 1;
        if fails(n, *count) {
            return Launch::ended(Status::Signal { signal: 11 });
        }
        if let Some(out) = &request.out {
            std::fs::write(out, "o").unwrap();
        }
        Launch::timed(vec![100.0 + 5.0 * f64::from(u32::try_from(n).unwrap())])
    }

    fn launched(&self) -> Vec<usize> {
        self.0.lock().unwrap().keys().copied().collect()
    }
}

fn swept(
    dir: &Path,
    spec: &Spec,
    check: &dyn Correctness,
    fails: impl Fn(usize, usize) -> bool + Sync,
) -> (SplitOutcome, Vec<usize>) {
    let counts = Counts::default();
    let launcher = FakeLauncher(|r: &LaunchRequest| counts.run(r, &fails));
    let outcome = Sweep::prepare(dir, spec.clone(), true, &launcher, check).unwrap().run().unwrap();
    (outcome, counts.launched())
}

fn unmeasured(outcome: &SplitOutcome) -> Vec<usize> {
    let points = outcome.points.iter().filter(|p| matches!(p.status, PointStatus::Unmeasured { .. }));
    points.map(|p| p.index).collect()
}

fn journal_text(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("journal.jsonl")).unwrap()
}

#[test]
fn a_point_whose_baseline_crashed_runs_again_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, spec) = (folder.path(), spec(5));
    // One process for its outputs, three for its times; the sixth is the second of the first comparison.
    let (first, _) = swept(dir, &spec, &SameBytes, |n, count| n == 0 && count == 6);
    let [lost] = unmeasured(&first)[..] else { panic!("{first}") };
    let why = first.points[lost].status.why().unwrap();
    assert!(why.contains("setting 0, which it was timed against, failed: killed by signal 11"), "{why}");
    let before = journal_text(dir);
    let entries = journal::load(&dir.join("journal.jsonl")).unwrap();
    let (second, launched) = swept(dir, &spec, &SameBytes, |_, _| false);
    assert_eq!(launched, [0, knob(&spec.space.points[lost].setting)]);
    assert!(second.points.iter().all(|p| p.status == PointStatus::Timed), "{second}");
    assert!(journal_text(dir).starts_with(&before), "lines are only added");
    let t4 = second.to_t4();
    for (point, result) in second.points.iter().zip(t4["results"].as_array().unwrap()) {
        let each: Vec<f64> = point.times_us.iter().map(|us| us / 1000.0).collect();
        assert!(each.len() > 2 && each.len() == point.processes_count, "{point:?}");
        assert_eq!(result["times"]["runtimes"], serde_json::json!(each));
    }
    assert_eq!(second.to_csv().lines().count(), spec.space.points.len() + 1, "a row a point");
    let after = journal::load(&dir.join("journal.jsonl")).unwrap();
    for record in entries.records.iter().filter(|r| r.ending == Ending::Timed) {
        assert_eq!(after.record(record.index), Some(record));
    }
    assert!(after.device_s() > entries.device_s());
    let (third, launched) = swept(dir, &spec, &SameBytes, |_, _| false);
    assert_eq!((third, launched), (second, Vec::new()), "a finished sweep runs nothing");
}

#[test]
fn a_confirmation_that_failed_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, spec) = (folder.path(), spec(3));
    let timed = |crash: usize| {
        let counts = Counts::default();
        let launcher =
            FakeLauncher(|r: &LaunchRequest| match counts.run(r, |n, count| n == 0 && count == crash) {
                launch if launch.is_ok() && knob(&r.setting) == 2 => Launch::timed(vec![50.0]),
                launch => launch,
            });
        Sweep::prepare(dir, spec.clone(), true, &launcher, &SameBytes).unwrap().run().unwrap()
    };
    // Four of the baseline alone, four in each of two comparisons, then the confirmation's.
    let first = timed(14);
    assert!(first.confirmed[0].problem.is_some() && first.confirmed[0].speed.is_none(), "{first}");
    let second = timed(0);
    assert_eq!((second.confirmed.len(), second.confirmed[0].problem.clone()), (1, None), "{second}");
    assert_eq!(second.best, Some(2), "{second}");
}

#[test]
fn a_screened_point_that_nobody_could_check_is_screened_again() {
    struct Blind(usize);
    impl Correctness for Blind {
        fn check(&self, _: &Path, _: &Path, setting: &Setting) -> Result<CheckOutcome, String> {
            if knob(setting) == self.0 {
                Err("the disk is full".to_owned())
            } else {
                Ok(CheckOutcome::Bitwise)
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let spec = spec(60).screened();
    assert!(spec.screening.is_some());
    let (first, _) = swept(folder.path(), &spec, &Blind(30), |_, _| false);
    let lost = unmeasured(&first);
    assert_eq!(
        lost.iter().map(|i| knob(&spec.space.points[*i].setting)).collect::<Vec<_>>(),
        [30],
        "{first}"
    );
    let (second, launched) = swept(folder.path(), &spec, &SameBytes, |_, _| false);
    assert_eq!(launched, [0, 30]);
    assert_eq!(unmeasured(&second), [] as [usize; 0], "{second}");
    assert!(second.points[lost[0]].to_baseline.is_some_and(|r| r.ratio > 1.0), "{second}");
}

#[test]
fn another_engine_asks_again_for_what_measured_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (file, counts) = (folder.path().join("spec.json"), Counts::default());
    spec(3).store(&file).unwrap();
    let ask = |crash: usize| {
        let launcher = FakeLauncher(|r: &LaunchRequest| counts.run(r, |n, count| n == 0 && count == crash));
        let point = run_one(&file, 1, None, &launcher, &SameBytes).unwrap();
        (point.status.word(), counts.0.lock().unwrap()[&1])
    };
    assert_eq!(ask(6).0, "unmeasured");
    let (word, launches) = ask(0);
    assert_eq!(word, "timed");
    assert_eq!(ask(0), ("timed", launches), "what is finished is answered from the journal");
    // The same of a confirmation.
    let confirm = |crash: bool| {
        let launcher = FakeLauncher(|r: &LaunchRequest| counts.run(r, |n, _| crash && n == 0));
        confirm_one(&file, 1, None, &launcher, &SameBytes).unwrap();
        let entries = journal::load(&folder.path().join("journal.jsonl")).unwrap();
        (entries.confirmations.len(), entries.confirmation(1).unwrap().comparison.is_some())
    };
    assert_eq!([true, false].map(confirm), [(1, false), (1, true)]);
}

#[test]
fn a_baseline_that_failed_runs_again_once_the_cause_is_gone() {
    // In whichever stage it failed: with its first process, or while it was timed.
    for crash in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let (dir, spec) = (folder.path(), spec(3));
        let (failed, launched) = swept(dir, &spec, &SameBytes, |n, count| n == 0 && count == crash);
        assert_eq!(launched, [0], "without it there is no sweep");
        assert!(failed.refused.is_some());
        let next = failed.verdicts()[0].next.clone().unwrap_or_default();
        assert!(next.contains("--resume"), "{next}");
        // It failed again, and then not: in another engine, which runs it before any other point.
        let (failed, launched) = swept(dir, &spec, &SameBytes, |n, _| n == 0);
        assert!(failed.refused.is_some() && launched == [0], "{failed}");
        let counts = Counts::default();
        let launcher = FakeLauncher(|r: &LaunchRequest| counts.run(r, |_, _| false));
        let point = run_one(&dir.join("spec.json"), 1, None, &launcher, &SameBytes).unwrap();
        assert_eq!(point.status, PointStatus::Timed);
        let (outcome, launched) = swept(dir, &spec, &SameBytes, |_, _| false);
        assert!(outcome.refused.is_none() && outcome.points.iter().all(|p| p.status == PointStatus::Timed));
        assert!(launched.contains(&2) && !launched.contains(&1), "{launched:?}");
    }
}

#[test]
fn a_process_that_could_not_be_started_says_nothing_of_its_setting() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, spec) = (folder.path(), spec(4));
    let swept = |is_gone: bool| {
        let counts = Counts::default();
        let launcher = FakeLauncher(|r: &LaunchRequest| match knob(&r.setting) {
            2 if is_gone => Launch::ended(Status::NotStarted { reason: "the program is gone".into() }),
            _ => counts.run(r, |_, _| false),
        });
        let sweep = Sweep::prepare(dir, spec.clone(), true, &launcher, &SameBytes);
        let outcome = sweep.unwrap().run().unwrap();
        (outcome, counts.launched())
    };
    let (first, _) = swept(true);
    assert_eq!(unmeasured(&first), [2]);
    let (second, launched) = swept(false);
    assert_eq!(unmeasured(&second), [0; 0]);
    assert_eq!(launched, [0, 2], "nothing else runs again");
}
