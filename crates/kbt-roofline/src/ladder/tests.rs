//! What later steps do to the matrix.

use super::*;
use crate::outcome::CheckStatus;
use crate::{Ceilings, FactSheet, part, triage};
use kbt_evidence::Provenance;

fn triaged() -> TriageOutcome {
    triaged_with("", "")
}

/// The sheet with one thing otherwise.
fn triaged_with(from: &str, to: &str) -> TriageOutcome {
    let text = include_str!("../../../../fixtures/facts/attention-without-overlap.yaml");
    let sheet = FactSheet::from_yaml(&text.replacen(from, to, 1), "f.yaml").unwrap();
    let device = sheet.device.as_ref().and_then(|d| d.name.clone()).unwrap();
    triage(&sheet, Some(&Ceilings::published(part(&device).unwrap())), &[]).unwrap()
}

fn measured(class: FixClass, standing: Ruled, step: Step) -> Verdict {
    let provenance = Provenance::measured("kbt tune", "NVIDIA H200", "2026-11-30");
    let figure = Figure::new("share", 0.4, Unit::Ratio, provenance);
    Verdict::new(class, standing, step, "as measured")
        .with(Evidence::supports("as measured", vec![figure]))
        .next("do it")
}

#[test]
fn a_step_that_rules_a_class_out_by_measurement_takes_its_experiments_off_for_good() {
    let before = triaged();
    assert_eq!(before.evidence[0].candidate, "no_overlap");
    let out = measured(FixClass::TensorThroughput, Ruled::RuledOut, Step::Trace);
    let after = before.with_ladder(&[out]);
    let row = after.evidence.iter().find(|r| r.candidate == "no_overlap").unwrap();
    assert_eq!(row.standing, Standing::Barred);
    assert!(row.against[0].text.starts_with("step 2 (trace)"), "{}", row.against[0].text);
    assert_eq!(row.against[0].figures.len(), 1);
    assert!(!answers(FixClass::TensorThroughput).contains(&after.evidence[0].class));
    assert!(after.experiments.iter().all(|e| e.candidate != "no_overlap"));
    assert!(after.order.iter().all(|s| !s.action.starts_with("no_overlap:")));
}

#[test]
fn what_a_step_recommends_comes_first_even_where_the_triage_had_no_row_for_it() {
    let before = triaged();
    assert!(before.evidence.iter().all(|r| r.class != BottleneckClass::Synchronisation));
    let split = measured(FixClass::HandoffSplit, Ruled::Recommended, Step::Handoff);
    let after = before.with_ladder(std::slice::from_ref(&split));
    assert_eq!(after.evidence[0].class, BottleneckClass::Synchronisation);
    assert_eq!(after.evidence[0].standing, Standing::Supported);
    let p1: Vec<&str> =
        after.order.iter().filter(|s| s.priority == Priority::P1).map(|s| s.action.as_str()).collect();
    assert_eq!(p1, ["do it"], "a measured change comes before what is still an experiment");
    let said = after.outputs.unwrap().conclusion;
    assert!(said.contains("step 5 (handoff) recommends"), "{said}");
    // The rest stays in the triage's order.
    let rest: Vec<_> = after.evidence[1..].iter().map(|r| &r.candidate).collect();
    assert_eq!(rest, before.evidence.iter().map(|r| &r.candidate).collect::<Vec<_>>());
}

/// What the text gives as the next step.
fn next_in_text(outcome: &TriageOutcome) -> String {
    let text = outcome.render_text().split_whitespace().collect::<Vec<_>>().join(" ");
    text.split(" next ").nth(1).unwrap().to_owned()
}

#[test]
fn the_text_names_what_the_order_puts_first() {
    let before = triaged();
    assert!(next_in_text(&before).starts_with(&before.experiments[0].factor));
    // With experiments left, and with none.
    let mut none = before.clone();
    none.experiments.clear();
    none.order.retain(|s| s.priority == Priority::P0);
    for before in [before, none] {
        let split = measured(FixClass::HandoffSplit, Ruled::Recommended, Step::Handoff);
        let after = before.with_ladder(&[split]);
        let p1: Vec<_> = after.order.iter().filter(|s| s.priority == Priority::P1).collect();
        assert_eq!(p1.len(), 1, "{p1:?}");
        assert!(next_in_text(&after).starts_with(&format!("{} {}", p1[0].action, p1[0].why)));
        let left = after.experiments.first().map(|e| e.factor.clone());
        let told = after.outputs.unwrap().validation.experiment;
        assert!(told.starts_with(&left.unwrap_or_else(|| "do it: ".to_owned())), "{told}");
    }
}

#[test]
fn no_measurement_is_asked_for_that_could_only_speak_for_a_class_that_is_out() {
    let mut before = triaged();
    before.experiments.clear();
    before.order.retain(|s| s.priority == Priority::P0);
    before.evidence.retain(|r| r.class == BottleneckClass::Overlap);
    for check in &mut before.checks {
        check.status = if check.id == "no_overlap" { CheckStatus::NotEvaluated } else { CheckStatus::Clear };
        check.needed = vec!["a figure of overlap".to_owned()];
    }
    let asked = |o: &TriageOutcome| o.next().action;
    before.evidence[0].standing = Standing::Unlikely;
    assert_eq!(asked(&before), "measure a figure of overlap");
    let out = measured(FixClass::Reorder, Ruled::RuledOut, Step::Schedule);
    let after = before.with_ladder(&[out]);
    assert_eq!(after.evidence[0].standing, Standing::Barred);
    let p1 = after.order.iter().find(|s| s.priority == Priority::P1).unwrap();
    assert_eq!(p1.action, "time the call again, with its spread");
}

#[test]
fn an_open_verdict_says_what_is_needed_and_one_that_could_not_tell_says_nothing() {
    let before = triaged();
    let open =
        Verdict::new(FixClass::InstructionChoice, Ruled::Open, Step::Rates, "may help").next("time a mix");
    let after = before.with_ladder(std::slice::from_ref(&open));
    let row = after.evidence.iter().find(|r| r.class == BottleneckClass::InstructionPipe).unwrap();
    let left = "step 1 (rates) leaves it open: may help; time a mix";
    assert!(row.needed.iter().any(|n| n == left), "{:?}", row.needed);
    let refused = measured(FixClass::InstructionChoice, Ruled::Refused, Step::Rates);
    let own = measured(FixClass::TensorThroughput, Ruled::RuledOut, Step::Triage);
    assert_eq!(before.with_ladder(&[refused, own]), before);
}

#[test]
fn what_an_open_verdict_measured_is_evidence_where_it_can_only_mean_one_class() {
    let before = triaged();
    let open = |class| measured(class, Ruled::Open, Step::Rates).with(Evidence::against("a mix", vec![]));
    let after = before.with_ladder(&[open(FixClass::InstructionChoice)]);
    let row = after.evidence.iter().find(|r| r.class == BottleneckClass::InstructionPipe).unwrap();
    let last = row.supports.last().unwrap();
    assert_eq!((last.text.as_str(), last.figures.len()), ("step 1 (rates) leaves it open: as measured", 1));
    assert_eq!(row.against.last().unwrap().text, "step 1 (rates): a mix");
    assert_eq!(row.standing, Standing::Contested);
    assert!(row.needed.iter().any(|n| n == "step 1 (rates): do it"), "{:?}", row.needed);
    // Another launch answers several bottlenecks: which one is meant is not known.
    let after = before.with_ladder(&[open(FixClass::LaunchShape)]);
    for (old, new) in before.evidence.iter().zip(&after.evidence) {
        assert_eq!((&old.supports, &old.against, old.standing), (&new.supports, &new.against, new.standing));
    }
    let row = after.evidence.iter().find(|r| answers(FixClass::LaunchShape).contains(&r.class)).unwrap();
    let left = "step 1 (rates) leaves it open: as measured; do it";
    assert!(row.needed.iter().any(|n| n == left), "{:?}", row.needed);
}

#[test]
fn what_a_step_measured_is_no_longer_advised() {
    let mut before = triaged();
    let first = &mut before.evidence[0];
    first.class = BottleneckClass::RoleBalance;
    first.needed = vec![format!("{} (`kbt trace stats`)", Signal::RoleBusy.meaning()), "another".into()];
    let advised = |o: &TriageOutcome| {
        let row = o.evidence.iter().find(|r| r.class == BottleneckClass::RoleBalance).unwrap();
        assert!(row.needed.iter().any(|n| n == "another"));
        row.needed.iter().any(|n| n.contains("kbt trace stats"))
    };
    assert!(advised(&before));
    let by = |step| measured(FixClass::RoleBalance, Ruled::Open, step);
    assert!(!advised(&before.with_ladder(&[by(Step::Trace)])));
    assert!(advised(&before.with_ladder(&[by(Step::Schedule)])), "another step has not looked");
    let empty = Verdict::new(FixClass::RoleBalance, Ruled::Open, Step::Trace, "no trace");
    assert!(advised(&before.with_ladder(&[empty])), "nothing was found");
}

#[test]
fn a_wrong_result_comes_before_everything() {
    let wrong = measured(FixClass::Correctness, Ruled::Recommended, Step::Validate);
    let after = triaged().with_ladder(&[wrong]);
    assert_eq!((after.order[0].priority, after.order[0].action.as_str()), (Priority::P0, "do it"));
}

fn handoff(lost_percent: f64) -> Verdict {
    let provenance = Provenance::measured("kbt tune", "NVIDIA H200", "2026-11-30");
    let name = "step lost at the handoff by the roles that set the pace";
    let lost = Figure::new(name, lost_percent, Unit::Percent, provenance);
    Verdict::new(FixClass::HandoffSplit, Ruled::Open, Step::Trace, "as traced")
        .with(Evidence::supports("as traced", vec![lost]))
}

#[test]
fn roles_that_hardly_wait_at_the_handoff_speak_against_another_split_of_it() {
    let mut before = triaged();
    before.evidence.push(new_row(candidates::spec("synchronisation").unwrap()));
    let row = |lost| {
        let after = before.with_ladder(&[handoff(lost)]);
        after.evidence.into_iter().find(|r| r.candidate == "synchronisation").unwrap()
    };
    let little = row(0.4);
    assert_eq!((little.supports.len(), little.standing), (0, Standing::Unlikely));
    assert_eq!(little.against[0].text, "step 2 (trace): as traced");
    let much = row(9.0);
    assert_eq!((much.against.len(), much.standing), (0, Standing::Supported));
}

#[test]
fn the_roles_of_a_trace_answer_the_check_that_asks_for_them() {
    let before = triaged_with("warp_specialized: false", "warp_specialized: true");
    let check = |o: &TriageOutcome| o.checks.iter().find(|c| c.id == "warp_roles").unwrap().clone();
    let asked =
        |o: &TriageOutcome| o.evidence.iter().flat_map(|r| &r.needed).any(|n| n.contains("kbt trace stats"));
    let role = |name: &str, busy| {
        Figure::new(name, busy, Unit::Ratio, Provenance::measured("kbt trace", "NVIDIA H200", "2026-11-30"))
    };
    assert!(asked(&before));
    let waiting = before.with_roles(&[role("load", 0.2), role("softmax", 0.6)]);
    assert_eq!(check(&waiting).status, CheckStatus::Fired);
    assert!(
        check(&waiting).finding.contains("the busiest warp role is busy 60 %"),
        "{}",
        check(&waiting).finding
    );
    assert!(!asked(&waiting));
    let row = waiting.evidence.iter().find(|r| r.candidate == "role_imbalance").unwrap();
    assert!((row.share.as_ref().unwrap().value - 0.4).abs() < 1e-9);
    assert_eq!(row.standing, Standing::Supported);
    let busy = before.with_roles(&[role("load", 0.2), role("softmax", 0.97)]);
    let row = busy.evidence.iter().find(|r| r.candidate == "role_imbalance");
    assert!(row.is_none_or(|r| r.supports.is_empty() && !r.against.is_empty()), "{row:?}");
    let read = |o: &TriageOutcome| {
        check(o).conditions.iter().flatten().any(|t| t.signal == "busiest_role" && t.read.is_some())
    };
    assert!(read(&busy) && !read(&before));
    assert_eq!(before.with_roles(&[]), before);
}

#[test]
fn an_experiment_on_the_roles_predicts_from_the_traced_share_or_goes() {
    let before = triaged_with("warp_specialized: false", "warp_specialized: true");
    let of = |o: &TriageOutcome| o.experiments.iter().find(|e| e.candidate == "role_imbalance").cloned();
    let role = |busy| {
        Figure::new("mma", busy, Unit::Ratio, Provenance::measured("kbt trace", "NVIDIA H200", "2026-11-30"))
    };
    let untraced = of(&before).unwrap();
    let us = before.measured_us().unwrap();
    // Of the traced share a half goes.
    let waiting = before.with_roles(&[role(0.7)]);
    let traced = of(&waiting).unwrap();
    assert!(
        (traced.predicted.value / us - 0.85).abs() < 1e-6,
        "{} against {}",
        traced.prediction,
        untraced.prediction
    );
    assert!(traced.predicted.value > untraced.predicted.value);
    assert!(waiting.order.iter().all(|s| !s.why.contains(&untraced.prediction)), "{:?}", waiting.order);
    assert!(waiting.order.iter().any(|s| s.why.contains(&traced.prediction)));
    // What the trace refutes predicts nothing, whatever a later step leaves open.
    let busy = before.with_roles(&[role(0.977)]);
    let open = measured(FixClass::RoleBalance, Ruled::Open, Step::Trace);
    for after in [busy.clone(), busy.with_ladder(&[open])] {
        assert!(of(&after).is_none());
        assert!(!after.render_markdown().contains(&untraced.prediction), "{}", after.render_markdown());
        assert!(after.order.iter().all(|s| !s.action.starts_with("role_imbalance")));
    }
    assert_eq!(busy.order.iter().filter(|s| s.priority == Priority::P1).count(), 1);
}
