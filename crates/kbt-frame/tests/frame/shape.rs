//! That the layouts name the fields that the step crates write. A field that is renamed there fails here: the
//! fixture no longer reads, or a column stays empty.

use crate::fixture::{Fixture, outcome, profile};
use kbt_evidence::{Step, audit};
use kbt_frame::{Cells, Run, RunTables, Spread, Table};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The fixture is what the type writes, field for field.
fn same<T: DeserializeOwned + Serialize>(step: Step) {
    let value = outcome(step);
    assert_eq!(audit::uncovered_numbers(&value), Vec::<String>::new(), "{step}");
    let typed: T = serde_json::from_value(value.clone()).unwrap_or_else(|e| panic!("{step}: {e}"));
    let written = without_null(serde_json::to_value(&typed).unwrap());
    assert_eq!(written, without_null(value), "{step}");
}

/// Absent and null are the same to every reader.
fn without_null(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            map.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (k, without_null(v))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_null).collect(),
        other => other,
    }
}

#[test]
fn the_fixture_has_the_shapes_that_the_step_crates_write() {
    same::<kbt_roofline::TriageOutcome>(Step::Triage);
    same::<kbt_microbench::outcome::RatesOutcome>(Step::Rates);
    same::<kbt_trace::outcome::TraceOutcome>(Step::Trace);
    same::<kbt_sass::outcome::ScheduleOutcome>(Step::Schedule);
    same::<kbt_quant::outcome::AlgebraOutcome>(Step::Algebra);
    same::<kbt_split::SplitOutcome>(Step::Handoff);
    same::<kbt_validate::outcome::ValidateOutcome>(Step::Validate);
    kbt_device::DeviceProfile::from_yaml(profile(), "profile.yaml").unwrap();
}

/// A whole run and one with a refused step: between them they have everything.
fn tables() -> [RunTables; 2] {
    [Fixture::new(), Fixture::new().refuse(Step::Trace)].map(|f| {
        let written = f.write();
        RunTables::read(&Run::read(written.path()).unwrap()).unwrap()
    })
}

#[test]
fn every_column_of_every_table_is_filled_by_a_whole_run() {
    let [whole, refused] = tables();
    assert_eq!(whole.missing, []);
    let mut empty = Vec::new();
    for table in &whole.tables {
        let other = refused.table(table.name);
        // What is not measured has no device, and only what is published or measured has a date.
        let may_lack = |name: &str| name.ends_with("provenance_device") || name.ends_with("provenance_date");
        for column in table.columns.iter().filter(|c| !may_lack(&c.name)) {
            let filled = |t: &Table| t.column(&column.name).is_some_and(any);
            if !filled(table) && !other.is_some_and(filled) {
                empty.push(format!("{}.{}", table.name, column.name));
            }
        }
    }
    assert_eq!(empty, Vec::<String>::new());
}

fn any(cells: &Cells) -> bool {
    match cells {
        Cells::Text(cells) => cells.iter().any(Option::is_some),
        Cells::Number(cells) => cells.iter().any(Option::is_some),
        Cells::Count(cells) => cells.iter().any(Option::is_some),
        Cells::Flag(cells) => cells.iter().any(Option::is_some),
    }
}

#[test]
fn names_are_told_apart_and_columns_have_a_cell_for_each_row() {
    let [whole, _] = tables();
    let names: BTreeSet<_> = whole.tables.iter().map(|t| t.name).collect();
    assert_eq!(names.len(), whole.tables.len());
    for table in &whole.tables {
        let columns: BTreeSet<_> = table.columns.iter().map(|c| &c.name).collect();
        assert_eq!(columns.len(), table.columns.len(), "{}", table.name);
        assert_eq!(table.frame().unwrap().height(), table.rows(), "{}", table.name);
        let keys: BTreeSet<_> = table.keys.iter().collect();
        assert_eq!(keys.len(), table.rows(), "{}", table.name);
    }
}

/// The text of a column's cell.
fn cell(tables: &RunTables, table: &str, key: &str, column: &str) -> String {
    let table = tables.table(table).unwrap();
    let row = table.keys.iter().position(|k| k == key).unwrap_or_else(|| panic!("{:?}", table.keys));
    match table.column(column).unwrap_or_else(|| panic!("no column {column}")) {
        Cells::Text(cells) => cells[row].clone().unwrap_or_default(),
        Cells::Number(cells) => cells[row].map_or(String::new(), |v| v.to_string()),
        Cells::Count(cells) => cells[row].map_or(String::new(), |v| v.to_string()),
        Cells::Flag(cells) => cells[row].map_or(String::new(), |v| v.to_string()),
    }
}

#[test]
fn figures_stand_in_their_columns_with_the_provenance_that_covers_them() {
    let [whole, _] = tables();
    for (table, key, column, expect) in [
        ("rates", "ex2.approx.ftz.f32", "lanes_per_clk_sm", "16"),
        ("rates", "ex2.approx.ftz.f32", "spread_percent", "0.5"),
        ("rates", "fma.rn.f32", "spread_percent", ""),
        ("rates", "ex2.approx.ftz.f32", "provenance_device", "Test GPU"),
        ("mixes", "1 ex2.approx.ftz.f32 + 4 fma.rn.f32", "lanes_per_clk_sm", "79"),
        ("ceilings", "launch_latency", "seconds", "0.000002"),
        ("roles", "Softmax0", "period_cycles", "2000"),
        ("roles", "Softmax0", "low_period_cycles", "1800"),
        ("roles", "Load", "period_cycles", ""),
        ("waits", "Softmax0 / s_full", "released_by", "Load, MMA"),
        ("waits", "Softmax0 / s_full", "handoff", "false"),
        ("trace", "", "critical_roles", "Softmax0"),
        ("trace", "", "clean_provenance_by", "time over steps"),
        ("schedule", "chunk by chunk", "transitions", "49"),
        ("schedule", "chunk by chunk", "region", "loop:2"),
        ("schedule", "chunk by chunk", "provenance_kind", "mined"),
        ("schedule", "chunk by chunk", "bound_provenance_by", "counts over rates"),
        ("schedule", "chunk by chunk", "time_provenance_kind", "measured"),
        ("schedule", "all exp2 first", "time_provenance_kind", ""),
        ("schedule_pipes", "chunk by chunk / xu", "instructions", "64"),
        ("schedule_runs", "chunk by chunk / 1", "unit", "F2FP"),
        ("schedule_comparisons", "chunk by chunk / all exp2 first", "spills_change", "-2"),
        ("algebra_candidates", "0", "rules", "exp2-of-sum"),
        ("algebra", "", "bound_provenance_by", "a relaxation"),
        ("sweep", "KBT_PV_MODE=fp8 KBT_SPLIT=1/2", "time_us", "880"),
        ("sweep", "KBT_PV_MODE=fp8 KBT_SPLIT=1/2", "knob_KBT_SPLIT", "1/2"),
        ("sweep", "KBT_PV_MODE=fp8 KBT_SPLIT=1/4", "status", "wrong"),
        ("sweep", "KBT_PV_MODE=fp8 KBT_SPLIT=1/4", "why", "`o` differs"),
        ("sweep_model", "3 / 4 / 6 / 8", "period_cycles", "2000"),
        ("variants", "log2", "finding", "same"),
        ("validation", "log2 / o", "differing_count", "3"),
        ("probes", "log2 / one-hot", "passed", "true"),
        ("verdicts", "handoff / reorder", "standing", "ruled_out"),
        ("evidence", "handoff / reorder / for / it takes that long / time", "unit", "us"),
    ] {
        assert_eq!(cell(&whole, table, key, column), expect, "{table}, {key}, {column}");
    }
}

#[test]
fn each_figure_has_its_spread_or_none() {
    let [whole, _] = tables();
    let spread = |table: &str, key: &str, column: &str| {
        let table = whole.table(table).unwrap();
        let of = |c: &&kbt_frame::Cell| c.column == column && table.keys[c.row] == key;
        let cell = table.figures.iter().find(of).unwrap();
        (cell.spread.clone(), cell.spread_words().unwrap_or_default())
    };
    let relative = Spread::Relative { percent: 0.5, what: "p10 to p90 of repeats".to_owned() };
    assert_eq!(spread("rates", "ex2.approx.ftz.f32", "lanes_per_clk_sm").0, relative);
    assert_eq!(spread("rates", "ex2.approx.ftz.f32", "latency_clk").0, Spread::Unknown);
    assert_eq!(spread("schedule", "chunk by chunk", "time_us").1, "least to most of 4 processes");
    assert_eq!(spread("roles", "Softmax0", "busy_cycles").0, Spread::Interval);
    assert_eq!(spread("validation", "log2 / o", "relative_rms_error").1, "repeated runs gave the same bits");
}

#[test]
fn fields_that_are_new_change_nothing() {
    let mut fixture = Fixture::new();
    for file in fixture.steps.values_mut() {
        file["new"] = json!([1, 2]);
        file["outcome"]["new"] = json!({"x": 1});
    }
    fixture.run["new"] = json!("x");
    fixture.profile = Some(format!("{}new: 5\n", profile()));
    let written = fixture.write();
    let [whole, _] = tables();
    assert_eq!(RunTables::read(&Run::read(written.path()).unwrap()).unwrap(), whole);
}

#[test]
fn rows_that_nothing_tells_apart_are_numbered() {
    let twice = Fixture::new().set(Step::Trace, "/roles/0/waits/1/on", json!("s_full")).write();
    let tables = RunTables::read(&Run::read(twice.path()).unwrap()).unwrap();
    assert_eq!(tables.table("waits").unwrap().keys, ["Softmax0 / s_full", "Softmax0 / s_full #2"]);
}
