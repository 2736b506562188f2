//! An instruction as the simulation sees it: its schedule, the unit it takes and for how long, what it reads.

use super::CyclesError;
use super::machine::{
    BOTH_HALVES, EXTRA_STALL, LSU_LATENCY, MAY_MISS, OTHER_LATENCY, WARPGROUP_FLOP, XU_LATENCY,
};
use super::registers::{Operands, operands};
use crate::{Instruction, pipe_of};
use kbt_device::{Arch, DeviceProfile, Pipe, RateRow};
use kbt_evidence::Provenance;
use std::collections::BTreeMap;

/// Lanes a clock of an SM whose every scheduler takes an instruction of a warp each clock.
const FULL_RATE: f64 = 128.0;

/// The unit that an instruction occupies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Unit {
    /// An issue slot and nothing else.
    None,
    /// Either half of FMA.
    EitherHalf,
    /// Both halves of FMA at once.
    BothHalves,
    /// One pipe.
    Pipe(Pipe),
}

/// An instruction, compiled for the simulation.
#[derive(Debug, Clone)]
pub(super) struct Op {
    pub(super) stall: u64,
    pub(super) wait: u8,
    pub(super) write: Option<u8>,
    pub(super) read: Option<u8>,
    pub(super) unit: Unit,
    /// Cycles that it takes its unit.
    pub(super) interval: u64,
    /// Cycles from the start on the unit to a dependent issue.
    pub(super) latency: u64,
    /// The latency is enforced by a scoreboard, else by stall counts.
    pub(super) scoreboard: bool,
    pub(super) taken_branch: bool,
    pub(super) extra_stall: u64,
    pub(super) operands: Operands,
}

/// What went into the compilation beside the code.
#[derive(Debug, Clone, Default)]
pub(super) struct Sources {
    /// Rows of the profile that were used.
    pub(super) rows: BTreeMap<String, Provenance>,
    /// Opcodes that have no rate in the profile, and what was taken.
    pub(super) assumed: BTreeMap<String, String>,
    /// Opcodes whose result is waited for and that have no latency in the profile, and what was taken.
    pub(super) latencies: BTreeMap<String, u64>,
    /// Opcodes that took the rate of another of the same mnemonic.
    pub(super) like: BTreeMap<String, String>,
}

/// Compiles one instruction.
pub(super) fn op(
    arch: Option<Arch>,
    insn: &Instruction,
    profile: &DeviceProfile,
    global_latency: Option<u32>,
    sources: &mut Sources,
) -> Result<Op, CyclesError> {
    let control = insn.control.ok_or(CyclesError::NoControl(insn.address))?;
    let pipe = pipe_of(arch, insn).pipe;
    let row = pipe.and_then(|p| rate(profile, insn, p));
    let halves = profile.rate_of_opcode("FFMA").and_then(|r| r.lanes_per_clk_sm).is_none_or(|l| l > 96.0);
    let unit = match pipe {
        None => Unit::None,
        Some(Pipe::Fma) if halves && BOTH_HALVES.contains(&insn.mnemonic()) => Unit::BothHalves,
        Some(Pipe::Fma) if halves => Unit::EitherHalf,
        Some(pipe) => Unit::Pipe(pipe),
    };
    if let Some(row) = row {
        if let Some(other) = row.opcode.as_deref().filter(|o| *o != insn.opcode()) {
            sources.like.insert(insn.opcode().to_owned(), other.to_owned());
        }
        sources.rows.insert(row.instruction.clone(), row.provenance.clone());
    }
    let interval = interval(insn, unit, row, sources);
    let measured = row.and_then(|r| r.latency_clk).map(|l| l.round().max(1.0) as u64);
    let latency = match (MAY_MISS.contains(&insn.mnemonic()), global_latency) {
        (true, Some(cycles)) => u64::from(cycles),
        (true, None) if control.write_barrier.is_some() => {
            return Err(CyclesError::MayMiss { opcode: insn.opcode().to_owned(), address: insn.address });
        }
        _ => measured.unwrap_or_else(|| {
            let cycles = match unit {
                Unit::Pipe(Pipe::Xu) => XU_LATENCY,
                Unit::Pipe(Pipe::Lsu) => LSU_LATENCY,
                _ => OTHER_LATENCY,
            };
            // Stall counts enforce the others.
            if control.write_barrier.is_some() {
                sources.latencies.insert(insn.opcode().to_owned(), cycles);
            }
            cycles
        }),
    };
    let extra =
        EXTRA_STALL.iter().find(|(m, modifier, _)| *m == insn.mnemonic() && insn.has_modifier(modifier));
    Ok(Op {
        stall: u64::from(control.stall).max(1),
        wait: control.wait_mask,
        write: control.write_barrier,
        read: control.read_barrier,
        unit,
        interval,
        latency,
        scoreboard: control.write_barrier.is_some(),
        taken_branch: false,
        extra_stall: extra.map_or(0, |(_, _, n)| *n),
        operands: operands(insn),
    })
}

/// The profile's row for an opcode, else one of the same mnemonic and widths on the same pipe.
fn rate<'p>(profile: &'p DeviceProfile, insn: &Instruction, pipe: Pipe) -> Option<&'p RateRow> {
    use crate::bound::widths;
    if crate::bound::is_rated_by_barrier(insn) {
        return None;
    }
    profile.rate_of_opcode(insn.opcode()).or_else(|| {
        let like = |row: &&RateRow| {
            let base = row.opcode.as_deref().map(|o| o.split('.').next());
            let same_widths = |o: &str| widths(o).eq(widths(insn.opcode()));
            row.lanes_per_clk_sm.is_some()
                && row.pipe == pipe
                && base == Some(Some(insn.mnemonic()))
                && row.opcode.as_deref().is_some_and(same_widths)
        };
        profile.rates.iter().find(like)
    })
}

fn interval(insn: &Instruction, unit: Unit, row: Option<&RateRow>, sources: &mut Sources) -> u64 {
    // An instruction on half of the lanes takes the half two cycles; the rate is that of both halves.
    let least = if matches!(unit, Unit::None) { 1 } else { 2 };
    if let Some(lanes) = row.and_then(|r| r.lanes_per_clk_sm).filter(|l| *l > 0.0) {
        return ((FULL_RATE / lanes).round() as u64).max(least);
    }
    if let Some(cycles) = warpgroup_cycles(insn) {
        let taken = format!("{cycles} cycles of the tensor core, from the published peak");
        sources.assumed.insert(insn.opcode().to_owned(), taken);
        return cycles;
    }
    let cycles = match unit {
        Unit::None => return 1,
        // Branches and the like come once a trip: their rate is no matter.
        Unit::Pipe(Pipe::Cbu | Pipe::Uniform) => return least,
        Unit::Pipe(Pipe::Xu) => 8,
        Unit::Pipe(Pipe::Lsu) => 4,
        _ => least,
    };
    sources.assumed.insert(insn.opcode().to_owned(), format!("{cycles} cycles a scheduler"));
    cycles
}

/// Cycles of a warpgroup's matrix product, from its shape: `HGMMA.64x128x16.F32.BF16`.
fn warpgroup_cycles(insn: &Instruction) -> Option<u64> {
    let (_, flop) = WARPGROUP_FLOP.iter().find(|(m, _)| *m == insn.mnemonic())?;
    let flop = if insn.has_modifier("TF32") { flop / 2 } else { *flop };
    let shape = insn.modifiers().find(|m| m.matches('x').count() == 2)?;
    let product: Option<u64> =
        shape.split('x').try_fold(2u64, |all, n| n.parse::<u64>().ok().and_then(|n| all.checked_mul(n)));
    Some((product? / flop).max(1))
}
