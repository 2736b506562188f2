//! Whether a kernel's timed window is what was meant: an instruction alone, or a mix that holds what its two
//! instructions hold alone, times their counts.

use super::assemble::Item;
use super::ports::cycles_per_operation;
use crate::prepare::Verified;
use crate::ptx::KernelPlan;
use crate::spec::Entry;
use crate::verify::{FormCode, Meant, Window, WindowError, check_pair};
use kbt_device::Arch;
use kbt_sass::Listing;
use std::collections::{BTreeMap, BTreeSet};

/// Instructions of a kind that the loop may have of its own; the same in both bodies, they cancel.
const LOOPS_OWN: f64 = 16.0;

/// Why a kernel is not believed.
pub(crate) enum Refusal {
    /// A shorter body is worth a try.
    TooLong(String),
    Other(String),
}

impl From<WindowError> for Refusal {
    fn from(error: WindowError) -> Self {
        let why = error.to_string();
        if matches!(error, WindowError::TooLong(_)) { Self::TooLong(why) } else { Self::Other(why) }
    }
}

/// The kernels of an item, checked, and the cycles that one operation needs of the register ports.
pub(crate) fn verify(
    arch: Arch,
    listing: &Listing,
    plans: [KernelPlan; 2],
    item: &Item,
) -> Result<(Verified, [f64; 2]), Refusal> {
    let window = |plan: &KernelPlan| {
        let function =
            listing.function(&plan.name).ok_or_else(|| WindowError::NoKernel(plan.name.clone()))?;
        Window::find(function)
    };
    let (mut small, mut large) = (window(&plans[0])?, window(&plans[1])?);
    let code = match &item.parts[..] {
        [part] => {
            let ops = [i64::from(plans[0].ops[0]), i64::from(plans[1].ops[0])];
            without_counter(&mut small, &mut large, &part.entry);
            check_pair(&small, &large, &[Meant { entry: &part.entry, ops }])?
        }
        _ => {
            check_mix(&small, &large, item, &plans).map_err(Refusal::Other)?;
            FormCode { per_op: Vec::new(), ops: i64::from(plans[0].ops[0]), length: large.length }
        }
    };
    let operations = [0, 1].map(|k| plans[k].ops[0]);
    let ports = cycles_per_operation(arch, [&small, &large], operations)
        .map_err(|e| Refusal::Other(e.to_string()))?;
    Ok((Verified { chains: plans[0].chains, plans, code, window: small }, ports))
}

/// Takes the loop's own counter out of both windows where it is of the kind under test (UIADD3): the one that does not
/// grow with the operations.
fn without_counter(small: &mut Window, large: &mut Window, entry: &Entry) {
    let targets: Vec<String> = small.body.keys().filter(|o| entry.is_target(o)).cloned().collect();
    for opcode in targets {
        let count = |w: &Window| w.body.get(&opcode).copied().unwrap_or(0);
        if 2 * count(small) - count(large) == 1 {
            for window in [&mut *small, &mut *large] {
                *window.body.entry(opcode.clone()).or_default() -= 1;
            }
        }
    }
}

/// Holds a mix against the sum of its parts: what the longer body has more, opcode by opcode.
fn check_mix(small: &Window, large: &Window, item: &Item, plans: &[KernelPlan; 2]) -> Result<(), String> {
    let mut expected: BTreeMap<&str, f64> = BTreeMap::new();
    for (k, alone) in item.alone.iter().enumerate() {
        let more = f64::from(plans[1].ops[k]) - f64::from(plans[0].ops[k]);
        for (opcode, n) in alone {
            *expected.entry(opcode).or_default() += n * more;
        }
    }
    let total: f64 = expected.values().sum();
    let opcodes: BTreeSet<&str> = small
        .body
        .keys()
        .chain(large.body.keys())
        .map(String::as_str)
        .chain(expected.keys().copied())
        .collect();
    let count = |w: &Window, o: &str| w.body.get(o).copied().unwrap_or(0) as f64;
    for opcode in opcodes {
        let (more, wanted) =
            (count(large, opcode) - count(small, opcode), expected.get(opcode).copied().unwrap_or(0.0));
        // ptxas may place a move more or less, and waits as it likes; what is counted must be there to one in fifty.
        let slack = if opcode == "NOP" { 0.1 * total } else { 0.02 * wanted.max(total / 4.0) };
        if (more - wanted).abs() > 1.0 + slack {
            return Err(format!(
                "{more} {opcode} for twice the operations, {wanted:.0} by its parts alone: compiled in another way"
            ));
        }
        // What does not grow belongs to the loop: its counter, a compare, a branch, moves from one trip to the next.
        let own = count(small, opcode) - more;
        if own.abs() > LOOPS_OWN + slack {
            return Err(format!("{own} {opcode} belong to no operation"));
        }
    }
    Ok(())
}
