//! Whether what was counted is what runs: each target of a body runs once a trip, whatever the data are.
//!
//! A guarded instruction, or one behind a branch that may be taken, is in the machine code and may never be executed; one
//! in an inner loop may be executed more than once. Neither has a rate that counting could give.

use super::window::{is_branch, is_call_around};
use kbt_sass::Instruction;

/// Why an instruction of a body does not run exactly once a trip.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Uncertain {
    /// It has a guard.
    #[error(
        "it stands under the guard {0}: whether it runs depends on the data; write the step without a predicate on it"
    )]
    Guarded(String),
    /// A branch may go around it.
    #[error("the branch `{0}` may go around it: whether it runs depends on the data")]
    Skipped(String),
    /// A branch may go back before it.
    #[error("the branch `{0}` may run it more than once a trip")]
    Repeated(String),
}

/// The first instruction that `is_target` names and that is not run exactly once a trip of the body, and why. The last
/// instruction of the body is the trip loop's own branch.
pub(super) fn first_uncertain<'a>(
    body: &'a [Instruction],
    is_target: &dyn Fn(&str) -> bool,
) -> Option<(&'a str, Uncertain)> {
    let targets: Vec<usize> = (0..body.len()).filter(|&i| is_target(body[i].opcode())).collect();
    let guarded = targets.iter().find_map(|&i| {
        let guard = body[i].guard.filter(|g| g.index.is_some() || g.negated)?;
        Some((i, Uncertain::Guarded(guard.to_string())))
    });
    let branched = || {
        let inner = body.len().saturating_sub(1);
        (0..inner).filter(|&i| !body[i].is_dead()).find_map(|i| {
            let text = || body[i].opcode().to_owned();
            if leaves(&body[i]) {
                // Where it goes is not written in it: what comes after may not run.
                let skipped = targets.iter().find(|&&t| t > i)?;
                return Some((*skipped, Uncertain::Skipped(text())));
            }
            let to = is_branch(&body[i]).then(|| body[i].targets.first().copied()).flatten()?;
            let at = |address: u64| body.iter().position(|insn| insn.address == address);
            match at(to) {
                Some(back) if back <= i => {
                    let again = targets.iter().find(|&&t| (back..=i).contains(&t))?;
                    Some((*again, Uncertain::Repeated(text())))
                }
                // The usual path goes around a call, and what is there was not counted.
                Some(end) if is_call_around(&body[i + 1..end]) => None,
                end => {
                    let end = end.unwrap_or(body.len());
                    let skipped = targets.iter().find(|&&t| t > i && t < end)?;
                    Some((*skipped, Uncertain::Skipped(text())))
                }
            }
        })
    };
    let (at, why) = guarded.or_else(branched)?;
    Some((body[at].opcode(), why))
}

/// Instructions that may end a thread or go where only a register says.
fn leaves(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), "EXIT" | "RET" | "BRX" | "JMX" | "JMP" | "KILL" | "BRXU" | "JMXU")
}
