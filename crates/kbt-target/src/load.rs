//! Reads a target file. Every error names file and line, and what would be accepted. Whether what was read holds
//! together is asked by `valid`; whether the commands work, by `check`, the only one that runs anything.

use crate::file::Target;
use crate::{place, valid};
use std::path::{Path, PathBuf};

/// The target files that come with kbt: name and text.
const EMBEDDED: &[(&str, &str)] = &[("attention", include_str!("../../../targets/attention.yaml"))];

/// A commented, valid target file to start from.
pub const TEMPLATE: &str = include_str!("template.yaml");

/// Why a target file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The file cannot be read.
    #[error("{}: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The file says something that is not accepted.
    #[error("{file}{}: {problem}", line.map(|l| format!(":{l}")).unwrap_or_default())]
    Content {
        /// The file.
        file: String,
        /// The line, counted from 1, where one can be named.
        line: Option<usize>,
        /// What is wrong and what would be accepted.
        problem: String,
    },
}

/// Where a target came from: it knows the line of each node of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    file: String,
    text: String,
}

impl Source {
    fn error(&self, line: Option<usize>, problem: String) -> TargetError {
        TargetError::Content { file: self.file.clone(), line, problem }
    }
}

impl Target {
    /// Reads a target file.
    ///
    /// # Errors
    /// Where the file cannot be read or says something that is not accepted.
    pub fn load(path: &Path) -> Result<Self, TargetError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| TargetError::Read { file: path.to_owned(), source })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::from_yaml(&text, &path.display().to_string(), folder)
    }

    /// Reads a target file, or one that comes with kbt by its name where there is no such file.
    ///
    /// # Errors
    /// As [`Target::load`].
    pub fn find(path_or_name: &Path) -> Result<Self, TargetError> {
        let name = path_or_name.to_str().filter(|_| !path_or_name.exists());
        name.and_then(embedded_target).unwrap_or_else(|| Self::load(path_or_name))
    }

    /// Reads the text of a target file; `file` names it in errors, relative paths start from `folder`.
    ///
    /// # Errors
    /// Where the text says something that is not accepted.
    pub fn from_yaml(text: &str, file: &str, folder: &Path) -> Result<Self, TargetError> {
        let source = Source { file: file.to_owned(), text: text.to_owned() };
        if let Some((path, line)) = place::twice(text) {
            let keys: Vec<&str> = path.split('.').collect();
            let first =
                place::line_of(text, &keys).map_or_else(String::new, |l| format!(", first on line {l}"));
            return Err(source.error(line, format!("`{path}` is given twice{first}; keep one")));
        }
        let mut target: Self = serde_yaml::from_str(text).map_err(|e| {
            let (line, problem) = unreadable(text, &e);
            source.error(line, problem)
        })?;
        target.folder = folder.to_owned();
        target.source = source;
        valid::check(&target).map_err(|p| {
            let path: Vec<&str> = p.path.iter().map(String::as_str).collect();
            target.error(&path, p.text)
        })?;
        Ok(target)
    }

    /// A problem with the node at a path of the file this was read from, such as `["facts", "shapes", "elements"]`:
    /// the error names the node's line, or that of the closest one around it.
    #[must_use]
    pub fn error(&self, path: &[&str], problem: impl Into<String>) -> TargetError {
        self.source.error(place::line_of(&self.source.text, path), problem.into())
    }
}

/// A target file that comes with kbt; `None` where there is none of that name. Relative paths in it start from
/// the current directory.
#[must_use]
pub fn embedded_target(name: &str) -> Option<Result<Target, TargetError>> {
    let (name, text) = EMBEDDED.iter().find(|(n, _)| *n == name)?;
    Some(Target::from_yaml(text, &format!("targets/{name}.yaml"), Path::new("")))
}

/// The names of the target files that come with kbt.
pub fn embedded_targets() -> impl Iterator<Item = &'static str> {
    EMBEDDED.iter().map(|(name, _)| *name)
}

/// Why a text is no target file, with its line.
fn unreadable(text: &str, error: &serde_yaml::Error) -> (Option<usize>, String) {
    let line = error.location().map(|l| l.line());
    if text.lines().all(|l| l.trim().is_empty() || l.trim_start().starts_with('#')) {
        return (
            None,
            "the file says nothing; `kbt target new FILE.yaml` writes one to start from".to_owned(),
        );
    }
    let mut problem = with_nearest(&in_words(&without_location(&error.to_string())));
    let indent = |l: &str| l.len() - l.trim_start().len();
    let tab = |l: &&str| l[..indent(l)].contains('\t');
    if line.and_then(|l| text.lines().nth(l - 1)).filter(tab).is_some() {
        problem += "; the line begins with a tab, and YAML indents by spaces alone";
    }
    (line, problem)
}

/// The YAML reader's words for what it expected, in those of a target file.
fn in_words(message: &str) -> String {
    let Some((head, expected)) = message.rsplit_once("expected ") else { return message.to_owned() };
    let words = match expected {
        "f64" => "a number",
        "u32" | "u64" => "a whole number",
        "a sequence" => "a list, as in [a, b]",
        "a map" => "keys with values, as in {key: value}",
        "struct Target" => "the keys of a target file: `kbt target new FILE.yaml` writes one to start from",
        other => match other.strip_prefix("struct ") {
            Some(_) => "keys with values, as in {key: value}",
            None => other,
        },
    };
    format!("{head}expected {words}")
}

/// The YAML reader appends the location to its message; it is shown in front instead.
fn without_location(message: &str) -> String {
    message.split_once(" at line ").map_or(message, |(head, _)| head).to_owned()
}

/// Adds the nearest accepted word to a message of the form "unknown field `x`, expected one of `a`, `b`".
fn with_nearest(message: &str) -> String {
    let Some((_, tail)) =
        message.split_once("unknown field `").or_else(|| message.split_once("unknown variant `"))
    else {
        return message.to_owned();
    };
    let mut words = tail.split('`').step_by(2);
    let Some(wrong) = words.next() else { return message.to_owned() };
    match nearest(wrong, tail.split('`').skip(2).step_by(2)) {
        Some(right) => format!("{message}; the nearest is `{right}`"),
        None => message.to_owned(),
    }
}

/// The word of `known` that takes the fewest single-character edits to reach from `word`.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known.min_by_key(|k| edits(&word.to_lowercase(), &k.to_lowercase()))
}

/// Levenshtein distance, row by row.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "schema: kbt.target/1\nname: k\nrun:\n  command: [./k, '{T}']\nknobs:\n  - name: N\n    values: [1, 2, 3]\n    default: 2\n  - name: T\n    set: argument\n    values: [a, b]\n    default: a\nconstraints:\n  - N >= 2 || T == 'a'\n";

    fn error(text: &str) -> String {
        Target::from_yaml(text, "k.yaml", Path::new(""))
            .map_or_else(|e| e.to_string(), |_| "accepted".to_owned())
    }

    #[test]
    fn a_small_file_and_every_embedded_one_and_the_template_are_accepted() {
        assert_eq!(error(SMALL), "accepted");
        assert_eq!(error(TEMPLATE), "accepted");
        for name in embedded_targets() {
            let target = embedded_target(name).unwrap().unwrap();
            assert_eq!(target.name, name);
        }
        assert!(embedded_target("nothing").is_none());
        assert_eq!(Target::find(Path::new("attention")).unwrap().name, "attention");
        let missing = Target::find(Path::new("no/such.yaml")).unwrap_err().to_string();
        assert!(missing.starts_with("no/such.yaml: "), "{missing}");
        assert!(TEMPLATE.lines().any(|l| l == "knobs:"));
    }

    #[test]
    fn every_file_of_the_targets_folder_is_accepted_and_named_as_its_file() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../targets");
        let mut seen = 0;
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|e| e == "yaml") {
                let target = Target::load(&path).unwrap_or_else(|e| panic!("{e}"));
                assert_eq!(path.file_stem().unwrap().to_string_lossy(), target.name);
                seen += 1;
            }
        }
        assert!(seen >= 5, "{seen} target files");
    }

    #[test]
    fn a_misspelt_key_is_named_with_its_line_and_the_nearest_valid_one() {
        let text = SMALL.replace("constraints", "constrains");
        let message = error(&text);
        assert!(message.starts_with("k.yaml:13: unknown field `constrains`"), "{message}");
        assert!(message.ends_with("the nearest is `constraints`"), "{message}");
        let message = error(&SMALL.replace("  command:", "  comand:"));
        assert!(message.starts_with("k.yaml:4: run: unknown field `comand`"), "{message}");
        assert!(message.ends_with("`command`"), "{message}");
        let message = error(&SMALL.replace("argument", "argumnt"));
        assert!(message.starts_with("k.yaml:10: "), "{message}");
        assert!(message.ends_with("the nearest is `argument`"), "{message}");
    }

    #[test]
    fn what_does_not_hold_together_is_refused_with_its_line() {
        for (from, to, expect) in [
            ("target/1", "target/9", "k.yaml:1: schema `kbt.target/9` is not known; accepted: kbt.target/1"),
            ("default: 2", "default: 7", "k.yaml:8: knob `N`: the default 7 is none of its values: 1, 2, 3"),
            ("[1, 2, 3]", "[1, 2, 2]", "k.yaml:7: knob `N`: the value 2 is listed twice"),
            ("[a, b]", "[]", "k.yaml:11: knob `T` has no values"),
            ("name: T", "name: N", "k.yaml:9: knob `N` is listed twice"),
            ("'{T}'", "x", "k.yaml:10: knob `T` is set by argument, but run.command has no `{T}`"),
            ("'{T}'", "'{T}', '{N}'", "k.yaml:6: run.command has `{N}`, and knob `N` is set by environment"),
            (
                "T == 'a'",
                "TT == 'a'",
                "k.yaml:14: `N >= 2 || TT == 'a'`: there is no knob `TT`; did you mean `T`?",
            ),
            ("N >= 2 ||", "N >= 3 &&", "k.yaml:14: the default setting violates `N >= 3 && T == 'a'`"),
            ("[./k, '{T}']", "[]", "k.yaml:4: run.command is empty"),
            ("name: N", "name: KBT_OUT", "k.yaml:6: knob `KBT_OUT`: kbt sets this variable itself"),
            (
                "name: N",
                "name: 2N",
                "k.yaml:6: knob `2N`: a name has letters, digits and `_`, and no leading digit",
            ),
            (
                "'{T}'",
                "'{T}', '{TT}'",
                "k.yaml:4: run.command has `{TT}` and there is no knob of that name; the nearest is `T`",
            ),
            (
                "'{T}'",
                "'{T}', 'x={KBT_DUMP}'",
                "k.yaml:4: nothing is put in place of `{KBT_DUMP}` in run.command: a run finds",
            ),
            ("'{T}'", "'{T}', 'f({x}) ${KBT_OUT}'", "accepted"),
            (
                "run:",
                "build:\n  command:\n  - nvcc\n  - -arch={KBT_ACRH}\nrun:",
                "k.yaml:6: nothing is put in place of `{KBT_ACRH}`; accepted in build.command: `{KBT_ARCH}`, `{KBT_COMPUTE_ARCH}`",
            ),
            ("run:", "about: |\n  run: knobs\n  values: 3\nrun:", "accepted"),
            (
                "run:\n  command: [./k, '{T}']",
                "about: run.command {T}\nrun:\n  env: {N: 1}\n  command: [./k, '{T}']",
                "k.yaml:5: env `N` is a knob too; keep one of the two",
            ),
            ("    default: 2", "    defautl: 2", "k.yaml:8: knobs[0]: unknown field `defautl`"),
            (
                "    default: 2",
                "\tdefault: 2",
                "the line begins with a tab, and YAML indents by spaces alone",
            ),
            ("name: k", "name: k\nname: k", "k.yaml:3: `name` is given twice, first on line 2; keep one"),
            (
                "    default: 2",
                "    default: 2\n    values: [2]",
                "k.yaml:9: `knobs.0.values` is given twice, first on line 7; keep one",
            ),
        ] {
            let message = error(&SMALL.replacen(from, to, 1));
            assert!(message.contains(expect), "{message}\nshould contain\n{expect}");
        }
        for (from, to, expect) in [
            (
                "  command: [./k, '{T}']",
                "  command: ./k",
                "k.yaml:4: run.command: invalid type: string \"./k\", expected a list, as in [a, b]",
            ),
            (
                "run:\n  command",
                "limits: {run_s: soon}\nrun:\n  command",
                "k.yaml:3: limits.run_s: invalid type: string \"soon\", expected a number",
            ),
            (
                "run:\n  command",
                "inputs: 3\nrun:\n  command",
                "k.yaml:3: inputs: invalid type: integer `3`, expected keys with values",
            ),
        ] {
            assert!(
                error(&SMALL.replacen(from, to, 1)).contains(expect),
                "{}",
                error(&SMALL.replacen(from, to, 1))
            );
        }
        assert!(error("[a]").contains("`kbt target new FILE.yaml`"), "{}", error("[a]"));
        for nothing in ["", "\n\n", "# run: nothing\n"] {
            assert!(
                error(nothing).starts_with("k.yaml: the file says nothing; `kbt target new"),
                "{nothing}"
            );
        }
        let message = error(&format!("{SMALL}time: '([0-9]+)'\n"));
        assert!(message.contains("k.yaml:15: time: "), "{message}");
        let message = error(&format!("{SMALL}limits: {{run_s: .nan}}\n"));
        assert!(message.contains("limits.run_s"), "{message}");
        assert!(error(": : [").starts_with("k.yaml"), "{}", error(": : ["));
    }
}
