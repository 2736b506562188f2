//! Two sweeps side by side: points that were stopped early, and points of which one sweep knows nothing.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use kbt_split::outcome::{PointStatus, RatioFigure, SplitOutcome};
use kbt_split::{Agreement, Choice, Space, Spec};
use kbt_target::{Speed, Target, TimingPolicy};
use std::path::Path;

const TARGET: &str = "schema: kbt.target/1\nname: fake\nrun: {command: [fake]}\nknobs:\n  \
    - {name: TILE, values: [1, 2, 3], default: 1}\noutputs: [{name: o}]\n";

/// A point's word, what it was timed against, its ratio to the baseline and the ends of its interval.
type Timed = (Speed, usize, f64, Option<(f64, f64)>);

/// A sweep of the baseline and two points.
fn swept(points: [Timed; 2]) -> SplitOutcome {
    let target = Target::from_yaml(TARGET, "fake.yaml", Path::new("")).unwrap();
    let space = Space::new(&target, &Choice::default()).unwrap();
    let mut outcome = SplitOutcome::unmeasured(&Spec::new(target, space, TimingPolicy::default()), "a test");
    outcome.points[0].status = PointStatus::Timed;
    for (point, (speed, against, ratio, ends)) in outcome.points.iter_mut().skip(1).zip(points) {
        point.status = PointStatus::Timed;
        point.speed = Some(speed);
        point.against = Some(against);
        let (low_ratio, high_ratio) = (ends.map(|e| e.0), ends.map(|e| e.1));
        point.to_baseline = Some(RatioFigure { ratio, low_ratio, high_ratio });
    }
    outcome
}

fn agreement(first: &SplitOutcome, second: &SplitOutcome) -> Agreement {
    Agreement::new(first, second, 0.01).unwrap()
}

const AS_BASELINE: Timed = (Speed::Same, 0, 1.0, Some((0.999, 1.001)));

#[test]
fn a_point_stopped_early_as_slower_contradicts_one_that_is_faster() {
    let faster = swept([AS_BASELINE, (Speed::Faster, 0, 0.9, Some((0.88, 0.92)))]);
    let stopped = swept([AS_BASELINE, (Speed::Slower, 0, 1.4, None)]);
    for found in [agreement(&faster, &stopped), agreement(&stopped, &faster)] {
        assert!(!found.holds() && found.opposite.len() == 1, "{found}");
        assert_eq!((found.compared_count, found.intervals_count), (2, 1));
        assert!(found.to_string().contains("opposite: TILE=3"), "{found}");
    }
}

#[test]
fn two_sweeps_of_which_nothing_was_compared_are_no_agreement() {
    let (both, mut neither) = (swept([AS_BASELINE; 2]), swept([AS_BASELINE; 2]));
    assert_eq!(agreement(&both, &both).refusal(), None);
    for point in &mut neither.points[1..] {
        point.status = PointStatus::NotRun;
    }
    let found = agreement(&both, &neither);
    assert!(found.refusal().is_some_and(|why| why.contains("nothing was compared")), "{found}");
}

#[test]
fn an_early_stop_against_another_setting_counts_where_it_reaches_the_baseline() {
    let faster = swept([AS_BASELINE, (Speed::Faster, 0, 0.9, Some((0.88, 0.92)))]);
    let incumbent = |low, high| (Speed::Faster, 0, 0.5 * (low + high), Some((low, high)));
    let near = swept([incumbent(0.95, 0.97), (Speed::Slower, 1, 1.4, None)]);
    assert_eq!(agreement(&faster, &near).opposite.len(), 1);
    // 10 % slower than a setting that takes half the baseline's time says nothing against the baseline.
    let far = swept([incumbent(0.45, 0.55), (Speed::Slower, 1, 0.9, None)]);
    let unknown = agreement(&faster, &far);
    assert_eq!((unknown.opposite.len(), unknown.compared_count), (0, 1), "{unknown}");
    assert_eq!(unknown.uncompared[0].setting.get("TILE"), Some("3"));
    assert!(unknown.to_string().contains("no interval to the baseline in the second sweep"), "{unknown}");
    // Against one setting in both, the words are enough.
    let other = swept([incumbent(0.45, 0.55), (Speed::Faster, 1, 0.4, None)]);
    assert_eq!(agreement(&other, &far).opposite.len(), 1);
}

#[test]
fn points_that_cannot_be_compared_are_counted_and_named() {
    let whole = swept([AS_BASELINE, AS_BASELINE]);
    let mut part = whole.clone();
    part.points[1].speed = None;
    part.points[2].status = PointStatus::NotRun;
    let found = agreement(&whole, &part);
    let why: Vec<&str> = found.uncompared.iter().map(|u| u.why.as_str()).collect();
    assert_eq!(why, ["screened alone in the second sweep", "not run in the second sweep"]);
    assert!(found.to_string().contains("2 points cannot be compared"), "{found}");
    part.points.truncate(2);
    assert_eq!(agreement(&whole, &part).uncompared[1].why, "not in the second sweep");
    assert_eq!(agreement(&part, &whole).uncompared[1].why, "not in the first sweep");
}

#[test]
fn intervals_are_apart_whichever_sweep_is_the_slower_one() {
    let slow = swept([AS_BASELINE, (Speed::Slower, 0, 1.5, Some((1.45, 1.55)))]);
    let slower = swept([AS_BASELINE, (Speed::Slower, 0, 1.7, Some((1.65, 1.75)))]);
    assert_eq!(agreement(&slow, &slower).apart.len(), 1);
    assert_eq!(agreement(&slower, &slow).apart.len(), 1);
}

#[test]
fn a_word_against_another_setting_than_the_baseline_names_it_and_notes_are_printed() {
    let mut outcome = swept([AS_BASELINE, (Speed::Slower, 1, 0.97, Some((0.96, 0.98)))]);
    for point in &mut outcome.points {
        point.time_us = Some(100.0);
    }
    outcome.points[2].notes = vec!["2 of 4 pairs had a throttled sample".to_owned()];
    for text in [outcome.to_string(), outcome.points[2].to_string()] {
        assert!(text.contains("0.970 (0.960 to 0.980)") && text.contains("slower than 1\n"), "{text}");
        assert!(text.contains("note: 2 of 4 pairs had a throttled sample"), "{text}");
    }
    assert!(outcome.points[1].to_string().ends_with("same"), "{}", outcome.points[1]);
}
