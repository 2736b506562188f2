//! Listings that are read as they come: from a file too large to hold, or from a tool that is still printing.

use super::bytes::{self, Form};
use super::text::TextReader;
use super::{ParseError, parse_each};
use crate::{Function, Listing};
use std::io::{self, ErrorKind, Read};

/// Bytes read at once, and the least that the form of a listing is told from.
const BLOCK: usize = 256 * 1024;

/// The same as [`parse_each`](super::parse_each) over what `input` gives: no more of it is held than a block and
/// the function being read. The exceptions are JSON and UTF-16, which are read whole.
pub fn parse_stream(input: impl Read, mut each: impl FnMut(Function)) -> Result<Listing, ParseError> {
    let failed = |error: io::Error| ParseError::Read { message: error.to_string() };
    let mut lines = Lines::new(input);
    let head = lines.head().map_err(failed)?;
    match bytes::form(head)? {
        Form::Text { mark } => lines.start += mark,
        // Blanks alone so far, which more blanks or text may follow.
        Form::Blank => {}
        Form::Json | Form::Utf16 => return parse_each(&lines.rest().map_err(failed)?, each),
    }
    let first_block = bytes::head(lines.held()).to_vec();
    let mut reader = TextReader::new(&mut each);
    while let Some(line) = lines.next().map_err(failed)? {
        reader.line(line);
    }
    finish(reader, &first_block, lines.read)
}

/// The listing that a reader of text has read; `head` is how the text starts, for the error where it is none.
pub(super) fn finish(reader: TextReader<'_>, head: &[u8], bytes: u64) -> Result<Listing, ParseError> {
    let blank = reader.is_blank();
    let Some(mut listing) = reader.finish() else {
        return Err(if blank { ParseError::Empty } else { bytes::foreign(head) });
    };
    listing.bytes = bytes;
    listing.problems.sort_by_key(|p| (p.line, p.kind));
    Ok(listing)
}

/// Lines of an input, in a buffer that is as long as the longest line needs.
struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    /// What is read and not yet handed out.
    start: usize,
    end: usize,
    /// All bytes read so far.
    read: u64,
    ended: bool,
}

impl<R: Read> Lines<R> {
    fn new(input: R) -> Self {
        Self { input, buffer: vec![0; BLOCK], start: 0, end: 0, read: 0, ended: false }
    }

    fn held(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Reads on, behind what is held.
    fn fill(&mut self) -> io::Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.end * 2, 0);
        }
        let got = loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                got => break got?,
            }
        };
        self.end += got;
        self.read += got as u64;
        self.ended = got == 0;
        Ok(())
    }

    /// The start of the input: a block, unless it is shorter. A pipe gives it piece by piece.
    fn head(&mut self) -> io::Result<&[u8]> {
        while self.end < BLOCK && !self.ended {
            self.fill()?;
        }
        Ok(self.held())
    }

    /// The next line, without its line end; a lone CR does not end a line.
    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        let mut looked = 0;
        let length = loop {
            if let Some(at) = memchr::memchr(b'\n', &self.held()[looked..]) {
                break looked + at;
            }
            looked = self.end - self.start;
            if self.ended {
                break looked;
            }
            self.fill()?;
        };
        if self.held().is_empty() {
            return Ok(None);
        }
        let from = self.start;
        self.start = self.end.min(from + length + 1);
        let line = &self.buffer[from..from + length];
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    /// All that is left, in one piece.
    fn rest(mut self) -> io::Result<Vec<u8>> {
        self.buffer.truncate(self.end);
        self.buffer.drain(..self.start);
        self.input.read_to_end(&mut self.buffer)?;
        Ok(self.buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    /// Gives at most `step` bytes at a time, as a pipe may.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(to.len()).min(self.0.len());
            to[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn check(bytes: &[u8]) {
        let whole = parse(bytes);
        for step in [7, BLOCK - 1, usize::MAX] {
            let mut functions = Vec::new();
            let streamed = parse_stream(Slow(bytes, step), |f| functions.push(f));
            let streamed = streamed.map(|listing| Listing { functions, ..listing });
            assert_eq!(streamed, whole, "{step} bytes at a time");
        }
    }

    #[test]
    fn a_stream_reads_what_the_bytes_read_whole_read() {
        let listing = "\t.target\tsm_90a\n\t.section\t.text.f,\"ax\",@progbits\n/*0000*/ EXIT ;\r\n?\n";
        check(listing.as_bytes());
        check(format!("\u{feff}{listing}").as_bytes());
        check(format!("\n \n{listing}\0\0\0").as_bytes());
        check(
            &[0xff, 0xfe]
                .into_iter()
                .chain(listing.encode_utf16().flat_map(u16::to_le_bytes))
                .collect::<Vec<_>>(),
        );
        check(
            br#"[{"SM":{"version":{"major":9,"minor":0}}},[{"function-name":"f","start":0,"length":16,
            "sass-instructions":[{"opcode":"EXIT","operands":""}]}]]"#,
        );
        check(listing.repeat(6000).as_bytes());
        for foreign in ["", " \n\0\0", "int main() {}\n", "// c\n.version 9.0\n", "{\"a\": 1}", "\x7fELF\x02"]
        {
            check(foreign.as_bytes());
        }
        check("x".repeat(3 * BLOCK).as_bytes());
    }

    #[test]
    fn an_input_that_fails_is_an_error_that_says_so() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("no such luck"))
            }
        }
        let error = parse_stream(Broken, |_| {}).unwrap_err();
        assert!(error.to_string().contains("no such luck"), "{error}");
    }
}
