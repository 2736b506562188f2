//! One row's results of two programs: which differences the error bounds explain.

use super::report::Replay;
use super::{BOUNDARY, tracked};
use crate::format::Rounding;
use crate::lang::eval::{Extent, Tracked, conversion};
use crate::lang::{Op, Program};
use crate::rewrite::sample;

impl Replay {
    pub(super) fn row(&mut self, a: &Program, b: &Program, inputs: &[Vec<f64>], extent: Extent, what: &str) {
        if !sample::holds(a, inputs, extent) {
            return;
        }
        self.rows_count += 1;
        *self.kinds.entry(what.to_owned()).or_default() += 1;
        let inputs = tracked(inputs);
        let (left, right) = (a.evaluate(&inputs, extent), b.evaluate(&inputs, extent));
        let (stepped, stepped_too) = (stepped(a), stepped(b));
        for ((name, i), (_, j)) in a.outputs.iter().zip(&b.outputs) {
            let is_code = matches!(a.nodes[*i].op, Op::Cvt(_));
            if !is_code {
                let (before, after) = (error_ratio(&left[*i]), error_ratio(&right[*j]));
                let known = self.errors.entry(name.clone()).or_default();
                let of = match what {
                    _ if what == "usual" || (what.starts_with(BOUNDARY) && stepped[*i]) => {
                        Some((&mut known.baseline_ratio, &mut known.candidate_ratio))
                    }
                    "huge" => Some((&mut known.baseline_huge_ratio, &mut known.candidate_huge_ratio)),
                    _ => None,
                };
                if let Some((baseline, candidate)) = of {
                    (*baseline, *candidate) = (baseline.max(before), candidate.max(after));
                }
            }
            for (k, (x, y)) in left[*i].iter().zip(&right[*j]).enumerate() {
                let fine = if is_code {
                    self.codes_count += 1;
                    let operand = |p: &Program, n: usize, values: &[Vec<Tracked>]| {
                        let a = p.nodes[n].args[0];
                        values[a][extent.index(p.shapes[a], p.shapes[n], k)]
                    };
                    let op = a.nodes[*i].op;
                    let follows = stepped[a.nodes[*i].args[0]] || stepped_too[b.nodes[*j].args[0]];
                    let near = codes_apart(op, x.value, y.value) <= MOST_CODES;
                    let tie = near || follows || flushes(a, &left) || flushes(b, &right);
                    let cut = cut(op, x.value, y.value);
                    self.code(*x, *y, cut, operand(a, *i, &left), operand(b, *j, &right), tie)
                } else {
                    self.values_count += 1;
                    alike(x, y)
                };
                self.wrong_count += usize::from(!fine);
                if !fine && self.wrong.len() < 4 {
                    self.wrong.push(format!("{name}[{k}] on {what}: {} became {}", x.value, y.value));
                }
            }
        }
    }

    /// Compares two converted values, and where they differ asks whether the operands' errors explain it, and whether the
    /// codes lie so near each other that it can be a `tie`.
    fn code(&mut self, x: Tracked, y: Tracked, cut: f64, from: Tracked, to: Tracked, tie: bool) -> bool {
        let same = x.value == y.value || (x.value.is_nan() && y.value.is_nan());
        if same {
            return true;
        }
        self.differing_count += 1;
        let explained = tie && explains(cut, &from, &to);
        self.explained_count += usize::from(explained);
        explained
    }
}

/// Whether two values differ by no more than their errors.
pub(super) fn alike(x: &Tracked, y: &Tracked) -> bool {
    if x.value.to_bits() == y.value.to_bits() || (x.value.is_nan() && y.value.is_nan()) {
        return true;
    }
    let apart = (f64::from(x.value) - f64::from(y.value)).abs();
    // What overflows in one must at least nearly do so in the other, and in real arithmetic: no error explains it else,
    // whatever becomes NaN or an ordinary number least of all.
    if x.value.is_infinite() || y.value.is_infinite() {
        overflows(x) && overflows(y) && x.value.signum() == y.value.signum()
    } else if (x.error + y.error).is_nan() {
        // No bound is known, as of the root of what is flushed in one of reals and f32: nearly the same.
        apart <= f64::from(x.value).abs() * ALIKE
    } else {
        // Below the least normal f32 either may be flushed.
        apart <= x.error + y.error + f64::from(f32::MIN_POSITIVE)
    }
}

/// Whether two operands' errors reach the boundary between what they were converted to.
pub(super) fn explains(cut: f64, from: &Tracked, to: &Tracked) -> bool {
    let error = from.error + to.error;
    error.is_finite() && (from.real - cut).abs() <= error
}

/// From here on rounding may take a value to infinity.
const OVERFLOWS: f64 = f32::MAX as f64 * (1.0 - 1.0 / 1024.0);

/// Whether a value is infinite, or so near to it that other rounding may make it so, in f32 as in real arithmetic.
pub(super) fn overflows(t: &Tracked) -> bool {
    let value = f64::from(t.value);
    value.abs() >= OVERFLOWS && t.real.abs() >= OVERFLOWS && value.signum() == t.real.signum()
}

/// In place of infinity, which JSON does not have.
const UNBOUNDED: f64 = f64::MAX;
/// How many codes apart two operands may convert that differ by their errors: more than neighbours only for the finest
/// formats, of values whose exponents a guard lets move by 2^-10. Where an operand takes what another conversion gives, a step
/// of that may be many of these.
const MOST_CODES: i32 = 2;

/// The share by which values may differ of which no error is known.
const ALIKE: f64 = 1.0 / 1_048_576.0;

/// Whether an exponential of the row is so small that what is flushed of it may, over a scale as small, be many codes.
fn flushes(program: &Program, values: &[Vec<Tracked>]) -> bool {
    let small = |t: &Tracked| t.real > 0.0 && t.real < f64::exp2(-100.0);
    let of =
        |(node, values): (&crate::lang::Node, &Vec<Tracked>)| node.op == Op::Exp2 && values.iter().any(small);
    program.nodes.iter().zip(values).any(of)
}

/// How many codes lie from one converted value to another.
fn codes_apart(op: Op, x: f32, y: f32) -> i32 {
    let Op::Cvt(format) = op else { return 0 };
    let to = conversion(format);
    let place = |x: f32| {
        let code = i32::from(to.encode(x.abs()));
        if x.is_sign_negative() { -code } else { code }
    };
    (place(x) - place(y)).abs()
}

/// Which nodes take what a conversion gives: their errors are greatest at its boundaries.
fn stepped(program: &Program) -> Vec<bool> {
    let mut is: Vec<bool> = Vec::with_capacity(program.nodes.len());
    for node in &program.nodes {
        is.push(matches!(node.op, Op::Cvt(_)) || node.args.iter().any(|&a| is[a]));
    }
    is
}

/// The greatest error bound over the greatest magnitude. What is 0 throughout, or beyond f32, has none; where one value
/// has no bound, nothing bounds them all.
fn error_ratio(values: &[Tracked]) -> f64 {
    let most = |of: fn(&Tracked) -> f64| values.iter().map(of).filter(|x| x.is_finite()).fold(0.0, f64::max);
    // Where the real value is 0 the f32 that stands for it is all error.
    let magnitude = most(|v| v.real.abs()).max(most(|v| f64::from(v.value).abs()));
    if values.iter().any(|v| !v.error.is_finite() && !overflows(v)) {
        return UNBOUNDED;
    }
    let error = most(|v| v.error);
    if magnitude > 0.0 { error / magnitude } else { 0.0 }
}

/// The boundary between two neighbouring values of a conversion: the midpoint, or for one that rounds towards zero
/// the greater magnitude.
fn cut(op: Op, x: f32, y: f32) -> f64 {
    let (x, y) = (f64::from(x), f64::from(y));
    match op {
        Op::Cvt(format) if conversion(format).rounding == Rounding::Rz => {
            if x.abs() > y.abs() {
                x
            } else {
                y
            }
        }
        _ => (x + y) / 2.0,
    }
}
