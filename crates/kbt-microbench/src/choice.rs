//! Which form of an instruction its row is taken from. Machine code decides, before anything is timed: a measurement may
//! make a row believed or refused, and never another row.
//!
//! A form can only be slower than its instruction. So the one is preferred that asks least of anything else: the plain
//! lowering first, nothing of the target's pipe beside it, few other instructions, few register reads, and then its name.

use crate::net::is_clean;
use crate::pipes::ports::cycles_of_body;
use crate::prepare::{Prepared, Verified};
use crate::spec::Entry;
use std::cmp::Reverse;

/// What a form asks for, the least first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Preference {
    /// The place of its mnemonics in the entry's `target`: the first is the plain lowering.
    lowering: usize,
    /// Something on the target's pipe that must be taken off.
    contaminated: bool,
    /// Other instructions an operation, in twelfths.
    companions: u64,
    /// Cycles an operation that a scheduler's register ports need, in hundredths, nothing found again; unknown comes last.
    register_ports: u64,
    /// Kernels with more chains are better.
    chains: Reverse<u32>,
    form: String,
}

impl Preference {
    /// Of a form with at least one verified kernel.
    #[must_use]
    pub fn of(prepared: &Prepared) -> Option<Self> {
        let verified = prepared.widest()?;
        let entry = &prepared.parts.first()?.entry;
        let companions: f64 = verified.code.companions().map(|c| c.count).sum();
        Some(Self {
            lowering: lowering(entry, verified),
            contaminated: !entry.compound && !is_clean(&verified.code),
            companions: (companions * 12.0).round() as u64,
            register_ports: register_ports(verified),
            chains: Reverse(verified.chains),
            form: prepared.form.clone(),
        })
    }
}

/// The place of the last of the target's mnemonics that were seen; an operation of several has no other lowering.
fn lowering(entry: &Entry, verified: &Verified) -> usize {
    let seen = verified.code.per_op.iter().filter(|p| p.target);
    let place = |opcode: &str| entry.target.iter().position(|t| Entry::matches(t, opcode));
    seen.filter_map(|p| place(&p.opcode)).max().unwrap_or(0)
}

fn register_ports(verified: &Verified) -> u64 {
    let [_, large] = &verified.plans;
    let operations = f64::from(large.ops.first().copied().unwrap_or(1).max(1));
    cycles_of_body(&verified.window).map_or(u64::MAX, |cycles| (cycles / operations * 100.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepare::tests::prepared;
    use kbt_sass::{Control, Instruction};

    fn preference(target: &str, per_op: &[(&str, f64)]) -> Preference {
        Preference::of(&prepared("i", target, per_op)).unwrap()
    }

    #[test]
    fn a_form_with_nothing_beside_it_comes_before_one_with_something_and_that_before_one_on_its_pipe() {
        let alone = preference("F2FP", &[("F2FP.X", 1.0)]);
        let beside = preference("F2FP", &[("F2FP.X", 1.0), ("FADD", 1.0)]);
        let half_beside = preference("F2FP", &[("F2FP.X", 1.0), ("FADD", 0.5)]);
        let on_its_pipe = preference("F2FP", &[("F2FP.X", 1.0), ("PRMT", 0.5)]);
        assert!(alone < half_beside && half_beside < beside && beside < on_its_pipe);
    }

    #[test]
    fn the_first_of_the_targets_is_the_plain_lowering() {
        let mut plain = prepared("i", "F2FP", &[("F2FP.X", 1.0), ("PRMT", 1.0)]);
        let mut other = prepared("i", "F2F.", &[("F2F.X", 1.0)]);
        for p in [&mut plain, &mut other] {
            p.parts[0].entry.target = vec!["F2FP*".into(), "F2F.*".into()];
        }
        assert!(Preference::of(&plain) < Preference::of(&other), "even where it needs something on its pipe");
    }

    #[test]
    fn of_two_clean_forms_the_one_with_fewer_register_reads_comes_first() {
        let reading = |operands: &str| {
            let mut p = prepared("i", "DFMA", &[("DFMA", 1.0)]);
            let mut insn = Instruction::new(0, None, "DFMA", operands);
            insn.control = Some(Control::from_wide(0));
            for v in &mut p.verified {
                v.window.instructions = vec![insn.clone(); 256];
            }
            Preference::of(&p).unwrap()
        };
        assert!(reading("R4, R4, R8, R8") < reading("R4, R4, R8, R12"));
    }
}
