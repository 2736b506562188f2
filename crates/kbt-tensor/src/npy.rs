//! npy: the header's dictionary, the element types it names and those it lost, and a writer.
//!
//! numpy knows no bf16 and no 8- or 4-bit float. With `ml_dtypes` a bf16 array is written as `<V2`, e4m3, e8m0
//! and e2m1 arrays as `<V1` (which of them is lost) and e5m2 as `<f1` (which numpy itself cannot load). `<V2`
//! is taken as bf16, because nothing else writes it; every other one needs its type named.

use crate::archive::Entry;
use crate::file::{Located, ReadOptions};
use crate::layout::{View, column_strides, row_strides};
use crate::source::Source;
use crate::tensor::{byte_length, elements};
use crate::{Dtype, Tensor, TensorError, TensorInfo};
use std::io::Read;
use std::path::Path;

pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";
/// Longer headers only occur for structured types, which are refused.
const LONGEST_HEADER: usize = 1 << 16;
/// numpy's own limit on dimensions is 64.
const MOST_DIMENSIONS: usize = 64;

#[derive(Debug, PartialEq, Eq)]
struct Header {
    descr: String,
    fortran: bool,
    shape: Vec<usize>,
}

/// Reads the header at the start of `entry` and finds the data behind it.
pub(crate) fn locate(
    source: &Source,
    entry: &Entry,
    name: &str,
    options: &ReadOptions,
) -> Result<Located, TensorError> {
    let bad = |at: &str, problem: String| source.malformed(format!("{name}: {at}"), problem);
    let mut reader = entry.open(source)?;
    let mut take = |n: usize, what: &str| {
        let mut bytes = vec![0; n];
        match reader.read_exact(&mut bytes) {
            Ok(()) => Ok(bytes),
            Err(e) => Err(source.malformed(format!("{name}: {what}"), e.to_string())),
        }
    };
    let start = take(8, "magic")?;
    if !start.starts_with(MAGIC) {
        return Err(bad("magic", "no npy file: it must start with \\x93NUMPY".to_owned()));
    }
    let prefix = match start[6] {
        1 => 2,
        2 | 3 => 4,
        v => return Err(bad("version", format!("{v}; versions 1, 2 and 3 are taken"))),
    };
    let mut length = [0; 4];
    length[..prefix].copy_from_slice(&take(prefix, "header length")?);
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST_HEADER {
        return Err(bad("header length", format!("{length} bytes; at most {LONGEST_HEADER} are taken")));
    }
    let header = take(length, "header")?;
    let header = Parser { text: &header, at: 0 }.header().map_err(|p| bad("header", p))?;
    let descr = element(&header.descr, options.dtype(name)).map_err(|p| bad("descr", p))?;
    let stored = descr.stored_bytes(&header.shape).ok_or_else(|| bad("shape", "too large".to_owned()))?;
    let skip = 8 + prefix + length;
    let data = entry.size.saturating_sub(skip as u64);
    if data != stored as u64 {
        let problem = format!(
            "shape {:?} of `{}` takes {stored} bytes; {data} follow the header",
            header.shape, header.descr
        );
        return Err(bad("data", problem));
    }
    let shape = if descr.packed { double_last(&header.shape) } else { Ok(header.shape.clone()) };
    let shape = shape.map_err(|p| bad("shape", p))?;
    byte_length(descr.dtype, &shape).map_err(|p| bad("shape", p))?;
    let strides = if header.fortran { column_strides(&header.shape) } else { row_strides(&header.shape) };
    Ok(Located {
        info: TensorInfo { name: name.to_owned(), dtype: descr.dtype, shape },
        entry: entry.clone(),
        skip: skip as u64,
        stored,
        view: View::new(descr.width, header.shape, 0, strides),
        swap: descr.big_endian,
        code_a_byte: descr.dtype == Dtype::E2m1 && !descr.packed,
    })
}

/// What a `descr` means once the caller's word is taken into account.
#[derive(Debug, PartialEq, Eq)]
struct Element {
    dtype: Dtype,
    /// Bytes an array element.
    width: usize,
    big_endian: bool,
    /// Two e2m1 codes an array element, rather than one.
    packed: bool,
}

impl Element {
    fn stored_bytes(&self, shape: &[usize]) -> Option<usize> {
        elements(shape)?.checked_mul(self.width)
    }
}

fn element(descr: &str, asked: Option<Dtype>) -> Result<Element, String> {
    let mut chars = descr.chars();
    let order = chars.next().ok_or("empty type")?;
    let big_endian = match order {
        '<' | '|' | '=' => false,
        '>' => true,
        _ => return Err(format!("`{descr}`: the byte order must be one of < > | =")),
    };
    let kind = chars.as_str();
    let known = match kind {
        "f8" => Dtype::F64,
        "f4" => Dtype::F32,
        "f2" => Dtype::F16,
        "V2" if order == '<' && asked.is_none() => Dtype::Bf16,
        "i8" => Dtype::I64,
        "i4" => Dtype::I32,
        "i2" => Dtype::I16,
        "i1" => Dtype::I8,
        "u8" => Dtype::U64,
        "u4" => Dtype::U32,
        "u2" => Dtype::U16,
        "u1" => Dtype::U8,
        "b1" => Dtype::Bool,
        "V1" | "V2" | "f1" => {
            let width = if kind == "V2" { 2 } else { 1 };
            let dtype = asked.ok_or_else(|| {
                let which = if width == 2 { "bf16, f16" } else { "e4m3, e5m2, e8m0, e2m1" };
                format!("`{descr}` does not say which {width}-byte type it is; name it ({which}), e.g. --dtype NAME=e4m3")
            })?;
            // ml_dtypes gives every e2m1 code a byte of its own.
            if dtype.bits() != 8 * width && !(dtype == Dtype::E2m1 && width == 1) {
                return Err(format!(
                    "`{descr}` has {width} bytes an element; {dtype} has {} bits",
                    dtype.bits()
                ));
            }
            return Ok(Element { dtype, width, big_endian: big_endian && width > 1, packed: false });
        }
        "O" => {
            return Err(format!(
                "`{descr}`: an array of pickled Python objects, which would have to be run; save it as numbers"
            ));
        }
        _ => {
            return Err(format!(
                "`{descr}`: f8 f4 f2 i8 i4 i2 i1 u8 u4 u2 u1 b1 V2 V1 f1 are taken, structured, complex and text types are not"
            ));
        }
    };
    let width = known.bits() / 8;
    let dtype = reinterpret(known, asked)?;
    Ok(Element { dtype, width, big_endian: big_endian && width > 1, packed: dtype == Dtype::E2m1 })
}

/// Integers of the same width may carry the codes of a float; a byte may carry two e2m1 codes.
pub(crate) fn reinterpret(known: Dtype, asked: Option<Dtype>) -> Result<Dtype, String> {
    let Some(asked) = asked.filter(|&a| a != known) else { return Ok(known) };
    let width = if asked == Dtype::E2m1 { 8 } else { asked.bits() };
    if known.is_float() || known == Dtype::Bool || width != known.bits() {
        return Err(format!("the file says {known}; that cannot be taken as {asked}"));
    }
    Ok(asked)
}

/// The shape in e2m1 codes of an array of bytes that hold two each.
pub(crate) fn double_last(shape: &[usize]) -> Result<Vec<usize>, String> {
    let mut shape = shape.to_vec();
    let last = shape.last_mut().ok_or("a scalar byte of two e2m1 codes has no last dimension to double")?;
    *last = last.checked_mul(2).ok_or("too large")?;
    Ok(shape)
}

/// Reads the Python dictionary literal of an npy header.
struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn header(mut self) -> Result<Header, String> {
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while !self.accept(b'}') {
            let key = self.string()?;
            self.expect(b':')?;
            match key.as_str() {
                "descr" => descr = Some(self.string().map_err(|_| "descr: a structured type is not taken")?),
                "fortran_order" => fortran = Some(self.boolean()?),
                "shape" => shape = Some(self.tuple()?),
                other => return Err(format!("unknown key `{}`", other.escape_debug())),
            }
            if !self.accept(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        Ok(Header {
            descr: descr.ok_or("no `descr`")?,
            fortran: fortran.ok_or("no `fortran_order`")?,
            shape: shape.ok_or("no `shape`")?,
        })
    }

    fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn accept(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), String> {
        if self.accept(byte) {
            Ok(())
        } else {
            Err(format!("`{}` expected at byte {}", char::from(byte), self.at))
        }
    }

    fn string(&mut self) -> Result<String, String> {
        let quote =
            self.peek().filter(|q| matches!(q, b'\'' | b'"')).ok_or(format!("a text at byte {}", self.at))?;
        let rest = &self.text[self.at + 1..];
        let end = rest.iter().position(|&b| b == quote).ok_or("a text without its end")?;
        self.at += end + 2;
        Ok(String::from_utf8_lossy(&rest[..end]).into_owned())
    }

    fn boolean(&mut self) -> Result<bool, String> {
        self.peek();
        for (word, value) in [(&b"True"[..], true), (b"False", false)] {
            if self.text[self.at..].starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(format!("True or False expected at byte {}", self.at))
    }

    fn tuple(&mut self) -> Result<Vec<usize>, String> {
        let mut extents = Vec::new();
        self.expect(b'(')?;
        while !self.accept(b')') {
            self.peek();
            let digits = self.text[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
            let text = String::from_utf8_lossy(&self.text[self.at..self.at + digits]).into_owned();
            extents.push(text.parse().map_err(|_| format!("an extent expected at byte {}", self.at))?);
            self.at += digits;
            // Python 2 wrote `3L`.
            self.accept(b'L');
            if extents.len() > MOST_DIMENSIONS {
                return Err(format!("more than {MOST_DIMENSIONS} dimensions"));
            }
            if !self.accept(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(extents)
    }
}

/// An npy file's bytes. bf16 is written as `<V2`, e4m3 and e8m0 as `<V1` and e5m2 as `<f1`, as `ml_dtypes` does.
///
/// # Errors
/// For e2m1, which npy cannot keep packed; safetensors can.
pub fn npy_bytes(tensor: &Tensor) -> Result<Vec<u8>, TensorError> {
    let descr = match tensor.dtype() {
        Dtype::F64 => "<f8",
        Dtype::F32 => "<f4",
        Dtype::F16 => "<f2",
        Dtype::Bf16 => "<V2",
        Dtype::E4m3 | Dtype::E8m0 => "<V1",
        Dtype::E5m2 => "<f1",
        Dtype::I64 => "<i8",
        Dtype::I32 => "<i4",
        Dtype::I16 => "<i2",
        Dtype::I8 => "|i1",
        Dtype::U64 => "<u8",
        Dtype::U32 => "<u4",
        Dtype::U16 => "<u2",
        Dtype::U8 => "|u1",
        Dtype::Bool => "|b1",
        Dtype::E2m1 => {
            return Err(TensorError::tensor(tensor.name(), "npy has no packed e2m1; write safetensors"));
        }
    };
    let comma = if tensor.shape().len() == 1 { "," } else { "" };
    let extents: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({}{comma}), }}", extents.join(", "));
    // The data starts at a multiple of 64 bytes; the header ends with a newline.
    let end = (10 + header.len() + 1).next_multiple_of(64);
    header.extend(std::iter::repeat_n(' ', end - 11 - header.len()));
    header.push('\n');
    let length = u16::try_from(header.len())
        .map_err(|_| TensorError::tensor(tensor.name(), "too many dimensions for an npy header"))?;
    let mut bytes = Vec::with_capacity(10 + header.len() + tensor.bytes().len());
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[1, 0]);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(tensor.bytes());
    Ok(bytes)
}

/// Writes [`npy_bytes`] to a file.
///
/// # Errors
/// As [`npy_bytes`], or where the file cannot be written.
pub fn write_npy(tensor: &Tensor, path: &Path) -> Result<(), TensorError> {
    crate::set::write_whole(path, &npy_bytes(tensor)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_numpy_writes_them() {
        for (text, expect) in [
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }  \n",
                Some(("<f4", false, vec![3, 4])),
            ),
            ("{'descr': '>i2', 'fortran_order': True, 'shape': (7,), }", Some((">i2", true, vec![7]))),
            ("{\"shape\": (), \"descr\": \"|u1\", \"fortran_order\": False}", Some(("|u1", false, vec![]))),
            ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,)}", None),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,)}", None),
            ("{'descr': '<f4', 'fortran_order': False}", None),
            ("{'descr': '<f4', 'fortran_order': Fals", None),
            ("", None),
        ] {
            let got = Parser { text: text.as_bytes(), at: 0 }.header();
            let expect = expect.map(|(d, fortran, shape)| Header { descr: d.to_owned(), fortran, shape });
            assert_eq!(got.as_ref().ok(), expect.as_ref(), "{text}: {got:?}");
        }
    }

    #[test]
    fn a_lost_type_is_asked_for_and_never_guessed() {
        let dtype =
            |descr: &str, asked: Option<Dtype>| element(descr, asked).map(|e| (e.dtype, e.width, e.packed));
        assert_eq!(dtype("<V2", None), Ok((Dtype::Bf16, 2, false)));
        assert_eq!(dtype("<V1", Some(Dtype::E4m3)), Ok((Dtype::E4m3, 1, false)));
        assert_eq!(dtype("<f1", Some(Dtype::E5m2)), Ok((Dtype::E5m2, 1, false)));
        assert_eq!(dtype("<V1", Some(Dtype::E2m1)), Ok((Dtype::E2m1, 1, false)));
        assert_eq!(dtype("|u1", Some(Dtype::E2m1)), Ok((Dtype::E2m1, 1, true)));
        assert_eq!(dtype("<u2", Some(Dtype::Bf16)), Ok((Dtype::Bf16, 2, false)));
        for (descr, asked) in [
            ("<V1", None),
            ("<f1", None),
            ("|V2", None),
            ("<V2", Some(Dtype::E4m3)),
            ("<f4", Some(Dtype::I32)),
            ("<f4", Some(Dtype::Bf16)),
            ("<c8", None),
            ("f4", None),
            ("", None),
        ] {
            assert!(dtype(descr, asked).is_err(), "{descr} {asked:?}");
        }
    }
}
