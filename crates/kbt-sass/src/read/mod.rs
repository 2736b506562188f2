//! From bytes to a [`Listing`]: which format it is, and the reader for it.
//!
//! The readers understand what they can and count the rest as problems; only input with no listing in it at
//! all is an error, and that says what was expected.

mod bytes;
mod function;
mod json;
mod line;
mod stream;
mod tables;
mod text;

use crate::{Function, Listing};
use bytes::Form;
pub use bytes::{InputKind, cubin_assembler, input_kind};
pub use stream::parse_stream;

/// Input that holds no listing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseError {
    /// Nothing but blanks and NULs.
    #[error("the listing is empty; expected the output of `{EXPECTED}`")]
    Empty,
    /// Machine code itself, not a listing of it.
    #[error(
        "this is {what}, not a listing; `kbt sass metrics FILE` disassembles it, or pass the output of `{EXPECTED}`"
    )]
    Binary {
        /// What the first bytes say it is.
        what: &'static str,
    },
    /// PTX, which is compiled before it is machine code.
    #[error(
        "this is PTX, not machine code; `kbt sass metrics FILE.ptx --arch ARCH` assembles it with ptxas, or pass the output of `{EXPECTED}`"
    )]
    Ptx,
    /// Something else.
    #[error(
        "no machine-code listing found (the first line is `{first_line}`); expected the output of `{EXPECTED}`"
    )]
    Foreign {
        /// The first line, cut.
        first_line: String,
    },
    /// The input broke off with an error of the system's.
    #[error("reading the listing failed: {message}")]
    Read {
        /// What the system says.
        message: String,
    },
    /// JSON that is not nvdisasm's.
    #[error("{message}; expected the output of `nvdisasm -json FILE.cubin`: [header, [functions...]]")]
    Json {
        /// What is wrong and where.
        message: String,
    },
}

const EXPECTED: &str = "nvdisasm -c -hex FILE.cubin` or `cuobjdump -sass FILE";

/// Reads a listing of any known form, found by content: `cuobjdump -sass`, `nvdisasm` in its text modes,
/// `nvdisasm -json`, CuAssembler text.
pub fn parse(bytes: &[u8]) -> Result<Listing, ParseError> {
    let mut functions = Vec::new();
    let mut listing = parse_each(bytes, |function| functions.push(function))?;
    listing.functions = functions;
    Ok(listing)
}

/// The same, handing over one function at a time: the listing returned has no functions in it, and no more
/// than one function's instructions are held at once (JSON is the exception: it is read whole).
pub fn parse_each(bytes: &[u8], mut each: impl FnMut(Function)) -> Result<Listing, ParseError> {
    let (form, text) = (bytes::form(bytes)?, bytes::plain_text(bytes));
    let is_json = match form {
        Form::Blank => return Err(ParseError::Empty),
        Form::Utf16 => matches!(bytes::form(&text), Ok(Form::Json)),
        Form::Json => true,
        Form::Text { .. } => false,
    };
    if is_json {
        let mut listing = json::read(&text, &mut each)?;
        listing.bytes = bytes.len() as u64;
        listing.problems.sort_by_key(|p| (p.line, p.kind));
        return Ok(listing);
    }
    let mut reader = text::TextReader::new(&mut each);
    for line in bytes::lines(&text) {
        reader.line(line);
    }
    stream::finish(reader, bytes::head(&text), bytes.len() as u64)
}
