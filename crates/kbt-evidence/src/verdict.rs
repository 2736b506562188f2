//! The ladder's steps, the classes of fix they rule on, and a verdict with its evidence.

use crate::{Figure, Known};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The steps of the ladder, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Which roof, which candidates.
    Triage,
    /// What each instruction can do here.
    Rates,
    /// Which role waits for which.
    Trace,
    /// Is there scheduling headroom in the machine code.
    Schedule,
    /// Which cheaper program computes the same.
    Algebra,
    /// Which split of the handoff is best and safe.
    Handoff,
    /// Is the variant right, every time.
    Validate,
}

impl Step {
    /// Every step, in order.
    pub const ALL: [Self; 7] = [
        Self::Triage,
        Self::Rates,
        Self::Trace,
        Self::Schedule,
        Self::Algebra,
        Self::Handoff,
        Self::Validate,
    ];

    /// The step's name in files, options and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Triage => "triage",
            Self::Rates => "rates",
            Self::Trace => "trace",
            Self::Schedule => "schedule",
            Self::Algebra => "algebra",
            Self::Handoff => "handoff",
            Self::Validate => "validate",
        }
    }

    /// Its place on the ladder, from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A class of fix. The ladder rules classes out, so each is wide enough to hold many tricks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FixClass {
    /// Move fewer bytes, or move them better: fusion, reuse, narrower types, coalescing.
    MemoryTraffic,
    /// Keep the tensor cores busier: other tiles, more overlap, a faster MMA type.
    TensorThroughput,
    /// Launch shape: grid, waves, occupancy, launch overhead.
    LaunchShape,
    /// Use a cheaper instruction for an expensive one, on the same pipe or another.
    InstructionChoice,
    /// Give work to another warp role, or change how many warps a role has.
    RoleBalance,
    /// Reorder source or software-pipeline by hand.
    Reorder,
    /// Other register budgets, to remove spills or serialisation.
    RegisterBudget,
    /// Eliminate instructions by algebra.
    Algebra,
    /// Re-pipeline the producer-consumer handoff: split and chunks.
    HandoffSplit,
    /// Repair correctness or determinism first.
    Correctness,
}

impl FixClass {
    /// Every class.
    pub const ALL: [Self; 10] = [
        Self::MemoryTraffic,
        Self::TensorThroughput,
        Self::LaunchShape,
        Self::InstructionChoice,
        Self::RoleBalance,
        Self::Reorder,
        Self::RegisterBudget,
        Self::Algebra,
        Self::HandoffSplit,
        Self::Correctness,
    ];

    /// The class as a phrase for reports.
    #[must_use]
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::MemoryTraffic => "move fewer bytes",
            Self::TensorThroughput => "keep the tensor cores busier",
            Self::LaunchShape => "change the launch shape",
            Self::InstructionChoice => "choose cheaper instructions",
            Self::RoleBalance => "rebalance the warp roles",
            Self::Reorder => "reorder or software-pipeline the source",
            Self::RegisterBudget => "change the register budget",
            Self::Algebra => "eliminate instructions by algebra",
            Self::HandoffSplit => "re-split the producer-consumer handoff",
            Self::Correctness => "repair correctness first",
        }
    }
}

impl fmt::Display for FixClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.phrase())
    }
}

/// Where a class of fix stands after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Evidence says that this class cannot help.
    RuledOut,
    /// It may help; nothing decided yet.
    Open,
    /// Evidence says to do it.
    Recommended,
    /// The step could not tell for want of evidence; it says what would give it.
    Refused,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RuledOut => "ruled out",
            Self::Open => "open",
            Self::Recommended => "recommended",
            Self::Refused => "refused",
        })
    }
}

/// Whether a piece of evidence speaks for a verdict or against it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Supports the verdict.
    For,
    /// Speaks against it.
    Against,
}

/// One statement with the figures it rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Which way it points.
    pub direction: Direction,
    /// What it says, in one sentence.
    pub statement: String,
    /// The numbers behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
}

impl Evidence {
    /// Evidence that supports a verdict.
    #[must_use]
    pub fn supports(statement: impl Into<String>, figures: Vec<Figure>) -> Self {
        Self { direction: Direction::For, statement: statement.into(), figures }
    }

    /// Evidence that speaks against a verdict.
    #[must_use]
    pub fn against(statement: impl Into<String>, figures: Vec<Figure>) -> Self {
        Self { direction: Direction::Against, statement: statement.into(), figures }
    }
}

/// What a step says of one class of fix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The class ruled on.
    pub class: FixClass,
    /// Where it stands.
    pub standing: Standing,
    /// The step that says so.
    pub step: Step,
    /// The reason, in one sentence.
    pub reason: String,
    /// For and against.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// What to do next: the change to make, or the measurement that is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Verdict {
    /// A verdict without evidence yet.
    #[must_use]
    pub fn new(class: FixClass, standing: Standing, step: Step, reason: impl Into<String>) -> Self {
        Self { class, standing, step, reason: reason.into(), evidence: Vec::new(), next: None }
    }

    /// Adds a piece of evidence.
    #[must_use]
    pub fn with(mut self, evidence: Evidence) -> Self {
        self.evidence.push(evidence);
        self
    }

    /// Says what to do next.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// The weakest kind of knowledge among the figures that support it; `None` where no figure does.
    #[must_use]
    pub fn known(&self) -> Option<Known> {
        self.evidence
            .iter()
            .filter(|e| e.direction == Direction::For)
            .flat_map(|e| &e.figures)
            .map(|f| f.provenance.kind)
            .min()
    }

    /// Whether the verdict rests on measurements alone, made now or read back.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.known().is_some_and(Known::is_measurement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Provenance, Unit};

    fn figure(p: Provenance) -> Figure {
        Figure::new("x", 1.0, Unit::Ratio, p)
    }

    #[test]
    fn a_verdict_is_measured_only_if_all_its_supporting_figures_are() {
        let measured = figure(Provenance::measured("c", "d", "2026-11-30"));
        let modelled = figure(Provenance::modelled("m, error 5 %"));
        let v = Verdict::new(FixClass::Reorder, Standing::RuledOut, Step::Schedule, "r");
        assert!(!v.is_measured(), "no figure at all is no measurement");
        let v = v.with(Evidence::supports("a", vec![measured]));
        assert!(v.is_measured());
        let against = v.clone().with(Evidence::against("b", vec![modelled.clone()]));
        assert!(against.is_measured(), "counter-evidence does not weaken the support");
        assert!(!v.with(Evidence::supports("c", vec![modelled])).is_measured());
    }
}
