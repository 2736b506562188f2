//! Comparisons and conversions of values that a candidate rounds otherwise: near equality, or at a boundary between codes, they
//! may turn out otherwise, and what follows from them then differs by more than any rounding.

use crate::lang::{Op, Program};
use std::collections::HashMap;

/// A guard for each comparison of the candidate, and each conversion that something follows from, that the program given does
/// not have of just these values.
pub(super) fn guards(given: &Program, candidate: &Program) -> Vec<String> {
    let mut known: HashMap<(String, Vec<usize>), usize> = HashMap::new();
    terms(given, &mut known);
    let of_given = known.len();
    let terms = terms(candidate, &mut known);
    let live = candidate.live();
    let mut leads = vec![false; candidate.nodes.len()];
    for node in candidate.nodes.iter().zip(&live).filter_map(|(node, live)| live.then_some(node)) {
        node.args.iter().for_each(|&a| leads[a] = true);
    }
    let one = |i: usize| match candidate.nodes[i].op {
        Op::Cvt(_) if leads[i] => Some(format!(
            "but for a step at a boundary: {} takes its operand rounded otherwise than in the program given, and where that lies \
             at a boundary between codes, what follows from it differs by a whole step; error bounds say that of sampled \
             boundaries alone",
            candidate.expression(i, true)
        )),
        Op::Lt | Op::Le | Op::Eq => Some(format!(
            "only where what {} chooses may turn by rounding: it compares other roundings than the program given, and where both \
             sides are nearly equal it may decide otherwise; error bounds say that of sampled rows alone",
            candidate.expression(i, true)
        )),
        _ => None,
    };
    (0..candidate.nodes.len()).filter(|&i| live[i] && terms[i] >= of_given).filter_map(one).collect()
}

/// A number for each node, the same for the same term, whatever the order of operands that may be exchanged.
fn terms(program: &Program, known: &mut HashMap<(String, Vec<usize>), usize>) -> Vec<usize> {
    let mut out: Vec<usize> = Vec::with_capacity(program.nodes.len());
    for node in &program.nodes {
        let mut args: Vec<usize> = node.args.iter().map(|&a| out[a]).collect();
        match node.op {
            Op::Add | Op::Mul | Op::Max | Op::Eq => args.sort_unstable(),
            Op::Fma => args[..2].sort_unstable(),
            _ => {}
        }
        let name = match node.op {
            Op::Input(i) => program.inputs[i as usize].name.clone(),
            op => format!("{op:?}"),
        };
        let next = known.len();
        out.push(*known.entry((name, args)).or_insert(next));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_of_what_is_rounded_otherwise_has_a_guard() {
        let check = |given: &str, candidate: &str, guarded: usize| {
            let program = |line: &str| -> Program {
                format!("layout group=4 lanes=1 row=16\nelem s\nelem t\nrow m in [1, 2]\nout y = {line}\n")
                    .parse()
                    .unwrap()
            };
            let guards = guards(&program(given), &program(candidate));
            assert_eq!(guards.len(), guarded, "{given} to {candidate}: {guards:?}");
        };
        check("select(lt(s / m, t), s, t)", "select(lt(s * rcp(m), t), s, t)", 1);
        check("select(lt(s / m, t), s / m, t)", "select(lt(s / m, t), s * rcp(m), t)", 0);
        check("select(lt(s * t, t), s, t) / m", "select(lt(t * s, t), s, t) * rcp(m)", 0);
        check("eq(fma(s, m, t), t)", "eq(fma(m, s, t), t)", 0);
        check("select(lt(s, t), t, s)", "max(s, t)", 0);
        check("select(le(s, t), s, m)", "select(le(t, s), s, m)", 1);
        // A code that is an output differs by a code, and the replay counts those.
        check("cvt_bf16(s / m)", "cvt_bf16(s * rcp(m))", 0);
        check("exp2(cvt_bf16(s / m))", "exp2(cvt_bf16(s * rcp(m)))", 1);
        check("exp2(cvt_bf16(s * m) / t)", "exp2(cvt_bf16(m * s) * rcp(t))", 0);
    }
}
