//! Two sweeps of one space side by side: whether they contradict each other, and what the shorter one lost.
//!
//! Points are matched by their settings. Where both sweeps timed a point against one setting, their own verdicts are set
//! side by side; else the verdicts against the baseline, since that setting may be another in each sweep. A point that
//! was stopped early has no interval and is slower all the same. Two verdicts contradict each other where one
//! says faster and the other slower. A point of which one sweep has no verdict is named. Two intervals are apart where more than what counts as the same lies between
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

/// More points than this that cannot be compared are counted, not listed.
const UNCOMPARED_SHOWN: usize = 20;

/// A point that the two sweeps see differently.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Its knobs.
    pub setting: Setting,
    /// Its time over the baseline's in the first sweep.
    pub first_ratio: f64,
    /// In the second.
    pub second_ratio: f64,
    /// The first sweep's verdict against the baseline, or against the setting that both sweeps timed it against.
    pub first: Speed,
    /// The second's.
    pub second: Speed,
}

/// A point on which the two sweeps cannot be set side by side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uncompared {
    /// Its knobs.
    pub setting: Setting,
    /// What is missing, and in which sweep.
    pub why: String,
}

/// What two sweeps of one space say of each other: `kbt.split.compare/1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Always [`AGREEMENT_SCHEMA`].
    pub schema: String,
    /// Points that both sweeps have a verdict on.
    pub compared_count: usize,
    /// Those of them that both sweeps have an interval for.
    #[serde(default)]
    pub intervals_count: usize,
    /// The other points, which nothing here speaks of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncompared: Vec<Uncompared>,
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
        let mut of_second: BTreeMap<&Setting, &PointOutcome> =
            second.points.iter().map(|p| (&p.setting, p)).collect();
        let same_within = TimingPolicy::default().same_within;
        let (mut compared_count, mut intervals_count, mut other_words_count) = (0, 0, 0);
        let (mut opposite, mut apart, mut uncompared) = (Vec::new(), Vec::new(), Vec::new());
        for a in first.points.iter().skip(1) {
            let setting = a.setting.clone();
            let Some(b) = of_second.remove(&a.setting) else {
                uncompared.push(Uncompared { setting, why: "not in the second sweep".to_owned() });
                continue;
            };
            let (x, y) = match words((first, a), (second, b)) {
                Ok(words) => words,
                Err(why) => {
                    uncompared.push(Uncompared { setting, why });
                    continue;
                }
            };
            compared_count += 1;
            let ratio = |p: &PointOutcome| p.to_baseline.map_or(0.0, |r| r.ratio);
            let difference =
                Difference { setting, first_ratio: ratio(a), second_ratio: ratio(b), first: x, second: y };
            if are_opposed(x, y) {
                opposite.push(difference.clone());
            }
            let intervals = interval(a).zip(interval(b));
            intervals_count += usize::from(intervals.is_some());
            // Either may be the slower one.
            if intervals.is_some_and(|(x, y)| (y.0 / x.1).max(x.0 / y.1) > 1.0 + same_within) {
                apart.push(difference);
            } else if x != y {
                other_words_count += 1;
            }
        }
        let base = first.baseline().map(|b| &b.setting);
        for setting in of_second.into_keys().filter(|s| Some(*s) != base) {
            let why = "not in the first sweep".to_owned();
            uncompared.push(Uncompared { setting: setting.clone(), why });
        }
        let count = u64::try_from(intervals_count).unwrap_or(u64::MAX);
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
            intervals_count,
            uncompared,
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

    /// Why nothing follows from them side by side, where no point could be compared.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        let nothing = self.compared_count == 0;
        nothing.then(|| {
            "no point beside the baseline has a verdict in both sweeps, so nothing was compared; sweep the space to its \
             end in both"
                .to_owned()
        })
    }

    /// Whether nothing contradicts, beyond what chance explains.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.opposite.is_empty() && u64::try_from(self.apart.len()).is_ok_and(|n| n <= self.apart_limit_count)
    }
}

/// The ends of the interval of a timed point's ratio to the baseline.
fn interval(point: &PointOutcome) -> Option<(f64, f64)> {
    let r = point.to_baseline.filter(|_| point.status == PointStatus::Timed)?;
    Some((r.low_ratio?, r.high_ratio?))
}

const fn are_opposed(one: Speed, other: Speed) -> bool {
    matches!((one, other), (Speed::Faster, Speed::Slower) | (Speed::Slower, Speed::Faster))
}

/// The words of both sweeps on one point, against the same setting: those that contradict each other, if any do; or
/// which sweep has none and why.
fn words(
    (first, a): (&SplitOutcome, &PointOutcome),
    (second, b): (&SplitOutcome, &PointOutcome),
) -> Result<(Speed, Speed), String> {
    fn partner<'a>(of: &'a SplitOutcome, point: &PointOutcome) -> Option<&'a Setting> {
        Some(&of.points.get(point.against?)?.setting)
    }
    let alike = partner(first, a).is_some_and(|s| Some(s) == partner(second, b));
    let own = a.speed.zip(b.speed).filter(|_| alike && are_timed(a, b));
    if let Some(words) = own.filter(|w| are_opposed(w.0, w.1)) {
        return Ok(words);
    }
    let to_baseline =
        against_baseline(first, a).map_err(|why| format!("{why} in the first sweep")).and_then(|x| {
            Ok((x, against_baseline(second, b).map_err(|why| format!("{why} in the second sweep"))?))
        });
    match (to_baseline, own) {
        (Ok(words), _) if are_opposed(words.0, words.1) => Ok(words),
        (_, Some(words)) => Ok(words),
        (to_baseline, None) => to_baseline,
    }
}

fn are_timed(a: &PointOutcome, b: &PointOutcome) -> bool {
    [a, b].iter().all(|p| p.status == PointStatus::Timed)
}

/// A sweep's verdict on a point against the baseline, or why it has none.
fn against_baseline(of: &SplitOutcome, point: &PointOutcome) -> Result<Speed, String> {
    if point.status != PointStatus::Timed {
        return Err(point.status.word().to_owned());
    }
    let (Some(speed), Some(against)) = (point.speed, point.against) else {
        return Err("screened alone".to_owned());
    };
    if against == 0 {
        return Ok(speed);
    }
    if let Some(ends) = interval(point) {
        return Ok(word(ends));
    }
    // Stopped early: slower by the margin than a setting whose own ratio to the baseline is known.
    let margin = TimingPolicy::default().slow_margin.unwrap_or(0.0);
    let low = of.points.get(against).and_then(interval).map_or(0.0, |ends| ends.0);
    if speed == Speed::Slower && low * (1.0 + margin) > 1.0 {
        return Ok(Speed::Slower);
    }
    Err(format!("{speed} than setting {against} with no interval to the baseline"))
}

fn word((low, high): (f64, f64)) -> Speed {
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
        if !self.uncompared.is_empty() {
            writeln!(f, "{} points cannot be compared", self.uncompared.len())?;
        }
        for point in self.uncompared.iter().take(UNCOMPARED_SHOWN) {
            writeln!(f, "  {}: {}", point.setting, point.why)?;
        }
        if let Some(more) = self.uncompared.len().checked_sub(UNCOMPARED_SHOWN).filter(|n| *n > 0) {
            writeln!(f, "  and {more} more, which --format json names")?;
        }
        for d in self.opposite.iter().filter(|d| !self.apart.contains(d)) {
            let (a, b) = (d.first_ratio, d.second_ratio);
            writeln!(f, "  opposite: {}: {a:.3} ({}) and {b:.3} ({})", d.setting, d.first, d.second)?;
        }
        for d in &self.apart {
            let (a, b) = (d.first_ratio, d.second_ratio);
            writeln!(f, "  apart: {}: {a:.3} ({}) and {b:.3} ({})", d.setting, d.first, d.second)?;
        }
        if let Some(ratio) = self.second_best_ratio.filter(|_| self.compared_count > 0) {
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
