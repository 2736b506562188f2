//! Sweeps of a target that knows turns: checks side by side, timed processes set up together and never beside one.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use kbt_split::journal::{self, Entries, Glance};
use kbt_split::outcome::{PointStatus, SplitOutcome};
use kbt_split::{Choice, SameBytes, Space, Spec, Sweep};
use kbt_target::{ProcessLauncher, Target, TimingPolicy};

/// Writes down when it starts, when it is timed and when it ends. N = 3 crashes. A check of another point than the
/// baseline ends only after two of them have begun.
const SCRIPT: &str = "echo start $N ${KBT_DUMP:+check} >>log\n[ $N = 3 ] && kill -SEGV $$\n\
    if [ -n \"$KBT_DUMP\" ] && [ -z \"$KBT_TURN\" ] && [ $N != 0 ]; then\n\
    until [ $(grep -c 'start [1-9].*check' log) -ge 2 ]; do sleep 0.01; done; fi\n\
    [ -n \"$KBT_TURN\" ] && { echo kbt-ready; read go; echo turn $N >>log; }\n\
    echo kbt-time-us $((100 + N))\n\
    [ -n \"$KBT_TURN\" ] && { echo over $N >>log; echo kbt-done; read rest; }\n\
    [ -z \"$KBT_OUT\" ] || echo o >$KBT_OUT\necho end $N >>log\n";

struct Run {
    outcome: SplitOutcome,
    entries: Entries,
    log: Vec<String>,
}

fn sweep(points: usize, at_once: u32, budget_s: Option<f64>) -> Run {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("run.sh"), SCRIPT).unwrap();
    let values = (0..points).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
    let text = format!(
        "schema: kbt.target/1\nname: sh\nrun: {{command: [sh, run.sh]}}\nknobs:\n  - {{name: N, values: [{values}], \
         default: 0}}\noutputs: [{{name: o}}]\nlimits: {{cooldown_s: 0, run_s: 20, set_up_at_once: {at_once}}}\n"
    );
    let target = Target::from_yaml(&text, "sh.yaml", folder.path()).unwrap();
    let space = Space::new(&target, &Choice::default()).unwrap();
    let timing = TimingPolicy { max_blocks: 2, resamples: 50, ..TimingPolicy::default() };
    let spec = Spec::new(target.clone(), space, timing).screened();
    let (launcher, out) = (ProcessLauncher::new(&target), folder.path().join("out"));
    let mut sweep = Sweep::prepare(&out, spec, false, &launcher, &SameBytes).unwrap();
    sweep.budget_s = budget_s;
    let outcome = sweep.run().unwrap();
    let entries = journal::load(&out.join("journal.jsonl")).unwrap();
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
    Run { outcome, entries, log: log.lines().map(|l| l.trim_end().to_owned()).collect() }
}

/// No two processes are timed at once, and none while a check outside a turn runs.
fn assert_timed_alone(log: &[String]) {
    let (mut timed, mut checks) = (None, 0);
    for line in log {
        let (word, n) = line.split_once(' ').unwrap();
        match word {
            "turn" => {
                assert_eq!(timed.replace(n.to_owned()), None, "{line}");
                assert_eq!(checks, 0, "{line}: beside a check");
            }
            "over" => assert_eq!(timed.take().as_deref(), Some(n)),
            "start" if n.ends_with("check") && n != "3 check" => checks += 1,
            "end" if checks > 0 => checks -= 1,
            _ => {}
        }
    }
}

#[test]
fn checks_run_side_by_side_and_timed_processes_alone() {
    let Run { outcome, log, .. } = sweep(7, 4, None);
    assert_timed_alone(&log);
    let status = |i: usize| outcome.points[i].status.word();
    assert_eq!((0..7).map(status).filter(|s| *s == "timed").count(), 6, "{outcome}");
    assert_eq!(status(3), "failed");
    for n in 0..7 {
        let checks = log.iter().filter(|l| **l == format!("start {n} check")).count();
        assert_eq!(checks, 1, "{n}: {log:?}");
    }
}

#[test]
fn points_are_compared_together_as_far_as_there_is_room() {
    // Seventeen beside the lead: the eight processes of a first look for each of two points, not of three.
    let Run { outcome, entries, log } = sweep(6, 18, None);
    let first = |line: &str| log.iter().position(|l| l == line).unwrap();
    assert!(first("start 2") < first("turn 1") && first("turn 2") < first("start 4"), "{log:?}");
    assert!(first("start 5") < first("turn 4"), "{log:?}");
    // A point is in the journal before the next ones are timed.
    let order: Vec<usize> = entries.records.iter().map(|r| r.index).collect();
    assert_eq!(order, [0, 3, 1, 2, 4, 5]);
    // They are timed against one setting, and each has its share of the time.
    let record = |i: usize| entries.record(i).unwrap();
    assert!([1, 2, 4, 5].iter().all(|i| record(*i).against == Some(0) && record(*i).elapsed_s > 0.0));
    let pairs = [1, 2, 4, 5].map(|i| record(i).comparison.as_ref().unwrap().pairs);
    assert_eq!((pairs, outcome.points[3].status.word()), ([4; 4], "failed"));
}

#[test]
fn what_a_budget_leaves_of_a_batch_is_not_run_and_not_lost() {
    let Run { outcome, entries, .. } = sweep(7, 4, Some(0.0));
    assert_eq!(entries.records.len(), 1, "the baseline");
    assert_eq!(outcome.points.iter().filter(|p| p.status == PointStatus::NotRun).count(), 6);
}

#[test]
fn a_screening_takes_turns_and_one_crash_costs_no_other_point_its_sample() {
    let Run { outcome, entries, log } = sweep(50, 8, None);
    let ends = outcome.points.iter().map(|p| p.status.word());
    assert_eq!(ends.filter(|s| *s == "timed").count(), 49, "{outcome}");
    assert_eq!(outcome.points[3].status.word(), "failed");
    assert_eq!(entries.screened.len(), 48, "all but the baseline and the crash");
    let probes = entries.trail.iter().filter(|g| matches!(g, Glance::Probe(_))).count();
    assert_eq!(probes, 49_usize.div_ceil(6), "one before every six points");
    assert!(matches!(entries.trail[0], Glance::Probe(_)));
    let mut timed = None;
    for line in &log {
        match line.split_once(' ').unwrap() {
            ("turn", n) => assert_eq!(timed.replace(n.to_owned()), None, "{line}"),
            ("over", n) => assert_eq!(timed.take().as_deref(), Some(n)),
            _ => {}
        }
    }
    // Screened points are timed in their first process: one turn each, but for one that lost its turn beside the crash.
    let turns = |n: usize| log.iter().filter(|l| **l == format!("turn {n}")).count();
    let left_out = || entries.records.iter().filter(|r| r.screened_ratio.is_some());
    assert!(left_out().count() >= 40);
    assert!(left_out().filter(|r| turns(r.index) != 1).count() <= 1, "{log:?}");
}
