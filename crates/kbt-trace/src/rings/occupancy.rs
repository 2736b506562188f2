//! How many slots of a ring were taken at each moment of a CTA, and when that cannot be said.

use super::Ring;
use crate::outcome::RingCount;
use crate::recorded::Recorded;
use crate::{CtaTrace, Kind, Lane};

/// More slots than a ring has: so many buffers of a KiB are the shared memory of an SM.
const MOST_SLOTS: i64 = 256;
/// Fills and releases of one ring differ by its depth at most. Where they differ by more than this, and the ones are
/// twice the others or more, one side recorded other things than the other.
const UNLIKE: usize = 8;

/// How many slots of a ring were taken, from change to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Occupancy {
    /// What is counted.
    pub(crate) count: RingCount,
    /// When it changed, in ticks, and the slots taken from then on; times ascend and differ.
    pub(crate) changes: Vec<(u64, u32)>,
    /// When the count ends: at the last change, or where the first lane stopped recording.
    pub(crate) until: u64,
    /// Ticks from there to the last change that any lane recorded.
    pub(crate) left_out: u64,
    /// The role that stopped recording first, where that left something out.
    pub(crate) cut_by: Option<usize>,
    /// How many slots were taken at the start is not known: the smallest number seen is taken for 0.
    pub(crate) relative: bool,
}

/// Why a CTA does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Neither arrivals nor waits of both sides were recorded.
    Silent,
    /// No time is left in which all lanes recorded, for want of this role's records.
    Cut {
        /// The role.
        role: usize,
    },
    /// The records cannot be those of a ring.
    Contradicts {
        /// The role whose records do not fit the others'.
        role: usize,
        /// How.
        how: Contradiction,
    },
}

/// How records of a ring contradict each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contradiction {
    /// The lane's open and close are not around its records.
    Torn,
    /// Records of the lane are missing, and what is left is too little.
    Missing,
    /// So many waits for a filled slot ended before that slot was filled.
    WaitsBeforeFills(usize),
    /// So many slots were released before they were filled.
    ReleasesBeforeFills(i64),
    /// So many fills, so many releases.
    Counts(usize, usize),
    /// So many slots at once.
    Slots(i64),
}

impl std::fmt::Display for Contradiction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Torn => write!(f, "has an open and close not around its records"),
            Self::Missing => write!(f, "has records missing, and too few left beside"),
            Self::WaitsBeforeFills(n) => write!(f, "ended {n} waits before the slot was filled"),
            Self::ReleasesBeforeFills(n) => write!(f, "released {n} slots before they were filled"),
            Self::Counts(fills, frees) => write!(f, "recorded too few: {fills} fills, {frees} releases"),
            Self::Slots(n) => write!(f, "would leave {n} slots taken at once"),
        }
    }
}

/// The occupancy of `ring` in `cta`.
pub(crate) fn occupancy(cta: &CtaTrace, ring: &Ring) -> Result<Occupancy, Refusal> {
    let side = |roles: &[usize], kind, barrier| Side::of(cta, roles, (kind, barrier));
    let taken = side(&ring.producers, Kind::Arrive, ring.full)
        .zip(side(&ring.consumers, Kind::Arrive, ring.empty))
        .map(|sides| (RingCount::Taken, sides));
    let ahead = || {
        let fills = side(&ring.producers, Kind::WaitEnd, ring.empty)?;
        Some((RingCount::Ahead, (fills, side(&ring.consumers, Kind::WaitEnd, ring.full)?)))
    };
    let (count, (fills, frees)) = taken.or_else(ahead).ok_or(Refusal::Silent)?;
    let lanes: Vec<&Lane> = fills.lanes.iter().chain(&frees.lanes).map(|(lane, _)| *lane).collect();
    if let Some(torn) = lanes.iter().find(|lane| lane.torn) {
        return Err(Refusal::Contradicts { role: torn.role, how: Contradiction::Torn });
    }
    let whole = lanes.iter().all(|lane| lane.starts_whole());
    let window = window(&lanes)?;
    let (filled, freed) = (fills.times()?, frees.times()?);
    if count == RingCount::Taken && lanes.iter().all(|lane| lane.starts_whole() && lane.ends_whole()) {
        frees.after(&filled, ring.full)?;
    }
    let mut steps: Vec<(u64, i64)> = filled.iter().map(|&at| (at, 1)).collect();
    steps.extend(freed.iter().map(|&at| (at, -1)));
    steps.sort_unstable();
    // Where the first records are missing, slots are counted from the time on from which every lane has some.
    let mut level = 0;
    let mut levels: Vec<(u64, i64)> = Vec::new();
    for (at, step) in steps.into_iter().filter(|(at, _)| whole || *at >= window.from) {
        level += step;
        match levels.last_mut() {
            Some(last) if last.0 == at => last.1 = level,
            _ => levels.push((at, level)),
        }
    }
    let last = levels.last().map_or(0, |l| l.0);
    levels.truncate(levels.partition_point(|(at, _)| *at <= window.to));
    let (Some(least), Some(most)) = (levels.iter().map(|l| l.1).min(), levels.iter().map(|l| l.1).max())
    else {
        let role = ends_first(&lanes).map_or(0, |lane| lane.role);
        return Err(Refusal::Cut { role });
    };
    let least = if whole { least.min(0) } else { least };
    let whole_lanes = whole && lanes.iter().all(|lane| lane.ends_whole());
    plausible((&fills, &frees), (filled.as_slice(), freed.as_slice()), (least, most), window, whole_lanes)?;
    let taken = |(at, level): (u64, i64)| (at, u32::try_from(level - least).unwrap_or(u32::MAX));
    let until = last.min(window.to);
    Ok(Occupancy {
        count,
        changes: levels.into_iter().map(taken).collect(),
        until,
        left_out: last - until,
        cut_by: ends_first(&lanes).filter(|_| last > until).map(|lane| lane.role),
        relative: !whole || least != 0,
    })
}

/// When all of `lanes` recorded.
fn window(lanes: &[&Lane]) -> Result<Recorded, Refusal> {
    let mut both: Option<Recorded> = None;
    for lane in lanes {
        let joined = lane.recorded().and_then(|own| both.map_or(Some(own), |both| both.and(own)));
        both = Some(joined.ok_or(Refusal::Cut { role: ends_first(lanes).unwrap_or(lane).role })?);
    }
    both.ok_or(Refusal::Silent)
}

/// The lane that stopped recording first.
fn ends_first<'a>(lanes: &[&'a Lane]) -> Option<&'a Lane> {
    let end = |lane: &&&Lane| lane.recorded().map_or(0, |recorded| recorded.to);
    lanes.iter().min_by_key(end).copied()
}

/// Refuses what no ring does. Before the first fill consumers may hand over the empty slots, and a kernel may leave its
/// first fills unrecorded: so many releases more than fills are no contradiction.
fn plausible(
    (fills, frees): (&Side<'_>, &Side<'_>),
    (filled, freed): (&[u64], &[u64]),
    (least, most): (i64, i64),
    window: Recorded,
    whole: bool,
) -> Result<(), Refusal> {
    let contradicts = |side: &Side<'_>, how| {
        Err(Refusal::Contradicts { role: side.lanes.first().map_or(0, |l| l.0.role), how })
    };
    if most - least > MOST_SLOTS {
        return contradicts(frees, Contradiction::Slots(most - least));
    }
    let first = filled.first().copied().unwrap_or(u64::MAX);
    let ahead = freed.partition_point(|at| *at <= first).max(freed.len().saturating_sub(filled.len()));
    let beyond = -least - i64::try_from(ahead).unwrap_or(i64::MAX);
    if whole && beyond > 0 {
        return contradicts(frees, Contradiction::ReleasesBeforeFills(beyond));
    }
    let within = |times: &[u64]| times.iter().filter(|at| (window.from..=window.to).contains(*at)).count();
    let (fill, free) = (within(filled), within(freed));
    let (few, many, side) = if fill < free { (fill, free, fills) } else { (free, fill, frees) };
    // Where a lane stopped, a full ring is what a kernel that hung leaves.
    if window.to == u64::MAX && many - few > UNLIKE && many >= 2 * few {
        return contradicts(side, Contradiction::Counts(fill, free));
    }
    Ok(())
}

/// The lanes of one side with their arrivals, or ends of waits.
struct Side<'a> {
    lanes: Vec<(&'a Lane, Vec<u64>)>,
}

impl<'a> Side<'a> {
    fn of(cta: &'a CtaTrace, roles: &[usize], (kind, barrier): (Kind, u16)) -> Option<Self> {
        let lanes = cta.lanes.iter().filter(|lane| roles.contains(&lane.role));
        let lanes = lanes.map(|lane| (lane, marks(lane, kind, barrier)));
        // A role that recorded to its end and marked nothing takes no part; one that stopped may have been about to.
        let lanes: Vec<_> =
            lanes.filter(|(lane, times)| !times.is_empty() || !lane.ends_whole() || lane.torn).collect();
        lanes.iter().any(|(_, times)| !times.is_empty()).then_some(Self { lanes })
    }

    /// When the last lane arrived, slot by slot: counted from the first arrivals where all are there, else from the
    /// last ones.
    fn times(&self) -> Result<Vec<u64>, Refusal> {
        let from_start = self.lanes.iter().all(|(lane, _)| lane.starts_whole());
        if let Some((lane, _)) = self.lanes.iter().find(|(lane, _)| !lane.ends_whole())
            && !from_start
            && self.lanes.len() > 1
        {
            return Err(Refusal::Cut { role: lane.role });
        }
        let slots = self.lanes.iter().map(|(_, times)| times.len()).min().unwrap_or(0);
        let slot = |k: usize| {
            let index = |times: &Vec<u64>| if from_start { k } else { times.len() - slots + k };
            self.lanes.iter().map(|(_, times)| times[index(times)]).max()
        };
        Ok((0..slots).filter_map(slot).collect())
    }

    /// Whether these consumers' waits on `full` ended after the fills, where each wait has its fill.
    fn after(&self, filled: &[u64], full: u16) -> Result<(), Refusal> {
        for (lane, _) in &self.lanes {
            let waits = marks(lane, Kind::WaitEnd, full);
            let early = waits.iter().zip(filled).filter(|(wait, fill)| wait < fill).count();
            if waits.len() == filled.len() && early > 0 {
                let how = Contradiction::WaitsBeforeFills(early);
                return Err(Refusal::Contradicts { role: lane.role, how });
            }
        }
        Ok(())
    }
}

fn marks(lane: &Lane, kind: Kind, barrier: u16) -> Vec<u64> {
    lane.events.iter().filter(|e| e.kind == kind && e.id == barrier).map(|e| e.at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;

    fn cta(dropped: Option<u64>, lanes: &[(usize, u16, &[u64])]) -> CtaTrace {
        let lane = |&(role, id, times): &(usize, u16, &[u64])| Lane {
            role,
            events: times.iter().map(|&at| Event { at, kind: Kind::Arrive, id, step: 0 }).collect(),
            dropped,
            closed: Some(1000),
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
        assert_eq!(occupancy(&silent, &ring()), Err(Refusal::Silent), "nobody recorded a release");
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
    /// Three slots that one producer fills and one consumer frees.
    fn deep() -> Ring {
        Ring { consumers: vec![1], ..ring() }
    }

    #[test]
    fn slots_are_counted_while_all_lanes_record() {
        let fills: Vec<u64> = (0..20).map(|k| 100 * k).collect();
        let frees: Vec<u64> = (0..10).map(|k| 100 * k + 150).collect();
        let whole = cta(Some(0), &[(0, 0, &fills), (1, 1, &frees)]);
        // The consumer's records end at 1050; the producer went on to 1900.
        let mut cut = whole.clone();
        cut.lanes[1].closed = None;
        let found = occupancy(&cut, &deep()).unwrap();
        assert_eq!((found.until, found.left_out), (1050, 850));
        assert_eq!(found.changes.iter().map(|c| c.1).max(), Some(2));
        assert_eq!((found.changes.last(), found.relative), (Some(&(1050, 1)), false));
        cut.lanes[1] = Lane { stopped_full: true, dropped: None, ..whole.lanes[1].clone() };
        assert_eq!(occupancy(&cut, &deep()).unwrap().until, 1050, "a buffer that filled");
        // A lane that died before its first record leaves nothing.
        cut.lanes.push(Lane { role: 2, dropped: Some(0), ..Lane::default() });
        assert_eq!(occupancy(&cut, &ring()), Err(Refusal::Cut { role: 2 }));
        // Two consumers whose first records are lost, one of which stopped, cannot be told apart slot by slot.
        let mut two = cta(Some(3), &[(0, 0, &fills), (1, 1, &frees), (2, 1, &frees)]);
        two.lanes[2].closed = None;
        assert_eq!(occupancy(&two, &ring()), Err(Refusal::Cut { role: 2 }));
    }

    fn contradiction(cta: &CtaTrace) -> Option<(usize, Contradiction)> {
        match occupancy(cta, &deep()) {
            Err(Refusal::Contradicts { role, how }) => Some((role, how)),
            _ => None,
        }
    }

    #[test]
    fn records_that_no_ring_makes_are_refused() {
        let fills: Vec<u64> = (1..=30).map(|k| 100 * k).collect();
        let after = |ticks: u64| -> Vec<u64> { fills.iter().map(|at| at + ticks).collect() };
        let sound = cta(Some(0), &[(0, 0, &fills), (1, 1, &after(150))]);
        assert_eq!(contradiction(&sound), None);
        let mut torn = sound.clone();
        torn.lanes[0].torn = true;
        assert_eq!(contradiction(&torn), Some((0, Contradiction::Torn)));
        let half: Vec<u64> = after(150).into_iter().step_by(2).collect();
        let counts = cta(Some(0), &[(0, 0, &fills), (1, 1, &half)]);
        assert_eq!(contradiction(&counts), Some((1, Contradiction::Counts(30, 15))));
        let counts = cta(Some(0), &[(0, 0, &half), (1, 1, &after(150))]);
        assert_eq!(contradiction(&counts), Some((0, Contradiction::Counts(15, 30))));
        // Releases 10 before their fills, after a first one in its place.
        let mut frees: Vec<u64> = fills.iter().map(|at| at - 10).collect();
        frees[0] = 105;
        let early = cta(Some(0), &[(0, 0, &fills), (1, 1, &frees)]);
        assert_eq!(contradiction(&early), Some((1, Contradiction::ReleasesBeforeFills(1))));
        // A clock that is 250 behind looks like empty slots handed over, but for the waits.
        let behind: Vec<u64> = fills.iter().map(|at| at.saturating_sub(250)).collect();
        let mut early = cta(Some(0), &[(0, 0, &fills), (1, 1, &behind)]);
        assert_eq!(contradiction(&early), None);
        let wait = |event: &Event| Event { kind: Kind::WaitEnd, id: 0, ..*event };
        let waits: Vec<Event> = early.lanes[1].events.iter().map(wait).collect();
        early.lanes[1].events.extend(waits);
        early.lanes[1].events.sort_by_key(|e| e.at);
        assert_eq!(contradiction(&early), Some((1, Contradiction::WaitsBeforeFills(30))));
        let many: Vec<u64> = (0..300).collect();
        let deep = cta(Some(0), &[(0, 0, &many), (1, 1, &after(5000))]);
        assert_eq!(contradiction(&deep), Some((1, Contradiction::Slots(300))));
    }
}
