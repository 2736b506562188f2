//! Every reader on faithful buffers, and on each way that they go wrong.
#![allow(clippy::float_cmp, clippy::unwrap_used, reason = "a test: its inputs are whole cycles")]

mod common;

use common::*;
use kbt_trace::bindings as b;
use kbt_trace::outcome::TraceOutcome;
use kbt_trace::{AnalyseOptions, Input, Level, ProblemKind, ReadOptions, TraceError, Unit};
use serde_json::json;

fn problem(outcome: &TraceOutcome, kind: ProblemKind) -> u64 {
    outcome.problems.iter().filter(|p| p.kind == kind).map(|p| p.count).sum()
}

fn error(bytes: &[u8], options: &ReadOptions) -> String {
    analysed(bytes, options, AnalyseOptions::default()).unwrap_err().to_string()
}

mod kbt_file {
    use super::*;
    use kbt_trace::kbt::write_device_buffer;
    use kbt_trace::{BufferLayout, CtaTrace, open};

    #[test]
    fn names_edges_and_meta_come_back_as_written() {
        let info = info(Level::Coarse);
        let bytes = file(&info, 1024, &pipeline(0, 3, 0));
        let source = open(Box::new(std::io::Cursor::new(bytes)), "a", &ReadOptions::default()).unwrap();
        assert_eq!(*source.info(), info);
    }

    #[test]
    fn a_ring_that_wrapped_keeps_the_newest_and_says_how_many_it_lost() {
        let layout = BufferLayout::new(1, 8, 4, 2).unwrap();
        let mut raw = vec![0; layout.bytes()];
        // CTA 4 sits in slot 1; its role wrote 11 records into 8 slots.
        let header = b::kbt_trace_ring {
            opened: b::KBT_TRACE_RING_OPEN,
            closed: b::KBT_TRACE_RING_CLOSED,
            cta: 4,
            total: 11,
            open_clock: 0xffff_ff00,
            close_clock: 0x1_0000_0200,
            ..Default::default()
        };
        let put = |raw: &mut Vec<u8>, at: usize, words: &[u32]| {
            for (i, word) in words.iter().enumerate() {
                raw[at + i * 4..at + i * 4 + 4].copy_from_slice(&word.to_le_bytes());
            }
        };
        let clock = |v: u64| [v as u32, (v >> 32) as u32];
        let (from, to) = (clock(header.open_clock), clock(header.close_clock));
        let words = [header.opened, header.closed, 4, 0, 0, 11, 0, 0, from[0], from[1], to[0], to[1]];
        put(&mut raw, 64, &words);
        for i in 0..11_u32 {
            let kind = if i % 2 == 0 { b::KBT_TRACE_WAIT_BEGIN } else { b::KBT_TRACE_WAIT_END };
            let at = 128 + 64 + (i as usize % 8) * 8;
            put(&mut raw, at, &[kbt_trace::kbt::tag(kind, 1, i), 0xffff_ff20_u32.wrapping_add(i * 50)]);
        }
        let mut bytes = Vec::new();
        write_device_buffer(&mut bytes, &layout, &raw, &info(Level::Coarse)).unwrap();
        let mut source = open(Box::new(std::io::Cursor::new(bytes)), "a", &ReadOptions::default()).unwrap();
        let mut cta = CtaTrace::default();
        assert!(source.next_cta(&mut cta).unwrap());
        assert_eq!((cta.cta, cta.lanes.len()), (4, 1));
        let lane = &cta.lanes[0];
        assert_eq!(lane.dropped, Some(3));
        let steps: Vec<_> = lane.events.iter().map(|e| e.step).collect();
        assert_eq!(steps, (3..11).collect::<Vec<_>>(), "oldest first");
        let first = 0xffff_ff20_u64 + 3 * 50;
        let times: Vec<_> = lane.events.iter().map(|e| e.at).collect();
        assert_eq!(times, (0..8).map(|i| first + i * 50).collect::<Vec<_>>(), "on the 64-bit clock");
        assert!(!source.next_cta(&mut cta).unwrap());
        assert_eq!(source.problems().count(ProblemKind::Dropped), 3);
        assert_eq!(source.problems().count(ProblemKind::ClockWrapped), 1);
    }

    #[test]
    fn whole_wraps_between_open_and_the_oldest_record_kept_are_seen_by_the_close() {
        let far = 1_u64 << 33;
        let records =
            [(b::KBT_TRACE_WAIT_BEGIN, P_EMPTY, far + 1000), (b::KBT_TRACE_WAIT_END, P_EMPTY, far + 1500)];
        let mut ring = ring(0, SOFTMAX, 700, &records, far + 2000);
        ring.header.total = 500;
        let bytes = file(&info(Level::Coarse), 2, &[ring]);
        let mut source = open(Box::new(std::io::Cursor::new(bytes)), "a", &ReadOptions::default()).unwrap();
        let mut cta = CtaTrace::default();
        assert!(source.next_cta(&mut cta).unwrap());
        let times: Vec<_> = cta.lanes[0].events.iter().map(|e| e.at).collect();
        assert_eq!(times, [700 + far + 1000, 700 + far + 1500]);
        assert_eq!(cta.lanes[0].dropped, Some(498));
    }

    #[test]
    fn a_role_without_close_is_read_and_said() {
        let mut rings = pipeline(0, 20, 0);
        rings[1].header.closed = 0;
        rings[1].header.total = 0;
        let outcome = outcome(&file(&info(Level::Coarse), 1024, &rings));
        assert_eq!(problem(&outcome, ProblemKind::NotClosed), 1);
        assert_eq!(outcome.role("PV").unwrap().busy_cycles, Some(600.0));
    }

    #[test]
    fn a_cut_file_gives_what_came_before_the_cut() {
        let rings: Vec<_> = (0..2).flat_map(|cta| pipeline(cta, 20, 0)).collect();
        let bytes = file(&info(Level::Coarse), 1024, &rings);
        let outcome = outcome(&bytes[..bytes.len() - 1000]);
        assert_eq!(problem(&outcome, ProblemKind::Truncated), 1);
        assert_eq!(outcome.role("Softmax").unwrap().period_cycles.unwrap().median, 1000.0);
    }

    #[test]
    fn a_damaged_header_names_offset_field_and_what_would_do() {
        let bytes = file(&info(Level::Coarse), 1024, &pipeline(0, 3, 0));
        let damaged = |at: usize, byte: u8| {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            error(&bytes, &ReadOptions { input: Input::Kbt, ..ReadOptions::default() })
        };
        assert_eq!(damaged(0, b'X'), "a.trace: offset 0: magic: XBTTRACE; accepted: KBTTRACE");
        assert_eq!(damaged(8, 9), "a.trace: offset 8: version: 9; accepted: 1");
        assert_eq!(damaged(16, 0), "a.trace: offset 16: level: 0; accepted: 2 (coarse) or 3 (detail)");
        assert_eq!(damaged(27, 255), "a.trace: offset 24: roles: 4278190083; accepted: at most 4096");
        let short = error(&bytes[..100], &ReadOptions::default());
        assert_eq!(
            short,
            "a.trace: offset 100: roles: the file ends after 36 bytes of it; accepted: 168 bytes"
        );
    }

    #[test]
    fn records_of_unknown_kind_or_id_are_counted_not_read() {
        let mut rings = pipeline(0, 20, 0);
        rings[0].records[3].tag = kbt_trace::kbt::tag(9, 0, 0);
        rings[0].records[4].tag = kbt_trace::kbt::tag(b::KBT_TRACE_BEGIN, 77, 0);
        let outcome = outcome(&file(&info(Level::Coarse), 1024, &rings));
        assert_eq!(problem(&outcome, ProblemKind::UnknownRecord), 2);
    }

    #[test]
    fn names_that_do_not_fit_and_layouts_that_cannot_be_are_refused() {
        let mut long = info(Level::Coarse);
        long.roles[0].name = "x".repeat(41);
        let mut out = Vec::new();
        assert!(kbt_trace::kbt::FileWriter::write(&mut out, &long, 8, &[]).is_err());
        assert!(BufferLayout::new(4, 1000, 1, 1).unwrap_err().to_string().contains("power of two"));
        assert!(BufferLayout::new(4, 1024, 0, 1).is_err());
        assert!(BufferLayout::new(4, 1 << 30, 1, 1 << 20).is_err());
        let layout = BufferLayout::new(4, 64, 1, 2).unwrap();
        assert_eq!(layout.bytes(), 8 * (64 + 64 * 8));
        assert!(write_device_buffer(&mut out, &layout, &[0; 10], &info(Level::Coarse)).is_err());
    }
}

/// A strided profiler buffer: per block and group its records (event, type, stamp).
fn slots(
    groups: u32,
    lanes: &[Vec<(u32, u32, u32)>],
    depth: usize,
    tag_block: impl Fn(u32, u32) -> u32,
) -> Vec<u8> {
    let blocks = lanes.len() as u32 / groups;
    let mut words = vec![blocks, groups];
    words.resize(2 + 2 * depth * lanes.len(), 0);
    for (lane, records) in lanes.iter().enumerate() {
        let (block, group) = (lane as u32 / groups, lane as u32 % groups);
        for (k, &(event, kind, stamp)) in records.iter().enumerate() {
            let at = 2 + 2 * (lane + k * lanes.len());
            words[at] = (block + 7) << 24 | tag_block(block, group) << 12 | event << 2 | kind;
            words[at + 1] = stamp;
        }
    }
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

mod fa4_fp4 {
    use super::*;

    /// 96 steps whose numbers are those published for FP4 after the change: period 4381, busy 2429, wait P 633.
    fn block(base: u32) -> Vec<Vec<(u32, u32, u32)>> {
        let at = |step: u32, offset: u32| base.wrapping_add(step * 4381 + offset);
        let mut lanes = vec![Vec::new(); 4];
        for step in 0..96 {
            let span =
                |event: u32, from: u32, to: u32| [(event, 0, at(step, from)), (event, 1, at(step, to))];
            lanes[0].extend(span(0, 10, 310));
            lanes[0].extend(span(8, 400, 1033));
            lanes[0].push((1, 0, at(step, 1100)));
            lanes[0].extend(span(13, 1200, 1278));
            lanes[0].push((1, 1, at(step, 1418)));
            for softmax in [1, 2] {
                lanes[softmax].extend(span(6, 0, 1952));
                lanes[softmax].extend(span(7, 3000, 3400));
            }
            lanes[3].extend(span(10, 100, 4000));
        }
        lanes
    }

    fn read(bytes: &[u8]) -> TraceOutcome {
        let outcome = analysed(bytes, &ReadOptions::default(), AnalyseOptions::default()).unwrap();
        assert_eq!(outcome.trace.format, Input::Fa4Fp4);
        outcome
    }

    #[test]
    fn the_published_metrics_follow_from_their_definitions() {
        let outcome = read(&slots(4, &block(1000), 800, |b, _| b % 4096));
        let names: Vec<_> = outcome.roles.iter().map(|r| r.name.as_str()).collect();
        assert_eq!(names, ["MMA", "Softmax0", "Softmax1", "Correction"]);
        let softmax = outcome.role("Softmax0").unwrap();
        assert_eq!(softmax.steps, 96);
        assert_eq!(softmax.period_cycles.unwrap().median, 4381.0);
        assert_eq!(softmax.busy_cycles, Some(2429.0));
        assert_eq!(softmax.waits[0].on, "S");
        let mma = outcome.role("MMA").unwrap();
        let wait = |on: &str| mma.waits.iter().find(|w| w.on == on).unwrap().cycles;
        assert_eq!((wait("P"), wait("P2")), (Some(633.0), Some(78.0)));
        let span = |name: &str| mma.events.iter().find(|e| e.name == name).unwrap().cycles.unwrap();
        assert_eq!(span("QK GEMM") + span("PV GEMM"), 618.0, "QK+PV, the embedded wait included");
        assert_eq!(outcome.trace.level, Some(Level::Coarse));
        assert_eq!(outcome.trace.quantum_cycles, 1.0);
    }

    #[test]
    fn a_clock_that_wraps_inside_the_trace_changes_nothing() {
        let (plain, wrapped) = (read(&slots(4, &block(1000), 800, |b, _| b)), {
            let outcome = read(&slots(4, &block(u32::MAX - 200_000), 800, |b, _| b));
            assert_eq!(problem(&outcome, ProblemKind::ClockWrapped), 4, "once a lane");
            outcome
        });
        assert_eq!(plain.roles, wrapped.roles);
    }

    #[test]
    fn block_numbers_beyond_the_tags_field_come_from_the_slot() {
        // 4098 blocks of one group-0 record pair each; the field wraps at 4096.
        let lanes: Vec<_> = (0..4098 * 4)
            .map(|lane| if lane % 4 == 0 { vec![(0, 0, 5), (0, 1, 9)] } else { Vec::new() })
            .collect();
        let outcome = read(&slots(4, &lanes, 3, |b, _| b % 4096));
        assert_eq!(outcome.trace.ctas, 4098);
        assert_eq!(problem(&outcome, ProblemKind::Aliased), 0);
    }

    #[test]
    fn a_begin_of_event_0_on_block_0_and_sm_0_is_not_an_empty_slot() {
        let mut bytes = slots(4, &block(1000), 800, |b, _| b);
        // Put block 0 on SM 0: the first tag becomes 0.
        for tag in bytes[8..].chunks_exact_mut(8) {
            tag[3] = 0;
        }
        assert_eq!(bytes[8..12], [0; 4]);
        assert_eq!(read(&bytes).role("MMA").unwrap().steps, 96);
    }

    #[test]
    fn a_store_that_stopped_at_128_events_is_said_to_hold_the_prologue() {
        let lanes: Vec<Vec<_>> =
            block(1000).into_iter().map(|lane| lane.into_iter().take(128).collect()).collect();
        let outcome = read(&slots(4, &lanes, 800, |b, _| b));
        assert_eq!(problem(&outcome, ProblemKind::StoppedFull), 4);
        let text = outcome.render_text();
        assert!(text.contains("oldest kept"), "{text}");
    }

    #[test]
    fn orphans_holes_and_unknown_types_are_counted() {
        let mut lanes = block(1000);
        lanes[1].remove(0);
        lanes[2].pop();
        lanes[3][10] = (10, 3, 0);
        lanes[0][6] = (0, 0, 0);
        let mut bytes = slots(4, &lanes, 800, |b, _| b);
        let hole = 8 + 8 * (6 * 4);
        bytes[hole..hole + 8].fill(0);
        bytes.pop();
        let outcome = read(&bytes);
        assert_eq!(problem(&outcome, ProblemKind::Hole), 1);
        assert_eq!(problem(&outcome, ProblemKind::UnknownRecord), 1);
        assert!(problem(&outcome, ProblemKind::OrphanEnd) >= 2);
        assert!(problem(&outcome, ProblemKind::OrphanBegin) >= 1);
        assert_eq!(problem(&outcome, ProblemKind::Truncated), 1);
    }

    #[test]
    fn detail_events_make_it_a_detail_trace() {
        let mut lanes = block(1000);
        lanes[1].extend([(2, 0, 1_000_000), (2, 1, 1_000_100)]);
        assert_eq!(read(&slots(4, &lanes, 800, |b, _| b)).trace.level, Some(Level::Detail));
    }

    #[test]
    fn an_unwritten_buffer_and_one_of_another_shape_are_refused() {
        let empty = slots(4, &vec![Vec::new(); 4], 10, |b, _| b);
        let options = ReadOptions { input: Input::Fa4Fp4, ..ReadOptions::default() };
        assert_eq!(error(&empty, &options), "a.trace: no records: all slots of 1 blocks x 4 groups are zero");
        let shape = error(&[255; 64], &options);
        assert!(shape.contains("4294967295 blocks"), "{shape}");
        assert!(error(&[1, 2], &ReadOptions::default()).contains("too few"), "two bytes");
        let three = slots(3, &vec![vec![(0, 0, 5), (0, 1, 9)]; 3], 10, |b, _| b);
        assert!(error(&three, &ReadOptions::default()).contains("3 groups"));
    }
}

mod flashinfer {
    use super::*;

    fn lanes() -> Vec<Vec<(u32, u32, u32)>> {
        let lane = |shift: u32| -> Vec<_> {
            (0..40).flat_map(|i| [(1, 0, shift + i * 320), (1, 1, shift + i * 320 + 160)]).collect()
        };
        vec![lane(320), lane(640), lane(960), lane(1280)]
    }

    fn options() -> ReadOptions {
        ReadOptions { clock_mhz: Some(1000.0), ..ReadOptions::default() }
    }

    #[test]
    fn a_timer_of_32_ns_tells_it_and_its_lanes_come_from_the_slot() {
        let bytes = slots(2, &lanes(), 90, |b, _| b);
        let outcome = analysed(&bytes, &options(), AnalyseOptions::default()).unwrap();
        assert_eq!(outcome.trace.format, Input::Flashinfer);
        assert_eq!(outcome.trace.ctas, 2);
        assert_eq!(outcome.role("group 0").unwrap().period_cycles.unwrap().median, 320.0);
        assert_eq!(problem(&outcome, ProblemKind::Aliased), 2, "both lanes of block 1");
        let plain = slots(2, &lanes(), 90, |b, g| b * 2 + g);
        let outcome = analysed(&plain, &options(), AnalyseOptions::default()).unwrap();
        assert_eq!(problem(&outcome, ProblemKind::Aliased), 0);
    }

    #[test]
    fn without_a_clock_cycles_are_refused_by_the_options_name() {
        let bytes = slots(2, &lanes(), 90, |b, _| b);
        assert!(error(&bytes, &ReadOptions::default()).contains("--clock-mhz"));
        let zero = ReadOptions { clock_mhz: Some(0.0), ..ReadOptions::default() };
        assert!(error(&bytes, &zero).contains("positive"));
    }

    #[test]
    fn instants_are_said_to_be_lost_and_short_spans_are_refused() {
        let mut lanes = lanes();
        lanes[0].push((2, 2, 32_000));
        for lane in [1, 3] {
            lanes[lane] = (0..40).flat_map(|i| [(1, 0, i * 320), (1, 1, i * 320 + 32 * (i % 2))]).collect();
        }
        let outcome =
            analysed(&slots(2, &lanes, 90, |b, _| b), &options(), AnalyseOptions::default()).unwrap();
        assert_eq!(problem(&outcome, ProblemKind::OverwrittenInstants), 1);
        let group = outcome.role("group 1").unwrap();
        let short = group.events.iter().find(|e| e.name == "event 1").unwrap();
        assert_eq!((short.cycles, short.per_step), (None, 1.0));
        assert_eq!(problem(&outcome, ProblemKind::BelowQuantum), 1);
        assert_eq!(problem(&outcome, ProblemKind::ZeroLength), 40);
    }
}

mod chrome {
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
        outcome
            .problems
            .iter()
            .find(|p| p.kind == ProblemKind::UnitDetected)
            .map_or("", |p| &p.says)
            .to_owned()
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
}

mod iket {
    use super::*;

    fn place(warp: u64) -> serde_json::Value {
        json!({"smId": 4, "tpcId": -1, "gpcId": -1, "ctaId": [2, 1, 0], "warpId": warp})
    }

    fn documented() -> serde_json::Value {
        let range = |i: u64, name: &str, from: u64, to: u64| {
            json!({"rangeName": name, "rangeScope": 0, "startTs": i * 640 + from, "endTs": i * 640 + to,
                   "warpLocs": [place(12)], "internalEvents": []})
        };
        let ranges: Vec<_> =
            (0..30).flat_map(|i| [range(i, "ab_wait", 0, 160), range(i, "mma", 160, 480)]).collect();
        let marker = json!({"markerName": "start", "timestamp": 0, "location": place(12)});
        json!({"launches": [{"gridId": 0, "kernelName": "k", "gridDimX": 4, "gridDimY": 2, "gridDimZ": 1,
            "ranges": ranges, "markers": [marker], "warpLifetimes": []}]})
    }

    fn shipped() -> serde_json::Value {
        let range = |i: u64, name: u64, from: u64, to: u64| {
            json!({"rangeNameIdx": name, "startTs": i * 640 + from, "endTs": i * 640 + to, "warpLocIdxs": [0, 0],
                   "rangeId": 1, "rangeType": 0, "rangeScope": 0, "internalEvents": []})
        };
        let ranges: Vec<_> = (0..30).flat_map(|i| [range(i, 0, 0, 160), range(i, 1, 160, 480)]).collect();
        json!({"stringTable": ["ab_wait", "mma", "start"], "locationTable": [place(12)], "graphLaunches": [],
            "launches": [{"gridDimX": 4, "gridDimY": 2, "ranges": ranges,
                "markers": [{"markerNameIdx": 2, "locIdx": 0, "timestamp": 0}], "warpLifetimes": []}]})
    }

    #[test]
    fn both_shapes_give_the_same() {
        let options = ReadOptions { clock_mhz: Some(1000.0), ..ReadOptions::default() };
        let read = |value: serde_json::Value| {
            analysed(&serde_json::to_vec(&value).unwrap(), &options, AnalyseOptions::default()).unwrap()
        };
        let (a, b) = (read(documented()), read(shipped()));
        assert_eq!(a.trace.format, Input::Iket);
        assert_eq!(a.roles, b.roles);
        let warp = a.role("warp 12").unwrap();
        assert_eq!((warp.period_cycles.unwrap().median, warp.busy_cycles), (640.0, Some(480.0)));
        assert_eq!(warp.waits[0].on, "ab");
        // x + 4 * (y + 2 * z)
        assert_eq!(warp.slowest.unwrap().cta, 6);
        assert_eq!(a.trace.quantum_cycles, 32.0);
    }

    #[test]
    fn indices_beyond_the_tables_and_negative_ranges_are_counted() {
        let mut value = shipped();
        let ranges = value["launches"][0]["ranges"].as_array_mut().unwrap();
        ranges[0]["rangeNameIdx"] = json!(99);
        ranges[1]["warpLocIdxs"] = json!([9, 9]);
        ranges[2]["endTs"] = json!(0);
        let options = ReadOptions { clock_mhz: Some(1000.0), ..ReadOptions::default() };
        let outcome =
            analysed(&serde_json::to_vec(&value).unwrap(), &options, AnalyseOptions::default()).unwrap();
        assert_eq!(problem(&outcome, ProblemKind::UnknownRecord), 2);
        assert_eq!(problem(&outcome, ProblemKind::ClockBackwards), 1);
        let empty = serde_json::to_vec(&json!({"launches": []})).unwrap();
        assert!(error(&empty, &options).contains("0 launches"));
    }
}

mod proton {
    use super::*;

    /// Two warps, 8 records a warp; warp 1 wrote 12 and kept the newest.
    fn buffer(times: bool) -> Vec<u8> {
        let header = if times { 10 } else { 4 };
        let block_bytes = (header + 2) * 4 + 2 * 64;
        let mut words = vec![1, 0, 0, 32, block_bytes, 1, 2, block_bytes];
        words.extend([0xdead_beef, 5, 3, 128]);
        words.resize(8 + header as usize, 0);
        words.extend([16, 24]);
        let record = |i: u32, at: u32| [(i % 2) << 31 | 1 << 23, at + i * 10];
        words.extend((0..8).flat_map(|i| record(i, 100)));
        let mut ring = [[0; 2]; 8];
        (0..12).for_each(|i| ring[i as usize % 8] = record(i, 500));
        words.extend(ring.concat());
        words.iter().flat_map(|w: &u32| w.to_le_bytes()).collect()
    }

    #[test]
    fn both_header_sizes_and_a_wrapped_segment_are_read() {
        for times in [false, true] {
            let outcome =
                analysed(&buffer(times), &ReadOptions::default(), AnalyseOptions::default()).unwrap();
            assert_eq!(outcome.trace.format, Input::Proton);
            assert_eq!(problem(&outcome, ProblemKind::Dropped), 4);
            assert_eq!(problem(&outcome, ProblemKind::ClockBackwards), 0);
            for warp in ["warp 0", "warp 1"] {
                let role = outcome.role(warp).unwrap();
                assert_eq!((role.steps, role.period_cycles.unwrap().median), (4, 20.0), "{warp}");
            }
        }
    }

    #[test]
    fn a_missing_preamble_and_a_cut_file_are_counted() {
        let mut bytes = buffer(true);
        bytes[32] = 0;
        let options = ReadOptions { input: Input::Proton, ..ReadOptions::default() };
        assert!(error(&bytes, &options).contains("without a record"));
        let bytes = buffer(true);
        let outcome = analysed(&bytes[..bytes.len() - 60], &options, AnalyseOptions::default()).unwrap();
        assert!(problem(&outcome, ProblemKind::Truncated) >= 1);
    }
}

#[test]
fn what_no_reader_knows_is_refused_with_the_names_of_the_formats() {
    let message = error(b"hello, world, this is text", &ReadOptions::default());
    assert!(message.contains("--input: kbt, fa4-fp4, flashinfer, iket, proton, chrome"), "{message}");
    assert!(matches!(
        analysed(&[], &ReadOptions::default(), AnalyseOptions::default()),
        Err(TraceError::Unknown { .. })
    ));
}
