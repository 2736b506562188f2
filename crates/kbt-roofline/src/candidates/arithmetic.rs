//! Candidates of the arithmetic side: the roof itself, its instructions and tiles, overlap, roles, other pipes.

use super::{BottleneckClass, CandidateSpec, active_lanes, beyond_memory, experiment, made, share};
use crate::conditions::{ALU_BUSY, FLAG, HBM_BUSY, NCU_60, NCU_80, Source, XU_BUSY, above, below};
use crate::outcome::Resource;
use crate::signals::{Signal as S, Signals};
use kbt_evidence::Figure;

const ACTIVE: Source =
    Source::Assumed("a pipe's share is of the SMs that hold work: with many empty, the waves come first");

const CHAIN: Source = Source::Assumed("half of the time");

/// A pipe's time, less that of lanes that take no part: divergence is the cause of those.
fn pipe(s: &Signals, busy: S) -> Option<Figure> {
    made(s, s.get(busy)? * active_lanes(s), "pipe time of active lanes", &[busy, S::ThreadsPerInst])
}

/// The candidates; among equals the earlier one is proposed first.
pub(super) const CANDIDATES: &[CandidateSpec] = &[
    CandidateSpec {
        id: "arithmetic_roof",
        class: BottleneckClass::TensorThroughput,
        title: "the arithmetic roof: the useful operations fill their pipe",
        fix: "fewer operations (algebra, masking, sparsity of the problem) or a faster format",
        checks: &[],
        supports: &[&[above(S::ComputeBusy, 0.6, NCU_60)]],
        against: &[below(S::ComputeBusy, 0.6, NCU_60), above(S::LegacyMma, 0.5, FLAG)],
        claim: share!(ComputeBusy),
        experiment: experiment("raise the SM clock limit by 5 % (or lower it), all else fixed: a kernel at its arithmetic roof follows", 0.05).moves(&[Resource::Compute, Resource::Waves, Resource::Xu, Resource::Shared, Resource::L2]),
    },
    CandidateSpec {
        id: "no_matrix_instructions",
        class: BottleneckClass::TensorThroughput,
        title: "tensor-core work without this generation's matrix instructions",
        fix: "use WGMMA (9.0), tcgen05 (10.x) or mma.sync (elsewhere) for the products",
        checks: &["no_tensor_instructions"],
        supports: &[],
        against: &[
            above(S::ComputeBusy, 0.8, NCU_80),
            below(S::ComputeShare, 0.03, Source::Assumed("so little arithmetic is quick on any instruction")),
        ],
        claim: |s| match s.get(S::TensorInstructions) {
            _ if s.get(S::TensorKernel).is_some_and(|tensor| tensor < 0.5) => None,
            // On the FMA pipe the products of a decode step may still take less than their bytes.
            Some(v) if v < 0.5 => made(
                s,
                (1.0 - s.get(S::ComputeShare)?)
                    .min(s.get(S::ScalarShare).map_or(1.0, |scalar| beyond_memory(s, scalar))),
                "time of the products on the FMA pipe beyond the tensor roof and the bytes",
                &[S::ComputeShare, S::ScalarShare, S::HbmShare, S::TensorInstructions],
            ),
            // Without WGMMA, mma.sync reaches about two thirds of Hopper's rate (FlashAttention-3's authors): the
            // same products would take two thirds of the time that they take now.
            _ if s.get(S::LegacyMma)? > 0.5 => made(
                s,
                (s.get(S::ComputeShare)? / 2.0)
                    .max(s.get(S::Gap).unwrap_or(0.0) / 3.0)
                    .min(beyond_memory(s, s.get(S::ComputeShare)? * 1.5)),
                "products at two thirds of the tensor roof, or a third of the idle time, beyond the bytes",
                &[S::ComputeShare, S::Gap, S::HbmShare, S::LegacyMma],
            ),
            _ => None,
        },
        experiment: experiment("replace the inner product by the native matrix instruction, same tiles", 0.8).moves(&[Resource::Waves]),
    },
    CandidateSpec {
        id: "tile_waste",
        class: BottleneckClass::TensorThroughput,
        title: "padded tiles",
        fix: "a tile that divides the shape, or a second tile for the edge",
        checks: &["tile_use"],
        supports: &[],
        against: &[above(S::HbmBusy, 0.6, HBM_BUSY)],
        claim: |s| {
            // Padding is computed, not moved: it costs no more than what the useful bytes leave.
            // And no more than the padded products need beyond the bytes.
            let used = s.get(S::TileUse)?;
            let products = s.get(S::ComputeShare).map_or(1.0, |share| beyond_memory(s, share / used));
            let padded = (1.0 - used).min(1.0 - s.get(S::HbmShare).unwrap_or(0.0).min(1.0)).min(products);
            made(s, padded, "padding within the tiles", &[S::TileUse, S::HbmShare, S::ComputeShare])
        },
        experiment: experiment("the same shape with the next smaller tile, which pads less", 1.0).moves(&[Resource::Waves]),
    },
    CandidateSpec {
        id: "no_overlap",
        class: BottleneckClass::Overlap,
        title: "load, arithmetic and store take turns",
        fix: "a multi-stage pipeline with TMA or cp.async, then warp roles",
        checks: &["no_overlap", "warp_roles"],
        supports: &[],
        against: &[
            above(S::ComputeBusy, 0.8, NCU_80),
            above(S::HbmBusy, 0.8, NCU_80),
            above(S::WarpSpecialized, 0.5, FLAG),
            // A load whose address is not known yet can be brought forward by no pipeline.
            above(S::ChainShare, 0.5, CHAIN),
        ],
        claim: |s| {
            // In turns the arithmetic takes at most this many times what it needs at its roof: overlap saves no more.
            const IN_TURNS: f64 = 4.0;
            let gap = s.figure(S::Gap)?;
            match s.get(S::ComputeShare).map(|share| share * IN_TURNS) {
                Some(most) if most < gap.value => made(
                    s,
                    most,
                    "arithmetic at a quarter of its roof, all of it beside the loads",
                    &[S::ComputeShare, S::Gap],
                ),
                _ => Some(gap.clone()),
            }
        },
        experiment: experiment("one more pipeline stage, same tile and grid", 0.4),
    },
    CandidateSpec {
        id: "role_imbalance",
        class: BottleneckClass::RoleBalance,
        title: "warp roles wait for each other",
        fix: "move work between roles, or change how many warps a role has",
        checks: &[],
        supports: &[&[below(
            S::RoleBusy,
            0.8,
            Source::Assumed("where the busiest role idles a fifth of the time, no role is the limit"),
        )]],
        against: &[above(
            S::RoleBusy,
            0.95,
            Source::Assumed("a role that is never idle is the limit itself"),
        )],
        claim: |s| match s.get(S::RoleBusy) {
            Some(busiest) => made(s, 1.0 - busiest, "idle time of the busiest role", &[S::RoleBusy]),
            // Not traced yet: of a kernel with roles, all the idle time may be theirs.
            None if s.get(S::WarpSpecialized)? > 0.5 => {
                made(s, s.get(S::Gap)?, "idle time of a kernel with roles", &[S::Gap, S::WarpSpecialized])
            }
            None => None,
        },
        experiment: experiment("give the waited-for role one more warp", 0.5),
    },
    CandidateSpec {
        id: "xu_pipe",
        class: BottleneckClass::InstructionPipe,
        title: "the XU pipe: exp2, reciprocals, slow conversions",
        fix: "fewer transcendentals: fold scales into exp2, a polynomial on the FMA pipe, packed conversions on the ALU",
        checks: &[],
        // Of a count of exp2 alone, only how much they are speaks: that they are few says nothing of what else the pipe does.
        supports: &[&[above(S::XuBusy, 0.6, XU_BUSY)], &[above(S::Ex2Share, 0.6, XU_BUSY)]],
        against: &[below(S::XuBusy, 0.6, XU_BUSY), below(S::WaveEfficiency, 0.85, ACTIVE)],
        claim: |s| pipe(s, S::XuBusy).or_else(|| s.figure(S::Ex2Share).cloned()),
        experiment: experiment("replace every exp2 by one FMA (wrong results, right timing)", 0.4).moves(&[Resource::Xu]),
    },
    CandidateSpec {
        id: "alu_pipe",
        class: BottleneckClass::InstructionPipe,
        title: "the ALU pipe: integer, compare, packed conversions",
        fix: "fewer address and conversion instructions, or the same on another pipe",
        checks: &[],
        supports: &[&[above(S::AluBusy, 0.6, ALU_BUSY)]],
        against: &[below(S::AluBusy, 0.6, ALU_BUSY), below(S::WaveEfficiency, 0.85, ACTIVE)],
        claim: |s| pipe(s, S::AluBusy),
        experiment: experiment("remove half of the integer instructions of the loop, addresses or hashing (wrong results, right timing)", 0.4),
    },
    CandidateSpec {
        id: "fma_pipe",
        class: BottleneckClass::InstructionPipe,
        title: "the FMA pipe, with other than the useful arithmetic",
        fix: "fewer scalar operations around the products",
        checks: &[],
        supports: &[&[above(S::FmaBusy, 0.6, NCU_60)]],
        against: &[below(S::FmaBusy, 0.6, NCU_60), below(S::WaveEfficiency, 0.85, ACTIVE)],
        claim: |s| {
            let useful = if s.get(S::TensorKernel)? > 0.5 { 0.0 } else { s.get(S::ComputeShare)? };
            made(
                s,
                (s.get(S::FmaBusy)? * active_lanes(s) - useful).max(0.0),
                "FMA pipe time of active lanes that is not the useful arithmetic",
                &[S::FmaBusy, S::ComputeShare, S::ThreadsPerInst],
            )
        },
        experiment: experiment("remove one scalar operation an element", 0.4),
    },
    CandidateSpec {
        id: "warp_divergence",
        class: BottleneckClass::InstructionPipe,
        title: "divergent warps",
        fix: "sort or bin the work so that a warp takes one path",
        checks: &["warp_divergence"],
        supports: &[],
        against: &[above(S::HbmBusy, 0.8, NCU_80)],
        claim: |s| {
            // Idle lanes cost the time that instructions take: of the busiest pipe, or of warps that wait for none
            // of memory.
            let pipes = [S::IssueActive, S::AluBusy, S::FmaBusy, S::XuBusy, S::LsuBusy];
            let busiest = pipes.iter().filter_map(|x| s.get(*x)).reduce(f64::max);
            let waits = s.get(S::Gap).map(|gap| gap * (1.0 - s.get(S::LongScoreboard).unwrap_or(0.0)));
            let of = busiest.into_iter().chain(waits).reduce(f64::max).unwrap_or(1.0);
            made(
                s,
                (1.0 - s.get(S::ThreadsPerInst)? / 32.0) * of,
                "instruction time of idle lanes",
                &[S::ThreadsPerInst, S::IssueActive, S::AluBusy, S::FmaBusy, S::XuBusy, S::LsuBusy, S::Gap],
            )
        },
        experiment: experiment("feed inputs that take one path only", 0.8),
    },
];
