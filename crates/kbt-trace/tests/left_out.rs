//! What is left out of the means is said, and too much of it passes no gate.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::*;
use kbt_evidence::{Figure, Provenance, Unit};
use kbt_trace::bindings as b;
use kbt_trace::kbt::RingRecords;
use kbt_trace::outcome::{Absolute, TraceOutcome};
use kbt_trace::{AnalyseOptions, CleanRun, Level, Problem, ProblemKind, ReadOptions};

fn judged(rings: &[RingRecords]) -> TraceOutcome {
    with_clean(rings, None)
}

fn with_clean(rings: &[RingRecords], clean: Option<CleanRun>) -> TraceOutcome {
    let options = AnalyseOptions { observer: Some(observed(1.0)), clean, ..AnalyseOptions::default() };
    analysed(&file(&info(Level::Coarse), 1024, rings), &ReadOptions::default(), options).unwrap()
}

fn problem<'a>(outcome: &'a TraceOutcome, kind: ProblemKind, role: &str) -> Option<&'a Problem> {
    outcome.problems.iter().find(|p| p.kind == kind && p.role.as_deref() == Some(role))
}

/// One CTA of 30 steps and `short` CTAs of 9, whose steps of softmax take `stretch` longer.
fn uneven(short: u32, stretch: u32) -> Vec<RingRecords> {
    let mut rings = pipeline(0, 60, 0);
    for cta in 1..=short {
        let mut more = pipeline(cta, 10, 0);
        for (index, record) in more[0].records.iter_mut().enumerate() {
            record.clock += stretch * (index as u32 / 7);
        }
        rings.extend(more);
    }
    rings
}

#[test]
fn lanes_without_a_steady_state_are_said_and_many_of_them_pass_no_gate() {
    let few = judged(&uneven(0, 0));
    assert_eq!(problem(&few, ProblemKind::ShortLanes, "Softmax"), None);
    // 9 steps beside the 55 steady ones.
    let many = judged(&uneven(1, 0));
    let said = problem(&many, ProblemKind::MostlyShort, "Softmax").unwrap();
    assert!(said.says.contains("9 steps, 14.1 % of the whole ones"), "{said}");
    assert!(matches!(many.absolute, Absolute::Refused { .. }), "{:?}", many.absolute);
    let mut rings = uneven(1, 0);
    rings.extend(pipeline(2, 60, 0));
    let some = judged(&rings);
    let said = problem(&some, ProblemKind::ShortLanes, "Softmax").unwrap();
    assert!(said.count == 1 && said.says.contains("9 steps, 7.6 %"), "{said}");
    assert!(some.absolute.is_accepted(), "{:?}", some.absolute);
}

#[test]
fn ctas_and_sms_are_held_against_each_other_by_their_steady_steps() {
    let mut rings = uneven(1, 400);
    rings.extend(pipeline(2, 60, 0));
    let outcome = judged(&rings);
    let softmax = outcome.role("Softmax").unwrap();
    assert_eq!(softmax.over_ctas_cycles.unwrap().p90.round() as i64, 1000);
    assert_eq!(softmax.over_sms_cycles.unwrap().p90.round() as i64, 1000);
    assert_eq!((softmax.slowest.unwrap().cta, softmax.slowest_sm), (0, Some(0)));
}

/// Three CTAs of 60 steps; of the first, softmax's record `index` of step 20, 21, … is missing.
fn without(index: usize, steps: usize) -> Vec<RingRecords> {
    let mut rings: Vec<_> = (0..3).flat_map(|cta| pipeline(cta, 60, 0)).collect();
    for step in (20..20 + steps).rev() {
        rings[0].records.remove(7 * step + index);
    }
    rings[0].header.total = rings[0].records.len() as u32;
    rings
}

#[test]
fn steps_that_lost_records_pass_no_gate_where_they_are_many() {
    // The end of a wait, whose step is dropped; and the end of an event, whose step is kept.
    for (index, name) in [(1, "wait"), (3, "event")] {
        let outcome = judged(&without(index, 1));
        assert_eq!(problem(&outcome, ProblemKind::StepsLost, "Softmax"), None, "{name}: 0.6 %");
        assert!(outcome.absolute.is_accepted(), "{:?}", outcome.absolute);
        let outcome = judged(&without(index, 2));
        let said = problem(&outcome, ProblemKind::StepsLost, "Softmax").unwrap();
        assert!(said.count == 2 && said.says.contains("1.1 % of its steps"), "{name}: {said}");
        assert!(said.kind.damages());
        assert!(matches!(outcome.absolute, Absolute::Refused { .. }), "{name}: {:?}", outcome.absolute);
    }
    assert!(problem(&judged(&without(1, 2)), ProblemKind::StepDropped, "Softmax").is_some());
}

#[test]
fn an_event_that_is_still_open_at_the_end_is_no_loss() {
    let mut rings = pipeline(0, 30, 0);
    for ring in &mut rings {
        let at = ring.records.last().unwrap().clock + 5;
        ring.records
            .push(b::kbt_trace_record { tag: kbt_trace::kbt::tag(b::KBT_TRACE_BEGIN, TILE, 0), clock: at });
        ring.header.total += 1;
    }
    let outcome = judged(&rings);
    assert!(problem(&outcome, ProblemKind::OrphanBegin, "Softmax").is_some());
    assert!(outcome.absolute.is_accepted(), "{:?}", outcome.absolute);
}

#[test]
fn a_step_half_as_long_as_the_clean_kernels_is_another_step() {
    let clean = |us: f64| {
        let given = || Provenance::given("--clean-us");
        let clean = CleanRun {
            time: Figure::new("clean time", us, Unit::Microseconds, given()),
            sm_clock: Figure::new("SM clock", 2000.0, Unit::Megahertz, given()),
            role: "Softmax".into(),
            steps_per_sm: 30.0,
        };
        with_clean(&pipeline(0, 30, 0), Some(clean)).absolute
    };
    assert!(clean(29.0).is_accepted(), "0.52 of the clean step");
    let Absolute::Refused { reason } = clean(31.0) else { panic!("0.48 of the clean step") };
    assert!(reason.contains("0.484 times") && reason.contains("less than 0.5"), "{reason}");
}
