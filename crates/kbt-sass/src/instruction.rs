//! One machine instruction as a listing shows it, and the small types it is made of.
//!
//! Nothing here reads text (see `text` and `json`) or decides what an instruction means (see `pipe`, `cfg`).

use crate::Control;
use std::fmt;
use std::sync::Arc;

/// One instruction of a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct Instruction {
    /// Offset in the function's section, in bytes.
    pub address: u64,
    /// The predicate it executes under; `None` where it always does.
    pub guard: Option<Guard>,
    text: Text,
    /// Addresses inside the function that control may go to from here (branches, calls, convergence points).
    pub targets: Vec<u64>,
    /// The scheduling fields, where the listing has the encoding or prints them.
    pub control: Option<Control>,
    /// The encoded word: 128 bits from sm_70 on, 64 bits (in the low half) before; `None` without hex columns.
    pub encoding: Option<u128>,
    /// The source line it was compiled from.
    pub line: Option<Arc<SourceLine>>,
    /// What the tool says of it in `(*"..."*)`: `SpillRefill`, `BRANCH_TARGETS ...`.
    pub annotation: Option<Box<str>>,
    /// Live registers at this point, from `-plr` or `-lrm count`.
    pub live: Option<Live>,
}

impl Instruction {
    /// An instruction from its mnemonic and operands, as an assembler would write them.
    #[must_use]
    pub fn new(address: u64, guard: Option<Guard>, opcode: &str, operands: &str) -> Self {
        let mut text = TextBuilder::default();
        let span = text.push(opcode, operands);
        let mut insn = Self::spanning(address, guard, span);
        insn.text.arena = text.finish();
        insn
    }

    /// An instruction whose text is still being built; [`Self::set_text`] gives it.
    pub(crate) fn spanning(address: u64, guard: Option<Guard>, span: Span) -> Self {
        Self {
            address,
            guard,
            text: Text { arena: Arc::default(), span },
            targets: Vec::new(),
            control: None,
            encoding: None,
            line: None,
            annotation: None,
            live: None,
        }
    }

    /// The text that the instruction's span is of.
    pub(crate) fn set_text(&mut self, arena: &Arc<str>) {
        self.text.arena = arena.clone();
    }

    /// The base mnemonic: `MUFU` of `MUFU.EX2`.
    #[must_use]
    pub fn mnemonic(&self) -> &str {
        self.text.part(0, self.text.span.base_len.into())
    }

    /// The full mnemonic with its modifiers: `MUFU.EX2`.
    #[must_use]
    pub fn opcode(&self) -> &str {
        self.text.part(0, self.text.span.opcode_len.into())
    }

    /// The modifiers after the base mnemonic, without dots.
    pub fn modifiers(&self) -> impl Iterator<Item = &str> {
        self.opcode()[usize::from(self.text.span.base_len)..].split('.').filter(|m| !m.is_empty())
    }

    /// Whether one of the modifiers is `name`.
    #[must_use]
    pub fn has_modifier(&self, name: &str) -> bool {
        self.modifiers().any(|m| m == name)
    }

    /// The operands as one text, commas included.
    #[must_use]
    pub fn operands(&self) -> &str {
        self.text.part(self.text.span.opcode_len.into(), self.text.span.len).trim_start()
    }

    /// The operands one by one; commas inside brackets and parentheses do not separate.
    pub fn operand_list(&self) -> Operands<'_> {
        Operands { rest: self.operands() }
    }

    /// `OPCODE OPERANDS`, without the guard.
    #[must_use]
    pub fn text(&self) -> &str {
        self.text.part(0, self.text.span.len)
    }

    /// Whether the tool marked it as a spill store or reload.
    #[must_use]
    pub fn is_marked_spill(&self) -> bool {
        self.annotation.as_deref().is_some_and(|a| a.contains("SpillRefill"))
    }

    /// Whether the guard is `@!PT`: it never executes and only fills an issue slot.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.guard.is_some_and(Guard::is_never)
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(guard) = self.guard {
            write!(f, "{guard} ")?;
        }
        f.write_str(self.text())
    }
}

/// `OPCODE OPERANDS` with single blanks, guard and annotations taken off. All instructions of a function share
/// one allocation: a listing has millions of them.
#[derive(Clone)]
struct Text {
    arena: Arc<str>,
    span: Span,
}

/// Where an instruction's text is in that of its function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    start: usize,
    /// Bytes of the whole text.
    len: usize,
    /// Bytes of it that are the full mnemonic.
    opcode_len: u16,
    /// Bytes of it that are the base mnemonic.
    base_len: u16,
}

impl Text {
    /// From and to in bytes of this instruction's own text; empty while the text is not set.
    fn part(&self, from: usize, to: usize) -> &str {
        self.arena.get(self.span.start + from..self.span.start + to).unwrap_or_default()
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        let Span { len, opcode_len, .. } = self.span;
        opcode_len == other.span.opcode_len && self.part(0, len) == other.part(0, other.span.len)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.part(0, self.span.len), f)
    }
}

/// The text of a function's instructions while they are read.
#[derive(Debug, Default)]
pub(crate) struct TextBuilder(String);

impl TextBuilder {
    /// Adds an instruction's text.
    pub(crate) fn push(&mut self, opcode: &str, operands: &str) -> Span {
        // Mnemonics are short; a longer one is not an instruction and is cut rather than wrapped around.
        let opcode = floor_char_boundary(opcode, usize::from(u16::MAX));
        let start = self.0.len();
        self.0.push_str(opcode);
        if !operands.is_empty() {
            self.0.push(' ');
            self.0.push_str(operands);
        }
        let cut = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
        Span {
            start,
            len: self.0.len() - start,
            opcode_len: cut(opcode.len()),
            base_len: cut(base_len(opcode)),
        }
    }

    /// The base mnemonic of an instruction whose text is here.
    pub(crate) fn mnemonic_of(&self, insn: &Instruction) -> &str {
        let Span { start, base_len, .. } = insn.text.span;
        self.0.get(start..start + usize::from(base_len)).unwrap_or_default()
    }

    /// The whole, for [`Instruction::set_text`].
    pub(crate) fn finish(self) -> Arc<str> {
        self.0.into()
    }
}

/// The base mnemonic of a full one.
pub(crate) fn base_mnemonic(opcode: &str) -> &str {
    &opcode[..base_len(opcode)]
}

/// Bytes of a full mnemonic that name the operation. `UIADD3.64`, `UMOV.64` and `HFMA2.MMA` are operations
/// of their own: another encoding, and for the last another pipe.
fn base_len(opcode: &str) -> usize {
    let Some(base) = opcode.bytes().position(|b| b == b'.') else { return opcode.len() };
    // The last letters of the three, since this is asked of every instruction.
    if !matches!(opcode.as_bytes()[base.saturating_sub(1)], b'3' | b'V' | b'2') {
        return base;
    }
    for own in ["UIADD3.64", "UMOV.64", "HFMA2.MMA"] {
        if let Some(rest) = opcode.strip_prefix(own)
            && (rest.is_empty() || rest.starts_with('.'))
        {
            return own.len();
        }
    }
    base
}

fn floor_char_boundary(text: &str, at: usize) -> &str {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    &text[..at]
}

/// The predicate an instruction executes under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Guard {
    /// Executes where the predicate is false.
    pub negated: bool,
    /// A uniform predicate (`UP0`).
    pub uniform: bool,
    /// Which one; `None` is the constant true (`PT`).
    pub index: Option<u8>,
}

impl Guard {
    /// Reads `@P0`, `@!UP3`, `@!PT`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix('@')?;
        let (negated, rest) = rest.strip_prefix('!').map_or((false, rest), |r| (true, r));
        let (uniform, rest) = rest.strip_prefix('U').map_or((false, rest), |r| (true, r));
        let rest = rest.strip_prefix('P')?;
        let index = match rest {
            "T" => None,
            digits if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
                Some(digits.parse().ok()?)
            }
            _ => return None,
        };
        Some(Self { negated, uniform, index })
    }

    /// `@!PT`.
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.negated && self.index.is_none()
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (not, uniform) = (if self.negated { "!" } else { "" }, if self.uniform { "U" } else { "" });
        match self.index {
            Some(i) => write!(f, "@{not}{uniform}P{i}"),
            None => write!(f, "@{not}{uniform}PT"),
        }
    }
}

/// The operands of an instruction, one by one.
#[derive(Debug, Clone)]
pub struct Operands<'a> {
    rest: &'a str,
}

impl<'a> Operands<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { rest: text }
    }
}

impl<'a> Iterator for Operands<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        if rest.is_empty() {
            return None;
        }
        let mut depth = 0_usize;
        for (i, b) in rest.bytes().enumerate() {
            match b {
                b'[' | b'(' | b'{' => depth += 1,
                b']' | b')' | b'}' => depth = depth.saturating_sub(1),
                b',' if depth == 0 => {
                    self.rest = &rest[i + 1..];
                    return Some(rest[..i].trim_end());
                }
                _ => {}
            }
        }
        self.rest = "";
        Some(rest.trim_end())
    }
}

/// Where an instruction comes from in the source.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// The file, as the listing names it.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
    /// Outer call sites, innermost first, where the code was inlined.
    pub inlined_at: Vec<(Arc<str>, u32)>,
}

/// How many registers of each file are live at an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Live {
    /// General registers.
    pub gpr: Option<u16>,
    /// Predicates.
    pub pred: Option<u16>,
    /// Uniform registers.
    pub ugpr: Option<u16>,
    /// Uniform predicates.
    pub upred: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_mnemonics_end_at_the_first_dot_except_where_the_suffix_is_another_operation() {
        for (opcode, base) in [
            ("MUFU.EX2", "MUFU"),
            ("EXIT", "EXIT"),
            ("HFMA2.MMA.BF16_V2", "HFMA2.MMA"),
            ("HFMA2.MMAX", "HFMA2"),
            ("UIADD3.64", "UIADD3.64"),
            ("UIADD3.X", "UIADD3"),
        ] {
            let insn = Instruction::new(0, None, opcode, "R0, R1");
            assert_eq!((insn.mnemonic(), insn.opcode(), insn.operands()), (base, opcode, "R0, R1"));
        }
    }

    #[test]
    fn operands_split_at_outer_commas() {
        let insn = Instruction::new(0, None, "X", "R0, desc[UR4][R8.64+0x4], (a, b), -c[0x0][R2]");
        assert_eq!(
            insn.operand_list().collect::<Vec<_>>(),
            ["R0", "desc[UR4][R8.64+0x4]", "(a, b)", "-c[0x0][R2]"]
        );
    }

    #[test]
    fn guards_are_read_and_written_alike() {
        for text in ["@P0", "@!P6", "@UP1", "@!UP0", "@PT", "@!PT", "@!UPT"] {
            assert_eq!(Guard::parse(text).unwrap().to_string(), text);
        }
        for text in ["P0", "@", "@R0", "@P", "@P-1", "@P256", "@PTT"] {
            assert!(Guard::parse(text).is_none(), "{text}");
        }
    }
}
