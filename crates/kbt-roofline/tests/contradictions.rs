//! Facts of one sheet that exclude each other are reported, and results of one experiment that do are refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use kbt_roofline::outcome::{Call, Priority, Reading};
use kbt_roofline::{Ceilings, ExperimentResult, FactSheet, SheetError, TriageOutcome, part, triage};

fn gemm(us: f64, timing: &str, rest: &str, results: &[&str]) -> Result<TriageOutcome, SheetError> {
    let text = format!(
        "operator: {{kind: gemm}}\nshape: {{m: 4096, n: 4096, k: 4096}}\ndtypes: {{inputs: [bf16], output: bf16}}\n\
         dataflow: {{reuse: x}}\ntiming: {{median_us: {us}, method: cuda_graph{timing}}}\n{rest}\n"
    );
    let sheet = FactSheet::from_yaml(&text, "f.yaml").unwrap();
    let results: Vec<_> = results
        .iter()
        .enumerate()
        .map(|(n, r)| (ExperimentResult::from_yaml(r, "r.yaml").unwrap(), format!("r{n}.yaml")))
        .collect();
    triage(&sheet, Some(&Ceilings::published(part("H200").unwrap())), &results)
}

fn found(timing: &str, device: &str) -> Vec<String> {
    let outcome = gemm(230.0, timing, &format!("device: {{name: NVIDIA H200{device}}}"), &[]).unwrap();
    let told: Vec<String> = outcome.contradictions.iter().map(|c| c.what.clone()).collect();
    for what in &told {
        assert!(
            outcome.order.iter().any(|s| s.priority == Priority::P0 && s.action.contains(what)),
            "{what}"
        );
    }
    told
}

#[test]
fn communication_that_is_and_is_not_inside_the_time_is_reported() {
    let told = found(", communication_us: 100, communication_included: false", "");
    assert!(matches!(told.as_slice(), [one] if one.contains("communication_included: false")), "{told:?}");
    assert!(found(", communication_us: 100, communication_included: true", "").is_empty());
    assert!(found(", communication_us: 0, communication_included: false", "").is_empty());
}

#[test]
fn a_device_that_is_not_the_one_named_is_reported() {
    for (device, word) in [
        (", sm_count: 148", "states 148 SMs"),
        (", compile_target: sm_100a", "built for sm_100a"),
        (", compile_target: sm_80", "built for sm_80"),
        // 60 % of the ceiling at 55 % of its clock.
        (", sm_clock_mhz: 1000", "at 1000 MHz"),
    ] {
        let told = found("", device);
        assert!(matches!(told.as_slice(), [one] if one.contains(word)), "{device}: {told:?}");
    }
    for device in
        ["", ", sm_count: 132", ", compile_target: sm_90a", ", compile_target: sm_90", ", sm_clock_mhz: 1700"]
    {
        assert_eq!(found("", device), Vec::<String>::new(), "{device}");
    }
}

#[test]
fn results_of_one_experiment_that_disagree_are_refused_and_one_nobody_proposed_says_so() {
    let busy = "implementation: {pipeline_stages: 1, async_copies: false, tensor_instructions: true}";
    let proposed = gemm(600.0, "", busy, &[]).unwrap().experiments;
    assert!(proposed.iter().any(|e| e.id == "no_overlap"), "{proposed:?}");
    assert!(proposed.iter().all(|e| e.id != "communication"));
    let better = "{experiment: no_overlap, observed_us: 300, baseline_us: 600}";
    let worse = "{experiment: no_overlap, observed_us: 601, baseline_us: 600}";
    let error = gemm(600.0, "", busy, &[better, worse]).unwrap_err().to_string();
    assert!(error.starts_with("r1.yaml: ") && error.contains("in r0.yaml is"), "{error}");
    let twice = gemm(600.0, "", busy, &[better, better]).unwrap();
    assert!(twice.results.iter().all(|r| r.reading == Reading::Confirmed && !r.finding.contains("proposed")));
    let never =
        gemm(600.0, "", busy, &["{experiment: communication, observed_us: 590, baseline_us: 600}"]).unwrap();
    assert!(
        never.results[0].finding.ends_with("not proposed for this sheet"),
        "{}",
        never.results[0].finding
    );
}

#[test]
fn a_call_that_is_replayed_from_a_graph_is_not_told_to_be() {
    let sheet = |method: &str| {
        let text = format!(
            "operator: {{kind: elementwise, flop_per_element: 1}}\nshape: {{elements: 2500000}}\n\
             dtypes: {{inputs: [fp32], output: fp32}}\ndataflow: {{reuse: none}}\n\
             timing: {{median_us: 12, method: {method}, kernels: 4, kernel_us: 6}}\n\
             ceilings: [{{kind: launch_latency, seconds: 4.9e-6, provenance: {{kind: given, by: x}}}}]\n"
        );
        let sheet = FactSheet::from_yaml(&text, "f.yaml").unwrap();
        triage(&sheet, Some(&Ceilings::published(part("H200").unwrap())), &[]).unwrap()
    };
    let (events, graph) = (sheet("cuda_events"), sheet("cuda_graph"));
    let advised = "replay the same kernels from a CUDA graph";
    let launch = |o: &TriageOutcome| o.bounds.iter().any(|b| b.name == "launch");
    assert!(events.experiments.iter().any(|e| e.factor == advised) && launch(&events));
    assert!(!graph.render_markdown().contains(advised) && !launch(&graph));
}

#[test]
fn the_margin_is_the_distance_from_what_would_flip_the_call() {
    let margin = |us: f64| {
        let outcome = gemm(us, "", "", &[]).unwrap();
        (outcome.call.unwrap(), outcome.margin.unwrap().value)
    };
    // 137.4 GFLOP at 989 TFLOP/s take 139 us: 60 % of 231.6 us.
    let (call, holds) = margin(200.0);
    assert_eq!(call, Call::ComputeBound);
    assert!((holds - 231.6 / 200.0).abs() < 0.01, "{holds}");
    let (call, holds) = margin(400.0);
    assert_eq!(call, Call::Neither);
    assert!((holds - 400.0 / 231.6).abs() < 0.01, "{holds}");
}

#[test]
fn an_operator_without_operations_has_a_margin_by_its_time_alone() {
    let of = |timing: &str| {
        let text = format!(
            "operator: {{kind: elementwise, flop_per_element: 0}}\nshape: {{elements: 250000000}}\n\
             dtypes: {{inputs: [fp32], output: fp32}}\ndataflow: {{reuse: none}}\n{timing}\n"
        );
        let sheet = FactSheet::from_yaml(&text, "f.yaml").unwrap();
        triage(&sheet, Some(&Ceilings::published(part("H200").unwrap())), &[]).unwrap()
    };
    let initial = of("");
    let value = serde_json::to_value(&initial).unwrap();
    assert!(
        value["margin"].is_null() && value["margin_reason"].as_str().unwrap().contains("computes nothing")
    );
    assert!(
        initial.outputs.as_ref().unwrap().conclusion.contains("memory-bound, the operator computes nothing")
    );
    // 2 GB at 4.8 TB/s take 416.7 us.
    let timed = of("timing: {median_us: 500, method: cuda_graph}");
    assert!((timed.margin.unwrap().value - 416.7 / 500.0 / 0.6).abs() < 0.01);
    assert!(timed.margin_reason.is_none());
}

#[test]
fn operands_read_again_behind_the_arithmetic_are_no_conflict() {
    let product = |busy: f64| {
        let busy = format!("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed: {busy}");
        gemm(230.0, "", &format!("profiler: {{metrics: {{{busy}}}}}"), &[]).unwrap()
    };
    // The useful bytes take 9 % of the time: 20 % are a healthy product's, 40 % want their bytes counted.
    let healthy = product(20.0);
    assert!(healthy.contradictions.is_empty(), "{:?}", healthy.contradictions);
    let uncounted = product(40.0).contradictions;
    assert!(uncounted.iter().any(|c| c.settle_first && c.what.contains("no bytes were counted")));
}

#[test]
fn a_loop_of_unknown_length_leaves_no_call_on_operations_that_were_assumed() {
    let call = |flop: &str, rest: &str, timing: &str| {
        let text = format!(
            "operator: {{kind: elementwise{flop}}}\nshape: {{elements: 67108864}}\ndtypes: {{inputs: [fp32]}}\n\
             dataflow: {{reuse: none}}\nimplementation: {{issue_slots_per_element: 20{rest}}}\n{timing}\n"
        );
        let sheet = FactSheet::from_yaml(&text, "f.yaml").unwrap();
        triage(&sheet, Some(&Ceilings::published(part("H200").unwrap())), &[]).unwrap()
    };
    let rolled = ", uncounted_loop: 'loop:0'";
    let o = call("", rolled, "");
    assert_eq!(o.call, None);
    assert!(
        o.headline().contains("loop:0 of the machine code computes and moves nothing"),
        "{}",
        o.headline()
    );
    let slow = "timing: {median_us: 2900, method: cuda_graph}";
    assert_eq!(call("", rolled, slow).call, Some(Call::Neither));
    // Without such a loop, with operations that are stated, or with a time as short as that of the bytes, it is nothing.
    let fast = "timing: {median_us: 140, method: cuda_graph}";
    for (flop, rest, timing) in [("", "", ""), (", flop_per_element: 3", rolled, ""), ("", rolled, fast)] {
        let o = call(flop, rest, timing);
        assert_eq!(o.call, Some(Call::MemoryBound), "{flop} {rest} {timing}");
        assert!(!o.headline().contains("loop:0"), "{}", o.headline());
    }
}

#[test]
fn a_kernel_whose_instructions_take_longer_than_its_bytes_is_not_called_memory_bound() {
    let map = |flop: &str, slots: f64, timing: &str| {
        let text = format!(
            "operator: {{kind: elementwise{flop}}}\nshape: {{elements: 67108864}}\ndtypes: {{inputs: [fp32]}}\n\
             dataflow: {{reuse: none}}\nimplementation: {{issue_slots_per_element: {slots}}}\n{timing}\n"
        );
        let sheet = FactSheet::from_yaml(&text, "f.yaml").unwrap();
        triage(&sheet, Some(&Ceilings::published(part("H200").unwrap())), &[]).unwrap()
    };
    let timed = "timing: {median_us: 2900, method: cuda_graph}";
    // 1024 multiply-adds an element that nobody stated, and stated as one operation.
    for flop in ["", ", flop_per_element: 1"] {
        let o = map(flop, 1040.0, timed);
        let told: Vec<&str> = o.contradictions.iter().map(|c| c.what.as_str()).collect();
        assert!(matches!(told.as_slice(), [one] if one.contains("1040 issue slots an element")), "{told:?}");
        assert_eq!(o.call, Some(Call::Neither));
        assert!(o.headline().contains("1040 issue slots"), "{}", o.headline());
        assert!(o.order.iter().any(|s| s.priority == Priority::P0 && s.action.contains("1040 issue slots")));
        let memory = &o.verdicts()[0];
        assert!(memory.evidence.iter().any(|e| e.statement.contains("1040 issue slots")), "{memory:?}");
        let o = map(flop, 1040.0, "");
        assert_eq!(o.call, None);
        assert!(o.headline().starts_with("no initial call: "), "{}", o.headline());
        assert!(o.outputs.unwrap().conclusion.contains("1040 issue slots"));
    }
    // Few slots, operations that are stated, and a count that the time itself beats say nothing.
    for (flop, slots, timing) in [
        ("", 20.0, timed),
        ("", 20.0, ""),
        (", flop_per_element: 2048", 1040.0, timed),
        ("", 1040.0, "timing: {median_us: 200, method: cuda_graph}"),
    ] {
        let o = map(flop, slots, timing);
        assert_eq!(o.contradictions, [], "{flop} {slots} {timing}");
        assert!(o.call.is_some(), "{flop} {slots} {timing}");
    }
}

#[test]
fn the_operations_of_a_map_that_nobody_states_are_assumed_and_said_to_be() {
    for (flop, kind) in [("", "assumed"), (", flop_per_element: 1", "given"), (", flop: 67108864", "given")] {
        let text = format!(
            "operator: {{kind: elementwise{flop}}}\nshape: {{elements: 67108864}}\ndtypes: {{inputs: [fp32]}}\n\
             dataflow: {{reuse: none}}\n"
        );
        let sheet = FactSheet::from_yaml(&text, "f.yaml").unwrap();
        let o = triage(&sheet, Some(&Ceilings::published(part("H200").unwrap())), &[]).unwrap();
        assert_eq!(o.initial.unwrap().flop.provenance.kind.as_str(), kind, "{flop}");
        let told = o.outputs.unwrap().evidence.assumptions;
        let says = told.iter().any(|a| a == "1 operation an element assumed; state flop_per_element");
        assert_eq!(says, kind == "assumed", "{told:?}");
    }
}
