//! The lowering table: what ptxas emits for an operation, from machine code alone.

use crate::prepare::Prepared;
use kbt_device::{Lowered, Lowering, Pipe};
use kbt_evidence::Provenance;

/// The lowering of every operation that was compiled. Of a plain instruction only the instruction itself
/// counts: what its chain needs for the way back is no part of the operation.
#[must_use]
pub fn lowering(all: &[Prepared], ptxas: &str) -> Vec<Lowering> {
    let mut table: Vec<Lowering> = Vec::new();
    for prepared in all.iter().filter(|p| p.parts.len() == 1) {
        let entry = &prepared.parts[0].entry;
        let operation = entry.lowers.as_ref().unwrap_or(&entry.name);
        let Some(verified) = prepared.widest().filter(|_| table.iter().all(|l| l.operation != *operation))
        else {
            continue;
        };
        let instructions = verified
            .code
            .per_op
            .iter()
            .filter(|p| entry.compound || p.target)
            .map(|p| Lowered {
                opcode: p.opcode.clone(),
                pipe: p.pipe.unwrap_or(Pipe::Unknown),
                count: crate::rows::round(p.count, 100.0),
            })
            .collect();
        table.push(Lowering {
            operation: operation.clone(),
            results: entry.results,
            instructions,
            provenance: Provenance::mined(format!("ptxas {ptxas}")),
        });
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepare::tests::prepared;

    #[test]
    fn a_plain_instruction_is_itself_and_a_compound_one_is_all_of_it() {
        let plain = prepared("cvt", "F2FP", &[("F2FP.X", 1.0), ("PRMT", 1.0)]);
        let mut compound = prepared("div", "NOTHING", &[("MUFU.RCP", 1.0), ("FFMA", 5.0)]);
        compound.parts[0].entry.compound = true;
        let table = lowering(&[plain, compound], "13.0.88");
        let of =
            |i: usize| table[i].instructions.iter().map(|l| (l.opcode.as_str(), l.count)).collect::<Vec<_>>();
        assert_eq!(of(0), [("F2FP.X", 1.0)]);
        assert_eq!(of(1), [("MUFU.RCP", 1.0), ("FFMA", 5.0)]);
    }
}
