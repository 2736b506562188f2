//! Labels of the details page and the raw metrics behind them.

/// The raw metric behind a label of the details page; the unit tells percent from rates of one label.
pub(super) fn raw_name(label: &str, unit: &str) -> Option<&'static str> {
    let percent = unit.trim() == "%" || label.ends_with("[%]");
    let label = label.trim_end_matches("[%]").trim();
    LABELS.iter().find(|(l, p, _)| l.eq_ignore_ascii_case(label) && *p == percent).map(|(_, _, raw)| *raw)
}

/// Whether the profiler chooses a unit for the metric by its size (`us` or `ms`, `Kbyte` or `Gbyte`): times, sizes, rates a
/// time. Percentages, ratios and counts have one unit always.
pub(super) fn scaled_by_unit(raw: &str) -> bool {
    let of_a_share = raw.contains("pct") || raw.ends_with(".ratio");
    // What the device is, as its driver says it, has one unit each and often none in the table.
    let of_the_device = raw.starts_with("device__attribute");
    let kinds = ["byte", "time", "duration", "per_second", "shared_mem", "_size_"];
    !of_a_share && !of_the_device && kinds.iter().any(|k| raw.contains(k))
}

/// Whether the metric counts what has no fractions and is never scaled: CTAs, threads, registers.
pub(super) fn counted_whole(raw: &str) -> bool {
    let of_a_launch = ["launch__grid_", "launch__block_", "launch__cluster_", "launch__occupancy_limit_"];
    of_a_launch.iter().any(|n| raw.starts_with(n))
        || ["launch__registers_per_thread", "launch__thread_count"].contains(&raw)
}

/// (label, whether its unit is percent, raw metric).
const LABELS: &[(&str, bool, &str)] = &[
    ("Duration", false, "gpu__time_duration.sum"),
    ("Elapsed Cycles", false, "sm__cycles_elapsed.max"),
    ("SM Active Cycles", false, "sm__cycles_active.avg"),
    ("SM Frequency", false, "sm__cycles_elapsed.avg.per_second"),
    ("DRAM Frequency", false, "dram__cycles_elapsed.avg.per_second"),
    ("Compute (SM) Throughput", true, "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
    ("Compute (SM)", true, "sm__throughput.avg.pct_of_peak_sustained_elapsed"),
    ("Memory Throughput", true, "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"),
    ("Memory", true, "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"),
    ("Memory Throughput", false, "dram__bytes.sum.per_second"),
    ("DRAM Throughput", true, "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
    ("L1/TEX Cache Throughput", true, "l1tex__throughput.avg.pct_of_peak_sustained_active"),
    ("L2 Cache Throughput", true, "lts__throughput.avg.pct_of_peak_sustained_elapsed"),
    ("L1/TEX Hit Rate", true, "l1tex__t_sector_hit_rate.pct"),
    ("L2 Hit Rate", true, "lts__t_sector_hit_rate.pct"),
    ("Issue Slots Busy", true, "sm__inst_issued.avg.pct_of_peak_sustained_active"),
    ("One or More Eligible", true, "smsp__issue_active.avg.pct_of_peak_sustained_active"),
    ("Eligible Warps Per Scheduler", false, "smsp__warps_eligible.avg.per_cycle_active"),
    ("Active Warps Per Scheduler", false, "smsp__warps_active.avg.per_cycle_active"),
    ("Avg. Active Threads Per Warp", false, "smsp__thread_inst_executed_per_inst_executed.ratio"),
    (
        "Avg. Not Predicated Off Threads Per Warp",
        false,
        "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
    ),
    ("Achieved Occupancy", true, "sm__warps_active.avg.pct_of_peak_sustained_active"),
    ("Theoretical Occupancy", true, "sm__maximum_warps_per_active_cycle_pct"),
    ("Grid Size", false, "launch__grid_size"),
    ("Block Size", false, "launch__block_size"),
    ("Registers Per Thread", false, "launch__registers_per_thread"),
    ("Static Shared Memory Per Block", false, "launch__shared_mem_per_block_static"),
    ("Dynamic Shared Memory Per Block", false, "launch__shared_mem_per_block_dynamic"),
    ("Waves Per SM", false, "launch__waves_per_multiprocessor"),
    ("Block Limit Registers", false, "launch__occupancy_limit_registers"),
    ("Block Limit Shared Mem", false, "launch__occupancy_limit_shared_mem"),
    ("Block Limit Warps", false, "launch__occupancy_limit_warps"),
    ("Block Limit SM", false, "launch__occupancy_limit_blocks"),
];
