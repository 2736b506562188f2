//! The zip container of npz and `.pt` files: its entries, and their data as checked streams.

use crate::TensorError;
use crate::source::Source;
use flate2::read::DeflateDecoder;
use std::io::{self, BufReader, Read, SeekFrom};

/// The bytes of one entry, or of a whole plain file.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Bytes once unpacked.
    pub(crate) size: u64,
    start: u64,
    packed: u64,
    deflated: bool,
    crc: Option<u32>,
}

impl Entry {
    /// A part of a plain file.
    pub(crate) const fn plain(start: u64, size: u64) -> Self {
        Self { name: String::new(), size, start, packed: size, deflated: false, crc: None }
    }

    /// Where its data, packed or not, starts in the file.
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// Whether any place of its data can be gone to: neither packed nor checked by a sum over all of it.
    pub(crate) const fn is_seekable(&self) -> bool {
        !self.deflated && self.crc.is_none()
    }

    /// Its data from the beginning. A damaged entry gives an error at its end at the latest.
    pub(crate) fn open(&self, source: &Source) -> Result<Box<dyn Read + Send>, TensorError> {
        self.open_from(source, 0)
    }

    /// Its data from byte `skip` on. What lies before is read and dropped where the entry is not seekable.
    pub(crate) fn open_from(&self, source: &Source, skip: u64) -> Result<Box<dyn Read + Send>, TensorError> {
        let mut reader = source.open()?;
        if self.is_seekable() {
            let skip = skip.min(self.packed);
            reader.seek(SeekFrom::Start(self.start + skip)).map_err(|e| source.io(e))?;
            return Ok(Box::new(reader.take(self.packed - skip)));
        }
        reader.seek(SeekFrom::Start(self.start)).map_err(|e| source.io(e))?;
        let packed = reader.take(self.packed);
        let data: Box<dyn Read + Send> = if self.deflated {
            Box::new(DeflateDecoder::new(BufReader::new(packed)))
        } else {
            Box::new(packed)
        };
        let mut data: Box<dyn Read + Send> = match self.crc {
            None => data,
            Some(crc) => Box::new(Checked { data, left: self.size, hash: crc32fast::Hasher::new(), crc }),
        };
        io::copy(&mut data.by_ref().take(skip), &mut io::sink()).map_err(|e| source.io(e))?;
        Ok(data)
    }

    /// All of it, where it is no longer than `limit` bytes.
    pub(crate) fn read(&self, source: &Source, limit: u64) -> Result<Vec<u8>, TensorError> {
        if self.size > limit {
            return Err(source
                .malformed(&self.name, format!("{} bytes, more than the {limit} taken here", self.size)));
        }
        let mut bytes = Vec::new();
        self.open(source)?
            .read_to_end(&mut bytes)
            .map_err(|e| source.malformed(&self.name, e.to_string()))?;
        Ok(bytes)
    }
}

/// Reads exactly the bytes an entry claims and checks them against its CRC-32.
struct Checked {
    data: Box<dyn Read + Send>,
    left: u64,
    hash: crc32fast::Hasher,
    crc: u32,
}

impl Read for Checked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let n = self.data.read(&mut buffer[..most])?;
        if n == 0 {
            let problem = format!("the entry ends {} bytes early", self.left);
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, problem));
        }
        self.hash.update(&buffer[..n]);
        self.left -= n as u64;
        if self.left == 0 && self.hash.clone().finalize() != self.crc {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the entry's CRC-32 is wrong: the file is damaged",
            ));
        }
        Ok(n)
    }
}

/// End of central directory, its zip64 locator and record, a central record, a local record.
const END: &[u8] = b"PK\x05\x06";
const LOCATOR64: &[u8] = b"PK\x06\x07";
const END64: &[u8] = b"PK\x06\x06";
const CENTRAL: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";
/// The end record and the longest comment after it.
const LONGEST_TAIL: u64 = 22 + 0xffff;
/// A field that says: see the zip64 extra field.
const SEE_EXTRA: u64 = 0xffff_ffff;

/// The entries of a zip archive, stored or deflated ones; anything else is refused by name. Only the places are
/// read here (APPNOTE 6.3.10, sections 4.3 and 4.5.3), so this needs no zip library, whose features it refuses.
pub(crate) fn entries(source: &Source) -> Result<Vec<Entry>, TensorError> {
    let length = source.length()?;
    let directory = directory(source, length)?;
    let mut rest = directory.as_slice();
    let mut entries = Vec::new();
    while rest.starts_with(CENTRAL) {
        let bad = || source.malformed("zip directory", format!("record {} is cut off", entries.len()));
        let sizes = [28, 30, 32].map(|at| number(rest, at, 2));
        let [Some(name), Some(extra), Some(comment)] = sizes.map(|n| n.map(to_usize)) else {
            return Err(bad());
        };
        let end = 46 + name + extra + comment;
        let record = rest.get(..end).ok_or_else(bad)?;
        let entry = entry(source, length, record, name, extra)?;
        entries.push(entry);
        rest = &rest[end..];
    }
    if !rest.is_empty() {
        return Err(
            source.malformed("zip directory", format!("something else after {} records", entries.len()))
        );
    }
    Ok(entries)
}

/// A little-endian number of `bytes` bytes.
fn number(from: &[u8], at: usize, bytes: usize) -> Option<u64> {
    let part = from.get(at..at.checked_add(bytes)?)?;
    Some(part.iter().rev().fold(0, |value, &b| value << 8 | u64::from(b)))
}

fn to_usize(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// The bytes of the central directory, found from the archive's end.
fn directory(source: &Source, length: u64) -> Result<Vec<u8>, TensorError> {
    let bad = |problem: &str| source.malformed("zip end record", problem);
    let tail_length = length.min(LONGEST_TAIL);
    let tail = source.bytes(length - tail_length, to_usize(tail_length))?;
    // The last one whose comment ends with the file.
    let is_end = |at: &usize| {
        tail[*at..].starts_with(END)
            && number(&tail, at + 20, 2).is_some_and(|c| at + 22 + to_usize(c) == tail.len())
    };
    let end =
        (0..tail.len()).rev().find(is_end).ok_or_else(|| bad("there is none: the archive is cut off"))?;
    let mut place = (number(&tail, end + 12, 4), number(&tail, end + 16, 4));
    let locator = end.checked_sub(20).and_then(|at| tail.get(at..end)).filter(|l| l.starts_with(LOCATOR64));
    if let Some(at) = locator.and_then(|l| number(l, 8, 8)) {
        if at.checked_add(56).is_none_or(|end| end > length) {
            return Err(bad("its zip64 record lies beyond the file"));
        }
        let record = source.bytes(at, 56)?;
        if !record.starts_with(END64) {
            return Err(bad("its zip64 record is not where it says"));
        }
        place = (number(&record, 40, 8), number(&record, 48, 8));
    }
    match place {
        (Some(size), Some(start)) if start.checked_add(size).is_some_and(|end| end <= length) => {
            source.bytes(start, to_usize(size))
        }
        _ => Err(bad("its directory lies beyond the file")),
    }
}

fn entry(
    source: &Source,
    length: u64,
    record: &[u8],
    name: usize,
    extra: usize,
) -> Result<Entry, TensorError> {
    let label = String::from_utf8_lossy(&record[46..46 + name]).into_owned();
    let bad = |problem: &str| source.malformed(format!("zip entry `{}`", label.escape_debug()), problem);
    let field = |at, bytes| number(record, at, bytes).ok_or_else(|| bad("its record is cut off"));
    let (flags, method, crc) = (field(8, 2)?, field(10, 2)?, field(16, 4)?);
    // Size, packed size and place; each may move to the extra field, in this order.
    let mut values = [field(24, 4)?, field(20, 4)?, field(42, 4)?];
    let mut wide = zip64(&record[46 + name..46 + name + extra]).unwrap_or_default();
    for value in values.iter_mut().filter(|v| **v == SEE_EXTRA) {
        *value = number(wide, 0, 8).ok_or_else(|| bad("its zip64 sizes are missing"))?;
        wide = &wide[8..];
    }
    let [size, packed, local] = values;
    if flags & 1 != 0 {
        return Err(source.unsupported(format!("zip entry `{}` is encrypted", label.escape_debug())));
    }
    let deflated = match method {
        0 => false,
        8 => true,
        other => {
            let what = format!(
                "zip entry `{}` is packed by method {other}; stored (0) and deflated (8) are taken",
                label.escape_debug()
            );
            return Err(source.unsupported(what));
        }
    };
    if local.checked_add(30).is_none_or(|end| end > length) {
        return Err(bad("it lies beyond the file"));
    }
    let header = source.bytes(local, 30)?;
    if !header.starts_with(LOCAL) {
        return Err(bad("it is not where the directory says"));
    }
    // The local record has a name and an extra field of its own lengths.
    let skip = number(&header, 26, 2).unwrap_or(0) + number(&header, 28, 2).unwrap_or(0);
    let start = local + 30 + skip;
    let within = start.checked_add(packed).is_some_and(|end| end <= length);
    if !within || (!deflated && size != packed) {
        return Err(bad("its data goes beyond the file"));
    }
    let crc = u32::try_from(crc).ok();
    Ok(Entry { name: label, size, start, packed, deflated, crc })
}

/// The zip64 field among the extra fields.
fn zip64(mut extra: &[u8]) -> Option<&[u8]> {
    loop {
        let (id, size) = (number(extra, 0, 2)?, to_usize(number(extra, 2, 2)?));
        let body = extra.get(4..4 + size)?;
        if id == 1 {
            return Some(body);
        }
        extra = &extra[4 + size..];
    }
}
