//! Finds NVIDIA's compiler tools and runs them: nvcc, ptxas, nvdisasm, cuobjdump, ncu.
//!
//! The tools may come from a toolkit, from a system package, or from the PyPI wheels that `cargo xtask setup`
//! unpacks, and one tool may lie elsewhere than another: [`Search`] knows the places and their order,
//! [`Toolchain`] is what was found. Every result carries the version of the tool that made it, because the
//! compiler version is a confounder of every figure read from machine code.
//!
//! What the tools print is handed on as text; reading machine code is kbt-sass's work. The one thing read here
//! is what `ptxas -v` says about a compilation: [`ResourceReport`].

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod compile;
mod error;
mod find;
mod resources;
mod run;

pub use compile::{Assembled, Compiled, NvccOptions, NvccOutput, NvdisasmOptions, PtxasOptions};
pub use error::{NotFound, ToolError};
pub use find::{Search, Toolchain};
pub use resources::{CompilerMessage, ResourceReport, ResourceUsage, Severity};
pub use run::{Tool, ToolOutput};
