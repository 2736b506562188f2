//! The names of the kernel's roles, spans and barriers, and who releases whom: what makes its trace readable.
//! The order of each table is the numbering of include/kbt/attention.h.

use super::{Knobs, PvMode, Topology, TraceLevel};
use crate::bindings as b;
use kbt_trace::{
    Barrier, BarrierPurpose as B, Edge, EventName, EventPurpose as E, Level, Releaser, Role, StepRule,
    TraceInfo, Work,
};

const LOAD: usize = b::KBT_ROLE_LOAD as usize;
const SOFTMAX: [usize; 2] = [b::KBT_ROLE_SOFTMAX0 as usize, b::KBT_ROLE_SOFTMAX1 as usize];
const PV: usize = b::KBT_ROLE_PV as usize;

const EVENTS: [(&str, E); 7] = [
    ("load", E::Plain),
    ("Q.K^T", E::Plain),
    ("softmax", E::Plain),
    ("convert and store P", E::ChunkWrite),
    ("rescale O", E::Plain),
    ("P.V", E::Tile),
    ("epilogue", E::Plain),
];

const BARRIERS: [(&str, B); 14] = [
    ("Q full", B::Plain),
    ("K full", B::Plain),
    ("K empty", B::Plain),
    ("V full", B::Plain),
    ("V empty", B::Plain),
    ("P first 0", B::First),
    ("P first 1", B::First),
    ("P rest 0", B::Rest),
    ("P rest 1", B::Rest),
    ("P empty 0", B::Free),
    ("P empty 1", B::Free),
    ("row sum 0", B::Plain),
    ("row sum 1", B::Plain),
    ("Q empty", B::Plain),
];

const Q_FULL: u16 = b::KBT_BARRIER_Q_FULL as u16;
const K_FULL: u16 = b::KBT_BARRIER_K_FULL as u16;
const K_EMPTY: u16 = b::KBT_BARRIER_K_EMPTY as u16;
const V_FULL: u16 = b::KBT_BARRIER_V_FULL as u16;
const V_EMPTY: u16 = b::KBT_BARRIER_V_EMPTY as u16;
const P_FIRST: u16 = b::KBT_BARRIER_P_FIRST_0 as u16;
const P_REST: u16 = b::KBT_BARRIER_P_REST_0 as u16;
const P_EMPTY: u16 = b::KBT_BARRIER_P_EMPTY_0 as u16;
const Q_EMPTY: u16 = b::KBT_BARRIER_Q_EMPTY as u16;
const ROW_SUM: u16 = b::KBT_BARRIER_L_FULL_0 as u16;

/// Everything about a trace of the kernel but its records. `None` for a level that records nothing.
#[must_use]
pub fn trace_names(knobs: &Knobs, sm_clock_mhz: Option<f64>) -> Option<TraceInfo> {
    let level = match knobs.trace {
        TraceLevel::Coarse => Level::Coarse,
        TraceLevel::Detail => Level::Detail,
        TraceLevel::Off | TraceLevel::Barrier => return None,
    };
    let fused = knobs.topology == Topology::Registers;
    let mut info = TraceInfo::new(level, sm_clock_mhz);
    let math = Work { math: true, tensor: true, load: false };
    info.roles = vec![
        Role::new("Load", StepRule::Wait(K_EMPTY)).works(Work { load: true, ..Work::default() }),
        Role::new("Softmax0", StepRule::Wait(K_FULL)).works(math),
        Role::new("Softmax1", StepRule::Wait(K_FULL)).works(math),
    ];
    let mut softmax_roles = SOFTMAX.to_vec();
    if fused && knobs.head_dim == 64 && knobs.pv_mode != PvMode::Fp4 {
        info.roles.push(Role::new("Softmax2", StepRule::Wait(K_FULL)).works(math));
        softmax_roles.push(PV);
    } else if !fused {
        info.roles
            .push(Role::new("PV", StepRule::Wait(V_FULL)).works(Work { tensor: true, ..Work::default() }));
    }
    info.events = EVENTS.iter().map(|(name, purpose)| EventName::new(*name, *purpose)).collect();
    info.barriers = BARRIERS.iter().map(|(name, purpose)| Barrier::new(*name, *purpose)).collect();
    let mut edge = |barrier, arriving, waiting| info.edges.push(Edge { barrier, arriving, waiting });
    let tma = Releaser::Hardware { issuer: Some(LOAD) };
    for (wg, &softmax) in (0u16..).zip(&softmax_roles) {
        edge(Q_FULL, tma, softmax);
        edge(Q_EMPTY, Releaser::Role(softmax), LOAD);
        edge(K_FULL, tma, softmax);
        edge(K_EMPTY, Releaser::Role(softmax), LOAD);
        if fused {
            edge(V_FULL, tma, softmax);
            edge(V_EMPTY, Releaser::Role(softmax), LOAD);
        } else {
            edge(P_FIRST + wg, Releaser::Role(softmax), PV);
            edge(P_REST + wg, Releaser::Role(softmax), PV);
            edge(P_EMPTY + wg, Releaser::Role(PV), softmax);
            edge(ROW_SUM + wg, Releaser::Role(softmax), PV);
        }
    }
    if !fused {
        edge(V_FULL, tma, PV);
        edge(V_EMPTY, Releaser::Role(PV), LOAD);
    }
    Some(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the C header are the positions in the tables here.
    #[test]
    fn names_stand_where_the_header_numbers_them() {
        for (number, name) in [
            (b::KBT_EVENT_LOAD, "load"),
            (b::KBT_EVENT_QK, "Q.K^T"),
            (b::KBT_EVENT_P_CHUNKS, "convert and store P"),
            (b::KBT_EVENT_PV, "P.V"),
            (b::KBT_EVENT_EPILOGUE, "epilogue"),
        ] {
            assert_eq!(EVENTS[number as usize].0, name);
        }
        for (number, name) in [
            (b::KBT_BARRIER_K_FULL, "K full"),
            (b::KBT_BARRIER_V_EMPTY, "V empty"),
            (b::KBT_BARRIER_P_FIRST_1, "P first 1"),
            (b::KBT_BARRIER_P_REST_0, "P rest 0"),
            (b::KBT_BARRIER_P_EMPTY_1, "P empty 1"),
            (b::KBT_BARRIER_L_FULL_0, "row sum 0"),
            (b::KBT_BARRIER_Q_EMPTY, "Q empty"),
        ] {
            assert_eq!(BARRIERS[number as usize].0, name);
        }
    }

    #[test]
    fn a_level_that_records_nothing_has_no_names() {
        let knobs = Knobs::plain(PvMode::Bf16);
        assert!(trace_names(&knobs, None).is_none());
        let info = trace_names(&Knobs { trace: TraceLevel::Coarse, ..knobs }, Some(1980.0)).unwrap();
        assert_eq!((info.roles.len(), info.barriers.len()), (4, 14));
    }

    #[test]
    fn each_barrier_is_released_by_the_role_that_arrives_and_waited_for_by_the_other() {
        let knobs = Knobs { trace: TraceLevel::Coarse, ..Knobs::plain(PvMode::Bf16) };
        let info = trace_names(&knobs, None).unwrap();
        let mut edges: Vec<String> = (info.edges.iter())
            .map(|e| {
                let from = match e.arriving {
                    Releaser::Role(role) => info.roles[role].name.as_str(),
                    _ => "TMA",
                };
                let to = info.roles[e.waiting].name.as_str();
                format!("{from} > {} > {to}", info.barriers[usize::from(e.barrier)].name)
            })
            .collect();
        edges.sort();
        let mut expected = vec!["TMA > V full > PV".to_owned(), "PV > V empty > Load".to_owned()];
        for n in 0..2 {
            let softmax = format!("Softmax{n}");
            for (from, barrier, to) in [
                ("TMA", "Q full".to_owned(), &*softmax),
                (&softmax, "Q empty".to_owned(), "Load"),
                ("TMA", "K full".to_owned(), &softmax),
                (&softmax, "K empty".to_owned(), "Load"),
                (&softmax, format!("P first {n}"), "PV"),
                (&softmax, format!("P rest {n}"), "PV"),
                ("PV", format!("P empty {n}"), &softmax),
                (&softmax, format!("row sum {n}"), "PV"),
            ] {
                expected.push(format!("{from} > {barrier} > {to}"));
            }
        }
        expected.sort();
        assert_eq!(edges, expected);
    }
}
