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
    let ns = read(&waits(20, |step| (step * 992, 192 + 32 * (step % 8))), &mhz(2000.0));
    assert_eq!(ns.roles[0].period_cycles.unwrap().median, 1984.0);
    assert!(said(&ns).contains("nanoseconds in the us field"), "{}", said(&ns));
    assert_eq!(problem(&us, ProblemKind::Ignored), 1, "the counter");
}

/// Waits in whole numbers: of each the begin and the length.
fn waits(steps: u64, of: impl Fn(u64) -> (u64, u64)) -> serde_json::Value {
    let wait = |(ts, dur)| json!({"ph": "X", "pid": 0, "tid": 0, "ts": ts, "dur": dur, "name": "wait"});
    json!((0..steps).map(of).map(wait).collect::<Vec<_>>())
}

#[test]
fn a_few_or_regular_multiples_of_32_may_be_microseconds_and_are_refused_until_told() {
    let few = waits(6, |step| (step * 992, 192 + 32 * step));
    let regular = waits(40, |step| (step * 1600, 800));
    let schedule = waits(40, |step| (step * 64_000, 1600 * (step % 10 + 1)));
    let epoch = 1_764_000_000_000_000_000_u64 / 1600 * 1600;
    let absolute = waits(40, |step| (epoch + step * 64_000, 1600 * (step % 10 + 1)));
    for (file, found) in [
        (waits(1, |_| (0, 64)), "1 distinct lengths, all of them multiples of 64"),
        (few, "7 distinct lengths, all of them multiples of 32"),
        (regular, "2 distinct lengths, all of them multiples of 800"),
        (schedule, "11 distinct lengths, all of them multiples of 1600"),
        (absolute, "11 distinct lengths, all of them multiples of 1600"),
    ] {
        let message = error(&serde_json::to_vec(&file).unwrap(), &mhz(2000.0));
        assert!(message.contains(found) && message.contains("--unit us"), "{message}");
    }
    let told = ReadOptions { unit: Some(Unit::Microseconds), ..mhz(2000.0) };
    let regular = read(&waits(40, |step| (step * 1600, 800)), &told);
    assert_eq!(regular.roles[0].period_cycles.unwrap().median, 3_200_000.0);
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
    // Begins and ends, so that the timer's step shows in the stamps alone.
    let mark = |ph: &str, ts: u64| json!({"ph": ph, "pid": 0, "tid": 0, "ts": ts, "name": "wait"});
    let wait = |step: u64| {
        let at = base + step * 992;
        [mark("B", at), mark("E", at + 32 * (step % 8 + 8))]
    };
    let outcome = read(&json!((0..20).flat_map(wait).collect::<Vec<_>>()), &mhz(1000.0));
    let period = outcome.roles[0].period_cycles.unwrap();
    assert_eq!((period.p10, period.p90), (992.0, 992.0));
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

/// The durations of one event's or wait's spans, from the rows that are exported.
fn lengths(value: &serde_json::Value, kind: u64) -> Vec<u64> {
    let options = ReadOptions { unit: Some(Unit::Cycles), ..ReadOptions::default() };
    let bytes = std::io::Cursor::new(serde_json::to_vec(value).unwrap());
    let mut source = kbt_trace::open(Box::new(bytes), "a.json", &options).unwrap();
    let mut out = Vec::new();
    kbt_trace::export::write_rows(source.as_mut(), "a.json", &mut out).unwrap();
    let rows = String::from_utf8(out).unwrap();
    let rows = rows.lines().skip(1).filter_map(|l| serde_json::from_str::<Vec<serde_json::Value>>(l).ok());
    rows.filter(|row| row[3] == kind).map(|r| r[6].as_u64().unwrap() - r[5].as_u64().unwrap()).collect()
}

#[test]
fn overlapping_spans_of_one_name_keep_their_own_ends() {
    // Every 1500 one of 2600, written as whole spans, as async pairs, and on Proton's two lines of one warp.
    let whole = |i: u64| {
        let tid = format!("warp 0{}", if i % 2 == 1 { " (line 1)" } else { "" });
        vec![json!({"ph": "X", "pid": 0, "tid": tid, "ts": i * 1500, "dur": 2600, "name": "a"})]
    };
    let paired = |i: u64| {
        let mark =
            |ph: &str, at: u64| json!({"ph": ph, "pid": 0, "tid": "warp 0", "id": i, "ts": at, "name": "a"});
        vec![mark("b", i * 1500), mark("e", i * 1500 + 2600)]
    };
    let waits = |i: u64| {
        vec![json!({"ph": "X", "pid": 0, "tid": "warp 0", "ts": i * 1500, "dur": 2600, "name": "wait a"})]
    };
    let told = ReadOptions { unit: Some(Unit::Cycles), ..ReadOptions::default() };
    for (spans, kind) in [(&whole as &dyn Fn(u64) -> Vec<serde_json::Value>, 0), (&paired, 0), (&waits, 1)] {
        let events: Vec<_> = (0..30).flat_map(spans).collect();
        let outcome = read(&json!(events), &told);
        let role = outcome.role("warp 0").unwrap();
        let each = match kind {
            0 => role.events[0].each_cycles,
            _ => role.waits[0].each_cycles,
        };
        let each = each.unwrap();
        assert_eq!((each.p10, each.median, each.p90), (2600.0, 2600.0, 2600.0), "{}", events[0]);
        assert_eq!(problem(&outcome, ProblemKind::Overlap), 29, "{}", events[0]);
        assert_eq!(lengths(&json!(events), kind), [2600; 30], "{}", events[0]);
        let more = AnalyseOptions { timeline_steps: 2, ..AnalyseOptions::default() };
        let bytes = serde_json::to_vec(&json!(events)).unwrap();
        let timeline = analysed(&bytes, &told, more).unwrap().timeline.unwrap();
        let longest =
            timeline.rows[0].spans.iter().map(|s| s.end_cycles - s.start_cycles).fold(0.0, f64::max);
        assert_eq!(longest, 2600.0, "drawn whole: {:?}", timeline.rows);
    }
}

#[test]
fn begins_and_ends_in_any_order_are_the_same_spans() {
    let mark = |ph: &str, at: u64, name: &str| json!({"ph": ph, "pid": 0, "tid": 0, "ts": at, "name": name});
    let begins: Vec<_> = (0..20).map(|i| mark("B", i * 1500, "a")).collect();
    let ends: Vec<_> = (0..20).map(|i| mark("E", i * 1500 + 600, "a")).collect();
    let told = ReadOptions { unit: Some(Unit::Cycles), ..ReadOptions::default() };
    let mut backwards = [begins.clone(), ends.clone()].concat();
    backwards.reverse();
    for events in [[begins.clone(), ends.clone()].concat(), [ends, begins].concat(), backwards] {
        let outcome = read(&json!(events), &told);
        let a = &outcome.roles[0].events[0];
        assert_eq!((outcome.roles[0].steps, a.each_cycles.unwrap().p90), (20, 600.0), "{}", events[0]);
        assert_eq!(problem(&outcome, ProblemKind::OrphanEnd) + problem(&outcome, ProblemKind::Overlap), 0);
    }
    let crossing: Vec<_> = (0..20)
        .map(|i| i * 1500)
        .flat_map(|at| {
            [mark("B", at, "a"), mark("B", at + 300, "b"), mark("E", at + 600, "a"), mark("E", at + 900, "b")]
        })
        .collect();
    let outcome = read(&json!(crossing), &told);
    let each: Vec<_> = outcome.roles[0].events.iter().map(|e| e.each_cycles.unwrap().median).collect();
    assert_eq!((each, problem(&outcome, ProblemKind::Overlap)), (vec![600.0, 600.0], 20));
}

#[test]
fn ends_alone_are_no_records_and_that_is_the_reason_given() {
    let ends: Vec<_> =
        (0..20).map(|i| json!({"ph": "E", "pid": 0, "tid": 0, "ts": i, "name": "a"})).collect();
    let told = ReadOptions { unit: Some(Unit::Cycles), ..ReadOptions::default() };
    let message = error(&serde_json::to_vec(&json!(ends)).unwrap(), &told);
    assert!(message.contains("20 x an end without its begin"), "{message}");
}

#[test]
fn an_instant_named_like_a_wait_is_an_instant() {
    let mut value = spans(0.001);
    let events = value["traceEvents"].as_array_mut().unwrap();
    let before = events.len();
    events.extend(
        (0..3).map(|i| json!({"ph": "i", "pid": 3, "tid": 1, "ts": f64::from(i) + 0.5, "name": "wait done"})),
    );
    let (with, without) = (read(&value, &mhz(2000.0)), read(&spans(0.001), &mhz(2000.0)));
    assert_eq!(with.trace.records, without.trace.records + 3, "{before} events before");
    assert_eq!(with.role("Softmax").unwrap().waits, without.role("Softmax").unwrap().waits);
}

#[test]
fn a_proton_process_without_a_kernels_name_is_protons_too() {
    for (pid, cycles) in
        [("Core5 CTA9", true), ("k Core5 CTA9", true), ("Score5 CTA9", false), ("Core5", false)]
    {
        let mut value = spans(0.001);
        for event in value["traceEvents"].as_array_mut().unwrap().iter_mut().skip(1) {
            event["pid"] = json!(pid);
        }
        assert_eq!(said(&read(&value, &mhz(2000.0))).contains("Proton"), cycles, "{pid}");
    }
}

#[test]
fn a_unit_that_the_stamps_contradict_gives_no_numbers() {
    let bytes = serde_json::to_vec(&spans(0.001)).unwrap();
    let options = |unit| ReadOptions { unit: Some(unit), clock_mhz: Some(1000.0), ..ReadOptions::default() };
    let message = error(&bytes, &options(Unit::Cycles));
    assert!(message.contains("--unit cycles") && message.contains("fractions"), "{message}");
    // As nanoseconds a step is one tick long, which says nothing.
    let outcome = read(&spans(0.001), &options(Unit::Nanoseconds));
    let role = outcome.role("Softmax").unwrap();
    assert_eq!((role.period_cycles, role.busy_cycles, role.waits[0].cycles), (None, None, None));
    assert!(problem(&outcome, ProblemKind::BelowQuantum) >= 3);
}

#[test]
fn a_careless_name_and_a_byte_order_mark_cost_nothing_else() {
    let clean = read(&spans(0.001), &mhz(2000.0));
    for name in [json!(null), json!(7), json!(["a"])] {
        let mut value = spans(0.001);
        let event = json!({"ph": "X", "pid": 3, "tid": "other", "ts": 0.5, "dur": 1.5, "name": name});
        value["traceEvents"].as_array_mut().unwrap().push(event);
        let outcome = read(&value, &mhz(2000.0));
        assert_eq!(outcome.role("Softmax"), clean.role("Softmax"), "{name}");
        assert_eq!(outcome.trace.records, clean.trace.records + 2, "{name}");
    }
    let marked = [&b"\xef\xbb\xbf"[..], &serde_json::to_vec(&spans(0.001)).unwrap()].concat();
    let outcome = analysed(&marked, &mhz(2000.0), AnalyseOptions::default()).unwrap();
    assert_eq!(outcome.roles, clean.roles);
    let message = error(b"{\"traceEvents\": [nan]}", &mhz(2000.0));
    assert!(message.contains("accepted: JSON as Chrome traces have it"), "{message}");
}

#[test]
fn threads_of_one_process_that_share_a_name_are_two_lanes() {
    let mut events = Vec::new();
    for (tid, period) in [(1, 1000.0), (2, 1370.0)] {
        events.push(
            json!({"ph": "M", "pid": 0, "tid": tid, "name": "thread_name", "args": {"name": "softmax"}}),
        );
        for step in 0..30 {
            let at = f64::from(step) * period;
            events.push(json!({"ph": "X", "pid": 0, "tid": tid, "ts": at, "dur": 300.0, "name": "wait s"}));
            events.push(
                json!({"ph": "X", "pid": 0, "tid": tid, "ts": at + 300.0, "dur": 500.0, "name": "exp"}),
            );
        }
    }
    let bytes = json!({"traceEvents": events}).to_string().into_bytes();
    let options = ReadOptions { unit: Some(Unit::Cycles), ..ReadOptions::default() };
    let outcome = analysed(&bytes, &options, AnalyseOptions::default()).unwrap();
    let period = |name: &str| outcome.role(name).unwrap().period_cycles.unwrap().median;
    assert_eq!(outcome.roles.len(), 2);
    assert_eq!((period("softmax (tid 1)"), period("softmax (tid 2)")), (1000.0, 1370.0));
}

#[test]
fn stamps_written_as_texts_are_the_same_stamps_and_a_word_in_their_place_costs_its_record_alone() {
    let clean = read(&spans(0.001), &mhz(2000.0));
    let mut value = spans(0.001);
    for event in value["traceEvents"].as_array_mut().unwrap() {
        for key in ["ts", "dur"] {
            if let Some(number) = event.get(key).cloned() {
                event[key] = json!(number.to_string());
            }
        }
    }
    assert_eq!(read(&value, &mhz(2000.0)).roles, clean.roles);
    let odd = json!({"ph": "X", "pid": 3, "tid": 1, "ts": "soon", "dur": 1.5, "name": "exp2"});
    value["traceEvents"].as_array_mut().unwrap().push(odd);
    let outcome = read(&value, &mhz(2000.0));
    assert_eq!(outcome.roles, clean.roles);
    assert_eq!(
        problem(&outcome, ProblemKind::UnknownRecord),
        problem(&clean, ProblemKind::UnknownRecord) + 1
    );
}
