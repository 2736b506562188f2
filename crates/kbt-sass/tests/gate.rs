//! The gate: what passes, what fails, and in which order it is told.

#![allow(clippy::unwrap_used, reason = "test helpers")]

mod common;

use common::fixtures;
use kbt_sass::outcome::{LocalMemory, MetricsOutcome};
use kbt_sass::{GateRule, LintRule, MeasureOptions, Tolerance, gate, lint, measure, parse};

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
fn lint_tells_spills_arrays_and_indices_apart_and_finds_nothing_in_clean_code() {
    let rules = |name| {
        let found = lint(&parse(text(name).as_bytes()).unwrap());
        found.into_iter().map(|f| (f.place.split(' ').next().unwrap().to_owned(), f.rule)).collect::<Vec<_>>()
    };
    assert_eq!(rules("forms"), []);
    let found = rules("spilling");
    let has = |function: &str, rule| found.contains(&(function.to_owned(), rule));
    assert!(has("spilling", LintRule::SpillInLoop) && has("spilling", LintRule::Spill), "{found:?}");
    assert!(has("local_array", LintRule::LocalArrayInLoop) && has("local_array", LintRule::DynamicIndex));
    assert!(!has("local_array", LintRule::Spill) && !has("spilling", LintRule::DynamicIndex), "{found:?}");
}

#[test]
fn wgmma_that_is_waited_for_one_by_one_is_found() {
    let mma = "HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], R24, gsb0";
    let wait = "WARPGROUP.DEPBAR.LE gsb0, 0x0";
    let check = |body: &[&str], expect: bool| {
        let mut text = "\t.target\tsm_90a\n\t.section\t.text.f,\"ax\",@progbits\n".to_owned();
        for (n, line) in body.iter().chain(&["@P0 BRA 0x0", "EXIT"]).enumerate() {
            text += &format!("/*{:04x}*/ {line} ;\n", n * 16);
        }
        let found = lint(&parse(text.as_bytes()).unwrap());
        assert_eq!(found.iter().any(|f| f.rule == LintRule::WgmmaSerialised), expect, "{body:?}: {found:?}");
    };
    check(&[mma, wait, mma, wait], true);
    check(&[mma, mma, wait], false);
    check(&[mma, wait], false);
}
