//! A table: typed columns, the keys of its rows, and its figures with their spreads and provenances. Where tables
//! come from is in `extract`; here is what they are, and their way into polars.

use crate::{FrameError, Run, extract, layout};
use kbt_evidence::Figure;
use polars::prelude::{Column as PolarsColumn, DataFrame, PlSmallStr};
use std::fmt;

/// The values of a column, one a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Cells {
    /// Words and sentences.
    Text(Vec<Option<String>>),
    /// Numbers; the column is named with their unit.
    Number(Vec<Option<f64>>),
    /// Whole numbers.
    Count(Vec<Option<i64>>),
    /// Yes or no.
    Flag(Vec<Option<bool>>),
}

/// A column with its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its name, with the unit of what is in it.
    pub name: String,
    /// Its values.
    pub cells: Cells,
}

/// How far a figure may move without meaning anything.
#[derive(Debug, Clone, PartialEq)]
pub enum Spread {
    /// It lies in the interval that the figure itself holds.
    Interval,
    /// By this much of its value in either direction.
    Relative {
        /// Percent of the value.
        percent: f64,
        /// What the percentage is of.
        what: String,
    },
    /// Not at all: repeated runs gave the same.
    Exact {
        /// What says so.
        what: String,
    },
    /// Nobody said.
    Unknown,
}

/// A figure at its place in a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The row.
    pub row: usize,
    /// The column.
    pub column: &'static str,
    /// The figure, with its interval where one is known.
    pub figure: Figure,
    /// Its spread.
    pub spread: Spread,
}

/// A word that is a finding at its place in a table: a standing, a status, an opcode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) row: usize,
    pub(crate) column: &'static str,
    pub(crate) text: String,
}

/// One table of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Its name, which is its file's.
    pub name: &'static str,
    /// What a row is.
    pub about: &'static str,
    /// What tells its rows apart, joined by ` / `; numbered where the columns do not.
    pub keys: Vec<String>,
    /// Its columns, those of the key first.
    pub columns: Vec<Column>,
    /// Its figures, for comparisons between runs: none for a table that is not compared.
    pub figures: Vec<Cell>,
    pub(crate) words: Vec<Word>,
    pub(crate) compared: bool,
}

/// A table that a run has no evidence for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The table.
    pub table: &'static str,
    /// Why, and where the run says so what would give it.
    pub why: String,
    pub(crate) compared: bool,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.table, self.why)
    }
}

/// All tables of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunTables {
    /// Those that it has.
    pub tables: Vec<Table>,
    /// Those that it has not.
    pub missing: Vec<Missing>,
}

impl RunTables {
    /// Every table that kbt-frame knows, from this run.
    ///
    /// # Errors
    /// Where a step's file has a field of another type than expected, or a number that no provenance covers.
    pub fn read(run: &Run) -> Result<Self, FrameError> {
        let mut tables = Self { tables: Vec::new(), missing: Vec::new() };
        for layout in layout::all() {
            match extract::table(layout, run)? {
                Ok(table) => tables.tables.push(table),
                Err(missing) => tables.missing.push(missing),
            }
        }
        Ok(tables)
    }

    /// The table of this name.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<&Table> {
        self.tables.iter().find(|t| t.name == name)
    }
}

impl Table {
    /// The column of this name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&Cells> {
        self.columns.iter().find(|c| c.name == name).map(|c| &c.cells)
    }

    /// Whether two runs are compared by it.
    #[must_use]
    pub const fn compared(&self) -> bool {
        self.compared
    }

    /// How many rows it has.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.keys.len()
    }

    /// As a polars frame.
    ///
    /// # Errors
    /// Where polars refuses the columns.
    pub fn frame(&self) -> Result<DataFrame, FrameError> {
        frame(self.name, self.rows(), self.columns.iter().map(Column::to_polars).collect())
    }
}

impl Column {
    pub(crate) fn to_polars(&self) -> PolarsColumn {
        let name = PlSmallStr::from_str(&self.name);
        match &self.cells {
            Cells::Text(cells) => PolarsColumn::new(name, cells),
            Cells::Number(cells) => PolarsColumn::new(name, cells),
            Cells::Count(cells) => PolarsColumn::new(name, cells),
            Cells::Flag(cells) => PolarsColumn::new(name, cells),
        }
    }
}

/// A frame of columns; `rows` tells the height of one without columns.
pub(crate) fn frame(name: &str, rows: usize, columns: Vec<PolarsColumn>) -> Result<DataFrame, FrameError> {
    DataFrame::new(rows, columns).map_err(FrameError::frame(name))
}

/// Every figure of every table in one frame, a row each: `table`, `key`, `column`, `unit`, `value`, `low`, `high`,
/// `spread_percent`, `spread` and the provenance.
///
/// # Errors
/// Where polars refuses the columns.
pub fn figures_frame(tables: &[Table]) -> Result<DataFrame, FrameError> {
    let cells: Vec<(&Table, &Cell)> =
        tables.iter().flat_map(|t| t.figures.iter().map(move |c| (t, c))).collect();
    let text = |name: &str, of: &dyn Fn(&Table, &Cell) -> Option<String>| Column {
        name: name.to_owned(),
        cells: Cells::Text(cells.iter().map(|(t, c)| of(t, c)).collect()),
    };
    let number = |name: &str, of: &dyn Fn(&Cell) -> Option<f64>| Column {
        name: name.to_owned(),
        cells: Cells::Number(cells.iter().map(|(_, c)| of(c)).collect()),
    };
    let interval = |c: &Cell| c.figure.spread.clone();
    let columns = [
        text("table", &|t, _| Some(t.name.to_owned())),
        text("key", &|t, c| t.keys.get(c.row).cloned()),
        text("column", &|_, c| Some(c.column.to_owned())),
        text("unit", &|_, c| Some(c.figure.unit.field().to_owned())),
        number("value", &|c| Some(c.figure.value)),
        number("low", &|c| interval(c).map(|s| s.low)),
        number("high", &|c| interval(c).map(|s| s.high)),
        number("spread_percent", &|c| match c.spread {
            Spread::Relative { percent, .. } => Some(percent),
            _ => None,
        }),
        text("spread", &|_, c| c.spread_words()),
        text("provenance_kind", &|_, c| Some(c.figure.provenance.kind.as_str().to_owned())),
        text("provenance_by", &|_, c| Some(c.figure.provenance.by.clone())),
        text("provenance_device", &|_, c| c.figure.provenance.device.clone()),
        text("provenance_date", &|_, c| c.figure.provenance.date.clone()),
    ];
    frame("figures", cells.len(), columns.iter().map(Column::to_polars).collect())
}

impl Cell {
    /// What the spread is, in words; `None` where nobody said.
    #[must_use]
    pub fn spread_words(&self) -> Option<String> {
        match &self.spread {
            Spread::Interval => self.figure.spread.as_ref().map(|s| s.what.clone()),
            Spread::Relative { what, .. } | Spread::Exact { what } => Some(what.clone()),
            Spread::Unknown => None,
        }
    }
}
