//! The one error type of this crate.

use std::path::PathBuf;

/// Why a tensor or a tensor file could not be taken as asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The file could not be opened, read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The file's bytes are not what its format demands.
    #[error("{file}: {at}: {problem}")]
    Malformed {
        /// The file's name.
        file: String,
        /// The field or byte offset.
        at: String,
        /// What is wrong, and what would be accepted.
        problem: String,
    },
    /// The file is sound but asks for something that is not taken.
    #[error("{file}: {what}")]
    Unsupported {
        /// The file's name.
        file: String,
        /// What it asks for, and what to do instead.
        what: String,
    },
    /// A pickle asks to run something other than rebuilding tensors. Nothing was run.
    #[error(
        "{file}: refused: the pickle asks for `{global}` at byte {offset}; only tensors, their storages, \
             dtypes and OrderedDict are rebuilt, and nothing is executed"
    )]
    PickleRefused {
        /// The file's name.
        file: String,
        /// The callable or class asked for, as `module.name`, or the opcode.
        global: String,
        /// Where in the pickle.
        offset: usize,
    },
    /// A tensor cannot be what was asked of it.
    #[error("tensor `{name}`: {problem}")]
    Tensor {
        /// Its name.
        name: String,
        /// What is wrong, and what would be accepted.
        problem: String,
    },
    /// The set holds no tensor of that name.
    #[error("no tensor `{name}`; there is {have}")]
    Missing {
        /// The name asked for.
        name: String,
        /// The names there are.
        have: String,
    },
}

impl TensorError {
    pub(crate) fn tensor(name: &str, problem: impl Into<String>) -> Self {
        Self::Tensor { name: name.to_owned(), problem: problem.into() }
    }

    pub(crate) fn malformed(file: &str, at: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Malformed { file: file.to_owned(), at: at.into(), problem: problem.into() }
    }

    pub(crate) fn unsupported(file: &str, what: impl Into<String>) -> Self {
        Self::Unsupported { file: file.to_owned(), what: what.into() }
    }
}

/// The names of a collection for a message: at most eight of them.
pub(crate) fn list_names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    match names.len() {
        0 => "none".to_owned(),
        n if n <= 8 => format!("`{}`", names.join("`, `")),
        n => format!("`{}` and {} more", names[..8].join("`, `"), n - 8),
    }
}
