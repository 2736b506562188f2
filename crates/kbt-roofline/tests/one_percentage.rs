//! Failure mode 3: one percentage of the profiler is never end-to-end evidence. Counts over the measured time decide, and
//! a percentage that differs is printed as a contradiction.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use kbt_roofline::outcome::{Call, TriageOutcome};
use kbt_roofline::{Ceilings, FactSheet, part, triage};

const DRAM: &str = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed";
const TENSOR: &str = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active";

fn triaged(text: &str) -> TriageOutcome {
    let sheet = FactSheet::from_yaml(text, "f.yaml").unwrap();
    triage(&sheet, Some(&Ceilings::published(part("H200").unwrap())), &[]).unwrap()
}

fn gemm(metrics: &str) -> TriageOutcome {
    triaged(&format!(
        "operator: {{kind: gemm}}\nshape: {{m: 8192, n: 8192, k: 8192}}\n\
         dtypes: {{inputs: [bf16], output: bf16}}\ndataflow: {{reuse: tiles}}\n\
         timing: {{median_us: 1300, method: cuda_events, communication_included: false, cache: cold}}\n\
         profiler: {{metrics: {{{metrics}}}}}\n"
    ))
}

fn copy(us: u32, cache: &str, metrics: &str) -> TriageOutcome {
    triaged(&format!(
        "operator: {{kind: elementwise, flop_per_element: 1}}\nshape: {{elements: 500000000}}\n\
         dtypes: {{inputs: [fp32], output: fp32}}\ndataflow: {{reuse: none, access: regular}}\n\
         timing: {{median_us: {us}, method: cuda_events, communication_included: false, cache: {cache}}}\n\
         profiler: {{metrics: {{{metrics}}}}}\n"
    ))
}

#[test]
fn a_percentage_that_differs_from_counts_and_time_is_a_contradiction_and_no_verdict() {
    for (outcome, call, name) in [
        (gemm(&format!("{TENSOR}: 45")), Call::ComputeBound, TENSOR),
        (copy(1020, "cold", &format!("{DRAM}: 40")), Call::MemoryBound, DRAM),
    ] {
        assert_eq!(outcome.call, Some(call), "{name}");
        let told: Vec<&str> = outcome.contradictions.iter().map(|c| c.what.as_str()).collect();
        assert!(told.len() == 1 && told[0].starts_with(name), "{told:?}");
        assert!(told[0].contains("the measured time decides"), "{told:?}");
        let text = outcome.render_text().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&format!("CONFLICT {name} reads 4")), "{text}");
    }
}

#[test]
fn a_percentage_near_the_share_or_of_a_slower_launch_of_as_many_bytes_contradicts_nothing() {
    for outcome in [
        gemm(&format!("{TENSOR}: 70")),
        copy(1020, "cold", &format!("{DRAM}: 80")),
        // 2.4 times the time at 0.4 of the rate.
        copy(1020, "cold", &format!("{DRAM}: 40, gpu__time_duration.sum: 2400000")),
    ] {
        assert!(outcome.contradictions.is_empty(), "{:?}", outcome.contradictions);
    }
    let fp32_of_a_slow_pipe = copy(4000, "cold", &format!("{DRAM}: 30"));
    assert_eq!(fp32_of_a_slow_pipe.call, Some(Call::Neither));
}

#[test]
fn a_busy_percentage_makes_no_slow_call_memory_or_compute_bound() {
    let memory = copy(2000, "cold", &format!("{DRAM}: 70"));
    assert_eq!(memory.call, Some(Call::Neither), "{}", memory.outputs.unwrap().conclusion);
    let product = triaged(
        "operator: {kind: gemm}\nshape: {m: 8192, n: 8192, k: 8192}\ndtypes: {inputs: [bf16], output: bf16}\n\
         dataflow: {reuse: tiles}\ntiming: {median_us: 3000, communication_included: false, cache: cold}\n\
         profiler: {metrics: {sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active: 95}}\n",
    );
    assert_eq!(product.call, Some(Call::Neither));
    assert_eq!(product.contradictions.len(), 1);
}
