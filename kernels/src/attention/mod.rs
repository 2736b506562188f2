//! The attention forward kernel from the host: its knobs, its inputs, its launch, and the names its trace bears.

mod inputs;
mod knobs;
mod launch;
mod names;

pub use inputs::{Inputs, Shape, ShapeError};
pub use knobs::{KnobError, Knobs, PvMode, QuantForm, SourceOrder, Topology, TraceLevel};
pub use launch::{AttentionError, Prepared};
pub use names::trace_names;

/// Launches before the timed ones; fewer have read up to a tenth too slow.
pub const WARMUP_LAUNCHES: usize = 20;
