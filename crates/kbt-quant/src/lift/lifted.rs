//! What comes of a component of a block's graph.

use super::masks::Mask;
use super::scalar::{At, Leaf};
use super::sharing::Sharing;
use crate::cost::Compiled;
use crate::lang::Program;

/// A lifted piece.
#[derive(Debug, Clone)]
pub(super) struct Lifted {
    pub(super) program: Program,
    /// Places of the instructions that each node of the program stands for.
    pub(super) places: Vec<Vec<At>>,
    /// What each input is.
    pub(super) leaves: Vec<Leaf>,
    /// What the code masks each input with.
    pub(super) masks: Vec<Option<Mask>>,
    /// What lanes have of each input.
    pub(super) sharing: Vec<Sharing>,
    /// Operations of the code as it is, an element: what each costs, how often.
    pub(super) compiled: Vec<(Compiled, f64)>,
    /// Butterfly steps, an element.
    pub(super) shuffles: f64,
    /// Elements that a thread has.
    pub(super) elements: f64,
    /// Nodes of the program that a rounding takes which is right below 7 only.
    pub(super) below7: Vec<usize>,
    /// Nodes of the program that are exp2 of one product, where the code splits the product for more bits.
    pub(super) split: Vec<usize>,
    /// Nodes of the program that are sums of products, of which only one of both flushes subnormals.
    pub(super) half_flushed: Vec<usize>,
    /// Which nodes of the program are the same in every iteration of the loop that the block is in.
    pub(super) invariant: Vec<bool>,
    /// Instructions that it stands for.
    pub(super) instructions: usize,
    /// Why it is a program over threads and not over elements, groups and rows.
    pub(super) a_thread: Option<String>,
    pub(super) first: u32,
    pub(super) last: u32,
}

/// A piece that is no program: why, and where.
#[derive(Debug, Clone)]
pub(super) struct Unlifted {
    pub(super) because: String,
    pub(super) at: At,
    pub(super) first: u32,
    pub(super) last: u32,
}
