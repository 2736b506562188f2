//! Parquet files: written, read back, replaced.

use crate::fixture::{Fixture, outcome};
use kbt_evidence::Step;
use kbt_frame::{Run, RunTables, export};
use polars::prelude::{DataFrame, ParquetReader, SerReader};
use std::fs::{self, File};
use std::path::Path;

fn read(path: &Path) -> DataFrame {
    ParquetReader::new(File::open(path).unwrap()).finish().unwrap()
}

#[test]
fn every_table_is_written_and_read_back_alike() {
    let written = Fixture::new().write();
    let exported = export(written.path(), None).unwrap();
    let tables = RunTables::read(&Run::read(written.path()).unwrap()).unwrap();
    assert_eq!(exported.written.len(), tables.tables.len() + 1);
    for table in &tables.tables {
        let path = written.path().join(format!("tables/{}.parquet", table.name));
        assert!(read(&path).equals_missing(&table.frame().unwrap()), "{}", table.name);
    }
    let figures = read(&written.path().join("tables/figures.parquet"));
    let expected: usize = tables.tables.iter().map(|t| t.figures.len()).sum();
    assert_eq!(figures.height(), expected);
    assert_eq!(figures.column("provenance_kind").unwrap().null_count(), 0);
    let names: Vec<_> =
        fs::read_dir(written.path().join("tables")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.iter().all(|n| n.to_string_lossy().ends_with(".parquet")), "{names:?}");
}

#[test]
fn a_file_says_what_the_run_was_asked_and_what_a_row_is() {
    let written = Fixture::new().write();
    export(written.path(), None).unwrap();
    let file = File::open(written.path().join("tables/roles.parquet")).unwrap();
    let metadata = ParquetReader::new(file).get_metadata().unwrap().key_value_metadata().clone().unwrap();
    let value = |key: &str| metadata.iter().find(|m| m.key == key).and_then(|m| m.value.clone()).unwrap();
    assert_eq!(value("kbt.table"), "a warp role");
    assert!(value("kbt.run").contains(r#""pv_mode":"fp8""#), "{}", value("kbt.run"));
}

#[test]
fn a_step_that_was_refused_leaves_tables_that_are_named_and_no_file_of_an_earlier_export() {
    let out = tempfile::tempdir().unwrap();
    export(Fixture::new().write().path(), Some(out.path())).unwrap();
    assert!(out.path().join("roles.parquet").exists());
    let mut fixture = Fixture::new().refuse(Step::Trace);
    fixture.steps.remove(&Step::Validate);
    fixture.profile = None;
    let exported = export(fixture.write().path(), Some(out.path())).unwrap();
    let lines: Vec<String> = exported.missing.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"));
    assert!(!out.path().join("roles.parquet").exists());
    assert!(out.path().join("sweep.parquet").exists());
}

#[test]
fn a_table_without_rows_keeps_its_columns() {
    let written = Fixture::new().set(Step::Rates, "/mixes", serde_json::json!([])).write();
    export(written.path(), None).unwrap();
    let mixes = read(&written.path().join("tables/mixes.parquet"));
    assert_eq!(mixes.height(), 0);
    assert!(mixes.column("lanes_per_clk_sm").unwrap().f64().is_ok());
}

#[test]
fn the_sweep_has_what_its_csv_has() {
    let written = Fixture::new().set(Step::Handoff, "/points/1/against", serde_json::json!(2)).set(
        Step::Handoff,
        "/points/1/integers/first_tiles",
        serde_json::json!(5),
    );
    let mut sweep: kbt_split::SplitOutcome = serde_json::from_value(outcome(Step::Handoff)).unwrap();
    sweep.points[1].against = Some(2);
    sweep.points[1].integers.as_mut().unwrap().first_tiles = 5;
    let written = written.write();
    export(written.path(), None).unwrap();
    let parquet = read(&written.path().join("tables/sweep.parquet"));
    let csv = sweep.to_csv();
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let rows: Vec<Vec<&str>> = lines.collect();
    assert_eq!(parquet.height(), rows.len());
    for (place, name) in names.iter().enumerate() {
        let column = match *name {
            "processes" => "processes_count".to_owned(),
            "low_ratio" | "high_ratio" => name.replace("ratio", "to_baseline_ratio"),
            knob if knob.starts_with("KBT_") => format!("knob_{knob}"),
            name => name.to_owned(),
        };
        let cells = parquet.column(&column).unwrap_or_else(|e| panic!("{name}: {e}; {:?}", parquet.schema()));
        for (row, fields) in rows.iter().enumerate() {
            assert_eq!(fields.len(), names.len(), "{fields:?}");
            let cell = cells.get(row).unwrap();
            let cell = cell.get_str().map_or_else(|| cell.to_string(), str::to_owned);
            let same = match (cell.parse::<f64>(), fields[place].parse::<f64>()) {
                (Ok(a), Ok(b)) => a == b,
                _ => cell == fields[place] || (cell == "null" && fields[place].is_empty()),
            };
            assert!(same, "{name} of row {row}: {cell} and {}", fields[place]);
        }
    }
}
