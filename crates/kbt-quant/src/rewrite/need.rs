//! What a rule may ask of the values that it is applied to, and whether the analysis can promise it.

use super::analysis::Graph;
use super::interval::{HUGE, Interval, TINY};
use crate::lang::{Op, Shape};
use egg::Id;
use std::fmt;

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
    /// Never NaN and never plus infinity.
    BelowInfinity,
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
    /// Exists at most once a group (or row); otherwise the rule has no meaning here.
    AtMost(Shape),
    /// As [`Self::AtMost`], but once a row exactly or less often is not enough: an element's.
    Exactly(Shape),
    /// A constant number.
    Number,
    /// Exists less often than the rule's `?a`, so that moving it saves work.
    RarerThanA,
}

impl Need {
    /// Conditions that say where a rule applies at all, rather than whether it is true.
    pub(super) const fn is_applicability(self) -> bool {
        matches!(self, Self::AtMost(_) | Self::Exactly(_) | Self::Number | Self::RarerThanA)
    }

    /// Whether it holds of `id`; `look` gives what the rule's variables stand for.
    pub(super) fn holds(self, egraph: &Graph, id: Id, look: &dyn Fn(&str) -> Option<Id>) -> bool {
        let data = &egraph[id].data;
        let i = data.interval;
        match self {
            Self::Finite => i.is_finite(),
            Self::Positive => i.is_finite() && i.lo >= TINY,
            Self::Invertible => {
                let inverse = 1.0 / TINY;
                !i.nan && ((i.lo >= TINY && i.hi <= inverse) || (i.hi <= -TINY && i.lo >= -inverse))
            }
            Self::ExpInRange => !i.nan && i.lo >= TINY.log2() && i.hi < HUGE.log2(),
            Self::BelowInfinity => !i.nan && i.hi <= HUGE,
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
            Self::BelowInfinity => f.write_str("must not be +inf or NaN"),
            Self::NotNegative => f.write_str("must not be negative or NaN"),
            Self::NotZero => f.write_str("must be finite and not 0"),
            Self::NotNan => f.write_str("must not be NaN"),
            Self::Share => f.write_str("must lie in [0, 1]"),
            Self::FiniteTimes(_) => f.write_str("must be finite, and so must its product with the factor"),
            Self::AtMost(shape) | Self::Exactly(shape) => write!(f, "must be {shape}"),
            Self::Number => f.write_str("must be a number"),
            Self::RarerThanA => f.write_str("must exist less often"),
        }
    }
}
