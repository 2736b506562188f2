//! Two runs, joined by the keys of their tables: what differs, and whether it is beyond the noise.

mod join;
mod noise;
mod text;

use crate::table::{RunTables, Table};
use crate::{FrameError, Run, RunSpec};
use join::{Id, join};
use kbt_evidence::{Figure, Provenance, Unit};
pub use noise::{Noise, Rule};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;

/// One of the two runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// Its directory.
    pub run: String,
    /// What it was asked.
    pub asked: RunSpec,
}

/// A figure that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The table.
    pub table: String,
    /// The row.
    pub key: String,
    /// In the first run.
    pub before: Figure,
    /// In the second.
    pub after: Figure,
    /// After over before; absent where one is zero or their signs differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Figure>,
    /// The larger of the two spreads, relative to the values; absent where neither is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Figure>,
    /// Whether the difference means anything.
    pub noise: Noise,
    /// By which rule.
    pub rule: Rule,
}

/// A word that differs: a standing, a status, an opcode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The table.
    pub table: String,
    /// The row.
    pub key: String,
    /// The column.
    pub column: String,
    /// In the first run.
    pub before: String,
    /// In the second.
    pub after: String,
}

/// What only one of the runs has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneSided {
    /// `before` or `after`.
    pub only: String,
    /// The table.
    pub table: String,
    /// The row.
    pub key: String,
    /// The column, where the other run has the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<String>,
}

/// A table that one of the runs, or both, do not have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotCompared {
    /// `before` or `after`.
    pub missing: String,
    /// The table.
    pub table: String,
    /// Why it is missing.
    pub why: String,
}

/// How many figures both runs have, and how they came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Figures that both runs have.
    pub compared_count: usize,
    /// Of those, the ones that are the same number.
    pub same_count: usize,
    /// Differences beyond the noise.
    pub beyond_count: usize,
    /// Differences that cannot be judged.
    pub unknown_count: usize,
    /// Differences within the noise.
    pub within_count: usize,
    /// Counted here.
    pub provenance: Provenance,
}

/// Two runs against each other (`kbt.compare/1`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Always [`Comparison::SCHEMA`].
    pub schema: String,
    /// The first run.
    pub before: Side,
    /// The second.
    pub after: Side,
    /// When a difference is beyond the noise.
    pub rules: Vec<String>,
    /// How many there are.
    pub counts: Counts,
    /// Words that differ, in the order of the ladder.
    pub changes: Vec<Change>,
    /// Figures that differ, the most telling first: beyond the noise before what cannot be judged before what is
    /// within it; measured before other figures; the larger ratio first.
    pub differences: Vec<Difference>,
    /// What only one run has.
    pub one_sided: Vec<OneSided>,
    /// Tables that a run does not have.
    pub not_compared: Vec<NotCompared>,
}

/// Joins two runs.
///
/// # Errors
/// Where one of them is no run, or a file of it is damaged.
pub fn compare(before: &Path, after: &Path) -> Result<Comparison, FrameError> {
    let runs = [Run::read(before)?, Run::read(after)?];
    let tables = [RunTables::read(&runs[0])?, RunTables::read(&runs[1])?];
    let [a, b] = [&tables[0], &tables[1]];
    let both = |t: &&Table| t.compared() && a.table(t.name).is_some() && b.table(t.name).is_some();
    let sides: [Vec<&Table>; 2] =
        [a.tables.iter().filter(both).collect(), b.tables.iter().filter(both).collect()];
    let (rows, mut one_sided) = rows(&sides)?;
    let changes = changes(&sides)?;
    let (mut differences, compared_count) = differences(&sides, &rows, &mut one_sided)?;
    differences.sort_by(Difference::by_weight);

    let judged = |noise| differences.iter().filter(|d| d.noise == noise).count();
    let counts = Counts {
        compared_count,
        same_count: compared_count - differences.len(),
        beyond_count: judged(Noise::Beyond),
        unknown_count: judged(Noise::Unknown),
        within_count: judged(Noise::Within),
        provenance: Provenance::given("the figures of the two runs, counted"),
    };
    let side = |run: &Run| Side { run: run.dir.display().to_string(), asked: run.spec.clone() };
    let not_compared = ["before", "after"].into_iter().zip(&tables).flat_map(|(which, tables)| {
        let missing = tables.missing.iter().filter(|m| m.compared);
        missing.map(move |m| NotCompared { missing: which.into(), table: m.table.into(), why: m.why.clone() })
    });
    Ok(Comparison {
        schema: Comparison::SCHEMA.to_owned(),
        before: side(&runs[0]),
        after: side(&runs[1]),
        rules: Rule::ALL.iter().map(|r| r.statement().to_owned()).collect(),
        counts,
        changes,
        differences,
        one_sided,
        not_compared: not_compared.collect(),
    })
}

/// Tables with the keys of rows.
type Rows = BTreeSet<(&'static str, String)>;

/// The rows that both have, and those that one has.
fn rows(sides: &[Vec<&Table>; 2]) -> Result<(Rows, Vec<OneSided>), FrameError> {
    let ids = |tables: &[&Table]| -> Vec<Id> {
        tables.iter().flat_map(|t| t.keys.iter().map(|key| Id::row(t.name, key))).collect()
    };
    let [a, b] = [ids(&sides[0]), ids(&sides[1])];
    let (mut rows, mut one_sided) = (Rows::new(), Vec::new());
    for pair in join(&a, &b)? {
        match pair {
            (Some(i), Some(_)) => {
                rows.insert((a[i].table, a[i].key.clone()));
            }
            (Some(i), None) => one_sided.push(a[i].only("before")),
            (None, Some(j)) => one_sided.push(b[j].only("after")),
            (None, None) => {}
        }
    }
    Ok((rows, one_sided))
}

fn changes(sides: &[Vec<&Table>; 2]) -> Result<Vec<Change>, FrameError> {
    let words = |tables: &[&Table]| -> (Vec<Id>, Vec<String>) {
        let all = tables
            .iter()
            .flat_map(|t| t.words.iter().map(|w| (Id::cell(t, w.row, w.column), w.text.clone())));
        all.unzip()
    };
    let ((a, a_texts), (b, b_texts)) = (words(&sides[0]), words(&sides[1]));
    let mut changes = Vec::new();
    for (i, j) in join(&a, &b)? {
        if let (Some(i), Some(j)) = (i, j)
            && a_texts[i] != b_texts[j]
        {
            changes.push(Change {
                table: a[i].table.to_owned(),
                key: a[i].key.clone(),
                column: a[i].column.to_owned(),
                before: a_texts[i].clone(),
                after: b_texts[j].clone(),
            });
        }
    }
    Ok(changes)
}

/// The figures that differ, and how many both runs have.
fn differences(
    sides: &[Vec<&Table>; 2],
    rows: &Rows,
    one_sided: &mut Vec<OneSided>,
) -> Result<(Vec<Difference>, usize), FrameError> {
    let cells = |tables: &[&Table]| -> Vec<Id> {
        tables.iter().flat_map(|t| t.figures.iter().map(|c| Id::cell(t, c.row, c.column))).collect()
    };
    let figures = |tables: &[&Table]| -> Vec<crate::Cell> {
        tables.iter().flat_map(|t| t.figures.iter().cloned()).collect()
    };
    let [a, b] = [cells(&sides[0]), cells(&sides[1])];
    let [a_cells, b_cells] = [figures(&sides[0]), figures(&sides[1])];
    let (mut differences, mut compared) = (Vec::new(), 0);
    for pair in join(&a, &b)? {
        let (id, only) = match pair {
            (Some(i), Some(j)) => {
                compared += 1;
                if a_cells[i].figure.value != b_cells[j].figure.value {
                    differences.push(Difference::new(&a[i], &a_cells[i], &b_cells[j]));
                }
                continue;
            }
            (Some(i), None) => (&a[i], "before"),
            (None, Some(j)) => (&b[j], "after"),
            (None, None) => continue,
        };
        if rows.contains(&(id.table, id.key.clone())) {
            one_sided.push(OneSided { column: Some(id.column.to_owned()), ..id.only(only) });
        }
    }
    Ok((differences, compared))
}

impl Difference {
    fn new(id: &Id, before: &crate::Cell, after: &crate::Cell) -> Self {
        let judgement = noise::judge(before, after);
        let (before, after) = (before.figure.clone(), after.figure.clone());
        let computed = |name: &str, value: f64, unit: Unit| {
            let inputs = [("before", &before.provenance), ("after", &after.provenance)];
            Figure::new(name, value, unit, Provenance::computed(name, inputs))
        };
        Self {
            table: id.table.to_owned(),
            key: id.key.clone(),
            ratio: noise::ratio(before.value, after.value)
                .map(|r| computed("after over before", r, Unit::Ratio)),
            spread: judgement
                .spread_percent
                .map(|s| computed("the larger of the two spreads", s, Unit::Percent)),
            noise: judgement.noise,
            rule: judgement.rule,
            before,
            after,
        }
    }

    /// The column that differs.
    #[must_use]
    pub fn column(&self) -> &str {
        &self.before.name
    }

    fn by_weight(a: &Self, b: &Self) -> std::cmp::Ordering {
        let measured =
            |d: &Self| d.before.provenance.kind.is_measurement() && d.after.provenance.kind.is_measurement();
        // What came from nothing, or changed its sign, is no small change.
        let size = |d: &Self| d.ratio.as_ref().map_or(f64::INFINITY, |r| r.value.ln().abs());
        a.noise.cmp(&b.noise).then(measured(b).cmp(&measured(a))).then(size(b).total_cmp(&size(a)))
    }
}

impl Comparison {
    /// The schema that comparisons state.
    pub const SCHEMA: &'static str = "kbt.compare/1";
}
