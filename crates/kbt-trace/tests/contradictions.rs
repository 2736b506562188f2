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
        assert!(text.contains(&format!("where {who} has records that were refused, or an open")), "{text}");
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
