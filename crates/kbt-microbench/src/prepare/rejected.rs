//! What ptxas says against a template, at the place in the spec. Its own message names lines of PTX that kbt writes and
//! nobody else sees, and says one thing as often as the step is repeated.

use super::{PreparedPart, first_lines};
use kbt_toolchain::ToolError;

/// Most lines whose complaints are shown.
const SHOWN: usize = 3;

/// ptxas's message with the places in the spec and the lines of the templates that it complains of.
pub(crate) fn rejected(prepared: &[PreparedPart], ptx: &str, error: &ToolError) -> String {
    let place = prepared.first().map_or("", |p| p.entry.place.as_str());
    let ToolError::Failed { tool, version, log, .. } = error else {
        return format!("{place}: {}", first_lines(&error.to_string()));
    };
    let lines: Vec<&str> = ptx.lines().collect();
    let mut said: Vec<((String, String), Vec<String>)> = Vec::new();
    for (number, message) in log.lines().filter_map(complaint) {
        let line = number.checked_sub(1).and_then(|at| lines.get(at)).map_or("", |l| l.trim());
        let at = origin(prepared, line).unwrap_or_else(|| (place.to_owned(), around(prepared, line)));
        let message = in_names_of_the_spec(&message);
        match said.iter_mut().find(|(place, _)| *place == at) {
            Some((_, messages)) if messages.contains(&message) => {}
            Some((_, messages)) => messages.push(message),
            None => said.push((at, vec![message])),
        }
    }
    if said.is_empty() {
        return format!("{place}: {tool} {version}: {}", first_lines(log));
    }
    let shown: Vec<String> = said
        .iter()
        .take(SHOWN)
        .map(|((at, what), messages)| {
            format!("{at}: {tool} {version}: {}, in {what}", messages.join(" and "))
        })
        .collect();
    let more = said.len() - shown.len();
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{more}", shown.join("; "))
}

/// The line and what is wrong with it, of `ptxas kernel.ptx, line 7; error   : Unknown symbol '%z'`.
fn complaint(line: &str) -> Option<(usize, String)> {
    let (number, rest) = line.split_once(", line ")?.1.split_once(';')?;
    let (_, message) = rest.split_once(':')?;
    Some((number.trim().parse().ok()?, message.trim().to_owned()))
}

/// The place in the spec of a line of PTX that a template was written to, and that template.
fn origin(prepared: &[PreparedPart], ptx: &str) -> Option<(String, String)> {
    let wanted = in_names_of_the_spec(ptx);
    prepared.iter().find_map(|part| {
        let step: Vec<&str> = part.chain.step.trim().lines().collect();
        let at =
            step.iter().position(|line| with_indices(line.trim(), part) == with_indices(&wanted, part))?;
        let place = part.chain.places.get(at).unwrap_or(&part.entry.place);
        let which = if step.len() > 1 { format!("line {} of the step, ", at + 1) } else { String::new() };
        Some((place.clone(), format!("{which}`{}`", step[at].trim())))
    })
}

/// What a line is that no template wrote.
fn around(prepared: &[PreparedPart], ptx: &str) -> String {
    if ptx.starts_with(".version") && prepared.iter().any(|p| p.entry.ptx.is_some()) {
        return format!("`{ptx}`, which `ptx` asks for");
    }
    format!("`{}`, which stands around the steps", in_names_of_the_spec(ptx))
}

/// Registers under the names that the spec has for them: `%x1` for `%p0x_3_1`.
fn in_names_of_the_spec(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("%p") {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        match own_register(&from[2..]) {
            Some((name, index, after)) => {
                out.push_str(&format!("%{name}{index}"));
                rest = after;
            }
            None => {
                out.push_str("%p");
                rest = &from[2..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Name, index and what comes after, of `0x_3_1, …`: part, name, copy, index.
fn own_register(text: &str) -> Option<(&str, &str, &str)> {
    fn digits(text: &str) -> Option<(&str, &str)> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        (end > 0).then(|| text.split_at(end))
    }
    let (_, rest) = digits(text)?;
    let end = rest.find(|c: char| !c.is_ascii_lowercase()).filter(|end| *end > 0)?;
    let (name, rest) = rest.split_at(end);
    let (_, rest) = digits(rest.strip_prefix('_')?)?;
    let (index, rest) = digits(rest.strip_prefix('_')?)?;
    Some((name, index, rest))
}

/// The text with an index at every register of the part: `%x` is `%x0`.
fn with_indices(text: &str, part: &PreparedPart) -> String {
    let mut out = String::new();
    let mut pieces = text.split('%');
    out.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(piece.len());
        let (name, rest) = piece.split_at(end);
        let own = name == "x" || part.chain.with.contains_key(name) || part.chain.temp.contains_key(name);
        let indexed = rest.starts_with(|c: char| c.is_ascii_digit());
        out.push_str(&format!("%{name}{}{rest}", if own && !indexed { "0" } else { "" }));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepare::{module_text, parts};
    use crate::ptx;
    use crate::spec::Spec;
    use kbt_device::Arch;
    use kbt_toolchain::Tool;

    fn one(entry: &str) -> Vec<PreparedPart> {
        let text = format!("instructions:\n  - name: t\n    target: [T]\n{entry}");
        let entry = Spec::from_yaml(&text, "mine.yaml").unwrap().instructions.remove(0);
        let chain = entry.chains.values().next().unwrap().clone();
        vec![PreparedPart { entry, chain, steps: 1 }]
    }

    /// What becomes of a complaint about each line of the PTX that holds `which`.
    fn told(prepared: &[PreparedPart], which: &str, message: &str) -> String {
        let list = parts(prepared);
        let ptx = module_text(Arch::SM_90A, prepared, &list, &[ptx::plans("f", &list, 16, 2)]);
        let at = ptx.lines().enumerate().filter(|(_, l)| l.contains(which)).map(|(n, _)| n + 1);
        let mut log: String =
            at.map(|n| format!("ptxas kernel.ptx, line {n}; error   : {message}\n")).collect();
        log.push_str("ptxas fatal   : Ptx assembly aborted due to errors\n");
        let error =
            ToolError::Failed { tool: Tool::Ptxas, version: "13.0.88".into(), status: "255".into(), log };
        rejected(prepared, &ptx, &error)
    }

    #[test]
    fn a_complaint_stands_once_at_the_line_of_its_template() {
        let block = one(
            "    chains:\n      f:\n        x: b32*2\n        with: {a: b32}\n        step: |\n          \
                         good %x, %a;\n          bad %x1, %x, %z;\n",
        );
        assert_eq!(
            told(&block, "bad", "Unknown symbol '%z'"),
            "mine.yaml:10: ptxas 13.0.88: Unknown symbol '%z', in line 2 of the step, `bad %x1, %x, %z;`"
        );
        let inline = one("    chains: {f: {x: b32, temp: {t: b32}, step: 'bad %t, %x, %x9, %laneid;'}}\n");
        assert_eq!(
            told(&inline, "bad", "Unknown symbol '%p0x_1_9'"),
            "mine.yaml:4: ptxas 13.0.88: Unknown symbol '%x9', in `bad %t, %x, %x9, %laneid;`"
        );
        let both = told(&inline, "bad", "No\nptxas kernel.ptx, line 99999; error   : Odd");
        assert!(both.contains("No, in `bad") && both.contains("; mine.yaml:2: ptxas 13.0.88: Odd"), "{both}");
    }

    #[test]
    fn what_no_template_wrote_is_told_by_what_it_is() {
        let newer = one("    ptx: '99.9'\n    chains: {f: {x: b32, step: 'op %x;'}}\n");
        let why = told(&newer, ".version", "Unsupported .version 99.9; current version is '9.0'");
        assert!(why.starts_with("mine.yaml:2: ptxas 13.0.88: Unsupported .version 99.9;"), "{why}");
        assert!(why.ends_with("in `.version 99.9`, which `ptx` asks for"), "{why}");
        let why = told(&newer, ".reg .b32 %p0x_0_0", "Odd");
        assert!(why.ends_with("Odd, in `.reg .b32 %x0;`, which stands around the steps"), "{why}");
        let silent = told(&newer, "nothing", "");
        assert_eq!(silent, "mine.yaml:2: ptxas 13.0.88: ptxas fatal   : Ptx assembly aborted due to errors");
    }

    #[test]
    fn of_many_complaints_three_are_shown() {
        let steps: String = (0..5).map(|n| format!("          bad{n} %x;\n")).collect();
        let many = one(&format!("    chains:\n      f:\n        x: b32\n        step: |\n{steps}"));
        let why = told(&many, "bad", "No");
        assert!(
            why.contains("`bad2 %x;`") && !why.contains("bad3") && why.ends_with("; and 2 more"),
            "{why}"
        );
    }
}
