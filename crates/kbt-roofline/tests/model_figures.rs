//! Figures of the models and thresholds of the readings, each against a number worked out by hand.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use kbt_roofline::outcome::Reading;
use kbt_roofline::{Ceilings, ExperimentResult, FactSheet, RoofKind, TriageOutcome, part, triage};

fn h200() -> Ceilings {
    Ceilings::published(part("H200").unwrap())
}

fn run(text: &str) -> TriageOutcome {
    triage(&FactSheet::from_yaml(text, "f.yaml").unwrap(), Some(&h200()), &[]).unwrap()
}

/// What the checks read of a signal.
fn read(outcome: &TriageOutcome, signal: &str) -> Option<f64> {
    let conditions = outcome.checks.iter().flat_map(|c| c.conditions.iter().flatten());
    conditions.filter(|t| t.signal == signal).find_map(|t| t.read.as_ref().map(|f| f.value))
}

/// 4 GB moved in 1 ms, 83 % of the data sheet's 4.8 TB/s.
const COPY: &str = "operator: {kind: elementwise, flop_per_element: 1}\nshape: {elements: 500000000}\n\
                    dtypes: {inputs: [fp32], output: fp32}\ndataflow: {reuse: none}\n\
                    timing: {median_us: 1000, low_us: 999, high_us: 1001, spread: p10 to p90, method: cuda_events, \
                    warmup_launches: 50, communication_included: false, cache: cold}\n";

#[test]
fn the_published_shared_memory_roof_is_128_bytes_a_clock_and_sm() {
    let h200 = part("H200").unwrap();
    let roof = self::h200().roof(RoofKind::SharedRead).unwrap().value;
    assert_eq!(roof, 128.0 * h200.sm_count * h200.sm_clock_mhz * 1e6);
}

#[test]
fn queries_beyond_the_keys_see_the_triangle_of_the_keys() {
    let text = "operator: {kind: attention}\n\
                shape: {batch: 1, heads: 1, seqlen: 100, seqlen_kv: 50, head_dim: 64, causal: true}\n\
                dtypes: {inputs: [bf16], output: bf16}\ndataflow: {reuse: none}\ntiming: {median_us: 9}\n";
    // Two products of 2 operations a pair and element of the head, over 1 + 2 + ... + 50 pairs.
    assert_eq!(run(text).initial.unwrap().flop.value, 2.0 * 2.0 * 64.0 * (50.0 * 51.0 / 2.0));
}

#[test]
fn stated_intermediates_add_their_own_bytes_to_the_useful_ones() {
    let spilt = COPY.replace("reuse: none", "reuse: none, intermediate_hbm_bytes: 400000000");
    // 4 GB at 4.8 TB/s is 83.3 % of 1 ms; a tenth more is 91.7 %.
    assert!((read(&run(&spilt), "hbm_busy").unwrap() - 4.4e9 / 4.8e12 / 1e-3).abs() < 1e-9);
}

#[test]
fn a_persistent_kernel_has_one_tile_an_sm_at_a_time() {
    let text = COPY
        .replace("dataflow:", "implementation: {persistent: true, tiles: 300, ctas_per_sm: 2}\ndataflow:");
    assert!((read(&run(&text), "wave_efficiency").unwrap() - 300.0 / 132.0 / 3.0).abs() < 1e-12);
}

#[test]
fn counters_of_one_launch_stand_for_all_kernels_of_a_call_that_they_fit_into() {
    let of = |ns: f64| {
        let text = format!(
            "{}profiler: {{metrics: {{dram__bytes.sum: 2.0e9, gpu__time_duration.sum: {ns}}}}}\n",
            COPY.replace("cache: cold", "cache: cold, kernels: 2")
        );
        read(&run(&text), "traffic_ratio").unwrap()
    };
    assert_eq!(of(545_000.0), 1.0, "two of them are 9 % slower than the call");
    assert_eq!(of(555_000.0), 0.5, "two of them are 11 % slower: another kernel's launch");
}

#[test]
fn an_fma_of_a_warp_is_64_operations() {
    let text = COPY.replace("flop_per_element: 1", "flop_per_element: 640").replace("500000000", "1000000")
        + "profiler: {metrics: {l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum: 3333333, \
           l1tex__throughput.avg.pct_of_peak_sustained_active: 90}}\n";
    let outcome = run(&text);
    let said = outcome.evidence.iter().flat_map(|r| r.against.iter().chain(&r.supports).chain(&r.looked_for));
    let all: Vec<&str> = said.map(|s| s.text.as_str()).collect();
    assert!(all.iter().any(|t| t.contains("3.00 warp-level FMAs")), "{all:?}");
}

#[test]
fn less_than_a_quarter_of_the_predicted_saving_contradicts_and_half_of_it_confirms() {
    let sheet = FactSheet::from_yaml(COPY, "f.yaml").unwrap();
    let first = run(COPY).experiments[0].clone();
    let effect = 1.0 - first.predicted.value / 1000.0;
    assert!(effect > 0.2, "{effect}");
    let reading = |part: f64| {
        let us = 1000.0 * (1.0 - effect * part);
        let text = format!("experiment: {}\nobserved_us: {us}\nbaseline_us: 1000\n", first.id);
        let result = ExperimentResult::from_yaml(&text, "r.yaml").unwrap();
        triage(&sheet, Some(&h200()), &[(result, "r.yaml".to_owned())]).unwrap().results[0].reading
    };
    assert_eq!(reading(0.23), Reading::Contradicted);
    assert_eq!(reading(0.27), Reading::Inconclusive);
    assert_eq!(reading(0.48), Reading::Inconclusive);
    assert_eq!(reading(0.52), Reading::Confirmed);
}

#[test]
fn a_baseline_half_as_long_again_is_another_call_s() {
    let sheet = FactSheet::from_yaml(COPY, "f.yaml").unwrap();
    let taken = |baseline: f64| {
        let text = format!("experiment: hbm_bandwidth\nobserved_us: 900\nbaseline_us: {baseline}\n");
        let result = ExperimentResult::from_yaml(&text, "r.yaml").unwrap();
        triage(&sheet, Some(&h200()), &[(result, "r.yaml".to_owned())]).map(|_| ()).map_err(|e| e.to_string())
    };
    assert!(taken(1490.0).is_ok() && taken(680.0).is_ok());
    for baseline in [1510.0, 660.0] {
        assert!(taken(baseline).unwrap_err().contains("the baseline is the same call"), "{baseline}");
    }
}
