//! What the verdicts of a run add up to, and the rule that gives the ladder's order its teeth.

use kbt_evidence::{FixClass, Standing, Step, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A verdict that a step gave for a class that an earlier step had ruled out with measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Conflict {
    /// The class in question.
    pub class: FixClass,
    /// The step that ruled it out.
    pub ruled_out_by: Step,
    /// Why it did.
    pub reason: String,
    /// The step that now says otherwise.
    pub contradicted_by: Step,
    /// What it says.
    pub claim: String,
}

/// What became of a verdict that was put to the board.
#[derive(Debug, Clone, PartialEq)]
pub enum Ruling {
    /// It stands.
    Accepted,
    /// A recommendation without measurements, against a measured rule-out: it is struck, the rule-out stands.
    Struck(Conflict),
    /// A measured recommendation against a measured rule-out: the ladder must go back to the step that ruled.
    GoBack(Conflict),
}

/// The verdicts of a run so far, with those that were struck or withdrawn kept apart.
#[derive(Debug, Clone, Default)]
pub struct Board {
    standing: Vec<Verdict>,
    struck: Vec<(Verdict, Conflict)>,
    withdrawn: BTreeSet<(Step, FixClass)>,
}

impl Board {
    /// Puts a step's verdict to the board.
    pub fn put(&mut self, mut verdict: Verdict) -> Ruling {
        if verdict.standing == Standing::RuledOut && self.withdrawn.contains(&(verdict.step, verdict.class)) {
            // The later measurement that sent the ladder back outranks a repeated ruling.
            verdict.standing = Standing::Open;
            verdict.reason =
                format!("{} (ruling withdrawn: a later measurement contradicts it)", verdict.reason);
        }
        let ruling = match self.binding(&verdict) {
            None => Ruling::Accepted,
            Some(conflict) if verdict.is_measured() => Ruling::GoBack(conflict),
            Some(conflict) => {
                self.struck.push((verdict, conflict.clone()));
                return Ruling::Struck(conflict);
            }
        };
        if ruling == Ruling::Accepted {
            self.standing.push(verdict);
        }
        ruling
    }

    /// The measured rule-out of an earlier step that a recommendation runs into.
    fn binding(&self, verdict: &Verdict) -> Option<Conflict> {
        if verdict.standing != Standing::Recommended {
            return None;
        }
        self.standing
            .iter()
            .find(|v| {
                v.class == verdict.class
                    && v.standing == Standing::RuledOut
                    && v.step < verdict.step
                    && v.is_measured()
            })
            .map(|v| Conflict {
                class: v.class,
                ruled_out_by: v.step,
                reason: v.reason.clone(),
                contradicted_by: verdict.step,
                claim: verdict.reason.clone(),
            })
    }

    /// Goes back: the step's ruling on the class is withdrawn, and its and all later steps' verdicts leave the
    /// board, to be given again.
    pub fn go_back(&mut self, conflict: &Conflict) {
        self.withdrawn.insert((conflict.ruled_out_by, conflict.class));
        self.standing.retain(|v| v.step < conflict.ruled_out_by);
        self.struck.retain(|(v, _)| v.step < conflict.ruled_out_by);
    }

    /// The verdicts that stand, in the order they were given.
    #[must_use]
    pub fn standing(&self) -> &[Verdict] {
        &self.standing
    }

    /// Recommendations that a measured rule-out struck.
    #[must_use]
    pub fn struck(&self) -> &[(Verdict, Conflict)] {
        &self.struck
    }

    /// The rulings that a later measurement had withdrawn.
    pub fn withdrawn(&self) -> impl Iterator<Item = (Step, FixClass)> + '_ {
        self.withdrawn.iter().copied()
    }

    /// The last word on a class; `None` where no step spoke of it.
    #[must_use]
    pub fn last_word(&self, class: FixClass) -> Option<&Verdict> {
        // A refusal is no word: it leaves an earlier ruling as it is.
        let spoken = |v: &&Verdict| v.class == class && v.standing != Standing::Refused;
        self.standing
            .iter()
            .rev()
            .find(spoken)
            .or_else(|| self.standing.iter().rev().find(|v| v.class == class))
    }

    /// The recommendations that stand, correctness first, then in the ladder's order.
    #[must_use]
    pub fn recommended(&self) -> Vec<&Verdict> {
        let mut found: Vec<&Verdict> = FixClass::ALL
            .iter()
            .filter_map(|c| self.last_word(*c))
            .filter(|v| v.standing == Standing::Recommended)
            .collect();
        found.sort_by_key(|v| (v.class != FixClass::Correctness, v.step));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_evidence::{Evidence, Figure, Provenance, Unit};

    fn verdict(class: FixClass, standing: Standing, step: Step, p: Provenance) -> Verdict {
        let figure = Figure::new("x", 1.0, Unit::Ratio, p);
        Verdict::new(class, standing, step, "because").with(Evidence::supports("seen", vec![figure]))
    }
    fn measured() -> Provenance {
        Provenance::measured("c", "d", "2026-11-30")
    }

    #[test]
    fn a_measured_rule_out_strikes_a_later_recommendation_that_is_only_modelled() {
        let mut board = Board::default();
        board.put(verdict(FixClass::Reorder, Standing::RuledOut, Step::Schedule, measured()));
        let claim =
            verdict(FixClass::Reorder, Standing::Recommended, Step::Handoff, Provenance::modelled("m, 5 %"));
        assert!(matches!(board.put(claim), Ruling::Struck(_)));
        assert!(board.recommended().is_empty());
        assert_eq!(board.struck().len(), 1);
        assert_eq!(board.last_word(FixClass::Reorder).unwrap().standing, Standing::RuledOut);
    }

    #[test]
    fn a_later_measurement_sends_the_ladder_back_and_the_ruling_stays_withdrawn() {
        let mut board = Board::default();
        let rule_out = verdict(FixClass::Reorder, Standing::RuledOut, Step::Schedule, measured());
        board.put(rule_out.clone());
        let claim = verdict(FixClass::Reorder, Standing::Recommended, Step::Handoff, measured());
        let Ruling::GoBack(conflict) = board.put(claim.clone()) else {
            panic!("a measurement must send it back")
        };
        assert_eq!((conflict.ruled_out_by, conflict.contradicted_by), (Step::Schedule, Step::Handoff));
        board.go_back(&conflict);
        board.put(rule_out);
        assert_eq!(board.last_word(FixClass::Reorder).unwrap().standing, Standing::Open);
        assert_eq!(board.put(claim), Ruling::Accepted);
        assert_eq!(board.recommended().len(), 1);
    }

    #[test]
    fn a_rule_out_without_measurements_does_not_bind() {
        let mut board = Board::default();
        board.put(verdict(
            FixClass::Algebra,
            Standing::RuledOut,
            Step::Rates,
            Provenance::published("p", "2026-11-30"),
        ));
        assert_eq!(
            board.put(verdict(FixClass::Algebra, Standing::Recommended, Step::Algebra, measured())),
            Ruling::Accepted
        );
        assert_eq!(board.recommended().len(), 1);
    }

    #[test]
    fn a_refusal_leaves_an_earlier_ruling_and_correctness_comes_first() {
        let mut board = Board::default();
        board.put(verdict(FixClass::Algebra, Standing::Recommended, Step::Algebra, measured()));
        board.put(Verdict::new(FixClass::Algebra, Standing::Refused, Step::Validate, "no"));
        board.put(verdict(FixClass::Correctness, Standing::Recommended, Step::Validate, measured()));
        let classes: Vec<_> = board.recommended().iter().map(|v| v.class).collect();
        assert_eq!(classes, [FixClass::Correctness, FixClass::Algebra]);
    }
}
