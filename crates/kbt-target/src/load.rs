//! Reads a target file and checks that it holds together. Every error names file and line, and what would be
//! accepted. It runs nothing: whether the commands work is asked by `check`.

use crate::file::{Handoff, SCHEMA, Target, TraceLevel};
use crate::knob::SetBy;
use crate::lines::TimePattern;
use crate::{Expr, environment};
use std::collections::BTreeSet;
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

/// A problem found after reading, with the text in the file that shows its line.
struct Problem {
    near: String,
    text: String,
}

fn problem<T>(near: impl Into<String>, text: impl Into<String>) -> Result<T, Problem> {
    Err(Problem { near: near.into(), text: text.into() })
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
        let content = |line, problem| TargetError::Content { file: file.to_owned(), line, problem };
        let mut target: Self = serde_yaml::from_str(text).map_err(|e| {
            let line = e.location().map(|l| l.line());
            content(line, with_nearest(&without_location(&e.to_string())))
        })?;
        check(&target).map_err(|p| content(line_of(text, &p.near), p.text))?;
        target.folder = folder.to_owned();
        Ok(target)
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

fn check(target: &Target) -> Result<(), Problem> {
    if target.schema != SCHEMA {
        return problem("schema", format!("schema `{}` is not known; accepted: {SCHEMA}", target.schema));
    }
    if target.name.is_empty()
        || target.name.contains(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)))
    {
        return problem(
            "name",
            format!("name `{}`: letters, digits, `-`, `_` and `.` are accepted", target.name),
        );
    }
    check_commands(target)?;
    check_knobs(target)?;
    check_expressions(target)?;
    if let Some(trace) = &target.trace {
        if trace.levels.contains_key(&TraceLevel::Off) {
            return problem("off", "trace level `off` is the clean run and needs no entry; name the others");
        }
        if trace.levels.is_empty() {
            return problem("levels", "trace has no levels; accepted: barrier, coarse, detail");
        }
    }
    let limits = &target.limits;
    for (key, value, least) in [
        ("run_s", limits.run_s, 0.001),
        ("build_s", limits.build_s, 0.001),
        ("cooldown_s", limits.cooldown_s, 0.0),
    ] {
        if !(least..=1e6).contains(&value) {
            return problem(
                key,
                format!("limits.{key} is {value}; accepted: seconds from {least} to 1000000"),
            );
        }
    }
    // Two would be a lead and half a pair.
    if !matches!(limits.set_up_at_once, 1 | 3..=64) {
        let text = format!("limits.set_up_at_once is {}; accepted: 1, or 3 to 64", limits.set_up_at_once);
        return problem("set_up_at_once", text);
    }
    for output in &target.outputs {
        if output.tolerance.is_some_and(|t| !(t.is_finite() && t > 0.0)) {
            let text = format!("output `{}`: tolerance is a relative error above 0", output.name);
            return problem("tolerance", text);
        }
    }
    if target.inputs.sets == 0 {
        return problem("sets", "inputs.sets is 0; at least 1 is needed");
    }
    Ok(())
}

fn check_commands(target: &Target) -> Result<(), Problem> {
    let commands = [
        ("run", Some(&target.run.command)),
        ("build", target.build.as_ref().map(|b| &b.command)),
        ("reference", target.reference.as_ref().map(|r| &r.command)),
    ];
    for (part, command) in commands {
        if command.is_some_and(|c| c.first().is_none_or(String::is_empty)) {
            return problem(part, format!("{part}.command is empty; it needs a program and its arguments"));
        }
    }
    if let Some(pattern) = &target.time
        && let Err(error) = TimePattern::new(pattern)
    {
        return problem(pattern.as_str(), format!("time: {error}"));
    }
    if let Some(pattern) = &target.kernel
        && let Err(error) = regex::Regex::new(pattern)
    {
        return problem(pattern.as_str(), format!("kernel: {error}"));
    }
    let written = target.build.iter().flat_map(|b| b.env.keys()).chain(target.run.env.keys());
    let written = written.chain(target.reference.iter().flat_map(|r| r.env.keys()));
    for name in written.chain(&target.run.pass_env) {
        if environment::RESERVED.contains(&name.as_str()) {
            return problem(name, format!("env `{name}`: kbt sets this variable itself"));
        }
        if target.knob(name).is_some_and(|k| k.set == SetBy::Env) {
            return problem(name, format!("env `{name}` is a knob too; keep one of the two"));
        }
    }
    Ok(())
}

fn check_knobs(target: &Target) -> Result<(), Problem> {
    let mut seen = BTreeSet::new();
    for knob in &target.knobs {
        if !seen.insert(&knob.name) {
            return problem(&knob.name, format!("knob `{}` is listed twice", knob.name));
        }
        let place = format!("{{{}}}", knob.name);
        if knob.set == SetBy::Argument && !target.run.command.iter().any(|a| a.contains(&place)) {
            let text = format!("knob `{}` is set by argument, but run.command has no `{place}`", knob.name);
            return problem(&knob.name, text);
        }
    }
    Ok(())
}

fn check_expressions(target: &Target) -> Result<(), Problem> {
    let default = target.default_setting();
    let failed = |e: &Expr, text: String| Problem { near: e.text().to_owned(), text };
    let handoff_parts = target.handoff.iter().flat_map(|Handoff { num, den, chunks, tiles, when }| {
        [Some(num), Some(den), Some(chunks), Some(tiles), when.as_ref()].into_iter().flatten()
    });
    for expr in target.constraints.iter().chain(handoff_parts) {
        if let Some(unknown) = expr.knobs().into_iter().find(|n| target.knob(n).is_none()) {
            let hint = match nearest(unknown, target.knobs.iter().map(|k| k.name.as_str())) {
                Some(name) => format!("did you mean `{name}`? (text is written in quotes: '{unknown}')"),
                None => "there are no knobs".to_owned(),
            };
            return Err(failed(expr, format!("`{expr}`: there is no knob `{unknown}`; {hint}")));
        }
    }
    for constraint in &target.constraints {
        match constraint.truth(&default) {
            Ok(true) => {}
            Ok(false) => {
                return Err(failed(constraint, format!("the default setting violates `{constraint}`")));
            }
            Err(e) => return Err(failed(constraint, e.to_string())),
        }
    }
    let Some(handoff) = &target.handoff else { return Ok(()) };
    let applies = match &handoff.when {
        Some(when) => when.truth(&default).map_err(|e| failed(when, e.to_string()))?,
        None => true,
    };
    for part in [&handoff.num, &handoff.den, &handoff.chunks, &handoff.tiles].into_iter().filter(|_| applies)
    {
        part.count(&default).map_err(|e| failed(part, format!("handoff: {e}")))?;
    }
    Ok(())
}

/// The first line, counted from 1, that holds `near`.
fn line_of(text: &str, near: &str) -> Option<usize> {
    let first = near.lines().next().filter(|l| !l.is_empty())?;
    text.lines().position(|line| line.contains(first)).map(|i| i + 1)
}

/// The YAML reader appends the location to its message; it is shown in front instead.
fn without_location(message: &str) -> String {
    message.rsplit_once(" at line ").map_or(message, |(head, _)| head).to_owned()
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
            ("default: 2", "default: 7", "the default 7 is none of its values: 1, 2, 3"),
            ("[1, 2, 3]", "[1, 2, 2]", "knob `N`: the value 2 is listed twice"),
            ("name: T", "name: N", "k.yaml:6: knob `N` is listed twice"),
            ("'{T}'", "x", "k.yaml:9: knob `T` is set by argument, but run.command has no `{T}`"),
            (
                "T == 'a'",
                "TT == 'a'",
                "k.yaml:14: `N >= 2 || TT == 'a'`: there is no knob `TT`; did you mean `T`?",
            ),
            ("N >= 2 ||", "N >= 3 &&", "k.yaml:14: the default setting violates `N >= 3 && T == 'a'`"),
            ("[./k, '{T}']", "[]", "k.yaml:3: run.command is empty"),
            ("name: N", "name: KBT_OUT", "kbt sets this variable itself"),
            ("name: N", "name: 2N", "no leading digit"),
        ] {
            let message = error(&SMALL.replacen(from, to, 1));
            assert!(message.contains(expect), "{message}\nshould contain\n{expect}");
        }
        let message = error(&format!("{SMALL}time: '([0-9]+)'\n"));
        assert!(message.contains("k.yaml:15: time: "), "{message}");
        let message = error(&format!("{SMALL}limits: {{run_s: .nan}}\n"));
        assert!(message.contains("limits.run_s"), "{message}");
        assert!(error(": : [").starts_with("k.yaml"), "{}", error(": : ["));
    }
}
