//! Candidates of neither roof: grid and waves, residency, synchronisation, the host, links, clocks.

use super::{BottleneckClass, CandidateSpec, Saving, experiment, made, share, shortfall};
use crate::conditions::{FLAG, HBM_BUSY, LOCAL_SECTORS, NCU_60, NCU_80, Source, above, below};
use crate::outcome::Resource;
use crate::signals::Signal as S;

const CHAIN: Source = Source::Assumed("half of the time");

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
        experiment: experiment("run a shape whose tiles fill the waves before it, and compare time for each tile", 1.0).moves(&[Resource::Waves]),
    },
    CandidateSpec {
        id: "too_few_ctas",
        class: BottleneckClass::LaunchShape,
        title: "too few CTAs: SMs stay empty, and the others have little to hide latency with",
        fix: "more CTAs: split-K, smaller tiles where the instruction allows them, batching of calls",
        checks: &["small_shape"],
        supports: &[],
        // Few CTAs can still fill a roof.
        against: &[
            above(S::HbmBusy, 0.6, HBM_BUSY),
            above(S::ComputeBusy, 0.6, NCU_60),
            // More CTAs make no chain shorter.
            above(S::ChainShare, 0.5, CHAIN),
        ],
        claim: |s| {
            let fill = s.get(S::SmFill).filter(|f| *f < 1.0)?;
            // One wave of at most one CTA an SM exposes every latency: the idle time counts with the idle SMs.
            let idle = s.get(S::Gap).unwrap_or(0.0).max(1.0 - fill);
            let beside = (1.0 - s.get(S::ChainShare).unwrap_or(0.0)).max(0.0);
            let how = "idle time of a grid smaller than the device";
            made(s, idle.min(beside), how, &[S::SmFill, S::Gap, S::ChainShare])
        },
        experiment: experiment("{parts} times the CTAs by splitting K in {parts} (with the reduction), same tile", 0.5).saves(Saving::MoreCtas).moves(&[Resource::Waves])
        .streaming("{parts} times the CTAs, each with its part of the elements (of a row or a sum: with the reduction between them)"),
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
        experiment: experiment("raise the register limit until ptxas reports no spill, same tile", 0.8).moves(&[Resource::L2, Resource::HbmTraffic]),
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
        experiment: experiment("halve the registers a thread (launch bounds), same tile", 0.4),
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
        experiment: experiment("remove one barrier (wrong results, right timing)", 0.5),
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
        experiment: experiment("replay the same kernels from a CUDA graph", 0.8).saves(Saving::OutsideTheKernels).moves(&[Resource::Submission]),
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
        experiment: experiment("time the call with its data resident", 1.0).moves(&[Resource::HostTransfer]),
    },
    CandidateSpec {
        id: "communication",
        class: BottleneckClass::Communication,
        title: "communication between GPUs",
        fix: "overlap it with arithmetic, or send less",
        checks: &["communication"],
        supports: &[&[above(S::CommInside, 0.5, FLAG)]],
        against: &[above(S::HbmBusy, 0.8, NCU_80), above(S::ComputeBusy, 0.8, NCU_80)],
        claim: |s| match s.figure(S::CommShare) {
            Some(share) => Some(share.clone()),
            // Of unknown size: all that no roof needs may be communication.
            None if s.get(S::CommInside)? > 0.5 => {
                made(s, s.get(S::Gap)?, "at most the idle time", &[S::Gap, S::CommInside])
            }
            None => None,
        },
        experiment: experiment("time the call with communication off", 1.0).moves(&[Resource::Communication]),
    },
    CandidateSpec {
        id: "clocks",
        class: BottleneckClass::Clocks,
        title: "the clock was lower than the ceilings assume",
        fix: "lock the clocks, cool down between measurements, and compare within one run",
        checks: &["power_or_frequency"],
        supports: &[],
        against: &[above(S::HbmBusy, 0.8, NCU_80)],
        claim: |s| match s.get(S::ClockRatio) {
            Some(ratio) => made(s, (1.0 - ratio).max(0.0), "clock that is missing", &[S::ClockRatio]),
            // At the power limit the clock is lower by an unknown part of the time that the full one would not need.
            None if s.get(S::PowerRatio)? > 0.97 => made(
                s,
                s.get(S::Gap)?,
                "at most the time beyond the roof at the full clock",
                &[S::Gap, S::PowerRatio],
            ),
            None => None,
        },
        experiment: experiment("lock the SM clock at the ceilings' own, with a cool-down before each run", 0.9).moves(&[Resource::Compute, Resource::Waves, Resource::Xu, Resource::Shared, Resource::L2]),
    },
];
