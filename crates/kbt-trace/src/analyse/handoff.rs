//! The numbers that a model of the two-signal handoff takes: from roles, events and barriers marked for it.

use super::gather::{RoleSum, StepSum};
use super::stats::Scale;
use super::tally::Tally;
use crate::outcome::Handoff;
use crate::{BarrierPurpose, EventPurpose, TraceInfo};

/// Sums over the roles of one side.
#[derive(Default)]
struct Side {
    names: Vec<String>,
    steps: u64,
    /// Busy ticks outside the marked events.
    other: f64,
    /// The marked events, waits inside not counted.
    marked: Tally,
}

impl Side {
    fn add(&mut self, name: String, sums: &StepSum, marked: impl Fn(u16) -> bool) {
        self.names.push(name);
        self.steps += sums.steps();
        let mut own = 0.0;
        for (_, event) in sums.events().filter(|(id, _)| marked(*id)) {
            own += event.own.total() as f64;
            self.marked.merge(&event.own);
        }
        self.other += (sums.busy.total() as f64 - own).max(0.0);
    }
}

/// `None` where nothing is marked as a handoff.
pub(super) fn find(roles: &[RoleSum], info: &TraceInfo, scale: &Scale) -> Option<Handoff> {
    let event = |id: u16, purpose| info.events.get(usize::from(id)).is_some_and(|e| e.purpose == purpose);
    let barrier = |id: u16| info.barriers.get(usize::from(id)).map_or(BarrierPurpose::Plain, |b| b.purpose);
    let (mut producers, mut consumers) = (Side::default(), Side::default());
    let (mut first, mut rest, mut free, mut round_trip) =
        (Tally::default(), Tally::default(), Tally::default(), Tally::default());
    for (index, role) in roles.iter().enumerate() {
        let sums = role.sums();
        let writes = sums.events().any(|(id, _)| event(id, EventPurpose::ChunkWrite));
        let mut waits_free = false;
        let mut consumes = false;
        for (id, wait) in sums.waits() {
            match barrier(id) {
                BarrierPurpose::Plain => continue,
                BarrierPurpose::Free => {
                    waits_free = true;
                    free.merge(&wait.each);
                }
                signal => {
                    consumes = true;
                    let tally = if signal == BarrierPurpose::First { &mut first } else { &mut rest };
                    tally.merge(&wait.each);
                    round_trip.merge(&wait.round_trip);
                }
            }
        }
        let name = info.role_name(index);
        if writes || waits_free {
            producers.add(name.clone(), sums, |id| event(id, EventPurpose::ChunkWrite));
        }
        if consumes {
            consumers.add(name, sums, |id| event(id, EventPurpose::Tile));
        }
    }
    if producers.names.is_empty() && consumers.names.is_empty() {
        return None;
    }
    let per = |total: f64, of: u64| (of > 0).then(|| total / of as f64);
    let handoffs = first.count();
    let tiles = consumers.marked.count();
    let chunks = producers.marked.count();
    Some(Handoff {
        chunk_cycles: scale.median(&producers.marked),
        chunks_per_step: per(chunks as f64, producers.steps).filter(|_| chunks > 0),
        producer_other_cycles: per(producers.other, producers.steps).map(|t| scale.mean(t)),
        tile_cycles: scale.median(&consumers.marked),
        tiles_per_handoff: per(tiles as f64, handoffs).filter(|_| tiles > 0),
        consumer_other_cycles: per(consumers.other, handoffs).map(|t| scale.mean(t)),
        handoffs_per_step: per(handoffs as f64, consumers.steps),
        wait_first_cycles: scale.told_mean(&first),
        wait_rest_cycles: scale.told_mean(&rest),
        wait_free_cycles: scale.told_mean(&free),
        round_trip_cycles: scale.median(&round_trip),
        producers: producers.names,
        consumers: consumers.names,
    })
}
