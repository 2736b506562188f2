//! A set of tensors in memory, ordered by name, with the digests that tie outputs to their inputs.

use crate::error::list_names;
use crate::file::{ReadOptions, TensorFile};
use crate::{Tensor, TensorError, safetensors};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

const DIGEST: &str = "sha256.";
const INPUT_DIGEST: &str = "input_sha256.";
const INPUT_DTYPE: &str = "input_dtype.";

/// Tensors by name, and what a safetensors file says beside them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TensorSet {
    tensors: BTreeMap<String, Tensor>,
    metadata: BTreeMap<String, String>,
}

impl TensorSet {
    /// An empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor.
    ///
    /// # Errors
    /// Where the set has one of that name already.
    pub fn insert(&mut self, tensor: Tensor) -> Result<(), TensorError> {
        if self.tensors.contains_key(tensor.name()) {
            return Err(TensorError::tensor(tensor.name(), "the set has a tensor of this name already"));
        }
        self.tensors.insert(tensor.name().to_owned(), tensor);
        Ok(())
    }

    /// A tensor by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// A tensor by name, or an error that says which there are.
    ///
    /// # Errors
    /// Where there is none of that name.
    pub fn require(&self, name: &str) -> Result<&Tensor, TensorError> {
        self.get(name).ok_or_else(|| TensorError::Missing {
            name: name.to_owned(),
            have: list_names(self.tensors.keys().map(String::as_str)),
        })
    }

    /// The tensors, in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Tensor> + Clone {
        self.tensors.values()
    }

    /// How many tensors there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// What a file says beside its tensors.
    #[must_use]
    pub const fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Adds to that.
    pub fn set_metadata(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.metadata.insert(key.into(), value.into());
    }

    /// Records which inputs the set, an output, was computed from: metadata `input_sha256.NAME` and
    /// `input_dtype.NAME`. Outputs of different inputs differ by right, and a comparison of them is refused.
    pub fn record_inputs(&mut self, inputs: &Self) {
        for tensor in inputs.iter() {
            self.set_metadata(format!("{INPUT_DIGEST}{}", tensor.name()), tensor.sha256());
            self.set_metadata(format!("{INPUT_DTYPE}{}", tensor.name()), tensor.dtype().as_str());
        }
    }

    /// The recorded digests of the inputs, by the inputs' names.
    #[must_use]
    pub fn input_digests(&self) -> BTreeMap<&str, &str> {
        input_digests(&self.metadata)
    }

    /// Reads all tensors of a safetensors, npy, npz or `.pt` file.
    ///
    /// # Errors
    /// As [`TensorFile::open`] and [`TensorFile::load`].
    pub fn read(path: &Path, options: &ReadOptions) -> Result<Self, TensorError> {
        Self::from_file(&TensorFile::open(path, options)?)
    }

    /// The same over bytes in memory; `stem` is what a tensor without a name is called.
    ///
    /// # Errors
    /// As [`TensorSet::read`].
    pub fn from_bytes(bytes: Vec<u8>, stem: &str, options: &ReadOptions) -> Result<Self, TensorError> {
        Self::from_file(&TensorFile::from_bytes(bytes, stem, options)?)
    }

    fn from_file(file: &TensorFile) -> Result<Self, TensorError> {
        let mut set = Self::new();
        for info in file.infos() {
            set.insert(file.load(&info.name)?)?;
        }
        set.metadata.clone_from(file.metadata());
        // Digests of the tensors belong to the file; they are written anew.
        set.metadata.retain(|key, _| !key.starts_with(DIGEST));
        Ok(set)
    }

    /// The set as a safetensors file, with `sha256.NAME` in the metadata for every tensor. The same set always
    /// gives the same bytes.
    ///
    /// # Errors
    /// Where a name is safetensors' own (`__metadata__`).
    pub fn to_safetensors(&self) -> Result<Vec<u8>, TensorError> {
        let mut metadata = self.metadata.clone();
        metadata.extend(self.iter().map(|t| (format!("{DIGEST}{}", t.name()), t.sha256())));
        safetensors::to_bytes(self.iter(), &metadata)
    }

    /// Writes [`TensorSet::to_safetensors`] to a file that appears whole or not at all.
    ///
    /// # Errors
    /// As [`TensorSet::to_safetensors`], or where the file cannot be written.
    pub fn write_safetensors(&self, path: &Path) -> Result<(), TensorError> {
        write_whole(path, &self.to_safetensors()?)
    }
}

pub(crate) fn input_digests(metadata: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    metadata.iter().filter_map(|(k, v)| Some((k.strip_prefix(INPUT_DIGEST)?, v.as_str()))).collect()
}

/// Writes beside the file under another name, then renames: a reader sees the old file or the new one.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), TensorError> {
    let io = |error| TensorError::Io { path: path.to_owned(), error };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".part-{}", std::process::id()));
    let part = path.with_file_name(name);
    let written =
        fs::File::create(&part).and_then(|mut f| f.write_all(bytes)).and_then(|()| fs::rename(&part, path));
    written.map_err(|e| {
        // Best effort: the error that matters is the first one.
        let _ = fs::remove_file(&part);
        io(e)
    })
}
