//! What became of one point of a sweep.

use crate::contract::Integers;
use crate::journal::Entries;
use crate::ranking::ratio_to_baseline;
use crate::record::{CheckOutcome, Ending, Record, Stage};
use crate::space::Point;
use crate::spec::Spec;
use kbt_evidence::Provenance;
use kbt_target::stats::median;
use kbt_target::{Comparison, Setting, Speed, Status, check};
use serde::{Deserialize, Serialize};

/// What is said of a point that was not compared.
const NOT_COMPARED_NOTE: &str = "screened: one process; the time ended before it could be compared";
const SCREENED_NOTE: &str = "screened: one process, which read slower than the settings that were compared";

/// What became of a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PointStatus {
    /// Right, and timed.
    Timed,
    /// Its outputs are wrong, so it has no time.
    Wrong {
        /// What differs.
        why: String,
    },
    /// The kernel's command refused it.
    Refused {
        /// Its reason.
        why: String,
    },
    /// A process of it crashed, hung, or gave no time or output.
    Failed {
        /// How, and in which stage.
        why: String,
        /// Kernel Tuner's word for it.
        timeout: bool,
    },
    /// It could not be checked or timed through no fault of its own.
    Unmeasured {
        /// Why.
        why: String,
    },
    /// The sweep ended before it.
    NotRun,
}

/// A ratio of times with its interval: below 1 is faster than the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RatioFigure {
    /// Time over the baseline's time.
    pub ratio: f64,
    /// Lower end of its interval, where one was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_ratio: Option<f64>,
    /// Upper end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_ratio: Option<f64>,
}

impl RatioFigure {
    pub(crate) fn of(comparison: &Comparison) -> Self {
        Self {
            ratio: comparison.ratio,
            low_ratio: comparison.interval.map(|i| i.low),
            high_ratio: comparison.interval.map(|i| i.high),
        }
    }

    fn times(self, other: Self) -> Self {
        let both = |a: Option<f64>, b: Option<f64>| Some(a? * b?);
        Self {
            ratio: self.ratio * other.ratio,
            low_ratio: both(self.low_ratio, other.low_ratio),
            high_ratio: both(self.high_ratio, other.high_ratio),
        }
    }
}

/// A point of the sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PointOutcome {
    /// Its index in the spec; 0 is the baseline.
    pub index: usize,
    /// Its knobs.
    pub setting: Setting,
    /// The handoff that the kernel uses, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integers: Option<Integers>,
    /// How many other settings are the same kernel.
    pub merged_count: usize,
    /// What became of it.
    pub status: PointStatus,
    /// Whether its outputs are right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckOutcome>,
    /// Median of its processes, each the median of its launches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_us: Option<f64>,
    /// The time of the fastest of them, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_time_us: Option<f64>,
    /// The time of the slowest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_time_us: Option<f64>,
    /// How many processes.
    pub processes_count: usize,
    /// The time of each, in the order in which they ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times_us: Vec<f64>,
    /// Its time over the baseline's, through the settings that it was timed against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_baseline: Option<RatioFigure>,
    /// The verdict against the setting that it was timed against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<Speed>,
    /// The index of that setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<usize>,
    /// Discarded samples, clocks that moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// How its numbers are known.
    pub provenance: Provenance,
}

impl PointOutcome {
    /// What the journal says of a point of the plan.
    #[must_use]
    pub fn new(spec: &Spec, entries: &Entries, point: &Point) -> Self {
        let record = entries.record(point.index);
        let times = record.filter(|r| r.ending == Ending::Timed).map(Record::times_us).unwrap_or_default();
        // An interval of the median would be an honest 95 % from six processes on, and most points have fewer.
        let end =
            |least: fn(f64, f64) -> f64| times.iter().copied().reduce(least).filter(|_| times.len() > 1);
        let comparison = record.and_then(|r| r.comparison.as_ref());
        Self {
            index: point.index,
            setting: point.setting.clone(),
            integers: point.integers,
            merged_count: point.merged.len(),
            status: status(record),
            check: record.and_then(|r| r.check.clone()),
            time_us: median(&times),
            low_time_us: end(f64::min),
            high_time_us: end(f64::max),
            processes_count: times.len(),
            times_us: times,
            to_baseline: to_baseline(entries, point.index),
            speed: comparison.map(|c| c.speed),
            against: record.and_then(|r| r.against),
            notes: match (record, record.and_then(|r| r.screened_ratio)) {
                (None, _) if entries.screened.iter().any(|r| r.index == point.index) => {
                    vec![NOT_COMPARED_NOTE.to_owned()]
                }
                (_, Some(_)) => vec![SCREENED_NOTE.to_owned()],
                _ => comparison.map(|c| c.notes.clone()).unwrap_or_default(),
            },
            provenance: provenance(spec, record),
        }
    }
}

impl PointOutcome {
    /// Whether one process of a screening is all that is known of it: it was left out then, or the sweep ended before it
    /// could be compared.
    #[must_use]
    pub fn is_seen_once(&self) -> bool {
        match self.status {
            PointStatus::Timed => self.index != 0 && self.speed.is_none(),
            PointStatus::NotRun => self.notes.iter().any(|n| n == NOT_COMPARED_NOTE),
            _ => false,
        }
    }
}

impl PointStatus {
    /// The reason, where there is one.
    #[must_use]
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Wrong { why }
            | Self::Refused { why }
            | Self::Failed { why, .. }
            | Self::Unmeasured { why } => Some(why),
            Self::Timed | Self::NotRun => None,
        }
    }

    /// One word for tables.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Timed => "timed",
            Self::Wrong { .. } => "wrong",
            Self::Refused { .. } => "refused",
            Self::Failed { .. } => "failed",
            Self::Unmeasured { .. } => "unmeasured",
            Self::NotRun => "not run",
        }
    }
}

fn status(record: Option<&Record>) -> PointStatus {
    match record.map(|r| &r.ending) {
        None => PointStatus::NotRun,
        Some(Ending::Timed) => PointStatus::Timed,
        Some(Ending::Wrong { statement }) => PointStatus::Wrong { why: statement.clone() },
        Some(Ending::Unmeasured { reason }) => PointStatus::Unmeasured { why: reason.clone() },
        Some(Ending::Failed { status: Status::Refused { reason }, .. }) => {
            PointStatus::Refused { why: reason.clone() }
        }
        Some(Ending::Failed { stage, status, stderr }) => {
            let last = stderr.lines().rev().find(|l| !l.trim().is_empty());
            let last = last.map(|l| format!("; its last words: {}", l.trim())).unwrap_or_default();
            let during = if *stage == Stage::Timing { " while timed" } else { "" };
            let timeout = matches!(status, Status::TimedOut { .. });
            PointStatus::Failed { why: format!("{status}{during}{last}"), timeout }
        }
    }
}

/// The ratio to the baseline with its interval: along the chain the intervals multiply, and their error rates
/// add.
fn to_baseline(entries: &Entries, index: usize) -> Option<RatioFigure> {
    // Asked first, since it ends on a damaged chain too.
    ratio_to_baseline(entries, index)
        .filter(|_| entries.record(index).is_some_and(|r| r.ending == Ending::Timed))?;
    let one = RatioFigure { ratio: 1.0, low_ratio: Some(1.0), high_ratio: Some(1.0) };
    if index == 0 {
        return Some(one);
    }
    let record = entries.record(index)?;
    if let Some(ratio) = record.screened_ratio {
        return Some(RatioFigure { ratio, low_ratio: None, high_ratio: None });
    }
    let before = if record.against == Some(0) { one } else { to_baseline(entries, record.against?)? };
    Some(RatioFigure::of(record.comparison.as_ref()?).times(before))
}

/// A point that was timed was measured; one that was not is only planned.
pub(super) fn provenance(spec: &Spec, record: Option<&Record>) -> Provenance {
    match record.filter(|r| r.ending == Ending::Timed) {
        None => Provenance::given("the sweep's plan: this point has no time"),
        Some(record) => {
            let command =
                format!("kbt split sweep: {} ({})", spec.target.run.command.join(" "), record.setting);
            let mut provenance = check::measured(&command, &record.report);
            provenance.date = Some(record.date.clone());
            provenance
        }
    }
}
