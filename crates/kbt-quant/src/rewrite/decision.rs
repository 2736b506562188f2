//! Comparisons of values that a candidate rounds otherwise: near equality they may decide otherwise, and what is chosen by them
//! then differs by more than any rounding.

use crate::lang::{Op, Program};
use std::collections::HashMap;

/// A guard for each comparison of the candidate that the program given does not have of just these values.
pub(super) fn guards(given: &Program, candidate: &Program) -> Vec<String> {
    let mut known: HashMap<(String, Vec<usize>), usize> = HashMap::new();
    terms(given, &mut known);
    let of_given = known.len();
    let terms = terms(candidate, &mut known);
    let live = candidate.live();
    let decides = |i: &usize| live[*i] && matches!(candidate.nodes[*i].op, Op::Lt | Op::Le | Op::Eq);
    let one = |i: usize| {
        format!(
            "only where what {} chooses may turn by rounding: it compares other roundings than the program given, and where both \
             sides are nearly equal it may decide otherwise; error bounds say that of sampled rows alone",
            candidate.expression(i, true)
        )
    };
    (0..candidate.nodes.len()).filter(decides).filter(|&i| terms[i] >= of_given).map(one).collect()
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
    }
}
