//! What must not be recommended or ruled out, and the runtimes other tools read.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use kbt_evidence::{Provenance, Standing, Verdict};
use kbt_split::model::HandoffTimes;
use kbt_split::outcome::{Confirmed, PointStatus, RatioFigure, SplitOutcome};
use kbt_split::record::CheckOutcome;
use kbt_split::{Choice, SameBytes, Space, Spec, Sweep};
use kbt_target::{FakeLauncher, Launch, LaunchRequest, Speed, Target, TimingPolicy};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

const TARGET: &str = "schema: kbt.target/1\nname: fake\nrun: {command: [fake]}\nknobs:\n  \
    - {name: NUM, values: [1, 3], default: 1}\n  - {name: DEN, values: [4], default: 4}\n  \
    - {name: CHUNKS, values: [4], default: 4}\nhandoff: {num: NUM, den: DEN, chunks: CHUNKS, tiles: 8}\n\
    outputs: [{name: o}]\n";

/// The plan of a sweep over these values of NUM, the first of them the baseline's.
fn spec(values: &str) -> Spec {
    planned(&TARGET.replace("[1, 3]", &format!("[{values}]")))
}

fn planned(text: &str) -> Spec {
    let target = Target::from_yaml(text, "fake.yaml", Path::new("")).unwrap();
    let space = Space::new(&target, &Choice::default()).unwrap();
    Spec::new(target, space, TimingPolicy { resamples: 50, ..TimingPolicy::default() })
}

/// A sweep of the baseline and one other handoff with this word, ratio and interval.
fn swept(speed: Speed, ratio: f64, low: f64, high: f64) -> SplitOutcome {
    let outcome = among(&spec("1, 3"), speed, ratio, low, high);
    assert_eq!(outcome.points.len(), 2);
    outcome
}

/// The same among others, which are timed and were not compared.
fn among(spec: &Spec, speed: Speed, ratio: f64, low: f64, high: f64) -> SplitOutcome {
    let mut outcome = SplitOutcome { refused: None, ..SplitOutcome::unmeasured(spec, "") };
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
fn a_word_that_settles_a_setting_rules_it_out_whatever_its_chain_of_intervals_allows() {
    for (speed, standing) in [
        (Speed::Slower, Standing::RuledOut),
        (Speed::Same, Standing::RuledOut),
        (Speed::Ambiguous, Standing::Open),
        (Speed::Faster, Standing::Open),
    ] {
        // Against a setting that was not confirmed the chain may reach far below one.
        let outcome = swept(speed, 0.99, 0.9, 1.08);
        assert_eq!(outcome.verdicts()[0].standing, standing, "{outcome}");
    }
    // What counts is the direct comparison, where there is one.
    let mut outcome = swept(Speed::Faster, 0.9, 0.85, 0.95);
    outcome.confirmed = vec![confirmed(&outcome, Some(Speed::Same), 1.0)];
    assert_eq!(outcome.verdicts()[0].standing, Standing::RuledOut, "{outcome}");
}

fn confirmed(outcome: &SplitOutcome, speed: Option<Speed>, ratio: f64) -> Confirmed {
    let to_baseline = RatioFigure { ratio, low_ratio: Some(ratio - 0.005), high_ratio: Some(ratio + 0.005) };
    Confirmed {
        index: 1,
        speed,
        to_baseline: speed.map(|_| to_baseline),
        error_rate_ratio: Some(0.01),
        problem: None,
        provenance: outcome.points[1].provenance.clone(),
    }
}

/// The reason and the advice of a verdict that leaves the class open.
fn open(outcome: &SplitOutcome) -> (String, String) {
    let Verdict { standing, reason, next, .. } = outcome.verdicts().remove(0);
    assert_eq!(standing, Standing::Open, "{outcome}");
    (reason, next.unwrap_or_default())
}

#[test]
fn settings_that_were_seen_once_rule_nothing_out() {
    let mut outcome = among(&spec("1, 2, 3"), Speed::Same, 1.0, 0.999, 1.001);
    assert_eq!(outcome.points.len(), 3);
    outcome.points[2].to_baseline = Some(RatioFigure { ratio: 1.0123, low_ratio: None, high_ratio: None });
    assert!(outcome.points[2].is_seen_once() && !outcome.points[0].is_seen_once());
    let (reason, next) = open(&outcome);
    let expect = "1 of 2 other legal settings were compared, and none of them beats the baseline beyond noise; 1 was seen \
                  once (the nearest took 1.012 of the baseline's time), which rules nothing out";
    assert_eq!(reason, expect);
    assert!(next.contains("--exhaustive"), "{next}");
    let headline = outcome.headline();
    let expect = "split: none of 1 compared settings beats the baseline beyond noise; 2 of 3 settings timed, 1 more seen \
                  once (the nearest took 1.012 of the baseline's time), 0 forbidden by the contract";
    assert_eq!(headline, expect);
    let text = outcome.to_string();
    assert!(text.lines().any(|l| l.contains("1.012") && l.ends_with("  seen once")), "{text}");
}

#[test]
fn a_whole_screening_of_a_flat_space_leaves_the_class_open() {
    let folder = tempfile::tempdir().unwrap();
    let values = (1..60).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let text = TARGET.replace("[1, 3]", &format!("[{values}]")).replace("tiles: 8", "tiles: 64");
    let spec = planned(&text.replace("values: [4], default: 4", "values: [64], default: 64")).screened();
    let runs = AtomicU32::new(0);
    let launcher = FakeLauncher(|r: &LaunchRequest| {
        if let Some(out) = &r.out {
            std::fs::write(out, "o").unwrap();
        }
        Launch::timed(vec![100.0 + 0.1 * f64::from(runs.fetch_add(1, Ordering::Relaxed) % 3)])
    });
    let outcome = Sweep::prepare(folder.path(), spec, false, &launcher, &SameBytes).unwrap().run().unwrap();
    let seen = outcome.points.iter().filter(|p| p.is_seen_once()).count();
    assert_eq!((outcome.points.len(), seen), (59, 50), "{outcome}");
    let (reason, next) = open(&outcome);
    assert!(reason.starts_with("8 of 58 other legal settings were compared, and none"), "{reason}");
    assert!(reason.contains("; 50 were seen once (the nearest took "), "{reason}");
    assert!(next.contains("--exhaustive"), "{next}");
    // A point's own times are what they are, and no interval.
    let base = outcome.baseline().unwrap();
    assert_eq!((base.low_time_us, base.high_time_us, base.processes_count), (Some(100.0), Some(100.2), 3));
    assert_eq!(outcome.points.iter().find(|p| p.is_seen_once()).unwrap().low_time_us, None);
}

#[test]
fn what_could_not_be_measured_or_was_not_run_rules_nothing_out() {
    let mut outcome = among(&spec("1, 2, 3"), Speed::Slower, 1.1, 1.09, 1.11);
    outcome.points[2].status =
        PointStatus::Unmeasured { why: "setting 0, which it was timed against, failed: exit 9".to_owned() };
    let (reason, next) = open(&outcome);
    let expect = "; 1 could not be measured (setting 0, which it was timed against, failed: exit 9)";
    assert!(reason.ends_with(expect), "{reason}");
    assert!(next.contains("--resume"), "{next}");
    assert!(outcome.headline().contains(", 1 could not be measured, "), "{}", outcome.headline());
    outcome.points[2].status = PointStatus::NotRun;
    let (reason, next) = open(&outcome);
    assert!(reason.ends_with("; 1 was not run") && next.contains("--resume"), "{reason}: {next}");
    // A setting that fails by itself is none that could win.
    outcome.points[2].status = PointStatus::Failed { why: "killed by signal 11".to_owned(), timeout: false };
    assert_eq!(outcome.verdicts()[0].standing, Standing::RuledOut, "{outcome}");
}

#[test]
fn a_gain_that_was_not_confirmed_is_told_as_that() {
    let mut outcome = swept(Speed::Faster, 0.799, 0.784, 0.815);
    let begins = |outcome: &SplitOutcome, expect: &str| {
        let headline = outcome.headline();
        assert!(headline.starts_with(expect), "{headline}");
    };
    let unconfirmed =
        "split: NUM=3 reads 0.799 (0.784 to 0.815) of the baseline's time, faster but not confirmed; ";
    begins(&outcome, unconfirmed);
    let (reason, next) = open(&outcome);
    assert_eq!(reason, "1 of 1 other legal settings read faster, and were not confirmed");
    assert!(next.ends_with("run-one DIR/spec.json --index 1 --confirm"), "{next}");
    // A confirmation that failed is none.
    outcome.confirmed = vec![confirmed(&outcome, None, 0.0)];
    assert_eq!(open(&outcome), (reason, next));
    begins(&outcome, unconfirmed);
    // However small it is, it is no noise.
    assert!(open(&swept(Speed::Faster, 0.99, 0.985, 0.995)).0.contains("read faster"));
    // One that says something else is told beside the table's word.
    outcome.confirmed = vec![confirmed(&outcome, Some(Speed::Ambiguous), 0.998)];
    begins(
        &outcome,
        "split: no setting beats the baseline beyond noise (NUM=3 read faster at first, and ambiguous when timed again: \
         0.998 (0.993 to 1.003)); ",
    );
}

#[test]
fn an_interval_along_a_chain_is_none_at_the_stated_error_rate() {
    let mut outcome = among(&spec("1, 2, 3"), Speed::Ambiguous, 0.98, 0.93, 1.03);
    let said = |outcome: &SplitOutcome| {
        let verdict = outcome.verdicts().remove(0);
        verdict.evidence[0].figures[0].spread.as_ref().unwrap().what.clone()
    };
    assert_eq!(said(&outcome), "interval at the stated error rate");
    outcome.points[1].against = Some(2);
    assert_eq!(said(&outcome), "product of the intervals of several comparisons, whose error rates add");
}

#[test]
fn a_gain_whose_outputs_nobody_checked_is_not_recommended() {
    let mut outcome = swept(Speed::Faster, 0.8, 0.79, 0.81);
    outcome.confirmed = vec![confirmed(&outcome, Some(Speed::Faster), 0.8)];
    assert_eq!(outcome.verdicts()[0].standing, Standing::Recommended, "{outcome}");
    outcome.points[1].check = Some(CheckOutcome::Unchecked { why: "no outputs".to_owned() });
    let verdict = &outcome.verdicts()[0];
    assert_eq!(verdict.standing, Standing::Open, "{verdict:?}");
    assert!(verdict.reason.contains("nobody checked its outputs"), "{verdict:?}");
}

#[test]
fn a_knob_of_the_handoffs_class_that_is_no_part_of_it_gives_the_class_one_verdict() {
    let knob = "  - {name: TILE, values: [1, 2], default: 1, fix: handoff_split}\n";
    let text =
        TARGET.replace("values: [1, 3]", "values: [1]").replace("knobs:\n", &format!("knobs:\n{knob}"));
    let mut outcome = among(&planned(&text), Speed::Faster, 0.8, 0.79, 0.81);
    outcome.best = Some(1);
    outcome.confirmed = vec![confirmed(&outcome, Some(Speed::Faster), 0.8)];
    let standings: Vec<Standing> = outcome.verdicts().iter().map(|v| v.standing).collect();
    assert_eq!(standings, [Standing::Recommended], "{outcome}");
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
