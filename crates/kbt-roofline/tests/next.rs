//! What comes next where no experiment is left to make.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use kbt_roofline::outcome::Priority;
use kbt_roofline::{Ceilings, ExperimentResult, FactSheet, TriageOutcome, part, triage};

fn run(sheet: &str, results: &[&str]) -> TriageOutcome {
    let sheet = FactSheet::from_yaml(sheet, "f.yaml").unwrap();
    let read = |r: &&str| (ExperimentResult::from_yaml(r, "r.yaml").unwrap(), "r.yaml".to_owned());
    let results: Vec<_> = results.iter().map(read).collect();
    triage(&sheet, Some(&Ceilings::published(part("H200").unwrap())), &results).unwrap()
}

/// The action of P1, and the falsifiable experiment of the outputs.
fn next(outcome: &TriageOutcome) -> (String, String) {
    let first = outcome.order.iter().find(|s| s.priority == Priority::P1).map(|s| s.action.clone());
    (first.unwrap_or_default(), outcome.outputs.clone().unwrap().validation.experiment)
}

const HISTOGRAM: &str = include_str!("../../../fixtures/facts/planted/histogram.yaml");

#[test]
fn a_confirmed_change_is_kept_and_the_changed_kernel_triaged_anew() {
    let confirmed =
        run(HISTOGRAM, &["experiment: contended_atomics\nobserved_us: 485.7\nbaseline_us: 4857\n"]);
    assert!(confirmed.experiments.is_empty());
    let (action, experiment) = next(&confirmed);
    assert!(action.starts_with("keep the change of contended_atomics"), "{action}");
    assert!(experiment.contains("does not take 10.0 % of its time"), "{experiment}");
    assert!(confirmed.render_text().contains("next      keep the change of contended_atomics"));
}

#[test]
fn without_an_experiment_a_measurement_is_named_and_no_missing_time_is_asked_for() {
    let refuted = run(HISTOGRAM, &["experiment: contended_atomics\nobserved_us: 4850\nbaseline_us: 4857\n"]);
    let gemm = run(
        "operator: {kind: gemm}\nshape: {m: 4096, n: 4096, k: 4096}\ndtypes: {inputs: [int8], output: int32}\n\
         dataflow: {reuse: tiles}\ntiming: {median_us: 150, method: cuda_events, communication_included: false}\n\
         implementation: {grid_ctas: 512, pipeline_stages: 3, async_copies: true, mma_instruction: wgmma}\n",
        &[],
    );
    for outcome in [refuted, gemm] {
        assert!(outcome.experiments.is_empty());
        let (action, experiment) = next(&outcome);
        assert!(action.starts_with("measure ") && experiment.starts_with(&action), "{action}; {experiment}");
        assert!(experiment.contains("speaks for"), "{experiment}");
    }
    // Only where the time is missing is it what would contradict the call.
    let untimed = run(
        "operator: {kind: gemm}\nshape: {m: 4096, n: 4096, k: 4096}\ndtypes: {inputs: [bf16], output: bf16}\n\
         dataflow: {reuse: tiles}\n",
        &[],
    );
    assert!(untimed.outputs.unwrap().validation.experiment.starts_with("take the missing timing"));
}

#[test]
fn a_conflict_is_settled_before_anything_is_tried() {
    let beaten = run(
        "operator: {kind: elementwise, flop_per_element: 1}\nshape: {elements: 268435456}\n\
         dtypes: {inputs: [fp32], output: fp32}\ndataflow: {reuse: none}\n\
         timing: {median_us: 300, method: cuda_events, communication_included: false}\n",
        &[],
    );
    let (action, experiment) = next(&beaten);
    assert_eq!(action, "");
    assert!(experiment.starts_with("settle the conflict first"), "{experiment}");
}

#[test]
fn what_is_left_after_a_confirmed_change_speaks_of_the_time_before_it_and_waits() {
    let sheet = "operator: {kind: elementwise, flop_per_element: 2, inputs: 2}\nshape: {elements: 268435456}\n\
        dtypes: {inputs: [fp32], output: fp32}\ndataflow: {reuse: none, access: regular}\n\
        implementation: {grid_ctas: 66, ctas_per_sm: 1}\n\
        timing: {median_us: 1500, method: cuda_events, communication_included: false, kernels: 1}\n";
    let before = run(sheet, &[]);
    assert!(before.experiments.len() > 1 && !before.render_markdown().contains("before the change"));
    let id = before.experiments[0].id.clone();
    let after = run(sheet, &[&format!("experiment: {id}\nobserved_us: 900\nbaseline_us: 1500\n")]);
    assert!(!after.experiments.is_empty());
    let note = format!("of the time before the change of {id}: triage the changed kernel first");
    assert!(after.experiments.iter().all(|e| e.prediction.contains(&note)), "{:?}", after.experiments);
    let (action, experiment) = next(&after);
    assert!(action.starts_with(&format!("keep the change of {id}")), "{action}");
    assert!(experiment.starts_with(&action), "{experiment}");
    assert_eq!(after.order.iter().filter(|s| s.priority == Priority::P1).count(), 1);
    let text = after.render_text();
    assert!(text.contains(&format!("next      keep the change of {id}")), "{text}");
    let share = format!("% of the time before the change of {id}");
    assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(&share), "{text}");
    assert!(after.render_markdown().contains(&format!("share of the time before the change of {id}")));
}
