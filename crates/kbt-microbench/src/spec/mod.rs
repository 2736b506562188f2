//! The spec: one entry an instruction, as YAML. Reading and checking it lives here; what PTX it becomes is
//! `ptx`'s, what machine code it must become is `verify`'s.

mod check;
mod data;
mod place;

pub(crate) use data::split_count;
pub use data::{DataKind, DataType, DataTypeError};

use kbt_device::Arch;
use place::{Places, mix_line};
use serde::Deserialize;
use std::collections::BTreeMap;

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
    /// Elements that one target instruction, or one compound operation, gives a lane; 32-bit words of memory and matrix
    /// loads and stores.
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
    /// Of a compound operation: what a step compiles to that only feeds the output back, by SASS mnemonic, and how much of
    /// it an operation. It is taken out of the operation.
    #[serde(default)]
    pub back: BTreeMap<String, f64>,
    /// Whether the output feeds the next step's input, so that one chain alone gives a latency.
    #[serde(default = "yes")]
    pub latency: bool,
    /// The file and line of each line of the step, for messages; empty where not found.
    #[serde(skip)]
    pub places: Vec<String>,
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
            message: place::in_words(&e.to_string()),
        })?;
        let mut places = Places::of(text);
        for entry in &mut spec.instructions {
            let line = places.entry(&entry.name);
            let at = |line: usize| format!("{origin}:{line}");
            entry.place = line.map_or_else(|| origin.to_owned(), at);
            for (form, chain) in &mut entry.chains {
                let lines = line.and_then(|_| places.step(form, &chain.step)).unwrap_or_default();
                chain.places = lines.into_iter().map(at).collect();
            }
            entry.check().map_err(|message| SpecError {
                origin: origin.to_owned(),
                line,
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
        let fail = |name: &str, line: Option<usize>, message: String| SpecError {
            origin: origin.to_owned(),
            line,
            message: format!("`{name}`: {message}"),
        };
        let mut seen = std::collections::BTreeSet::new();
        for entry in &self.instructions {
            // One name may have several entries, each for targets of its own.
            if !seen.insert((&entry.name, entry.sm, &entry.only)) {
                let line = entry.place.rsplit_once(':').and_then(|(_, line)| line.parse().ok());
                return Err(fail(&entry.name, line, "is listed twice for the same targets".into()));
            }
        }
        for (n, mix) in self.mixes.iter().enumerate() {
            let fail = |name: &str, message: &str| fail(name, mix_line(text, n), message.to_owned());
            for name in &mix.of {
                let entry = self.entry(name).ok_or_else(|| fail(name, "a mix names no such entry"))?;
                if entry.compound {
                    return Err(fail(name, "a compound operation cannot be part of a mix"));
                }
            }
            if mix.ratio.contains(&0) {
                return Err(fail(&mix.of[0], "a mix needs at least one of each"));
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
    fn an_entry_whose_name_stands_in_an_unusual_place_is_checked_too() {
        let flow = "instructions: [{name: t, target: [], chains: {f: {x: b32, step: 'op %x;'}}}]";
        assert!(error(flow).starts_with("mine.yaml: `t`: needs `target`"), "{}", error(flow));
        let json = "{\"instructions\": [\n{\"name\": \"t\", \"target\": [], \"chains\": {\"f\": {\"x\": \"b32\", \"step\": \
                    \"op %x;\"}}}]}";
        assert!(error(json).starts_with("mine.yaml:2: `t`: needs `target`"), "{}", error(json));
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
        for (back, says) in [("{FSEL: 1}", "is for compound operations"), ("{FSEL: .nan}", "compound")] {
            let told = error(&GOOD.replace("{x: f32,", &format!("{{back: {back}, x: f32,")));
            assert!(told.starts_with("mine.yaml:3: ") && told.contains(says), "{back}: {told}");
        }
        for name in ["''", "'  '", "\"a\\nb\""] {
            let told = error(&GOOD.replace("name: fma.rn.f32", &format!("name: {name}")));
            assert!(told.contains("a name of one line"), "{name}: {told}");
        }
        let compound = GOOD.replace("target: [FFMA]", "compound: true");
        for n in ["0", "-1", ".nan", "17"] {
            let told = error(&compound.replace("{x: f32,", &format!("{{back: {{FSEL: {n}}}, x: f32,")));
            assert!(told.contains("a number above 0 and up to 16 is expected"), "{n}: {told}");
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
        let told = error(&GOOD.replace("{x: f32,", "{ops: many, x: f32,"));
        assert_eq!(
            told,
            "mine.yaml:6: instructions[0].chains.feedback.ops: invalid type: string \"many\", expected a whole number"
        );
        assert!(error(&GOOD.replace("f32, with", "'f32[2,1]', with")).contains("`f32[2,1]` is no data type"));
        let twice = format!("{GOOD}{}", GOOD.trim_start_matches("\ninstructions:\n"));
        assert_eq!(error(&twice), "mine.yaml:7: `fma.rn.f32`: is listed twice for the same targets");
        assert!(error(&GOOD.replace("target: [FFMA]", "results: 2")).contains("compound: true"));
        assert!(error(&GOOD.replace("%x", "%y")).contains("does not use its state"));
        assert!(error(&GOOD.replace("x: f32", "x: f31")).contains("f31"));
        assert!(error(&GOOD.replace("{a:", "{x:")).contains("no name for a register"));
        assert!(error(&GOOD.replace("step:", "temp: {b: b32}, step:")).contains("`with` and under `temp`"));
        let mix = format!("{GOOD}mixes:\n  - {{of: [fma.rn.f32, ex2], ratio: [1, 4]}}\n");
        assert_eq!(error(&mix), "mine.yaml:8: `ex2`: a mix names no such entry");
    }
}
