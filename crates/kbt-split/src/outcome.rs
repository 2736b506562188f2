//! What a sweep found: `kbt.split/1`. Built from the plan and the journal, so it can be made again at any time.

use crate::contract::Integers;
use crate::journal::Entries;
use crate::model::{HandoffTimes, TimesError};
use crate::ranking::{fastest_confirmed, ratio_to_baseline};
use crate::record::{CheckOutcome, Confirmation, Ending, Record, Stage};
use crate::score::ModelCurve;
use crate::space::{Excluded, Forbidden, Point};
use crate::spec::Spec;
use crate::without::WithoutHandoff;
use kbt_evidence::Provenance;
use kbt_target::stats::{Interval, bootstrap_median, median};
use kbt_target::{Comparison, Setting, Speed, Status, check};
use serde::{Deserialize, Serialize};

/// The schema that outcomes state.
pub const SCHEMA: &str = "kbt.split/1";

/// Confidence of the interval of a point's own time. Its ratio is the sounder figure.
const TIME_LEVEL: f64 = 0.95;

/// What is said of a point that was not compared.
const SCREENED_NOTE: &str = "screened: one process, slower than those that were compared";

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
    /// Lower end of the 95 % bootstrap interval of that median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low_time_us: Option<f64>,
    /// Upper end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_time_us: Option<f64>,
    /// How many processes.
    pub processes_count: usize,
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

/// A setting's direct comparison with the baseline, on fresh samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Confirmed {
    /// The index of the setting.
    pub index: usize,
    /// The verdict; absent where a process failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<Speed>,
    /// Its time over the baseline's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_baseline: Option<RatioFigure>,
    /// The chance that two equal settings are called faster or slower.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_rate_ratio: Option<f64>,
    /// What failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// How its numbers are known.
    pub provenance: Provenance,
}

/// The whole outcome of step 5.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SplitOutcome {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The target's name.
    pub target: String,
    /// Why there is no measurement, where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The knobs that were varied.
    pub varied: Vec<String>,
    /// Those of them that set the handoff.
    pub handoff_knobs: Vec<String>,
    /// The points, the baseline first.
    pub points: Vec<PointOutcome>,
    /// The index of the fastest setting that was confirmed to be faster than the baseline; where none was, of the
    /// compared point with the lowest ratio, which may be the baseline itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<usize>,
    /// The index of the point with the highest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst: Option<usize>,
    /// The best settings against the baseline once more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirmed: Vec<Confirmed>,
    /// Settings that the contract forbids; never run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forbidden: Vec<Forbidden>,
    /// Combinations that the target's constraints exclude.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<Excluded>,
    /// Seconds of processes and rests on devices, all workers together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_s: Option<f64>,
    /// The modelled curve and its score against the measured points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelCurve>,
    /// The kernel without a handoff against the best setting, where it has such a form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub without: Option<WithoutHandoff>,
    /// How the counts here are known; each point has a provenance of its own.
    pub provenance: Provenance,
}

impl SplitOutcome {
    /// What the journal says of the plan.
    #[must_use]
    pub fn new(spec: &Spec, entries: &Entries) -> Self {
        let points: Vec<PointOutcome> =
            spec.space.points.iter().map(|p| PointOutcome::new(spec, entries, p)).collect();
        let ratio = |p: &&PointOutcome| p.to_baseline.map(|r| r.ratio);
        let timed = || points.iter().filter(|p| p.status == PointStatus::Timed && p.to_baseline.is_some());
        let by_ratio = |a: &&PointOutcome, b: &&PointOutcome| {
            ratio(a).unwrap_or(f64::NAN).total_cmp(&ratio(b).unwrap_or(f64::NAN))
        };
        let confirmed: Vec<Confirmed> =
            entries.confirmations.iter().map(|c| confirmed(spec, entries, c)).collect();
        // A lone sample of a screening is no rival of a comparison: it may be the lucky one of hundreds.
        let compared = || timed().filter(|p| p.index == 0 || p.speed.is_some());
        let best = fastest_confirmed(entries).or_else(|| compared().min_by(by_ratio).map(|p| p.index));
        let worst = timed().max_by(by_ratio).map(|p| p.index);
        let refused = match points.first().map(|p| &p.status) {
            Some(PointStatus::Timed) => None,
            Some(PointStatus::NotRun) | None => Some("no point was run".to_owned()),
            Some(status) => {
                Some(format!("the baseline could not be measured: {}", status.why().unwrap_or_default()))
            }
        };
        let how = format!("the plan and the journal of the sweep of {}", spec.target.name);
        Self {
            schema: SCHEMA.to_owned(),
            target: spec.target.name.clone(),
            refused,
            varied: spec.space.varied.clone(),
            handoff_knobs: spec.space.handoff_knobs.clone(),
            best,
            worst,
            confirmed,
            points,
            forbidden: spec.space.forbidden.clone(),
            excluded: spec.space.excluded.clone(),
            device_s: Some(entries.device_s()).filter(|s| *s > 0.0),
            model: None,
            without: None,
            provenance: Provenance::given(how),
        }
    }

    /// The outcome of a step that had nothing to measure with: the legal points are there, unrun.
    #[must_use]
    pub fn unmeasured(spec: &Spec, why: impl Into<String>) -> Self {
        Self { refused: Some(why.into()), ..Self::new(spec, &Entries::default()) }
    }

    /// Adds the modelled curve, scored against the points that were measured.
    ///
    /// # Errors
    /// Where the times cannot be.
    pub fn with_model(mut self, times: &HandoffTimes) -> Result<Self, TimesError> {
        self.model = Some(ModelCurve::new(times, &self)?);
        Ok(self)
    }

    /// The same outcome read back from a file: measurements become recordings.
    #[must_use]
    pub fn read_back(mut self) -> Self {
        let provenances = self.points.iter_mut().map(|p| &mut p.provenance);
        for provenance in provenances.chain(self.confirmed.iter_mut().map(|c| &mut c.provenance)) {
            *provenance = provenance.clone().read_back();
        }
        if let Some(without) = &mut self.without {
            without.provenance = without.provenance.clone().read_back();
        }
        self.model = self.model.map(ModelCurve::read_back);
        self
    }

    /// The baseline, where there is one.
    #[must_use]
    pub fn baseline(&self) -> Option<&PointOutcome> {
        self.points.first()
    }

    /// The points that differ from the baseline in how the handoff is set, and in nothing else.
    pub fn handoff_points(&self) -> impl Iterator<Item = &PointOutcome> {
        let base = self.baseline().map(|b| &b.setting);
        self.points.iter().skip(1).filter(move |p| {
            base.is_some_and(|b| p.setting.differs_from(b).0.keys().all(|k| self.handoff_knobs.contains(k)))
        })
    }
}

impl PointOutcome {
    /// What the journal says of a point of the plan.
    #[must_use]
    pub fn new(spec: &Spec, entries: &Entries, point: &Point) -> Self {
        let record = entries.record(point.index);
        let times = record.filter(|r| r.ending == Ending::Timed).map(Record::times_us).unwrap_or_default();
        let interval: Option<Interval> =
            (times.len() > 1).then(|| bootstrap_median(&times, TIME_LEVEL, 2000, spec.timing.seed)).flatten();
        let comparison = record.and_then(|r| r.comparison.as_ref());
        Self {
            index: point.index,
            setting: point.setting.clone(),
            integers: point.integers,
            merged_count: point.merged.len(),
            status: status(record),
            check: record.and_then(|r| r.check.clone()),
            time_us: median(&times),
            low_time_us: interval.map(|i| i.low),
            high_time_us: interval.map(|i| i.high),
            processes_count: times.len(),
            to_baseline: to_baseline(entries, point.index),
            speed: comparison.map(|c| c.speed),
            against: record.and_then(|r| r.against),
            notes: match record.and_then(|r| r.screened_ratio) {
                Some(_) => vec![SCREENED_NOTE.to_owned()],
                None => comparison.map(|c| c.notes.clone()).unwrap_or_default(),
            },
            provenance: provenance(spec, record),
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

fn confirmed(spec: &Spec, entries: &Entries, c: &Confirmation) -> Confirmed {
    let comparison = c.comparison.as_ref();
    Confirmed {
        index: c.index,
        speed: comparison.map(|c| c.speed),
        to_baseline: comparison.map(RatioFigure::of),
        error_rate_ratio: comparison.map(|c| c.error_rate),
        problem: c.problem.clone(),
        provenance: provenance(spec, entries.record(c.index)),
    }
}

/// A point that was timed was measured; one that was not is only planned.
fn provenance(spec: &Spec, record: Option<&Record>) -> Provenance {
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
