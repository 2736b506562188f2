//! What belongs together within a lane, and when it was recording: only then may what it did be held against what other lanes did.

use crate::{CtaTrace, Edge, Lane, Releaser};

/// From a lane's first certain tick to its last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Recorded {
    pub(crate) from: u64,
    pub(crate) to: u64,
}

impl Recorded {
    const ALWAYS: Self = Self { from: 0, to: u64::MAX };

    /// The time that lies in both; `None` where none does.
    pub(crate) fn and(self, other: Self) -> Option<Self> {
        let both = Self { from: self.from.max(other.from), to: self.to.min(other.to) };
        (both.from <= both.to).then_some(both)
    }
}

impl Lane {
    /// Of the begins still open, the outermost first, the one that record `end` ends; `None`: it is an orphan.
    /// `index` gives a begin's own record, `same` whether it is of the end's kind and id.
    pub(crate) fn begin_of<T>(
        &self,
        end: usize,
        open: &[T],
        index: impl Fn(&T) -> usize,
        same: impl Fn(&T) -> bool,
    ) -> Option<usize> {
        match self.begun_by.get(end) {
            Some(&begin) => open.iter().rposition(|o| index(o) == begin as usize && same(o)),
            None => open.iter().rposition(same),
        }
    }

    /// Notes that a record was refused where the next one is to be put.
    pub(crate) fn refused(&mut self) {
        if self.gaps.last() != Some(&self.events.len()) {
            self.gaps.push(self.events.len());
        }
    }

    /// Takes the last record back, which turned out to be wrong.
    pub(crate) fn take_back(&mut self) {
        self.events.pop();
        while self.gaps.last().is_some_and(|gap| *gap >= self.events.len()) {
            self.gaps.pop();
        }
        self.gaps.push(self.events.len());
    }

    /// When records are missing that were refused: from the record before them to the one after.
    pub(crate) fn missing(&self) -> impl Iterator<Item = Recorded> {
        self.gaps.iter().map(|&next| Recorded {
            from: next.checked_sub(1).and_then(|last| self.events.get(last)).map_or(0, |e| e.at),
            to: self.events.get(next).map_or(u64::MAX, |e| e.at),
        })
    }

    /// Its first record is the first that the role wrote.
    pub(crate) fn starts_whole(&self) -> bool {
        self.dropped == Some(0) || self.stopped_full
    }

    /// Its last record is the last that the role wrote.
    pub(crate) const fn ends_whole(&self) -> bool {
        self.closed.is_some() && !self.stopped_full
    }

    /// When its records tell all that the role did. Before open() and after close() it did nothing, so that a lane
    /// that lost no record has no limits. `None` where nothing is certain.
    pub(crate) fn recorded(&self) -> Option<Recorded> {
        let from = if self.starts_whole() { Some(0) } else { self.events.first().map(|e| e.at) };
        let to = if self.ends_whole() { Some(u64::MAX) } else { self.events.last().map(|e| e.at) };
        from.zip(to).filter(|_| !self.torn).map(|(from, to)| Recorded { from, to })
    }
}

impl CtaTrace {
    /// The tick of its earliest record.
    pub(crate) fn first_tick(&self) -> Option<u64> {
        self.lanes.iter().filter_map(|lane| lane.events.first()).map(|event| event.at).min()
    }
}

/// When the arrivals on one barrier are known.
#[derive(Debug, Default)]
struct Known {
    /// When every role that arrives was recording; `None`: never.
    recorded: Option<Recorded>,
    /// When records of such a role are missing.
    missing: Vec<Recorded>,
}

/// For each barrier of a CTA, when its arrivals are known.
#[derive(Debug, Default)]
pub(crate) struct Arriving {
    by_barrier: Vec<Known>,
}

impl Arriving {
    /// Takes those of `cta`, in place of those held.
    pub(crate) fn collect(&mut self, cta: &CtaTrace, edges: &[Edge]) {
        self.by_barrier.clear();
        for edge in edges {
            let Releaser::Role(role) = edge.arriving else { continue };
            let barrier = usize::from(edge.barrier);
            let always = || Known { recorded: Some(Recorded::ALWAYS), missing: Vec::new() };
            self.by_barrier.resize_with(self.by_barrier.len().max(barrier + 1), always);
            let Known { recorded, missing } = &mut self.by_barrier[barrier];
            for lane in cta.lanes.iter().filter(|lane| lane.role == role) {
                *recorded = recorded.zip(lane.recorded()).and_then(|(known, lane)| known.and(lane));
                missing.extend(lane.missing());
            }
        }
    }

    /// Whether every role that arrives on `barrier` was recording at `until`, from when on, and whether none of their
    /// records is missing between a time and that: so that the last arrival before it is the last there was.
    pub(crate) fn before(&self, barrier: u16, until: u64) -> Option<Before<'_>> {
        let Some(known) = self.by_barrier.get(usize::from(barrier)) else {
            return Some(Before { from: 0, until, missing: &[] });
        };
        let recorded = known.recorded.filter(|recorded| until <= recorded.to)?;
        Some(Before { from: recorded.from, until, missing: &known.missing })
    }
}

/// What is known of the arrivals before a moment.
pub(crate) struct Before<'a> {
    /// From here on every role was recording.
    pub(crate) from: u64,
    until: u64,
    missing: &'a [Recorded],
}

impl Before<'_> {
    /// Whether an arrival after `at` may be missing.
    pub(crate) fn misses_after(&self, at: u64) -> bool {
        self.missing.iter().any(|gap| gap.from < self.until && gap.to > at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, Kind};

    fn lane(dropped: Option<u64>, closed: Option<u64>) -> Lane {
        let event = |at| Event { at, kind: Kind::Arrive, id: 0, step: 0 };
        Lane { events: vec![event(10), event(50)], opened: Some(5), closed, dropped, ..Lane::default() }
    }

    #[test]
    fn only_lost_records_limit_what_a_lane_tells() {
        let span = |lane: Lane| lane.recorded().map(|r| (r.from, r.to));
        assert_eq!(span(lane(Some(0), Some(60))), Some((0, u64::MAX)));
        assert_eq!(span(lane(Some(7), Some(60))), Some((10, u64::MAX)));
        assert_eq!(span(lane(Some(0), None)), Some((0, 50)), "not closed");
        assert_eq!(span(Lane { stopped_full: true, ..lane(None, Some(60)) }), Some((0, 50)), "full");
        assert_eq!(span(Lane { torn: true, ..lane(Some(0), Some(60)) }), None);
        assert_eq!(
            span(Lane { events: vec![], ..lane(Some(0), None) }),
            None,
            "dead before its first record"
        );
    }
}
