//! What can go wrong: no tools at all, one tool missing, a tool that failed.

use crate::Tool;
use std::io;
use std::path::PathBuf;

/// No CUDA compiler tool was found anywhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no CUDA compiler tools found; searched {}; `cargo xtask setup` installs them into target/cuda, or set \
     KBT_CUDA to a toolkit's folder", searched.join(", ")
)]
pub struct NotFound {
    /// The places looked at, in order.
    pub searched: Vec<String>,
}

/// A tool that is missing, does not start, or fails.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// Other tools were found, this one was not.
    #[error(
        "{tool} not found; searched {}; `cargo xtask setup` installs nvcc, ptxas, nvdisasm and cuobjdump, or set \
         KBT_CUDA to a folder that has it", searched.join(", ")
    )]
    Missing {
        /// The tool asked for.
        tool: Tool,
        /// The places looked at, in order.
        searched: Vec<String>,
    },
    /// The file is there but does not start.
    #[error("failed to start {tool} at {}: {source}", path.display())]
    Start {
        /// The tool.
        tool: Tool,
        /// Its file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The tool ran and refused its input.
    #[error("{tool} {version} failed ({status}): {log}")]
    Failed {
        /// The tool.
        tool: Tool,
        /// Its version, or `(unknown version)`.
        version: String,
        /// Its exit status.
        status: String,
        /// Its own message, both streams. Input handed over as bytes is called `kernel.ptx` or
        /// `kernel.cubin` in it.
        log: String,
    },
    /// The tool ended well but what it left is not usable.
    #[error("{tool}: {message}")]
    Output {
        /// The tool.
        tool: Tool,
        /// What is wrong.
        message: String,
    },
    /// A temporary file could not be written or read.
    #[error("{what}: {source}")]
    Io {
        /// What was attempted.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl ToolError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |source| Self::Io { what, source }
    }
}
