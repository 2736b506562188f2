//! What is taken to hold of a lifted piece: PTX says nothing of its inputs, so ranges are assumed and stated, and
//! bounds that follow from a maximum over the same values are worked out.

use super::scalar::Leaf;
use super::sharing::Sharing;
use crate::lang::{Assumption, Op, Program, Range, Shape};
use crate::rewrite::interval::Interval;

/// The greatest exponent that exp2 is taken to be given: sums and scales of what it gives stay finite.
const EXPONENT: f64 = 125.0;
/// Exponents of what a reduction takes, such as a softmax's numerators: their sums are finite, and so small beside the greatest
/// f32 that what is flushed of them stays nothing, whatever scale they get.
const SUMMED: f64 = 24.0;
/// Scores and sums: any f32 that leaves room for a factor.
const WIDE: f64 = 1e30;
/// Activations: what f16 holds, so that cubes and sums of squares are finite.
const ACTIVATION: f64 = 65504.0;
/// The least parameter that is added under a root to keep it from 0.
const EPSILON: f64 = 1.0 / (1u64 << 60) as f64;
/// Room above a bound that rounding may need.
const SLACK: f64 = 1.0 / 64.0;

/// Statements about a piece, for people; the program has them as ranges and assumptions.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Stated {
    /// Taken for granted: a guard of whatever is found.
    pub(super) assumed: Vec<String>,
    /// Worked out.
    pub(super) follows: Vec<String>,
}

/// Gives the inputs ranges and the program its assumptions.
pub(super) fn state(program: &mut Program, below7: &[usize], sharing: &[Sharing], leaves: &[Leaf]) -> Stated {
    let mut stated = Stated::default();
    for i in 0..program.inputs.len() {
        let node = program.nodes.iter().position(|n| n.op == Op::Input(i as u32));
        let name = program.inputs[i].name.clone();
        if let Some((range, opcode)) = leaves.get(i).and_then(of_integer) {
            program.inputs[i].range = range;
            stated.follows.push(format!("{name} in {range}: what {opcode} gives"));
        } else {
            let range = node.map_or(Range::FINITE, |node| range(program, node));
            program.inputs[i].range = range;
            stated.assumed.push(format!("{name} in {range}"));
        }
        let (shape, lanes) = (program.inputs[i].shape, program.layout.lanes);
        if lanes > 1 && matches!(shape, Shape::Group | Shape::Row) {
            let of = if shape == Shape::Group { "group" } else { "row" };
            let name = &program.inputs[i].name;
            match sharing.get(i) {
                Some(Sharing::Own) => stated
                    .follows
                    .push(format!("{name} depends on the thread: each lane has its own, and none another's")),
                Some(Sharing::Greatest) => stated.follows.push(format!(
                    "{name} depends on the thread: it stands for the greatest over the {lanes} lanes, and stays in their maximum"
                )),
                Some(Sharing::Same) | None => {
                    stated.assumed.push(format!("{name} is the same in all {lanes} lanes of its {of}"));
                }
            }
        }
    }
    for node in 0..program.nodes.len() {
        if let Some((range, why)) = bound(program, node) {
            let text = format!("{} in {range}: {why}", program.expression(node, true));
            // What is rounded apart from its maximum stays below the bound only where it is small.
            if depends_on_rounding(program, node) {
                stated.assumed.push(format!("{text}, and the products in it below 2^24"));
            } else {
                stated.follows.push(text);
            }
            program.assumptions.push(Assumption { node, range });
        }
    }
    let known = |program: &Program, node: usize| program.assumptions.iter().any(|a| a.node == node);
    for &node in below7 {
        if !known(program, node) {
            let range = Range { lo: 0.0, hi: 6.99 };
            stated.assumed.push(format!(
                "{} in {range}: the rounding to e2m1 here is right for these only",
                program.expression(node, true)
            ));
            program.assumptions.push(Assumption { node, range });
        }
    }
    // In order, so that what is assumed of one operand counts for the next.
    for node in 0..program.nodes.len() {
        if is_root(program.nodes[node].op) {
            let a = program.nodes[node].args[0];
            let interval = intervals(program)[a];
            if interval.nan || interval.lo < 0.0 {
                let (least, why) = least_under_root(program, node);
                let range = Range { lo: least, hi: interval.hi.max(least) };
                let text = program.expression(a, true);
                stated.assumed.push(format!("{text} in {range}: {why}"));
                program.assumptions.push(Assumption { node: a, range });
            }
        }
        let exponents: Vec<usize> = program.nodes[node..=node]
            .iter()
            .filter(|n| n.op == Op::Exp2)
            .map(|n| n.args[0])
            .filter(|&a| !known(program, a) && program.shapes[a] > Shape::Const)
            .collect();
        for a in exponents {
            let interval = intervals(program)[a];
            let (most, why) = if is_reduced(program, node) {
                (SUMMED, "sums of its exp2 are finite, whatever their scale")
            } else {
                (EXPONENT, "its exp2 is finite")
            };
            if interval.nan || interval.hi > most {
                let range = Range { lo: interval.lo.min(most), hi: most };
                stated.assumed.push(format!("{} in {range}: {why}", program.expression(a, true)));
                program.assumptions.push(Assumption { node: a, range });
            }
        }
    }
    program.assumptions.sort_by_key(|a| a.node);
    stated
}

/// What exp2 of one product adds to the relative error of e^x, over |x|: the product is rounded to 24 bits, and so is log2 e.
const PRODUCT: f64 = std::f64::consts::LN_2 * (std::f64::consts::LOG2_E / 16_777_216.0 + 1.926e-8);
/// The error of ex2.approx, which both have.
const EX2: f64 = 1.0 / 4_194_304.0;
/// Beyond this e^x is 0 or infinite.
const EXPF: f64 = 104.0;

/// What is said of each `expf` that the program has as exp2 of one product: where that is as good.
pub(super) fn narrowed(program: &Program, split: &[usize]) -> Vec<String> {
    let known = intervals(program);
    let one = |node: &usize| {
        let argument = &program.nodes[program.nodes[*node].args[0]];
        let &[x, _] = argument.args.as_slice() else { return None };
        let reach = known[x].lo.abs().max(known[x].hi.abs()).min(EXPF);
        let text = program.expression(x, true);
        let most = EX2 / PRODUCT;
        Some(format!(
            "only where |{text}| <= {most:.1}, or where more may be lost: expf keeps the bits of {text} log2(e) that exp2 of \
             one product rounds away, a relative error of up to {PRODUCT:.1e} |{text}|, {:.1e} at {reach:.0}",
            PRODUCT * reach
        ))
    };
    split.iter().filter_map(one).collect()
}

/// Whether a reduction takes the node or what follows from it.
fn is_reduced(program: &Program, node: usize) -> bool {
    let mut follows = vec![false; program.nodes.len()];
    follows[node] = true;
    for i in node + 1..program.nodes.len() {
        follows[i] = program.nodes[i].args.iter().any(|&a| follows[a]);
        if follows[i] && program.nodes[i].op.is_reduction() {
            return true;
        }
    }
    false
}

/// What a conversion from an integer gives.
fn of_integer(leaf: &Leaf) -> Option<(Range, &str)> {
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

/// The interval of every node, assumptions taken in.
fn intervals(program: &Program) -> Vec<Interval> {
    let mut out: Vec<Interval> = Vec::with_capacity(program.nodes.len());
    for (i, node) in program.nodes.iter().enumerate() {
        let args: Vec<Interval> = node.args.iter().map(|&a| out[a]).collect();
        let mut interval = match node.op {
            Op::Input(k) => Interval::from_range(program.inputs[k as usize].range),
            op => {
                let square = node.args.len() > 1 && node.args[0] == node.args[1];
                Interval::of_square(op, &args, program.layout, square)
            }
        };
        for a in program.assumptions.iter().filter(|a| a.node == i) {
            interval = interval.within(a.range);
        }
        out.push(interval);
    }
    out
}

/// The range an input is taken to have, by what is done with it.
fn range(program: &Program, input: usize) -> Range {
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
fn least_under_root(program: &Program, root: usize) -> (f64, &'static str) {
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

const fn is_root(op: Op) -> bool {
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
    (0..program.nodes.len()).any(|n| follows[n] && below_own_maximum(program, n).is_some())
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

/// Whether a value is at least every element of `x`: a maximum over it.
fn covers(program: &Program, max: usize, x: usize) -> bool {
    let node = &program.nodes[max];
    match node.op {
        Op::GroupMax | Op::RowMax => node.args[0] == x || covers(program, node.args[0], x),
        Op::Max => node.args.iter().any(|&a| covers(program, a, x)),
        _ => false,
    }
}

fn number(program: &Program, node: usize) -> Option<f64> {
    match program.nodes[node].op {
        Op::Num(bits) => Some(f64::from_bits(bits)),
        _ => None,
    }
}

/// x less a maximum over x, times a positive constant perhaps: how far above 0 it may come out.
fn below_own_maximum(program: &Program, node: usize) -> Option<f64> {
    let n = &program.nodes[node];
    let positive = |k: usize| number(program, k).is_some_and(|k| k > 0.0);
    match (n.op, n.args.as_slice()) {
        (Op::Add, &[a, b]) => {
            let of = |x: usize, m: usize| {
                program.nodes[m].op == Op::Neg && covers(program, program.nodes[m].args[0], x)
            };
            (of(a, b) || of(b, a)).then_some(0.0)
        }
        (Op::Mul, &[a, b]) => {
            let (a, k) = if positive(b) { (a, b) } else { (b, a) };
            below_own_maximum(program, a).filter(|_| positive(k))
        }
        // x k - (max k), the product rounded on its own: off by its last bit.
        (Op::Fma, &[a, k, c]) if program.nodes[c].op == Op::Neg => {
            let product = &program.nodes[program.nodes[c].args[0]];
            let same = product.op == Op::Mul && product.args.contains(&k);
            let max = product.args.iter().find(|&&m| m != k)?;
            (same && covers(program, *max, a) && (positive(k) || program.shapes[k] == Shape::Const))
                .then_some(1.0)
        }
        _ => None,
    }
}

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
fn depends_on_rounding(program: &Program, node: usize) -> bool {
    let n = &program.nodes[node];
    let exponent = match n.op {
        Op::GroupSum | Op::RowSum if program.nodes[n.args[0]].op == Op::Exp2 => {
            program.nodes[n.args[0]].args[0]
        }
        _ => node,
    };
    below_own_maximum(program, exponent).is_some_and(|above| above > 0.0)
}

/// A bound that follows from the program itself, and why.
fn bound(program: &Program, node: usize) -> Option<(Range, String)> {
    let n = &program.nodes[node];
    if let Some(above) = below_own_maximum(program, node) {
        let why = "less than a maximum over the same values; not so where all are masked".to_owned();
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
        let sum = matches!(n.op, Op::GroupSum | Op::RowSum) && exponential(n.args[0]);
        let t = sum.then(|| program.nodes[n.args[0]].args[0])?;
        let above = below_own_maximum(program, t)?;
        // Samples have more groups than a row; the upper end matters to no rule as long as it is finite.
        let count = 64.0 * f64::from(program.layout.row.max(program.layout.group));
        let lo = if above == 0.0 { 1.0 } else { 0.5 };
        let why = "one of its terms is 2^0; not so where all are masked".to_owned();
        Some((Range { lo, hi: count * above.exp2() * (1.0 + SLACK) }, why))
    })
}
