//! `pipes`: which instructions share a resource of the SM, from the times of mixes alone.
//!
//! The model is linear: an instruction occupies each of some resources for so many cycles, and a mix takes as long
//! as its busiest resource. Two resources are given, because the machine code tells what is asked of them: the issue
//! port (one instruction a cycle and scheduler) and the register ports. Names of pipes, and what anybody says about
//! them, are not. [`Mixes`] holds times and is a file of its own; [`next_mixes`] says what to
//! measure next, [`infer`] explains what was measured, and says what it cannot tell. [`Counters`] are the
//! profiler's, and [`compare`] holds the partition against them.
//!
//! On a device ([`subjects`], [`assemble`], and `gpu::pipes` with the feature `gpu`) each mix is a kernel whose
//! machine code must hold what the two instructions hold alone, times their counts, and nothing else.

pub mod assemble;
mod check;
mod classes;
mod counters;
mod infer;
mod mixes;
mod net;
mod outcome;
mod pair;
mod plan;
pub(crate) mod ports;
mod shared_pipes;
pub mod subjects;
mod verification;
mod versus;

#[cfg(test)]
mod recovery;
#[cfg(test)]
mod synthetic;

pub use classes::Request;
pub use counters::{Counters, CountersError, EXECUTED, Kernel};
pub use infer::infer;
pub use mixes::{MixTime, Mixes, MixesError, Refused, SCHEMA as MIXES_SCHEMA, Solo};
pub use outcome::{InstructionRow, Measured, PipesOutcome, Predicted, Resource, SCHEMA, Unidentifiable, Use};
pub use plan::{CHAINS, counts};
pub use verification::{PipesVerification, SCHEMA as VERIFICATION_SCHEMA, VerifiedMix, verify_all};
pub use versus::{Comparison, compare};

/// Mixes that a run may measure.
pub const BUDGET: usize = 300;

/// What to measure next, so that no more than `budget` mixes are measured in all; empty when more would tell nothing.
#[must_use]
pub fn next_mixes(mixes: &Mixes, budget: usize) -> Vec<Request> {
    classes::View::new(mixes).next(budget)
}
