//! What a reader returns: functions, and the problems it met.

use crate::Instruction;
use kbt_device::Arch;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;

/// A listing as read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listing {
    /// The functions in the order of the listing.
    pub functions: Vec<Function>,
    /// What was not understood.
    pub problems: Vec<Problem>,
    /// The tool that wrote the machine code, where the listing says so: `ptxas 13.0.88`.
    pub assembler: Option<String>,
    /// The tool that wrote the listing, where it says so: `nvdisasm 13.5.37`.
    pub disassembler: Option<String>,
    /// Bytes of input read.
    pub bytes: u64,
}

impl Listing {
    /// How many problems there are, those that are not listed singly included.
    #[must_use]
    pub fn problem_count(&self) -> u64 {
        self.problems.iter().map(|p| 1 + p.more).sum()
    }

    /// All instructions of all functions.
    pub fn instructions(&self) -> impl Iterator<Item = &Instruction> {
        self.functions.iter().flat_map(|f| &f.instructions)
    }

    /// The first function of that name.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|f| f.name == name)
    }
}

/// One kernel or device function, with the subroutines that its section holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// The name as it stands in the listing, mangled if it is there.
    pub name: String,
    /// The compile target; `None` where the listing does not say.
    pub arch: Option<Arch>,
    /// The instructions by address.
    pub instructions: Vec<Instruction>,
    /// Labels that the listing names, by address. A label does not start a block: see `cfg`.
    pub labels: Vec<(String, u64)>,
    /// Subroutines within the section (`$kernel$fn`), by address.
    pub subroutines: Vec<(String, u64)>,
    /// Registers, stack and local memory, from `-res-usage`.
    pub resources: Option<Resources>,
    /// Which fatbin member it comes from, counted from 0.
    pub member: u32,
    /// The listing ends or breaks off inside this function.
    pub truncated: bool,
}

impl Function {
    /// Bytes of one instruction: 16 from sm_70 on, 8 before.
    #[must_use]
    pub fn instruction_bytes(&self) -> u64 {
        match self.arch {
            Some(arch) if arch.sm < 70 => 8,
            Some(_) => 16,
            None if self.instructions.iter().any(|i| i.address % 16 == 8) => 8,
            None => 16,
        }
    }

    /// The index of the instruction at `address`, or of the next one after it.
    #[must_use]
    pub fn index_at(&self, address: u64) -> usize {
        self.instructions.partition_point(|i| i.address < address)
    }
}

/// A function's resources as cuobjdump states them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// General registers a thread.
    pub registers: Option<u32>,
    /// Stack bytes a thread.
    pub stack_bytes: Option<u64>,
    /// Local bytes a thread beyond the stack.
    pub local_bytes: Option<u64>,
    /// Static shared bytes a CTA.
    pub shared_bytes: Option<u64>,
}

/// What kind of thing was not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProblemKind {
    /// A line that belongs to no known form.
    UnknownLine,
    /// An instruction whose guard, text or annotation could not be read in full.
    Instruction,
    /// A hex column that fits no instruction, or disagrees with the word width.
    Encoding,
    /// A branch whose target is not in the function.
    Target,
    /// Instructions before any function header.
    NoFunction,
    /// Addresses that go backwards or leave gaps.
    Address,
    /// The input ends inside a function or a word.
    Truncated,
    /// A member or function without instructions.
    Empty,
    /// A mnemonic that no pipe is known for.
    UnknownMnemonic,
}

impl ProblemKind {
    /// The name in files and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UnknownLine => "unknown_line",
            Self::Instruction => "instruction",
            Self::Encoding => "encoding",
            Self::Target => "target",
            Self::NoFunction => "no_function",
            Self::Address => "address",
            Self::Truncated => "truncated",
            Self::Empty => "empty",
            Self::UnknownMnemonic => "unknown_mnemonic",
        }
    }
}

/// Something that was not understood. Reading went on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// What kind.
    pub kind: ProblemKind,
    /// The line of the input, from 1; 0 where the input has no lines.
    pub line: u64,
    /// The text in question, or what is wrong with it.
    pub text: String,
    /// How many further problems of this kind are not listed singly.
    pub more: u64,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}: {}", self.line, self.kind.as_str(), self.text)?;
        if self.more > 0 {
            write!(f, " (and {} more of this kind)", self.more)?;
        }
        Ok(())
    }
}

/// How many problems of one kind are listed singly. A foreign file must not become a list as long as itself.
const LISTED: usize = 50;
/// Bytes of a line that a problem quotes.
const QUOTED: usize = 160;

/// Collects problems.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    list: Vec<Problem>,
    /// How many of each kind are listed, and where the last one is.
    listed: HashMap<ProblemKind, (usize, usize)>,
}

impl Problems {
    pub(crate) fn add(&mut self, kind: ProblemKind, line: u64, text: &str) {
        let (count, last) = self.listed.entry(kind).or_default();
        if *count >= LISTED {
            self.list[*last].more += 1;
            return;
        }
        *count += 1;
        *last = self.list.len();
        let text = text.trim();
        let end = (0..=QUOTED.min(text.len())).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        let mut quoted = text[..end].to_owned();
        if end < text.len() {
            quoted.push_str("...");
        }
        self.list.push(Problem { kind, line, text: quoted, more: 0 });
    }

    pub(crate) fn into_list(self) -> Vec<Problem> {
        self.list
    }
}
