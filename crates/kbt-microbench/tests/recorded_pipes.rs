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
