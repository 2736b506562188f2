//! What of an instruction a comparison keeps: the operation, without the names that a compiler gives.

use crate::Instruction;

/// The same text, whatever labels its targets have.
pub(super) fn same_text(a: &Instruction, b: &Instruction) -> bool {
    if a.guard != b.guard || a.opcode() != b.opcode() {
        return false;
    }
    a.operands() == b.operands() || (!a.targets.is_empty() && a.targets == b.targets && shape(a) == shape(b))
}

/// An instruction with registers, predicates and code addresses renamed away.
pub(super) fn shape(insn: &Instruction) -> String {
    let mut out = String::with_capacity(insn.text().len() + 4);
    if let Some(guard) = insn.guard {
        out.push_str(match (guard.uniform, guard.negated) {
            (false, false) => "@P ",
            (false, true) => "@!P ",
            (true, false) => "@UP ",
            (true, true) => "@!UP ",
        });
    }
    out.push_str(insn.opcode());
    let has_target = !insn.targets.is_empty();
    for operand in insn.operand_list() {
        out.push(' ');
        if operand.starts_with("`(") || (has_target && operand.starts_with("0x")) {
            out.push_str("TARGET");
        } else {
            rename(operand, &mut out);
        }
    }
    out
}

/// Drops the number of each register, uniform register, predicate, convergence barrier and `.reuse` mark.
fn rename(operand: &str, out: &mut String) {
    let operand = operand.replace(".reuse", "");
    let bytes = operand.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        let start = i;
        while i < bytes.len() && (bytes[i].is_ascii_alphanumeric() || bytes[i] == b'_') {
            i += 1;
        }
        if i == start {
            let end = operand[i..].chars().next().map_or(i + 1, |c| i + c.len_utf8());
            out.push_str(&operand[i..end]);
            i = end;
            continue;
        }
        let word = &operand[start..i];
        let digits = word.trim_start_matches(|c: char| c.is_ascii_uppercase());
        let class = &word[..word.len() - digits.len()];
        let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        out.push_str(if matches!(class, "R" | "UR" | "P" | "UP" | "B" | "SB") && is_number {
            class
        } else {
            word
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_predicates_targets_and_reuse_are_renamed_away() {
        let text = "\t.section\t.text.f,\"ax\",@progbits\n/*0000*/ @!UP3 LDG.E R26.reuse, desc[UR4][R8.64+0x4]  ;\n\
                    /*0010*/ EXIT ;\n";
        let listing = crate::parse(text.as_bytes()).unwrap();
        assert_eq!(shape(&listing.functions[0].instructions[0]), "@!UP LDG.E R desc[UR][R.64+0x4]");
    }
}
