//! Two runs against each other.

use crate::fixture::{Fixture, Written};
use kbt_evidence::{Step, audit};
use kbt_frame::{Comparison, Noise, Rule, compare};
use serde_json::{Value, json};

fn against(before: &Written, after: &Written) -> Comparison {
    compare(before.path(), after.path()).unwrap()
}

/// The one difference that a change of the second run makes.
fn difference(step: Step, changes: &[(&str, Value)]) -> (Noise, Rule, String) {
    let changed =
        changes.iter().fold(Fixture::new(), |f, (pointer, value)| f.set(step, pointer, value.clone()));
    let found = against(&Fixture::new().write(), &changed.write());
    let [d] = &found.differences[..] else { panic!("{:?}", found.differences) };
    (d.noise, d.rule, format!("{}.{}", d.table, d.column()))
}

#[test]
fn a_run_against_itself_has_no_difference() {
    let run = Fixture::new().write();
    let found = against(&run, &run);
    assert_eq!((&found.differences, &found.changes, &found.one_sided), (&vec![], &vec![], &vec![]));
    assert_eq!(found.counts.compared_count, found.counts.same_count);
    assert!(found.counts.compared_count > 80, "{}", found.counts.compared_count);
}

#[test]
fn intervals_that_meet_are_noise_and_those_that_do_not_are_none() {
    let point = |us: f64| {
        [
            ("/points/1/time_us", json!(us)),
            ("/points/1/low_time_us", json!(us - 5.0)),
            ("/points/1/high_time_us", json!(us + 5.0)),
        ]
    };
    let judged = |us: f64| difference(Step::Handoff, &point(us));
    assert_eq!(judged(889.0), (Noise::Within, Rule::Intervals, "sweep.time_us".into()));
    assert_eq!(judged(891.0), (Noise::Beyond, Rule::Intervals, "sweep.time_us".into()));
    assert_eq!(judged(869.0), (Noise::Beyond, Rule::Intervals, "sweep.time_us".into()));
}

#[test]
fn a_relative_spread_is_held_against_the_ratio_either_way_round() {
    // The profile says 0.5 % of 16; the changed outcome has no row of its own there.
    let judged = |lanes: f64| difference(Step::Rates, &[("/rates/0/lanes_per_clk_sm", json!(lanes))]);
    assert_eq!(judged(16.07), (Noise::Within, Rule::Ratio, "rates.lanes_per_clk_sm".into()));
    assert_eq!(judged(16.09), (Noise::Beyond, Rule::Ratio, "rates.lanes_per_clk_sm".into()));
    assert_eq!(judged(15.93), (Noise::Within, Rule::Ratio, "rates.lanes_per_clk_sm".into()));
    assert_eq!(judged(15.91), (Noise::Beyond, Rule::Ratio, "rates.lanes_per_clk_sm".into()));
}

#[test]
fn what_does_not_vary_has_no_noise() {
    let mined = difference(Step::Schedule, &[("/variants/0/metrics/interleave/transitions", json!(48))]);
    assert_eq!(mined, (Noise::Beyond, Rule::Exact, "schedule.transitions".into()));
    let same_bits =
        difference(Step::Validate, &[("/variants/1/comparison/tensors/0/bits/max_ulps", json!(4))]);
    assert_eq!(same_bits, (Noise::Beyond, Rule::Exact, "validation.max_ulps".into()));
}

#[test]
fn a_measurement_or_a_model_without_a_spread_is_not_judged() {
    let measured = difference(Step::Trace, &[("/roles/0/slack_cycles", json!(101.0))]);
    assert_eq!(measured, (Noise::Unknown, Rule::NoSpread, "roles.slack_cycles".into()));
    let modelled = difference(Step::Handoff, &[("/model/curve/0/period_cycles", json!(1.0))]);
    assert_eq!(modelled, (Noise::Unknown, Rule::NoSpread, "sweep_model.period_cycles".into()));
}

#[test]
fn a_recording_is_compared_as_the_measurement_that_it_is() {
    let recorded = Fixture::new().set(Step::Trace, "/provenance/kind", json!("recorded"));
    let found = against(&Fixture::new().write(), &recorded.write());
    assert_eq!(found.differences, []);
}

/// A pair of runs with something of everything.
fn pair() -> [Written; 2] {
    let before = Fixture::new().refuse(Step::Algebra);
    let after = Fixture::new()
        // Far beyond its interval.
        .set(Step::Handoff, "/points/1/time_us", json!(800.0))
        .set(Step::Handoff, "/points/1/low_time_us", json!(795.0))
        .set(Step::Handoff, "/points/1/high_time_us", json!(805.0))
        // Beyond it by less.
        .set(Step::Handoff, "/points/0/time_us", json!(911.0))
        .set(Step::Handoff, "/points/0/low_time_us", json!(906.0))
        .set(Step::Handoff, "/points/0/high_time_us", json!(916.0))
        .set(Step::Trace, "/roles/0/period_cycles/median", json!(2100.0))
        .set(Step::Trace, "/roles/0/slack_cycles", json!(null))
        .set(Step::Trace, "/roles/0/tail_cycles", json!(1500.0))
        .set(Step::Schedule, "/variants/0/metrics/local_memory/spill_load_bytes", json!(64))
        .set(Step::Rates, "/suspects/0/standing", json!("open"))
        .set(Step::Handoff, "/points/2/setting/KBT_SPLIT", json!("1/8"));
    [before.write(), after.write()]
}

#[test]
fn what_tells_most_comes_first() {
    let [before, after] = pair();
    let found = against(&before, &after);
    let order: Vec<_> = found.differences.iter().map(|d| (d.noise, d.column(), d.after.value)).collect();
    assert_eq!(
        order,
        [
            (Noise::Beyond, "time_us", 800.0),
            (Noise::Beyond, "time_us", 911.0),
            (Noise::Beyond, "spill_load_bytes", 64.0),
            (Noise::Unknown, "tail_cycles", 1500.0),
            (Noise::Within, "period_cycles", 2100.0),
        ]
    );
}

#[test]
fn it_reads_well() {
    let [before, after] = pair();
    let text = against(&before, &after).render_text(true);
    let short = |text: String, run: &Written, name: &str| text.replace(run.path().to_str().unwrap(), name);
    let text = short(short(text, &before, "BEFORE"), &after, "AFTER");
    insta::assert_snapshot!(text);
}

#[test]
fn it_is_written_and_read_back_alike_and_every_number_is_covered() {
    let [before, after] = pair();
    let found = against(&before, &after);
    let value = serde_json::to_value(&found).unwrap();
    assert_eq!(audit::uncovered_numbers(&value), Vec::<String>::new());
    assert_eq!(serde_json::from_value::<Comparison>(value).unwrap(), found);
}
