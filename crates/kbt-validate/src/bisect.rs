//! Which knob is to blame: delta debugging (ddmin) with a predicate that only shows itself in some runs.
//!
//! A setting that differs once is to blame for certain; one that does not may only have been lucky. So the
//! subsets of a step are not tried one after the other, each until it counts as clean, but in turns until one of
//! them differs: the guilty one then shows itself after about 1/rate runs of its own, and no innocent one is
//! ever chosen. Only where all subsets stay clean for as many runs as the rate demands is the step refined; for
//! twice as many where their union was seen to differ, because then one of them is guilty unless they act together.
//! A subset's clean runs of earlier steps count: those of another step were runs of the same setting.
//! The unchanged baseline is run against itself before anything is blamed.

use crate::flake::{FlakeFinding, FlakePlan, FlakeResult, flake};
use crate::runner::{RunOutput, Runner};
use crate::stats::runs_needed;
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An environment variable with the value that is known to be good and the one under suspicion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Knob {
    /// The variable.
    pub name: String,
    /// Its value in the baseline.
    pub base: String,
    /// Its changed value.
    pub changed: String,
}

/// What counts as a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    /// The output differs from the baseline's for the same input set.
    Baseline,
    /// The output differs from that of another run of the same setting: for knobs that may change the output,
    /// but not from run to run.
    Itself,
}

/// How long to look.
#[derive(Debug, Clone, PartialEq)]
pub struct BisectPlan {
    /// The rate of the fault looked for.
    pub rate: f64,
    /// The confidence with which a setting without a difference counts as clean.
    pub confidence: f64,
    /// Runs in all, beside the baseline's own.
    pub max_runs: u32,
    /// Input sets that take turns.
    pub sets: u32,
    /// What counts as a difference.
    pub against: Against,
}

impl Default for BisectPlan {
    fn default() -> Self {
        Self { rate: 0.05, confidence: 0.95, max_runs: 300, sets: 2, against: Against::Baseline }
    }
}

/// What bisecting found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BisectFinding {
    /// These knobs, changed together and the others not, give a difference; no part of them was seen to.
    Knobs(Vec<String>),
    /// The baseline differs from itself, so no knob can be blamed.
    BaselineFlaky,
    /// With all knobs changed no difference showed.
    Clean,
    /// The budget ended; the knobs to blame are among these.
    Unfinished(Vec<String>),
}

/// The settings tried in turns, and how it went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BisectStep {
    /// The sets of changed knobs.
    pub subsets: Vec<Vec<String>>,
    /// Runs made in this step.
    pub runs_count: u32,
    /// How many of them each of the subsets had.
    #[serde(default)]
    pub runs_by_subset: Vec<u32>,
    /// The subset that differed, by its place above, and what was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differed: Option<(String, String)>,
}

/// The outcome of [`bisect`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BisectResult {
    /// `kbt.validate/1`.
    pub schema: String,
    /// Where and how it ran.
    pub provenance: Provenance,
    /// The knobs and their values.
    pub knobs: Vec<Knob>,
    /// What counted as a difference.
    pub against: Against,
    /// The rate looked for.
    pub rate_ratio: f64,
    /// The confidence asked for.
    pub confidence_ratio: f64,
    /// The baseline against itself.
    pub baseline: FlakeResult,
    /// What was tried, in order.
    pub steps: Vec<BisectStep>,
    /// Runs beside the baseline's own.
    pub runs_count: u32,
    /// What was found.
    pub finding: BisectFinding,
}

/// Why bisecting could not begin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BisectError {
    /// There is nothing to choose from.
    #[error("no knob to blame; give at least one with a base and a changed value")]
    NoKnobs,
    /// One name twice.
    #[error("knob `{0}` is given twice")]
    Twice(String),
    /// A knob that nothing changes cannot be to blame.
    #[error("knob `{0}` has one value for base and changed; give two")]
    Unchanged(String),
    /// The rate or the confidence is no proportion.
    #[error("rate and confidence must lie between 0 and 1, and neither at an end")]
    Proportion,
    /// Outputs of other inputs differ by right.
    #[error(
        "{0}: a difference would blame a knob for what the inputs did; make the inputs once, save them, and have every \
         run read them"
    )]
    OtherInputs(String),
    /// The baseline does not run.
    #[error("the baseline gave no output: {0}")]
    Baseline(String),
}

/// Finds a smallest set of changed knobs that gives a difference.
///
/// # Errors
/// Where the knobs or the plan make no sense, or the baseline does not run.
pub fn bisect(
    runner: &dyn Runner,
    knobs: &[Knob],
    plan: &BisectPlan,
    provenance: Provenance,
) -> Result<BisectResult, BisectError> {
    if knobs.is_empty() {
        return Err(BisectError::NoKnobs);
    }
    let twice = knobs.iter().enumerate().find(|(i, k)| knobs[..*i].iter().any(|other| other.name == k.name));
    if let Some((_, knob)) = twice {
        return Err(BisectError::Twice(knob.name.clone()));
    }
    if let Some(knob) = knobs.iter().find(|k| k.base == k.changed) {
        return Err(BisectError::Unchanged(knob.name.clone()));
    }
    let clean = runs_needed(plan.rate, plan.confidence).ok_or(BisectError::Proportion)?;
    let sets = plan.sets.max(1);
    let base_plan = FlakePlan {
        runs: clean.max(sets),
        sets,
        confidence: plan.confidence,
        target_rate: plan.rate,
        env: setting(knobs, &[]),
    };
    let mut references = BTreeMap::new();
    for set in 0..sets {
        let output = runner.run(&base_plan.env, set).map_err(|e| BisectError::Baseline(e.to_string()))?;
        references.insert(set, output);
    }
    let mut baseline = flake(runner, &base_plan, &references, provenance.clone());
    // Nobody saved those outputs: they are the baseline's own first runs.
    baseline.against_reference = false;
    if baseline.finding == FlakeFinding::DiffersFromReference {
        baseline.finding = FlakeFinding::DiffersFromItself;
        if let Some(first) = &mut baseline.first {
            first.what.push_str(", where the first is of bisect's own first run on that set");
        }
    }
    if let (FlakeFinding::OtherInputs, Some(first)) = (baseline.finding, &baseline.first) {
        let (set, what) = (first.set_index, &first.what);
        return Err(BisectError::OtherInputs(format!(
            "the baseline's own runs on input set {set} were computed from other values of {what}"
        )));
    }
    let mut search = Search {
        runner,
        knobs,
        plan,
        references,
        clean,
        runs: 0,
        steps: Vec::new(),
        clean_runs: BTreeMap::new(),
    };
    let finding = if baseline.passed() { search.minimise()? } else { BisectFinding::BaselineFlaky };
    Ok(BisectResult {
        schema: crate::SCHEMA.to_owned(),
        provenance,
        knobs: knobs.to_vec(),
        against: plan.against,
        rate_ratio: plan.rate,
        confidence_ratio: plan.confidence,
        baseline,
        steps: search.steps,
        runs_count: search.runs,
        finding,
    })
}

/// The environment with the knobs in `changed` changed.
fn setting(knobs: &[Knob], changed: &[usize]) -> Vec<(String, String)> {
    let value = |(i, k): (usize, &Knob)| {
        (k.name.clone(), if changed.contains(&i) { k.changed.clone() } else { k.base.clone() })
    };
    knobs.iter().enumerate().map(value).collect()
}

enum Tried {
    /// The subset at this place differs.
    Differs(usize),
    /// None did.
    Clean,
    /// The budget ended before it was known.
    Budget,
}

/// What one run showed.
enum Run {
    /// It differs from what it was held against.
    Differs(String),
    /// It does not.
    Same,
    /// It was held against nothing: it is what the next ones are held against.
    First,
}

struct Search<'a> {
    runner: &'a dyn Runner,
    knobs: &'a [Knob],
    plan: &'a BisectPlan,
    references: BTreeMap<u32, RunOutput>,
    clean: u32,
    runs: u32,
    steps: Vec<BisectStep>,
    /// Runs without a difference, by the knobs that were changed.
    clean_runs: BTreeMap<Vec<usize>, u32>,
}

impl Search<'_> {
    /// Zeller and Hildebrandt's ddmin, over indices of knobs.
    fn minimise(&mut self) -> Result<BisectFinding, BisectError> {
        let mut suspects: Vec<usize> = (0..self.knobs.len()).collect();
        let mut parts = 2;
        // Whether the suspects together were seen to differ.
        let mut seen = false;
        loop {
            if suspects.len() == 1 && seen {
                return Ok(BisectFinding::Knobs(self.names(&suspects)));
            }
            parts = parts.min(suspects.len());
            let candidates = split(&suspects, parts);
            let rounds = if seen { 2 * self.clean } else { self.clean };
            match self.try_in_turns(&candidates, rounds)? {
                Tried::Budget => return Ok(BisectFinding::Unfinished(self.names(&suspects))),
                Tried::Differs(place) => {
                    // The subsets come first; where a complement is chosen, the size of the parts stays.
                    parts = if place < parts { 2 } else { (parts - 1).max(2) };
                    suspects = candidates[place].clone();
                    seen = true;
                }
                Tried::Clean if suspects.len() == 1 => return Ok(BisectFinding::Clean),
                Tried::Clean => {
                    if !seen {
                        match self.try_in_turns(&[suspects.clone()], self.clean)? {
                            Tried::Budget => return Ok(BisectFinding::Unfinished(self.names(&suspects))),
                            Tried::Clean => return Ok(BisectFinding::Clean),
                            Tried::Differs(_) => seen = true,
                        }
                    }
                    if parts >= suspects.len() {
                        return Ok(BisectFinding::Knobs(self.names(&suspects)));
                    }
                    parts = (parts * 2).min(suspects.len());
                }
            }
        }
    }

    fn names(&self, indices: &[usize]) -> Vec<String> {
        indices.iter().map(|&i| self.knobs[i].name.clone()).collect()
    }

    /// Runs the candidates in turns until one differs or all have been clean for so many runs, earlier ones included.
    fn try_in_turns(&mut self, candidates: &[Vec<usize>], rounds: u32) -> Result<Tried, BisectError> {
        let mut step = BisectStep {
            subsets: candidates.iter().map(|c| self.names(c)).collect(),
            runs_count: 0,
            runs_by_subset: vec![0; candidates.len()],
            differed: None,
        };
        let mut own: Vec<BTreeMap<u32, RunOutput>> = vec![BTreeMap::new(); candidates.len()];
        if self.plan.against == Against::Itself {
            // Without the outputs that they were held against, earlier runs do not count.
            self.clean_runs.clear();
        }
        let mut result = Tried::Clean;
        let is_clean = |s: &Self, c: &Vec<usize>| s.clean_runs.get(c).is_some_and(|n| *n >= rounds);
        'rounds: while !candidates.iter().all(|c| is_clean(self, c)) {
            for (place, candidate) in candidates.iter().enumerate() {
                let clean = self.clean_runs.get(candidate).copied().unwrap_or(0);
                if clean >= rounds {
                    continue;
                }
                if self.runs >= self.plan.max_runs {
                    result = Tried::Budget;
                    break 'rounds;
                }
                self.runs += 1;
                step.runs_count += 1;
                step.runs_by_subset[place] += 1;
                let earlier = match self.plan.against {
                    Against::Baseline => clean,
                    Against::Itself => step.runs_by_subset[place] - 1,
                };
                match self.run(candidate, earlier % self.plan.sets.max(1), &mut own[place])? {
                    Run::Differs(what) => {
                        step.differed = Some((step.subsets[place].join(" "), what));
                        result = Tried::Differs(place);
                        break 'rounds;
                    }
                    Run::Same => {
                        self.clean_runs.insert(candidate.clone(), clean + 1);
                    }
                    Run::First => {}
                }
            }
        }
        if step.runs_count > 0 || matches!(result, Tried::Budget) {
            self.steps.push(step);
        }
        Ok(result)
    }

    /// One run. A run without an output is a difference too: the baseline always gave one.
    fn run(
        &self,
        changed: &[usize],
        set: u32,
        own: &mut BTreeMap<u32, RunOutput>,
    ) -> Result<Run, BisectError> {
        let output = match self.runner.run(&setting(self.knobs, changed), set) {
            Ok(output) => output,
            Err(failure) => return Ok(Run::Differs(failure.to_string())),
        };
        let known = self.references.get(&set);
        if let Some(input) = known.and_then(|k| k.other_input(&output)) {
            let names = self.names(changed).join(" ");
            return Err(BisectError::OtherInputs(format!(
                "with {names} changed, the output of input set {set} was computed from another input `{input}` than the \
                 baseline's"
            )));
        }
        let known = match self.plan.against {
            Against::Baseline => known,
            Against::Itself => own.get(&set),
        };
        let Some(known) = known else {
            own.insert(set, output);
            return Ok(Run::First);
        };
        Ok(known.difference(&output).map_or(Run::Same, Run::Differs))
    }
}

/// The parts of ddmin: nearly equal subsets, and where there are more than two, their complements.
fn split(suspects: &[usize], parts: usize) -> Vec<Vec<usize>> {
    let bounds: Vec<usize> = (0..=parts).map(|p| p * suspects.len() / parts).collect();
    let subsets: Vec<Vec<usize>> = bounds.windows(2).map(|b| suspects[b[0]..b[1]].to_vec()).collect();
    let complements = bounds.windows(2).map(|b| [&suspects[..b[0]], &suspects[b[1]..]].concat());
    let complements: Vec<Vec<usize>> = if parts > 2 { complements.collect() } else { Vec::new() };
    [subsets, complements].concat()
}

mod statement;

#[cfg(test)]
mod tests;
