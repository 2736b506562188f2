//! What is asked of Nsight Compute for a triage: the raw metrics that signals read, and nothing beside them, so that
//! a launch is replayed few times.

use crate::metrics;

/// Metrics by their full names. A chip that lacks one says so and is asked again without it: the names of Hopper and
/// Blackwell stand side by side.
const METRICS: &[&str] = &[
    // Time and clock.
    "gpu__time_duration.sum",
    "sm__cycles_elapsed.avg.per_second",
    // The busiest thing of each level.
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    // Bytes and sectors.
    "dram__bytes.sum",
    "lts__t_bytes.sum",
    "lts__t_sector_hit_rate.pct",
    "lts__t_sectors_op_red.sum",
    "lts__t_sectors_op_atom.sum",
    "lts__d_atomic_input_cycles_active.max.pct_of_peak_sustained_elapsed",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts.sum",
    // Pipes.
    "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "sm__inst_executed_pipe_tensor_op_hmma.sum",
    "sm__inst_executed_pipe_tc.sum",
    // Warps and issue slots.
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    // The launch.
    "launch__grid_size",
    "launch__block_size",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_dynamic",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__occupancy_limit_warps",
    "launch__occupancy_limit_blocks",
];

/// Reasons for which a warp does not issue; all of them, so that one is a share of the whole.
const STALLS: &[&str] = &[
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "gmma",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "misc",
    "no_instruction",
    "not_selected",
    "selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
];

/// Whether a sheet keeps a metric of an export: those that are asked for, or that stand in for them. The export has
/// more (each instance's least and most, attributes of the device), which no signal reads.
pub(super) fn is_read(name: &str) -> bool {
    let stall = || {
        let reason = name.strip_prefix("smsp__average_warps_issue_stalled_")?;
        reason.strip_suffix("_per_issue_active.ratio")
    };
    let stand_ins = [
        metrics::DRAM_PCT,
        metrics::SM_PCT,
        metrics::L2_PCT,
        metrics::L1_PCT,
        metrics::TENSOR_PCT,
        metrics::TENSOR_COUNT,
        metrics::OCCUPANCY_PCT,
        metrics::ISSUE_PCT,
        metrics::THREADS_PER_INST,
        metrics::L2_HIT_PCT,
        metrics::LOAD_REQUESTS,
    ];
    METRICS.contains(&name)
        || stall().is_some_and(|reason| STALLS.contains(&reason))
        || stand_ins.iter().any(|names| names.contains(&name))
        || (name.starts_with("dram__bytes") && name.ends_with(".sum"))
        || name.starts_with("l1tex__average_t_sectors_per_request")
}

/// The sections that hold most of the same metrics, for a profiler that takes none by name.
const SECTIONS: &[&str] = &[
    "SpeedOfLight",
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Tables",
    "ComputeWorkloadAnalysis",
    "SchedulerStats",
    "WarpStateStats",
    "LaunchStats",
    "Occupancy",
];

/// What one run of the profiler is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfilerRequest {
    /// These metrics.
    Metrics(Vec<String>),
    /// These sections.
    Sections(Vec<String>),
}

impl ProfilerRequest {
    /// Every metric that a signal reads.
    #[must_use]
    pub fn all() -> Self {
        let stalls =
            STALLS.iter().map(|s| format!("smsp__average_warps_issue_stalled_{s}_per_issue_active.ratio"));
        Self::Metrics(METRICS.iter().map(|m| (*m).to_owned()).chain(stalls).collect())
    }

    /// The profiler's arguments, up to the program: clocks and caches are left as they are in a timed launch, numbers
    /// are in base units, and the table goes to `log`. `kernel` is part of the kernel's name.
    #[must_use]
    pub fn arguments(&self, kernel: Option<&str>, launches: u32, log: &str) -> Vec<String> {
        let mut args: Vec<String> =
            ["--csv", "--page", "raw", "--print-units", "base"].map(str::to_owned).to_vec();
        args.extend(CONDITIONS.split(' ').map(str::to_owned));
        args.extend(["--target-processes", "all", "--launch-count"].map(str::to_owned));
        args.push(launches.to_string());
        if let Some(kernel) = kernel {
            args.extend(["--kernel-name".to_owned(), format!("regex:{}", escaped(kernel))]);
        }
        args.extend(["--log-file".to_owned(), log.to_owned()]);
        match self {
            Self::Metrics(names) => args.extend(["--metrics".to_owned(), names.join(",")]),
            Self::Sections(names) => {
                args.extend(names.iter().flat_map(|s| ["--section".to_owned(), s.clone()]));
            }
        }
        args
    }

    /// What to ask after the profiler refused with `said`: the same without the metrics that it complained of, or,
    /// where it named none, whole sections; `None` where nothing is left to try.
    #[must_use]
    pub fn after(&self, said: &str) -> Option<Self> {
        let Self::Metrics(asked) = self else { return None };
        let complaints: Vec<&str> =
            said.lines().filter(|l| l.contains("==ERROR==") || l.contains("==WARNING==")).collect();
        let known: Vec<String> =
            asked.iter().filter(|m| !complaints.iter().any(|c| names(c, m))).cloned().collect();
        if known.len() < asked.len() && !known.is_empty() {
            return Some(Self::Metrics(known));
        }
        Some(Self::Sections(SECTIONS.iter().map(|s| (*s).to_owned()).collect()))
    }
}

/// The conditions of a profiled launch, as an argument and as part of what its figures say of themselves.
pub const CONDITIONS: &str = "--clock-control none --cache-control none";

/// Whether a line names a metric, alone or without its suffix, and not a longer one.
fn names(line: &str, metric: &str) -> bool {
    let base = metric.split('.').next().unwrap_or(metric);
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(base).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let rest = &line[at + base.len()..];
        let whole = !before.is_some_and(part) && !rest.starts_with(part);
        // A line that goes on with a suffix means that metric of the base, not its siblings.
        let suffix = rest.strip_prefix('.').map(|r| r.split([' ', ',', '\'', '"']).next().unwrap_or(r));
        whole && suffix.is_none_or(|s| s.is_empty() || metric[base.len()..].trim_start_matches('.') == s)
    })
}

/// A name as a regular expression that matches it alone.
fn escaped(name: &str) -> String {
    let special = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    name.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_that_the_chip_lacks_is_left_out_and_its_siblings_stay() {
        let ProfilerRequest::Metrics(all) = ProfilerRequest::all() else { panic!("metrics") };
        let said = "==PROF== Connected\n==ERROR== Failed to find metric sm__inst_executed_pipe_tc.sum\n";
        let Some(ProfilerRequest::Metrics(rest)) = ProfilerRequest::all().after(said) else {
            panic!("metrics");
        };
        assert_eq!(rest.len(), all.len() - 1);
        assert!(!rest.iter().any(|m| m.starts_with("sm__inst_executed_pipe_tc.")));
        // By its base name, quoted, and among others on one line.
        for said in [
            "==WARNING== 'lts__t_bytes' not available",
            "==ERROR== metrics dram__bytes.sum, lts__t_bytes.sum",
        ] {
            let Some(ProfilerRequest::Metrics(rest)) = ProfilerRequest::all().after(said) else {
                panic!("metrics");
            };
            assert!(!rest.iter().any(|m| m == "lts__t_bytes.sum"), "{said}");
            assert!(rest.iter().any(|m| m == "lts__t_sector_hit_rate.pct"), "{said}");
        }
    }

    #[test]
    fn another_suffix_or_a_longer_name_is_another_metric() {
        for (line, named) in [
            ("no metric lts__t_bytes.sum", true),
            ("no metric 'lts__t_bytes', try another", true),
            ("no metric lts__t_bytes.avg", false),
            ("no metric lts__t_bytes_equiv_l1sectormiss.sum", false),
            ("no metric xlts__t_bytes.sum", false),
        ] {
            assert_eq!(names(line, "lts__t_bytes.sum"), named, "{line}");
        }
    }

    #[test]
    fn a_refusal_that_names_no_metric_leads_to_sections_and_then_to_an_end() {
        let sections = ProfilerRequest::all().after("==ERROR== something else").unwrap();
        assert!(matches!(sections, ProfilerRequest::Sections(_)));
        assert!(sections.arguments(None, 1, "x").windows(2).any(|w| w == ["--section", "SpeedOfLight"]));
        assert_eq!(sections.after("==ERROR== again"), None);
    }

    #[test]
    fn clocks_and_caches_stay_as_in_a_timed_launch_and_a_name_is_no_pattern() {
        let args = ProfilerRequest::all().arguments(Some("a<b>"), 3, "log.csv").join(" ");
        assert!(args.contains("--clock-control none --cache-control none"), "{args}");
        assert!(
            args.contains(r"--kernel-name regex:a\<b\> --log-file log.csv --metrics gpu__time"),
            "{args}"
        );
    }
}
