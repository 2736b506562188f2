//! Step 5: which split of the producer-consumer handoff is best and safe.
//!
//! A [`space`] of settings is the knobs' values within the target's constraints and the handoff's [`contract`],
//! each kernel once. A [`sweep`] runs each setting in fresh processes: its outputs are checked through
//! [`record::Correctness`] before it is timed, it is timed interleaved with the fastest so far, and a line of the
//! [`journal`] holds what came of it, so that a sweep that is killed loses nothing. The [`outcome`] is made from
//! plan and journal. The [`model`] predicts the curve from a coarse trace and is scored against the sweep.
//!
//! What lives elsewhere: the target file, its processes and the timing of one pair (kbt-target); whether outputs
//! are right (kbt-validate, through the trait).

pub mod agree;
pub mod contract;
mod draft;
mod entries;
mod error;
pub mod export;
pub mod journal;
mod judging;
pub mod model;
mod one;
pub mod outcome;
mod point;
mod possible;
mod progress;
mod ranking;
pub mod record;
mod render;
pub mod score;
pub mod screen;
pub mod slurm;
pub mod space;
pub mod spec;
pub mod sweep;
mod tally;
mod together;
mod verdict;
mod without;

pub use agree::Agreement;
pub use contract::{ContractReport, Integers, Violation};
pub use error::SweepError;
pub use judging::Judging;
pub use model::HandoffTimes;
pub use one::{confirm_one, run_one};
pub use outcome::SplitOutcome;
pub use record::{CheckOutcome, Correctness, SameBytes};
pub use screen::Screening;
pub use space::{Choice, Space, SpaceError};
pub use spec::{Spec, SweepDir};
pub use sweep::{Progress, Sweep};
pub use without::WithoutHandoff;

/// The README's example, kept true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
