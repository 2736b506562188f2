//! The gate: what passes, what fails, and in which order it is told.

#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use common::fixtures;
use kbt_sass::outcome::{LocalMemory, MetricsOutcome};
use kbt_sass::{GateRule, MeasureOptions, Tolerance, gate, measure, parse};

fn text(name: &str) -> String {
    std::fs::read_to_string(fixtures().join("listings").join(format!("{name}.sm_90a.sass"))).unwrap()
}

fn metrics(text: &str) -> MetricsOutcome {
    measure(&parse(text.as_bytes()).unwrap(), MeasureOptions::default())
}

#[test]
fn the_same_code_passes_and_a_new_function_is_no_failure() {
    let now = metrics(&text("forms"));
    assert!(gate(&now, &now, &Tolerance::default()).passes());
    let mut less = now.clone();
    let taken = less.functions.remove(0);
    let report = gate(&less, &now, &Tolerance::default());
    assert!(report.passes());
    assert_eq!(report.new_functions, [taken.name]);
    let report = gate(&now, &less, &Tolerance::default());
    assert_eq!(report.findings[0].rule, GateRule::Missing);
}

#[test]
fn spills_come_first_and_tolerances_are_honoured() {
    let old = text("spilling");
    let now = metrics(&old);
    let mut clean = now.clone();
    for function in &mut clean.functions {
        function.local_memory = LocalMemory::default();
        function.loops.iter_mut().for_each(|l| l.local_memory = LocalMemory::default());
        function.interleave.transitions += 100;
        function.interleave.possible += 200;
    }
    let report = gate(&clean, &now, &Tolerance::default());
    let rules: Vec<_> = report.findings.iter().map(|f| f.rule).collect();
    assert!(rules.is_sorted(), "{rules:?}");
    assert_eq!(rules[0], GateRule::Spills);
    for rule in [GateRule::LocalArray, GateRule::Stack, GateRule::Interleave] {
        assert!(rules.contains(&rule), "{rule:?}: {rules:?}");
    }
    let shown = report.render_text();
    assert!(shown.lines().next().unwrap().contains("spill"), "{shown}");
    assert!(shown.contains("more findings"), "three are shown: {shown}");
    let lenient = Tolerance {
        spill_bytes: 10_000,
        stack_bytes: 10_000,
        local_arrays: true,
        transitions_percent: 100.0,
        ..Tolerance::default()
    };
    assert!(gate(&clean, &now, &lenient).passes());
    let ignoring =
        Tolerance { ignore: vec!["spilling".into(), "local_array".into()], ..Tolerance::default() };
    assert!(gate(&clean, &now, &ignoring).passes());
}

#[test]
fn an_instruction_more_in_a_hundred_passes_and_ten_fail() {
    let old = text("forms");
    let baseline = metrics(&old);
    let mut now = baseline.clone();
    let function = now.functions.iter_mut().find(|f| f.name == "softmax_chunked").unwrap();
    function.instructions += 1;
    assert!(gate(&baseline, &now, &Tolerance::default()).passes());
    now.functions.iter_mut().find(|f| f.name == "softmax_chunked").unwrap().instructions += 9;
    let report = gate(&baseline, &now, &Tolerance::default());
    assert_eq!(report.findings.len(), 1);
    assert!(report.findings[0].message.contains("instructions 87 -> 97"), "{report:?}");
}

#[test]
fn tolerances_are_read_from_part_of_a_file_and_unknown_ones_refused() {
    let some: Tolerance = serde_json::from_str(r#"{"spill_bytes": 8}"#).unwrap();
    assert_eq!(some, Tolerance { spill_bytes: 8, ..Tolerance::default() });
    assert!(serde_json::from_str::<Tolerance>(r#"{"spil_bytes": 8}"#).is_err());
}

#[test]
fn a_loop_that_is_gone_is_told_and_can_be_allowed() {
    let baseline = metrics(&text("forms"));
    let mut now = baseline.clone();
    let function = now.functions.iter_mut().find(|f| !f.loops.is_empty()).unwrap();
    let gone = function.loops.remove(0).name;
    let report = gate(&baseline, &now, &Tolerance::default());
    assert_eq!(report.findings[0].rule, GateRule::Structure);
    assert!(report.findings[0].place.ends_with(&gone), "{report:?}");
    assert!(gate(&baseline, &now, &Tolerance { structure: true, ..Tolerance::default() }).passes());
}

#[test]
fn the_three_lines_shown_are_of_three_rules_where_there_are_as_many() {
    let now = metrics(&text("spilling"));
    let mut clean = now.clone();
    for function in &mut clean.functions {
        function.local_memory = LocalMemory::default();
        function.loops.iter_mut().for_each(|l| l.local_memory = LocalMemory::default());
        function.interleave.transitions += 100;
        function.interleave.possible += 200;
    }
    let report = gate(&clean, &now, &Tolerance::default());
    let rules: Vec<_> = report.most_telling().iter().map(|f| f.rule).collect();
    assert_eq!(rules, [GateRule::Spills, GateRule::LocalArray, GateRule::Stack]);
    assert!(report.findings.iter().filter(|f| f.rule == GateRule::Spills).count() > 1);
}
