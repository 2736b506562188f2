//! Local memory told apart: spills, local arrays, the stack frame.
//!
//! A spill is what the compiler stores because registers ran out; a local array is the source's. Tools that
//! call every STL and LDL a spill are wrong about the second. The annotation `SpillRefill` decides where the
//! listing has it; else the slots do: `LDL.LU` (last use) is emitted for spill reloads alone, and whatever
//! else touches the same slot belongs to the same spill.

use crate::{Function, Instruction};
use std::collections::BTreeSet;

/// What a load or store of spilled or local data is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LocalAccess {
    /// A spilled register, to or from local memory.
    Spill,
    /// A spilled register, to or from shared memory (`enable_smem_spilling`).
    SharedSpill,
    /// A local array or another object on the stack.
    Array,
}

/// How spills were recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recognised {
    /// By the tool's annotation.
    Annotation,
    /// By the slots of last-use reloads.
    Slots,
}

/// What each instruction of a function does to spilled or local data; `None` for the others.
#[must_use]
pub fn local_accesses(function: &Function) -> Vec<Option<LocalAccess>> {
    classify(function).0
}

pub(super) fn classify(function: &Function) -> (Vec<Option<LocalAccess>>, Option<Recognised>) {
    let insns = &function.instructions;
    if insns.iter().any(Instruction::is_marked_spill) {
        let class = |i: &Instruction| match (is_local(i), i.is_marked_spill()) {
            (true, true) => Some(LocalAccess::Spill),
            (true, false) => Some(LocalAccess::Array),
            (false, true) if matches!(i.mnemonic(), "LDS" | "STS") => Some(LocalAccess::SharedSpill),
            _ => None,
        };
        return (insns.iter().map(class).collect(), Some(Recognised::Annotation));
    }
    let spilled: BTreeSet<u64> = (insns.iter())
        .filter(|i| i.mnemonic() == "LDL" && i.has_modifier("LU"))
        .filter_map(slot)
        .flat_map(|(at, bytes)| at..at.saturating_add(bytes))
        .collect();
    let class = |i: &Instruction| {
        let is_spill = i.has_modifier("LU") || slot(i).is_some_and(|(at, _)| spilled.contains(&at));
        is_local(i).then_some(if is_spill { LocalAccess::Spill } else { LocalAccess::Array })
    };
    let how = (!spilled.is_empty()).then_some(Recognised::Slots);
    (insns.iter().map(class).collect(), how)
}

fn is_local(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), "LDL" | "STL")
}

/// The stack slot that a local access names: offset from the stack pointer, and bytes.
fn slot(insn: &Instruction) -> Option<(u64, u64)> {
    if !is_local(insn) {
        return None;
    }
    let address = insn.operand_list().find_map(|o| o.strip_prefix('[')?.strip_suffix(']'))?;
    let offset = match address.strip_prefix("R1")? {
        "" => 0,
        rest => u64::from_str_radix(rest.strip_prefix("+0x")?, 16).ok()?,
    };
    Some((offset, access_bytes(insn)))
}

/// Bytes that one thread moves with a load or store.
pub(crate) fn access_bytes(insn: &Instruction) -> u64 {
    for modifier in insn.modifiers() {
        match modifier {
            "U8" | "S8" => return 1,
            "U16" | "S16" => return 2,
            "64" => return 8,
            "128" => return 16,
            "256" => return 32,
            _ => {}
        }
    }
    4
}

/// Bytes that a function takes off the stack pointer (R1) for its frame.
pub(super) fn frame_bytes(function: &Function) -> u64 {
    let immediate = |operand: &str| -> Option<i64> {
        let (sign, digits) = operand.strip_prefix('-').map_or((1, operand), |d| (-1, d));
        let value = u32::from_str_radix(digits.strip_prefix("0x")?, 16).ok()?;
        // A 32-bit immediate that is negative in two's complement, or a negative one as it stands.
        Some(if sign < 0 { -i64::from(value) } else { i64::from(value.cast_signed()) })
    };
    for insn in &function.instructions {
        if !(insn.operands().starts_with("R1,")
            && matches!(insn.mnemonic(), "IADD3" | "VIADD" | "IADD" | "IADD32I" | "UIADD3"))
        {
            continue;
        }
        let mut operands = insn.operand_list();
        let is_frame = operands.next() == Some("R1") && insn.operand_list().skip(1).any(|o| o == "R1");
        if is_frame && let Some(bytes) = operands.filter_map(immediate).find(|n| *n < 0) {
            return bytes.unsigned_abs();
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: &[(&str, &str, Option<&str>)]) -> Function {
        let mut text = String::from("\t.section\t.text.f,\"ax\",@progbits\n");
        for (n, (opcode, operands, annotation)) in lines.iter().enumerate() {
            let note = annotation.map_or(String::new(), |a| format!("(*\"{a}\"*)"));
            text += &format!("/*{:04x}*/ {opcode} {operands} {note};\n", n * 16);
        }
        crate::parse(text.as_bytes()).unwrap().functions.remove(0)
    }

    #[test]
    fn annotations_decide_where_there_are_any() {
        let f = function(&[
            ("STL", "[R1+0x4], R2", Some("SpillRefill")),
            ("STL", "[R3], R2", None),
            ("LDL", "R2, [R1+0x4]", Some("SpillRefill")),
            ("LDS", "R2, [UR4]", Some("SpillRefill")),
            ("EXIT", "", None),
        ]);
        use LocalAccess::{Array, SharedSpill, Spill};
        let expect = [Some(Spill), Some(Array), Some(Spill), Some(SharedSpill), None];
        assert_eq!(local_accesses(&f), expect);
    }

    #[test]
    fn without_annotations_the_slots_of_last_use_reloads_decide() {
        let f = function(&[
            ("STL.64", "[R1+0x8], R2", None),
            ("LDL", "R2, [R1+0xc]", None),
            ("LDL.LU.64", "R4, [R1+0x8]", None),
            ("STL", "[R1+0x40], R2", None),
            ("LDL", "R2, [R9+0x40]", None),
        ]);
        use LocalAccess::{Array, Spill};
        let expect = [Spill, Spill, Spill, Array, Array].map(Some);
        assert_eq!(local_accesses(&f), expect);
    }

    #[test]
    fn the_frame_is_what_the_stack_pointer_loses() {
        for (opcode, operands, bytes) in [
            ("VIADD", "R1, R1, 0xffffff80", 128),
            ("IADD3", "R1, R1, -0xe8, RZ", 232),
            ("IADD3", "R1, PT, PT, R1, -0x20, RZ", 32),
            ("IADD3", "R1, R1, 0x20, RZ", 0),
            ("IADD3", "R2, R1, -0x20, RZ", 0),
        ] {
            assert_eq!(frame_bytes(&function(&[(opcode, operands, None)])), bytes, "{operands}");
        }
    }
}
