//! Writes a run's tables as Parquet files.

use crate::table::{Missing, RunTables, figures_frame};
use crate::{FrameError, Run};
use polars::prelude::{DataFrame, KeyValueMetadata, ParquetWriter};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// One file that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The table.
    pub table: String,
    /// What a row of it is.
    pub about: &'static str,
    /// The file.
    pub path: PathBuf,
    /// How many rows.
    pub rows: usize,
    /// How many columns.
    pub columns: usize,
}

/// What came of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The files.
    pub written: Vec<Written>,
    /// Tables that the run does not have; a file that an earlier export left for one is removed.
    pub missing: Vec<Missing>,
}

/// Writes the tables of the run in `dir` as `NAME.parquet` into `out`, else into the run's own folder `tables`; and
/// `figures.parquet`, every figure that two runs are compared by. Each file holds what the run was asked under the key
/// `kbt.run`, and what a row is under `kbt.table`.
///
/// # Errors
/// Where `dir` is no run, a file of it is damaged, or a file cannot be written.
pub fn export(dir: &Path, out: Option<&Path>) -> Result<Exported, FrameError> {
    let run = Run::read(dir)?;
    let tables = RunTables::read(&run)?;
    let out = out.map_or_else(|| dir.join("tables"), Path::to_owned);
    fs::create_dir_all(&out).map_err(FrameError::io(&out))?;
    let asked = serde_json::to_string(&run.spec)
        .map_err(|e| FrameError::damaged(&dir.join("run.json"), ".", e.to_string()))?;

    let about = "a figure that two runs are compared by";
    let all = figures_frame(&tables.tables)?;
    let frames = tables.tables.iter().map(|t| Ok((t.name, t.about, t.frame()?)));
    let mut written = Vec::new();
    for frame in frames.chain([Ok(("figures", about, all))]) {
        let (name, about, mut frame): (&str, &'static str, DataFrame) = frame?;
        let path = out.join(format!("{name}.parquet"));
        write(&path, name, &mut frame, &[("kbt.run", asked.as_str()), ("kbt.table", about)])?;
        let (rows, columns) = frame.shape();
        written.push(Written { table: name.to_owned(), about, path, rows, columns });
    }
    for missing in &tables.missing {
        let path = out.join(format!("{}.parquet", missing.table));
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(FrameError::io(&path)(e)),
            _ => {}
        }
    }
    Ok(Exported { written, missing: tables.missing })
}

/// Writes beside the file and renames, so that a reader sees the old one or the new one.
fn write(
    path: &Path,
    name: &str,
    frame: &mut DataFrame,
    metadata: &[(&str, &str)],
) -> Result<(), FrameError> {
    let partial = path.with_extension("parquet.partial");
    let file = File::create(&partial).map_err(FrameError::io(&partial))?;
    let metadata = metadata.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    ParquetWriter::new(&file)
        .with_key_value_metadata(Some(KeyValueMetadata::from_static(metadata)))
        .finish(frame)
        .map_err(FrameError::frame(name))?;
    file.sync_all().and_then(|()| fs::rename(&partial, path)).map_err(FrameError::io(path))
}
