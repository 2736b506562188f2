//! Baseline and candidate run bit by bit on inputs made to tell them apart.
//!
//! The inputs: random within the declared ranges, with masked elements, a masked group, a masked row, huge and tiny
//! ones, the ends of the ranges in combination, and inputs placed by bisection on either side of every boundary between neighbouring codes. Where a code
//! differs, the real value must lie within both programs' error bounds of the boundary; else the candidate is wrong.

use super::sample::{self, Mask, Rng, Size};
use crate::format::Rounding;
use crate::lang::eval::{Extent, Tracked, conversion};
use crate::lang::{Op, Program, Shape};
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the comparison found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// Rows of inputs that both programs ran on.
    pub rows_count: usize,
    /// Rows placed at the boundaries between codes.
    pub tie_rows_count: usize,
    /// Codes compared.
    pub codes_count: usize,
    /// Codes that differ.
    pub differing_count: usize,
    /// Those that lie within the error bounds of a boundary.
    pub explained_count: usize,
    /// Outputs that are not codes, compared within the error bounds.
    pub values_count: usize,
    /// Codes and values that no error bound explains.
    #[serde(default)]
    pub wrong_count: usize,
    /// The first of them, with the inputs' row.
    pub wrong: Vec<String>,
    /// Rows by kind of input. A kind that is missing has no inputs on which the assumptions hold.
    #[serde(default)]
    pub kinds: BTreeMap<String, usize>,
    /// What the error of each output that is no code is bounded by, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<String, ErrorBound>,
    /// How the counts are known.
    pub provenance: Provenance,
}

/// A bound on an output's error against real arithmetic, over its greatest magnitude in the row: the greatest over the
/// rows of usual size, exact conversions and the stated errors of approximate instructions taken in. Of an output that
/// takes what a conversion gives, also over the rows at its boundaries, where an operand's error may be a step's.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ErrorBound {
    /// Of the program given.
    pub baseline_ratio: f64,
    /// Of the candidate.
    pub candidate_ratio: f64,
    /// Of the program given, over the rows of inputs up to thousands on which the guards hold.
    #[serde(default)]
    pub baseline_huge_ratio: f64,
    /// Of the candidate, over the same rows.
    #[serde(default)]
    pub candidate_huge_ratio: f64,
}

impl Replay {
    /// The error bounds for people, empty where every output is a code.
    #[must_use]
    pub fn errors_text(&self) -> String {
        let one = |(name, e): (&String, &ErrorBound)| {
            format!(
                "{name} {:.1e}, before {:.1e} (inputs in thousands: {:.1e}, before {:.1e})",
                e.candidate_ratio, e.baseline_ratio, e.candidate_huge_ratio, e.baseline_huge_ratio
            )
        };
        self.errors.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    fn new() -> Self {
        Self {
            rows_count: 0,
            tie_rows_count: 0,
            codes_count: 0,
            differing_count: 0,
            explained_count: 0,
            values_count: 0,
            wrong_count: 0,
            wrong: Vec::new(),
            kinds: BTreeMap::new(),
            errors: BTreeMap::new(),
            provenance: Provenance::modelled(
                "f32 evaluation of both programs; exp2, log2 and rcp correctly rounded, where a GPU's are approximate \
                 within the error bounds used",
            ),
        }
    }

    /// Whether every difference is explained.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.wrong_count == 0 && self.wrong.is_empty()
    }
}

/// The most elements of a group that are run.
const ELEMENTS: u32 = 256;

/// Groups in a row: two, more where groups are small.
fn groups(program: &Program) -> usize {
    (32 / program.layout.group as usize).max(2)
}

const fn kind(size: Size, mask: Mask) -> &'static str {
    match (size, mask) {
        (Size::Usual, Mask::None) => "usual",
        (Size::Usual, Mask::Some) => "usual, partly masked",
        (_, Mask::All) => "wholly masked",
        (Size::Huge, Mask::None) => "huge",
        (Size::Huge, Mask::Some) => "huge, partly masked",
        (Size::Tiny, _) => "tiny",
        (Size::Ends, _) => "ends of ranges",
    }
}

/// How often a row is drawn for one on which the candidate's guards hold.
const DRAWS: usize = 8;

/// Runs both on the same inputs. The programs must have the same inputs and outputs.
#[must_use]
pub fn replay(baseline: &Program, candidate: &Program) -> Replay {
    replay_within(baseline, candidate, &[], f64::INFINITY)
}

/// The same on inputs for which no finite value of the candidate's nodes `guarded` is greater than `most`.
pub(super) fn replay_within(baseline: &Program, candidate: &Program, guarded: &[usize], most: f64) -> Replay {
    let extent = Extent::new(sample::layout(baseline.layout, ELEMENTS), groups(baseline));
    let mut report = Replay::new();
    let mut rng = Rng::new(0x7265_706c_6179);
    for (size, mask, rows) in [
        (Size::Usual, Mask::None, 12),
        (Size::Usual, Mask::Some, 12),
        (Size::Usual, Mask::All, 1),
        (Size::Huge, Mask::None, 4),
        (Size::Huge, Mask::Some, 4),
        (Size::Tiny, Mask::None, 4),
        (Size::Ends, Mask::None, 32),
    ] {
        'kind: for _ in 0..rows {
            for _ in 0..DRAWS {
                let Some(inputs) = sample::inputs(baseline, extent, size, mask, &mut rng) else {
                    break 'kind;
                };
                if within(candidate, guarded, most, &inputs, extent) {
                    report.row(baseline, candidate, &inputs, extent, kind(size, mask));
                    break;
                }
            }
        }
    }
    for _ in 0..6 {
        let Some(inputs) = sample::inputs(baseline, extent, Size::Usual, Mask::None, &mut rng) else {
            continue;
        };
        for (node, name) in conversions(baseline) {
            let rows = ties(baseline, node, &inputs, extent);
            for inputs in rows.into_iter().filter(|x| within(candidate, guarded, most, x, extent)) {
                report.tie_rows_count += 1;
                report.row(baseline, candidate, &inputs, extent, &format!("{BOUNDARY}{name}"));
            }
        }
    }
    report
}

/// What rows at the boundaries of a conversion are called, before its name.
const BOUNDARY: &str = "boundary of ";

/// The conversions, by the names of the outputs that they are, or as they are computed.
fn conversions(program: &Program) -> Vec<(usize, String)> {
    let all = (0..program.nodes.len()).filter(|&i| matches!(program.nodes[i].op, Op::Cvt(_)));
    let name = |i: usize| {
        let output = program.outputs.iter().find(|(_, node)| *node == i);
        output.map_or_else(|| program.expression(i, false), |(name, _)| name.clone())
    };
    all.map(|i| (i, name(i))).collect()
}

/// Whether the candidate's guards hold of a row. What is infinite is masked, and compared as such.
fn within(candidate: &Program, guarded: &[usize], most: f64, inputs: &[Vec<f64>], extent: Extent) -> bool {
    if guarded.is_empty() {
        return true;
    }
    let values = candidate.evaluate(inputs, extent);
    guarded.iter().all(|&node| values[node].iter().all(|x| !x.is_finite() || x.abs() <= most))
}

fn tracked(inputs: &[Vec<f64>]) -> Vec<Vec<Tracked>> {
    inputs.iter().map(|values| values.iter().map(|&x| Tracked::input(x as f32)).collect()).collect()
}

impl Replay {
    fn row(&mut self, a: &Program, b: &Program, inputs: &[Vec<f64>], extent: Extent, what: &str) {
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
                    let same =
                        x.value.to_bits() == y.value.to_bits() || (x.value.is_nan() && y.value.is_nan());
                    let apart = (f64::from(x.value) - f64::from(y.value)).abs();
                    // What overflows in one must at least nearly do so in real arithmetic: no error explains it else.
                    let infinite = x.value.is_infinite() || y.value.is_infinite();
                    let overflows = |t: &Tracked| t.real.abs() >= OVERFLOWS;
                    same || if infinite {
                        overflows(x) && overflows(y) && x.real.signum() == y.real.signum()
                    } else if (x.error + y.error).is_nan() {
                        // No bound is known, as of the root of what is flushed in one of reals and f32: nearly the same.
                        apart <= f64::from(x.value).abs() * ALIKE
                    } else {
                        // Below the least normal f32 either may be flushed.
                        apart <= x.error + y.error + f64::from(f32::MIN_POSITIVE)
                    }
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
        let error = from.error + to.error;
        let explained = tie && error.is_finite() && (from.real - cut).abs() <= error;
        self.explained_count += usize::from(explained);
        explained
    }
}

/// From here on rounding may take a value to infinity.
const OVERFLOWS: f64 = f32::MAX as f64 * (1.0 - 1.0 / 1024.0);
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

/// The greatest error bound over the greatest magnitude. What is 0 throughout, or beyond f32, has none.
fn error_ratio(values: &[Tracked]) -> f64 {
    let most = |of: fn(&Tracked) -> f64| values.iter().map(of).filter(|x| x.is_finite()).fold(0.0, f64::max);
    // Where the real value is 0 the f32 that stands for it is all error.
    let magnitude = most(|v| v.real.abs()).max(most(|v| f64::from(v.value).abs()));
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

/// The f32 in the middle of two, in the order of all f32.
fn middle(lo: f32, hi: f32) -> f32 {
    let key = |x: f32| {
        let bits = x.to_bits() as i32;
        if bits < 0 { i32::MIN.wrapping_sub(bits).into() } else { i64::from(bits) }
    };
    let back = |k: i64| {
        let k = k as i32;
        f32::from_bits(if k < 0 { i32::MIN.wrapping_sub(k) as u32 } else { k as u32 })
    };
    back((key(lo) + key(hi)).div_euclid(2))
}

/// Rows in which elements lie directly below and directly above boundaries of the conversion `node`. One value per
/// element input is varied by bisection, all elements of a row at once: each aims at another boundary. The first
/// element of a group stays the greatest, so that what depends on the group's maximum stays put; for a conversion
/// that exists once a group it is the first element that moves.
fn ties(program: &Program, node: usize, inputs: &[Vec<f64>], extent: Extent) -> Vec<Vec<Vec<f64>>> {
    let elements = extent.len(Shape::Elem);
    let each = elements / extent.len(Shape::Group);
    let by_group = program.shapes[node] < Shape::Elem;
    let mut rows = Vec::new();
    for (j, _) in program.inputs.iter().enumerate().filter(|(_, input)| input.shape == Shape::Elem) {
        let moving: Vec<usize> = (0..elements).filter(|e| (e % each == 0) == by_group).collect();
        let mut base = inputs.to_vec();
        for group in base[j].chunks_mut(each) {
            let greatest = group.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            group.fill(greatest - 64.0);
            group[0] = greatest;
        }
        let code_at = |e: usize, values: &[Vec<Tracked>]| {
            values[node][extent.index(program.shapes[node], Shape::Elem, e)].value
        };
        let run = |x: &[Vec<f64>]| program.evaluate(&tracked(x), extent);
        // From far below to the greatest (or well above it, for the group's own value).
        let mut lo: Vec<f32> = moving.iter().map(|&e| base[j][e] as f32 - 64.0).collect();
        let mut hi: Vec<f32> = moving
            .iter()
            .map(|&e| base[j][e / each * each] as f32 + if by_group { 16.0 } else { 0.0 })
            .collect();
        let place = |at: &[f32]| {
            let mut x = base.clone();
            for (&e, &v) in moving.iter().zip(at) {
                x[j][e] = f64::from(v);
            }
            x
        };
        let (low, high) = (run(&place(&lo)), run(&place(&hi)));
        let format = match program.nodes[node].op {
            Op::Cvt(format) => format,
            _ => return rows,
        };
        // Boundaries between the codes at the ends, one for each moving element in turn.
        let values: Vec<f32> = {
            let mut v: Vec<f32> = format.values().into_iter().filter(|v| v.is_finite()).collect();
            v.sort_by(f32::total_cmp);
            v.dedup();
            v
        };
        let goals: Vec<Option<f32>> = moving
            .iter()
            .enumerate()
            .map(|(n, &e)| {
                let (from, to) = (code_at(e, &low), code_at(e, &high));
                let between: Vec<f32> = values.iter().copied().filter(|v| *v > from && *v <= to).collect();
                if between.is_empty() { None } else { Some(between[(n * 7) % between.len()]) }
            })
            .collect();
        for _ in 0..34 {
            let mid: Vec<f32> = lo.iter().zip(&hi).map(|(&a, &b)| middle(a, b)).collect();
            let values = run(&place(&mid));
            for (n, &e) in moving.iter().enumerate() {
                let Some(goal) = goals[n] else { continue };
                if code_at(e, &values) >= goal { hi[n] = mid[n] } else { lo[n] = mid[n] }
            }
        }
        rows.push(place(&lo));
        rows.push(place(&hi));
        // One step further on either side, where only the error of exp2 reaches.
        rows.push(place(&lo.iter().map(|x| x.next_down()).collect::<Vec<_>>()));
        rows.push(place(&hi.iter().map(|x| x.next_up()).collect::<Vec<_>>()));
    }
    rows
}

#[cfg(test)]
#[path = "replay_tests.rs"]
mod tests;
