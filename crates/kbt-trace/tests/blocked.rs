//! Kernels in which every wait blocks, or never ends: what a wait costs must not be taken from a blocked one.
#![allow(clippy::float_cmp, clippy::unwrap_used, reason = "a test: its inputs are whole cycles")]

mod common;

use common::*;
use kbt_evidence::{FixClass, Standing};
use kbt_trace::bindings::{
    KBT_TRACE_ARRIVE as ARRIVE, KBT_TRACE_RING_CLOSED, KBT_TRACE_WAIT_BEGIN as BEGIN,
    KBT_TRACE_WAIT_END as END,
};
use kbt_trace::kbt::RingRecords;
use kbt_trace::outcome::{Absolute, Critical, TraceOutcome};
use kbt_trace::{
    AnalyseOptions, Barrier, BarrierPurpose, CtaTrace, Edge, Event, Kind, Lane, Level, MemoryTrace,
    ProblemKind, Problems, ReadOptions, Releaser, Role, StepRule, TraceInfo, Work, analyse,
};

/// A loop bound by memory: loads take `bandwidth` cycles a tile, the MMAs 300; four buffers.
fn memory_bound(bandwidth: u64) -> Vec<u8> {
    let mut info = TraceInfo::new(Level::Coarse, Some(2000.0));
    info.roles = vec![
        Role::new("Load", StepRule::Wait(1)).works(Work { load: true, ..Work::default() }),
        Role::new("MMA", StepRule::Wait(0)).works(Work { tensor: true, ..Work::default() }),
    ];
    info.barriers = ["K full", "K empty"].map(|n| Barrier::new(n, BarrierPurpose::Plain)).to_vec();
    info.edges = vec![
        Edge { barrier: 0, arriving: Releaser::Hardware { issuer: Some(0) }, waiting: 1 },
        Edge { barrier: 1, arriving: Releaser::Role(1), waiting: 0 },
    ];
    let (mut load, mut mma, mut freed) = (Vec::new(), Vec::new(), Vec::new());
    let (mut memory, mut load_at, mut mma_at) = (1000, 1000, 1000);
    for step in 0..64_usize {
        let open = step.checked_sub(4).map_or(load_at, |slot| freed[slot]);
        let end = (load_at + 20).max(open + 20);
        load.extend([(BEGIN, 1, load_at), (END, 1, end), (ARRIVE, 0, end + 10)]);
        load_at = end + 40;
        memory = memory.max(end + 10) + bandwidth;
        let end = (mma_at + 20).max(memory + 800);
        mma.extend([(BEGIN, 0, mma_at), (END, 0, end), (ARRIVE, 1, end + 300)]);
        freed.push(end + 300);
        mma_at = end + 310;
    }
    file(&info, 1024, &[ring(0, 0, 0, &load, load_at + 99), ring(0, 1, 0, &mma, mma_at + 99)])
}

fn observed_outcome(bytes: &[u8]) -> TraceOutcome {
    let options = AnalyseOptions { observer: Some(observed(1.0)), ..AnalyseOptions::default() };
    analysed(bytes, &ReadOptions::default(), options).unwrap()
}

#[test]
fn a_loop_that_waits_for_its_loads_is_not_said_to_hardly_wait() {
    let outcome = observed_outcome(&memory_bound(1000));
    let mma = outcome.role("MMA").unwrap();
    assert_eq!(mma.mean_period_cycles, Some(1000.0));
    assert_eq!(mma.waits[0].cycles, Some(690.0));
    assert_eq!(outcome.wait_floor_cycles, Some(20.0), "the first loads find their buffers free");
    assert_eq!(mma.slack_cycles, Some(670.0));
    let verdict = |class| outcome.verdicts().into_iter().find(|v| v.class == class).unwrap();
    let memory = verdict(FixClass::MemoryTraffic);
    assert_eq!(memory.standing, Standing::Open);
    assert_eq!(memory.reason, "the roles that set the pace wait for loads");
    assert_eq!(memory.evidence[0].figures[0].value, 67.0);
    // MMA has time to spare, but takes no work from itself, and Load has none to give.
    let balance = verdict(FixClass::RoleBalance);
    assert_eq!(balance.standing, Standing::RuledOut);
    assert!(balance.reason.contains("no role that sets the pace has work"), "{}", balance.reason);
    assert!(outcome.render_text().contains("wait floor: 20 clk"), "{}", outcome.render_text());
}

/// Two roles in turn, 520 and 340 cycles at work, and 30 from an arrival to the end of its wait.
fn ping_pong(arrivals: bool) -> Vec<u8> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for step in 0..40 {
        let at = 1000 + 900 * step;
        a.extend([(BEGIN, P_EMPTY, at - 377), (END, P_EMPTY, at), (ARRIVE, P_FULL, at + 500)]);
        b.extend([(BEGIN, P_FULL, at - 20), (END, P_FULL, at + 530), (ARRIVE, P_EMPTY, at + 870)]);
    }
    for records in [&mut a, &mut b] {
        records.retain(|r| arrivals || r.0 != ARRIVE);
    }
    file(&info(Level::Coarse), 1024, &[ring(0, SOFTMAX, 0, &a, 90_000), ring(0, PV, 0, &b, 90_000)])
}

#[test]
fn where_every_wait_blocks_the_floor_is_the_round_trip_or_nothing() {
    let outcome = observed_outcome(&ping_pong(true));
    assert_eq!(outcome.wait_floor_cycles, Some(30.0));
    let slack = |o: &TraceOutcome, name: &str| o.role(name).unwrap().slack_cycles.unwrap();
    assert_eq!((slack(&outcome, "Softmax"), slack(&outcome, "PV")), (347.0, 520.0));
    assert!(matches!(outcome.critical, Critical::Cycle { .. }), "{:?}", outcome.critical);
    assert!(outcome.problems.iter().all(|p| p.kind != ProblemKind::NoOpenWait));
    let balance = outcome.verdicts().into_iter().find(|v| v.class == FixClass::RoleBalance).unwrap();
    assert_eq!(balance.reason, "Softmax could take work from PV; PV could take work from Softmax");

    let blind = observed_outcome(&ping_pong(false));
    assert_eq!(blind.wait_floor_cycles, None);
    assert_eq!((slack(&blind, "Softmax"), slack(&blind, "PV")), (377.0, 550.0));
    let note = blind.problems.iter().find(|p| p.kind == ProblemKind::NoOpenWait).unwrap();
    assert!(note.says.contains("at most 200 clk"), "{note}");
}

/// [`pipeline`] in two CTAs; in the second both roles stop in a wait, the softmax at its step 20.
fn deadlocked() -> Vec<u8> {
    let mut rings: Vec<_> = (0..2).flat_map(|cta| pipeline(cta, 30, 0)).collect();
    for (ring, records) in rings[2..].iter_mut().zip([7, 4]) {
        ring.records.truncate(20 * records + 1);
        ring.header.closed = 0;
        ring.header.close_clock = 0;
        ring.header.total = 0;
    }
    file(&info(Level::Coarse), 1024, &rings)
}

#[test]
fn a_role_that_ends_in_a_wait_is_said_to_be_stuck_there() {
    let outcome = observed_outcome(&deadlocked());
    let softmax = &outcome.role("Softmax").unwrap().stuck;
    assert_eq!(softmax.len(), 1);
    assert_eq!((softmax[0].on.as_str(), softmax[0].ctas, softmax[0].first.cta), ("P_empty", 1, 1));
    assert_eq!(softmax[0].since_cycles, 20_500.0);
    let text = outcome.render_text();
    assert!(
        text.contains("stuck in P_empty in 1 CTA, first in CTA 1 since 20500 clk after open()"),
        "{text}"
    );
    assert_eq!(outcome.role("PV").unwrap().stuck[0].since_cycles, 21_120.0);
    let whole = observed_outcome(&file(&info(Level::Coarse), 1024, &pipeline(0, 30, 0)));
    assert!(whole.roles.iter().all(|r| r.stuck.is_empty()));
}

#[test]
fn a_role_without_its_close_leaves_no_absolute_numbers() {
    let outcome = observed_outcome(&deadlocked());
    assert!(outcome.problems.iter().any(|p| p.kind == ProblemKind::NotClosed && p.kind.damages()));
    let Absolute::Refused { reason } = &outcome.absolute else { panic!("{:?}", outcome.absolute) };
    assert!(reason.contains("without close()"), "{reason}");
    assert!(outcome.verdicts().iter().all(|v| v.standing == Standing::Refused));
}

/// [`pipeline`]'s softmax, opened at 9000, up to the first `records` of its step 20, `change`d; not closed.
fn ended(records: usize, change: impl Fn(&mut RingRecords)) -> TraceOutcome {
    let mut rings = pipeline(0, 30, 9000);
    rings[0].records.truncate(20 * 7 + records);
    rings[0].header.closed = 0;
    rings[0].header.close_clock = 0;
    rings[0].header.total = 0;
    change(&mut rings[0]);
    observed_outcome(&file(&info(Level::Coarse), 1024, &rings))
}

#[test]
fn only_a_role_of_an_open_ring_whose_last_record_begins_a_wait_is_stuck() {
    let stuck = |outcome: &TraceOutcome| outcome.role("Softmax").unwrap().stuck.clone();
    let hung = stuck(&ended(1, |_| {}));
    assert_eq!((hung.len(), hung[0].since_cycles), (1, 20_500.0), "after open(), wherever that is");
    // Its last record begins or ends an event, or ends the wait.
    for records in [2, 3, 4, 6] {
        assert_eq!(stuck(&ended(records, |_| {})), [], "{records}");
    }
    let closed = |ring: &mut RingRecords| {
        ring.header.closed = KBT_TRACE_RING_CLOSED;
        ring.header.close_clock = 9000 + 30_000;
        ring.header.total = ring.records.len() as u32;
    };
    assert_eq!(stuck(&ended(1, closed)), [], "the end of the wait was lost");
    // A recorder that has no open(), or one whose buffer filled, does not tell that the role ended there.
    for (opened, stopped_full, expected) in [(Some(0), false, 1), (None, false, 0), (Some(0), true, 0)] {
        let begins = |k: u64| [(100 * k, Kind::WaitBegin), (100 * k + 40, Kind::WaitEnd)];
        let records = (0..30).flat_map(begins).chain([(3000, Kind::WaitBegin)]);
        let events = records.map(|(at, kind)| Event { at, kind, id: 1, step: 0 }).collect();
        let lane = Lane { events, opened, stopped_full, dropped: Some(0), ..Lane::default() };
        let cta = CtaTrace { lanes: vec![lane], ..CtaTrace::default() };
        let mut source = MemoryTrace::new(info(Level::Coarse), vec![cta], Problems::default());
        let outcome = analyse(&mut source, &AnalyseOptions::default()).unwrap();
        assert_eq!(stuck(&outcome).len(), expected, "{opened:?} {stopped_full}");
    }
}

#[test]
fn the_waits_of_a_handoff_are_means_over_its_two_ways() {
    // Every fourth step the first and the rest come late, and the buffer is free at once.
    let (mut softmax, mut pv) = (Vec::new(), Vec::new());
    for step in 0..40 {
        let (at, late) = (1000 * step + 500, if step % 4 == 0 { 200 } else { 0 });
        softmax.extend([(BEGIN, P_EMPTY, at), (END, P_EMPTY, at + 220 - late), (ARRIVE, P_FULL, at + 600)]);
        pv.extend([(BEGIN, P_FULL, at + 100), (END, P_FULL, at + 150 + late)]);
        pv.extend([(BEGIN, 3, at + 500), (END, 3, at + 540 + 2 * late)]);
    }
    let mut info = info(Level::Coarse);
    info.barriers.push(Barrier::new("P_rest", BarrierPurpose::Rest));
    let rings = [ring(0, SOFTMAX, 0, &softmax, 60_000), ring(0, PV, 0, &pv, 60_000)];
    let handoff = observed_outcome(&file(&info, 1024, &rings)).handoff.unwrap();
    let waits = (handoff.wait_first_cycles, handoff.wait_rest_cycles, handoff.wait_free_cycles);
    // Of 35 steady steps 9 are late.
    let mean = |usual: f64, late: f64| Some((26.0 * usual + 9.0 * late) / 35.0);
    assert_eq!(waits, (mean(50.0, 250.0), mean(40.0, 440.0), mean(220.0, 20.0)));
}
