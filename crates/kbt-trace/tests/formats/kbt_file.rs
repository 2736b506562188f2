//! kbt's own file and the device buffer that it comes from.

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
    assert_eq!(short, "a.trace: offset 100: roles: the file ends after 36 bytes of it; accepted: 168 bytes");
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
fn ids_that_do_not_fit_a_tag_are_reported_and_no_span_of_another() {
    use ProblemKind::{OrphanBegin, OrphanEnd, UnknownRecord};
    for bits in [0x1000, 0x2000, 0x4000, 0x8000] {
        let mut rings = pipeline(0, 20, 0);
        // As the device puts them together: nothing is masked.
        let device = |kind: u32, id: u32| kind << b::KBT_TRACE_KIND_SHIFT | id << b::KBT_TRACE_ID_SHIFT;
        for pair in rings[1].records.chunks_exact_mut(4) {
            pair[2].tag = device(b::KBT_TRACE_BEGIN, bits | TILE);
            pair[3].tag = device(b::KBT_TRACE_END, bits | TILE);
        }
        let outcome = outcome(&file(&info(Level::Coarse), 1024, &rings));
        let reported: u64 =
            [OrphanBegin, OrphanEnd, UnknownRecord].map(|kind| problem(&outcome, kind)).iter().sum();
        assert!(reported >= 20, "{bits:#x}: {:?}", outcome.problems);
        let tile = outcome.role("PV").unwrap().events.iter().find(|e| e.name == "tile");
        assert!(tile.is_none_or(|t| t.cycles.is_none() || t.per_step == 0.0), "{bits:#x}: {tile:?}");
    }
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

#[test]
fn clocks_that_cannot_be_leave_the_order_of_the_records_and_are_said() {
    // One closes before its records can have been, one opens where they would run past the clock's range.
    for (open_clock, close_clock) in [(1000, Some(3)), (u64::MAX - 20, None)] {
        let kinds = [(b::KBT_TRACE_BEGIN, 0, 10), (b::KBT_TRACE_END, 0, 400), (b::KBT_TRACE_BEGIN, 1, 410)];
        let mut ring = ring(0, 2, 0, &kinds, 500);
        ring.header.open_clock = open_clock;
        ring.header.close_clock = close_clock.unwrap_or(0);
        if close_clock.is_none() {
            ring.header.closed = 0;
        }
        for record in &mut ring.records {
            record.clock = record.clock.wrapping_add(open_clock as u32);
        }
        let bytes = file(&info(Level::Coarse), 1024, &[ring]);
        let mut source = open(Box::new(std::io::Cursor::new(bytes)), "a", &ReadOptions::default()).unwrap();
        let mut cta = CtaTrace::default();
        assert!(source.next_cta(&mut cta).unwrap());
        let times: Vec<_> = cta.lanes[0].events.iter().map(|e| e.at).collect();
        assert_eq!(times.len(), 3, "{open_clock}");
        assert!(times.is_sorted(), "{open_clock}: {times:?}");
        assert_eq!(source.problems().count(ProblemKind::Inconsistent), 1, "{open_clock}");
        assert!(cta.lanes[0].torn, "{open_clock}");
    }
}

/// Bytes of the file's header and of a role's entry.
const HEADER: usize = size_of::<b::kbt_trace_file_header>();
const ROLE: usize = size_of::<b::kbt_trace_role>();

fn put(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

#[test]
fn a_file_that_contradicts_itself_says_where() {
    use std::mem::offset_of;
    type Header = b::kbt_trace_file_header;
    type Ring = b::kbt_trace_ring;
    let rings: Vec<_> = (0..2).flat_map(|cta| pipeline(cta, 20, 0)).collect();
    let sound = file(&info(Level::Coarse), 256, &rings);
    let records: usize = rings.iter().map(|r| r.records.len() * 8).sum();
    let first_ring = sound.len() - records - rings.len() * size_of::<Ring>();
    let said = |bytes: &[u8]| {
        let problems = outcome(bytes).problems;
        let found = problems.iter().filter(|p| p.kind == ProblemKind::Inconsistent);
        found.map(|p| p.to_string()).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(said(&sound), "");
    let with = |at: usize, word: u32| {
        let mut bytes = sound.clone();
        put(&mut bytes, at, word);
        said(&bytes)
    };
    let ring = |index: usize, field: usize| first_ring + index * size_of::<Ring>() + field;
    let step_id = HEADER + offset_of!(b::kbt_trace_role, step_id);
    let more = said(&[&sound[..], &[0; 40]].concat());
    assert!(more.contains(&format!("at offset {}, 40 bytes after the last record", sound.len())), "{more}");
    for (at, word, part) in [
        (offset_of!(Header, records), 3, "3 records by the header, 440 by the rings"),
        (offset_of!(Header, ring_capacity), 4, "140 records kept in a ring of 4"),
        (ring(1, offset_of!(Ring, total)), 3, "role 1 of CTA 0: 80 records kept of 3 written"),
        (
            ring(1, offset_of!(Ring, total)),
            1_000_000,
            "role 1 of CTA 0: 80 records kept of 1000000 written, in a ring of 256 that was not full",
        ),
        (ring(1, offset_of!(Ring, role)), 0, "role 0 of CTA 0 has more than one ring"),
        (step_id, 65_537, "Softmax: 1 x"),
        (step_id, 77, "id 77, of 3 barriers"),
        (step_id - 4, 9, "kind 9"),
        (step_id + ROLE, 0xffff_ffff, "PV: 1 x"),
    ] {
        let got = with(at, word);
        assert!(got.contains(part), "{part}: {got}");
    }
    let mut torn = rings;
    torn.swap(1, 2);
    let got = said(&file(&info(Level::Coarse), 256, &torn));
    assert!(got.contains("CTA 0 is read as several, since its rings are no neighbours"), "{got}");
}

#[test]
fn a_step_at_an_unknown_barrier_is_guessed_not_taken_from_its_low_bits() {
    let at = HEADER + std::mem::offset_of!(b::kbt_trace_role, step_id);
    let mut bytes = file(&info(Level::Coarse), 1024, &pipeline(0, 20, 0));
    put(&mut bytes, at, 65_536 + P_EMPTY);
    let outcome = outcome(&bytes);
    assert!(outcome.problems.iter().any(|p| p.kind == ProblemKind::StepGuessed));
    assert_eq!(outcome.role("Softmax").unwrap().period_cycles.unwrap().median, 1000.0);
}

#[test]
fn what_is_missing_after_a_cut_is_counted_in_records() {
    let rings: Vec<_> = (0..2).flat_map(|cta| pipeline(cta, 20, 0)).collect();
    let bytes = file(&info(Level::Coarse), 1024, &rings);
    // The last ring has 80 records; 100 fewer reach 20 into the one before it.
    let outcome = outcome(&bytes[..bytes.len() - 800]);
    let cut = outcome.problems.iter().find(|p| p.kind == ProblemKind::Truncated).unwrap();
    assert!(cut.says.contains("100 records missing: of the ring there and 1 after it"), "{}", cut.says);
    assert_eq!(problem(&outcome, ProblemKind::Inconsistent), 0, "the cut alone");
}

#[test]
fn a_trace_without_records_says_what_was_in_their_way() {
    let mut rings = pipeline(0, 20, 0);
    rings.truncate(1);
    let mut bytes = file(&info(Level::Coarse), 1024, &rings);
    let ring = bytes.len() - rings[0].records.len() * 8 - size_of::<b::kbt_trace_ring>();
    put(&mut bytes, ring + std::mem::offset_of!(b::kbt_trace_ring, role), 5);
    let message = error(&bytes, &ReadOptions::default());
    assert!(message.contains("140 x a record of unknown kind") && message.contains("role 5"), "{message}");
    let message = error(&bytes[..ring + 10], &ReadOptions::default());
    assert!(message.contains("ends early") && message.contains("inside the ring headers"), "{message}");
    assert!(!message.contains("contradicts"), "the cut alone: {message}");
}

#[test]
fn an_edge_that_cannot_be_is_named_by_its_place() {
    let info = info(Level::Coarse);
    let mut bytes = file(&info, 1024, &pipeline(0, 3, 0));
    let entries = info.roles.len() + info.events.len() + info.barriers.len();
    assert_eq!(size_of::<b::kbt_trace_event>(), size_of::<b::kbt_trace_barrier>());
    let edges =
        HEADER + info.roles.len() * ROLE + (entries - info.roles.len()) * size_of::<b::kbt_trace_event>();
    let second = edges + size_of::<b::kbt_trace_edge>();
    put(&mut bytes, second, 9);
    let message = error(&bytes, &ReadOptions::default());
    assert!(message.starts_with(&format!("a.trace: offset {second}: edge: barrier 9")), "{message}");
}

#[test]
fn a_stamp_far_ahead_costs_its_own_record_alone() {
    let mut rings = pipeline(0, 20, 0);
    rings[1].records[20].clock += 1 << 30;
    let outcome = outcome(&file(&info(Level::Coarse), 1024, &rings));
    assert_eq!(
        (problem(&outcome, ProblemKind::FarStamp), problem(&outcome, ProblemKind::ClockBackwards)),
        (1, 0)
    );
    assert_eq!(outcome.trace.records, 20 * 11 - 1);
}

#[test]
fn options_that_a_trace_of_kbts_own_has_no_use_for_are_refused() {
    let bytes = file(&info(Level::Coarse), 1024, &pipeline(0, 20, 0));
    let unit = ReadOptions { unit: Some(Unit::Nanoseconds), ..ReadOptions::default() };
    assert!(error(&bytes, &unit).contains("--unit: given"));
    let tensor = ReadOptions { tensor: Some("x".into()), ..ReadOptions::default() };
    assert!(error(&bytes, &tensor).contains("--tensor: given"));
}

#[test]
fn a_clock_given_against_the_files_is_said() {
    let bytes = file(&info(Level::Coarse), 1024, &pipeline(0, 30, 0));
    let read = |mhz| {
        let options = ReadOptions { clock_mhz: Some(mhz), ..ReadOptions::default() };
        analysed(&bytes, &options, AnalyseOptions::default()).unwrap()
    };
    let other = read(1500.0);
    assert_eq!(other.trace.sm_clock_mhz, Some(1500.0));
    let note = other.problems.iter().find(|p| p.kind == ProblemKind::ClockGiven).unwrap();
    assert!(note.says.contains("1500 MHz given, 2000 MHz in the file"), "{note}");
    assert_eq!(problem(&read(2000.0), ProblemKind::ClockGiven), 0);
}

#[test]
fn a_pause_of_whole_wraps_is_no_prologue() {
    let mut rings = pipeline(0, 30, 0);
    rings[0].header.close_clock += 5 << 32;
    let outcome = outcome(&file(&info(Level::Coarse), 1024, &rings));
    let softmax = outcome.role("Softmax").unwrap();
    assert_eq!((softmax.prologue_cycles, softmax.tail_cycles), (None, None));
    let damage = outcome.problems.iter().find(|p| p.kind == ProblemKind::Inconsistent).unwrap();
    assert!(damage.says.contains("5 x 2^32 ticks more than the records tell"), "{damage}");
    // Of a ring that was overwritten the oldest record kept may lie any number of wraps after open().
    rings[0].header.total += 100_000;
    let capacity = rings[0].records.len() as u32;
    let outcome = common::outcome(&file(&info(Level::Coarse), capacity, &rings));
    assert!(outcome.problems.iter().all(|p| !p.says.contains("2^32 ticks more")), "{:?}", outcome.problems);
}
