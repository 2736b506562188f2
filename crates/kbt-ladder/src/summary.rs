//! What a run came to: `summary.json` and the lines on the terminal.

use crate::{Board, Conflict, Origin, RunSpec, StepRecord};
use kbt_evidence::{FixClass, Known, Standing, Step, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// One step in one line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepLine {
    /// The step.
    pub step: Step,
    /// Where its numbers came from.
    pub origin: Origin,
    /// What it says.
    pub headline: String,
    /// If refused: what would give the evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<String>,
}

/// The last word on a class of fix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassLine {
    /// The class.
    pub class: FixClass,
    /// Where it stands.
    pub standing: Standing,
    /// Who says so.
    pub step: Step,
    /// Why.
    pub reason: String,
    /// The weakest kind of knowledge behind it; absent where no figure supports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<Known>,
}

/// What the run says to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The verdict behind it, with its evidence.
    pub verdict: Verdict,
}

/// `summary.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Always `kbt.summary/1`.
    pub schema: String,
    /// What the run was asked.
    pub run: RunSpec,
    /// One line a step.
    pub steps: Vec<StepLine>,
    /// Every class that a step spoke of.
    pub classes: Vec<ClassLine>,
    /// What to do, most urgent first; empty where nothing is recommended.
    pub recommendations: Vec<Recommendation>,
    /// Recommendations that a measured rule-out struck.
    pub struck: Vec<Conflict>,
    /// Later measurements that sent the ladder back.
    pub sent_back: Vec<Conflict>,
}

impl Summary {
    /// The schema that summaries state.
    pub const SCHEMA: &'static str = "kbt.summary/1";

    /// The summary of a finished walk.
    #[must_use]
    pub fn new(
        run: RunSpec,
        steps: &BTreeMap<Step, StepRecord>,
        board: &Board,
        sent_back: &[Conflict],
    ) -> Self {
        Self {
            schema: Self::SCHEMA.into(),
            run,
            steps: steps
                .values()
                .map(|r| StepLine {
                    step: r.step,
                    origin: r.origin,
                    headline: r.headline.clone(),
                    needs: r.needs.clone(),
                })
                .collect(),
            classes: FixClass::ALL
                .iter()
                .filter_map(|c| board.last_word(*c))
                .map(|v| ClassLine {
                    class: v.class,
                    standing: v.standing,
                    step: v.step,
                    reason: v.reason.clone(),
                    known: v.known(),
                })
                .collect(),
            recommendations: board
                .recommended()
                .into_iter()
                .map(|v| Recommendation { verdict: v.clone() })
                .collect(),
            struck: board.struck().iter().map(|(_, c)| c.clone()).collect(),
            sent_back: sent_back.to_vec(),
        }
    }

    /// For the terminal: one line a step, then where each class stands, then the recommendation.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut text = String::new();
        let mut line = |s: String| {
            text.push_str(&s);
            text.push('\n');
        };
        for s in &self.steps {
            let origin = match s.origin {
                Origin::Live => "live",
                Origin::Recorded => "recorded",
                Origin::Refused => "refused",
            };
            line(format!("{} {:<9} {:<9} {}", s.step.index(), s.step.as_str(), origin, s.headline));
            if let Some(needs) = &s.needs {
                line(format!("{:22}needs: {needs}", ""));
            }
        }
        for c in &self.sent_back {
            line(format!(
                "went back to {}: {} measured that `{}` can help after all ({})",
                c.ruled_out_by, c.contradicted_by, c.class, c.claim
            ));
        }
        for c in &self.struck {
            line(format!(
                "struck: {} recommended `{}`, which {} ruled out by measurement",
                c.contradicted_by, c.class, c.ruled_out_by
            ));
        }
        line(String::new());
        for c in &self.classes {
            let known = c.known.map_or(String::new(), |k| format!(" [{k}]"));
            line(format!("{:<11} {} ({}){known}: {}", c.standing.to_string(), c.class, c.step, c.reason));
        }
        line(String::new());
        match self.recommendations.split_first() {
            None => line("recommendation: none; no class of fix has evidence for it".into()),
            Some((first, rest)) => {
                line(format!("recommendation: {}: {}", first.verdict.class, first.verdict.reason));
                let mut next = |r: &Recommendation| {
                    if let Some(next) = &r.verdict.next {
                        line(format!("  do: {next}"));
                    }
                };
                next(first);
                for r in rest {
                    let mut also = String::new();
                    let _ = write!(also, "  then: {}: {}", r.verdict.class, r.verdict.reason);
                    line(also);
                }
            }
        }
        text
    }
}
