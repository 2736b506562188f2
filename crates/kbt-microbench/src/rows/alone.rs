//! What opcodes do alone, and forms that are slower than that.

use super::{Measured, round};
use crate::verify::FormCode;
use std::collections::BTreeMap;

/// Forms faster than this share of the opcode alone are the opcode's rate.
pub(super) const HELD_BACK: f64 = 1.03;

/// SM cycles of each opcode where nothing else is in the operation, and the instruction that says it.
pub(super) fn alone(all: &[Measured]) -> BTreeMap<String, (f64, String)> {
    let mut rates: BTreeMap<String, (f64, String)> = BTreeMap::new();
    for m in all.iter().filter(|m| m.prepared.parts.len() == 1) {
        let (Ok(rate), Some(verified)) = (&m.rate, m.prepared.widest()) else { continue };
        if let [op] = &verified.code.per_op.iter().filter(|p| p.pipe.is_some()).collect::<Vec<_>>()[..]
            && op.target
        {
            let entry = (rate.clk_per_op, m.prepared.parts[0].entry.name.clone());
            let known = rates.entry(op.opcode.clone()).or_insert_with(|| entry.clone());
            if entry.0 < known.0 {
                *known = entry;
            }
        }
    }
    rates
}

/// Why a time is no rate of its opcode: alone the opcode is faster, so what is beside it in this form holds it back, in a
/// way that its pipes do not explain.
pub(super) fn held_back(
    code: &FormCode,
    clk: f64,
    alone: &BTreeMap<String, (f64, String)>,
) -> Option<String> {
    let beside: Vec<String> = code
        .companions()
        .filter(|c| c.pipe.is_some())
        .map(|c| format!("{} {}", round(c.count, 100.0), c.opcode))
        .collect();
    let opcode = code.opcode().filter(|_| !beside.is_empty())?;
    let (fastest, by) = alone.get(&opcode)?;
    (clk > fastest * HELD_BACK).then(|| {
        format!(
            "{opcode} alone does {:.2} lanes ({by}); the {:.2} seen here, beside {} an operation, are not its rate",
            32.0 / fastest,
            32.0 / clk,
            beside.join(" and ")
        )
    })
}
