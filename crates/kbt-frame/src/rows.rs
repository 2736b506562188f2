//! The rows of a trace, as `kbt trace export --to parquet` streams them (`kbt.trace-rows/1`), to one Parquet file. A
//! bounded number of rows is in memory at a time.

use crate::table::{Cells, Column, frame};
use crate::{FrameError, Written};
use polars::prelude::{KeyValueMetadata, ParquetWriter};
use serde::Deserialize;
use serde_json::Value;
use std::fs::{self, File};
use std::io::BufRead;
use std::path::Path;

const SCHEMA: &str = "kbt.trace-rows/1";
const TABLE: &str = "trace";
const ABOUT: &str = "a span, instant or arrival of a role in a CTA";
/// Rows of a row group.
const GROUP: usize = 1 << 18;

/// The first line. What it holds beside these goes into the file's metadata.
#[derive(Debug, Deserialize)]
struct Head {
    schema: String,
    columns: Vec<String>,
    kinds: Vec<String>,
    time_unit: String,
    cta_begin_unit: String,
    roles: Vec<String>,
    events: Vec<String>,
    barriers: Vec<String>,
}

/// The last line.
#[derive(Debug, Deserialize)]
struct Tail {
    rows: u64,
}

type Row = Vec<Option<i64>>;

/// Where in a row each number stands.
struct Places {
    cta: usize,
    sm: usize,
    role: usize,
    kind: usize,
    id: usize,
    begin: usize,
    end: usize,
    step: usize,
    released_at: usize,
    released_by: usize,
    cta_begin: usize,
}

/// Writes the rows that `input` holds to the Parquet file `out`; `name` stands for the input in messages. Columns:
/// `cta`, `sm`, `role`, `kind` (event, wait, instant, arrive), `name`, `begin_UNIT`, `end_UNIT`, `step`,
/// `released_at_UNIT`, `released_by`, where UNIT is `cycles` or `ns` from the CTA's first record, and `cta_begin_UNIT`,
/// when that was beside other CTAs'. The first line of the input is under the key `kbt.trace`; its `cta_begin_from` says
/// what that time is counted from.
///
/// # Errors
/// Where a line is not what it should be, the last line is missing, or the file cannot be written.
pub fn trace_rows(input: &mut dyn BufRead, name: &str, out: &Path) -> Result<Written, FrameError> {
    let named = Path::new(name);
    let mut lines = Lines { input, named, number: 0, text: String::new() };
    let partial = out.with_extension("parquet.partial");
    let written = fill(&mut lines, out, &partial);
    if written.is_err() && partial.exists() {
        fs::remove_file(&partial).map_err(FrameError::io(&partial))?;
    }
    written
}

/// Writes beside the file and renames, so that no half file has its name.
fn fill(lines: &mut Lines<'_>, out: &Path, partial: &Path) -> Result<Written, FrameError> {
    let named = lines.named;
    let first = lines.next()?.ok_or_else(|| FrameError::damaged(named, ".", "it is empty"))?.to_owned();
    let head: Head = lines.parse(&first)?;
    if head.schema != SCHEMA {
        return Err(FrameError::damaged(named, "schema", format!("`{}`; expected `{SCHEMA}`", head.schema)));
    }
    let places =
        head.places().map_err(|column| FrameError::damaged(named, "columns", format!("no `{column}`")))?;

    let file = File::create(partial).map_err(FrameError::io(partial))?;
    let metadata = [("kbt.trace", first.as_str()), ("kbt.table", ABOUT)];
    let metadata = metadata.map(|(k, v)| (k.to_owned(), v.trim_end().to_owned())).to_vec();
    let empty = frame(TABLE, 0, head.columns(&[], &places).iter().map(Column::to_polars).collect())?;
    let mut writer = ParquetWriter::new(&file)
        .with_key_value_metadata(Some(KeyValueMetadata::from_static(metadata)))
        .batched(empty.schema())
        .map_err(FrameError::frame(TABLE))?;
    let (mut rows, mut batch) = (0, Vec::new());
    let told = loop {
        let Some(line) = lines.next()? else { break None };
        if line.starts_with('{') {
            let line = line.to_owned();
            break Some(lines.parse::<Tail>(&line)?.rows);
        }
        let line = line.to_owned();
        let row: Row = lines.parse(&line)?;
        head.check(&row, &places).map_err(|why| lines.damaged(why))?;
        rows += 1;
        batch.push(row);
        if batch.len() == GROUP {
            writer.write_batch(&head.frame(&batch, &places)?).map_err(FrameError::frame(TABLE))?;
            batch.clear();
        }
    };
    if told != Some(rows) {
        let told =
            told.map_or_else(|| "no last line".to_owned(), |told| format!("a last line that tells {told}"));
        let message = format!("{rows} rows and {told}: the writer ended early");
        return Err(lines.damaged(message));
    }
    if !batch.is_empty() {
        writer.write_batch(&head.frame(&batch, &places)?).map_err(FrameError::frame(TABLE))?;
    }
    writer.finish().map_err(FrameError::frame(TABLE))?;
    file.sync_all().and_then(|()| fs::rename(partial, out)).map_err(FrameError::io(out))?;
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    Ok(Written { table: TABLE.into(), about: ABOUT, path: out.to_owned(), rows, columns: empty.width() })
}

/// The input, line by line.
struct Lines<'a> {
    input: &'a mut dyn BufRead,
    named: &'a Path,
    number: u64,
    text: String,
}

impl Lines<'_> {
    fn next(&mut self) -> Result<Option<&str>, FrameError> {
        self.text.clear();
        self.number += 1;
        let read = self.input.read_line(&mut self.text).map_err(FrameError::io(self.named))?;
        Ok((read > 0).then_some(self.text.as_str()))
    }

    fn damaged(&self, message: impl Into<String>) -> FrameError {
        FrameError::damaged(self.named, format!("line {}", self.number), message)
    }

    fn parse<T: serde::de::DeserializeOwned>(&self, line: &str) -> Result<T, FrameError> {
        serde_json::from_str(line).map_err(|e| self.damaged(e.to_string()))
    }
}

impl Head {
    fn places(&self) -> Result<Places, &'static str> {
        let place = |name: &'static str| self.columns.iter().position(|c| c == name).ok_or(name);
        Ok(Places {
            cta: place("cta")?,
            sm: place("sm")?,
            role: place("role")?,
            kind: place("kind")?,
            id: place("id")?,
            begin: place("begin")?,
            end: place("end")?,
            step: place("step")?,
            released_at: place("released_at")?,
            released_by: place("released_by")?,
            cta_begin: place("cta_begin")?,
        })
    }

    /// Whether a row has its columns, and names that exist.
    fn check(&self, row: &Row, at: &Places) -> Result<(), String> {
        if row.len() != self.columns.len() {
            return Err(format!("{} numbers; expected {}", row.len(), self.columns.len()));
        }
        let known = |place: usize, table: &[String], what: &str| match row[place] {
            Some(index) if usize::try_from(index).is_ok_and(|i| i < table.len()) => Ok(()),
            found => Err(format!("{what} {}; there are {}", Value::from(found), table.len())),
        };
        known(at.role, &self.roles, "role")?;
        known(at.kind, &self.kinds, "kind")?;
        if row[at.released_by].is_some() {
            known(at.released_by, &self.roles, "released_by")?;
        }
        match row[at.begin].zip(row[at.cta]) {
            Some(_) => Ok(()),
            None => Err("no cta or no begin".into()),
        }
    }

    fn frame(&self, rows: &[Row], at: &Places) -> Result<polars::prelude::DataFrame, FrameError> {
        frame(TABLE, rows.len(), self.columns(rows, at).iter().map(Column::to_polars).collect())
    }

    fn columns(&self, rows: &[Row], at: &Places) -> Vec<Column> {
        let count = |name: &str, place: usize| Column {
            name: name.to_owned(),
            cells: Cells::Count(rows.iter().map(|row| row[place]).collect()),
        };
        let timed = |name: &str, place: usize| count(&format!("{name}_{}", self.time_unit), place);
        let named = |table: &[String], index: Option<i64>| {
            usize::try_from(index?).ok().and_then(|index| table.get(index).cloned())
        };
        let text = |name: &str, of: &dyn Fn(&Row) -> Option<String>| Column {
            name: name.to_owned(),
            cells: Cells::Text(rows.iter().map(of).collect()),
        };
        let of_barrier = |row: &Row| {
            let kind = named(&self.kinds, row[at.kind]);
            kind.is_some_and(|kind| kind == "wait" || kind == "arrive")
        };
        // A number beyond the names, as foreign recorders have them, stays a number.
        let name = |row: &Row| {
            let table = if of_barrier(row) { &self.barriers } else { &self.events };
            named(table, row[at.id]).or_else(|| row[at.id].map(|id| id.to_string()))
        };
        vec![
            count("cta", at.cta),
            count("sm", at.sm),
            text("role", &|row| named(&self.roles, row[at.role])),
            text("kind", &|row| named(&self.kinds, row[at.kind])),
            text("name", &name),
            timed("begin", at.begin),
            timed("end", at.end),
            count("step", at.step),
            timed("released_at", at.released_at),
            text("released_by", &|row| named(&self.roles, row[at.released_by])),
            count(&format!("cta_begin_{}", self.cta_begin_unit), at.cta_begin),
        ]
    }
}
