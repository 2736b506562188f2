//! A made-up sweep's outcome, and a validation's.

use super::recorded;
use kbt_evidence::Provenance;
use kbt_split::outcome::{Confirmed, PointOutcome, PointStatus, RatioFigure};
use kbt_split::space::{Excluded, Forbidden};
use kbt_split::{CheckOutcome, HandoffTimes, SplitOutcome};
use kbt_target::{Setting, Speed};
use kbt_tensor::{Dtype, Tensor, TensorSet};
use kbt_validate::compare::{ChangeClass, Rules, Sides, Tensors, compare};
use kbt_validate::flake::{FirstDifference, FlakeFinding, FlakeResult};
use kbt_validate::outcome::{ValidateOutcome, VariantResult};
use kbt_validate::probe::{ProbeKind, ProbeResult};
use kbt_validate::stats::RateBound;

pub(crate) fn split() -> SplitOutcome {
    let setting = |num: u32, den: u32, chunks: u32| {
        Setting::default()
            .with("KBT_PV_MODE", "fp4")
            .with("KBT_QUANT_FORM", "log2")
            .with("KBT_SPLIT_NUM", num.to_string())
            .with("KBT_SPLIT_DEN", den.to_string())
            .with("KBT_CHUNKS", chunks.to_string())
    };
    let p = |s: &Setting| recorded(&format!("kbt split sweep: kbt kernel run ({s})"));
    let point = |index: usize, (num, den, chunks): (u32, u32, u32), ratio: Option<(f64, f64, f64)>| {
        let setting = setting(num, den, chunks);
        let integers = kbt_split::contract::check(num, den, chunks, 8).ok();
        PointOutcome {
            index,
            provenance: p(&setting),
            setting,
            integers,
            merged_count: usize::from(index == 2),
            status: match ratio {
                Some(_) => PointStatus::Timed,
                None => PointStatus::Failed { why: "exit code 1 while timed".into(), timeout: false },
            },
            check: Some(CheckOutcome::Bitwise),
            time_us: ratio.map(|r| 801.3 * r.0),
            low_time_us: ratio.map(|r| 801.3 * r.1),
            high_time_us: ratio.map(|r| 801.3 * r.2),
            processes_count: if ratio.is_some() { 12 } else { 0 },
            times_us: Vec::new(),
            to_baseline: ratio.map(|r| RatioFigure {
                ratio: r.0,
                low_ratio: Some(r.1),
                high_ratio: Some(r.2),
            }),
            speed: (index > 0 && ratio.is_some()).then_some(Speed::Faster),
            against: (index > 0 && ratio.is_some()).then_some(0),
            notes: vec![],
        }
    };
    let points = vec![
        point(0, (1, 2, 4), Some((1.0, 1.0, 1.0))),
        point(1, (1, 4, 4), Some((1.031, 1.024, 1.040))),
        point(2, (3, 4, 4), Some((0.958, 0.951, 0.964))),
        point(3, (1, 2, 2), Some((1.012, 1.004, 1.019))),
        point(4, (5, 8, 8), Some((0.981, 0.974, 0.990))),
        point(5, (7, 8, 8), None),
    ];
    let outcome = SplitOutcome {
        schema: kbt_split::outcome::SCHEMA.into(),
        target: "attention".into(),
        refused: None,
        varied: ["KBT_CHUNKS", "KBT_SPLIT_DEN", "KBT_SPLIT_NUM"].map(str::to_owned).to_vec(),
        handoff_knobs: ["KBT_CHUNKS", "KBT_SPLIT_DEN", "KBT_SPLIT_NUM"].map(str::to_owned).to_vec(),
        fixes: std::collections::BTreeMap::new(),
        confirmed: vec![Confirmed {
            index: 2,
            speed: Some(Speed::Faster),
            to_baseline: Some(RatioFigure { ratio: 0.957, low_ratio: Some(0.95), high_ratio: Some(0.963) }),
            error_rate_ratio: Some(0.05),
            problem: None,
            provenance: points[2].provenance.clone(),
        }],
        best: Some(2),
        worst: Some(1),
        points,
        forbidden: vec![Forbidden {
            setting: setting(3, 8, 2),
            violation: kbt_split::contract::check(1, 3, 2, 8)
                .err()
                .map_or_else(|| "1/4 of the chunks but 3/8 of the tiles".to_owned(), |v| v.to_string()),
        }],
        excluded: vec![Excluded { constraint: "KBT_SPLIT_NUM < KBT_SPLIT_DEN".into(), settings_count: 12 }],
        device_s: None,
        model: None,
        without: None,
        provenance: Provenance::given("the plan and the journal of the sweep of attention"),
    };
    let times = HandoffTimes {
        chunk_cycles: 520.0,
        tile_cycles: 60.0,
        other_consumer_cycles: 300.0,
        round_trip_cycles: 80.0,
        producer_other_cycles: 100.0,
        chunks_count: Some(4),
        tiles_count: Some(8),
        producers_count: 2,
        consumer_feeds_producer: false,
        provenance: recorded("kbt tune: coarse trace"),
    };
    outcome.with_model(&times).unwrap()
}

fn set(values: &[f32]) -> TensorSet {
    let mut set = TensorSet::new();
    set.insert(Tensor::from_f32("o", vec![2, 2], Dtype::F32, values).unwrap()).unwrap();
    set
}

fn variant(name: &str, values: &[f32], class: ChangeClass, runs: u32, fails: bool) -> VariantResult {
    let p = recorded("kbt tune: validation");
    let (saved, output, right) = (set(&[1.01, 2.0, 3.0, 4.0]), set(values), set(&[1.0, 2.0, 3.0, 4.0]));
    let sides = Sides { reference: Some(&right as &dyn Tensors), ..Sides::new(&saved, &output) };
    let comparison = compare(&sides, &Rules { class, ..Rules::default() }, p.clone()).unwrap();
    let flake = FlakeResult {
        schema: kbt_validate::SCHEMA.into(),
        provenance: p.clone(),
        finding: if fails { FlakeFinding::DiffersFromItself } else { FlakeFinding::Same },
        runs_count: runs,
        compared_runs_count: None,
        planned_runs_count: 60,
        sets_count: 2,
        against_reference: true,
        first: fails.then(|| FirstDifference { run_index: 6, set_index: 0, what: "`o` [0, 0]".into() }),
        rate: Some(if fails {
            RateBound::first_difference(runs, 0.95)
        } else {
            RateBound::fixed(0, runs, 0.95)
        }),
        target_rate_ratio: 0.05,
        target_runs_count: Some(59),
        notes: vec![],
    };
    let probe = |kind| ProbeResult {
        schema: kbt_validate::SCHEMA.into(),
        kind,
        provenance: p.clone(),
        passed: true,
        max_abs_error: 0.0004,
        allowed_abs_error: 0.0039,
        worst_index: vec![0, 0],
        lse: None,
        statement: "the output is 1 whatever the weights".into(),
    };
    let mut v = VariantResult::new(name, class);
    v.knobs =
        [("KBT_PV_MODE", "fp4"), ("KBT_QUANT_FORM", name)].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    v.comparison = Some(comparison);
    v.flake = Some(flake);
    v.probes = vec![probe(ProbeKind::VOne), probe(ProbeKind::OneHot)];
    v
}

pub(crate) fn validated() -> ValidateOutcome {
    ValidateOutcome::new(vec![
        variant("linear", &[1.01, 2.0, 3.0, 4.0], ChangeClass::Reorder, 60, false),
        variant("log2", &[1.0, 2.01, 3.0, 4.0], ChangeClass::Algebra, 60, false),
        variant("racy", &[1.01, 2.0, 3.0, 4.0], ChangeClass::Reorder, 7, true),
    ])
}
