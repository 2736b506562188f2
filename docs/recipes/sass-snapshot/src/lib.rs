//! What of a kernel's machine code is worth a snapshot, and how the machine code is made.

mod build;
mod summary;

pub use build::{Built, Kernel, build, toolchain};
pub use summary::summary;
