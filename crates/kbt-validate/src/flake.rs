//! The same thing run again and again: does it always give the same output, and what does that many runs show.
//!
//! Two input sets alternate, so that what a run leaves in memory cannot be the right answer for the next one.
//! Running ends at the first difference. That an output differs from the saved reference and that it differs
//! from itself are two findings: the first may be a change by design, the second is a race. A run is evidence only
//! where it was held against another: the lone run of a set that has no reference is compared with nothing.

use crate::runner::{RunOutput, Runner};
use crate::stats::{RateBound, runs_needed};
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// How often to run, and what to state of it.
#[derive(Debug, Clone, PartialEq)]
pub struct FlakePlan {
    /// Runs in all.
    pub runs: u32,
    /// Input sets that take turns.
    pub sets: u32,
    /// The confidence of what is stated.
    pub confidence: f64,
    /// The rate that the runs should be able to show.
    pub target_rate: f64,
    /// Knobs, the same for every run.
    pub env: Vec<(String, String)>,
}

impl Default for FlakePlan {
    /// 60 runs: one more than the 59 that show a rate of 1 in 20 with 95 % confidence. 20 runs would miss it in
    /// 36 % of all cases.
    fn default() -> Self {
        Self { runs: 60, sets: 2, confidence: 0.95, target_rate: 0.05, env: Vec::new() }
    }
}

/// Runs of a set whose first output differs from the saved reference, to tell a change from a race.
const CONFIRMING_RUNS: u32 = 3;

/// What repeated runs showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlakeFinding {
    /// Every output was the same, and the same as the saved reference where there is one.
    Same,
    /// The outputs of one input set differ among themselves.
    DiffersFromItself,
    /// They agree with one another and differ from the saved reference.
    DiffersFromReference,
    /// The recorded digests of the inputs differ, so a difference of the outputs would say nothing.
    OtherInputs,
    /// A run gave no output.
    RunFailed,
    /// No run had another of its input set, or a saved reference, to be compared with.
    Uncompared,
}

/// The outcome of [`flake`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlakeResult {
    /// `kbt.validate/1`.
    pub schema: String,
    /// Where and how it ran.
    pub provenance: Provenance,
    /// What was found.
    pub finding: FlakeFinding,
    /// Runs made.
    pub runs_count: u32,
    /// Those of them that had another run of their input set, or a reference, to be compared with: only they are
    /// evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared_runs_count: Option<u32>,
    /// Runs asked for.
    pub planned_runs_count: u32,
    /// Input sets that took turns.
    pub sets_count: u32,
    /// Whether outputs were also compared with a saved reference.
    pub against_reference: bool,
    /// The run and input set (from 0) where it ended early, and what was seen there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<FirstDifference>,
    /// What the runs say of the rate at which a run differs from the others; absent where they say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<RateBound>,
    /// The rate that was to be shown.
    pub target_rate_ratio: f64,
    /// Runs that show the target rate with the confidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_runs_count: Option<u32>,
    /// What else was noticed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Where repeated running ended early.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstDifference {
    /// The run, from 0.
    pub run_index: u32,
    /// Its input set.
    pub set_index: u32,
    /// What differs, or why there is no output.
    pub what: String,
}

/// Runs the same thing until an output differs or the plan's runs are made. `references` are saved outputs by
/// input set; without one, the first output of a set is what its others are compared with.
pub fn flake(
    runner: &dyn Runner,
    plan: &FlakePlan,
    references: &BTreeMap<u32, RunOutput>,
    provenance: Provenance,
) -> FlakeResult {
    let sets = plan.sets.max(1);
    let mut result = FlakeResult {
        schema: crate::SCHEMA.to_owned(),
        provenance,
        finding: FlakeFinding::Same,
        runs_count: 0,
        compared_runs_count: None,
        planned_runs_count: plan.runs,
        sets_count: sets,
        against_reference: !references.is_empty(),
        first: None,
        rate: None,
        target_rate_ratio: plan.target_rate,
        target_runs_count: runs_needed(plan.target_rate, plan.confidence),
        notes: Vec::new(),
    };
    let mut first_outputs: BTreeMap<u32, RunOutput> = BTreeMap::new();
    let mut seen = Seen { runs: BTreeMap::new(), referenced: references.keys().copied().collect() };
    for run in 0..plan.runs {
        let set = run % sets;
        result.runs_count += 1;
        let output = match runner.run(&plan.env, set) {
            Ok(output) => output,
            Err(failure) => {
                end(&mut result, FlakeFinding::RunFailed, set, failure.to_string());
                break;
            }
        };
        *seen.runs.entry(set).or_default() += 1;
        let known = [first_outputs.get(&set), references.get(&set)];
        if let Some(name) = known.into_iter().flatten().find_map(|k| k.other_input(&output)) {
            end(&mut result, FlakeFinding::OtherInputs, set, format!("input `{name}`"));
            break;
        }
        if let Some(before) = first_outputs.get(&set) {
            if let Some(what) = before.difference(&output) {
                end(&mut result, FlakeFinding::DiffersFromItself, set, what);
                result.rate = Some(seen.first_difference(plan.confidence));
                break;
            }
            continue;
        }
        if let Some(reference) = references.get(&set)
            && let Some(what) = reference.difference(&output)
        {
            confirm(runner, plan, &mut result, set, &output, what, reference, &seen);
            break;
        }
        first_outputs.insert(set, output);
    }
    let compared = seen.compared();
    result.compared_runs_count = Some(compared);
    if result.finding == FlakeFinding::Same {
        match compared {
            0 if result.runs_count > 0 => result.finding = FlakeFinding::Uncompared,
            0 => {}
            _ => result.rate = Some(RateBound::fixed(0, compared, plan.confidence)),
        }
        let lone: Vec<String> = seen.lone().map(|set| set.to_string()).collect();
        if compared > 0 && !lone.is_empty() {
            let note = format!("input set {} ran once and was compared with nothing", lone.join(", "));
            result.notes.push(note);
        }
    }
    note(&mut result, &first_outputs);
    result
}

/// The runs so far by input set, and the sets that have a reference.
struct Seen {
    runs: BTreeMap<u32, u32>,
    referenced: BTreeSet<u32>,
}

impl Seen {
    /// Sets without a reference that ran once.
    fn lone(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().filter(|(set, n)| **n == 1 && !self.referenced.contains(set)).map(|(set, _)| *set)
    }

    /// Runs that had another, or a reference, to be compared with.
    fn compared(&self) -> u32 {
        self.runs.values().sum::<u32>() - u32::try_from(self.lone().count()).unwrap_or(0)
    }

    /// The last run was the first that differed. Either of the two may be the odd one, so each compared run may have
    /// been it; but the first of a set without a reference could not have been seen to differ when it came.
    fn first_difference(&self, confidence: f64) -> RateBound {
        let firsts = self.runs.keys().filter(|set| !self.referenced.contains(set)).count();
        let held = self.runs.values().sum::<u32>() - u32::try_from(firsts).unwrap_or(0);
        RateBound::first_difference_of(self.compared(), held, confidence)
    }
}

fn end(result: &mut FlakeResult, finding: FlakeFinding, set: u32, what: String) {
    result.finding = finding;
    result.first = Some(FirstDifference { run_index: result.runs_count - 1, set_index: set, what });
}

/// The first output of a set differs from the saved one: always so, or only this once?
#[allow(clippy::too_many_arguments, reason = "called once")]
fn confirm(
    runner: &dyn Runner,
    plan: &FlakePlan,
    result: &mut FlakeResult,
    set: u32,
    output: &RunOutput,
    what: String,
    reference: &RunOutput,
    seen: &Seen,
) {
    end(result, FlakeFinding::DiffersFromReference, set, what);
    for again_count in 1..=CONFIRMING_RUNS {
        result.runs_count += 1;
        match runner.run(&plan.env, set) {
            Err(failure) => return end(result, FlakeFinding::RunFailed, set, failure.to_string()),
            Ok(again) => {
                if let Some(what) = output.difference(&again) {
                    // Where this one is right, the odd one came first; else only these runs say how often.
                    result.rate = Some(match reference.difference(&again) {
                        None => seen.first_difference(plan.confidence),
                        Some(_) => {
                            RateBound::first_difference_of(again_count + 1, again_count, plan.confidence)
                        }
                    });
                    return end(result, FlakeFinding::DiffersFromItself, set, what);
                }
            }
        }
    }
}

fn note(result: &mut FlakeResult, outputs: &BTreeMap<u32, RunOutput>) {
    if outputs.len() > 1 {
        let digests: Vec<String> = outputs.values().map(RunOutput::digest).collect();
        if digests.windows(2).all(|w| w[0] == w[1]) {
            let note = "every input set gives the same output: the command seems to ignore KBT_INPUT_SET, so an \
                        output left over from the run before would go unseen";
            result.notes.push(note.to_owned());
        }
    }
    let evidence = result.evidence_runs();
    if result.finding == FlakeFinding::Same && result.target_runs_count.is_some_and(|n| evidence < n) {
        let rate = percent(result.target_rate_ratio);
        let needed = result.target_runs_count.unwrap_or(0);
        result.notes.push(format!("{needed} runs are needed to show a rate of {rate}"));
    }
}

/// A ratio in percent, with the digits that matter.
pub(crate) fn percent(ratio: f64) -> String {
    let value = 100.0 * ratio;
    if value != 0.0 && value < 0.005 {
        return format!("{value:.1e} %");
    }
    let text = if value >= 9.95 { format!("{value:.0}") } else { format!("{value:.2}") };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} %")
}

impl FlakeResult {
    /// Whether nothing speaks against it.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.finding == FlakeFinding::Same && self.runs_count > 0
    }

    /// The runs that are evidence.
    #[must_use]
    pub fn evidence_runs(&self) -> u32 {
        self.compared_runs_count.unwrap_or(self.runs_count)
    }

    /// What the runs show and what they cannot show, in one sentence.
    #[must_use]
    pub fn statement(&self) -> String {
        let runs = self.runs_count;
        let first = self.first.as_ref();
        let place = first.map_or_else(String::new, |f| {
            format!("run {}, input set {}: {}", f.run_index, f.set_index, f.what)
        });
        match (self.finding, &self.rate) {
            (FlakeFinding::Same, Some(rate)) => format!(
                "no difference in {} runs: the rate is below {} with {} confidence; a rarer one need not show",
                self.evidence_runs(),
                percent(rate.high_ratio),
                percent(rate.confidence_ratio),
            ),
            (FlakeFinding::Same, None) => "no run was made, so nothing is shown".to_owned(),
            (FlakeFinding::DiffersFromItself, rate) => {
                let between = rate.as_ref().map_or_else(String::new, |r| {
                    format!(
                        "; the rate is between {} and {}, each with {} confidence",
                        percent(r.low_ratio),
                        percent(r.high_ratio),
                        percent(r.confidence_ratio)
                    )
                });
                format!("differs from itself at {place} (found after {runs} runs{between})")
            }
            (FlakeFinding::DiffersFromReference, _) => {
                format!(
                    "differs from the saved reference at {place}; {CONFIRMING_RUNS} more runs gave the same again"
                )
            }
            (FlakeFinding::OtherInputs, _) => format!(
                "was computed from other inputs at {place}; make the inputs once, save them, and have every run read \
                 them"
            ),
            (FlakeFinding::RunFailed, _) => format!("gave no output at {place}"),
            (FlakeFinding::Uncompared, _) => format!(
                "no output was compared with another: {runs} runs over {} input sets and no reference; accepted: {} \
                 runs or more, or a reference",
                self.sets_count,
                self.sets_count + 1
            ),
        }
    }
}

#[cfg(test)]
mod tests;
