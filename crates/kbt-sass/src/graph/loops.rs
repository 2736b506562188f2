//! Natural loops, and which of them are the user's.

use super::{Graph, Interval};
use crate::Function;
use serde::{Deserialize, Serialize};

/// What a loop is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoopKind {
    /// A loop of the source.
    User,
    /// Waits for a barrier, a flag or registers: its trip count is time, not work.
    Wait,
    /// The one-instruction loop that the compiler wraps around a single-lane command (ELECT).
    Replay,
}

/// A natural loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loop {
    /// Its header block.
    pub header: usize,
    /// Its blocks, by address.
    pub blocks: Vec<usize>,
    /// Its instructions.
    pub body: Interval,
    /// The loop around it, as an index into the same list.
    pub parent: Option<usize>,
    /// Loops around it.
    pub depth: u32,
    /// What it is for.
    pub kind: LoopKind,
}

impl Graph {
    /// The natural loops, by address of their header; outer before inner where both start together. Back
    /// edges to one header are one loop.
    #[must_use]
    pub fn loops(&self, function: &Function) -> Vec<Loop> {
        let mut loops: Vec<Loop> = Vec::new();
        let mut seen = vec![usize::MAX; self.blocks.len()];
        for header in 0..self.blocks.len() {
            let latches: Vec<usize> = (self.blocks[header].predecessors.iter().copied())
                .filter(|p| self.dominates(header, *p))
                .collect();
            if latches.is_empty() {
                continue;
            }
            let blocks = self.loop_blocks(header, latches, &mut seen);
            let body = Interval::new(blocks.iter().map(|b| self.blocks[*b].instructions.clone()));
            let kind = kind(function, &body);
            loops.push(Loop { header, blocks, body, parent: None, depth: 0, kind });
        }
        // From the largest to the smallest, the last one that took a block is the one around the next.
        let mut by_size: Vec<usize> = (0..loops.len()).collect();
        by_size.sort_by_key(|l| std::cmp::Reverse(loops[*l].blocks.len()));
        let mut owner: Vec<Option<usize>> = vec![None; self.blocks.len()];
        for l in by_size {
            let parent = owner[loops[l].header];
            loops[l].depth = parent.map_or(0, |p| loops[p].depth + 1);
            loops[l].parent = parent;
            for b in &loops[l].blocks {
                owner[*b] = Some(l);
            }
        }
        loops
    }

    /// The blocks that reach a latch without going through the header; `seen` marks them with the header.
    fn loop_blocks(&self, header: usize, latches: Vec<usize>, seen: &mut [usize]) -> Vec<usize> {
        let mut inside = vec![header];
        seen[header] = header;
        let mut work = latches;
        while let Some(b) = work.pop() {
            if std::mem::replace(&mut seen[b], header) != header {
                inside.push(b);
                work.extend(&self.blocks[b].predecessors);
            }
        }
        inside.sort_unstable();
        inside
    }
}

/// The most instructions that a waiting or replaying loop has; a loop of the source does more.
const SMALL: usize = 12;

fn kind(function: &Function, body: &Interval) -> LoopKind {
    if body.len() > SMALL {
        return LoopKind::User;
    }
    let insns = || body.indices().filter_map(|i| function.instructions.get(i));
    let replays = insns().any(|i| i.mnemonic() == "ELECT")
        && insns().any(|i| i.mnemonic() == "BRA" && i.has_modifier("ANY"));
    if replays {
        return LoopKind::Replay;
    }
    let asks = insns().any(|i| match i.mnemonic() {
        "SYNCS" => i.modifiers().any(|m| m.starts_with("TRYWAIT") || m.starts_with("PHASECHK")),
        "USETMAXREG" => i.has_modifier("TRY_ALLOC"),
        "NANOSLEEP" => true,
        _ => false,
    });
    if asks { LoopKind::Wait } else { LoopKind::User }
}
