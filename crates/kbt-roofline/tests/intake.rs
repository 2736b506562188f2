//! Intake: which questions are answered, which are refused, and what is asked for.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use kbt_device::{Arch, Ceiling, CeilingKind, DeviceProfile};
use kbt_evidence::{Figure, FixClass, Provenance, Standing, Unit};
use kbt_roofline::outcome::{Call, CheckStatus, Status};
use kbt_roofline::{Ceilings, FactSheet, PvMode, TriageOutcome, attention_facts, part, triage};

const RMSNORM: &str = include_str!("../../../fixtures/facts/rmsnorm.yaml");

fn b200() -> Ceilings {
    Ceilings::published(part("B200").unwrap())
}

fn run(text: &str) -> TriageOutcome {
    triage(&FactSheet::from_yaml(text, "f.yaml").unwrap(), Some(&b200()), &[]).unwrap()
}

/// The complete sheet without one section.
fn without(section: &str) -> String {
    let mut out = String::new();
    let mut skip = false;
    for line in RMSNORM.lines() {
        if !line.starts_with([' ', '#']) && !line.is_empty() {
            skip = line.starts_with(&format!("{section}:"));
        }
        if !skip {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

fn missing(outcome: &TriageOutcome) -> Vec<&str> {
    outcome.missing.iter().map(|f| f.as_str()).collect()
}

#[test]
fn questions_are_sorted_into_those_a_roofline_answers_and_those_it_does_not() {
    let all = ["operator", "shape", "dtype", "timing", "dataflow"];
    // The three that should trigger: alone they are in scope, and refused for want of facts.
    for question in [
        "This kernel only hits 400 TFLOPS on B200 — where do I look first?",
        "Should this operator be fused, or switched to TMA/Tensor Cores?",
        "Do a roofline diagnosis for me and give an ordered sequence of optimization experiments.",
        "Why is my GEMM slow on GB300?",
        "Is 2.1 TB/s good for this RMSNorm?",
        "My attention kernel does not get faster with fp8. What limits it?",
        "Does more occupancy help here?",
        "The profiler says 97 % throughput, am I done?",
    ] {
        let outcome = run(&format!("question: \"{question}\"\n"));
        assert_eq!((outcome.status, missing(&outcome)), (Status::Refused, all.to_vec()), "{question}");
        assert!(outcome.call.is_none() && outcome.evidence.is_empty());
        assert!(outcome.outputs.unwrap().conclusion.contains("no bottleneck is asserted"));
    }
    // The first of the two that should not: nothing about an operator.
    for question in [
        "How much memory does a B200 have?",
        "What is the price of a B200?",
        "How many GB200 fit in one NVL72 rack?",
        "Does a 70B model fit in memory on one H200?",
        "When will the B300 be available?",
        "What is the TDP of a GB300?",
        "How much does cooling a rack cost?",
        "Does Llama-70B fit into 80 GB?",
        "Will it OOM?",
        "Does my KV cache fit into memory?",
        "How expensive is it?",
        "TCO of B200 vs H200",
        "How many GPUs for 1000 users?",
    ] {
        let outcome = run(&format!("question: \"{question}\"\n"));
        assert_eq!(outcome.status, Status::OutOfScope, "{question}");
        assert!(outcome.outputs.is_none() && outcome.call.is_none());
    }
    // The second: no information at all.
    assert_eq!(run("name: my kernel\n").status, Status::Refused);
    // A price question is one even beside a kernel, and says that the kernel can be triaged.
    let priced = RMSNORM.replace(
        "This RMSNorm barely gets faster when its arithmetic does. Where do I look first?",
        "What does an H100 cost?",
    );
    let outcome = run(&priced);
    assert_eq!(outcome.status, Status::OutOfScope);
    assert!(outcome.refusal.unwrap().contains("does describe a kernel"));
}

#[test]
fn each_missing_fact_is_named_and_no_bottleneck_is_asserted_without_it() {
    for (section, fact) in
        [("shape", "shape"), ("dtypes", "dtype"), ("dataflow", "dataflow"), ("operator", "operator")]
    {
        let outcome = run(&without(section));
        assert_eq!(outcome.status, Status::Refused, "{section}");
        assert!(missing(&outcome).contains(&fact), "{section}: {:?}", outcome.missing);
        assert!(outcome.call.is_none() && outcome.evidence.is_empty(), "{section}");
        assert!(outcome.supply.iter().all(|s| !s.example.is_empty()));
        assert!(outcome.outputs.is_some());
    }
    // The edge case: a kernel question with timing but no dtype.
    assert_eq!(missing(&run(&without("dtypes"))), ["dtype"]);
}

#[test]
fn with_only_the_timing_missing_the_initial_call_is_given_and_labelled() {
    let outcome = run(&without("timing"));
    assert_eq!((outcome.status, outcome.call), (Status::Initial, Some(Call::MemoryBound)));
    assert_eq!(missing(&outcome), ["timing"]);
    assert!(outcome.margin.unwrap().value > 1.5);
    assert!(outcome.evidence.is_empty() && outcome.checks.is_empty() && outcome.experiments.is_empty());
    let o = outcome.outputs.clone().unwrap();
    assert!(o.conclusion.starts_with("initial call"), "{}", o.conclusion);
    assert!(!o.artifact.rows.is_empty());
}

#[test]
fn irregular_access_and_chains_take_a_latency_or_are_refused() {
    let chain = RMSNORM.replace("access: regular", "access: dependent_chain");
    let outcome = run(&chain);
    assert_eq!(missing(&outcome), ["latency"]);
    assert!(outcome.call.is_none());
    let told = chain.replace(
        "access: dependent_chain",
        "access: dependent_chain\n  chain_length: 500\n  chain_latency_ns: 600",
    );
    let outcome = run(&told);
    assert_eq!(outcome.status, Status::Diagnosed);
    let bound = outcome.bounds.iter().find(|b| b.name == "dependency chain").unwrap();
    assert_eq!(bound.time.value, 300.0);
    assert!(outcome.evidence.iter().any(|r| r.candidate == "dependency_chain"));
}

#[test]
fn another_device_in_the_sheet_is_reported_not_refused() {
    let outcome = run(RMSNORM);
    assert_eq!(outcome.status, Status::Diagnosed);
    assert_eq!(outcome.sheet_device.as_deref(), Some("NVIDIA H100 80GB HBM3"));
    assert_eq!(outcome.call, Some(Call::MemoryBound));
    assert!(outcome.order_of_magnitude);
    let o = outcome.outputs.unwrap();
    assert!(o.evidence.assumptions.iter().any(|a| a.contains("another device's roofs")));
    assert!(o.conclusion.contains("another device"));
}

#[test]
fn a_time_is_held_against_the_sheet_s_own_ceilings_whatever_the_device() {
    for (sheet, device) in [
        (include_str!("../../../fixtures/facts/saxpy-above-its-ceiling.yaml"), "RTX 5070"),
        (include_str!("../../../fixtures/facts/decode-batch-1.yaml"), "NVIDIA A100-SXM4-80GB"),
    ] {
        let sheet = FactSheet::from_yaml(sheet, "f.yaml").unwrap();
        // Measured roofs of another device are better known, and say nothing of this time.
        for ceilings in [measured_h200(), b200()] {
            let o = triage(&sheet, Some(&ceilings), &[]).unwrap();
            assert_eq!(o.call, Some(Call::MemoryBound), "{device}");
            assert_eq!(o.evidence[0].candidate, "hbm_bandwidth", "{device}");
            assert!(o.order_of_magnitude);
            assert_eq!(o.sheet_device.as_deref(), Some(device));
            for bound in &o.bounds {
                let own = bound.name.starts_with("HBM");
                assert_eq!(bound.share.is_some(), own, "{device}: {}", bound.name);
            }
            let conclusion = o.outputs.unwrap().conclusion;
            assert!(conclusion.contains(&format!("memory-bound on {device}: ")), "{conclusion}");
            assert!(conclusion.contains("the arithmetic an unknown part"), "{conclusion}");
            let own = o.plot.unwrap().roofs.iter().filter(|r| r.name.ends_with(device)).count();
            assert_eq!(own, 1, "a roof of another device says so in the plot");
        }
    }
}

#[test]
fn where_a_grid_ran_is_not_where_the_ceilings_are() {
    // 108 CTAs fill an A100 and leave 24 of an H200's 132 SMs empty; the part is known, so its own count is taken.
    let text = "operator: {kind: gemm}\nshape: {m: 4096, n: 4096, k: 4096}\n\
                dtypes: {inputs: [bf16], output: bf16, mma: bf16}\ndataflow: {reuse: tiles}\n\
                implementation: {grid_ctas: 108, ctas_per_sm: 1, mma_instruction: mma.sync}\n\
                timing: {median_us: 700, method: cuda_events, communication_included: false}\n";
    let status = |device: &str, check: &str| {
        let sheet = FactSheet::from_yaml(&format!("{text}device: {{name: {device}}}\n"), "f.yaml").unwrap();
        let o = triage(&sheet, Some(&measured_h200()), &[]).unwrap();
        o.checks.iter().find(|c| c.id == check).unwrap().status
    };
    assert_eq!(status("A100", "small_shape"), CheckStatus::Clear);
    assert_eq!(status("NVIDIA H200", "small_shape"), CheckStatus::Fired);
    assert_eq!(status("an unknown card", "small_shape"), CheckStatus::NotEvaluated);
    // mma.sync is an A100's own matrix instruction and an older one on an H200.
    assert_eq!(status("NVIDIA H200", "no_tensor_instructions"), CheckStatus::Fired);
    assert_ne!(status("A100", "no_tensor_instructions"), CheckStatus::Fired);
}

#[test]
fn the_largest_sizes_that_a_sheet_can_state_are_an_answer_and_no_crash() {
    let most = u64::MAX;
    let formats = "dtypes: {inputs: [bf16], output: bf16}\ndataflow: {reuse: none}\n\
                   implementation: {tile_m: 128, tile_n: 18446744073709551615}\n\
                   timing: {median_us: 1, method: cuda_events, communication_included: false}\n";
    for work in [
        format!("operator: {{kind: gemm}}\nshape: {{batch: {most}, m: {most}, n: {most}, k: {most}}}\n"),
        format!("operator: {{kind: elementwise}}\nshape: {{elements: {most}}}\n"),
        format!("operator: {{kind: normalization}}\nshape: {{rows: {most}, columns: {most}}}\n"),
        format!(
            "operator: {{kind: attention}}\nshape: {{heads: {most}, seqlen: {most}, head_dim: {most}, causal: true}}\n"
        ),
        format!(
            "operator: {{kind: convolution}}\nshape: {{channels: {most}, filters: {most}, height: {most}, width: {most}, \
             kernel_height: 1, kernel_width: {most}, padding: {most}, stride: {most}, groups: {most}}}\n"
        ),
    ] {
        let o = run(&(work.clone() + formats));
        assert_eq!(o.status, Status::Diagnosed, "{work}");
        // No kernel does that in a microsecond.
        assert!(!o.contradictions.is_empty(), "{work}");
    }
}

fn measured_h200() -> Ceilings {
    let p = || Provenance::measured("kbt microbench run", "NVIDIA H200", "2026-11-30");
    let mut profile = DeviceProfile::new("h200-sxm", Arch::SM_90A, p());
    profile.device = Some("NVIDIA H200".into());
    profile.sm_count = Some(132);
    profile.sm_clock_mhz = Some(1980.0);
    for (kind, bytes_per_s, flop_per_s, seconds) in [
        (CeilingKind::HbmRead, Some(4.2e12), None, None),
        (CeilingKind::HbmCopy, Some(4.3e12), None, None),
        (CeilingKind::TensorBf16, None, Some(780e12), None),
        (CeilingKind::TensorFp8, None, Some(1500e12), None),
        (CeilingKind::LaunchLatency, None, None, Some(2.5e-6)),
    ] {
        profile.ceilings.push(Ceiling {
            kind,
            bytes_per_s,
            flop_per_s,
            seconds,
            spread_percent: None,
            provenance: p(),
        });
    }
    Ceilings::from_profile(&profile)
}

fn attention(us: f64, provenance: Provenance) -> FactSheet {
    let time = Figure::new("time", us, Unit::Microseconds, provenance).with_spread(
        us * 0.99,
        us * 1.01,
        "p10 to p90",
    );
    attention_facts(4, 16, 4096, 128, false, PvMode::Bf16, Some(time))
}

#[test]
fn a_side_is_ruled_out_only_by_measured_ceilings_and_a_measured_time() {
    let measured = Provenance::measured("kbt kernel run", "NVIDIA H200", "2026-11-30");
    let standing = |sheet: &FactSheet, ceilings: &Ceilings| {
        let outcome = triage(sheet, Some(ceilings), &[]).unwrap();
        let v = outcome.verdicts().into_iter().find(|v| v.class == FixClass::MemoryTraffic).unwrap();
        (v.standing, v.is_measured())
    };
    let sheet = attention(1400.0, measured);
    assert_eq!(standing(&sheet, &measured_h200()), (Standing::RuledOut, true));
    assert_eq!(standing(&sheet, &Ceilings::published(part("H200").unwrap())).0, Standing::Open);
    let told = attention(1400.0, Provenance::given("f.yaml:3"));
    assert_eq!(standing(&told, &measured_h200()).0, Standing::Open);
}

#[test]
fn a_clock_that_the_time_was_measured_at_is_not_asked_for_again() {
    let asked = |provenance: Provenance| {
        let o = triage(&attention(1400.0, provenance), Some(&measured_h200()), &[]).unwrap();
        o.order.iter().any(|s| s.action.contains("log the SM clock"))
    };
    let measured = Provenance::measured("kbt kernel run", "NVIDIA H200", "2026-11-30");
    assert!(asked(measured.clone()));
    assert!(!asked(measured.with_sm_clock_mhz(1980.0)));
}

#[test]
fn a_time_below_a_bound_is_a_contradiction() {
    let measured = Provenance::measured("kbt kernel run", "NVIDIA H200", "2026-11-30");
    // 550 GFLOP in 600 us would be 916 TFLOP/s, past the measured 780.
    let outcome = triage(&attention(600.0, measured), Some(&measured_h200()), &[]).unwrap();
    assert!(outcome.contradictions[0].what.contains("arithmetic bound"), "{:?}", outcome.contradictions);
    assert!(outcome.contradictions[0].figure.value > 1.1);
    assert!(outcome.order[0].action.starts_with("resolve"));
}

#[test]
fn outcomes_survive_json_and_no_number_is_without_provenance() {
    let measured = Provenance::measured("kbt kernel run", "NVIDIA H200", "2026-11-30");
    for outcome in [
        run(RMSNORM),
        run(&without("timing")),
        run("question: price of a B200\n"),
        triage(&attention(1400.0, measured), Some(&measured_h200()), &[]).unwrap(),
    ] {
        let value = serde_json::to_value(&outcome).unwrap();
        assert_eq!(kbt_evidence::audit::uncovered_numbers(&value), Vec::<String>::new());
        let text = serde_json::to_string(&outcome).unwrap();
        assert_eq!(serde_json::from_str::<TriageOutcome>(&text).unwrap(), outcome);
        assert!(!outcome.headline().is_empty() && !outcome.headline().contains('\n'));
        assert!(!outcome.verdicts().is_empty());
        // A verdict that states a share of the time has its figure.
        for v in outcome.verdicts().iter().filter(|v| v.reason.contains("% of the time")) {
            assert!(v.evidence.iter().any(|e| !e.figures.is_empty()), "{}", v.reason);
        }
    }
}

#[test]
fn the_json_has_the_fields_that_scripts_use() {
    let value = serde_json::to_value(run(RMSNORM)).unwrap();
    for path in [
        "/call",
        "/margin/ratio",
        "/checks/18/status",
        "/evidence/0/candidate",
        "/evidence/0/class",
        "/evidence/0/supports/0/text",
        "/evidence/0/against",
        "/evidence/0/needed",
        "/experiments/0/factor",
        "/order/0/priority",
        "/outputs/conclusion",
        "/outputs/evidence/assumptions",
        "/outputs/artifact/rows",
        "/outputs/validation/correctness",
        "/outputs/validation/boundary",
        "/outputs/validation/experiment",
        "/outputs/risks/0",
    ] {
        assert!(value.pointer(path).is_some(), "{path}");
    }
    let refused = serde_json::to_value(run(&without("dtypes"))).unwrap();
    assert_eq!(refused.pointer("/missing/0").unwrap(), "dtype");
}
