//! The spec: one entry an instruction, as YAML. Reading and checking it lives here; what PTX it becomes is
//! `ptx`'s, what machine code it must become is `verify`'s.

mod data;

pub(crate) use data::split_count;
pub use data::{DataKind, DataType, DataTypeError};

use crate::verify::LARGEST_BODY;
use kbt_device::Arch;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The most elements that one instruction can give a lane: the accumulators of the largest matrix product.
const MOST_RESULTS: f64 = 65_536.0;
/// No body of more operations than this can be timed.
const MOST_UNROLL: u32 = LARGEST_BODY as u32 / 2;
/// Copies of a value that a thread's registers can hold beside its chains.
const MOST_ROTATE: u32 = 32;

/// Major and minor of a PTX version.
pub(crate) fn version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The spec that comes with the crate: its files by name, the order that profiles have.
const EMBEDDED: [(&str, &str); 6] = [
    ("spec/float.yaml", include_str!("float.yaml")),
    ("spec/integer.yaml", include_str!("integer.yaml")),
    ("spec/convert.yaml", include_str!("convert.yaml")),
    ("spec/warp.yaml", include_str!("warp.yaml")),
    ("spec/matrix.yaml", include_str!("matrix.yaml")),
    ("spec/operations.yaml", include_str!("operations.yaml")),
];

/// Instructions and mixes to measure.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// One entry an instruction.
    #[serde(default)]
    pub instructions: Vec<Entry>,
    /// Mixes of two of them.
    #[serde(default)]
    pub mixes: Vec<Mix>,
}

/// One instruction.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The name in profiles: the PTX name where there is one.
    pub name: String,
    /// The full SASS mnemonics that may implement it, `*` for any tail. Empty for a compound operation.
    #[serde(default)]
    pub target: Vec<String>,
    /// Results (elements) one target instruction gives a lane.
    #[serde(default = "one")]
    pub results: f64,
    /// Several instructions an operation (a division, a software conversion): the rate is of whole
    /// operations, and all its instructions go to the lowering table.
    #[serde(default)]
    pub compound: bool,
    /// The operation this is, in the lowering table, where that is not the entry's own name.
    #[serde(default)]
    pub lowers: Option<String>,
    /// Lowest compute capability, times ten.
    #[serde(default = "lowest")]
    pub sm: u16,
    /// The only compile targets that have it, by their names without `sm_`; empty for all from `sm` on.
    #[serde(default)]
    pub only: Vec<String>,
    /// Compile targets that this entry is not for, because another entry is.
    #[serde(default)]
    pub except: Vec<String>,
    /// Lowest PTX version.
    #[serde(default)]
    pub ptx: Option<String>,
    /// The chain forms, by name: each an own way to feed the output back.
    pub chains: BTreeMap<String, Chain>,
    /// Reads or writes memory, so memory instructions in the window are the subject.
    #[serde(default)]
    pub memory: bool,
    /// The file and line it is from, for messages.
    #[serde(skip)]
    pub place: String,
}

/// One chain form.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chain {
    /// The state that is fed back, `%x` in the step (`%x0`, `%x1`, … where it has several registers).
    pub x: DataType,
    /// Values that stay the same over the loop and differ by thread, `%NAME` in the step.
    #[serde(default)]
    pub with: BTreeMap<String, DataType>,
    /// Registers within a step, `%NAME`.
    #[serde(default)]
    pub temp: BTreeMap<String, String>,
    /// How many copies of the `with` values there are; steps take turns, so that neighbours cannot be fused.
    #[serde(default = "one_u32")]
    pub rotate: u32,
    /// Target instructions a step holds.
    #[serde(default = "one_u32")]
    pub ops: u32,
    /// Operations in the smaller body, at most; the larger holds twice as many. Where the body comes out longer
    /// than the instruction cache allows, half of it is tried, and so on.
    #[serde(default = "unroll")]
    pub unroll: u32,
    /// The PTX of one step.
    pub step: String,
    /// Whether the output feeds the next step's input, so that one chain alone gives a latency.
    #[serde(default = "yes")]
    pub latency: bool,
}

/// Two instructions issued together.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// The two entries.
    pub of: [String; 2],
    /// How many of each a round holds.
    pub ratio: [u32; 2],
}

fn one() -> f64 {
    1.0
}
fn one_u32() -> u32 {
    1
}
fn yes() -> bool {
    true
}
fn lowest() -> u16 {
    75
}
fn unroll() -> u32 {
    128
}

/// A spec that cannot be used: file, line where known, and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}{}: {message}", line.map_or(String::new(), |l| format!(":{l}")))]
pub struct SpecError {
    /// The file, or `the embedded spec`.
    pub origin: String,
    /// The line, from 1.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
}

impl Spec {
    /// The embedded spec.
    pub fn embedded() -> Result<Self, SpecError> {
        let mut spec = Self { instructions: Vec::new(), mixes: Vec::new() };
        for (name, text) in EMBEDDED {
            let part = Self::read(text, name)?;
            spec.instructions.extend(part.instructions);
            spec.mixes.extend(part.mixes);
        }
        spec.check("", "the embedded spec")?;
        Ok(spec)
    }

    /// Reads a spec; `origin` names the file in errors.
    pub fn from_yaml(text: &str, origin: &str) -> Result<Self, SpecError> {
        let spec = Self::read(text, origin)?;
        spec.check(text, origin)?;
        Ok(spec)
    }

    /// Reads entries and mixes, and checks each entry by itself.
    fn read(text: &str, origin: &str) -> Result<Self, SpecError> {
        let mut spec: Self = serde_yaml::from_str(text).map_err(|e| SpecError {
            origin: origin.to_owned(),
            line: e.location().map(|l| l.line()),
            message: e.to_string(),
        })?;
        for (entry, line) in spec.instructions.iter_mut().zip(name_lines(text)) {
            entry.place = format!("{origin}:{line}");
            entry.check().map_err(|message| SpecError {
                origin: origin.to_owned(),
                line: Some(line),
                message: format!("`{}`: {message}", entry.name),
            })?;
        }
        Ok(spec)
    }

    /// Entries that `only` accepts and that are not for a compile target, where no other entry of the name is.
    #[must_use]
    pub fn not_for(&self, arch: Arch, only: &dyn Fn(&str) -> bool) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for entry in self.instructions.iter().filter(|e| only(&e.name)) {
            let here = self.instructions.iter().any(|e| e.name == entry.name && e.is_for(arch));
            if !here && !names.contains(&entry.name) {
                names.push(entry.name.clone());
            }
        }
        names
    }

    /// The lowest compute capability, times ten, that one of the entries is for.
    #[must_use]
    pub fn lowest_sm(&self) -> Option<u16> {
        self.instructions.iter().map(|e| e.sm).min()
    }

    /// An entry by name.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.instructions.iter().find(|e| e.name == name)
    }

    /// What entries and mixes say of each other.
    fn check(&self, text: &str, origin: &str) -> Result<(), SpecError> {
        let fail = |name: &str, message: String| SpecError {
            origin: origin.to_owned(),
            line: line_of(text, name),
            message: format!("`{name}`: {message}"),
        };
        let mut seen = std::collections::BTreeSet::new();
        for entry in &self.instructions {
            // One name may have several entries, each for targets of its own.
            if !seen.insert((&entry.name, entry.sm, &entry.only)) {
                return Err(fail(&entry.name, "is listed twice for the same targets".into()));
            }
        }
        for mix in &self.mixes {
            for name in &mix.of {
                let entry = self.entry(name).ok_or_else(|| fail(name, "a mix names no such entry".into()))?;
                if entry.compound {
                    return Err(fail(name, "a compound operation cannot be part of a mix".into()));
                }
            }
            if mix.ratio.contains(&0) {
                return Err(fail(&mix.of[0], "a mix needs at least one of each".into()));
            }
        }
        Ok(())
    }
}

impl Entry {
    /// Whether the entry is for a compile target.
    #[must_use]
    pub fn is_for(&self, arch: Arch) -> bool {
        let name = arch.to_string();
        let named = |list: &[String]| list.iter().any(|n| name.strip_prefix("sm_") == Some(n.as_str()));
        arch.sm >= self.sm && (self.only.is_empty() || named(&self.only)) && !named(&self.except)
    }

    /// Whether a SASS mnemonic is one that was meant.
    #[must_use]
    pub fn is_target(&self, opcode: &str) -> bool {
        self.target.iter().any(|pattern| Self::matches(pattern, opcode))
    }

    /// Whether a mnemonic is what a `target` pattern names: itself, or whatever begins so before a `*`.
    #[must_use]
    pub fn matches(pattern: &str, opcode: &str) -> bool {
        pattern.strip_suffix('*').map_or_else(|| opcode == pattern, |head| opcode.starts_with(head))
    }

    /// Whether two entries are one: each is written once, so its name and its place tell.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.name, &self.place, self.sm) == (&other.name, &other.place, other.sm)
    }

    fn check(&self) -> Result<(), String> {
        if self.compound != self.target.is_empty() {
            return Err("needs `target` mnemonics, or `compound: true` and none".into());
        }
        if let Some(empty) = self.target.iter().find(|t| t.trim_end_matches('*').is_empty()) {
            return Err(format!("target `{empty}` names no mnemonic; write one, as FFMA or F2FP.*"));
        }
        if !(self.results > 0.0 && self.results <= MOST_RESULTS) {
            return Err(format!(
                "results is {}; a number above 0 and up to {MOST_RESULTS} is expected",
                self.results
            ));
        }
        if let Some(ptx) = self.ptx.as_deref().filter(|v| version(v).is_none()) {
            return Err(format!("ptx `{ptx}` is no PTX version; two numbers as in \"8.6\" are expected"));
        }
        for (key, name) in [("only", &self.only), ("except", &self.except)]
            .into_iter()
            .flat_map(|(key, list)| list.iter().map(move |name| (key, name)))
        {
            if name.starts_with("sm_") || format!("sm_{name}").parse::<Arch>().is_err() {
                return Err(format!(
                    "{key}: `{name}` is no compile target; write it without sm_, as 90a or 120a"
                ));
            }
        }
        if self.chains.is_empty() {
            return Err("needs at least one form under `chains`".into());
        }
        for (form, chain) in &self.chains {
            if chain.rotate == 0 || chain.ops == 0 || chain.unroll < 8 * chain.ops {
                return Err(format!("form `{form}`: rotate and ops are at least 1, unroll at least 8 x ops"));
            }
            if chain.unroll > MOST_UNROLL || chain.rotate > MOST_ROTATE {
                return Err(format!(
                    "form `{form}`: unroll {} and rotate {}; up to {MOST_UNROLL} and {MOST_ROTATE} can be used: the larger \
                     body holds 2 x unroll operations, and at most {LARGEST_BODY} instructions",
                    chain.unroll, chain.rotate
                ));
            }
            for name in chain.with.keys().chain(chain.temp.keys()) {
                if name == "x" || !name.bytes().all(|b| b.is_ascii_lowercase()) {
                    return Err(format!(
                        "form `{form}`: `{name}` is no name for a register; use letters a-w, y, z"
                    ));
                }
            }
            if let Some((name, kind)) = chain.temp.iter().find(|(_, k)| !data::is_register_kind(k)) {
                return Err(format!(
                    "form `{form}`: temp `{name}` has kind `{kind}`; {}",
                    data::REGISTER_KINDS
                ));
            }
            if !chain.step.contains("%x") {
                return Err(format!("form `{form}`: the step does not use its state `%x`"));
            }
        }
        Ok(())
    }
}

/// The line of the first entry with this name, from 1.
fn line_of(text: &str, name: &str) -> Option<usize> {
    let named = |line: &usize| text.lines().nth(line - 1).and_then(name_on) == Some(name);
    name_lines(text).find(named)
}

/// The lines, from 1, that name an entry, in order.
fn name_lines(text: &str) -> impl Iterator<Item = usize> {
    text.lines().enumerate().filter(|(_, line)| name_on(line).is_some()).map(|(at, _)| at + 1)
}

/// The name that a line gives an entry.
fn name_on(line: &str) -> Option<&str> {
    let value = line.trim_start_matches(['-', ' ', '{']).strip_prefix("name:")?;
    Some(value.split([',', '#']).next()?.trim().trim_matches(['"', '\'']))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
instructions:
  - name: fma.rn.f32
    target: [FFMA]
    chains:
      feedback: {x: f32, with: {a: f32, b: f32}, step: 'fma.rn.f32 %x, %x, %a, %b;'}
";

    fn error(text: &str) -> String {
        Spec::from_yaml(text, "mine.yaml").unwrap_err().to_string()
    }

    #[test]
    fn the_embedded_spec_reads() {
        let spec = Spec::embedded().unwrap();
        assert!(spec.entry("ex2.approx.ftz.f32").is_some());
    }

    #[test]
    fn an_entry_has_defaults_and_knows_its_targets_and_its_place() {
        let spec = Spec::from_yaml(GOOD, "mine.yaml").unwrap();
        assert_eq!(spec.instructions[0].place, "mine.yaml:3");
        let entry = &spec.instructions[0];
        assert_eq!(
            (entry.results, entry.chains["feedback"].unroll, entry.chains["feedback"].ops),
            (1.0, 128, 1)
        );
        assert!(entry.is_target("FFMA") && !entry.is_target("FFMA.FTZ"));
        let starred = Entry { target: vec!["F2FP.*".into()], ..entry.clone() };
        assert!(starred.is_target("F2FP.BF16.F32.PACK_AB") && !starred.is_target("F2F.BF16.F32"));
        let only = Entry { only: vec!["100a".into()], ..entry.clone() };
        assert!(only.is_for(Arch::SM_100A) && !only.is_for(Arch::SM_90A));
    }

    #[test]
    fn values_that_no_row_can_be_made_of_are_refused_with_what_would_do() {
        for (key, says) in [
            ("results: .nan", "above 0"),
            ("results: -3", "results is -3"),
            ("results: 0", "above 0"),
            ("results: .inf", "above 0"),
            ("ptx: abc", "no PTX version"),
            ("ptx: \"8\"", "two numbers"),
            ("only: [sm_90a]", "without sm_"),
            ("only: [wurst]", "no compile target"),
            ("except: [\"\"]", "no compile target"),
        ] {
            let told = error(&GOOD.replace("target: [FFMA]", &format!("target: [FFMA]\n    {key}")));
            assert!(told.starts_with("mine.yaml:3: `fma.rn.f32`: ") && told.contains(says), "{key}: {told}");
        }
        for (key, says) in [("unroll: 171", "up to 170"), ("unroll: 4294967295", "340"), ("rotate: 33", "32")]
        {
            let told = error(&GOOD.replace("{x: f32,", &format!("{{{key}, x: f32,")));
            assert!(told.starts_with("mine.yaml:3: ") && told.contains(says), "{key}: {told}");
        }
        assert!(error(&GOOD.replace("[FFMA]", "['']")).contains("names no mnemonic"));
        assert!(error(&GOOD.replace("[FFMA]", "['*']")).contains("names no mnemonic"));
    }

    #[test]
    fn entries_that_are_not_for_a_target_are_named() {
        let text = format!("{GOOD}    sm: 100\n");
        let spec = Spec::from_yaml(&text, "mine.yaml").unwrap();
        assert_eq!(spec.not_for(Arch::SM_90A, &|_| true), ["fma.rn.f32"]);
        assert_eq!(spec.not_for(Arch::SM_100A, &|_| true), Vec::<String>::new());
        assert_eq!(spec.not_for(Arch::SM_90A, &|_| false), Vec::<String>::new());
        assert_eq!(spec.lowest_sm(), Some(100));
    }

    #[test]
    fn errors_name_the_file_the_line_and_what_would_do() {
        assert!(error("instructions: 3").starts_with("mine.yaml:1: "));
        let twice = format!("{GOOD}{}", GOOD.trim_start_matches("\ninstructions:\n"));
        assert_eq!(error(&twice), "mine.yaml:3: `fma.rn.f32`: is listed twice for the same targets");
        assert!(error(&GOOD.replace("target: [FFMA]", "results: 2")).contains("compound: true"));
        assert!(error(&GOOD.replace("%x", "%y")).contains("does not use its state"));
        assert!(error(&GOOD.replace("x: f32", "x: f31")).contains("f31"));
        assert!(error(&GOOD.replace("{a:", "{x:")).contains("no name for a register"));
        let mix = format!("{GOOD}mixes:\n  - {{of: [fma.rn.f32, ex2], ratio: [1, 4]}}\n");
        assert!(error(&mix).contains("`ex2`: a mix names no such entry"));
    }
}
