//! One outcome of each step crate.

use super::{recorded, step};
use kbt_device::{Arch, Ceiling, CeilingKind, DeviceProfile, MixRow, Pipe, RateRow};
use kbt_evidence::{Figure, Provenance, Step, Unit};
use kbt_microbench::pv::PvMode;
use kbt_quant::outcome::{
    AlgebraOutcome, BoundOutcome, CandidateOutcome, Form, GraphOutcome, MeasuredVariant, Mode, PricedOutcome,
    RefusedRule, RewriteOutcome,
};
use kbt_quant::rewrite::Replay;
use kbt_roofline::{Ceilings, FactSheet, attention_facts, triage};
use kbt_sass::outcome::{ScheduleBuilder, ScheduleOutcome, VariantInput, VariantKind};
use kbt_split::outcome::{Confirmed, PointOutcome, PointStatus, RatioFigure};
use kbt_split::space::{Excluded, Forbidden};
use kbt_split::{CheckOutcome, HandoffTimes, SplitOutcome};
use kbt_target::{Setting, Speed};
use kbt_tensor::{Dtype, Tensor, TensorSet};
use kbt_trace::observe::ObserverReport;
use kbt_trace::outcome::*;
use kbt_trace::{Input, Level};
use kbt_validate::compare::{ChangeClass, Rules, Sides, Tensors, compare};
use kbt_validate::flake::{FirstDifference, FlakeFinding, FlakeResult};
use kbt_validate::outcome::{ValidateOutcome, VariantResult};
use kbt_validate::probe::{ProbeKind, ProbeResult};
use kbt_validate::stats::RateBound;
use serde_json::Value;
use std::collections::BTreeMap;

/// Every step's file.
pub(crate) fn all() -> Vec<(Step, Value)> {
    macro_rules! files {
        ($($step:ident: $outcome:expr,)*) => {
            vec![$({
                let o = $outcome;
                (Step::$step, step(Step::$step, &o.headline(), &o.verdicts(), &serde_json::to_value(&o).unwrap()))
            },)*]
        };
    }
    files! {
        Triage: triaged(),
        Rates: rates(),
        Trace: trace(),
        Schedule: schedule(),
        Algebra: algebra(),
        Handoff: split(),
        Validate: validated(),
    }
}

pub(crate) fn facts() -> FactSheet {
    let time = Figure::new("time of the plain kernel", 912.4, Unit::Microseconds, recorded("kbt tune"))
        .with_spread(909.8, 915.1, "least to most of 5 processes");
    attention_facts(4, 16, 4096, 128, false, kbt_roofline::PvMode::Fp4, Some(time))
}

pub(crate) fn profile() -> DeviceProfile {
    let mut profile = DeviceProfile::new("h200-sxm", Arch::SM_90A, recorded("kbt microbench run"));
    profile.device = Some("NVIDIA H200".into());
    profile.sm_count = Some(132);
    profile.sm_clock_mhz = Some(1980.0);
    let row = |name: &str, opcode: &str, pipe, lanes: f64, results: f64, latency: f64| RateRow {
        instruction: name.into(),
        opcode: Some(opcode.into()),
        pipe,
        lanes_per_clk_sm: Some(lanes),
        results_per_clk_sm: Some(results),
        latency_clk: Some(latency),
        spread_percent: Some(0.1),
        refused: None,
        provenance: recorded(&format!("kbt microbench run: 128 and 256 {opcode} in the windows compared")),
    };
    profile.rates = vec![
        row("ex2.approx.ftz.f32", "MUFU.EX2", Pipe::Xu, 15.98, 15.98, 18.0),
        row("cvt.rn.bf16x2.f32", "F2FP.BF16.F32.PACK_AB", Pipe::Alu, 63.7, 127.4, 4.5),
        row(
            "cvt.rn.satfinite.e4m3x2.f32",
            "F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C",
            Pipe::Alu,
            31.9,
            63.8,
            6.0,
        ),
        row("fma.rn.f32", "FFMA", Pipe::Fma, 127.6, 127.6, 4.0),
        row("max.f32", "FMNMX", Pipe::Alu, 63.8, 63.8, 4.5),
        RateRow {
            lanes_per_clk_sm: None,
            results_per_clk_sm: None,
            latency_clk: None,
            refused: Some("clean: 128 MUFU.RCP were written, the body has 0".into()),
            ..row("rcp.approx.ftz.f32", "MUFU.RCP", Pipe::Xu, 1.0, 1.0, 1.0)
        },
    ];
    profile.mixes = vec![MixRow {
        parts: vec![("ex2.approx.ftz.f32".into(), 1), ("cvt.rn.satfinite.e4m3x2.f32".into(), 1)],
        lanes_per_clk_sm: Some(31.2),
        separate_lanes_per_clk_sm: Some(31.96),
        shared_lanes_per_clk_sm: Some(21.3),
        refused: None,
        provenance: recorded("kbt microbench run: mix"),
    }];
    let ceiling = |kind, bytes, flop| Ceiling {
        kind,
        bytes_per_s: bytes,
        flop_per_s: flop,
        seconds: None,
        spread_percent: Some(0.4),
        provenance: recorded("kbt microbench run: ceiling"),
    };
    profile.ceilings = vec![
        ceiling(CeilingKind::HbmRead, Some(4.2e12), None),
        ceiling(CeilingKind::L2Read, Some(7.1e12), None),
        ceiling(CeilingKind::TensorBf16, None, Some(803e12)),
    ];
    profile
}

pub(crate) fn triaged() -> kbt_roofline::TriageOutcome {
    triage(&facts(), Some(&Ceilings::from_profile(&profile())), &[]).unwrap()
}

pub(crate) fn rates() -> kbt_microbench::RatesOutcome {
    kbt_microbench::rates_for(&profile(), PvMode::Fp4)
}

pub(crate) fn trace() -> TraceOutcome {
    let p = recorded("kbt tune: coarse trace");
    let q = |m: f64| Quantiles { median: m, p10: m * 0.97, p90: m * 1.04 };
    let wait = |on: &str, cycles: f64, by: &[&str], hardware| WaitStats {
        on: on.into(),
        cycles: Some(cycles),
        each_cycles: Some(q(cycles)),
        per_step: 1.0,
        released_by: by.iter().map(|s| (*s).to_owned()).collect(),
        hardware,
        handoff: on.starts_with("P"),
        ready_percent: Some(12.5),
        round_trip_cycles: None,
    };
    let role = |name: &str, busy: f64, waits: Vec<WaitStats>| RoleStats {
        name: name.into(),
        steps: 4096,
        step_starts_at: "a wait".into(),
        period_cycles: Some(q(2315.0)),
        mean_period_cycles: Some(2320.0),
        busy_cycles: Some(busy),
        busy_spread_cycles: None,
        slack_cycles: Some((2320.0 - busy - 40.0).max(0.0)),
        waits,
        events: vec![EventStats {
            name: "step".into(),
            cycles: Some(2300.0),
            busy_cycles: Some(busy),
            each_cycles: Some(q(2300.0)),
            per_step: 1.0,
        }],
        steady_steps: 3968,
        prologue_cycles: None,
        tail_cycles: None,
        over_ctas_cycles: None,
        slowest: None,
        work: None,
    };
    let observer = ObserverReport {
        provenance: recorded("kbt tune: trace levels in turn"),
        off_us: 912.4,
        levels: [(Level::Barrier, 0.4), (Level::Coarse, 1.3), (Level::Detail, 18.2)]
            .map(|(level, percent)| kbt_trace::observe::LevelCost {
                level,
                median_us: 912.4 * (1.0 + percent / 100.0),
                pairs: 8,
                inflation_percent: percent,
                low_percent: percent - 0.3,
                high_percent: percent + 0.4,
                confidence_percent: 99.2,
            })
            .to_vec(),
        limit_percent: 5.0,
        reordering_percent: Some(0.4),
        stores_percent: Some(0.9),
    };
    TraceOutcome {
        schema: kbt_trace::outcome::SCHEMA.into(),
        provenance: p.clone(),
        trace: TraceFacts {
            format: Input::Kbt,
            level: Some(Level::Coarse),
            kernel: Some("attention_forward".into()),
            sm_clock_mhz: Some(1980.0),
            quantum_cycles: 1.0,
            ctas: 132,
            sms: 132,
            records: 4_194_304,
        },
        absolute: Absolute::Accepted { reason: "coarse tracing costs 1.3 %, at most 1.7 %".into() },
        roles: vec![
            role("Load", 210.0, vec![wait("KV empty", 2110.0, &["PV"], None)]),
            role("Softmax0", 2270.0, vec![wait("P free", 50.0, &["PV"], None)]),
            role("Softmax1", 2262.0, vec![wait("P free", 58.0, &["PV"], None)]),
            role(
                "PV",
                1430.0,
                vec![
                    wait("P first", 610.0, &["Softmax0", "Softmax1"], None),
                    wait("P rest", 220.0, &["Softmax0", "Softmax1"], None),
                    wait("V full", 60.0, &["Load"], Some(Hardware::Tma)),
                ],
            ),
        ],
        wait_floor_cycles: Some(24.0),
        critical: Critical::Roles { roles: vec!["Softmax0".into(), "Softmax1".into()] },
        handoff: None,
        observer: Some(observer),
        clean: Some(CleanStep {
            role: "Softmax0".into(),
            implied_cycles: 2291.0,
            inflation_ratio: 1.0127,
            provenance: recorded("kbt tune: clean time"),
        }),
        problems: vec![],
        timeline: Some(timeline()),
    }
}

fn timeline() -> Timeline {
    const STEP: f64 = 2320.0;
    let span = |label: &str, kind, start: f64, end: f64| TimelineSpan {
        label: label.into(),
        kind,
        start_cycles: start,
        end_cycles: end,
        depth: 0,
    };
    let row = |role: &str, spans: &dyn Fn(f64) -> Vec<TimelineSpan>| TimelineRow {
        role: role.into(),
        spans: (0..4).flat_map(|i| spans(f64::from(i) * STEP)).collect(),
    };
    let (wait, event) = (SpanKind::Wait, SpanKind::Event);
    let rows = vec![
        row("Load", &|t| vec![span("KV empty", wait, t + 200.0, t + STEP)]),
        row("Softmax0", &|t| {
            vec![span("P free", wait, t + 900.0, t + 950.0), span("write P", event, t + 1400.0, t + 2250.0)]
        }),
        row("Softmax1", &|t| {
            vec![span("P free", wait, t + 2000.0, t + 2060.0), span("write P", event, t + 300.0, t + 1100.0)]
        }),
        row("PV", &|t| {
            vec![
                span("P first", wait, t, t + 400.0),
                span("P rest", wait, t + 700.0, t + 920.0),
                span("MMA", event, t + 400.0, t + 1500.0),
                span("P first", wait, t + 1500.0, t + 1710.0),
            ]
        }),
    ];
    let arrow = |barrier: &str, from: &str, at: f64, to: &str, end: f64| TimelineArrow {
        barrier: barrier.into(),
        from: from.into(),
        from_cycles: at,
        to: to.into(),
        to_cycles: end,
    };
    let arrows = (0..4)
        .map(|i| f64::from(i) * STEP)
        .flat_map(|t| {
            [
                arrow("P first", "Softmax1", t + 360.0, "PV", t + 400.0),
                arrow("P first", "Softmax0", t + 1670.0, "PV", t + 1710.0),
                arrow("KV empty", "PV", t + 2280.0, "Load", t + STEP),
            ]
        })
        .collect();
    Timeline { cta: 0, role: "Softmax0".into(), steps: 4, length_cycles: 4.0 * STEP, rows, arrows }
}

/// A listing of `MUFU.EX2` and `F2FP` in the order of the pattern.
fn listing(pattern: &str) -> String {
    let mut text = String::from("\n\tcode for sm_90a\n\t\tFunction : softmax\n");
    for (i, unit) in pattern.chars().enumerate() {
        let op = if unit == 'M' {
            format!("MUFU.EX2 R{0}, R{0}", i % 64)
        } else {
            format!("F2FP.BF16.F32.PACK_AB R{0}, R{0}, R{1}", i % 64, (i + 1) % 64)
        };
        text += &format!("        /*{:04x}*/                   {op} ;\n", i * 16);
    }
    text += &format!("        /*{:04x}*/                   EXIT ;\n\t\t..........\n", pattern.len() * 16);
    text
}

pub(crate) fn schedule() -> ScheduleOutcome {
    let profile = profile();
    let mut builder = ScheduleBuilder::new(
        "attention_forward",
        None,
        [kbt_sass::Unit::mufu(), kbt_sass::Unit::f2fp()],
        Some(&profile),
        2,
    );
    let grouped = format!("{}{}", "M".repeat(64), "F".repeat(32));
    for (name, kind, built_by, pattern) in [
        ("chunk by chunk", VariantKind::SourceOrder, "ptxas 13.0.88 -O3", "MMF".repeat(32)),
        ("all exp2 first", VariantKind::SourceOrder, "ptxas 13.0.88 -O3", "MMFMMF".repeat(16)),
        ("chunk by chunk at -O1", VariantKind::OptLevel, "ptxas 13.0.88 -O1", grouped),
    ] {
        let mut parsed = kbt_sass::parse(listing(&pattern).as_bytes()).unwrap();
        parsed.assembler = Some(built_by.into());
        builder
            .add(VariantInput { name, kind, built_by, listing: &parsed, function: None, remarks: vec![] })
            .unwrap();
    }
    let mut outcome = builder.finish();
    outcome.variants[0].time = Some(
        Figure::new(
            "time of the kernel",
            912.4,
            Unit::Microseconds,
            recorded("kbt tune: two settings in turn"),
        )
        .with_spread(909.8, 915.1, "least to most of 8 processes"),
    );
    outcome
}

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
        model: None,
        provenance: Provenance::given("the plan and the journal of the sweep of attention"),
    };
    let times = HandoffTimes {
        chunk_cycles: 260.0,
        tile_cycles: 120.0,
        other_consumer_cycles: 480.0,
        round_trip_cycles: 80.0,
        producer_other_cycles: 700.0,
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

pub(crate) fn algebra() -> AlgebraOutcome {
    let how = "instructions over their rates, every pipe perfectly filled: a lower bound of time, error not yet measured";
    let p = Provenance::modelled(how);
    let pipes = |values: &[(&str, f64)]| {
        values.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect::<BTreeMap<_, _>>()
    };
    let priced = |program: &str, values: &[(&str, f64)], slots: f64, chain: f64| {
        let pipes = pipes(values);
        let (busiest, cycles) = pipes.iter().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
        PricedOutcome {
            program: program.into(),
            operations: pipes.clone(),
            busiest_pipe: busiest.clone(),
            cycles_per_element: *cycles,
            pipes: pipes.clone(),
            issue_slots: slots,
            chain,
            provenance: p.clone(),
        }
    };
    let linear = priced(
        "p = exp2(s - m)\nscale = group_max(p) / 6\nq = cvt_e2m1(p / scale)",
        &[("alu", 0.102), ("fma", 0.094), ("xu", 0.125), ("issue", 0.141)],
        18.0,
        212.0,
    );
    let log2 = priced(
        "g = group_max(s) - log2(6)\nq = cvt_e2m1(exp2(s - g))",
        &[("alu", 0.094), ("fma", 0.023), ("xu", 0.0664), ("issue", 0.0703)],
        9.0,
        121.0,
    );
    let candidate = CandidateOutcome {
        program: log2.program.clone(),
        operations: log2.operations.clone(),
        pipes: log2.pipes.clone(),
        busiest_pipe: log2.busiest_pipe.clone(),
        cycles_per_element: log2.cycles_per_element,
        issue_slots: log2.issue_slots,
        chain: log2.chain,
        rules: ["max-through-exp2", "div-of-exp2", "fold-into-argument"].map(str::to_owned).to_vec(),
        guards: vec!["a fully masked group needs a clamp of its maximum at -100".into()],
        replay: Replay {
            rows_count: 512,
            tie_rows_count: 128,
            codes_count: 65_536,
            differing_count: 37,
            explained_count: 37,
            values_count: 512,
            wrong: vec![],
            provenance: Provenance::modelled("f32 evaluation of both programs"),
        },
        provenance: p.clone(),
    };
    let measured = |name: &str, us: f64| MeasuredVariant {
        name: name.into(),
        us,
        low_us: us * 0.997,
        high_us: us * 1.003,
        spread: "least to most of 8 processes".into(),
        speed_ratio: 912.4 / us,
        provenance: recorded("kbt tune: forms in turn"),
    };
    AlgebraOutcome {
        schema: kbt_quant::outcome::SCHEMA.into(),
        mode: Mode::Fp4,
        rewrite: Some(RewriteOutcome {
            schema: kbt_quant::outcome::SCHEMA.into(),
            name: "softmax-nvfp4-linear".into(),
            device: "h200-sxm".into(),
            baseline: linear.clone(),
            candidates: vec![candidate],
            rejected: vec![],
            lower_bound: BoundOutcome {
                cycles_per_element: 0.094,
                issue_slots: 9.0,
                reached: true,
                statement: "the first candidate is optimal among all programs that the rules lead to".into(),
                provenance: p.clone(),
            },
            refused: vec![RefusedRule {
                rule: "rcp-for-div".into(),
                says: "a / b = a * rcp(b)".into(),
                because: "b may be 0".into(),
            }],
            graph: GraphOutcome {
                terms_count: 812,
                classes_count: 204,
                iterations_count: 7,
                saturated: true,
                provenance: Provenance::modelled(
                    "equality saturation of the program's own graph; exact counts",
                ),
            },
        }),
        forms: vec![
            Form { name: "softmax-nvfp4-linear".into(), predicted: linear },
            Form { name: "softmax-nvfp4-log2".into(), predicted: log2 },
        ],
        budget: Mode::Fp4.scheme().map(|s| s.check().budget),
        measured: vec![measured("linear", 912.4), measured("linear-rcp", 861.0), measured("log2", 801.3)],
        refused: None,
    }
}
