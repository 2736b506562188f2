//! What the algebra step says: the searches' results in their file form, and the step's verdict.

mod algebra;
mod hardware;
mod lift;
mod lift_claim;
mod lift_masks;
mod lift_step;
mod lift_text;
mod rewrite;
mod verdict;

pub use algebra::{AlgebraOutcome, Form, MeasuredVariant, Mode, UnknownMode};
pub use hardware::{HardwareConversion, HardwareDifference, HardwareOutcome};
pub use lift::{
    ClaimOutcome, CompiledOutcome, FunctionOutcome, LiftError, LiftOutcome, PatternOutcome, PieceOutcome,
    PlaceOutcome, RefusedInstruction, UnliftedOutcome, UnreadOutcome, lift_outcome,
};
pub use rewrite::{BoundOutcome, CandidateOutcome, GraphOutcome, PricedOutcome, RefusedRule, RewriteOutcome};

/// The schema of every outcome of this crate.
pub const SCHEMA: &str = "kbt.quant/1";
