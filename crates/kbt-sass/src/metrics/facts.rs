//! What counting needs to know of each instruction, worked out once a function: parts of it are counted over and
//! over, by region, loop and block.

use super::Unit;
use super::section::operation;
use crate::outcome::Operations;
use crate::{Function, Instruction, PipeClass, pipe_of};
use std::collections::HashMap;

/// What is the same for all instructions of one full mnemonic, dead ones apart.
#[derive(Debug, Clone)]
pub(super) struct OpFacts {
    /// An instruction that is one.
    pub(super) example: usize,
    pub(super) class: PipeClass,
    /// Of the first unit, of the second, or of none.
    pub(super) side: Option<bool>,
    /// The counter of operations that it adds to.
    pub(super) operation: Option<fn(&mut Operations) -> &mut u64>,
}

/// The facts of a function's instructions.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// Which of the operations each instruction is.
    of: Vec<u32>,
    pub(super) operations: Vec<OpFacts>,
    /// One more than the highest general register that each instruction names.
    pub(super) registers: Vec<u32>,
}

impl Facts {
    pub(super) fn new(function: &Function, [a, b]: &[Unit; 2]) -> Self {
        let mut by_name: HashMap<(&str, bool), u32> = HashMap::new();
        let mut operations = Vec::new();
        let of = (function.instructions.iter().enumerate())
            .map(|(example, insn)| {
                *by_name.entry((insn.opcode(), insn.is_dead())).or_insert_with(|| {
                    let class = pipe_of(function.arch, insn);
                    let side = a.has(insn, class).then_some(true);
                    let side = side.or_else(|| b.has(insn, class).then_some(false));
                    operations.push(OpFacts { example, class, side, operation: operation(insn, class) });
                    operations.len() as u32 - 1
                })
            })
            .collect();
        let register = |i: &Instruction| highest_register(i.operands()).map_or(0, |r| r + 1);
        Self { of, operations, registers: function.instructions.iter().map(register).collect() }
    }

    /// Which operation an instruction is; the index is one of the function's.
    pub(super) fn operation(&self, index: usize) -> usize {
        self.of[index] as usize
    }

    /// The facts of an instruction.
    pub(super) fn get(&self, index: usize) -> &OpFacts {
        &self.operations[self.operation(index)]
    }
}

/// The highest general register that a text names.
fn highest_register(operands: &str) -> Option<u32> {
    let bytes = operands.as_bytes();
    let mut highest = None;
    for at in memchr::memchr_iter(b'R', bytes) {
        let word_before =
            at.checked_sub(1).is_some_and(|i| bytes[i].is_ascii_alphanumeric() || bytes[i] == b'_');
        let digits = bytes[at + 1..].iter().take(4).take_while(|b| b.is_ascii_digit());
        let number = digits.fold(None, |n: Option<u32>, d| Some(n.unwrap_or(0) * 10 + u32::from(d - b'0')));
        if !word_before {
            highest = highest.max(number);
        }
    }
    highest
}
