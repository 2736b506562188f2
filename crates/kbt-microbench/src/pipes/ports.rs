//! What a kernel asks of the register file: a resource that its machine code tells, as it tells the issue slots.
//!
//! The registers of a scheduler are in two banks, each read once a cycle, and an operand that is marked for reuse is
//! read once for several instructions. Three different operands an instruction are more than two instructions in two
//! cycles can read, so mixes of such instructions are held up by nothing that has to do with their pipes.

use crate::verify::Window;
use kbt_device::{Arch, DeviceProfile};
use kbt_evidence::Provenance;
use kbt_sass::Instruction;
use kbt_sass::cycles::{CyclesError, LoopModel};

/// Cycles that a scheduler's register ports need for one operation: what the longer of two bodies asks more, over the
/// operations that it has more, in the busier bank. At least, where every operand that is marked for reuse is found
/// again, and at most, where none is because other warps came between.
pub(crate) fn cycles_per_operation(
    arch: Arch,
    bodies: [&Window; 2],
    operations: [u32; 2],
) -> Result<[f64; 2], CyclesError> {
    let more = f64::from(operations[1].saturating_sub(operations[0])).max(1.0);
    let need = |reuse: bool| {
        let [small, large] = bodies.map(|w| cycles(Some(arch), &w.instructions, reuse));
        Ok(((large? - small?) / more).max(0.0))
    };
    let (least, most): (f64, f64) = (need(true)?, need(false)?);
    Ok([least.min(most), most])
}

/// Cycles that a scheduler's register ports need for one pass of a body where nothing marked for reuse is found again;
/// register files are alike on all targets.
pub(crate) fn cycles_of_body(body: &Window) -> Result<f64, CyclesError> {
    cycles(None, &body.instructions, false)
}

/// Reads of the busier bank in one pass.
fn cycles(arch: Option<Arch>, body: &[Instruction], reuse: bool) -> Result<f64, CyclesError> {
    // Rates are of no matter to the ports, nor whose they are.
    let any = arch.unwrap_or(Arch::SM_90A);
    let profile = DeviceProfile::new("no rates", any, Provenance::assumed("no rates are needed"));
    let without: Vec<Instruction>;
    let body = if reuse {
        body
    } else {
        without = body.iter().map(without_reuse).collect();
        &without
    };
    Ok(LoopModel::new(arch, body, &profile, None)?.limits(1).register_ports)
}

fn without_reuse(insn: &Instruction) -> Instruction {
    let operands = insn.operands().replace(".reuse", "");
    let mut plain = Instruction::new(insn.address, insn.guard, insn.opcode(), &operands);
    plain.control = insn.control;
    plain.targets.clone_from(&insn.targets);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Counts;
    use std::collections::BTreeMap;

    fn window(lines: &[&str], times: usize) -> Window {
        let line = |k: usize, text: &str| {
            let (opcode, operands) = text.split_once(' ').unwrap();
            let mut insn = Instruction::new(16 * k as u64, None, opcode, operands);
            insn.control = Some(kbt_sass::Control::from_wide(0));
            insn
        };
        let all = std::iter::repeat_n(lines, times).flatten().enumerate();
        Window {
            body: Counts::new(),
            edge: Counts::new(),
            pipes: BTreeMap::new(),
            length: lines.len() * times,
            instructions: all.map(|(k, text)| line(k, text)).collect(),
        }
    }

    fn cycles_of(lines: &[&str]) -> [f64; 2] {
        let of = |times| window(lines, times);
        cycles_per_operation(Arch::SM_90A, [&of(4), &of(8)], [4, 8]).unwrap()
    }

    #[test]
    fn the_busier_bank_counts_and_what_is_reused_may_be_read_once() {
        assert_eq!(cycles_of(&["LOP3.LUT R4, R4, R8, R10, 0x96, !PT"]), [3.0; 2]);
        assert_eq!(cycles_of(&["LOP3.LUT R4, R4, R9, R11, 0x96, !PT"]), [2.0; 2]);
        assert_eq!(cycles_of(&["LOP3.LUT R4, R4, R8.reuse, R10.reuse, 0x96, !PT"]), [1.0, 3.0]);
        // A double word has a register in each bank.
        assert_eq!(cycles_of(&["DADD R4, R4, R8"]), [2.0; 2]);
        assert_eq!(cycles_of(&["VIADD R4, R4, 0x12345"]), [1.0; 2]);
    }

    #[test]
    fn a_listing_without_scheduling_fields_is_refused() {
        let mut w = window(&["VIADD R4, R4, 0x12345"], 1);
        w.instructions[0].control = None;
        let error = cycles_per_operation(Arch::SM_90A, [&w, &w], [1, 2]).unwrap_err();
        assert!(error.to_string().contains("scheduling fields"), "{error}");
    }
}
