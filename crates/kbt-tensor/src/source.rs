//! Where a file's bytes are: on disk, read piece by piece, or in memory.

use crate::TensorError;
use std::fs::File;
use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that can be read from any place, more than once.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    /// What messages call it.
    pub(crate) name: String,
    /// What a tensor without a name of its own is called.
    pub(crate) stem: String,
    at: At,
}

#[derive(Debug, Clone)]
enum At {
    Disk(PathBuf),
    Memory(Arc<[u8]>),
}

pub(crate) trait ReadSeek: Read + Seek + Send {}
impl<T: Read + Seek + Send> ReadSeek for T {}

impl Source {
    pub(crate) fn disk(path: &Path) -> Self {
        let stem = path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        Self { name: path.display().to_string(), stem, at: At::Disk(path.to_owned()) }
    }

    pub(crate) fn memory(bytes: Vec<u8>, stem: &str) -> Self {
        Self { name: stem.to_owned(), stem: stem.to_owned(), at: At::Memory(bytes.into()) }
    }

    pub(crate) fn open(&self) -> Result<Box<dyn ReadSeek>, TensorError> {
        match &self.at {
            At::Disk(path) => Ok(Box::new(File::open(path).map_err(|e| self.io(e))?)),
            At::Memory(bytes) => Ok(Box::new(Cursor::new(Arc::clone(bytes)))),
        }
    }

    /// Its length in bytes.
    pub(crate) fn length(&self) -> Result<u64, TensorError> {
        self.open()?.seek(SeekFrom::End(0)).map_err(|e| self.io(e))
    }

    /// Exactly `length` bytes from `start`; the caller has checked them against the source's length.
    pub(crate) fn bytes(&self, start: u64, length: usize) -> Result<Vec<u8>, TensorError> {
        let mut reader = self.open()?;
        reader.seek(SeekFrom::Start(start)).map_err(|e| self.io(e))?;
        let mut bytes = vec![0; length];
        reader.read_exact(&mut bytes).map_err(|e| self.io(e))?;
        Ok(bytes)
    }

    /// An error of the system, with the file's name.
    pub(crate) fn io(&self, error: io::Error) -> TensorError {
        match &self.at {
            At::Disk(path) => TensorError::Io { path: path.clone(), error },
            At::Memory(_) => TensorError::malformed(&self.name, "data", error.to_string()),
        }
    }

    pub(crate) fn malformed(&self, at: impl Into<String>, problem: impl Into<String>) -> TensorError {
        TensorError::malformed(&self.name, at, problem)
    }

    pub(crate) fn unsupported(&self, what: impl Into<String>) -> TensorError {
        TensorError::unsupported(&self.name, what)
    }
}
