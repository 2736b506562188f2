//! What comes next where no experiment is left: a conflict to settle, a change to keep, a measurement.

use crate::candidates;
use crate::outcome::{CandidateRow, CandidateStanding as Standing, CheckStatus, Reading, TriageOutcome};

/// What to do, and what would show that what is said so far is wrong.
pub(crate) struct Next {
    pub(crate) action: String,
    pub(crate) falsified: String,
}

impl TriageOutcome {
    /// What comes next in a diagnosis without an experiment.
    pub(crate) fn next(&self) -> Next {
        if let Some(settle) = self.contradictions.iter().find(|c| c.settle_first) {
            let cause = settle.causes.first().map_or("", String::as_str);
            return Next {
                action: format!("settle the conflict first, no change can be predicted before: {cause}"),
                falsified: "the conflict stands where that is not so".to_owned(),
            };
        }
        if let Some((id, percent)) = self.confirmed() {
            return Next {
                action: format!(
                    "keep the change of {id}, and triage the changed kernel on a sheet of its own, with its own time"
                ),
                falsified: format!(
                    "wrong if that kernel, timed again beside the present one, does not take {percent:.1} % of its time"
                ),
            };
        }
        match (self.to_measure(), self.lead()) {
            (Some(needed), Some(lead)) => Next {
                action: format!("measure {needed}"),
                falsified: format!(
                    "what it reads speaks for {} ({}), or against it",
                    lead.title, lead.candidate
                ),
            },
            (Some(needed), None) => Next {
                action: format!("measure {needed}"),
                falsified: "no candidate is left that it could not speak for".to_owned(),
            },
            (None, _) => Next {
                action: "time the call again, with its spread".to_owned(),
                falsified: "the call is wrong if the time moves by more than its margin".to_owned(),
            },
        }
    }

    /// The candidate that an experiment confirmed, with what it left of the time.
    pub(crate) fn confirmed(&self) -> Option<(&str, f64)> {
        let row = self.evidence.iter().find(|r| r.standing == Standing::Confirmed)?;
        let of =
            |r: &&crate::outcome::ResultRow| r.experiment == row.candidate && r.reading == Reading::Confirmed;
        let result = self.results.iter().rev().find(of)?;
        Some((&row.candidate, result.observed.value * 100.0))
    }

    /// Whether all candidates that a check speaks for are of classes that an experiment or a step has ruled out.
    fn is_out(&self, check: &str) -> bool {
        let out = |r: &CandidateRow| matches!(r.standing, Standing::Refuted | Standing::Barred);
        candidates::all().filter(|c| c.checks.contains(&check)).all(|c| {
            let mut rows = self.evidence.iter().filter(|r| r.class == c.class).peekable();
            rows.peek().is_some() && rows.all(out)
        })
    }

    /// What would tell most where nothing is left to change: of the first suspect, else of the first check that could
    /// not be evaluated.
    fn to_measure(&self) -> Option<&String> {
        let open =
            self.checks.iter().filter(|c| c.status == CheckStatus::NotEvaluated && !self.is_out(&c.id));
        let check = || open.clone().find_map(|c| c.needed.first());
        self.lead().and_then(|r| r.needed.first()).or_else(check)
    }
}
