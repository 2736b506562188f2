//! The rules, as data: pattern, replacement, and what must hold for it over f32's extended reals.
//!
//! No rule knows of quantisation or softmax. The log-domain form of a quantiser comes out of several of them.

mod arithmetic;
mod choice;
#[cfg(test)]
mod condition_tests;
mod magnitude;
mod reduction;
mod root;

use super::analysis::{Facts, Graph, Use};
pub(super) use super::need::Need;
use super::node::ENode;
use arithmetic::ARITHMETIC;
use choice::CHOICES;
use egg::{Applier, ENodeOrVar, Id, Language, Pattern, PatternAst, Rewrite, Subst, Symbol, Var};
use magnitude::MAGNITUDES;
use reduction::REDUCTIONS;
use root::ROOTS;
use std::fmt;
use std::sync::LazyLock;

/// One rule.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: &'static str,
    from: &'static str,
    /// What the variable `of` equals instead; `of` empty: the whole match.
    to: &'static str,
    of: &'static str,
    needs: &'static [(&'static str, Need)],
    /// What the rule says, for people.
    pub(super) says: &'static str,
}

const fn rule(
    name: &'static str,
    from: &'static str,
    to: &'static str,
    needs: &'static [(&'static str, Need)],
    says: &'static str,
) -> Rule {
    Rule { name, from, to, of: "", needs, says }
}

const fn inverse(
    name: &'static str,
    from: &'static str,
    of: &'static str,
    to: &'static str,
    needs: &'static [(&'static str, Need)],
    says: &'static str,
) -> Rule {
    Rule { name, from, to, of, needs, says }
}

/// Every rule. A rule's place here is its number.
pub(super) static RULES: LazyLock<Vec<&'static Rule>> =
    LazyLock::new(|| [ARITHMETIC, REDUCTIONS, ROOTS, CHOICES, MAGNITUDES].into_iter().flatten().collect());

/// Applies a rule where its needs hold, and keeps account of both.
struct Guarded {
    index: usize,
    needs: Vec<(Option<Var>, Need)>,
    to: Pattern<ENode>,
    of: Option<Var>,
    /// Whether it changes no more than the order of operands.
    reorders: bool,
    /// The variables that needs may name.
    variables: Vec<(&'static str, Var)>,
}

impl Applier<ENode, Facts> for Guarded {
    fn apply_one(
        &self,
        egraph: &mut Graph,
        class: Id,
        subst: &Subst,
        searcher: Option<&PatternAst<ENode>>,
        name: Symbol,
    ) -> Vec<Id> {
        let subject = |var: &Option<Var>| var.and_then(|v| subst.get(v).copied()).unwrap_or(class);
        // Where a rule means nothing there is nothing to refuse.
        let look = |name: &str| {
            self.variables.iter().find(|(n, _)| *n == name).and_then(|(_, v)| subst.get(*v).copied())
        };
        if self
            .needs
            .iter()
            .any(|(v, need)| need.is_applicability() && !need.holds(egraph, subject(v), &look))
        {
            return Vec::new();
        }
        let mut all = true;
        let deliberate = if self.reorders { None } else { deliberate(egraph, subst, searcher) };
        if let Some(subject) = deliberate {
            egraph.analysis.refuse(Use { rule: self.index, need: Need::NotDeliberate, subject }, class);
            all = false;
        }
        for (var, need) in self.needs.iter().filter(|(_, need)| !need.is_applicability()) {
            if need.is_moot(egraph) {
                continue;
            }
            let subject = subject(var);
            let used = Use { rule: self.index, need: *need, subject };
            if need.holds(egraph, subject, &look) {
                egraph.analysis.granted.insert(used);
            } else {
                egraph.analysis.refuse(used, class);
                all = false;
            }
        }
        match (all, self.of.and_then(|v| subst.get(v).copied())) {
            (false, _) => Vec::new(),
            (true, None) => self.to.apply_one(egraph, class, subst, searcher, name),
            (true, Some(of)) => {
                let instance = egraph.add_instantiation(&self.to.ast, subst);
                let merged = egraph.union_trusted(of, instance, name);
                if merged { vec![of] } else { Vec::new() }
            }
        }
    }
}

/// A sum among the operations of a match whose rounding the program uses.
fn deliberate(egraph: &Graph, subst: &Subst, searcher: Option<&PatternAst<ENode>>) -> Option<Id> {
    let mut ids: Vec<Option<Id>> = Vec::new();
    for node in searcher?.as_ref() {
        let id = match node {
            ENodeOrVar::Var(var) => subst.get(*var).copied(),
            ENodeOrVar::ENode(node) => {
                let args: Option<Vec<Id>> = node.children().iter().map(|c| ids[usize::from(*c)]).collect();
                let id = args.and_then(|args| egraph.lookup(ENode::new(node.op, args)));
                if let Some(id) = id.filter(|id| egraph[*id].data.deliberate) {
                    return Some(id);
                }
                id
            }
        };
        ids.push(id);
    }
    None
}

/// The rules as egg runs them. An error is a mistake in the table above.
pub(super) fn rewrites() -> Result<Vec<Rewrite<ENode, Facts>>, String> {
    RULES
        .iter()
        .enumerate()
        .map(|(index, rule)| {
            let fail = |e: &dyn fmt::Display| format!("rule {}: {e}", rule.name);
            let var = |text: &str| text.parse::<Var>().map_err(|e| fail(&format!("{e:?}")));
            let from: Pattern<ENode> = rule.from.parse().map_err(|e| fail(&e))?;
            let to: Pattern<ENode> = rule.to.parse().map_err(|e| fail(&e))?;
            let of = if rule.of.is_empty() { None } else { Some(var(rule.of)?) };
            let needs = rule
                .needs
                .iter()
                .map(|(name, need)| Ok((if *name == "?match" { None } else { Some(var(name)?) }, *need)))
                .collect::<Result<_, String>>()?;
            let names = ["?a", "?b", "?c", "?d"].into_iter();
            let variables = names.map(|name| Ok((name, var(name)?))).collect::<Result<_, String>>()?;
            let reorders = rule.name.ends_with("-commutes");
            Rewrite::new(rule.name, from, Guarded { index, needs, to, of, reorders, variables })
        })
        .collect()
}
