//! What the model knows of a scheduler beside the rates and latencies of a device profile.
//!
//! The branch, the read ports and the halves of FMA were found on an H200: with the loops of `kbt microbench loops` that
//! are not held out, and with kernels whose operand registers were set by hand. Queues and read barriers are
//! assumed; the loops hardly tell them apart. Latencies here stand in where the profile has none, and the outcome names
//! each such opcode. Other generations are modelled with the same constants, and the outcome says so.

use kbt_device::Arch;

/// Cycles from the issue of a taken branch to the warp's next issue, whatever its stall count.
pub(super) const BRANCH: u64 = 10;

/// Instructions that may wait in front of a unit beside the one that it works on.
pub(super) const XU_QUEUE: usize = 1;
/// The same for shared memory, shuffles and all else that goes through the LSU.
pub(super) const LSU_QUEUE: usize = 4;

/// Cycles from the start on the unit until the operands have been read and the read barrier is released.
pub(super) const READ_BARRIER: u64 = 8;

/// Latencies of results behind a scoreboard where the profile has none.
pub(super) const XU_LATENCY: u64 = 17;
/// LSU, conflict-free shared memory.
pub(super) const LSU_LATENCY: u64 = 23;
/// Everything else: constants, special registers, vote.
pub(super) const OTHER_LATENCY: u64 = 12;
/// Results of fixed latency, for the dependence bound alone: the schedule itself has them in its stall counts.
pub(super) const FIXED_LATENCY: u64 = 4;

/// Registers are in two banks by the last bit of their number; a bank is read once a cycle. An instruction that reads
/// three registers or more may have its last read this many cycles after issue; one that reads fewer, none.
pub(super) const LATE_READ: u64 = 1;

/// After these a warp's own next instruction waits longer than its stall count says, by so many cycles; other
/// warps are not held up.
pub(super) const EXTRA_STALL: &[(&str, &str, u64)] = &[("IMAD", "HI", 2)];

/// Packed instructions that take both halves of the FMA pipe at once.
pub(super) const BOTH_HALVES: &[&str] =
    &["HFMA2", "HADD2", "HMUL2", "HFMA2_32I", "HADD2_32I", "HMUL2_32I", "FFMA2", "FADD2", "FMUL2"];

/// Whose result may come from anywhere in the memory hierarchy: how long it takes is a parameter.
pub(super) const MAY_MISS: &[&str] =
    &["LD", "LDG", "LDL", "ATOM", "ATOMG", "TEX", "TLD", "TLD4", "TXD", "SULD", "SUATOM"];

/// Dense FLOP a clock and SM of the warpgroup matrix instructions, from the published peak: mnemonic, FLOP.
pub(super) const WARPGROUP_FLOP: &[(&str, u64)] =
    &[("HGMMA", 4096), ("QGMMA", 8192), ("IGMMA", 8192), ("BGMMA", 8192)];

/// Where the constants hold.
pub(super) const fn is_fitted(arch: Option<Arch>) -> bool {
    matches!(arch, Some(Arch { sm: 90, .. }))
}
