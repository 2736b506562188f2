//! The document as Markdown: what GitHub, a terminal pager and a mail show alike. Plots are left to the HTML file; the
//! tables behind them are here.

use crate::doc::{Block, Document, Holds, Inline, Line, Mark, Section, Source, Table};
use crate::html::{origin, particulars};
use kbt_evidence::markdown::escape;
use std::fmt::Write as _;

/// The file's text.
pub(crate) fn render(document: &Document) -> String {
    let mut out = format!("# {}\n\n{}\n", escape(&document.title), line(&document.subtitle));
    for s in &document.sections {
        section(&mut out, s);
    }
    out
}

fn section(out: &mut String, s: &Section) {
    let step = s.step.map_or_else(String::new, |n| format!("Step {n}: "));
    let _ = write!(out, "\n## {step}{}\n", escape(&s.title));
    if !s.aside.is_empty() {
        let _ = write!(out, "\n{}\n", line(&s.aside));
    }
    blocks(out, &s.blocks);
}

fn blocks(out: &mut String, all: &[Block]) {
    for b in all {
        out.push('\n');
        block(out, b);
    }
}

fn block(out: &mut String, b: &Block) {
    let _ = match b {
        Block::Heading(title) => writeln!(out, "### {}", escape(title)),
        Block::Paragraph(l) => writeln!(out, "{}", line(l)),
        Block::Warning(l) => writeln!(out, "> **Note:** {}", line(l)),
        Block::List(items) => items.iter().try_for_each(|i| writeln!(out, "- {}", line(i))),
        Block::Terms(terms) => terms.iter().try_for_each(|(term, is)| {
            let is: Vec<String> = is.iter().map(line).collect();
            writeln!(out, "- {}: {}", bold(term), listed(&is))
        }),
        Block::Table(t) => table(out, t),
        Block::Plot(p) => writeln!(out, "*{}* (plot in report.html). {}", escape(&p.title), line(&p.caption)),
        Block::Command(c) => writeln!(out, "```sh\n{c}\n```"),
        Block::Verbatim(t) => writeln!(out, "```\n{}\n```", t.trim_end()),
        Block::Sources(list) => list.iter().try_for_each(|(id, p)| {
            let more = particulars(p);
            let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join(", ")) };
            let from =
                if p.inputs.is_empty() { String::new() } else { format!("; from {}", p.inputs.join("; ")) };
            writeln!(out, "- **s{id}** {}: {}{}{}", p.kind, escape(&p.by), escape(&more), escape(&from))
        }),
        Block::Fold { title, blocks: inner } => {
            let _ = writeln!(out, "{}", bold(title));
            blocks(out, inner);
            Ok(())
        }
        Block::Lead { kicker, text, blocks: inner } => {
            let kicker = Inline::Text(format!("{kicker}: "));
            let whole: Line = std::iter::once(kicker).chain(text.iter().cloned()).collect();
            let _ = writeln!(out, "{}", bold(&whole));
            blocks(out, inner);
            Ok(())
        }
    };
}

fn table(out: &mut String, t: &Table) -> std::fmt::Result {
    let known = t.has_known();
    let extra = if known { " Known |" } else { "" };
    let titles: Vec<String> = t.columns.iter().map(|c| escape(&c.title)).collect();
    writeln!(out, "{}:\n", escape(&t.caption))?;
    writeln!(out, "| {} |{extra}", titles.join(" | "))?;
    let rules: Vec<&str> =
        t.columns.iter().map(|c| if c.holds == Holds::Numbers { "---:" } else { "---" }).collect();
    writeln!(out, "| {} |{}", rules.join(" | "), if known { " --- |" } else { "" })?;
    for r in &t.rows {
        let mut cells: Vec<String> = r.cells.iter().map(cell).collect();
        if known {
            cells.push(r.known.iter().map(|s| badge(*s)).collect::<Vec<_>>().join(" "));
        }
        writeln!(out, "| {} |", cells.join(" | "))?;
    }
    Ok(())
}

fn line(l: &Line) -> String {
    l.iter().map(inline).collect()
}

/// A line in a table, where a bar would end the cell even in code.
fn cell(l: &Line) -> String {
    let one = |i: &Inline| match i {
        Inline::Code(_) => inline(i).replace('|', "\\|"),
        other => inline(other),
    };
    l.iter().map(one).collect()
}

fn inline(i: &Inline) -> String {
    match i {
        Inline::Text(t) => escape(t),
        Inline::Code(t) if t.contains('`') => format!("`` {t} ``"),
        Inline::Code(t) => format!("`{t}`"),
        Inline::Strong(t) => strong(t),
        Inline::Number { text, spread, source } => {
            let spread = spread.as_ref().map_or_else(String::new, |s| format!(" ({s})"));
            format!("{}{} {}", escape(text), escape(&spread), badge(*source))
        }
        Inline::Aside(t) => format!(" ({})", escape(t)),
        Inline::Badge(s) => badge(*s),
        Inline::Standing(s) => format!("**{s}**"),
        Inline::Origin(o) => origin(*o).1.to_owned(),
        Inline::Mark(mark, word) => {
            let sign = match mark {
                Mark::Good => '✓',
                Mark::Bad => '✗',
                Mark::Unclear => '?',
            };
            format!("{sign} {}", escape(word))
        }
        Inline::Link { text, .. } => escape(text),
    }
}

fn badge(s: Source) -> String {
    s.id.map_or_else(|| format!("[{}]", s.known), |id| format!("[{} s{id}]", s.known))
}

/// Sentences one after another, and what is no sentence before a semicolon.
fn listed(items: &[String]) -> String {
    let mut out = String::new();
    for item in items {
        if let Some(last) = out.trim_end().chars().last() {
            // A badge stands after the full stop.
            let before =
                if last == ']' { out.rsplit_once(" [").map_or("", |(before, _)| before) } else { &out };
            out += if before.trim_end().ends_with('.') { " " } else { "; " };
        }
        out += item.trim_end();
    }
    out
}

/// A line in strong type as a whole: a part that is strong of itself must not end it.
fn bold(l: &Line) -> String {
    let plain = |i: &Inline| match i {
        Inline::Strong(t) => escape(t),
        Inline::Standing(s) => s.to_string(),
        other => inline(other),
    };
    let inner: String = l.iter().map(plain).collect();
    format!("**{}**", inner.trim())
}

/// Strong text. Blanks at its ends stand outside, where Markdown wants them.
fn strong(t: &str) -> String {
    let inner = t.trim();
    let (before, after) = (t.len() - t.trim_start().len(), t.trim_end().len());
    format!("{}**{}**{}", &t[..before], escape(inner), &t[after..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_listed_without_semicolons() {
        for (items, all) in [
            (&["One.", "Two."][..], "One. Two."),
            (&["HBM bytes: 5 MB. [given s1]", "3 us."], "HBM bytes: 5 MB. [given s1] 3 us."),
            (&["5 MB [given s1]", "3 us"], "5 MB [given s1]; 3 us"),
            (&["one"], "one"),
        ] {
            let items: Vec<String> = items.iter().map(|i| (*i).to_owned()).collect();
            assert_eq!(listed(&items), all);
        }
    }

    #[test]
    fn strong_parts_of_a_strong_line_leave_it_strong() {
        let parts = || vec![Inline::Strong("HBM".into()), Inline::Text(" at 91 % ".into())];
        let mut out = String::new();
        for b in [
            Block::Terms(vec![(parts(), vec![parts()])]),
            Block::Fold { title: parts(), blocks: Vec::new() },
            Block::Lead { kicker: "Call".into(), text: parts(), blocks: Vec::new() },
        ] {
            block(&mut out, &b);
        }
        assert_eq!(out, "- **HBM at 91 %**: **HBM** at 91 %\n**HBM at 91 %**\n**Call: HBM at 91 %**\n");
    }
}
