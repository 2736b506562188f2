//! What the writers write, counted back: Perfetto by a decoder of the wire format, Chrome by kbt's own reader.
#![allow(clippy::float_cmp, clippy::unwrap_used, reason = "a test: its inputs are whole cycles")]

mod common;

use common::wire::{Value, bytes_of, decode, number};
use common::*;
use kbt_trace::bindings as b;
use kbt_trace::export::{
    ExportCounts, LeftOut, ROWS_SCHEMA, RowsHead, svg, write_chrome, write_perfetto, write_rows,
};
use kbt_trace::{
    AnalyseOptions, Clock, CtaTrace, Event, Input, Kind, Lane, Level, MemoryTrace, ProblemKind, Problems,
    ReadOptions, StepRule, open,
};
use std::collections::{BTreeMap, BTreeSet};

const STEPS: u64 = 20;

fn trace() -> Vec<u8> {
    let rings: Vec<_> = (0..2).flat_map(|cta| pipeline(cta, STEPS, 9_000_000_000)).collect();
    file(&info(Level::Coarse), 1024, &rings)
}

fn source(bytes: Vec<u8>) -> Box<dyn kbt_trace::Source> {
    open(Box::new(std::io::Cursor::new(bytes)), "a.trace", &ReadOptions::default()).unwrap()
}

/// Counts a Perfetto file and checks that slices nest and time runs forward on every track.
fn count(perfetto: &[u8]) -> (ExportCounts, BTreeMap<u64, String>) {
    let mut counts = ExportCounts::default();
    let mut names = BTreeMap::new();
    let mut depth: BTreeMap<u64, i64> = BTreeMap::new();
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut starts, mut ends) = (BTreeSet::new(), BTreeSet::new());
    for (field, packet) in decode(perfetto) {
        let (1, Value::Bytes(packet)) = (field, packet) else { panic!("only packets at the top") };
        let packet = decode(&packet);
        assert_eq!(number(&packet, 10), Some(1), "one sequence");
        if let Some(track) = bytes_of(&packet, 60) {
            let track = decode(&track);
            let name = String::from_utf8(bytes_of(&track, 2).unwrap()).unwrap();
            if let Some(parent) = number(&track, 5) {
                assert!(names.contains_key(&parent), "the parent comes first");
            }
            assert!(names.insert(number(&track, 1).unwrap(), name).is_none(), "a track id is used once");
            counts.tracks += 1;
            continue;
        }
        let event = decode(&bytes_of(&packet, 11).unwrap());
        let (track, at) = (number(&event, 11).unwrap(), number(&packet, 8).unwrap());
        assert!(names.contains_key(&track));
        assert!(*last.entry(track).or_default() <= at, "time runs forward");
        last.insert(track, at);
        match number(&event, 9).unwrap() {
            1 => {
                *depth.entry(track).or_default() += 1;
                counts.slices += 1;
                assert!(bytes_of(&event, 23).is_some());
            }
            2 => {
                let depth = depth.get_mut(&track).unwrap();
                *depth -= 1;
                assert!(*depth >= 0);
            }
            3 => counts.instants += 1,
            4 => {
                counts.counters += 1;
                assert!(number(&event, 30).is_some(), "a counter has a value");
            }
            kind => panic!("event type {kind}"),
        }
        starts.extend(number(&event, 47));
        ends.extend(number(&event, 48));
    }
    assert!(depth.values().all(|d| *d == 0), "every slice ends");
    assert_eq!(starts, ends, "every flow has both ends");
    counts.flows = ends.len() as u64;
    (counts, names)
}

#[test]
fn perfetto_holds_the_tracks_slices_instants_and_flows_that_were_written() {
    let mut out = Vec::new();
    let written = write_perfetto(source(trace()).as_mut(), &mut out).unwrap();
    let (read, names) = count(&out);
    assert_eq!(read, written);
    // Two CTAs of two roles; a step has a wait and two chunks, a wait and a tile; arrivals and the waits they end.
    let expected = ExportCounts {
        tracks: 8,
        slices: 2 * STEPS * 5,
        instants: 2 * 2 * STEPS,
        flows: 2 * STEPS,
        // Softmax gets the next slot when P·V picks up the last one: one change a step, and the last pick-up.
        counters: 2 * (STEPS + 1),
        ..ExportCounts::default()
    };
    assert_eq!(written, expected);
    let names: Vec<_> = names.values().map(String::as_str).collect();
    let ring = "ring P: slots ahead";
    assert_eq!(names, ["CTA 0, SM 0", "Softmax", "PV", ring, "CTA 1, SM 2", "Softmax", "PV", ring]);
}

#[test]
fn perfetto_times_are_the_global_timers() {
    let mut out = Vec::new();
    write_perfetto(source(trace()).as_mut(), &mut out).unwrap();
    let first = decode(&out).into_iter().find_map(|(_, packet)| {
        let Value::Bytes(packet) = packet else { return None };
        number(&decode(&packet), 8)
    });
    // open() at 1000000 ns, the first wait 500 cycles later at 2 GHz.
    assert_eq!(first, Some(1_000_250));
}

/// A trace whose ring of buffers can be told, for a kernel that fills and frees it [`STEPS`] times.
fn with_ring() -> Vec<u8> {
    file(&info(Level::Coarse), 1024, &filled_and_freed(0, STEPS))
}

#[test]
fn rings_become_counters() {
    let mut out = Vec::new();
    let written = write_perfetto(source(with_ring()).as_mut(), &mut out).unwrap();
    let (read, names) = count(&out);
    assert_eq!(read, written);
    assert_eq!((written.counters, written.tracks), (2 * STEPS, 4));
    assert_eq!(names.values().last().unwrap(), "ring P: slots taken");
    let mut out = Vec::new();
    let chrome = write_chrome(source(with_ring()).as_mut(), &mut out).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let events = value["traceEvents"].as_array().unwrap();
    let counters: Vec<_> = events.iter().filter(|e| e["ph"] == "C").collect();
    assert_eq!((counters.len() as u64, chrome.counters), (2 * STEPS, 2 * STEPS));
    assert_eq!((&counters[0]["args"]["slots"], &counters[1]["args"]["slots"]), (&1.into(), &0.into()));
}

#[test]
fn rows_hold_every_span_instant_and_arrival() {
    let mut out = Vec::new();
    let rows = write_rows(source(with_ring()).as_mut(), "a.trace", &mut out).unwrap().rows;
    let text = String::from_utf8(out).unwrap();
    let mut lines = text.lines();
    let head: RowsHead = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!((head.schema.as_str(), head.time_unit.as_str()), (ROWS_SCHEMA, "cycles"));
    assert_eq!(head.provenance.device.as_deref(), Some("Test GPU"));
    let mut all: Vec<serde_json::Value> = lines.map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(all.pop().unwrap(), serde_json::json!({ "rows": rows }));
    // A step of softmax has a wait, two chunks and an arrival; one of P·V a wait, a tile and an arrival.
    assert_eq!((all.len() as u64, rows), (STEPS * 7, STEPS * 7));
    assert!(all.iter().all(|row| row.as_array().unwrap().len() == head.columns.len()));
    // The first records of softmax lie at its wait, and the first of P·V waits from 620 to 1020, released at 960.
    let wait = all.iter().find(|row| row[2] == 1 && row[3] == 1).unwrap();
    assert_eq!(*wait, serde_json::json!([0, 0, 1, 1, 0, 620, 1020, 0, 960, 0, 1_000_250]));
}

#[test]
fn the_drawing_is_sound_xml_with_every_row_arrow_and_curve() {
    let outcome = outcome(&with_ring());
    let drawing = svg(&outcome).unwrap();
    let count = |what: &str| drawing.matches(what).count();
    let timeline = outcome.timeline.as_ref().unwrap();
    let spans: usize = timeline.rows.iter().map(|r| r.spans.len()).sum();
    // The background, the hatch, three of the legend, one a row.
    assert_eq!(count("<rect"), spans + 2 + 3 + timeline.rows.len());
    assert_eq!(count("class=\"a\""), timeline.arrows.len() + 1);
    assert_eq!(count("class=\"o\""), 1);
    for name in ["Softmax", "PV", "P_full", "P taken", "chunk", "tile", "clk (median)", "recorded: test"] {
        assert!(drawing.contains(name), "{name}");
    }
    // Every element is closed, in order.
    let mut open = Vec::new();
    for tag in drawing.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap();
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name.to_owned())),
            None if !tag.ends_with('/') => open.push(tag.split(' ').next().unwrap().to_owned()),
            None => {}
        }
    }
    assert_eq!(open, [""; 0]);
    assert!(!drawing.contains("NaN") && !drawing.contains("inf"));
    let without = kbt_trace::outcome::TraceOutcome { timeline: None, ..outcome };
    assert!(svg(&without).unwrap_err().to_string().contains("--cta"));
}

#[test]
fn names_wider_than_their_place_are_cut_and_whole_only_for_a_pointer() {
    let mut outcome = outcome(&with_ring());
    let long = ["長い名前".repeat(9), "a_name_with_many_letters_".repeat(9), "W".repeat(200)];
    for (index, span) in
        outcome.timeline.iter_mut().flat_map(|t| &mut t.rows).flat_map(|r| &mut r.spans).enumerate()
    {
        span.label.clone_from(&long[index % 3]);
    }
    let drawing = svg(&outcome).unwrap();
    let texts: Vec<_> = drawing.split("<text ").skip(1).filter_map(|t| t.split('<').next()).collect();
    assert!(texts.iter().all(|t| long.iter().all(|name| !t.contains(name))), "{texts:?}");
    for begin in ["長い", "a_na", "WWW"] {
        assert!(texts.iter().any(|t| t.contains(begin) && t.ends_with('…')), "{begin}: {texts:?}");
    }
    assert!(long.iter().all(|name| drawing.contains(&format!("{name}:"))), "titles");
}

#[test]
fn crossing_spans_get_a_line_of_their_own() {
    let at = |at, kind, id| Event { at, kind, id, step: 0 };
    let events =
        vec![at(0, Kind::Begin, 0), at(5, Kind::Begin, 1), at(9, Kind::End, 0), at(12, Kind::End, 1)];
    let cta = CtaTrace { lanes: vec![Lane { events, ..Lane::default() }], ..CtaTrace::default() };
    let mut info = info(Level::Coarse);
    info.clock = Clock::Cycles { sm_mhz: None };
    let mut out = Vec::new();
    let mut source = MemoryTrace::new(info, vec![cta], Problems::default());
    write_perfetto(&mut source, &mut out).unwrap();
    let (counts, names) = count(&out);
    assert_eq!((counts.slices, counts.tracks), (2, 3));
    let names: Vec<_> = names.values().map(String::as_str).collect();
    assert_eq!(
        names,
        ["CTA 0, 1 SM cycle shown as 1 ns, starts at its own 0", "Softmax", "Softmax (line 1)"]
    );
}

#[test]
fn chrome_is_read_back_with_the_same_cycles() {
    let mut out = Vec::new();
    let written = write_chrome(source(trace()).as_mut(), &mut out).unwrap();
    let before = outcome(&trace());
    let after = analysed(&out, &ReadOptions::default(), AnalyseOptions::default()).unwrap();
    assert_eq!(after.trace.format, Input::Chrome);
    assert_eq!(after.trace.sm_clock_mhz, Some(2000.0));
    for role in ["Softmax", "PV"] {
        let (before, after) = (before.role(role).unwrap(), after.role(role).unwrap());
        assert_eq!(before.period_cycles, after.period_cycles);
        assert_eq!(before.busy_cycles, after.busy_cycles);
        assert_eq!(before.waits[0].cycles, after.waits[0].cycles);
    }
    let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let events = value["traceEvents"].as_array().unwrap();
    let of = |ph: &str| events.iter().filter(|e| e["ph"] == ph).count() as u64;
    assert_eq!(
        (of("X"), of("i"), of("f"), of("M")),
        (written.slices, written.instants, written.flows, written.tracks)
    );
    assert_eq!(of("s"), of("f"));
}

#[test]
fn a_chrome_export_says_no_more_than_the_trace_it_came_from() {
    let export = |bytes: Vec<u8>| {
        let mut out = Vec::new();
        write_chrome(source(bytes).as_mut(), &mut out).unwrap();
        out
    };
    let again = |bytes: &[u8]| {
        let options = AnalyseOptions { observer: Some(observed(1.0)), ..AnalyseOptions::default() };
        analysed(bytes, &ReadOptions::default(), options).unwrap()
    };
    let detail = again(&export(file(&info(Level::Detail), 1024, &pipeline(0, STEPS, 0))));
    assert_eq!(detail.trace.level, Some(Level::Detail));
    assert!(detail.absolute.reason().contains("level detail"), "{}", detail.absolute.reason());
    // A role that did not come to its close.
    let mut rings = pipeline(0, STEPS, 0);
    rings[1].header.closed = 0;
    let coarse = export(file(&info(Level::Coarse), 1024, &rings));
    let outcome = again(&coarse);
    assert_eq!(outcome.trace.level, Some(Level::Coarse));
    let said = outcome.problems.iter().find(|p| p.kind == ProblemKind::NotClosed).unwrap();
    assert_eq!((said.role.as_deref(), said.count), (Some("PV"), 1));
    assert!(said.says.ends_with("(before its export; first in CTA 0)"), "{said}");
    assert!(!outcome.absolute.is_accepted());
    assert!(again(&export(trace())).absolute.is_accepted(), "a sound one");
    // Where a step starts is not guessed.
    let mut tiles = info(Level::Coarse);
    tiles.roles[PV as usize].step = StepRule::Event(TILE as u16);
    let outcome = again(&export(file(&tiles, 1024, &pipeline(0, STEPS, 0))));
    assert_eq!(outcome.role("PV").unwrap().step_starts_at, "begin of tile");
    assert!(outcome.problems.iter().all(|p| p.kind != ProblemKind::StepGuessed), "{:?}", outcome.problems);
    // What is carried and cannot be read damages too.
    let text = String::from_utf8(coarse).unwrap();
    for (word, bad) in [("\"coarse\"", "\"fine\""), ("\"not_closed\"", "\"open\"")] {
        let outcome = again(text.replace(word, bad).as_bytes());
        assert!(outcome.problems.iter().any(|p| p.kind == ProblemKind::Inconsistent), "{word}");
        assert!(!outcome.absolute.is_accepted());
    }
}

#[test]
fn records_without_a_partner_are_in_no_file_and_counted() {
    let mut rings = pipeline(0, STEPS, 0);
    // Softmax: the first wait's begin and the last chunk's end are gone.
    rings[0].records.remove(0);
    let last = rings[0].records.iter().rposition(|r| r.tag >> b::KBT_TRACE_KIND_SHIFT == b::KBT_TRACE_END);
    rings[0].records.remove(last.unwrap());
    let bytes = file(&info(Level::Coarse), 1024, &rings);
    let expected = LeftOut { orphan_begins: 1, orphan_ends: 1, ..LeftOut::default() };
    let mut sink = std::io::sink();
    assert_eq!(write_perfetto(source(bytes.clone()).as_mut(), &mut sink).unwrap().left_out, expected);
    assert_eq!(write_chrome(source(bytes.clone()).as_mut(), &mut sink).unwrap().left_out, expected);
    assert_eq!(write_rows(source(bytes).as_mut(), "a", &mut sink).unwrap().left_out, expected);
    assert_eq!(expected.problems().list().len(), 2);
    assert_eq!(write_chrome(source(trace()).as_mut(), &mut sink).unwrap().left_out, LeftOut::default());
}

#[test]
fn spans_too_short_for_their_names_have_a_number_and_a_key() {
    let mut outcome = outcome(&with_ring());
    let rows = outcome.timeline.iter_mut().flat_map(|t| &mut t.rows);
    for span in rows.flat_map(|r| &mut r.spans).filter(|s| s.label == "chunk" || s.label == "P_full") {
        span.end_cycles = span.start_cycles + 1.0;
    }
    let drawing = svg(&outcome).unwrap();
    let texts: Vec<_> = drawing.split("<text ").skip(1).filter_map(|t| t.split(['<', '>']).nth(1)).collect();
    assert!(texts.contains(&"over the rows: 1 chunk, 2 wait P_full"), "{texts:?}");
    let over = |number: &str| drawing.matches(&format!("class=\"k c\">{number}<")).count();
    let timeline = outcome.timeline.as_ref().unwrap();
    let spans = |name: &str| timeline.rows.iter().flat_map(|r| &r.spans).filter(|s| s.label == name).count();
    assert_eq!((over("1"), over("2")), (spans("chunk"), spans("P_full")));
    assert!(!texts.contains(&"chunk") && texts.contains(&"P_empty"), "{texts:?}");
}

#[test]
fn a_role_is_drawn_as_busy_only_while_it_recorded() {
    let mut rings = filled_and_freed(0, 30);
    // P·V hangs in the middle of the steps drawn.
    rings[1].records.truncate(14 * 5 + 2);
    rings[1].header.closed = 0;
    let outcome = outcome(&file(&info(Level::Coarse), 1024, &rings));
    let timeline = outcome.timeline.as_ref().unwrap();
    let rows: Vec<_> =
        timeline.rows.iter().map(|r| (r.role.as_str(), r.start_cycles, r.end_cycles)).collect();
    // Its last record is the end of the wait of step 14, at 15520; the drawing starts with step 13, at 13500.
    assert_eq!(rows, [("Softmax", None, None), ("PV", None, Some(2020.0))]);
    assert!(svg(&outcome).unwrap().contains("width=\"653.1\" height=\"36.0\" class=\"b\"><title>PV<"));
}

#[test]
fn counters_that_end_early_or_are_missing_are_counted() {
    let mut rings = filled_and_freed(0, 30);
    rings[1].records.truncate(14 * 5 + 2);
    rings[1].header.closed = 0;
    let mut torn = filled_and_freed(1, 30);
    torn[1].header.close_clock = 1;
    let bytes = file(&info(Level::Coarse), 1024, &[rings, torn].concat());
    for write in [write_chrome, write_perfetto] {
        let mut source =
            open(Box::new(std::io::Cursor::new(bytes.clone())), "a", &Default::default()).unwrap();
        let left_out = write(source.as_mut(), &mut Vec::new()).unwrap().left_out;
        assert_eq!((left_out.rings_cut, left_out.rings_contradict), (1, 1));
        let said: Vec<_> = left_out.problems().list().iter().map(ToString::to_string).collect();
        assert!(said.iter().any(|s| s.ends_with("(its counter ends there)")), "{said:?}");
        assert!(said.iter().any(|s| s.ends_with("(no counter)")), "{said:?}");
    }
}
