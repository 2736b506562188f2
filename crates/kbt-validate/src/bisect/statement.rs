//! What was found, for people.

use super::{BisectFinding, BisectResult, BisectStep};

impl BisectResult {
    /// What was found, in one sentence.
    #[must_use]
    pub fn statement(&self) -> String {
        let runs = self.runs_count;
        match &self.finding {
            BisectFinding::Knobs(names) => {
                let what =
                    self.steps.iter().rev().find_map(|s| s.differed.as_ref()).map_or("", |d| d.1.as_str());
                format!("{} ({runs} runs beside the baseline's own; last seen: {what})", names.join(" with "))
            }
            BisectFinding::BaselineFlaky => {
                format!(
                    "the baseline itself is not steady, so no knob can be blamed: {}",
                    self.baseline.statement()
                )
            }
            BisectFinding::Clean => {
                let of_all = |step: &BisectStep| {
                    let place = step.subsets.iter().position(|s| s.len() == self.knobs.len())?;
                    step.runs_by_subset.get(place).copied()
                };
                let all: u32 = self.steps.iter().filter_map(of_all).sum();
                format!(
                    "no difference in {all} runs with all knobs changed, nor in {} with some: nothing to blame at this rate",
                    runs - all.min(runs)
                )
            }
            BisectFinding::Unfinished(names) => {
                format!("the budget of runs ended after {runs}; still among {}", names.join(", "))
            }
        }
    }
}
