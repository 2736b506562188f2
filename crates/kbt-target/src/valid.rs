//! Whether a target file that was read holds together: its commands, knobs, expressions and limits. Every problem names
//! the node that is to blame, so that its line is known.

use crate::environment;
use crate::file::{Handoff, SCHEMA, Target, TraceLevel};
use crate::knob::{Knob, SetBy};
use crate::lines::TimePattern;
use crate::load::nearest;
use crate::{Expr, Scalar};
use std::collections::BTreeSet;

/// What is wrong with a file, and the path of the node to blame.
pub(crate) struct Problem {
    pub(crate) path: Vec<String>,
    pub(crate) text: String,
}

fn problem<T>(path: &[&str], text: impl Into<String>) -> Result<T, Problem> {
    Err(at(path, text))
}

fn at(path: &[&str], text: impl Into<String>) -> Problem {
    Problem { path: path.iter().map(|p| (*p).to_owned()).collect(), text: text.into() }
}

pub(crate) fn check(target: &Target) -> Result<(), Problem> {
    if target.schema != SCHEMA {
        return problem(&["schema"], format!("schema `{}` is not known; accepted: {SCHEMA}", target.schema));
    }
    if target.name.is_empty()
        || target.name.contains(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)))
    {
        let text = format!("name `{}`: letters, digits, `-`, `_` and `.` are accepted", target.name);
        return problem(&["name"], text);
    }
    check_commands(target)?;
    check_environments(target)?;
    check_knobs(target)?;
    check_places(target)?;
    check_expressions(target)?;
    if let Some(trace) = &target.trace {
        if trace.levels.contains_key(&TraceLevel::Off) {
            let text = "trace level `off` is the clean run and needs no entry; name the others";
            return problem(&["trace", "levels", "off"], text);
        }
        if trace.levels.is_empty() {
            let text = "trace has no levels; accepted: barrier, coarse, detail";
            return problem(&["trace", "levels"], text);
        }
    }
    check_limits(target)?;
    let mut seen = BTreeSet::new();
    for (n, output) in target.outputs.iter().enumerate() {
        let n = n.to_string();
        if !seen.insert(&output.name) {
            return problem(&["outputs", &n, "name"], format!("output `{}` is listed twice", output.name));
        }
        if output.tolerance.is_some_and(|t| !(t.is_finite() && t > 0.0)) {
            let text = format!("output `{}`: tolerance is a relative error above 0", output.name);
            return problem(&["outputs", &n, "tolerance"], text);
        }
    }
    if target.inputs.sets == 0 {
        return problem(&["inputs", "sets"], "inputs.sets is 0; at least 1 is needed");
    }
    Ok(())
}

fn check_limits(target: &Target) -> Result<(), Problem> {
    let limits = &target.limits;
    for (key, value, least) in [
        ("run_s", limits.run_s, 0.001),
        ("build_s", limits.build_s, 0.001),
        ("cooldown_s", limits.cooldown_s, 0.0),
    ] {
        if !(least..=1e6).contains(&value) {
            let text = format!("limits.{key} is {value}; accepted: seconds from {least} to 1000000");
            return problem(&["limits", key], text);
        }
    }
    if limits.memory_mb == Some(0) {
        return problem(&["limits", "memory_mb"], "limits.memory_mb is 0; accepted: megabytes from 1 on");
    }
    // Two would be a lead and half a pair.
    if !matches!(limits.set_up_at_once, 1 | 3..=64) {
        let text = format!("limits.set_up_at_once is {}; accepted: 1, or 3 to 64", limits.set_up_at_once);
        return problem(&["limits", "set_up_at_once"], text);
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
            let text = format!("{part}.command is empty; it needs a program and its arguments");
            return problem(&[part, "command"], text);
        }
    }
    if let Some(pattern) = &target.time
        && let Err(error) = TimePattern::new(pattern)
    {
        return problem(&["time"], format!("time: {error}"));
    }
    if let Some(pattern) = &target.kernel
        && let Err(error) = regex::Regex::new(pattern)
    {
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default().trim();
        return problem(&["kernel"], format!("kernel: not a regular expression: {last}"));
    }
    Ok(())
}

/// Names in braces that nothing is put in place of would go to the program as they stand.
fn check_places(target: &Target) -> Result<(), Problem> {
    let arguments = |command: &[String]| -> Vec<(String, String)> {
        command.iter().enumerate().skip(1).map(|(n, a)| (n.to_string(), a.clone())).collect()
    };
    for (n, argument) in target.build.iter().flat_map(|b| arguments(&b.command)) {
        let of_kbt = braced(&argument).find(|name| name.starts_with("KBT_"));
        if let Some(name) = of_kbt.filter(|name| !environment::IN_BUILD.contains(name)) {
            let known = environment::IN_BUILD.iter().map(|n| format!("`{{{n}}}`")).collect::<Vec<_>>();
            let text = format!(
                "nothing is put in place of `{{{name}}}`; accepted in build.command: {}",
                known.join(", ")
            );
            return problem(&["build", "command", &n], text);
        }
    }
    for (n, argument) in arguments(&target.run.command) {
        let path = ["run", "command", n.as_str()];
        let mut names = braced(&argument).filter(|name| target.knob(name).is_none());
        // Braces inside an argument may be the program's own; those of kbt's names, or a name alone, are not.
        let alone = |name: &&str| argument == format!("{{{name}}}");
        let Some(name) = names.find(|name| name.starts_with("KBT_") || alone(name)) else { continue };
        let known = nearest(name, target.knobs.iter().map(|k| k.name.as_str()));
        let text = if environment::RESERVED.contains(&name) {
            format!(
                "nothing is put in place of `{{{name}}}` in run.command: a run finds {name} in its environment"
            )
        } else if let Some(knob) = known {
            format!("run.command has `{{{name}}}` and there is no knob of that name; the nearest is `{knob}`")
        } else {
            format!("run.command has `{{{name}}}` and there are no knobs")
        };
        return problem(&path, text);
    }
    Ok(())
}

/// The names in braces, `{NAME}`, but for a shell's own `${NAME}`.
fn braced(argument: &str) -> impl Iterator<Item = &str> {
    argument.match_indices('{').filter(|(at, _)| !argument[..*at].ends_with('$')).filter_map(|(at, _)| {
        let name = argument[at + 1..].split_once('}')?.0;
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        (plain && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')).then_some(name)
    })
}

fn check_environments(target: &Target) -> Result<(), Problem> {
    let build = target.build.iter().flat_map(|b| b.env.keys()).map(|name| ("build", name));
    let run = target.run.env.keys().map(|name| ("run", name));
    let reference = target.reference.iter().flat_map(|r| r.env.keys()).map(|name| ("reference", name));
    let written = build.chain(run).chain(reference).map(|(part, name)| (vec![part, "env", name], name));
    let places: Vec<String> = (0..target.run.pass_env.len()).map(|n| n.to_string()).collect();
    let passed =
        target.run.pass_env.iter().zip(&places).map(|(name, n)| (vec!["run", "pass_env", n.as_str()], name));
    for (path, name) in written.chain(passed) {
        if name.is_empty() || name.contains(['=', '\0']) {
            return problem(&path, format!("env `{name}`: a variable's name is not empty and has no `=`"));
        }
        if environment::RESERVED.contains(&name.as_str()) {
            return problem(&path, format!("env `{name}`: kbt sets this variable itself"));
        }
        if target.knob(name).is_some_and(|k| k.set == SetBy::Env) {
            return problem(&path, format!("env `{name}` is a knob too; keep one of the two"));
        }
    }
    Ok(())
}

fn check_knobs(target: &Target) -> Result<(), Problem> {
    let mut seen = BTreeSet::new();
    for (n, knob) in target.knobs.iter().enumerate() {
        let n = n.to_string();
        check_knob(knob, &n)?;
        if !seen.insert(&knob.name) {
            return problem(&["knobs", &n, "name"], format!("knob `{}` is listed twice", knob.name));
        }
        let place = format!("{{{}}}", knob.name);
        // The program itself is no argument: it is started as it is named.
        if knob.set == SetBy::Argument && !target.run.command.iter().skip(1).any(|a| a.contains(&place)) {
            let text = format!("knob `{}` is set by argument, but run.command has no `{place}`", knob.name);
            return problem(&["knobs", &n, "set"], text);
        }
        if knob.set == SetBy::Env && target.run.command.iter().skip(1).any(|a| a.contains(&place)) {
            let text = format!(
                "run.command has `{place}`, and knob `{}` is set by environment: give it `set: argument`",
                knob.name
            );
            return problem(&["knobs", &n, "name"], text);
        }
    }
    Ok(())
}

fn check_knob(knob: &Knob, n: &str) -> Result<(), Problem> {
    let Knob { name, values, default, .. } = knob;
    let mut chars = name.chars();
    let starts = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    if !starts || !chars.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        let text = format!("knob `{name}`: a name has letters, digits and `_`, and no leading digit");
        return problem(&["knobs", n, "name"], text);
    }
    if environment::RESERVED.contains(&name.as_str()) {
        let text = format!("knob `{name}`: kbt sets this variable itself; choose another name");
        return problem(&["knobs", n, "name"], text);
    }
    if values.is_empty() {
        return problem(&["knobs", n, "values"], format!("knob `{name}` has no values"));
    }
    if let Some((place, twice)) = values.iter().enumerate().find(|(i, v)| values[..*i].contains(v)) {
        let text = format!("knob `{name}`: the value {twice} is listed twice");
        return problem(&["knobs", n, "values", &place.to_string()], text);
    }
    if !values.contains(default) {
        let list = values.iter().map(Scalar::as_str).collect::<Vec<_>>().join(", ");
        let text = format!("knob `{name}`: the default {default} is none of its values: {list}");
        return problem(&["knobs", n, "default"], text);
    }
    Ok(())
}

fn check_expressions(target: &Target) -> Result<(), Problem> {
    let default = target.default_setting();
    let constraints: Vec<(String, &Expr)> =
        target.constraints.iter().enumerate().map(|(n, e)| (n.to_string(), e)).collect();
    let parts = target.handoff.iter().flat_map(|Handoff { num, den, chunks, tiles, when }| {
        [("num", num), ("den", den), ("chunks", chunks), ("tiles", tiles)]
            .into_iter()
            .chain(when.as_ref().map(|w| ("when", w)))
    });
    let all = constraints.iter().map(|(n, e)| (["constraints", n.as_str()], *e));
    for (path, expr) in all.chain(parts.map(|(part, e)| (["handoff", part], e))) {
        if let Some(unknown) = expr.knobs().into_iter().find(|n| target.knob(n).is_none()) {
            let hint = match nearest(unknown, target.knobs.iter().map(|k| k.name.as_str())) {
                Some(name) => format!("did you mean `{name}`? (text is written in quotes: '{unknown}')"),
                None => "there are no knobs".to_owned(),
            };
            return problem(&path, format!("`{expr}`: there is no knob `{unknown}`; {hint}"));
        }
    }
    for (n, constraint) in &constraints {
        let path = ["constraints", n.as_str()];
        match constraint.truth(&default) {
            Ok(true) => {}
            Ok(false) => return problem(&path, format!("the default setting violates `{constraint}`")),
            Err(e) => return problem(&path, e.to_string()),
        }
    }
    let Some(handoff) = &target.handoff else { return Ok(()) };
    let applies = match &handoff.when {
        Some(when) => when.truth(&default).map_err(|e| at(&["handoff", "when"], e.to_string()))?,
        None => true,
    };
    let parts = [
        ("num", &handoff.num),
        ("den", &handoff.den),
        ("chunks", &handoff.chunks),
        ("tiles", &handoff.tiles),
    ];
    for (key, part) in parts.into_iter().filter(|_| applies) {
        part.count(&default).map_err(|e| at(&["handoff", key], format!("handoff: {e}")))?;
    }
    Ok(())
}
