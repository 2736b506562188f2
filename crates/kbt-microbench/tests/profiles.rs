//! The profiles that come with kbt: how much the mined ones cover, and how they stand to what was measured.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

use kbt_device::{DeviceProfile, embedded_profile};
use kbt_microbench::spec::Spec;
use std::collections::BTreeSet;

const MINED: [&str; 4] = ["sm_90a", "sm_100a", "sm_103a", "sm_120a"];

fn profile(name: &str) -> DeviceProfile {
    embedded_profile(name).unwrap().unwrap()
}

#[test]
fn every_mined_profile_covers_the_spec_and_at_least_150_opcodes() {
    let spec = Spec::embedded().unwrap();
    for name in MINED {
        let profile = profile(name);
        let opcodes: BTreeSet<&str> =
            profile.rates.iter().filter_map(|r| r.opcode.as_deref()).flat_map(|o| o.split('+')).collect();
        assert!(opcodes.len() >= 150, "{name}: {}", opcodes.len());
        let missing: Vec<&str> = spec
            .instructions
            .iter()
            .filter(|e| e.is_for(profile.arch) && profile.rates.iter().all(|r| r.instruction != e.name))
            .map(|e| e.name.as_str())
            .collect();
        assert!(missing.is_empty(), "{name}: mine it again for {missing:?}");
    }
}

#[test]
fn the_readme_states_the_rows_with_a_rate_and_those_refused() {
    let readme = include_str!("../README.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let mut told = Vec::new();
    let mut rated_opcodes = Vec::new();
    for name in MINED {
        let profile = profile(name);
        let (rated, refused): (Vec<_>, Vec<_>) =
            profile.rates.iter().partition(|r| r.lanes_per_clk_sm.is_some());
        told.push(format!("{name} {} and {}", rated.len(), refused.len()));
        let opcodes: BTreeSet<&str> =
            rated.iter().filter_map(|r| r.opcode.as_deref()).flat_map(|o| o.split('+')).collect();
        rated_opcodes.push(opcodes.len().to_string());
    }
    assert!(readme.contains(&told.join(", ")), "{told:?}");
    let [a, b, c, d] = &rated_opcodes[..] else { panic!("four profiles") };
    assert!(readme.contains(&format!("opcodes with a rate: {a}, {b}, {c} and {d}")), "{rated_opcodes:?}");
}

#[test]
fn every_mined_rate_and_latency_is_within_three_percent_of_what_an_h200_does() {
    let (mined, measured) = (profile("sm_90a"), profile("h200-sxm"));
    let (mut compared, mut latencies, mut off) = (0, 0, Vec::new());
    for row in &mined.rates {
        let other = measured.rates.iter().find(|r| r.instruction == row.instruction);
        if let Some((written, took)) = row.latency_clk.zip(other.and_then(|r| r.latency_clk)) {
            latencies += 1;
            if (written / took - 1.0).abs() > 0.03 {
                off.push(format!("{}: latency {written} written, {took} measured", row.instruction));
            }
        }
        let Some(lanes) = row.lanes_per_clk_sm else { continue };
        let Ok(other) = measured.rate(&row.instruction) else { continue };
        compared += 1;
        let error = lanes / other.lanes_per_clk_sm.unwrap() - 1.0;
        if error.abs() > 0.03 {
            off.push(format!("{}: {lanes} written, off by {:.1} %", row.instruction, error * 100.0));
        }
    }
    assert_eq!(off, Vec::<String>::new());
    assert!(compared >= 180, "{compared} rows have both");
    assert!(latencies >= 100, "{latencies} latencies have both");
}

#[test]
fn known_wrong_cells_are_refused_in_the_profiles() {
    for (name, instruction) in [
        ("sm_120a", "mma.sync.m16n8k16.f32.f16"),
        ("sm_120a", "fma.rn.f64"),
        ("sm_120a", "max.f32"),
        ("sm_103a", "popc.b32"),
        ("sm_103a", "fma.rn.f64"),
        ("sm_90a", "mma.sync.m8n8k4.f64"),
        ("sm_100a", "match.any.sync.b32"),
    ] {
        let profile = profile(name);
        let row = profile.rates.iter().find(|r| r.instruction == instruction).unwrap();
        assert_eq!(row.lanes_per_clk_sm, None, "{instruction} on {name}");
        assert!(row.refused.is_some(), "{instruction} on {name}");
    }
}

#[test]
fn no_way_back_is_in_a_lowering_and_no_latency_is_of_a_step_with_one() {
    let spec = Spec::embedded().unwrap();
    for name in MINED.into_iter().chain(["h200-sxm"]) {
        let profile = profile(name);
        let lowered = |operation: &str| -> Vec<String> {
            profile.lowering(operation).unwrap().instructions.iter().map(|i| i.opcode.clone()).collect()
        };
        for (operation, back) in
            [("add.s64", "LOP3.LUT"), ("cvt.s32.s8", "IMAD.IADD"), ("rcp.approx.f32", "FFMA")]
        {
            assert!(!lowered(operation).iter().any(|o| o == back), "{operation} on {name}");
        }
        for entry in spec.instructions.iter().filter(|e| e.is_for(profile.arch)) {
            for back in entry.chains.values().flat_map(|c| c.back.keys()) {
                let row = profile.rates.iter().find(|r| r.instruction == entry.name).unwrap();
                assert_eq!(row.latency_clk, None, "{} on {name}", entry.name);
                assert!(!lowered(&entry.name).contains(back), "{} on {name}", entry.name);
            }
        }
    }
}

#[test]
fn what_had_needed_a_way_back_is_measured_without_one() {
    let measured = profile("h200-sxm");
    let row = |name: &str| measured.rates.iter().find(|r| r.instruction == name).unwrap();
    let close = |name: &str, lanes: f64| {
        let found = row(name).lanes_per_clk_sm.unwrap();
        assert!((found / lanes - 1.0).abs() < 0.01, "{name}: {found}");
    };
    close("cvt.s32.s8", 64.0);
    close("mma.sync.m16n8k16.f64", 2.0);
    // One MUFU beside the scaling of what is denormal.
    close("rcp.approx.f32", 15.04);
    let why = row("add.s64").refused.as_deref().unwrap();
    assert!(why.contains("allow"), "{why}");
}
