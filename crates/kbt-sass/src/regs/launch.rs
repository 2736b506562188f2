//! How many registers a thread may have where the PTX says how many threads are launched.

use super::RegsOutcome;
use kbt_ptx::{Function, Module};

/// Registers of each of an SM's four partitions, and the partitions over which the warps of a CTA are spread.
const OF_PARTITION: u32 = 16384;
const PARTITIONS: u32 = 4;
/// Registers are allocated by 256 a warp.
const STEP: u32 = 8;
const MOST: u32 = 255;

/// What a kernel's `.maxntid` or `.reqntid`, and `.minnctapersm`, leave a thread.
pub(super) struct Limit {
    threads: u32,
    ctas: u32,
    pub(super) registers: u32,
}

impl Limit {
    /// The limit of a kernel; `None` where its PTX states no number of threads.
    pub(super) fn of(function: &Function) -> Option<Self> {
        let threads = number(function, ".reqntid").or_else(|| number(function, ".maxntid"))?;
        let ctas = number(function, ".minnctapersm").unwrap_or(1).max(1);
        let warps = threads.div_ceil(32).max(1).div_ceil(PARTITIONS).saturating_mul(ctas);
        let registers = (OF_PARTITION / warps.saturating_mul(32).max(1) / STEP * STEP).min(MOST);
        Some(Self { threads, ctas, registers })
    }

    fn said(&self) -> String {
        let ctas = match self.ctas {
            1 => String::new(),
            n => format!(" x {n} CTAs an SM"),
        };
        format!("{} threads{ctas} leave {} registers a thread", self.threads, self.registers)
    }
}

/// The product of a directive's numbers.
pub(super) fn number(function: &Function, name: &str) -> Option<u32> {
    let directive = function.directives.iter().find(|d| d.name == name)?;
    let mut numbers = directive.text.split(',').map(|n| n.trim().parse::<u32>().ok());
    numbers.try_fold(1_u32, |all, n| all.checked_mul(n?)).filter(|n| *n > 0)
}

impl RegsOutcome {
    /// Marks the rows whose kernels take more registers than their own launch bounds leave.
    pub(super) fn hold_against(&mut self, module: &Module) {
        for row in &mut self.rows {
            let function = module.entries().find(|f| f.name == row.function);
            let Some(limit) = function.and_then(Limit::of) else { continue };
            let takes = row.registers.or(row.setting_registers.first().copied()).unwrap_or(0);
            if takes > limit.registers {
                row.unusable = Some(limit.said());
            }
        }
    }
}
