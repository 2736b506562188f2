//! The embedded spec against what the instructions' own names say.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use kbt_microbench::spec::Spec;

/// Whether a part of a name is a packed type: `f16x2`, and not the operation `ex2`.
fn packs(part: &str, times: &str) -> bool {
    part.strip_suffix(times).is_some_and(|kind| kind.ends_with(|c: char| c.is_ascii_digit()))
}

/// Elements that an instruction gives a lane, by its name: packed types, words of memory, fragments of matrices.
fn width(name: &str) -> f64 {
    let parts: Vec<&str> = name.split('.').collect();
    let number = |text: &str, prefix: &str| text.strip_prefix(prefix)?.parse::<f64>().ok();
    if let Some((m, n)) = parts.iter().find_map(|p| {
        let (m, rest) = p.strip_prefix('m')?.split_once('n')?;
        let n = rest.split('k').next()?;
        Some((m.parse::<f64>().ok()?, n.parse::<f64>().ok()?))
    }) {
        return match parts[0] {
            // The threads of a warp share the products, those of a warpgroup of four.
            "mma" => m * n / 32.0,
            "wgmma" => m * n / 128.0,
            // Bytes, in words of four.
            _ => m * n / 32.0 / 4.0,
        };
    }
    match parts[..] {
        ["ldmatrix" | "stmatrix", times, ..] => number(times, "x").unwrap(),
        ["ld" | "st", "shared", kind] => (number(kind, &kind[..1]).unwrap() / 32.0).max(1.0),
        ["cvt", "pack", ..] => 2.0,
        _ if parts.iter().any(|p| packs(p, "x4")) => 4.0,
        _ if parts.iter().any(|p| packs(p, "x2")) => 2.0,
        _ => 1.0,
    }
}

#[test]
fn results_are_what_the_packing_of_an_instruction_gives_a_lane() {
    let spec = Spec::embedded().unwrap();
    for entry in &spec.instructions {
        // Of a conversion to four, each of two instructions gives half.
        let halves = if entry.name.contains("x4.f32") { 2.0 } else { 1.0 };
        assert!(halves == 1.0 || entry.chains.values().all(|c| c.ops == 2), "{}", entry.name);
        assert_eq!(entry.results, width(&entry.name) / halves, "{}", entry.name);
    }
    for (name, expected) in [
        ("cvt.rn.bf16x2.f32", 2.0),
        ("cvt.rn.bf16.f32", 1.0),
        ("mma.sync.m16n8k16.f32.bf16", 4.0),
        ("wgmma.m64n64k16.f32.bf16", 32.0),
        ("ld.shared.b128", 4.0),
        ("ld.shared.u8", 1.0),
        ("cvt.pack.sat.s16.s32", 2.0),
    ] {
        assert_eq!(width(name), expected, "{name}");
    }
}

#[test]
fn a_compound_step_is_the_operation_and_says_what_is_not() {
    // Written out in the instructions that kernels use for them.
    let written_out = ["e2m1.round.below7", "cvt.rn.satfinite.e2m1x2.f32", "cvt.f32.e4m3 (through f16)"];
    let spec = Spec::embedded().unwrap();
    for entry in spec.instructions.iter().filter(|e| e.compound && !written_out.contains(&e.name.as_str())) {
        for chain in entry.chains.values().filter(|c| c.back.is_empty()) {
            // A move of halves is no instruction.
            let steps =
                chain.step.split(';').map(str::trim).filter(|s| !s.is_empty() && !s.starts_with("mov."));
            assert_eq!(steps.count(), chain.ops as usize, "{}: {}", entry.name, chain.step);
        }
    }
}
