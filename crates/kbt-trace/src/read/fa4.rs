//! The int32 buffer of flash-attention-fp4's profiler (hao-ai-lab/flash-attention-fp4, `flash_attn/cute/profiler.py`).
//!
//! Records are strided by block and group (see [`super::slots`]); stamps are the low half of `%clock`, which
//! each SM counts for itself. The default store is shared memory for 128 events a group; it stops when full, so it keeps the oldest.

use super::ReadOptions;
use super::slots::{self, LaneRead, Shape};
use crate::clock::earliest;
use crate::{
    Barrier, BarrierPurpose as On, Clock, CtaTrace, Edge, EventName, EventPurpose as Is, Input, Kind, Level,
    MemoryTrace, ProblemKind, Problems, Releaser, Role, StepRule, TimeLine, TraceError, TraceInfo, Work,
};
use std::collections::BTreeMap;

/// Events that the recorder's shared-memory store holds a group.
const SHARED_STORE: usize = 128;

/// What one of the format's events is here.
enum Is4 {
    /// An event; the flag says that only detail mode records it.
    Event(&'static str, Is, bool),
    /// A wait on barrier number n of [`BARRIERS`].
    Wait(u16),
}

/// By event number. The recorder's source names 0-4, 6-8, 10, 12 and 13; 5, 9 and 11 follow from its order.
const EVENTS: [Is4; 14] = [
    Is4::Event("QK GEMM", Is::Plain, false),
    Is4::Event("PV GEMM", Is::Tile, false),
    Is4::Event("exp2", Is::Plain, true),
    Is4::Event("P quant", Is::Plain, true),
    Is4::Event("row_max", Is::Plain, true),
    Is4::Event("row_sum", Is::Plain, true),
    Is4::Wait(0),
    Is4::Event("store P", Is::ChunkWrite, false),
    Is4::Wait(1),
    Is4::Event("signal S", Is::Plain, false),
    Is4::Wait(2),
    Is4::Event("epilogue", Is::Plain, false),
    Is4::Wait(3),
    Is4::Wait(4),
];

const BARRIERS: [(&str, On); 5] =
    [("S", On::Plain), ("P", On::First), ("corr", On::Plain), ("KV", On::Plain), ("P2", On::Rest)];

const MMA: usize = 0;

/// Groups, where their steps start, and their work.
fn roles() -> Vec<Role> {
    let math = Work { math: true, ..Work::default() };
    vec![
        Role::new("MMA", StepRule::Event(0)).works(Work { tensor: true, ..Work::default() }),
        Role::new("Softmax0", StepRule::Wait(0)).works(math),
        Role::new("Softmax1", StepRule::Wait(0)).works(math),
        Role::new("Correction", StepRule::Wait(2)).works(math),
    ]
}

/// Who releases what: the MMA warp's GEMM completes S; softmax hands over P and the row statistics; TMA brings K and V.
fn edges() -> Vec<Edge> {
    let hardware = |issuer| Releaser::Hardware { issuer };
    let edge = |barrier, arriving, waiting| Edge { barrier, arriving, waiting };
    let mut edges = vec![edge(3, hardware(None), MMA)];
    for softmax in [1, 2] {
        edges.push(edge(0, hardware(Some(MMA)), softmax));
        edges.push(edge(1, Releaser::Role(softmax), MMA));
        edges.push(edge(4, Releaser::Role(softmax), MMA));
        edges.push(edge(2, Releaser::Role(softmax), 3));
    }
    edges
}

/// Whether the buffer has this format's number of groups.
pub(super) const fn names_its_groups(shape: &Shape) -> bool {
    shape.groups == 4
}

pub(super) fn read(bytes: &[u8], name: &str, options: &ReadOptions) -> Result<MemoryTrace, TraceError> {
    let shape = Shape::of(bytes)
        .ok_or_else(|| TraceError::Unknown { name: name.to_owned(), why: Shape::refusal(bytes) })?;
    let mut problems = Problems::default();
    problems.add(ProblemKind::Truncated, None, u64::from(!bytes.len().is_multiple_of(8)), || {
        format!("{} bytes are no whole number of records", bytes.len())
    });
    let roles = roles();
    let role_name =
        |group: u32| roles.get(group as usize).map_or_else(|| format!("group {group}"), |r| r.name.clone());
    let mut ctas = Vec::new();
    let mut detail = false;
    let blocks = slots::blocks(bytes, shape);
    let mut stamps: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for block in &blocks {
        stamps.entry(block.smid).or_default().extend(block.first_stamps());
    }
    let zeros: BTreeMap<_, _> = stamps.into_iter().map(|(sm, stamps)| (sm, earliest(stamps))).collect();
    for (block, slots::BlockSlots { lanes, smid }) in (0..).zip(&blocks) {
        let zero = zeros.get(smid).copied().flatten();
        let mut cta = CtaTrace { cta: block, smid: *smid, ..CtaTrace::default() };
        for (group, found) in (0..shape.groups).zip(lanes) {
            if found.slots.is_empty() {
                continue;
            }
            let role = role_name(group);
            detail |= found
                .slots
                .iter()
                .any(|s| matches!(EVENTS.get(usize::from(s.event())), Some(Is4::Event(_, _, true))));
            let LaneRead { mut lane, block_matches } =
                slots::decode(found, zero, group as usize, block, &role, &mut problems, here);
            let stopped = found.full || found.slots.len() == SHARED_STORE;
            lane.stopped_full = stopped;
            lane.dropped = (!stopped).then_some(0);
            problems.add(ProblemKind::StoppedFull, Some(&role), u64::from(stopped), || {
                format!("first in block {block}, at {} records", found.slots.len())
            });
            problems.add(ProblemKind::Aliased, Some(&role), u64::from(!block_matches), || {
                format!("first in block {block}")
            });
            cta.lanes.push(lane);
        }
        if !cta.lanes.is_empty() {
            ctas.push(cta);
        }
    }
    if ctas.is_empty() {
        let why = format!("all slots of {} blocks x {} groups are zero", shape.blocks, shape.groups);
        return Err(problems.empty(name, why));
    }
    let mut all_roles: Vec<_> = roles.iter().take(shape.groups as usize).cloned().collect();
    all_roles.extend((4..shape.groups).map(|g| Role::new(format!("group {g}"), StepRule::Unstated)));
    let info = TraceInfo {
        format: Input::Fa4Fp4,
        level: Some(if detail { Level::Detail } else { Level::Coarse }),
        clock: Clock::Cycles { sm_mhz: options.clock_mhz },
        time_line: TimeLine::Sm,
        edges: edges().into_iter().filter(|e| e.waiting < all_roles.len()).collect(),
        roles: all_roles,
        events: EVENTS.iter().map(event_name).collect(),
        barriers: BARRIERS.iter().map(|(name, on)| Barrier::new(*name, *on)).collect(),
        meta: BTreeMap::new(),
    };
    Ok(MemoryTrace::new(info, ctas, problems))
}

/// Waits keep their event number's place in the table of events, so that ids need no second table.
fn event_name(event: &Is4) -> EventName {
    match event {
        Is4::Event(name, is, _) => EventName::new(*name, *is),
        Is4::Wait(on) => EventName::new(format!("wait {}", BARRIERS[usize::from(*on)].0), Is::Plain),
    }
}

/// What a record says here; `None` for an event number that the format has not.
fn here(event: u16, kind: Kind) -> Option<(Kind, u16)> {
    match (EVENTS.get(usize::from(event))?, kind) {
        (Is4::Wait(on), Kind::Begin) => Some((Kind::WaitBegin, *on)),
        (Is4::Wait(on), Kind::End) => Some((Kind::WaitEnd, *on)),
        (_, kind) => Some((kind, event)),
    }
}
