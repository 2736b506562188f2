//! What must not be recommended or ruled out, and the runtimes other tools read.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use kbt_evidence::{Provenance, Standing};
use kbt_split::model::HandoffTimes;
use kbt_split::outcome::{Confirmed, PointStatus, RatioFigure, SplitOutcome};
use kbt_split::record::CheckOutcome;
use kbt_split::{Choice, Space, Spec};
use kbt_target::{Speed, Target, TimingPolicy};
use std::path::Path;

const TARGET: &str = "schema: kbt.target/1\nname: fake\nrun: {command: [fake]}\nknobs:\n  \
    - {name: NUM, values: [1, 3], default: 1}\n  - {name: DEN, values: [4], default: 4}\n  \
    - {name: CHUNKS, values: [4], default: 4}\nhandoff: {num: NUM, den: DEN, chunks: CHUNKS, tiles: 8}\n\
    outputs: [{name: o}]\n";

/// A sweep of the baseline and one other handoff with this word, ratio and interval.
fn swept(speed: Speed, ratio: f64, low: f64, high: f64) -> SplitOutcome {
    let target = Target::from_yaml(TARGET, "fake.yaml", Path::new("")).unwrap();
    let space = Space::new(&target, &Choice::default()).unwrap();
    let spec = Spec::new(target, space, TimingPolicy::default());
    let mut outcome = SplitOutcome { refused: None, ..SplitOutcome::unmeasured(&spec, "") };
    assert_eq!(outcome.points.len(), 2);
    for point in &mut outcome.points {
        point.status = PointStatus::Timed;
        point.check = Some(CheckOutcome::Bitwise);
        point.time_us = Some(1500.0);
        point.provenance = Provenance::measured("a test", "Fake GPU", "2026-12-01");
    }
    let (low_ratio, high_ratio) = (Some(low), Some(high));
    let point = &mut outcome.points[1];
    point.speed = Some(speed);
    point.against = Some(0);
    point.to_baseline = Some(RatioFigure { ratio, low_ratio, high_ratio });
    outcome
}

#[test]
fn a_setting_that_may_still_gain_keeps_the_class_open() {
    let open = swept(Speed::Ambiguous, 0.98, 0.93, 1.03);
    assert_eq!(open.verdicts()[0].standing, Standing::Open, "{open}");
    let settled = swept(Speed::Ambiguous, 1.0, 0.99, 1.01);
    assert_eq!(settled.verdicts()[0].standing, Standing::RuledOut, "{settled}");
}

#[test]
fn a_gain_whose_outputs_nobody_checked_is_not_recommended() {
    let mut outcome = swept(Speed::Faster, 0.8, 0.79, 0.81);
    outcome.confirmed = vec![Confirmed {
        index: 1,
        speed: Some(Speed::Faster),
        to_baseline: outcome.points[1].to_baseline,
        error_rate_ratio: Some(0.01),
        problem: None,
        provenance: outcome.points[1].provenance.clone(),
    }];
    assert_eq!(outcome.verdicts()[0].standing, Standing::Recommended, "{outcome}");
    outcome.points[1].check = Some(CheckOutcome::Unchecked { why: "no outputs".to_owned() });
    let verdict = &outcome.verdicts()[0];
    assert_eq!(verdict.standing, Standing::Open, "{verdict:?}");
    assert!(verdict.reason.contains("nobody checked its outputs"), "{verdict:?}");
}

#[test]
fn the_runtimes_of_t4_are_milliseconds() {
    let t4 = swept(Speed::Same, 1.0, 0.999, 1.001).to_t4();
    assert_eq!(t4["results"][1]["times"]["runtimes"][0], 1.5, "{t4:#}");
    assert_eq!(t4["results"][1]["measurements"][0]["value"], 1.5);
}

#[test]
fn the_headline_of_a_sweep_that_compared_nothing_says_so() {
    let mut outcome = swept(Speed::Same, 1.0, 0.999, 1.001);
    assert!(outcome.headline().starts_with("split: no setting beats the baseline beyond noise; 2 of 2"));
    outcome.points[1].speed = None;
    for status in [PointStatus::Timed, PointStatus::NotRun, PointStatus::Wrong { why: "x".to_owned() }] {
        outcome.points[1].status = status;
        let headline = outcome.headline();
        assert!(headline.starts_with("split: no setting was compared with the baseline; "), "{headline}");
    }
}

#[test]
fn a_model_to_which_all_handoffs_are_the_same_speaks_for_none() {
    let times = |chunk: f64| -> HandoffTimes {
        serde_json::from_value(serde_json::json!({
            "chunk_cycles": chunk, "tile_cycles": chunk / 8.0, "other_consumer_cycles": 300, "round_trip_cycles": 80,
            "producer_other_cycles": 100, "chunks_count": 4, "consumer_feeds_producer": true,
            "provenance": {"kind": "assumed", "by": "a test"}
        }))
        .unwrap()
    };
    let told = |chunk| {
        let outcome = swept(Speed::Same, 1.0, 0.999, 1.001).with_model(&times(chunk)).unwrap();
        let flat = outcome.model.as_ref().unwrap().is_flat();
        let verdict = outcome.verdicts().remove(0);
        let evidence = verdict.evidence.iter().filter(|e| e.statement.starts_with("the model")).count();
        (flat, verdict.reason.contains("the model cannot tell"), evidence)
    };
    assert_eq!(told(0.001), (true, true, 0));
    assert_eq!(told(400.0), (false, false, 1));
}
