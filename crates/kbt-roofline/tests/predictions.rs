//! Predictions are computed from the sheet's own figures, none against them: each case was worked out by hand.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use kbt_roofline::outcome::{Call, Reading, Resource, Status};
use kbt_roofline::{Ceilings, ExperimentResult, FactSheet, TriageOutcome, part, triage};

fn with(device: &str, text: &str, results: &[&str]) -> TriageOutcome {
    let sheet = FactSheet::from_yaml(text, "f.yaml").unwrap();
    let results: Vec<_> = results
        .iter()
        .map(|r| (ExperimentResult::from_yaml(r, "r.yaml").unwrap(), "r.yaml".to_owned()))
        .collect();
    triage(&sheet, Some(&Ceilings::published(part(device).unwrap())), &results).unwrap()
}

fn predicted(outcome: &TriageOutcome, candidate: &str) -> f64 {
    outcome.experiments.iter().find(|e| e.candidate == candidate).unwrap().predicted.value
}

fn near(a: f64, b: f64) {
    assert!((a / b - 1.0).abs() < 2e-3, "{a} against {b}");
}

/// A map of `inputs` fp32 tensors to one, in `us` on an H100 (3.35 TB/s).
fn map(inputs: u32, elements: u64, us: f64) -> String {
    format!(
        "operator: {{kind: elementwise, flop_per_element: 2, inputs: {inputs}}}\nshape: {{elements: {elements}}}\n\
         dtypes: {{inputs: [fp32], output: fp32}}\ndataflow: {{reuse: none, access: regular}}\n\
         timing: {{median_us: {us}, method: cuda_events, communication_included: false, kernels: 1}}\n"
    )
}

#[test]
fn half_of_the_largest_tensor_saves_its_own_bytes_and_no_other_s() {
    // Three equal tensors of 1.07 GB: half of one is 160.3 us at 3.35 TB/s. Of eight it is 60.1 us.
    for (inputs, elements, after) in [(2, 268_435_456, 889.7), (7, 100_663_296, 989.9)] {
        let sheet = map(inputs, elements, 1050.0);
        let outcome = with("H100", &sheet, &[]);
        near(predicted(&outcome, "hbm_bandwidth"), after);
        let factor = &outcome.experiments[0].factor;
        assert!(factor.contains("input 0, ") && factor.contains("B: store it"), "{factor}");
        // The outcome that was predicted is a confirmation, on eight tensors as on three.
        let exact = format!("experiment: hbm_bandwidth\nobserved_us: {after}\n");
        let told = with("H100", &sheet, &[&exact]);
        assert_eq!(told.results[0].reading, Reading::Confirmed, "{}", told.results[0].finding);
        assert_eq!(told.evidence[0].candidate, "hbm_bandwidth");
    }
    // A weight-streaming product: nearly all bytes are B's.
    let gemv = "operator: {kind: gemm}\nshape: {m: 1, n: 8192, k: 8192}\n\
                dtypes: {inputs: [bf16], output: bf16}\ndataflow: {reuse: weights read once}\n\
                implementation: {tile_m: 16, tile_n: 64, grid_ctas: 128, ctas_per_sm: 4}\n\
                timing: {median_us: 52, method: cuda_graph, communication_included: false}\n";
    let outcome = with("H100", gemv, &[]);
    near(predicted(&outcome, "hbm_bandwidth"), 52.0 - 134.2e6 / 2.0 / 3.35e6);
    assert!(outcome.experiments[0].factor.contains("(B, 134 MB"));
    // Padding is computed and not moved: what the bytes need stays.
    let waste = outcome.evidence.iter().find(|r| r.candidate == "tile_waste").unwrap();
    assert!(waste.share.as_ref().unwrap().value < 0.24, "{:?}", waste.share);
    assert!(outcome.experiments.iter().all(|e| e.candidate == "hbm_bandwidth" || e.predicted.value > 40.0));
}

#[test]
fn what_goes_beyond_what_suffices_is_counted_tensor_by_tensor() {
    // bf16 suffices for two fp32 inputs; the output stays: a third of 961.6 us goes.
    let sheet = map(2, 268_435_456, 1050.0).replace("output: fp32", "output: fp32, sufficient: bf16");
    let outcome = with("H100", &sheet, &[]);
    near(predicted(&outcome, "wide_dtype"), 1050.0 - 961.6 / 3.0);
    // Both would store the inputs in half the width: one of them is proposed.
    assert!(outcome.experiments.iter().all(|e| e.candidate != "hbm_bandwidth"));
}

const SUM: &str = "operator: {kind: reduction, flop_per_element: 1}\nshape: {elements: 268435456}\n\
    dtypes: {inputs: [fp32], output: fp32}\ndataflow: {reuse: none, access: regular}\n\
    implementation: {grid_ctas: 132, ctas_per_sm: 8, access_bytes_per_thread: 4, bytes_in_flight_per_sm: 4096}\n\
    timing: {median_us: 900, low_us: 890, high_us: 905, method: cuda_events, warmup_launches: 20, kernels: 1, communication_included: false}\n\
    device: {name: H100, sm_clock_mhz: 1755}\n";

#[test]
fn twice_the_bytes_in_flight_is_half_the_time_until_they_suffice() {
    let outcome = with("H100", SUM, &[]);
    assert_eq!(outcome.evidence[0].candidate, "memory_latency");
    near(predicted(&outcome, "memory_latency"), 450.0);
    // 8 KB of the 11.4 KB that Little's law asks for: no more than they lack is won.
    let more = SUM.replace("bytes_in_flight_per_sm: 4096", "bytes_in_flight_per_sm: 8192");
    let after = predicted(&with("H100", &more, &[]), "memory_latency");
    assert!(after > 600.0 && after < 720.0, "{after}");
}

#[test]
fn a_factor_that_was_changed_is_not_proposed_under_another_name() {
    let first = "experiment: memory_latency\nobserved_us: 898\nbaseline_us: 900\n";
    let outcome = with("H100", SUM, &[first]);
    assert_eq!(outcome.results[0].reading, Reading::Contradicted);
    for e in &outcome.experiments {
        assert!(!e.factor.contains("pipeline stage") && e.candidate != "memory_latency", "{}", e.factor);
    }
    let overlap = outcome.evidence.iter().find(|r| r.candidate == "no_overlap");
    assert!(overlap.is_none_or(|r| r.standing.as_str() == "barred"));
    // The clock is 4 % of the time, which is no thing to measure first.
    let text = outcome.render_text();
    assert!(!text.contains("first to measure: the clock"), "{text}");
    // Nor is an experiment with an open result made again.
    let between = "experiment: memory_latency\nobserved_us: 750\nbaseline_us: 900\n";
    let outcome = with("H100", SUM, &[between]);
    assert_eq!(outcome.results[0].reading, Reading::Inconclusive);
    assert!(outcome.experiments.iter().all(|e| e.candidate != "memory_latency"));
}

#[test]
fn what_the_sheet_states_is_not_offered_against() {
    let outcome = with("H100", SUM, &[]);
    for e in &outcome.experiments {
        let never = [
            "communication",
            "launch_overhead",
            "tile_waste",
            "role_imbalance",
            "xu_pipe",
            "no_matrix_instructions",
        ];
        assert!(!never.contains(&e.candidate.as_str()), "{}", e.candidate);
        // Nothing without a figure or a reading behind it.
        assert!(!e.prediction.contains("is assumed"), "{}", e.prediction);
    }
    // The matrix says which statement of the sheet speaks against it.
    for (candidate, said) in [
        ("communication", "no communication is inside the time, as stated"),
        ("launch_overhead", "one kernel a call, as stated"),
        ("tile_waste", "no tiles to pad"),
        ("xu_pipe", "neither exp2 nor reciprocals"),
    ] {
        let outcome = with("H100", SUM, &[&format!("experiment: {candidate}\nobserved_us: 899\n")]);
        let row = outcome.evidence.iter().find(|r| r.candidate == candidate).unwrap();
        assert!(row.against.iter().any(|s| s.text.contains(said)), "{candidate}: {:?}", row.against);
    }
    // An unlikely candidate is no suspect.
    let text = outcome.render_text();
    let suspects = text.split("unlikely  ").next().unwrap();
    assert!(!suspects.contains(") unlikely"), "{text}");
}

#[test]
fn two_chains_take_half_of_the_chain_and_a_graph_leaves_the_kernels() {
    let chain = "operator: {kind: counts, flop: 0, hbm_bytes: 3.2e7}\ndtypes: {inputs: [int32], output: int32}\n\
                 dataflow: {reuse: none, access: dependent_chain, chain_length: 1000000, chain_latency_ns: 600}\n\
                 timing: {median_us: 650000, method: cuda_events, communication_included: false}\n";
    near(predicted(&with("H100", chain, &[]), "dependency_chain"), 350_000.0);
    let launches = "operator: {kind: elementwise, flop_per_element: 40}\nshape: {elements: 65536}\n\
                    dtypes: {inputs: [bf16], output: bf16}\ndataflow: {reuse: L2}\n\
                    implementation: {grid_ctas: 64, ctas_per_sm: 8}\n\
                    timing: {median_us: 160, kernel_us: 72, kernels: 40, method: host_clock, communication_included: false}\n";
    let outcome = with("H100", launches, &[]);
    assert_eq!(outcome.evidence[0].candidate, "launch_overhead");
    near(predicted(&outcome, "launch_overhead"), 72.0);
    // CTAs touch only the time within the kernels.
    let few = outcome.evidence.iter().find(|r| r.candidate == "too_few_ctas").unwrap();
    near(few.share.as_ref().unwrap().value, 0.45);
    near(predicted(&outcome, "too_few_ctas"), 160.0 - 36.0);
    let factor = &outcome.experiments.iter().find(|e| e.candidate == "too_few_ctas").unwrap().factor;
    assert!(factor.starts_with("2 times the CTAs") && !factor.contains("splitting K"), "{factor}");
}

#[test]
fn more_ctas_are_worth_whole_waves_of_them() {
    let gemm = |ctas: u32| {
        let text = format!(
            "operator: {{kind: gemm}}\nshape: {{m: 320, n: 8192, k: 8192}}\ndtypes: {{inputs: [bf16], output: bf16}}\n\
             dataflow: {{reuse: tiles}}\nimplementation: {{grid_ctas: {ctas}, ctas_per_sm: 1}}\n\
             timing: {{median_us: 120, method: cuda_graph, communication_included: false}}\n"
        );
        with("H100", &text, &[])
    };
    // 96 on 132 SMs: split in two they take two waves of half the length, in four three of a quarter.
    let outcome = gemm(96);
    assert!(outcome.experiments[0].factor.starts_with("4 times"), "{}", outcome.experiments[0].factor);
    near(predicted(&outcome, "too_few_ctas"), 90.0);
    near(predicted(&gemm(66), "too_few_ctas"), 60.0);
    // 131 of 132: no split helps, and none is proposed.
    assert!(gemm(131).experiments.iter().all(|e| e.candidate != "too_few_ctas"));
}

#[test]
fn no_prediction_lies_below_a_bound_that_the_change_leaves() {
    let text = "operator: {kind: gemm}\nshape: {m: 4096, n: 8192, k: 1024}\ndtypes: {inputs: [bf16], output: bf16}\n\
                dataflow: {reuse: tiles}\n\
                timing: {median_us: 300, method: cuda_events, communication_included: true, communication_us: 261}\n";
    let outcome = with("H100", text, &[]);
    let e = outcome.experiments.iter().find(|e| e.candidate == "communication").unwrap();
    assert!(e.predicted.value >= 69.46, "{}", e.predicted.value);
    assert!(e.prediction.contains("overlaps the communication"), "{}", e.prediction);
    for folder in ["", "planted"] {
        let folder =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/facts").join(folder);
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|e| e != "yaml") {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let outcome = with("H200", &text, &[]);
            let bound = |r| {
                let found = outcome.bounds.iter().find(|b| b.resource == r && b.share.is_some());
                found.filter(|b| b.share.as_ref().unwrap().value <= 1.0).map_or(0.0, |b| b.time.value)
            };
            for e in &outcome.experiments {
                let at = e.predicted.value * (1.0 + 1e-9);
                if !matches!(e.candidate.as_str(), "arithmetic_roof" | "clocks") {
                    assert!(at >= bound(Resource::Compute), "{path:?} {}", e.candidate);
                }
                if !matches!(e.candidate.as_str(), "hbm_bandwidth" | "wide_dtype") {
                    assert!(at >= bound(Resource::Hbm), "{path:?} {}", e.candidate);
                }
                assert!(e.predicted.value < e.falsified_at.value, "{path:?} {}", e.candidate);
            }
        }
    }
}

#[test]
fn a_time_below_a_bound_asserts_no_bottleneck_and_predicts_nothing() {
    let outcome = with("H100", &map(2, 67_108_864, 100.0), &[]);
    assert!(outcome.experiments.is_empty());
    let said = &outcome.outputs.as_ref().unwrap().conclusion;
    assert!(said.starts_with("no bottleneck is asserted"), "{said}");
    let text = outcome.render_text();
    assert!(text.contains("settle the conflict first") && !text.contains("suspects"), "{text}");
    // Milliseconds for microseconds are named.
    let outcome = with("H100", &map(2, 67_108_864, 0.3), &[]);
    assert!(outcome.contradictions[0].causes[0].contains("another unit"), "{:?}", outcome.contradictions);
}

#[test]
fn one_percentage_against_the_useful_bytes_decides_nothing() {
    let text = "operator: {kind: gemm}\nshape: {m: 4096, n: 4096, k: 4096}\ndtypes: {inputs: [bf16], output: bf16}\n\
                dataflow: {reuse: tiles}\ntiming: {median_us: 900, method: cuda_events, communication_included: false}\n\
                profiler: {metrics: {gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed: 95}}\n";
    let outcome = with("H100", text, &[]);
    assert_eq!(outcome.call, Some(Call::Neither));
    let c = outcome.contradictions.iter().find(|c| c.what.contains("28 times the useful bytes")).unwrap();
    assert!(c.settle_first && c.causes.iter().any(|c| c.contains("dram__bytes.sum")));
    assert!(outcome.experiments.is_empty(), "first the bytes are counted");
    assert_eq!(outcome.evidence[0].candidate, "redundant_traffic");
    // Counted, they decide.
    let counted = text.replace("metrics: {", "metrics: {dram__bytes.sum: 2.7e9, ");
    let outcome = with("H100", &counted, &[]);
    assert_eq!(
        (outcome.call, outcome.evidence[0].candidate.as_str()),
        (Some(Call::MemoryBound), "redundant_traffic")
    );
    assert!(!outcome.experiments.is_empty());
}

#[test]
fn fp64_has_roofs_and_a_missing_one_is_named() {
    let text = map(1, 134_217_728, 1500.0).replace("fp32", "fp64");
    let outcome = with("A100", &text, &[]);
    assert_eq!((outcome.status, outcome.call), (Status::Diagnosed, Some(Call::MemoryBound)));
    let roof = |device: &str| {
        let c = Ceilings::published(part(device).unwrap());
        c.roof(kbt_roofline::RoofKind::Fp64).map(|f| f.value / 1e12)
    };
    // The data sheets' figures, but for the clock behind them.
    for (device, tflops) in [("A100", 9.7), ("H100", 34.0), ("V100", 7.8), ("RTX 4090", 1.29), ("B200", 37.0)]
    {
        let there = roof(device).unwrap();
        assert!((there / tflops - 1.0).abs() < 0.10, "{device}: {there}");
    }
    // No source was checked for their lanes, and the badge says so.
    let known = Ceilings::published(part("A100").unwrap())
        .roof(kbt_roofline::RoofKind::Fp64)
        .unwrap()
        .provenance
        .kind;
    assert_eq!(known, kbt_evidence::Known::Assumed);
    // B300's is not in the table: the refusal says which roof it wants, and that roof is enough.
    let refused = with("B300", &text, &[]);
    assert_eq!(refused.status, Status::Refused);
    assert!(refused.refusal.as_ref().unwrap().contains("kind fp64"), "{:?}", refused.refusal);
    assert!(refused.supply[0].example.contains("kind: fp64"));
    let example = refused.supply[0].example.clone();
    assert_eq!(with("B300", &format!("{text}{example}\n"), &[]).status, Status::Diagnosed);
}

#[test]
fn at_the_power_limit_no_clock_limit_is_touched() {
    let sheet = |device: &str| {
        format!(
            "operator: {{kind: gemm}}\nshape: {{m: 8192, n: 8192, k: 8192}}\ndtypes: {{inputs: [fp8], output: bf16}}\n\
             dataflow: {{reuse: tiles}}\ntiming: {{median_us: 330, method: cuda_graph, communication_included: false}}\n\
             device: {{name: B200, {device}}}\n"
        )
    };
    for device in [
        "sm_clock_mhz: 1600, power_draw_w: 995, power_limit_w: 1000",
        "power_draw_w: 995, power_limit_w: 1000",
    ] {
        let outcome = with("B200", &sheet(device), &[]);
        let clocks = outcome.evidence.iter().position(|r| r.candidate == "clocks").unwrap();
        assert!(clocks < 3 && outcome.evidence[clocks].share.is_some(), "{clocks}");
        assert!(outcome.experiments[0].factor.starts_with("raise the power limit"));
        assert!(outcome.experiments.iter().all(|e| !e.factor.contains("lock the SM clock")));
        assert!(outcome.experiments.iter().all(|e| e.command.is_none()));
    }
}

#[test]
fn communication_of_unknown_size_is_the_first_suspect_and_the_first_thing_to_measure() {
    let text = "operator: {kind: gemm}\nshape: {m: 4096, n: 8192, k: 1024}\ndtypes: {inputs: [bf16], output: bf16}\n\
                dataflow: {reuse: tiles}\ntiming: {median_us: 300, method: cuda_events, communication_included: true}\n";
    let outcome = with("H100", text, &[]);
    assert_eq!(outcome.evidence[0].candidate, "communication");
    assert_eq!(outcome.evidence[0].standing.as_str(), "supported");
    assert!(outcome.order[0].action.contains("without its communication"), "{}", outcome.order[0].action);
}

#[test]
fn warm_bytes_are_not_held_against_device_memory() {
    let text = map(1, 2_097_152, 4.0).replace("kernels: 1", "kernels: 1, cache: warm");
    let outcome = with("H100", &text, &[]);
    assert!(outcome.contradictions.is_empty(), "{:?}", outcome.contradictions);
    assert_ne!(outcome.call, Some(Call::MemoryBound));
    assert!(outcome.order.iter().any(|s| s.action.contains("cold caches")));
    // What no L2 holds is not warm, whatever the sheet says.
    let large = map(2, 268_435_456, 1050.0).replace("kernels: 1", "kernels: 1, cache: warm");
    assert_eq!(with("H100", &large, &[]).call, Some(Call::MemoryBound));
}

#[test]
fn results_and_times_that_cannot_be_are_not_believed() {
    let sheet = map(2, 268_435_456, 1050.0);
    let outcome = with("H100", &sheet, &["experiment: hbm_bandwidth\nobserved_us: 0.001\n"]);
    assert_eq!(outcome.results[0].reading, Reading::Inconclusive);
    assert!(outcome.results[0].finding.contains("measure it again"));
    let result =
        ExperimentResult::from_yaml("experiment: hbm_bandwidth\nobserved_us: 30\nbaseline_us: 40\n", "r")
            .unwrap();
    let sheet = FactSheet::from_yaml(&sheet, "f.yaml").unwrap();
    let error = triage(&sheet, Some(&Ceilings::published(part("H100").unwrap())), &[(result, "r".into())])
        .unwrap_err();
    assert!(error.to_string().contains("baseline_us is 40"), "{error}");
    // A part of the time is no longer than the time.
    let kernels = map(2, 268_435_456, 1050.0).replace("kernels: 1", "kernels: 1, kernel_us: 9000");
    assert!(with("H100", &kernels, &[]).contradictions.iter().any(|c| c.what.contains("timing.kernel_us")));
}

#[test]
fn a_transpose_has_no_operations_and_a_gather_no_chain() {
    let copy = map(1, 134_217_728, 400.0).replace("flop_per_element: 2", "flop_per_element: 0");
    assert_eq!(with("H100", &copy, &[]).call, Some(Call::MemoryBound));
    let gather = copy.replace("access: regular", "access: gather");
    assert_eq!(with("H100", &gather, &[]).status, Status::Diagnosed);
    let refused = with("H100", &copy.replace("access: regular", "access: irregular"), &[]);
    assert!(refused.supply[0].keys.contains("gather"), "{}", refused.supply[0].keys);
    assert!(FactSheet::from_yaml("operator: {kind: elementwise, flop_per_element: -1}\n", "f").is_err());
}

#[test]
fn sizes_that_cannot_be_are_refused_by_name_and_not_called_missing() {
    let error = |shape: &str| {
        FactSheet::from_yaml(&format!("operator: {{kind: gemm}}\nshape: {{{shape}}}\n"), "f.yaml")
            .unwrap_err()
            .to_string()
    };
    for (shape, said) in [
        ("m: 0, n: 1, k: 1", "`shape.m` is 0"),
        ("heads: 32, kv_heads: 5", "does not divide the 32"),
        ("height: 4, kernel_height: 9, padding: 1", "larger than the input of 4"),
    ] {
        assert!(error(shape).contains(said), "{}", error(shape));
    }
}

#[test]
fn integer_sums_are_exact_and_a_softmax_reads_no_weights() {
    let int8 = "operator: {kind: gemm}\nshape: {m: 4096, n: 4096, k: 4096}\ndtypes: {inputs: [int8], accumulate: int32, output: int32}\n\
                dataflow: {reuse: tiles}\ntiming: {median_us: 900, method: cuda_events}\n";
    let said = with("A100", int8, &[]).outputs.unwrap().validation.correctness;
    assert!(said.contains("bitwise equal") && !said.contains("half a unit"), "{said}");
    let softmax = "operator: {kind: normalization, formula: softmax(x)}\nshape: {rows: 1000, columns: 1000}\n\
                   dtypes: {inputs: [fp32]}\ndataflow: {reuse: none}\n";
    let line = with("A100", softmax, &[]).initial.unwrap().hbm_line;
    assert!(!line.contains("weight") && line.ends_with("8.00 MB"), "{line}");
}

#[test]
fn a_command_has_the_sheet_s_own_numbers_or_is_none() {
    let gemm = |clock: u32| {
        let text = format!(
            "operator: {{kind: gemm}}\nshape: {{m: 8192, n: 8192, k: 8192}}\ndtypes: {{inputs: [bf16], output: bf16}}\n\
             dataflow: {{reuse: tiles}}\ntiming: {{median_us: 1300, method: cuda_graph, communication_included: false}}\n\
             device: {{name: H100, sm_clock_mhz: {clock}}}\n"
        );
        let outcome = with("H100", &text, &[]);
        let roof = outcome.experiments.into_iter().find(|e| e.candidate == "arithmetic_roof").unwrap();
        roof.command
    };
    assert_eq!(gemm(1400).as_deref(), Some("nvidia-smi --lock-gpu-clocks=1470"));
    // There is no clock above the part's own.
    assert_eq!(gemm(1830), None);
}
