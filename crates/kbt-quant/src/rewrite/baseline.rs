//! The program given: what of it the search looks at, and what it costs as it stands.

use super::extract::{Key, Solution};
use crate::cost::{Cost, CostModel};
use crate::lang::{Assumption, Op, Program, Shape};
use kbt_device::MissingFigure;
use kbt_evidence::Provenance;
use std::collections::{BTreeMap, BTreeSet};

/// The program without the lines that neither an output nor an assumption needs: every term of the graph breeds further
/// ones, and these would do so for nothing.
///
/// Also gives where each of its nodes went.
pub(super) fn used(program: &Program) -> (Program, Vec<Option<usize>>) {
    let mut needed = program.live();
    for a in &program.assumptions {
        needed[a.node] = true;
    }
    for i in (0..program.nodes.len()).rev() {
        if needed[i] {
            for &a in &program.nodes[i].args {
                needed[a] = true;
            }
        }
    }
    let mut out = Program::new(program.layout, program.inputs.clone());
    let mut moved: Vec<Option<usize>> = vec![None; program.nodes.len()];
    for (i, node) in program.nodes.iter().enumerate().filter(|(i, _)| needed[*i]) {
        out.nodes.push(crate::lang::Node {
            op: node.op,
            args: node.args.iter().filter_map(|&a| moved[a]).collect(),
        });
        out.shapes.push(program.shapes[i]);
        moved[i] = Some(out.nodes.len() - 1);
    }
    let at = |node: usize| moved[node];
    out.names = program.names.iter().filter_map(|(n, i)| Some((n.clone(), at(*i)?))).collect();
    out.outputs = program.outputs.iter().filter_map(|(n, i)| Some((n.clone(), at(*i)?))).collect();
    let kept = program.assumptions.iter();
    out.assumptions = kept.filter_map(|a| Some(Assumption { node: at(a.node)?, range: a.range })).collect();
    (out, moved)
}

/// Which nodes follow from numbers alone: a compiler computes them.
pub(super) fn folded(program: &Program) -> Vec<bool> {
    let mut folded: Vec<bool> = Vec::with_capacity(program.nodes.len());
    for node in &program.nodes {
        let of_numbers = !node.args.is_empty() && node.args.iter().all(|&a| folded[a]);
        folded.push(matches!(node.op, Op::Num(_)) || of_numbers);
    }
    folded
}

/// The price of the program's own operations, whatever the rules make equal among them; each operation's source is
/// added to `sources`.
pub(super) fn price(
    program: &Program,
    model: &CostModel<'_>,
    sources: &mut BTreeMap<String, Provenance>,
) -> Result<Solution, MissingFigure> {
    let live = program.live();
    let folded = folded(program);
    let mut cost = Cost::default();
    let mut ready = vec![0.0f64; program.nodes.len()];
    for (i, node) in program.nodes.iter().enumerate().filter(|(i, _)| live[*i]) {
        let operands = node.args.iter().map(|&a| ready[a]).fold(0.0, f64::max);
        let from = node.args.first().map_or(Shape::Const, |&a| program.shapes[a]);
        ready[i] = operands;
        let number = |a: usize| matches!(program.nodes[a].op, Op::Num(_));
        let magnitude = |a: &&usize| program.nodes[**a].op == Op::Abs;
        if matches!(node.op, Op::Cvt(_)) {
            for &a in node.args.iter().filter(magnitude) {
                cost.add(&model.magnitude(program.shapes[a])?.cost, 1.0);
            }
        }
        let one = match node.op {
            _ if folded[i] => None,
            Op::Div if number(node.args[1]) => Some(model.division_by_number(program.shapes[i])?),
            op => model.node(op, from, program.shapes[i])?,
        };
        if let Some(one) = one {
            cost.add(&one.cost, 1.0);
            // What is computed once for the kernel is there before the first element.
            if program.shapes[i] > Shape::Const || model.constants_cost() {
                ready[i] += one.latency_cycles;
                sources.entry(node.op.name().to_owned()).or_insert(one.provenance);
            }
        }
    }
    let outputs: BTreeSet<usize> = program.outputs.iter().map(|&(_, node)| node).collect();
    for node in outputs.into_iter().filter(|&node| program.nodes[node].op == Op::Abs) {
        cost.add(&model.magnitude(program.shapes[node])?.cost, 1.0);
    }
    let chain = program.outputs.iter().map(|&(_, node)| ready[node]).fold(0.0, f64::max);
    let key = Key { busiest: cost.busiest(), issue_slots: cost.issue_slots, chain };
    Ok(Solution { chosen: Vec::new(), cost, key })
}
