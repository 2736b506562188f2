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

use crate::outcome::RingCount;
use crate::{BarrierPurpose, CtaTrace, Kind, Lane, Releaser, TraceInfo};
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

/// How many slots of a ring were taken, from change to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Occupancy {
    /// What is counted.
    pub(crate) count: RingCount,
    /// When it changed, in ticks, and the slots taken from then on; times ascend and differ.
    pub(crate) changes: Vec<(u64, u32)>,
    /// How many slots were taken at the start is not known: the smallest number seen is taken for 0.
    pub(crate) relative: bool,
}

/// The occupancy of `ring` in `cta`; `None` where neither arrivals nor waits of both sides were recorded.
pub(crate) fn occupancy(cta: &CtaTrace, ring: &Ring) -> Option<Occupancy> {
    let side = |roles: &[usize], kind, barrier| Side::of(cta, roles, (kind, barrier));
    let taken = side(&ring.producers, Kind::Arrive, ring.full)
        .zip(side(&ring.consumers, Kind::Arrive, ring.empty))
        .map(|sides| (RingCount::Taken, sides));
    let ahead = || {
        let sides = side(&ring.producers, Kind::WaitEnd, ring.empty).zip(side(
            &ring.consumers,
            Kind::WaitEnd,
            ring.full,
        ))?;
        Some((RingCount::Ahead, sides))
    };
    let (count, (fills, frees)) = taken.or_else(ahead)?;
    let whole = fills.whole && frees.whole;
    let mut steps: Vec<(u64, i64)> = fills.times(whole).map(|at| (at, 1)).collect();
    steps.extend(frees.times(whole).map(|at| (at, -1)));
    // Where records are missing, slots are counted from the time on from which every lane has some.
    let from = if whole { 0 } else { fills.from.max(frees.from) };
    steps.sort_unstable();
    let mut level = 0;
    let mut levels: Vec<(u64, i64)> = Vec::new();
    for (at, step) in steps.into_iter().filter(|(at, _)| *at >= from) {
        level += step;
        match levels.last_mut() {
            Some(last) if last.0 == at => last.1 = level,
            _ => levels.push((at, level)),
        }
    }
    let least = levels.iter().map(|l| l.1).min()?.min(if whole { 0 } else { i64::MAX });
    let taken = |(at, level): (u64, i64)| (at, u32::try_from(level - least).unwrap_or(u32::MAX));
    Some(Occupancy {
        count,
        changes: levels.into_iter().map(taken).collect(),
        relative: !whole || least != 0,
    })
}

/// The arrivals, or ends of waits, of one side's lanes.
struct Side {
    lanes: Vec<Vec<u64>>,
    /// Nothing of them was overwritten or left out.
    whole: bool,
    /// The time from which on every lane has records.
    from: u64,
}

impl Side {
    fn of(cta: &CtaTrace, roles: &[usize], (kind, barrier): (Kind, u16)) -> Option<Self> {
        let lanes: Vec<&Lane> = cta.lanes.iter().filter(|l| roles.contains(&l.role)).collect();
        let marks = |lane: &&Lane| -> Vec<u64> {
            let marks = lane.events.iter().filter(|e| e.kind == kind && e.id == barrier);
            marks.map(|e| e.at).collect()
        };
        let times: Vec<Vec<u64>> = lanes.iter().map(marks).filter(|times| !times.is_empty()).collect();
        let first = |lane: &&Lane| lane.events.first().map(|e| e.at);
        (!times.is_empty()).then(|| Self {
            lanes: times,
            whole: lanes.iter().all(|l| l.dropped == Some(0) && !l.stopped_full),
            from: lanes.iter().filter_map(first).max().unwrap_or(0),
        })
    }

    /// When the last lane arrived, slot by slot: counted from the first arrivals where all are there, else from the
    /// last ones, which the newest-kept ring never loses.
    fn times(&self, whole: bool) -> impl Iterator<Item = u64> + '_ {
        let slots = self.lanes.iter().map(Vec::len).min().unwrap_or(0);
        (0..slots).filter_map(move |k| {
            let index = |lane: &Vec<u64>| if whole { k } else { lane.len() - slots + k };
            self.lanes.iter().map(|lane| lane[index(lane)]).max()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Barrier, Edge, Event, Level};

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

    fn cta(dropped: Option<u64>, lanes: &[(usize, u16, &[u64])]) -> CtaTrace {
        let lane = |&(role, id, times): &(usize, u16, &[u64])| Lane {
            role,
            events: times.iter().map(|&at| Event { at, kind: Kind::Arrive, id, step: 0 }).collect(),
            dropped,
            ..Lane::default()
        };
        CtaTrace { lanes: lanes.iter().map(lane).collect(), ..CtaTrace::default() }
    }

    fn ring() -> Ring {
        Ring { name: "K".into(), full: 0, empty: 1, producers: vec![0], consumers: vec![1, 2] }
    }

    #[test]
    fn a_slot_is_free_when_its_last_consumer_let_go() {
        let cta = cta(Some(0), &[(0, 0, &[10, 20, 50]), (1, 1, &[30, 60, 80]), (2, 1, &[40, 50, 90])]);
        let found = occupancy(&cta, &ring()).unwrap();
        assert_eq!(found.changes, [(10, 1), (20, 2), (40, 1), (50, 2), (60, 1), (90, 0)]);
        assert_eq!((found.relative, found.count), (false, RingCount::Taken));
    }

    #[test]
    fn where_records_are_missing_slots_are_counted_from_the_end() {
        // The producer's first arrival and one consumer's first two were overwritten.
        let cta = cta(None, &[(0, 0, &[20, 50]), (1, 1, &[30, 60, 80]), (2, 1, &[90])]);
        let found = occupancy(&cta, &ring()).unwrap();
        assert_eq!(found.changes, [(90, 0)], "one consumer is known from 90 on");
        assert!(found.relative);
        let silent = self::cta(Some(0), &[(0, 0, &[20]), (1, 7, &[30])]);
        assert_eq!(occupancy(&silent, &ring()), None, "nobody recorded a release");
    }

    #[test]
    fn without_arrivals_slots_ahead_are_counted_by_waits() {
        let mut cta = cta(Some(0), &[(0, 1, &[10, 20, 50]), (1, 0, &[30, 60, 80]), (2, 0, &[40, 50, 90])]);
        for event in cta.lanes.iter_mut().flat_map(|l| &mut l.events) {
            event.kind = Kind::WaitEnd;
        }
        let found = occupancy(&cta, &ring()).unwrap();
        assert_eq!(found.count, RingCount::Ahead);
        assert_eq!(found.changes, [(10, 1), (20, 2), (40, 1), (50, 2), (60, 1), (90, 0)]);
    }

    #[test]
    fn slots_freed_before_they_were_ever_filled_are_said() {
        let cta = cta(Some(0), &[(0, 0, &[10, 20]), (1, 1, &[1, 2, 30, 40])]);
        let found = occupancy(&cta, &Ring { consumers: vec![1], ..ring() }).unwrap();
        assert_eq!(found.changes, [(1, 1), (2, 0), (10, 1), (20, 2), (30, 1), (40, 0)]);
        assert!(found.relative);
    }
}
