//! One module a subcommand: its arguments, and the call into the crate that does the work.

pub(crate) mod kernel;
pub(crate) mod microbench;
pub(crate) mod quant;
pub(crate) mod record;
mod record_args;
pub(crate) mod report;
pub(crate) mod roofline;
pub(crate) mod sass;
pub(crate) mod split;
pub(crate) mod target;
pub(crate) mod trace;
pub(crate) mod tune;
mod tune_args;
pub(crate) mod validate;

// For tune_args and record_args, which name them without their crates.
use crate::output::Format;
use kbt_kernels::attention::PvMode;
