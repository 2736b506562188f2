//! How many cycles a trip of a loop takes on one scheduler, for any number of warps: a static model of the machine
//! code, with the rates and latencies of a device profile.
//!
//! [`LoopModel::cycles`] simulates the schedule as it is (stall counts, scoreboards, pipes, queues, register ports,
//! the branch back); [`LoopModel::limits`] says what no other order of the same instructions could beat. Waits
//! for other warps and for asynchronous copies are taken as satisfied, bank conflicts of shared memory as absent,
//! and what may miss a cache takes the time that the caller states.

mod files;
mod limits;
mod machine;
mod op;
mod outcome;
mod registers;
mod simulate;

pub use limits::Limits;
pub use outcome::{CyclesOutcome, CyclesRow, LoopCycles, RefusedLoop, cycles};

use crate::Instruction;
use kbt_device::{Arch, DeviceProfile};
use kbt_evidence::Provenance;

/// Why a loop cannot be modelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CyclesError {
    /// The listing has no scheduling fields.
    #[error(
        "the instruction at 0x{0:x} has no scheduling fields: the listing needs its encoding (nvdisasm -hex, or cuobjdump -sass)"
    )]
    NoControl(u64),
    /// A load whose time is no property of the code.
    #[error(
        "{opcode} at 0x{address:x} may miss a cache: state its latency in cycles (--global-latency), for example 500 for L2 or 900 for device memory"
    )]
    MayMiss {
        /// The instruction.
        opcode: String,
        /// Where.
        address: u64,
    },
    /// Before Volta the schedule is written in another way.
    #[error("{0}: the model reads schedules of sm_70 and later")]
    Arch(Arch),
    /// Nothing to model.
    #[error("the loop has no instructions")]
    Empty,
}

/// Whether an instruction loads what may miss a cache, so that a model must be told its latency.
pub(crate) fn may_miss(insn: &Instruction) -> bool {
    machine::MAY_MISS.contains(&insn.mnemonic())
}

/// A loop, ready to be asked.
#[derive(Debug, Clone)]
pub struct LoopModel {
    ops: Vec<op::Op>,
    sources: op::Sources,
    arch: Option<Arch>,
    profile: String,
}

impl LoopModel {
    /// Compiles a loop's instructions, in order, the branch back last. `global_latency` is what a load that may
    /// miss takes, in cycles.
    pub fn new<'i>(
        arch: Option<Arch>,
        body: impl IntoIterator<Item = &'i Instruction>,
        profile: &DeviceProfile,
        global_latency: Option<u32>,
    ) -> Result<Self, CyclesError> {
        if let Some(arch) = arch.filter(|a| a.sm < 70) {
            return Err(CyclesError::Arch(arch));
        }
        let mut sources = op::Sources::default();
        let mut ops = Vec::new();
        for insn in body {
            ops.push(op::op(arch, insn, profile, global_latency, &mut sources)?);
        }
        // Of several branches the last one goes back.
        ops.last_mut().ok_or(CyclesError::Empty)?.taken_branch = true;
        Ok(Self { ops, sources, arch, profile: profile.name.clone() })
    }

    /// Cycles until each of `warps` warps of a scheduler has made one more trip.
    #[must_use]
    pub fn cycles(&self, warps: u32) -> f64 {
        simulate::cycles_per_trip(&self.ops, warps as usize)
    }

    /// What no order of these instructions can beat.
    #[must_use]
    pub fn limits(&self, warps: u32) -> Limits {
        limits::limits(&self.ops, warps)
    }

    /// Instructions of a trip.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether it has none: never, a loop without instructions is refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The sum of the stall counts: what a single warp would take if nothing else mattered.
    #[must_use]
    pub fn stall_sum(&self) -> f64 {
        self.ops.iter().map(|op| op.stall).sum::<u64>() as f64
    }

    /// Opcodes that the profile does not know in full, each with what was taken for it.
    pub fn assumed(&self) -> impl Iterator<Item = (&str, String)> {
        let sources = &self.sources;
        let rates =
            sources.assumed.iter().map(|(o, taken)| (o.as_str(), format!("no rate in the profile, {taken}")));
        let latencies = sources
            .latencies
            .iter()
            .map(|(o, cycles)| (o.as_str(), format!("no latency in the profile, {cycles} cycles")));
        let like = sources.like.iter().map(|(o, other)| (o.as_str(), format!("the rate of {other}")));
        rates.chain(latencies).chain(like)
    }

    /// How the cycles are known.
    #[must_use]
    pub fn provenance(&self) -> Provenance {
        let whose = if machine::is_fitted(self.arch) {
            "issue rules found on an H200; error on loops that it has not seen: docs/measurements.md"
        } else {
            "issue rules of sm_90, not measured on this architecture"
        };
        let model =
            Provenance::modelled(format!("kbt's static cycle model with profile {} ({whose})", self.profile));
        let rows = self.sources.rows.iter().map(|(name, provenance)| (name.as_str(), provenance));
        Provenance::computed("simulation of the schedule", rows.chain([("model", &model)]))
    }
}

#[cfg(test)]
mod tests;
