//! Bad input: the file and the field are named, with what would be accepted.

use crate::fixture::{Fixture, Written};
use kbt_evidence::Step;
use kbt_frame::{FrameError, Run, RunTables};
use serde_json::json;
use std::fs;
use std::process::Command;

fn error(written: &Written) -> FrameError {
    let tables = Run::read(written.path()).and_then(|run| RunTables::read(&run));
    tables.err().unwrap_or_else(|| panic!("a damaged run was read"))
}

/// The message, with the run's folder as `RUN`.
fn message(written: &Written) -> String {
    error(written).to_string().replace(&written.path().display().to_string(), "RUN").replace('\\', "/")
}

#[test]
fn a_field_of_another_type_is_named() {
    for (step, pointer, value, expect) in [
        (
            Step::Trace,
            "/roles/0/period_cycles/median",
            json!("fast"),
            "RUN/steps/2-trace.json: field `outcome.roles[0].period_cycles.median`: `fast`; expected a number",
        ),
        (
            Step::Trace,
            "/roles/0/waits/0/handoff",
            json!(1),
            "RUN/steps/2-trace.json: field `outcome.roles[0].waits[0].handoff`: 1; expected true or false",
        ),
        (
            Step::Trace,
            "/roles/0/period_cycles",
            json!(5.0),
            "RUN/steps/2-trace.json: field `outcome.roles[0].period_cycles`: 5.0; expected an object",
        ),
        (
            Step::Trace,
            "/roles",
            json!({}),
            "RUN/steps/2-trace.json: field `outcome.roles`: an object; expected a list",
        ),
        (
            Step::Schedule,
            "/variants/0/metrics/pipes",
            json!([1]),
            "RUN/steps/3-schedule.json: field `outcome.variants[0].metrics.pipes`: a list; expected an object",
        ),
        (
            Step::Schedule,
            "/variants/0/metrics/instructions",
            json!(1.5),
            "RUN/steps/3-schedule.json: field `outcome.variants[0].metrics.instructions`: 1.5; expected a whole number",
        ),
        (
            Step::Rates,
            "/mixes/0/parts",
            json!([["ex2", "one"]]),
            "RUN/steps/1-rates.json: field `outcome.mixes[0].parts`: a list; expected a list of names with counts",
        ),
        (
            Step::Handoff,
            "/points/1/setting",
            json!({"KBT_SPLIT": null}),
            "RUN/steps/5-handoff.json: field `outcome.points[1].setting`: an object; expected an object of text, numbers, true and false",
        ),
        (
            Step::Validate,
            "/variants/0/name",
            json!(null),
            "RUN/steps/6-validate.json: field `outcome.variants[0].name`: missing; it is what tells rows apart",
        ),
        (
            Step::Trace,
            "/schema",
            json!("kbt.trace/2"),
            "RUN/steps/2-trace.json: field `outcome.schema`: `kbt.trace/2`; expected `kbt.trace/1`",
        ),
        (
            Step::Rates,
            "/rates/0/provenance/kind",
            json!("guessed"),
            "RUN/steps/1-rates.json: field `outcome.rates[0].lanes_per_clk_sm`: its provenance: unknown variant `guessed`, \
          expected one of `assumed`, `modelled`, `published`, `given`, `mined`, `recorded`, `measured`",
        ),
    ] {
        let written = Fixture::new().set(step, pointer, value).write();
        assert_eq!(message(&written), expect);
    }
}

#[test]
fn a_number_without_a_provenance_is_refused() {
    let written = Fixture::new().remove(Step::Trace, "", "provenance").write();
    assert_eq!(
        message(&written),
        "RUN/steps/2-trace.json: field `outcome.wait_floor_cycles`: no provenance in an object around it"
    );
}

#[test]
fn numbers_beside_each_other_that_are_known_in_two_ways_are_refused() {
    let other =
        json!({"median": 1.0, "p10": 0.9, "p90": 1.1, "provenance": {"kind": "assumed", "by": "somebody"}});
    let written = Fixture::new().set(Step::Trace, "/roles/0/period_cycles", other).write();
    assert_eq!(
        message(&written),
        "RUN/steps/2-trace.json: field `outcome.roles[0].period_cycles.median`: it is known in another way than \
         the numbers beside it"
    );
}

#[test]
fn damaged_files_are_named() {
    let check = |break_it: &dyn Fn(&Written), expect: &str| {
        let written = Fixture::new().write();
        break_it(&written);
        let message = message(&written);
        assert!(message.starts_with(expect), "{message}");
    };
    check(
        &|w| fs::remove_file(w.path().join("run.json")).unwrap(),
        "RUN: not a run directory (it has no run.json); `kbt tune --out DIR` makes one",
    );
    check(
        &|w| fs::write(w.path().join("run.json"), "{").unwrap(),
        "RUN/run.json: field `.`: EOF while parsing",
    );
    check(
        &|w| fs::write(w.path().join("run.json"), r#"{"schema": "kbt.summary/1"}"#).unwrap(),
        "RUN/run.json: field `schema`: `kbt.summary/1`; expected `kbt.run/1`",
    );
    check(&|w| fs::remove_file(w.step(Step::Trace)).unwrap(), "RUN/steps/2-trace.json: ");
    check(
        &|w| fs::write(w.step(Step::Trace), "{}").unwrap(),
        "RUN/steps/2-trace.json: field `.`: the file is not the one that journal.jsonl finished",
    );
    check(
        &|w| fs::write(w.path().join("profile.yaml"), "rates: []").unwrap(),
        "RUN/profile.yaml: field `schema`: missing; expected `kbt.device/1`",
    );
    check(
        &|w| fs::write(w.path().join("journal.jsonl"), "garbage\n{}\n").unwrap(),
        "RUN/journal.jsonl: field `line 1`: ",
    );
}

#[test]
fn only_steps_that_the_journal_finished_count() {
    let written = Fixture::new().write();
    let journal = written.path().join("journal.jsonl");
    let finished = |text: &str| {
        fs::write(&journal, text).unwrap();
        Run::read(written.path()).unwrap().steps.len()
    };
    let whole = fs::read_to_string(&journal).unwrap();
    assert_eq!(finished(&whole), 7);
    assert_eq!(finished(&whole[..whole.len() - 5]), 6, "a torn line");
    let back = json!({"event": "sent_back", "conflict": {"ruled_out_by": "schedule"}});
    assert_eq!(finished(&format!("{whole}{back}\n")), 3);
    fs::remove_file(&journal).unwrap();
    assert_eq!(Run::read(written.path()).unwrap().steps.len(), 0);
}

#[test]
fn the_command_ends_with_2_and_the_file_on_bad_input() {
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_kbt-frame")).args(args).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let whole = Fixture::new().write();
    let damaged = Fixture::new().set(Step::Handoff, "/points/0/time_us", json!("soon")).write();
    let (whole, bad) = (whole.path().to_str().unwrap(), damaged.path().to_str().unwrap());
    for args in [["export", bad].as_slice(), &["compare", whole, bad], &["compare", bad, whole]] {
        let (code, out, err) = run(args);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{args:?}");
        assert!(err.contains("5-handoff.json: field `outcome.points[0].time_us`: `soon`"), "{err}");
    }
    let (code, _, err) = run(&["export", "/no/such/run"]);
    assert!(code == Some(2) && err.contains("/no/such/run: not a run directory"), "{err}");
    assert_eq!(run(&["compare", whole]).0, Some(2));

    let (code, out, err) = run(&["export", whole]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains("roles.parquet: 2 rows of 20 columns; a row is a warp role"), "{out}");
    let (code, out, _) = run(&["compare", whole, whole, "--format", "json"]);
    assert_eq!(code, Some(0));
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&value["schema"], &value["differences"]), (&json!("kbt.compare/1"), &json!([])));
}
