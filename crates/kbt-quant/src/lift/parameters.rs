//! Values that follow from the kernel's parameters alone.

use super::loops::{Loop, of_numbers, repeated};
use crate::lang::{Node, Op, Program, Shape};

/// What is said of values that parameters alone give.
pub(super) fn from_parameters(program: &Program, elements: f64) -> Option<String> {
    let live = program.live();
    let of_numbers = of_numbers(program);
    let computed = |i: usize| {
        let op = program.nodes[i].op;
        let work = !matches!(op, Op::Input(_) | Op::Num(_)) && !op.is_modifier();
        live[i] && program.shapes[i] == Shape::Const && work && !of_numbers[i]
    };
    let taken = |i: usize| {
        let output = program.outputs.iter().any(|(_, node)| *node == i);
        let by = |(user, n): (usize, &Node)| n.args.contains(&i) && live[user] && !computed(user);
        output || program.nodes.iter().enumerate().any(by)
    };
    let texts: Vec<String> = (0..program.nodes.len())
        .filter(|&i| computed(i) && taken(i))
        .map(|i| program.expression(i, true))
        .collect();
    (!texts.is_empty()).then(|| {
        format!(
            "{} from parameters of the kernel alone: priced once for the {elements} elements of a thread; it is free only if \
             the host passes it, or where ptxas moves it out of a loop",
            texts.join(", ")
        )
    })
}

/// What is said of values that do not change in a loop that ptxas takes them out of.
pub(super) fn moved(program: &Program, invariant: &[bool], around: &Loop) -> Option<String> {
    let texts: Vec<String> =
        repeated(program, invariant).into_iter().map(|i| program.expression(i, true)).collect();
    let of_parameters = |i: usize| program.shapes[i] == Shape::Const;
    let price = if repeated(program, invariant).into_iter().all(of_parameters) {
        "priced at nothing"
    } else {
        "the code as compiled is priced without it"
    };
    (!texts.is_empty()).then(|| {
        format!(
            "{} does not change in {}, out of which ptxas moves such: {price}",
            texts.join(", "),
            around.text()
        )
    })
}
