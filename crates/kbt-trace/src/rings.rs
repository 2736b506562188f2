//! Rings of buffers that producers fill and consumers free: which barriers belong to one, and how many of its slots
//! were taken at each moment of a CTA.
//!
//! A ring has a barrier *full*, which the producers complete and the consumers wait on, and a barrier *empty* the
//! other way round. The k-th slot is taken when the last producer's k-th arrival on *full* is recorded (for a TMA
//! transaction: when it is issued), and free again when the last consumer's k-th arrival on *empty* is. Where a tile
//! is handed over in two signals, the first one counts.
//!
//! Where arrivals on both barriers were not recorded but waits were, slots *ahead* are counted instead: from the end of
//! the producer's k-th wait on *empty*, when it has the slot, to the end of the last consumer's k-th wait on *full*,
//! when that has it.
//!
//! Slots are counted while every lane of both sides recorded, and where a record of one is missing anew on either side of
//! it; a CTA whose fills and releases cannot be those of a ring is refused.

mod occupancy;
mod parts;

pub(crate) use occupancy::{Contradiction, Occupancy, Refusal};
pub(crate) use parts::{Counted, counted};

use occupancy::occupancy;

use crate::{BarrierPurpose, Releaser, TraceInfo};
use std::collections::BTreeSet;

/// Words of a barrier's name that say that its slot is free.
const EMPTY_WORDS: [&str; 5] = ["empty", "free", "freed", "released", "consumed"];
/// Words that say which of a ring's barriers it is, beside those of [`EMPTY_WORDS`].
const STATE_WORDS: [&str; 8] = ["full", "filled", "ready", "first", "rest", "last", "bar", "barrier"];

/// A ring of buffers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ring {
    /// What the names of its barriers have in common, else that of its barrier *full*.
    pub(crate) name: String,
    pub(crate) full: u16,
    pub(crate) empty: u16,
    /// Roles that fill it, or issue what fills it.
    pub(crate) producers: Vec<usize>,
    /// Roles that free it.
    pub(crate) consumers: Vec<usize>,
}

/// The rings that the barriers' names, purposes and edges tell, and the barriers that free something not told.
pub(crate) fn find(info: &TraceInfo) -> (Vec<Ring>, Vec<u16>) {
    let count = u16::try_from(info.barriers.len()).unwrap_or(u16::MAX);
    let (mut rings, mut alone) = (Vec::new(), Vec::new());
    for empty in (0..count).filter(|&id| frees(info, id)) {
        let (consumers, producers) = (arriving(info, empty), waiting(info, empty));
        if consumers.is_empty() || producers.is_empty() {
            continue;
        }
        let faces = |&full: &u16| {
            !frees(info, full)
                && !arriving(info, full).is_disjoint(&producers)
                && !waiting(info, full).is_disjoint(&consumers)
        };
        let facing: Vec<u16> = (0..count).filter(faces).collect();
        let stem = stem(&info.barrier_name(empty));
        let first = |full: &u16| {
            info.barriers.get(usize::from(*full)).is_none_or(|b| b.purpose != BarrierPurpose::Rest)
        };
        let same = facing.iter().copied().filter(|full| self::stem(&info.barrier_name(*full)) == stem);
        let full = same.clone().find(first).or_else(|| same.clone().next()).or(match facing[..] {
            [only] => Some(only),
            _ => None,
        });
        match full {
            Some(full) => rings.push(Ring {
                name: if stem.is_empty() { info.barrier_name(full) } else { stem },
                producers: arriving(info, full).intersection(&producers).copied().collect(),
                consumers: waiting(info, full).intersection(&consumers).copied().collect(),
                full,
                empty,
            }),
            None => alone.push(empty),
        }
    }
    (rings, alone)
}

fn words(name: &str) -> impl Iterator<Item = String> + '_ {
    name.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_lowercase)
}

fn frees(info: &TraceInfo, barrier: u16) -> bool {
    info.barriers.get(usize::from(barrier)).is_some_and(|b| match b.purpose {
        BarrierPurpose::Free => true,
        BarrierPurpose::First | BarrierPurpose::Rest => false,
        BarrierPurpose::Plain => words(&b.name).any(|w| EMPTY_WORDS.contains(&w.as_str())),
    })
}

/// The name without the words that tell a ring's barriers apart.
fn stem(name: &str) -> String {
    let keeps = |w: &&str| {
        let lower = w.to_lowercase();
        !EMPTY_WORDS.contains(&lower.as_str()) && !STATE_WORDS.contains(&lower.as_str())
    };
    let words = name.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty());
    words.filter(keeps).collect::<Vec<_>>().join(" ")
}

/// The roles that complete a barrier or issue what does.
fn arriving(info: &TraceInfo, barrier: u16) -> BTreeSet<usize> {
    let of = info.edges.iter().filter(|e| e.barrier == barrier);
    of.filter_map(|e| match e.arriving {
        Releaser::Role(role) => Some(role),
        Releaser::Hardware { issuer } => issuer,
    })
    .collect()
}

fn waiting(info: &TraceInfo, barrier: u16) -> BTreeSet<usize> {
    info.edges.iter().filter(|e| e.barrier == barrier).map(|e| e.waiting).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Barrier, Edge, Level};

    fn info(barriers: &[(&str, BarrierPurpose)], edges: &[(u16, usize, usize)]) -> TraceInfo {
        let mut info = TraceInfo::new(Level::Coarse, None);
        info.barriers = barriers.iter().map(|(name, purpose)| Barrier::new(*name, *purpose)).collect();
        let edge = |&(barrier, from, waiting): &(u16, usize, usize)| Edge {
            barrier,
            arriving: Releaser::Role(from),
            waiting,
        };
        info.edges = edges.iter().map(edge).collect();
        info
    }

    use BarrierPurpose::{First, Free, Plain, Rest};

    #[test]
    fn barriers_are_paired_by_name_and_by_who_waits_for_whom() {
        // Load fills K and V for role 1; both barriers face both ways, only the names tell them apart.
        let edges = [(0, 0, 1), (1, 1, 0), (2, 0, 1), (3, 1, 0)];
        let names = [("K_full", Plain), ("K_empty", Plain), ("V_full", Plain), ("V_empty", Plain)];
        let (rings, alone) = find(&info(&names, &edges));
        let pairs: Vec<_> = rings.iter().map(|r| (r.name.as_str(), r.full, r.empty)).collect();
        assert_eq!((pairs, alone), (vec![("K", 0, 1), ("V", 2, 3)], vec![]));
        assert_eq!((&rings[0].producers, &rings[0].consumers), (&vec![0], &vec![1]));

        let (rings, _) = find(&info(
            &[("P rest 0", Rest), ("P first 0", First), ("P empty 0", Free)],
            &[(0, 0, 1), (1, 0, 1), (2, 1, 0)],
        ));
        assert_eq!((rings[0].name.as_str(), rings[0].full), ("P 0", 1), "the first signal counts");

        let unnamed = [("a", Plain), ("b", Plain), ("slot free", Plain)];
        let (rings, alone) = find(&info(&unnamed, &[(0, 0, 1), (2, 1, 0)]));
        assert_eq!((rings.len(), alone.len()), (1, 0), "the only one that faces it");
        let (rings, alone) = find(&info(&unnamed, &[(0, 0, 1), (1, 0, 1), (2, 1, 0)]));
        assert_eq!((rings.len(), alone), (0, vec![2]), "either of two");
    }
}
