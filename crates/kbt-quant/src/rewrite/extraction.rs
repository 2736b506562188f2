//! From a saturated graph to the extraction problem, and from its solutions back to programs.

use super::analysis::Graph;
use super::extract::{Choice, Problem, Solution};
use super::graph::{Saturated, free_terms};
use super::node::ENode;
use crate::cost::{Cost, CostModel, OpCost};
use crate::lang::{Assumption, Op, Program, Shape};
use egg::{Id, Language};
use kbt_device::MissingFigure;
use kbt_evidence::Provenance;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The extraction problem of a graph, and how its numbers relate to classes.
pub(super) struct Extraction {
    pub(super) problem: Problem,
    /// The classes of each number of the problem: one, and its negative where the graph has it, as a sign costs
    /// nothing.
    ids: Vec<Vec<Id>>,
    index: HashMap<Id, usize>,
    /// Class and place of each term that a choice's tag stands for.
    terms: Vec<(Id, usize)>,
    /// Terms of classes that cost nothing: constants, and what is computed once for the kernel where that costs nothing.
    free: HashMap<Id, ENode>,
    /// The provenance of each operation's cost.
    pub(super) sources: BTreeMap<String, Provenance>,
}

impl Extraction {
    /// Prices every term of the graph. Terms whose cost the device's profile lacks are left out.
    pub(super) fn new(graph: &Saturated, model: &CostModel<'_>) -> Self {
        let egraph = &graph.egraph;
        let mut this = Self {
            problem: Problem { classes: Vec::new(), root: 0 },
            ids: Vec::new(),
            index: HashMap::new(),
            terms: Vec::new(),
            free: free_terms(egraph, model.constants_cost()),
            sources: BTreeMap::new(),
        };
        let negatives = negatives(egraph);
        this.number(egraph.find(graph.root), &negatives);
        let mut next = 0;
        while next < this.ids.len() {
            let mut choices = Vec::new();
            for id in this.ids[next].clone() {
                this.choices(egraph, id, &negatives, model, &mut choices);
            }
            this.problem.classes.push(choices);
            next += 1;
        }
        this
    }

    fn number(&mut self, id: Id, negatives: &HashMap<Id, Vec<Id>>) -> usize {
        if let Some(&i) = self.index.get(&id) {
            return i;
        }
        let number = self.ids.len();
        let mut family = vec![id];
        let mut next = 0;
        while let Some(at) = family.get(next) {
            for other in negatives.get(at).into_iter().flatten() {
                if !family.contains(other) && !self.free.contains_key(other) {
                    family.push(*other);
                }
            }
            next += 1;
        }
        for member in &family {
            self.index.insert(*member, number);
        }
        self.ids.push(family);
        number
    }

    fn choices(
        &mut self,
        egraph: &Graph,
        id: Id,
        negatives: &HashMap<Id, Vec<Id>>,
        model: &CostModel<'_>,
        choices: &mut Vec<Choice>,
    ) {
        let class = &egraph[id];
        for (place, node) in class.nodes.iter().enumerate().filter(|(_, node)| node.op != Op::Neg) {
            let shapes: Vec<Shape> = node.children().iter().map(|c| egraph[*c].data.shape).collect();
            let shape = class.data.shape;
            // A reduction over elements of which all turned out to be equal has no term that says how many they are.
            let counted = !node.op.is_reduction()
                || node.children().iter().all(|c| egraph[*c].data.shape == egraph[*c].data.widest);
            let fits =
                counted && (matches!(node.op, Op::Out | Op::Input(_)) || node.op.shape(&shapes) == Ok(shape));
            let from = shapes.first().copied().unwrap_or(Shape::Const);
            let Some(cost) = fits.then(|| price(egraph, node, from, shape, model).ok()).flatten() else {
                continue;
            };
            let mut needs: Vec<usize> = Vec::new();
            for child in node.children() {
                let child = egraph.find(*child);
                if !self.free.contains_key(&child) {
                    let number = self.number(child, negatives);
                    if !needs.contains(&number) {
                        needs.push(number);
                    }
                }
            }
            if let Some(known) = &cost {
                self.sources.entry(node.op.name().to_owned()).or_insert_with(|| known.provenance.clone());
            }
            let (cost, latency) = cost.map_or((Cost::default(), 0.0), |c| (c.cost, c.latency_cycles));
            choices.push(Choice { tag: self.terms.len(), needs, cost, latency });
            self.terms.push((id, place));
        }
    }

    /// A solution as a program. Names of the original are kept where a class has one.
    pub(super) fn program(
        &self,
        graph: &Saturated,
        original: &Program,
        solution: &Solution,
    ) -> Option<Program> {
        let mut out = Program::new(original.layout, original.inputs.clone());
        let mut done: HashMap<Id, usize> = HashMap::new();
        let root = self.term(graph, solution, graph.egraph.find(graph.root))?;
        for (id, (name, _)) in root.children().iter().zip(&original.outputs) {
            let node = self.place(graph, solution, graph.egraph.find(*id), &mut out, &mut done, 0)?;
            out.outputs.push((name.clone(), node));
        }
        for (name, node) in &original.names {
            let id = graph.egraph.find(graph.nodes[*node]);
            let input = original.inputs.iter().any(|i| i.name == *name);
            if let Some(&at) = done.get(&id).filter(|&&at| !input || matches!(out.nodes[at].op, Op::Input(_)))
            {
                out.names.push((name.clone(), at));
            }
        }
        for assumption in &original.assumptions {
            let id = graph.egraph.find(graph.nodes[assumption.node]);
            if let Some(&node) = done.get(&id) {
                out.assumptions.push(Assumption { node, range: assumption.range });
            }
        }
        Some(out.with_names_for_shared())
    }

    fn term(&self, graph: &Saturated, solution: &Solution, id: Id) -> Option<ENode> {
        if let Some(node) = self.free.get(&id) {
            return Some(node.clone());
        }
        let number = *self.index.get(&id)?;
        let choice = self.problem.classes[number].get(solution.chosen[number]?)?;
        let (owner, place) = self.terms[choice.tag];
        if owner == id {
            return graph.egraph[id].nodes.get(place).cloned();
        }
        // The value is there with the other sign.
        graph.egraph[id]
            .nodes
            .iter()
            .find(|n| n.op == Op::Neg && graph.egraph.find(n.args[0]) == owner)
            .cloned()
    }

    fn place(
        &self,
        graph: &Saturated,
        solution: &Solution,
        id: Id,
        out: &mut Program,
        done: &mut HashMap<Id, usize>,
        depth: usize,
    ) -> Option<usize> {
        if let Some(&at) = done.get(&id) {
            return Some(at);
        }
        // A solution has no cycles; the depth only guards against a mistake.
        if depth > 10_000 {
            return None;
        }
        let node = self.term(graph, solution, id)?;
        let args: Option<Vec<usize>> = node
            .children()
            .iter()
            .map(|c| self.place(graph, solution, graph.egraph.find(*c), out, done, depth + 1))
            .collect();
        let at = out.push(node.op, args?).ok()?;
        done.insert(id, at);
        Some(at)
    }
}

/// What a term costs: a division by a number less than another, and |a| something where its consumer takes none.
fn price(
    egraph: &Graph,
    node: &ENode,
    from: Shape,
    shape: Shape,
    model: &CostModel<'_>,
) -> Result<Option<OpCost>, MissingFigure> {
    let number = |id: Id| egraph[id].data.constant.is_some();
    let mut cost = match node.op {
        Op::Div if number(node.args[1]) => Some(model.division_by_number(shape)?),
        op => model.node(op, from, shape)?,
    };
    if matches!(node.op, Op::Cvt(_) | Op::Out) {
        let only_magnitude = |id: &Id| {
            let mut terms = egraph[*id].nodes.iter().filter(|n| n.op != Op::Neg).peekable();
            terms.peek().is_some() && terms.all(|n| n.op == Op::Abs)
        };
        let of: BTreeSet<Id> = node.args.iter().map(|a| egraph.find(*a)).filter(only_magnitude).collect();
        for id in of {
            let one = model.magnitude(egraph[id].data.shape)?;
            match &mut cost {
                Some(cost) => cost.cost.add(&one.cost, 1.0),
                None => cost = Some(one),
            }
        }
    }
    Ok(cost)
}

/// The classes that are each class's negative.
fn negatives(egraph: &Graph) -> HashMap<Id, Vec<Id>> {
    let mut found: HashMap<Id, Vec<Id>> = HashMap::new();
    for class in egraph.classes() {
        for node in class.nodes.iter().filter(|n| n.op == Op::Neg) {
            let (a, b) = (egraph.find(class.id), egraph.find(node.args[0]));
            found.entry(a).or_default().push(b);
            found.entry(b).or_default().push(a);
        }
    }
    found
}
