//! A tensor file opened by its content: the tensors it holds, and their data as streams.

use crate::archive::{self, Entry};
use crate::error::list_names;
use crate::layout::View;
use crate::source::Source;
use crate::swapped::Swapped;
use crate::tensor::{Tensor, sha256_hex};
use crate::{Dtype, TensorError, npy, pickle, pt, safetensors};
use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::path::Path;

/// What a file says of one tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name; a lone npy array or `.pt` tensor is called after the file.
    pub name: String,
    /// Its element type.
    pub dtype: Dtype,
    /// Its extents, outermost first.
    pub shape: Vec<usize>,
}

/// What the caller knows that the file does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// The element type of tensors by name, for files that lost it.
    pub dtypes: BTreeMap<String, Dtype>,
}

impl ReadOptions {
    /// Adds one `NAME=TYPE`, as on a command line.
    ///
    /// # Errors
    /// Where there is no `=`, or the type is unknown.
    pub fn with_dtype(mut self, text: &str) -> Result<Self, TensorError> {
        let (name, dtype) = text
            .rsplit_once('=')
            .ok_or_else(|| TensorError::tensor(text, "NAME=TYPE expected, e.g. p=e4m3"))?;
        let dtype =
            dtype.parse().map_err(|e: crate::UnknownDtype| TensorError::tensor(name, e.to_string()))?;
        self.dtypes.insert(name.to_owned(), dtype);
        Ok(self)
    }

    pub(crate) fn dtype(&self, name: &str) -> Option<Dtype> {
        self.dtypes.get(name).copied()
    }
}

/// Where a tensor's data is and what is to be done to it.
#[derive(Debug, Clone)]
pub(crate) struct Located {
    pub(crate) info: TensorInfo,
    pub(crate) entry: Entry,
    /// Bytes of the entry before the data.
    pub(crate) skip: u64,
    /// Bytes of data.
    pub(crate) stored: usize,
    pub(crate) view: View,
    /// Big-endian elements.
    pub(crate) swap: bool,
    /// e2m1 with every code in a byte of its own.
    pub(crate) code_a_byte: bool,
}

impl Located {
    /// The stored bytes from byte `start` of them on.
    fn raw_from(&self, source: &Source, start: u64) -> Result<Box<dyn Read + Send>, TensorError> {
        let start = start.min(self.stored as u64);
        let data = self.entry.open_from(source, self.skip.saturating_add(start))?;
        Ok(Box::new(data.take(self.stored as u64 - start)))
    }

    /// Whether the file keeps the elements in the tensor's order, if perhaps with their bytes the other way round.
    fn is_in_order(&self) -> bool {
        !self.code_a_byte && self.view.is_row_major() && self.view.offset == 0
    }

    /// The tensor's bytes from byte `start` on, as they are asked for; only where they are in order.
    fn stream_from(&self, source: &Source, start: u64) -> Result<Box<dyn Read + Send>, TensorError> {
        if !self.swap {
            return self.raw_from(source, start);
        }
        let within = start % self.view.width as u64;
        let mut data: Box<dyn Read + Send> =
            Box::new(Swapped::new(self.raw_from(source, start - within)?, self.view.width));
        io::copy(&mut data.by_ref().take(within), &mut io::sink()).map_err(|e| source.io(e))?;
        Ok(data)
    }

    fn bytes(&self, source: &Source) -> Result<Vec<u8>, TensorError> {
        let name = &self.info.name;
        let mut bytes = Vec::new();
        self.raw_from(source, 0)?
            .read_to_end(&mut bytes)
            .map_err(|e| source.malformed(format!("data of `{name}`"), e.to_string()))?;
        if bytes.len() != self.stored {
            let problem = format!("{} bytes where {} were promised", bytes.len(), self.stored);
            return Err(source.malformed(format!("data of `{name}`"), problem));
        }
        if self.is_in_order() && !self.swap {
            return Ok(bytes);
        }
        if self.swap {
            bytes.chunks_exact_mut(self.view.width).for_each(<[u8]>::reverse);
        }
        let beyond = || source.malformed(format!("data of `{name}`"), "its view goes beyond its storage");
        let bytes = self.view.gather(&bytes).ok_or_else(beyond)?;
        if !self.code_a_byte {
            return Ok(bytes);
        }
        if let Some(code) = bytes.iter().find(|&&b| b > 15) {
            return Err(source
                .malformed(format!("data of `{name}`"), format!("{code:#x} is no e2m1 code; 0 to 0xf are")));
        }
        Ok(bytes.as_chunks::<2>().0.iter().map(|[low, high]| low | high << 4).collect())
    }
}

/// A tensor file whose headers are read and whose data is not yet.
#[derive(Debug, Clone)]
pub struct TensorFile {
    source: Source,
    located: Vec<Located>,
    metadata: BTreeMap<String, String>,
    notes: Vec<String>,
}

/// What a format's reader finds.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) located: Vec<Located>,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) notes: Vec<String>,
}

impl TensorFile {
    /// Opens a safetensors, npy, npz or `.pt` file and reads its headers.
    ///
    /// # Errors
    /// Where the file cannot be read, is of none of the formats or damaged, lost an element type that `options`
    /// does not name, or asks to execute something.
    pub fn open(path: &Path, options: &ReadOptions) -> Result<Self, TensorError> {
        Self::from_source(Source::disk(path), options)
    }

    /// The same over bytes in memory; `stem` is what a tensor without a name is called, and what errors name.
    ///
    /// # Errors
    /// As [`TensorFile::open`].
    pub fn from_bytes(bytes: Vec<u8>, stem: &str, options: &ReadOptions) -> Result<Self, TensorError> {
        Self::from_source(Source::memory(bytes, stem), options)
    }

    fn from_source(source: Source, options: &ReadOptions) -> Result<Self, TensorError> {
        let length = source.length()?;
        let head = source.bytes(0, usize::try_from(length).unwrap_or(usize::MAX).min(16))?;
        let mut contents = if head.starts_with(npy::MAGIC) {
            let located = npy::locate(&source, &Entry::plain(0, length), &source.stem.clone(), options)?;
            Contents { located: vec![located], ..Contents::default() }
        } else if head.starts_with(b"PK") {
            zipped(&source, options)?
        } else if head.get(8) == Some(&b'{') {
            safetensors::contents(&source, length, options)?
        } else if let Some(refusal) = pickle_alone(&source, &head, length)? {
            return Err(refusal);
        } else {
            return Err(source.unsupported("not recognised as safetensors, npy, npz or a PyTorch zip"));
        };
        contents.located.sort_by(|a, b| a.info.name.cmp(&b.info.name));
        if let Some(pair) = contents.located.windows(2).find(|w| w[0].info.name == w[1].info.name) {
            return Err(source.malformed(format!("`{}`", pair[0].info.name), "two tensors have this name"));
        }
        let Contents { located, metadata, notes } = contents;
        Ok(Self { source, located, metadata, notes })
    }

    /// The tensors, ordered by name.
    pub fn infos(&self) -> impl ExactSizeIterator<Item = &TensorInfo> {
        self.located.iter().map(|l| &l.info)
    }

    /// What the file says beside its tensors: safetensors' `__metadata__`; empty for the other formats.
    #[must_use]
    pub const fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The recorded digests of the inputs that the tensors were computed from, by the inputs' names.
    #[must_use]
    pub fn input_digests(&self) -> BTreeMap<&str, &str> {
        crate::set::input_digests(&self.metadata)
    }

    /// What the file holds that is not taken, one line each.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    fn find(&self, name: &str) -> Result<&Located, TensorError> {
        self.located.iter().find(|l| l.info.name == name).ok_or_else(|| TensorError::Missing {
            name: name.to_owned(),
            have: list_names(self.infos().map(|i| i.name.as_str())),
        })
    }

    /// The tensor's bytes, row-major and little-endian, read as they are asked for where the file keeps them so,
    /// else prepared in memory first. A digest in the metadata is not checked here; [`TensorFile::load`] does.
    ///
    /// # Errors
    /// Where there is no such tensor, or its data cannot be reached.
    pub fn stream(&self, name: &str) -> Result<Box<dyn Read + Send>, TensorError> {
        self.stream_from(name, 0)
    }

    /// The same from byte `start` of the tensor on; nothing, where that lies beyond its end.
    ///
    /// # Errors
    /// As [`TensorFile::stream`].
    pub fn stream_from(&self, name: &str, start: u64) -> Result<Box<dyn Read + Send>, TensorError> {
        let located = self.find(name)?;
        if located.is_in_order() {
            return located.stream_from(&self.source, start);
        }
        let mut bytes = Cursor::new(located.bytes(&self.source)?);
        bytes.set_position(start);
        Ok(Box::new(bytes))
    }

    /// Whether [`TensorFile::stream_from`] goes to its start at once; else it reads or prepares what lies before.
    #[must_use]
    pub fn is_seekable(&self, name: &str) -> bool {
        self.find(name).is_ok_and(|located| located.is_in_order() && located.entry.is_seekable())
    }

    /// One tensor, whole. Where the metadata has its digest (`sha256.NAME`), the bytes are checked against it.
    ///
    /// # Errors
    /// Where there is no such tensor, or its data is damaged.
    pub fn load(&self, name: &str) -> Result<Tensor, TensorError> {
        let located = self.find(name)?;
        let bytes = located.bytes(&self.source)?;
        if let Some(digest) = self.metadata.get(&format!("sha256.{name}"))
            && *digest != sha256_hex(&bytes)
        {
            let problem =
                "its bytes have another SHA-256 than the metadata says: the file was changed or damaged";
            return Err(self.source.malformed(format!("data of `{name}`"), problem));
        }
        let TensorInfo { name, dtype, shape } = located.info.clone();
        Tensor::new(name, dtype, shape, bytes)
    }
}

/// Why a pickle outside a zip is not taken: what it would run, where it would, else its age. `None` for anything else.
fn pickle_alone(source: &Source, head: &[u8], length: u64) -> Result<Option<TensorError>, TensorError> {
    // Protocol 2 and later begin with PROTO; the older ones with any operation, GLOBAL or MARK where they would call.
    let marked = head.starts_with(&[0x80]);
    if !marked && !matches!(head.first(), Some(b'c' | b'(')) {
        return Ok(None);
    }
    let start = source.bytes(0, usize::try_from(length.min(pt::LONGEST_PICKLE)).unwrap_or(usize::MAX))?;
    match pickle::read(&source.name, &start) {
        Err(refused @ TensorError::PickleRefused { .. }) if marked || start.ends_with(b".") => {
            Ok(Some(refused))
        }
        _ if marked => Ok(Some(source.unsupported(
            "a pickle outside a zip, as PyTorch wrote before 1.6; save it again with a newer PyTorch",
        ))),
        _ => Ok(None),
    }
}

fn zipped(source: &Source, options: &ReadOptions) -> Result<Contents, TensorError> {
    let entries = archive::entries(source)?;
    if entries.iter().any(|e| e.name == "data.pkl" || e.name.ends_with("/data.pkl")) {
        return pt::contents(source, &entries, options);
    }
    let mut contents = Contents::default();
    for entry in &entries {
        match entry.name.strip_suffix(".npy") {
            Some(name) => contents.located.push(npy::locate(source, entry, name, options)?),
            None => contents.notes.push(format!("entry `{}` is no npy array; left out", entry.name)),
        }
    }
    if contents.located.is_empty() && !entries.is_empty() {
        return Err(source.unsupported("a zip with neither npy arrays nor a PyTorch data.pkl"));
    }
    Ok(contents)
}
