//! `kbt tune` as scripts meet it: exit codes, what is never overwritten, and a kill at any moment.
#![allow(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A replay: no GPU and no CUDA compiler are looked for.
fn kbt(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kbt"));
    command.current_dir(dir).env("KBT_CUDA", dir.join("none")).args(args).stdin(Stdio::null());
    command
}

fn run(dir: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = kbt(dir, args).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

const REPLAY: [&str; 5] = ["tune", "--pv-mode", "fp4", "--device", "recorded:h200-sxm"];

fn replay<'a>(more: &[&'a str]) -> Vec<&'a str> {
    REPLAY.iter().copied().chain(more.iter().copied()).collect()
}

#[test]
fn a_replay_ends_with_a_recommendation_and_a_report() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, err) = run(dir.path(), &replay(&["--out", "r"]));
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("recommendation: eliminate instructions by algebra"), "{out}");
    for file in ["report.html", "report.md", "summary.json", "trace.kbttrace", "facts.yaml"] {
        assert!(dir.path().join("r").join(file).exists(), "{file}");
    }
    let html = std::fs::read_to_string(dir.path().join("r/report.html")).unwrap();
    assert!(!html.contains("src=\"http") && !html.contains("href=\"http"), "the report loads nothing");
}

#[test]
fn runs_of_one_second_do_not_meet() {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let (code, _, err) = run(dir.path(), &replay(&[]));
        assert_eq!(code, Some(0), "{err}");
    }
    assert_eq!(std::fs::read_dir(dir.path().join("kbt-runs")).unwrap().count(), 3);
}

#[test]
fn bad_usage_is_exit_2_and_says_what_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("thesis")).unwrap();
    std::fs::write(dir.path().join("thesis/chapter.tex"), "work").unwrap();
    for (args, says) in [
        (vec!["tune", "--pv-mode", "fp5"], "bf16, fp8, fp4"),
        (vec!["tune", "--pv-mode", "fp4", "--device", "h900"], "recorded:NAME"),
        (vec!["tune", "--pv-mode", "fp4", "--device", "recorded:h900"], "h200-sxm"),
        (vec!["tune", "--pv-mode", "fp4", "--device", "./none.yaml"], "none.yaml"),
        (replay(&["--resume"]), "no unfinished run"),
        (replay(&["--out", "thesis"]), "--force"),
        (replay(&["--out", "thesis", "--force"]), "not a run directory"),
    ] {
        let (code, _, err) = run(dir.path(), &args);
        assert_eq!(code, Some(2), "{args:?}: {err}");
        assert!(err.contains(says), "{args:?}: {err}");
    }
    assert!(dir.path().join("thesis/chapter.tex").exists());
}

#[test]
fn a_run_killed_at_any_moment_resumes_and_no_step_runs_twice() {
    for millis in [0, 5, 20, 40, 80, 120, 160, 200, 250, 300, 400, 600] {
        let dir = tempfile::tempdir().unwrap();
        let mut child = kbt(dir.path(), &replay(&["--out", "r"]))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(millis));
        child.kill().unwrap();
        child.wait().unwrap();
        // Killed before the run directory was whole, there is nothing to resume and a new run may start.
        let again = if dir.path().join("r/run.json").exists() { "--resume" } else { "--force" };
        let (code, out, err) = run(dir.path(), &replay(&["--out", "r", again]));
        assert_eq!(code, Some(0), "killed after {millis} ms: {err}");
        assert!(out.contains("recommendation:"), "{out}");
        let journal = std::fs::read_to_string(dir.path().join("r/journal.jsonl")).unwrap();
        let mut finished: BTreeMap<String, usize> = BTreeMap::new();
        for line in journal.lines() {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            if event["event"] == "step_finished" {
                *finished.entry(event["step"].as_str().unwrap().to_owned()).or_default() += 1;
            }
        }
        assert_eq!(finished.len(), 7, "killed after {millis} ms: {finished:?}");
        assert!(finished.values().all(|n| *n == 1), "killed after {millis} ms: {finished:?}");
    }
}
