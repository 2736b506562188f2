//! Loops of a function, and what does not change in them.

use super::patterns::{Match, Pattern, View};
use super::scan::{registers, writes};
use crate::lang::{Op, Program};
use kbt_ptx::{Function, Instruction, Statement};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A loop: all from which control comes back to a label, without leaving it for good.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) label: String,
    /// The PTX lines of the label and of the last branch back to it.
    pub(super) lines: (u32, u32),
    /// The PTX lines of its instructions.
    inside: HashSet<u32>,
    /// Registers that it writes.
    written: HashSet<String>,
    /// Whether anything in it is compiled to a call.
    pub(super) calls: bool,
}

/// Instructions that are entered at the first alone and left at the last alone.
#[derive(Default)]
struct Straight<'a> {
    labels: Vec<(&'a str, u32)>,
    instructions: Vec<&'a Instruction>,
    /// Where control goes from here.
    next: Vec<usize>,
}

/// Every loop of a function, the innermost first; none where a branch may go anywhere.
pub(super) fn loops(f: &Function) -> Vec<Loop> {
    let Some(blocks) = straight(f) else { return Vec::new() };
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); blocks.len()];
    for (i, block) in blocks.iter().enumerate() {
        for &next in &block.next {
            before[next].push(i);
        }
    }
    let mut found: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (last, block) in blocks.iter().enumerate() {
        for &header in block.next.iter().filter(|&&to| to <= last) {
            // Everything from which the branch back is reached, as far as the header.
            let mut body = BTreeSet::from([header]);
            let mut open = vec![last];
            while let Some(block) = open.pop() {
                if body.insert(block) {
                    open.extend(&before[block]);
                }
            }
            // What the function's entry is in besides the header is entered in the middle.
            if header == 0 || !body.contains(&0) {
                found.entry(header).or_default().extend(body);
            }
        }
    }
    let mut out: Vec<Loop> =
        found.iter().filter_map(|(&header, body)| Loop::new(&blocks, header, body)).collect();
    out.sort_by_key(|l| (l.inside.len(), l.lines));
    out
}

/// A function's blocks and where each goes. None where that is not known.
fn straight(f: &Function) -> Option<Vec<Straight<'_>>> {
    let mut blocks: Vec<Straight<'_>> = vec![Straight::default()];
    for statement in &f.body {
        match statement {
            Statement::Label { name, line } => {
                if blocks.last().is_some_and(|b| !b.instructions.is_empty()) {
                    blocks.push(Straight::default());
                }
                blocks.last_mut()?.labels.push((name, *line));
            }
            Statement::Instruction(i) => {
                blocks.last_mut()?.instructions.push(i);
                match i.base() {
                    "brx" => return None,
                    "bra" | "ret" | "exit" | "trap" => blocks.push(Straight::default()),
                    _ => {}
                }
            }
            _ => {}
        }
    }
    let mut at: HashMap<&str, usize> = HashMap::new();
    for (i, block) in blocks.iter().enumerate() {
        at.extend(block.labels.iter().map(|(name, _)| (*name, i)));
    }
    for i in 0..blocks.len() {
        let last = blocks[i].instructions.last();
        let to =
            last.filter(|l| l.base() == "bra").and_then(|l| l.operands.last()).map(|to| at.get(to.as_str()));
        let ends =
            last.is_some_and(|l| matches!(l.base(), "bra" | "ret" | "exit" | "trap") && l.guard.is_none());
        if let Some(to) = to {
            blocks[i].next.push(*to?);
        }
        if !ends && i + 1 < blocks.len() {
            blocks[i].next.push(i + 1);
        }
    }
    Some(blocks)
}

fn plain(register: &str) -> String {
    register.trim_start_matches('%').to_owned()
}

/// A division or root that is rounded as IEEE 754 says has a slow path, which is a call.
fn is_compiled_to_a_call(i: &Instruction) -> bool {
    let rounded = || ["rn", "rz", "rm", "rp"].iter().any(|r| i.has(r));
    i.base() == "call" || matches!(i.base(), "div" | "rcp" | "sqrt") && rounded()
}

impl Loop {
    fn new(blocks: &[Straight<'_>], header: usize, body: &BTreeSet<usize>) -> Option<Self> {
        let &(label, from) = blocks[header].labels.last()?;
        let all = || body.iter().flat_map(|&b| &blocks[b].instructions).copied();
        let back = |b: &&usize| blocks[**b].next.contains(&header);
        let last =
            body.iter().filter(back).filter_map(|&b| blocks[b].instructions.last()).map(|i| i.line).max()?;
        let results = |i: &Instruction| -> Vec<String> {
            let written = usize::from(writes(i));
            i.operands.iter().take(written).flat_map(|o| registers(o)).map(plain).collect()
        };
        Some(Self {
            label: label.to_owned(),
            lines: (from, last),
            inside: all().map(|i| i.line).collect(),
            written: all().flat_map(results).collect(),
            calls: all().any(is_compiled_to_a_call),
        })
    }

    /// The innermost of `loops` that a line is in.
    pub(super) fn around(loops: &[Self], line: u32) -> Option<&Self> {
        loops.iter().find(|l| l.inside.contains(&line))
    }

    /// Whether a register is the same throughout.
    pub(super) fn keeps(&self, register: &str) -> bool {
        !self.written.contains(register.trim_start_matches('%'))
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        format!("the loop at {} (PTX {}-{})", self.label, self.lines.0, self.lines.1)
    }
}

/// Which nodes follow from numbers alone.
pub(super) fn of_numbers(program: &Program) -> Vec<bool> {
    let mut found: Vec<bool> = Vec::with_capacity(program.nodes.len());
    for node in &program.nodes {
        let all = !node.args.is_empty() && node.args.iter().all(|&a| found[a]);
        found.push(matches!(node.op, Op::Num(_)) || all);
    }
    found
}

/// What each iteration computes again of values that do not change, the last node of each such computation.
pub(super) fn repeated(program: &Program, invariant: &[bool]) -> Vec<usize> {
    let live = program.live();
    let of_numbers = of_numbers(program);
    let computed = |i: usize| {
        let op = program.nodes[i].op;
        live[i]
            && invariant[i]
            && !of_numbers[i]
            && !matches!(op, Op::Input(_) | Op::Num(_))
            && !op.is_modifier()
    };
    let taken = |i: usize| {
        let output = program.outputs.iter().any(|(_, node)| *node == i);
        let outside = |user: usize| live[user] && !invariant[user] && takes(program, user, i);
        output || (i + 1..program.nodes.len()).any(outside)
    };
    (0..program.nodes.len()).filter(|&i| computed(i) && taken(i)).collect()
}

/// What each iteration of a loop computes again, where ptxas leaves it there; and divisions by a value that does not change in it.
pub(super) fn patterns(program: &Program, invariant: &[bool], around: &Loop) -> Vec<Match> {
    let v = View(program);
    let once = if around.calls { repeated(program, invariant) } else { Vec::new() };
    let once = once.into_iter().map(|node| Match {
        pattern: Pattern::LoopInvariant,
        node,
        found: program.expression(node, true),
        instead: format!("computed once before {}", around.text()),
        condition: "nothing: no operand changes in the loop".to_owned(),
    });
    let live = program.live();
    let divided = |node: usize| {
        let &[x, d] = program.nodes[node].args.as_slice() else { return None };
        let shared = v.op(node) == Op::Div && invariant[d] && !invariant[x] && !matches!(v.op(d), Op::Num(_));
        (live[node] && shared).then(|| {
            let d = v.text(d);
            Match {
                pattern: Pattern::SharedDivisor,
                node,
                found: program.expression(node, true),
                instead: format!(
                    "{}, the reciprocal computed once before {}",
                    v.times(x, &format!("rcp({d})")),
                    around.text()
                ),
                condition: format!("{d} lies in [2^-126, 2^126]"),
            }
        })
    };
    once.chain((0..program.nodes.len()).filter_map(divided)).collect()
}

/// Whether a node is an operand of another, a sign before it perhaps.
fn takes(program: &Program, user: usize, operand: usize) -> bool {
    program.nodes[user].args.iter().any(|&a| {
        a == operand || program.nodes[a].op.is_modifier() && program.nodes[a].args.contains(&operand)
    })
}

/// All that a node is computed from and itself, without what is given.
pub(crate) fn computation(program: &Program, node: usize) -> Vec<usize> {
    let mut needed = vec![false; program.nodes.len()];
    needed[node] = true;
    for i in (0..=node).rev().filter(|&i| program.nodes[i].op.arity() != Some(0)) {
        if needed[i] {
            for &a in &program.nodes[i].args {
                needed[a] = true;
            }
        }
    }
    (0..=node).filter(|&i| needed[i] && program.nodes[i].op.arity() != Some(0)).collect()
}
