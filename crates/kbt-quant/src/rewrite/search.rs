//! One search from end to end: graph, extraction, alternatives, proof, guards, replay.

use super::analysis::Use;
use super::baseline;
use super::decision;
use super::extract::{Found, Solution};
use super::extraction::Extraction;
use super::fate::{self, Fate, Proof};
use super::graph::{self, Saturated};
use super::node::ENode;
use super::replay::{self, Replay};
use super::rounding;
use super::rules::RULES;
use super::{Limits, SearchError, maximum};
use crate::cost::{Cost, CostModel};
use crate::lang::{Op, Program};
use egg::{Id, Symbol, TreeExplanation, TreeTerm};
use kbt_evidence::Provenance;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::rc::Rc;

/// A program with its predicted cost.
#[derive(Debug, Clone)]
pub struct Priced {
    /// The program.
    pub program: Program,
    /// How often each operation is done, an element. Reductions count the values they take.
    pub operations: BTreeMap<String, f64>,
    /// Its cost, an element.
    pub cost: Cost,
    /// Cycles from first input to last output along the longest dependence.
    pub chain_cycles: f64,
}

/// A cheaper program, and why it is the same.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The program and its cost.
    pub priced: Priced,
    /// The rules that lead to it, in the order of the proof.
    pub rules: Vec<String>,
    /// What must hold, or be kept in the code, for it to be the same.
    pub guards: Vec<String>,
    /// What became of each node of the program given.
    pub fates: Vec<Fate>,
    /// The comparison with the baseline.
    pub replay: Replay,
}

/// A rule that would have matched but whose condition fails.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The rule.
    pub rule: String,
    /// What it says.
    pub says: String,
    /// The condition that fails, and of what.
    pub because: String,
    /// The nodes of the program given that the rule would have rewritten, a division also where it was its reciprocal.
    pub nodes: BTreeSet<usize>,
}

/// No program of the graph is cheaper than this.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LowerBound {
    /// Cycles of the busiest pipe, an element.
    pub busiest_cycles: f64,
    /// Issue slots an element, among programs that reach that.
    pub issue_slots: f64,
    /// Whether the first candidate (or the baseline) reaches it: optimal within this graph.
    pub reached: bool,
    /// Whether every choice of terms was excluded or looked at; else the search for the cheapest was cut off.
    pub complete: bool,
}

/// The result of a search.
#[derive(Debug)]
pub struct Search {
    /// The program given.
    pub baseline: Priced,
    /// Cheaper programs, best first.
    pub candidates: Vec<Candidate>,
    /// Programs that the graph holds equal but that the replay does not.
    pub rejected: Vec<Candidate>,
    /// The bound.
    pub lower_bound: LowerBound,
    /// Rules that were refused.
    pub refused: Vec<Refusal>,
    /// What was not done, for want of steps.
    pub cut_off: Vec<String>,
    /// Terms and classes of the graph.
    pub terms: usize,
    /// Classes of equal terms.
    pub classes: usize,
    /// Rounds of rule application.
    pub iterations: usize,
    /// Whether the rules had nothing more to add: then 'within this graph' is 'under these rules'.
    pub saturated: bool,
    /// How each operation's cost is known.
    pub sources: BTreeMap<String, Provenance>,
}

/// Finds cheaper programs for what `program` computes, by `model`'s costs.
pub fn search(program: &Program, model: &CostModel<'_>, limits: &Limits) -> Result<Search, SearchError> {
    let given = program;
    let (program, moved) = baseline::used(given);
    let program = &program;
    let mut sources = BTreeMap::new();
    let base = baseline::price(program, model, &mut sources)?;
    let mut graph = graph::saturate(program, limits)?;
    let mut extraction = Extraction::new(&graph, model);
    sources.append(&mut extraction.sources);
    extraction.problem.prune();
    let steps = steps(&extraction, limits);
    let found = extraction.problem.solve(&[], None, steps);
    let mut solutions = alternatives(&extraction, &found, steps);
    solutions.retain(|s| s.key.beats(&base.key));
    let baseline = priced(given.clone(), &base, model);
    let reference = graph::rec_expr(program);
    let (mut candidates, mut rejected) = (Vec::new(), Vec::new());
    // A choice of terms that is no program: the bound is not known to be reached.
    let mut lost = false;
    let mut values = limits.values;
    let mut cut_off: Vec<String> = Vec::new();
    for (n, solution) in solutions.iter().enumerate() {
        if n > 0 && values < limits.values / 8 {
            cut_off.push(format!("{} cheaper programs were not looked at", solutions.len() - n));
            break;
        }
        if candidates.len() >= limits.candidates {
            break;
        }
        let Some(rebuilt) = extraction.program(&graph, program, solution) else {
            lost = true;
            continue;
        };
        let mut priced = priced(rebuilt, solution, model);
        for name in baseline.operations.keys() {
            priced.operations.entry(name.clone()).or_insert(0.0);
        }
        let explanation = graph.egraph.explain_equivalence(&reference, &graph::rec_expr(&priced.program));
        let rules = rule_names(&explanation.explanation_trees);
        let fates = Proof::new(&graph, &explanation.explanation_trees);
        let fates = fates.fates(&graph, program, &priced.program);
        let fates = moved.iter().map(|at| at.map(|at| fates[at].clone()).unwrap_or_default()).collect();
        let rounded = rounding::rounded(&graph, program, &priced.program);
        let mut guards = guards(&graph, program, &priced.program, &rules);
        guards.extend(rounding::guards(&priced.program, &rounded));
        guards.extend(decision::guards(program, &priced.program));
        rounding::widen(program, &mut priced.program, &rounded);
        let within: Vec<usize> = rounded.iter().map(|r| r.node).collect();
        // What one does not use is left to the next.
        let mut own = values / 2;
        let before = own;
        let replay = replay::replay_within(program, &priced.program, &within, rounding::MOST, &mut own);
        values -= before - own;
        let candidate = Candidate { priced, rules, guards, fates, replay };
        if candidate.replay.holds() { candidates.push(candidate) } else { rejected.push(candidate) }
    }
    let lower_bound = match (&found.best, found.complete) {
        (Some(best), true) => {
            let key = if base.key.beats(&best.key) { base.key } else { best.key };
            LowerBound {
                busiest_cycles: key.busiest,
                issue_slots: key.issue_slots,
                reached: rejected.is_empty() && !lost,
                complete: true,
            }
        }
        _ => LowerBound {
            busiest_cycles: found.bound.busiest,
            issue_slots: found.bound.issue_slots,
            reached: false,
            complete: found.complete,
        },
    };
    let mut programs = vec![program];
    programs.extend(candidates.first().map(|c| &c.priced.program));
    let refused = refusals(&graph, &programs, &moved);
    Ok(Search {
        baseline,
        candidates,
        rejected,
        lower_bound,
        refused,
        cut_off,
        terms: graph.egraph.total_number_of_nodes(),
        classes: graph.egraph.number_of_classes(),
        iterations: graph.iterations,
        saturated: graph.saturated,
        sources,
    })
}

/// A step of the extraction looks at all classes: in a graph of more than this many there are fewer steps for as long.
const CLASSES: usize = 256;
/// What all alternatives together may take, as a multiple of what the best may.
const ALTERNATIVES: usize = 4;

fn steps(extraction: &Extraction, limits: &Limits) -> usize {
    (limits.steps * CLASSES / extraction.problem.classes.len().max(CLASSES)).max(1)
}

/// The best solution and those that do without one of its terms each, best first, each mix of costs once.
fn alternatives(extraction: &Extraction, found: &Found, steps: usize) -> Vec<Solution> {
    let Some(best) = &found.best else { return Vec::new() };
    let mut all = vec![best.clone()];
    let mut left = steps * ALTERNATIVES;
    for (class, chosen) in best.chosen.iter().enumerate() {
        let Some(choice) = chosen.map(|k| &extraction.problem.classes[class][k]) else { continue };
        if choice.cost.issue_slots == 0.0 {
            continue;
        }
        let other = extraction.problem.solve(&[(class, choice.tag)], None, steps.min(left));
        left = left.saturating_sub(other.steps);
        all.extend(other.best);
        if left == 0 {
            break;
        }
    }
    all.sort_by(|a, b| {
        let key = |s: &Solution| (s.key.busiest, s.key.issue_slots, s.key.chain);
        let ((a1, a2, a3), (b1, b2, b3)) = (key(a), key(b));
        a1.total_cmp(&b1).then(a2.total_cmp(&b2)).then(a3.total_cmp(&b3))
    });
    let mut distinct: Vec<Solution> = Vec::new();
    for solution in all {
        let same = |s: &Solution| !s.key.beats(&solution.key) && !solution.key.beats(&s.key);
        if !distinct.iter().any(same) {
            distinct.push(solution);
        }
    }
    distinct
}

fn priced(program: Program, solution: &Solution, model: &CostModel<'_>) -> Priced {
    let live = program.live();
    let mut operations: BTreeMap<String, f64> = BTreeMap::new();
    let folded = baseline::folded(&program);
    for (i, node) in program.nodes.iter().enumerate().filter(|(i, _)| live[*i] && !folded[*i]) {
        let shape = match node.op {
            Op::Num(_) | Op::Input(_) | Op::Neg | Op::Abs | Op::Out => continue,
            Op::GroupMax | Op::GroupSum | Op::LaneSum | Op::RowMax | Op::RowSum => {
                program.shapes[node.args[0]]
            }
            _ => program.shapes[i],
        };
        if model.times(shape) > 0.0 {
            *operations.entry(node.op.name().to_owned()).or_default() += model.times(shape);
        }
    }
    Priced { program, operations, cost: solution.cost, chain_cycles: solution.key.chain }
}

/// The names of the rules in a proof, each once, in the order in which the proof meets them.
fn rule_names(trees: &TreeExplanation<ENode>) -> Vec<String> {
    fn walk(
        trees: &TreeExplanation<ENode>,
        seen: &mut HashSet<*const TreeTerm<ENode>>,
        names: &mut Vec<Symbol>,
    ) {
        for term in trees {
            if !seen.insert(Rc::as_ptr(term)) {
                continue;
            }
            for rule in [term.forward_rule, term.backward_rule].into_iter().flatten() {
                if !names.contains(&rule) {
                    names.push(rule);
                }
            }
            for child in &term.child_proofs {
                walk(child, seen, names);
            }
        }
    }
    let mut names = Vec::new();
    walk(trees, &mut HashSet::new(), &mut names);
    // Changes of order are no insight.
    let trivial = |name: &&Symbol| !name.as_str().ends_with("-commutes");
    names.iter().filter(trivial).map(|name| name.as_str().to_owned()).collect()
}

/// How classes are called: the names and texts of nodes in the programs at hand.
fn describe(graph: &Saturated, programs: &[&Program], id: Id) -> Option<String> {
    let id = graph.egraph.find(id);
    for program in programs {
        let ids = graph.locate(program);
        let at = ids.iter().position(|found| *found == Some(id));
        if let Some(node) = at {
            return Some(program.expression(node, false));
        }
    }
    graph.smallest(id).map(|program| program.expression(program.outputs[0].1, false))
}

/// What the candidate rests on: the author's promises, the declared inputs, the clamps that keep a value finite, and
/// signs. Conditions that follow from these are not repeated.
fn guards(graph: &Saturated, baseline: &Program, candidate: &Program, rules: &[String]) -> Vec<String> {
    let mut guards: Vec<String> = Vec::new();
    for a in &baseline.assumptions {
        guards.push(format!("assumed: {} in {}", baseline.expression(a.node, true), a.range));
    }
    let located = graph.locate(candidate);
    let mut needed: BTreeMap<usize, BTreeMap<String, BTreeSet<&str>>> = BTreeMap::new();
    for used in &graph.egraph.analysis.granted {
        let rule = RULES[used.rule].name;
        let subject = graph.egraph.find(used.subject);
        let at = located.iter().position(|id| *id == Some(subject));
        if let Some(node) = at.filter(|_| rules.iter().any(|r| r == rule)) {
            needed.entry(node).or_default().entry(used.need.to_string()).or_default().insert(rule);
        }
    }
    for (i, node) in candidate.nodes.iter().enumerate() {
        let Op::Input(input) = node.op else { continue };
        let input = &candidate.inputs[input as usize];
        let needs = needed.get(&i).into_iter().flatten();
        let needs: Vec<String> = needs.map(|(need, rules)| format!("; {need} ({})", join(rules))).collect();
        guards.push(format!("declared: {} in {}{}", input.name, input.range, needs.concat()));
    }
    for (i, node) in candidate.nodes.iter().enumerate() {
        let number = |a: &usize| matches!(candidate.nodes[*a].op, Op::Num(_));
        let clamp = node.op == Op::Max && node.args.iter().any(number);
        let Some(needs) = needed.get(&i).filter(|_| clamp) else { continue };
        let text = candidate.expression(i, true);
        for (need, rules) in needs {
            guards.push(format!("keep the clamp {text}: it {need} ({})", join(rules)));
        }
    }
    guards
}

fn join(words: &BTreeSet<&str>) -> String {
    words.iter().copied().collect::<Vec<_>>().join(", ")
}

/// What would bound an exponent that a class of the program given is computed from.
fn guard(graph: &Saturated, given: &Program, subject: Id) -> Option<String> {
    let node = graph.locate(given).iter().position(|id| *id == Some(subject))?;
    let known = maximum::intervals(given);
    let mut needed = vec![false; node + 1];
    needed[node] = true;
    for i in (0..=node).rev() {
        for &a in given.nodes[i].args.iter().take(if needed[i] { usize::MAX } else { 0 }) {
            needed[a] = true;
        }
    }
    let exponent = |i: usize| (given.nodes[i].op == Op::Exp2).then(|| given.nodes[i].args[0]);
    (0..=node).filter(|&i| needed[i]).find_map(|i| {
        let exponent = exponent(i)?;
        let guard = maximum::missing(given, exponent, &known)?;
        Some(format!("; {} is at most 0 if {guard}", given.expression(exponent, false)))
    })
}

/// `moved` says where the nodes of the program given are in the one that the graph was made of.
fn refusals(graph: &Saturated, programs: &[&Program], moved: &[Option<usize>]) -> Vec<Refusal> {
    let analysis = &graph.egraph.analysis;
    let canonical = |used: &Use| Use { subject: graph.egraph.find(used.subject), ..*used };
    let granted: BTreeSet<Use> = analysis.granted.iter().map(canonical).collect();
    let refused: BTreeSet<Use> = analysis.refused.iter().map(canonical).collect();
    let mut at: BTreeMap<Use, BTreeSet<Id>> = BTreeMap::new();
    for (used, classes) in &analysis.refused_at {
        at.entry(canonical(used)).or_default().extend(classes.iter().map(|id| graph.egraph.find(*id)));
    }
    let mut out: BTreeMap<(String, String), Refusal> = BTreeMap::new();
    for used in refused.difference(&granted) {
        let rule = &RULES[used.rule];
        let Some(text) = describe(graph, programs, used.subject) else { continue };
        let interval = graph.egraph[used.subject].data.interval;
        let bounded =
            programs.first().and_then(|given| guard(graph, given, used.subject)).unwrap_or_default();
        let because = format!("{text} {}: it may be anything in {interval}{bounded}", used.need);
        let classes = &at[used];
        let here = |node: usize| classes.iter().any(|id| fate::places(graph, programs[0], node).contains(id));
        let nodes = (0..moved.len()).filter(|&i| moved[i].is_some_and(here));
        let (name, says) = (rule.name.to_owned(), rule.says.to_owned());
        let known = out.entry((name.clone(), because.clone()));
        let refusal = known.or_insert_with(|| Refusal { rule: name, says, because, nodes: BTreeSet::new() });
        refusal.nodes.extend(nodes);
    }
    out.into_values().collect()
}
