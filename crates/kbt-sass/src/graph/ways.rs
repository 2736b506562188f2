//! The cheapest way through a function: what at least must execute for a warp to write a result.
//!
//! Code that only some values need is no part of a lower bound: a division's or a sine's slow path, a subroutine behind a
//! branch, the exit of threads that have nothing to do. A subroutine that every way calls is a part of it.

use super::{Graph, Interval, Loop, LoopKind};
use crate::{Function, Instruction};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// The ways through a function, or through one trip of a loop.
#[derive(Debug, Clone)]
pub struct Ways<'g> {
    graph: &'g Graph,
    entry: usize,
    /// Where control goes from each block, into subroutines and back.
    successors: Vec<Vec<usize>>,
    /// Whether a block writes what others can see.
    writes: Vec<bool>,
    /// Whether a block can be the last.
    ends: Vec<bool>,
    /// Whether any block that is reached writes; where none does, every way counts.
    any_writes: bool,
}

impl<'g> Ways<'g> {
    /// The ways through a function.
    #[must_use]
    pub fn new(graph: &'g Graph, function: &Function) -> Self {
        let code = &function.instructions[..graph.code_len];
        let last = |b: usize| code.get(graph.blocks[b].instructions.end - 1);
        let mut successors: Vec<Vec<usize>> = graph.blocks.iter().map(|b| b.successors.clone()).collect();
        for b in 0..graph.blocks.len() {
            let Some(call) = last(b).filter(|i| is_call(i)) else { continue };
            let entry = call.targets.first().and_then(|t| {
                let index = function.index_at(*t);
                code.get(index).filter(|i| i.address == *t).and_then(|_| graph.block_of(index))
            });
            let Some(entry) = entry else { continue };
            let returns: Vec<usize> =
                graph.reached(entry).into_iter().filter(|r| last(*r).is_some_and(is_return)).collect();
            if returns.is_empty() {
                continue;
            }
            let after = graph.blocks[b].successors.clone();
            successors[b] = vec![entry];
            if call.guard.is_some_and(|g| g.index.is_some()) {
                successors[b].extend(&after);
            }
            for r in returns {
                successors[r].extend(&after);
            }
        }
        let ends = (0..graph.blocks.len()).map(|b| last(b).is_some_and(is_exit)).collect();
        Self::with(graph, function, 0, successors, ends)
    }

    /// The ways from a loop's head to its next trip. Subroutines that it calls are left out.
    #[must_use]
    pub fn of_loop(graph: &'g Graph, function: &Function, l: &Loop) -> Self {
        let mut successors = vec![Vec::new(); graph.blocks.len()];
        let mut ends = vec![false; graph.blocks.len()];
        for b in &l.blocks {
            let next = graph.blocks[*b].successors.iter().copied();
            successors[*b] = next.clone().filter(|s| *s != l.header && l.blocks.contains(s)).collect();
            ends[*b] = next.clone().any(|s| s == l.header);
        }
        Self::with(graph, function, l.header, successors, ends)
    }

    fn with(
        graph: &'g Graph,
        function: &Function,
        entry: usize,
        successors: Vec<Vec<usize>>,
        ends: Vec<bool>,
    ) -> Self {
        let within =
            |b: usize| graph.blocks[b].instructions.clone().filter_map(|i| function.instructions.get(i));
        let writes: Vec<bool> =
            (0..graph.blocks.len()).map(|b| within(b).any(|i| !i.is_dead() && is_write(i))).collect();
        let mut ways = Self { graph, entry, successors, writes, ends, any_writes: false };
        ways.any_writes = ways.search(true, |_| 0.0).is_some();
        ways
    }

    /// The least that any way from the entry to the end costs, of those that write a result where there are such, and
    /// the instructions on it. `None` where no exit is reached. `cost` is an instruction's, and not negative.
    pub fn cheapest(&self, cost: impl Fn(usize) -> f64) -> Option<(f64, Interval)> {
        self.search(self.any_writes, cost)
    }

    /// Dijkstra's search over blocks and whether a result was written before.
    fn search(&self, must_write: bool, cost: impl Fn(usize) -> f64) -> Option<(f64, Interval)> {
        let costs: Vec<f64> =
            self.graph.blocks.iter().map(|b| b.instructions.clone().map(&cost).sum()).collect();
        let mut before: BTreeMap<(usize, bool), Option<(usize, bool)>> = BTreeMap::new();
        // Costs are not negative, so that their bits are ordered as they are.
        let mut open = BinaryHeap::new();
        if !costs.is_empty() {
            let entry = (self.entry, self.writes[self.entry]);
            open.push((Reverse(costs[self.entry].to_bits()), entry, None));
        }
        while let Some((Reverse(bits), at, from)) = open.pop() {
            if before.contains_key(&at) {
                continue;
            }
            before.insert(at, from);
            let (block, written) = at;
            if self.ends[block] && (written || !must_write) {
                let mut ranges = Vec::new();
                let mut next = Some(at);
                while let Some(place) = next {
                    ranges.push(self.graph.blocks[place.0].instructions.clone());
                    next = before.get(&place).copied().flatten();
                }
                return Some((f64::from_bits(bits), Interval::new(ranges)));
            }
            for s in &self.successors[block] {
                let total = f64::from_bits(bits) + costs[*s];
                open.push((Reverse(total.to_bits()), (*s, written || self.writes[*s]), Some(at)));
            }
        }
        None
    }
}

impl Graph {
    /// The blocks that control reaches from one, without going into subroutines.
    fn reached(&self, from: usize) -> Vec<usize> {
        let mut seen = vec![false; self.blocks.len()];
        let mut work = vec![from];
        let mut found = Vec::new();
        while let Some(b) = work.pop() {
            if !std::mem::replace(&mut seen[b], true) {
                found.push(b);
                work.extend(&self.blocks[b].successors);
            }
        }
        found
    }
}

/// Whether a loop holds a slow path of CUDA's math library: a loop of the library, or a call of one of its subroutines.
pub(crate) fn has_slow_path(function: &Function, loops: &[Loop], index: usize) -> bool {
    let Some(l) = loops.get(index) else { return false };
    let inside = |other: &Loop| {
        other.kind == LoopKind::Library && other.body.indices().next().is_some_and(|i| l.body.contains(i))
    };
    let library = |address: &u64| {
        function.subroutines.iter().any(|(name, a)| a == address && name.contains("$__internal_"))
    };
    let calls = |i: &Instruction| is_call(i) && i.targets.iter().any(library);
    loops.iter().any(inside) || l.body.indices().filter_map(|i| function.instructions.get(i)).any(calls)
}

fn is_call(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), "CALL" | "JCAL") && !insn.is_dead()
}

fn is_return(insn: &Instruction) -> bool {
    insn.mnemonic() == "RET" && !insn.is_dead()
}

/// Whether a thread's work can end here. A return of the function itself is an end; one of a subroutine has a way on.
fn is_exit(insn: &Instruction) -> bool {
    insn.mnemonic() == "EXIT" && !insn.is_dead()
}

/// Whether it writes memory that others than its own thread see.
fn is_write(insn: &Instruction) -> bool {
    matches!(
        insn.mnemonic(),
        "ST" | "STG"
            | "RED"
            | "REDG"
            | "ATOM"
            | "ATOMG"
            | "SUST"
            | "SURED"
            | "SUATOM"
            | "UBLKCP"
            | "UBLKRED"
            | "UTMASTG"
            | "UTMAREDG"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Analysis, Unit};

    /// The instructions on the way with the fewest, over a listing whose lines are 16 bytes apart.
    fn check(lines: &[&str], expect: &[usize]) {
        let mut text = "\t.target\tsm_90a\n\t.section\t.text.f,\"ax\",@progbits\n".to_owned();
        for (n, line) in lines.iter().enumerate() {
            text += &format!("/*{:04x}*/ {line} ;\n", n * 16);
        }
        let listing = crate::parse(text.as_bytes()).unwrap();
        let analysis = Analysis::new(&listing.functions[0], &Unit::mufu(), &Unit::f2fp());
        let ways = Ways::new(&analysis.graph, analysis.function);
        let (cost, part) = ways.cheapest(|_| 1.0).unwrap();
        assert_eq!(part.indices().collect::<Vec<_>>(), expect, "{lines:?}");
        assert_eq!(cost, expect.len() as f64);
    }

    #[test]
    fn an_early_exit_is_no_way_to_a_result_and_a_slow_path_need_not_execute() {
        check(&["@P0 EXIT", "FADD R0, R0, R1", "STG.E [R2], R0", "EXIT"], &[0, 1, 2, 3]);
        check(
            &[
                "@!P0 BRA 0x30",
                "MOV R4, 0x30",
                "CALL.REL.NOINC 0x50",
                "STG.E [R2], R0",
                "EXIT",
                "FMUL R0, R0, R0",
                "RET.REL.NODEC R4 0x0",
            ],
            &[0, 3, 4],
        );
        // Two ways to a result: the shorter one.
        check(&["@P0 BRA 0x30", "STG.E [R2], R0", "EXIT", "NOP", "STG.E [R4], R0", "EXIT"], &[0, 1, 2]);
    }

    #[test]
    fn a_subroutine_that_every_way_calls_counts_and_so_does_a_result_that_it_writes() {
        check(
            &[
                "CALL.REL.NOINC 0x30",
                "FADD R0, R0, R1",
                "EXIT",
                "@P0 BRA 0x60",
                "FMUL R0, R0, R0",
                "FMUL R0, R0, R0",
                "STG.E [R2], R0",
                "RET.REL.NODEC R4 0x0",
            ],
            &[0, 1, 2, 3, 6, 7],
        );
    }

    #[test]
    fn a_function_that_writes_nothing_has_its_shortest_way() {
        check(&["@P0 BRA 0x20", "FADD R0, R0, R1", "EXIT"], &[0, 2]);
    }
}
