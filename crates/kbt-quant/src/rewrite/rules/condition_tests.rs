//! Every condition of every rule, as it is written here a second time: each rule's own pattern is a program whose inputs may
//! be anything, and there exactly these conditions are refused; and one whose inputs are harmless, and there the rule applies.

use super::super::analysis::{Facts, Graph};
use super::super::node::ENode;
use super::*;
use crate::lang::eval::Extent;
use crate::lang::{Input, Layout, Op, Program, Range, Shape};
use egg::{Runner, StopReason};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The conditions of a rule, without those that say where it applies.
fn conditions(rule: &Rule) -> Vec<String> {
    let all = rule.needs.iter().filter(|(_, need)| !need.is_applicability());
    all.map(|(var, need)| format!("{var} {need:?}")).collect()
}

/// The rules' conditions: of what, and which.
const CONDITIONS: &str = include_str!("conditions.txt");

#[test]
fn the_conditions_of_every_rule_are_those_that_are_written_down() {
    let mut shown = String::new();
    for rule in RULES.iter() {
        let all = conditions(rule);
        let _ = writeln!(
            shown,
            "{}: {}",
            rule.name,
            if all.is_empty() { "none".to_owned() } else { all.join("; ") }
        );
    }
    assert_eq!(shown, CONDITIONS);
}

/// A shape for each variable of a rule's pattern, such that it applies.
fn shape(rule: &Rule, var: &str) -> Shape {
    let of = |need: &Need| match need {
        Need::AtMost(shape) | Need::Exactly(shape) => Some(*shape),
        Need::Number => Some(Shape::Const),
        Need::RarerThanA | Need::NoMoreThanA => Some(Shape::Row),
        _ => None,
    };
    let least = rule.needs.iter().filter(|(v, _)| *v == var).filter_map(|(_, need)| of(need)).min();
    least.unwrap_or(Shape::Elem)
}

/// The graph of a rule's own pattern after that rule alone, over inputs in `range`, in a program that takes a reciprocal of
/// what may be zero.
fn applied(rule: &'static Rule, range: Range) -> Graph {
    let layout = Layout { group: 4, lanes: 1, row: 16 };
    let pattern: Pattern<ENode> = rule.from.parse().unwrap();
    let mut program = Program::new(layout, Vec::new());
    let is_number = |name: &str| rule.needs.iter().any(|(v, need)| *v == name && *need == Need::Number);
    let mut leaves: BTreeMap<String, ENode> = BTreeMap::new();
    for name in pattern.vars().into_iter().map(|var| var.to_string()) {
        let op = if is_number(&name) {
            Op::Num(range.lo.max(0.0).to_bits())
        } else {
            program.inputs.push(Input { name: name.clone(), shape: shape(rule, &name), range });
            Op::Input(program.inputs.len() as u32 - 1)
        };
        leaves.insert(name, ENode::new(op, []));
    }
    let facts = || Facts::new(program.clone(), Extent::new(layout, 4), Vec::new());
    let mut egraph = Graph::new(facts()).with_explanations_enabled();
    let mut ids: Vec<Id> = Vec::new();
    for term in pattern.ast.as_ref() {
        let node = match term {
            ENodeOrVar::Var(var) => leaves[&var.to_string()].clone(),
            ENodeOrVar::ENode(node) => {
                ENode::new(node.op, node.args.iter().map(|id| ids[usize::from(*id)]).collect::<Vec<_>>())
            }
        };
        ids.push(egraph.add(node));
    }
    // An infinite range stands for NaN too.
    for id in ids.iter().copied().filter(|_| range.lo == f64::NEG_INFINITY) {
        if egraph[id].nodes.iter().any(|n| matches!(n.op, Op::Input(_))) {
            let mut data = egraph[id].data.clone();
            data.interval.nan = true;
            egraph.set_analysis_data(id, data);
        }
    }
    egraph.analysis.signed_zero = true;
    egraph.rebuild();
    let index = RULES.iter().position(|r| r.name == rule.name).unwrap();
    let one = rewrites().unwrap().remove(index);
    let runner: Runner<ENode, Facts> =
        Runner::new(facts()).with_egraph(egraph).with_iter_limit(1).run(&[one]);
    assert!(!matches!(runner.stop_reason, Some(StopReason::TimeLimit(_))));
    runner.egraph
}

/// The conditions that were refused, or granted, in the order of the rule's.
fn of(rule: &Rule, uses: &std::collections::BTreeSet<Use>) -> Vec<String> {
    let all = rule.needs.iter().filter(|(_, need)| !need.is_applicability());
    let there = |need: &Need| uses.iter().any(|u| u.need == *need && RULES[u.rule].name == rule.name);
    all.filter(|(_, need)| there(need)).map(|(var, need)| format!("{var} {need:?}")).collect()
}

#[test]
fn where_anything_is_possible_every_condition_is_refused() {
    let anything = Range { lo: f64::NEG_INFINITY, hi: f64::INFINITY };
    for rule in RULES.iter().filter(|rule| !conditions(rule).is_empty()) {
        let graph = applied(rule, anything);
        let refused = of(rule, &graph.analysis.refused);
        let missed: Vec<String> = conditions(rule).into_iter().filter(|c| !refused.contains(c)).collect();
        assert_eq!(missed, Vec::<String>::new(), "{}: {:?}", rule.name, graph.analysis.granted);
    }
}

#[test]
fn where_everything_is_harmless_every_rule_applies() {
    let harmless = Range { lo: 0.75, hi: 1.0 };
    for rule in RULES.iter() {
        let graph = applied(rule, harmless);
        assert_eq!(of(rule, &graph.analysis.refused), Vec::<String>::new(), "{}", rule.name);
        assert_eq!(of(rule, &graph.analysis.granted), conditions(rule), "{}", rule.name);
    }
}
