//! How two units alternate in program order: runs and transitions.

use super::Unit;
use crate::outcome::{Interleave, Run};

/// Which of the two units each instruction of interest belongs to, in program order.
pub(super) fn interleave(a: &Unit, b: &Unit, sides: impl Iterator<Item = bool>) -> Interleave {
    let mut runs: Vec<Run> = Vec::new();
    let mut counts = [0_u64; 2];
    let mut last = None;
    for is_a in sides {
        counts[usize::from(!is_a)] += 1;
        match runs.last_mut() {
            Some(run) if last == Some(is_a) => run.instructions += 1,
            _ => runs.push(Run { of: if is_a { a } else { b }.name().to_owned(), instructions: 1 }),
        }
        last = Some(is_a);
    }
    let [of_a, of_b] = counts;
    Interleave {
        a: a.name().to_owned(),
        b: b.name().to_owned(),
        a_instructions: of_a,
        b_instructions: of_b,
        transitions: runs.len().saturating_sub(1) as u64,
        possible: most_transitions(of_a, of_b),
        longest_run: runs.iter().map(|r| r.instructions).max().unwrap_or(0),
        mean_run: if runs.is_empty() { 0.0 } else { (of_a + of_b) as f64 / runs.len() as f64 },
        runs,
    }
}

/// The most transitions that any order of the same instructions has: every instruction of the rarer unit
/// stands alone, between two of the other where those suffice.
fn most_transitions(a: u64, b: u64) -> u64 {
    match (a.min(b), a == b) {
        (0, _) => 0,
        (few, true) => 2 * few - 1,
        (few, false) => 2 * few,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `M` and `F` in program order; run list as `M2 F1`.
    fn check(order: &str, runs: &str, transitions: u64, possible: u64) {
        let found = interleave(&Unit::mufu(), &Unit::f2fp(), order.chars().map(|c| c == 'M'));
        assert_eq!(found.run_list(), runs);
        assert_eq!((found.transitions, found.possible), (transitions, possible), "{order}");
    }

    #[test]
    fn runs_and_transitions_of_small_orders() {
        check("", "", 0, 0);
        check("MMM", "M3", 0, 0);
        check("MMFF", "M2 F2", 1, 3);
        check("MFMFM", "M1 F1 M1 F1 M1", 4, 4);
        check("MFFMFFF", "M1 F2 M1 F3", 3, 4);
    }

    #[test]
    fn possible_is_reached_by_the_best_order_of_all() {
        fn best(a: u64, b: u64, last: Option<bool>) -> u64 {
            let step = |is_a: bool| u64::from(last.is_some_and(|l| l != is_a));
            let with_a = if a > 0 { step(true) + best(a - 1, b, Some(true)) } else { 0 };
            let with_b = if b > 0 { step(false) + best(a, b - 1, Some(false)) } else { 0 };
            with_a.max(with_b)
        }
        for a in 0..6 {
            for b in 0..6 {
                assert_eq!(most_transitions(a, b), best(a, b, None), "{a} {b}");
            }
        }
    }
}
