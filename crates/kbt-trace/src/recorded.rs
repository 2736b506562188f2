//! When a lane was recording: only then may what it did be held against what other lanes did.

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

/// For each barrier of a CTA, when every role that arrives on it was recording.
#[derive(Debug, Default)]
pub(crate) struct Arriving {
    by_barrier: Vec<Option<Recorded>>,
}

impl Arriving {
    /// Takes those of `cta`, in place of those held.
    pub(crate) fn collect(&mut self, cta: &CtaTrace, edges: &[Edge]) {
        self.by_barrier.clear();
        for edge in edges {
            let Releaser::Role(role) = edge.arriving else { continue };
            let barrier = usize::from(edge.barrier);
            if barrier >= self.by_barrier.len() {
                self.by_barrier.resize(barrier + 1, Some(Recorded::ALWAYS));
            }
            for lane in cta.lanes.iter().filter(|lane| lane.role == role) {
                let known = self.by_barrier[barrier].zip(lane.recorded());
                self.by_barrier[barrier] = known.and_then(|(known, lane)| known.and(lane));
            }
        }
    }

    /// That of one barrier.
    pub(crate) fn of(&self, barrier: u16) -> Option<Recorded> {
        self.by_barrier.get(usize::from(barrier)).copied().unwrap_or(Some(Recorded::ALWAYS))
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
