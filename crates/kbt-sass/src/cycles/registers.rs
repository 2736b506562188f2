//! Which general registers and predicates an instruction reads and writes, from its text.

use crate::Instruction;

/// A read of consecutive registers through one operand slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Read {
    /// The operand slot: 0, 1, 2 for A, B, C.
    pub(super) slot: u8,
    pub(super) first: u16,
    pub(super) count: u8,
    /// `.reuse`: the value is kept for this warp's next read of it through the same slot.
    pub(super) reuse: bool,
}

impl Read {
    pub(super) fn registers(self) -> std::ops::Range<u16> {
        self.first..self.first.saturating_add(u16::from(self.count))
    }
}

/// A place that a value is kept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Place {
    Register(u16),
    Predicate(u8),
}

/// What an instruction reads and writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Operands {
    pub(super) reads: Vec<Read>,
    pub(super) predicates: Vec<u8>,
    pub(super) writes: Vec<Place>,
}

/// Leading operands that are results, by mnemonic; all others have one.
const RESULTS: &[(&str, usize)] = &[
    ("ISETP", 2),
    ("FSETP", 2),
    ("DSETP", 2),
    ("HSETP2", 2),
    ("PLOP3", 2),
    ("VOTE", 2),
    ("SHFL", 2),
    ("ST", 0),
    ("STS", 0),
    ("STG", 0),
    ("STL", 0),
    ("STSM", 0),
    ("RED", 0),
    ("REDG", 0),
    ("BRA", 0),
    ("BAR", 0),
    ("NOP", 0),
    ("EXIT", 0),
    ("WARPSYNC", 0),
    ("DEPBAR", 0),
];

/// Instructions with one source that is in slot A; others with one have it in slot B.
const SINGLE_IN_A: &[&str] = &["LD", "LDS", "LDG", "LDL", "LDSM", "LEA", "SHFL", "IADD3", "VIADD"];

pub(super) fn operands(insn: &Instruction) -> Operands {
    let mut found = Operands::default();
    let mnemonic = insn.mnemonic();
    let results = RESULTS.iter().find(|(m, _)| *m == mnemonic).map_or(1, |(_, n)| *n);
    found.predicates.extend(insn.guard.filter(|g| !g.uniform).and_then(|g| g.index));
    // The uniform datapath has registers of its own.
    if mnemonic.starts_with('U') {
        return found;
    }
    let is_source = |o: &&str| !o.contains('P') && !o.starts_with("0x");
    let sources = insn.operand_list().skip(results).filter(is_source).count();
    let mut slot = u8::from(sources == 1 && !SINGLE_IN_A.contains(&mnemonic));
    for (n, operand) in insn.operand_list().enumerate() {
        let text = operand.trim_start_matches(['-', '|', '~', '!']);
        if let Some(p) = numbered(text, "P") {
            let p = u8::try_from(p).unwrap_or(u8::MAX);
            if n < results {
                found.writes.push(Place::Predicate(p))
            } else {
                found.predicates.push(p)
            }
            continue;
        }
        if text == "PT" {
            continue;
        }
        if n < results {
            let first = numbered(text, "R");
            let all = first.into_iter().flat_map(|r| r..r.saturating_add(u16::from(width(insn, None))));
            found.writes.extend(all.map(Place::Register));
            continue;
        }
        for first in text.split(|c: char| !c.is_ascii_alphanumeric()).filter_map(|w| numbered(w, "R")) {
            let (count, reuse) = (width(insn, Some(slot)), text.contains(".reuse"));
            found.reads.push(Read { slot: slot.min(2), first, count, reuse });
        }
        // DADD has its second source in slot C.
        slot = slot.saturating_add(if mnemonic == "DADD" { 2 } else { 1 });
    }
    found
}

/// `R12`, `R12.reuse`, `P3`: the number after the letter; `None` for `RZ` and everything else.
fn numbered(text: &str, letter: &str) -> Option<u16> {
    let rest = text.strip_prefix(letter)?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    if rest[digits..].starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    rest[..digits].parse().ok()
}

/// Consecutive registers of the result (`None`) or of an operand slot.
fn width(insn: &Instruction, slot: Option<u8>) -> u8 {
    let has = |modifier: &str| insn.has_modifier(modifier);
    let bytes = || {
        if has("128") {
            4
        } else if has("64") {
            2
        } else {
            1
        }
    };
    match (insn.mnemonic(), slot) {
        ("DFMA" | "DADD" | "DMUL", _) | ("DSETP", Some(_)) | ("IMAD", None | Some(2)) if wide(insn) => 2,
        ("HMMA" | "IMMA", _) => {
            let (a, b) = if has("16816") || has("16832") { (4, 2) } else { (2, 1) };
            let accumulator = if has("F16") { 2 } else { 4 };
            match slot {
                None | Some(2) => accumulator,
                Some(0) => a,
                Some(_) => b,
            }
        }
        ("LDSM", None) => {
            if has("4") {
                4
            } else if has("2") {
                2
            } else {
                1
            }
        }
        ("LDS" | "LD" | "LDG" | "LDL", None) | ("STS" | "ST" | "STG" | "STL", Some(1)) => bytes(),
        _ => 1,
    }
}

/// 64-bit arithmetic, and the product of two words with a double word added.
fn wide(insn: &Instruction) -> bool {
    insn.mnemonic().starts_with('D') || insn.has_modifier("WIDE")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(opcode: &str, text: &str, reads: &[(u8, u16, u8)], writes: &[Place]) {
        let found = operands(&Instruction::new(0, None, opcode, text));
        let got: Vec<_> = found.reads.iter().map(|r| (r.slot, r.first, r.count)).collect();
        assert_eq!((got.as_slice(), found.writes.as_slice()), (reads, writes), "{opcode} {text}");
    }

    #[test]
    fn slots_and_widths_follow_the_encoding() {
        use Place::{Predicate, Register};
        check("FFMA", "R16, R0.reuse, R16, -R4", &[(0, 0, 1), (1, 16, 1), (2, 4, 1)], &[Register(16)]);
        check("MUFU.EX2", "R24, R22", &[(1, 22, 1)], &[Register(24)]);
        check("SHF.L.W.U32.HI", "R11, R11, 0x7, R3", &[(0, 11, 1), (2, 3, 1)], &[Register(11)]);
        check("DADD", "R20, R2, R18", &[(0, 2, 2), (2, 18, 2)], &[Register(20), Register(21)]);
        check("FSETP.GEU.AND", "P0, PT, R11, R18, PT", &[(0, 11, 1), (1, 18, 1)], &[Predicate(0)]);
        check("LDS.64", "R14, [R16+0x4000]", &[(0, 16, 1)], &[Register(14), Register(15)]);
        check("STS.128", "[R4+0x10], R8", &[(0, 4, 1), (1, 8, 4)], &[]);
        check("IMAD.MOV.U32", "R16, RZ, RZ, R27", &[(2, 27, 1)], &[Register(16)]);
        check("HADD2.F32", "R5, -RZ, R9.H0_H0", &[(1, 9, 1)], &[Register(5)]);
        check(
            "HMMA.16816.F32.BF16",
            "R4, R8, R12, R4",
            &[(0, 8, 4), (1, 12, 2), (2, 4, 4)],
            &[Register(4), Register(5), Register(6), Register(7)],
        );
        check("UIADD3", "UR4, UR4, -0x1, URZ", &[], &[]);
    }

    #[test]
    fn names_that_only_look_like_registers_are_none() {
        for text in ["RZ", "R", "R1x", "SR_CLOCKLO", "UR4"] {
            assert_eq!(numbered(text, "R"), None, "{text}");
        }
    }
}
