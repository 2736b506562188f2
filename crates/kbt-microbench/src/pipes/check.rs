//! Whether a kernel's timed window is what was meant: an instruction alone, or a mix that holds what its two
//! instructions hold alone, times their counts.

use super::assemble::Item;
use super::ports::cycles_per_operation;
use crate::prepare::Verified;
use crate::ptx::KernelPlan;
use crate::spec::Entry;
use crate::verify::{FormCode, Meant, Window, WindowError, check_pair};
use kbt_device::{Arch, Pipe};
use kbt_sass::{Listing, pipe_of_opcode};
use std::collections::{BTreeMap, BTreeSet};

/// Instructions of a kind that the loop may have of its own; the same in both bodies, they cancel.
const LOOPS_OWN: f64 = 16.0;

/// Moves: which of these ptxas takes, and so which pipe, follows from what else the two pipes have to do.
const MOVES: &[&str] = &["MOV", "IMAD.U32", "IMAD.MOV", "IMAD.MOV.U32"];
/// Cycles of a move, and of each companion at most, on its pipe.
const COMPANION_CYCLES: f64 = 2.0;
/// Below this share of the time a pipe is no bottleneck, whatever of the companions it has.
const IDLE: f64 = 0.75;

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
            check_pair(&small, &large, &[Meant { entry: &part.entry, ops, back: &part.chain.back }])?
        }
        _ => {
            check_mix(arch, [&small, &large], item, &plans).map_err(Refusal::Other)?;
            FormCode {
                per_op: Vec::new(),
                back: Vec::new(),
                ops: i64::from(plans[0].ops[0]),
                length: large.length,
            }
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

/// Whether it is no matter which moves a mix has: its two instructions run on neither of the pipes that move, and all
/// companions together, were they on one of these, would leave it idle for a part of the time.
fn moves_may_trade(arch: Arch, item: &Item, plans: &[KernelPlan; 2]) -> bool {
    let moves = |pipe: Pipe| matches!(pipe, Pipe::Alu | Pipe::Fma | Pipe::FmaHeavy | Pipe::FmaLite);
    let (mut companions, mut longest) = (0.0, 0.0f64);
    for (k, (alone, cycles)) in item.alone.iter().zip(&item.cycles).enumerate() {
        let operations = f64::from(plans[0].ops[k]);
        longest = longest.max(operations * cycles);
        for (opcode, n) in alone.iter().filter(|(o, _)| *o != "NOP") {
            if !item.parts[k].entry.is_target(opcode) {
                companions += n * operations;
            } else if pipe_of_opcode(Some(arch), opcode).pipe.is_none_or(moves) {
                return false;
            }
        }
    }
    companions * COMPANION_CYCLES <= IDLE * longest
}

/// Holds a mix against the sum of its parts: what the longer body has more, opcode by opcode.
fn check_mix(
    arch: Arch,
    [small, large]: [&Window; 2],
    item: &Item,
    plans: &[KernelPlan; 2],
) -> Result<(), String> {
    let trade = moves_may_trade(arch, item, plans);
    let kind = |opcode: &str| if trade && MOVES.contains(&opcode) { "moves" } else { opcode }.to_owned();
    let mut expected: BTreeMap<String, f64> = BTreeMap::new();
    for (k, alone) in item.alone.iter().enumerate() {
        let more = f64::from(plans[1].ops[k]) - f64::from(plans[0].ops[k]);
        for (opcode, n) in alone {
            *expected.entry(kind(opcode)).or_default() += n * more;
        }
    }
    let total: f64 = expected.values().sum();
    let bodies = small.body.keys().chain(large.body.keys()).map(|o| kind(o));
    let opcodes: BTreeSet<String> = bodies.chain(expected.keys().cloned()).collect();
    let count = |w: &Window, o: &str| {
        let of_kind = w.body.iter().filter(|(opcode, _)| kind(opcode) == o);
        of_kind.map(|(_, n)| *n as f64).sum::<f64>()
    };
    for opcode in &opcodes {
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
