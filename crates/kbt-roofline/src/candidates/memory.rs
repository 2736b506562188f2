//! Candidates of the memory side: device memory, access patterns, latency, the levels on chip.

use super::{BottleneckClass, CandidateSpec, Saving, experiment, made, share, wanted_sectors};
use crate::conditions::{
    ATOMIC_SECTORS, ATOMICS, CONFLICTS, FLAG, HBM_BUSY, L2_BUSY, L2_REUSE, LOCAL_SECTORS, NCU_60, NCU_80,
    SECTORS, Source, above, below,
};
use crate::outcome::Resource;
use crate::signals::Signal as S;

const REDUNDANT: Source =
    Source::Assumed("traffic past a quarter more than compulsory is to be removed first");
const UNCOUNTED: Source =
    Source::Assumed("at twice the useful bytes a busy percentage wants its bytes counted before it decides");
const REUSE: Source = Source::Assumed(
    "an SM starts one load and four FMAs of a warp a clock: fewer than four FMAs a load and the loads limit",
);
const IDLE: Source = Source::Assumed("memory levels idle two thirds of the time are not the limit");
const WIDER: Source = Source::Assumed("bits that nothing needs are to be removed first");
const HITS: Source = Source::Planted(
    "87 to 99.9 % of the L2 sectors hit where L2 is read again and busy; 34 to 57 % in the kernels that stream",
);
const HALF: Source = Source::Assumed("half of the time");
const SMALL: Source = Source::Assumed("a twentieth of the time cannot be the bottleneck");

/// The candidates; among equals the earlier one is proposed first.
pub(super) const CANDIDATES: &[CandidateSpec] = &[
    CandidateSpec {
        id: "redundant_traffic",
        class: BottleneckClass::MemoryTraffic,
        title: "device memory moves bytes that the operator does not need moved",
        fix: "keep the reused operand or the intermediate on chip: fuse, or hold it in registers, shared memory or a cluster",
        checks: &["repeated_traffic", "intermediates_in_hbm"],
        supports: &[&[above(S::ImpliedTraffic, 2.0, UNCOUNTED)]],
        against: &[
            below(
                S::HbmBusy,
                0.3,
                Source::Assumed("device memory idle two thirds of the time cannot be the limit"),
            ),
            above(S::SectorExcess, 1.5, SECTORS),
            above(S::Spills, 0.05, LOCAL_SECTORS),
        ],
        claim: |s| {
            let busy = s.get(S::HbmBusy)? * wanted_sectors(s);
            let extra = match (s.get(S::TrafficRatio), s.get(S::IntermediateRatio)) {
                (Some(ratio), _) => 1.0 - 1.0 / ratio.max(1.0),
                (None, Some(extra)) => extra / (1.0 + extra),
                (None, None) => 1.0 - 1.0 / s.get(S::ImpliedTraffic)?,
            };
            made(
                s,
                busy * extra,
                "device-memory time of bytes beyond the useful ones, less spills and unneeded sectors",
                &[S::HbmBusy, S::TrafficRatio, S::IntermediateRatio, S::ImpliedTraffic, S::Spills, S::SectorWaste],
            )
        },
        experiment: experiment("keep the re-read operand or intermediate on chip (one fusion), same grid and tiles", 1.0).moves(&[Resource::HbmTraffic, Resource::L2]),
    },
    CandidateSpec {
        id: "hbm_bandwidth",
        class: BottleneckClass::MemoryTraffic,
        title: "device-memory bandwidth",
        fix: "move fewer useful bytes: a narrower format, fusion with a neighbour, reuse across calls",
        checks: &[],
        supports: &[&[above(S::HbmBusy, 0.6, HBM_BUSY)]],
        against: &[
            below(S::HbmBusy, 0.6, HBM_BUSY),
            above(S::TrafficRatio, 1.25, REDUNDANT),
            above(S::IntermediateRatio, 0.25, REDUNDANT),
            above(S::ImpliedTraffic, 2.0, UNCOUNTED),
            above(S::StorageWidth, 1.2, WIDER),
        ],
        claim: |s| {
            // As counted, else as stated.
            let counted = s.get(S::TrafficRatio).or(s.get(S::ImpliedTraffic));
            let moved = counted.or(s.get(S::IntermediateRatio).map(|extra| 1.0 + extra)).unwrap_or(1.0);
            let useful = s.get(S::HbmBusy)? / moved.max(1.0);
            let from = [S::HbmBusy, S::TrafficRatio, S::IntermediateRatio, S::ImpliedTraffic];
            made(s, useful, "device-memory time of the useful bytes", &from)
        },
        experiment: experiment("halve the bytes of the largest tensor ({tensor}: store it in half the width), same arithmetic and grid", 0.4).saves(Saving::HalfOfLargestTensor).moves(&[Resource::Hbm, Resource::HbmTraffic, Resource::L2]),
    },
    CandidateSpec {
        id: "wide_dtype",
        class: BottleneckClass::MemoryTraffic,
        title: "inputs stored wider than needed",
        fix: "store the inputs in the format that the arithmetic or the accuracy needs",
        checks: &["wide_dtype"],
        supports: &[],
        against: &[below(
            S::HbmBusy,
            0.3,
            Source::Assumed("device memory idle two thirds of the time cannot be the limit"),
        )],
        claim: |s| {
            let (busy, width) = (s.get(S::HbmBusy)?, s.get(S::StorageWidth)?);
            made(
                s,
                busy * (1.0 - 1.0 / width.max(1.0)),
                "device-memory time of bits beyond those that suffice",
                &[S::HbmBusy, S::StorageWidth],
            )
        },
        experiment: experiment("store the inputs in the sufficient format, convert in registers", 0.8).saves(Saving::WiderBits).moves(&[Resource::Hbm, Resource::HbmTraffic, Resource::L2]),
    },
    CandidateSpec {
        id: "uncoalesced_access",
        class: BottleneckClass::AccessPattern,
        title: "uncoalesced access: a warp touches more sectors than its data fills",
        fix: "make neighbouring threads touch neighbouring addresses: transpose through shared memory, change the layout",
        checks: &["uncoalesced"],
        supports: &[],
        against: &[below(S::MemoryBusy, 0.3, IDLE)],
        claim: |s| match s.get(S::SectorExcess) {
            // The level that the sectors keep busiest, or the idle time that their latency makes.
            Some(excess) => {
                let waste = s.get(S::SectorWaste).unwrap_or(1.0 - 1.0 / excess.max(1.0));
                let of = s.get(S::MemoryBusy).map_or(1.0, |busy| busy.max(s.get(S::Gap).unwrap_or(0.0)));
                made(
                    s,
                    waste * (1.0 - s.get(S::Spills).unwrap_or(0.0)) * of,
                    "time of sectors beyond the least number",
                    &[S::SectorExcess, S::SectorWaste, S::MemoryBusy, S::Gap],
                )
            }
            None if s.get(S::Strided)? > 0.5 => made(
                s,
                1.0 - s.get(S::HbmShare)?,
                "time beyond the useful bytes at the roof",
                &[S::HbmShare, S::Strided],
            ),
            None => None,
        },
        experiment: experiment("let neighbouring threads load neighbouring addresses: a contiguous copy of the tensor, or swapped indices (wrong results, right timing)", 0.7).moves(&[Resource::HbmTraffic, Resource::L2]),
    },
    CandidateSpec {
        id: "memory_latency",
        class: BottleneckClass::MemoryLatency,
        title: "too few memory requests in flight",
        fix: "more bytes in flight: wider loads, unrolling, a deeper pipeline, more resident warps",
        checks: &["request_concurrency"],
        supports: &[],
        against: &[
            above(S::HbmBusy, 0.8, NCU_80),
            // Loads wait long where what they wait for is at its own limit, or is asked for too much.
            above(S::L2Busy, 0.6, L2_BUSY),
            above(S::AtomicBusy, 0.5, ATOMICS),
            above(S::ChainShare, 0.5, HALF),
            above(S::SectorExcess, 1.5, SECTORS),
            above(S::Spills, 0.05, LOCAL_SECTORS),
        ],
        claim: |s| match s.get(S::InFlight) {
            Some(ratio) => {
                made(s, (1.0 - ratio).max(0.0), "bytes in flight that are missing", &[S::InFlight])
            }
            None => match s.get(S::LongScoreboard) {
                Some(waits) => {
                    let share = waits * s.get(S::Gap)?;
                    made(s, share, "idle time in which warps wait for memory", &[S::LongScoreboard, S::Gap])
                }
                // Nobody looked: of a kernel that needs memory longer than arithmetic, all the idle time may be that.
                None => {
                    let bytes = s.get(S::HbmShare)? > s.get(S::ComputeShare).unwrap_or(0.0);
                    let idle = made(s, s.get(S::Gap)?, "idle time beside the bytes", &[S::Gap, S::HbmShare]);
                    idle.filter(|_| bytes)
                }
            },
        },
        experiment: experiment("double the loads in flight (unroll by two, or one more pipeline stage)", 0.5).saves(Saving::TwiceInFlight),
    },
    CandidateSpec {
        id: "dependency_chain",
        class: BottleneckClass::MemoryLatency,
        title: "a chain of dependent loads",
        fix: "shorten the chain or run several chains at once",
        checks: &[],
        supports: &[&[above(S::ChainShare, 0.5, HALF)]],
        against: &[
            below(S::ChainShare, 0.2, Source::Assumed("a fifth of the time")),
            below(S::DependentChain, 0.5, FLAG),
        ],
        claim: share!(ChainShare),
        experiment: experiment("run two independent chains at once, each half as long", 0.5).moves(&[Resource::Chain]),
    },
    CandidateSpec {
        id: "l2_bandwidth",
        class: BottleneckClass::OnChipTraffic,
        title: "L2 bandwidth",
        fix: "larger tiles, multicast within a cluster, an order of tiles that reuses what is near",
        checks: &[],
        // lts__throughput is the busiest of many parts of L2, among them those that fill it from device memory: only
        // with traffic of its own is L2 the limit.
        supports: &[
            &[above(S::L2Busy, 0.6, L2_BUSY), above(S::L2Reuse, 2.0, L2_REUSE)],
            &[above(S::L2Busy, 0.6, L2_BUSY), above(S::L2Hit, 0.65, HITS)],
        ],
        against: &[
            below(S::L2Busy, 0.6, L2_BUSY),
            below(S::L2Reuse, 2.0, L2_REUSE),
            above(S::Spills, 0.05, LOCAL_SECTORS),
            above(S::SectorExcess, 1.5, SECTORS),
        ],
        claim: |s| {
            let own = match (s.get(S::L2Reuse), s.get(S::L2Hit)) {
                (Some(reuse), _) => 1.0 - 1.0 / reuse.max(1.0),
                (None, Some(hit)) => hit,
                (None, None) => 1.0,
            };
            made(
                s,
                s.get(S::L2Busy)? * own * wanted_sectors(s),
                "L2 time of bytes that neither device memory, nor spills, nor unneeded sectors explain",
                &[S::L2Busy, S::L2Reuse, S::L2Hit, S::Spills, S::SectorWaste],
            )
        },
        experiment: experiment("use each byte read from L2 for twice the work: two outputs a thread, or a tile twice as long", 0.4).moves(&[Resource::L2])
        .streaming("halve the bytes that pass L2: a narrower format, or a neighbouring operator fused"),
    },
    CandidateSpec {
        id: "contended_atomics",
        class: BottleneckClass::OnChipTraffic,
        title: "atomic updates of the same addresses wait for each other in L2",
        fix: "one update where there are many: add up in registers, a warp or shared memory first, spread a counter over copies; for split-K a second pass, or the reduction within a cluster",
        checks: &[],
        supports: &[
            &[above(S::AtomicBusy, 0.5, ATOMICS)],
            &[above(S::AtomicShare, 0.5, HALF)],
            // Where the busiest slice was not looked at: most of what L2 does, and no level busy with it.
            &[above(S::AtomicTraffic, 0.1, ATOMIC_SECTORS), below(S::MemoryBusy, 0.6, NCU_60)],
        ],
        against: &[
            below(S::AtomicBusy, 0.5, ATOMICS),
            below(S::AtomicTraffic, 0.1, ATOMIC_SECTORS),
        ],
        claim: |s| match s.figure(S::AtomicBusy).or(s.figure(S::AtomicShare)) {
            Some(busy) => Some(busy.clone()),
            None => made(
                s,
                s.get(S::AtomicTraffic)? * s.get(S::Gap)?,
                "idle time, by the part of L2's sectors that updates move",
                &[S::AtomicTraffic, S::Gap],
            ),
        },
        experiment: experiment("let each CTA add up its own updates in shared memory, one update an address at its end, same grid", 0.8).moves(&[Resource::Atomics, Resource::L2, Resource::HbmTraffic]),
    },
    CandidateSpec {
        id: "l1_lsu_pressure",
        class: BottleneckClass::OnChipTraffic,
        title: "the load-store pipe or L1: too many load instructions for the arithmetic",
        fix: "reuse in registers (register blocking), wider loads, TMA in place of per-thread copies",
        checks: &[],
        supports: &[
            &[above(S::LsuBusy, 0.8, NCU_80)],
            &[above(S::L1Busy, 0.8, NCU_80)],
            // Few FMAs a load say nothing of an operator that has none to spare, unless something is busy with them.
            &[below(S::FmaPerLoad, 4.0, REUSE), above(S::L1Busy, 0.6, NCU_60)],
            &[below(S::FmaPerLoad, 4.0, REUSE), above(S::BusyNotUseful, 0.6, NCU_60)],
        ],
        against: &[
            below(S::LsuBusy, 0.6, NCU_60),
            below(S::L1Busy, 0.6, NCU_60),
            above(S::FmaPerLoad, 4.0, REUSE),
            above(S::ConflictShare, 0.2, CONFLICTS),
            above(S::Spills, 0.05, LOCAL_SECTORS),
            above(S::SectorExcess, 1.5, SECTORS),
        ],
        claim: |s| {
            let own = s.get(S::L1Busy).map(|l1| {
                let conflicts = s.get(S::ConflictOfL1).or(s.get(S::ConflictShare)).unwrap_or(0.0);
                l1 * wanted_sectors(s) * (1.0 - conflicts)
            });
            if let Some(busiest) = s.get(S::LsuBusy).into_iter().chain(own).reduce(f64::max) {
                return made(
                    s,
                    busiest,
                    "the busier of LSU, and L1 less bank conflicts, spills and unneeded sectors",
                    &[S::LsuBusy, S::L1Busy, S::ConflictOfL1, S::Spills, S::SectorWaste],
                );
            }
            // sm__throughput names no unit: with few FMAs a load, what is busy beside them is the loads.
            (s.get(S::FmaPerLoad)? < 4.0).then_some(())?;
            made(
                s,
                s.get(S::BusyNotUseful)?,
                "the SM is busy with other than the useful arithmetic",
                &[S::BusyNotUseful, S::FmaPerLoad],
            )
        },
        experiment: experiment("compute a 2 x 2 block of outputs a thread from the same loads", 0.45)
            .streaming("load twice the bytes an instruction (up to 16 a thread), same elements"),
    },
    CandidateSpec {
        id: "shared_bank_conflicts",
        class: BottleneckClass::OnChipTraffic,
        title: "bank conflicts in shared memory",
        fix: "swizzle or pad the shared-memory layout",
        checks: &[],
        supports: &[&[above(S::ConflictShare, 0.2, CONFLICTS)]],
        against: &[
            below(S::ConflictShare, 0.05, SMALL),
            below(S::L1Busy, 0.3, Source::Assumed("L1 idle two thirds of the time hides its conflicts")),
        ],
        claim: |s| {
            let conflicts = s.get(S::ConflictOfL1).or(s.get(S::ConflictShare))?;
            let busy = s.get(S::L1Busy).unwrap_or_else(|| 1.0 - s.get(S::HbmShare).unwrap_or(0.0));
            made(
                s,
                conflicts * busy,
                "L1 time of replayed wavefronts",
                &[S::ConflictShare, S::ConflictOfL1, S::L1Busy, S::HbmShare],
            )
        },
        experiment: experiment("pad each row of the shared tile by one access width", 0.8).moves(&[Resource::Shared]),
    },
    CandidateSpec {
        id: "shared_bandwidth",
        class: BottleneckClass::OnChipTraffic,
        title: "shared-memory bandwidth",
        fix: "fewer shared-memory passes: operands in registers, B shared by two warpgroups, larger MMA tiles",
        checks: &[],
        supports: &[&[above(S::SharedShare, 0.6, NCU_60)]],
        against: &[below(S::SharedShare, 0.6, NCU_60)],
        claim: share!(SharedShare),
        experiment: experiment("keep one operand in registers between two MMAs", 0.25).moves(&[Resource::Shared]),
    },
];
