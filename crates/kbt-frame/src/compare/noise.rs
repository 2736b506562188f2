//! Whether a difference is beyond the noise: the rules, each with its statement.

use crate::table::{Cell, Spread};
use kbt_evidence::Known;
use serde::{Deserialize, Serialize};

/// What a difference means against the spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Noise {
    /// More than the spread accounts for.
    Beyond,
    /// Nobody said how far the figures spread.
    Unknown,
    /// No more than the spread accounts for.
    Within,
}

/// How a difference was judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Both have an interval.
    Intervals,
    /// By the larger of the two relative spreads.
    Ratio,
    /// Neither varies.
    Exact,
    /// There is nothing to judge by.
    NoSpread,
}

impl Rule {
    /// Every rule.
    pub const ALL: [Self; 4] = [Self::Intervals, Self::Ratio, Self::Exact, Self::NoSpread];

    /// The rule in a sentence.
    #[must_use]
    pub const fn statement(self) -> &'static str {
        match self {
            Self::Intervals => {
                "intervals: where both figures have an interval, beyond the noise is when the two do not meet"
            }
            Self::Ratio => {
                "ratio: where a spread is a share of the value, or only one figure has one, beyond the noise is when \
                 the ratio lies outside the larger spread"
            }
            Self::Exact => {
                "exact: what is mined, given, published or assumed, and what repeated runs gave bit for bit, has no \
                 noise: any difference is beyond it"
            }
            Self::NoSpread => {
                "no_spread: one measurement, or a model of one, without a spread cannot be judged"
            }
        }
    }

    /// One word for tables.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Intervals => "intervals",
            Self::Ratio => "ratio",
            Self::Exact => "exact",
            Self::NoSpread => "no_spread",
        }
    }
}

/// What came out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Judgement {
    pub(super) noise: Noise,
    pub(super) rule: Rule,
    /// The larger of the two spreads, where one is known.
    pub(super) spread_percent: Option<f64>,
}

/// Judges two figures that differ.
pub(super) fn judge(before: &Cell, after: &Cell) -> Judgement {
    let beyond = |yes: bool| if yes { Noise::Beyond } else { Noise::Within };
    if is_exact(before) && is_exact(after) {
        return Judgement { noise: Noise::Beyond, rule: Rule::Exact, spread_percent: None };
    }
    let spread_percent = [before, after].into_iter().filter_map(relative_percent).reduce(f64::max);
    if let (Some(a), Some(b)) = (&before.figure.spread, &after.figure.spread) {
        let apart = a.high < b.low || b.high < a.low;
        return Judgement { noise: beyond(apart), rule: Rule::Intervals, spread_percent };
    }
    let ratio = ratio(before.figure.value, after.figure.value);
    match (ratio, spread_percent) {
        (Some(ratio), Some(percent)) => {
            // The larger over the smaller, so that the order of the runs does not matter.
            let apart = ratio.max(1.0 / ratio) - 1.0 > percent / 100.0;
            Judgement { noise: beyond(apart), rule: Rule::Ratio, spread_percent }
        }
        _ => Judgement { noise: Noise::Unknown, rule: Rule::NoSpread, spread_percent },
    }
}

/// After over before, where that says something.
pub(super) fn ratio(before: f64, after: f64) -> Option<f64> {
    let ratio = after / before;
    (ratio.is_finite() && ratio > 0.0).then_some(ratio)
}

/// Whether the figure is the same however often it is made. A model's figure varies as its inputs do.
fn is_exact(cell: &Cell) -> bool {
    match cell.spread {
        Spread::Exact { .. } => true,
        Spread::Unknown => {
            matches!(
                cell.figure.provenance.kind,
                Known::Mined | Known::Given | Known::Published | Known::Assumed
            )
        }
        Spread::Interval | Spread::Relative { .. } => false,
    }
}

/// The spread as a share of the value.
fn relative_percent(cell: &Cell) -> Option<f64> {
    let value = cell.figure.value;
    let percent = match &cell.spread {
        Spread::Relative { percent, .. } => *percent,
        Spread::Interval => {
            let spread = cell.figure.spread.as_ref()?;
            100.0 * ((spread.high - value) / value).abs().max(((value - spread.low) / value).abs())
        }
        Spread::Exact { .. } | Spread::Unknown => return None,
    };
    percent.is_finite().then_some(percent)
}
