//! The natural loops of a function, without those that do nothing but poll a barrier.

use super::effect::Effect;
use super::{Code, Traffic};
use std::collections::BTreeSet;

/// The innermost loop that each block is in.
pub(super) struct Loops {
    /// By block: the loops around it, innermost last, by header.
    around: Vec<Vec<usize>>,
    /// By header: the blocks that lead back to it.
    latches: Vec<Vec<usize>>,
}

impl Loops {
    pub(super) fn new(traffic: &Traffic<'_>) -> Self {
        let code = &traffic.code;
        let count = code.blocks.len();
        let mut all = Self { around: vec![Vec::new(); count], latches: vec![Vec::new(); count] };
        for (header, block) in code.blocks.iter().enumerate() {
            let latches: Vec<usize> =
                block.predecessors.iter().copied().filter(|p| code.dominates(header, *p)).collect();
            if latches.is_empty() {
                continue;
            }
            let mut inside = BTreeSet::from([header]);
            let mut work = latches.clone();
            while let Some(b) = work.pop() {
                if inside.insert(b) {
                    work.extend(&code.blocks[b].predecessors);
                }
            }
            // A loop that does nothing but poll a barrier is where its wait is.
            let effects = || {
                let inside_of = |i: usize| inside.contains(&code.ops[i].block);
                traffic.effects.iter().filter(move |(i, _)| inside_of(*i)).map(|(_, e)| e)
            };
            if effects().next().is_some() && effects().all(|e| matches!(e, Effect::Wait(_))) {
                continue;
            }
            for b in &inside {
                all.around[*b].push(header);
            }
            all.latches[header] = latches;
        }
        // Outer loops have more around them and come first.
        let forward = code.forward();
        let place = |h: &usize| forward.iter().position(|b| b == h);
        for around in &mut all.around {
            around.sort_by_key(place);
        }
        all
    }

    fn innermost(&self, block: usize) -> Option<usize> {
        self.around[block].last().copied()
    }

    pub(super) fn same(&self, a: usize, b: usize) -> bool {
        self.innermost(a) == self.innermost(b)
    }

    /// Whether `inner` is in a loop inside the innermost loop of `outer`.
    pub(super) fn is_inside(&self, inner: usize, outer: usize) -> bool {
        !self.same(inner, outer) && self.innermost(outer).is_none_or(|o| self.around[inner].contains(&o))
    }

    /// Whether a block of a loop is on every way from `from` back to the loop's header.
    pub(super) fn on_every_way(&self, code: &Code<'_>, block: usize, from: usize) -> bool {
        let behind = |l: &&usize| code.dominates(from, **l);
        self.innermost(block)
            .is_none_or(|h| self.latches[h].iter().filter(behind).all(|l| code.dominates(block, *l)))
    }
}
