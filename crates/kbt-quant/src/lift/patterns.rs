//! The patterns by which a program may do with less: divisions that exp2 of a negated logarithm can replace,
//! multiplications that an exp2 or log2 beside them can take in, reductions that commute with a monotone function.
//!
//! A pattern is a place to look, not a gain: the search says whether it pays.

use crate::lang::{Op, Program, Shape};
use serde::{Deserialize, Serialize};

/// Which pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// 2^a / b = 2^(a - log2 b), and x / 2^a = x 2^-a.
    DivisionByExp2,
    /// 2^a k = 2^(a + log2 k), 2^((a + b) k) = 2^(a k + b k), log2(a k) = log2 a + log2 k.
    FoldedFactor,
    /// max f(x) = f(max x) for a monotone f.
    MonotoneReduction,
    /// x / d = x (1/d), with one reciprocal for all that share d.
    SharedDivisor,
    /// x / sqrt d = x rsqrt d.
    DivisionByRoot,
    /// What an iteration computes of values that do not change in the loop, once before it.
    LoopInvariant,
}

impl Pattern {
    /// The name in files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DivisionByExp2 => "division_by_exp2",
            Self::FoldedFactor => "folded_factor",
            Self::MonotoneReduction => "monotone_reduction",
            Self::SharedDivisor => "shared_divisor",
            Self::DivisionByRoot => "division_by_root",
            Self::LoopInvariant => "loop_invariant",
        }
    }

    /// The rules without which it is not taken: others of [`Self::rules`] may as well have served another pattern.
    pub(crate) const fn taken_by(self) -> &'static [&'static str] {
        match self {
            Self::DivisionByExp2 => &["rcp-exp2", "exp2-absorbs-factor"],
            Self::DivisionByRoot => &["rcp-sqrt"],
            _ => self.rules(),
        }
    }

    /// The rules that lead to it.
    pub(crate) const fn rules(self) -> &'static [&'static str] {
        match self {
            Self::DivisionByExp2 => &["div-to-rcp", "rcp-exp2", "undo-div", "exp2-absorbs-factor"],
            Self::FoldedFactor => &[
                "exp2-absorbs-factor",
                "factor-into-fma",
                "constant-factors",
                "constant-factor-of-fma",
                "log2-of-product",
                "undo-mul",
            ],
            Self::MonotoneReduction => &[
                "group-max-exp2",
                "row-max-exp2",
                "group-max-fma",
                "group-max-add",
                "group-max-mul",
                "group-max-div",
                "row-max-fma",
                "row-max-add",
                "row-max-mul",
                "row-max-div",
                "group-max-sqrt",
                "row-max-sqrt",
                "group-max-tanh",
                "row-max-tanh",
            ],
            Self::SharedDivisor => &["div-to-rcp"],
            Self::DivisionByRoot => &["rcp-sqrt", "div-to-rcp"],
            // Where something is computed is no matter of what it is.
            Self::LoopInvariant => &[],
        }
    }
}

/// A pattern in a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// Which.
    pub pattern: Pattern,
    /// The node of the program.
    pub node: usize,
    /// What stands there.
    pub found: String,
    /// What could.
    pub instead: String,
    /// What must hold for it.
    pub condition: String,
}

/// Every pattern in a program.
#[must_use]
pub fn patterns(program: &Program) -> Vec<Match> {
    let live = program.live();
    (0..program.nodes.len()).filter(|i| live[*i]).flat_map(|i| at(program, i)).collect()
}

pub(super) struct View<'a>(pub(super) &'a Program);

impl View<'_> {
    pub(super) fn op(&self, i: usize) -> Op {
        self.0.nodes[i].op
    }

    fn arg(&self, i: usize, k: usize) -> usize {
        self.0.nodes[i].args[k]
    }

    pub(super) fn text(&self, i: usize) -> String {
        self.0.expression(i, false)
    }

    /// As a term, before a sign or on the left of one.
    fn term(&self, i: usize) -> String {
        self.0.operand(i, 1)
    }

    /// As the left operand of a product, or the right one of a sum.
    fn factor(&self, i: usize) -> String {
        self.0.operand(i, 2)
    }

    /// As the right operand of a product or quotient, or behind a sign.
    fn tight(&self, i: usize) -> String {
        self.0.operand(i, 3)
    }

    /// A product with something that stands alone; 1 says nothing in one.
    pub(super) fn times(&self, i: usize, other: &str) -> String {
        match self.op(i) {
            Op::Num(bits) if f64::from_bits(bits) == 1.0 => other.to_owned(),
            _ => format!("{} * {other}", self.factor(i)),
        }
    }

    pub(super) fn rarer(&self, i: usize, than: usize) -> bool {
        self.0.shapes[i] < self.0.shapes[than]
    }

    /// Whether it is an exp2, or one times or over something rarer.
    fn exponential(&self, i: usize) -> bool {
        match self.op(i) {
            Op::Exp2 => true,
            Op::Mul => {
                let (a, b) = (self.arg(i, 0), self.arg(i, 1));
                (self.exponential(a) && self.rarer(b, a)) || (self.exponential(b) && self.rarer(a, b))
            }
            _ => false,
        }
    }

    /// What an exp2 is the maximum or multiple of.
    fn of_exponential(&self, i: usize) -> bool {
        match self.op(i) {
            Op::Exp2 => true,
            Op::GroupMax | Op::RowMax => self.of_exponential(self.arg(i, 0)),
            Op::Mul | Op::Div | Op::Max => self.0.nodes[i].args.iter().any(|&a| self.of_exponential(a)),
            _ => false,
        }
    }
}

fn at(program: &Program, i: usize) -> Vec<Match> {
    let v = View(program);
    let mut out = Vec::new();
    let mut add = |pattern: Pattern, instead: String, condition: String| {
        let found = program.expression(i, true);
        out.push(Match { pattern, node: i, found, instead, condition });
    };
    match (v.op(i), program.nodes[i].args.as_slice()) {
        (Op::Div, &[a, b]) => {
            let (x, d) = (v.text(a), v.text(b));
            if v.exponential(a) && v.rarer(b, a) && v.0.shapes[b] > Shape::Const {
                let from = if v.of_exponential(b) { ", an exponential itself" } else { "" };
                let inner = if v.op(a) == Op::Exp2 { v.term(v.arg(a, 0)) } else { format!("log2({x})") };
                add(
                    Pattern::DivisionByExp2,
                    format!("exp2({inner} - log2({d})){from}"),
                    format!("{d} is positive and finite, {x} does not overflow"),
                );
            } else if v.op(b) == Op::Exp2 {
                let t = v.text(v.arg(b, 0));
                add(
                    Pattern::DivisionByExp2,
                    v.times(a, &format!("exp2(-{})", v.tight(v.arg(b, 0)))),
                    format!("exp2({t}) is neither 0 nor infinite"),
                );
            }
            if matches!(v.op(b), Op::Sqrt | Op::SqrtRn) {
                let t = v.text(v.arg(b, 0));
                add(
                    Pattern::DivisionByRoot,
                    v.times(a, &format!("rsqrt({t})")),
                    format!("{t} is positive and finite"),
                );
            }
            if v.rarer(b, a) && v.0.shapes[b] > Shape::Const {
                add(
                    Pattern::SharedDivisor,
                    format!("{}, one reciprocal for all that share {d}", v.times(a, &format!("rcp({d})"))),
                    format!("{d} lies in [2^-126, 2^126]"),
                );
            }
        }
        (Op::Mul, &[a, b]) => {
            for (e, k) in [(a, b), (b, a)] {
                if v.op(e) == Op::Exp2 && v.rarer(k, e) {
                    let (t, k) = (v.term(v.arg(e, 0)), v.text(k));
                    add(
                        Pattern::FoldedFactor,
                        format!("exp2({t} + log2({k}))"),
                        format!("{k} is positive and finite"),
                    );
                }
            }
        }
        (Op::Exp2 | Op::Log2, &[t]) => {
            if let Some((instead, condition)) = factor_inside(&v, i, t) {
                add(Pattern::FoldedFactor, instead, condition);
            }
        }
        (Op::GroupMax | Op::RowMax, &[x]) => {
            if let Some((instead, condition)) = monotone(&v, v.op(i).name(), x) {
                add(Pattern::MonotoneReduction, instead, condition);
            }
        }
        _ => {}
    }
    out
}

/// A factor in the argument of an exp2 or log2 that a multiply-add, another factor or the result can take.
fn factor_inside(v: &View<'_>, outer: usize, t: usize) -> Option<(String, String)> {
    let name = v.op(outer).name();
    let &[a, b] = v.0.nodes[t].args.as_slice() else { return None };
    if v.op(t) != Op::Mul {
        return None;
    }
    let (x, k) = if v.rarer(b, a) { (a, b) } else { (b, a) };
    if !v.rarer(k, x) {
        return None;
    }
    let (text, factor) = (v.text(x), v.text(k));
    match (v.op(outer), v.op(x), v.0.nodes[x].args.as_slice()) {
        (Op::Log2, _, _) => Some((
            format!("log2({text}) + log2({factor})"),
            format!("{text} and {factor} are positive and finite"),
        )),
        (_, Op::Add, &[p, q]) => Some((
            format!("{name}(fma({}, {factor}, {} * {}))", v.text(p), v.factor(q), v.tight(k)),
            format!("{} and {factor} are finite", v.text(q)),
        )),
        (_, Op::Mul, &[p, q]) if v.rarer(q, p) || v.rarer(p, q) => Some((
            format!("{name}({} * ({} * {}))", v.factor(p), v.factor(q), v.tight(k)),
            "neither product overflows".to_owned(),
        )),
        (_, Op::Fma, &[p, q, r]) if v.rarer(q, p) && v.rarer(r, p) => Some((
            format!(
                "{name}(fma({}, {} * {k}, {} * {k}))",
                v.text(p),
                v.factor(q),
                v.factor(r),
                k = v.tight(k)
            ),
            format!("{} and {factor} are finite", v.text(r)),
        )),
        _ => None,
    }
}

/// What a maximum of `x` is, taken before the last monotone function.
fn monotone(v: &View<'_>, max: &str, x: usize) -> Option<(String, String)> {
    let rarer = |k: usize, of: usize| v.rarer(k, of);
    match (v.op(x), v.0.nodes[x].args.as_slice()) {
        (Op::Exp2, &[t]) => Some((
            format!("exp2({max}({}))", v.text(t)),
            "nothing: exp2 keeps the order of all its operands".to_owned(),
        )),
        (op @ (Op::Log2 | Op::Sqrt), &[t]) => {
            Some((format!("{}({max}({}))", op.name(), v.text(t)), format!("{} is not negative", v.text(t))))
        }
        (Op::Tanh, &[t]) => Some((
            format!("tanh({max}({}))", v.text(t)),
            "nothing: tanh keeps the order of all its operands".to_owned(),
        )),
        (Op::Add, &[a, b]) if rarer(b, a) => {
            Some((format!("{max}({}) + {}", v.text(a), v.factor(b)), format!("{} is finite", v.text(b))))
        }
        (Op::Mul, &[a, b]) if rarer(b, a) => {
            Some((format!("{max}({}) * {}", v.text(a), v.tight(b)), format!("{} is positive", v.text(b))))
        }
        (Op::Div, &[a, b]) if rarer(b, a) => {
            Some((format!("{max}({}) / {}", v.text(a), v.tight(b)), format!("{} is positive", v.text(b))))
        }
        (Op::Fma, &[a, b, c]) if rarer(b, a) && rarer(c, a) => Some((
            format!("fma({max}({}), {}, {})", v.text(a), v.text(b), v.text(c)),
            format!("{} is positive, {} is finite", v.text(b), v.text(c)),
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: &[(Pattern, &str)]) {
        let text = format!("layout group=16 lanes=4 row=128\nelem s\ngroup g\nrow m\nconst c\n{body}\n");
        let program: Program = text.parse().unwrap();
        let found = patterns(&program);
        let shown: Vec<(Pattern, &str)> = found.iter().map(|m| (m.pattern, m.instead.as_str())).collect();
        assert_eq!(shown, expected, "{body}");
    }

    #[test]
    fn each_pattern_is_found_where_it_is_and_only_there() {
        use Pattern::{DivisionByExp2, DivisionByRoot, FoldedFactor, MonotoneReduction, SharedDivisor};
        check(
            "out y = exp2(s) / g",
            &[
                (DivisionByExp2, "exp2(s - log2(g))"),
                (SharedDivisor, "exp2(s) * rcp(g), one reciprocal for all that share g"),
            ],
        );
        check("out y = s / exp2(s)", &[(DivisionByExp2, "s * exp2(-s)")]);
        check("out y = s / m", &[(SharedDivisor, "s * rcp(m), one reciprocal for all that share m")]);
        check("out y = s / (s + 1)", &[]);
        check("out y = s / sqrt_rn(s)", &[(DivisionByRoot, "s * rsqrt(s)")]);
        check("out y = group_max(sqrt(s))", &[(MonotoneReduction, "sqrt(group_max(s))")]);
        check("out y = group_max(tanh(s))", &[(MonotoneReduction, "tanh(group_max(s))")]);
        check("out y = exp2(s) * c", &[(FoldedFactor, "exp2(s + log2(c))")]);
        check("out y = exp2((s - m) * c)", &[(FoldedFactor, "exp2(fma(s, c, (-m) * c))")]);
        check(
            "out y = (s - m) / group_sum(s)",
            &[(SharedDivisor, "(s - m) * rcp(group_sum(s)), one reciprocal for all that share group_sum(s)")],
        );
        check("out y = (s - m) / exp2(s + m)", &[(DivisionByExp2, "(s - m) * exp2(-(s + m))")]);
        check("out y = 1 / sqrt(s + 1)", &[(DivisionByRoot, "rsqrt(s + 1)")]);
        check("out y = exp2((s * m) * (c + 1))", &[(FoldedFactor, "exp2(s * (m * (c + 1)))")]);
        check(
            "out y = group_max(s / (m + 1))",
            &[
                (SharedDivisor, "s * rcp(m + 1), one reciprocal for all that share m + 1"),
                (MonotoneReduction, "group_max(s) / (m + 1)"),
            ],
        );
        check("out y = log2(s * c)", &[(FoldedFactor, "log2(s) + log2(c)")]);
        check("out y = exp2(fma(s, c, m))", &[]);
        check("out y = group_max(exp2(s))", &[(MonotoneReduction, "exp2(group_max(s))")]);
        check("out y = group_max(fma(s, c, m))", &[(MonotoneReduction, "fma(group_max(s), c, m)")]);
        check("out y = group_max(s * s)", &[]);
        check(
            "out y = row_max(s / m)",
            &[
                (SharedDivisor, "s * rcp(m), one reciprocal for all that share m"),
                (MonotoneReduction, "row_max(s) / m"),
            ],
        );
    }
}
