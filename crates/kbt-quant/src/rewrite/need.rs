//! What a rule may ask of the values that it is applied to, and whether the analysis can promise it.

use super::analysis::Graph;
use super::interval::{HUGE, Interval, TINY};
use super::node::ENode;
use crate::lang::{Op, Shape};
use egg::Id;
use std::fmt;

/// A factor of up to this leaves what is flushed below 2^-102: nothing beside the values that programs compute.
const FACTOR: f64 = 16_777_216.0;
/// An addend of up to this moves the boundary of overflow by 2^-12 of it at most.
const ADDEND: f64 = HUGE / 4096.0;

fn is_kept(i: Interval) -> bool {
    i.lo >= TINY || i.hi <= -TINY
}

fn magnitude(i: Interval) -> f64 {
    i.lo.abs().max(i.hi.abs())
}

/// A condition on one variable of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// No infinity, no NaN.
    Finite,
    /// At least the least normal f32, and finite.
    Positive,
    /// Its reciprocal neither overflows nor is flushed: in [2^-126, 2^126], either sign.
    Invertible,
    /// Its exp2 neither overflows nor is flushed.
    ExpInRange,
    /// Never negative, never NaN.
    NotNegative,
    /// Finite, and of magnitude 2^-126 at least.
    NotZero,
    /// Never NaN.
    NotNan,
    /// A number from 0 to 1.
    Share,
    /// Finite, and its product with that variable too.
    FiniteTimes(&'static str),
    /// Its sum with that variable is finite.
    FinitePlus(&'static str),
    /// Its product with that variable is a normal, positive f32.
    NormalTimes(&'static str),
    /// Is not flushed, or that variable is no factor that makes what is flushed a number again.
    KeptBeside(&'static str),
    /// Its product with the first variable is not flushed, or the second is no such factor.
    ProductKept(&'static str, &'static str),
    /// Of magnitude 2^-24 at least: its reciprocal is no such factor.
    NotMinute,
    /// Its exp2 does not overflow, nor is it flushed (minus infinity apart) where that variable is such a factor.
    ExpKept(&'static str),
    /// Its sum with that variable does not overflow, or is as infinite as it is itself.
    PlusKept(&'static str),
    /// As a factor of `?a ?b + ?c` hides no overflow and no underflow of it.
    OuterFactor,
    /// As an addend of the product of these does not bring back what overflows.
    AddendOf(&'static str, &'static str),
    /// The reduction of values like this is finite.
    FiniteSum(Op),
    /// Never -0, or the program takes no reciprocal of a zero, which alone shows its sign.
    NotMinusZero,
    /// At least the least normal f32, or the program takes no reciprocal of a zero: below, an approximate root is 0.
    NotSubnormal,
    /// Is no sum of which the program uses the rounding.
    NotDeliberate,
    /// Exists at most once a group (or row); otherwise the rule has no meaning here.
    AtMost(Shape),
    /// As [`Self::AtMost`], but once a row exactly or less often is not enough: an element's.
    Exactly(Shape),
    /// A constant number.
    Number,
    /// Exists less often than the rule's `?a`, so that moving it saves work.
    RarerThanA,
    /// As [`Self::RarerThanA`], or as often as `?a` where that is once a group or row and its product with `?c` is there anyway.
    NoMoreThanA,
}

impl Need {
    /// Conditions that say where a rule applies at all, rather than whether it is true.
    pub(super) const fn is_applicability(self) -> bool {
        matches!(
            self,
            Self::AtMost(_) | Self::Exactly(_) | Self::Number | Self::RarerThanA | Self::NoMoreThanA
        )
    }

    /// Whether it is about nothing in this program, and so no condition of it.
    pub(super) fn is_moot(self, egraph: &Graph) -> bool {
        matches!(self, Self::NotMinusZero | Self::NotSubnormal) && !egraph.analysis.signed_zero
    }

    /// Whether it holds of `id`; `look` gives what the rule's variables stand for.
    pub(super) fn holds(self, egraph: &Graph, id: Id, look: &dyn Fn(&str) -> Option<Id>) -> bool {
        let data = &egraph[id].data;
        let i = data.interval;
        let interval = |name: &str| look(name).map(|id| egraph[id].data.interval);
        let of = |op: Op, args: &[Interval]| Interval::of(op, args, egraph.analysis.layout());
        match self {
            Self::FinitePlus(other) => interval(other).is_some_and(|y| of(Op::Add, &[i, y]).is_finite()),
            Self::NormalTimes(other) => interval(other).is_some_and(|y| {
                let product = of(Op::Mul, &[i, y]);
                product.is_finite() && product.lo >= TINY
            }),
            Self::KeptBeside(factor) => {
                is_kept(i) || interval(factor).is_some_and(|f| magnitude(f) <= FACTOR)
            }
            Self::ProductKept(other, factor) => {
                interval(other).is_some_and(|y| is_kept(of(Op::Mul, &[i, y])))
                    || interval(factor).is_some_and(|f| magnitude(f) <= FACTOR)
            }
            Self::NotMinute => i.lo >= 1.0 / FACTOR || i.hi <= -1.0 / FACTOR,
            Self::ExpKept(factor) => {
                let small = interval(factor).is_some_and(|f| magnitude(f) <= FACTOR);
                let flushes = i.lo < TINY.log2() && i.lo != f64::NEG_INFINITY;
                !i.nan && i.hi < HUGE.log2() && (small || !flushes)
            }
            Self::PlusKept(other) => {
                interval(other).is_some_and(|y| of(Op::Add, &[i, y]).is_finite() || magnitude(y) <= ADDEND)
            }
            Self::OuterFactor => {
                let sum = match (interval("?a"), interval("?b"), interval("?c")) {
                    (Some(a), Some(b), Some(c)) => of(Op::Fma, &[a, b, c]),
                    _ => Interval::ALL,
                };
                let at_least_one = i.lo >= 1.0 || i.hi <= -1.0;
                (sum.is_finite() || at_least_one) && (is_kept(sum) || magnitude(i) <= FACTOR)
            }
            Self::AddendOf(a, b) => {
                let product = interval(a).zip(interval(b)).map(|(a, b)| of(Op::Mul, &[a, b]));
                product.is_some_and(Interval::is_finite) || magnitude(i) <= ADDEND
            }
            Self::FiniteSum(op) => of(op, &[i]).is_finite(),
            Self::NotMinusZero => {
                // Only a reciprocal shows it; and the result of exp2 and of comparisons has no sign.
                let unsigned = |op: Op| matches!(op, Op::Exp2 | Op::Lt | Op::Le | Op::Eq);
                !egraph.analysis.signed_zero
                    || i.lo > 0.0
                    || i.hi < 0.0
                    || egraph[id].nodes.iter().any(|n| unsigned(n.op))
            }
            Self::NotSubnormal => !egraph.analysis.signed_zero || i.lo >= TINY,
            Self::NotDeliberate => !data.deliberate,
            Self::Finite => i.is_finite(),
            Self::Positive => i.is_finite() && i.lo >= TINY,
            Self::Invertible => {
                let inverse = 1.0 / TINY;
                !i.nan && ((i.lo >= TINY && i.hi <= inverse) || (i.hi <= -TINY && i.lo >= -inverse))
            }
            Self::ExpInRange => !i.nan && i.lo >= TINY.log2() && i.hi < HUGE.log2(),
            Self::NotNegative => !i.nan && i.lo >= 0.0,
            Self::NotZero => i.is_finite() && (i.lo >= TINY || i.hi <= -TINY),
            Self::NotNan => !i.nan,
            Self::Share => !i.nan && i.lo >= 0.0 && i.hi <= 1.0,
            Self::FiniteTimes(other) => look(other).is_some_and(|other| {
                let product =
                    Interval::of(Op::Mul, &[i, egraph[other].data.interval], egraph.analysis.layout());
                i.is_finite() && product.is_finite()
            }),
            Self::AtMost(shape) => data.shape <= shape,
            Self::Exactly(shape) => data.shape == shape,
            Self::Number => data.constant.is_some(),
            Self::RarerThanA => look("?a").is_some_and(|a| data.shape < egraph[a].data.shape),
            Self::NoMoreThanA => look("?a").map(|a| egraph[a].data.shape).is_some_and(|a| {
                let there = |c: Id| egraph.lookup(ENode::new(Op::Mul, [id, c])).is_some();
                data.shape < a
                    || (data.shape == a
                        && matches!(a, Shape::Row | Shape::Group)
                        && look("?c").is_some_and(there))
            }),
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finite => f.write_str("must be finite"),
            Self::Positive => f.write_str("must be positive and finite"),
            Self::Invertible => f.write_str("must lie in [2^-126, 2^126], so that its reciprocal exists"),
            Self::ExpInRange => {
                f.write_str("must lie in [-126, 128), so that its exp2 neither overflows nor is flushed")
            }
            Self::NotNegative => f.write_str("must not be negative or NaN"),
            Self::NotZero => f.write_str("must be finite and not 0"),
            Self::NotNan => f.write_str("must not be NaN"),
            Self::Share => f.write_str("must lie in [0, 1]"),
            Self::FiniteTimes(_) => f.write_str("must be finite, and so must its product with the factor"),
            Self::FinitePlus(_) => f.write_str("must have a finite sum with the other"),
            Self::NormalTimes(_) => f.write_str("must have a product that neither overflows nor is flushed"),
            Self::KeptBeside(_) => {
                f.write_str("must not be flushed to 0 beside a factor of more than 2^24 that undoes it")
            }
            Self::ProductKept(..) => {
                f.write_str("must have a product that is not flushed to 0 beside a factor of more than 2^24")
            }
            Self::NotMinute => f.write_str("must be of magnitude 2^-24 or more"),
            Self::ExpKept(_) => f.write_str(
                "must be below 128, and where the factor is more than 2^24 at least -126, so that its exp2 is not lost",
            ),
            Self::PlusKept(_) => f.write_str("must not overflow by what is added"),
            Self::OuterFactor => f.write_str("must not hide an overflow or underflow of what it is a factor of"),
            Self::AddendOf(..) => f.write_str("must not bring back a product that overflows"),
            Self::FiniteSum(_) => f.write_str("must have a finite sum over all"),
            Self::NotMinusZero => f.write_str("must not be -0, of which the program takes a reciprocal"),
            Self::NotSubnormal => {
                f.write_str("must not be below 2^-126, where the root is 0, of which the program takes a reciprocal")
            }
            Self::NotDeliberate => {
                f.write_str("must not be a sum whose rounding the program uses (it takes away again what it adds)")
            }
            Self::AtMost(shape) | Self::Exactly(shape) => write!(f, "must be {shape}"),
            Self::Number => f.write_str("must be a number"),
            Self::RarerThanA => f.write_str("must exist less often"),
            Self::NoMoreThanA => f.write_str("must not exist more often"),
        }
    }
}
