//! Two sweeps of one space side by side: whether they contradict each other, and what the shorter one lost.
//!
//! Points are matched by their settings. A verdict here is against the baseline, from the interval of that ratio: the
//! setting that a point was timed against may be another in each sweep. Two verdicts contradict each other where one
//! says faster and the other slower. Two intervals are apart where more than what counts as the same lies between
//! them; right ones never are, so that no more than twice the stated error rate of all points may be.

use crate::outcome::{PointOutcome, PointStatus, SplitOutcome};
use kbt_evidence::Provenance;
use kbt_target::stats::binomial_limit;
use kbt_target::{Setting, Speed, TimingPolicy};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The schema that comparisons of sweeps state.
pub const AGREEMENT_SCHEMA: &str = "kbt.split.compare/1";

/// How sure the limit on intervals that are apart is.
const LEVEL: f64 = 0.99;

/// A point that the two sweeps see differently.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Its knobs.
    pub setting: Setting,
    /// Its time over the baseline's in the first sweep.
    pub first_ratio: f64,
    /// In the second.
    pub second_ratio: f64,
    /// The first sweep's verdict against the baseline.
    pub first: Speed,
    /// The second's.
    pub second: Speed,
}

/// What two sweeps of one space say of each other: `kbt.split.compare/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Always [`AGREEMENT_SCHEMA`].
    pub schema: String,
    /// Points that both sweeps have an interval for.
    pub compared_count: usize,
    /// Points that are faster in one and slower in the other.
    pub opposite: Vec<Difference>,
    /// Points whose intervals are apart.
    pub apart: Vec<Difference>,
    /// As many of them as chance explains at the stated error rate, with 99 % certainty.
    pub apart_limit_count: u64,
    /// Points of which only one sweep is sure, or of which they are sure of different words without contradiction.
    pub other_words_count: usize,
    /// The time of the second sweep's best over that of the first sweep's best, both as the first sweep measured them;
    /// absent where it did not time one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_best_ratio: Option<f64>,
    /// Device time of the second sweep over that of the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_time_ratio: Option<f64>,
    /// How the figures are known.
    pub provenance: Provenance,
}

/// Why two sweeps cannot be set side by side.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the sweeps have {0}; accepted: two sweeps of one target with one baseline")]
pub struct NotComparable(String);

impl Agreement {
    /// Sets two sweeps side by side. `error_rate` is that which both state for one comparison.
    ///
    /// # Errors
    /// Where they have different targets or baselines.
    pub fn new(first: &SplitOutcome, second: &SplitOutcome, error_rate: f64) -> Result<Self, NotComparable> {
        if first.target != second.target {
            return Err(NotComparable(format!("the targets {} and {}", first.target, second.target)));
        }
        let base = |o: &SplitOutcome| o.baseline().map(|b| b.setting.clone()).unwrap_or_default();
        if base(first) != base(second) {
            return Err(NotComparable(format!("the baselines {} and {}", base(first), base(second))));
        }
        let of_second: BTreeMap<&Setting, &PointOutcome> =
            second.points.iter().map(|p| (&p.setting, p)).collect();
        let same_within = TimingPolicy::default().same_within;
        let (mut compared_count, mut other_words_count) = (0, 0);
        let (mut opposite, mut apart) = (Vec::new(), Vec::new());
        for a in first.points.iter().skip(1) {
            let Some(b) = of_second.get(&a.setting) else { continue };
            let (Some(x), Some(y)) = (interval(a), interval(b)) else { continue };
            compared_count += 1;
            let (first, second) = (word(x), word(y));
            let difference =
                Difference { setting: a.setting.clone(), first_ratio: x.1, second_ratio: y.1, first, second };
            let opposed =
                matches!((first, second), (Speed::Faster, Speed::Slower) | (Speed::Slower, Speed::Faster));
            let gap = (y.0 / x.2).max(x.0 / y.2);
            if opposed {
                opposite.push(difference.clone());
            }
            if gap > 1.0 + same_within {
                apart.push(difference);
            } else if first != second {
                other_words_count += 1;
            }
        }
        let count = u64::try_from(compared_count).unwrap_or(u64::MAX);
        let times = |index: Option<usize>, of: &SplitOutcome| {
            let setting = &of.points.get(index?)?.setting;
            let point = first.points.iter().find(|p| p.setting == *setting)?;
            Some(point.to_baseline?.ratio)
        };
        let best = times(first.best, first).filter(|r| *r > 0.0);
        let inputs = [first, second].map(|o| o.baseline().map_or(&o.provenance, |b| &b.provenance));
        Ok(Self {
            schema: AGREEMENT_SCHEMA.to_owned(),
            compared_count,
            opposite,
            apart,
            apart_limit_count: binomial_limit(count, (2.0 * error_rate).min(1.0), LEVEL),
            other_words_count,
            second_best_ratio: times(second.best, second).zip(best).map(|(s, f)| s / f),
            device_time_ratio: second.device_s.zip(first.device_s).map(|(s, f)| s / f),
            provenance: Provenance::computed(
                "two sweeps of one space side by side",
                [("first sweep", inputs[0]), ("second sweep", inputs[1])],
            ),
        })
    }

    /// Whether nothing contradicts, beyond what chance explains.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.opposite.is_empty() && u64::try_from(self.apart.len()).is_ok_and(|n| n <= self.apart_limit_count)
    }
}

/// The ratio of a timed point to the baseline between the ends of its interval.
fn interval(point: &PointOutcome) -> Option<(f64, f64, f64)> {
    let r = point.to_baseline.filter(|_| point.status == PointStatus::Timed)?;
    Some((r.low_ratio?, r.ratio, r.high_ratio?))
}

fn word((low, _, high): (f64, f64, f64)) -> Speed {
    match () {
        () if high < 1.0 => Speed::Faster,
        () if low > 1.0 => Speed::Slower,
        () => Speed::Ambiguous,
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} points compared: {} faster in one and slower in the other, {} with intervals apart (chance explains {})",
            self.compared_count,
            self.opposite.len(),
            self.apart.len(),
            self.apart_limit_count
        )?;
        writeln!(f, "{} more have another word without contradiction", self.other_words_count)?;
        for d in &self.apart {
            let (a, b) = (d.first_ratio, d.second_ratio);
            writeln!(f, "  apart: {}: {a:.3} ({}) and {b:.3} ({})", d.setting, d.first, d.second)?;
        }
        if let Some(ratio) = self.second_best_ratio {
            let more = (ratio - 1.0) * 100.0;
            writeln!(
                f,
                "the second's best takes {more:+.2} % of time against the first's best, as the first measured them"
            )?;
        }
        if let Some(ratio) = self.device_time_ratio {
            writeln!(f, "device time of the second over the first: {ratio:.3}")?;
        }
        write!(f, "known by: {}", self.provenance)
    }
}
