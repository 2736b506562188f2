//! `kbt trace observe` on scripted targets.
#![allow(clippy::unwrap_used, reason = "a test")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn kbt(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kbt")).arg("trace").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn recording(mode: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../../fixtures/recordings/h200-sxm/{mode}/trace.kbttrace"))
}

/// A target that takes 100 us at every level; a run adds a line to `runs`. `more` goes into the target file, and
/// `trace` is what a coarse run leaves.
struct Scripted {
    folder: tempfile::TempDir,
}

impl Scripted {
    fn new(more: &str, trace: &Path, says: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        let script = format!(
            "echo run >> '{at}/runs'\nfor i in 1 2 3; do echo kbt-time-us 100; done\n{says}\n\
             if [ \"$KBT_TRACE\" = coarse ]; then cp '{}' \"$KBT_TRACE_OUT\"; fi\n",
            trace.display()
        );
        std::fs::write(folder.path().join("run.sh"), script).unwrap();
        let yaml = format!(
            "schema: kbt.target/1\nname: scripted\nrun: {{command: [sh, '{at}/run.sh']}}\n{more}\
             trace: {{format: kbt, levels: {{coarse: {{}}}}}}\noutputs: [{{name: o}}]\nlimits: {{cooldown_s: 0}}\n"
        );
        std::fs::write(folder.path().join("target.yaml"), yaml).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn observe(&self, more: &[&str]) -> Output {
        kbt(&[&["observe", &self.path("target.yaml"), "--rounds", "6"], more].concat())
    }

    fn runs(&self) -> usize {
        std::fs::read_to_string(self.path("runs")).map_or(0, |runs| runs.lines().count())
    }
}

fn clean(steps: &str) -> [&str; 6] {
    ["--clean-role", "Softmax0", "--steps-per-sm", steps, "--format", "json"]
}

#[test]
fn the_clean_step_takes_the_traces_clock_where_the_runs_measure_none() {
    let target = Scripted::new("", &recording("fp8"), "");
    let output = target.observe(&clean("100"));
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    let stated = outcome["trace"]["sm_clock_mhz"].as_f64().unwrap();
    let implied = |outcome: &Value| outcome["clean"]["implied_cycles"].as_f64();
    assert_eq!(implied(&outcome), Some(100.0 * stated / 100.0), "{}", text(&output.stderr));
    assert!(
        outcome["clean"]["provenance"].to_string().contains("the trace's own clock"),
        "{}",
        outcome["clean"]
    );
    let output = target.observe(&[&clean("100")[..], &["--clock-mhz", "1234"]].concat());
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(implied(&outcome), Some(1234.0), "{}", text(&output.stderr));
}

#[test]
fn what_is_wrong_with_the_arguments_is_found_before_the_runs() {
    let target = Scripted::new("", &recording("fp8"), "");
    let missing = target.path("no/such/folder/kept.kbttrace");
    for (args, named) in [
        (&["--trace-out", missing.as_str()][..], "no/such/folder/kept.kbttrace: No such file"),
        (
            &["--clean-role", "Softmax0", "--steps-per-sm", "0"],
            "--steps-per-sm 0: accepted: a positive number",
        ),
        (&["--clock-mhz", "-5"], "--clock-mhz"),
    ] {
        let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        let args: Vec<_> = if args[0] == "--clock-mhz" {
            vec!["--clock-mhz=-5"]
        } else {
            args.iter().map(String::as_str).collect()
        };
        let output = target.observe(&args);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(named), "{:?} {said}", output.status);
        assert_eq!(target.runs(), 0, "{said}");
    }
    // The roles are known with the first coarse trace.
    let output = target.observe(&["--clean-role", "Nobody", "--steps-per-sm", "10"]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2), "{said}");
    assert!(
        said.contains("--clean-role Nobody: not in scripted: its coarse trace; accepted: ")
            && said.contains("Softmax0"),
        "{said}"
    );
    assert_eq!(target.runs(), 2, "off and coarse");
}

#[test]
fn the_build_command_runs_once_before_the_runs() {
    let build = "build: {command: [sh, -c, 'echo built >> \"$LOG\"'], env: {LOG: /dev/null}}\n";
    let target = Scripted::new(build, &recording("fp8"), "");
    let log = target.path("runs");
    let yaml = std::fs::read_to_string(target.path("target.yaml")).unwrap().replace("/dev/null", &log);
    std::fs::write(target.path("target.yaml"), yaml).unwrap();
    let output = target.observe(&[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let lines = std::fs::read_to_string(&log).unwrap();
    assert!(lines.starts_with("built\nrun\n") && lines.matches("built").count() == 1, "{lines}");

    let fails = "build: {command: [sh, -c, 'echo no compiler >&2; exit 1']}\n";
    let target = Scripted::new(fails, &recording("fp8"), "");
    let output = target.observe(&[]);
    let said = text(&output.stderr);
    assert!(
        output.status.code() == Some(2) && said.contains("scripted: build: ") && said.contains("no compiler"),
        "{said}"
    );
    assert_eq!(target.runs(), 0);
}

#[test]
fn a_trace_that_cannot_be_read_is_named_by_its_target() {
    let target = Scripted::new("", Path::new("/dev/null"), "");
    let output = target.observe(&[]);
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("scripted: its coarse trace"), "{said}");
    assert!(!said.contains("kbt-trace-observe-"), "{said}");
    assert_eq!(target.runs(), 2, "the first coarse trace tells");
}

#[test]
fn what_was_measured_is_told_where_the_last_trace_cannot_be_analysed() {
    // Every coarse run after the first leaves half a header.
    let half = "if [ -e \"$0.once\" ]; then trap 'printf kbt > \"$KBT_TRACE_OUT\"' EXIT; fi\n\
                if [ \"$KBT_TRACE\" = coarse ]; then touch \"$0.once\"; fi";
    let target = Scripted::new("", &recording("fp8"), half);
    let output = target.observe(&[]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("scripted: its coarse trace") && said.contains("coarse: 100.00 us"), "{said}");
    assert!(said.contains("interval"), "{said}");
}

#[test]
fn json_holds_the_verdicts_that_the_text_has() {
    let target = Scripted::new("", &recording("fp8"), "");
    let printed = text(&target.observe(&[]).stdout);
    let outcome: Value = serde_json::from_slice(&target.observe(&["--format", "json"]).stdout).unwrap();
    assert_eq!(outcome["schema"], "kbt.trace/1");
    let verdicts = outcome["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 4);
    for verdict in verdicts {
        let reason = verdict["reason"].as_str().unwrap();
        assert!(printed.contains(reason), "{reason}: {printed}");
    }
}
