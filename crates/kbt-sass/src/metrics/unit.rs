//! A unit whose interleaving is looked at: some mnemonics, or a pipe.

use crate::{Instruction, PipeClass};
use kbt_device::Pipe;
use std::fmt;
use std::str::FromStr;

/// A set of instructions, given as mnemonics (`MUFU`, `F2FP`), mnemonics with modifiers (`MUFU.EX2`) or pipes
/// (`pipe:xu`), joined by commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    name: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// Base mnemonic and the modifiers that must be there.
    Opcode(String, Vec<String>),
    Pipe(Pipe),
}

/// Text that names no unit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names no unit; expected mnemonics such as MUFU or MUFU.EX2, or pipe:NAME ({PIPES}), joined by commas"
)]
pub struct UnitError(String);

const PIPES: &str = "alu, fma, fma_heavy, fp16, fp64, xu, lsu, adu, cbu, uniform, tensor, tc, tmem, tma, tex";

const ALL_PIPES: &[Pipe] = &[
    Pipe::Alu,
    Pipe::Fma,
    Pipe::FmaHeavy,
    Pipe::Fp16,
    Pipe::Fp64,
    Pipe::Xu,
    Pipe::Lsu,
    Pipe::Adu,
    Pipe::Cbu,
    Pipe::Uniform,
    Pipe::Tensor,
    Pipe::Tc,
    Pipe::Tmem,
    Pipe::Tma,
    Pipe::Tex,
];

impl Unit {
    /// The text it was given as.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether an instruction belongs to it. Instructions that never execute belong to none.
    #[must_use]
    pub fn has(&self, insn: &Instruction, class: PipeClass) -> bool {
        !insn.is_dead()
            && self.parts.iter().any(|part| match part {
                Part::Opcode(base, modifiers) => {
                    insn.mnemonic() == base && modifiers.iter().all(|m| insn.has_modifier(m))
                }
                Part::Pipe(pipe) => class.pipe == Some(*pipe),
            })
    }

    /// The transcendental instructions.
    #[must_use]
    pub fn mufu() -> Self {
        Self { name: "MUFU".to_owned(), parts: vec![Part::Opcode("MUFU".to_owned(), Vec::new())] }
    }

    /// The packed conversions.
    #[must_use]
    pub fn f2fp() -> Self {
        Self { name: "F2FP".to_owned(), parts: vec![Part::Opcode("F2FP".to_owned(), Vec::new())] }
    }
}

impl FromStr for Unit {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let error = || UnitError(text.to_owned());
        let mut parts = Vec::new();
        for part in text.split(',').map(str::trim) {
            if let Some(name) = part.strip_prefix("pipe:") {
                let pipe = ALL_PIPES.iter().find(|p| p.as_str() == name).ok_or_else(error)?;
                parts.push(Part::Pipe(*pipe));
                continue;
            }
            let legal = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_');
            if part.is_empty() || !part.bytes().all(legal) {
                return Err(error());
            }
            let whole = Instruction::new(0, None, part, "");
            let modifiers = whole.modifiers().map(str::to_owned).collect();
            parts.push(Part::Opcode(whole.mnemonic().to_owned(), modifiers));
        }
        Ok(Self { name: text.to_owned(), parts })
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipe_of;

    fn check(unit: &str, opcode: &str, expect: bool) {
        let insn = Instruction::new(0, None, opcode, "R0, R1");
        let class = pipe_of(Some(kbt_device::Arch::SM_90A), &insn);
        assert_eq!(unit.parse::<Unit>().unwrap().has(&insn, class), expect, "{unit} {opcode}");
    }

    #[test]
    fn units_are_mnemonics_modifiers_or_pipes() {
        check("MUFU", "MUFU.RCP", true);
        check("MUFU.EX2", "MUFU.RCP", false);
        check("MUFU.EX2", "MUFU.EX2.F16", true);
        check("HGMMA,pipe:xu", "F2F.BF16.F32", true);
        check("pipe:alu", "F2FP.BF16.F32.PACK_AB", true);
        for text in ["", "mufu", "pipe:none", "MUFU,", "pipe:"] {
            assert!(text.parse::<Unit>().is_err(), "{text}");
        }
    }
}
