//! What a sweep says of the class of fix "re-split the handoff", and of those that its other knobs belong to.
//!
//! Only points that differ from the baseline in nothing but the handoff speak for or against re-splitting it: a faster
//! tile or number format is another class's win. A recommendation rests on the confirmation, whose samples are fresh. What
//! rules the class out is in `tally`.

use crate::outcome::{Confirmed, PointOutcome, PointStatus, RatioFigure, SplitOutcome};
use crate::record::CheckOutcome;
use crate::tally::{Conclusion, Tally};
use kbt_evidence::{Evidence, Figure, FixClass, Provenance, Standing, Step, Unit, Verdict};
use kbt_target::Speed;

/// A gain smaller than this is not worth keeping the class open for: a point whose interval reaches no further
/// counts as one that cannot beat the baseline.
pub(crate) const WORTH_HAVING: f64 = 0.02;

impl SplitOutcome {
    /// The verdicts of step 5.
    #[must_use]
    pub fn verdicts(&self) -> Vec<Verdict> {
        let split = self.handoff_verdict();
        let split = match &self.without {
            Some(without) => without.weigh(split),
            None => split,
        };
        let other = self.other_verdict();
        // A class has one verdict: a knob that is no part of the handoff may be of its class.
        let told = split.standing == Standing::Refused
            && other.as_ref().is_some_and(|other| other.class == FixClass::HandoffSplit);
        (!told).then_some(split).into_iter().chain(other).collect()
    }

    /// The fastest confirmed setting in which more than the handoff differs, as a win of the class that the first of its
    /// other knobs is of. A sweep tries some values of a class's knobs, so it rules none of these classes out.
    fn other_verdict(&self) -> Option<Verdict> {
        let handoff: Vec<usize> = self.handoff_points().map(|p| p.index).collect();
        let others: Vec<&PointOutcome> =
            self.points.iter().skip(1).filter(|p| !handoff.contains(&p.index)).collect();
        let (point, confirmed) = self.confirmed_faster(&others)?;
        let changed = point.setting.differs_from(&self.baseline()?.setting);
        let class =
            self.varied.iter().filter(|k| changed.0.contains_key(*k)).find_map(|k| self.fixes.get(k))?;
        Some(self.recommend(*class, point, confirmed))
    }

    fn handoff_verdict(&self) -> Verdict {
        let verdict =
            |standing, reason: String| Verdict::new(FixClass::HandoffSplit, standing, Step::Handoff, reason);
        if let Some(why) = &self.refused {
            let has_failed = self.baseline().is_some_and(|b| b.status != PointStatus::NotRun);
            let next = match has_failed {
                true => {
                    "mend what made the baseline fail, then run the sweep again: with --resume in its directory, or in \
                     another one where the target file had to change"
                }
                false => "run the sweep on the device: kbt split sweep TARGET.yaml --out DIR",
            };
            return self.with_model_evidence(verdict(Standing::Refused, why.clone())).next(next);
        }
        let points: Vec<&PointOutcome> = self.handoff_points().collect();
        if points.is_empty() {
            let reason = match self.handoff_knobs.is_empty() {
                true => "the target file names no handoff, so no split was varied",
                false => "no other legal setting of the handoff is among the knobs' values",
            };
            return verdict(Standing::Refused, reason.to_owned())
                .next("name the handoff and more values of its knobs in the target file");
        }
        if let Some((point, confirmed)) = self.confirmed_faster(&points) {
            let verdict = self.recommend(FixClass::HandoffSplit, point, confirmed);
            return self.with_model_evidence(verdict);
        }
        let tally = Tally::of(&points, &self.confirmed);
        let mut result = match tally.conclusion() {
            Conclusion::RuledOut => {
                let reason = format!(
                    "none of the {} other legal settings that could be timed beats the baseline beyond noise",
                    tally.compared.len()
                );
                verdict(Standing::RuledOut, reason)
            }
            Conclusion::NoneTimed => verdict(
                Standing::Open,
                format!("none of the {} other legal settings could be timed", points.len()),
            ),
            Conclusion::Open(next) => verdict(Standing::Open, tally.statement()).next(next),
        };
        if let Some(best) = tally.nearest_compared()
            && let Some(r) = best.to_baseline
        {
            result = result.with(Evidence::supports(
                format!("the best of them, {}, took this part of the baseline's time", self.changed(best)),
                vec![figure_of("best other setting", r, best)],
            ));
        }
        self.with_model_evidence(result)
    }

    fn recommend(&self, class: FixClass, point: &PointOutcome, confirmed: &Confirmed) -> Verdict {
        let ratio =
            confirmed.to_baseline.map(|r| figure("time over the baseline's", r, &confirmed.provenance));
        let standing = match &point.check {
            Some(CheckOutcome::Unchecked { .. }) | None => Standing::Open,
            Some(_) => Standing::Recommended,
        };
        let gain = confirmed.to_baseline.map_or(0.0, |r| (1.0 / r.ratio - 1.0) * 100.0);
        let reason = match standing {
            Standing::Recommended => {
                format!("{} is {gain:.1} % faster than the baseline", self.changed(point))
            }
            _ => format!(
                "{} is {gain:.1} % faster than the baseline, but nobody checked its outputs",
                self.changed(point)
            ),
        };
        let mut verdict = Verdict::new(class, standing, Step::Handoff, reason)
            .with(Evidence::supports(
                "timed against the baseline once more, with fresh processes",
                ratio.into_iter().collect(),
            ))
            .next(match standing {
                Standing::Recommended => format!("set {}", point.setting),
                _ => "list the target's outputs, so that settings can be checked".to_owned(),
            });
        if let Some(worst) = self.worst.and_then(|i| self.points.get(i)).filter(|p| p.index != 0)
            && let Some(r) = worst.to_baseline
        {
            verdict = verdict.with(Evidence::supports(
                format!("the worst legal setting, {}, took this part of it", self.changed(worst)),
                vec![figure_of("worst setting", r, worst)],
            ));
        }
        verdict
    }

    /// The fastest confirmed setting among points of the handoff alone.
    fn confirmed_faster(&self, points: &[&PointOutcome]) -> Option<(&PointOutcome, &Confirmed)> {
        let faster = self.confirmed.iter().filter(|c| c.speed == Some(Speed::Faster));
        let among = faster.filter(|c| points.iter().any(|p| p.index == c.index));
        let best = among.min_by(|a, b| {
            let ratio = |c: &Confirmed| c.to_baseline.map_or(1.0, |r| r.ratio);
            ratio(a).total_cmp(&ratio(b))
        })?;
        Some((self.points.get(best.index)?, best))
    }

    /// What the model says, as a statement for the reader. It is weaker evidence than a measurement, so its
    /// figures go where they cannot weaken one: they stand on neither side of a measured verdict's support.
    fn with_model_evidence(&self, verdict: Verdict) -> Verdict {
        let Some(model) = &self.model else { return verdict };
        let Some(best) = model.best() else { return verdict };
        let score = match &model.score {
            Some(s) => format!(
                "rank correlation {}, largest error {:.1} % over {} measured points",
                s.rank_correlation.map_or_else(|| "undefined".to_owned(), |r| format!("{r:.2}")),
                s.max_error_percent,
                s.points_count
            ),
            None => "not scored: no measured sweep beside it".to_owned(),
        };
        // A model to which all handoffs are the same speaks for none of them, and against none.
        if model.is_flat() {
            let reason = format!(
                "{}; the model cannot tell, as it sees no difference between the handoffs",
                verdict.reason
            );
            return Verdict { reason, ..verdict };
        }
        let statement = format!("the model (modelled; {score}) has its shortest period at {}", best.integers);
        verdict.with(Evidence::supports(statement, Vec::new()))
    }

    /// A setting as its difference from the baseline.
    pub(crate) fn changed(&self, point: &PointOutcome) -> String {
        let base = self.baseline().map(|b| b.setting.clone()).unwrap_or_default();
        let changed = point.setting.differs_from(&base);
        if changed.0.is_empty() { "the baseline".to_owned() } else { changed.to_string() }
    }
}

/// A ratio of one comparison.
pub(crate) fn figure(name: &str, r: RatioFigure, provenance: &Provenance) -> Figure {
    spread(name, r, provenance, "interval at the stated error rate")
}

/// A point's ratio to the baseline, which may be a product of several comparisons.
fn figure_of(name: &str, r: RatioFigure, point: &PointOutcome) -> Figure {
    let what = match point.against {
        Some(0) | None => "interval at the stated error rate",
        Some(_) => "product of the intervals of several comparisons, whose error rates add",
    };
    spread(name, r, &point.provenance, what)
}

fn spread(name: &str, r: RatioFigure, provenance: &Provenance, what: &str) -> Figure {
    let figure = Figure::new(name, r.ratio, Unit::Ratio, provenance.clone());
    match (r.low_ratio, r.high_ratio) {
        (Some(low), Some(high)) => figure.with_spread(low, high, what),
        _ => figure,
    }
}

/// A ratio as people read it.
pub(crate) fn shown(r: &RatioFigure) -> String {
    match (r.low_ratio, r.high_ratio) {
        (Some(low), Some(high)) => format!("{:.3} ({low:.3} to {high:.3})", r.ratio),
        _ => format!("{:.3}", r.ratio),
    }
}
