//! What a bound is a bound of: bytes that must move, caches that are cold, and a device that the time is of.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use kbt_roofline::outcome::{CandidateStanding as Standing, Priority};
use kbt_roofline::{Ceilings, FactSheet, TriageOutcome, part, triage};

fn run(text: &str, device: &str) -> TriageOutcome {
    let sheet = FactSheet::from_yaml(text, "f.yaml").unwrap();
    triage(&sheet, Some(&Ceilings::published(part(device).unwrap())), &[]).unwrap()
}

fn standing(outcome: &TriageOutcome, id: &str) -> Option<Standing> {
    outcome.evidence.iter().find(|r| r.candidate == id).map(|r| r.standing)
}

#[test]
fn a_strided_convolution_must_read_only_the_positions_that_its_windows_cover() {
    let text = "operator: {kind: convolution}\n\
        shape: {batch: 32, channels: 256, height: 56, width: 56, filters: 512, kernel_height: 1, kernel_width: 1, stride: 2}\n\
        dtypes: {inputs: [fp16], output: fp16}\ndataflow: {reuse: x}\n\
        timing: {median_us: 14, method: cuda_events}\n";
    let found = run(text, "H200").initial.unwrap();
    let least = 2.0 * (32.0 * 256.0 * 28.0 * 28.0 + 512.0 * 256.0 + 32.0 * 512.0 * 28.0 * 28.0);
    assert!((found.hbm_bytes.value - least).abs() < 1.0, "{}", found.hbm_line);
    assert!(found.hbm_line.contains("28 x 28 of 56 x 56 positions"), "{}", found.hbm_line);
    let whole = run(&text.replace("stride: 2", "stride: 1"), "H200").initial.unwrap();
    assert!(!whole.hbm_line.contains("positions"), "{}", whole.hbm_line);
}

#[test]
fn data_that_fits_in_l2_bears_on_device_memory_only_where_the_caches_are_cold() {
    let of = |elements: u64, us: f64, cache: &str| {
        let text = format!(
            "operator: {{kind: elementwise, flop_per_element: 1}}\nshape: {{elements: {elements}}}\n\
             dtypes: {{inputs: [fp32], output: fp32}}\ndataflow: {{reuse: none}}\n\
             timing: {{median_us: {us}, method: cuda_graph, communication_included: false, warmup_launches: 50{cache}}}\n"
        );
        run(&text, "H200")
    };
    let asks = |o: &TriageOutcome| {
        o.order.iter().any(|s| {
            s.priority == Priority::P0
                && s.action.contains("timing.cache")
                && s.why.starts_with("cold caches assumed; 20.0 MB fit in L2")
        })
    };
    // 20 MB in 5.5 us.
    let unstated = of(2_500_000, 5.5, "");
    assert_eq!(standing(&unstated, "hbm_bandwidth"), Some(Standing::Contested));
    assert!(asks(&unstated), "{:?}", unstated.order);
    let outputs = unstated.outputs.unwrap();
    assert!(outputs.conclusion.contains("Cold caches assumed: 20.0 MB fit in L2"), "{}", outputs.conclusion);
    assert!(outputs.evidence.assumptions.iter().any(|a| a.starts_with("cold caches: 20.0 MB")));
    let cold = of(2_500_000, 5.5, ", cache: cold");
    assert_eq!(standing(&cold, "hbm_bandwidth"), Some(Standing::Supported));
    assert!(!asks(&cold));
    // What L2 cannot hold needs no word on the caches.
    let large = of(25_000_000, 55.0, "");
    assert_eq!(standing(&large, "hbm_bandwidth"), Some(Standing::Supported));
    assert!(large.order.iter().all(|s| !s.action.contains("timing.cache")));
}

#[test]
fn on_another_device_a_supported_candidate_comes_before_one_that_the_sheet_speaks_against() {
    let text = include_str!("../../../fixtures/facts/attention-materialised.yaml");
    let outcome = run(text, "A100");
    assert!(outcome.sheet_device.is_some());
    let first = &outcome.evidence[0];
    assert_eq!((first.candidate.as_str(), first.standing), ("redundant_traffic", Standing::Supported));
    assert_eq!(standing(&outcome, "hbm_bandwidth"), Some(Standing::Contested));
    assert_eq!(outcome.experiments[0].candidate, "redundant_traffic");
}

#[test]
fn few_exp2_say_nothing_against_a_pipe_that_does_more_than_exp2() {
    let text = "operator: {kind: attention}\n\
        shape: {batch: 4, heads: 16, seqlen: 4096, head_dim: 128, causal: false}\n\
        dtypes: {inputs: [bf16], output: bf16, mma: bf16}\ndataflow: {reuse: tiles}\n\
        timing: {median_us: 5000, method: cuda_events, communication_included: false}\n";
    let row = |o: &TriageOutcome| o.evidence.iter().find(|r| r.candidate == "xu_pipe").cloned();
    // About a tenth of the time is exp2: how much divisions and conversions add is not known.
    let counted = row(&run(text, "H200")).unwrap();
    assert_eq!((counted.standing, counted.against.len(), counted.looked_for.len()), (Standing::Open, 0, 0));
    let asked = "; the XU pipe is busy at least 6 % of the time, with the operator's exp2 alone";
    assert!(counted.needed.iter().any(|n| n.ends_with(asked)), "{:?}", counted.needed);
    // As many as fill the pipe do speak for it.
    let full = row(&run(&text.replace("5000", "420"), "H200")).unwrap();
    assert!(full.supports[0].text.contains("at least"), "{:?}", full.supports);
    // And what the profiler read speaks against it.
    let metrics = "profiler: {metrics: {sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active: 12}}\n";
    let read = row(&run(&format!("{text}{metrics}"), "H200"));
    let against: Vec<String> = read.into_iter().flat_map(|r| r.against).map(|s| s.text).collect();
    assert_eq!(against, ["the XU pipe is busy 12 % of the time"]);
}

/// A call that reads and writes `elements` floats with warm caches.
fn warm(device: &str, name: &str, elements: u64) -> TriageOutcome {
    let text = format!(
        "operator: {{kind: elementwise, flop_per_element: 1}}\nshape: {{elements: {elements}}}\n\
         dtypes: {{inputs: [fp32], output: fp32}}\ndataflow: {{reuse: none}}\ndevice: {{{name}}}\n\
         timing: {{median_us: 50, method: cuda_events, communication_included: false, cache: warm}}\n"
    );
    run(&text, device)
}

#[test]
fn warm_caches_hold_what_the_devices_own_l2_holds() {
    let bounds_the_time = |o: &TriageOutcome| o.bounds[0].share.is_some();
    // 80 MB: more than the 60 MiB of an H200, less than the 126 MiB of a B200.
    let (h200, b200) = (warm("H200", "", 10_000_000), warm("B200", "", 10_000_000));
    assert!(bounds_the_time(&h200) && !bounds_the_time(&b200));
    let said = |o: &TriageOutcome| o.outputs.clone().unwrap().evidence.assumptions.join("; ");
    assert!(said(&h200).contains("L2 (62.9 MB) does not hold 80.0 MB"), "{}", said(&h200));
    assert!(said(&b200).contains("80.0 MB may lie in L2"), "{}", said(&b200));
    // The device that the sheet names, and the size that it states, come before the ceilings' own.
    assert!(!bounds_the_time(&warm("H200", "name: B200", 10_000_000)));
    assert!(!bounds_the_time(&warm("H200", "l2_bytes: 100e6", 10_000_000)));
    // 30 MB, and 24 MB of L2.
    assert!(bounds_the_time(&warm("H200", "l2_bytes: 24e6", 3_750_000)));
}
