//! What became of each computation of the program given in a candidate: by the program that was extracted and by the proof,
//! so that no rule that served another place is counted.

use super::graph::Saturated;
use super::node::ENode;
use crate::lang::{Op, Program};
use egg::{Id, Symbol, TreeExplanation, TreeTerm};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// What became of one computation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fate {
    /// The candidate's node that has the value, unless none has.
    pub node: Option<usize>,
    /// Whether that node computes it in another way, or nothing computes it.
    pub changed: bool,
    /// The rules that the proof applies to it, or to the reciprocal of what it divides by.
    pub rules: BTreeSet<String>,
}

/// The classes in which a rule rewrites a node of the program that the graph was made of: its own, and of a division that of the
/// reciprocal of what it divides by.
pub(super) fn places(graph: &Saturated, program: &Program, node: usize) -> Vec<Id> {
    let class = |node: usize| graph.egraph.find(graph.nodes[node]);
    let own = &program.nodes[node];
    let mut places = vec![class(node)];
    if own.op == Op::Div {
        let inverse = graph.egraph.lookup(ENode::new(Op::Rcp, [class(own.args[1])]));
        places.extend(inverse.map(|id| graph.egraph.find(id)));
    }
    places
}

/// Where a proof applies which rules.
pub(super) struct Proof {
    at: HashMap<Id, BTreeSet<Symbol>>,
}

impl Proof {
    pub(super) fn new(graph: &Saturated, trees: &TreeExplanation<ENode>) -> Self {
        let mut this = Self { at: HashMap::new() };
        let mut known = HashMap::new();
        for term in trees {
            this.walk(graph, term, &mut known);
        }
        this
    }

    /// The class of a term, which all terms of its proof share.
    fn walk(
        &mut self,
        graph: &Saturated,
        term: &Rc<TreeTerm<ENode>>,
        known: &mut HashMap<*const TreeTerm<ENode>, Option<Id>>,
    ) -> Option<Id> {
        if let Some(class) = known.get(&Rc::as_ptr(term)) {
            return *class;
        }
        let mut args = Vec::with_capacity(term.child_proofs.len());
        for proof in &term.child_proofs {
            let classes: Vec<Option<Id>> = proof.iter().map(|t| self.walk(graph, t, known)).collect();
            args.push(classes.into_iter().flatten().next());
        }
        let args: Option<Vec<Id>> = args.into_iter().collect();
        let class = args.and_then(|args| graph.egraph.lookup(ENode::new(term.node.op, args)));
        let class = class.map(|id| graph.egraph.find(id));
        known.insert(Rc::as_ptr(term), class);
        if let Some(class) = class {
            self.at
                .entry(class)
                .or_default()
                .extend([term.forward_rule, term.backward_rule].into_iter().flatten());
        }
        class
    }

    /// What became of each node of the program that the graph was made of.
    pub(super) fn fates(&self, graph: &Saturated, program: &Program, candidate: &Program) -> Vec<Fate> {
        let live = candidate.live();
        let mut nodes: HashMap<Id, usize> = HashMap::new();
        for (i, id) in graph.locate(candidate).into_iter().enumerate().filter(|(i, _)| live[*i]) {
            if let Some(id) = id {
                nodes.entry(id).or_insert(i);
            }
        }
        let class = |node: usize| graph.egraph.find(graph.nodes[node]);
        let there = graph.locate(candidate);
        let one = |i: usize| {
            let own = &program.nodes[i];
            let node = nodes.get(&class(i)).copied();
            let changed = node.is_none_or(|n| {
                let now = &candidate.nodes[n];
                let have: Vec<Option<Id>> = own.args.iter().map(|&a| Some(class(a))).collect();
                let has: Vec<Option<Id>> = now.args.iter().map(|&a| there[a]).collect();
                let turned =
                    matches!(now.op, Op::Add | Op::Mul | Op::Max) && has.iter().rev().eq(have.iter());
                now.op != own.op || (has != have && !turned)
            });
            let places = places(graph, program, i);
            let rules = places.iter().filter_map(|place| self.at.get(place)).flatten();
            Fate { node, changed, rules: rules.map(|rule| rule.as_str().to_owned()).collect() }
        };
        (0..program.nodes.len()).map(one).collect()
    }
}
