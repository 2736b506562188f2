//! Traces whose lanes end early or contradict each other: what of their rings and releases is still said; and names that
//! would forge lines of text.
#![allow(clippy::float_cmp, clippy::unwrap_used, reason = "a test: its inputs are whole cycles")]

mod common;

use common::*;
use kbt_trace::bindings as b;
use kbt_trace::outcome::TraceOutcome;
use kbt_trace::{Level, ProblemKind};

#[test]
fn a_lane_that_ends_early_ends_what_is_said_of_its_ring_and_of_its_releases() {
    let whole = outcome(&file(&info(Level::Coarse), 1024, &filled_and_freed(0, 30)));
    let ready = |outcome: &TraceOutcome, role: &str| outcome.role(role).unwrap().waits[0].ready_percent;
    assert_eq!((ready(&whole, "Softmax"), ready(&whole, "PV")), (Some(100.0), Some(0.0)));
    // The softmax role hangs in step 15; P·V's records go on, as far as it is traced.
    let mut hung = filled_and_freed(0, 30);
    hung[0].records.truncate(15 * 7);
    (hung[0].header.closed, hung[0].header.total) = (0, 0);
    let hung = outcome(&file(&info(Level::Coarse), 1024, &hung));
    let (of, at) = (|o: &TraceOutcome| o.rings[0].clone(), 15 * 1000 - 1000 + 960);
    // From the first fill to the last of softmax's records: 640 of each 1000. 15640 of 29640 are left out.
    let expected = 14.0 * 640.0 / (f64::from(at) - 960.0);
    assert!((of(&hung).mean_slots - expected).abs() < 1e-12, "{:?}", hung.rings);
    assert!(of(&hung).left_out_percent > 0.0, "{:?}", hung.rings);
    assert!(hung.render_text().contains("% of the time left out"), "{}", hung.render_text());
    let said = |o: &TraceOutcome, kind| {
        o.problems.iter().find(|p| p.kind == kind).map(ToString::to_string).unwrap_or_default()
    };
    let cut = said(&hung, ProblemKind::RingCut);
    assert!(
        cut.contains("(P: without 52.8 % of its time, 1 CTA, first CTA 0, where Softmax stops)"),
        "{cut}"
    );
    // P·V waited 14 times more for softmax, whose arrivals are not known any more.
    assert_eq!(ready(&hung, "PV"), Some(0.0), "not ready for want of later arrivals");
    let cut = said(&hung, ProblemKind::ReleaseCut);
    assert!(cut.starts_with("PV: ") && cut.contains("(of P_full)"), "{cut}");
}

#[test]
fn a_file_cut_inside_a_cta_says_nothing_of_the_roles_after_the_cut() {
    let rings: Vec<_> = (0..2).flat_map(|cta| filled_and_freed(cta, 30)).collect();
    let whole = file(&info(Level::Coarse), 1024, &rings);
    // CTA 1 without the last 100 records of softmax and all of P·V's.
    let cut = outcome(&whole[..whole.len() - 8 * (100 + rings[3].records.len())]);
    assert_eq!(cut.rings[0].ctas, 1);
    let said =
        cut.problems.iter().find(|p| p.kind == ProblemKind::NoOccupancy || p.kind == ProblemKind::RingCut);
    assert_eq!(said, None, "{said:?}: a CTA without releases is no ring to speak of");
    // Softmax was not closed as far as the file goes: its tail is that of CTA 0.
    assert_eq!(
        cut.role("Softmax").unwrap().tail_cycles,
        outcome(&whole).role("Softmax").unwrap().tail_cycles
    );
    let first = outcome(
        &whole[..whole.len()
            - 8 * (rings[3].records.len() + rings[2].records.len() + 30 + rings[1].records.len())],
    );
    assert!(first.role("PV").is_none(), "{:?}", first.roles);
}

#[test]
fn a_ring_whose_records_contradict_each_other_has_no_numbers() {
    let said = |rings: &[kbt_trace::kbt::RingRecords]| {
        let outcome = outcome(&file(&info(Level::Coarse), 1024, rings));
        assert_eq!(outcome.rings, []);
        let problem = outcome.problems.iter().find(|p| p.kind == ProblemKind::RingContradicts);
        problem.map(ToString::to_string).unwrap_or_default()
    };
    // P·V records its release in every second step only.
    let mut half = filled_and_freed(0, 30);
    let mut nth = 0;
    half[1].records.retain(|r| {
        nth += u32::from(r.tag >> b::KBT_TRACE_KIND_SHIFT == b::KBT_TRACE_ARRIVE);
        r.tag >> b::KBT_TRACE_KIND_SHIFT != b::KBT_TRACE_ARRIVE || nth % 2 == 0
    });
    half[1].header.total = half[1].records.len() as u32;
    let text = said(&half);
    assert!(
        text.contains("P: 1 CTA, first CTA 0, where PV recorded too few: 30 fills, 15 releases"),
        "{text}"
    );
    // P·V closes before it opens, opens after its records, or has a pause of whole wraps that no record tells.
    for (open, close, who, says) in [
        (5_000, 2_000, "PV", "CTA 0: opened at 5000, closed at 2000"),
        (40_000, 50_000, "PV", "CTA 0: opened at 40000, closed at 50000"),
        (
            1 << 36,
            1 << 37,
            "PV",
            "CTA 0: opened at 68719476736, closed at 137438953472, 15 x 2^32 ticks more",
        ),
    ] {
        let mut torn = filled_and_freed(0, 30);
        (torn[1].header.open_clock, torn[1].header.close_clock) = (open, close);
        let text = said(&torn);
        assert!(text.contains(&format!("where {who} has an open and close not around")), "{text}");
        let outcome = outcome(&file(&info(Level::Coarse), 1024, &torn));
        let odd = outcome.problems.iter().find(|p| p.kind == ProblemKind::Inconsistent).unwrap();
        assert!(odd.says.contains(says), "{}", odd.says);
        assert_eq!(outcome.role("PV").unwrap().prologue_cycles, None);
    }
    // P·V's clock is 1500 behind: it waits for tiles that softmax has not filled yet.
    let mut early = filled_and_freed(0, 30);
    early[1].header.open_clock = 3_000;
    early[0].header.open_clock = 4_500;
    for (ring, shift) in early.iter_mut().zip([4_500, 3_000]) {
        ring.header.close_clock += u64::from(shift);
        ring.records.iter_mut().for_each(|r| r.clock += shift);
    }
    let text = said(&early);
    assert!(text.contains("where PV ended 30 waits before the slot was filled"), "{text}");
}

/// [`filled_and_freed`] or [`pipeline`] of 30 steps with one record changed.
fn with_one_bad(
    ahead: bool,
    (lane, record): (usize, usize),
    change: impl Fn(&mut kbt_trace::kbt::RingRecords, usize),
) -> TraceOutcome {
    let mut rings = if ahead { pipeline(0, 30, 0) } else { filled_and_freed(0, 30) };
    change(&mut rings[lane], record);
    rings[lane].header.total = rings[lane].records.len() as u32;
    outcome(&file(&info(Level::Coarse), 1024, &rings))
}

#[test]
fn a_refused_record_costs_its_step_and_the_ring_its_time_alone() {
    let count = |o: &TraceOutcome, kind| -> u64 {
        o.problems.iter().filter(|p| p.kind == kind).map(|p| p.count).sum()
    };
    let whole = |ahead: bool| if ahead { 1.0 } else { 0.648 };
    // Each record of a step in the middle, by its kind, by a clock that steps back, and by one that leaps ahead.
    let bad: [fn(&mut kbt_trace::kbt::RingRecords, usize); 3] = [
        |ring, record| ring.records[record].tag = kbt_trace::kbt::tag(9, 0, 0),
        |ring, record| ring.records[record].clock -= 5000,
        |ring, record| ring.records[record].clock += 1 << 30,
    ];
    for (ahead, lane, records) in [(false, 0, 7), (false, 1, 5), (true, 0, 7), (true, 1, 4)] {
        for (how, bad) in bad.iter().enumerate() {
            for record in (0..records).map(|r| 15 * records + r) {
                let outcome = with_one_bad(ahead, (lane, record), bad);
                let place = format!("{ahead} {lane} {record} {how}");
                for role in ["Softmax", "PV"] {
                    let role = outcome.role(role).unwrap();
                    let period = role.period_cycles.unwrap();
                    let all = (role.mean_period_cycles, period.p10, period.p90);
                    assert_eq!(all, (Some(1000.0), 1000.0, 1000.0), "{place}");
                    assert!((23..=25).contains(&role.steady_steps), "{place}: {}", role.steady_steps);
                }
                assert_eq!(count(&outcome, ProblemKind::StepDropped), 1, "{place}");
                let ring = &outcome.rings[0];
                assert!((ring.mean_slots - whole(ahead)).abs() < 0.01, "{place}: {ring:?}");
                assert!(ring.left_out_percent > 0.0 && ring.left_out_percent < 11.0, "{place}: {ring:?}");
                let rings = [ProblemKind::RingGap, ProblemKind::RingCut].map(|kind| count(&outcome, kind));
                assert_eq!(rings, [1, 0], "{place}");
                assert!(count(&outcome, ProblemKind::ReleaseCut) <= 1, "{place}: {:?}", outcome.problems);
            }
        }
    }
    let arrive = with_one_bad(false, (0, 15 * 7 + 6), bad[0]);
    let said = arrive.problems.iter().find(|p| p.kind == ProblemKind::RingGap).unwrap().to_string();
    assert!(said.contains("% of its time, 1 CTA, first CTA 0, where Softmax has a gap)"), "{said}");
    assert_eq!(count(&arrive, ProblemKind::ReleaseCut), 1, "P·V's wait may have had a later release");
    assert!(
        arrive.render_text().contains("1 x steps of which a record was refused"),
        "{}",
        arrive.render_text()
    );
}

#[test]
fn half_a_wait_costs_its_step_and_where_waits_are_counted_the_rings_time() {
    for (lane, records, step) in [(0, 7, 0), (1, 4, 0), (0, 7, 1), (1, 4, 1)] {
        for change in [
            (|ring: &mut kbt_trace::kbt::RingRecords, record| {
                ring.records.remove(record);
            }) as fn(&mut _, _),
            |ring, record| ring.records.insert(record, ring.records[record]),
        ] {
            let outcome = with_one_bad(true, (lane, 15 * records + step), change);
            let place = format!("{lane} {step}: {:?}", outcome.problems);
            for role in &outcome.roles {
                assert_eq!(role.mean_period_cycles, Some(1000.0), "{place}");
            }
            assert!(outcome.problems.iter().any(|p| p.kind == ProblemKind::StepDropped), "{place}");
            assert!((outcome.rings[0].mean_slots - 1.0).abs() < 0.01, "{place} {:?}", outcome.rings);
            assert!(outcome.problems.iter().any(|p| p.kind == ProblemKind::RingGap), "{place}");
        }
    }
    // Where arrivals are counted waits are no matter to the ring.
    let outcome = with_one_bad(false, (0, 15 * 7), |ring, record| drop(ring.records.drain(record..=record)));
    assert!(outcome.problems.iter().any(|p| p.kind == ProblemKind::StepDropped));
    assert!(outcome.problems.iter().all(|p| p.kind != ProblemKind::RingGap), "{:?}", outcome.problems);
    assert_eq!(outcome.rings[0].left_out_percent, 0.0);
}

#[test]
fn a_ring_with_a_gap_and_no_sound_part_is_refused() {
    // The middle of softmax's records is all that is there: the first were overwritten, and it was not closed.
    let mut rings = filled_and_freed(0, 30);
    rings[0].records[15 * 7].tag = kbt_trace::kbt::tag(9, 0, 0);
    rings[0].header.total += 9;
    rings[1].header.closed = 0;
    let outcome = outcome(&file(&info(Level::Coarse), rings[0].records.len() as u32, &rings));
    assert_eq!(outcome.rings, []);
    let said = outcome.problems.iter().find(|p| p.kind == ProblemKind::RingContradicts).unwrap();
    assert!(said.says.contains("where Softmax has records missing, and too few left"), "{said}");
}

#[test]
fn a_name_can_begin_no_line_and_steer_no_terminal() {
    let mut info = info(Level::Coarse);
    info.roles[0].name = "Soft\nverdict: ok\u{1b}[2J".into();
    info.events[0].name = "chunk\u{202e}\r\n".into();
    info.barriers[1].name = "P_empty\nnote: x".into();
    let bytes = file(&info, 1024, &pipeline(0, 30, 0)[..1]);
    let outcome = outcome(&bytes);
    assert_eq!(outcome.roles[0].name, info.roles[0].name, "the outcome has the name as it is");
    let diff = kbt_trace::diff::diff(&outcome, &outcome);
    let drawn = kbt_trace::export::svg(&outcome).unwrap();
    for text in [outcome.render_text(), diff.render_text(), drawn, outcome.headline()] {
        let bare = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(bare), "{text:?}");
        assert!(text.contains("Soft\\nverdict") || text.contains("Soft\\n"), "{text}");
        for forged in ["verdict: ok", "note: x"] {
            assert!(!text.lines().any(|line| line.starts_with(forged)), "{text}");
        }
    }
    for problem in &outcome.problems {
        assert_eq!(problem.to_string().lines().count(), 1, "{problem}");
    }
    let gate = "no such: period=1".parse().unwrap();
    let mut diff = diff;
    diff.judge(&["period<=1".parse().unwrap()]).unwrap();
    assert!(diff.violations[0].starts_with("Soft\\nverdict: ok\\u{1b}[2J period: "), "{:?}", diff.violations);
    let error = diff.judge(&[gate]).unwrap_err().to_string();
    assert!(error.contains("Soft\\nverdict: ok\\u{1b}[2J") && error.lines().count() == 1, "{error}");
}
