//! What a sweep found: `kbt.split/1`. Built from the plan and the journal, so it can be made again at any time.

use crate::journal::Entries;
use crate::model::{HandoffTimes, TimesError};
use crate::ranking::fastest_confirmed;
use crate::record::Confirmation;
use crate::score::ModelCurve;
use crate::space::{Excluded, Forbidden};
use crate::spec::Spec;
use crate::without::WithoutHandoff;
use kbt_evidence::{FixClass, Provenance};
use kbt_target::Speed;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

mod point;

use point::provenance;
pub use point::{PointOutcome, PointStatus, RatioFigure};

/// The schema that outcomes state.
pub const SCHEMA: &str = "kbt.split/1";

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
    /// The class of fix that a gain by each other of them counts as.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fixes: BTreeMap<String, FixClass>,
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
            fixes: fixes(spec),
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

/// The class of each varied knob that is not the handoff's.
fn fixes(spec: &Spec) -> BTreeMap<String, FixClass> {
    let space = &spec.space;
    let others = spec
        .target
        .knobs
        .iter()
        .filter(|k| space.varied.contains(&k.name) && !space.handoff_knobs.contains(&k.name));
    others.map(|k| (k.name.clone(), k.fix.unwrap_or(FixClass::LaunchShape))).collect()
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
