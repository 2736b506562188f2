//! `nvdisasm -json`: header, functions, files. It has no hex, no control fields and no labels; addresses are
//! implied by position.

use super::ParseError;
use super::function::Builder;
use super::line::InstructionLine;
use crate::listing::Problems;
use crate::{Function, Guard, Listing, ProblemKind, SourceLine};
use kbt_device::Arch;
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::Arc;

#[derive(Deserialize)]
struct JsonFunction<'a> {
    #[serde(rename = "function-name")]
    name: String,
    #[serde(default)]
    start: u64,
    #[serde(rename = "sass-instructions", borrow, default)]
    instructions: Vec<JsonInstruction<'a>>,
}

#[derive(Deserialize)]
struct JsonInstruction<'a> {
    #[serde(borrow)]
    predicate: Option<Cow<'a, str>>,
    #[serde(borrow)]
    opcode: Cow<'a, str>,
    #[serde(borrow, default)]
    operands: Cow<'a, str>,
    #[serde(rename = "source-file-id")]
    file: Option<u32>,
    #[serde(rename = "source-line")]
    line: Option<u32>,
    #[serde(default)]
    annotations: Vec<Value>,
}

/// Reads the whole text.
pub(super) fn read(text: &[u8], each: &mut dyn FnMut(Function)) -> Result<Listing, ParseError> {
    let error = |message: String| ParseError::Json { message };
    // NULs may follow, as behind any text that was a C string.
    let end = text.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
    let text = std::str::from_utf8(&text[..end]).map_err(|e| error(format!("the JSON is not UTF-8: {e}")))?;
    let parts: Vec<&serde_json::value::RawValue> =
        serde_json::from_str(text).map_err(|e| error(format!("the JSON does not parse: {e}")))?;
    let Some(header) = parts.first().and_then(|h| serde_json::from_str::<Value>(h.get()).ok()) else {
        return Err(error("the JSON array is empty".to_owned()));
    };
    let functions = parts.get(1).ok_or_else(|| error("the JSON has no functions".to_owned()))?;
    let functions: Vec<JsonFunction<'_>> = serde_json::from_str(functions.get())
        .map_err(|e| error(format!("the functions do not parse: {e}")))?;
    let files = parts.get(2).and_then(|f| serde_json::from_str(f.get()).ok()).map_or_else(Vec::new, files);
    let mut problems = Problems::default();
    let arch = arch(&header);
    let mut open: Option<Open> = None;
    for function in functions {
        // Up to 12.x a subroutine within a function's section has an entry of its own, behind the function's.
        let inside = |o: &Open| function.name.starts_with('$') && function.start == o.end;
        if !open.as_ref().is_some_and(inside) {
            close(open.take(), &mut problems, each);
        }
        let open =
            open.get_or_insert_with(|| Open { builder: Builder::new(&function.name, arch, 0), end: 0 });
        read_function(&function, arch, &files, &mut problems, open);
    }
    close(open, &mut problems, each);
    let tool = header.pointer("/.note.nv.tkinfo/tki_toolVersion").and_then(Value::as_str);
    let name = header.pointer("/.note.nv.tkinfo/tki_toolName").and_then(Value::as_str);
    let version = |text: &str| text.rsplit_once('V').map(|(_, v)| v.trim().to_owned());
    let producer = header.get("Producer").and_then(Value::as_str);
    Ok(Listing {
        functions: Vec::new(),
        problems: problems.into_list(),
        assembler: tool.and_then(version).map(|v| format!("{} {v}", name.unwrap_or("ptxas"))),
        disassembler: producer
            .and_then(|p| p.split_once(" V"))
            .map(|(tool, rest)| format!("{tool} {}", rest.split(' ').next().unwrap_or_default())),
        bytes: 0,
    })
}

/// A function that entries may still add to.
struct Open {
    builder: Builder,
    /// Where its last entry ends.
    end: u64,
}

fn close(open: Option<Open>, problems: &mut Problems, each: &mut dyn FnMut(Function)) {
    let Some(open) = open else { return };
    let function = open.builder.finish(false, 0, problems);
    if function.instructions.is_empty() {
        problems.add(ProblemKind::Empty, 0, &format!("function `{}` has no instructions", function.name));
    }
    each(function);
}

fn read_function(
    json: &JsonFunction<'_>,
    arch: Option<Arch>,
    files: &[Arc<str>],
    problems: &mut Problems,
    open: &mut Open,
) {
    let step = if arch.is_some_and(|a| a.sm < 70) { 8 } else { 16 };
    if open.end > 0 {
        open.builder.label(&json.name);
    }
    open.end = json.start.saturating_add(step * json.instructions.len() as u64);
    let mut source = None;
    for (n, insn) in json.instructions.iter().enumerate() {
        // Gaps (on sm_5x and 6x every control word) have no opcode.
        if insn.opcode.is_empty() {
            continue;
        }
        let guard = insn.predicate.as_deref().and_then(Guard::parse);
        if guard.is_none() && insn.predicate.is_some() {
            let text = format!("predicate {:?} in `{}`", insn.predicate, json.name);
            problems.add(ProblemKind::Instruction, 0, &text);
        }
        let line = InstructionLine {
            address: json.start.saturating_add(n as u64 * step),
            guard,
            opcode: insn.opcode.trim(),
            operands: spaced(&insn.opcode, &insn.operands),
            annotation: insn.annotations.iter().find_map(annotation),
            ..InstructionLine::default()
        };
        // Stated where it changes only.
        if let Some((file, line)) = insn.file.zip(insn.line) {
            let file = usize::try_from(file).ok().and_then(|n| files.get(n));
            source = file.map(|f| Arc::new(SourceLine { file: f.clone(), line, inlined_at: Vec::new() }));
        }
        open.builder.push(&line, source.as_ref(), None, 0, problems);
    }
}

/// The JSON joins operands with bare commas; text listings put a blank behind them, and a blank alone between
/// the register and the offset of an indirect branch. 12.8 leaves out some commas before an address
/// (`R9[R10]` before sm_75; `URZ[UR6]` and `[UR8][UR6]` on sm_90).
fn spaced<'a>(opcode: &str, operands: &'a str) -> Cow<'a, str> {
    let operands = operands.trim();
    let indirect = matches!(opcode.split('.').next(), Some("BRX" | "BRXU" | "JMX" | "JMXU" | "RET"));
    let separator = if indirect { " " } else { ", " };
    let mut out = String::new();
    let mut rest = operands;
    // Whether the last bracket was opened with no name before it: `c[0x0][0x20]` goes on, `[UR8][UR6]` are two.
    let mut bare = false;
    while let Some(at) = rest.find([',', '[']) {
        let (before, after) = rest.split_at(at);
        out += before;
        if after.starts_with(',') {
            out += separator;
        } else {
            let goes_on = out.ends_with(']');
            let missing = if goes_on { bare } else { ends_in_register(&out) };
            bare = missing || !(goes_on || out.ends_with(|c: char| c.is_ascii_alphanumeric()));
            out += if missing { ", [" } else { "[" };
        }
        rest = &after[1..];
    }
    if out.is_empty() {
        return Cow::Borrowed(operands);
    }
    Cow::Owned(out + rest)
}

/// Whether a text ends in a register's name: `R9`, `RZ`, `UR4`, `P0`.
fn ends_in_register(text: &str) -> bool {
    let word = text.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or(text);
    let name = word.strip_prefix('U').unwrap_or(word).strip_prefix(['R', 'P']);
    name.is_some_and(|n| matches!(n, "Z" | "T") || (!n.is_empty() && n.bytes().all(|b| b.is_ascii_digit())))
}

/// The annotation that the text form prints too.
fn annotation(value: &Value) -> Option<&str> {
    let info = value.get("info").or_else(|| value.get("information"))?;
    info.as_str().or_else(|| info.as_array()?.first()?.as_str())
}

/// `{"directories": [...], "files": [{"dir-idx": 0, "file": "k.cu"}]}`.
fn files(value: Value) -> Vec<Arc<str>> {
    let list = |key| value.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    list("files")
        .iter()
        .map(|entry| {
            let name = entry.get("file").and_then(Value::as_str).unwrap_or_default();
            let directory =
                entry.get("dir-idx").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
            match directory.and_then(|n| list("directories").get(n)?.as_str()) {
                Some(directory) if !name.starts_with('/') => format!("{directory}/{name}").into(),
                _ => name.into(),
            }
        })
        .collect()
}

/// `SM.version`, with the suffix that the assembler was given.
fn arch(header: &Value) -> Option<Arch> {
    let number = |key| header.pointer(key).and_then(Value::as_u64).and_then(|n| u16::try_from(n).ok());
    let sm = number("/SM/version/major")?.checked_mul(10)?.checked_add(number("/SM/version/minor")?)?;
    let options = header.pointer("/.note.nv.tkinfo/tki_toolOptions").and_then(Value::as_str).unwrap_or("");
    let named = options.split(|c: char| c.is_whitespace() || c == '=').filter_map(|w| w.parse::<Arch>().ok());
    // Through the text, so that a number which is no target's becomes none.
    named.into_iter().find(|a| a.sm == sm).or_else(|| format!("sm_{sm}").parse().ok())
}

#[cfg(test)]
mod tests {
    use super::ends_in_register;

    #[test]
    fn a_register_is_told_from_what_only_ends_like_one() {
        for (text, is) in [
            ("R9", true),
            ("c[0x0][UR4", true),
            ("RZ", true),
            ("P0", true),
            ("0x10", false),
            ("", false),
            // A wide character before the end must not be cut through.
            ("R1, c[0x\u{362}", false),
        ] {
            assert_eq!(ends_in_register(text), is, "{text}");
        }
    }
}
