//! The mixes that an H200 measured, explained and held against what its profiler counted.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use kbt_microbench::pipes::{Counters, Mixes, PipesOutcome, compare, infer};
use std::path::Path;

/// Instructions on each pipe, of the kernels of `--counter-kernels`: `ncu --csv --page raw` on the same device, its
/// columns of whole kernels alone (sm__inst_executed.sum and sm__inst_executed_pipe_*.sum).
const COUNTERS: &str = include_str!("h200-pipe-counters.csv");

fn recorded() -> (Mixes, PipesOutcome) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings/h200-sxm/mixes.yaml");
    let mixes = Mixes::from_yaml(&std::fs::read_to_string(path).unwrap(), "mixes.yaml").unwrap();
    let outcome = infer(&mixes);
    (mixes, outcome)
}

#[test]
fn the_partition_of_an_h200_has_no_mistake() {
    let (mixes, outcome) = recorded();
    assert!(mixes.mixes.len() <= kbt_microbench::pipes::BUDGET, "{}", mixes.mixes.len());
    let counters = Counters::from_csv(COUNTERS, "h200-pipe-counters.csv").unwrap();
    let comparison = compare(&outcome, &mixes, &counters);
    assert_eq!(comparison.mistakes, Vec::<String>::new());
    // What mixes alone take for a use, and the counters do not, is told and no pair's mistake.
    let not_there = |what: &str| comparison.not_on_the_pipe.iter().any(|l| l.starts_with(what));
    assert!(not_there("mul.hi.u32: 2 to 2 cycles of r1 (alu)"), "{:?}", comparison.not_on_the_pipe);
    assert!(comparison.render_text().contains("and no instruction on its pipe: mul.hi.u32"));
    // Nearly all pairs are compared, and what is not has its reason.
    let (compared, rest) = comparison.pairs.split_once(" of ").unwrap();
    let all: usize = rest.split(' ').next().unwrap().parse().unwrap();
    let compared: usize = compared.parse().unwrap();
    assert!(all > 850 && compared * 100 > all * 97, "{}", comparison.pairs);
}

#[test]
fn instructions_that_share_a_pipe_by_the_counters_share_a_resource() {
    let (_, outcome) = recorded();
    let of = |name: &str| {
        let row = outcome.instructions.iter().find(|r| r.instruction == name).unwrap();
        row.bottleneck.clone()
    };
    for (one, others) in [
        ("lop3.b32", &["prmt.b32", "max.f32", "cvt.rn.bf16x2.f32", "cvt.rn.satfinite.e4m3x2.f32"][..]),
        ("ex2.approx.ftz.f32", &["rcp.approx.ftz.f32", "popc.b32", "cvt.rzi.s32.f32"]),
        ("mad.lo.s32", &["fma.rn.f16", "dp4a.s32", "mul.hi.u32"]),
        ("shfl.sync.bfly.b32", &["ld.shared.b32", "ldmatrix.x1"]),
        ("add.rn.f64", &["fma.rn.f64", "mma.sync.m16n8k16.f32.bf16"]),
    ] {
        assert!(!of(one).is_empty(), "{one} has no resource");
        for other in others {
            assert_eq!(of(one), of(other), "{one} and {other}");
        }
    }
    assert_ne!(of("lop3.b32"), of("mad.lo.s32"));
    assert_ne!(of("lop3.b32"), of("ex2.approx.ftz.f32"));
}

#[test]
fn what_companions_do_is_no_use_of_the_instruction_that_needs_them() {
    let (_, outcome) = recorded();
    let row = |name: &str| outcome.instructions.iter().find(|r| r.instruction == name).unwrap();
    // A uniform shift reads the special register first, and that read is what keeps its own resource busy.
    let (shift, read) = (row("shf.uniform"), row("read.clock_hi.uniform"));
    assert!(shift.companions.contains(&"S2UR".to_owned()), "{shift:?}");
    let left = shift.usage.iter().filter(|u| read.bottleneck.contains(&u.resource));
    assert!(left.clone().count() > 0 && left.clone().all(|u| u.least_cycles == 0.0), "{shift:?}");
    // All that the uniform datapath does is in such company: its unit is known between the net and the whole.
    let uniform = outcome.resources.iter().find(|r| r.members.contains(&shift.instruction)).unwrap();
    let most = uniform.most_unit_cycles.unwrap();
    assert!(uniform.unit_cycles < 2.0 && most > 2.0 && most < 2.2, "{uniform:?}");
    let text = outcome.render_text();
    assert!(text.contains("no member is ever without companions"), "{text}");
    assert!(!text.lines().any(|l| l.starts_with("  shf.uniform (without")), "{text}");
    let alu = outcome.resources.iter().find(|r| r.members.iter().any(|m| m == "lop3.b32")).unwrap();
    assert_eq!(alu.most_unit_cycles, None);
}
