//! The embedded recordings read, say how each number is known, and replay to a finished run without a GPU.
#![allow(clippy::unwrap_used, reason = "a failed setup is a failed test")]

use kbt_evidence::{FixClass, Known, Step, audit};
use kbt_kernels::attention::PvMode;
use kbt_ladder::recording::Recording;
use kbt_ladder::steps::AttentionTuner;
use kbt_ladder::{Backend, Board, Ladder, Origin, RunDir, RunSpec};

fn replay(mode: PvMode, dir: &std::path::Path) -> (Board, RunDir) {
    let backend = Backend::Recorded(Box::new(Recording::newest().unwrap()));
    let spec = RunSpec {
        schema: "kbt.run/1".into(),
        pv_mode: Some(mode.to_string()),
        target: None,
        device: backend.describe(),
        quick: false,
        kbt: "test".into(),
    };
    let path = dir.join(mode.as_str());
    let mut run = RunDir::create(&path, &spec, false).unwrap();
    let mut quiet = |_: &str| {};
    let mut tuner = AttentionTuner::new(mode, &backend, &path, None, false, &mut quiet).unwrap();
    let board = Ladder::new(&mut run).climb(&mut tuner).unwrap();
    (board, run)
}

#[test]
fn every_recorded_step_reads_and_every_number_in_it_has_a_provenance() {
    assert!(!Recording::embedded_names().is_empty());
    for name in Recording::embedded_names() {
        let recording = Recording::embedded(name).unwrap();
        assert_eq!(recording.meta.name, name);
        assert_eq!(recording.keys().len(), 3, "one folder a pv mode");
        for key in recording.keys() {
            for step in Step::ALL {
                let record = recording.step(key, step).unwrap().unwrap();
                let value = serde_json::to_value(&record).unwrap();
                let uncovered = audit::uncovered_numbers(&value);
                assert!(uncovered.is_empty(), "{name}/{key}/{step}: {uncovered:?}");
                let figures = record.verdicts.iter().flat_map(|v| &v.evidence).flat_map(|e| &e.figures);
                assert!(figures.into_iter().all(|f| f.provenance.kind != Known::Measured), "{key}/{step}");
            }
        }
    }
}

#[test]
fn each_mode_replays_to_the_end_and_no_number_claims_to_be_measured_here() {
    let dir = tempfile::tempdir().unwrap();
    for mode in PvMode::ALL.iter().copied() {
        let (board, run) = replay(mode, dir.path());
        assert_eq!(run.finished().len(), Step::ALL.len());
        for record in run.finished().values() {
            assert_ne!(record.origin, Origin::Refused, "{mode} {}: {}", record.step, record.headline);
            let value = serde_json::to_value(record).unwrap();
            assert_eq!(audit::uncovered_numbers(&value), [""; 0], "{mode} {}", record.step);
        }
        // The step that is told is that of the roles that set the pace, not of one that waits for them.
        let trace = &run.finished()[&Step::Trace];
        let roles = trace.outcome.as_ref().unwrap()["roles"].as_array().unwrap().clone();
        let paces = roles.iter().filter(|r| r["name"].as_str().unwrap().starts_with("Softmax"));
        let median = paces.map(|r| r["period_cycles"]["median"].as_f64().unwrap()).fold(0.0, f64::max);
        assert!(trace.headline.contains(&format!("step of {median:.0} clk")), "{mode}: {}", trace.headline);
        for verdict in board.standing() {
            assert_ne!(verdict.known(), Some(Known::Measured), "{mode}: {}", verdict.reason);
        }
        let wanted = if mode == PvMode::Fp4 { FixClass::Algebra } else { FixClass::HandoffSplit };
        assert_eq!(board.recommended().first().map(|v| v.class), Some(wanted), "{mode}");
    }
}

#[test]
fn the_recorded_triage_is_what_a_replay_computes() {
    /// The profile is measured anew now and then, and a margin moves with it: the bf16 ceiling by 6 % once.
    const SAME: f64 = 0.10;
    let dir = tempfile::tempdir().unwrap();
    let recording = Recording::newest().unwrap();
    for mode in PvMode::ALL.iter().copied() {
        let (_, run) = replay(mode, dir.path());
        let recorded = recording.step(mode.as_str(), Step::Triage).unwrap().unwrap();
        let replayed = &run.finished()[&Step::Triage];
        let told = "kbt tune --device recorded writes steps/0-triage.json as it belongs in the recording";
        let said = |headline: &str| headline.split(" (").next().unwrap().to_owned();
        assert_eq!(said(&recorded.headline), said(&replayed.headline), "{mode}: {told}");
        let (old, new) = (recorded.outcome.unwrap(), replayed.outcome.clone().unwrap());
        assert_eq!(old["call"], new["call"], "{mode}: {told}");
        assert_eq!(old["evidence"][0]["candidate"], new["evidence"][0]["candidate"], "{mode}: {told}");
        let margin = |o: &serde_json::Value| -> kbt_evidence::Figure {
            serde_json::from_value(o["margin"].clone()).unwrap()
        };
        let (old, new) = (margin(&old), margin(&new));
        assert_eq!(old.name, new.name, "{mode}: {told}");
        assert!((old.value / new.value - 1.0).abs() < SAME, "{mode}: {} {}: {told}", old.value, new.value);
    }
}

#[test]
fn a_damaged_recording_names_the_file_and_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings/h200-sxm");
    for file in ["recording.yaml", "profile.yaml"] {
        std::fs::copy(source.join(file), dir.path().join(file)).unwrap();
    }
    std::fs::create_dir(dir.path().join("bf16")).unwrap();
    std::fs::write(dir.path().join("bf16/0-triage.json"), "{\"schema\": 1}").unwrap();
    let recording = Recording::load(dir.path()).unwrap();
    let error = recording.step("bf16", Step::Triage).unwrap_err().to_string();
    assert!(error.contains("bf16/0-triage.json"), "{error}");
    assert!(recording.step("bf16", Step::Rates).unwrap().is_none());
    std::fs::write(dir.path().join("recording.yaml"), "schema: kbt.recording/2\n").unwrap();
    let error = Recording::load(dir.path()).unwrap_err().to_string();
    assert!(error.contains("recording.yaml"), "{error}");
    let error = Recording::embedded("h300").unwrap_err().to_string();
    assert!(error.contains("h200-sxm"), "{error}");
}
