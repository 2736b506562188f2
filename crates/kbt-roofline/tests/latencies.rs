//! What no throughput explains, and claims on the same time: chains of dependent loads, and atomic updates that wait for each other.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use kbt_roofline::outcome::{CandidateRow, CandidateStanding as Standing, Resource};
use kbt_roofline::{Ceilings, FactSheet, TriageOutcome, part, triage};

fn run(text: &str) -> TriageOutcome {
    let sheet = FactSheet::from_yaml(text, "f.yaml").unwrap();
    triage(&sheet, Some(&Ceilings::published(part("H200").unwrap())), &[]).unwrap()
}

fn row<'a>(outcome: &'a TriageOutcome, id: &str) -> &'a CandidateRow {
    outcome.evidence.iter().find(|r| r.candidate == id).unwrap()
}

fn share(outcome: &TriageOutcome, id: &str) -> f64 {
    row(outcome, id).share.as_ref().unwrap().value
}

/// A list that one CTA follows, `links` long, in 2.59 s.
fn chase(links: u64) -> TriageOutcome {
    run(&format!(
        "operator: {{kind: counts, flop: 0, hbm_bytes: 134217728}}\nshape: {{elements: 4194304}}\n\
         dtypes: {{inputs: [int32], output: int32}}\n\
         dataflow: {{reuse: none, access: dependent_chain, chain_length: {links}, chain_latency_ns: 600}}\n\
         implementation: {{pipeline_stages: 1, grid_ctas: 1, warp_specialized: false, async_copies: false}}\n\
         profiler: {{metrics: {{smsp__warp_issue_stalled_long_scoreboard_per_warp_active.pct: 98}}}}\n\
         timing: {{median_us: 2590000, method: cuda_events, communication_included: false}}\n"
    ))
}

#[test]
fn a_chain_that_explains_the_time_comes_before_what_only_claims_the_idle_rest() {
    let outcome = chase(4_194_304);
    assert_eq!(outcome.evidence[0].candidate, "dependency_chain");
    assert!((share(&outcome, "dependency_chain") - 0.9717).abs() < 1e-3);
    // Warps wait for memory all the time, which is the chain's.
    for idle in ["no_overlap", "too_few_ctas", "memory_latency"] {
        assert!(share(&outcome, idle) < 0.03, "{idle}");
        let against = &row(&outcome, idle).against;
        assert!(
            against.iter().any(|s| s.text.contains("chain of dependent loads takes 97 %")),
            "{against:?}"
        );
    }
    // A chain of a tenth of the time leaves the rest to the others.
    let short = chase(419_430);
    assert_ne!(short.evidence[0].candidate, "dependency_chain");
    assert!(share(&short, "too_few_ctas") > 0.85);
}

#[test]
fn two_candidates_of_the_same_time_say_what_would_tell_them_apart() {
    let text = "operator: {kind: gemm}\nshape: {m: 128, n: 4096, k: 4096}\ndtypes: {inputs: [bf16], output: bf16}\n\
                dataflow: {reuse: tiles}\nimplementation: {grid_ctas: 32, pipeline_stages: 1, warp_specialized: false}\n\
                timing: {median_us: 100, method: cuda_events, communication_included: false}\n";
    let outcome = run(text);
    let supported: Vec<&CandidateRow> =
        outcome.evidence.iter().filter(|r| r.standing == Standing::Supported).collect();
    let (first, second) = (supported[0], supported[1]);
    let both: f64 = [first, second].iter().map(|r| r.share.as_ref().unwrap().value).sum();
    assert!(both > 1.05, "{both}");
    assert!(second.needed[0].contains(&format!("an experiment on {} alone", first.candidate)), "{second:?}");
    assert!(first.needed.iter().all(|n| !n.contains("an experiment on")), "{first:?}");
}

/// A histogram of 64 counters over 16 Mi words in 3 ms.
fn histogram(dataflow: &str, metrics: &str) -> TriageOutcome {
    run(&format!(
        "operator: {{kind: counts, flop: 16777216, hbm_bytes: 67109120, hbm_read_bytes: 67108864}}\n\
         shape: {{elements: 16777216, output_elements: 64}}\ndtypes: {{inputs: [int32], output: int32}}\n\
         dataflow: {{reuse: none{dataflow}}}\nprofiler: {{metrics: {{{metrics}}}}}\n\
         timing: {{median_us: 3000, method: cuda_events, communication_included: false, kernels: 1}}\n"
    ))
}

#[test]
fn contended_updates_are_named_by_the_busiest_slice_and_not_by_the_mean_of_all() {
    let busiest = "lts__d_atomic_input_cycles_active.max.pct_of_peak_sustained_elapsed";
    let levels = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed: 2, lts__throughput.avg.pct_of_peak_sustained_elapsed: 3";
    let outcome = histogram("", &format!("{levels}, {busiest}: 80"));
    let first = &outcome.evidence[0];
    assert_eq!((first.candidate.as_str(), first.standing), ("contended_atomics", Standing::Supported));
    assert!((share(&outcome, "contended_atomics") - 0.80).abs() < 1e-9);
    assert_eq!(outcome.experiments[0].candidate, "contended_atomics");
    assert!(outcome.experiments[0].factor.contains("shared memory"));
    // One update a CTA keeps no slice busy.
    let few = histogram("", &format!("{levels}, {busiest}: 7"));
    assert!(few.evidence.iter().all(|r| r.candidate != "contended_atomics" || !r.against.is_empty()));
    assert_ne!(few.evidence[0].candidate, "contended_atomics");
}

#[test]
fn where_no_slice_was_looked_at_the_part_of_l2s_sectors_that_updates_move_speaks() {
    // Of 8.4 M sectors read and 67 M updated; passes leave a counter of none a little below 0.
    let sectors = |red: f64| {
        format!(
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed: 2, \
             lts__throughput.avg.pct_of_peak_sustained_elapsed: 3, lts__t_sectors_op_red.sum: {red}, \
             lts__t_sectors_op_read.sum: 8388608, lts__t_sectors_op_write.sum: 0"
        )
    };
    let outcome = histogram("", &sectors(67_108_864.0));
    assert_eq!(outcome.evidence[0].candidate, "contended_atomics");
    assert!((share(&outcome, "contended_atomics") - 0.97 * 67_108_864.0 / 75_497_472.0).abs() < 1e-6);
    let needed = &row(&outcome, "contended_atomics").needed;
    assert!(needed.iter().any(|n| n.contains("busiest L2 slice")), "{needed:?}");
    assert!(histogram("", &sectors(33_792.0)).evidence[0].candidate != "contended_atomics");
}

#[test]
fn updates_of_one_address_are_a_bound_of_one_a_clock() {
    let outcome = histogram(", atomics_of_one_address: 4000000", "");
    let bound = outcome.bounds.iter().find(|b| b.resource == Resource::Atomics).unwrap();
    // 4e6 at the data sheet's 1830 MHz.
    assert!((bound.time.value - 4e6 / 1830.0).abs() < 1e-6, "{}", bound.time.value);
    assert_eq!(outcome.evidence[0].candidate, "contended_atomics");
    // More than one a clock is a contradiction to report.
    let beaten = histogram(", atomics_of_one_address: 8000000", "");
    assert!(beaten.contradictions.iter().any(|c| c.what.contains("atomic updates of one address")));
    assert!(histogram("", "").bounds.iter().all(|b| b.resource != Resource::Atomics));
}

#[test]
fn stated_intermediates_come_before_the_bandwidth_that_they_use() {
    let text = "operator: {kind: elementwise, flop_per_element: 1}\nshape: {elements: 134217728}\n\
                dtypes: {inputs: [fp32], output: fp32}\ndataflow: {reuse: none, intermediate_hbm_bytes: 1073741824}\n\
                timing: {median_us: 500, method: cuda_events, communication_included: false, kernels: 3}\n";
    let outcome = run(text);
    assert_eq!(outcome.evidence[0].candidate, "redundant_traffic");
    // Half of the traffic are the useful bytes: neither claims the whole.
    assert!((share(&outcome, "redundant_traffic") - share(&outcome, "hbm_bandwidth")).abs() < 1e-9);
    assert_eq!(row(&outcome, "hbm_bandwidth").standing, Standing::Contested);
}

#[test]
fn an_operator_without_operations_has_none_to_overlap() {
    let text = "operator: {kind: elementwise, flop_per_element: 0}\nshape: {elements: 67108864}\n\
                dtypes: {inputs: [fp32], output: fp32}\ndataflow: {reuse: none}\n\
                timing: {median_us: 480, method: cuda_events, communication_included: false, kernels: 1}\n";
    let outcome = run(text);
    let claims = |o: &TriageOutcome| {
        o.evidence
            .iter()
            .find(|r| r.candidate == "no_overlap")
            .and_then(|r| r.share.as_ref().map(|s| s.value))
    };
    assert!(claims(&outcome).unwrap_or(0.0) < 1e-9, "{:?}", claims(&outcome));
    let with_operations = run(&text.replace("flop_per_element: 0", "flop_per_element: 64"));
    assert!(claims(&with_operations).unwrap() > 0.5);
}

#[test]
fn what_nothing_speaks_for_is_asked_of_the_side_that_the_intensity_calls() {
    let text = |m: u32, us: u32| {
        format!(
            "operator: {{kind: gemm}}\nshape: {{m: {m}, n: 4096, k: 4096}}\ndtypes: {{inputs: [int8], output: int32}}\n\
             dataflow: {{reuse: tiles}}\ntiming: {{median_us: {us}, method: cuda_events, communication_included: false}}\n\
             implementation: {{grid_ctas: 512, pipeline_stages: 3, async_copies: true, mma_instruction: wgmma}}\n"
        )
    };
    let first_open = |o: &TriageOutcome| {
        o.evidence
            .iter()
            .find(|r| r.standing == Standing::Open && r.share.is_none())
            .unwrap()
            .candidate
            .clone()
    };
    assert_eq!(first_open(&run(&text(4096, 150))), "tail_wave");
    assert_eq!(first_open(&run(&text(1, 40))), "uncoalesced_access");
}
