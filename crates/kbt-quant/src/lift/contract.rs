//! What ptxas does to the code by itself: a product and a sum that PTX gives no rounding become one multiply-add. The code
//! as compiled costs that, and a rewrite that only does the same gains nothing.

use super::scalar::{Id, Kind, Scalar};
use crate::lang::Op;

/// Prices each sum that takes a product of its own, both without a stated rounding, as one multiply-add.
pub(super) fn prices(graph: &mut Scalar) {
    let live = graph.live();
    let mut uses = vec![0usize; graph.nodes.len()];
    for (_, node) in graph.nodes.iter().enumerate().filter(|(id, _)| live[*id]) {
        for &a in &node.args {
            uses[a] += 1;
        }
    }
    in_registers(graph, &live);
    for id in (0..graph.nodes.len()).filter(|&id| live[id]) {
        let node = &graph.nodes[id];
        if !node.is(Op::Add) || !node.contracts || node.price != [Op::Add.into()] {
            continue;
        }
        if let Some(product) = node.args.iter().find_map(|&a| product(graph, a, &uses)) {
            graph.nodes[id].price = vec![Op::Fma.into()];
            graph.nodes[product].price.clear();
        }
    }
}

/// |a| is a modifier of an operand; a conversion takes none, and what leaves is in a register: an addition to 0.
fn in_registers(graph: &mut Scalar, live: &[bool]) {
    let mut kept = graph.outputs.clone();
    for (_, node) in graph.nodes.iter().enumerate().filter(|(id, _)| live[*id]) {
        if matches!(node.kind, Kind::Op(Op::Cvt(_))) {
            kept.extend(&node.args);
        }
    }
    for id in kept {
        if graph.nodes[id].is(Op::Abs) {
            graph.nodes[id].price = vec![Op::Add.into()];
        }
    }
}

/// A product that only this operand is, a sign before it perhaps.
fn product(graph: &Scalar, operand: Id, uses: &[usize]) -> Option<Id> {
    let mut at = operand;
    loop {
        let node = &graph.nodes[at];
        if uses[at] != 1 || graph.outputs.contains(&at) {
            return None;
        }
        if !node.is(Op::Neg) {
            return (node.is(Op::Mul) && node.contracts && node.price == [Op::Mul.into()]).then_some(at);
        }
        at = node.args[0];
    }
}
