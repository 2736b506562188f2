//! Natural loops, and which of them are the user's.

use super::{Graph, Interval};
use crate::{Function, Instruction};
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
    /// Of CUDA's own math library, in a slow path that few values take: the reduction of a huge argument of a sine.
    Library,
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
            loops.push(Loop { header, blocks, body, parent: None, depth: 0, kind: LoopKind::User });
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
        // Only an innermost loop can be a wait, a replay or the library's.
        for (n, l) in loops.iter_mut().enumerate() {
            if l.blocks.iter().all(|b| owner[*b] == Some(n)) {
                l.kind = kind(function, &l.body);
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
/// What a loop may consist of and still only wait: the question, the branch, and what keeps count of tries.
const WAITING: [&str; 21] = [
    "SYNCS",
    "USETMAXREG",
    "NANOSLEEP",
    "BRA",
    "BSSY",
    "BSYNC",
    "NOP",
    "YIELD",
    "WARPSYNC",
    "PLOP3",
    "UPLOP3",
    "ISETP",
    "UISETP",
    "IADD3",
    "VIADD",
    "UIADD3",
    "MOV",
    "UMOV",
    "R2UR",
    "CS2R",
    "S2UR",
];

/// Whether a loop is in a subroutine of the math library, or is the library's reduction of a huge argument where that is
/// inlined: six words of 2/pi, one a trip, read from a table and multiplied in integers.
fn is_library(function: &Function, body: &Interval) -> bool {
    let insns = || body.indices().filter_map(|i| function.instructions.get(i));
    let Some(first) = insns().next() else { return false };
    let of = function.subroutines.iter().filter(|(_, a)| *a <= first.address).max_by_key(|(_, a)| *a);
    if of.is_some_and(|(name, _)| name.contains("$__internal_")) {
        return true;
    }
    let memory = || {
        insns().filter(|i| {
            matches!(i.mnemonic(), "LD" | "LDG" | "LDS" | "ST" | "STG" | "STS" | "ATOMG" | "REDG")
        })
    };
    let floats = |i: &Instruction| {
        matches!(i.mnemonic(), "FADD" | "FMUL" | "FFMA" | "DADD" | "DMUL" | "DFMA" | "MUFU")
    };
    memory().count() == 1
        && memory().all(|i| i.mnemonic() == "LDG" && i.has_modifier("CONSTANT"))
        && insns().any(|i| i.opcode() == "IMAD.WIDE.U32")
        && insns().any(|i| matches!(i.mnemonic(), "ISETP" | "UISETP") && i.operand_list().any(|o| o == "0x6"))
        && !insns().any(floats)
}

fn kind(function: &Function, body: &Interval) -> LoopKind {
    if is_library(function, body) {
        return LoopKind::Library;
    }
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
    let only_waits = insns().all(|i| WAITING.contains(&i.mnemonic()));
    if asks && only_waits { LoopKind::Wait } else { LoopKind::User }
}

#[cfg(test)]
mod tests {
    use crate::Unit;

    /// Loop names with their first instruction, over a listing whose lines are 16 bytes apart.
    fn check(lines: &[&str], expect: &[(&str, usize)]) {
        let mut text = "\t.target\tsm_100a\n\t.section\t.text.f,\"ax\",@progbits\n".to_owned();
        for (n, line) in lines.iter().enumerate() {
            text += &format!("/*{:04x}*/ {line} ;\n", n * 16);
        }
        let listing = crate::parse(text.as_bytes()).unwrap();
        let analysis = crate::Analysis::new(&listing.functions[0], &Unit::mufu(), &Unit::f2fp());
        let first = |i: usize| analysis.loops[i].body.indices().next().unwrap();
        let found: Vec<_> = (0..analysis.loops.len()).map(|i| (analysis.loop_name(i), first(i))).collect();
        assert_eq!(found, expect, "{lines:?}");
    }

    #[test]
    fn a_replay_of_a_single_lane_command_and_a_wait_are_no_user_loops() {
        let replay = ["@P2 ELECT P1, URZ, PT", "@!UP1 UTCHMMA gdesc[UR4]", "@P2 BRA.U.ANY 0x0", "EXIT"];
        check(&replay, &[("replay:0", 0)]);
        let wait = ["SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R8", "@!P0 BRA 0x0", "EXIT"];
        check(&wait, &[("wait:0", 0)]);
        check(&["FADD R0, R0, R1", "@P0 BRA 0x0", "EXIT"], &[("loop:0", 0)]);
    }

    #[test]
    fn loops_are_named_by_their_place_and_waits_do_not_shift_them() {
        let lines = [
            "MOV R0, RZ",
            "MOV R1, RZ",
            "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R8",
            "@!P0 BRA 0x20",
            "FADD R0, R0, R1",
            "@P0 BRA 0x40",
            "FMUL R0, R0, R1",
            "@P1 BRA 0x60",
            "@P2 BRA 0x10",
            "BRA.U UP0, 0x90",
            "EXIT",
            "BRA 0xb0",
            "NOP",
        ];
        let expect = [("loop:0", 1), ("loop:0.wait0", 2), ("loop:0.0", 4), ("loop:0.1", 6), ("loop:1", 9)];
        check(&lines, &expect);
    }

    #[test]
    fn two_back_edges_to_one_header_are_one_loop_and_an_irreducible_cycle_is_none() {
        check(
            &["FADD R0, R0, R1", "@P0 BRA 0x0", "FMUL R0, R0, R1", "@P1 BRA 0x0", "EXIT"],
            &[("loop:0", 0)],
        );
        check(&["@P0 BRA 0x30", "FADD R0, R0, R1", "NOP", "FMUL R0, R0, R1", "@P1 BRA 0x10", "EXIT"], &[]);
    }
}
