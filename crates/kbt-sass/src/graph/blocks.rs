//! Basic blocks, the edges between them, and who dominates whom.

use crate::{Function, Instruction};
use std::ops::Range;

/// A basic block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Instruction indices.
    pub instructions: Range<usize>,
    /// Blocks that control goes to at its end.
    pub successors: Vec<usize>,
    /// Blocks that control comes from.
    pub predecessors: Vec<usize>,
}

/// The control-flow graph of one function, without the padding behind its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    /// The blocks by address.
    pub blocks: Vec<Block>,
    /// How many instructions are code: what follows is the compiler's padding.
    pub code_len: usize,
    /// Where each block's subtree of the dominator tree begins and ends in pre-order; `None` for blocks that
    /// nothing reaches.
    subtree: Vec<Option<(usize, usize)>>,
}

impl Graph {
    /// Builds the graph of a function.
    #[must_use]
    pub fn new(function: &Function) -> Self {
        let code_len = code_len(&function.instructions);
        let code = &function.instructions[..code_len];
        let starts = leaders(function, code);
        let mut blocks: Vec<Block> = (starts.iter().enumerate())
            .map(|(b, start)| Block {
                instructions: *start..starts.get(b + 1).copied().unwrap_or(code_len),
                successors: Vec::new(),
                predecessors: Vec::new(),
            })
            .collect();
        let block_of = |index: usize| starts.partition_point(|s| *s <= index).checked_sub(1);
        let mut entries: Vec<usize> = if blocks.is_empty() { Vec::new() } else { vec![0] };
        for b in 0..blocks.len() {
            let Some(last) = code.get(blocks[b].instructions.end - 1) else { continue };
            let flow = Flow::of(last);
            let targets =
                last.targets.iter().filter_map(|t| exact_index(function, code, *t)).filter_map(block_of);
            if flow.jumps {
                blocks[b].successors.extend(targets);
            } else if flow.calls {
                entries.extend(targets);
            }
            if flow.falls_through && b + 1 < blocks.len() {
                blocks[b].successors.push(b + 1);
            }
            blocks[b].successors.sort_unstable();
            blocks[b].successors.dedup();
        }
        for (_, address) in &function.subroutines {
            entries.extend(exact_index(function, code, *address).and_then(block_of));
        }
        for b in 0..blocks.len() {
            for s in blocks[b].successors.clone() {
                blocks[s].predecessors.push(b);
            }
        }
        // Reached by an indirect branch or a call whose targets the listing does not give.
        entries.extend((0..blocks.len()).filter(|b| blocks[*b].predecessors.is_empty()));
        let subtree = dominators(&blocks, &entries);
        Self { blocks, code_len, subtree }
    }

    /// The block an instruction is in.
    #[must_use]
    pub fn block_of(&self, index: usize) -> Option<usize> {
        let b = self.blocks.partition_point(|b| b.instructions.end <= index);
        (b < self.blocks.len()).then_some(b)
    }

    /// Whether every way to `b` leads through `a`. A block that nothing reaches is dominated by itself alone.
    #[must_use]
    pub fn dominates(&self, a: usize, b: usize) -> bool {
        match (self.subtree[a], self.subtree[b]) {
            (Some((from, to)), Some((at, _))) => (from..to).contains(&at),
            _ => a == b,
        }
    }
}

/// Where control goes after an instruction.
struct Flow {
    /// To its targets.
    jumps: bool,
    /// To its targets, and back.
    calls: bool,
    /// On to the next instruction.
    falls_through: bool,
}

impl Flow {
    fn of(insn: &Instruction) -> Self {
        // Never executed: `@!PT`.
        if insn.is_dead() {
            return Self { jumps: false, calls: false, falls_through: true };
        }
        let guarded = insn.guard.is_some_and(|g| g.index.is_some());
        match insn.mnemonic() {
            // SYNC, BRK and CONT (sm_50 to sm_62) go where the SSY, PBK or PCNT around them says.
            "BRA" | "JMP" | "BRX" | "BRXU" | "JMX" | "JMXU" | "SYNC" | "BRK" | "CONT" => {
                // `BRA.U UP0, target`, `BRA P0, target` and the divergence forms take a condition as operand.
                let conditional = insn.operand_list().any(is_condition)
                    || insn.modifiers().any(|m| matches!(m, "DIV" | "CONV" | "ANY" | "ALL"));
                Self { jumps: true, calls: false, falls_through: guarded || conditional }
            }
            "EXIT" | "RET" | "KILL" => {
                let conditional = guarded || insn.operand_list().any(is_condition);
                Self { jumps: false, calls: false, falls_through: conditional }
            }
            // They hand control to a target that is left through RET or a branch back.
            "CALL" | "CAL" | "JCAL" | "PRET" | "WARPSYNC" => {
                Self { jumps: false, calls: true, falls_through: true }
            }
            _ => Self { jumps: false, calls: false, falls_through: true },
        }
    }

    /// Whether the next instruction starts a block. CAL (sm_50 to sm_62) comes back to it by hardware and ends none,
    /// as nvdisasm has it; CALL leaves the return to the code.
    fn ends_block(insn: &Instruction) -> bool {
        matches!(
            insn.mnemonic(),
            "BRA"
                | "JMP"
                | "BRX"
                | "BRXU"
                | "JMX"
                | "JMXU"
                | "SYNC"
                | "BRK"
                | "CONT"
                | "EXIT"
                | "RET"
                | "KILL"
                | "CALL"
        ) || (insn.mnemonic() == "WARPSYNC" && !insn.targets.is_empty())
    }
}

/// `P0`, `!UP3`: a predicate other than the constant.
fn is_condition(operand: &str) -> bool {
    let name = operand.trim_start_matches('!');
    let digits = name.strip_prefix("UP").or_else(|| name.strip_prefix('P'));
    digits.is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
}

/// The instructions before the padding: a branch to itself and NOPs behind the last instruction that ends a
/// function.
fn code_len(instructions: &[Instruction]) -> usize {
    let mut end = instructions.len();
    while end > 0 && instructions[end - 1].mnemonic() == "NOP" {
        end -= 1;
    }
    let is_self_branch =
        |i: &Instruction| i.mnemonic() == "BRA" && i.guard.is_none() && i.targets == [i.address];
    let is_end = |i: &Instruction| {
        matches!(i.mnemonic(), "EXIT" | "RET" | "BRA" | "JMP" | "BPT" | "KILL" | "BRX" | "SYNC" | "BRK")
    };
    if end >= 2 && is_self_branch(&instructions[end - 1]) && is_end(&instructions[end - 2]) {
        end -= 1;
    } else if !(end > 0 && is_end(&instructions[end - 1])) {
        // NOPs that are not behind an end are somebody's timing, or the listing broke off.
        return instructions.len();
    }
    end
}

fn exact_index(function: &Function, code: &[Instruction], address: u64) -> Option<usize> {
    let index = function.index_at(address);
    code.get(index).filter(|i| i.address == address).map(|_| index)
}

fn leaders(function: &Function, code: &[Instruction]) -> Vec<usize> {
    let mut starts: Vec<usize> = if code.is_empty() { Vec::new() } else { vec![0] };
    for (i, insn) in code.iter().enumerate() {
        starts.extend(insn.targets.iter().filter_map(|t| exact_index(function, code, *t)));
        if Flow::ends_block(insn) && i + 1 < code.len() {
            starts.push(i + 1);
        }
    }
    starts.extend(function.subroutines.iter().filter_map(|(_, a)| exact_index(function, code, *a)));
    starts.sort_unstable();
    starts.dedup();
    starts
}

/// The dominator tree after Cooper, Harvey and Kennedy, with all entries under one virtual root; as the range
/// of each block's subtree in pre-order.
fn dominators(blocks: &[Block], entries: &[usize]) -> Vec<Option<(usize, usize)>> {
    let n = blocks.len();
    let root = n;
    let mut order = Vec::with_capacity(n + 1);
    let mut number = vec![usize::MAX; n + 1];
    let mut state = vec![0_u8; n];
    // Post-order, without recursion: kernels have tens of thousands of blocks.
    let mut stack: Vec<(usize, usize)> = Vec::new();
    for entry in entries {
        if state[*entry] != 0 {
            continue;
        }
        state[*entry] = 1;
        stack.push((*entry, 0));
        while let Some((b, next)) = stack.pop() {
            if let Some(s) = blocks[b].successors.get(next) {
                stack.push((b, next + 1));
                if state[*s] == 0 {
                    state[*s] = 1;
                    stack.push((*s, 0));
                }
            } else {
                number[b] = order.len();
                order.push(b);
            }
        }
    }
    number[root] = order.len();
    order.push(root);
    let mut idom = vec![usize::MAX; n + 1];
    idom[root] = root;
    let mut is_entry = vec![false; n];
    for entry in entries {
        is_entry[*entry] = true;
    }
    let mut changed = true;
    while changed {
        changed = false;
        for &b in order.iter().rev().skip(1) {
            let mut new = if is_entry[b] { root } else { usize::MAX };
            for &p in blocks[b].predecessors.iter().filter(|p| idom[**p] != usize::MAX) {
                new = if new == usize::MAX { p } else { meet(p, new, &idom, &number) };
            }
            if new != usize::MAX && idom[b] != new {
                idom[b] = new;
                changed = true;
            }
        }
    }
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); n + 1];
    for &b in order.iter().rev().skip(1) {
        children[idom[b]].push(b);
    }
    let mut subtree = vec![None; n];
    let mut next = 0;
    let mut stack = vec![(root, 0, 0)];
    while let Some((b, child, start)) = stack.pop() {
        if let Some(&c) = children[b].get(child) {
            stack.push((b, child + 1, start));
            stack.push((c, 0, next));
            next += 1;
        } else if b != root {
            subtree[b] = Some((start, next));
        }
    }
    subtree
}

fn meet(mut a: usize, mut b: usize, idom: &[usize], number: &[usize]) -> usize {
    while a != b {
        while number[a] < number[b] {
            a = idom[a];
        }
        while number[b] < number[a] {
            b = idom[b];
        }
    }
    a
}
