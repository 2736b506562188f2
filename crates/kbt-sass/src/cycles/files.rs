//! The register file of a scheduler: two banks with one read a cycle each, and the cache of reused operands.

use super::machine::LATE_READ;
use super::op::{Op, Unit};
use kbt_device::Pipe;

/// By bank and operand slot, whose register is kept: (warp, register).
type Banks = [[Option<(usize, u16)>; 3]; 2];

/// State of the banks' ports and of the reuse cache.
#[derive(Debug, Default)]
pub(super) struct Files {
    /// The cycle from which each bank's port is free.
    port: [u64; 2],
    /// Kept operands; FP64 instructions have entries of their own.
    cache: [Banks; 2],
}

impl Files {
    /// Reads of each bank: one for each register that the cache does not hold, however often it is named.
    pub(super) fn reads(&self, warp: usize, op: &Op) -> [u64; 2] {
        let mut reads = [0; 2];
        let all = &op.operands.reads;
        for (n, read) in all.iter().enumerate() {
            for register in read.registers() {
                let bank = usize::from(register & 1);
                let cached = self.cache[kind(op)][bank][usize::from(read.slot)] == Some((warp, register));
                if !cached && !all[..n].iter().any(|r| r.registers().contains(&register)) {
                    reads[bank] += 1;
                }
            }
        }
        reads
    }

    /// The first cycle from `t` on at which it may issue.
    pub(super) fn ready(&self, warp: usize, op: &Op, t: u64) -> u64 {
        let reads = self.reads(warp, op);
        let late = if reads[0] + reads[1] >= 3 { LATE_READ } else { 0 };
        let mut at = t;
        for (port, n) in self.port.iter().zip(reads) {
            // More reads of one bank than that take longer in any case, and hold up who comes after.
            let late = late.max(n.saturating_sub(1));
            if n > 0 {
                at = at.max((port.max(&t) + n - 1).saturating_sub(late));
            }
        }
        at
    }

    /// It issues at `t`.
    pub(super) fn take(&mut self, warp: usize, op: &Op, t: u64) {
        let reads = self.reads(warp, op);
        for (port, n) in self.port.iter_mut().zip(reads) {
            if n > 0 {
                *port = (*port).max(t) + n;
            }
        }
        for read in &op.operands.reads {
            for register in read.registers() {
                self.cache[kind(op)][usize::from(register & 1)][usize::from(read.slot)] =
                    read.reuse.then_some((warp, register));
            }
        }
    }
}

/// Which entries of the reuse cache an instruction uses. DFMAs in turn with instructions that keep operands of their own
/// in the same bank and slot are read as if neither lost them: 22 loops of DFMA and one other operation, timed on an H200,
/// are at most 5 % off so, and up to 40 % with entries in common.
fn kind(op: &Op) -> usize {
    usize::from(op.unit == Unit::Pipe(Pipe::Fp64))
}
