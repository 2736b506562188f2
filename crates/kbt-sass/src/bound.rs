//! A lower bound of the cycles that a part of a function takes, from a device's rates.
//!
//! Three resources bound it: the issue port (one instruction a clock and scheduler), the busiest pipe, and for
//! one warp alone the sum of its stall counts. Memory, barriers and scoreboards are left out, so this is a
//! bound and no prediction. Opcodes that the profile has no rate for are left out too and named: the bound
//! stays true, only lower.

use crate::Listing;
use crate::graph::has_slow_path;
use crate::{Analysis, Instruction, Interval, Ways, metrics::provenance};
use kbt_device::{DeviceProfile, Pipe, RateRow};
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Lanes a clock of a whole SM's issue ports: four schedulers, one warp instruction of 32 lanes each.
const ISSUE_LANES_PER_CLK_SM: f64 = 128.0;

/// The bound of one part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// The device profile the rates come from.
    pub profile: String,
    /// Warps a scheduler that run this part at once.
    pub warps_per_scheduler: u32,
    /// Issue slots of all those warps.
    pub issue_cycles: f64,
    /// Cycles that each pipe is taken by all those warps.
    pub pipe_cycles: BTreeMap<String, f64>,
    /// The resource that binds: `issue` or a pipe.
    pub busiest: String,
    /// Its cycles: no schedule is faster.
    pub lower_bound_cycles: f64,
    /// Cycles of one warp's stall counts, where they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stall_cycles: Option<f64>,
    /// The longer of the two: the code as scheduled is not faster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_cycles: Option<f64>,
    /// Scheduled over lower bound, less one: what a perfect order of the same instructions could gain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headroom_percent: Option<f64>,
    /// Instructions that need not execute for a result, such as slow paths: the bound leaves them out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out_instructions: u64,
    /// Instructions that the profile has no rate for, by full mnemonic.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub without_rate: BTreeMap<String, u64>,
    /// The weakest of the rates used and of the counts.
    pub provenance: Provenance,
}

/// Bounds a part of a function for `warps_per_scheduler` warps that run it at once.
#[must_use]
pub fn bound(
    analysis: &Analysis<'_>,
    part: &Interval,
    profile: &DeviceProfile,
    warps_per_scheduler: u32,
    listing: &Listing,
) -> Bound {
    Sums::of(analysis, part, profile).bound(profile, warps_per_scheduler, listing)
}

/// Bounds a whole function that has no loop to look at, and gives the part that the bound is of: for each resource the
/// cheapest way from the entry to an exit that writes a result. What only some values need is no part of that.
#[must_use]
pub fn bound_of_function(
    analysis: &Analysis<'_>,
    profile: &DeviceProfile,
    warps_per_scheduler: u32,
    listing: &Listing,
) -> (Bound, Interval) {
    let ways = Ways::new(&analysis.graph, analysis.function);
    cheapest(analysis, &ways, analysis.whole(), profile, warps_per_scheduler, listing)
}

/// Bounds a loop of [`Analysis::loops`], and gives the part that the bound is of: the whole body, or the cheapest trip
/// where the body holds a slow path of CUDA's math library.
#[must_use]
pub fn bound_of_loop(
    analysis: &Analysis<'_>,
    index: usize,
    profile: &DeviceProfile,
    warps_per_scheduler: u32,
    listing: &Listing,
) -> (Bound, Interval) {
    let l = &analysis.loops[index];
    if !has_slow_path(analysis.function, &analysis.loops, index) {
        return (bound(analysis, &l.body, profile, warps_per_scheduler, listing), l.body.clone());
    }
    let ways = Ways::of_loop(&analysis.graph, analysis.function, l);
    cheapest(analysis, &ways, l.body.clone(), profile, warps_per_scheduler, listing)
}

/// The bound over the cheapest ways, and the way of the resource that binds.
fn cheapest(
    analysis: &Analysis<'_>,
    ways: &Ways<'_>,
    whole: Interval,
    profile: &DeviceProfile,
    warps_per_scheduler: u32,
    listing: &Listing,
) -> (Bound, Interval) {
    let Some((_, fewest)) = ways.cheapest(|_| 1.0) else {
        return (bound(analysis, &whole, profile, warps_per_scheduler, listing), whole);
    };
    let mut sums = Sums::of(analysis, &fewest, profile);
    let mut parts: BTreeMap<Pipe, Interval> = BTreeMap::new();
    for (pipe, cycles) in &mut sums.pipes {
        let of = |i: usize| match taken(analysis, profile, i) {
            Some((_, p, cycles)) if p == *pipe => cycles,
            Some((_, Pipe::FmaHeavy, cycles)) if *pipe == Pipe::Fma => cycles / 2.0,
            _ => 0.0,
        };
        if let Some((least, part)) = ways.cheapest(of) {
            *cycles = least;
            parts.insert(*pipe, part);
        }
    }
    if sums.stalls.is_some() {
        let stall = |i: usize| analysis.function.instructions[i].control.map_or(0.0, |c| f64::from(c.stall));
        sums.stalls = ways.cheapest(stall).map(|(least, _)| least);
    }
    let mut bound = sums.bound(profile, warps_per_scheduler, listing);
    let part = parts.into_iter().find(|(p, _)| p.as_str() == bound.busiest).map_or(fewest, |(_, part)| part);
    bound.left_out_instructions = whole.len().saturating_sub(part.len()) as u64;
    (bound, part)
}

/// What one warp takes of each resource.
#[derive(Default)]
struct Sums<'p> {
    slots: usize,
    pipes: BTreeMap<Pipe, f64>,
    stalls: Option<f64>,
    without_rate: BTreeMap<String, u64>,
    inputs: BTreeMap<&'p str, &'p Provenance>,
}

/// The rate that an instruction is taken by, its pipe, and the cycles of it that one warp of each scheduler takes.
fn taken<'p>(
    analysis: &Analysis<'_>,
    profile: &'p DeviceProfile,
    index: usize,
) -> Option<(&'p RateRow, Pipe, f64)> {
    let pipe = analysis.pipes.get(index)?.pipe?;
    let (row, lanes) = rate_of(profile, analysis.function.instructions.get(index)?, pipe)?;
    // 32 lanes a warp instruction, a quarter of the SM's rate a scheduler.
    Some((row, pipe, ISSUE_LANES_PER_CLK_SM / lanes))
}

impl<'p> Sums<'p> {
    fn of(analysis: &Analysis<'_>, part: &Interval, profile: &'p DeviceProfile) -> Self {
        let mut sums = Self { slots: part.len(), stalls: Some(0.0), ..Self::default() };
        for index in part.indices() {
            let Some(insn) = analysis.function.instructions.get(index) else { continue };
            sums.stalls = sums.stalls.zip(insn.control).map(|(sum, c)| sum + f64::from(c.stall));
            match taken(analysis, profile, index) {
                Some((row, pipe, cycles)) => {
                    *sums.pipes.entry(pipe).or_default() += cycles;
                    sums.inputs.insert(&row.instruction, &row.provenance);
                }
                None if analysis.pipes.get(index).is_some_and(|c| c.pipe.is_some()) => {
                    *sums.without_rate.entry(insn.opcode().to_owned()).or_default() += 1;
                }
                None => {}
            }
        }
        // Work on the heavy half of FMA takes half of the whole pipe's slots.
        if let Some(heavy) = sums.pipes.get(&Pipe::FmaHeavy).copied() {
            *sums.pipes.entry(Pipe::Fma).or_default() += heavy / 2.0;
        }
        sums
    }

    /// The bound of so many warps of a scheduler.
    fn bound(self, profile: &DeviceProfile, warps_per_scheduler: u32, listing: &Listing) -> Bound {
        let warps = f64::from(warps_per_scheduler.max(1));
        let pipes: BTreeMap<Pipe, f64> = self.pipes.iter().map(|(p, cycles)| (*p, cycles * warps)).collect();
        let issue_cycles = warps * self.slots as f64;
        let busiest = pipes.iter().max_by(|a, b| a.1.total_cmp(b.1)).filter(|(_, c)| **c > issue_cycles);
        let (busiest, lower_bound_cycles) =
            busiest.map_or(("issue", issue_cycles), |(pipe, cycles)| (pipe.as_str(), *cycles));
        let scheduled_cycles = self.stalls.map(|s| s.max(lower_bound_cycles));
        let counts = provenance(listing);
        let inputs = self.inputs.into_iter().chain(std::iter::once(("instruction counts", &counts)));
        Bound {
            profile: profile.name.clone(),
            warps_per_scheduler,
            issue_cycles,
            pipe_cycles: pipes.iter().map(|(pipe, cycles)| (pipe.as_str().to_owned(), *cycles)).collect(),
            busiest: busiest.to_owned(),
            lower_bound_cycles,
            stall_cycles: self.stalls,
            scheduled_cycles,
            headroom_percent: scheduled_cycles
                .filter(|_| lower_bound_cycles > 0.0)
                .map(|s| 100.0 * (s / lower_bound_cycles - 1.0)),
            left_out_instructions: 0,
            without_rate: self.without_rate,
            provenance: Provenance::computed("counts over rates, the longest of issue and pipes", inputs),
        }
    }
}

/// The rate of an instruction: of its opcode, else of the fastest row with the same base mnemonic, widths and pipe,
/// which keeps the bound a lower one. With its lanes a clock and SM.
#[must_use]
pub fn rate_of<'p>(profile: &'p DeviceProfile, insn: &Instruction, pipe: Pipe) -> Option<(&'p RateRow, f64)> {
    if is_rated_by_barrier(insn) {
        return None;
    }
    let usable = |row: &&RateRow| row.lanes_per_clk_sm.is_some_and(|lanes| lanes > 0.0);
    let same_base = |row: &&RateRow| {
        row.opcode.as_deref().is_some_and(|o| {
            Instruction::new(0, None, o, "").mnemonic() == insn.mnemonic()
                && widths(o).eq(widths(insn.opcode()))
        })
    };
    let row = profile.rate_of_opcode(insn.opcode()).filter(|r| usable(r)).or_else(|| {
        let like = profile.rates.iter().filter(|r| r.pipe == pipe).filter(usable).filter(same_base);
        like.max_by(|a, b| a.lanes_per_clk_sm.unwrap_or(0.0).total_cmp(&b.lanes_per_clk_sm.unwrap_or(0.0)))
    })?;
    Some((row, row.lanes_per_clk_sm?))
}

/// The widths beyond 32 bits that an opcode names, in its order. A conversion from or to 64 bits is another instruction
/// than the one of 32, several times slower.
pub(crate) fn widths(opcode: &str) -> impl Iterator<Item = &str> {
    opcode.split('.').skip(1).filter(|m| matches!(*m, "64" | "128" | "F64" | "U64" | "S64" | "WIDE"))
}

/// Whether the profile's rate is that of a warp whose lanes each have an mbarrier of their own. Kernels arrive with one
/// lane, or wait with all lanes at one barrier: taken for those, the rate is too low by up to 32.
pub(crate) fn is_rated_by_barrier(insn: &Instruction) -> bool {
    insn.mnemonic() == "SYNCS"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unit;
    use kbt_device::Arch;

    fn row(opcode: &str, pipe: Pipe, lanes: f64) -> RateRow {
        RateRow {
            instruction: opcode.to_lowercase(),
            opcode: Some(opcode.to_owned()),
            pipe,
            lanes_per_clk_sm: Some(lanes),
            results_per_clk_sm: None,
            latency_clk: None,
            spread_percent: None,
            refused: None,
            provenance: Provenance::measured("run", "card", "2026-11-30"),
        }
    }

    fn check(lines: &[&str], warps: u32, busiest: &str, cycles: f64) {
        let mut text = "\t.target\tsm_90a\n\t.section\t.text.f,\"ax\",@progbits\n".to_owned();
        for (n, line) in lines.iter().enumerate() {
            text += &format!("/*{:04x}*/ {line} ;\n", n * 16);
        }
        let listing = crate::parse(text.as_bytes()).unwrap();
        let mut profile = DeviceProfile::new("test", Arch::SM_90A, Provenance::assumed("a test"));
        profile.rates = vec![
            row("MUFU.EX2", Pipe::Xu, 16.0),
            row("FFMA", Pipe::Fma, 128.0),
            row("IMAD", Pipe::FmaHeavy, 64.0),
        ];
        let analysis = Analysis::new(&listing.functions[0], &Unit::mufu(), &Unit::f2fp());
        let bound = bound(&analysis, &analysis.whole(), &profile, warps, &listing);
        assert_eq!((bound.busiest.as_str(), bound.lower_bound_cycles), (busiest, cycles), "{bound:?}");
        assert_eq!(bound.stall_cycles, None, "the listing has no hex");
    }

    #[test]
    fn a_width_is_neither_dropped_nor_invented() {
        let mut profile = DeviceProfile::new("test", Arch::SM_90A, Provenance::assumed("a test"));
        profile.rates = vec![
            row("F2I.U64.TRUNC", Pipe::Xu, 2.0),
            row("I2F.F64.U32", Pipe::Xu, 2.0),
            row("F2F.F64.F32", Pipe::Xu, 2.0),
        ];
        let rate = |profile: &DeviceProfile, opcode: &str| {
            rate_of(profile, &Instruction::new(0, None, opcode, ""), Pipe::Xu).map(|(_, lanes)| lanes)
        };
        for opcode in ["F2I.FTZ.U32.TRUNC.NTZ", "I2F.RP", "I2F.U64", "F2F.F16.F32"] {
            assert_eq!(rate(&profile, opcode), None, "{opcode}");
        }
        assert_eq!(rate(&profile, "F2I.FTZ.U64.TRUNC"), Some(2.0));
        profile.rates.push(row("F2I.TRUNC.NTZ", Pipe::Xu, 16.0));
        assert_eq!(rate(&profile, "F2I.FTZ.U32.TRUNC.NTZ"), Some(16.0));
    }

    #[test]
    fn operations_of_mbarriers_have_no_rate_whatever_the_profile_says() {
        let mut profile = DeviceProfile::new("test", Arch::SM_90A, Provenance::assumed("a test"));
        profile.rates.push(row("SYNCS.ARRIVE.TRANS64", Pipe::Lsu, 0.5));
        let insn = Instruction::new(0, None, "SYNCS.ARRIVE.TRANS64", "");
        assert!(rate_of(&profile, &insn, Pipe::Lsu).is_none());
    }

    #[test]
    fn the_busiest_resource_binds() {
        check(&["MUFU.EX2 R0, R1", "FFMA R0, R1, R2, R3", "FFMA R0, R1, R2, R3", "EXIT"], 1, "xu", 8.0);
        check(&["MUFU.EX2 R0, R1", "FFMA R0, R1, R2, R3", "EXIT"], 4, "xu", 32.0);
        check(&["FFMA R0, R1, R2, R3", "FFMA R0, R1, R2, R3", "EXIT"], 2, "issue", 6.0);
        // Two on the heavy half take as long as the four issue slots, one FFMA more fits beside them.
        check(&["IMAD.SHL R0, R1, R2, R3"; 5], 1, "fma_heavy", 10.0);
    }
}
