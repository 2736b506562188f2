//! A kernel of the user's own: the target file, its processes, and times that can be compared.
//!
//! Three rooms. [`Target`] is the file: what the kernel is, its commands, knobs, handoff, trace, outputs and
//! limits. [`Launcher`] is one run of it: a fresh process with an environment of its own, whose every ending is
//! a value ([`Status`]); [`ProcessLauncher`] is the real one. [`compare()`] times two settings against each other
//! and says faster, slower, same or ambiguous at a stated error rate.
//!
//! What lives elsewhere: which settings to run and what to make of them (kbt-split), whether an output is right
//! (kbt-validate), and everything about a GPU: a target is a process, and the device is its own affair.

pub mod artifacts;
pub mod check;
mod compare;
mod comparison;
mod date;
mod dtypes;
mod environment;
mod expr;
mod file;
mod guard;
mod knob;
mod launch;
mod lines;
mod load;
mod place;
mod policy;
mod process;
mod running;
mod setting;
pub mod stats;
mod stream;
mod turn;
mod valid;

pub use compare::{CompareError, Compared, Comparison, Side, Speed, Stopped, compare, compare_each};
pub use date::today;
pub use dtypes::Dtypes;
pub use environment::{CACHES, MINIMUM, RESERVED};
pub use expr::{Expr, ExprError, Value};
pub use file::{
    Artifacts, Build, Facts, Handoff, Inputs, Limits, Output, Reference, Run, SCHEMA, Target, Trace,
    TraceLevel,
};
pub use guard::Guarded;
pub use knob::{Change, Knob, SetBy};
pub use launch::{FakeLauncher, Launch, LaunchRequest, Launcher, Report, Sample, Status};
pub use lines::{TimePattern, TimePatternError};
pub use load::{Source, TEMPLATE, TargetError, embedded_target, embedded_targets};
pub use policy::TimingPolicy;
pub use process::ProcessLauncher;
pub use running::left_behind;
pub use setting::{Scalar, Setting};

/// The README's example, kept true.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
