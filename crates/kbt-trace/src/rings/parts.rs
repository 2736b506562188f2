//! How full a ring was where records are missing in the middle: counted anew on either side of each gap.

use super::{Contradiction, Occupancy, Refusal, Ring, occupancy};
use crate::recorded::Recorded;
use crate::{CtaTrace, Kind, Lane};

/// How many slots of a ring were taken in a CTA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counted {
    /// In order of time; one where no record is missing.
    pub(crate) parts: Vec<Occupancy>,
    /// Ticks that no part holds.
    pub(crate) left_out: u64,
    /// A role of which records are missing.
    pub(crate) gap_by: Option<usize>,
}

/// The occupancy of `ring` in `cta`.
///
/// Before the first gap slots are counted from the first arrival, and after the last one back from the last arrival:
/// where every lane has those. Between two gaps nothing tells how many slots were taken at first.
pub(crate) fn counted(cta: &CtaTrace, ring: &Ring) -> Result<Counted, Refusal> {
    let gaps = gaps(cta, ring);
    let Some(&(first, role)) = gaps.first() else {
        let found = occupancy(cta, ring)?;
        return Ok(Counted { left_out: found.left_out, parts: vec![found], gap_by: None });
    };
    let last = gaps.iter().map(|(gap, _)| gap.to).max().unwrap_or(u64::MAX);
    let mut refusal = Refusal::Contradicts { role, how: Contradiction::Missing };
    let mut parts = Vec::new();
    let (starts, ends) = (Lane::starts_whole as fn(&Lane) -> bool, Lane::ends_whole as fn(&Lane) -> bool);
    for (anchored, span) in [(starts, (0, first.from)), (ends, (last, u64::MAX))] {
        if !lanes(cta, ring).filter(|lane| !lane.events.is_empty()).all(anchored) {
            continue;
        }
        match occupancy(&part(cta, span), ring) {
            // The first part ends at the gap, not where a role stopped.
            Ok(found) => parts.push(Occupancy { cut_by: found.cut_by.filter(|_| span.0 > 0), ..found }),
            Err(contradicts @ Refusal::Contradicts { .. }) => refusal = contradicts,
            Err(Refusal::Silent | Refusal::Cut { .. }) => {}
        }
    }
    let length = |part: &Occupancy| part.until - part.changes.first().map_or(part.until, |change| change.0);
    let told: u64 = parts.iter().map(length).sum();
    if told == 0 {
        return Err(refusal);
    }
    let whole = span(cta, ring).map_or(told, |(first, last)| last - first);
    Ok(Counted { parts, left_out: whole.saturating_sub(told), gap_by: Some(role) })
}

fn lanes<'a>(cta: &'a CtaTrace, ring: &'a Ring) -> impl Iterator<Item = &'a Lane> {
    cta.lanes.iter().filter(|lane| ring.producers.contains(&lane.role) || ring.consumers.contains(&lane.role))
}

/// When records of the ring's lanes are missing, and whose; sorted.
fn gaps(cta: &CtaTrace, ring: &Ring) -> Vec<(Recorded, usize)> {
    // Where arrivals are recorded they alone are counted, and waits without their partner are no matter.
    let by_waits = |on: u16| !lanes(cta, ring).any(|lane| has(lane, Kind::Arrive, on));
    let ahead = by_waits(ring.full) || by_waits(ring.empty);
    let mut gaps: Vec<(Recorded, usize)> = Vec::new();
    for lane in lanes(cta, ring) {
        gaps.extend(lane.missing().map(|gap| (gap, lane.role)));
        for on in [ring.full, ring.empty].into_iter().filter(|_| ahead) {
            gaps.extend(halves(lane, on).into_iter().map(|gap| (gap, lane.role)));
        }
    }
    gaps.sort_by_key(|(gap, role)| (gap.from, gap.to, *role));
    gaps
}

fn has(lane: &Lane, kind: Kind, on: u16) -> bool {
    lane.events.iter().any(|e| e.kind == kind && e.id == on)
}

/// Where the begin or the end of a wait on `on` is missing between two waits.
fn halves(lane: &Lane, on: u16) -> Vec<Recorded> {
    let (mut open, mut last, mut found) = (None, None, Vec::new());
    for event in lane.events.iter().filter(|e| e.id == on) {
        match event.kind {
            Kind::WaitBegin => {
                found.extend(open.replace(event.at).map(|from| Recorded { from, to: event.at }));
            }
            Kind::WaitEnd => {
                if open.take().is_none() {
                    found.extend(last.map(|from| Recorded { from, to: event.at }));
                }
                last = Some(event.at);
            }
            _ => {}
        }
    }
    found
}

/// The CTA as if nothing had been recorded but from `from` to `to`.
fn part(cta: &CtaTrace, (from, to): (u64, u64)) -> CtaTrace {
    let lane = |lane: &Lane| {
        let first = lane.events.partition_point(|e| e.at < from);
        let last = lane.events.partition_point(|e| e.at <= to).max(first);
        Lane {
            role: lane.role,
            events: lane.events[first..last].to_vec(),
            begun_by: Vec::new(),
            opened: lane.opened,
            closed: lane.closed.filter(|_| to == u64::MAX && lane.ends_whole()),
            dropped: lane.dropped.filter(|_| from == 0),
            stopped_full: lane.stopped_full && from == 0,
            torn: lane.torn,
            gaps: Vec::new(),
        }
    };
    CtaTrace { lanes: cta.lanes.iter().map(lane).collect(), ..CtaTrace { lanes: Vec::new(), ..*cta } }
}

/// From the first to the last record that fills or frees a slot.
fn span(cta: &CtaTrace, ring: &Ring) -> Option<(u64, u64)> {
    let counts = |kind| matches!(kind, Kind::Arrive | Kind::WaitEnd);
    let of = |e: &&crate::Event| counts(e.kind) && (e.id == ring.full || e.id == ring.empty);
    let marks = || lanes(cta, ring).flat_map(|lane| lane.events.iter().filter(of)).map(|e| e.at);
    marks().min().zip(marks().max())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;

    /// One producer and two consumers, by role; a gap of the producer's before its record `gap`.
    fn counted(gap: usize, times: [Vec<u64>; 3]) -> Counted {
        let lane = |(role, times): (usize, Vec<u64>)| Lane {
            role,
            events: times
                .into_iter()
                .map(|at| Event { at, kind: Kind::Arrive, id: u16::from(role > 0), step: 0 })
                .collect(),
            dropped: Some(0),
            closed: Some(1000),
            gaps: if role == 0 { vec![gap] } else { Vec::new() },
            ..Lane::default()
        };
        let cta =
            CtaTrace { lanes: times.into_iter().enumerate().map(lane).collect(), ..CtaTrace::default() };
        let ring = Ring { name: "K".into(), full: 0, empty: 1, producers: vec![0], consumers: vec![1, 2] };
        super::counted(&cta, &ring).unwrap()
    }

    #[test]
    fn after_a_gap_slots_are_told_by_the_last_arrivals() {
        // Filled at 10, 20 and so on, the third record refused; one consumer lets go 7 later, the other 9.
        let every = |from: u64, to: u64| (from..to).step_by(10).collect::<Vec<u64>>();
        let fills = [every(10, 30), every(40, 90)].concat();
        let found = counted(2, [fills, every(17, 90), every(33, 109)]);
        let last = found.parts.last().unwrap();
        // At 40 the second consumer lets go of slots 1 to 3 only from 43 on, 26 after the fill.
        assert_eq!(last.changes.last(), Some(&(103, 0)));
        assert_eq!(last.changes.iter().map(|c| c.1).max(), Some(3), "{:?}", last.changes);
        assert_eq!((found.gap_by, found.parts.len()), (Some(0), 1), "the second consumer's first is later");
    }

    #[test]
    fn a_consumer_that_first_arrives_after_the_gap_took_part_before_it() {
        let found = counted(2, [vec![10, 20, 40, 50], vec![17, 27, 47, 57], vec![41, 42, 48, 58]]);
        assert!(found.parts.iter().all(|part| part.changes[0].0 >= 40), "{:?}", found.parts);
    }
}
