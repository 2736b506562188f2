//! What the schedule step returns: machine-code metrics, and the schedule outcome of the ladder.

mod builder;
mod busiest;
mod render;
mod schedule;
mod section;
mod work;

pub use builder::{ScheduleBuilder, VariantError, VariantInput};
pub use busiest::busiest_loop;
pub(crate) use busiest::{busiest_loop_outside, gives_away};
pub use schedule::{Comparison, ScheduleOutcome, Variant, VariantKind};
pub use section::{
    Interleave, Issue, LocalMemory, LoopFacts, MetricsOutcome, Operations, Registers, Run, Section,
    SectionKind, UnknownMnemonic,
};

pub use crate::diff_listings::DiffOutcome;
pub use crate::gate::GateReport;
pub use crate::lint::LintOutcome;
pub use crate::regs::RegsOutcome;

/// The schema that outcomes state.
pub const SCHEMA: &str = "kbt.sass/1";
