//! A made-up trace's outcome: four roles, a few steps to draw.

use super::recorded;
use kbt_trace::observe::{Interval, LevelCost, ObserverReport};
use kbt_trace::outcome::*;
use kbt_trace::{Input, Level};

pub(crate) fn trace() -> TraceOutcome {
    let p = recorded("kbt tune: coarse trace");
    let q = |m: f64| Quantiles { median: m, p10: m * 0.97, p90: m * 1.04 };
    let wait = |on: &str, cycles: f64, by: &[&str], hardware| WaitStats {
        on: on.into(),
        cycles: Some(cycles),
        each_cycles: Some(q(cycles)),
        per_step: 1.0,
        released_by: by.iter().map(|s| (*s).to_owned()).collect(),
        hardware,
        handoff: on.starts_with("P"),
        ready_percent: Some(12.5),
        round_trip_cycles: None,
    };
    let role = |name: &str, busy: f64, waits: Vec<WaitStats>| RoleStats {
        stuck: Vec::new(),
        name: name.into(),
        steps: 4096,
        step_starts_at: "a wait".into(),
        period_cycles: Some(q(2315.0)),
        mean_period_cycles: Some(2320.0),
        busy_cycles: Some(busy),
        busy_spread_cycles: None,
        slack_cycles: Some((2320.0 - busy - 40.0).max(0.0)),
        waits,
        events: vec![EventStats {
            name: "step".into(),
            cycles: Some(2300.0),
            busy_cycles: Some(busy),
            each_cycles: Some(q(2300.0)),
            per_step: 1.0,
        }],
        steady_steps: 3968,
        prologue_cycles: None,
        tail_cycles: None,
        over_ctas_cycles: None,
        slowest: None,
        over_sms_cycles: None,
        slowest_sm: None,
        work: None,
    };
    let observer = ObserverReport {
        provenance: recorded("kbt tune: trace levels in turn"),
        off_us: 912.4,
        levels: [(Level::Barrier, 0.4), (Level::Coarse, 1.3), (Level::Detail, 18.2)]
            .map(|(level, percent)| LevelCost {
                level,
                median_us: 912.4 * (1.0 + percent / 100.0),
                pairs: 8,
                inflation_percent: percent,
                low_percent: percent - 0.3,
                high_percent: percent + 0.4,
                confidence_percent: 99.2,
            })
            .to_vec(),
        limit_percent: 5.0,
        reordering_percent: Some(0.4),
        reordering_interval: Some(Interval { low_percent: 0.1, high_percent: 0.8 }),
        stores_percent: Some(0.9),
        stores_interval: Some(Interval { low_percent: -0.2, high_percent: 1.6 }),
    };
    TraceOutcome {
        schema: SCHEMA.into(),
        provenance: p.clone(),
        trace: TraceFacts {
            format: Input::Kbt,
            level: Some(Level::Coarse),
            kernel: Some("attention_forward".into()),
            sm_clock_mhz: Some(1980.0),
            quantum_cycles: 1.0,
            ctas: 132,
            sms: 132,
            records: 4_194_304,
        },
        absolute: Absolute::Accepted { reason: "coarse tracing costs 1.3 %, at most 1.7 %".into() },
        roles: vec![
            role("Load", 210.0, vec![wait("KV empty", 2110.0, &["PV"], None)]),
            role("Softmax0", 2270.0, vec![wait("P free", 50.0, &["PV"], None)]),
            role("Softmax1", 2262.0, vec![wait("P free", 58.0, &["PV"], None)]),
            role(
                "PV",
                1430.0,
                vec![
                    wait("P first", 610.0, &["Softmax0", "Softmax1"], None),
                    wait("P rest", 220.0, &["Softmax0", "Softmax1"], None),
                    wait("V full", 60.0, &["Load"], Some(Hardware::Tma)),
                ],
            ),
        ],
        wait_floor_cycles: Some(24.0),
        rings: vec![],
        critical: Critical::Roles { roles: vec!["Softmax0".into(), "Softmax1".into()] },
        handoff: None,
        observer: Some(observer),
        clean: Some(CleanStep {
            role: "Softmax0".into(),
            implied_cycles: 2291.0,
            inflation_ratio: 1.0127,
            provenance: recorded("kbt tune: clean time"),
        }),
        problems: vec![],
        timeline: Some(timeline()),
    }
}

fn timeline() -> Timeline {
    const STEP: f64 = 2320.0;
    let span = |label: &str, kind, start: f64, end: f64| TimelineSpan {
        label: label.into(),
        kind,
        start_cycles: start,
        end_cycles: end,
        depth: 0,
    };
    let row = |role: &str, spans: &dyn Fn(f64) -> Vec<TimelineSpan>| TimelineRow {
        role: role.into(),
        start_cycles: None,
        end_cycles: None,
        spans: (0..4).flat_map(|i| spans(f64::from(i) * STEP)).collect(),
    };
    let (wait, event) = (SpanKind::Wait, SpanKind::Event);
    let rows = vec![
        row("Load", &|t| vec![span("KV empty", wait, t + 200.0, t + STEP)]),
        row("Softmax0", &|t| {
            vec![span("P free", wait, t + 900.0, t + 950.0), span("write P", event, t + 1400.0, t + 2250.0)]
        }),
        row("Softmax1", &|t| {
            vec![span("P free", wait, t + 2000.0, t + 2060.0), span("write P", event, t + 300.0, t + 1100.0)]
        }),
        row("PV", &|t| {
            vec![
                span("P first", wait, t, t + 400.0),
                span("P rest", wait, t + 700.0, t + 920.0),
                span("MMA", event, t + 400.0, t + 1500.0),
                span("P first", wait, t + 1500.0, t + 1710.0),
            ]
        }),
    ];
    let arrow = |barrier: &str, from: &str, at: f64, to: &str, end: f64| TimelineArrow {
        barrier: barrier.into(),
        from: from.into(),
        from_cycles: at,
        to: to.into(),
        to_cycles: end,
    };
    let arrows = (0..4)
        .map(|i| f64::from(i) * STEP)
        .flat_map(|t| {
            [
                arrow("P first", "Softmax1", t + 360.0, "PV", t + 400.0),
                arrow("P first", "Softmax0", t + 1670.0, "PV", t + 1710.0),
                arrow("KV empty", "PV", t + 2280.0, "Load", t + STEP),
            ]
        })
        .collect();
    Timeline {
        cta: 0,
        role: "Softmax0".into(),
        steps: 4,
        length_cycles: 4.0 * STEP,
        rows,
        arrows,
        rings: vec![],
    }
}
