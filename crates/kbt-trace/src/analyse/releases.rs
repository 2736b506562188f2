//! Who released a wait, and how long the release took to be seen: by the arrivals recorded in the same CTA.

use super::walk::Wait;
use crate::recorded::Arriving;
use crate::{CtaTrace, Edge, Kind, Releaser};

/// The arrivals of one CTA, by barrier and time.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    by_barrier: Vec<Vec<u64>>,
    recorded: Arriving,
}

/// What a wait turned out to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Release {
    /// The last arrival came before the wait began: nothing to wait for.
    Ready,
    /// The arrival came while the role waited; this many ticks later the wait was over.
    Blocked {
        /// From the arrival to the end of the wait.
        round_trip: u64,
    },
    /// No arrival was recorded before the end of the wait, or hardware releases this barrier.
    Unknown,
    /// A role that arrives on this barrier had stopped recording before the wait ended, or records of it are missing.
    Cut,
}

impl Arrivals {
    /// Collects those of `cta`, in place of those held, and says whether there are any.
    pub(super) fn collect(&mut self, cta: &CtaTrace, edges: &[Edge]) -> bool {
        self.recorded.collect(cta, edges);
        self.by_barrier.iter_mut().for_each(Vec::clear);
        for event in cta.lanes.iter().flat_map(|l| &l.events).filter(|e| e.kind == Kind::Arrive) {
            let index = usize::from(event.id);
            if index >= self.by_barrier.len() {
                self.by_barrier.resize_with(index + 1, Vec::new);
            }
            self.by_barrier[index].push(event.at);
        }
        self.by_barrier.iter_mut().for_each(|times| times.sort_unstable());
        self.by_barrier.iter().any(|times| !times.is_empty())
    }

    /// How `wait` was released.
    pub(super) fn release(&self, wait: Wait) -> Release {
        let times = self.by_barrier.get(usize::from(wait.barrier)).map_or(&[][..], Vec::as_slice);
        if times.is_empty() {
            return Release::Unknown;
        }
        let before = times.partition_point(|&at| at <= wait.end);
        let Some(recorded) = self.recorded.before(wait.barrier, wait.end) else { return Release::Cut };
        match before.checked_sub(1).map(|i| times[i]) {
            None => Release::Unknown,
            // Whose records begin later may have arrived after this.
            Some(at) if at < recorded.from => Release::Unknown,
            Some(at) if recorded.misses_after(at) => Release::Cut,
            Some(at) if at <= wait.begin => Release::Ready,
            Some(at) => Release::Blocked { round_trip: wait.end - at },
        }
    }
}

/// The roles that release `barrier` for `waiting`, and whether hardware does.
pub(super) fn releasers(edges: &[Edge], barrier: u16, waiting: usize) -> impl Iterator<Item = Releaser> {
    edges.iter().filter(move |e| e.barrier == barrier && e.waiting == waiting).map(|e| e.arriving)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, Lane};

    #[test]
    fn the_last_arrival_before_the_end_decides() {
        let arrive = |at| Event { at, kind: Kind::Arrive, id: 2, step: 0 };
        let lane = Lane { events: vec![arrive(10), arrive(50)], ..Lane::default() };
        let mut arrivals = Arrivals::default();
        arrivals.collect(&CtaTrace { lanes: vec![lane.clone()], ..CtaTrace::default() }, &[]);
        let release = |begin, end| arrivals.release(Wait { barrier: 2, begin, end });
        assert_eq!(release(12, 20), Release::Ready);
        assert_eq!(release(40, 75), Release::Blocked { round_trip: 25 });
        assert_eq!(release(1, 5), Release::Unknown);
    }

    #[test]
    fn a_wait_after_the_arriving_role_stopped_recording_is_not_ready() {
        let arrive = |at| Event { at, kind: Kind::Arrive, id: 2, step: 0 };
        let edges = [0, 1].map(|role| Edge { barrier: 2, arriving: Releaser::Role(role), waiting: 3 });
        let lane = |role, times: &[u64], closed| Lane {
            role,
            events: times.iter().map(|&at| arrive(at)).collect(),
            dropped: Some(0),
            closed,
            ..Lane::default()
        };
        let mut arrivals = Arrivals::default();
        let lanes = vec![lane(0, &[10, 50, 90], Some(99)), lane(1, &[12, 52], None)];
        let mut cta = CtaTrace { lanes, ..CtaTrace::default() };
        arrivals.collect(&cta, &edges);
        let release = |arrivals: &Arrivals, begin, end| arrivals.release(Wait { barrier: 2, begin, end });
        assert_eq!(release(&arrivals, 14, 20), Release::Ready);
        assert_eq!(release(&arrivals, 95, 98), Release::Cut, "role 1 is known up to 52");
        cta.lanes.iter_mut().flat_map(|l| &mut l.events).for_each(|e| e.kind = Kind::Instant);
        arrivals.collect(&cta, &edges);
        assert_eq!(release(&arrivals, 95, 98), Release::Unknown, "a recorder without arrivals");
        // Role 1 lost its first records: from 52 on it is known.
        cta.lanes[1] = Lane { dropped: Some(1), ..lane(1, &[52], Some(99)) };
        arrivals.collect(&cta, &edges);
        assert_eq!(release(&arrivals, 14, 20), Release::Unknown);
        assert_eq!(release(&arrivals, 60, 70), Release::Ready);
        assert_eq!(release(&arrivals, 95, 98), Release::Ready);
    }
}
