//! What is taken to hold of a lifted piece: PTX says nothing of its inputs, so ranges (`ranges`) are assumed and stated, and
//! bounds that follow from the program itself (`bound`) are worked out.

use super::bound::{bound, depends_on_rounding};
use super::lifted::Lifted;
use super::ranges::{WIDE, is_root, least_under_root, of_integer, range};
use super::sharing::Sharing;
use crate::lang::{Assumption, Op, Program, Range, Shape};
use crate::rewrite::maximum::{intervals, missing, own_maximum, replaces_minus_infinity};

/// The greatest exponent that exp2 is taken to be given: sums and scales of what it gives stay finite.
const EXPONENT: f64 = 125.0;
/// Exponents of what a reduction takes, such as a softmax's numerators: their sums are finite, and so small beside the greatest
/// f32 that what is flushed of them stays nothing, whatever scale they get.
const SUMMED: f64 = 24.0;
/// The greatest f32 whose reciprocal is not flushed.
const INVERTIBLE: f64 = (1u128 << 126) as f64;
/// The least divisor, as of those that are given: what it is the root of is a normal number.
const LEAST_DIVISOR: f64 = 1.0 / (1u64 << 60) as f64;

/// Statements about a piece, for people; the program has them as ranges and assumptions.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Stated {
    /// Taken for granted: a guard of whatever is found.
    pub(super) assumed: Vec<String>,
    /// Worked out.
    pub(super) follows: Vec<String>,
}

/// Gives the inputs ranges and the program its assumptions.
pub(super) fn state(lifted: &mut Lifted) -> Stated {
    let Lifted { program, below7, sharing, leaves, masks, .. } = lifted;
    let mut stated = Stated::default();
    for i in 0..program.inputs.len() {
        let node = program.nodes.iter().position(|n| n.op == Op::Input(i as u32));
        let name = program.inputs[i].name.clone();
        if let Some((range, opcode)) = leaves.get(i).and_then(of_integer) {
            program.inputs[i].range = range;
            stated.follows.push(format!("{name} in {range}: what {opcode} gives"));
        } else {
            let range = node.map_or(Range::FINITE, |node| range(program, node));
            let mask = masks.get(i).copied().flatten().filter(|m| f64::from(m.value) < range.lo);
            let range = mask.map_or(range, |m| Range { lo: f64::from(m.value), ..range });
            program.inputs[i].range = range;
            let set = mask.map(|m| format!(": the code sets it to {:?} at PTX line {}", m.value, m.line));
            stated.assumed.push(format!("{name} in {range}{}", set.unwrap_or_default()));
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
    // Elements may be -inf; what a row has in place of that is one that is not.
    for node in 0..program.nodes.len() {
        if replaces_minus_infinity(program, node).is_none() {
            continue;
        }
        let known = intervals(program)[node];
        if known.lo < -WIDE && known.hi > -WIDE {
            let range = Range { lo: -WIDE, hi: known.hi };
            let text = program.expression(node, true);
            stated.assumed.push(format!("{text} in {range}: what is not masked is no less"));
            program.assumptions.push(Assumption { node, range });
        }
    }
    for node in 0..program.nodes.len() {
        let Some(max) = own_maximum(program, node) else { continue };
        let known = intervals(program)[max];
        if known.lo < -WIDE && known.hi > -WIDE {
            let range = Range { lo: -WIDE, hi: known.hi };
            let text = program.expression(max, true);
            stated.assumed.push(format!("{text} in {range}: not all that it is the greatest of is masked"));
            program.assumptions.push(Assumption { node: max, range });
        }
    }
    let mut known = intervals(program);
    for node in 0..program.nodes.len() {
        if let Some((range, why)) = bound(program, node, &known) {
            let text = format!("{} in {range}: {why}", program.expression(node, true));
            // What is rounded apart from its maximum stays below the bound only where it is small.
            if depends_on_rounding(program, node, &known) {
                stated.assumed.push(format!("{text}, and the products in it below 2^24"));
            } else {
                stated.follows.push(text);
            }
            program.assumptions.push(Assumption { node, range });
            known = intervals(program);
        }
    }
    let known = |program: &Program, node: usize| program.assumptions.iter().any(|a| a.node == node);
    for &node in below7.iter() {
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
                let bounded = missing(program, a, &intervals(program));
                let instead = bounded.map(|guard| format!("; at most 0 if {guard}")).unwrap_or_default();
                stated.assumed.push(format!("{} in {range}: {why}{instead}", program.expression(a, true)));
                program.assumptions.push(Assumption { node: a, range });
            }
        }
    }
    divisors(program, &mut stated);
    program.assumptions.sort_by_key(|a| a.node);
    stated
}

/// What is computed once for many and divides them is taken to have a reciprocal: one of 0 or of an overflow is none in the code
/// as it is either.
fn divisors(program: &mut Program, stated: &mut Stated) {
    for node in 0..program.nodes.len() {
        let &[x, d] = program.nodes[node].args.as_slice() else { continue };
        let shared = program.shapes[d] < program.shapes[x] && program.shapes[d] > Shape::Const;
        let computed = !matches!(program.nodes[d].op, Op::Input(_) | Op::Num(_));
        if program.nodes[node].op != Op::Div || !shared || !computed {
            continue;
        }
        let known = intervals(program)[d];
        let within = |lo: f64, hi: f64| lo >= 1.0 / INVERTIBLE && hi <= INVERTIBLE;
        let has_one = within(known.lo, known.hi) || within(-known.hi, -known.lo);
        if known.nan || has_one || known.hi < LEAST_DIVISOR {
            continue;
        }
        let range = Range { lo: known.lo.max(LEAST_DIVISOR), hi: known.hi.min(INVERTIBLE) };
        let text = program.expression(d, true);
        stated.assumed.push(format!("{text} in {range}: it has a reciprocal"));
        program.assumptions.push(Assumption { node: d, range });
    }
}

/// What exp2 of one product adds to the relative error of e^x, over |x|: the product is rounded to 24 bits, and so is log2 e.
const PRODUCT: f64 = std::f64::consts::LN_2 * (std::f64::consts::LOG2_E / 16_777_216.0 + 1.926e-8);
/// What a constant adds that a rule multiplies by log2 e: the product is rounded to 24 bits.
const FOLDED: f64 = 1.0 / 16_777_216.0;
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
        let factor = program.operand(x, 2);
        let lost = PRODUCT + f64::from(folded(program, x)) * FOLDED;
        let most = EX2 / lost;
        Some(format!(
            "only where |{text}| <= {most:.1}, or where more may be lost: expf keeps the bits of {factor} * log2(e) that exp2 of \
             one product rounds away, a relative error of up to {lost:.1e} |{text}|, {:.1e} at {reach:.0}",
            lost * reach
        ))
    };
    split.iter().filter_map(one).collect()
}

/// How many constants and parameters a factor of the value may be folded into.
fn folded(program: &Program, node: usize) -> u32 {
    let args = &program.nodes[node].args;
    let is_constant = |&&a: &&usize| program.shapes[a] == Shape::Const;
    match program.nodes[node].op {
        Op::Neg | Op::Abs => args.iter().map(|&a| folded(program, a)).sum(),
        Op::Mul | Op::Div => {
            let rest = args.iter().filter(|a| !is_constant(a)).map(|&a| folded(program, a));
            rest.sum::<u32>() + args.iter().filter(is_constant).count() as u32
        }
        // Both products take it, each with its constant.
        Op::Add | Op::Fma | Op::Max => {
            u32::from(args.iter().any(|a| is_constant(&a) || folded(program, *a) > 0))
        }
        _ => 0,
    }
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
