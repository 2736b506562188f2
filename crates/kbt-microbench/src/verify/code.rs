//! What one operation of a chain form compiles to.

use kbt_device::Pipe;
use std::collections::BTreeMap;

/// An eighth of an instruction an operation more or less is another lowering: below it are the few that ptxas hoists or
/// shares between the operations of a body.
const ALIKE: f64 = 0.125;

/// One opcode of an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct PerOp {
    /// Full mnemonic.
    pub opcode: String,
    /// Its pipe; `None` takes an issue slot only.
    pub pipe: Option<Pipe>,
    /// How many an operation.
    pub count: f64,
    /// Whether it is the instruction under test: of a compound operation only where it is all of it.
    pub target: bool,
}

/// What one operation of a chain form compiles to, proven by comparing two bodies.
#[derive(Debug, Clone, PartialEq)]
pub struct FormCode {
    /// Opcodes of one operation, the target first.
    pub per_op: Vec<PerOp>,
    /// What only feeds the output of a compound operation back, an operation: in the window, and no part of it.
    pub back: Vec<PerOp>,
    /// Operations in the smaller body.
    pub ops: i64,
    /// Instructions of the larger body.
    pub length: usize,
}

impl FormCode {
    /// The target mnemonics that were seen, with `+` between them; for a compound operation of several instructions
    /// nothing.
    #[must_use]
    pub fn opcode(&self) -> Option<String> {
        let seen: Vec<&str> = self.per_op.iter().filter(|p| p.target).map(|p| p.opcode.as_str()).collect();
        (!seen.is_empty()).then(|| seen.join("+"))
    }

    /// The pipe of the target; [`Pipe::Unknown`] where there is none or several.
    #[must_use]
    pub fn pipe(&self) -> Pipe {
        let mut pipes = self.per_op.iter().filter(|p| p.target).map(|p| p.pipe);
        match (pipes.next().flatten(), pipes.next()) {
            (Some(pipe), None) => pipe,
            _ => Pipe::Unknown,
        }
    }

    /// Whether two operations of several instructions are one lowering: as much work of each kind, but for what the
    /// scheduler leaves out or adds in places. Instructions that take an issue slot only do not count.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let mut difference: BTreeMap<&str, f64> = BTreeMap::new();
        for (code, sign) in [(self, 1.0), (other, -1.0)] {
            for op in code.per_op.iter().filter(|p| p.pipe.is_some()) {
                *difference.entry(kind_of_work(&op.opcode)).or_default() += sign * op.count;
            }
        }
        difference.values().all(|d| d.abs() < ALIKE)
    }

    /// `2 PRMT, 1 SHF.R.U32.HI`.
    #[must_use]
    pub fn text(&self) -> String {
        let parts: Vec<String> = self
            .per_op
            .iter()
            .filter(|p| p.pipe.is_some())
            .map(|p| format!("{} {}", (p.count * 100.0).round() / 100.0, p.opcode))
            .collect();
        parts.join(", ")
    }

    /// Opcodes of the operation that are not the target.
    pub fn companions(&self) -> impl Iterator<Item = &PerOp> {
        self.per_op.iter().filter(|p| !p.target)
    }
}

/// Opcodes among which ptxas chooses by pipe for one and the same work count together.
pub(super) fn kind_of_work(opcode: &str) -> &str {
    match opcode {
        "MOV" | "IMAD.MOV" | "IMAD.MOV.U32" => "MOV, IMAD.MOV",
        "IADD3" | "IMAD.IADD" | "VIADD" => "IADD3, IMAD.IADD, VIADD",
        "SHF.L.U32" | "IMAD.SHL.U32" | "IMAD.U32" => "SHF.L, IMAD.SHL, IMAD.U32",
        _ => opcode,
    }
}
