//! From a program to a saturated e-graph.

use super::analysis::{Facts, Graph};
use super::deliberate::deliberate;
use super::node::ENode;
use super::rules;
use super::sample::{self, Mask, Rng, Size};
use super::{Limits, SearchError, maximum};
use crate::lang::eval::Extent;
use crate::lang::{Input, Layout, Op, Program, Shape};
use egg::{Id, Language, RecExpr, Runner, StopReason};
use std::cell::OnceCell;
use std::collections::HashMap;

/// A saturated graph and where the program lies in it.
pub(super) struct Saturated {
    pub(super) egraph: Graph,
    pub(super) root: Id,
    /// The class of each of the program's nodes.
    pub(super) nodes: Vec<Id>,
    pub(super) iterations: usize,
    /// Whether no rule had anything to add.
    pub(super) saturated: bool,
    layout: Layout,
    inputs: Vec<Input>,
    /// The smallest term of each class, once asked for.
    smallest: OnceCell<HashMap<Id, ENode>>,
}

/// The most elements of a group that fingerprints are taken of.
const ELEMENTS: u32 = 64;

/// Groups in a sampled row: a few, more where groups are small.
fn groups(program: &Program) -> usize {
    (16 / program.layout.group as usize).max(3)
}

/// Applies the rules to the program until nothing is new or a limit is met.
pub(super) fn saturate(program: &Program, limits: &Limits) -> Result<Saturated, SearchError> {
    let extent = Extent::new(sample::layout(program.layout, ELEMENTS), groups(program));
    let mut rng = Rng::new(0x6b62_7421);
    // Several of each kind: a constant has one value a sample, and both its signs should occur.
    let samples = [Mask::None, Mask::Some, Mask::None, Mask::Some, Mask::None, Mask::None]
        .into_iter()
        .map(|mask| {
            sample::inputs(program, extent, Size::Usual, mask, &mut rng).ok_or(SearchError::Assumptions)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let facts = Facts::new(program.clone(), extent, samples);
    let mut egraph = Graph::new(facts).with_explanations_enabled().without_explanation_length_optimization();
    let mut nodes: Vec<Id> = Vec::new();
    let deliberate = deliberate(program);
    let bounds = maximum::bounds(program);
    for (i, node) in program.nodes.iter().enumerate() {
        let args: Vec<Id> = node.args.iter().map(|&a| nodes[a]).collect();
        let id = egraph.add(ENode::new(node.op, args));
        let assumed = program.assumptions.iter().map(|a| (a.node, a.range));
        for (_, range) in assumed.chain(bounds.iter().copied()).filter(|(node, _)| *node == i) {
            let mut data = egraph[id].data.clone();
            data.interval = data.interval.within(range);
            egraph.set_analysis_data(id, data);
        }
        if deliberate[i] {
            let mut data = egraph[id].data.clone();
            data.deliberate = true;
            egraph.set_analysis_data(id, data);
        }
        nodes.push(id);
    }
    egraph.analysis.signed_zero = program.nodes.iter().any(|node| {
        let divisor = match node.op {
            Op::Rcp | Op::Rsqrt => node.args[0],
            Op::Div => node.args[1],
            _ => return false,
        };
        egraph[nodes[divisor]].data.interval.may_be_zero()
    });
    let outputs: Vec<Id> = program.outputs.iter().map(|&(_, n)| nodes[n]).collect();
    let root = egraph.add(ENode::new(Op::Out, outputs));
    egraph.rebuild();
    let rules = rules::rewrites().map_err(SearchError::Rules)?;
    let runner: Runner<ENode, Facts> = Runner::new(Facts::new(program.clone(), extent, Vec::new()))
        .with_egraph(egraph)
        .with_iter_limit(limits.iterations)
        .with_node_limit(limits.nodes)
        .with_time_limit(limits.time)
        .run(&rules);
    let mut runner = runner;
    negate_back(&mut runner.egraph);
    if let Some(m) = runner.egraph.analysis.mismatches.first() {
        return Err(SearchError::Unsound { left: m.left, right: m.right });
    }
    Ok(Saturated {
        saturated: matches!(runner.stop_reason, Some(StopReason::Saturated)),
        iterations: runner.iterations.len(),
        egraph: runner.egraph,
        layout: program.layout,
        inputs: program.inputs.clone(),
        smallest: OnceCell::new(),
        root,
        nodes,
    })
}

/// Where a value is the negative of another, that is its negative too: a sign costs nothing either way.
fn negate_back(egraph: &mut Graph) {
    let pairs: Vec<(Id, Id)> = egraph
        .classes()
        .flat_map(|class| {
            let negated = class.nodes.iter().filter(|n| n.op == Op::Neg);
            negated.map(|n| (class.id, n.args[0]))
        })
        .collect();
    for (class, of) in pairs {
        let back = egraph.add(ENode::new(Op::Neg, [class]));
        egraph.union_trusted(of, back, "neg-neg");
    }
    egraph.rebuild();
}

/// The smallest terms of classes that cost nothing to have: inputs, numbers, what is computed once unless `constants_cost`,
/// and the negative of any of these, a sign being a modifier of the operand.
pub(super) fn free_terms(egraph: &Graph, constants_cost: bool) -> HashMap<Id, ENode> {
    smallest_terms(egraph, |node, shape| {
        matches!(node.op, Op::Input(_) | Op::Num(_) | Op::Neg)
            || (shape == Shape::Const && node.op != Op::Out && !constants_cost)
    })
}

/// The smallest term of each class, as a tree, from the terms that `takes` accepts.
fn smallest_terms(egraph: &Graph, takes: impl Fn(&ENode, Shape) -> bool) -> HashMap<Id, ENode> {
    let mut sizes: HashMap<Id, (usize, ENode)> = HashMap::new();
    loop {
        let mut changed = false;
        for class in egraph.classes() {
            for node in class.nodes.iter().filter(|node| takes(node, class.data.shape)) {
                let size = node.children().iter().try_fold(1usize, |sum, c| {
                    sizes.get(&egraph.find(*c)).map(|(size, _)| sum.saturating_add(*size))
                });
                let Some(size) = size else { continue };
                let id = egraph.find(class.id);
                if sizes.get(&id).is_none_or(|(old, _)| size < *old) {
                    sizes.insert(id, (size, node.clone()));
                    changed = true;
                }
            }
        }
        if !changed {
            return sizes.into_iter().map(|(id, (_, node))| (id, node)).collect();
        }
    }
}

impl Saturated {
    /// The class of each node of a program that the graph knows.
    pub(super) fn locate(&self, program: &Program) -> Vec<Option<Id>> {
        let mut ids: Vec<Option<Id>> = Vec::new();
        for node in &program.nodes {
            let args: Option<Vec<Id>> = node.args.iter().map(|&a| ids[a]).collect();
            let id = args.and_then(|args| self.egraph.lookup(ENode::new(node.op, args)));
            ids.push(id.map(|id| self.egraph.find(id)));
        }
        ids
    }

    /// The smallest term of a class, as a program with that one output.
    pub(super) fn smallest(&self, id: Id) -> Option<Program> {
        let terms = self.smallest.get_or_init(|| smallest_terms(&self.egraph, |node, _| node.op != Op::Out));
        let mut out = Program::new(self.layout, self.inputs.clone());
        let node = self.write(terms, id, &mut out, &mut HashMap::new(), 0)?;
        out.outputs.push((String::new(), node));
        Some(out)
    }

    /// Each class once, however many terms share it.
    fn write(
        &self,
        terms: &HashMap<Id, ENode>,
        id: Id,
        out: &mut Program,
        written: &mut HashMap<Id, usize>,
        depth: usize,
    ) -> Option<usize> {
        let id = self.egraph.find(id);
        if let Some(&at) = written.get(&id) {
            return Some(at);
        }
        let node = terms.get(&id).filter(|_| depth < 1000)?;
        let args: Option<Vec<usize>> =
            node.children().iter().map(|c| self.write(terms, *c, out, written, depth + 1)).collect();
        let at = out.push(node.op, args?).ok()?;
        written.insert(id, at);
        Some(at)
    }
}

/// A program as one egg term.
pub(super) fn rec_expr(program: &Program) -> RecExpr<ENode> {
    let mut expr = RecExpr::default();
    for node in &program.nodes {
        expr.add(ENode::new(node.op, node.args.iter().map(|&a| Id::from(a)).collect::<Vec<_>>()));
    }
    let outputs: Vec<Id> = program.outputs.iter().map(|&(_, n)| Id::from(n)).collect();
    expr.add(ENode::new(Op::Out, outputs));
    expr
}
