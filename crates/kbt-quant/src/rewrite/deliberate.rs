//! Sums that a program rounds on purpose: what it adds it takes away again, and keeps what the rounding left.
//!
//! Over the reals (s + 2^23) - 2^23 is s, and the low part of a split or the error of a sum is 0; in f32 they are what the
//! program is for. Such sums are found by their terms, and no rule takes them apart.

use crate::lang::{Op, Program};
use std::collections::BTreeMap;

/// What a sum is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Term {
    One,
    Node(usize),
    Product(usize, usize),
}

type Form = BTreeMap<Term, f64>;

/// What is left of a coefficient that another takes away, as a share of it, is rounding of constants.
const SAME: f64 = 1.0 / 1_048_576.0;

/// The nodes of which no rule may change the order or the terms.
pub(super) fn deliberate(program: &Program) -> Vec<bool> {
    let mut held = vec![false; program.nodes.len()];
    // A factor may leave a sum by a rule and may be a term of one: both are looked at.
    for scales in [false, true] {
        let forms = forms(program, scales);
        for (i, node) in program.nodes.iter().enumerate() {
            for term in vanishing(program, &forms, i) {
                held[i] = true;
                let mut open = node.args.clone();
                while let Some(at) = open.pop() {
                    if forms[at].contains_key(&term) && is_sum(program.nodes[at].op) {
                        held[at] = true;
                        open.extend(&program.nodes[at].args);
                    }
                }
            }
        }
    }
    held
}

fn is_sum(op: Op) -> bool {
    matches!(op, Op::Add | Op::Fma | Op::Neg | Op::Mul | Op::Max | Op::GroupMax | Op::RowMax | Op::Select)
}

/// Terms that one operand of a sum has and the other takes away, where either is a sum itself: rounded.
fn vanishing(program: &Program, forms: &[Form], at: usize) -> Vec<Term> {
    let node = &program.nodes[at];
    let (left, right) = match node.op {
        Op::Add => (forms[node.args[0]].clone(), &forms[node.args[1]]),
        Op::Fma => (product(program, forms, node.args[0], node.args[1], true), &forms[node.args[2]]),
        _ => return Vec::new(),
    };
    // A value less itself is 0 exactly.
    let bare = |mut n: usize| {
        while program.nodes[n].op == Op::Neg {
            n = program.nodes[n].args[0];
        }
        n
    };
    if (left.len() < 2 && right.len() < 2) || (node.op == Op::Add && bare(node.args[0]) == bare(node.args[1]))
    {
        return Vec::new();
    }
    let gone = |(term, x): (&Term, &f64)| {
        let y = right.get(term)?;
        ((x + y).abs() <= SAME * x.abs()).then_some(*term)
    };
    left.iter().filter_map(gone).collect()
}

fn forms(program: &Program, scales: bool) -> Vec<Form> {
    let mut forms: Vec<Form> = Vec::with_capacity(program.nodes.len());
    for (i, node) in program.nodes.iter().enumerate() {
        let of = |k: usize| &forms[node.args[k]];
        let form = match node.op {
            Op::Num(bits) => scaled(&Form::from([(Term::One, 1.0)]), f64::from_bits(bits)),
            Op::Neg => scaled(of(0), -1.0),
            Op::Add => plus(of(0).clone(), of(1)),
            Op::Mul => product(program, &forms, node.args[0], node.args[1], scales),
            Op::Fma => plus(product(program, &forms, node.args[0], node.args[1], scales), of(2)),
            // A constant that is added to all leaves a maximum or a choice.
            Op::GroupMax | Op::RowMax => common(i, &[of(0)]),
            Op::Max => common(i, &[of(0), of(1)]),
            Op::Select => common(i, &[of(1), of(2)]),
            _ => Form::from([(Term::Node(i), 1.0)]),
        };
        forms.push(form);
    }
    forms
}

/// A node with the constant that all have.
fn common(node: usize, of: &[&Form]) -> Form {
    let mut form = Form::from([(Term::Node(node), 1.0)]);
    let constant = of[0].get(&Term::One).filter(|x| of.iter().all(|f| f.get(&Term::One) == Some(x)));
    form.extend(constant.map(|x| (Term::One, *x)));
    form
}

fn product(program: &Program, forms: &[Form], a: usize, b: usize, scales: bool) -> Form {
    let number = |n: usize| match program.nodes[n].op {
        Op::Num(bits) => Some(f64::from_bits(bits)),
        Op::Neg => match program.nodes[program.nodes[n].args[0]].op {
            Op::Num(bits) => Some(-f64::from_bits(bits)),
            _ => None,
        },
        _ => None,
    };
    let exact = |x: f64| x.to_bits() & ((1 << 52) - 1) == 0;
    for (factor, other) in [(number(a), b), (number(b), a)] {
        if let Some(x) = factor.filter(|x| scales || exact(*x)) {
            return scaled(&forms[other], x);
        }
    }
    Form::from([(Term::Product(a.min(b), a.max(b)), 1.0)])
}

fn scaled(form: &Form, by: f64) -> Form {
    form.iter().map(|(term, x)| (*term, x * by)).filter(|(_, x)| *x != 0.0).collect()
}

fn plus(mut form: Form, other: &Form) -> Form {
    for (term, y) in other {
        let x = form.entry(*term).or_default();
        let sum = *x + y;
        *x = if sum.abs() <= SAME * x.abs() { 0.0 } else { sum };
    }
    form.retain(|_, x| *x != 0.0);
    form
}
