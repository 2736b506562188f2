//! Which pipe an instruction occupies, and how well that is known.
//!
//! The knowledge is data (`table`); here is only the lookup. A static class is a class, not a utilisation:
//! NVIDIA says that some instructions may use one of several pipes, decided at run time.

mod table;

use crate::Instruction;
use kbt_device::{Arch, Pipe};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::OnceLock;
use table::{Row, TABLE};

/// How well a row of the pipe table is known, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Nothing known.
    Unknown,
    /// By the form of the name, or by another architecture's row.
    Guessed,
    /// From the scheduling groups that the compiler and disassembler use, which are no pipes.
    SchedulerTable,
    /// Somebody measured it with the profiler's pipe counters.
    Measured,
    /// NVIDIA says so.
    Documented,
}

/// Where an instruction executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipeClass {
    /// The pipe; `None` for what takes an issue slot and no pipe (NOP, `@!PT` fillers);
    /// `Some(Pipe::Unknown)` for a mnemonic that no row covers.
    pub pipe: Option<Pipe>,
    /// How well that is known.
    pub confidence: Confidence,
    /// Who says so.
    pub source: &'static str,
}

impl PipeClass {
    /// The name under which it is counted: a pipe's, or `none`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.pipe {
            Some(pipe) => pipe.as_str(),
            None => "none",
        }
    }
}

/// The pipe of an instruction on `arch`. Without an arch the newest row is taken, as a guess.
#[must_use]
pub fn pipe_of(arch: Option<Arch>, insn: &Instruction) -> PipeClass {
    if insn.is_dead() {
        return PipeClass {
            pipe: None,
            confidence: Confidence::Documented,
            source: "the guard @!PT never holds",
        };
    }
    let rows = index().get(insn.mnemonic()).map_or(&[][..], Vec::as_slice);
    let fits = |row: &&&Row| row.modifier.is_none_or(|m| insn.has_modifier(m));
    let here = |row: &&&Row| arch.is_some_and(|a| (row.from..=row.to).contains(&a.sm));
    // Rows with a modifier are more special than those without.
    let best = |row: &&Row| row.modifier.is_some();
    if let Some(row) = rows.iter().filter(fits).filter(here).max_by_key(|r| best(r)) {
        return PipeClass { pipe: row.pipe, confidence: row.confidence, source: row.source };
    }
    if let Some(row) = rows.iter().filter(fits).max_by_key(|r| (best(r), r.to)) {
        return PipeClass { pipe: row.pipe, confidence: Confidence::Guessed, source: row.source };
    }
    by_prefix(insn.mnemonic())
}

/// The pipe of a full mnemonic, for callers that have no instruction at hand.
#[must_use]
pub fn pipe_of_opcode(arch: Option<Arch>, opcode: &str) -> PipeClass {
    pipe_of(arch, &Instruction::new(0, None, opcode, ""))
}

/// Names that follow a pattern NVIDIA has kept.
fn by_prefix(mnemonic: &str) -> PipeClass {
    const RULES: &[(&str, Pipe)] = &[
        ("UTMA", Pipe::Tma),
        ("UBLK", Pipe::Tma),
        ("UTC", Pipe::Tc),
        ("U", Pipe::Uniform),
        ("LD", Pipe::Lsu),
        ("ST", Pipe::Lsu),
        ("ATOM", Pipe::Lsu),
        ("RED", Pipe::Lsu),
        ("SU", Pipe::Tex),
        ("TEX", Pipe::Tex),
    ];
    let rule = RULES.iter().find(|(prefix, _)| mnemonic.starts_with(prefix));
    let mma = mnemonic.ends_with("MMA").then_some(Pipe::Tensor);
    match mma.filter(|_| !mnemonic.starts_with('U')).or(rule.map(|(_, p)| *p)) {
        Some(pipe) => PipeClass {
            pipe: Some(pipe),
            confidence: Confidence::Guessed,
            source: "the form of the mnemonic",
        },
        None => PipeClass {
            pipe: Some(Pipe::Unknown),
            confidence: Confidence::Unknown,
            source: "no row of the pipe table",
        },
    }
}

fn index() -> &'static HashMap<&'static str, Vec<&'static Row>> {
    static INDEX: OnceLock<HashMap<&'static str, Vec<&'static Row>>> = OnceLock::new();
    INDEX.get_or_init(|| {
        let mut map: HashMap<&str, Vec<&Row>> = HashMap::new();
        for row in TABLE.iter().flat_map(|group| group.iter()) {
            map.entry(row.mnemonic).or_default().push(row);
        }
        map
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arch: &str, opcode: &str, pipe: Option<Pipe>) {
        let class = pipe_of_opcode(Some(arch.parse().unwrap()), opcode);
        assert_eq!(class.pipe, pipe, "{opcode} on {arch}");
    }

    #[test]
    fn the_same_mnemonic_moves_with_arch_and_modifier() {
        check("sm_80", "HFMA2", Some(Pipe::Fp16));
        check("sm_90a", "HFMA2", Some(Pipe::Fma));
        check("sm_90a", "HADD2.F32", Some(Pipe::FmaHeavy));
        check("sm_80", "HSETP2.LT.AND", Some(Pipe::Fp16));
        check("sm_90a", "HSETP2.LT.AND", Some(Pipe::Alu));
        check("sm_89", "REDUX.SUM", Some(Pipe::Uniform));
        check("sm_90a", "REDUX.SUM.S32", Some(Pipe::Adu));
        check("sm_90a", "VIADD", Some(Pipe::FmaHeavy));
        check("sm_75", "IMAD.MOV.U32", Some(Pipe::Fma));
        check("sm_90a", "IMAD.MOV.U32", Some(Pipe::FmaHeavy));
        check("sm_103a", "F2FP.BF16.F32.PACK_AB", Some(Pipe::Alu));
        check("sm_90a", "F2F.BF16.F32", Some(Pipe::Xu));
        check("sm_90a", "NOP", None);
        check("sm_52", "FFMA", Some(Pipe::Fma));
        check("sm_61", "XMAD.MRG", Some(Pipe::Fma));
        check("sm_52", "LDG.E", Some(Pipe::Tex));
        check("sm_60", "BRK", Some(Pipe::Cbu));
    }

    #[test]
    fn what_an_h200_counted_is_marked_as_measured() {
        for opcode in
            ["VOTE.ANY", "CS2R.32", "I2FP.F32.S32", "VIMNMX", "HMNMX2", "IDP.4A.S8.S8", "LDSM.16.M88", "S2UR"]
        {
            let on = |arch: &str| pipe_of_opcode(Some(arch.parse().unwrap()), opcode);
            assert_eq!(on("sm_90a").confidence, Confidence::Measured, "{opcode}");
            assert!(on("sm_90a").source.contains("H200"), "{opcode}");
            assert_eq!(on("sm_90a").pipe, on("sm_100a").pipe, "{opcode}");
            assert!(!on("sm_100a").source.contains("H200"), "{opcode}");
        }
    }

    #[test]
    fn an_unlisted_mnemonic_is_unknown_or_a_guess_that_says_so() {
        let class = pipe_of_opcode(Some(Arch::SM_103A), "UTMAXYZ");
        assert_eq!((class.pipe, class.confidence), (Some(Pipe::Tma), Confidence::Guessed));
        let class = pipe_of_opcode(Some(Arch::SM_103A), "FROB.X");
        assert_eq!((class.pipe, class.confidence), (Some(Pipe::Unknown), Confidence::Unknown));
        assert_eq!(pipe_of_opcode(None, "MUFU.EX2").confidence, Confidence::Guessed);
    }

    #[test]
    fn no_two_rows_of_the_table_claim_the_same_instruction_on_the_same_arch() {
        for (mnemonic, rows) in index() {
            for (i, a) in rows.iter().enumerate() {
                for b in &rows[i + 1..] {
                    let apart = a.modifier != b.modifier || a.to < b.from || b.to < a.from;
                    assert!(apart, "{mnemonic}: {a:?} and {b:?}");
                }
            }
        }
    }
}
