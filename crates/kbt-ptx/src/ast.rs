//! What a PTX module is made of. Every part knows its line and its bytes, so that callers can report and edit.

use std::fmt;
use std::ops::Range;

/// A PTX module.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Module {
    /// `.version`, for example `9.0`.
    pub version: String,
    /// `.target`, for example `sm_90a`; further words (`debug`, `texmode_...`) follow after commas.
    pub target: String,
    /// `.address_size`.
    pub address_size: Option<u32>,
    /// Entries and device functions with a body, in order.
    pub functions: Vec<Function>,
    /// Module-level declarations and directives as they stand: globals, constants, prototypes, files.
    pub declarations: Vec<Declaration>,
    /// What was not understood.
    pub problems: Vec<Problem>,
}

impl Module {
    /// The first function of that name.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|f| f.name == name)
    }

    /// What was not understood within a function.
    pub fn problems_in<'a>(&'a self, function: &Function) -> impl Iterator<Item = &'a Problem> {
        let lines = function.line..=function.last_line;
        self.problems.iter().filter(move |p| lines.contains(&p.line))
    }

    /// Where the text ends within a function or a statement, as that of a file that was cut.
    #[must_use]
    pub fn ends_early(&self) -> Option<&Problem> {
        self.problems.iter().find(|p| p.message.starts_with("the text ends inside"))
    }

    /// The kernels.
    pub fn entries(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().filter(|f| f.is_entry)
    }
}

/// A kernel or a device function with a body.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// The mangled name.
    pub name: String,
    /// A kernel (`.entry`), else `.func`.
    pub is_entry: bool,
    /// The line it starts on, from 1.
    pub line: u32,
    /// The line of the brace that closes it; where that is missing, the text's last.
    pub last_line: u32,
    /// Its header: linkage, name, parameters.
    pub header: String,
    /// Performance directives between header and body: `.maxntid 256, 1, 1`, `.minnctapersm 1`.
    pub directives: Vec<Declaration>,
    /// Bytes of the whole function, from its first word to the brace that closes it.
    pub span: Range<usize>,
    /// The byte of the brace that opens the body.
    pub body_start: usize,
    /// The body in order.
    pub body: Vec<Statement>,
}

impl Function {
    /// The instructions of the body, in order.
    pub fn instructions(&self) -> impl Iterator<Item = &Instruction> {
        self.body.iter().filter_map(|s| match s {
            Statement::Instruction(i) => Some(i),
            _ => None,
        })
    }
}

/// One statement of a body.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement {
    /// `name:`
    Label {
        /// The label.
        name: String,
        /// Its line.
        line: u32,
    },
    /// An instruction.
    Instruction(Instruction),
    /// `.reg .b32 %r<10>;`, `.shared .align 16 .b8 s[64];`, `.pragma "nounroll";`, `.loc 1 5 3`.
    Declaration(Declaration),
    /// `{` of an inner scope.
    Open,
    /// `}` of an inner scope.
    Close,
}

/// A directive as it stands, without the semicolon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    /// Its first word, dot included: `.reg`, `.shared`, `.maxntid`.
    pub name: String,
    /// What follows, with single blanks.
    pub text: String,
    /// Its line.
    pub line: u32,
    /// Its bytes.
    pub span: Range<usize>,
}

/// The predicate an instruction executes under.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// Executes where the predicate is false.
    pub negated: bool,
    /// The predicate register.
    pub register: String,
}

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// The predicate it executes under.
    pub guard: Option<Guard>,
    /// The full opcode: `cvt.rn.satfinite.e4m3x2.f32`.
    pub opcode: String,
    /// The operands: registers, immediates, `[%rd1+4]`, `{%r1, %r2}`, `(param0, param1)`.
    pub operands: Vec<String>,
    /// Its line.
    pub line: u32,
    /// Its bytes, guard included, semicolon not.
    pub span: Range<usize>,
}

impl Instruction {
    /// The opcode before the first dot: `cvt`.
    #[must_use]
    pub fn base(&self) -> &str {
        self.opcode.split('.').next().unwrap_or(&self.opcode)
    }

    /// The words after the first dot: `rn`, `satfinite`, `e4m3x2`, `f32`. Names with colons stay whole
    /// (`shared::cta`).
    pub fn modifiers(&self) -> impl Iterator<Item = &str> {
        self.opcode.split('.').skip(1)
    }

    /// Whether one of the modifiers is `name`.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.modifiers().any(|m| m == name)
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(guard) = &self.guard {
            write!(f, "@{}{} ", if guard.negated { "!" } else { "" }, guard.register)?;
        }
        write!(f, "{}", self.opcode)?;
        if !self.operands.is_empty() {
            write!(f, " {}", self.operands.join(", "))?;
        }
        f.write_str(";")
    }
}

/// Something that was not understood. Reading went on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: u32,
    /// What is wrong, with the text in question.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

/// Input that is no PTX.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PtxError {
    /// Nothing but blanks and NULs.
    #[error("the file is empty; expected PTX, as `nvcc -ptx FILE.cu` writes it")]
    Empty,
    /// No `.version` at the start.
    #[error("this is no PTX: line {line} is `{text}`, expected `.version MAJOR.MINOR`")]
    NotPtx {
        /// The first line with text on it.
        line: u32,
        /// That line, cut.
        text: String,
    },
}
