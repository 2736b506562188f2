//! One module a subcommand: its arguments, and the call into the crate that does the work.

pub(crate) mod kernel;
pub(crate) mod microbench;
pub(crate) mod quant;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod roofline;
pub(crate) mod sass;
pub(crate) mod split;
pub(crate) mod target;
pub(crate) mod trace;
pub(crate) mod tune;
pub(crate) mod validate;
