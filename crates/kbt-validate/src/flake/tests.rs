//! Planted races, changes by design, inputs that differ, and what a count of runs shows.

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
fn a_reference_of_other_inputs_is_no_evidence_of_a_change() {
    let Ok(saved) = FreshInputs(Cell::new(7)).run(&[], 0) else { panic!("it gives an output") };
    let provenance = Provenance::measured("test", "none", "2026-11-30");
    let references = BTreeMap::from([(0, saved)]);
    let result = flake(&FreshInputs(Cell::new(0)), &FlakePlan::default(), &references, provenance);
    assert_eq!((result.finding, result.runs_count, result.rate), (FlakeFinding::OtherInputs, 1, None));
    assert!(result.statement().contains("run 0, input set 0: input `q`"), "{}", result.statement());
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

fn planned(plan: &FlakePlan, reference: &[(u32, u8)], odd: impl Fn(u32) -> Option<u8>) -> FlakeResult {
    let references = reference.iter().map(|&(set, byte)| (set, RunOutput::Bytes(vec![byte]))).collect();
    let provenance = Provenance::measured("test", "none", "2026-11-30");
    let runner = Planted { run: Cell::new(0), odd: |run| odd(run).map(Ok) };
    flake(&runner, plan, &references, provenance)
}

#[test]
fn only_runs_that_were_compared_with_something_are_evidence() {
    let few = |runs| FlakePlan { runs, ..FlakePlan::default() };
    for runs in [1, 2] {
        let none = planned(&few(runs), &[], |_| None);
        assert_eq!((none.finding, none.compared_runs_count), (FlakeFinding::Uncompared, Some(0)));
        assert!(!none.passed() && none.rate.is_none());
        assert!(
            none.statement().contains("accepted: 3 runs or more, or a reference"),
            "{}",
            none.statement()
        );
    }
    let pair = planned(&few(3), &[], |_| None);
    assert_eq!((pair.finding, pair.compared_runs_count), (FlakeFinding::Same, Some(2)));
    assert_eq!(pair.rate, Some(RateBound::fixed(0, 2, 0.95)));
    assert!(pair.statement().starts_with("no difference in 2 runs"), "{}", pair.statement());
    assert!(pair.notes.iter().any(|n| n == "input set 1 ran once and was compared with nothing"));
    let held = planned(&few(1), &[(0, 0)], |_| None);
    assert_eq!((held.finding, held.compared_runs_count), (FlakeFinding::Same, Some(1)));
}

#[test]
fn the_rate_after_a_difference_counts_runs_that_could_differ() {
    let rate = |reference: &[(u32, u8)], at| {
        let result = planned(&FlakePlan::default(), reference, |run| (run == at).then_some(99));
        assert_eq!(result.finding, FlakeFinding::DiffersFromItself);
        result.rate.unwrap()
    };
    // Runs 0 and 2 are of set 0, run 1 of set 1, alone: two runs differ, so every run may.
    assert_eq!(rate(&[], 2), RateBound::first_difference_of(2, 1, 0.95));
    assert_eq!(rate(&[], 2).high_ratio, 1.0);
    // Of the runs 0 to 5 the first of each set had nothing before it.
    assert_eq!(rate(&[], 5), RateBound::first_difference_of(6, 4, 0.95));
    assert_eq!(rate(&[(0, 0), (1, 1)], 5), RateBound::first_difference(6, 0.95));
    // The first run is odd and the next one right: one run, not the confirming ones.
    assert_eq!(rate(&[(0, 0), (1, 1)], 0), RateBound::first_difference(1, 0.95));
    // Changed by design, and the second confirming run is odd.
    assert_eq!(rate(&[(0, 7), (1, 1)], 2), RateBound::first_difference_of(3, 2, 0.95));
}
