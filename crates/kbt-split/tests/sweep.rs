//! Whole sweeps on a fake target: every ending of a point, the contract, the dedup, resuming, the verdict.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use kbt_evidence::{Provenance, Standing, audit};
use kbt_split::model::HandoffTimes;
use kbt_split::outcome::{PointStatus, RatioFigure, SplitOutcome};
use kbt_split::record::{CheckOutcome, Correctness, Ending};
use kbt_split::{
    Agreement, Choice, SameBytes, Space, Spec, Sweep, SweepError, WithoutHandoff, confirm_one, run_one,
};
use kbt_target::{
    FakeLauncher, Launch, LaunchRequest, Launcher, Report, Setting, Speed, Status, Target, TimingPolicy,
};
use std::path::Path;
use std::sync::Mutex;

const TARGET: &str = "schema: kbt.target/1\nname: fake\nrun: {command: [fake]}\nknobs:\n  \
    - {name: NUM, values: [1, 2, 3, 4, 6, 7], default: 1}\n  - {name: DEN, values: [2, 4, 8], default: 2}\n  \
    - {name: CHUNKS, values: [2, 4, 8], default: 4}\nconstraints: [NUM < DEN]\n\
    handoff: {num: NUM, den: DEN, chunks: CHUNKS, tiles: 8}\noutputs: [{name: o}]\n";

fn spec(text: &str, timing: TimingPolicy) -> Spec {
    let target = Target::from_yaml(text, "fake.yaml", Path::new("")).unwrap();
    let space = Space::new(&target, &Choice::default()).unwrap();
    Spec::new(target, space, timing)
}

fn policy() -> TimingPolicy {
    TimingPolicy { resamples: 200, ..TimingPolicy::default() }
}

/// The fake kernel: its time by the handoff, with a little noise that is the same every time.
struct Kernel {
    runs: Mutex<Vec<(Setting, bool)>>,
    time: fn(&Setting) -> f64,
}

impl Kernel {
    fn new(time: fn(&Setting) -> f64) -> Self {
        Self { runs: Mutex::new(Vec::new()), time }
    }

    fn of(&self, setting: &Setting) -> usize {
        self.runs.lock().unwrap().iter().filter(|(s, _)| s == setting).count()
    }
}

impl Launcher for Kernel {
    fn launch(&self, request: &LaunchRequest) -> Launch {
        let mut runs = self.runs.lock().unwrap();
        runs.push((request.setting.clone(), request.out.is_some()));
        let inputs = request.inputs.as_ref().unwrap();
        if request.out.is_some() && std::fs::read_dir(inputs).unwrap().next().is_none() {
            std::fs::write(inputs.join("q.safetensors"), "inputs").unwrap();
        }
        assert!(inputs.join("q.safetensors").exists(), "every run reads the saved inputs");
        if let Some(out) = &request.out {
            std::fs::write(out, "outputs").unwrap();
        }
        let noise = 1.0 + 0.001 * f64::from(u8::try_from(runs.len() * 7 % 5).unwrap());
        let report = Report {
            times_us: vec![(self.time)(&request.setting) * noise],
            device: Some("Fake GPU".into()),
            ..Report::default()
        };
        Launch { report, ..Launch::ended(Status::Ok) }
    }
}

fn knob(setting: &Setting, name: &str) -> f64 {
    setting.get(name).unwrap().parse().unwrap()
}

/// 3/4 is best at 0.8 of the time of 1/2; earlier is worse.
fn three_quarters_is_best(s: &Setting) -> f64 {
    let fraction = knob(s, "NUM") / knob(s, "DEN");
    100.0 * (1.0 + 0.8 * (fraction - 0.75).abs()) / 1.2
}

fn sweep(dir: &Path, spec: &Spec, launcher: &dyn Launcher, check: &dyn Correctness) -> SplitOutcome {
    Sweep::prepare(dir, spec.clone(), true, launcher, check).unwrap().run().unwrap()
}

#[test]
fn the_best_split_is_found_confirmed_and_recommended() {
    let folder = tempfile::tempdir().unwrap();
    let (spec, kernel) = (spec(TARGET, policy()), Kernel::new(three_quarters_is_best));
    let outcome = sweep(folder.path(), &spec, &kernel, &SameBytes);
    let best = &outcome.points[outcome.best.unwrap()];
    assert_eq!((best.setting.get("NUM"), best.setting.get("DEN")), (Some("3"), Some("4")), "{outcome}");
    let ratio = best.to_baseline.unwrap();
    assert!((ratio.ratio - 1.0 / 1.2).abs() < 0.01, "{ratio:?}");
    assert!(ratio.low_ratio.unwrap() < ratio.ratio && ratio.ratio < ratio.high_ratio.unwrap());
    let verdict = &outcome.verdicts()[0];
    assert_eq!(verdict.standing, Standing::Recommended, "{verdict:?}");
    assert!(verdict.is_measured());
    assert!(verdict.next.as_ref().unwrap().contains("DEN=4 NUM=3"), "{verdict:?}");
    assert!(outcome.points.iter().all(|p| p.check == Some(CheckOutcome::Bitwise)));
    let worst = &outcome.points[outcome.worst.unwrap()];
    assert!(worst.to_baseline.unwrap().ratio > 1.1, "{outcome}");
}

#[test]
fn what_the_contract_forbids_is_never_launched_and_no_kernel_runs_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (spec, kernel) = (spec(TARGET, policy()), Kernel::new(three_quarters_is_best));
    let outcome = sweep(folder.path(), &spec, &kernel, &SameBytes);
    assert!(
        outcome
            .forbidden
            .iter()
            .any(|f| f.setting.get("NUM") == Some("7") && f.setting.get("CHUNKS") == Some("4"))
    );
    for forbidden in &outcome.forbidden {
        assert_eq!(kernel.of(&forbidden.setting), 0);
    }
    for point in &spec.space.points {
        assert_eq!(
            kernel.runs.lock().unwrap().iter().filter(|(s, out)| s == &point.setting && *out).count(),
            1
        );
        assert!(point.merged.iter().all(|s| kernel.of(s) == 0));
    }
}

#[test]
fn a_flat_curve_rules_the_class_out_with_measured_evidence() {
    let folder = tempfile::tempdir().unwrap();
    let (spec, kernel) = (spec(TARGET, policy()), Kernel::new(|_| 100.0));
    let outcome = sweep(folder.path(), &spec, &kernel, &SameBytes);
    let verdict = &outcome.verdicts()[0];
    assert_eq!(verdict.standing, Standing::RuledOut, "{verdict:?}\n{outcome}");
    assert!(verdict.is_measured());
    assert!(outcome.headline().contains("no setting beats the baseline"), "{}", outcome.headline());
}

/// Each fraction ends in a way of its own.
fn troubled(request: &LaunchRequest) -> Launch {
    let s = &request.setting;
    let (num, den, chunks) = (s.get("NUM").unwrap(), s.get("DEN").unwrap(), s.get("CHUNKS").unwrap());
    let ended = match (num, den, chunks) {
        ("1", "4", "4") => Some(Status::Signal { signal: 11 }),
        ("3", "4", "4") => Some(Status::TimedOut { limit_s: 120.0 }),
        ("1", "4", "8") => Some(Status::Refused { reason: "not here".into() }),
        ("3", "4", "8") if request.needs_time => Some(Status::NoTime { looked_for: "lines".into() }),
        _ => None,
    };
    if let Some(out) = &request.out {
        let wrong = (num, den, chunks) == ("1", "8", "8");
        std::fs::write(out, if wrong { "wrong" } else { "right" }).unwrap();
    }
    ended.map_or_else(|| Launch::timed(vec![100.0]), Launch::ended)
}

#[test]
fn crash_hang_wrong_output_refusal_and_no_time_are_outcomes_of_the_point() {
    let folder = tempfile::tempdir().unwrap();
    let spec = spec(TARGET, policy());
    let outcome = sweep(folder.path(), &spec, &FakeLauncher(troubled), &SameBytes);
    let status = |num: &str, den: &str, chunks: &str| {
        let fits = |s: &Setting| {
            [("NUM", num), ("DEN", den), ("CHUNKS", chunks)].iter().all(|(k, v)| s.get(k) == Some(v))
        };
        let point = outcome.points.iter().find(|p| fits(&p.setting)).unwrap();
        (point.status.word(), point.status.why().unwrap_or_default().to_owned(), point.time_us)
    };
    assert_eq!(status("1", "4", "4"), ("failed", "killed by signal 11".into(), None));
    assert_eq!(status("3", "4", "4"), ("failed", "still running after 120 s, killed".into(), None));
    assert_eq!(status("1", "4", "8"), ("refused", "not here".into(), None));
    assert_eq!(status("3", "4", "8"), ("failed", "printed no time (lines) while timed".into(), None));
    let wrong = status("1", "8", "8");
    assert_eq!((wrong.0, wrong.2), ("wrong", None), "{wrong:?}");
    assert!(wrong.1.contains("first at byte 0"), "{wrong:?}");
    assert!(outcome.points.iter().filter(|p| p.status == PointStatus::Timed).count() > 3);
    let t4 = outcome.to_t4();
    let invalid =
        |word: &str| t4["results"].as_array().unwrap().iter().filter(|r| r["invalidity"] == word).count();
    assert_eq!((invalid("timeout"), invalid("runtime"), invalid("correctness")), (1, 2, 1));
    assert_eq!(invalid("constraints"), 1 + outcome.forbidden.len());
    assert_eq!(t4["results"][0]["configuration"]["CHUNKS"], 4);
    let csv = outcome.to_csv();
    assert_eq!(csv.lines().count(), outcome.points.len() + 1);
    assert!(csv.starts_with("index,CHUNKS,DEN,NUM,first_chunks,chunks,"), "{csv}");
    // A wrong point was never timed.
    let record = kbt_split::journal::load(&folder.path().join("journal.jsonl")).unwrap();
    let wrong = record.records.iter().find(|r| matches!(r.ending, Ending::Wrong { .. })).unwrap();
    assert!(wrong.comparison.is_none() && wrong.samples.is_empty());
}

#[test]
fn a_baseline_that_fails_ends_the_sweep_as_refused() {
    let folder = tempfile::tempdir().unwrap();
    let crash = FakeLauncher(|_: &LaunchRequest| Launch::ended(Status::Signal { signal: 6 }));
    let outcome = sweep(folder.path(), &spec(TARGET, policy()), &crash, &SameBytes);
    let verdict = &outcome.verdicts()[0];
    assert_eq!(verdict.standing, Standing::Refused);
    assert!(verdict.reason.contains("killed by signal 6"), "{verdict:?}");
    assert!(outcome.points.iter().skip(1).all(|p| p.status == PointStatus::NotRun));
}

#[test]
fn a_violation_is_told_once_with_how_many_settings_it_forbids() {
    let mut outcome = outcome_with(|_| 100.0);
    let told = |o: &SplitOutcome| o.to_string().lines().filter(|l| l.starts_with("forbidden: ")).count();
    let (settings, lines) = (outcome.forbidden.len(), told(&outcome));
    assert!(lines > 0 && lines <= settings, "{outcome}");
    let again = outcome.forbidden[0].clone();
    outcome.forbidden.push(again);
    assert_eq!(told(&outcome), lines);
    assert!(outcome.to_string().contains(" more: "), "{outcome}");
}

#[test]
fn a_time_that_ends_before_any_handoff_is_compared_rules_nothing_out() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = Kernel::new(|_| 100.0);
    let spec = spec(TARGET, policy());
    let mut only_baseline = Sweep::prepare(folder.path(), spec, false, &kernel, &SameBytes).unwrap();
    only_baseline.budget_s = Some(0.0);
    let mut outcome = only_baseline.run().unwrap();
    // The baseline has its time, as where a screening had seen the others once.
    outcome.refused = None;
    let verdict = &outcome.verdicts()[0];
    assert_eq!(verdict.standing, Standing::Open);
    assert!(verdict.reason.ends_with(" was compared with the baseline; 13 were not run"), "{verdict:?}");
    assert!(verdict.next.as_deref().unwrap().contains("--resume"), "{verdict:?}");
}

#[test]
fn a_budget_leaves_points_for_later_and_resuming_repeats_none() {
    let folder = tempfile::tempdir().unwrap();
    let (spec, kernel) =
        (spec(TARGET, policy()), Kernel::new(|s| 100.0 + 30.0 * knob(s, "CHUNKS") * knob(s, "NUM")));
    let mut first = Sweep::prepare(folder.path(), spec.clone(), false, &kernel, &SameBytes).unwrap();
    first.budget_s = Some(0.0);
    let outcome = first.run().unwrap();
    assert_eq!(outcome.points.iter().filter(|p| p.status == PointStatus::Timed).count(), 1, "the baseline");
    assert_eq!(outcome.verdicts()[0].standing, Standing::Open);
    assert!(matches!(
        Sweep::prepare(folder.path(), spec.clone(), true, &kernel, &SameBytes),
        Err(SweepError::Locked(_))
    ));
    drop(first);
    assert!(matches!(
        Sweep::prepare(folder.path(), spec.clone(), false, &kernel, &SameBytes),
        Err(SweepError::NotEmpty(_))
    ));
    let other = Spec { timing: TimingPolicy::quick(), ..spec.clone() };
    assert!(matches!(
        Sweep::prepare(folder.path(), other, true, &kernel, &SameBytes),
        Err(SweepError::OtherSpec(_))
    ));
    let done = sweep(folder.path(), &spec, &kernel, &SameBytes);
    assert!(done.points.iter().all(|p| p.status == PointStatus::Timed));
    let before = kernel.runs.lock().unwrap().len();
    assert_eq!(sweep(folder.path(), &spec, &kernel, &SameBytes), done);
    assert_eq!(kernel.runs.lock().unwrap().len(), before, "a finished sweep runs nothing");
}

#[test]
fn two_workers_share_the_points_each_on_its_own_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let spec = spec(TARGET, policy());
    let seen = Mutex::new(Vec::new());
    let launcher = FakeLauncher(|r: &LaunchRequest| {
        seen.lock().unwrap().push(r.gpu.clone().unwrap());
        if let Some(out) = &r.out {
            std::fs::write(out, "x").unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
        Launch::timed(vec![three_quarters_is_best(&r.setting)])
    });
    let mut sweep = Sweep::prepare(folder.path(), spec, false, &launcher, &SameBytes).unwrap();
    sweep.gpus = vec!["0".into(), "3".into()];
    let outcome = sweep.run().unwrap();
    assert_eq!(outcome.verdicts()[0].standing, Standing::Recommended);
    let records = kbt_split::journal::load(&folder.path().join("journal.jsonl")).unwrap().records;
    assert_eq!(records.len(), outcome.points.len());
    assert!(["0", "3"].iter().all(|g| records.iter().filter(|r| r.gpu.as_deref() == Some(g)).count() > 2));
}

#[test]
fn another_engine_can_run_the_points_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let (spec, kernel) = (spec(TARGET, policy()), Kernel::new(three_quarters_is_best));
    let file = folder.path().join("spec.json");
    spec.store(&file).unwrap();
    for index in [4, 2, 4] {
        let point = run_one(&file, index, None, &kernel, &SameBytes).unwrap();
        assert_eq!((point.index, point.against), (index, Some(0)));
    }
    let setting = &spec.space.points[4].setting;
    let checked = kernel.runs.lock().unwrap().iter().filter(|(s, out)| s == setting && *out).count();
    assert_eq!(checked, 1, "the second request is answered from the journal");
    let error = run_one(&file, 99, None, &kernel, &SameBytes).unwrap_err().to_string();
    assert!(error.starts_with("there is no point 99; accepted: 0 to "), "{error}");
    let outcome = sweep(folder.path(), &spec, &kernel, &SameBytes);
    assert!(outcome.points.iter().all(|p| p.status == PointStatus::Timed));
}

#[test]
fn the_model_is_scored_and_every_number_says_how_it_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let (spec, kernel) = (spec(TARGET, policy()), Kernel::new(three_quarters_is_best));
    let times: HandoffTimes = serde_json::from_str(
        r#"{"chunk_cycles": 400, "tile_cycles": 50, "other_consumer_cycles": 300, "round_trip_cycles": 80,
            "producer_other_cycles": 100, "chunks_count": 4, "consumer_feeds_producer": true,
            "provenance": {"kind": "assumed", "by": "a test"}}"#,
    )
    .unwrap();
    let outcome = sweep(folder.path(), &spec, &kernel, &SameBytes).with_model(&times).unwrap();
    let model = outcome.model.as_ref().unwrap();
    let score = model.score.as_ref().unwrap();
    assert_eq!(score.points_count, outcome.points.len());
    assert!(score.rank_correlation.is_some_and(|r| (-1.0..=1.0).contains(&r)));
    assert_eq!(model.provenance.kind, kbt_evidence::Known::Assumed, "as weak as its inputs");
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(audit::uncovered_numbers(&json), Vec::<String>::new());
    assert_eq!(serde_json::from_value::<SplitOutcome>(json).unwrap(), outcome);
    assert!(outcome.verdicts()[0].is_measured(), "the model does not weaken what was measured");
    let text = outcome.to_string();
    assert!(
        text.contains("model of the handoff\nknown by: assumed") && text.contains("forbidden: "),
        "{text}"
    );
    let back = outcome.read_back();
    assert_eq!(back.points[0].provenance.kind, kbt_evidence::Known::Recorded);
    let none = SplitOutcome::unmeasured(&spec, "no GPU here").with_model(&times).unwrap();
    assert_eq!(none.verdicts()[0].standing, Standing::Refused);
    assert!(none.model.unwrap().score.is_none());
}

/// A small sweep whose CHUNKS = 8 settings take `eight` of the time.
fn outcome_with(eight: fn(&Setting) -> f64) -> SplitOutcome {
    let folder = tempfile::tempdir().unwrap();
    sweep(folder.path(), &spec(TARGET, policy()), &Kernel::new(eight), &SameBytes)
}

#[test]
fn two_sweeps_that_contradict_each_other_are_told_from_two_that_do_not() {
    let faster = outcome_with(|s| if knob(s, "CHUNKS") == 8.0 { 80.0 } else { 100.0 });
    let slower = outcome_with(|s| if knob(s, "CHUNKS") == 8.0 { 107.0 } else { 100.0 });
    let alike = Agreement::new(&faster, &faster, 0.01).unwrap();
    assert!(alike.holds() && alike.opposite.is_empty(), "{alike}");
    assert_eq!(alike.second_best_ratio, Some(1.0));
    let against = Agreement::new(&faster, &slower, 0.01).unwrap();
    assert!(!against.holds() && !against.opposite.is_empty(), "{against}");
    assert!(against.opposite.iter().all(|d| d.setting.get("CHUNKS") == Some("8")));
    assert!(against.second_best_ratio.unwrap() > 1.2, "{against}");
    let json = serde_json::to_value(&against).unwrap();
    assert_eq!(audit::uncovered_numbers(&json), Vec::<String>::new());
    assert_eq!(json["schema"], "kbt.split.compare/1");
    let other = SplitOutcome { target: "another".into(), ..slower };
    let error = Agreement::new(&faster, &other, 0.01).unwrap_err().to_string();
    assert!(error.starts_with("the sweeps have the targets fake and another"), "{error}");
}

#[test]
fn what_the_handoff_costs_is_told_and_advised_where_no_split_reaches_it() {
    let swept = outcome_with(|s| if knob(s, "CHUNKS") == 8.0 { 95.0 } else { 100.0 });
    let best = swept.points[swept.best.unwrap()].setting.clone();
    let without = |speed, low: f64, ratio: f64, high: f64| SplitOutcome {
        without: Some(WithoutHandoff {
            setting: best.clone().with("TOPOLOGY", "registers"),
            best: best.clone(),
            speed,
            to_best: RatioFigure { ratio, low_ratio: Some(low), high_ratio: Some(high) },
            provenance: Provenance::given("a test"),
        }),
        ..swept.clone()
    };
    let split_alone = &swept.verdicts()[0];
    for costs_little in [
        without(Speed::Faster, 0.97, 0.985, 0.99),
        without(Speed::Ambiguous, 0.8, 0.9, 1.1),
        without(Speed::Slower, 1.1, 1.2, 1.3),
    ] {
        let verdict = &costs_little.verdicts()[0];
        assert_eq!((verdict.standing, &verdict.reason), (split_alone.standing, &split_alone.reason));
        assert_eq!(verdict.evidence.len(), split_alone.evidence.len() + 1);
    }
    let costs = without(Speed::Faster, 0.90, 0.91, 0.92);
    let verdict = &costs.verdicts()[0];
    assert_eq!(verdict.standing, Standing::Recommended);
    assert_eq!(verdict.reason, "without the handoff the kernel is 9.9 % faster than with the best split");
    assert!(verdict.next.as_ref().unwrap().contains("TOPOLOGY=registers"), "{verdict:?}");
    let headline = costs.headline();
    assert!(
        headline.ends_with(
            "without the handoff (TOPOLOGY=registers) 0.910 (0.900 to 0.920) of the best split's time"
        ),
        "{headline}"
    );
    let json = serde_json::to_value(&costs).unwrap();
    assert_eq!(audit::uncovered_numbers(&json), Vec::<String>::new());
    assert_eq!(serde_json::from_value::<SplitOutcome>(json).unwrap(), costs);
    assert_eq!(costs.read_back().without.unwrap().provenance.kind, Provenance::given("").read_back().kind);
}

#[test]
fn a_point_is_confirmed_by_its_index_once_it_has_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let (spec, kernel) = (spec(TARGET, policy()), Kernel::new(three_quarters_is_best));
    let file = folder.path().join("spec.json");
    spec.store(&file).unwrap();
    let error = confirm_one(&file, 3, None, &kernel, &SameBytes).unwrap_err().to_string();
    assert!(error.contains("accepted: after run-one --index 0"), "{error}");
    run_one(&file, 3, None, &kernel, &SameBytes).unwrap();
    for _ in 0..2 {
        confirm_one(&file, 3, None, &kernel, &SameBytes).unwrap();
    }
    let entries = kbt_split::journal::load(&folder.path().join("journal.jsonl")).unwrap();
    assert_eq!(entries.confirmations.len(), 1, "the second request is answered from the journal");
}
