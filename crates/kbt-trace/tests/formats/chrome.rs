//! Chrome trace events, in every unit that writers put there.

use super::*;

fn spans(scale: f64) -> serde_json::Value {
    let mut events = vec![
        json!({"ph": "M", "pid": 3, "tid": 1, "name": "thread_name", "args": {"name": "Softmax"}}),
        json!({"ph": "C", "pid": 3, "tid": 1, "ts": 0, "name": "counter", "args": {"x": 1}}),
    ];
    for step in 0..20 {
        let at = |offset: f64| (f64::from(step) * 992.0 + offset) * scale;
        events.push(
            json!({"ph": "X", "pid": 3, "tid": 1, "ts": at(0.0), "dur": 192.0 * scale, "name": "wait S"}),
        );
        events.push(json!({"ph": "B", "pid": 3, "tid": 1, "ts": at(192.0), "name": "exp2"}));
        events.push(json!({"ph": "E", "pid": 3, "tid": 1, "ts": at(512.0)}));
    }
    json!({"traceEvents": events})
}

fn whole(value: &serde_json::Value) -> serde_json::Value {
    let mut value = value.clone();
    for event in value["traceEvents"].as_array_mut().unwrap() {
        for key in ["ts", "dur"] {
            if let Some(number) = event.get(key).and_then(serde_json::Value::as_f64) {
                event[key] = json!(number as u64);
            }
        }
    }
    value
}

fn read(value: &serde_json::Value, options: &ReadOptions) -> TraceOutcome {
    analysed(&serde_json::to_vec(value).unwrap(), options, AnalyseOptions::default()).unwrap()
}

fn mhz(clock_mhz: f64) -> ReadOptions {
    ReadOptions { clock_mhz: Some(clock_mhz), ..ReadOptions::default() }
}

fn said(outcome: &TraceOutcome) -> String {
    outcome.problems.iter().find(|p| p.kind == ProblemKind::UnitDetected).map_or("", |p| &p.says).to_owned()
}

#[test]
fn the_unit_is_deduced_and_said() {
    let us = read(&spans(0.001), &mhz(2000.0));
    assert_eq!(us.role("Softmax").unwrap().period_cycles.unwrap().median, 1984.0);
    assert_eq!(us.trace.quantum_cycles, 64.0, "a 32 ns timer");
    assert!(said(&us).contains("microseconds"), "{}", said(&us));
    let ns = read(&whole(&spans(1.0)), &mhz(2000.0));
    assert_eq!(ns.role("Softmax").unwrap().period_cycles.unwrap().median, 1984.0);
    assert!(said(&ns).contains("nanoseconds in the us field"), "{}", said(&ns));
    assert_eq!(problem(&us, ProblemKind::Ignored), 1, "the counter");
}

#[test]
fn whole_numbers_that_fit_every_unit_are_refused_until_told() {
    let odd = whole(&spans(1.03125));
    let bytes = serde_json::to_vec(&odd).unwrap();
    let message = error(&bytes, &mhz(2000.0));
    assert!(message.contains("--unit us, --unit ns or --unit cycles"), "{message}");
    let told = ReadOptions { unit: Some(Unit::Cycles), ..ReadOptions::default() };
    assert_eq!(read(&odd, &told).role("Softmax").unwrap().busy_cycles, Some(825.0));
}

#[test]
fn protons_fake_gigahertz_gives_back_its_cycles() {
    let mut value = spans(0.001);
    for event in value["traceEvents"].as_array_mut().unwrap().iter_mut().skip(1) {
        event["pid"] = json!("kernel Core5 CTA9");
        event["tid"] = json!("warp 0 (line 1)");
    }
    let outcome = read(&value, &ReadOptions::default());
    let role = outcome.role("warp 0").unwrap();
    assert_eq!((role.period_cycles.unwrap().median, role.busy_cycles), (992.0, Some(800.0)));
    assert_eq!(role.slowest.unwrap().cta, 9);
}

#[test]
fn absolute_nanoseconds_beyond_a_floats_precision_keep_their_digits() {
    let base = 1_764_000_000_000_000_000_u64 / 32 * 32;
    let events: Vec<_> = (0..20)
        .map(|i| json!({"ph": "X", "pid": 0, "tid": 0, "ts": base + i * 96, "dur": 64, "name": "wait"}))
        .collect();
    let outcome = read(&json!(events), &mhz(1000.0));
    let period = outcome.roles[0].period_cycles.unwrap();
    assert_eq!((period.p10, period.p90), (96.0, 96.0));
}

#[test]
fn orphans_and_backward_spans_are_counted() {
    let mut value = spans(0.001);
    let events = value["traceEvents"].as_array_mut().unwrap();
    events.push(json!({"ph": "E", "pid": 3, "tid": 1, "ts": 99.5}));
    events.push(json!({"ph": "B", "pid": 3, "tid": 1, "ts": 99.6, "name": "never"}));
    events.push(json!({"ph": "X", "pid": 3, "tid": 1, "ts": 99.6, "dur": -1.0, "name": "back"}));
    events.push(json!({"ph": "X", "pid": 3, "tid": 1, "name": "timeless"}));
    let outcome = read(&value, &mhz(2000.0));
    for kind in [
        ProblemKind::OrphanEnd,
        ProblemKind::OrphanBegin,
        ProblemKind::ClockBackwards,
        ProblemKind::UnknownRecord,
    ] {
        assert_eq!(problem(&outcome, kind), 1, "{kind:?}");
    }
}

#[test]
fn broken_json_and_json_without_spans_are_refused() {
    let message = error(b"{\"traceEvents\": [", &ReadOptions::default());
    assert!(message.contains("line 1"), "{message}");
    let message = error(b"{\"traceEvents\": []}", &mhz(1.0));
    assert!(message.contains("none of them a span"), "{message}");
}

#[test]
fn a_stamp_that_is_no_time_of_the_trace_changes_nothing_but_the_count_of_problems() {
    let clean = read(&spans(0.001), &mhz(2000.0));
    for (key, value) in [("ts", -1e30), ("ts", 1e300), ("ts", 9e18), ("dur", 1e30)] {
        let mut file = spans(0.001);
        let mut event = json!({"ph": "X", "pid": 3, "tid": 1, "ts": 5.5, "dur": 1.5, "name": "exp2"});
        event[key] = json!(value);
        file["traceEvents"].as_array_mut().unwrap().insert(0, event);
        let read = read(&file, &mhz(2000.0));
        assert_eq!(problem(&read, ProblemKind::FarStamp), 1, "{key} {value}");
        assert_eq!(read.roles, clean.roles, "{key} {value}");
    }
}

#[test]
fn stamps_below_zero_are_counted_from_the_earliest_and_that_is_said() {
    let mut file = spans(0.001);
    for event in file["traceEvents"].as_array_mut().unwrap() {
        if let Some(ts) = event["ts"].as_f64() {
            event["ts"] = json!(ts - 5.0);
        }
    }
    let (moved, there) = (read(&file, &mhz(2000.0)), read(&spans(0.001), &mhz(2000.0)));
    assert_eq!(problem(&there, ProblemKind::NegativeStamps), 0);
    // Of the events of 20 steps of 992 ns those of the first five steps begin below zero, and the counter.
    assert!(problem(&moved, ProblemKind::NegativeStamps) >= 15, "{:?}", moved.problems);
    assert!(moved.problems.iter().any(|p| p.says.contains("-5 in the file")), "{:?}", moved.problems);
    let median = |o: &TraceOutcome| o.role("Softmax").unwrap().period_cycles.unwrap().median;
    assert_eq!(median(&moved), median(&there));
}
