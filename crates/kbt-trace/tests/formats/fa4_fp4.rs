//! The buffer of flash-attention-fp4.

use super::*;

/// 96 steps whose numbers are those published for FP4 after the change: period 4381, busy 2429, wait P 633.
fn block(base: u32) -> Vec<Vec<(u32, u32, u32)>> {
    let at = |step: u32, offset: u32| base.wrapping_add(step * 4381 + offset);
    let mut lanes = vec![Vec::new(); 4];
    for step in 0..96 {
        let span = |event: u32, from: u32, to: u32| [(event, 0, at(step, from)), (event, 1, at(step, to))];
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
fn a_store_that_was_full_before_the_steady_state_passes_no_gate() {
    // 128 records a lane: of softmax one step and a wait that ends and begins again and again.
    let mut lanes = block(1000);
    let mut at = 10_000;
    lanes[1].truncate(4);
    for _ in 0..62 {
        lanes[1].extend([(7, 0, at), (7, 1, at + 200)]);
        at += 400;
    }
    let outcome = read(&slots(4, &lanes, 800, |b, _| b));
    let said = outcome.problems.iter().find(|p| p.kind == ProblemKind::StoppedEarly).unwrap();
    assert_eq!((said.role.as_deref(), said.kind.damages()), (Some("Softmax0"), true));
}

#[test]
fn a_store_that_stopped_at_128_events_is_said_to_hold_the_prologue() {
    let lanes: Vec<Vec<_>> =
        block(1000).into_iter().map(|lane| lane.into_iter().take(128).collect()).collect();
    let outcome = read(&slots(4, &lanes, 800, |b, _| b));
    assert_eq!(problem(&outcome, ProblemKind::StoppedFull), 4);
    assert_eq!(problem(&outcome, ProblemKind::StoppedEarly), 0, "14 steps have a steady state");
    let text = outcome.render_text();
    assert!(text.contains("oldest kept"), "{text}");
}

#[test]
fn a_store_that_was_full_before_the_kernel_was_done_is_a_window_and_no_verdict() {
    // 96 steps, the first 40 of them longer: the window of 128 records holds those alone.
    let step = |k: u32| if k < 40 { k * 5000 } else { 200_000 + (k - 40) * 4000 };
    let softmax =
        |k| [(6, 0, step(k)), (6, 1, step(k) + 2000), (7, 0, step(k) + 2100), (7, 1, step(k) + 2400)];
    let lane: Vec<_> = (0..96).flat_map(softmax).collect();
    let judged = |kept: usize| {
        let lanes = vec![vec![], lane[..kept].to_vec(), vec![], vec![]];
        let options = AnalyseOptions { observer: Some(observed(1.0)), ..AnalyseOptions::default() };
        let options = (ReadOptions { input: Input::Fa4Fp4, ..ReadOptions::default() }, options);
        analysed(&slots(4, &lanes, 800, |b, _| b), &options.0, options.1).unwrap()
    };
    let (whole, window) = (judged(384), judged(128));
    assert!(whole.absolute.is_accepted(), "{:?}", whole.absolute);
    assert!(!whole.render_text().contains("recorded window"));
    assert_eq!(window.role("Softmax0").unwrap().period_cycles.unwrap().median, 5000.0);
    let said = window.problems.iter().find(|p| p.kind == ProblemKind::StoppedFull).unwrap();
    assert!(said.kind.damages());
    let reason = window.absolute.reason();
    assert!(!window.absolute.is_accepted() && reason.contains("recording stopped"), "{reason}");
    assert!(window.verdicts().iter().all(|v| v.reason == reason), "{:?}", window.verdicts());
    let text = window.render_text();
    assert!(text.contains("recorded window: ") && text.contains("(Softmax0)"), "{text}");
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

#[test]
fn a_stamp_far_ahead_costs_its_own_record_alone() {
    let clean = read(&slots(4, &block(1000), 800, |b, _| b));
    let mut lanes = block(1000);
    lanes[0][360].2 += 1 << 30;
    let outcome = read(&slots(4, &lanes, 800, |b, _| b));
    assert_eq!(
        (problem(&outcome, ProblemKind::FarStamp), problem(&outcome, ProblemKind::ClockBackwards)),
        (1, 0)
    );
    assert_eq!(outcome.trace.records, clean.trace.records - 1);
    assert_eq!(outcome.role("MMA").unwrap().period_cycles.unwrap().p90, 4381.0);
}

#[test]
fn a_unit_is_for_chrome_traces_alone() {
    let unit = ReadOptions { unit: Some(Unit::Cycles), ..ReadOptions::default() };
    let message = error(&slots(4, &block(1000), 800, |b, _| b), &unit);
    assert!(message.contains("--unit: given") && message.contains("fa4-fp4"), "{message}");
}

#[test]
fn a_record_that_is_refused_costs_its_step_alone() {
    // Of step 40 of Softmax0 the begin of its wait, which starts the step, or of its store.
    for (record, event, lost) in [(0, 6, 2), (2, 7, 1)] {
        for (event, kind, back) in [(99, 0, 0), (event, 3, 0), (event, 0, 9000)] {
            let mut lanes = block(1_000_000);
            let bad = &mut lanes[1][40 * 4 + record];
            *bad = (event, kind, bad.2 - back);
            let outcome = read(&slots(4, &lanes, 800, |b, _| b));
            let softmax = outcome.role("Softmax0").unwrap();
            assert_eq!(softmax.mean_period_cycles, Some(4381.0));
            assert_eq!(problem(&outcome, ProblemKind::StepDropped), 1);
            assert_eq!(softmax.steady_steps + lost, outcome.role("Softmax1").unwrap().steady_steps);
        }
    }
}
