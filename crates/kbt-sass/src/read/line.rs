//! One line of a text listing, taken apart. No state here: what a line means in its place is for `text`.

use crate::{Control, Guard};
use std::borrow::Cow;

/// An instruction line taken apart. Texts borrow from the line.
#[derive(Debug, Default, PartialEq)]
pub(super) struct InstructionLine<'a> {
    pub(super) address: u64,
    pub(super) guard: Option<Guard>,
    /// The guard as written, where it could not be read.
    pub(super) bad_guard: Option<&'a str>,
    pub(super) opcode: &'a str,
    pub(super) operands: Cow<'a, str>,
    pub(super) annotation: Option<&'a str>,
    /// From 12.8's scheduling text or CuAssembler's prefix.
    pub(super) control: Option<Control>,
    /// Scheduling text that could not be read.
    pub(super) bad_schedule: Option<&'a str>,
    pub(super) hex: Option<u64>,
    /// The text after `//`: live registers.
    pub(super) live: Option<&'a str>,
    /// The line is the first of a dual-issue pair.
    pub(super) opens_pair: bool,
    /// Ends as an instruction does.
    pub(super) complete: bool,
}

/// What a byte means to the scan for the end of an instruction. Eight bits, so that a scan can collect what it saw.
mod class {
    /// Ends the instruction outside quotes, or opens or closes something.
    pub(super) const STOP: u8 = 1;
    /// `"`: an annotation.
    pub(super) const QUOTE: u8 = 2;
    /// `&` or `?`: 12.8's scheduling words, or a comparison code.
    pub(super) const SCHEDULE: u8 = 4;
    /// A byte that no mnemonic has.
    pub(super) const NOT_OPCODE: u8 = 8;

    pub(super) const OF: [u8; 256] = {
        let mut table = [NOT_OPCODE; 256];
        let mut b = 0;
        while b < 128 {
            if (b as u8).is_ascii_alphanumeric() || b == b'.' as usize || b == b'_' as usize {
                table[b] = 0;
            }
            b += 1;
        }
        table[b'"' as usize] = STOP | QUOTE | NOT_OPCODE;
        table[b';' as usize] = STOP | NOT_OPCODE;
        table[b'}' as usize] = STOP | NOT_OPCODE;
        table[b'/' as usize] = STOP | NOT_OPCODE;
        table[b'&' as usize] = SCHEDULE | NOT_OPCODE;
        table[b'?' as usize] = SCHEDULE;
        table
    };
}

/// The text between `/*` and `*/` at the start of `text`, and the rest.
pub(super) fn comment(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix("/*")?;
    let end =
        memchr::memchr_iter(b'*', inner.as_bytes()).find(|i| inner.as_bytes().get(i + 1) == Some(&b'/'))?;
    Some((&inner[..end], &inner[end + 2..]))
}

/// An address comment `/*01a0*/`: hex digits and nothing else, of at most 48 bits.
pub(super) fn address(inner: &str) -> Option<u64> {
    hex_digits(inner.trim_ascii().as_bytes(), 12)
}

/// A hex column `/* 0x00000a00ff017b82 */`.
pub(super) fn hex_word(inner: &str) -> Option<u64> {
    hex_digits(inner.trim_ascii().strip_prefix("0x")?.as_bytes(), 16)
}

/// The value of each hex digit; 0xff for every other byte.
const NIBBLE: [u8; 256] = {
    let mut table = [0xff; 256];
    let mut n = 0;
    while n < 16 {
        table[b"0123456789abcdef"[n] as usize] = n as u8;
        table[b"0123456789ABCDEF"[n] as usize] = n as u8;
        n += 1;
    }
    table
};

fn hex_digits(digits: &[u8], longest: usize) -> Option<u64> {
    let (mut value, mut seen) = (0_u64, 0);
    for digit in digits {
        let nibble = NIBBLE[usize::from(*digit)];
        seen |= nibble;
        value = value << 4 | u64::from(nibble & 15);
    }
    (!digits.is_empty() && digits.len() <= longest && seen < 16).then_some(value)
}

/// Blanks at the start of a line or between its columns: dozens in a row, so sixteen at a time.
pub(super) fn skip_blanks(mut text: &[u8]) -> &[u8] {
    while let Some(rest) = text.strip_prefix(&[b' '; 16]) {
        text = rest;
    }
    text.trim_ascii_start()
}

/// The same of text.
fn skip_blanks_str(text: &str) -> &str {
    &text[text.len() - skip_blanks(text.as_bytes()).len()..]
}

/// Takes an instruction line apart, from its address comment on. `None` where it is none.
pub(super) fn instruction(text: &str) -> Option<InstructionLine<'_>> {
    let (prefix, text) = match text.strip_prefix("[B") {
        Some(_) => {
            let end = memchr::memchr(b']', text.as_bytes())? + 1;
            (Some(&text[..end]), text[end..].trim_ascii_start())
        }
        None => (None, text),
    };
    let (inner, rest) = comment(text)?;
    let mut line = InstructionLine { address: address(inner)?, ..InstructionLine::default() };
    let mut rest = skip_blanks_str(rest);
    if let Some(prefix) = prefix {
        line.control = Control::from_cuasm(prefix);
        line.bad_schedule = Some(prefix).filter(|_| line.control.is_none());
    }
    if let Some(inner) = rest.strip_prefix('{') {
        line.opens_pair = true;
        rest = inner.trim_ascii_start();
    }
    let Body { text: body, tail, seen } = split_body(rest);
    line.complete = tail.is_some();
    read_tail(tail.unwrap_or(""), &mut line);
    read_body(body, seen, &mut line);
    (!line.opcode.is_empty()).then_some(line)
}

/// An instruction without its address and what follows its end.
struct Body<'a> {
    text: &'a str,
    /// What follows the end; `None` where nothing ends it.
    tail: Option<&'a str>,
    /// The classes of the bytes in `text`, joined.
    seen: u8,
}

/// Splits at the `;` that ends the instruction, which is never inside quotes. A dual-issue partner ends with
/// `}` alone.
fn split_body(text: &str) -> Body<'_> {
    let bytes = text.as_bytes();
    // Nearly all instructions have one `;` and nothing else that could end them.
    if let Some(end) = memchr::memchr(b';', bytes) {
        let seen = bytes[..end].iter().fold(0, |seen, b| seen | class::OF[usize::from(*b)]);
        if seen & class::STOP == 0 {
            return Body { text: &text[..end], tail: Some(&text[end + 1..]), seen };
        }
    }
    let mut quoted = false;
    let mut seen = 0;
    for (i, b) in bytes.iter().enumerate() {
        let class = class::OF[usize::from(*b)];
        if class & class::STOP == 0 || (quoted && *b != b'"') {
            seen |= class;
            continue;
        }
        let tail = match b {
            b';' => i + 1,
            b'}' if text[..i].rfind('{').is_none_or(|o| text[o..i].contains('}')) => i + 1,
            // Hex columns with the `;` stripped, or live registers after a dual-issue partner.
            b'/' if matches!(bytes.get(i + 1), Some(b'*' | b'/')) => i,
            _ => {
                quoted ^= *b == b'"';
                seen |= class;
                continue;
            }
        };
        return Body { text: &text[..i], tail: Some(&text[tail..]), seen };
    }
    Body { text, tail: None, seen }
}

fn read_tail<'a>(tail: &'a str, line: &mut InstructionLine<'a>) {
    let mut rest = skip_blanks_str(tail);
    if rest.starts_with('}') {
        rest = rest.trim_start_matches('}').trim_ascii_start();
    }
    if let Some((inner, after)) = comment(rest)
        && let Some(word) = hex_word(inner)
    {
        line.hex = Some(word);
        rest = after.trim_ascii_start();
    }
    line.live = rest.strip_prefix("//");
}

fn read_body<'a>(body: &'a str, seen: u8, line: &mut InstructionLine<'a>) {
    let mut body = body.trim_ascii();
    if seen & class::QUOTE != 0
        && let Some(start) = memchr::memchr(b'"', body.as_bytes()).and_then(|quote| quote.checked_sub(2))
        && body.as_bytes()[start..].starts_with(b"(*\"")
    {
        let inner = &body[start + 3..];
        let end = inner.find("\"*)").unwrap_or(inner.len());
        line.annotation = Some(&inner[..end]);
        body = body[..start].trim_ascii_end();
    }
    // 12.8 on sm_120 prints its scheduling words between operands and `;`. Operands hold neither `&` nor `?`
    // after a blank, but for `?` as a comparison code, which has no letter or blank around it.
    if seen & class::SCHEDULE != 0 {
        let schedule = (body.as_bytes().windows(2))
            .position(|w| w[0] == b' ' && matches!(w[1], b'&' | b'?'))
            .filter(|i| matches!(body.as_bytes().get(i + 2), Some(b'a'..=b'z' | b'A'..=b'Z')));
        if let Some(at) = schedule {
            let words = body[at..].trim_ascii();
            body = body[..at].trim_ascii_end();
            line.control = Control::from_words(words);
            line.bad_schedule = Some(words).filter(|_| line.control.is_none());
        }
    }
    if body.starts_with('@') {
        let end = blank(body);
        line.guard = Guard::parse(&body[..end]);
        line.bad_guard = Some(&body[..end]).filter(|_| line.guard.is_none());
        body = body[end..].trim_ascii_start();
    }
    let opcode = &body[..blank(body)];
    // A mnemonic starts with a capital letter and has no operand characters in it.
    if opcode.bytes().next().is_some_and(|b| b.is_ascii_uppercase() || b == b'_')
        && opcode.bytes().all(|b| class::OF[usize::from(b)] & class::NOT_OPCODE == 0)
    {
        line.opcode = opcode;
        line.operands = single_blanks(body[opcode.len()..].trim_ascii());
    }
}

/// Where the first blank is, or the end.
fn blank(text: &str) -> usize {
    text.bytes().position(|b| b.is_ascii_whitespace()).unwrap_or(text.len())
}

/// Runs of blanks become one.
fn single_blanks(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    // Without a branch a byte: most texts have nothing to find.
    let pairs = bytes.iter().zip(&bytes[bytes.len().min(1)..]);
    let found = pairs.fold(false, |found, (a, b)| found | (*a == b' ' && *b == b' ') | (*b == b'\t'));
    if !found {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_an_instruction_line_is_taken_apart() {
        let cases = [
            ("/*0000*/  LDC R1, c[0x0][0x28] ;  /* 0x00000a00ff017b82 */", "LDC", "R1, c[0x0][0x28]"),
            ("/*0160*/                   BRA 0x160;", "BRA", "0x160"),
            ("/*10f80*/                   NOP;", "NOP", ""),
            ("/*0050*/              @!P0 BRA `(.L_x_0) ;", "BRA", "`(.L_x_0)"),
            ("/*06e0*/   @!UP0 UTCHMMA gdesc[UR4] ;", "UTCHMMA", "gdesc[UR4]"),
            ("/*0e0*/ STL [R1+0x4], R2  (*\"SpillRefill\"*);", "STL", "[R1+0x4], R2"),
            ("/*00a0*/ IMAD R13, R13, UR6, R0   &req={0}   ?WAIT5_END_GROUP;", "IMAD", "R13, R13, UR6, R0"),
            ("[B------:R-:W0:-:S04] /*0020*/ MOV R1, R2 ;", "MOV", "R1, R2"),
            ("/*0008*/ { MOV R1, c[0x0][0x20] ;", "MOV", "R1, c[0x0][0x20]"),
            ("/*0010*/ S2R R0, SR_CTAID.X }", "S2R", "R0, SR_CTAID.X"),
            ("/*00b0*/ IADD3 R1,   R2, R3 ; // |  4 v : |", "IADD3", "R1, R2, R3"),
            ("/*00b0*/ IADD3 R1, R2, R3", "IADD3", "R1, R2, R3"),
        ];
        for (text, opcode, operands) in cases {
            let line = instruction(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((line.opcode, line.operands.as_ref()), (opcode, operands), "{text}");
            assert_eq!(line.bad_schedule, None, "{text}");
        }
        assert_eq!(instruction(cases[0].0).unwrap().hex, Some(0x0000_0a00_ff01_7b82));
        assert_eq!(instruction(cases[5].0).unwrap().annotation, Some("SpillRefill"));
        assert_eq!(instruction(cases[6].0).unwrap().control.unwrap().stall, 5);
        assert_eq!(instruction(cases[7].0).unwrap().control.unwrap().write_barrier, Some(0));
        assert!(instruction(cases[8].0).unwrap().opens_pair);
        assert!(instruction(cases[10].0).unwrap().live.is_some());
        assert!(!instruction(cases[11].0).unwrap().complete);
        for text in ["/*0000*/ .byte 0x1", "/* 0x0001 */", "/*0000*/", "// x", "", "/*zz*/ MOV R1, R2 ;"] {
            assert!(instruction(text).is_none(), "{text}");
        }
    }

    #[test]
    fn every_prefix_of_a_line_is_read_without_fault() {
        let text = "/*00a0*/ @!P0 IMAD R13, \u{e9}R0 (*\"x\"*) &req={0} ?WAIT5_END_GROUP; /* 0x1 */ // | 4 |";
        for end in (0..=text.len()).filter(|i| text.is_char_boundary(*i)) {
            let _ = instruction(&text[..end]);
        }
    }
}
