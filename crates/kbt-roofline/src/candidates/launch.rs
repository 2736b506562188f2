//! Candidates of neither roof: grid and waves, residency, synchronisation, the host, links, clocks.

use super::{BottleneckClass, CandidateSpec, experiment, made, share, shortfall};
use crate::conditions::{HBM_BUSY, LOCAL_SECTORS, NCU_60, NCU_80, Source, above, below};
use crate::signals::Signal as S;

/// The candidates; among equals the earlier one is proposed first.
pub(super) const CANDIDATES: &[CandidateSpec] = &[
    CandidateSpec {
        id: "tail_wave",
        class: BottleneckClass::LaunchShape,
        title: "wave quantisation: the last wave leaves SMs empty",
        fix: "a tile count that fills whole waves, a persistent grid with stream-K, smaller tiles at the end",
        checks: &["tail_tiles"],
        supports: &[],
        against: &[above(S::ComputeBusy, 0.8, NCU_80), above(S::HbmBusy, 0.8, NCU_80)],
        claim: shortfall!(WaveEfficiency, "SM time empty in the last wave"),
        experiment: experiment(
            "run a shape whose tiles fill the waves before it, and compare time for each tile",
            None,
            1.0,
        ),
    },
    CandidateSpec {
        id: "too_few_ctas",
        class: BottleneckClass::LaunchShape,
        title: "too few CTAs: SMs stay empty, and one CTA an SM hides nothing",
        fix: "more CTAs: split-K, smaller tiles where the instruction allows them, batching of calls",
        checks: &["small_shape"],
        supports: &[],
        // Few CTAs can still fill a roof.
        against: &[above(S::HbmBusy, 0.6, HBM_BUSY), above(S::ComputeBusy, 0.6, NCU_60)],
        claim: |s| {
            let fill = s.get(S::SmFill).filter(|f| *f < 1.0)?;
            // One wave of at most one CTA an SM exposes every latency: the idle time counts with the idle SMs.
            let idle = s.get(S::Gap).unwrap_or(0.0).max(1.0 - fill);
            made(s, idle, "idle time of a grid smaller than the device", &[S::SmFill, S::Gap])
        },
        experiment: experiment(
            "double the CTAs by splitting K in two (with the reduction), same tile",
            None,
            0.5,
        )
        .streaming("double the CTAs: two for each row or run of elements that has one (with the reduction between them)"),
    },
    CandidateSpec {
        id: "register_spills",
        class: BottleneckClass::Resources,
        title: "registers spill to local memory",
        fix: "fewer live values: smaller fragments, full unrolling of indexed ones, another register budget",
        checks: &[],
        supports: &[
            &[above(S::Spills, 0.05, LOCAL_SECTORS)],
            &[above(S::SpillBytes, 0.0, Source::Definition("any spill"))],
        ],
        against: &[below(S::Spills, 0.005, Source::Assumed("one sector in two hundred is noise"))],
        claim: |s| match s.get(S::Spills) {
            Some(share) => {
                // Spills go through L1 to L2: whichever they keep busier, or the idle time that their latency makes.
                let busy = [S::MemoryBusy, S::L1Busy, S::Gap].iter().filter_map(|x| s.get(*x)).reduce(f64::max);
                made(
                    s,
                    share * busy.unwrap_or(1.0),
                    "time of local memory in the busiest memory level",
                    &[S::Spills, S::MemoryBusy, S::L1Busy, S::Gap],
                )
            }
            None if s.get(S::SpillBytes)? > 0.0 => made(
                s,
                s.get(S::Gap)?,
                "idle time, with spills in the machine code",
                &[S::Gap, S::SpillBytes],
            ),
            None => None,
        },
        experiment: experiment(
            "raise the register limit until ptxas reports no spill, same tile",
            Some("kbt sass regs --arch ARCH PTX"),
            0.8,
        ),
    },
    CandidateSpec {
        id: "occupancy_limits",
        class: BottleneckClass::Resources,
        title: "registers or shared memory keep warps out, and no pipeline hides the latency",
        fix: "fewer registers or less shared memory a CTA, or a pipeline that needs fewer warps",
        checks: &["occupancy_limits"],
        supports: &[],
        against: &[
            above(S::Stages, 1.5, Source::Definition("a pipeline hides latency without more warps")),
            above(S::Occupancy, 0.5, Source::Assumed("half of an SM's warps are not few")),
            above(S::IssueActive, 0.8, NCU_80),
        ],
        claim: |s| {
            made(s, s.get(S::Gap)?, "idle time", &[S::Gap, S::Occupancy])
                .filter(|_| s.get(S::Occupancy).is_some())
        },
        experiment: experiment("halve the registers a thread (launch bounds), same tile", None, 0.4),
    },
    CandidateSpec {
        id: "synchronisation",
        class: BottleneckClass::Synchronisation,
        title: "warps or the host wait at synchronisation",
        fix: "fewer or finer barriers: mbarriers for pairs of roles, one host synchronisation a batch of calls",
        checks: &["synchronisation"],
        supports: &[],
        against: &[
            above(S::IssueActive, 0.8, NCU_80),
            above(S::HbmBusy, 0.8, NCU_80),
            above(S::ComputeBusy, 0.8, NCU_80),
        ],
        claim: |s| {
            made(
                s,
                s.get(S::SyncStall)? * s.get(S::Gap).unwrap_or(1.0),
                "idle time in which warps wait at barriers",
                &[S::SyncStall, S::Gap],
            )
        },
        experiment: experiment("remove one barrier (wrong results, right timing)", None, 0.5),
    },
    CandidateSpec {
        id: "launch_overhead",
        class: BottleneckClass::HostSide,
        title: "launches and submission: the GPU waits for the host",
        fix: "fuse the chain, capture it in a CUDA graph, or batch the calls",
        checks: &["launch_latency", "cpu_submission"],
        supports: &[],
        against: &[above(S::HbmBusy, 0.6, HBM_BUSY), above(S::ComputeBusy, 0.6, NCU_60)],
        claim: |s| {
            let parts = [S::HostGap, S::LaunchShare, S::SubmissionShare];
            let most = parts.iter().filter_map(|x| s.get(*x)).reduce(f64::max)?;
            // Launches that queue overlap each other, so that their latencies can add up to more than the time.
            let used = [S::HbmShare, S::ComputeShare].iter().filter_map(|x| s.get(*x)).fold(0.0, f64::max);
            made(
                s,
                most.min((1.0 - used).max(0.0)),
                "the largest of host gap, launch latency and submission, within the time that no roof needs",
                &[S::HostGap, S::LaunchShare, S::SubmissionShare, S::HbmShare, S::ComputeShare],
            )
        },
        experiment: experiment(
            "replay the same kernels from a CUDA graph",
            Some("nsys profile --cuda-graph-trace=node APP"),
            0.8,
        ),
    },
    CandidateSpec {
        id: "host_device_transfers",
        class: BottleneckClass::HostSide,
        title: "host-device transfers inside the time",
        fix: "keep the data on the device, or overlap the copies with kernels from pinned memory",
        checks: &["host_device_transfers"],
        supports: &[],
        against: &[above(S::HbmBusy, 0.8, NCU_80), above(S::ComputeBusy, 0.8, NCU_80)],
        claim: share!(TransferShare),
        experiment: experiment("time the call with its data resident", None, 1.0),
    },
    CandidateSpec {
        id: "communication",
        class: BottleneckClass::Communication,
        title: "communication between GPUs",
        fix: "overlap it with arithmetic, or send less",
        checks: &["communication"],
        supports: &[],
        against: &[above(S::HbmBusy, 0.8, NCU_80), above(S::ComputeBusy, 0.8, NCU_80)],
        claim: share!(CommShare),
        experiment: experiment("time the call with communication off", None, 1.0),
    },
    CandidateSpec {
        id: "clocks",
        class: BottleneckClass::Clocks,
        title: "the clock was lower than the ceilings assume",
        fix: "lock the clocks, cool down between measurements, and compare within one run",
        checks: &["power_or_frequency"],
        supports: &[],
        against: &[above(S::HbmBusy, 0.8, NCU_80)],
        claim: |s| made(s, (1.0 - s.get(S::ClockRatio)?).max(0.0), "clock that is missing", &[S::ClockRatio]),
        experiment: experiment(
            "lock the SM clock at the ceilings' own, with a cool-down before each run",
            Some("nvidia-smi --lock-gpu-clocks=MHZ"),
            0.9,
        ),
    },
];
