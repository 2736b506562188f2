//! A comparison as people read it on a terminal.

use super::{Comparison, Difference, Noise, Side};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The columns of the table of differences.
const HEAD: [&str; 8] = ["table", "row", "figure", "before", "after", "ratio", "spread", "rule"];

impl Comparison {
    /// The comparison as text; with `all`, differences within the noise too.
    #[must_use]
    pub fn render_text(&self, all: bool) -> String {
        let mut out = format!("before  {}\nafter   {}\n", side(&self.before), side(&self.after));
        if !self.changes.is_empty() {
            let _ = writeln!(out, "\nchanged ({})", self.changes.len());
            for c in &self.changes {
                let _ =
                    writeln!(out, "  {}: {}: {} -> {}", place(&c.table, &c.key), c.column, c.before, c.after);
            }
        }
        let counts = &self.counts;
        let mut section = |title: &str, noise: Noise, count: usize| {
            if count > 0 {
                let _ = writeln!(out, "\n{title} ({count})");
                out.push_str(&table(self.differences.iter().filter(|d| d.noise == noise)));
            }
        };
        section("beyond the noise, the most telling first", Noise::Beyond, counts.beyond_count);
        section("not to be judged: no spread is known", Noise::Unknown, counts.unknown_count);
        if all {
            section("within the noise", Noise::Within, counts.within_count);
        }
        out.push('\n');
        self.rest(&mut out, all);
        out
    }

    /// What is not a table: counts, what only one run has, the rules.
    fn rest(&self, out: &mut String, all: bool) {
        let counts = &self.counts;
        let hint = if all || counts.within_count == 0 { "" } else { " (--all shows them)" };
        let _ = writeln!(
            out,
            "{} figures in both runs: {} the same, {} within the noise{hint}, {} beyond it, {} not to be judged",
            counts.compared_count,
            counts.same_count,
            counts.within_count,
            counts.beyond_count,
            counts.unknown_count
        );
        let mut only: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
        for x in &self.one_sided {
            let column = x.column.as_ref().map_or(String::new(), |c| format!(" ({c})"));
            only.entry((&x.only, &x.table)).or_default().push(format!("{}{column}", x.key));
        }
        for ((which, table), rows) in only.iter().rev() {
            let _ = writeln!(out, "only {which}: {table}: {}", rows.join("; "));
        }
        let mut missing: Vec<(&str, &str, Vec<&str>)> = Vec::new();
        for x in &self.not_compared {
            match missing.iter_mut().find(|(which, why, _)| (*which, *why) == (&x.missing, &x.why)) {
                Some((_, _, tables)) => tables.push(&x.table),
                None => missing.push((&x.missing, &x.why, vec![&x.table])),
            }
        }
        for (which, why, tables) in missing {
            let _ = writeln!(out, "not in {which}: {}: {why}", tables.join(", "));
        }
        for rule in &self.rules {
            let _ = writeln!(out, "rule {rule}");
        }
    }
}

fn side(side: &Side) -> String {
    let asked = &side.asked;
    let what = asked.target.as_deref().or(asked.pv_mode.as_deref()).unwrap_or("a kernel");
    let quick = if asked.quick { ", quick" } else { "" };
    format!("{}: {what} on {}{quick} (kbt {})", side.run, asked.device, asked.kbt)
}

/// The table and its row, where it has more than one.
fn place(table: &str, key: &str) -> String {
    if key.is_empty() { table.to_owned() } else { format!("{table}, {key}") }
}

/// Columns as wide as what is in them, numbers to the right.
fn table<'a>(differences: impl Iterator<Item = &'a Difference>) -> String {
    let rows: Vec<[String; 8]> =
        std::iter::once(HEAD.map(str::to_owned)).chain(differences.map(cells)).collect();
    let width = |i: usize| rows.iter().map(|r| r[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = width - cell.chars().count();
            let (left, right) = if (3..7).contains(&i) { (gap, 0) } else { (0, gap) };
            let _ = write!(line, "  {:left$}{cell}{:right$}", "", "");
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

fn cells(d: &Difference) -> [String; 8] {
    let (before, after) = (d.before.provenance.kind, d.after.provenance.kind);
    let known = if before == after { before.to_string() } else { format!("{before}, then {after}") };
    [
        d.table.clone(),
        if d.key.is_empty() { "-".to_owned() } else { d.key.clone() },
        d.column().to_owned(),
        number(d.before.value),
        number(d.after.value),
        d.ratio.as_ref().map_or_else(|| "-".to_owned(), |r| format!("{:.3}", r.value)),
        d.spread.as_ref().map_or_else(|| "-".to_owned(), |s| format!("{:.1} %", s.value)),
        format!("{} ({known})", d.rule.word()),
    ]
}

/// About five digits, without an exponent for the usual sizes.
fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e9).contains(&size) {
        return format!("{value:.4e}");
    }
    let decimals = match size {
        s if s >= 10_000.0 || value.fract() == 0.0 => 0,
        s if s >= 100.0 => 1,
        s if s >= 1.0 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}
