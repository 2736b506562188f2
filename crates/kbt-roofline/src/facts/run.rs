//! How a kernel is built, launched, timed and profiled.

use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One warp role of a specialised kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// Share of the time it is not waiting.
    pub busy_percent: f64,
}

section! {
    /// How the kernel is built and launched.
    Implementation {
        /// `cuda`, `triton`, `tirx`, `cutlass`, `cute_dsl`, `framework`, or another word.
        path: String,
        /// CTAs of one launch.
        grid_ctas: f64,
        /// Threads a CTA.
        block_threads: f64,
        /// CTAs an SM can hold at once.
        ctas_per_sm: f64,
        /// Output tiles of a persistent kernel (else the grid counts them).
        tiles: f64,
        /// Whether CTAs loop over tiles.
        #[serde(deserialize_with = "crate::words::flag")]
        persistent: bool,
        /// Rows of a tile.
        tile_m: u64,
        /// Columns of a tile.
        tile_n: u64,
        /// Registers a thread.
        registers_per_thread: f64,
        /// Shared memory a CTA.
        shared_bytes_per_cta: f64,
        /// Local memory a thread that the compiler spilled.
        spill_bytes_per_thread: f64,
        /// Stages of the load pipeline; 1 means that loads and arithmetic take turns.
        pipeline_stages: f64,
        /// Bytes of loads in flight an SM, by design.
        bytes_in_flight_per_sm: f64,
        /// Whether the machine code holds matrix instructions.
        #[serde(deserialize_with = "crate::words::flag")]
        tensor_instructions: bool,
        /// Which: `wgmma`, `tcgen05`, `mma.sync`.
        mma_instruction: String,
        /// Whether loads go through the bulk copy engine (TMA) or cp.async.
        #[serde(deserialize_with = "crate::words::flag")]
        async_copies: bool,
        /// Whether warps have roles.
        #[serde(deserialize_with = "crate::words::flag")]
        warp_specialized: bool,
        /// The roles, with how busy each is.
        roles: Vec<Role>,
        /// Bytes a thread moves with one access.
        access_bytes_per_thread: f64,
        /// Issue slots that a thread takes for one element, counted in the machine code.
        issue_slots_per_element: f64,
        /// A loop of the machine code that computes and moves nothing, so that how often it runs for one element is not
        /// known; one trip of it is in the issue slots.
        uncounted_loop: String,
        /// Host synchronisations within one timed call.
        host_syncs: f64,
    }
}

/// What the clock was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimingMethod {
    /// CUDA events around the launches.
    CudaEvents,
    /// Replays of a CUDA graph, timed by events.
    CudaGraph,
    /// The host's clock with synchronisation.
    HostClock,
    /// A profiler's own duration of the kernel.
    Profiler,
    /// A clock inside the kernel.
    DeviceClock,
    /// Computed back from a throughput that somebody published.
    PublishedThroughput,
}

impl TimingMethod {
    /// The method in words.
    #[must_use]
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::CudaEvents => "CUDA events",
            Self::CudaGraph => "CUDA graph replays",
            Self::HostClock => "the host's clock",
            Self::Profiler => "the profiler's own duration",
            Self::DeviceClock => "a clock inside the kernel",
            Self::PublishedThroughput => "a published throughput",
        }
    }
}

section! {
    /// How long one call takes.
    Timing {
        /// Median of one call.
        median_us: f64,
        /// Lower end of the spread.
        low_us: f64,
        /// Upper end of the spread.
        high_us: f64,
        /// What the ends are, for example `p10 to p90 of 30 launches`.
        spread: String,
        /// The clock.
        method: TimingMethod,
        /// Launches before the timed ones.
        warmup_launches: f64,
        /// Timed launches.
        launches: f64,
        /// Kernels in one timed call; 1 where absent.
        kernels: f64,
        /// Time that those kernels themselves run, where known apart from the call's.
        kernel_us: f64,
        /// Whether communication between GPUs is inside the time.
        #[serde(deserialize_with = "crate::words::flag")]
        communication_included: bool,
        /// How much of the time it is.
        communication_us: f64,
        /// Host-device transfers inside the time.
        host_transfer_us: f64,
        /// Time the host spends on submission while the GPU waits.
        submission_us: f64,
        /// Whether the data was in L2 already: `warm` or `cold`.
        cache: String,
    }
}

section! {
    /// Where the time was taken.
    DeviceFacts {
        /// The device's own name.
        name: String,
        /// SMs.
        sm_count: f64,
        /// SM clock during the timing.
        sm_clock_mhz: f64,
        /// What L2 holds.
        l2_bytes: f64,
        /// Whether clocks were locked.
        #[serde(deserialize_with = "crate::words::flag")]
        clocks_locked: bool,
        /// Power limit.
        power_limit_w: f64,
        /// Power drawn during the timing.
        power_draw_w: f64,
        /// Compile target, for example `sm_90a`.
        compile_target: String,
        /// Driver version.
        driver: String,
        /// CUDA or compiler version.
        toolkit: String,
    }
}

section! {
    /// What Nsight Compute counted for one launch.
    Profiler {
        /// Tool and version.
        tool: String,
        /// The kernel's name there.
        kernel: String,
        /// Raw metric names to values in base units (bytes, ns, cycles, percent).
        metrics: BTreeMap<String, f64>,
        /// What its rules said: leads, never verdicts.
        rules: Vec<String>,
    }
}
