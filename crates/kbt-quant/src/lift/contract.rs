//! What ptxas does to the code by itself: a product and a sum that PTX gives no rounding become one multiply-add. The code
//! as compiled costs that, and a rewrite that only does the same gains nothing.

use super::scalar::{Id, Kind, Scalar};
use crate::cost::Compiled;
use crate::lang::Op;

/// Prices each sum that takes a product or quotient of its own, both without a stated rounding, as one multiply-add.
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
        let products: Vec<Id> = node.args.iter().filter_map(|&a| product(graph, a, &uses)).collect();
        let flushes = node.flushes;
        // One multiply-add flushes subnormals of both or of neither.
        graph.nodes[id].half_flushed = products.iter().any(|&p| graph.nodes[p].flushes != flushes);
        let one = products.into_iter().find(|&p| graph.nodes[p].flushes == flushes);
        if let Some(product) = one {
            graph.nodes[id].price = vec![Op::Fma.into()];
            let left = without_last_product(&graph.nodes[product].price).unwrap_or_default();
            graph.nodes[product].price = left;
        }
    }
}

/// What does not change in a loop is computed before it: by ptxas 13.0.88 and 13.5.37 for sm_90a wherever nothing in the loop is a call.
pub(super) fn free_what_leaves_the_loop(graph: &mut Scalar) {
    for node in graph.nodes.iter_mut().filter(|node| node.invariant) {
        node.price.clear();
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

/// What is left of a product, or of the dividend's part of a division that is one, when its last multiplication is a part of a
/// multiply-add: ptxas 13.0.88 for sm_90a.
fn without_last_product(price: &[Compiled]) -> Option<Vec<Compiled>> {
    let products = |n: usize| Some(vec![Compiled::Op(Op::Mul); n]);
    match price {
        [Compiled::Op(Op::Mul)] => products(0),
        [Compiled::Ptx("div.approx.f32.dividend" | "div.full.ftz.f32.dividend")] => products(1),
        [Compiled::Ptx("div.full.f32.dividend")] => products(2),
        _ => None,
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
            let fuses = node.is(Op::Mul) && node.contracts && without_last_product(&node.price).is_some();
            return fuses.then_some(at);
        }
        at = node.args[0];
    }
}
