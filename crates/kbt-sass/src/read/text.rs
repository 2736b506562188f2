//! The text forms: `cuobjdump -sass`, `nvdisasm` with any of its flags, CuAssembler. One line at a time.

use super::bytes;
use super::function::Builder;
use super::line::{self, InstructionLine};
use super::tables::{LiveTable, ResourceTable};
use crate::listing::Problems;
use crate::{Function, Listing, ProblemKind, SourceLine};
use kbt_device::Arch;
use std::collections::HashMap;
use std::sync::Arc;

/// Reads lines and hands functions over as they end.
pub(super) struct TextReader<'e> {
    each: &'e mut dyn FnMut(Function),
    current: Option<Builder>,
    problems: Problems,
    line_no: u64,
    /// From `.target`, `code for` or a fatbin member's header.
    arch: Option<Arch>,
    member: u32,
    members: u32,
    /// Inside a section that holds no code.
    in_data: bool,
    /// Inside a PTX member, until the next member.
    in_ptx: bool,
    source: Option<Arc<SourceLine>>,
    /// The `//##` lines since the last instruction: an inline chain is several of them.
    source_chain: bool,
    files: HashMap<String, Arc<str>>,
    live: LiveTable,
    resources: ResourceTable,
    /// Something was seen that only a listing has.
    recognised: bool,
    /// No line so far had anything in it.
    blank: bool,
    functions: u64,
}

impl<'e> TextReader<'e> {
    pub(super) fn new(each: &'e mut dyn FnMut(Function)) -> Self {
        Self {
            each,
            current: None,
            problems: Problems::default(),
            line_no: 0,
            arch: None,
            member: 0,
            members: 0,
            in_data: false,
            in_ptx: false,
            source: None,
            source_chain: false,
            files: HashMap::new(),
            live: LiveTable::default(),
            resources: ResourceTable::default(),
            recognised: false,
            blank: true,
            functions: 0,
        }
    }

    /// Reads one line, without its line end.
    pub(super) fn line(&mut self, raw: &[u8]) {
        self.line_no += 1;
        let raw = line::skip_blanks(raw).trim_ascii_end();
        // Colour codes may stand before blanks.
        let plain = bytes::plain(raw);
        let text = bytes::text(plain.trim_ascii());
        let text = text.as_ref();
        if text.is_empty() {
            return;
        }
        self.blank = false;
        // Most lines of a listing are instructions and hex words: they come first.
        if text.starts_with("/*") || text.starts_with("[B") {
            self.code_line(text);
        } else {
            self.other_line(text);
        }
    }

    fn code_line(&mut self, text: &str) {
        if self.in_ptx {
            return;
        }
        // Half of the lines have an address: they need no second look as words.
        let address =
            matches!(text.as_bytes(), [_, _, digit, next, ..] if digit.is_ascii_hexdigit() && *next != b'x');
        if !address
            && let Some((inner, rest)) = line::comment(text)
            && let Some(word) = line::hex_word(inner)
        {
            // A live-register table may follow; nothing else does.
            if !(rest.trim_ascii().is_empty() || rest.trim_ascii_start().starts_with("//")) {
                self.unknown(text);
            }
            match &mut self.current {
                Some(builder) => builder.word(word, self.line_no, &mut self.problems),
                None => self.problems.add(ProblemKind::Encoding, self.line_no, text),
            }
            return;
        }
        if self.in_data && is_data_line(text) {
            return;
        }
        match line::instruction(text) {
            Some(insn) => self.instruction(&insn, text),
            None if is_data_line(text) => {}
            None => self.unknown(text),
        }
    }

    fn instruction(&mut self, insn: &InstructionLine<'_>, text: &str) {
        self.recognised = true;
        if !insn.complete && !insn.opens_pair {
            // Stripped `;` or the end of the input in the middle of a line: the text may be cut.
            self.problems.add(ProblemKind::Instruction, self.line_no, &format!("no `;` at the end: {text}"));
        }
        for bad in insn.bad_guard.iter().chain(&insn.bad_schedule) {
            self.problems.add(
                ProblemKind::Instruction,
                self.line_no,
                &format!("`{bad}` not understood: {text}"),
            );
        }
        self.source_chain = false;
        let live = insn.live.and_then(|l| self.live.row(l));
        if self.current.is_none() {
            self.problems.add(ProblemKind::NoFunction, self.line_no, text);
            self.current = Some(Builder::new("", self.arch, self.member));
        }
        if let Some(builder) = &mut self.current {
            builder.push(insn, self.source.as_ref(), live, self.line_no, &mut self.problems);
        }
    }

    fn other_line(&mut self, text: &str) {
        if let Some(comment) = text.strip_prefix("//") {
            self.comment_line(comment);
        } else if self.banner(text) || self.in_ptx {
            // Taken in, or PTX text that a member carries inline.
        } else if text.starts_with('.') && !is_label(text) {
            self.directive(text);
        } else if let Some(pair) = text.strip_prefix('{').filter(|t| t.trim_start().starts_with("/*")) {
            self.code_line(pair.trim_start());
        } else if is_label(text) {
            self.label(text);
        } else if !(self.in_data || self.resources.line(text)) {
            self.unknown(text);
        }
    }

    /// `//## File ...`, `//---- .text.NAME ----`, the banner rows of a live-register table.
    fn comment_line(&mut self, comment: &str) {
        if let Some(rest) = comment.strip_prefix("##") {
            self.source_line(rest.trim());
        } else if comment.contains("# ") || comment.contains('|') {
            self.live.banner(comment);
        }
    }

    fn source_line(&mut self, text: &str) {
        let Some((file, line, rest)) = place(text.strip_prefix("File").unwrap_or(text)) else {
            self.unknown(text);
            return;
        };
        let file = self.file(file);
        let outer = rest.trim().strip_prefix("inlined at").and_then(place);
        let outer = outer.map(|(f, l, _)| (self.file(f), l));
        // A chain: the first line is where the code stands, the next ones are its callers.
        let chained = self.source.as_deref().filter(|_| self.source_chain);
        let mut next = match chained {
            Some(source) => source.clone(),
            None => SourceLine { file, line, inlined_at: Vec::new() },
        };
        next.inlined_at.extend(outer);
        self.source = Some(Arc::new(next));
        self.source_chain = true;
    }

    fn file(&mut self, name: &str) -> Arc<str> {
        if let Some(file) = self.files.get(name) {
            return file.clone();
        }
        let file: Arc<str> = name.into();
        self.files.insert(name.to_owned(), file.clone());
        file
    }

    /// Lines of cuobjdump's frame: members, functions, headers. True where the line was one.
    fn banner(&mut self, text: &str) -> bool {
        if let Some(name) = text.strip_prefix("Function :") {
            self.recognised = true;
            self.start(name.trim());
        } else if let Some(arch) = text.strip_prefix("code for ") {
            self.recognised = true;
            self.in_ptx = false;
            self.end_function();
            self.set_arch(arch);
            self.member = self.members;
            self.members += 1;
        } else if text.starts_with("Fatbin elf code") {
            self.recognised = true;
            self.in_ptx = false;
            self.end_function();
        } else if text.starts_with("Fatbin ptx code") {
            self.recognised = true;
            self.end_function();
            self.in_ptx = true;
        } else if self.in_ptx {
            return false;
        } else if text.bytes().all(|b| b == b'.') && text.len() > 3 {
            self.end_function();
        } else {
            let key = text.split(['=', ':']).next().unwrap_or(text).trim();
            return text.bytes().all(|b| b == b'=')
                || matches!(
                    key,
                    "arch"
                        | "code version"
                        | "producer"
                        | "host"
                        | "compile_size"
                        | "compressed"
                        | "identifier"
                        | "ptxasOptions"
                        | "Fatbin"
                )
                || text == "compressed";
        }
        true
    }

    fn directive(&mut self, text: &str) {
        let (name, rest) = text.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((text, ""));
        let rest = rest.trim();
        match name {
            // PTX has this directive too, so it is no proof of a listing.
            ".target" => self.set_arch(rest),
            ".headerflags" => self.header_flags(rest),
            ".section" => {
                let section = rest.split(",\"").next().unwrap_or(rest).trim().trim_end_matches(',');
                match section.strip_prefix(".text.") {
                    Some(function) => {
                        self.recognised = true;
                        self.start(function);
                    }
                    None => {
                        self.end_function();
                        self.in_data = true;
                    }
                }
            }
            ".elftype" => self.recognised = true,
            ".align" | ".global" | ".weak" | ".local" | ".type" | ".size" | ".other" | ".sectionflags"
            | ".sectioninfo" | ".sectionentsize" | ".extern" | ".file" | ".loc" | ".entry" => {}
            _ if self.in_data || is_data_directive(name) => {}
            _ => self.unknown(text),
        }
    }

    /// `@"EF_CUDA_ACCELERATORS EF_CUDA_SM90 ..."`: the target where nothing better states it.
    fn header_flags(&mut self, flags: &str) {
        if self.current.as_ref().map_or(self.arch, |b| b.function.arch).is_some() {
            return;
        }
        let words = || flags.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let suffix = if words().any(|w| w == "EF_CUDA_ACCELERATORS") { "a" } else { "" };
        let arch = words().find_map(|w| format!("sm_{}{suffix}", w.strip_prefix("EF_CUDA_SM")?).parse().ok());
        if let Some(arch) = arch {
            self.arch = Some(arch);
            if let Some(builder) = &mut self.current {
                builder.set_arch(arch);
            }
        }
    }

    fn label(&mut self, text: &str) {
        let name = text.split("//").next().unwrap_or(text).trim().trim_end_matches(':');
        if let Some(builder) = &mut self.current
            && !name.starts_with(".text.")
        {
            builder.label(name);
        }
    }

    fn set_arch(&mut self, text: &str) {
        match text.trim().parse() {
            Ok(arch) => {
                self.arch = Some(arch);
                // cuobjdump prints `.target` before `Function :`, nvdisasm once for the file.
                if let Some(builder) = self.current.as_mut().filter(|b| b.function.instructions.is_empty()) {
                    builder.set_arch(arch);
                }
            }
            Err(_) => self.unknown(text),
        }
    }

    fn start(&mut self, name: &str) {
        self.end_function();
        self.in_data = false;
        self.source = None;
        let mut builder = Builder::new(name, self.arch, self.member);
        if let Some(resources) = self.resources.take(name) {
            builder.set_resources(resources);
        }
        self.current = Some(builder);
    }

    fn end_function(&mut self) {
        self.close(false);
    }

    fn close(&mut self, truncated: bool) {
        if let Some(builder) = self.current.take() {
            let function = builder.finish(truncated, self.line_no, &mut self.problems);
            if function.instructions.is_empty() {
                let text = format!("function `{}` has no instructions", function.name);
                self.problems.add(ProblemKind::Empty, self.line_no, &text);
            }
            self.functions += 1;
            (self.each)(function);
        }
    }

    fn unknown(&mut self, text: &str) {
        self.problems.add(ProblemKind::UnknownLine, self.line_no, text);
    }

    /// Whether there was nothing to read.
    pub(super) fn is_blank(&self) -> bool {
        self.blank
    }

    /// The listing without its functions; `None` where nothing in the input was a listing's.
    pub(super) fn finish(mut self) -> Option<Listing> {
        let truncated = self.current.as_ref().is_some_and(|b| !b.can_end());
        if truncated {
            let name = self.current.as_ref().map(|b| b.function.name.clone()).unwrap_or_default();
            let text = format!("the input ends inside `{name}`");
            self.problems.add(ProblemKind::Truncated, self.line_no, &text);
        }
        self.close(truncated);
        if self.functions == 0 && self.recognised {
            self.problems.add(ProblemKind::Empty, self.line_no, "no function in this listing");
        }
        self.recognised.then(|| Listing {
            functions: Vec::new(),
            problems: self.problems.into_list(),
            assembler: None,
            disassembler: None,
            bytes: 0,
        })
    }
}

/// `"PATH", line N` and what follows.
fn place(text: &str) -> Option<(&str, u32, &str)> {
    let rest = text.trim_start().strip_prefix('"')?;
    // A path may hold quotes; the one that ends it is followed by `, line`.
    let end = rest.find("\", line ")?;
    let after = &rest[end + "\", line ".len()..];
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    Some((&rest[..end], after[..digits].parse().ok()?, &after[digits..]))
}

/// `NAME:`, perhaps with a live-register row behind it.
fn is_label(text: &str) -> bool {
    let name = text.split("//").next().unwrap_or(text).trim_end();
    name.strip_suffix(':').is_some_and(|n| !n.is_empty() && !n.contains(char::is_whitespace))
}

/// `/*0000*/ .byte 0x00, ...`: a line of a data section.
fn is_data_line(text: &str) -> bool {
    line::comment(text).is_some_and(|(inner, rest)| {
        let rest = rest.trim_start();
        line::address(inner).is_some() && (rest.is_empty() || rest.starts_with(['.', '"']))
    })
}

fn is_data_directive(name: &str) -> bool {
    matches!(
        name,
        ".byte"
            | ".short"
            | ".word"
            | ".dword"
            | ".quad"
            | ".string"
            | ".ascii"
            | ".asciz"
            | ".zero"
            | ".skip"
            | ".fill"
    )
}
