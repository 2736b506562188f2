//! The timed window of a kernel: where it is, and what its loop holds on the path usually taken.

use super::Uncertain;
use kbt_device::Pipe;
use kbt_sass::{Function, Instruction, pipe_of};
use std::collections::BTreeMap;

/// Instructions of the largest body, above which a Hopper SM starts to wait for instruction fetches
/// (about 390 in a public H100 study).
pub const LARGEST_BODY: usize = 340;

/// Opcodes and how many of each.
pub type Counts = BTreeMap<String, i64>;

/// The timed window of one kernel.
#[derive(Debug, Clone)]
pub struct Window {
    /// Opcodes of the loop's body, on the path usually taken.
    pub body: Counts,
    /// Opcodes between the clock reads and outside of the loop.
    pub edge: Counts,
    /// The pipe of each opcode of the body; `None` takes an issue slot only.
    pub pipes: BTreeMap<String, Option<Pipe>>,
    /// Instructions in the body, all paths.
    pub length: usize,
    /// The body's instructions in order, all paths, for who reads their scheduling fields.
    pub instructions: Vec<Instruction>,
}

/// Why a kernel's window cannot be trusted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// The listing lacks the kernel.
    #[error("the listing has no kernel `{0}`")]
    NoKernel(String),
    /// There are not two clock reads.
    #[error("the machine code has {0} reads of the clock; two were written")]
    Clocks(usize),
    /// No loop stands between them.
    #[error("no loop stands between the clock reads: ptxas removed or moved it")]
    NoLoop,
    /// The larger body may not fit the instruction cache.
    #[error("the body has {0} instructions; above {LARGEST_BODY} instruction fetches would be measured")]
    TooLong(usize),
    /// The target was not counted as written.
    #[error("{expected} {target} were written, the body has {found} ({body})")]
    TargetCount {
        /// The mnemonics that were meant.
        target: String,
        /// How many were written.
        expected: i64,
        /// How many there are.
        found: i64,
        /// What the body holds instead.
        body: String,
    },
    /// A target that does not run once a trip.
    #[error("{target} is counted, but {why}")]
    Uncertain {
        /// Its mnemonic.
        target: String,
        /// Why.
        why: Uncertain,
    },
    /// Memory instructions that are not the subject.
    #[error("{0} in the window is no subject of this entry (a spill, or a moved load or store)")]
    Memory(String),
    /// The two bodies differ by no whole number of some opcode an operation.
    #[error("{0} instructions of {1} for {2} more operations: the bodies are not alike")]
    Uneven(i64, String, i64),
    /// Less than the operation is left.
    #[error(
        "an operation became {0}: ptxas folded steps of the chain together, and less than one instruction an operation is \
         no operation"
    )]
    Folded(String),
    /// The way back is not the one that the entry states.
    #[error(
        "the way back is {expected} {opcode} an operation by the entry's `back`, and the body has {found:.2}: what belongs \
         to the operation is not known"
    )]
    NoWayBack {
        /// Its mnemonic.
        opcode: String,
        /// How much of it an operation, by the entry.
        expected: f64,
        /// How much there is.
        found: f64,
    },
    /// What is outside of the loop differs.
    #[error("the code around the loop differs between the two bodies ({0})")]
    Edge(String),
}

impl Window {
    /// Finds and counts the window of a kernel that is to be timed: its body fits the instruction cache.
    pub fn find(function: &Function) -> Result<Self, WindowError> {
        let window = Self::of_any_length(function)?;
        if window.length > LARGEST_BODY {
            return Err(WindowError::TooLong(window.length));
        }
        Ok(window)
    }

    /// Finds and counts the window of a kernel that is only read.
    pub fn of_any_length(function: &Function) -> Result<Self, WindowError> {
        let code = &function.instructions;
        let clocks: Vec<usize> =
            (0..code.len()).filter(|&i| code[i].operands().contains("SR_CLOCKLO")).collect();
        let [start, end] = clocks[..] else { return Err(WindowError::Clocks(clocks.len())) };
        // The widest backward branch is the trip loop; inner ones belong to an operation.
        let (first, last) = (start + 1..end)
            .filter(|&i| is_branch(&code[i]))
            .filter_map(|i| Some((function.index_at(*code[i].targets.first()?), i)))
            .filter(|&(target, i)| target <= i && target > start)
            .max_by_key(|(target, i)| i - target)
            .ok_or(WindowError::NoLoop)?;
        let body = &code[first..=last];
        let mut counts = Counts::new();
        let mut pipes = BTreeMap::new();
        for i in usual_path(function, first, last) {
            *counts.entry(code[i].opcode().to_owned()).or_default() += 1;
            pipes.entry(code[i].opcode().to_owned()).or_insert_with(|| pipe_of(function.arch, &code[i]).pipe);
        }
        let mut edge = Counts::new();
        for insn in code[start + 1..first].iter().chain(&code[last + 1..end]).filter(|i| !i.is_dead()) {
            *edge.entry(insn.opcode().to_owned()).or_default() += 1;
        }
        Ok(Self { body: counts, edge, pipes, length: body.len(), instructions: body.to_vec() })
    }
}

pub(super) fn is_branch(insn: &Instruction) -> bool {
    insn.mnemonic() == "BRA"
}

/// Whether code between a forward branch and its target is a slow path: it makes a call.
pub(super) fn is_call_around(between: &[Instruction]) -> bool {
    between.iter().any(|insn| insn.mnemonic() == "CALL")
}

/// The instructions of a body that run when no slow path is taken: a forward branch around a call is taken.
fn usual_path(function: &Function, first: usize, last: usize) -> Vec<usize> {
    let code = &function.instructions;
    let mut path = Vec::new();
    let mut i = first;
    while i <= last {
        path.push(i);
        let target = is_branch(&code[i]).then(|| code[i].targets.first().copied()).flatten();
        let skip = target
            .map(|address| function.index_at(address))
            .filter(|&to| to > i + 1 && to <= last && is_call_around(&code[i + 1..to]));
        i = skip.unwrap_or(i + 1);
    }
    path
}
