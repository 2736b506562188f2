//! One outcome of each step crate.

use super::trace::trace;
use super::variants::{split, validated};
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
            wrong_count: 0,
            wrong: vec![],
            kinds: BTreeMap::new(),
            left_out: Vec::new(),
            errors: BTreeMap::new(),
            provenance: Provenance::modelled("f32 evaluation of both programs"),
        },
        cuda_source: None,
        provenance: p.clone(),
    };
    let measured = |name: &str, us: f64| MeasuredVariant {
        name: name.into(),
        setting: None,
        us,
        low_us: us * 0.997,
        high_us: us * 1.003,
        spread: "least to most of 8 processes".into(),
        speed_ratio: 912.4 / us,
        provenance: recorded("kbt tune: forms in turn"),
    };
    AlgebraOutcome {
        schema: kbt_quant::outcome::SCHEMA.into(),
        mode: Some(Mode::Fp4),
        lift: None,
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
            cut_off: Vec::new(),
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
