//! Bytes before lines: encodings, foreign formats, line ends. Nothing here knows an instruction.

use super::ParseError;
use std::borrow::Cow;

/// In what form input that may be a listing comes, by its start.
pub(super) enum Form {
    /// Nothing but blanks and NULs.
    Blank,
    /// Lines, behind a byte-order mark of `mark` bytes.
    Text { mark: usize },
    /// Starts like a JSON array or object.
    Json,
    /// UTF-16, with its byte-order mark.
    Utf16,
}

/// What a file is, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InputKind {
    /// A listing, or anything else that is text.
    Listing,
    /// PTX: ptxas makes a cubin of it.
    Ptx,
    /// A cubin: nvdisasm lists it.
    Cubin,
    /// A file that may hold cubins (host ELF, fatbin, archive): cuobjdump lists them.
    Container,
}

/// What a file is.
#[must_use]
pub fn input_kind(bytes: &[u8]) -> InputKind {
    /// `e_machine` of a cubin.
    const EM_CUDA: [u8; 2] = [190, 0];
    if bytes.starts_with(b"\x7fELF") && bytes.get(18..20) == Some(&EM_CUDA) {
        InputKind::Cubin
    } else if binary(bytes).is_some() {
        InputKind::Container
    } else if is_ptx(head(bytes)) {
        InputKind::Ptx
    } else {
        InputKind::Listing
    }
}

/// The assembler that made a cubin, from the note it leaves there: `ptxas 13.0.88`.
#[must_use]
pub fn cubin_assembler(cubin: &[u8]) -> Option<String> {
    let note = memchr::memmem::find(cubin, b"Cuda compilation tools, release ")?;
    let text = &cubin[note..cubin.len().min(note + 100)];
    let version = memchr::memmem::find(text, b", V")? + 3;
    let digits = text[version..].iter().take_while(|b| b.is_ascii_digit() || **b == b'.').count();
    let version = std::str::from_utf8(&text[version..version + digits]).ok()?;
    (!version.is_empty()).then(|| format!("ptxas {version}"))
}

/// Bytes at the start that are enough to know PTX by.
const HEAD: usize = 64 * 1024;

/// PTX must state its version before anything else but comments.
fn is_ptx(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with("//"));
    lines.next().is_some_and(|l| l.starts_with(".version"))
}

/// The form of input that starts so; what is no text is refused.
pub(super) fn form(head: &[u8]) -> Result<Form, ParseError> {
    if let Some(what) = binary(head) {
        return Err(ParseError::Binary { what });
    }
    let mark = match head {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => return Ok(Form::Utf16),
        [0xef, 0xbb, 0xbf, ..] => 3,
        _ => 0,
    };
    Ok(match head[mark..].iter().position(|b| !(b.is_ascii_whitespace() || *b == 0)) {
        None if mark == 0 => Form::Blank,
        Some(first) if looks_like_json(&head[mark + first..]) => Form::Json,
        _ => Form::Text { mark },
    })
}

/// Text without its byte-order mark, as UTF-8 or what is taken for it.
pub(super) fn plain_text(bytes: &[u8]) -> Cow<'_, [u8]> {
    match bytes {
        [0xff, 0xfe, rest @ ..] => Cow::Owned(from_utf16(rest, u16::from_le_bytes)),
        [0xfe, 0xff, rest @ ..] => Cow::Owned(from_utf16(rest, u16::from_be_bytes)),
        [0xef, 0xbb, 0xbf, rest @ ..] => Cow::Borrowed(rest),
        _ => Cow::Borrowed(bytes),
    }
}

/// As much of a text as its form or what else it may be is told from.
pub(super) fn head(text: &[u8]) -> &[u8] {
    &text[..text.len().min(HEAD)]
}

/// CuAssembler's lines begin with `[B`, so a bracket alone says nothing.
fn looks_like_json(text: &[u8]) -> bool {
    let [first, rest @ ..] = text else { return false };
    let next = rest.iter().find(|b| !b.is_ascii_whitespace());
    matches!((first, next), (b'[', Some(b'{' | b'[' | b']')) | (b'{', Some(b'"' | b'}')))
}

/// UTF-16 as some shells write it when output is redirected. Listings are ASCII but for paths, so a unit that
/// is no character becomes the replacement character.
fn from_utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Vec<u8> {
    let units = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
    char::decode_utf16(units)
        .map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect::<String>()
        .into_bytes()
}

/// What kind of machine-code container the bytes are, if one.
fn binary(bytes: &[u8]) -> Option<&'static str> {
    const KINDS: &[(&[u8], &str)] = &[
        (b"\x7fELF", "an ELF file (a cubin, a shared object or an executable)"),
        (b"\x50\xed\x55\xba", "a fatbin"),
        (b"\xba\x55\xed\x50", "a fatbin"),
        (b"!<arch>", "a static library"),
        (b"MZ", "a Windows executable"),
        (b"PK\x03\x04", "a zip archive"),
        (b"\x1f\x8b", "a gzip file"),
        (b"\x28\xb5\x2f\xfd", "a zstd file"),
    ];
    KINDS.iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, what)| *what)
}

/// The error for text in which no listing was found.
pub(super) fn foreign(bytes: &[u8]) -> ParseError {
    let head = head(bytes);
    if is_ptx(head) {
        return ParseError::Ptx;
    }
    let text = String::from_utf8_lossy(head);
    let first_line = text.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or_default();
    let first_line = first_line.chars().take(80).collect();
    ParseError::Foreign { first_line }
}

/// The lines, without line ends; a lone CR does not end a line.
pub(super) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let line = match memchr::memchr(b'\n', text) {
            Some(end) => {
                rest = Some(&text[end + 1..]).filter(|r| !r.is_empty());
                &text[..end]
            }
            None => {
                rest = None;
                text
            }
        };
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    })
}

/// Takes ANSI colour codes and embedded NULs out of a line; lines without any are borrowed.
pub(super) fn plain(line: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(0x1b, 0, line).is_none() {
        return Cow::Borrowed(line);
    }
    let mut out = Vec::with_capacity(line.len());
    let mut i = 0;
    while i < line.len() {
        match line[i] {
            0 => i += 1,
            0x1b if line.get(i + 1) == Some(&b'[') => {
                let end = line[i + 2..].iter().position(|b| (0x40..=0x7e).contains(b));
                i = end.map_or(line.len(), |n| i + 2 + n + 1);
            }
            0x1b => i += 1,
            b => {
                out.push(b);
                i += 1;
            }
        }
    }
    Cow::Owned(out)
}

/// A line as text; bytes that are not UTF-8 (paths) become replacement characters.
pub(super) fn text(line: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(line).map_or_else(|_| String::from_utf8_lossy(line), Cow::Borrowed)
}
