//! Sums over the steps of one role, lane after lane.
//!
//! Prologue and tail are kept apart: where a lane has at least [`LONG_LANE`] whole steps its first and last
//! [`EDGE`] are left out. Steps of shorter lanes are summed on their own and used only where no lane is longer.

use super::releases::{Arrivals, Release};
use super::tally::Tally;
use super::walk::{Step, Walk, Walked};
use crate::outcome::Place;
use crate::{Lane, StepRule};
use std::collections::VecDeque;

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
}

/// Occurrences of one event.
#[derive(Debug, Clone, Default)]
pub(super) struct EventSum {
    pub(super) each: Tally,
    /// The same without the waits inside.
    pub(super) own: Tally,
}

/// Sums over steps.
#[derive(Debug, Clone, Default)]
pub(super) struct StepSum {
    pub(super) period: Tally,
    pub(super) busy: Tally,
    pub(super) waits: Vec<Option<WaitSum>>,
    pub(super) events: Vec<Option<EventSum>>,
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

    pub(super) const fn steps(&self) -> u64 {
        self.period.count()
    }

    pub(super) fn waits(&self) -> impl Iterator<Item = (u16, &WaitSum)> {
        filled(&self.waits)
    }

    pub(super) fn events(&self) -> impl Iterator<Item = (u16, &EventSum)> {
        filled(&self.events)
    }
}

fn slot<T: Default>(table: &mut Vec<Option<T>>, id: u16) -> &mut T {
    let index = usize::from(id);
    if index >= table.len() {
        table.resize_with(index + 1, || None);
    }
    table[index].get_or_insert_default()
}

fn filled<T>(table: &[Option<T>]) -> impl Iterator<Item = (u16, &T)> {
    table.iter().enumerate().filter_map(|(id, sum)| Some((u16::try_from(id).ok()?, sum.as_ref()?)))
}

/// Everything summed of one role.
#[derive(Debug, Default)]
pub(super) struct RoleSum {
    /// The rule in use; set at the first lane.
    pub(super) rule: Option<StepRule>,
    pub(super) guessed: bool,
    pub(super) lanes: u64,
    pub(super) starts: u64,
    /// Waits were recorded at all.
    pub(super) has_waits: bool,
    pub(super) steady: StepSum,
    pub(super) short: StepSum,
    pub(super) prologue: Tally,
    pub(super) tail: Tally,
    /// Mean steady step of each lane, and where it ran.
    pub(super) by_lane: Vec<(f64, Place)>,
}

impl RoleSum {
    /// The sums that statements are made from: steady ones where there are any.
    pub(super) const fn sums(&self) -> &StepSum {
        if self.is_steady() { &self.steady } else { &self.short }
    }

    /// Whether some lane was long enough to have a steady state.
    pub(super) const fn is_steady(&self) -> bool {
        self.steady.steps() > 0
    }

    /// Walks one lane into the sums.
    pub(super) fn lane(
        &mut self,
        walk: &mut Walk,
        lane: &Lane,
        place: Place,
        arrivals: &Arrivals,
        released: &dyn Fn(u16) -> bool,
    ) -> Walked {
        let rule = self.rule.unwrap_or(StepRule::Unstated);
        let mut edges = Edges::default();
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
        if steps == 0 {
            for step in &edges.held {
                self.short.add(step, arrivals, released);
                ticks = ticks.saturating_add(step.length());
            }
            steps = edges.held.len() as u64;
        }
        self.lanes += 1;
        self.starts += walked.starts;
        if steps > 0 {
            self.by_lane.push((ticks as f64 / steps as f64, place));
        }
        let whole = lane.dropped == Some(0);
        if let Some((opened, first)) = lane.opened.filter(|_| whole).zip(first) {
            self.prologue.add(first.saturating_sub(opened));
        }
        if let Some((closed, last)) = lane.closed.zip(last) {
            self.tail.add(closed.saturating_sub(last));
        }
        walked
    }
}

/// Holds back steps until it is known whether they are at an edge of the lane.
#[derive(Default)]
struct Edges {
    held: VecDeque<Step>,
    long: bool,
}

impl Edges {
    fn step(&mut self, step: &Step, mut steady: impl FnMut(&Step)) {
        self.held.push_back(step.clone());
        if !self.long && self.held.len() == LONG_LANE {
            self.long = true;
            self.held.drain(..EDGE);
        }
        while self.long && self.held.len() > EDGE {
            if let Some(step) = self.held.pop_front() {
                steady(&step);
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
}
