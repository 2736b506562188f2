//! Walks one lane: pairs begins with ends, cuts it into steps, and says what did not fit.

use super::damage::{Damage, OddWaits};
use crate::{Event, Kind, Lane, ProblemKind, StepRule};

/// A wait from its begin to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) barrier: u16,
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// An event from its begin to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) event: u16,
    pub(super) ticks: u64,
    /// Of these, ticks outside waits.
    pub(super) own: u64,
}

/// One step of one lane: from one step start to the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Time in waits; overlapping waits count once.
    pub(super) blocked: u64,
    /// Time in waits by barrier; a wait across a step's edge is cut there.
    pub(super) by_barrier: Vec<(u16, u64)>,
    /// Waits that ended in this step.
    pub(super) waits: Vec<Wait>,
    /// Events that ended in this step.
    pub(super) spans: Vec<Span>,
}

impl Step {
    pub(super) const fn length(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Takes what `other` holds into its own buffers.
    pub(super) fn copy_from(&mut self, other: &Self) {
        (self.start, self.end, self.blocked) = (other.start, other.end, other.blocked);
        self.by_barrier.clone_from(&other.by_barrier);
        self.waits.clone_from(&other.waits);
        self.spans.clone_from(&other.spans);
    }

    fn clear(&mut self) {
        self.by_barrier.clear();
        self.waits.clear();
        self.spans.clear();
        self.blocked = 0;
    }
}

/// What a walk found beside the steps.
#[derive(Debug, Clone, Default)]
pub(super) struct Walked {
    /// Step starts.
    pub(super) starts: u64,
    /// The first and the last of them.
    pub(super) first_start: Option<u64>,
    pub(super) last_start: Option<u64>,
    /// The shortest wait, whether in a step or not.
    pub(super) shortest_wait: Option<u64>,
    /// The barrier that the role waits on to the end of its records without a close(), and since when.
    pub(super) stuck: Option<(u16, u64)>,
    /// Steps that were given to nobody, since records of them are missing.
    pub(super) dropped: u64,
    /// Events that begin in a whole step and do not end, of a lane whose recorder writes ends.
    pub(super) unended: u64,
    pub(super) odd: Vec<(ProblemKind, u64)>,
}

/// A begin not yet ended.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    /// Its record.
    pub(super) index: usize,
    pub(super) id: u16,
    at: u64,
    /// Time in waits that had ended before.
    waited: u64,
}

/// Begins not yet ended, the outermost first.
#[derive(Default)]
pub(super) struct Open {
    pub(super) stack: Vec<Begun>,
    crossed: u64,
    orphan_ends: u64,
    zero: u64,
}

impl Open {
    pub(super) fn begin(&mut self, index: usize, id: u16, at: u64, waited: u64) {
        self.stack.push(Begun { index, id, at, waited });
    }

    /// Ends what record `end` of `lane` ends.
    pub(super) fn end(&mut self, lane: &Lane, end: usize, id: u16, at: u64) -> Option<Begun> {
        let Some(index) = lane.begin_of(end, &self.stack, |open| open.index, |open| open.id == id) else {
            self.orphan_ends += 1;
            return None;
        };
        self.crossed += u64::from(index + 1 != self.stack.len());
        let begun = self.stack.remove(index);
        self.zero += u64::from(begun.at == at);
        Some(begun)
    }
}

/// Buffers of a walk, kept between lanes.
#[derive(Default)]
pub(super) struct Walk {
    step: Step,
}

impl Walk {
    /// Walks `lane` and gives each whole step to `done`.
    pub(super) fn lane(&mut self, lane: &Lane, rule: StepRule, mut done: impl FnMut(&Step)) -> Walked {
        let mut walked = Walked::default();
        let (mut events, mut waits) = (Open::default(), Open::default());
        // A wait whose end was lost would make the rest of the lane a wait.
        let odd = OddWaits::of(lane);
        let mut lost = odd.begins.iter().peekable();
        let mut damage = Damage::of(lane, rule, &odd);
        // Since when the role is blocked, as far as this step goes; and its time in waits so far, whole waits only.
        let (mut blocked_since, mut waited) = (0, 0_u64);
        let mut in_step = false;
        self.step.clear();
        for (index, event) in lane.events.iter().enumerate() {
            if starts_step(event, rule) {
                if damage.before(index) {
                    walked.dropped += u64::from(in_step);
                } else if in_step {
                    self.cut(event.at, &waits, blocked_since);
                    done(&self.step);
                }
                self.step.clear();
                self.step.start = event.at;
                blocked_since = blocked_since.max(event.at);
                in_step = true;
                walked.starts += 1;
                walked.first_start = walked.first_start.or(Some(event.at));
                walked.last_start = Some(event.at);
            }
            match event.kind {
                Kind::Begin => events.begin(index, event.id, event.at, waited),
                Kind::End => {
                    if let Some(begun) = events.end(lane, index, event.id, event.at) {
                        let ticks = event.at.saturating_sub(begun.at);
                        let own = ticks.saturating_sub(waited - begun.waited);
                        self.step.spans.push(Span { event: event.id, ticks, own });
                    }
                }
                Kind::WaitBegin if lost.next_if(|l| **l == index).is_some() => {}
                Kind::WaitBegin => {
                    if waits.stack.is_empty() {
                        blocked_since = event.at;
                    }
                    waits.begin(index, event.id, event.at, waited);
                }
                Kind::WaitEnd => {
                    if let Some(Begun { at: begin, .. }) = waits.end(lane, index, event.id, event.at) {
                        let since = begin.max(self.step.start);
                        let ticks = event.at.saturating_sub(begin);
                        walked.shortest_wait = Some(walked.shortest_wait.map_or(ticks, |s| s.min(ticks)));
                        add(&mut self.step.by_barrier, event.id, event.at.saturating_sub(since));
                        self.step.waits.push(Wait { barrier: event.id, begin, end: event.at });
                        waited = waited.saturating_add(event.at.saturating_sub(begin));
                        if waits.stack.is_empty() {
                            self.step.blocked += event.at.saturating_sub(blocked_since);
                        }
                    }
                }
                Kind::Instant | Kind::Arrive => {}
            }
        }
        walked.stuck = lane
            .events
            .last()
            .filter(|last| {
                last.kind == Kind::WaitBegin
                    && lane.opened.is_some()
                    && lane.closed.is_none()
                    && !lane.stopped_full
            })
            .map(|last| (last.id, last.at));
        // Of the last step, which is not whole, the end may be yet to come.
        let in_steps = |begun: &&Begun| walked.last_start.is_some_and(|last| begun.at < last);
        let unended = events.stack.iter().filter(in_steps).count() as u64;
        walked.unended = if 2 * unended <= walked.starts { unended } else { 0 };
        walked.odd = vec![
            (ProblemKind::OrphanEnd, events.orphan_ends + waits.orphan_ends),
            (ProblemKind::OrphanBegin, (events.stack.len() + odd.begins.len()) as u64),
            (ProblemKind::Overlap, events.crossed + waits.crossed),
            (ProblemKind::ZeroLength, events.zero + waits.zero),
            (ProblemKind::StepDropped, walked.dropped),
        ];
        walked
    }

    /// Ends the step at `at`; waits still open count up to there.
    fn cut(&mut self, at: u64, waits: &Open, blocked_since: u64) {
        self.step.end = at;
        if !waits.stack.is_empty() {
            self.step.blocked += at.saturating_sub(blocked_since.max(self.step.start));
            for wait in &waits.stack {
                add(&mut self.step.by_barrier, wait.id, at.saturating_sub(wait.at.max(self.step.start)));
            }
        }
    }
}

fn add(by_barrier: &mut Vec<(u16, u64)>, barrier: u16, ticks: u64) {
    match by_barrier.iter_mut().find(|(b, _)| *b == barrier) {
        Some((_, sum)) => *sum = sum.saturating_add(ticks),
        None => by_barrier.push((barrier, ticks)),
    }
}

pub(super) fn starts_step(event: &Event, rule: StepRule) -> bool {
    match rule {
        StepRule::Unstated => false,
        StepRule::Wait(id) => event.kind == Kind::WaitBegin && event.id == id,
        StepRule::Event(id) => event.kind == Kind::Begin && event.id == id,
    }
}

/// The rule for a role whose recorder states none: its most frequent wait, else its most frequent event.
pub(super) fn guess_rule(lane: &Lane) -> StepRule {
    let most = |kind: Kind| {
        let mut counts = std::collections::BTreeMap::new();
        for event in lane.events.iter().filter(|e| e.kind == kind) {
            *counts.entry(event.id).or_insert(0_u64) += 1;
        }
        counts.into_iter().max_by_key(|&(id, n)| (n, std::cmp::Reverse(id))).map(|(id, _)| id)
    };
    match (most(Kind::WaitBegin), most(Kind::Begin)) {
        (Some(id), _) => StepRule::Wait(id),
        (None, Some(id)) => StepRule::Event(id),
        (None, None) => StepRule::Unstated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(records: &[(u64, Kind, u16)]) -> Lane {
        let events = records.iter().map(|&(at, kind, id)| Event { at, kind, id, step: 0 }).collect();
        Lane { events, ..Lane::default() }
    }

    fn steps(lane: &Lane, rule: StepRule) -> (Vec<Step>, Walked) {
        let mut steps = Vec::new();
        let walked = Walk::default().lane(lane, rule, |s| steps.push(s.clone()));
        (steps, walked)
    }

    use Kind::{Begin, End, WaitBegin, WaitEnd};

    #[test]
    fn a_step_runs_from_one_wait_to_the_next_and_splits_into_blocked_and_busy() {
        let lane = lane(&[
            (100, WaitBegin, 0),
            (130, WaitEnd, 0),
            (140, Begin, 5),
            (190, End, 5),
            (200, WaitBegin, 0),
        ]);
        let (steps, walked) = steps(&lane, StepRule::Wait(0));
        assert_eq!(walked.starts, 2);
        assert_eq!(steps.len(), 1, "the last start has no next one");
        assert_eq!((steps[0].length(), steps[0].blocked), (100, 30));
        assert_eq!(steps[0].spans, [Span { event: 5, ticks: 50, own: 50 }]);
        assert_eq!(walked.odd.iter().find(|o| o.0 == ProblemKind::OrphanBegin).unwrap().1, 1);
    }

    #[test]
    fn a_wait_whose_end_is_lost_is_counted_and_left_out() {
        let lane = lane(&[
            (0, WaitBegin, 0),
            (10, WaitEnd, 0),
            (100, WaitBegin, 0),
            (150, WaitBegin, 1),
            (155, WaitEnd, 1),
            (200, WaitBegin, 0),
            (210, WaitEnd, 0),
            (300, WaitBegin, 0),
            (310, WaitEnd, 0),
        ]);
        let (steps, walked) = steps(&lane, StepRule::Wait(0));
        let whole: Vec<_> = steps.iter().map(|s| (s.start, s.length(), s.blocked)).collect();
        assert_eq!(whole, [(0, 100, 10), (200, 100, 10)]);
        assert_eq!(walked.dropped, 1);
        assert_eq!(walked.odd.iter().find(|o| o.0 == ProblemKind::OrphanBegin).unwrap().1, 1);
    }

    #[test]
    fn a_recorder_without_the_ends_of_waits_has_steps() {
        let lane = lane(&[(0, WaitBegin, 0), (100, WaitBegin, 0), (200, WaitBegin, 0)]);
        assert_eq!(steps(&lane, StepRule::Wait(0)).0.len(), 2);
    }

    #[test]
    fn a_refused_record_drops_its_step_alone() {
        let records: Vec<_> =
            (0..4).flat_map(|k| [(100 * k, WaitBegin, 0), (100 * k + 10, WaitEnd, 0)]).collect();
        for (gap, left) in
            [(0, vec![0, 100, 200]), (3, vec![0, 200]), (4, vec![0, 200]), (8, vec![0, 100, 200])]
        {
            let lane = Lane { gaps: vec![gap], ..lane(&records) };
            let (steps, _) = steps(&lane, StepRule::Wait(0));
            assert_eq!(steps.iter().map(|s| s.start).collect::<Vec<_>>(), left, "{gap}");
        }
    }

    #[test]
    fn a_step_that_starts_within_a_wait_on_the_same_barrier_is_none() {
        let records: Vec<_> =
            (0..6).flat_map(|k| [(100 * k, WaitBegin, 0), (100 * k + 40, WaitEnd, 0)]).collect();
        let mut crossed = lane(&records);
        // A second wait from 210 to 260, which crosses the one from 200 to 240.
        crossed.events.splice(5..5, lane(&[(210, WaitBegin, 0)]).events);
        crossed.events.insert(7, Event { at: 260, kind: WaitEnd, id: 0, step: 0 });
        crossed.begun_by = vec![0, 0, 2, 2, 4, 5, 4, 5, 8, 8, 10, 10, 12, 12];
        let (steps, walked) = steps(&crossed, StepRule::Wait(0));
        assert_eq!(
            steps.iter().map(|s| (s.start, s.length())).collect::<Vec<_>>(),
            [(0, 100), (100, 100), (300, 100), (400, 100)]
        );
        assert_eq!(walked.dropped, 2);
    }

    #[test]
    fn a_wait_across_a_step_edge_is_cut_there() {
        let lane = lane(&[
            (0, Begin, 1),
            (10, WaitBegin, 0),
            (50, Begin, 1),
            (70, WaitEnd, 0),
            (90, End, 1),
            (95, End, 1),
            (100, Begin, 1),
        ]);
        let (steps, _) = steps(&lane, StepRule::Event(1));
        let blocked: Vec<_> = steps.iter().map(|s| (s.blocked, s.by_barrier.clone())).collect();
        assert_eq!(blocked, [(40, vec![(0, 40)]), (20, vec![(0, 20)])]);
        assert_eq!(steps[1].waits, [Wait { barrier: 0, begin: 10, end: 70 }], "the wait itself stays whole");
    }

    #[test]
    fn crossing_orphan_and_empty_spans_are_counted() {
        let lane = lane(&[
            (0, End, 9),
            (1, Begin, 1),
            (2, Begin, 2),
            (3, End, 1),
            (4, End, 2),
            (5, Begin, 3),
            (5, End, 3),
            (6, WaitBegin, 0),
        ]);
        let (_, walked) = steps(&lane, StepRule::Wait(0));
        let odd = |kind| walked.odd.iter().find(|o| o.0 == kind).unwrap().1;
        assert_eq!(odd(ProblemKind::OrphanEnd), 1);
        assert_eq!(odd(ProblemKind::OrphanBegin), 1);
        assert_eq!(odd(ProblemKind::Overlap), 1);
        assert_eq!(odd(ProblemKind::ZeroLength), 1);
    }
}
