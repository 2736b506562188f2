//! What is claimed of a lifted piece, and what the search made of its patterns.

use super::RewriteOutcome;
use super::lift::{ClaimOutcome, CompiledOutcome};
use crate::cost::{Cost, CostModel};
use crate::lang::{Op, Program};
use crate::lift::loops::computation;
use crate::lift::{Match, Pattern, Piece};
use crate::rewrite::{Candidate, Refusal, Search};
use kbt_device::MissingFigure;

/// The least share of the busiest pipe's cycles that counts as a gain.
const LEAST_CYCLES: f64 = 0.02;
/// The least share of issue slots that counts where no pipe is relieved.
const LEAST_SLOTS: f64 = 0.05;

/// Whether shares of cycles and of issue slots are a gain: slots are none where the busiest pipe gets busier.
fn pays(cycles: f64, slots: f64) -> bool {
    cycles >= LEAST_CYCLES || (cycles > -1e-9 && slots >= LEAST_SLOTS)
}

pub(super) fn claim(rewrite: &RewriteOutcome, compiled: &CompiledOutcome, cost: &Cost) -> ClaimOutcome {
    let cycles = rewrite.baseline.cycles_per_element.min(cost.busiest());
    let slots = rewrite.baseline.issue_slots.min(cost.issue_slots);
    let saved = |have: f64, now: f64| if have > 0.0 { 1.0 - now / have } else { 0.0 };
    let gains: Vec<(f64, f64)> = rewrite
        .candidates
        .iter()
        .map(|c| (saved(cycles, c.cycles_per_element), saved(slots, c.issue_slots)))
        .collect();
    let candidates: Vec<usize> = (0..gains.len()).filter(|&i| pays(gains[i].0, gains[i].1)).collect();
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

/// What the search made of a pattern: who takes it, at what price, or why none does. Taken is what a candidate does otherwise in
/// the pattern's own place.
pub(super) fn verdict(
    m: &Match,
    given: &Program,
    claim: &ClaimOutcome,
    found: &Search,
    rewrite: &RewriteOutcome,
) -> String {
    let takes = |i: &usize| found.candidates.get(*i).is_some_and(|candidate| is_taken(m, given, candidate));
    let price = |i: usize| {
        let c = &rewrite.candidates[i];
        format!("{:.4} on {}, {:.2} issue slots", c.cycles_per_element, c.busiest_pipe, c.issue_slots)
    };
    if let Some(i) = claim.candidates.iter().copied().find(takes) {
        let first = claim.candidates[0];
        let cheaper =
            if i == first { String::new() } else { format!("; candidate {} is cheaper", first + 1) };
        return format!("taken by candidate {} ({}){cheaper}", i + 1, price(i));
    }
    if let Some(i) = (0..rewrite.candidates.len()).find(takes) {
        return format!("does not pay: candidate {} has it, at {}", i + 1, price(i));
    }
    match found.refused.iter().find(|r| is_about(r, m, given)) {
        Some(r) => format!("refused: {} ({})", r.because, r.rule),
        None => "does not pay: no form with it is cheaper".to_owned(),
    }
}

/// Where a pattern is taken: a factor inside an exp2 leaves its argument.
fn place(m: &Match, given: &Program) -> usize {
    let own = &given.nodes[m.node];
    if m.pattern == Pattern::FoldedFactor && own.op == Op::Exp2 { own.args[0] } else { m.node }
}

/// Whether a refusal is of a rule that would have taken the pattern, in the pattern's own place. Rules that only write a value in
/// another way serve any pattern and refuse none.
fn is_about(refused: &Refusal, m: &Match, given: &Program) -> bool {
    let helps = refused.rule.starts_with("undo-");
    !helps && m.pattern.rules().contains(&refused.rule.as_str()) && refused.nodes.contains(&place(m, given))
}

/// Whether the candidate has in this place what the pattern says, or has nothing there and the proof took it.
fn is_taken(m: &Match, given: &Program, candidate: &Candidate) -> bool {
    let own = &given.nodes[m.node];
    let Some(fate) = candidate.fates.get(place(m, given)).filter(|fate| fate.changed) else { return false };
    if matches!(m.pattern, Pattern::SharedDivisor | Pattern::DivisionByRoot) {
        return is_reciprocal(m.pattern, own.args[1], given, candidate, fate.node);
    }
    if !m.pattern.taken_by().iter().any(|rule| fate.rules.contains(*rule)) {
        return false;
    }
    let Some(node) = fate.node else { return true };
    let program = &candidate.priced.program;
    let (op, args) = (program.nodes[node].op, &program.nodes[node].args);
    let product_with = |of: Op| op == Op::Mul && args.iter().any(|&a| program.nodes[a].op == of);
    match (m.pattern, own.op) {
        (Pattern::LoopInvariant | Pattern::SharedDivisor | Pattern::DivisionByRoot, _) => false,
        (Pattern::DivisionByExp2, _) => {
            op == Op::Exp2 || (given.nodes[own.args[1]].op == Op::Exp2 && product_with(Op::Exp2))
        }
        (Pattern::MonotoneReduction, _) => !matches!(op, Op::GroupMax | Op::RowMax),
        (Pattern::FoldedFactor, Op::Mul | Op::Log2) => op != own.op,
        (Pattern::FoldedFactor, _) => true,
    }
}

/// Whether a candidate has the reciprocal of a divisor, or of its root, and no longer divides by it: at `top` and in what that is
/// computed from, where the quotient has a counterpart, whatever multiplies it.
fn is_reciprocal(
    pattern: Pattern,
    divisor: usize,
    given: &Program,
    candidate: &Candidate,
    top: Option<usize>,
) -> bool {
    let program = &candidate.priced.program;
    let mut seen = program.live();
    if let Some(top) = top {
        seen = (0..program.nodes.len()).map(|i| i == top).collect();
        for i in (0..=top).rev() {
            if seen[i] {
                program.nodes[i].args.iter().for_each(|&a| seen[a] = true);
            }
        }
    }
    let now = |node: usize| candidate.fates.get(node).and_then(|fate| fate.node);
    let of = &given.nodes[divisor];
    let under = if matches!(of.op, Op::Sqrt | Op::SqrtRn) { now(of.args[0]) } else { None };
    let is = |have: usize, wanted: Option<usize>| wanted == Some(have);
    let mut inverse = false;
    for (node, _) in program.nodes.iter().zip(&seen).filter(|(_, seen)| **seen) {
        match (node.op, node.args.as_slice()) {
            (Op::Div, &[_, d]) if is(d, now(divisor)) => return false,
            (Op::Rsqrt, &[d]) => inverse |= is(d, under),
            (Op::Rcp, &[d]) => inverse |= pattern == Pattern::SharedDivisor && is(d, now(divisor)),
            _ => {}
        }
    }
    inverse
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
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_refusal_is_of_the_place_where_the_rule_was_refused() {
        let text = "layout group=4 lanes=1 row=4\nelem s\nelem u\ngroup g\ngroup h\nout a = s / g\nout b = u / h\n\
                    out c = exp2((s + g) * h)\n";
        let program: Program = text.parse().unwrap();
        let node = |name: &str| program.outputs.iter().find(|(n, _)| n == name).unwrap().1;
        let refusal = |rule: &str, node: usize| Refusal {
            rule: rule.to_owned(),
            says: String::new(),
            because: String::new(),
            nodes: BTreeSet::from([node]),
        };
        let found = crate::lift::patterns(&program);
        let at = |pattern: Pattern, name: &str| {
            found.iter().find(|m| m.pattern == pattern && m.node == node(name)).unwrap()
        };
        let (a, b) = (at(Pattern::SharedDivisor, "a"), at(Pattern::SharedDivisor, "b"));
        for (m, refused, expected) in [(a, "a", true), (a, "b", false), (b, "b", true), (b, "a", false)] {
            assert_eq!(
                is_about(&refusal("div-to-rcp", node(refused)), m, &program),
                expected,
                "{} {refused}",
                m.found
            );
        }
        // A factor inside an exp2 is refused where its product stands; another rule, and one that only helps, are not about it.
        let c = at(Pattern::FoldedFactor, "c");
        let product = program.nodes[c.node].args[0];
        for (rule, node, expected) in [
            ("factor-into-fma", product, true),
            ("factor-into-fma", c.node, false),
            ("div-to-rcp", product, false),
            ("undo-mul", product, false),
        ] {
            assert_eq!(is_about(&refusal(rule, node), c, &program), expected, "{rule}");
        }
    }

    #[test]
    fn fewer_issue_slots_pay_only_where_no_pipe_gets_busier() {
        for (cycles, slots) in [(0.02, 0.0), (0.5, -0.5), (0.0, 0.05), (-1e-12, 0.3)] {
            assert!(pays(cycles, slots), "{cycles} {slots}");
        }
        for (cycles, slots) in [(-0.01, 0.3), (-0.5, 0.9), (0.019, 0.049), (0.0, 0.0)] {
            assert!(!pays(cycles, slots), "{cycles} {slots}");
        }
    }
}
