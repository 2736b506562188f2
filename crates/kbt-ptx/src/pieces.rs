//! Cuts PTX text into pieces: what ends with a semicolon, a brace, a colon or, for a few directives, a line.
//! Comments are gone; strings are whole. Nothing here knows what a piece means.

use std::ops::Range;

/// What ended a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// `;`
    Semicolon,
    /// A `{` that opens a scope or body.
    Open,
    /// A `}` that closes one.
    Close,
    /// The `:` of a label.
    Colon,
    /// The end of the line, for directives that have no semicolon.
    Line,
    /// The end of the text.
    Text,
}

/// A piece of text with what ended it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The text with comments taken out and blanks joined.
    pub(crate) text: String,
    /// Its bytes, ends trimmed; the byte of the end mark follows somewhere after.
    pub(crate) span: Range<usize>,
    /// The byte of the end mark.
    pub(crate) mark: usize,
    /// The line it starts on.
    pub(crate) line: u32,
    /// The line of its end mark.
    pub(crate) last_line: u32,
    pub(crate) end: End,
}

/// Directives that end with their line.
const LINE_DIRECTIVES: [&str; 5] = [".version", ".target", ".address_size", ".loc", ".file"];

/// The pieces of a text, one after another.
pub(crate) struct Pieces<'a> {
    bytes: &'a [u8],
    at: usize,
    line: u32,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { bytes: text.as_bytes(), at: 0, line: 1 }
    }

    /// Past a comment that starts here, if one does.
    fn comment(&mut self) -> bool {
        let rest = &self.bytes[self.at..];
        let end = if rest.starts_with(b"//") {
            rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            rest.windows(2).skip(2).position(|w| w == b"*/").map_or(rest.len(), |n| n + 4)
        } else {
            return false;
        };
        self.line += u32::try_from(rest[..end].iter().filter(|b| **b == b'\n').count()).unwrap_or(0);
        self.at += end;
        true
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let mut text: Vec<u8> = Vec::new();
        let (mut start, mut last, mut line) = (None, self.at, self.line);
        let (mut braces, mut quoted) = (0_u32, false);
        let mut end = End::Text;
        let mut mark = self.bytes.len();
        while let Some(&b) = self.bytes.get(self.at) {
            if !quoted && self.comment() {
                if !text.is_empty() {
                    push_blank(&mut text);
                }
                continue;
            }
            let here = self.at;
            self.at += 1;
            if b == b'\n' {
                self.line += 1;
                let is_line = LINE_DIRECTIVES.iter().any(|d| {
                    text.strip_prefix(d.as_bytes()).is_some_and(|r| r.first().is_none_or(|b| *b == b' '))
                });
                if is_line && !quoted {
                    (end, mark) = (End::Line, here);
                    break;
                }
            }
            if b.is_ascii_whitespace() && !quoted {
                push_blank(&mut text);
                continue;
            }
            if start.is_none() {
                (start, line) = (Some(here), self.line);
            }
            let stop = match b {
                _ if quoted => None,
                b';' => Some(End::Semicolon),
                // A brace after an opcode or a comma is a vector, after a body's header or alone a scope.
                b'{' if braces == 0 && !opens_vector(&text) => Some(End::Open),
                b'}' if braces == 0 => Some(End::Close),
                b':' if braces == 0 && is_label(&text) && self.bytes.get(self.at) != Some(&b':') => {
                    Some(End::Colon)
                }
                _ => None,
            };
            if let Some(found) = stop {
                (end, mark) = (found, here);
                break;
            }
            match b {
                b'"' => quoted = !quoted,
                b'{' if !quoted => braces += 1,
                b'}' if !quoted => braces -= 1,
                _ => {}
            }
            text.push(b);
            last = self.at;
        }
        if start.is_none() && end == End::Text {
            return None;
        }
        let text = String::from_utf8_lossy(&text).trim_end().to_owned();
        let start = start.unwrap_or(last).min(last);
        let last_line = self.line - u32::from(end == End::Line);
        Some(Piece { text, span: start..last.max(start), mark, line, last_line, end })
    }
}

fn push_blank(text: &mut Vec<u8>) {
    if text.last().is_some_and(|b| *b != b' ') {
        text.push(b' ');
    }
}

/// Whether a `{` behind this text begins a vector operand or an initialiser.
fn opens_vector(text: &[u8]) -> bool {
    let trimmed = text.trim_ascii_end();
    match trimmed.last() {
        None => false,
        Some(b',' | b'=' | b'(' | b'[' | b'{') => true,
        // `mov.b64 {%r1, %r2}, %rd1`: an opcode, perhaps with a guard, and nothing else.
        Some(_) => {
            let is_directive = trimmed.first() == Some(&b'.');
            let is_code = !is_directive && trimmed.contains(&b'.') && !trimmed.contains(&b')');
            is_code && text.len() > trimmed.len()
        }
    }
}

/// A label is one word.
fn is_label(text: &[u8]) -> bool {
    let text = text.trim_ascii_end();
    !text.is_empty() && text.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'%'))
}

/// Whether text without an end at module level is a part of something: a directive that ends with its line is whole.
pub(crate) fn is_cut(text: &str) -> bool {
    let name = text.split(' ').next().unwrap_or_default();
    !text.is_empty() && !LINE_DIRECTIVES.contains(&name)
}

/// The beginning of a text, for messages.
pub(crate) fn short(text: &str) -> String {
    const SHOWN: usize = 80;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The words of an operand that begin as a float's literal does and are none.
pub(crate) fn malformed_literals(operand: &str) -> impl Iterator<Item = &str> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.'));
    operand.split(word).filter(|word| {
        let digits = match word.as_bytes() {
            [b'0', b'f' | b'F', digits @ ..] => Some((digits, 8)),
            [b'0', b'd' | b'D', digits @ ..] => Some((digits, 16)),
            _ => None,
        };
        digits.is_some_and(|(digits, n)| digits.len() != n || !digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// Splits at commas outside brackets. `p|q` and `[a], b` stay as PTX has them.
pub(crate) fn operands(text: &str) -> Vec<String> {
    let mut list = Vec::new();
    let (mut depth, mut start) = (0_i32, 0);
    for (i, b) in text.bytes().enumerate() {
        match b {
            b'{' | b'[' | b'(' => depth += 1,
            b'}' | b']' | b')' => depth -= 1,
            b',' if depth == 0 => {
                list.push(text[start..i].trim().to_owned());
                start = i + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        list.push(last.to_owned());
    }
    list
}
