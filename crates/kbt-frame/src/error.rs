//! Why there is no table. No rendering and no exit codes here.

use std::io;
use std::path::{Path, PathBuf};

/// Why a run cannot be read, or its tables not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// No run is there.
    #[error("{}: not a run directory (it has no run.json); `kbt tune --out DIR` makes one", .0.display())]
    NotARun(PathBuf),
    /// A file of the run that does not read.
    #[error("{}: field `{field}`: {message}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The field, as a path from the top; `.` for the file as a whole.
        field: String,
        /// What is wrong with it, and what would be accepted.
        message: String,
    },
    /// The file system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// polars refused a frame.
    #[error("table `{table}`: {source}")]
    Frame {
        /// The table.
        table: String,
        /// The reason.
        source: polars::prelude::PolarsError,
    },
}

impl FrameError {
    pub(crate) fn damaged(path: &Path, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), field: field.into(), message: message.into() }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |source| Self::Io { path: path.to_owned(), source }
    }

    pub(crate) fn frame(table: &str) -> impl FnOnce(polars::prelude::PolarsError) -> Self + '_ {
        move |source| Self::Frame { table: table.to_owned(), source }
    }
}
