//! The numbers of hand-made traces, by the definitions of `kbt_trace::analyse`.
#![allow(clippy::float_cmp, clippy::unwrap_used, reason = "a test: its inputs are whole cycles")]

mod common;

use common::*;
use kbt_evidence::{Figure, FixClass, Provenance, Standing, Unit, audit::uncovered_numbers};
use kbt_trace::bindings as b;
use kbt_trace::outcome::{Absolute, Critical, RingCount, TraceOutcome};
use kbt_trace::{AnalyseOptions, CleanRun, Level, ProblemKind, ReadOptions};

fn toy(level: Level, more: AnalyseOptions) -> TraceOutcome {
    let rings: Vec<_> =
        (0..3).flat_map(|cta| pipeline(cta, 30, 7_000_000_000 * u64::from(cta + 1))).collect();
    let more = AnalyseOptions { timeline_steps: 2, ..more };
    analysed(&file(&info(level), 1024, &rings), &ReadOptions::default(), more).unwrap()
}

#[test]
fn period_busy_and_waits_are_those_the_trace_was_made_with() {
    let outcome = toy(Level::Coarse, AnalyseOptions::default());
    let softmax = outcome.role("Softmax").unwrap();
    assert_eq!(softmax.steps, 90);
    assert_eq!(softmax.steady_steps, 3 * (29 - 4));
    let period = softmax.period_cycles.unwrap();
    assert_eq!((period.median, period.p10, period.p90), (1000.0, 1000.0, 1000.0));
    assert_eq!(softmax.busy_cycles, Some(980.0));
    assert_eq!(softmax.waits.len(), 1);
    assert_eq!((softmax.waits[0].on.as_str(), softmax.waits[0].cycles), ("P_empty", Some(20.0)));
    let pv = outcome.role("PV").unwrap();
    assert_eq!(pv.busy_cycles, Some(600.0));
    assert_eq!(pv.waits[0].cycles, Some(400.0));
    assert_eq!(pv.waits[0].released_by, ["Softmax"]);
    assert_eq!(pv.waits[0].round_trip_cycles.unwrap().median, 60.0);
    assert_eq!(pv.waits[0].ready_percent, Some(0.0));
    assert_eq!(pv.events[0].busy_cycles, Some(600.0));
    // A wait costs 20 with nothing to wait for, so P·V is blocked 380 of its 1000.
    assert_eq!(outcome.wait_floor_cycles, Some(20.0));
    assert_eq!((softmax.slack_cycles, pv.slack_cycles), (Some(0.0), Some(380.0)));
    assert_eq!(outcome.critical, Critical::Roles { roles: vec!["Softmax".into()] });
    // 500 before the first step, and the two steps that are no steady state.
    assert_eq!(softmax.prologue_cycles, Some(2500.0));
    assert_eq!(softmax.tail_cycles, Some(2000.0 + 1000.0 + 2.0 * 1000.0));
    assert_eq!(outcome.trace.ctas, 3);
    assert_eq!(outcome.trace.sms, 3);
}

#[test]
fn the_handoff_block_holds_what_the_split_model_takes() {
    let handoff = toy(Level::Coarse, AnalyseOptions::default()).handoff.unwrap();
    assert_eq!((handoff.producers, handoff.consumers), (vec!["Softmax".to_owned()], vec!["PV".to_owned()]));
    assert_eq!(handoff.chunk_cycles, Some(100.0));
    assert_eq!(handoff.chunks_per_step, Some(2.0));
    assert_eq!(handoff.producer_other_cycles, Some(780.0));
    assert_eq!(handoff.tile_cycles, Some(600.0));
    assert_eq!(handoff.tiles_per_handoff, Some(1.0));
    assert_eq!(handoff.consumer_other_cycles, Some(0.0));
    assert_eq!(handoff.wait_first_cycles, Some(400.0));
    assert_eq!(handoff.wait_rest_cycles, None);
    assert_eq!(handoff.wait_free_cycles, Some(20.0));
    assert_eq!(handoff.round_trip_cycles, Some(60.0));
}

#[test]
fn a_wait_of_the_handoff_is_the_mean_over_its_barriers() {
    // P·V waits 400 for one buffer and 100 for the other: a median of both would be neither.
    let mut info = info(Level::Coarse);
    info.barriers[K_FULL as usize] = info.barriers[P_FULL as usize].clone();
    let mut rings = pipeline(0, 30, 0);
    let pv = &mut rings[1];
    let mut records = Vec::new();
    for (index, record) in pv.records.iter().enumerate() {
        records.push(*record);
        if index % 4 == 3 {
            let mut wait = [*record, *record];
            wait[0].tag = kbt_trace::kbt::tag(b::KBT_TRACE_WAIT_BEGIN, K_FULL, 0);
            wait[0].clock -= 100;
            wait[1].tag = kbt_trace::kbt::tag(b::KBT_TRACE_WAIT_END, K_FULL, 0);
            records.insert(records.len() - 1, wait[0]);
            records.insert(records.len() - 1, wait[1]);
        }
    }
    pv.header.total = records.len() as u32;
    pv.records = records;
    let handoff = outcome(&file(&info, 1024, &rings)).handoff.unwrap();
    let waits = [400.0, 100.0];
    assert_eq!(handoff.wait_first_cycles, Some(waits.iter().sum::<f64>() / 2.0));
}

#[test]
fn a_step_much_longer_than_the_clean_kernels_leaves_no_absolute_numbers() {
    let clean = |us: f64| {
        let given = || Provenance::given("--clean-us");
        let clean = CleanRun {
            time: Figure::new("clean time", us, Unit::Microseconds, given()),
            sm_clock: Figure::new("SM clock", 2000.0, Unit::Megahertz, given()),
            role: "Softmax".into(),
            steps_per_sm: 30.0,
        };
        let observer = Some(observed(1.0));
        toy(Level::Coarse, AnalyseOptions { clean: Some(clean), observer, ..AnalyseOptions::default() })
    };
    assert!(clean(15.0).absolute.is_accepted());
    assert!(clean(14.4).absolute.is_accepted(), "4.2 % longer");
    let Absolute::Refused { reason } = clean(14.0).absolute else { panic!("7 % longer") };
    assert!(reason.contains("1.071 times"), "{reason}");
}

fn standings(outcome: &TraceOutcome) -> Vec<(FixClass, Standing)> {
    outcome.verdicts().iter().map(|v| (v.class, v.standing)).collect()
}

#[test]
fn verdicts_need_a_coarse_trace_whose_cost_is_known_and_small() {
    let with = |level, percent: Option<f64>| {
        toy(level, AnalyseOptions { observer: percent.map(observed), ..AnalyseOptions::default() })
    };
    let all_refused =
        |outcome: &TraceOutcome| outcome.verdicts().iter().all(|v| v.standing == Standing::Refused);
    let unknown = with(Level::Coarse, None);
    assert!(matches!(unknown.absolute, Absolute::Unknown { .. }) && all_refused(&unknown));
    let costly = with(Level::Coarse, Some(7.0));
    assert!(matches!(costly.absolute, Absolute::Refused { .. }) && all_refused(&costly));
    let detail = with(Level::Detail, Some(1.0));
    assert!(matches!(detail.absolute, Absolute::Refused { .. }) && all_refused(&detail));
    let good = with(Level::Coarse, Some(1.0));
    assert!(good.absolute.is_accepted());
    let expected = [
        (FixClass::MemoryTraffic, Standing::Refused),
        (FixClass::TensorThroughput, Standing::RuledOut),
        (FixClass::RoleBalance, Standing::Open),
        (FixClass::HandoffSplit, Standing::Open),
    ];
    assert_eq!(standings(&good), expected);
    let split = good.verdicts().into_iter().find(|v| v.class == FixClass::HandoffSplit).unwrap();
    assert!(split.is_measured(), "rests on the recorded trace and the measured cost");
    assert_eq!(split.evidence[0].figures[0].value, 0.0);
}

#[test]
fn roles_that_all_wait_form_a_circle() {
    // Each role waits half of each step for the other.
    let (mut softmax, mut pv) = (Vec::new(), Vec::new());
    for step in 0..20 {
        let at = step * 1000;
        softmax.extend([
            (b::KBT_TRACE_WAIT_BEGIN, P_EMPTY, at),
            (b::KBT_TRACE_WAIT_END, P_EMPTY, at + 500),
            (b::KBT_TRACE_ARRIVE, P_FULL, at + 990),
            // A wait that costs nothing but itself, so that the floor is 10.
            (b::KBT_TRACE_WAIT_BEGIN, K_FULL, at + 990),
            (b::KBT_TRACE_WAIT_END, K_FULL, at + 1000),
        ]);
        pv.extend([
            (b::KBT_TRACE_WAIT_BEGIN, P_FULL, at + 500),
            (b::KBT_TRACE_WAIT_END, P_FULL, at + 1000),
            (b::KBT_TRACE_ARRIVE, P_EMPTY, at + 1490),
        ]);
    }
    let rings = [ring(0, SOFTMAX, 0, &softmax, 30_000), ring(0, PV, 0, &pv, 30_000)];
    let outcome = outcome(&file(&info(Level::Coarse), 1024, &rings));
    let Critical::Cycle { roles, barriers } = &outcome.critical else { panic!("{:?}", outcome.critical) };
    assert_eq!(roles, &["Softmax", "PV"]);
    assert_eq!(barriers, &["P_empty", "P_full"]);
    let observer = Some(observed(1.0));
    let options = AnalyseOptions { observer, ..AnalyseOptions::default() };
    let outcome =
        analysed(&file(&info(Level::Coarse), 1024, &rings), &ReadOptions::default(), options).unwrap();
    let expected = [
        (FixClass::MemoryTraffic, Standing::RuledOut),
        (FixClass::TensorThroughput, Standing::Open),
        (FixClass::RoleBalance, Standing::Open),
        (FixClass::HandoffSplit, Standing::Open),
    ];
    assert_eq!(standings(&outcome), expected);
}

#[test]
fn few_steps_are_said_to_hold_the_prologue_and_give_no_verdict() {
    let bytes = file(&info(Level::Coarse), 64, &pipeline(0, 5, 0));
    let options = AnalyseOptions { observer: Some(observed(1.0)), ..AnalyseOptions::default() };
    let outcome = analysed(&bytes, &ReadOptions::default(), options).unwrap();
    assert_eq!(outcome.role("Softmax").unwrap().period_cycles.unwrap().median, 1000.0);
    assert!(outcome.problems.iter().any(|p| p.kind == ProblemKind::PrologueOnly));
    assert!(outcome.verdicts().iter().all(|v| v.standing == Standing::Refused));
}

#[test]
fn a_trace_without_waits_gives_a_period_and_refuses_the_rest_by_name() {
    let records: Vec<_> = (0..20)
        .flat_map(|i| [(b::KBT_TRACE_BEGIN, TILE, i * 100), (b::KBT_TRACE_END, TILE, i * 100 + 50)])
        .collect();
    let outcome = outcome(&file(&info(Level::Coarse), 64, &[ring(0, 2, 0, &records, 5000)]));
    let load = outcome.role("Load").unwrap();
    assert_eq!(load.period_cycles.unwrap().median, 100.0);
    assert_eq!((load.busy_cycles, load.slack_cycles), (None, None));
    assert!(
        outcome.problems.iter().any(|p| p.kind == ProblemKind::NoWaits && p.role.as_deref() == Some("Load"))
    );
    let Critical::Unknown { reason } = &outcome.critical else { panic!("{:?}", outcome.critical) };
    assert!(reason.contains("wait-begin"), "{reason}");
}

#[test]
fn the_clean_step_is_set_beside_the_traces() {
    let measured = || Provenance::measured("bench", "Test GPU", "2026-11-30");
    let clean = CleanRun {
        time: Figure::new("clean time", 15.0, Unit::Microseconds, measured()),
        sm_clock: Figure::new("SM clock", 2000.0, Unit::Megahertz, measured()),
        role: "Softmax".into(),
        steps_per_sm: 30.0,
    };
    let outcome =
        toy(Level::Coarse, AnalyseOptions { clean: Some(clean.clone()), ..AnalyseOptions::default() });
    let step = outcome.clean.unwrap();
    // 15 us at 2 GHz are 30000 cycles.
    assert_eq!((step.implied_cycles, step.inflation_ratio), (1000.0, 1.0));
    assert_eq!(step.provenance.kind, kbt_evidence::Known::Recorded, "the trace is the weakest input");
    let wrong =
        AnalyseOptions { clean: Some(CleanRun { role: "MMA".into(), ..clean }), ..AnalyseOptions::default() };
    let bytes = file(&info(Level::Coarse), 1024, &pipeline(0, 30, 0));
    let error = analysed(&bytes, &ReadOptions::default(), wrong).unwrap_err().to_string();
    assert!(error.contains("Softmax, PV"), "{error}");
}

#[test]
fn the_timeline_shows_whole_steps_with_their_releases() {
    let timeline = toy(Level::Coarse, AnalyseOptions::default()).timeline.unwrap();
    assert_eq!((timeline.role.as_str(), timeline.steps, timeline.length_cycles), ("Softmax", 2, 2000.0));
    let spans: Vec<_> =
        timeline.rows[0].spans.iter().map(|s| (s.label.as_str(), s.start_cycles, s.end_cycles)).collect();
    let expected = [
        ("P_empty", 0.0, 20.0),
        ("chunk", 700.0, 800.0),
        ("chunk", 850.0, 950.0),
        ("P_empty", 1000.0, 1020.0),
        ("chunk", 1700.0, 1800.0),
        ("chunk", 1850.0, 1950.0),
    ];
    assert_eq!(spans, expected);
    let arrow = &timeline.arrows[0];
    assert_eq!((arrow.from.as_str(), arrow.from_cycles), ("Softmax", 960.0));
    assert_eq!((arrow.to.as_str(), arrow.to_cycles), ("PV", 1020.0));
}

#[test]
fn a_ring_is_as_full_as_its_fills_and_releases_say() {
    let rings: Vec<_> = (0..2).flat_map(|cta| filled_and_freed(cta, 30)).collect();
    let outcome = outcome(&file(&info(Level::Coarse), 1024, &rings));
    let [ring] = &outcome.rings[..] else { panic!("{:?}", outcome.rings) };
    assert_eq!((ring.name.as_str(), ring.full.as_str(), ring.empty.as_str()), ("P", "P_full", "P_empty"));
    assert_eq!(
        (&ring.producers[..], &ring.consumers[..]),
        (&["Softmax".to_owned()][..], &["PV".to_owned()][..])
    );
    // Taken from 960 to 1600 of each 1000: 640 of a step, but for the 360 after the last release.
    let (taken, total) = (30.0 * 640.0, 30.0 * 1000.0 - 360.0);
    assert!((ring.mean_slots - taken / total).abs() < 1e-12, "{}", ring.mean_slots);
    assert!((ring.empty_percent - 100.0 * (1.0 - taken / total)).abs() < 1e-9);
    assert_eq!((ring.peak_slots, ring.ctas, ring.relative), (1, 2, false));
    let drawn = &outcome.timeline.as_ref().unwrap().rings[0];
    let samples: Vec<_> = drawn.samples.iter().map(|s| (s.at_cycles, s.slots)).collect();
    assert_eq!(samples[..3], [(0.0, 1), (600.0, 0), (960.0, 1)]);
    assert!(outcome.render_text().contains("ring P: 0.65 slots taken"), "{}", outcome.render_text());
}

#[test]
fn without_releases_slots_ahead_are_counted_and_without_waits_none() {
    // Softmax has its slot at 20 of each step; P·V picks it up at 1020, when softmax has the next one.
    let ahead = toy(Level::Coarse, AnalyseOptions::default());
    let ring = &ahead.rings[0];
    assert_eq!((ring.counted, ring.mean_slots, ring.peak_slots), (RingCount::Ahead, 1.0, 1));
    let alone = outcome(&file(&info(Level::Coarse), 1024, &pipeline(0, 30, 0)[..1]));
    assert_eq!(alone.rings, []);
    let said = alone.problems.iter().find(|p| p.kind == ProblemKind::NoOccupancy).unwrap();
    assert!(said.says.contains("(P)"), "{}", said.says);
}

#[test]
fn the_outcome_does_not_depend_on_the_number_of_threads() {
    let mut rings: Vec<_> = (0..40).flat_map(|cta| filled_and_freed(cta, 30)).collect();
    // Something odd in the middle, and lanes that differ.
    for (index, ring) in rings.iter_mut().enumerate().filter(|(i, _)| i % 7 == 3) {
        ring.records.remove(index % 20);
        ring.records[40].clock += index as u32;
    }
    let bytes = file(&info(Level::Coarse), 1024, &rings);
    let on = |threads| {
        let more = AnalyseOptions {
            threads: std::num::NonZeroUsize::new(threads),
            timeline_steps: 3,
            ..AnalyseOptions::default()
        };
        analysed(&bytes, &ReadOptions::default(), more).unwrap()
    };
    let one = on(1);
    assert!(one.problems.iter().any(|p| p.kind == ProblemKind::OrphanEnd), "{:?}", one.problems);
    for threads in [2, 3, 8] {
        assert_eq!(on(threads), one, "{threads} threads");
    }
}

#[test]
fn sms_are_held_against_each_other() {
    // CTAs 0 and 2 run on SM 0, CTA 1 on SM 2, where every step of softmax takes 20 longer.
    let mut rings: Vec<_> = (0..3).map(|cta| pipeline(cta, 30, 0).swap_remove(0)).collect();
    rings[2].header.smid = 0;
    for (index, record) in rings[1].records.iter_mut().enumerate() {
        record.clock += 20 * (index as u32 / 7);
    }
    let softmax = outcome(&file(&info(Level::Coarse), 1024, &rings)).role("Softmax").unwrap().clone();
    let sms = softmax.over_sms_cycles.unwrap();
    assert_eq!((sms.p10, sms.p90, softmax.slowest_sm), (1002.0, 1018.0, Some(2)));
    let ctas = softmax.over_ctas_cycles.unwrap();
    assert_eq!((ctas.p10, ctas.median, ctas.p90), (1000.0, 1000.0, 1016.0));
    assert_eq!(softmax.slowest.unwrap().cta, 1);
}

#[test]
fn every_number_has_a_provenance_and_the_outcome_is_read_back_equal() {
    let outcome =
        toy(Level::Coarse, AnalyseOptions { observer: Some(observed(1.0)), ..AnalyseOptions::default() });
    let value = serde_json::to_value(&outcome).unwrap();
    assert_eq!(uncovered_numbers(&value), [""; 0]);
    assert_eq!(serde_json::from_value::<TraceOutcome>(value.clone()).unwrap(), outcome);
    assert_eq!(value["schema"], "kbt.trace/1");
    assert_eq!(value["roles"][0]["period_cycles"]["median"], 1000.0);
    assert_eq!(value["roles"][1]["waits"][0]["on"], "P_full");
    assert_eq!(value["provenance"]["kind"], "recorded");
}

#[test]
fn the_text_reads_well() {
    let outcome =
        toy(Level::Coarse, AnalyseOptions { observer: Some(observed(1.0)), ..AnalyseOptions::default() });
    insta::assert_snapshot!(outcome.render_text());
    insta::assert_snapshot!(outcome.headline(), @"step of 1000 clk (median): Softmax set the pace");
}

#[test]
fn a_clean_time_that_is_none_is_refused() {
    let measured = || Provenance::measured("bench", "Test GPU", "2026-11-30");
    let clean = |us: f64, mhz: f64, steps_per_sm: f64| CleanRun {
        time: Figure::new("clean time", us, Unit::Microseconds, measured()),
        sm_clock: Figure::new("SM clock", mhz, Unit::Megahertz, measured()),
        role: "Softmax".into(),
        steps_per_sm,
    };
    let bytes = file(&info(Level::Coarse), 1024, &pipeline(0, 30, 0));
    for (run, named) in [
        (clean(f64::NAN, 2000.0, 30.0), "--clean-us"),
        (clean(0.0, 2000.0, 30.0), "--clean-us"),
        (clean(-1.0, 2000.0, 30.0), "--clean-us"),
        (clean(15.0, f64::INFINITY, 30.0), "--clock-mhz"),
        (clean(15.0, 2000.0, 0.0), "--steps-per-sm"),
    ] {
        let more = AnalyseOptions { clean: Some(run), ..AnalyseOptions::default() };
        let message = analysed(&bytes, &ReadOptions::default(), more).unwrap_err().to_string();
        assert!(message.contains(named) && message.contains("a positive number"), "{message}");
    }
}

#[test]
fn a_kernel_that_is_faster_with_the_tracer_was_not_the_same_work() {
    for (percent, accepted) in [(-9.9, false), (-4.9, true), (4.9, true), (5.1, false)] {
        let more = AnalyseOptions { observer: Some(observed(percent)), ..AnalyseOptions::default() };
        assert_eq!(toy(Level::Coarse, more).absolute.is_accepted(), accepted, "{percent} %");
    }
}

#[test]
fn a_releaser_whose_ring_is_missing_is_named() {
    let mut rings = pipeline(0, 30, 0);
    // Softmax waits 120 in place of 20 once in a while, so that it has slack; P·V recorded nothing.
    rings.truncate(1);
    for end in rings[0].records.iter_mut().skip(1).step_by(14) {
        end.clock += 300;
    }
    let outcome = outcome(&file(&info(Level::Coarse), 1024, &rings));
    let Critical::Unknown { reason } = outcome.critical else { panic!("{:?}", outcome.critical) };
    assert!(reason.contains("PV, which releases P_empty for Softmax, recorded neither"), "{reason}");
}
