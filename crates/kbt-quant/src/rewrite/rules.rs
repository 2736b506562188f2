//! The rules, as data: pattern, replacement, and what must hold for it over f32's extended reals.
//!
//! No rule knows of quantisation or softmax. The log-domain form of a quantiser comes out of several of them.

use super::analysis::{Facts, Graph, Use};
pub(super) use super::need::Need;
use super::node::ENode;
use super::rules_choice::CHOICES;
use super::rules_root::ROOTS;
use crate::lang::{Op, Shape};
use egg::{Applier, ENodeOrVar, Id, Language, Pattern, PatternAst, Rewrite, Subst, Symbol, Var};
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

pub(super) const fn rule(
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

use Need::{
    AddendOf, AtMost, Exactly, ExpInRange, ExpKept, Finite, FinitePlus, FiniteSum, FiniteTimes, Invertible,
    KeptBeside, NormalTimes, NotMinusZero, NotMinute, NotNegative, NotZero, Number, OuterFactor, PlusKept,
    Positive, ProductKept, RarerThanA,
};
use Shape::{Elem, Group, Row};

/// Every rule. A rule's place here is its number.
pub(super) static RULES: LazyLock<Vec<&'static Rule>> =
    LazyLock::new(|| ALGEBRA.iter().chain(ROOTS).chain(CHOICES).collect());

/// Sums, products, exponentials, logarithms and reductions.
const ALGEBRA: &[Rule] = &[
    // Order of operands.
    rule("add-commutes", "(add ?a ?b)", "(add ?b ?a)", &[], "a + b = b + a"),
    rule("mul-commutes", "(mul ?a ?b)", "(mul ?b ?a)", &[], "a b = b a"),
    rule("max-commutes", "(max ?a ?b)", "(max ?b ?a)", &[], "max(a, b) = max(b, a)"),
    rule("fma-commutes", "(fma ?a ?b ?c)", "(fma ?b ?a ?c)", &[], "a b + c = b a + c"),
    // Negation.
    rule("neg-neg", "(neg (neg ?a))", "?a", &[], "-(-a) = a"),
    rule("neg-add", "(neg (add ?a ?b))", "(add (neg ?a) (neg ?b))", &[], "-(a + b) = -a - b"),
    rule("neg-mul", "(mul (neg ?a) ?b)", "(neg (mul ?a ?b))", &[], "(-a) b = -(a b)"),
    // Neutral elements.
    rule("add-zero", "(add ?a 0)", "?a", &[("?a", NotMinusZero)], "a + 0 = a"),
    rule("exp2-add-zero", "(exp2 (add ?a 0))", "(exp2 ?a)", &[], "2^(a + 0) = 2^a"),
    rule("mul-one", "(mul ?a 1)", "?a", &[], "1 a = a"),
    rule("opposites", "(add ?a (neg ?a))", "0", &[("?a", Finite)], "a - a = 0"),
    rule("cancel", "(add (add ?a ?b) (neg ?b))", "?a", &[("?b", Finite)], "a + b - b = a"),
    rule("cancel-neg", "(add (add ?a (neg ?b)) ?b)", "?a", &[("?b", Finite)], "a - b + b = a"),
    // Division and reciprocal.
    rule("div-to-rcp", "(div ?a ?b)", "(mul ?a (rcp ?b))", &[("?b", Invertible)], "a / b = a (1/b)"),
    rule("inverses", "(mul ?a (rcp ?a))", "1", &[("?a", Invertible)], "a (1/a) = 1"),
    rule("rcp-exp2", "(rcp (exp2 ?a))", "(exp2 (neg ?a))", &[("?a", ExpInRange)], "1 / 2^a = 2^-a"),
    inverse(
        "undo-div",
        "(div ?a ?b)",
        "?a",
        "(mul (div ?a ?b) ?b)",
        &[
            ("?a", Finite),
            ("?b", Invertible),
            ("?match", Finite),
            ("?match", KeptBeside("?b")),
            ("?b", AtMost(Group)),
        ],
        "a = (a / b) b",
    ),
    inverse(
        "undo-mul",
        "(mul ?a ?b)",
        "?a",
        "(mul (mul ?a ?b) (rcp ?b))",
        &[
            ("?b", Number),
            ("?a", Exactly(Elem)),
            ("?b", Invertible),
            ("?b", NotMinute),
            ("?match", Finite),
            ("?a", Finite),
        ],
        "a = (a k) (1/k)",
    ),
    inverse(
        "undo-mul-rcp",
        "(mul ?a (rcp ?b))",
        "?a",
        "(mul (mul ?a (rcp ?b)) ?b)",
        &[
            ("?a", Finite),
            ("?b", Invertible),
            ("?match", Finite),
            ("?match", KeptBeside("?b")),
            ("?b", AtMost(Group)),
        ],
        "a = (a (1/b)) b",
    ),
    // Exponentials and logarithms.
    rule(
        "exp2-absorbs-factor",
        "(mul (exp2 ?a) ?b)",
        "(exp2 (add ?a (log2 ?b)))",
        &[("?b", AtMost(Group)), ("?b", Positive), ("?a", ExpKept("?b")), ("?match", Finite)],
        "2^a b = 2^(a + log2 b)",
    ),
    rule("log2-exp2", "(log2 (exp2 ?a))", "?a", &[("?a", ExpInRange)], "log2 2^a = a"),
    rule(
        "log2-rcp",
        "(log2 (rcp ?a))",
        "(neg (log2 ?a))",
        &[("?a", Invertible), ("?a", Positive)],
        "log2 (1/a) = -log2 a",
    ),
    rule("exp2-log2", "(exp2 (log2 ?a))", "?a", &[("?a", Positive)], "2^(log2 a) = a"),
    rule(
        "exp2-split",
        "(exp2 (add ?a ?b))",
        "(mul (exp2 ?a) (exp2 ?b))",
        &[("?b", AtMost(Row)), ("?a", Exactly(Elem)), ("?a", ExpInRange), ("?b", ExpInRange)],
        "2^(a + b) = 2^a 2^b",
    ),
    // Monotone functions and maxima.
    rule("max-exp2", "(max (exp2 ?a) (exp2 ?b))", "(exp2 (max ?a ?b))", &[], "max(2^a, 2^b) = 2^max(a, b)"),
    rule(
        "max-exp2-bound",
        "(max (exp2 ?a) ?b)",
        "(exp2 (max ?a (log2 ?b)))",
        &[("?b", Number), ("?b", Positive)],
        "max(2^a, k) = 2^max(a, log2 k)",
    ),
    rule("group-max-exp2", "(group_max (exp2 ?a))", "(exp2 (group_max ?a))", &[], "exp2 is monotone"),
    rule("row-max-exp2", "(row_max (exp2 ?a))", "(exp2 (row_max ?a))", &[], "exp2 is monotone"),
    rule(
        "group-max-add",
        "(group_max (add ?a ?b))",
        "(add (group_max ?a) ?b)",
        &[("?b", AtMost(Group)), ("?a", Exactly(Elem)), ("?b", Finite)],
        "adding the same to all moves the maximum by it",
    ),
    rule(
        "group-max-mul",
        "(group_max (mul ?a ?b))",
        "(mul (group_max ?a) ?b)",
        &[("?b", AtMost(Group)), ("?a", Exactly(Elem)), ("?b", Positive)],
        "a positive factor keeps the order",
    ),
    rule(
        "group-max-fma",
        "(group_max (fma ?a ?b ?c))",
        "(fma (group_max ?a) ?b ?c)",
        &[
            ("?b", AtMost(Group)),
            ("?c", AtMost(Group)),
            ("?a", Exactly(Elem)),
            ("?b", Positive),
            ("?c", Finite),
        ],
        "a positive factor keeps the order, adding the same moves the maximum",
    ),
    rule(
        "group-max-div",
        "(group_max (div ?a ?b))",
        "(div (group_max ?a) ?b)",
        &[("?b", AtMost(Group)), ("?a", Exactly(Elem)), ("?b", Positive)],
        "a positive divisor keeps the order",
    ),
    rule(
        "group-max-log2",
        "(group_max (log2 ?a))",
        "(log2 (group_max ?a))",
        &[("?a", NotNegative)],
        "log2 is monotone",
    ),
    rule(
        "row-max-add",
        "(row_max (add ?a ?b))",
        "(add (row_max ?a) ?b)",
        &[("?b", AtMost(Row)), ("?b", RarerThanA), ("?b", Finite)],
        "adding the same to all moves the maximum by it",
    ),
    rule(
        "row-max-mul",
        "(row_max (mul ?a ?b))",
        "(mul (row_max ?a) ?b)",
        &[("?b", AtMost(Row)), ("?b", RarerThanA), ("?b", Positive)],
        "a positive factor keeps the order",
    ),
    rule(
        "row-max-div",
        "(row_max (div ?a ?b))",
        "(div (row_max ?a) ?b)",
        &[("?b", AtMost(Row)), ("?b", RarerThanA), ("?b", Positive)],
        "a positive divisor keeps the order",
    ),
    rule(
        "row-max-fma",
        "(row_max (fma ?a ?b ?c))",
        "(fma (row_max ?a) ?b ?c)",
        &[
            ("?b", AtMost(Row)),
            ("?c", AtMost(Row)),
            ("?b", RarerThanA),
            ("?c", RarerThanA),
            ("?b", Positive),
            ("?c", Finite),
        ],
        "a positive factor keeps the order, adding the same moves the maximum",
    ),
    rule(
        "row-max-by-groups",
        "(row_max ?a)",
        "(row_max (group_max ?a))",
        &[("?a", Exactly(Elem))],
        "the row's maximum is the greatest of its groups' maxima",
    ),
    // What all share.
    rule("group-max-same", "(group_max ?a)", "?a", &[("?a", AtMost(Group))], "the maximum of equals"),
    rule("row-max-same", "(row_max ?a)", "?a", &[("?a", AtMost(Row))], "the maximum of equals"),
    rule("group-sum-zero", "(group_sum 0)", "0", &[], "a sum of zeros"),
    rule("lane-sum-zero", "(lane_sum 0)", "0", &[], "a sum of zeros"),
    rule("row-sum-zero", "(row_sum 0)", "0", &[], "a sum of zeros"),
    // Sums.
    rule(
        "row-sum-by-lanes",
        "(row_sum ?a)",
        "(row_sum (lane_sum ?a))",
        &[("?a", Exactly(Elem))],
        "a row's sum is the sum of its lanes' partial sums",
    ),
    rule(
        "lane-sum-factor",
        "(lane_sum (mul ?a ?b))",
        "(mul (lane_sum ?a) ?b)",
        &[
            ("?b", AtMost(Group)),
            ("?a", Exactly(Elem)),
            ("?b", Finite),
            ("?a", FiniteSum(Op::LaneSum)),
            ("?match", Finite),
        ],
        "a common factor leaves the sum",
    ),
    rule(
        "row-sum-factor",
        "(row_sum (mul ?a ?b))",
        "(mul (row_sum ?a) ?b)",
        &[("?b", AtMost(Row)), ("?b", Finite), ("?a", FiniteSum(Op::RowSum)), ("?match", Finite)],
        "a common factor leaves the sum",
    ),
    // Factors.
    rule(
        "constant-factors",
        "(mul (mul ?a ?b) ?c)",
        "(mul ?a (mul ?b ?c))",
        &[
            ("?b", RarerThanA),
            ("?c", RarerThanA),
            ("?a", FiniteTimes("?b")),
            ("?b", FiniteTimes("?c")),
            ("?a", ProductKept("?b", "?c")),
            ("?b", ProductKept("?c", "?a")),
            ("?match", Finite),
        ],
        "(a b) c = a (b c)",
    ),
    rule(
        "factor-into-fma",
        "(mul (add ?a ?b) ?c)",
        "(fma ?a ?c (mul ?b ?c))",
        &[
            ("?b", RarerThanA),
            ("?c", RarerThanA),
            ("?b", FiniteTimes("?c")),
            ("?a", PlusKept("?b")),
            ("?c", NotZero),
        ],
        "(a + b) c = a c + b c",
    ),
    rule(
        "constant-factor-of-fma",
        "(mul (fma ?a ?b ?c) ?d)",
        "(fma ?a (mul ?b ?d) (mul ?c ?d))",
        &[
            ("?b", RarerThanA),
            ("?c", RarerThanA),
            ("?d", RarerThanA),
            ("?b", FiniteTimes("?d")),
            ("?c", FiniteTimes("?d")),
            ("?b", ProductKept("?d", "?a")),
            ("?d", OuterFactor),
            ("?d", NotZero),
        ],
        "(a b + c) d = a (b d) + c d",
    ),
    rule(
        "log2-of-product",
        "(log2 (mul ?a ?b))",
        "(add (log2 ?a) (log2 ?b))",
        &[("?b", RarerThanA), ("?a", Positive), ("?b", Positive), ("?a", NormalTimes("?b"))],
        "log2(a b) = log2 a + log2 b",
    ),
    // Multiply-add.
    rule(
        "fuse",
        "(add (mul ?a ?b) ?c)",
        "(fma ?a ?b ?c)",
        &[("?c", AddendOf("?a", "?b"))],
        "a b + c in one operation",
    ),
    rule(
        "fuse-neg",
        "(add (neg (mul ?a ?b)) ?c)",
        "(fma (neg ?a) ?b ?c)",
        &[("?c", AddendOf("?a", "?b"))],
        "c - a b in one operation",
    ),
    rule(
        "add-into-fma",
        "(add (fma ?a ?b ?c) ?d)",
        "(fma ?a ?b (add ?c ?d))",
        &[("?c", RarerThanA), ("?d", RarerThanA), ("?c", Finite), ("?d", Finite), ("?c", FinitePlus("?d"))],
        "(a b + c) + d = a b + (c + d)",
    ),
    rule(
        "add-of-add",
        "(add (add ?a ?b) ?c)",
        "(add ?a (add ?b ?c))",
        &[("?b", RarerThanA), ("?c", RarerThanA), ("?b", Finite), ("?c", Finite), ("?b", FinitePlus("?c"))],
        "(a + b) + c = a + (b + c)",
    ),
];

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
            egraph.analysis.refused.insert(Use { rule: self.index, need: Need::NotDeliberate, subject });
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
                egraph.analysis.refused.insert(used);
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
