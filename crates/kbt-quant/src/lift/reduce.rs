//! Chains and trees of maxima and sums, over a lane's own values and over lanes by butterflies, become reductions.
//!
//! Flattening changes the order of a sum, as any reduction's rewrite does; the replay's error bounds allow for it.

use super::scalar::{Id, Kind, Leaf, Node, Scalar};
use crate::cost::Compiled;
use crate::lang::Op;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::DefaultHasher};
use std::hash::{Hash, Hasher};

/// A chain of this many alike values is a reduction; two values are only a sum or a maximum.
const LEAST: usize = 3;

/// The graph with reductions in place of chains. Also gives where each old node went.
pub(super) fn flatten(old: &Scalar) -> (Scalar, Vec<Id>) {
    let uses = old.uses();
    let shapes = shapes(old);
    let mut inner: HashSet<Id> = HashSet::new();
    let mut trees: HashMap<Id, Tree> = HashMap::new();
    // From the last node on, so that the root of a chain is met before what it takes in.
    for id in (0..old.nodes.len()).rev() {
        if inner.contains(&id) {
            continue;
        }
        for op in [Op::Max, Op::Add] {
            if let Some(tree) = Tree::of(old, id, op, &uses).filter(|t| t.is_reduction(&shapes)) {
                inner.extend(&tree.inner);
                trees.insert(id, tree);
                break;
            }
        }
    }
    let mut new = Scalar::default();
    let mut place: Vec<Id> = vec![usize::MAX; old.nodes.len()];
    let live: Vec<bool> = (0..old.nodes.len()).map(|id| !inner.contains(&id)).collect();
    for (id, node) in old.nodes.iter().enumerate().filter(|(id, _)| live[*id]) {
        place[id] = match trees.get(&id) {
            Some(tree) => tree.write(node, old, &mut new, &place),
            None => {
                let args = node.args.iter().map(|&a| place[a]).collect();
                new.copy(node, args)
            }
        };
    }
    new.outputs = old.outputs.iter().map(|&id| place[id]).filter(|&id| id != usize::MAX).collect();
    (new, place)
}

/// What a value looks like from below, with all registers and loads alike: terms of a chain are told apart by it.
fn shapes(graph: &Scalar) -> Vec<u64> {
    let mut out: Vec<u64> = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let mut hash = DefaultHasher::new();
        match &node.kind {
            Kind::Leaf(Leaf::LiveIn | Leaf::Load, _) => 0.hash(&mut hash),
            Kind::Leaf(leaf, _) => leaf.hash(&mut hash),
            kind => kind.hash(&mut hash),
        }
        let mut args: Vec<u64> = node.args.iter().map(|&a| out[a]).collect();
        if matches!(node.kind, Kind::Op(Op::Add | Op::Mul | Op::Max)) {
            args.sort_unstable();
        }
        args.hash(&mut hash);
        out.push(hash.finish());
    }
    out
}

/// A term of a chain.
#[derive(Debug, Clone, Copy)]
enum Term {
    Node(Id),
    /// The product of a multiply-add that adds to the chain; the multiply-add itself.
    Product(Id),
}

/// A chain or tree of one operation.
struct Tree {
    op: Op,
    terms: Vec<Term>,
    hops: BTreeSet<u32>,
    /// Nodes that the reduction replaces, its root not among them.
    inner: Vec<Id>,
    /// Instructions of the chain itself.
    price: Vec<Compiled>,
}

impl Tree {
    fn of(graph: &Scalar, root: Id, op: Op, uses: &[usize]) -> Option<Self> {
        let mut tree =
            Self { op, terms: Vec::new(), hops: BTreeSet::new(), inner: Vec::new(), price: Vec::new() };
        if !tree.member(&graph.nodes[root]) {
            return None;
        }
        let mut at = root;
        // Butterflies first: x op the same x of another lane, from the outside in.
        while let Some((x, shuffle, mask)) = butterfly(graph, at, op) {
            // A step taken again adds what every lane has already: a multiple of the sum over lanes, which no
            // reduction is. A maximum stays what it is.
            if !tree.hops.insert(mask) && op == Op::Add {
                tree.terms.push(Term::Node(at));
                return Some(tree);
            }
            tree.price.extend(&graph.nodes[at].price);
            if at != root {
                tree.inner.push(at);
            }
            // Another lane's value that something else takes too stays, as an input of that.
            let once = uses[shuffle] == 1 && !graph.outputs.contains(&shuffle);
            if once {
                tree.inner.push(shuffle);
            }
            let private = uses[x] == 2 && once && !graph.outputs.contains(&x);
            if !private || !tree.member(&graph.nodes[x]) {
                tree.terms.push(Term::Node(x));
                return Some(tree);
            }
            at = x;
        }
        if at != root {
            tree.inner.push(at);
        }
        tree.expand(graph, at, uses);
        Some(tree)
    }

    fn member(&self, node: &Node) -> bool {
        node.is(self.op) || (self.op == Op::Add && node.is(Op::Fma))
    }

    fn expand(&mut self, graph: &Scalar, root: Id, uses: &[usize]) {
        let mut stack = vec![root];
        while let Some(id) = stack.pop() {
            let node = &graph.nodes[id];
            let mut addends: &[Id] = &node.args;
            if node.is(Op::Fma) {
                self.terms.push(Term::Product(id));
                self.price.push(Op::Fma.into());
                addends = &node.args[2..];
            } else {
                self.price.extend(&node.price);
            }
            for &a in addends {
                let child = &graph.nodes[a];
                let private = uses[a] == 1 && !graph.outputs.contains(&a);
                if private && self.member(child) && butterfly(graph, a, self.op).is_none() {
                    self.inner.push(a);
                    stack.push(a);
                } else {
                    self.terms.push(Term::Node(a));
                }
            }
        }
        let neutral = if self.op == Op::Add { 0.0 } else { f32::NEG_INFINITY };
        self.terms.retain(|t| !matches!(t, Term::Node(id) if graph.nodes[*id].number() == Some(neutral)));
    }

    /// Whether enough terms are alike.
    fn is_reduction(&self, shapes: &[u64]) -> bool {
        let mut alike: BTreeMap<u64, usize> = BTreeMap::new();
        for term in &self.terms {
            let key = match *term {
                Term::Node(id) => shapes[id],
                // A chain of multiply-adds differs by what came before; its products do not.
                Term::Product(_) => 1,
            };
            *alike.entry(key).or_default() += 1;
        }
        !self.hops.is_empty() || alike.values().any(|&n| n >= LEAST)
    }

    fn write(&self, root: &Node, old: &Scalar, new: &mut Scalar, place: &[Id]) -> Id {
        let mut args = Vec::new();
        for term in &self.terms {
            args.push(match *term {
                Term::Node(id) => place[id],
                Term::Product(id) => {
                    let fma = &old.nodes[id];
                    let product =
                        new.op(Op::Mul, &[place[fma.args[0]], place[fma.args[1]]], fma.at, &fma.register);
                    // The multiply-add is paid for in the chain.
                    new.nodes[product].price.clear();
                    product
                }
            });
        }
        let id = new.push(Kind::Reduce(self.op, self.hops.clone()), args, root.at, &root.register);
        new.nodes[id].price.clone_from(&self.price);
        id
    }
}

/// `x op x of the lane at the other side of a mask`: x, the shuffle, the mask.
fn butterfly(graph: &Scalar, id: Id, op: Op) -> Option<(Id, Id, u32)> {
    let node = &graph.nodes[id];
    let &[a, b] = node.args.as_slice() else { return None };
    let pair = |x: Id, s: Id| match graph.nodes[s].kind {
        Kind::Shuffle(mask) if graph.nodes[s].args == [x] => Some((x, s, mask)),
        _ => None,
    };
    if node.is(op) { pair(a, b).or_else(|| pair(b, a)) } else { None }
}
