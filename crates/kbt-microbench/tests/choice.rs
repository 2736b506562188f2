//! Which form a row is taken from is a matter of machine code: measurements that are off change no row's form and no row's
//! opcode, over the whole spec as a real compiler makes it. Needs the compilers that KBT_CUDA names.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

use kbt_device::{Pipe, embedded_profile};
use kbt_evidence::Provenance;
use kbt_microbench::choice::Preference;
use kbt_microbench::measure::{FormRate, ISSUE_PER_CLK};
use kbt_microbench::net::Known;
use kbt_microbench::prepare::{Prepared, prepare_streams};
use kbt_microbench::rows::{Measured, rate_rows};
use kbt_microbench::spec::Spec;
use kbt_toolchain::Toolchain;
use std::collections::{BTreeMap, BTreeSet};

/// Targets of each generation, older and newer than what was measured.
const ARCHS: [&str; 4] = ["sm_80", "sm_90a", "sm_103a", "sm_120a"];

/// The forms of the entries that `only` accepts, as a real compiler makes them.
fn streams(test: &str, arch: &str, only: &(dyn Fn(&str) -> bool + Sync)) -> Option<Vec<Prepared>> {
    if std::env::var_os("KBT_CUDA").is_none() {
        eprintln!("KBT_CUDA is not set: {test} not run");
        return None;
    }
    let (tools, spec) = (Toolchain::find().unwrap(), Spec::embedded().unwrap());
    Some(prepare_streams(&spec, arch.parse().unwrap(), &tools, &[1, 8], only).unwrap())
}

/// Random and the same at every run.
struct Random(u64);

impl Random {
    /// A factor between `1 - share` and `1 + share`.
    fn about_one(&mut self, share: f64) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1.0 + share * ((self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
    }
}

/// SM cycles an operation by what the committed profile knows of an H200: each pipe's instructions one after the other, pipes
/// and the issue port beside each other.
fn modelled(prepared: &Prepared, clk: &BTreeMap<String, f64>) -> Option<f64> {
    let code = &prepared.widest()?.code;
    let mut busy: BTreeMap<Pipe, f64> = BTreeMap::new();
    for op in code.per_op.iter().filter(|op| op.pipe.is_some()) {
        let each = clk.get(&op.opcode).copied().unwrap_or(0.5);
        *busy.entry(op.pipe?).or_default() += op.count * each;
    }
    let issue = code.per_op.iter().map(|op| op.count).sum::<f64>() / ISSUE_PER_CLK;
    Some(busy.values().fold(issue, |a, b| a.max(*b)))
}

fn measured(all: &[Prepared], times: &[Option<f64>], mut off: impl FnMut() -> f64) -> Vec<Measured> {
    let rate = |clk: f64| FormRate {
        clk_per_op: clk,
        with_loop_clk: clk,
        spread_percent: 0.1,
        warps: 32,
        chains: 8,
        plateau: true,
        latency_clk: None,
    };
    let pairs = all.iter().zip(times);
    pairs
        .map(|(p, time)| Measured {
            rate: time.map(|t| rate(t * off())).ok_or_else(|| p.refusal().unwrap_or_default()),
            prepared: p.clone(),
            provenance: Provenance::measured("a model", "NVIDIA H200", "2026-01-01"),
        })
        .collect()
}

#[test]
fn measurements_that_are_off_by_two_percent_choose_the_same_opcode_and_form() {
    let test = "measurements_that_are_off_by_two_percent_choose_the_same_opcode_and_form";
    let Some(all) = streams(test, "sm_90a", &|_| true) else { return };
    let profile = embedded_profile("h200-sxm").unwrap().unwrap();
    let known = profile.rates.iter().filter_map(|r| Some((r.opcode.clone()?, 32.0 / r.lanes_per_clk_sm?)));
    let clk: BTreeMap<String, f64> = known.collect();
    let times: Vec<Option<f64>> = all.iter().map(|p| modelled(p, &clk)).collect();
    let chosen = |off: &mut dyn FnMut() -> f64| -> Vec<(String, Option<String>, Option<String>)> {
        let (rows, notes) = rate_rows(&measured(&all, &times, off), &Known::default());
        rows.into_iter().zip(notes).map(|(r, n)| (r.instruction, r.opcode, n.form)).collect()
    };
    let exact = chosen(&mut || 1.0);
    let names: BTreeSet<&str> = all.iter().map(|p| p.parts[0].entry.name.as_str()).collect();
    assert_eq!(
        exact.iter().map(|(name, ..)| name.as_str()).collect::<BTreeSet<_>>(),
        names,
        "a row vanished"
    );
    let several: BTreeSet<&str> = all
        .windows(2)
        .filter(|pair| pair[0].parts[0].entry == pair[1].parts[0].entry)
        .map(|pair| pair[0].parts[0].entry.name.as_str())
        .collect();
    assert!(several.len() >= 11, "{several:?}");
    for (name, form) in [
        // Three sources of 64 bits are more than the register ports read while a DFMA lasts.
        ("fma.rn.f64", "two_sources"),
        // The packing chain has a move on the subject's pipe.
        ("cvt.rn.satfinite.e4m3x2.f32", "clean"),
        ("brev.b32", "add"),
        ("cvt.rn.bf16.f32", "prmt"),
        ("cvt.rn.bf16.f32.zext", "zext"),
    ] {
        let row = exact.iter().find(|(n, ..)| n == name).unwrap();
        assert_eq!(row.2.as_deref(), Some(form), "{name}");
    }
    let mut random = Random(7);
    for draw in 0..20 {
        let perturbed = chosen(&mut || random.about_one(0.02));
        for (then, now) in exact.iter().zip(&perturbed) {
            assert_eq!(then.1, now.1, "draw {draw}: opcode of {}", then.0);
            // A row of one form may be refused for a companion that fills its pipe; none may be of another form.
            if several.contains(then.0.as_str()) {
                assert_eq!(then.2, now.2, "draw {draw}: form of {}", then.0);
            }
        }
    }
}

#[test]
fn the_forms_of_an_entry_are_of_one_instruction_and_no_two_are_preferred_alike() {
    let spec = Spec::embedded().unwrap();
    let of_several = |name: &str| spec.instructions.iter().any(|e| e.name == name && e.chains.len() > 1);
    let test = "the_forms_of_an_entry_are_of_one_instruction_and_no_two_are_preferred_alike";
    for arch in ARCHS {
        let Some(all) = streams(test, arch, &of_several) else { return };
        let mut lowerings: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for p in &all {
            let seen = p.widest().and_then(|v| v.code.opcode());
            lowerings.entry(&p.parts[0].entry.name).or_default().extend(seen);
        }
        lowerings.retain(|_, opcodes| opcodes.len() > 1);
        assert_eq!(lowerings, BTreeMap::new(), "{arch}");
        for pair in all.windows(2).filter(|pair| pair[0].parts[0].entry == pair[1].parts[0].entry) {
            let [a, b] = [0, 1].map(|i| Preference::of(&pair[i]));
            assert!(a != b || a.is_none(), "{}: {a:?}", pair[0].title());
        }
    }
}

#[test]
fn a_scalar_conversion_to_a_half_is_a_row_for_each_of_its_two_lowerings() {
    let test = "a_scalar_conversion_to_a_half_is_a_row_for_each_of_its_two_lowerings";
    for arch in ARCHS {
        let to_half = |name: &str| name.starts_with("cvt.rn.bf16.f32") || name.starts_with("cvt.rn.f16.f32");
        let Some(all) = streams(test, arch, &to_half) else { return };
        let opcode = |name: &str| {
            let form = all.iter().find(|p| p.parts[0].entry.name == name).unwrap();
            form.widest().and_then(|v| v.code.opcode()).unwrap()
        };
        for half in ["bf16", "f16"] {
            let plain = opcode(&format!("cvt.rn.{half}.f32"));
            assert!(plain.starts_with("F2FP."), "{arch}: {plain}");
            let widened = opcode(&format!("cvt.rn.{half}.f32.zext"));
            assert_eq!(widened, format!("F2F.{}.F32", half.to_uppercase()), "{arch}");
        }
    }
}
