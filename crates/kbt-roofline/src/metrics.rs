//! Nsight Compute's raw metric names: which of them say the same thing, and the traps among them. Values are in
//! base units; conversion from an export's units is `import`'s.

use std::collections::BTreeMap;

pub(crate) type Metrics = BTreeMap<String, f64>;

/// The first of several names that is there.
pub(crate) fn first<'a>(metrics: &Metrics, names: &[&'a str]) -> Option<(&'a str, f64)> {
    names.iter().find_map(|n| metrics.get(*n).map(|v| (*n, *v)))
}

/// Names under which one quantity is exported, newest last.
pub(crate) const DRAM_PCT: &[&str] = &[
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak",
];
pub(crate) const SM_PCT: &[&str] =
    &["sm__throughput.avg.pct_of_peak_sustained_elapsed", "sm__throughput.avg.pct_of_peak"];
pub(crate) const L2_PCT: &[&str] = &["lts__throughput.avg.pct_of_peak_sustained_elapsed"];
pub(crate) const L1_PCT: &[&str] = &[
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
];
// sm__ops_path_tensor_op_hmma_* reads 0 for wgmma on sm_90: it is in none of these lists.
pub(crate) const TENSOR_PCT: &[&str] = &[
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "sm__inst_executed_pipe_tensor_op_gmma.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
];
pub(crate) const TENSOR_COUNT: &[&str] = &[
    "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "sm__inst_executed_pipe_tensor_op_hmma.sum",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__inst_executed_pipe_uniform_tensor.sum",
    "sm__inst_executed_pipe_tc.sum",
];
pub(crate) const OCCUPANCY_PCT: &[&str] = &["sm__warps_active.avg.pct_of_peak_sustained_active"];
pub(crate) const ISSUE_PCT: &[&str] = &[
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "sm__inst_issued.avg.pct_of_peak_sustained_active",
];
pub(crate) const THREADS_PER_INST: &[&str] = &[
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
];
pub(crate) const L2_HIT_PCT: &[&str] = &["lts__t_sector_hit_rate.pct"];
// The mean over the slices reads 2 % where all updates go to one: only the busiest slice says it.
pub(crate) const ATOMIC_PCT: &[&str] =
    &["lts__d_atomic_input_cycles_active.max.pct_of_peak_sustained_elapsed"];
pub(crate) const LOAD_REQUESTS: &[&str] = &["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"];

/// Percent of a pipe's peak.
pub(crate) fn pipe_pct(metrics: &Metrics, pipe: &str) -> Option<f64> {
    ["active", "elapsed"].iter().find_map(|over| {
        metrics.get(&format!("sm__inst_executed_pipe_{pipe}.avg.pct_of_peak_sustained_{over}")).copied()
    })
}

/// Bytes that device memory moved. Blackwell renamed the two halves; either name is taken.
pub(crate) fn dram_bytes(metrics: &Metrics) -> Option<f64> {
    if let Some(all) = metrics.get("dram__bytes.sum") {
        return Some(*all);
    }
    let half = |way: &str| {
        let names = [format!("dram__bytes_op_{way}.sum"), format!("dram__bytes_{way}.sum")];
        names.iter().find_map(|n| metrics.get(n).copied())
    };
    Some(half("read")? + half("write")?)
}

/// Sectors a request of global loads or stores.
pub(crate) fn sectors_per_request(metrics: &Metrics, way: &str) -> Option<f64> {
    let direct = format!("l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_{way}.ratio");
    if let Some(ratio) = metrics.get(&direct) {
        return Some(*ratio);
    }
    let of = |what: &str| metrics.get(&format!("l1tex__t_{what}_pipe_lsu_mem_global_op_{way}.sum")).copied();
    let requests = of("requests").filter(|r| *r > 0.0)?;
    Some(of("sectors")? / requests)
}

/// Share of the sectors of global accesses that `ideal` sectors a request would not need.
pub(crate) fn sector_waste(metrics: &Metrics, ideal: f64) -> Option<f64> {
    let (mut sectors, mut needed) = (0.0, 0.0);
    for way in ["ld", "st"] {
        let of =
            |what: &str| metrics.get(&format!("l1tex__t_{what}_pipe_lsu_mem_global_op_{way}.sum")).copied();
        if let (Some(moved), Some(requests)) = (of("sectors"), of("requests")) {
            sectors += moved;
            needed += moved.min(requests * ideal);
        }
    }
    (sectors > 0.0).then(|| 1.0 - needed / sectors)
}

/// Share of L1 sectors that are local memory: spills and dynamically indexed arrays.
pub(crate) fn local_share(metrics: &Metrics) -> Option<f64> {
    let sum = |space: &str| -> Option<f64> {
        let of =
            |way: &str| metrics.get(&format!("l1tex__t_sectors_pipe_lsu_mem_{space}_op_{way}.sum")).copied();
        match (of("ld"), of("st")) {
            (None, None) => None,
            (l, s) => Some(l.unwrap_or(0.0) + s.unwrap_or(0.0)),
        }
    };
    let (local, global) = (sum("local")?, sum("global")?);
    (local + global > 0.0).then(|| local / (local + global))
}

/// Share of L2's sectors (32 bytes) that atomic updates move, those that return a value and those that do not.
pub(crate) fn atomic_share(metrics: &Metrics) -> Option<f64> {
    let of = |op: &str| metrics.get(&format!("lts__t_sectors_op_{op}.sum")).copied();
    let updates = match (of("atom"), of("red")) {
        (None, None) => return None,
        (atom, red) => atom.unwrap_or(0.0) + red.unwrap_or(0.0),
    };
    let counted = || Some(updates + of("read")? + of("write")?);
    let all = metrics.get("lts__t_bytes.sum").map(|b| b / 32.0).or_else(counted)?;
    (all > 0.0).then(|| updates / all)
}

/// Share of shared-memory wavefronts that bank conflicts added.
pub(crate) fn conflict_share(metrics: &Metrics) -> Option<f64> {
    let conflicts = metrics.get("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum")?;
    let waves = metrics.get("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum").filter(|w| **w > 0.0)?;
    Some(conflicts / waves)
}

/// The same of all of L1's wavefronts.
pub(crate) fn conflicts_of_l1(metrics: &Metrics) -> Option<f64> {
    let conflicts = metrics.get("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum")?;
    let waves = metrics.get("l1tex__data_pipe_lsu_wavefronts.sum").filter(|w| **w > 0.0)?;
    Some(conflicts / waves)
}

/// Warps that registers and shared memory let an SM hold, over the most that the part's SM holds; `block` is threads a
/// CTA.
pub(crate) fn residency(metrics: &Metrics, block: f64, most_warps: f64) -> Option<f64> {
    let of = |limit: &str| metrics.get(&format!("launch__occupancy_limit_{limit}")).copied();
    let ctas = of("registers")?.min(of("shared_mem")?);
    Some((ctas * (block / 32.0).ceil() / most_warps).min(1.0))
}

/// Share of the stalled warps that wait for `reason`. With ratios, three reasons must be there to form a share.
pub(crate) fn stall_share(metrics: &Metrics, reasons: &[&str]) -> Option<f64> {
    let pct: Vec<f64> = reasons
        .iter()
        .filter_map(|r| metrics.get(&format!("smsp__warp_issue_stalled_{r}_per_warp_active.pct")).copied())
        .collect();
    if !pct.is_empty() {
        return Some(pct.iter().sum::<f64>() / 100.0);
    }
    let prefix = "smsp__average_warps_issue_stalled_";
    let all: Vec<(&str, f64)> = metrics
        .iter()
        .filter_map(|(name, v)| {
            Some((name.strip_prefix(prefix)?.strip_suffix("_per_issue_active.ratio")?, *v))
        })
        .collect();
    let total: f64 = all.iter().map(|(_, v)| v).sum();
    let wanted: f64 = all.iter().filter(|(r, _)| reasons.contains(r)).map(|(_, v)| v).sum();
    (all.len() >= 3 && total > 0.0).then(|| wanted / total)
}

/// CTAs an SM can hold, by the tightest limit that was exported.
pub(crate) fn ctas_per_sm(metrics: &Metrics) -> Option<f64> {
    ["registers", "shared_mem", "warps", "blocks"]
        .iter()
        .filter_map(|l| metrics.get(&format!("launch__occupancy_limit_{l}")).copied())
        .reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(pairs: &[(&str, f64)]) -> Metrics {
        pairs.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect()
    }

    #[test]
    fn renamed_counters_and_direct_ratios_read_alike() {
        let old = metrics(&[("dram__bytes_read.sum", 3.0), ("dram__bytes_write.sum", 1.0)]);
        let new = metrics(&[("dram__bytes_op_read.sum", 3.0), ("dram__bytes_op_write.sum", 1.0)]);
        assert_eq!((dram_bytes(&old), dram_bytes(&new)), (Some(4.0), Some(4.0)));
        assert_eq!(dram_bytes(&metrics(&[("dram__bytes_read.sum", 3.0)])), None);
        let parts = metrics(&[
            ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 64.0),
            ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", 2.0),
        ]);
        assert_eq!(sectors_per_request(&parts, "ld"), Some(32.0));
        assert_eq!(sectors_per_request(&parts, "st"), None);
    }

    #[test]
    fn a_stall_share_needs_a_whole_to_be_a_share_of() {
        let r = |name: &str| format!("smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio");
        let two = metrics(&[(&r("barrier"), 1.0), (&r("wait"), 1.0)]);
        assert_eq!(stall_share(&two, &["barrier"]), None);
        let three = metrics(&[(&r("barrier"), 1.0), (&r("wait"), 1.0), (&r("membar"), 2.0)]);
        assert_eq!(stall_share(&three, &["barrier", "membar"]), Some(0.75));
    }

    #[test]
    fn residency_is_of_the_warps_that_the_part_holds() {
        let limits = metrics(&[
            ("launch__occupancy_limit_registers", 3.0),
            ("launch__occupancy_limit_shared_mem", 5.0),
        ]);
        assert_eq!(residency(&limits, 256.0, 64.0), Some(0.375));
        assert_eq!(residency(&limits, 256.0, 48.0), Some(0.5));
        assert_eq!(residency(&limits, 1024.0, 48.0), Some(1.0));
    }

    #[test]
    fn local_and_conflict_shares_need_both_sides() {
        let local = metrics(&[
            ("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", 10.0),
            ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 30.0),
        ]);
        assert_eq!(local_share(&local), Some(0.25));
        assert_eq!(conflict_share(&local), None);
    }
}
