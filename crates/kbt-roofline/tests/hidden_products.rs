//! Products that hide behind the bytes, and what a kernel without matrix instructions is asked for.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use kbt_roofline::{Ceilings, FactSheet, TriageOutcome, part, triage};

fn with(device: &str, text: &str) -> TriageOutcome {
    let sheet = FactSheet::from_yaml(text, "f.yaml").unwrap();
    triage(&sheet, Some(&Ceilings::published(part(device).unwrap())), &[]).unwrap()
}

/// Kernels whose bytes need far longer than their products, however badly these run: what they wait for is memory.
#[test]
fn products_that_hide_behind_the_bytes_are_no_bottleneck() {
    let decode = "operator: {kind: attention}\n\
                  shape: {batch: 64, heads: 32, kv_heads: 8, seqlen: 1, seqlen_kv: 4096, head_dim: 128}\n\
                  dtypes: {inputs: [bf16], output: bf16}\ndataflow: {reuse: K and V once, access: gather}\n\
                  implementation: {tensor_instructions: no}\n\
                  timing: {median_us: 620, method: cuda_graph, communication_included: no, kernels: 1}\n";
    let experts = "operator: {kind: gemm}\nshape: {batch: 64, m: 8, n: 2816, k: 2048}\n\
                   dtypes: {inputs: [bf16], output: bf16}\ndataflow: {reuse: weights once}\n\
                   implementation: {tile_m: 64, tile_n: 128, tensor_instructions: yes, mma_instruction: mma.sync}\n\
                   timing: {median_us: 420, method: cuda_graph, communication_included: no, kernels: 1}\n";
    let gather = "operator: {kind: counts, flop: 0, hbm_bytes: 2.68e8}\ndtypes: {inputs: [bf16]}\n\
                  dataflow: {reuse: none, access: gather}\n\
                  timing: {median_us: 160, method: cuda_events, communication_included: no, kernels: 1}\n";
    for sheet in [decode, experts, gather] {
        let outcome = with("H100", sheet);
        let first = &outcome.experiments[0].candidate;
        assert_eq!(first, "memory_latency", "{sheet}: {:?}", outcome.evidence);
        let hidden = ["no_matrix_instructions", "tile_waste", "no_overlap"];
        assert!(outcome.experiments.iter().all(|e| !hidden.contains(&e.candidate.as_str())), "{sheet}");
    }
    // The same tiles on a product of many rows are what its time goes to.
    let dense = "operator: {kind: gemm}\nshape: {m: 4100, n: 4096, k: 4096}\n\
                 dtypes: {inputs: [bf16], output: bf16}\ndataflow: {reuse: tiles}\n\
                 implementation: {tensor_instructions: no}\n\
                 timing: {median_us: 3500, method: cuda_graph, communication_included: no, kernels: 1}\n";
    assert_eq!(with("H100", dense).experiments[0].candidate, "no_matrix_instructions");
}

#[test]
fn a_scalar_product_is_asked_for_no_tensor_counter() {
    let sgemm = "operator: {kind: gemm}\nshape: {m: 4096, n: 4096, k: 4096}\n\
                 dtypes: {inputs: [fp32], accumulate: fp32, output: fp32}\ndataflow: {reuse: tiles}\n\
                 device: {name: H100}\n\
                 timing: {median_us: 4000, method: cuda_events, communication_included: no, kernels: 1}\n";
    for device in ["H100", "RTX 5090"] {
        let outcome = with(device, sgemm);
        let checks = outcome.checks.iter().flat_map(|c| &c.needed);
        for needed in outcome.evidence.iter().flat_map(|r| &r.needed).chain(checks) {
            assert!(
                !needed.contains("tensor") && !needed.contains("matrix instruction"),
                "{device}: {needed}"
            );
        }
    }
}
