//! Rows of an export: where the table starts among other output, which of its shapes it has, and its launches.

use super::lines::{Layout, Record, is_header};
use super::numbers::{Locale, dimensions, factor, is_whole, locale, number, whole};
use super::tables::{counted_whole, raw_name, scaled_by_unit};
use crate::sheet::SheetError;
use std::collections::BTreeMap;

/// One profiled launch.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Launch {
    pub(super) id: String,
    /// Which of several exports in one file.
    pub(super) part: usize,
    pub(super) kernel: String,
    /// CTAs, from the launch's own column.
    pub(super) grid: Option<f64>,
    /// Threads a CTA.
    pub(super) block: Option<f64>,
    /// Compile target, from the CC column.
    pub(super) target: Option<String>,
    /// Raw names to base values.
    pub(super) metrics: BTreeMap<String, f64>,
    /// What the rules said.
    pub(super) rules: Vec<String>,
}

/// What a launch's time and counters are of: CTAs, and threads a CTA.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Size {
    grid: Option<f64>,
    block: Option<f64>,
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = |n: Option<f64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
        write!(f, "{} CTAs of {} threads", known(self.grid), known(self.block))
    }
}

impl Launch {
    pub(super) fn size(&self) -> Size {
        let get = |name: &str| self.metrics.get(name).copied();
        Size { grid: self.grid.or(get("launch__grid_size")), block: self.block.or(get("launch__block_size")) }
    }

    pub(super) fn duration_ns(&self) -> Option<f64> {
        let names = ["gpu__time_duration.sum", "gpu__time_duration.avg"];
        names.iter().find_map(|n| self.metrics.get(*n).copied()).filter(|v| *v > 0.0)
    }
}

/// The launches of an export and what was not understood.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Export {
    pub(super) launches: Vec<Launch>,
    pub(super) problems: Vec<String>,
}

/// Reads an export.
pub(super) fn read(text: &str, origin: &str) -> Result<Export, SheetError> {
    let mut problems = Vec::new();
    let layout = Layout::of(text).ok_or_else(|| no_table(text, origin))?;
    let mut records = layout.records(text, &mut problems);
    let header = records.iter().position(|(_, r)| is_header(r)).ok_or_else(|| no_table(text, origin))?;
    let (_, columns) = records.remove(header);
    let rows = records.split_off(header);
    // A second header (several exports in one file) repeats the first or cannot be read with it; ids start anew there.
    let seams: Vec<usize> = rows.iter().filter(|(_, r)| *r == columns).map(|(line, _)| *line).collect();
    let rows: Vec<Record> = rows.into_iter().filter(|(_, r)| *r != columns).collect();
    let at = |name: &str| columns.iter().position(|c| c == name);
    let mut export = match (at("Metric Name"), at("Metric Value")) {
        (Some(name), Some(value)) => long(&columns, &rows, &seams, (name, value), origin, &mut problems)?,
        _ => wide(&columns, &rows, origin, &mut problems)?,
    };
    problems.dedup();
    export.problems = problems;
    Ok(export)
}

/// Why there is no table: what the profiler itself says, where it says anything.
fn no_table(text: &str, origin: &str) -> SheetError {
    const NEEDED: &str = "no table of Nsight Compute: a line with \"ID\" and \"Kernel Name\" is needed (ncu --csv --page details, or --page raw)";
    let said = text.lines().enumerate().find(|(_, l)| l.starts_with("==ERROR=="));
    let Some((at, error)) = said else { return SheetError::new(origin, None, NEEDED) };
    let remedy = if error.contains("ERR_NVGPUCTRPERM") {
        "; the driver lets only administrators count: run as root, or set NVreg_RestrictProfilingToAdminUsers=0"
    } else {
        ""
    };
    SheetError::new(origin, Some(at + 1), format!("{NEEDED}; the profiler failed: {}{remedy}", error.trim()))
}

fn is_launch(record: &[String]) -> bool {
    record.first().is_some_and(|id| is_whole(id))
}

/// Columns of a launch's size, three whole numbers each.
const SIZES: [&str; 2] = ["Grid Size", "Block Size"];

/// The whole numbers of the sizes, which tell how the file groups thousands.
fn parts<'a>(columns: &[String], rows: &'a [Record]) -> impl Iterator<Item = (&'a str, bool)> {
    let sizes: Vec<usize> = (0..columns.len()).filter(|i| SIZES.contains(&columns[*i].as_str())).collect();
    rows.iter()
        .filter(|(_, r)| is_launch(r))
        .flat_map(move |(_, r)| sizes.iter().filter_map(|i| r.get(*i)).collect::<Vec<_>>())
        .filter_map(|cell| dimensions(cell))
        .flatten()
        .filter(|part| is_whole(part))
        .map(|part| (part, true))
}

/// What a row says of its launch, by the columns that every shape shares.
fn identity(
    columns: &[String],
    (line, record): &Record,
    locale: Locale,
    problems: &mut Vec<String>,
) -> Launch {
    let get =
        |name: &str| columns.iter().position(|c| c == name).and_then(|i| record.get(i)).map(String::as_str);
    let mut product = |name: &str| -> Option<f64> {
        let size = get(name).filter(|size| !size.trim().is_empty())?;
        let parts: Option<Vec<f64>> =
            dimensions(size).map_or_else(Vec::new, Vec::from).into_iter().map(|p| whole(p, locale)).collect();
        let product = parts.filter(|p| p.len() == 3).map(|p| p.iter().product()).filter(|n| *n > 0.0);
        if product.is_none() {
            let why = format!(
                "`{}` of {name} is not three whole numbers, as in (1024, 1, 1), in {}: it is left out",
                shortened(size),
                locale.told()
            );
            if !problems.iter().any(|p| p.ends_with(&why)) {
                problems.push(format!("line {line}: {why}"));
            }
        }
        product
    };
    let (grid, block) = (product(SIZES[0]), product(SIZES[1]));
    Launch {
        id: get("ID").unwrap_or_default().to_owned(),
        kernel: get("Kernel Name").unwrap_or_default().to_owned(),
        grid,
        block,
        target: get("CC")
            .filter(|c| c.contains(['.', ',']))
            .map(|c| format!("sm_{}", c.replace(['.', ','], ""))),
        ..Launch::default()
    }
}

fn add(
    launch: &mut Launch,
    name: &str,
    unit: Option<&str>,
    cell: &str,
    locale: Locale,
    line: usize,
    problems: &mut Vec<String>,
) {
    let mut left_out = |why: String| {
        // Once a metric and cell: a thousand launches may say the same.
        if !problems.iter().any(|p| p.ends_with(&why)) {
            problems.push(format!("line {line}: {why}"));
        }
    };
    if is_masked(cell) {
        left_out(format!("`{}` stands in place of {name}; the metric is left out", shortened(cell.trim())));
        return;
    }
    // The profiler picks the unit of a time, a size and a rate for each table: without it the number may be anything.
    if unit.is_none() && number(cell, locale).is_some() && scaled_by_unit(name) {
        let why =
            "no units are in the table, and times, bytes and rates cannot be read without: they are left out";
        if !problems.iter().any(|p| p.contains(why)) {
            problems.push(format!(
                "line {line}: {why} ({name} is the first); export with --print-units base and keep the row of units"
            ));
        }
        return;
    }
    let unit = unit.unwrap_or_default();
    if unit.trim().is_empty() && number(cell, locale).is_some() && scaled_by_unit(name) {
        left_out(format!(
            "{name} has no unit, and may be any: the metric is left out; export with --print-units base"
        ));
        return;
    }
    let Some(value) = number(cell, locale) else {
        if is_damaged(cell, unit) {
            left_out(format!("`{}` of {name} is no number; the metric is left out", shortened(cell)));
        }
        return;
    };
    if value < 0.0 {
        left_out(format!("{name} is {cell}, and no counter is negative; the metric is left out"));
        return;
    }
    if counted_whole(name) && whole(cell, locale).is_none() {
        left_out(format!(
            "`{}` of {name} is no whole number in {}; the metric is left out",
            shortened(cell),
            locale.told()
        ));
        return;
    }
    match factor(unit) {
        Some(factor) => {
            // Exports have at most six decimals: what lies below a thousandth of a base unit is the product's own.
            let scaled = if factor == 1.0 { value } else { (value * factor * 1e3).round() / 1e3 };
            launch.metrics.insert(name.to_owned(), scaled);
        }
        None => left_out(format!("unit `{unit}` of {name} is not known; the metric is left out")),
    }
}

/// What a spreadsheet prints of a number that its column is too narrow for, or that somebody took out.
fn is_masked(cell: &str) -> bool {
    let cell = cell.trim();
    !cell.is_empty() && cell.chars().all(|c| "*#".contains(c))
}

/// Whether a cell that is no number should have been one: it begins like one, or has a unit. The rest is text (a device's
/// name, a cache's preference) or what the profiler could not collect.
fn is_damaged(cell: &str, unit: &str) -> bool {
    let cell = cell.trim().to_lowercase();
    let absent = ["", "n/a", "nan", "-nan", "-"].contains(&cell.as_str());
    let begins = cell.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    // Text metrics have no unit; numbers without one still begin like a number.
    !absent && (!unit.trim().is_empty() || begins && cell.split([' ', '_']).count() == 1)
}

fn shortened(cell: &str) -> String {
    const SHOWN: usize = 24;
    let mut text: String = cell.chars().take(SHOWN).collect();
    if cell.chars().count() > SHOWN {
        text.push('…');
    }
    text
}

fn long(
    columns: &[String],
    rows: &[Record],
    seams: &[usize],
    (name, value): (usize, usize),
    origin: &str,
    problems: &mut Vec<String>,
) -> Result<Export, SheetError> {
    let unit = columns.iter().position(|c| c == "Metric Unit");
    let field = |r: &[String], i: usize| r.get(i).cloned().unwrap_or_default();
    let raw_of = |r: &[String]| {
        let (label, unit) = (field(r, name), unit.map_or_else(String::new, |i| field(r, i)));
        if label.contains("__") { Some(label) } else { raw_name(&label, &unit).map(str::to_owned) }
    };
    let cells = rows.iter().filter_map(|(_, r)| {
        r.get(value).map(|v| (v.as_str(), raw_of(r).is_some_and(|n| counted_whole(&n))))
    });
    let locale = locale(cells.chain(parts(columns, rows))).map_err(|e| SheetError::new(origin, None, e))?;
    let mut export = Export::default();
    let mut unknown = 0;
    for row in rows.iter().filter(|(_, r)| is_launch(r)) {
        let (line, record) = row;
        let mut launch =
            Launch { part: seams.partition_point(|s| s < line), ..identity(columns, row, locale, problems) };
        let same = |l: &Launch| l.part == launch.part && l.id == launch.id && l.kernel == launch.kernel;
        let known = export.launches.iter().position(same);
        let slot = match known {
            Some(i) => &mut export.launches[i],
            None => {
                export.launches.push(std::mem::take(&mut launch));
                let last = export.launches.len() - 1;
                &mut export.launches[last]
            }
        };
        let label = field(record, name);
        if label.is_empty() {
            slot.rules.extend(rule(columns, record));
            continue;
        }
        if record.len() <= value {
            problems.push(format!("line {line}: the row of {label} ends before its value"));
            continue;
        }
        let unit = unit.map(|i| field(record, i));
        match raw_of(record) {
            Some(raw) => add(slot, &raw, unit.as_deref(), &record[value], locale, *line, problems),
            None => unknown += 1,
        }
    }
    if unknown > 0 {
        problems.push(format!("{unknown} rows of the details page have labels that no check reads"));
    }
    Ok(export)
}

/// A rule's row: a lead.
fn rule(columns: &[String], record: &[String]) -> Option<String> {
    let get = |name: &str| {
        columns
            .iter()
            .position(|c| c == name)
            .and_then(|i| record.get(i))
            .map(String::as_str)
            .filter(|s| !s.is_empty())
    };
    let (name, text) = (get("Rule Name")?, get("Rule Description")?);
    let speedup = match (get("Estimated Speedup"), get("Estimated Speedup Type")) {
        (Some(s), Some(kind)) => {
            format!(" (estimated speed-up {s} %, {kind}; such estimates overlap and may not be summed)")
        }
        _ => String::new(),
    };
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(format!("{} {name}: {text}{speedup}", get("Rule Type").unwrap_or("INF")))
}

fn wide(
    columns: &[String],
    rows: &[Record],
    origin: &str,
    problems: &mut Vec<String>,
) -> Result<Export, SheetError> {
    let metrics: Vec<usize> = (0..columns.len()).filter(|i| columns[*i].contains("__")).collect();
    if metrics.is_empty() {
        return Err(SheetError::new(origin, None, "the table has neither `Metric Name` nor metric columns"));
    }
    // The row of units has no launch id, and nothing of a launch.
    let units =
        rows.iter().find(|(_, r)| r.len() == columns.len() && r.first().is_some_and(String::is_empty));
    let launches = || rows.iter().filter(|(_, r)| is_launch(r));
    let cells = launches().flat_map(|(_, r)| {
        metrics.iter().filter_map(|i| r.get(*i).map(|cell| (cell.as_str(), counted_whole(&columns[*i]))))
    });
    let locale = locale(cells.chain(parts(columns, rows))).map_err(|e| SheetError::new(origin, None, e))?;
    let mut export = Export::default();
    for row in launches() {
        let (line, record) = row;
        if record.len() > columns.len() {
            problems.push(format!("line {line}: {} fields under {} columns", record.len(), columns.len()));
        } else if let Some(absent) = columns.get(record.len()) {
            problems.push(format!(
                "line {line}: the row ends after {} of {} columns: {absent} and what follows of launch {} is not there",
                record.len(),
                columns.len(),
                record[0]
            ));
        }
        let mut launch = identity(columns, row, locale, problems);
        for i in &metrics {
            let unit = units.map(|(_, units)| units[*i].as_str());
            let cell = record.get(*i).map_or("", String::as_str);
            add(&mut launch, &columns[*i], unit, cell, locale, *line, problems);
        }
        export.launches.push(launch);
    }
    Ok(export)
}
