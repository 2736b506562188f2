//! The public cases of fixtures/facts: each file states its known answer in a comment, and the triage must put that
//! class first.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

use kbt_roofline::outcome::{Call, Status};
use kbt_roofline::{Ceilings, ExperimentResult, FactSheet, TriageOutcome, part, triage};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/facts")
}

fn case(name: &str) -> (FactSheet, Ceilings, BTreeMap<String, String>) {
    let path = folder().join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let answer = text
        .lines()
        .find_map(|l| l.strip_prefix("# answer: "))
        .unwrap()
        .split_whitespace()
        .map(|pair| pair.split_once('=').unwrap())
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    let sheet = FactSheet::from_yaml(&text, name).unwrap();
    let device = sheet.device.as_ref().and_then(|d| d.name.clone());
    // A case whose source names no device takes any: its answer may not depend on the ceilings.
    let device = device.as_deref().unwrap_or("A100 SXM 80GB");
    (sheet, Ceilings::published(part(device).unwrap()), answer)
}

fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.ends_with(".yaml"))
        .collect();
    names.sort();
    names
}

fn run(name: &str) -> TriageOutcome {
    let (sheet, ceilings, _) = case(name);
    triage(&sheet, Some(&ceilings), &[]).unwrap()
}

#[test]
fn the_right_class_comes_first_in_every_public_case() {
    let names = names();
    assert!(names.len() >= 10, "{names:?}");
    let mut wrong = Vec::new();
    for name in &names {
        let (_, _, answer) = case(name);
        let outcome = run(name);
        let first = &outcome.evidence[0];
        let said = [
            ("class", first.class.as_str().to_owned()),
            ("candidate", first.candidate.clone()),
            ("call", outcome.call.unwrap().as_str().to_owned()),
        ];
        for (key, said) in said {
            if answer.get(key).is_some_and(|a| *a != said) {
                wrong.push(format!(
                    "{name}: {key} is {said}, known answer {}\n{}",
                    answer[key],
                    outcome.render_text()
                ));
            }
        }
        assert_eq!(outcome.first_class(), Some(first.class), "{name}: the first candidate has evidence");
        assert_eq!(outcome.contradictions.is_empty(), !answer.contains_key("contradiction"), "{name}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_case_has_three_classes_an_experiment_with_a_number_and_all_five_outputs() {
    for name in names() {
        let outcome = run(&name);
        let mut classes: Vec<_> = outcome.evidence.iter().map(|r| r.class).collect();
        classes.sort();
        classes.dedup();
        assert!(classes.len() >= 3, "{name}: {classes:?}");
        assert_eq!(outcome.checks.len(), 19);
        let e = &outcome.experiments[0];
        assert_eq!(e.candidate, outcome.evidence[0].candidate);
        assert!(e.predicted.value < e.falsified_at.value, "{name}");
        let o = outcome.outputs.as_ref().unwrap();
        assert!(!o.conclusion.is_empty() && !o.artifact.rows.is_empty() && !o.risks.is_empty());
        assert!(o.conclusion.contains(&outcome.evidence[0].title), "{name}: {}", o.conclusion);
        // Published ceilings or times: an order of magnitude, said so.
        assert!(outcome.order_of_magnitude && o.conclusion.contains("order of magnitude"), "{name}");
        for s in &outcome.order {
            assert!(!s.action.is_empty() && !s.why.is_empty());
        }
        assert!(outcome.order.windows(2).all(|w| w[0].priority <= w[1].priority));
        let text = outcome.render_text();
        assert!(text.lines().count() <= 60, "{name}: {} lines\n{text}", text.lines().count());
        assert!(outcome.render_markdown().contains("## Evidence matrix"));
    }
}

#[test]
fn a_theoretical_peak_is_never_promised() {
    for name in names() {
        let outcome = run(&name);
        // A change that keeps the work cannot be predicted to beat the work's own bounds.
        let roofs =
            outcome.bounds.iter().filter(|b| matches!(b.resource, kbt_roofline::outcome::Resource::Compute));
        let bound = roofs.map(|b| b.time.value).fold(0.0, f64::max);
        for e in outcome.experiments.iter().filter(|e| e.candidate != "arithmetic_roof") {
            assert!(e.predicted.value > bound, "{name} {}: {} {bound}", e.id, e.predicted.value);
        }
        assert!(outcome.outputs.unwrap().risks.iter().any(|r| r.contains("no promise")), "{name}");
    }
}

#[test]
fn a_contradicted_experiment_bars_its_class_for_good() {
    let (sheet, ceilings, _) = case("gb300-nvfp4-gemm-m128.yaml");
    let stream_k = "schema: kbt.experiment/1\nexperiment: too_few_ctas\nobserved_us: 15.79\nbaseline_us: 15.14\nnote: stream-K\n";
    let result = (ExperimentResult::from_yaml(stream_k, "r.yaml").unwrap(), "r.yaml".to_owned());
    let outcome = triage(&sheet, Some(&ceilings), std::slice::from_ref(&result)).unwrap();
    let refuted = outcome.evidence.iter().find(|r| r.candidate == "too_few_ctas").unwrap();
    assert_eq!(refuted.standing.as_str(), "refuted");
    let class = refuted.class;
    assert_ne!(outcome.evidence[0].class, class);
    assert!(
        outcome.experiments.iter().all(|e| {
            outcome.evidence.iter().find(|r| r.candidate == e.candidate).unwrap().class != class
        })
    );
    // A second contradiction bars a second class, and the first stays barred.
    let next = outcome.experiments[0].clone();
    let second = ExperimentResult { experiment: next.id.clone(), observed_us: 13.1, ..result.0.clone() };
    let second = ExperimentResult { baseline_us: None, ..second };
    let again = triage(&sheet, Some(&ceilings), &[result, (second, "s.yaml".to_owned())]).unwrap();
    let barred: Vec<_> = again
        .evidence
        .iter()
        .filter(|r| r.candidate == "too_few_ctas" || r.candidate == next.candidate)
        .map(|r| r.class)
        .collect();
    assert_eq!(barred.len(), 2);
    for e in &again.experiments {
        let row = again.evidence.iter().find(|r| r.candidate == e.candidate).unwrap();
        assert!(!barred.contains(&row.class), "{}", e.id);
    }
}

#[test]
fn the_neighbours_of_a_contradicted_candidate_are_barred_with_it() {
    let (sheet, ceilings, _) = case("softmax-read-twice.yaml");
    let text = "experiment: redundant_traffic\nobserved_us: 8600\n";
    let result = (ExperimentResult::from_yaml(text, "r.yaml").unwrap(), "r.yaml".to_owned());
    let before = triage(&sheet, Some(&ceilings), &[]).unwrap();
    assert_eq!(before.evidence[1].candidate, "hbm_bandwidth");
    let after = triage(&sheet, Some(&ceilings), &[result]).unwrap();
    let neighbour = after.evidence.iter().find(|r| r.candidate == "hbm_bandwidth").unwrap();
    assert_eq!(neighbour.standing.as_str(), "barred");
    assert!(after.evidence[0].class != neighbour.class);
    assert!(after.experiments.iter().all(|e| e.candidate != "hbm_bandwidth"));
}

#[test]
fn a_confirmed_experiment_recommends_its_class_and_an_unknown_one_is_an_error() {
    let (sheet, ceilings, _) = case("launch-bound-chain.yaml");
    let text = "experiment: launch_overhead\nobserved_us: 70\n";
    let result = (ExperimentResult::from_yaml(text, "r.yaml").unwrap(), "r.yaml".to_owned());
    let outcome = triage(&sheet, Some(&ceilings), &[result]).unwrap();
    assert_eq!(outcome.evidence[0].standing.as_str(), "confirmed");
    let verdict =
        outcome.verdicts().into_iter().find(|v| v.class == kbt_evidence::FixClass::LaunchShape).unwrap();
    assert_eq!(verdict.standing, kbt_evidence::Standing::Recommended);
    let text = "experiment: magic\nobserved_us: 70\n";
    let result = (ExperimentResult::from_yaml(text, "r.yaml").unwrap(), "r.yaml".to_owned());
    let error = triage(&sheet, Some(&ceilings), &[result]).unwrap_err().to_string();
    assert!(error.starts_with("r.yaml") && error.contains("too_few_ctas"), "{error}");
}

#[test]
fn one_profiler_percentage_is_no_end_to_end_evidence() {
    // The same sheet with its percentage and no time: no diagnosis, whatever the profiler says.
    let (mut sheet, ceilings, _) = case("naive-sgemm-2048.yaml");
    sheet.timing = None;
    let outcome = triage(&sheet, Some(&ceilings), &[]).unwrap();
    assert_eq!((outcome.status, outcome.call), (Status::Initial, Some(Call::ComputeBound)));
    assert!(outcome.evidence.is_empty() && outcome.experiments.is_empty());
    // And with the time, 97 % of sm__throughput does not make it compute-bound.
    assert_eq!(run("naive-sgemm-2048.yaml").call, Some(Call::Neither));
}

#[test]
fn the_saxpy_contradictions_are_reported_not_clamped() {
    let outcome = run("saxpy-above-its-ceiling.yaml");
    let said: Vec<&str> = outcome.contradictions.iter().map(|c| c.what.as_str()).collect();
    assert!(said.iter().any(|s| s.contains("HBM bound") && s.contains("116 %")), "{said:?}");
    assert!(said.iter().any(|s| s.contains("as counted") && s.contains("102 %")), "{said:?}");
    assert!(said.iter().any(|s| s.contains("100.39")), "{said:?}");
}

#[test]
fn text_of_the_complete_sheet_reads_conclusion_first() {
    insta::assert_snapshot!(run("rmsnorm.yaml").render_text());
}

#[test]
fn markdown_of_the_gb300_case() {
    insta::assert_snapshot!(run("gb300-nvfp4-gemm-m128.yaml").render_markdown());
}

#[test]
fn a_name_forges_no_markdown() {
    let mut outcome = run("gb300-nvfp4-gemm-m128.yaml");
    outcome.name = "a|b *c* <d>".into();
    let text = outcome.render_markdown();
    assert!(text.starts_with("# Triage: a\\|b \\*c\\* \\<d>\n"), "{text}");
}
