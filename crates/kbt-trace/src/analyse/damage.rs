//! Which steps of a lane are not to be told: records of them are missing, or they start where none can.

use super::walk::{Open, starts_step};
use crate::{Kind, Lane, StepRule};

/// Waits that are not whole, or cross.
#[derive(Default)]
pub(super) struct OddWaits {
    /// Records of waits that begin and never end, in their order.
    pub(super) begins: Vec<usize>,
    /// Records of waits that end and never began.
    ends: Vec<usize>,
    /// Records of waits that begin within another on the same barrier, which ends: a role waits once at a time.
    crossing: Vec<usize>,
}

impl OddWaits {
    pub(super) fn of(lane: &Lane) -> Self {
        let (mut open, mut odd) = (Open::default(), Self::default());
        let mut within = Vec::new();
        for (index, event) in lane.events.iter().enumerate() {
            match event.kind {
                Kind::WaitBegin => {
                    let outer = open.stack.iter().rfind(|outer| outer.id == event.id);
                    within.extend(outer.map(|outer| (outer.index, index)));
                    open.begin(index, event.id, event.at, 0);
                }
                Kind::WaitEnd if open.end(lane, index, event.id, event.at).is_none() => odd.ends.push(index),
                _ => {}
            }
        }
        odd.begins = open.stack.iter().map(|begun| begun.index).collect();
        let ended = |outer: &usize| odd.begins.binary_search(outer).is_err();
        let whole = within.into_iter().filter(|(outer, inner)| ended(outer) && ended(inner));
        odd.crossing = whole.map(|(_, inner)| inner).collect();
        odd
    }
}

/// Where a step of a lane is damaged: a record was refused, a wait's begin or end is missing, or waits cross.
pub(super) struct Damage {
    /// Each lies in the step that ends with the first start after this record, or at it. Ascending.
    after: Vec<usize>,
    next: usize,
}

impl Damage {
    pub(super) fn of(lane: &Lane, rule: StepRule, odd: &OddWaits) -> Self {
        let starts = lane.events.iter().filter(|event| starts_step(event, rule)).count();
        let inside = odd.begins.iter().chain(&odd.ends).map(|record| record + 1);
        // A start within a wait ends a step where there is no end, and begins one where there is no begin.
        let crossing = odd.crossing.iter().filter(|record| starts_step(&lane.events[**record], rule));
        let inside = inside.chain(crossing.flat_map(|&record| [record, record + 1]));
        // A recorder that never writes a wait's end, or records several warps as one, is no damage.
        let count = odd.begins.len() + odd.ends.len() + odd.crossing.len();
        let inside = inside.filter(|_| 2 * count <= starts);
        let mut after: Vec<usize> = inside.chain(lane.gaps.iter().copied()).collect();
        after.sort_unstable();
        Self { after, next: 0 }
    }

    /// Whether anything is missing since the last call, up to the record `index`.
    pub(super) fn before(&mut self, index: usize) -> bool {
        let passed = self.after[self.next..].iter().take_while(|after| **after <= index).count();
        self.next += passed;
        passed > 0
    }
}
