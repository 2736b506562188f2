//! What the handoff costs: the same kernel without one, timed against the best setting of the sweep.

use crate::outcome::RatioFigure;
use crate::verdict::{WORTH_HAVING, figure, shown};
use kbt_evidence::{Evidence, FixClass, Provenance, Standing, Step, Verdict};
use kbt_target::{Comparison, Setting, Speed};
use serde::{Deserialize, Serialize};

/// The kernel that hands nothing over, beside the best split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WithoutHandoff {
    /// Its knobs.
    pub setting: Setting,
    /// The best setting of the sweep, which it was timed against.
    pub best: Setting,
    /// The verdict of that comparison.
    pub speed: Speed,
    /// Its time over the best setting's.
    pub to_best: RatioFigure,
    /// How the ratio is known.
    pub provenance: Provenance,
}

impl WithoutHandoff {
    /// From a comparison whose first setting was `best` and whose second was `setting`.
    #[must_use]
    pub fn new(best: Setting, setting: Setting, comparison: &Comparison, provenance: Provenance) -> Self {
        let (speed, to_best) = (comparison.speed, RatioFigure::of(comparison));
        Self { setting, best, speed, to_best, provenance }
    }

    /// In a few words, for a headline.
    #[must_use]
    pub fn headline(&self) -> String {
        let change = self.setting.differs_from(&self.best);
        format!("without the handoff ({change}) {} of the best split's time", shown(&self.to_best))
    }

    /// The verdict on the split, with what the handoff as such costs. Where the kernel is faster without it beyond noise, that
    /// is the advice: no split reaches it.
    pub(crate) fn weigh(&self, split: Verdict) -> Verdict {
        let evidence = Evidence::supports(
            format!("{}: what the handoff costs", self.headline()),
            vec![figure("time without the handoff over the best split's", self.to_best, &self.provenance)],
        );
        let at_most = self.to_best.high_ratio.unwrap_or(f64::INFINITY);
        if self.speed != Speed::Faster || at_most > 1.0 - WORTH_HAVING {
            return split.with(evidence);
        }
        let reason = format!(
            "without the handoff the kernel is {:.1} % faster than with the best split",
            (1.0 / self.to_best.ratio - 1.0) * 100.0
        );
        let mut verdict =
            Verdict::new(FixClass::HandoffSplit, Standing::Recommended, Step::Handoff, reason).with(evidence);
        verdict.evidence.extend(split.evidence);
        verdict.next(format!("set {}", self.setting))
    }
}
