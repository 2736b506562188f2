//! A real Slurm on loopback: two nodes with generic resources, forty points, one node stopped half-way, one point
//! that segfaults and one that hangs. Every point is accounted for, none twice.
//!
//! The daemons run from a temporary folder with a munge key of their own, so nothing of the machine's own Slurm is
//! touched. Where Slurm is not installed the test says so and stops; with `KBT_REQUIRE_SLURM=1`, as in CI, that is a
//! failure. A task's program is a script that runs this test again, as the kill test does.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on fails")]

mod support;

use kbt_split::outcome::{PointStatus, SplitOutcome};
use kbt_split::slurm::{Slurm, SlurmOptions, SlurmSweep};
use kbt_split::{Choice, Progress, SameBytes, Space, Spec, confirm_one, journal, run_one};
use kbt_target::{ProcessLauncher, Target, TimingPolicy};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use support::LoopbackSlurm;

const POINTS: usize = 40;
const SEGFAULTS: usize = 11;
const HANGS: usize = 23;
const FASTEST: usize = 7;

/// Notes each start with its node and GPU. The baseline is N = 0.
const SCRIPT: &str = "echo $N $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES >> log\n\
    [ $N = 11 ] && kill -SEGV $$\n[ $N = 23 ] && sleep 60\n[ $N = 7 ] && N=-20\n\
    [ -z $KBT_OUT ] || echo o > $KBT_OUT\nsleep 0.05\necho kbt-time-us $((100 + N))\n";

fn spec(folder: &Path) -> Spec {
    let values = (0..POINTS).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
    let text = format!(
        "schema: kbt.target/1\nname: sh\nrun: {{command: [sh, run.sh], pass_env: [SLURMD_NODENAME]}}\nknobs:\n  \
         - {{name: N, values: [{values}], default: 0}}\noutputs: [{{name: o}}]\nlimits: {{cooldown_s: 0, run_s: 3}}\n"
    );
    let target = Target::from_yaml(&text, "sh.yaml", folder).unwrap();
    let space = Space::new(&target, &Choice::default()).unwrap();
    let timing = TimingPolicy { min_blocks: 2, max_blocks: 2, resamples: 50, ..TimingPolicy::default() };
    Spec::new(target, space, timing)
}

/// What a task runs: `split run-one SPEC --index N [--confirm]`, handed over in `RUN_ONE`.
#[test]
fn task() {
    let Ok(arguments) = std::env::var("RUN_ONE") else { return };
    let words: Vec<&str> = arguments.split(' ').collect();
    let (spec_path, index) = (Path::new(words[2]), words[4].parse().unwrap());
    let spec = Spec::load(spec_path).unwrap();
    let launcher = ProcessLauncher::new(&spec.target);
    if words.contains(&"--confirm") {
        confirm_one(spec_path, index, None, &launcher, &SameBytes).unwrap();
    } else {
        run_one(spec_path, index, None, &launcher, &SameBytes).unwrap();
    }
}

#[test]
fn a_real_slurm_runs_every_point_once_though_a_node_is_lost() {
    // Slurm's own count of GPUs can break in the moment that the node is lost; its log says so, and only then is it tried anew.
    let settled = (0..4).any(|_| LoopbackSlurm::start().is_none_or(|slurm| swept_with_a_node_lost(&slurm)));
    assert!(settled, "Slurm lost count of its GPUs four times");
}

/// False where Slurm lost count of its GPUs, so that nothing can be said of the sweep.
fn swept_with_a_node_lost(slurm: &LoopbackSlurm) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("run.sh"), SCRIPT).unwrap();
    let program = folder.join("kbt");
    let test = std::env::current_exe().unwrap();
    let text = format!("#!/bin/sh\nRUN_ONE=\"$*\" exec {} --exact task\n", test.display());
    std::fs::write(&program, text).unwrap();
    support::make_executable(&program);

    let cluster = Slurm::connect_by(Some(slurm.config())).unwrap();
    let options = SlurmOptions {
        poll: Duration::from_millis(300),
        grace: Duration::from_secs(2),
        ..SlurmOptions::new(&program)
    };
    let dir = folder.join("out");
    let finished = Cell::new(0);
    let (stopped, requeued) = (Cell::new(false), Cell::new(0));
    let watch = |progress: &Progress<'_>| match progress {
        Progress::Finished { .. } => finished.set(finished.get() + 1),
        Progress::Requeued { .. } => requeued.set(requeued.get() + 1),
        _ => {}
    };
    let half_way = || {
        if finished.get() >= POINTS / 2 && !stopped.get() && slurm.is_busy("n2") {
            slurm.lose_node("n2");
            stopped.set(true);
        }
        slurm.has_lost_count()
    };
    let mut sweep = SlurmSweep::prepare(&dir, spec(folder), false, &cluster, options).unwrap();
    sweep.watch = &watch;
    sweep.stop = &half_way;
    let outcome = sweep.run();
    if slurm.has_lost_count() {
        return false;
    }
    let outcome = outcome.unwrap();
    assert!(stopped.get(), "node n2 was never stopped");
    assert!(requeued.get() > 0, "no task of the lost node was submitted again");
    accounted(&dir, &outcome);
    let log = std::fs::read_to_string(folder.join("log")).unwrap();
    let places: BTreeSet<&str> = log.lines().filter_map(|l| l.split_once(' ')).map(|(_, at)| at).collect();
    assert_eq!(places, ["n1 0", "n1 1", "n2 0", "n2 1"].into(), "each task has one GPU of its node");
    true
}

/// Every point has one line in the journal, and the two that fail have failed in their own way.
fn accounted(dir: &Path, outcome: &SplitOutcome) {
    let text = std::fs::read_to_string(dir.join("journal.jsonl")).unwrap();
    let lines = text.lines().filter(|l| l.contains("\"kind\":\"point\"")).count();
    let records = journal::load(&dir.join("journal.jsonl")).unwrap().records;
    let indices: BTreeSet<usize> = records.iter().map(|r| r.index).collect();
    assert_eq!(indices, (0..POINTS).collect(), "{outcome}");
    assert_eq!(lines, POINTS, "no point is there twice");
    let why = |i: usize| outcome.points[i].status.why().unwrap_or("-").to_owned();
    assert_eq!(why(SEGFAULTS), "killed by signal 11");
    assert_eq!(why(HANGS), "still running after 3 s, killed");
    let timed = outcome.points.iter().filter(|p| p.status == PointStatus::Timed).count();
    assert_eq!(timed, POINTS - 2, "{outcome}");
    assert_eq!((outcome.best, outcome.confirmed.len()), (Some(FASTEST), 1), "{outcome}");
}
