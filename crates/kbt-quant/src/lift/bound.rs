//! Bounds that follow from a maximum over the same values.

use crate::lang::{Op, Program, Range};
use crate::rewrite::interval::Interval;
use crate::rewrite::maximum::{attains, below_own_maximum, covers, is_less_own_maximum, number};

/// Room above a bound that rounding may need.
const SLACK: f64 = 1.0 / 64.0;

/// x over (a maximum of x) / k, with a floor perhaps: k.
fn quotient(program: &Program, x: usize, divisor: usize) -> Option<f64> {
    let d = &program.nodes[divisor];
    if covers(program, divisor, x) {
        return Some(1.0);
    }
    match (d.op, d.args.as_slice()) {
        (Op::Max, &[a, b]) => quotient(program, x, a).or_else(|| quotient(program, x, b)),
        (Op::Div, &[m, k]) if covers(program, m, x) => number(program, k).filter(|k| *k > 0.0),
        (Op::Mul, &[m, k]) if covers(program, m, x) => {
            number(program, k).filter(|k| *k > 0.0).map(|k| 1.0 / k)
        }
        _ => None,
    }
}

/// Whether a bound holds of real numbers, and of f32 up to the rounding of a product.
pub(super) fn depends_on_rounding(program: &Program, node: usize, known: &[Interval]) -> bool {
    let above = below_own_maximum(program, node, known).or_else(|| attains(program, node, known));
    above.is_some_and(|above| above > 0.0)
}

/// A bound that follows from the program itself, and why.
pub(super) fn bound(program: &Program, node: usize, known: &[Interval]) -> Option<(Range, String)> {
    let n = &program.nodes[node];
    if let Some(above) = below_own_maximum(program, node, known) {
        let masked = if is_less_own_maximum(program, node) { "; not so where all are masked" } else { "" };
        let why = format!("less than a maximum over the same values{masked}");
        return Some((Range { lo: f64::NEG_INFINITY, hi: above }, why));
    }
    let exponential = |x: usize| program.nodes[x].op == Op::Exp2;
    match (n.op, n.args.as_slice()) {
        (Op::Div, &[x, d]) if exponential(x) => quotient(program, x, d),
        (Op::Mul, &[x, r]) if exponential(x) && program.nodes[r].op == Op::Rcp => {
            quotient(program, x, program.nodes[r].args[0])
        }
        _ => None,
    }
    .map(|k| {
        let why = "not negative, over a maximum of the same values".to_owned();
        (Range { lo: 0.0, hi: k * (1.0 + SLACK) }, why)
    })
    .or_else(|| {
        let above = attains(program, node, known)?;
        // Samples have more groups than a row; the upper end matters to no rule as long as it is finite.
        let count = 64.0 * f64::from(program.layout.row.max(program.layout.group));
        let hi = match n.op {
            Op::Add => known[node].hi,
            _ => count * above.exp2() * (1.0 + SLACK),
        };
        let lo = if above == 0.0 { 1.0 } else { 0.5 };
        let why = "one of its terms is 2^0; not so where all are masked".to_owned();
        Some((Range { lo, hi: hi.max(lo) }, why))
    })
}
