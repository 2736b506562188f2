//! Sums over the steps of one role, lane after lane.
//!
//! Prologue and tail are kept apart: where a lane has at least [`LONG_LANE`] whole steps its first and last
//! [`EDGE`] are left out. Steps of shorter lanes are summed on their own and used only where no lane is longer.

use super::releases::{Arrivals, Release};
use super::tally::Tally;
use super::walk::{Step, Walk, Walked};
use crate::outcome::Place;
use crate::{Lane, StepRule};
use std::collections::{BTreeMap, VecDeque};

/// Steps at each end of a lane that are not steady state: the depth of a usual pipeline.
pub(super) const EDGE: usize = 2;
/// Whole steps from which on a lane has a steady state.
pub(super) const LONG_LANE: usize = 12;

/// Waits on one barrier.
#[derive(Debug, Clone, Default)]
pub(super) struct WaitSum {
    /// Time in steps, cut at their edges.
    pub(super) in_steps: u128,
    /// Whole waits.
    pub(super) each: Tally,
    pub(super) ready: u64,
    pub(super) round_trip: Tally,
    /// Waits whose release is not known, since a role that arrives had stopped recording.
    pub(super) cut: u64,
}

impl WaitSum {
    fn merge(&mut self, other: &Self) {
        self.in_steps += other.in_steps;
        self.each.merge(&other.each);
        self.ready += other.ready;
        self.cut += other.cut;
        self.round_trip.merge(&other.round_trip);
    }
}

/// Occurrences of one event.
#[derive(Debug, Clone, Default)]
pub(super) struct EventSum {
    pub(super) each: Tally,
    /// The same without the waits inside.
    pub(super) own: Tally,
}

impl EventSum {
    fn merge(&mut self, other: &Self) {
        self.each.merge(&other.each);
        self.own.merge(&other.own);
    }
}

/// Sums over steps.
#[derive(Debug, Clone, Default)]
pub(super) struct StepSum {
    pub(super) period: Tally,
    pub(super) busy: Tally,
    /// By barrier, in ascending order.
    waits: Vec<(u16, WaitSum)>,
    /// By event, in ascending order.
    events: Vec<(u16, EventSum)>,
}

impl StepSum {
    /// `released` says of a barrier whether its recorded arrivals are releases.
    fn add(&mut self, step: &Step, arrivals: &Arrivals, released: &dyn Fn(u16) -> bool) {
        self.period.add(step.length());
        self.busy.add(step.length().saturating_sub(step.blocked));
        for &(barrier, ticks) in &step.by_barrier {
            slot(&mut self.waits, barrier).in_steps += u128::from(ticks);
        }
        for &wait in &step.waits {
            let sum = slot(&mut self.waits, wait.barrier);
            sum.each.add(wait.end.saturating_sub(wait.begin));
            if released(wait.barrier) {
                match arrivals.release(wait) {
                    Release::Ready => sum.ready += 1,
                    Release::Blocked { round_trip } => sum.round_trip.add(round_trip),
                    Release::Cut => sum.cut += 1,
                    Release::Unknown => {}
                }
            }
        }
        for span in &step.spans {
            let sum = slot(&mut self.events, span.event);
            sum.each.add(span.ticks);
            sum.own.add(span.own);
        }
    }

    fn merge(&mut self, other: &Self) {
        self.period.merge(&other.period);
        self.busy.merge(&other.busy);
        other.waits().for_each(|(id, wait)| slot(&mut self.waits, id).merge(wait));
        other.events().for_each(|(id, event)| slot(&mut self.events, id).merge(event));
    }

    pub(super) const fn steps(&self) -> u64 {
        self.period.count()
    }

    pub(super) fn waits(&self) -> impl Iterator<Item = (u16, &WaitSum)> {
        self.waits.iter().map(|(id, sum)| (*id, sum))
    }

    pub(super) fn events(&self) -> impl Iterator<Item = (u16, &EventSum)> {
        self.events.iter().map(|(id, sum)| (*id, sum))
    }
}

fn slot<T: Default>(table: &mut Vec<(u16, T)>, id: u16) -> &mut T {
    let index = match table.binary_search_by_key(&id, |entry| entry.0) {
        Ok(index) => index,
        Err(index) => {
            table.insert(index, (id, T::default()));
            index
        }
    };
    &mut table[index].1
}

/// Waits on one barrier that did not end.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct StuckSum {
    pub(super) ctas: u64,
    /// Of the CTA with the lowest number: where it ran, and the ticks from open() to the wait.
    pub(super) first: Option<(Place, u64)>,
}

/// Of two CTAs the one with the lower number.
fn earlier(a: Option<(Place, u64)>, b: Option<(Place, u64)>) -> Option<(Place, u64)> {
    a.into_iter().chain(b).min_by_key(|(place, at)| (place.cta, place.smid, *at))
}

/// The shorter of two durations, where there are any.
fn shorter(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

/// Steps of one SM.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SmSum {
    pub(super) steps: u64,
    pub(super) ticks: u128,
}

/// Mean steps of lanes and SMs.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Mean step of each lane, and where it ran.
    pub(super) by_lane: Vec<(f64, Place)>,
    /// The same by SM.
    pub(super) by_sm: BTreeMap<u32, SmSum>,
}

impl Places {
    fn add(&mut self, place: Place, steps: u64, ticks: u64) {
        self.by_lane.push((ticks as f64 / steps as f64, place));
        if let Some(smid) = place.smid {
            let sm = self.by_sm.entry(smid).or_default();
            sm.steps += steps;
            sm.ticks += u128::from(ticks);
        }
    }

    fn merge(&mut self, other: Self) {
        self.by_lane.extend(other.by_lane);
        for (sm, sum) in other.by_sm {
            let mine = self.by_sm.entry(sm).or_default();
            mine.steps += sum.steps;
            mine.ticks += sum.ticks;
        }
    }
}

/// Everything summed of one role.
#[derive(Debug, Default)]
pub(super) struct RoleSum {
    pub(super) lanes: u64,
    pub(super) starts: u64,
    /// Waits were recorded at all.
    pub(super) has_waits: bool,
    /// The shortest wait of any lane, the prologue's included: a barrier may be open there alone.
    pub(super) shortest_wait: Option<u64>,
    /// By barrier: the CTAs in which the role waits on it to the end of the records.
    pub(super) stuck: BTreeMap<u16, StuckSum>,
    pub(super) steady: StepSum,
    pub(super) short: StepSum,
    pub(super) prologue: Tally,
    pub(super) tail: Tally,
    /// Where the steps of `steady` were, and those of `short`.
    steady_places: Places,
    short_places: Places,
    /// Steps, or events in them, of which a record is missing.
    pub(super) lost: u64,
    /// A recorder stopped when its buffer was full.
    pub(super) stopped_full: bool,
}

impl RoleSum {
    /// Adds what another worker summed.
    pub(super) fn merge(&mut self, other: Self) {
        self.lanes += other.lanes;
        self.starts += other.starts;
        self.has_waits |= other.has_waits;
        self.shortest_wait = shorter(self.shortest_wait, other.shortest_wait);
        for (barrier, sum) in other.stuck {
            let mine = self.stuck.entry(barrier).or_default();
            mine.ctas += sum.ctas;
            mine.first = earlier(mine.first, sum.first);
        }
        self.steady.merge(&other.steady);
        self.short.merge(&other.short);
        self.prologue.merge(&other.prologue);
        self.tail.merge(&other.tail);
        self.steady_places.merge(other.steady_places);
        self.short_places.merge(other.short_places);
        self.lost += other.lost;
        self.stopped_full |= other.stopped_full;
    }

    /// The sums that statements are made from: steady ones where there are any.
    pub(super) const fn sums(&self) -> &StepSum {
        if self.is_steady() { &self.steady } else { &self.short }
    }

    /// Where the steps of [`Self::sums`] were.
    pub(super) const fn places(&self) -> &Places {
        if self.is_steady() { &self.steady_places } else { &self.short_places }
    }

    /// Lanes with steps that are in no mean since other lanes have a steady state, and their steps.
    pub(super) const fn left_out(&self) -> (usize, u64) {
        if self.is_steady() { (self.short_places.by_lane.len(), self.short.steps()) } else { (0, 0) }
    }

    /// Whether some lane was long enough to have a steady state.
    pub(super) const fn is_steady(&self) -> bool {
        self.steady.steps() > 0
    }

    /// Walks one lane into the sums.
    pub(super) fn lane(
        &mut self,
        (walk, edges): (&mut Walk, &mut Edges),
        (lane, rule): (&Lane, StepRule),
        place: Place,
        arrivals: &Arrivals,
        released: &dyn Fn(u16) -> bool,
    ) -> Walked {
        edges.clear();
        let (steady, mut first, mut last) = (&mut self.steady, None, None);
        let (mut steps, mut ticks) = (0_u64, 0_u64);
        let walked = walk.lane(lane, rule, |step| {
            edges.step(step, |step| {
                steady.add(step, arrivals, released);
                first = first.or(Some(step.start));
                last = Some(step.end);
                steps += 1;
                ticks = ticks.saturating_add(step.length());
            });
        });
        let long = steps > 0;
        if !long {
            for step in &edges.held {
                self.short.add(step, arrivals, released);
                ticks = ticks.saturating_add(step.length());
            }
            steps = edges.held.len() as u64;
        }
        // A lane that was not even opened is one that the file was cut before.
        self.lanes += u64::from(!lane.events.is_empty() || lane.opened.is_some());
        self.starts += walked.starts;
        self.shortest_wait = shorter(self.shortest_wait, walked.shortest_wait);
        if let Some((barrier, at)) = walked.stuck {
            let stuck = self.stuck.entry(barrier).or_default();
            stuck.ctas += 1;
            stuck.first = earlier(stuck.first, Some((place, at.saturating_sub(lane.opened.unwrap_or(at)))));
        }
        self.lost += walked.dropped + walked.unended;
        self.stopped_full |= lane.stopped_full;
        if steps > 0 {
            let places = if long { &mut self.steady_places } else { &mut self.short_places };
            places.add(place, steps, ticks);
        }
        let whole = lane.dropped == Some(0) && !lane.torn;
        if let Some((opened, first)) = lane.opened.filter(|_| whole).zip(first) {
            self.prologue.add(first.saturating_sub(opened));
        }
        if let Some((closed, last)) = lane.closed.filter(|_| !lane.torn).zip(last) {
            self.tail.add(closed.saturating_sub(last));
        }
        walked
    }
}

/// Holds back steps until it is known whether they are at an edge of the lane.
#[derive(Default)]
pub(super) struct Edges {
    held: VecDeque<Step>,
    /// Steps whose buffers are used again.
    spare: Vec<Step>,
    long: bool,
}

impl Edges {
    fn clear(&mut self) {
        self.spare.extend(self.held.drain(..));
        self.long = false;
    }

    fn step(&mut self, step: &Step, mut steady: impl FnMut(&Step)) {
        let mut held = self.spare.pop().unwrap_or_default();
        held.copy_from(step);
        self.held.push_back(held);
        if !self.long && self.held.len() == LONG_LANE {
            self.long = true;
            self.spare.extend(self.held.drain(..EDGE));
        }
        while self.long && self.held.len() > EDGE {
            if let Some(step) = self.held.pop_front() {
                steady(&step);
                self.spare.push(step);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::walk::Span;
    use super::*;

    fn steps_of(n: u64) -> (Vec<u64>, usize) {
        let (mut edges, mut steady) = (Edges::default(), Vec::new());
        for start in 0..n {
            edges.step(&Step { start, ..Step::default() }, |s| steady.push(s.start));
        }
        (steady, edges.held.len())
    }

    #[test]
    fn the_first_and_last_steps_of_a_long_lane_are_no_steady_state() {
        assert_eq!(steps_of(11), (vec![], 11));
        assert_eq!(steps_of(12), ((2..10).collect(), 2));
        assert_eq!(steps_of(20), ((2..18).collect(), 2));
    }

    #[test]
    fn a_lane_after_another_starts_anew() {
        let mut edges = Edges::default();
        for start in 0..20 {
            edges.step(
                &Step { start, spans: vec![Span { event: 1, ticks: 2, own: 2 }], ..Step::default() },
                |_| {},
            );
        }
        edges.clear();
        for start in 99..110 {
            edges.step(&Step { start, ..Step::default() }, |step| panic!("{step:?} is no steady step"));
        }
        assert_eq!(
            edges.held[0],
            Step { start: 99, ..Step::default() },
            "nothing of the earlier lane is left"
        );
    }
}
