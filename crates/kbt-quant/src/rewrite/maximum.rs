//! What is not greater than a maximum over the same values: a bound that no interval of single values gives.

use super::interval::Interval;
use crate::lang::{Op, Program, Range};

/// The interval of every node, assumptions taken in.
pub(crate) fn intervals(program: &Program) -> Vec<Interval> {
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
        if replaces_minus_infinity(program, i).is_some() {
            interval = interval.without_minus_infinity();
        }
        for a in program.assumptions.iter().filter(|a| a.node == i) {
            interval = interval.within(a.range);
        }
        out.push(interval);
    }
    out
}

pub(crate) fn number(program: &Program, node: usize) -> Option<f64> {
    match program.nodes[node].op {
        Op::Num(bits) => Some(f64::from_bits(bits)),
        Op::Neg => number(program, program.nodes[node].args[0]).map(|x| -x),
        _ => None,
    }
}

/// What a choice gives unless it is -inf, for which it gives a number.
pub(crate) fn replaces_minus_infinity(program: &Program, node: usize) -> Option<usize> {
    let n = &program.nodes[node];
    let &[condition, instead, of] = n.args.as_slice() else { return None };
    let (c, is) = (&program.nodes[condition], |k: usize| number(program, k));
    let masked = c.op == Op::Eq && c.args.contains(&of);
    let masked = masked && c.args.iter().any(|&k| is(k) == Some(f64::NEG_INFINITY));
    (n.op == Op::Select && masked && is(instead).is_some_and(f64::is_finite)).then_some(of)
}

/// Whether a value is at least every element of `x`: a maximum over it, or that with a number in place of -inf.
pub(crate) fn covers(program: &Program, max: usize, x: usize) -> bool {
    let node = &program.nodes[max];
    match (node.op, node.args.as_slice()) {
        (Op::GroupMax | Op::RowMax, &[of]) => of == x || covers(program, of, x),
        (Op::Max, args) => args.iter().any(|&a| a == x || covers(program, a, x)),
        // Where the maximum is -inf so are its elements, and any number is more.
        (Op::Select, _) => replaces_minus_infinity(program, max).is_some_and(|of| covers(program, of, x)),
        _ => false,
    }
}

/// x less a maximum over x, times or over what is positive perhaps: how far above 0 it may come out.
pub(crate) fn below_own_maximum(program: &Program, node: usize, known: &[Interval]) -> Option<f64> {
    let excess = excess(program, node)?;
    excess.conditions(program, known).is_empty().then_some(excess.above)
}

/// Whether a value is something less a maximum over it, whatever its factors are, and NaN where all are -inf.
pub(crate) fn is_less_own_maximum(program: &Program, node: usize) -> bool {
    own_maximum(program, node).is_some()
}

/// That maximum.
pub(crate) fn own_maximum(program: &Program, node: usize) -> Option<usize> {
    let may_be_nan = |e: &Excess| replaces_minus_infinity(program, e.max).is_none();
    excess(program, node).filter(|e| covers(program, e.max, e.x) && may_be_nan(e)).map(|e| e.max)
}

/// Whether a sum has a term 2^0, because it adds powers of values less a maximum that is one of these values: all that the
/// maximum is taken of is there. How far above 0 its exponents may come out.
pub(crate) fn attains(program: &Program, sum: usize, known: &[Interval]) -> Option<f64> {
    let mut powers: Vec<(Op, Excess)> = Vec::new();
    for term in terms(program, sum, Op::Add) {
        match power(program, term, known) {
            Some(power) => powers.push(power),
            // What else is added must not take away.
            None if !known[term].nan && known[term].lo >= 0.0 => {}
            None => return None,
        }
    }
    let max = powers.first()?.1.max;
    let of = |node: usize, op: Op| (program.nodes[node].op == op).then(|| program.nodes[node].args[0]);
    let is_there = |&part: &usize| {
        powers.iter().filter(|(_, e)| e.max == max).any(|(by, e)| match by {
            Op::GroupSum => of(part, Op::GroupMax) == Some(e.x),
            Op::RowSum => {
                let row = of(part, Op::RowMax);
                let in_groups = of(part, Op::GroupMax) == Some(e.x);
                in_groups || row.is_some_and(|m| m == e.x || of(m, Op::GroupMax) == Some(e.x))
            }
            _ => part == e.x,
        })
    };
    let all = terms(program, max, Op::Max).iter().all(is_there);
    all.then(|| powers.iter().fold(0.0, |most, (_, e)| e.above.max(most)))
}

/// The operands of a chain of sums or maxima.
fn terms(program: &Program, node: usize, op: Op) -> Vec<usize> {
    let (mut open, mut out) = (vec![node], Vec::new());
    while let Some(node) = open.pop() {
        // A shared chain would be walked once a path.
        if program.nodes[node].op == op && out.len() + open.len() < 64 {
            open.extend(&program.nodes[node].args);
        } else {
            out.push(node);
        }
    }
    out
}

/// 2^(x less a maximum), or the sum of such over a group or row.
fn power(program: &Program, term: usize, known: &[Interval]) -> Option<(Op, Excess)> {
    let node = &program.nodes[term];
    let (by, power) = match node.op {
        Op::GroupSum | Op::RowSum => (node.op, node.args[0]),
        _ => (Op::Add, term),
    };
    let exponent = (program.nodes[power].op == Op::Exp2).then(|| program.nodes[power].args[0])?;
    let excess = excess(program, exponent)?;
    excess.conditions(program, known).is_empty().then_some((by, excess))
}

/// What would have to hold for a value not to be above 0 (or 1, by the rounding of a product): a difference of a value and what
/// may be a maximum over it. None where nothing of that kind would do, or where nothing more is needed.
pub(crate) fn missing(program: &Program, node: usize, known: &[Interval]) -> Option<String> {
    let conditions = excess(program, node)?.conditions(program, known);
    (!conditions.is_empty()).then(|| conditions.join(" and "))
}

/// The upper bound of 0 of every node that is less than a maximum over the same values, and the lower bound of 1 of sums of
/// their powers; exactly.
pub(super) fn bounds(program: &Program) -> Vec<(usize, Range)> {
    let known = intervals(program);
    let of = |node: usize| {
        if below_own_maximum(program, node, &known) == Some(0.0) {
            Some((node, Range { lo: f64::NEG_INFINITY, hi: 0.0 }))
        } else if attains(program, node, &known) == Some(0.0) {
            Some((node, Range { lo: 1.0, hi: f64::INFINITY }))
        } else {
            None
        }
    };
    (0..program.nodes.len()).filter_map(of).collect()
}

/// (x - m) k l ...: not above 0 where m is at least x, and the factors are positive.
struct Excess {
    x: usize,
    max: usize,
    factors: Vec<usize>,
    /// What the rounding of a product may add.
    above: f64,
}

impl Excess {
    fn conditions(&self, program: &Program, known: &[Interval]) -> Vec<String> {
        let mut out = Vec::new();
        let text = |node: usize| program.expression(node, false);
        if !covers(program, self.max, self.x) {
            out.push(format!("{} is at least every {}", text(self.max), text(self.x)));
        }
        for &k in self.factors.iter().filter(|k| known[**k].nan || known[**k].lo <= 0.0) {
            out.push(format!("{} is positive", text(k)));
        }
        out
    }
}

fn excess(program: &Program, node: usize) -> Option<Excess> {
    let n = &program.nodes[node];
    let rarer = |k: usize, than: usize| program.shapes[k] < program.shapes[than];
    let negated = |k: usize| (program.nodes[k].op == Op::Neg).then(|| program.nodes[k].args[0]);
    // Something else than a maximum may be one that was taken elsewhere.
    let may_cover = |max: usize, x: usize| {
        covers(program, max, x) || matches!(program.nodes[max].op, Op::Input(_)) && rarer(max, x)
    };
    match (n.op, n.args.as_slice()) {
        (Op::Add, &[a, b]) => {
            let of = |x: usize, m: usize| {
                let max = negated(m).filter(|&max| may_cover(max, x))?;
                Some(Excess { x, max, factors: Vec::new(), above: 0.0 })
            };
            of(a, b).or_else(|| of(b, a))
        }
        (Op::Mul, &[a, b]) => {
            let of = |x: usize, k: usize| {
                let inner = excess(program, x)?;
                let factors = inner.factors.iter().copied().chain([k]).collect();
                Some(Excess { factors, ..inner })
            };
            of(a, b).or_else(|| of(b, a))
        }
        (Op::Div, &[a, k]) => {
            let inner = excess(program, a)?;
            let factors = inner.factors.iter().copied().chain([k]).collect();
            Some(Excess { factors, ..inner })
        }
        // x k - (max k), the product rounded on its own: off by its last bit.
        (Op::Fma, &[a, b, c]) => {
            let product = &program.nodes[negated(c)?];
            let of = |x: usize, k: usize| {
                let same = product.op == Op::Mul && product.args.contains(&k);
                let max = product.args.iter().copied().find(|&m| m != k)?;
                let factors = vec![k];
                (same && may_cover(max, x)).then_some(Excess { x, max, factors, above: 1.0 })
            };
            of(a, b).or_else(|| of(b, a))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(head: &str, expression: &str, above: Option<f64>, lacks: Option<&str>) {
        let text =
            format!("layout group=4 lanes=1 row=16\nelem s\nelem t\nrow m\n{head}\nout y = {expression}\n");
        let program: Program = text.parse().unwrap();
        let (node, known) = (program.outputs[0].1, intervals(&program));
        assert_eq!(below_own_maximum(&program, node, &known), above, "{expression}");
        assert_eq!(missing(&program, node, &known).as_deref(), lacks, "{expression}");
    }

    #[test]
    fn less_its_own_maximum_nothing_is_above_zero() {
        let head = "const c in [2^-20, 2^10]\nconst d\nr = row_max(s)";
        check(head, "s - r", Some(0.0), None);
        check(head, "(s - r) * c", Some(0.0), None);
        check(head, "c * (1.5 * (s - r))", Some(0.0), None);
        check(head, "(s - r) / c", Some(0.0), None);
        check(head, "s - max(m, r)", Some(0.0), None);
        check(head, "fma(s, c, -(r * c))", Some(1.0), None);
        check(head, "s - select(eq(r, -inf), 0, r)", Some(0.0), None);
        check(head, "t - r", None, None);
        check(head, "(s - r) * -1", None, Some("-1 is positive"));
        check(head, "s - select(eq(t, -inf), 0, r)", None, None);
        check(head, "s - select(eq(r, 0), 0, r)", None, None);
    }

    #[test]
    fn a_sum_of_powers_that_has_the_greatest_of_all_is_one_at_least() {
        let check = |expression: &str, expected: Option<f64>| {
            let head = "layout group=4 lanes=1 row=16\nelem s\nrow m\nrow n\nrow w in [0, 1]\nconst c in [1, 2]\n\
                        r = row_max(s)\ng = group_max(s)\nb = max(m, r)\n";
            let program: Program = format!("{head}out y = {expression}\n").parse().unwrap();
            let known = intervals(&program);
            assert_eq!(attains(&program, program.outputs[0].1, &known), expected, "{expression}");
        };
        check("row_sum(exp2(s - r))", Some(0.0));
        check("group_sum(exp2((s - g) * c))", Some(0.0));
        check("row_sum(exp2(s - r)) + w", Some(0.0));
        check("row_sum(exp2(fma(s, c, -(r * c))))", Some(1.0));
        check("row_sum(exp2(s - b)) + exp2(m - b)", Some(0.0));
        check("exp2(m - max(m, n)) + exp2(n - max(m, n))", Some(0.0));
        // The greatest is elsewhere, or something is taken away.
        check("group_sum(exp2(s - r))", None);
        check("row_sum(exp2(s - b))", None);
        check("exp2(m - max(m, n)) + w", None);
        check("row_sum(exp2(s - r)) + n", None);
        check("row_sum(exp2(s - r)) * 0.5", None);
    }

    #[test]
    fn what_is_missing_for_it_is_said() {
        let head = "const c in [2^-20, 2^10]\nconst d\nr = row_max(s)";
        check(head, "(s - r) * d", None, Some("d is positive"));
        check(head, "s - m", None, Some("m is at least every s"));
        check(head, "((s - m) * c) * d", None, Some("m is at least every s and d is positive"));
        check(head, "fma(s, d, -(m * d))", None, Some("m is at least every s and d is positive"));
        check(head, "s + m", None, None);
    }
}
