//! Nothing is ruled out for want of a record: what the trace does not say is refused.
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use common::*;
use kbt_evidence::{FixClass, Standing, Verdict};
use kbt_trace::bindings as b;
use kbt_trace::outcome::{Absolute, Critical, TraceOutcome};
use kbt_trace::{AnalyseOptions, Edge, Level, ReadOptions, Releaser, Role, StepRule, TraceInfo, Work};

const LOAD: usize = 2;
const MATH: Work = Work { load: false, tensor: false, math: true };

/// [`pipeline`] where softmax, which sets the pace, also waits `blocked` for K in each step.
fn waits_for_k(info: &TraceInfo, blocked: u64) -> TraceOutcome {
    let mut rings = pipeline(0, 30, 0);
    let mut records = Vec::new();
    for step in 0..30 {
        let at = 500 + step * 1000;
        records.extend([
            (b::KBT_TRACE_WAIT_BEGIN, P_EMPTY, at),
            (b::KBT_TRACE_WAIT_END, P_EMPTY, at + 20),
            (b::KBT_TRACE_WAIT_BEGIN, K_FULL, at + 100),
            (b::KBT_TRACE_WAIT_END, K_FULL, at + 120 + blocked),
            (b::KBT_TRACE_ARRIVE, P_FULL, at + 960),
        ]);
    }
    rings[0] = ring(0, SOFTMAX, 0, &records, 33_000);
    judged(info, &rings)
}

fn judged(info: &TraceInfo, rings: &[kbt_trace::kbt::RingRecords]) -> TraceOutcome {
    let options = AnalyseOptions { observer: Some(observed(1.0)), ..AnalyseOptions::default() };
    analysed(&file(info, 1024, rings), &ReadOptions::default(), options).unwrap()
}

fn of(outcome: &TraceOutcome, class: FixClass) -> Verdict {
    outcome.verdicts().into_iter().find(|v| v.class == class).unwrap()
}

fn standing(outcome: &TraceOutcome, class: FixClass) -> Standing {
    of(outcome, class).standing
}

/// A trace in which K's loads are known elsewhere: P·V waits for them too, on a barrier of its own.
fn with_k(issuer: Option<usize>, work: Work) -> TraceInfo {
    let mut info = info(Level::Coarse);
    info.roles[LOAD].work = work;
    info.edges[2].arriving = Releaser::Hardware { issuer };
    info
}

#[test]
fn a_wait_for_hardware_of_no_known_kind_rules_neither_memory_nor_tensor_cores_out() {
    let load = Work { load: true, ..Work::default() };
    let stated = waits_for_k(&with_k(Some(LOAD), load), 0);
    assert_eq!(standing(&stated, FixClass::MemoryTraffic), Standing::RuledOut);
    assert_eq!(standing(&stated, FixClass::TensorThroughput), Standing::RuledOut);
    let both = Work { load: true, tensor: true, math: false };
    for info in [with_k(None, load), with_k(Some(LOAD), both), with_k(Some(LOAD), Work::default())] {
        let verdict = of(&waits_for_k(&info, 30), FixClass::TensorThroughput);
        assert_eq!(verdict.standing, Standing::Refused, "{verdict:?}");
        assert!(verdict.reason.contains("K_full ends with an MMA is not recorded"), "{verdict:?}");
        // That P_full is a load's besides makes loads known, but not this one.
        let mut info = info;
        info.roles.push(Role::new("Load2", StepRule::Unstated).works(load));
        info.edges.push(Edge { barrier: 0, arriving: Releaser::Hardware { issuer: Some(3) }, waiting: 1 });
        let verdict = of(&waits_for_k(&info, 30), FixClass::MemoryTraffic);
        assert_eq!(verdict.standing, Standing::Refused, "{verdict:?}");
        assert!(verdict.reason.contains("K_full ends with a load is not recorded"), "{verdict:?}");
    }
    let tensor = Work { tensor: true, ..Work::default() };
    let waits = waits_for_k(&with_k(Some(LOAD), tensor), 30);
    assert_eq!(standing(&waits, FixClass::TensorThroughput), Standing::Open);
}

#[test]
fn a_wait_that_nobody_is_said_to_release_rules_neither_out() {
    let mut info = info(Level::Coarse);
    info.edges.remove(2);
    info.edges.push(Edge { barrier: 0, arriving: Releaser::Hardware { issuer: Some(LOAD) }, waiting: 1 });
    let outcome = waits_for_k(&info, 30);
    assert_eq!(outcome.critical, Critical::Roles { roles: vec!["Softmax".into()] });
    for class in [FixClass::MemoryTraffic, FixClass::TensorThroughput] {
        assert_eq!(standing(&outcome, class), Standing::Refused, "{class:?}");
    }
}

#[test]
fn a_barrier_that_a_load_and_an_mma_complete_is_neithers() {
    let mut info = info(Level::Coarse);
    info.edges.push(Edge {
        barrier: 2,
        arriving: Releaser::Hardware { issuer: Some(PV as usize) },
        waiting: 0,
    });
    let outcome = waits_for_k(&info, 30);
    assert_eq!(standing(&outcome, FixClass::TensorThroughput), Standing::Refused);
}

#[test]
fn a_role_without_waits_may_set_the_pace() {
    let mut rings = pipeline(0, 30, 0);
    rings[1].records.retain(|r| {
        let kind = r.tag >> b::KBT_TRACE_KIND_SHIFT;
        kind != b::KBT_TRACE_WAIT_BEGIN && kind != b::KBT_TRACE_WAIT_END
    });
    rings[1].header.total = rings[1].records.len() as u32;
    let mut info = info(Level::Coarse);
    info.roles[PV as usize].step = StepRule::Event(TILE as u16);
    let outcome = judged(&info, &rings);
    let Critical::Unknown { reason } = &outcome.critical else { panic!("{:?}", outcome.critical) };
    assert!(reason.contains("PV recorded steps, but no waits"), "{reason}");
    assert!(outcome.verdicts().iter().all(|v| v.standing == Standing::Refused));
}

#[test]
fn slack_that_is_not_known_is_not_time_that_is_missing() {
    // P·V does not wait either, and of Load there is one instant, so that nothing is known of its time.
    let mut info = info(Level::Coarse);
    info.roles[LOAD].work = MATH;
    let mut rings = pipeline(0, 30, 0);
    rings.truncate(1);
    rings.push(ring(0, LOAD as u32, 0, &[(b::KBT_TRACE_INSTANT, CHUNK, 700)], 33_000));
    let outcome = judged(&info, &rings);
    let verdict = of(&outcome, FixClass::RoleBalance);
    assert_eq!(verdict.standing, Standing::Refused, "{verdict:?}");
    assert!(verdict.reason.contains("how much time Load has to spare"), "{verdict:?}");
    let verdict = of(&judged(&info, &rings[..1]), FixClass::RoleBalance);
    assert_eq!(verdict.standing, Standing::RuledOut, "{verdict:?}");
}

#[test]
fn of_roles_that_share_a_name_the_one_without_slack_sets_the_pace() {
    let mut info = info(Level::Coarse);
    info.roles[PV as usize].name = "Softmax".into();
    let outcome = judged(&info, &pipeline(0, 30, 0));
    // The other one issues MMAs and has slack.
    assert_eq!(standing(&outcome, FixClass::TensorThroughput), Standing::RuledOut);
}

#[test]
fn a_role_whose_work_is_not_stated_may_issue_mmas() {
    let mut info = info(Level::Coarse);
    info.roles[SOFTMAX as usize].work = Work::default();
    let verdict = of(&judged(&info, &pipeline(0, 30, 0)), FixClass::TensorThroughput);
    assert_eq!(verdict.standing, Standing::Refused, "{verdict:?}");
}

#[test]
fn a_trace_of_no_stated_level_gives_no_verdict() {
    let mut outcome = judged(&info(Level::Coarse), &pipeline(0, 30, 0));
    assert_eq!(standing(&outcome, FixClass::RoleBalance), Standing::Open);
    outcome.trace.level = None;
    let verdicts = outcome.verdicts();
    assert!(verdicts.iter().all(|v| v.reason.contains("does not state its level")), "{verdicts:?}");
}

#[test]
fn the_gate_holds_the_upper_end_of_the_cost_against_the_limit() {
    use kbt_evidence::Provenance;
    use kbt_trace::observe::ObserverReport;
    // Nine pairs at 2 % and 7 % in turn: the median is 2 %, its interval reaches to 7 %.
    let coarse = [102.0, 107.0, 102.0, 107.0, 102.0, 107.0, 102.0, 107.0, 102.0].to_vec();
    let provenance = Provenance::measured("kbt trace observe", "Test GPU", "2026-11-30");
    let samples = [(Level::Off, vec![100.0; 9]), (Level::Coarse, coarse)];
    let report = ObserverReport::new(&samples, 5.0, provenance).unwrap();
    assert!(report.level(Level::Coarse).unwrap().inflation_percent < 5.0);
    let options = AnalyseOptions { observer: Some(report), ..AnalyseOptions::default() };
    let bytes = file(&info(Level::Coarse), 1024, &pipeline(0, 30, 0));
    let outcome = analysed(&bytes, &ReadOptions::default(), options).unwrap();
    let Absolute::Refused { reason } = outcome.absolute else { panic!("{:?}", outcome.absolute) };
    assert!(reason.contains("at most 7.00 %"), "{reason}");
}

#[test]
fn a_detail_trace_states_no_pace() {
    let outcome = judged(&info(Level::Detail), &pipeline(0, 30, 0));
    let Critical::Unknown { reason } = &outcome.critical else { panic!("{:?}", outcome.critical) };
    assert!(reason.contains("level detail") && reason.contains("level coarse"), "{reason}");
    assert!(outcome.headline().contains("pace unknown: refused at level detail"), "{}", outcome.headline());
    let coarse = judged(&info(Level::Coarse), &pipeline(0, 30, 0));
    assert!(matches!(coarse.critical, Critical::Roles { .. }), "{:?}", coarse.critical);
}

#[test]
fn of_a_barriers_releasers_the_one_with_the_least_slack_is_followed() {
    // Softmax waits least, for P·V or Load, and each of these for hardware: no role is critical by itself.
    let mut info = info(Level::Coarse);
    let waits_for = [P_EMPTY, P_FULL, K_FULL];
    for (role, barrier) in info.roles.iter_mut().zip(waits_for) {
        role.step = StepRule::Wait(barrier as u16);
    }
    let edge = |barrier, arriving, waiting| Edge { barrier, arriving, waiting };
    let hardware = || Releaser::Hardware { issuer: None };
    info.edges = vec![
        edge(1, Releaser::Role(1), 0),
        edge(1, Releaser::Role(2), 0),
        edge(0, hardware(), 1),
        edge(2, hardware(), 2),
    ];
    for (pv, load, followed) in [(300, 400, "PV"), (400, 300, "Load")] {
        let lane = |role: usize, blocked: u64| {
            let wait = |step: u64| {
                let at = 500 + step * 1000;
                let on = waits_for[role];
                [(b::KBT_TRACE_WAIT_BEGIN, on, at), (b::KBT_TRACE_WAIT_END, on, at + blocked)]
            };
            ring(0, role as u32, 0, &(0..30).flat_map(wait).collect::<Vec<_>>(), 33_000)
        };
        let outcome = judged(&info, &[lane(0, 250), lane(1, pv), lane(2, load)]);
        let Critical::Hardware { role, .. } = &outcome.critical else { panic!("{:?}", outcome.critical) };
        assert_eq!(role, followed);
    }
}
