//! What each table is made of, as data: where its rows lie in a step's file, what tells them apart, and its columns.
//! How that is read is in `extract`.
//!
//! A path is field names with dots between them, from the row. `^` in front goes up to the row around it, `/` to the
//! outcome; `@key` and `@value` are an entry of a map, `@index` the row's place. A provenance is not listed: it is the
//! one of the nearest object around the number, as everywhere in kbt's files.

mod algebra;
mod handoff;
mod rates;
mod run;
mod schedule;
mod trace;
mod triage;
mod validate;

use kbt_evidence::{Step, Unit};

/// Where a table's rows come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The outcome of a step.
    Outcome(Step),
    /// Every step file of the run.
    Steps,
    /// The device profile that the run measured.
    Profile,
}

/// One table.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) from: Source,
    /// The arrays to go down, one inside the other; `{}` at the end takes the entries of a map; none at all makes the
    /// whole one row.
    pub(crate) rows: &'static [&'static str],
    pub(crate) keys: &'static [Column],
    pub(crate) groups: &'static [Group],
    /// Whether two runs are compared by it: not if another table holds the same figures.
    pub(crate) compared: bool,
}

/// Columns whose numbers have one provenance.
#[derive(Debug)]
pub(crate) struct Group {
    /// In front of the names of the provenance columns.
    pub(crate) prefix: &'static str,
    pub(crate) columns: &'static [Column],
}

/// One column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) path: &'static str,
    pub(crate) kind: Kind,
    /// Whether two runs are compared by it.
    pub(crate) compared: bool,
}

/// What is in a column.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// A string.
    Text,
    /// A list of strings.
    List,
    /// A map of scalars, as `a=1 b=2`.
    Setting,
    /// A map of scalars, each in a column of its own, with the column's name in front.
    Knobs,
    /// `[["ex2", 1], ["fma", 4]]`, as `1 ex2 + 4 fma`.
    Mix,
    /// Yes or no.
    Flag,
    /// A number.
    Number(Unit, Spread),
    /// A whole number.
    Count(Unit, Spread),
    /// A figure whose unit is its own affair: columns `unit`, `value`, `low`, `high` and `spread`.
    Figure,
}

/// Where the spread of a number is said.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Spread {
    /// Nowhere.
    Unknown,
    /// In two fields, the ends of an interval; they become columns.
    Between { low: &'static str, high: &'static str, what: What },
    /// In a field that holds percent of the value.
    Percent { path: &'static str, what: &'static str },
    /// It has none where the field holds this word.
    NoneIf { path: &'static str, is: &'static str, what: &'static str },
}

/// What an interval is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    /// Always this.
    Said(&'static str),
    /// What this field says.
    At(&'static str),
}

/// Every table, in the order of the ladder.
pub(crate) fn all() -> impl Iterator<Item = &'static Layout> {
    [
        run::TABLES,
        triage::TABLES,
        rates::TABLES,
        trace::TABLES,
        schedule::TABLES,
        algebra::TABLES,
        handoff::TABLES,
        validate::TABLES,
    ]
    .into_iter()
    .flatten()
}

impl Layout {
    const fn new(
        name: &'static str,
        about: &'static str,
        from: Source,
        rows: &'static [&'static str],
        keys: &'static [Column],
        groups: &'static [Group],
    ) -> Self {
        Self { name, about, from, rows, keys, groups, compared: true }
    }

    const fn not_compared(mut self) -> Self {
        self.compared = false;
        self
    }
}

impl Column {
    /// Exported, and of no interest to a comparison.
    const fn quiet(mut self) -> Self {
        self.compared = false;
        self
    }

    /// From another field than the one it is named after.
    const fn at(mut self, path: &'static str) -> Self {
        self.path = path;
        self
    }
}

const fn column(name: &'static str, kind: Kind, compared: bool) -> Column {
    Column { name, path: name, kind, compared }
}

/// A word that is a finding: a comparison tells where it changed.
const fn word(name: &'static str) -> Column {
    column(name, Kind::Text, true)
}

/// Text that may change without meaning anything.
const fn text(name: &'static str) -> Column {
    column(name, Kind::Text, false)
}

const fn list(name: &'static str) -> Column {
    column(name, Kind::List, true)
}

const fn flag(name: &'static str) -> Column {
    column(name, Kind::Flag, true)
}

const fn number(name: &'static str, unit: Unit) -> Column {
    column(name, Kind::Number(unit, Spread::Unknown), true)
}

const fn spread(name: &'static str, unit: Unit, spread: Spread) -> Column {
    column(name, Kind::Number(unit, spread), true)
}

const fn count(name: &'static str) -> Column {
    column(name, Kind::Count(Unit::Count, Spread::Unknown), true)
}

const fn bytes(name: &'static str) -> Column {
    column(name, Kind::Count(Unit::Bytes, Spread::Unknown), true)
}

/// The columns of one provenance, without a prefix.
const fn group(columns: &'static [Column]) -> Group {
    Group { prefix: "", columns }
}

const fn between(low: &'static str, high: &'static str, what: &'static str) -> Spread {
    Spread::Between { low, high, what: What::Said(what) }
}
