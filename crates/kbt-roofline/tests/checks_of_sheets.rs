//! Each of the nineteen checks from a whole sheet: what a user writes that fires it, and what clears it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use kbt_roofline::outcome::{CheckStatus, Status};
use kbt_roofline::{Ceilings, FactSheet, part, triage};

/// A GEMM on an H200 that takes about twice what its arithmetic needs.
const GEMM: &str = "\
operator: {kind: gemm}
shape: {m: 4096, n: 4096, k: 4096}
dtypes: {inputs: [INPUT], accumulate: fp32, output: bf16, mma: bf16}
dataflow: {reuse: tiles in shared memory DATAFLOW}
timing: {median_us: 300, method: cuda_events, communication_included: false TIMING}
device: {name: NVIDIA H200 DEVICE}
implementation: {path: cuda IMPLEMENTATION}
profiler: {tool: Nsight Compute, metrics: {METRICS}}
ceilings: [{kind: launch_latency, seconds: 2.5e-6, provenance: {kind: given, by: empty launches}}]
";
const SECTIONS: [&str; 4] = ["DATAFLOW", "TIMING", "DEVICE", "IMPLEMENTATION"];

/// A section and what is added to it.
type Facts = &'static [(&'static str, &'static str)];

fn status(id: &str, facts: Facts) -> CheckStatus {
    let mut text = GEMM.to_owned();
    for section in SECTIONS {
        let added: String =
            facts.iter().filter(|(s, _)| *s == section).map(|(_, f)| format!(", {f}")).collect();
        text = text.replace(&format!(" {section}"), &added);
    }
    let metrics: Vec<&str> = facts.iter().filter(|(s, _)| *s == "METRICS").map(|(_, f)| *f).collect();
    let input = facts.iter().find(|(s, _)| *s == "INPUT").map_or("bf16", |(_, f)| *f);
    let text = text.replace("METRICS", &metrics.join(", ")).replace("INPUT", input);
    let sheet = FactSheet::from_yaml(&text, "f.yaml").unwrap();
    let outcome = triage(&sheet, Some(&Ceilings::published(part("H200").unwrap())), &[]).unwrap();
    assert_eq!(outcome.status, Status::Diagnosed, "{text}");
    assert_eq!(outcome.checks.len(), 19);
    outcome.checks.iter().find(|c| c.id == id).unwrap().status
}

const SECTORS: &str = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum: 1000";

#[test]
fn every_check_is_fired_and_cleared_by_what_a_sheet_says() {
    let cases: &[(&str, Facts, Facts)] = &[
        // Compulsory traffic is 100.7 MB.
        (
            "repeated_traffic",
            &[("METRICS", "dram__bytes.sum: 3e8")],
            &[("METRICS", "dram__bytes.sum: 1.05e8")],
        ),
        (
            "intermediates_in_hbm",
            &[("DATAFLOW", "intermediate_hbm_bytes: 2e8")],
            &[("DATAFLOW", "intermediate_hbm_bytes: 0")],
        ),
        (
            "uncoalesced",
            &[("METRICS", SECTORS), ("METRICS", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum: 32000")],
            &[
                ("IMPLEMENTATION", "access_bytes_per_thread: 16"),
                ("METRICS", SECTORS),
                ("METRICS", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum: 16000"),
            ],
        ),
        ("uncoalesced", &[("DATAFLOW", "access: strided")], &[("DATAFLOW", "access: regular")]),
        ("wide_dtype", &[("INPUT", "fp32")], &[("INPUT", "bf16")]),
        (
            "request_concurrency",
            &[("IMPLEMENTATION", "bytes_in_flight_per_sm: 2048")],
            &[("IMPLEMENTATION", "bytes_in_flight_per_sm: 131072")],
        ),
        (
            "no_tensor_instructions",
            &[("IMPLEMENTATION", "tensor_instructions: false")],
            &[("IMPLEMENTATION", "tensor_instructions: true, mma_instruction: wgmma")],
        ),
        (
            "no_tensor_instructions",
            &[("IMPLEMENTATION", "mma_instruction: mma.sync")],
            &[("IMPLEMENTATION", "mma_instruction: wgmma")],
        ),
        (
            "tile_use",
            &[("IMPLEMENTATION", "tile_m: 3000, tile_n: 128")],
            &[("IMPLEMENTATION", "tile_m: 128, tile_n: 128")],
        ),
        (
            "no_overlap",
            &[("IMPLEMENTATION", "pipeline_stages: 1")],
            &[("IMPLEMENTATION", "pipeline_stages: 4, async_copies: true")],
        ),
        (
            "warp_roles",
            &[("IMPLEMENTATION", "roles: [{name: load, busy_percent: 20}, {name: mma, busy_percent: 60}]")],
            &[("IMPLEMENTATION", "warp_specialized: true, roles: [{name: mma, busy_percent: 95}]")],
        ),
        (
            "tail_tiles",
            &[("IMPLEMENTATION", "grid_ctas: 140, ctas_per_sm: 1")],
            &[("IMPLEMENTATION", "grid_ctas: 264, ctas_per_sm: 1")],
        ),
        ("small_shape", &[("IMPLEMENTATION", "grid_ctas: 64")], &[("IMPLEMENTATION", "grid_ctas: 132")]),
        ("launch_latency", &[("TIMING", "kernels: 60")], &[("TIMING", "kernels: 1")]),
        (
            "synchronisation",
            &[("METRICS", "smsp__warp_issue_stalled_barrier_per_warp_active.pct: 60")],
            &[
                ("METRICS", "smsp__warp_issue_stalled_barrier_per_warp_active.pct: 5"),
                ("IMPLEMENTATION", "host_syncs: 0"),
            ],
        ),
        (
            "synchronisation",
            &[("IMPLEMENTATION", "host_syncs: 1")],
            &[
                ("METRICS", "smsp__warp_issue_stalled_barrier_per_warp_active.pct: 5"),
                ("IMPLEMENTATION", "host_syncs: 0"),
            ],
        ),
        ("cpu_submission", &[("TIMING", "kernel_us: 150")], &[("TIMING", "kernel_us: 298")]),
        ("cpu_submission", &[("TIMING", "submission_us: 90")], &[("TIMING", "submission_us: 1")]),
        (
            "host_device_transfers",
            &[("TIMING", "host_transfer_us: 120")],
            &[("TIMING", "host_transfer_us: 0.5")],
        ),
        ("communication", &[("TIMING", "communication_us: 120")], &[("TIMING", "communication_us: 0")]),
        (
            "power_or_frequency",
            &[("DEVICE", "sm_clock_mhz: 1200")],
            &[("DEVICE", "sm_clock_mhz: 1830, power_draw_w: 400, power_limit_w: 700")],
        ),
        (
            "power_or_frequency",
            &[("DEVICE", "power_draw_w: 699, power_limit_w: 700")],
            &[("DEVICE", "sm_clock_mhz: 1830, power_draw_w: 400, power_limit_w: 700")],
        ),
        (
            "warp_divergence",
            &[("METRICS", "smsp__thread_inst_executed_per_inst_executed.ratio: 9")],
            &[("METRICS", "smsp__thread_inst_executed_per_inst_executed.ratio: 31.9")],
        ),
        (
            "occupancy_limits",
            &[
                ("METRICS", "sm__warps_active.avg.pct_of_peak_sustained_active: 10"),
                ("METRICS", "smsp__issue_active.avg.pct_of_peak_sustained_active: 20"),
                ("IMPLEMENTATION", "pipeline_stages: 1"),
            ],
            &[
                ("METRICS", "sm__warps_active.avg.pct_of_peak_sustained_active: 90"),
                ("METRICS", "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum: 0"),
                ("METRICS", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum: 1000"),
                ("IMPLEMENTATION", "spill_bytes_per_thread: 0"),
            ],
        ),
    ];
    let mut covered: Vec<&str> = Vec::new();
    let mut wrong = Vec::new();
    for (id, fires, clears) in cases {
        covered.push(id);
        for (facts, wanted) in [(fires, CheckStatus::Fired), (clears, CheckStatus::Clear)] {
            let found = status(id, facts);
            if found != wanted {
                wrong.push(format!("{id}: {found:?}, not {wanted:?}, of {facts:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    covered.sort_unstable();
    covered.dedup();
    assert_eq!(covered.len(), 19, "{covered:?}");
}

#[test]
fn sectors_of_accesses_of_unknown_width_clear_nothing_that_they_cannot() {
    let outcome = |sectors: f64, width: &str| {
        let text = format!(
            "operator: {{kind: elementwise, flop_per_element: 1}}\nshape: {{elements: 67108864}}\n\
             dtypes: {{inputs: [fp32], output: fp32}}\ndataflow: {{reuse: none}}\n{width}\
             timing: {{median_us: 480, method: cuda_events}}\n\
             profiler: {{metrics: {{l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio: {sectors}}}}}\n"
        );
        let sheet = FactSheet::from_yaml(&text, "f.yaml").unwrap();
        triage(&sheet, Some(&Ceilings::published(part("H200").unwrap())), &[]).unwrap()
    };
    let check = |sectors: f64, width: &str| {
        let found = outcome(sectors, width).checks.into_iter().find(|c| c.id == "uncoalesced").unwrap();
        (found.status, found.finding, found.needed)
    };
    let (status, said, _) = check(32.0, "");
    assert!(status == CheckStatus::Fired && said.contains("at least 2.00 times"), "{said}");
    let (status, said, _) = check(4.0, "");
    assert!(status == CheckStatus::Clear && said.contains("at most 1.00 times"), "{said}");
    // Sixteen sectors are those of 16 bytes a thread, and four times those of 4.
    let (status, _, needed) = check(16.0, "");
    assert_eq!(status, CheckStatus::NotEvaluated);
    assert!(needed.iter().any(|n| n.contains("access_bytes_per_thread")), "{needed:?}");
    let (status, said, _) = check(16.0, "implementation: {access_bytes_per_thread: 4}\n");
    assert!(status == CheckStatus::Fired && said.contains("yes: 4.00 times"), "{said}");
    assert_eq!(check(16.0, "implementation: {access_bytes_per_thread: 16}\n").0, CheckStatus::Clear);
}
