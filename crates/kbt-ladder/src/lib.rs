//! The ladder: the order of the steps, what a verdict binds, the run directory, resuming, recordings.
//!
//! The order has teeth. A class of fix that a step ruled out with measured evidence is never recommended
//! later in the same run, unless a later *measurement* contradicts the verdict: then the ladder goes back to
//! the step that ruled, says so, and that step's ruling stands withdrawn. [`Board`] holds that rule alone,
//! [`Ladder`] walks the steps under it, [`RunDir`] keeps what is finished where nothing half-written is read.
//!
//! The steps' analysis lives in their crates.

mod backend;
mod board;
mod journal;
mod ladder;
mod record;
pub mod recording;
mod rundir;
pub mod steps;
mod summary;
pub mod target;

pub use backend::{Backend, BackendError};
pub use board::{Board, Conflict, Ruling};
pub use journal::{Event, Journal};
pub use ladder::{History, Ladder, Progress, Runner, StepFailure, StepOutput};
pub use record::{Origin, StepRecord, Timing};
pub use rundir::{RunDir, RunError, RunSpec, new_run_path};
pub use summary::{Recommendation, Summary};
