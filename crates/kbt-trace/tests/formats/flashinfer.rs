//! FlashInfer's buffer.

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
    assert!(error(&bytes, &zero).contains("accepted: 1 to 100000 MHz"));
}

#[test]
fn instants_are_said_to_be_lost_and_short_spans_are_refused() {
    let mut lanes = lanes();
    lanes[0].push((2, 2, 32_000));
    for lane in [1, 3] {
        lanes[lane] = (0..40).flat_map(|i| [(1, 0, i * 320), (1, 1, i * 320 + 32 * (i % 2))]).collect();
    }
    let outcome = analysed(&slots(2, &lanes, 90, |b, _| b), &options(), AnalyseOptions::default()).unwrap();
    assert_eq!(problem(&outcome, ProblemKind::OverwrittenInstants), 1);
    let group = outcome.role("group 1").unwrap();
    let short = group.events.iter().find(|e| e.name == "event 1").unwrap();
    assert_eq!((short.cycles, short.per_step), (None, 1.0));
    assert_eq!(problem(&outcome, ProblemKind::BelowQuantum), 1);
    assert_eq!(problem(&outcome, ProblemKind::ZeroLength), 40);
}

#[test]
fn the_timers_step_is_taken_from_stamps_that_tell_it_alone() {
    // Gaps of 160 all over: the kernel's rhythm or the timer's step.
    let outcome = analysed(&slots(2, &lanes(), 90, |b, _| b), &options(), AnalyseOptions::default()).unwrap();
    assert_eq!((outcome.trace.quantum_cycles, problem(&outcome, ProblemKind::StepAssumed)), (32.0, 1));
    let event = &outcome.role("group 0").unwrap().events[0];
    assert_eq!(event.each_cycles.unwrap().median, 160.0, "five steps of the timer");
    let said = outcome.problems.iter().find(|p| p.kind == ProblemKind::StepAssumed).unwrap();
    assert!(said.says.contains("160 ns apart"), "{}", said.says);
    // Gaps of many lengths, all of them of 1024 ns: the timer's step.
    let lane: Vec<_> = (0..40)
        .flat_map(|i| {
            let at = 1024 * (i * 20 + 1);
            [(1, 0, at), (1, 1, at + 1024 * (i % 9 + 1))]
        })
        .collect();
    let outcome =
        analysed(&slots(2, &[lane.clone(), lane], 90, |b, _| b), &options(), AnalyseOptions::default())
            .unwrap();
    assert_eq!((outcome.trace.quantum_cycles, problem(&outcome, ProblemKind::StepAssumed)), (1024.0, 0));
}
