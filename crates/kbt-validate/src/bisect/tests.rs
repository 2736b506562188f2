//! Simulated faults: the right knob, pairs, nothing to blame, and a baseline that is not steady.

use super::*;
use crate::rng::Rng;
use crate::runner::RunFailure;
use std::cell::RefCell;

/// A command whose output is wrong once in `one_in` runs while every culprit is changed.
struct Faulty {
    culprits: Vec<&'static str>,
    one_in: u64,
    rng: RefCell<Rng>,
    base_fault: bool,
}

impl Runner for Faulty {
    fn run(&self, env: &[(String, String)], set: u32) -> Result<RunOutput, RunFailure> {
        let changed = |name: &&str| env.iter().any(|(n, v)| n == name && v == "1");
        let armed = self.base_fault || (!self.culprits.is_empty() && self.culprits.iter().all(changed));
        let fault = armed && self.rng.borrow_mut().below(self.one_in) == 0;
        Ok(RunOutput::Bytes(vec![if fault { 255 } else { set as u8 }]))
    }
}

const NAMES: [&str; 6] = ["A", "B", "C", "D", "E", "F"];

fn run(culprits: &[&'static str], one_in: u64, seed: u64, plan: &BisectPlan) -> BisectResult {
    run_of(&NAMES, culprits, one_in, seed, plan)
}

fn run_of(
    names: &[&str],
    culprits: &[&'static str],
    one_in: u64,
    seed: u64,
    plan: &BisectPlan,
) -> BisectResult {
    let knob = |name: &str| Knob { name: name.to_owned(), base: "0".to_owned(), changed: "1".to_owned() };
    let rng = RefCell::new(Rng::new(seed));
    let runner = Faulty { culprits: culprits.to_vec(), one_in, rng, base_fault: false };
    let provenance = Provenance::assumed("simulated");
    let knobs: Vec<Knob> = names.iter().map(|name| knob(name)).collect();
    bisect(&runner, &knobs, plan, provenance).unwrap()
}

#[test]
fn the_right_knob_of_six_is_named_for_a_fault_of_one_in_twenty() {
    let trials = 1000;
    let mut right = 0;
    let mut total = 0;
    for seed in 0..trials {
        let culprit = NAMES[seed as usize % 6];
        let result = run(&[culprit], 20, seed, &BisectPlan::default());
        assert!(result.runs_count <= 300);
        total += result.runs_count;
        match &result.finding {
            BisectFinding::Knobs(names) => {
                assert!(names.contains(&culprit.to_owned()), "a knob is never blamed for what it did not do");
                right += u32::from(names.len() == 1);
            }
            BisectFinding::Unfinished(names) => assert!(names.contains(&culprit.to_owned())),
            BisectFinding::Clean => {}
            BisectFinding::BaselineFlaky => panic!("the baseline is steady here"),
        }
    }
    assert!(right >= 950, "{right} of {trials} trials, {total} runs");
}

#[test]
fn a_fault_in_every_run_is_found_at_once_and_pairs_stay_together() {
    let one = run(&["E"], 1, 1, &BisectPlan::default());
    assert_eq!(one.finding, BisectFinding::Knobs(vec!["E".to_owned()]));
    assert!(one.runs_count < 10);
    let plan = BisectPlan { max_runs: 5000, ..BisectPlan::default() };
    let pair = run(&["A", "F"], 2, 1, &plan);
    assert_eq!(pair.finding, BisectFinding::Knobs(vec!["A".to_owned(), "F".to_owned()]));
}

#[test]
fn two_that_must_meet_are_named_within_the_default_budget() {
    let result = run_of(&["A", "B", "C"], &["A", "B"], 1, 1, &BisectPlan::default());
    assert_eq!(result.finding, BisectFinding::Knobs(vec!["A".to_owned(), "B".to_owned()]), "{result:?}");
    assert!(result.runs_count <= 300);
    // Each of the two alone was clean for twice as many runs as the rate demands, over all steps together.
    let alone = |name: &str| -> u32 {
        let of = |step: &BisectStep| step.subsets.iter().position(|s| s == &[name]);
        result.steps.iter().filter_map(|step| Some(step.runs_by_subset[of(step)?])).sum()
    };
    assert_eq!((alone("A"), alone("B")), (118, 118), "{result:?}");
}

#[test]
fn nothing_to_blame_and_an_ended_budget_are_said() {
    let none = run(&[], 1, 1, &BisectPlan::default());
    assert!(
        none.statement().starts_with("no difference in 59 runs with all knobs changed, nor in 118 with some")
    );
    assert_eq!((none.finding, none.runs_count), (BisectFinding::Clean, 3 * 59));
    let short = BisectPlan { max_runs: 4, ..BisectPlan::default() };
    let BisectFinding::Unfinished(names) = run(&["E"], 1_000_000, 1, &short).finding else { panic!() };
    assert_eq!(names, NAMES);
}

#[test]
fn a_baseline_that_is_not_steady_stops_the_search() {
    let rng = RefCell::new(Rng::new(7));
    let runner = Faulty { culprits: vec![], one_in: 5, rng, base_fault: true };
    let knob = Knob { name: "A".to_owned(), base: "0".to_owned(), changed: "1".to_owned() };
    let provenance = Provenance::assumed("simulated");
    let plan = BisectPlan::default();
    let result = bisect(&runner, std::slice::from_ref(&knob), &plan, provenance.clone()).unwrap();
    assert_eq!((&result.finding, result.runs_count), (&BisectFinding::BaselineFlaky, 0));
    assert!(result.statement().contains("baseline itself is not steady"));
    let twice = bisect(&runner, &[knob.clone(), knob], &plan, provenance.clone());
    assert_eq!(twice.unwrap_err(), BisectError::Twice("A".to_owned()));
    assert_eq!(bisect(&runner, &[], &plan, provenance).unwrap_err(), BisectError::NoKnobs);
}

#[test]
fn one_knob_alone_is_tried_alone() {
    let rng = RefCell::new(Rng::new(7));
    let runner = Faulty { culprits: vec!["A"], one_in: 1, rng, base_fault: false };
    let knob = Knob { name: "A".to_owned(), base: "0".to_owned(), changed: "1".to_owned() };
    let result = bisect(&runner, &[knob], &BisectPlan::default(), Provenance::assumed("simulated")).unwrap();
    assert_eq!((result.finding, result.runs_count), (BisectFinding::Knobs(vec!["A".to_owned()]), 1));
}

#[test]
fn against_itself_the_first_run_of_a_set_is_no_evidence() {
    let plan = BisectPlan { against: Against::Itself, confidence: 0.04, ..BisectPlan::default() };
    // One clean run is enough here, which has to be held against another of its set first.
    let clean = run_of(&["A"], &[], 1, 1, &plan);
    assert_eq!((&clean.finding, clean.runs_count), (&BisectFinding::Clean, 3), "{clean:?}");
}

/// Records as its input what `input` says of its knob and its set.
struct Recording(fn(bool, u32) -> f32);

impl Runner for Recording {
    fn run(&self, env: &[(String, String)], set: u32) -> Result<RunOutput, RunFailure> {
        use kbt_tensor::{Dtype, Tensor, TensorSet};
        let tensor = |name, value| {
            let mut set = TensorSet::new();
            set.insert(Tensor::from_f32(name, vec![1], Dtype::F32, &[value]).unwrap()).unwrap();
            set
        };
        let mut output = tensor("o", set as f32);
        output.record_inputs(&tensor("q", (self.0)(env.iter().any(|(_, v)| v == "1"), set)));
        Ok(RunOutput::Tensors(output))
    }
}

#[test]
fn outputs_of_other_inputs_blame_no_knob() {
    let knob = Knob { name: "A".to_owned(), base: "0".to_owned(), changed: "1".to_owned() };
    let found = |input, against| {
        let plan = BisectPlan { against, ..BisectPlan::default() };
        bisect(&Recording(input), std::slice::from_ref(&knob), &plan, Provenance::assumed("simulated"))
    };
    for against in [Against::Baseline, Against::Itself] {
        let steady = found(|_, set| set as f32, against).unwrap();
        assert_eq!(steady.finding, BisectFinding::Clean);
        let Err(BisectError::OtherInputs(why)) = found(|changed, _| f32::from(u8::from(changed)), against)
        else {
            panic!("the inputs differ")
        };
        assert!(why.contains("with A changed") && why.contains("input `q`"), "{why}");
    }
}

#[test]
fn a_baseline_that_draws_its_inputs_anew_is_refused() {
    use std::sync::atomic::{AtomicU32, Ordering};
    static RUN: AtomicU32 = AtomicU32::new(0);
    let knob = Knob { name: "A".to_owned(), base: "0".to_owned(), changed: "1".to_owned() };
    let runner = Recording(|_, _| RUN.fetch_add(1, Ordering::Relaxed) as f32);
    let result = bisect(&runner, &[knob], &BisectPlan::default(), Provenance::assumed("simulated"));
    let Err(BisectError::OtherInputs(why)) = result else { panic!("the inputs differ") };
    assert!(why.contains("input set 0") && why.contains("input `q`"), "{why}");
}
