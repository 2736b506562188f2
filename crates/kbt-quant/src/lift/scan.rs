//! A function's body as blocks without a branch, with source places; and what is known of registers everywhere.

use super::lanes::Lanes;
use super::masks::{Mask, Masks};
use super::scalar::At;
use kbt_ptx::{Function, Instruction, Statement};
use std::collections::{HashMap, HashSet};

/// One thing in a block.
pub(super) enum Item<'a> {
    /// An instruction, where it stands, and the source lines it is inlined at, itself first.
    Instruction(&'a Instruction, At),
    /// An inner scope ends: these names end with it.
    Forget(Vec<String>),
}

/// Instructions that follow each other without a branch or label between them.
#[derive(Default)]
pub(super) struct Block<'a> {
    pub(super) items: Vec<Item<'a>>,
}

impl<'a> Block<'a> {
    pub(super) fn instructions(&self) -> impl Iterator<Item = (&'a Instruction, At)> + '_ {
        self.items.iter().filter_map(|item| match item {
            Item::Instruction(i, at) => Some((*i, *at)),
            Item::Forget(_) => None,
        })
    }
}

/// Which instructions are looked at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Region {
    /// All of a function.
    #[default]
    Whole,
    /// Source lines from and to, both included, of the file whose path ends so (else of the first file), code inlined
    /// there included; PTX lines where the PTX has no source lines.
    Lines {
        /// The end of the file's path.
        file: Option<String>,
        /// First line.
        from: u32,
        /// Last line.
        to: u32,
    },
    /// From one label up to another.
    Labels {
        /// The first block's label.
        from: String,
        /// The label that ends the region; empty for the function's end.
        to: String,
    },
}

/// A text that names no region.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no region: expected source lines `40-90` or `file.cu:40-90`, or labels `$L__BB0_3-$L__BB0_5`, \
     `$L__BB0_3-` up to the function's end"
)]
pub struct NoRegion(String);

impl std::str::FromStr for Region {
    type Err = NoRegion;

    fn from_str(text: &str) -> Result<Self, NoRegion> {
        let fail = || NoRegion(text.to_owned());
        let (file, range) = match text.rsplit_once(':') {
            Some((file, range)) => (Some(file.to_owned()), range),
            None => (None, text),
        };
        let (from, to) = range.split_once('-').ok_or_else(fail)?;
        if let (Ok(from), Ok(to)) = (from.parse(), to.parse()) {
            return if from <= to { Ok(Self::Lines { file, from, to }) } else { Err(fail()) };
        }
        let is_label = |t: &str| t.starts_with(|c: char| c == '$' || c == '_' || c.is_ascii_alphabetic());
        if file.is_none() && is_label(from) && (to.is_empty() || is_label(to)) {
            return Ok(Self::Labels { from: from.to_owned(), to: to.to_owned() });
        }
        Err(fail())
    }
}

type Location = (u32, u32);

/// The innermost place of each `.loc`, and what it is inlined at.
#[derive(Default)]
pub(super) struct Places {
    current: Option<Location>,
    inlined_at: HashMap<Location, Location>,
}

impl Places {
    pub(super) fn take(&mut self, text: &str) {
        let mut words = text.split([' ', ',']).filter(|w| !w.is_empty());
        let place = |a: Option<&str>, b: Option<&str>| Some((a?.parse().ok()?, b?.parse().ok()?));
        let Some(at) = place(words.next(), words.next()) else { return };
        self.current = Some(at);
        if words.any(|w| w == "inlined_at")
            && let Some(outer) = place(words.next(), words.next()).filter(|outer| *outer != at)
        {
            self.inlined_at.insert(at, outer);
        }
    }

    /// The current place, and those it is inlined at: file and line.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        std::iter::successors(self.current, |at| self.inlined_at.get(at).copied()).take(64)
    }

    /// Whether the current place, or one it is inlined at, lies in these lines of these files.
    fn within(&self, files: &HashSet<u32>, from: u32, to: u32) -> bool {
        self.all().any(|(file, line)| files.contains(&file) && (from..=to).contains(&line))
    }
}

/// Whether the PTX names source lines.
pub(super) fn has_source(f: &Function) -> bool {
    f.body.iter().any(|s| matches!(s, Statement::Declaration(d) if d.name == ".loc"))
}

/// The files whose lines a region means, by number.
pub(super) fn wanted(file: Option<&str>, files: &HashMap<u32, String>) -> HashSet<u32> {
    match file {
        Some(name) => files.iter().filter(|(_, path)| path.ends_with(name)).map(|(n, _)| *n).collect(),
        None => files.keys().min().copied().into_iter().collect(),
    }
}

/// Instructions after which another may follow that is not the next.
fn ends_block(i: &Instruction) -> bool {
    matches!(i.base(), "bra" | "brx" | "ret" | "exit" | "trap" | "call")
}

/// The blocks of a function that the region has. `files` are the module's, by number.
pub(super) fn blocks<'a>(f: &'a Function, region: &Region, files: &HashMap<u32, String>) -> Vec<Block<'a>> {
    let has_source = has_source(f);
    let wanted = match region {
        Region::Lines { file, .. } => wanted(file.as_deref(), files),
        _ => HashSet::new(),
    };
    let mut inside = !matches!(region, Region::Labels { .. });
    let (mut out, mut block, mut places) = (Vec::new(), Block::default(), Places::default());
    let mut scopes: Vec<Vec<String>> = Vec::new();
    let mut cut = |block: &mut Block<'a>| {
        let done = std::mem::take(block);
        if done.instructions().next().is_some() {
            out.push(done);
        }
    };
    for statement in &f.body {
        match statement {
            Statement::Label { name, .. } => {
                cut(&mut block);
                if let Region::Labels { from, to } = region {
                    inside = (inside || name == from) && name != to;
                }
            }
            Statement::Declaration(d) if d.name == ".loc" => places.take(&d.text),
            Statement::Declaration(d) if d.name == ".reg" => {
                if let Some(scope) = scopes.last_mut() {
                    scope.extend(d.text.split([' ', ',']).skip(1).map(str::to_owned));
                }
            }
            Statement::Declaration(_) => {}
            Statement::Open => scopes.push(Vec::new()),
            Statement::Close => {
                let names = scopes.pop().unwrap_or_default();
                block.items.push(Item::Forget(names));
            }
            Statement::Instruction(i) => {
                let taken = inside
                    && match region {
                        Region::Lines { from, to, .. } if has_source => places.within(&wanted, *from, *to),
                        Region::Lines { from, to, .. } => (*from..=*to).contains(&i.line),
                        _ => true,
                    };
                if taken {
                    block.items.push(Item::Instruction(i, At { line: i.line, source: places.current }));
                }
                if ends_block(i) {
                    cut(&mut block);
                }
            }
        }
    }
    cut(&mut block);
    out
}

/// The registers and symbols in an operand: `[%rd1+4]`, `{%f1, %f2}`, `%r1|%p1`.
pub(super) fn registers(operand: &str) -> impl Iterator<Item = &str> {
    let separators = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '%' | '$' | '.'));
    operand
        .split(separators)
        .filter(|t| t.starts_with(|c: char| c == '%' || c == '_' || c.is_ascii_alphabetic()))
}

/// Whether an instruction writes its first operand.
pub(super) fn writes(i: &Instruction) -> bool {
    let memory = i.operands.first().is_some_and(|o| o.starts_with('['));
    let none = matches!(i.base(), "st" | "red" | "bra" | "brx" | "bar" | "barrier" | "ret" | "exit");
    !memory && !none
}

/// What holds of registers wherever they are read.
pub(super) struct Registers<'a> {
    /// The one instruction that writes a register, where there is only one, without a guard.
    definitions: HashMap<&'a str, Option<&'a Instruction>>,
    /// In how many places each is read.
    reads: HashMap<&'a str, usize>,
    /// Which lanes have values of their own.
    lanes: Lanes<'a>,
    /// Which the code sets to -inf.
    masks: Masks<'a>,
}

impl<'a> Registers<'a> {
    pub(super) fn new(f: &'a Function) -> Self {
        let (lanes, masks) = (Lanes::new(f), Masks::new(f));
        let mut this = Self { definitions: HashMap::new(), reads: HashMap::new(), lanes, masks };
        for i in f.instructions() {
            let written = usize::from(writes(i));
            for name in i.operands.iter().take(written).flat_map(|o| registers(o)) {
                let once = i.guard.is_none().then_some(i);
                this.definitions.entry(name).and_modify(|d| *d = None).or_insert(once);
            }
            if let Some(guard) = &i.guard {
                *this.reads.entry(guard.register.as_str()).or_default() += 1;
            }
            // An accumulator is read and written by one operand; all others only read.
            let both = matches!(i.base(), "wgmma" | "mma");
            for name in i.operands.iter().skip(if both { 0 } else { written }).flat_map(|o| registers(o)) {
                *this.reads.entry(name).or_default() += 1;
            }
        }
        this
    }

    /// Which bits of a lane's number its value may depend on.
    pub(super) fn lanes(&self, name: &str) -> u8 {
        self.lanes.of(name)
    }

    /// What the code masks it with.
    pub(super) fn mask(&self, name: &str) -> Option<Mask> {
        self.masks.of(name)
    }

    /// Places that read it in the whole function.
    pub(super) fn reads(&self, name: &str) -> usize {
        self.reads.get(name).copied().unwrap_or_default()
    }

    /// The only instruction that writes it.
    pub(super) fn definition(&self, name: &str) -> Option<&'a Instruction> {
        self.definitions.get(name).copied().flatten()
    }

    /// Whether every thread of the kernel has the same value in it: it follows from parameters alone.
    pub(super) fn is_uniform(&self, name: &str, depth: usize) -> bool {
        let Some(i) = self.definition(name).filter(|_| depth < 32) else { return false };
        // A parameter is read at an address that follows from the parameters' own.
        let parameter = i.base() == "ld" && i.has("param");
        let pure = [
            "mov", "add", "sub", "mul", "fma", "mad", "neg", "abs", "cvt", "div", "rcp", "ex2", "lg2",
            "sqrt", "rsqrt", "tanh", "sin", "cos", "max", "min", "setp", "selp", "and", "or", "not", "shl",
            "shr",
        ];
        let values = || i.operands.iter().skip(1).flat_map(|o| registers(o));
        let is_register = |r: &&str| r.starts_with('%');
        (parameter || pure.contains(&i.base()))
            && values().all(|r| !is_register(&r) || self.is_uniform(r, depth + 1))
            && i.operands.len() > 1
    }
}
