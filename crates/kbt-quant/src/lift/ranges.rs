//! Ranges that inputs of a lifted piece are taken to have, by where they come from and what is done with them.

use super::scalar::Leaf;
use crate::lang::{Op, Program, Range, Shape};
use crate::rewrite::maximum::{is_less_own_maximum, number};

/// Scores and sums: any f32 that leaves room for a factor.
pub(super) const WIDE: f64 = 1e30;
/// Activations: what f16 holds, so that cubes and sums of squares are finite.
const ACTIVATION: f64 = 65504.0;
/// The least parameter that is added under a root to keep it from 0.
const EPSILON: f64 = 1.0 / (1u64 << 60) as f64;

/// What a conversion from an integer gives.
pub(super) fn of_integer(leaf: &Leaf) -> Option<(Range, &str)> {
    let Leaf::Result(opcode) = leaf else { return None };
    let mut words = opcode.split('.');
    let from =
        words.next_back().filter(|_| opcode.starts_with("cvt.") && words.next_back() == Some("f32"))?;
    let signed = from.starts_with('s');
    let bits: i32 = from.strip_prefix(['s', 'u']).and_then(|n| n.parse().ok()).filter(|n| *n <= 64)?;
    let reach = f64::from(bits - i32::from(signed)).exp2();
    // From 2^24 on the greatest integer is rounded up.
    let hi = if bits < 24 { reach - 1.0 } else { reach };
    Some((Range { lo: if signed { -reach } else { 0.0 }, hi }, opcode))
}

/// The range an input is taken to have, by what is done with it.
pub(super) fn range(program: &Program, input: usize) -> Range {
    let users = || program.nodes.iter().filter(|n| n.args.contains(&input));
    let factor = users().any(|n| match n.op {
        Op::Mul => true,
        Op::Fma => n.args[..2].contains(&input),
        _ => false,
    });
    let divisor = users().any(|n| match n.op {
        Op::Div => n.args[1] == input,
        Op::Rcp => true,
        _ => false,
    });
    let under_a_root =
        || program.nodes.iter().any(|n| is_root(n.op) && addends(program, n.args[0]).contains(&input));
    match program.shapes[input] {
        Shape::Const if under_a_root() => Range { lo: EPSILON, hi: 2f64.powi(10) },
        _ if users().any(|n| n.op == Op::Log2) => Range { lo: f64::from(f32::MIN_POSITIVE), hi: WIDE },
        // A scale or a temperature, as the reciprocal of a factor: what is multiplied by that neither overflows nor is flushed.
        Shape::Const if divisor => Range { lo: 2f64.powi(-10), hi: 2f64.powi(60) },
        _ if divisor => Range { lo: 2f64.powi(-60), hi: 2f64.powi(60) },
        Shape::Const if factor => Range { lo: 2f64.powi(-20), hi: 2f64.powi(10) },
        // Less its own maximum a row of -inf is NaN, so masks are not provided for.
        Shape::Elem if less_maximum(program, input) => Range { lo: -WIDE, hi: WIDE },
        Shape::Elem if is_score(program, input) => Range { lo: f64::NEG_INFINITY, hi: WIDE },
        Shape::Elem | Shape::Const => Range { lo: -ACTIVATION, hi: ACTIVATION },
        _ => Range { lo: -WIDE, hi: WIDE },
    }
}

/// What a sum adds.
fn addends(program: &Program, sum: usize) -> &[usize] {
    let node = &program.nodes[sum];
    match node.op {
        Op::Add => &node.args,
        Op::Fma => &node.args[2..],
        _ => &[],
    }
}

/// The least that a root is taken to be given, and why.
pub(super) fn least_under_root(program: &Program, root: usize) -> (f64, &'static str) {
    let is_parameter =
        |&a: &usize| matches!(program.nodes[a].op, Op::Input(_)) && program.shapes[a] == Shape::Const;
    if addends(program, program.nodes[root].args[0]).iter().any(is_parameter) {
        (EPSILON, "its root is a number, and a parameter keeps it from 0")
    } else if program.nodes[root].op == Op::Rsqrt {
        (f64::from(f32::MIN_POSITIVE), "its root is a number and not 0")
    } else {
        (0.0, "its root is a number")
    }
}

pub(super) const fn is_root(op: Op) -> bool {
    matches!(op, Op::Sqrt | Op::SqrtRn | Op::Rsqrt)
}

/// Whether all that is done with an element is affine up to an exp2: such elements may be masked by -inf.
fn is_score(program: &Program, input: usize) -> bool {
    let mut reached = vec![false; program.nodes.len()];
    reached[input] = true;
    let mut exponent = false;
    for (i, node) in program.nodes.iter().enumerate().skip(input + 1) {
        let with: Vec<usize> = (0..node.args.len()).filter(|&k| reached[node.args[k]]).collect();
        if with.is_empty() {
            continue;
        }
        match node.op {
            Op::Exp2 => exponent = true,
            Op::Add | Op::Max | Op::GroupMax | Op::RowMax => reached[i] = true,
            // The product of two that depend on it is not affine; -inf times another element may be anything.
            Op::Mul | Op::Fma if !(with.contains(&0) && with.contains(&1)) => {
                let other = if with.contains(&0) { node.args[1] } else { node.args[0] };
                if with.iter().any(|&k| k < 2) && program.shapes[other] != Shape::Const {
                    return false;
                }
                reached[i] = true;
            }
            Op::Neg if negated_maximum(program, i) => reached[i] = true,
            // What a comparison says is no score; what it chooses is.
            Op::Lt | Op::Le | Op::Eq => {}
            Op::Select if with != [0] => reached[i] = true,
            _ => return false,
        }
    }
    exponent
}

/// Whether something that follows from `x` is taken less a maximum over it.
fn less_maximum(program: &Program, x: usize) -> bool {
    let mut follows = vec![false; program.nodes.len()];
    follows[x] = true;
    for node in x + 1..program.nodes.len() {
        follows[node] = program.nodes[node].args.iter().any(|&a| follows[a]);
    }
    (0..program.nodes.len()).any(|n| follows[n] && is_less_own_maximum(program, n))
}

/// -max(x), to be added.
fn negated_maximum(program: &Program, node: usize) -> bool {
    let mut at = program.nodes[node].args[0];
    loop {
        let args = &program.nodes[at].args;
        at = match program.nodes[at].op {
            Op::Mul if is_maximum(program, args[1]) => args[1],
            Op::Mul => args[0],
            // Unless all are masked: then something else.
            Op::Select if number(program, args[1]).is_some() => args[2],
            Op::Select if number(program, args[2]).is_some() => args[1],
            _ => return is_maximum(program, at),
        };
    }
}

fn is_maximum(program: &Program, at: usize) -> bool {
    matches!(program.nodes[at].op, Op::GroupMax | Op::RowMax | Op::Max)
}
