//! The same thing run again and again: does it always give the same output, and what does that many runs show.
//!
//! Two input sets alternate, so that what a run leaves in memory cannot be the right answer for the next one.
//! Running ends at the first difference. That an output differs from the saved reference and that it differs
//! from itself are two findings: the first may be a change by design, the second is a race.

use crate::runner::{RunOutput, Runner};
use crate::stats::{RateBound, runs_needed};
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

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
        let known = [first_outputs.get(&set), references.get(&set)];
        if let Some(name) = known.into_iter().flatten().find_map(|k| k.other_input(&output)) {
            end(&mut result, FlakeFinding::OtherInputs, set, format!("input `{name}`"));
            break;
        }
        if let Some(before) = first_outputs.get(&set) {
            if let Some(what) = before.difference(&output) {
                end(&mut result, FlakeFinding::DiffersFromItself, set, what);
                break;
            }
            continue;
        }
        if let Some(what) = references.get(&set).and_then(|r| r.difference(&output)) {
            confirm(runner, plan, &mut result, set, &output, what);
            break;
        }
        first_outputs.insert(set, output);
    }
    result.rate = match result.finding {
        FlakeFinding::Same if result.runs_count > 0 => {
            Some(RateBound::fixed(0, result.runs_count, plan.confidence))
        }
        FlakeFinding::DiffersFromItself => {
            Some(RateBound::first_difference(result.runs_count, plan.confidence))
        }
        _ => None,
    };
    note(&mut result, &first_outputs);
    result
}

fn end(result: &mut FlakeResult, finding: FlakeFinding, set: u32, what: String) {
    result.finding = finding;
    result.first = Some(FirstDifference { run_index: result.runs_count - 1, set_index: set, what });
}

/// The first output of a set differs from the saved one: always so, or only this once?
fn confirm(
    runner: &dyn Runner,
    plan: &FlakePlan,
    result: &mut FlakeResult,
    set: u32,
    output: &RunOutput,
    what: String,
) {
    end(result, FlakeFinding::DiffersFromReference, set, what);
    for _ in 0..CONFIRMING_RUNS {
        result.runs_count += 1;
        match runner.run(&plan.env, set) {
            Err(failure) => return end(result, FlakeFinding::RunFailed, set, failure.to_string()),
            Ok(again) => {
                if let Some(what) = output.difference(&again) {
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
    if result.finding == FlakeFinding::Same && result.target_runs_count.is_some_and(|n| result.runs_count < n)
    {
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
                "no difference in {runs} runs: the rate is below {} with {} confidence; a rarer one need not show",
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::RunFailure;
    use kbt_tensor::{Dtype, Tensor, TensorSet};
    use std::cell::Cell;

    /// Gives `set` as its output, but what `odd` says at the runs it names.
    struct Planted<F: Fn(u32) -> Option<Result<u8, RunFailure>>> {
        run: Cell<u32>,
        odd: F,
    }

    impl<F: Fn(u32) -> Option<Result<u8, RunFailure>>> Runner for Planted<F> {
        fn run(&self, _: &[(String, String)], set: u32) -> Result<RunOutput, RunFailure> {
            let run = self.run.replace(self.run.get() + 1);
            match (self.odd)(run) {
                Some(Ok(byte)) => Ok(RunOutput::Bytes(vec![byte])),
                Some(Err(failure)) => Err(failure),
                None => Ok(RunOutput::Bytes(vec![set as u8])),
            }
        }
    }

    fn run(reference: &[(u32, u8)], odd: impl Fn(u32) -> Option<Result<u8, RunFailure>>) -> FlakeResult {
        let references = reference.iter().map(|&(set, byte)| (set, RunOutput::Bytes(vec![byte]))).collect();
        let provenance = Provenance::measured("test", "none", "2026-11-30");
        flake(&Planted { run: Cell::new(0), odd }, &FlakePlan::default(), &references, provenance)
    }

    #[test]
    fn a_difference_once_in_twenty_runs_is_found_wherever_it_starts() {
        for start in 0..20 {
            let result = run(&[], |run| (run % 20 == start).then_some(Ok(99)));
            assert_eq!(result.finding, FlakeFinding::DiffersFromItself, "start {start}");
            assert!(result.runs_count <= 21, "it stops at the first difference");
            let rate = result.rate.unwrap();
            assert!(rate.low_ratio < 0.05 && 0.05 < rate.high_ratio);
        }
    }

    #[test]
    fn clean_runs_state_what_they_can_and_cannot_show() {
        let result = run(&[(0, 0), (1, 1)], |_| None);
        assert!(result.passed());
        assert_eq!((result.runs_count, result.target_runs_count), (60, Some(59)));
        assert_eq!(
            result.statement(),
            "no difference in 60 runs: the rate is below 4.87 % with 95 % confidence; a rarer one need not show"
        );
        assert!(result.notes.is_empty(), "{:?}", result.notes);
    }

    #[test]
    fn a_changed_output_and_a_race_are_told_apart() {
        let changed = run(&[(0, 7), (1, 1)], |_| None);
        assert_eq!((changed.finding, changed.runs_count), (FlakeFinding::DiffersFromReference, 4));
        assert_eq!(changed.rate, None, "an output that always differs has no rate");
        let raced = run(&[(0, 0), (1, 1)], |run| (run == 0).then_some(Ok(99)));
        assert_eq!((raced.finding, raced.runs_count), (FlakeFinding::DiffersFromItself, 2));
        let later = run(&[(0, 0), (1, 1)], |run| (run == 30).then_some(Ok(99)));
        assert_eq!((later.finding, later.runs_count), (FlakeFinding::DiffersFromItself, 31));
    }

    #[test]
    fn a_run_that_fails_ends_it_and_a_command_that_ignores_its_input_set_is_noted() {
        let failed = run(&[], |run| (run == 5).then_some(Err(RunFailure::TimedOut { limit_s: 9 })));
        assert_eq!(failed.finding, FlakeFinding::RunFailed);
        assert!(failed.statement().contains("run 5, input set 1: it was still running after 9 s"));
        let deaf = run(&[], |_| Some(Ok(3)));
        assert!(deaf.notes[0].contains("KBT_INPUT_SET"));
    }

    /// Makes its input anew each time, as programs do that draw or quantise tensors at the start.
    struct FreshInputs(Cell<u32>);

    impl Runner for FreshInputs {
        fn run(&self, _: &[(String, String)], _: u32) -> Result<RunOutput, RunFailure> {
            let run = self.0.replace(self.0.get() + 1);
            let tensor = |name| {
                let mut set = TensorSet::new();
                set.insert(Tensor::from_f32(name, vec![1], Dtype::F32, &[run as f32]).unwrap()).unwrap();
                set
            };
            let mut output = tensor("o");
            output.record_inputs(&tensor("q"));
            Ok(RunOutput::Tensors(output))
        }
    }

    #[test]
    fn runs_on_other_inputs_are_no_evidence_of_a_race() {
        let provenance = Provenance::measured("test", "none", "2026-11-30");
        let result = flake(&FreshInputs(Cell::new(0)), &FlakePlan::default(), &BTreeMap::new(), provenance);
        assert_eq!((result.finding, result.runs_count, result.rate), (FlakeFinding::OtherInputs, 3, None));
        assert!(!result.passed() && result.statement().contains("input `q`"), "{}", result.statement());
    }

    #[test]
    fn percentages_keep_the_digits_that_matter() {
        for (ratio, text) in [
            (0.95, "95 %"),
            (0.0487, "4.87 %"),
            (0.05, "5 %"),
            (0.000_5, "0.05 %"),
            (1.0, "100 %"),
            (2e-9, "2.0e-7 %"),
        ] {
            assert_eq!(percent(ratio), text);
        }
    }
}
