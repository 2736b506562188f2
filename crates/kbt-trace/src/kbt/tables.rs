//! The entries of a `.kbttrace`'s tables as the model has them.

use super::check;
use super::read::damaged;
use crate::bindings as b;
use crate::{
    Barrier, BarrierPurpose, Edge, EventName, EventPurpose, Releaser, Role, StepRule, TraceError, Work,
};

pub(super) fn text(name: &[u8]) -> String {
    let end = name.iter().position(|&c| c == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

pub(super) fn role(raw: &b::kbt_trace_role, header: &b::kbt_trace_file_header) -> Role {
    let step = check::step(raw, header).unwrap_or(StepRule::Unstated);
    let has = |bit: u32| raw.work & bit != 0;
    let work = Work {
        load: has(b::KBT_TRACE_WORK_LOAD),
        tensor: has(b::KBT_TRACE_WORK_TENSOR),
        math: has(b::KBT_TRACE_WORK_MATH),
    };
    Role { name: text(&raw.name), step, work }
}

pub(super) fn event(raw: &b::kbt_trace_event) -> EventName {
    let purpose = match raw.purpose {
        b::KBT_TRACE_EVENT_CHUNK_WRITE => EventPurpose::ChunkWrite,
        b::KBT_TRACE_EVENT_TILE => EventPurpose::Tile,
        _ => EventPurpose::Plain,
    };
    EventName { name: text(&raw.name), purpose }
}

pub(super) fn barrier(raw: &b::kbt_trace_barrier) -> Barrier {
    let purpose = match raw.purpose {
        b::KBT_TRACE_BARRIER_FIRST => BarrierPurpose::First,
        b::KBT_TRACE_BARRIER_REST => BarrierPurpose::Rest,
        b::KBT_TRACE_BARRIER_FREE => BarrierPurpose::Free,
        _ => BarrierPurpose::Plain,
    };
    Barrier { name: text(&raw.name), purpose }
}

pub(super) fn edge(
    raw: &b::kbt_trace_edge,
    header: &b::kbt_trace_file_header,
    name: &str,
    offset: u64,
) -> Result<Edge, TraceError> {
    let role = |index: u32| (index < header.roles).then_some(index as usize);
    let arriving = if raw.arriving == b::KBT_TRACE_ROLE_HARDWARE {
        Some(Releaser::Hardware { issuer: role(raw.issuer) })
    } else {
        role(raw.arriving).map(Releaser::Role)
    };
    match (arriving, role(raw.waiting)) {
        (Some(arriving), Some(waiting)) if raw.barrier < header.barriers => {
            Ok(Edge { barrier: raw.barrier as u16, arriving, waiting })
        }
        _ => {
            let (roles, barriers) = (header.roles, header.barriers);
            let found = format!("barrier {}, from {}, to {}", raw.barrier, raw.arriving, raw.waiting);
            let accepted = format!("one of {barriers} barriers and {roles} roles");
            Err(damaged(name, offset, "edge", found, accepted))
        }
    }
}
