//! What the algebra step says: the searches' results in their file form, and the step's verdict.

mod algebra;
mod rewrite;
mod verdict;

pub use algebra::{AlgebraOutcome, Form, MeasuredVariant, Mode, UnknownMode};
pub use rewrite::{BoundOutcome, CandidateOutcome, GraphOutcome, PricedOutcome, RefusedRule, RewriteOutcome};

/// The schema of every outcome of this crate.
pub const SCHEMA: &str = "kbt.quant/1";
