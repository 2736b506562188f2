//! Fills a table row by row.

use super::row::{Found, Row};
use crate::FrameError;
use crate::layout::{self, Group, Kind, Layout, What};
use crate::table::{Cell, Cells, Column, Spread, Table, Word};
use kbt_evidence::{Figure, Provenance, Unit};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The columns of a provenance, after the group's prefix.
const PROVENANCE: [&str; 4] = ["provenance_kind", "provenance_by", "provenance_device", "provenance_date"];

/// What a cell holds.
enum Datum {
    Text(String),
    Number(f64),
    Count(i64),
    Flag(bool),
}

pub(super) struct Builder {
    layout: &'static Layout,
    table: Table,
    /// How often each key was seen.
    seen: BTreeMap<String, usize>,
}

impl Builder {
    /// The columns of the layout, without rows.
    pub(super) fn new(layout: &'static Layout) -> Self {
        let table = Table {
            name: layout.name,
            about: layout.about,
            keys: Vec::new(),
            columns: Vec::new(),
            figures: Vec::new(),
            words: Vec::new(),
            compared: layout.compared,
        };
        let mut builder = Self { layout, table, seen: BTreeMap::new() };
        for column in layout.keys {
            builder.declare(column);
        }
        for group in layout.groups {
            for column in group.columns {
                builder.declare(column);
            }
            if group.columns.iter().any(is_numeric) {
                for name in PROVENANCE {
                    builder.add(&format!("{}{name}", group.prefix), Cells::Text(Vec::new()));
                }
            }
        }
        builder
    }

    fn declare(&mut self, column: &layout::Column) {
        let number = || Cells::Number(Vec::new());
        let text = || Cells::Text(Vec::new());
        let name = column.name;
        match column.kind {
            Kind::Text | Kind::List | Kind::Setting | Kind::Mix => self.add(name, text()),
            // Known when the rows are.
            Kind::Knobs => {}
            Kind::Flag => self.add(name, Cells::Flag(Vec::new())),
            Kind::Number(_, spread) => {
                self.add(name, number());
                if let layout::Spread::Between { .. } = spread {
                    self.add(&format!("low_{name}"), number());
                    self.add(&format!("high_{name}"), number());
                }
            }
            Kind::Count(..) => self.add(name, Cells::Count(Vec::new())),
            Kind::Figure => {
                for (name, cells) in [
                    ("unit", text()),
                    ("value", number()),
                    ("low", number()),
                    ("high", number()),
                    ("spread", text()),
                ] {
                    self.add(name, cells);
                }
            }
        }
    }

    /// A new column, empty in the rows that are there.
    fn add(&mut self, name: &str, mut cells: Cells) {
        cells.resize(self.table.rows());
        self.table.columns.push(Column { name: name.to_owned(), cells });
    }

    /// Puts a value into the last row.
    fn put(&mut self, name: &str, datum: Datum) {
        let column = match self.table.columns.iter_mut().find(|c| c.name == name) {
            Some(column) => column,
            None => {
                self.add(name, Cells::Text(Vec::new()));
                let last = self.table.columns.len() - 1;
                &mut self.table.columns[last]
            }
        };
        column.cells.put_last(datum);
    }

    /// Goes down the arrays that are left, and takes a row at their end.
    pub(super) fn walk(&mut self, row: &Row<'_, '_>, rest: &[&str]) -> Result<(), FrameError> {
        let Some((first, rest)) = rest.split_first() else { return self.row(row) };
        for child in row.children(first)? {
            self.walk(&child, rest)?;
        }
        Ok(())
    }

    fn row(&mut self, row: &Row<'_, '_>) -> Result<(), FrameError> {
        self.table.keys.push(String::new());
        let rows = self.table.rows();
        for column in &mut self.table.columns {
            column.cells.resize(rows);
        }
        let mut keys = Vec::new();
        for column in self.layout.keys {
            keys.push(self.key(row, column)?);
        }
        let key = self.unique(keys.join(" / "));
        self.table.keys[rows - 1] = key;
        for group in self.layout.groups {
            self.group(row, group)?;
        }
        Ok(())
    }

    /// The text of a key column, which must be there.
    fn key(&mut self, row: &Row<'_, '_>, column: &layout::Column) -> Result<String, FrameError> {
        let (text, datum) = match (column.path, row.key) {
            ("@key", Some(key)) => (key.to_owned(), Datum::Text(key.to_owned())),
            ("@index", _) => (row.index.to_string(), Datum::Count(row.index as i64)),
            (path, _) => {
                let Some(found) = row.find(path)? else {
                    let at = [&row.at, path].join(".");
                    let message = "missing; it is what tells rows apart";
                    return Err(FrameError::damaged(row.file, at.trim_start_matches('.'), message));
                };
                match column.kind {
                    Kind::Count(..) => (found.count()?.to_string(), Datum::Count(found.count()?)),
                    kind => {
                        let text = words(&found, kind)?;
                        (text.clone(), Datum::Text(text))
                    }
                }
            }
        };
        self.put(column.name, datum);
        Ok(text)
    }

    /// The key, numbered if it was there before.
    fn unique(&mut self, key: String) -> String {
        let times = self.seen.entry(key.clone()).or_default();
        *times += 1;
        if *times > 1 { format!("{key} #{times}") } else { key }
    }

    fn group(&mut self, row: &Row<'_, '_>, group: &Group) -> Result<(), FrameError> {
        let mut known: Option<Provenance> = None;
        for column in group.columns {
            let Some(found) = row.find(column.path)? else { continue };
            match column.kind {
                Kind::Flag => {
                    let flag = found.flag()?;
                    self.word(column, &flag.to_string());
                    self.put(column.name, Datum::Flag(flag));
                }
                Kind::Knobs => {
                    for (knob, value) in found.scalars()? {
                        self.put(&format!("{}_{knob}", column.name), Datum::Text(value));
                    }
                }
                Kind::Number(unit, spread) => {
                    let value = found.number()?;
                    self.put(column.name, Datum::Number(value));
                    self.figure(row, column, (value, unit, spread), &found, &mut known)?;
                }
                Kind::Count(unit, spread) => {
                    let value = found.count()?;
                    self.put(column.name, Datum::Count(value));
                    self.figure(row, column, (value as f64, unit, spread), &found, &mut known)?;
                }
                Kind::Figure => {
                    let figure =
                        Figure::deserialize(found.value).map_err(|e| found.damaged(e.to_string()))?;
                    self.put("unit", Datum::Text(figure.unit.field().to_owned()));
                    self.put("value", Datum::Number(figure.value));
                    if let Some(spread) = figure.spread {
                        self.put("low", Datum::Number(spread.low));
                        self.put("high", Datum::Number(spread.high));
                        self.put("spread", Datum::Text(spread.what));
                    }
                    known = Some(figure.provenance);
                }
                kind => {
                    let text = words(&found, kind)?;
                    self.word(column, &text);
                    self.put(column.name, Datum::Text(text));
                }
            }
        }
        if let Some(p) = known {
            let values = [Some(p.kind.as_str().to_owned()), Some(p.by), p.device, p.date];
            for (name, value) in PROVENANCE.iter().zip(values) {
                if let Some(value) = value {
                    self.put(&format!("{}{name}", group.prefix), Datum::Text(value));
                }
            }
        }
        Ok(())
    }

    fn word(&mut self, column: &layout::Column, text: &str) {
        if column.compared && self.layout.compared {
            let row = self.table.rows() - 1;
            self.table.words.push(Word { row, column: column.name, text: text.to_owned() });
        }
    }

    /// Notes a number as a figure, with its spread and the provenance that covers it.
    fn figure(
        &mut self,
        row: &Row<'_, '_>,
        column: &layout::Column,
        (value, unit, spread): (f64, Unit, layout::Spread),
        found: &Found<'_>,
        known: &mut Option<Provenance>,
    ) -> Result<(), FrameError> {
        let provenance = provenance(found)?;
        if known.as_ref().is_some_and(|k| *k != provenance) {
            let message = "it is known in another way than the numbers beside it";
            return Err(found.damaged(message.to_owned()));
        }
        let mut figure = Figure::new(column.name, value, unit, provenance.clone());
        *known = Some(provenance);
        let spread = match spread {
            layout::Spread::Unknown => Spread::Unknown,
            layout::Spread::Between { low, high, what } => {
                let (low, high) = (row.find(low)?, row.find(high)?);
                match (low, high) {
                    (Some(low), Some(high)) => {
                        let (low, high) = (low.number()?, high.number()?);
                        self.put(&format!("low_{}", column.name), Datum::Number(low));
                        self.put(&format!("high_{}", column.name), Datum::Number(high));
                        figure = figure.with_spread(low, high, said(row, what)?);
                        Spread::Interval
                    }
                    _ => Spread::Unknown,
                }
            }
            layout::Spread::Percent { path, what } => match row.find(path)? {
                Some(percent) => Spread::Relative { percent: percent.number()?, what: what.to_owned() },
                None => Spread::Unknown,
            },
            layout::Spread::NoneIf { path, is, what } => match row.find(path)? {
                Some(word) if word.text()? == is => Spread::Exact { what: what.to_owned() },
                _ => Spread::Unknown,
            },
        };
        if column.compared && self.layout.compared {
            let row = self.table.rows() - 1;
            self.table.figures.push(Cell { row, column: column.name, figure, spread });
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Table {
        self.table
    }
}

fn is_numeric(column: &layout::Column) -> bool {
    matches!(column.kind, Kind::Number(..) | Kind::Count(..) | Kind::Figure)
}

fn words(found: &Found<'_>, kind: Kind) -> Result<String, FrameError> {
    Ok(match kind {
        Kind::List => found.list()?.join(", "),
        Kind::Setting => {
            let pairs = found.scalars()?;
            pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
        }
        Kind::Mix => found.mix()?,
        _ => found.text()?.to_owned(),
    })
}

fn said(row: &Row<'_, '_>, what: What) -> Result<String, FrameError> {
    match what {
        What::Said(text) => Ok(text.to_owned()),
        What::At(path) => row.find(path)?.map_or(Ok(String::new()), |found| found.text().map(str::to_owned)),
    }
}

fn provenance(found: &Found<'_>) -> Result<Provenance, FrameError> {
    let Some(value) = found.provenance else {
        return Err(found.damaged("no provenance in an object around it".to_owned()));
    };
    Provenance::deserialize(value).map_err(|e| found.damaged(format!("its provenance: {e}")))
}

impl Cells {
    fn resize(&mut self, rows: usize) {
        match self {
            Self::Text(cells) => cells.resize(rows, None),
            Self::Number(cells) => cells.resize(rows, None),
            Self::Count(cells) => cells.resize(rows, None),
            Self::Flag(cells) => cells.resize(rows, None),
        }
    }

    /// Sets the last cell; a value of another type than the column's is one that the layout does not make.
    fn put_last(&mut self, datum: Datum) {
        match (self, datum) {
            (Self::Text(cells), Datum::Text(value)) => set_last(cells, value),
            (Self::Number(cells), Datum::Number(value)) => set_last(cells, value),
            (Self::Count(cells), Datum::Count(value)) => set_last(cells, value),
            (Self::Flag(cells), Datum::Flag(value)) => set_last(cells, value),
            _ => {}
        }
    }
}

fn set_last<T>(cells: &mut [Option<T>], value: T) {
    if let Some(last) = cells.last_mut() {
        *last = Some(value);
    }
}
