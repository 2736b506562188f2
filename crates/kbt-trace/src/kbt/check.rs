//! Whether what a `.kbttrace` says of itself fits together: counts, capacities, and who records where.

use super::tables::text;
use crate::bindings as b;
use crate::{ProblemKind, Problems, StepRule};
use std::collections::BTreeSet;

/// Where a role's step starts; `None`: at something that the tables do not have.
pub(super) fn step(role: &b::kbt_trace_role, header: &b::kbt_trace_file_header) -> Option<StepRule> {
    let id = |known: u32| u16::try_from(role.step_id).ok().filter(|_| role.step_id < known);
    match role.step_kind {
        b::KBT_TRACE_STEP_NONE => Some(StepRule::Unstated),
        b::KBT_TRACE_STEP_WAIT => id(header.barriers).map(StepRule::Wait),
        b::KBT_TRACE_STEP_EVENT => id(header.events).map(StepRule::Event),
        _ => None,
    }
}

/// Notes the roles whose step starts at nothing known.
pub(super) fn roles(roles: &[b::kbt_trace_role], header: &b::kbt_trace_file_header, problems: &mut Problems) {
    for role in roles.iter().filter(|role| step(role, header).is_none()) {
        problems.add(ProblemKind::Inconsistent, Some(&text(&role.name)), 1, || {
            format!(
                "a step that starts at kind {}, id {}, of {} barriers and {} events; its step is guessed",
                role.step_kind, role.step_id, header.barriers, header.events
            )
        });
    }
}

/// Holds the rings against the header and each other.
pub(super) fn rings(rings: &[b::kbt_trace_ring], header: &b::kbt_trace_file_header, problems: &mut Problems) {
    let kept: u64 = rings.iter().map(|r| u64::from(r.kept)).sum();
    // Where the ring headers are cut, that is said already.
    let whole = rings.len() == header.rings as usize;
    let mut found = Vec::new();
    if whole && kept != header.records {
        found.push(format!("{} records by the header, {kept} by the rings", header.records));
    }
    let (mut owners, mut ctas, mut last) = (BTreeSet::new(), BTreeSet::new(), None);
    for ring in rings {
        let at = || format!("role {} of CTA {}", ring.role, ring.cta);
        if ring.kept > header.ring_capacity {
            found.push(format!("{}: {} records kept in a ring of {}", at(), ring.kept, header.ring_capacity));
        }
        if ring.closed == b::KBT_TRACE_RING_CLOSED && ring.total < ring.kept {
            found.push(format!("{}: {} records kept of {} written", at(), ring.kept, ring.total));
        }
        // Only a full ring overwrites.
        if ring.closed == b::KBT_TRACE_RING_CLOSED && ring.kept < ring.total.min(header.ring_capacity) {
            found.push(format!(
                "{}: {} records kept of {} written, in a ring of {} that was not full",
                at(),
                ring.kept,
                ring.total,
                header.ring_capacity
            ));
        }
        if !owners.insert((ring.cta, ring.role)) {
            found.push(format!("{} has more than one ring", at()));
        }
        if last != Some(ring.cta) && !ctas.insert(ring.cta) {
            found.push(format!("CTA {} is read as several, since its rings are no neighbours", ring.cta));
        }
        last = Some(ring.cta);
    }
    let count = found.len() as u64;
    problems.add(ProblemKind::Inconsistent, None, count, || {
        let more = if count > 1 { format!(", and {} more", count - 1) } else { String::new() };
        format!("{}{more}", found.swap_remove(0))
    });
}
