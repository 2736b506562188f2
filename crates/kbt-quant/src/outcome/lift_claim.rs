//! What is claimed of a lifted piece, and what the search made of its patterns.

use super::RewriteOutcome;
use super::lift::{ClaimOutcome, CompiledOutcome};
use super::rewrite::RefusedRule;
use crate::cost::{Cost, CostModel};
use crate::lang::{Op, Program};
use crate::lift::loops::computation;
use crate::lift::{Match, Pattern, Piece};
use crate::rewrite::Candidate;
use kbt_device::MissingFigure;

/// The least share of the busiest pipe's cycles that counts as a gain.
const LEAST_CYCLES: f64 = 0.02;
/// The least share of issue slots that counts where no pipe is relieved.
const LEAST_SLOTS: f64 = 0.05;

pub(super) fn claim(rewrite: &RewriteOutcome, compiled: &CompiledOutcome, cost: &Cost) -> ClaimOutcome {
    let cycles = rewrite.baseline.cycles_per_element.min(cost.busiest());
    let slots = rewrite.baseline.issue_slots.min(cost.issue_slots);
    let saved = |have: f64, now: f64| if have > 0.0 { 1.0 - now / have } else { 0.0 };
    let gains: Vec<(f64, f64)> = rewrite
        .candidates
        .iter()
        .map(|c| (saved(cycles, c.cycles_per_element), saved(slots, c.issue_slots)))
        .collect();
    let pays =
        |(cycles, slots): &(f64, f64)| *cycles >= LEAST_CYCLES || (*cycles > -1e-9 && *slots >= LEAST_SLOTS);
    let candidates: Vec<usize> = (0..gains.len()).filter(|&i| pays(&gains[i])).collect();
    let best = candidates.first().map_or((0.0, 0.0), |&i| gains[i]);
    let statement = match candidates.first().map(|&i| &rewrite.candidates[i]) {
        None => "nothing is claimed: no form that the rules lead to is cheaper".to_owned(),
        Some(now) => {
            let (program, cheaper) = (&rewrite.baseline, cost.busiest() > cycles + 1e-9);
            let pipe = if cheaper { &program.busiest_pipe } else { &compiled.busiest_pipe };
            let share = format!(
                "{:.0} % fewer issue slots ({slots:.2}, then {:.2})",
                100.0 * best.1,
                now.issue_slots
            );
            let mut text = if best.0 >= LEAST_CYCLES {
                format!(
                    "{:.0} % fewer cycles on the busiest pipe ({pipe} {cycles:.4}, then {} {:.4}), {share}",
                    100.0 * best.0,
                    now.busiest_pipe,
                    now.cycles_per_element,
                )
            } else {
                format!("{share}; the busiest pipe stays as busy")
            };
            if cheaper || cost.issue_slots > slots + 1e-9 {
                text += "; against the piece's own program where that costs less than what is compiled";
            }
            text
        }
    };
    ClaimOutcome {
        pays: !candidates.is_empty(),
        candidates,
        cycles_saved_ratio: best.0,
        slots_saved_ratio: best.1,
        statement,
        provenance: rewrite.baseline.provenance.clone(),
    }
}

/// What the search made of a pattern: taken is what the best candidate does otherwise in the pattern's own place.
pub(super) fn verdict(
    m: &Match,
    given: &Program,
    best: Option<(usize, &Candidate)>,
    rewrite: &RewriteOutcome,
) -> String {
    if let Some((i, candidate)) = best
        && is_taken(m, given, candidate)
    {
        return format!("taken by candidate {}", i + 1);
    }
    match rewrite.refused.iter().find(|r| is_about(r, m)) {
        Some(r) => format!("refused: {} ({})", r.because, r.rule),
        None => "does not pay: no form with it is cheaper".to_owned(),
    }
}

/// Whether a refusal is of the rule that would have taken the pattern, and of a value in the pattern's own place. Rules that only
/// write a value in another way serve any pattern and refuse none.
fn is_about(refused: &RefusedRule, m: &Match) -> bool {
    let helps = refused.rule.starts_with("undo-");
    let subject = refused.because.split_once(" must ").map(|(subject, _)| subject);
    let here = |text: &str| has_whole(&m.found, text) || has_whole(&m.instead, text);
    !helps && m.pattern.rules().contains(&refused.rule.as_str()) && subject.is_some_and(here)
}

/// Whether a text has another one in it that neither begins nor ends within a name or number.
fn has_whole(text: &str, part: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let cut = |outer: Option<char>, inner: Option<char>| outer.is_some_and(word) && inner.is_some_and(word);
    !part.is_empty()
        && text.match_indices(part).any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + part.len()..]);
            !cut(before.chars().next_back(), part.chars().next())
                && !cut(after.chars().next(), part.chars().next_back())
        })
}

/// Whether the candidate has in this place what the pattern says, or has nothing there and the proof took it.
fn is_taken(m: &Match, given: &Program, candidate: &Candidate) -> bool {
    // A factor inside an exp2 leaves its argument.
    let own = &given.nodes[m.node];
    let place = if m.pattern == Pattern::FoldedFactor && own.op == Op::Exp2 { own.args[0] } else { m.node };
    let Some(fate) = candidate.fates.get(place).filter(|fate| fate.changed) else { return false };
    if !m.pattern.taken_by().iter().any(|rule| fate.rules.contains(*rule)) {
        return false;
    }
    let Some(node) = fate.node else { return true };
    let program = &candidate.priced.program;
    let (op, args) = (program.nodes[node].op, &program.nodes[node].args);
    let product_with = |of: Op| op == Op::Mul && args.iter().any(|&a| program.nodes[a].op == of);
    match (m.pattern, own.op) {
        (Pattern::LoopInvariant, _) => false,
        (Pattern::DivisionByExp2, _) => {
            op == Op::Exp2 || (given.nodes[own.args[1]].op == Op::Exp2 && product_with(Op::Exp2))
        }
        (Pattern::DivisionByRoot, _) => op == Op::Rsqrt || product_with(Op::Rsqrt),
        (Pattern::SharedDivisor, _) => op == Op::Mul,
        (Pattern::MonotoneReduction, _) => !matches!(op, Op::GroupMax | Op::RowMax),
        (Pattern::FoldedFactor, Op::Mul | Op::Log2) => op != own.op,
        (Pattern::FoldedFactor, _) => true,
    }
}

/// What each iteration spends on a value that does not change.
pub(super) fn repeated(piece: &Piece, m: &Match, model: &CostModel<'_>) -> Result<String, MissingFigure> {
    let program = &piece.program;
    let mut cost = Cost::default();
    for i in computation(program, m.node) {
        let from = program.nodes[i].args.first().map_or(program.shapes[i], |&a| program.shapes[a]);
        if let Some(one) = model.node(program.nodes[i].op, from, program.shapes[i])? {
            cost.add(&one.cost, 1.0);
        }
    }
    Ok(format!(
        "outside the search: each iteration spends {:.4} cycles an element and SM on {} and {:.2} issue slots on it; ptxas (13.0 and 13.5) \
         moves nothing out of a loop with a division or root rounded as IEEE 754, whose slow path is a call",
        cost.busiest(),
        cost.busiest_pipe(),
        cost.issue_slots
    ))
}

/// What a candidate does otherwise with subnormals where it makes one multiply-add of a product and a sum that ptxas keeps apart.
pub(super) fn half_flushed<'a>(piece: &'a Piece, found: &'a Candidate) -> impl Iterator<Item = String> + 'a {
    let fused = |node: usize| {
        let fate = found.fates.get(node)?;
        (fate.changed && fate.rules.iter().any(|r| r.starts_with("fuse"))).then(|| {
            format!(
                "only where subnormals do not matter: of the product and the sum in {} the code flushes one, and a multiply-add \
                 flushes both or neither",
                piece.program.expression(node, true)
            )
        })
    };
    piece.half_flushed.iter().filter_map(move |&node| fused(node))
}

#[cfg(test)]
mod tests {
    use super::has_whole;

    #[test]
    fn a_name_is_not_found_within_a_longer_one() {
        for (text, part) in
            [("f12 * f3", "f1"), ("f12 * f3", "2"), ("exp2(f1)", "2(f1)"), ("f1_2 + f3", "f1"), ("a", "")]
        {
            assert!(!has_whole(text, part), "{part} in {text}");
        }
        for (text, part) in
            [("f12 * f1", "f1"), ("exp2(f1 + f2)", "f1 + f2"), ("f11 / (f1)", "(f1)"), ("f1", "f1")]
        {
            assert!(has_whole(text, part), "{part} in {text}");
        }
    }
}
