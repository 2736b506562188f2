//! The static cycle model against the loops timed on an H200: the families that were held out, compiled anew. Needs the
//! compilers that KBT_CUDA names, and of them the version that the recording was compiled with; without the
//! variable the test says so and returns.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

use kbt_device::{Arch, embedded_profile};
use kbt_microbench::loops::{FAMILIES, LoopScore, MeasuredLoops, Recipe, prepare, score};
use kbt_toolchain::{Tool, Toolchain};

const RECORDING: &str = "../../fixtures/recordings/h200-sxm/loops.yaml";

/// The score, and that of times which belong to other machine code.
fn held_out() -> Option<[LoopScore; 2]> {
    if std::env::var_os("KBT_CUDA").is_none() {
        eprintln!("KBT_CUDA is not set: the cycle model is not scored");
        return None;
    }
    let tools = Toolchain::find().unwrap();
    let recording = std::fs::read_to_string(format!("{}/{RECORDING}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let measured: MeasuredLoops = serde_yaml::from_str(&recording).unwrap();
    let ptxas = tools.version(Tool::Ptxas).unwrap();
    if !measured.compiler.contains(&format!("ptxas {ptxas}")) {
        eprintln!(
            "ptxas {ptxas} makes other machine code than was timed ({}): not scored",
            measured.compiler
        );
        return None;
    }
    let generated = |name: &str| {
        FAMILIES.iter().any(|f| f.name == name && f.held_out && !matches!(f.recipe, Recipe::Compiled))
    };
    let modules = prepare(Arch::SM_90A, &tools, &generated, &[]).unwrap();
    let profile = embedded_profile("h200-sxm").unwrap().unwrap();
    let mut stale = measured.clone();
    stale.loops.iter_mut().for_each(|l| l.digest = "0".repeat(16));
    Some([measured, stale].map(|m| score(&m, &modules, Arch::SM_90A, &profile, &ptxas)))
}

#[test]
fn loops_that_were_held_out_are_predicted_and_better_than_by_each_simpler_rule() {
    let Some([score, stale]) = held_out() else { return };
    assert!(stale.families.is_empty() && stale.left_out.iter().any(|l| l.contains("other machine code")));
    let groups: Vec<_> = score.groups.iter().map(|g| (g.name.as_str(), g.loops)).collect();
    assert_eq!(groups, [("arithmetic and conversion", 80), ("shared memory, warp and matrix", 58)]);
    for (group, median, p90) in [(&score.groups[0], 5.0, 12.0), (&score.groups[1], 10.0, 20.0)] {
        assert!(group.held_out);
        assert!(group.model.median_percent <= median && group.model.p90_percent <= p90, "{group:?}");
        for simpler in [group.stalls, group.issue, group.pipe] {
            assert!(group.model.median_percent <= simpler.median_percent / 2.0, "{group:?}");
        }
    }
}
