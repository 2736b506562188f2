//! Where a candidate rounds what the program given does not: a sum of large values that nearly cancel.
//!
//! (x - m) k is exact near x = m; x k - m k is as far off as the rounding of m k, whatever x is. As an exponent it then is
//! off by as much, and an exponential near 1 is infinite or 0 where m k is large enough. The rules are those of real
//! numbers and say nothing of it, so a candidate with such a sum holds only where what is rounded is small enough.

use super::graph::Saturated;
use crate::lang::{Node, Op, Program};

/// How far rounding may move an exponent: exp2 of it then is off by 0.07 %, a quarter of what bf16 rounds away.
pub(super) const SHIFT: f64 = 1.0 / 1024.0;
/// Half a unit in the last place of an f32 is at most this share of it.
const HALF_ULP: f64 = 1.0 / 16_777_216.0;
/// So what is rounded may be as large as this.
pub(super) const MOST: f64 = SHIFT / HALF_ULP;

/// A value that must not exceed [`MOST`], and the exponent that its rounding moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rounded {
    /// The candidate's node.
    pub(super) node: usize,
    /// The candidate's sum that takes it.
    pub(super) sum: usize,
    enters: Enters,
}

/// The addends of exponents that the candidate rounds and the baseline does not have, unless the declared ranges keep them
/// small.
pub(super) fn rounded(graph: &Saturated, baseline: &Program, candidate: &Program) -> Vec<Rounded> {
    let counterparts = same(candidate, baseline);
    let there: Vec<bool> = counterparts.iter().map(Option::is_some).collect();
    // (s k) - (m k) is 0 where s = m; fused, the rounding of m k is left of it.
    let fuses = |node: &Node| {
        let (a, b) = (bare(candidate, node.args[0]), bare(candidate, node.args[1]));
        let (a, b) = (counterparts[a], counterparts[b]);
        let is = |n: &Node| {
            let &[x, y] = n.args.as_slice() else { return false };
            let (x, y) = (bare(baseline, x), bare(baseline, y));
            n.op == Op::Mul && ((Some(x), Some(y)) == (a, b) || (Some(x), Some(y)) == (b, a))
        };
        node.op == Op::Fma && baseline.nodes.iter().any(is)
    };
    let exponents = exponents(candidate);
    let located = graph.locate(candidate);
    let mut found: Vec<Rounded> = Vec::new();
    for (sum, node) in
        candidate.nodes.iter().enumerate().filter(|(i, _)| exponents[*i] != Enters::Not && !there[*i])
    {
        let addends = match node.op {
            Op::Fma => &node.args[2..],
            Op::Add => &node.args[..],
            _ => continue,
        };
        for &addend in addends {
            let mut at = addend;
            while candidate.nodes[at].op.is_modifier() {
                at = candidate.nodes[at].args[0];
            }
            // The greatest of products that are rounded, beside one that is not.
            let mut of = at;
            while node.op == Op::Fma && matches!(candidate.nodes[of].op, Op::GroupMax | Op::RowMax) {
                of = candidate.nodes[of].args[0];
            }
            let computed =
                matches!(candidate.nodes[of].op, Op::Mul | Op::Fma | Op::Add | Op::Div | Op::Select);
            let small = located[at].is_some_and(|id| {
                let i = graph.egraph[id].data.interval;
                i.lo.abs().max(i.hi.abs()) <= MOST
            });
            if computed && (!there[at] || fuses(node)) && !small && !found.iter().any(|r| r.node == at) {
                found.push(Rounded { node: at, sum, enters: exponents[sum] });
            }
        }
    }
    found
}

/// What stands behind signs.
fn bare(program: &Program, mut node: usize) -> usize {
    while program.nodes[node].op == Op::Neg {
        node = program.nodes[node].args[0];
    }
    node
}

/// The guards of these, with their numbers.
pub(super) fn guards(candidate: &Program, rounded: &[Rounded]) -> Vec<String> {
    let one = |r: &Rounded| {
        let sum = candidate.expression(r.sum, true);
        let moves = match r.enters {
            Enters::Leads => format!("{sum}, from which an exponent follows,"),
            _ => format!("the exponent {sum}"),
        };
        format!(
            "only where |{}| <= {MOST}: rounded to f32 it moves {moves} by up to 2^-10 there, and by more beyond",
            candidate.expression(r.node, true),
        )
    };
    rounded.iter().map(one).collect()
}

/// A promise about the program given holds of a value that is computed otherwise only up to what the rounding moves it by.
pub(super) fn widen(baseline: &Program, candidate: &mut Program, rounded: &[Rounded]) {
    let there: Vec<bool> = same(candidate, baseline).iter().map(Option::is_some).collect();
    let mut moved = vec![false; candidate.nodes.len()];
    for i in 0..moved.len() {
        moved[i] = rounded.iter().any(|r| r.sum == i) || candidate.nodes[i].args.iter().any(|&a| moved[a]);
    }
    for a in candidate.assumptions.iter_mut().filter(|a| moved[a.node] && !there[a.node]) {
        // An exponent moves by as much, and what follows from its exponential in proportion.
        let room = match candidate.nodes[a.node].op {
            Op::Add | Op::Fma => [SHIFT; 2],
            _ => [a.range.lo.abs() * SHIFT, a.range.hi.abs() * SHIFT],
        };
        (a.range.lo, a.range.hi) = (a.range.lo - room[0], a.range.hi + room[1]);
    }
}

/// Where another program has each of a program's nodes, computed from the same in the same way.
fn same(program: &Program, other: &Program) -> Vec<Option<usize>> {
    let mut at: Vec<Option<usize>> = Vec::with_capacity(program.nodes.len());
    for node in &program.nodes {
        let args: Option<Vec<usize>> = node.args.iter().map(|&a| at[a]).collect();
        let alike = |args: &[usize], have: &[usize]| {
            let turned = match node.op {
                Op::Add | Op::Mul | Op::Max => args.len() == 2 && args[0] == have[1] && args[1] == have[0],
                Op::Fma => args[0] == have[1] && args[1] == have[0] && args[2] == have[2],
                _ => false,
            };
            args == have || turned
        };
        let found = args.and_then(|args| {
            other
                .nodes
                .iter()
                .position(|n| n.op == node.op && n.args.len() == args.len() && alike(&args, &n.args))
        });
        at.push(found);
    }
    at
}

/// How a node enters an exponent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Enters {
    Not,
    /// As an addend, or times a number: what rounding moves it by it moves the exponent by.
    Adds,
    /// By way of a conversion, a sum over many, a root: the exponent follows from it.
    Leads,
}

/// Which nodes an exp2 is of, and what that follows from. What another exp2 is of, or a comparison decides, is their own.
fn exponents(program: &Program) -> Vec<Enters> {
    let mut enters = vec![Enters::Not; program.nodes.len()];
    for node in program.nodes.iter().filter(|n| n.op == Op::Exp2) {
        enters[node.args[0]] = Enters::Adds;
    }
    for i in (0..program.nodes.len()).rev() {
        let op = program.nodes[i].op;
        let how = match op {
            _ if enters[i] == Enters::Not => continue,
            Op::Exp2 | Op::Lt | Op::Le | Op::Eq => continue,
            Op::Neg
            | Op::Abs
            | Op::Add
            | Op::Mul
            | Op::Fma
            | Op::Max
            | Op::GroupMax
            | Op::RowMax
            | Op::Select => enters[i],
            _ => Enters::Leads,
        };
        for &a in &program.nodes[i].args {
            if enters[a] != Enters::Adds {
                enters[a] = how;
            }
        }
    }
    enters
}
