//! Signals: the numbers that checks and candidates read, each derived once from the sheet, the profiler and the
//! accountings. A signal that cannot be had is absent, with the measurement that would give it.

mod combined;
pub(crate) mod implied;
mod sources;

use crate::conditions::reading;
use kbt_evidence::{Figure, Unit};
use std::collections::BTreeMap;

pub(crate) use sources::derive;

macro_rules! signals {
    ($($variant:ident = $name:literal, $meaning:literal, $measure:literal;)*) => {
        /// A number that checks and candidates read.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum Signal { $($variant,)* }

        impl Signal {
            /// Every signal.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant,)*];
            /// The signal of a name in an outcome.
            pub(crate) fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|s| s.name() == name)
            }
            /// Its name in outcomes.
            pub(crate) const fn name(self) -> &'static str { match self { $(Self::$variant => $name,)* } }
            /// What it is.
            pub(crate) const fn meaning(self) -> &'static str { match self { $(Self::$variant => $meaning,)* } }
            /// The measurement or fact that gives it.
            pub(crate) const fn measure(self) -> &'static str { match self { $(Self::$variant => $measure,)* } }
        }
    };
}

signals! {
    HbmShare = "hbm_share", "useful HBM bytes at the HBM roof, over the time", "`timing.median_us` and an HBM ceiling";
    HbmBusy = "hbm_busy", "how busy device memory is", "ncu --metrics gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed";
    TrafficRatio = "traffic_ratio", "device-memory bytes moved over useful bytes", "ncu --metrics dram__bytes.sum";
    ImpliedTraffic = "implied_traffic", "bytes that the busy percentage of device memory stands for, over the useful ones", "ncu --metrics gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed";
    IntermediateRatio = "intermediate_ratio", "bytes of intermediates in device memory over useful bytes", "`dataflow.intermediate_hbm_bytes`: bytes written to device memory and read again";
    SectorExcess = "sector_excess", "sectors a request over the least that the access width needs", "`implementation.access_bytes_per_thread`, and ncu --metrics l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio,l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_st.ratio";
    SectorWaste = "sector_waste", "share of the global sectors beyond those that the access width needs", "ncu --metrics l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum,l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum (and st)";
    Strided = "strided_access", "whether the source addresses memory with a stride along a warp (1) or not (0)", "`dataflow.access`: regular, strided, irregular or dependent_chain";
    DependentChain = "dependent_chain", "whether each address depends on the last load (1) or not (0)", "`dataflow.access`: regular, strided, irregular or dependent_chain";
    StorageWidth = "storage_width_ratio", "bits an input element takes over bits that suffice", "`dtypes.sufficient`: the narrowest format that the accuracy allows, or `dtypes.mma`";
    InFlight = "in_flight_ratio", "bytes in flight an SM over those that cover the latency at full bandwidth", "`implementation.bytes_in_flight_per_sm`";
    LongScoreboard = "long_scoreboard_share", "share of stalled warps that wait for memory", "ncu --section WarpStateStats";
    SyncStall = "sync_stall_share", "share of stalled warps that wait at barriers or fences", "ncu --section WarpStateStats";
    TensorInstructions = "tensor_instructions", "whether matrix instructions are there (1) or not (0)", "`kbt sass metrics`, or `implementation.tensor_instructions`";
    LegacyMma = "legacy_mma", "whether the matrix instruction is an older generation's (1) or this one's (0)", "`implementation.mma_instruction`, or `kbt sass metrics`";
    TensorKernel = "tensor_operator", "whether the operator's formats have a tensor core here (1) or not (0)", "`dtypes`";
    TileUse = "tile_use", "useful part of the padded tiles", "`implementation.tile_m`, `implementation.tile_n`";
    Stages = "pipeline_stages", "stages of the load pipeline", "`implementation.pipeline_stages`";
    AsyncCopies = "async_copies", "whether loads run by themselves (TMA, cp.async: 1) or through registers (0)", "`implementation.async_copies`, or `kbt sass metrics`";
    WarpSpecialized = "warp_specialized", "whether warps have roles (1) or not (0)", "`implementation.warp_specialized`";
    RoleBusy = "busiest_role", "busy share of the busiest warp role", "`kbt trace stats`: busy time a role";
    WaveEfficiency = "wave_efficiency", "work over capacity of the waves that the grid needs", "`implementation.grid_ctas` and `implementation.ctas_per_sm`";
    SmFill = "sm_fill", "CTAs (or tiles) over SMs", "`implementation.grid_ctas`";
    LaunchShare = "launch_share", "launch latency of the call's kernels over the time", "`kbt microbench run --only '^ceiling:'`: the launch latency, and `timing.kernels`";
    HostGap = "host_gap", "time outside the kernels, over the time", "`timing.kernel_us`: nsys --stats, the sum of kernel durations";
    SubmissionShare = "submission_share", "time that the GPU waits for the host's submission, over the time", "`timing.submission_us`: nsys, gaps between kernels with the CUDA API busy";
    HostSyncs = "host_syncs", "host synchronisations within one call", "`implementation.host_syncs`";
    TransferShare = "transfer_share", "host-device transfers over the time", "`timing.host_transfer_us`: nsys, memcpy rows";
    CommShare = "communication_share", "communication over the time", "`timing.communication_us`: the same call with communication off";
    CommInside = "communication_inside", "whether communication of unknown size is inside the time (1) or none is (0)", "`timing.communication_included`";
    ClockRatio = "clock_ratio", "SM clock during the timing over the one behind the ceilings", "`device.sm_clock_mhz`: nvidia-smi --query-gpu=clocks.sm during the timing";
    PowerRatio = "power_ratio", "power drawn over the limit", "`device.power_draw_w`, `device.power_limit_w`";
    ThreadsPerInst = "threads_per_inst", "threads that take part in an instruction, of 32", "ncu --metrics smsp__thread_inst_executed_per_inst_executed.ratio";
    Occupancy = "occupancy", "resident warps over the most an SM holds", "ncu --metrics sm__warps_active.avg.pct_of_peak_sustained_active";
    Residency = "residency", "warps that registers and shared memory let an SM hold, over the most", "ncu --section Occupancy";
    IssueActive = "issue_active", "issue slots used", "ncu --metrics smsp__issue_active.avg.pct_of_peak_sustained_active";
    Spills = "spill_share", "share of L1 sectors that are local memory", "ncu --metrics l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum (and st, and global), or `kbt sass metrics`";
    SpillBytes = "spill_bytes", "spilled bytes a thread", "ptxas -v, or `kbt sass metrics`";
    ComputeShare = "compute_share", "useful arithmetic at its roof, over the time", "`timing.median_us` and an arithmetic ceiling";
    ScalarShare = "scalar_share", "the products on the FMA pipe at its roof, over the time", "`timing.median_us` and an FP32 ceiling";
    ComputeBusy = "compute_busy", "how busy the useful arithmetic keeps its pipe", "ncu --metrics sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active";
    L2Busy = "l2_busy", "how busy L2 is", "ncu --metrics lts__throughput.avg.pct_of_peak_sustained_elapsed";
    L2Reuse = "l2_reuse", "bytes that L2 moves for each byte of device memory", "ncu --metrics lts__t_bytes.sum,dram__bytes.sum";
    MemoryBusy = "memory_busy", "the busiest of device memory, L2 and L1", "ncu --section MemoryWorkloadAnalysis";
    L1Busy = "l1_busy", "how busy L1 and shared memory are", "ncu --metrics l1tex__throughput.avg.pct_of_peak_sustained_active";
    LsuBusy = "lsu_busy", "how busy the load-store pipe is", "ncu --metrics sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active";
    SharedShare = "shared_share", "shared-memory bytes at their roof, over the time", "`dataflow.shared_bytes`";
    ConflictShare = "bank_conflict_share", "share of shared-memory wavefronts that bank conflicts added", "ncu --metrics l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum,l1tex__data_pipe_lsu_wavefronts_mem_shared.sum";
    ConflictOfL1 = "bank_conflicts_of_l1", "share of all L1 wavefronts that bank conflicts added", "ncu --metrics l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum,l1tex__data_pipe_lsu_wavefronts.sum";
    FmaPerLoad = "fma_per_load", "warp-level FMAs of useful work for each global load request", "ncu --metrics l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum";
    XuBusy = "xu_busy", "how busy the XU pipe (MUFU and conversions) is", "ncu --metrics sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active";
    Ex2Share = "exp2_share", "the exp2 of the operator on the XU pipe at its roof, over the time: what else that pipe does comes on top", "`timing.median_us` and a ceiling of kind ex2";
    AluBusy = "alu_busy", "how busy the ALU pipe is", "ncu --metrics sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active";
    FmaBusy = "fma_busy", "how busy the FMA pipe is", "ncu --metrics sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active";
    SmBusy = "sm_busy", "the busiest thing inside the SM (sm__throughput), whatever that is", "ncu --metrics sm__throughput.avg.pct_of_peak_sustained_elapsed";
    BusyNotUseful = "busy_not_useful", "sm__throughput beyond the useful arithmetic and every pipe that was looked at", "ncu --metrics sm__throughput.avg.pct_of_peak_sustained_elapsed";
    L2Hit = "l2_hit", "share of L2 sectors that hit", "ncu --metrics lts__t_sector_hit_rate.pct";
    AtomicBusy = "atomic_busy", "how busy the atomic unit of the busiest L2 slice is", "ncu --metrics lts__d_atomic_input_cycles_active.max.pct_of_peak_sustained_elapsed";
    AtomicTraffic = "atomic_share_of_l2", "share of L2's sectors that atomic updates move", "ncu --metrics lts__t_sectors_op_red.sum,lts__t_sectors_op_atom.sum,lts__t_bytes.sum";
    AtomicShare = "atomic_share", "the updates of the most updated address at one a clock, over the time", "`dataflow.atomics_of_one_address`";
    ChainShare = "chain_share", "the dependency chain over the time", "`dataflow.chain_length`, `dataflow.chain_latency_ns`";
    Gap = "gap", "the part of the time in which no resource that was looked at is busy and no stated chain of loads runs", "the busy shares of the pipes and memory levels";
}

/// The signals that could be had.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Signals(BTreeMap<Signal, Figure>);

impl Signals {
    pub(crate) fn figure(&self, signal: Signal) -> Option<&Figure> {
        self.0.get(&signal)
    }

    pub(crate) fn get(&self, signal: Signal) -> Option<f64> {
        self.0.get(&signal).map(|f| f.value)
    }

    pub(crate) fn set(&mut self, signal: Signal, figure: Figure) {
        self.0.insert(signal, Figure { name: signal.meaning().to_owned(), ..figure });
    }

    /// What to ask for where a signal is not known; nothing where the work has no part in it. The pipe of products
    /// without a tensor core is the FMA pipe, and no matrix instruction is looked for among them.
    pub(crate) fn ask(&self, signal: Signal) -> Option<String> {
        let scalar = self.get(Signal::TensorKernel).is_some_and(|tensor| tensor < 0.5);
        let by = match signal {
            Signal::ImpliedTraffic | Signal::CommInside | Signal::Ex2Share => return None,
            Signal::LegacyMma | Signal::TensorInstructions if scalar => return None,
            // Nobody is sent after a chain, or contended updates, of which nothing speaks.
            Signal::ChainShare if self.get(Signal::DependentChain).is_none_or(|chain| chain < 0.5) => {
                return None;
            }
            Signal::AtomicBusy
                if self.get(Signal::AtomicShare).or(self.get(Signal::AtomicTraffic)).unwrap_or(0.0)
                    <= 0.0 =>
            {
                return None;
            }
            Signal::AtomicShare => return None,
            Signal::ComputeBusy if scalar => Signal::FmaBusy,
            _ => signal,
        };
        let known = match (signal, self.figure(Signal::Ex2Share)) {
            // A lower bound speaks neither way, and is worth knowing.
            (Signal::XuBusy, Some(least)) => format!("; {}", reading(Signal::Ex2Share, least)),
            _ => String::new(),
        };
        Some(format!("{} ({}){known}", signal.meaning(), by.measure()))
    }

    /// A signal computed from others that are there.
    fn derive(&mut self, signal: Signal, value: f64, how: &str, from: &[Signal]) {
        let inputs: Vec<&Figure> = from.iter().filter_map(|s| self.0.get(s)).collect();
        let figure = Figure::computed(signal.name(), value, Unit::Ratio, how, &inputs);
        self.set(signal, figure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_says_what_it_is_and_what_would_give_it() {
        for signal in Signal::ALL {
            assert!(!signal.meaning().is_empty() && !signal.measure().is_empty(), "{signal:?}");
            assert_eq!(Signal::ALL.iter().filter(|s| s.name() == signal.name()).count(), 1);
        }
    }
}
