//! Loops of a function, and what does not change in them.

use super::patterns::{Match, Pattern, View};
use super::scan::{registers, writes};
use crate::lang::{Op, Program, Shape};
use kbt_ptx::{Function, Instruction, Statement};
use std::collections::{HashMap, HashSet};

/// A loop: from a label to the last branch back to it.
#[derive(Debug)]
pub(super) struct Loop {
    pub(super) label: String,
    /// First and last PTX line.
    pub(super) lines: (u32, u32),
    /// Registers that it writes.
    written: HashSet<String>,
    /// Whether anything in it is compiled to a call.
    pub(super) calls: bool,
}

/// Every loop of a function.
pub(super) fn loops(f: &Function) -> Vec<Loop> {
    let mut labels: HashMap<&str, u32> = HashMap::new();
    let mut found: HashMap<&str, (u32, u32)> = HashMap::new();
    for statement in &f.body {
        match statement {
            Statement::Label { name, line } => {
                labels.insert(name, *line);
            }
            Statement::Instruction(i) if i.base() == "bra" => {
                let Some((name, from)) = i.operands.last().and_then(|to| labels.get_key_value(to.as_str()))
                else {
                    continue;
                };
                found.entry(name).or_insert((*from, i.line)).1 = i.line;
            }
            _ => {}
        }
    }
    let mut out: Vec<Loop> = found
        .into_iter()
        .map(|(label, lines)| {
            let inside = || f.instructions().filter(move |i| (lines.0..=lines.1).contains(&i.line));
            let results = |i: &Instruction| -> Vec<String> {
                let written = usize::from(writes(i));
                i.operands.iter().take(written).flat_map(|o| registers(o)).map(plain).collect()
            };
            Loop {
                label: label.to_owned(),
                lines,
                written: inside().flat_map(results).collect(),
                calls: inside().any(is_compiled_to_a_call),
            }
        })
        .collect();
    // The innermost first.
    out.sort_by_key(|l| (l.lines.1 - l.lines.0, l.lines.0));
    out
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
    /// The innermost of `loops` that a line is in.
    pub(super) fn around(loops: &[Self], line: u32) -> Option<&Self> {
        loops.iter().find(|l| (l.lines.0..=l.lines.1).contains(&line))
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

/// What each iteration computes again of values that do not change, the last node of each such computation.
pub(super) fn repeated(program: &Program, invariant: &[bool]) -> Vec<usize> {
    let live = program.live();
    let mut of_numbers: Vec<bool> = Vec::with_capacity(program.nodes.len());
    for node in &program.nodes {
        let all = !node.args.is_empty() && node.args.iter().all(|&a| of_numbers[a]);
        of_numbers.push(matches!(node.op, Op::Num(_)) || all);
    }
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
        let known = v.rarer(d, x) && program.shapes[d] > Shape::Const;
        (live[node] && shared && !known).then(|| {
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
