//! The order has teeth, and a killed run resumes: over a runner with made-up steps.
#![allow(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use kbt_evidence::{Evidence, Figure, FixClass, Provenance, Standing, Step, Unit, Verdict};
use kbt_ladder::{
    History, Ladder, Origin, RunDir, RunError, RunSpec, Runner, StepFailure, StepOutput, Summary,
};
use std::collections::BTreeMap;

fn spec() -> RunSpec {
    RunSpec {
        schema: "kbt.run/1".into(),
        pv_mode: Some("fp4".into()),
        target: None,
        device: "test".into(),
        quick: false,
        kbt: "test".into(),
    }
}

fn measured(class: FixClass, standing: Standing, step: Step) -> Verdict {
    let p = Provenance::measured("test", "device", "2026-11-30");
    let figure = Figure::new("gain", 1.2, Unit::Ratio, p);
    Verdict::new(class, standing, step, "because").with(Evidence::supports("seen", vec![figure]))
}

fn modelled(class: FixClass, standing: Standing, step: Step) -> Verdict {
    let figure = Figure::new("gain", 1.2, Unit::Ratio, Provenance::modelled("m, 5 %"));
    Verdict::new(class, standing, step, "because").with(Evidence::supports("computed", vec![figure]))
}

#[derive(Default)]
struct Script {
    verdicts: BTreeMap<Step, Vec<Verdict>>,
    refused: Vec<Step>,
    ran: Vec<Step>,
    die_at: Option<Step>,
}

impl Runner for Script {
    fn run(&mut self, step: Step, _: &History<'_>) -> Result<StepOutput, StepFailure> {
        if self.die_at == Some(step) {
            return Err(StepFailure::Fatal("killed".into()));
        }
        self.ran.push(step);
        if self.refused.contains(&step) {
            return Err(StepFailure::Refused { reason: "no GPU".into(), needs: "a GPU".into() });
        }
        Ok(StepOutput {
            origin: Origin::Live,
            headline: format!("{step} done"),
            verdicts: self.verdicts.get(&step).cloned().unwrap_or_default(),
            outcome: serde_json::json!({"schema": "test/1"}),
        })
    }
}

fn climb(dir: &std::path::Path, script: &mut Script) -> (kbt_ladder::Board, Summary) {
    let mut run = RunDir::create(&dir.join("run"), &spec(), true).unwrap();
    let board = Ladder::new(&mut run).climb(script).unwrap();
    let summary = Summary::new(spec(), run.finished(), &board, run.sent_back());
    (board, summary)
}

#[test]
fn a_class_ruled_out_by_measurement_is_never_recommended_later_in_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let mut script = Script::default();
    script
        .verdicts
        .insert(Step::Schedule, vec![measured(FixClass::Reorder, Standing::RuledOut, Step::Schedule)]);
    for step in [Step::Algebra, Step::Handoff, Step::Validate] {
        script.verdicts.insert(step, vec![modelled(FixClass::Reorder, Standing::Recommended, step)]);
    }
    let (board, summary) = climb(dir.path(), &mut script);
    assert!(board.recommended().is_empty());
    assert!(summary.recommendations.is_empty());
    assert_eq!(summary.struck.len(), 3);
    assert_eq!(script.ran.len(), 7, "striking a recommendation runs nothing again");
    assert!(summary.render_text().contains("struck: algebra"));
}

#[test]
fn a_later_measurement_that_contradicts_a_verdict_sends_the_ladder_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut script = Script::default();
    script
        .verdicts
        .insert(Step::Schedule, vec![measured(FixClass::Reorder, Standing::RuledOut, Step::Schedule)]);
    script
        .verdicts
        .insert(Step::Handoff, vec![measured(FixClass::Reorder, Standing::Recommended, Step::Handoff)]);
    let (board, summary) = climb(dir.path(), &mut script);
    let after = &script.ran[6..];
    assert_eq!(script.ran[..6], Step::ALL[..6], "up to the contradiction");
    assert_eq!(after, &Step::ALL[3..], "then again from the step that ruled");
    assert_eq!(board.recommended().len(), 1);
    assert_eq!(summary.sent_back.len(), 1);
    assert!(summary.render_text().contains("went back to schedule"));
}

#[test]
fn a_killed_run_resumes_and_runs_nothing_twice() {
    for die_at in Step::ALL {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let mut first = Script { die_at: Some(die_at), ..Script::default() };
        let mut run = RunDir::create(&path, &spec(), false).unwrap();
        assert!(Ladder::new(&mut run).climb(&mut first).is_err());
        drop(run);
        assert_eq!(RunDir::newest_unfinished(dir.path()).unwrap(), path);
        let mut second = Script::default();
        let mut run = RunDir::resume(&path, &spec()).unwrap();
        Ladder::new(&mut run).climb(&mut second).unwrap();
        run.finish().unwrap();
        let ran: Vec<_> = first.ran.iter().chain(&second.ran).copied().collect();
        assert_eq!(ran, Step::ALL, "killed at {die_at}");
        assert!(matches!(RunDir::newest_unfinished(dir.path()), Err(RunError::NothingToResume(_))));
    }
}

#[test]
fn a_resumed_run_remembers_that_it_was_sent_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let verdicts: BTreeMap<_, _> = [
        (Step::Schedule, vec![measured(FixClass::Reorder, Standing::RuledOut, Step::Schedule)]),
        (Step::Handoff, vec![measured(FixClass::Reorder, Standing::Recommended, Step::Handoff)]),
    ]
    .into();
    let mut first = Script { verdicts: verdicts.clone(), ..Script::default() };
    let mut run = RunDir::create(&path, &spec(), false).unwrap();
    Ladder::new(&mut run).climb(&mut first).unwrap();
    drop(run);
    let mut again = Script { verdicts, ..Script::default() };
    let mut run = RunDir::resume(&path, &spec()).unwrap();
    let board = Ladder::new(&mut run).climb(&mut again).unwrap();
    assert!(again.ran.is_empty());
    assert_eq!(board.recommended().len(), 1);
}

#[test]
fn nothing_half_written_or_altered_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let mut run = RunDir::create(&path, &spec(), false).unwrap();
    Ladder::new(&mut run).climb(&mut Script::default()).unwrap();
    drop(run);
    // A step file without the journal's word for it was being written: it is made again.
    let journal = std::fs::read_to_string(path.join("journal.jsonl")).unwrap();
    let kept: Vec<&str> = journal.lines().take(3).collect();
    std::fs::write(path.join("journal.jsonl"), kept.join("\n") + "\n").unwrap();
    assert_eq!(RunDir::open(&path).unwrap().finished().len(), 2);
    // A step file that is not the one finished is damage, and says so.
    std::fs::write(path.join("steps/0-triage.json"), "{}").unwrap();
    let error = RunDir::open(&path).unwrap_err().to_string();
    assert!(error.contains("0-triage.json"), "{error}");
}

#[test]
fn a_run_is_never_overwritten_without_force_and_a_foreign_folder_never() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    RunDir::create(&path, &spec(), false).unwrap();
    assert!(matches!(RunDir::create(&path, &spec(), false), Err(RunError::Exists(_))));
    RunDir::create(&path, &spec(), true).unwrap();
    let foreign = dir.path().join("thesis");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("chapter1.tex"), "years of work").unwrap();
    assert!(matches!(RunDir::create(&foreign, &spec(), true), Err(RunError::NotARun(_))));
    assert!(foreign.join("chapter1.tex").exists());
    let other = RunSpec { device: "another".into(), ..spec() };
    let error = RunDir::resume(&path, &other).unwrap_err().to_string();
    assert!(error.contains("--device `test`, not `another`"), "{error}");
}

#[test]
fn a_refused_step_does_not_stop_the_ladder() {
    let dir = tempfile::tempdir().unwrap();
    let mut script = Script { refused: vec![Step::Trace], ..Script::default() };
    let (_, summary) = climb(dir.path(), &mut script);
    assert_eq!(summary.steps.len(), 7);
    assert!(summary.render_text().contains("needs: a GPU"));
    let json = serde_json::to_value(&summary).unwrap();
    assert!(kbt_evidence::audit::uncovered_numbers(&json).is_empty());
}
