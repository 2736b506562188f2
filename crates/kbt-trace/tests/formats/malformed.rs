//! One lane, written in every format, with every fault that recorders and files have.

use super::*;
use kbt_trace::Kind::{Begin, End};
use kbt_trace::kbt::RingRecords;

/// What a fault must be reported as, and the least count.
type Expected = (ProblemKind, u64);
type Record = (kbt_trace::Kind, u32, u64);

const STEP: u64 = 1024;
const FORMATS: [Input; 6] =
    [Input::Kbt, Input::Fa4Fp4, Input::Flashinfer, Input::Iket, Input::Proton, Input::Chrome];
/// Those that record begins and ends apart, so that one of them can be missing.
const PAIRED: [Input; 5] = [Input::Kbt, Input::Fa4Fp4, Input::Flashinfer, Input::Proton, Input::Chrome];

/// `steps` steps of 1024 ticks, half of each in event 1.
fn sound(steps: u64, from: u64) -> Vec<Record> {
    (0..steps).flat_map(|i| [(Begin, 1, from + i * STEP), (End, 1, from + i * STEP + 512)]).collect()
}

fn encode(format: Input, records: &[Record]) -> Vec<u8> {
    match format {
        Input::Kbt => kbt(records),
        Input::Fa4Fp4 | Input::Flashinfer => {
            // Steps of the MMA warp start at event 0, and four groups are flash-attention-fp4's.
            let (groups, first) = if format == Input::Fa4Fp4 { (4, 1) } else { (2, 0) };
            let kind = |kind| u32::from(kind == End);
            let lane: Vec<_> = records.iter().map(|&(k, id, at)| (id - first, kind(k), at as u32)).collect();
            let mut lanes = vec![Vec::new(); groups];
            lanes[0] = lane;
            slots(groups as u32, &lanes, records.len() + 2, |b, _| b)
        }
        Input::Iket => iket(records),
        Input::Proton => proton(records),
        Input::Chrome => chrome(records),
        Input::Auto => panic!("no format"),
    }
}

fn kbt(records: &[Record]) -> Vec<u8> {
    let kind = |kind| if kind == End { b::KBT_TRACE_END } else { b::KBT_TRACE_BEGIN };
    let open = records.iter().map(|r| r.2).min().unwrap() - 1;
    let records: Vec<_> = records.iter().map(|&(k, id, at)| (kind(k), id % 2, at - open)).collect();
    let close = records.iter().map(|r| r.2).max().unwrap() + 100;
    let ring: RingRecords = ring(0, 2, open, &records, close);
    file(&info(Level::Coarse), 1024, &[ring])
}

/// Whole spans of the records, by the last begin of the same event.
fn spans(records: &[Record]) -> (Vec<(u32, u64, u64)>, Vec<Record>) {
    let (mut open, mut whole, mut alone): (Vec<Record>, Vec<_>, Vec<_>) = Default::default();
    for &record in records {
        if record.0 == Begin {
            open.push(record);
            continue;
        }
        match open.iter().rposition(|o| o.1 == record.1) {
            Some(index) => whole.push((record.1, open.remove(index).2, record.2)),
            None => alone.push(record),
        }
    }
    alone.extend(open);
    (whole, alone)
}

fn iket(records: &[Record]) -> Vec<u8> {
    let place = json!({"smId": 1, "ctaId": [0, 0, 0], "warpId": 0});
    let range = |(id, from, to): (u32, u64, u64)| json!({"rangeName": format!("e{id}"), "startTs": from, "endTs": to, "warpLocs": [place]});
    let ranges: Vec<_> = spans(records).0.into_iter().map(range).collect();
    serde_json::to_vec(&json!({"launches": [{"gridDimX": 1, "gridDimY": 1, "ranges": ranges}]})).unwrap()
}

fn chrome(records: &[Record]) -> Vec<u8> {
    let (whole, alone) = spans(records);
    let span = |(id, from, to): (u32, u64, u64)| {
        let dur = to as i64 - from as i64;
        json!({"ph": "X", "pid": 0, "tid": "MMA", "name": format!("e{id}"), "ts": from, "dur": dur})
    };
    let mut events: Vec<_> = whole.into_iter().map(span).collect();
    events.extend(alone.into_iter().map(|(kind, id, at)| {
        let ph = if kind == End { "E" } else { "B" };
        json!({"ph": ph, "pid": 0, "tid": "MMA", "name": format!("e{id}"), "ts": at})
    }));
    serde_json::to_vec(&json!({ "traceEvents": events })).unwrap()
}

fn proton(records: &[Record]) -> Vec<u8> {
    let buffer = records.len() as u32 * 8;
    let block = (4 + 1) * 4 + buffer;
    let mut words =
        vec![1, 0, 0, 32, block, 1, 1, block, 0xdead_beef, 0, 3, buffer, records.len() as u32 * 2];
    words.extend(records.iter().flat_map(|&(kind, id, at)| {
        [u32::from(kind == End) << 31 | id << 23 | (at >> 32) as u32 & 0x7ff, at as u32]
    }));
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn read(format: Input, bytes: &[u8]) -> TraceOutcome {
    let unit = (format == Input::Chrome).then_some(Unit::Cycles);
    let options = ReadOptions { input: format, clock_mhz: Some(1000.0), unit, ..ReadOptions::default() };
    analysed(bytes, &options, AnalyseOptions::default()).unwrap_or_else(|e| panic!("{format:?}: {e}"))
}

/// Reads the records in each format: the fault is reported, and the step is what it was.
fn check(formats: &[Input], records: &[Record], expected: &[Expected]) {
    for &format in formats {
        let outcome = read(format, &encode(format, records));
        for &(kind, least) in expected {
            let count = problem(&outcome, kind);
            assert!(count >= least, "{format:?}: {kind:?} {count} times: {:?}", outcome.problems);
        }
        let role = outcome.roles.iter().find(|r| r.steps > 0).unwrap();
        assert_eq!(role.period_cycles.unwrap().median, STEP as f64, "{format:?}");
    }
}

#[test]
fn a_sound_lane_has_none_of_these_faults_in_any_format() {
    for format in FORMATS {
        let outcome = read(format, &encode(format, &sound(30, 640)));
        for fault in [
            ProblemKind::Truncated,
            ProblemKind::OrphanEnd,
            ProblemKind::OrphanBegin,
            ProblemKind::Overlap,
            ProblemKind::ClockBackwards,
            ProblemKind::ClockWrapped,
            ProblemKind::UnknownRecord,
            ProblemKind::PrologueOnly,
            ProblemKind::StoppedFull,
            ProblemKind::Dropped,
            ProblemKind::Hole,
        ] {
            assert_eq!(problem(&outcome, fault), 0, "{format:?} {fault:?}");
        }
        assert_eq!(outcome.roles.iter().map(|r| r.steps).sum::<u64>(), 30, "{format:?}");
    }
}

#[test]
fn an_end_without_a_begin_and_a_begin_without_an_end_are_counted() {
    let mut records = sound(30, 640);
    records.insert(0, (End, 2, 608));
    check(&PAIRED, &records, &[(ProblemKind::OrphanEnd, 1)]);
    let mut records = sound(30, 640);
    records.push((Begin, 2, 640 + 30 * STEP));
    check(&PAIRED, &records, &[(ProblemKind::OrphanBegin, 1)]);
}

#[test]
fn spans_that_cross_are_counted_and_each_is_measured() {
    let mut records = sound(30, 640);
    let at = 640 + 30 * STEP;
    records.extend([(Begin, 2, at), (Begin, 3, at + 64), (End, 2, at + 128), (End, 3, at + 192)]);
    check(&FORMATS, &records, &[(ProblemKind::Overlap, 1)]);
}

#[test]
fn a_clock_that_wraps_goes_on_and_is_said() {
    let wraps = [(ProblemKind::ClockWrapped, 1)];
    check(&[Input::Kbt, Input::Fa4Fp4, Input::Flashinfer], &sound(30, (1 << 32) - 15 * STEP), &wraps);
    check(&[Input::Proton], &sound(30, (1 << 43) - 15 * STEP), &wraps);
    // Stamps of 64 bits pass the place where those of 32 wrap.
    check(&[Input::Iket, Input::Chrome], &sound(30, (1 << 32) - 15 * STEP), &[]);
}

#[test]
fn a_clock_that_runs_backwards_is_counted() {
    let mut records = sound(30, 64_000);
    records.push((Begin, 3, 64_000 + 30 * STEP));
    records.push((End, 3, 32));
    check(&FORMATS, &records, &[(ProblemKind::ClockBackwards, 1)]);
}

#[test]
fn a_capture_of_the_prologue_alone_is_said() {
    check(&FORMATS, &sound(4, 640), &[(ProblemKind::PrologueOnly, 1)]);
}

#[test]
fn a_file_that_ends_early_is_read_up_to_there() {
    for format in FORMATS {
        let bytes = encode(format, &sound(30, 640));
        // Within the records, whatever their size.
        let outcome = read(format, &bytes[..bytes.len() - 13]);
        assert!(problem(&outcome, ProblemKind::Truncated) >= 1, "{format:?}: {:?}", outcome.problems);
        let steps: u64 = outcome.roles.iter().map(|r| r.steps).sum();
        assert!((28..=30).contains(&steps), "{format:?}: {steps}");
    }
}

#[test]
fn a_record_whose_time_is_no_number_costs_itself_alone() {
    for (format, time) in
        [(Input::Iket, "\"startTs\":"), (Input::Chrome, "\"ts\":"), (Input::Chrome, "\"dur\":")]
    {
        let text = String::from_utf8(encode(format, &sound(30, 640))).unwrap();
        for word in ["NaN", "Infinity", "-Infinity"] {
            // The last one, so that every step before it is whole.
            let at = text.rfind(time).unwrap() + time.len();
            let rest = text[at..].trim_start_matches(|c: char| c.is_ascii_digit());
            let outcome = read(format, format!("{}{word}{rest}", &text[..at]).as_bytes());
            let place = format!("first at line 1, column {}, offset {at}", at + 1);
            let says = |p: &kbt_trace::Problem| p.kind == ProblemKind::NotANumber && p.says.contains(&place);
            assert!(outcome.problems.iter().any(says), "{format:?} {word}: {:?}", outcome.problems);
            assert_eq!(problem(&outcome, ProblemKind::NotANumber), 1, "{format:?}");
            assert_eq!(problem(&outcome, ProblemKind::UnknownRecord), 1, "{format:?}");
            assert_eq!(outcome.roles[0].steps, 29, "{format:?}");
            assert_eq!(outcome.roles[0].period_cycles.unwrap().median, STEP as f64, "{format:?}");
        }
        let none: String =
            text.split(time).skip(1).fold(text.split(time).next().unwrap().to_owned(), |all, part| {
                all + time + "NaN" + part.trim_start_matches(|c: char| c.is_ascii_digit())
            });
        let options = ReadOptions { input: format, unit: Some(Unit::Cycles), ..ReadOptions::default() };
        let said = error(none.as_bytes(), &options);
        assert!(said.contains("no records") && said.contains("30 x NaN or Infinity"), "{format:?}: {said}");
    }
}
