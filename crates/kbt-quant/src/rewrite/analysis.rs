//! What the search knows of every class of equal terms: shape, interval, constant, and a fingerprint.
//!
//! The fingerprint is the class's value in f64 on sampled inputs. Two terms that a rule makes equal must have the
//! same; a difference is kept as a [`Mismatch`] and voids the search: one wrong rule would make everything equal. A
//! comparison of values that lie within f64's rounding of each other says nothing: [`Sampled`], which carries that rounding.

use super::interval::Interval;
use super::node::ENode;
use super::rules::Need;
use super::sample::Sampled;
use crate::lang::eval::{self, Extent};
use crate::lang::{Layout, Op, Program, Shape};
use egg::{Analysis, DidMerge, EGraph, Id, Language};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub(super) type Graph = EGraph<ENode, Facts>;

/// A use of a rule's condition: which rule, what it needs, of which class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub(super) rule: usize,
    pub(super) need: Need,
    pub(super) subject: Id,
}

/// Two terms made equal whose values differ on a sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mismatch {
    pub(super) left: f64,
    pub(super) right: f64,
}

/// The state of the analysis.
#[derive(Debug)]
pub(super) struct Facts {
    program: Program,
    extent: Extent,
    /// Values of each input, sample after sample.
    samples: Vec<Vec<Vec<Sampled>>>,
    pub(super) granted: BTreeSet<Use>,
    pub(super) refused: BTreeSet<Use>,
    /// The classes that the refused rules would have rewritten.
    pub(super) refused_at: BTreeMap<Use, BTreeSet<Id>>,
    pub(super) mismatches: Vec<Mismatch>,
    /// Whether the program may take the reciprocal of a zero.
    pub(super) signed_zero: bool,
}

/// What is known of one class.
#[derive(Debug, Clone)]
pub(super) struct Data {
    /// The smallest shape that any term of the class has.
    pub(super) shape: Shape,
    /// The greatest that any has: what a reduction over the class takes, one value each.
    pub(super) widest: Shape,
    pub(super) interval: Interval,
    pub(super) constant: Option<f64>,
    /// Whether it is a sum of which the program uses the rounding.
    pub(super) deliberate: bool,
    /// Values at the class's shape, one vector a sample.
    values: Rc<Vec<Vec<Sampled>>>,
}

impl Facts {
    /// A rule is refused where it would have rewritten `at`.
    pub(super) fn refuse(&mut self, used: Use, at: Id) {
        self.refused.insert(used);
        self.refused_at.entry(used).or_default().insert(at);
    }

    pub(super) fn new(program: Program, extent: Extent, samples: Vec<Vec<Vec<f64>>>) -> Self {
        Self {
            program,
            extent,
            samples: samples.into_iter().map(|one| one.into_iter().map(known).collect()).collect(),
            granted: BTreeSet::new(),
            refused: BTreeSet::new(),
            refused_at: BTreeMap::new(),
            mismatches: Vec::new(),
            signed_zero: false,
        }
    }

    /// How elements lie over threads.
    pub(super) fn layout(&self) -> Layout {
        self.program.layout
    }

    fn compare(&mut self, a: &Data, b: &Data) {
        let whole = a.shape.max(b.shape);
        for (left, right) in a.values.iter().zip(b.values.iter()) {
            for i in 0..self.extent.len(whole) {
                let of = |data: &Data, values: &[Sampled]| {
                    values
                        .get(self.extent.index(data.shape, whole, i))
                        .copied()
                        .unwrap_or(Sampled::known(f64::NAN))
                };
                let (x, y) = (of(a, left), of(b, right));
                let certain = x.certain && y.certain;
                let rounded = x.error + y.error;
                let (x, y) = (x.value, y.value);
                let same = !certain
                    || x == y
                    || (x.is_nan() && y.is_nan())
                    || (x - y).abs() <= 1e-9 * x.abs().max(y.abs()) + 1e-12 + rounded;
                if !same {
                    self.mismatches.push(Mismatch { left: x, right: y });
                    return;
                }
            }
        }
    }
}

impl Data {
    /// The values of one sample at a shape that is at least the class's own.
    fn spread(&self, sample: usize, shape: Shape, extent: Extent) -> Cow<'_, [Sampled]> {
        let own = self.values[sample].as_slice();
        if shape == self.shape {
            return Cow::Borrowed(own);
        }
        let at = |i| own.get(extent.index(self.shape, shape, i)).copied();
        let unknown = Sampled::known(f64::NAN);
        Cow::Owned((0..extent.len(shape)).map(|i| at(i).unwrap_or(unknown)).collect())
    }
}

/// Whether it chooses a number instead of what is -inf.
fn replaces_minus_infinity(egraph: &Graph, enode: &ENode) -> bool {
    let (Op::Select, &[condition, instead, of]) = (enode.op, enode.args.as_slice()) else { return false };
    let constant = |id: &Id| egraph[*id].data.constant;
    let is_it = |n: &ENode| {
        n.op == Op::Eq
            && n.args.iter().any(|a| egraph.find(*a) == egraph.find(of))
            && n.args.iter().any(|a| constant(a) == Some(f64::NEG_INFINITY))
    };
    constant(&instead).is_some_and(f64::is_finite) && egraph[condition].nodes.iter().any(is_it)
}

fn known(values: Vec<f64>) -> Vec<Sampled> {
    values.into_iter().map(Sampled::known).collect()
}

/// Constants that differ only by f64's rounding are one: 40 significant bits are kept (an f32 has 24), and what is
/// left of a sum that cancels, beside terms of size `cancels`, is zero.
fn snap(x: f64, cancels: f64) -> f64 {
    if !x.is_finite() {
        return x;
    }
    if x.abs() <= cancels * 1e-12 {
        return 0.0;
    }
    f64::from_bits(x.to_bits().wrapping_add(1 << 11) & !((1 << 12) - 1))
}

impl Analysis<ENode> for Facts {
    type Data = Data;

    fn make(egraph: &mut Graph, enode: &ENode, _id: Id) -> Data {
        let facts = &egraph.analysis;
        let data = |id: &Id| &egraph[*id].data;
        if let Op::Input(i) = enode.op {
            let input = &facts.program.inputs[i as usize];
            let values = facts.samples.iter().map(|inputs| inputs[i as usize].clone()).collect();
            let interval = Interval::from_range(input.range);
            let shape = input.shape;
            let (constant, deliberate) = (None, false);
            return Data { shape, widest: shape, interval, constant, deliberate, values: Rc::new(values) };
        }
        // A reduction takes every element, also where all of a group turn out to be equal.
        let at = |id: &Id| if enode.op.is_reduction() { data(id).widest } else { data(id).shape };
        let shapes: Vec<Shape> = enode.children().iter().map(at).collect();
        // A misuse of a partial sum is no term that extraction takes; any shape will do.
        let shape =
            if enode.op == Op::Out { Shape::Const } else { enode.op.shape(&shapes).unwrap_or(Shape::Elem) };
        let intervals: Vec<Interval> = enode.children().iter().map(|id| data(id).interval).collect();
        let square = enode.args.len() > 1 && egraph.find(enode.args[0]) == egraph.find(enode.args[1]);
        let interval = Interval::of_square(enode.op, &intervals, facts.program.layout, square);
        let interval =
            if replaces_minus_infinity(egraph, enode) { interval.without_minus_infinity() } else { interval };
        let constant = match enode.op {
            Op::Num(bits) => Some(snap(f64::from_bits(bits), 0.0)),
            op => {
                let args: Option<Vec<f64>> = enode.children().iter().map(|id| data(id).constant).collect();
                let foldable =
                    op.arity().is_some_and(|n| n > 0) && !matches!(op, Op::Cvt(_)) && shape == Shape::Const;
                args.filter(|_| foldable).map(|args| {
                    let largest = args.iter().fold(0.0f64, |m, x| m.max(x.abs()));
                    let cancels = if op == Op::Add { largest } else { 0.0 };
                    snap(<f64 as eval::Number>::apply(op, &args), cancels)
                })
            }
        };
        let values = (0..facts.samples.len())
            .map(|k| {
                let spread: Vec<(Shape, Cow<'_, [Sampled]>)> = enode
                    .children()
                    .iter()
                    .map(|id| (at(id), data(id).spread(k, at(id), facts.extent)))
                    .collect();
                let args: Vec<(Shape, &[Sampled])> = spread.iter().map(|(s, v)| (*s, v.as_ref())).collect();
                if enode.op == Op::Out {
                    Vec::new()
                } else {
                    eval::apply(enode.op, shape, &args, facts.extent)
                }
            })
            .collect();
        Data { shape, widest: shape, interval, constant, deliberate: false, values: Rc::new(values) }
    }

    fn merge(&mut self, a: &mut Data, b: Data) -> DidMerge {
        self.compare(a, &b);
        let interval = a.interval.meet(b.interval);
        let shape = a.shape.min(b.shape);
        let constant = a.constant.or(b.constant);
        let (mut changed_a, mut changed_b) = (false, false);
        let widest = a.widest.max(b.widest);
        changed_a |= widest != a.widest;
        changed_b |= widest != b.widest;
        a.widest = widest;
        if shape != a.shape {
            a.values = Rc::clone(&b.values);
            a.shape = shape;
            changed_a = true;
        }
        changed_b |= shape != b.shape;
        changed_a |= constant != a.constant;
        changed_b |= constant != b.constant;
        a.constant = constant;
        let deliberate = a.deliberate || b.deliberate;
        changed_a |= deliberate != a.deliberate;
        changed_b |= deliberate != b.deliberate;
        a.deliberate = deliberate;
        let (tightens_a, tightens_b) = (interval.tightens(a.interval), interval.tightens(b.interval));
        a.interval = if tightens_a { interval } else { a.interval };
        DidMerge(changed_a || tightens_a, changed_b || tightens_b)
    }

    fn modify(egraph: &mut Graph, id: Id) {
        // 2^a = 2^b only where a = b. Without this, every way to write an exponent would breed further ones.
        let exponents: Vec<Id> =
            egraph[id].nodes.iter().filter(|n| n.op == Op::Exp2).map(|n| n.args[0]).collect();
        for pair in exponents.windows(2) {
            egraph.union_trusted(pair[0], pair[1], "exp2-injective");
        }
        let Some(value) = egraph[id].data.constant else { return };
        if value.is_finite() {
            let number = egraph.add(ENode::new(Op::Num(value.to_bits()), []));
            egraph.union_trusted(id, number, "fold-constants");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// s and t on two samples each, and whether a union of the two terms is noticed.
    fn check(make: fn(&mut Graph, Id, Id) -> (Id, Id), noticed: bool) {
        let text = "layout group=1 row=2\nelem s in [0, 1]\nelem t in [0, 1]\nout y = s + t";
        let program: Program = text.parse().unwrap();
        let extent = Extent::new(program.layout, 2);
        let samples = vec![vec![vec![0.25, 0.75], vec![0.5, 1.0]], vec![vec![0.125, 0.0], vec![0.0, 0.5]]];
        let mut graph = Graph::new(Facts::new(program, extent, samples)).with_explanations_enabled();
        let s = graph.add(ENode::new(Op::Input(0), []));
        let t = graph.add(ENode::new(Op::Input(1), []));
        let (a, b) = make(&mut graph, s, t);
        graph.union_trusted(a, b, "a rule");
        graph.rebuild();
        assert_eq!(!graph.analysis.mismatches.is_empty(), noticed, "{:?}", graph.analysis.mismatches);
    }

    #[test]
    fn a_union_of_terms_that_differ_on_any_sample_is_noticed() {
        check(|g, s, t| (g.add(ENode::new(Op::Add, [s, t])), g.add(ENode::new(Op::Add, [t, s]))), false);
        check(|g, s, t| (g.add(ENode::new(Op::Add, [s, t])), g.add(ENode::new(Op::Mul, [t, s]))), true);
        // Equal but for one element of one sample.
        check(|g, s, t| (g.add(ENode::new(Op::Max, [s, t])), t), true);
        // A union deep in a term makes the terms above it equal too.
        check(
            |g, s, t| {
                let (a, b) = (g.add(ENode::new(Op::Exp2, [s])), g.add(ENode::new(Op::Exp2, [t])));
                (g.add(ENode::new(Op::Neg, [a])), g.add(ENode::new(Op::Neg, [b])))
            },
            true,
        );
    }
}
