//! Step 0 of the ladder: which roof, which candidates, what evidence for and against.
//!
//! A [`FactSheet`] says what a kernel computes, how it is built and how long it takes; [`Ceilings`] say what the
//! device can do; [`triage`] puts the two together into a [`TriageOutcome`]: the call with its margin, nineteen
//! checks of whether the implementation contradicts it, a matrix of candidates with evidence for, against and
//! still to be measured, the smallest experiment for each, and five outputs. Where facts are missing it refuses
//! and names them; where ceilings are published ones it says that the call is an order of magnitude.
//!
//! The alternative would be a score that always answers. A roofline that is fed guesses answers wrongly with the
//! same face as rightly, so a figure without a source has no place here, and nothing is clamped: a share above
//! one is a contradiction, and is reported as one.
//!
//! Nothing here runs, prints or knows a GPU; reading files is the caller's.

mod apart;
mod attention;
mod bounds;
mod candidates;
mod ceilings;
mod checks;
mod conditions;
mod contradictions;
mod dtype;
mod experiments;
mod facts;
mod gather;
mod import;
mod intake;
mod ladder;
mod lines;
mod markdown;
mod matrix;
mod metrics;
mod next;
mod order;
pub mod outcome;
mod outputs;
mod picture;
mod predict;
mod published;
mod remeasured;
mod render;
mod same;
mod sheet;
mod signals;
mod stated;
mod topics;
mod traced;
mod triage;
mod validation;
mod verdicts;
mod words;
mod work;

pub use attention::{PvMode, PvModeError, attention_facts};
pub use candidates::BottleneckClass;
pub use ceilings::{Ceilings, RoofKind};
pub use dtype::{Dtype, MathType};
pub use facts::{
    AccessPattern, Dataflow, DeviceFacts, Dtypes, FactSheet, Implementation, Operator, OperatorKind,
    Profiler, Role, SCHEMA, Shape, Timing, TimingMethod,
};
pub use gather::{CONDITIONS, Gathered, MachineCode, ProfilerRequest};
pub use import::{Import, import};
pub use outcome::{ExperimentResult, RooflinePlot, TriageOutcome};
pub use published::{
    ArchFigures, Part, PartFigure, also_meant, arch_figures, model_part, part, parts, same_device,
};
pub use sheet::SheetError;
pub use triage::triage;
pub use words::{nearest, with_nearest};

/// The README's example, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
