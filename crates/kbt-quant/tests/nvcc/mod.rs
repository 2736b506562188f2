//! CUDA sources compiled with whatever nvcc is found; without one the tests that need it say so and do nothing.

#![allow(clippy::print_stderr, reason = "a test that does nothing says so")]

use kbt_toolchain::{NvccOptions, Search, Tool, Toolchain};
use std::path::{Path, PathBuf};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The tools, if nvcc is among them.
pub(crate) fn tools(what: &str) -> Option<Toolchain> {
    let found = Search::from_env().with_root(root()).find();
    match found {
        Ok(tools) if tools.version(Tool::Nvcc).is_ok() => Some(tools),
        Ok(_) => {
            eprintln!("SKIPPED: no nvcc was found, so {what}");
            None
        }
        Err(error) => {
            eprintln!("SKIPPED: {error}; so {what}");
            None
        }
    }
}

/// What nvcc makes of a source, as text for PTX.
pub(crate) fn compile(tools: &Toolchain, source: &Path, options: &NvccOptions) -> Vec<u8> {
    tools.nvcc(source, options).unwrap_or_else(|e| panic!("{}: {e}", source.display())).bytes
}
