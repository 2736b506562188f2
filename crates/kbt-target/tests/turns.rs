//! Processes that are set up together and timed in turn, as shell scripts that keep the protocol or break it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use kbt_target::{
    Launch, LaunchRequest, Launcher, ProcessLauncher, Setting, Side, Status, Target, TimingPolicy, compare,
};
use std::path::Path;

/// A program that knows turns and writes down what it does.
const POLITE: &str = "echo setup $1 >>log; echo kbt-ready; read go || exit 9; echo begin $1 >>log\n\
    echo kbt-time-us 5; echo end $1 >>log; echo kbt-done; read rest; echo free $1 >>log\n";

fn target(folder: &Path, script: &str, limits: &str) -> Target {
    std::fs::write(folder.join("run.sh"), script).unwrap();
    let text = format!(
        "schema: kbt.target/1\nname: sh\nrun: {{command: [sh, run.sh, '{{N}}']}}\nknobs:\n  \
         - {{name: N, set: argument, values: [1, 2, 3, 4], default: 1}}\nlimits: {{{limits}}}\n"
    );
    Target::from_yaml(&text, "sh.yaml", folder).unwrap()
}

/// What the processes 1 to `n` gave, and what they wrote down.
fn in_turn(script: &str, limits: &str, n: usize) -> (Vec<Launch>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let target = target(folder.path(), script, limits);
    let request = |i: usize| LaunchRequest::timed(Setting::default().with("N", i.to_string().as_str()));
    let requests: Vec<_> = (1..=n).map(request).collect();
    let launches = ProcessLauncher::new(&target).launch_in_turn(&requests.iter().collect::<Vec<_>>(), 0.0);
    let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    (launches, log.lines().map(str::to_owned).collect())
}

fn statuses(launches: &[Launch]) -> Vec<&Status> {
    launches.iter().map(|l| &l.status).collect()
}

#[test]
fn all_are_set_up_before_the_first_is_timed_and_nothing_is_freed_before_the_last_was() {
    let (launches, log) = in_turn(POLITE, "set_up_at_once: 8", 4);
    assert_eq!(statuses(&launches), [&Status::Ok; 4]);
    assert!(launches.iter().all(|l| l.report.times_us == [5.0]));
    // The first runs ahead once more.
    assert_eq!(log.len(), 20, "{log:?}");
    assert!(
        log[..5].iter().all(|l| l.starts_with("setup")) && log[15..].iter().all(|l| l.starts_with("free"))
    );
    let turns: Vec<String> =
        [1, 1, 2, 3, 4].iter().flat_map(|i| [format!("begin {i}"), format!("end {i}")]).collect();
    assert_eq!(log[5..15], turns);
}

#[test]
fn no_more_are_set_up_than_the_file_allows() {
    let (launches, log) = in_turn(POLITE, "set_up_at_once: 3", 4);
    assert_eq!(launches.len(), 4);
    let place = |line: &str| log.iter().position(|l| l == line).unwrap();
    assert!(place("end 2") < place("setup 3") && place("end 2") < place("setup 4"), "{log:?}");
}

#[test]
fn a_program_that_does_not_wait_is_told_so_whatever_it_does_instead() {
    for script in [
        "echo kbt-time-us 5",
        "echo kbt-ready; echo kbt-time-us 5",
        "echo kbt-ready; echo kbt-time-us 5; echo kbt-done; sleep 60",
        "echo kbt-time-us 5; echo kbt-ready; read go",
    ] {
        let (launches, _) = in_turn(script, "set_up_at_once: 3", 2);
        assert_eq!(statuses(&launches), [&Status::OutOfTurn], "{script}");
        assert!(launches[0].status.to_string().contains("set_up_at_once"));
    }
}

#[test]
fn a_program_may_end_instead_of_saying_that_it_is_done() {
    let (launches, _) = in_turn("echo kbt-ready; read go; echo kbt-time-us 5", "set_up_at_once: 4", 3);
    assert_eq!(statuses(&launches), [&Status::Ok; 3]);
}

#[test]
fn the_first_failure_is_the_last_result_and_who_comes_after_it_never_runs() {
    let crash = format!("[ $1 = 2 ] && kill -SEGV $$\n{POLITE}");
    let (launches, log) = in_turn(&crash, "set_up_at_once: 4", 4);
    assert_eq!(statuses(&launches), [&Status::Ok, &Status::Signal { signal: 11 }]);
    assert!(!log.iter().any(|l| l == "begin 3" || l == "begin 4"), "{log:?}");
    let late = POLITE.replace("echo kbt-time-us 5", "[ $1 = 3 ] && exit 7; echo kbt-time-us 5");
    let (launches, log) = in_turn(&late, "set_up_at_once: 4", 4);
    assert_eq!(statuses(&launches), [&Status::Ok, &Status::Ok, &Status::Exit { code: 7 }]);
    assert!(!log.iter().any(|l| l == "begin 4"), "{log:?}");
}

#[test]
fn the_time_limit_runs_in_set_up_and_turn_and_not_between() {
    // The last waits for longer than the limit.
    let slow = POLITE.replace("echo kbt-time-us", "sleep 2; echo kbt-time-us");
    let (launches, _) = in_turn(&slow, "set_up_at_once: 4, run_s: 5", 3);
    assert_eq!(statuses(&launches), [&Status::Ok; 3]);
    for hangs in
        [format!("sleep 60\n{POLITE}"), POLITE.replace("echo kbt-time-us", "sleep 60; echo kbt-time-us")]
    {
        let (launches, _) = in_turn(&hangs, "set_up_at_once: 3, run_s: 0.5", 2);
        assert_eq!(statuses(&launches), [&Status::TimedOut { limit_s: 0.5 }], "{hangs}");
    }
}

#[test]
fn a_comparison_takes_its_pairs_in_the_order_it_would_without_turns() {
    let orders = ["set_up_at_once: 1", "set_up_at_once: 4", "set_up_at_once: 9"].map(|limits| {
        let folder = tempfile::tempdir().unwrap();
        let script =
            "[ -n \"$KBT_TURN\" ] && { echo kbt-ready; read go; }; echo $1 >>log; echo kbt-time-us 5";
        let target = target(folder.path(), script, limits);
        let [a, b] = ["1", "2"].map(|n| LaunchRequest::timed(Setting::default().with("N", n)));
        let compared =
            compare(&ProcessLauncher::new(&target), &a, &b, &TimingPolicy::default(), 0.0).unwrap();
        assert_eq!(compared.pairs, 4);
        std::fs::read_to_string(folder.path().join("log")).unwrap()
    });
    let [alone, by_pairs, all] = orders;
    assert_eq!(alone, "1\n2\n1\n2\n2\n1\n2\n1\n");
    // With a lead before each batch, which is of the side that comes next.
    assert_eq!(by_pairs, "1\n1\n2\n1\n1\n2\n2\n2\n1\n2\n2\n1\n");
    assert_eq!(all, "1\n1\n2\n1\n2\n2\n1\n2\n1\n");
}

#[test]
fn a_failure_is_put_down_to_the_side_it_was_on() {
    let folder = tempfile::tempdir().unwrap();
    let target = target(folder.path(), &format!("[ $1 = 2 ] && exit 7\n{POLITE}"), "set_up_at_once: 8");
    let [a, b] = ["1", "2"].map(|n| LaunchRequest::timed(Setting::default().with("N", n)));
    let error = compare(&ProcessLauncher::new(&target), &a, &b, &TimingPolicy::default(), 0.0).unwrap_err();
    assert_eq!((error.side, error.launch.status), (Side::B, Status::Exit { code: 7 }));
}

#[test]
fn a_number_of_processes_that_makes_no_sense_is_refused_with_its_line() {
    let text = "schema: kbt.target/1\nname: sh\nrun: {command: [sh]}\nlimits:\n  set_up_at_once: 0\n";
    let error = Target::from_yaml(text, "sh.yaml", Path::new("")).unwrap_err().to_string();
    assert!(error.contains("sh.yaml:5") && error.contains("accepted: 1, or 3 to 64"), "{error}");
}
