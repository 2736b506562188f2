//! One block's arithmetic as a graph over single values: what each instruction computes from what, per lane.
//!
//! Nodes are in program order, operands first; equal computations are one node. What the language cannot say is a
//! leaf, named after the instruction that gives it.

use super::masks::Mask;
use crate::cost::Compiled;
use crate::lang::Op;
use std::collections::{BTreeSet, HashMap};

/// A node's number.
pub(super) type Id = usize;

/// Every bit of a lane's number.
pub(super) const LANE: u8 = 31;

/// Where an instruction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    /// Its line in the PTX.
    pub(super) line: u32,
    /// File number and line of the source, innermost, where the PTX says.
    pub(super) source: Option<(u32, u32)>,
}

/// Where a value that is not computed here comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Leaf {
    /// The same for the whole kernel: a parameter, or what follows from parameters alone.
    Uniform,
    /// Read from memory.
    Load,
    /// A register that another block wrote.
    LiveIn,
    /// The result of an instruction that the language does not have.
    Result(String),
}

/// What a node is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// Given, with the number of the leaf: no two are equal.
    Leaf(Leaf, usize),
    /// A constant, as f32 bits.
    Number(u32),
    /// An operation of the language.
    Op(Op),
    /// The operand's value in the lane whose number differs by this mask.
    Shuffle(u32),
    /// `Max` or `Add` over all operands, and over the lanes that these masks reach.
    Reduce(Op, BTreeSet<u32>),
}

/// A node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) args: Vec<Id>,
    /// The instruction; for leaves from outside the first use.
    pub(super) at: At,
    /// The register, without `%`.
    pub(super) register: String,
    /// The instructions that it took, for the price of the code as it is.
    pub(super) price: Vec<Compiled>,
    /// Whether PTX gives it no rounding, so that ptxas may make it a part of a multiply-add.
    pub(super) contracts: bool,
    /// Whether the instruction flushes subnormals.
    pub(super) flushes: bool,
    /// Of a sum: whether it could be one multiply-add with its product, if one of both did not flush subnormals.
    pub(super) half_flushed: bool,
    /// Whether it is the same in every iteration of the loop that the block is in.
    pub(super) invariant: bool,
    /// Of a leaf: which bits of a lane's number PTX shows it to depend on.
    pub(super) lanes: u8,
    /// Of a leaf: what the code masks it with.
    pub(super) mask: Option<Mask>,
    fixed: bool,
}

impl Node {
    /// Whether it is the same for the whole kernel: a constant, a parameter, or what follows from such alone.
    pub(super) fn is_fixed(&self) -> bool {
        self.fixed
    }

    pub(super) fn number(&self) -> Option<f32> {
        match self.kind {
            Kind::Number(bits) => Some(f32::from_bits(bits)),
            _ => None,
        }
    }

    pub(super) fn is(&self, op: Op) -> bool {
        self.kind == Kind::Op(op)
    }
}

/// The graph of a block.
#[derive(Debug, Clone, Default)]
pub(super) struct Scalar {
    pub(super) nodes: Vec<Node>,
    /// Nodes whose values leave: stored, read in another block, or taken by something that is not lifted.
    pub(super) outputs: BTreeSet<Id>,
    known: HashMap<(Kind, Vec<Id>), Id>,
}

impl Scalar {
    pub(super) fn push(&mut self, kind: Kind, args: Vec<Id>, at: At, register: &str) -> Id {
        let key = (kind, args);
        if let Some(&id) = self.known.get(&key) {
            return id;
        }
        let id = self.nodes.len();
        let (kind, args) = key.clone();
        let price = match kind {
            Kind::Op(op) if !op.is_modifier() => vec![op.into()],
            _ => Vec::new(),
        };
        let fixed = match &kind {
            Kind::Number(_) | Kind::Leaf(Leaf::Uniform, _) => true,
            Kind::Leaf(..) | Kind::Shuffle(_) => false,
            Kind::Reduce(_, hops) if !hops.is_empty() => false,
            Kind::Op(_) | Kind::Reduce(..) => args.iter().all(|&a| self.nodes[a].fixed),
        };
        let invariant = match &kind {
            Kind::Number(_) | Kind::Leaf(Leaf::Uniform, _) => true,
            // For whoever makes the leaf to say.
            Kind::Leaf(..) | Kind::Shuffle(_) => false,
            Kind::Op(_) | Kind::Reduce(..) => args.iter().all(|&a| self.nodes[a].invariant),
        };
        self.nodes.push(Node {
            kind,
            args,
            at,
            register: register.to_owned(),
            price,
            contracts: false,
            flushes: false,
            half_flushed: false,
            invariant,
            lanes: 0,
            mask: None,
            fixed,
        });
        self.known.insert(key, id);
        id
    }

    /// A node of another graph, with the operands that it has here.
    pub(super) fn copy(&mut self, node: &Node, args: Vec<Id>) -> Id {
        let id = self.push(node.kind.clone(), args, node.at, &node.register);
        self.nodes[id].price.clone_from(&node.price);
        self.nodes[id].lanes = node.lanes;
        self.nodes[id].mask = node.mask;
        self.nodes[id].half_flushed |= node.half_flushed;
        if matches!(node.kind, Kind::Leaf(..)) {
            self.nodes[id].invariant = node.invariant;
        }
        id
    }

    pub(super) fn leaf(&mut self, leaf: Leaf, at: At, register: &str) -> Id {
        self.push(Kind::Leaf(leaf, self.nodes.len()), Vec::new(), at, register)
    }

    /// Which nodes follow from numbers alone.
    pub(super) fn of_numbers(&self) -> Vec<bool> {
        let mut of: Vec<bool> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            of.push(match node.kind {
                Kind::Number(_) => true,
                Kind::Leaf(..) | Kind::Shuffle(_) => false,
                _ => node.args.iter().all(|&a| of[a]),
            });
        }
        of
    }

    pub(super) fn number(&mut self, x: f32, at: At) -> Id {
        self.push(Kind::Number(x.to_bits()), Vec::new(), at, "")
    }

    pub(super) fn op(&mut self, op: Op, args: &[Id], at: At, register: &str) -> Id {
        self.push(Kind::Op(op), args.to_vec(), at, register)
    }

    /// How many operands of other nodes each node is.
    pub(super) fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.nodes.len()];
        for node in &self.nodes {
            for &a in &node.args {
                uses[a] += 1;
            }
        }
        uses
    }

    /// The nodes that outputs need.
    pub(super) fn live(&self) -> Vec<bool> {
        let mut live = vec![false; self.nodes.len()];
        for &id in &self.outputs {
            live[id] = true;
        }
        for id in (0..self.nodes.len()).rev() {
            if live[id] {
                for &a in &self.nodes[id].args {
                    live[a] = true;
                }
            }
        }
        live
    }
}
