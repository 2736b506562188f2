//! What a real ptxas makes of good and bad entries. Needs the compilers that KBT_CUDA names; without the variable
//! the tests say so and return.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

use kbt_device::Arch;
use kbt_microbench::mine::mine;
use kbt_microbench::net::{CleanRates, Form, Known, is_clean, solve};
use kbt_microbench::prepare::{Prepared, prepare, prepare_streams};
use kbt_microbench::spec::Spec;
use kbt_toolchain::Toolchain;
use std::collections::BTreeSet;

fn compile(name: &str, entry: &str) -> Option<Vec<Prepared>> {
    if std::env::var_os("KBT_CUDA").is_none() {
        eprintln!("KBT_CUDA is not set: {name} not run");
        return None;
    }
    let spec = Spec::from_yaml(&format!("instructions:\n{entry}"), "test.yaml").unwrap();
    let tools = Toolchain::find().unwrap();
    Some(prepare(&spec, Arch::SM_90A, &tools, &[8], &|_| true).unwrap())
}

#[test]
fn a_reciprocal_of_a_reciprocal_is_folded_away_and_refused() {
    let entry = "  - name: rcp\n    target: [MUFU.RCP]\n    chains: {f: {x: f32, step: 'rcp.approx.ftz.f32 %x, %x;'}}\n";
    let Some(forms) = compile("a_reciprocal_of_a_reciprocal_is_folded_away_and_refused", entry) else {
        return;
    };
    let why = forms[0].refusal().unwrap();
    assert!(why.contains("ptxas removed or moved it"), "{why}");
}

#[test]
fn a_drifted_opcode_is_refused_with_what_was_emitted() {
    let entry = "  - name: cvt\n    target: [F2F.BF16.F32]\n    chains: {f: {x: f32, with: {a: f32}, step: \
                 'cvt.rn.bf16x2.f32 %x, %x, %a;'}}\n";
    let Some(forms) = compile("a_drifted_opcode_is_refused_with_what_was_emitted", entry) else { return };
    let why = forms[0].refusal().unwrap();
    assert!(why.contains("the body has 0 (F2FP.BF16.F32.PACK_AB"), "{why}");
}

#[test]
fn a_feedback_move_is_found_and_the_merging_chain_has_none() {
    let entry = "  - name: cvt\n    target: ['F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C']\n    ptx: '8.1'\n    chains:\n      \
                 merge: {x: f32, with: {a: f32, b: f32}, temp: {h: 'b16*2'}, ops: 2, step: \
                 'cvt.rn.satfinite.e4m3x2.f32 %h0, %x, %a; cvt.rn.satfinite.e4m3x2.f32 %h1, %x, %b; mov.b32 %x, {%h0, %h1};'}\n      \
                 prmt: {unroll: 64, x: f32, with: {a: f32}, temp: {h: b16}, step: 'cvt.rn.satfinite.e4m3x2.f32 %h, %x, %a; \
                 mov.b32 %x, {%h, %h};'}\n";
    let Some(forms) = compile("a_feedback_move_is_found_and_the_merging_chain_has_none", entry) else {
        return;
    };
    let companions = |p: &Prepared| -> Vec<(String, f64)> {
        p.widest().unwrap().code.companions().map(|c| (c.opcode.clone(), c.count)).collect()
    };
    assert_eq!(companions(&forms[0]), []);
    assert_eq!(companions(&forms[1]), [("PRMT".to_owned(), 1.0)]);
}

#[test]
fn a_template_that_ptxas_rejects_is_refused_with_its_message() {
    let entry = "  - name: bad\n    target: [X]\n    chains: {f: {x: f32, step: 'frobnicate.f32 %x, %x;'}}\n";
    let Some(forms) = compile("a_template_that_ptxas_rejects_is_refused_with_its_message", entry) else {
        return;
    };
    let why = forms[0].refusal().unwrap();
    // The line of the template, and not of a file that nobody has seen; once, and not once a repetition.
    assert!(why.starts_with("test.yaml:4: ptxas ") && !why.contains("kernel.ptx"), "{why}");
    assert!(why.ends_with("known instruction: 'frobnicate', in `frobnicate.f32 %x, %x;`"), "{why}");
    assert_eq!(why.matches("ptxas").count(), 1, "{why}");
}

#[test]
fn a_shuffle_of_what_was_shuffled_is_folded_away_and_refused() {
    let entry = "  - name: shfl\n    target: [SHFL.IDX]\n    chains: {f: {x: b32, step: 'shfl.sync.idx.b32 %x, %x, 1, 31, \
                 -1;'}}\n";
    let Some(forms) = compile("a_shuffle_of_what_was_shuffled_is_folded_away_and_refused", entry) else {
        return;
    };
    let why = forms[0].refusal().unwrap();
    assert!(why.contains("SHFL.IDX were written, the body has") || why.contains("no loop stands"), "{why}");
}

#[test]
fn a_conversion_on_the_slow_pipe_is_no_packing_conversion() {
    let entry = "  - name: cvt\n    target: ['F2FP*']\n    chains: {f: {x: f64, temp: {h: b16}, step: \
                 'cvt.rn.f16.f64 %h, %x; cvt.f64.f16 %x, %h;'}}\n";
    let Some(forms) = compile("a_conversion_on_the_slow_pipe_is_no_packing_conversion", entry) else {
        return;
    };
    let why = forms[0].refusal().unwrap();
    assert!(why.contains("F2FP* were written, the body has 0 (F2F."), "{why}");
}

#[test]
fn a_feedback_move_on_the_subject_s_pipe_is_no_clean_form() {
    let step = "cvt.rn.satfinite.e4m3x2.f32 %h, %x, %a; mov.b32 %x, {%h, %h};";
    let entry = format!(
        "  - name: cvt\n    target: ['F2FP*']\n    ptx: '8.1'\n    chains: {{prmt: {{unroll: 64, x: f32, with: {{a: \
         f32}}, temp: {{h: b16}}, step: '{step}'}}}}\n"
    );
    let Some(forms) = compile("a_feedback_move_on_the_subject_s_pipe_is_no_clean_form", &entry) else {
        return;
    };
    let code = &forms[0].widest().unwrap().code;
    assert!(!is_clean(code), "{:?}", code.per_op);
    // Twice the time of what was meant, and nothing to take off: refused, not 32 lanes.
    let form = Form { name: "prmt", code, clk_per_op: 1.0 };
    assert!(solve(&[form], &CleanRates::new(), &Known::default()).clk_per_op.unwrap_err().contains("PRMT"));
}

#[test]
fn one_rejected_template_does_not_cost_the_others_their_rows() {
    if std::env::var_os("KBT_CUDA").is_none() {
        eprintln!("KBT_CUDA is not set: one_rejected_template_does_not_cost_the_others_their_rows not run");
        return;
    }
    let good = |name: &str| {
        format!(
            "  - name: {name}\n    target: [LOP3.LUT]\n    chains: {{clean: {{x: b32, with: {{a: b32, b: b32}}, rotate: 3, \
             step: 'lop3.b32 %x, %x, %a, %b, 0x96;'}}}}\n"
        )
    };
    let bad = "  - name: bad\n    target: [X]\n    chains: {f: {x: f32, step: 'frobnicate.f32 %x, %x;'}}\n";
    let text = format!("instructions:\n{}{bad}{}", good("one"), good("two"));
    let spec = Spec::from_yaml(&text, "mine.yaml").unwrap();
    let (profile, _) = mine(&spec, Arch::SM_90A, &Toolchain::find().unwrap(), &|_| true).unwrap();
    assert_eq!(["one", "two"].map(|n| profile.rate(n).unwrap().lanes_per_clk_sm), [Some(64.0); 2]);
    let refused = profile.rates.iter().find(|r| r.instruction == "bad").unwrap().refused.as_deref().unwrap();
    assert!(refused.starts_with("mine.yaml:7: ") && refused.contains("in `frobnicate.f32"), "{refused}");
}

/// The targets whose mined profiles are not committed; `profiles.rs` counts the others'.
#[test]
fn the_spec_makes_at_least_150_opcodes_on_the_older_targets() {
    if std::env::var_os("KBT_CUDA").is_none() {
        eprintln!("KBT_CUDA is not set: the_spec_makes_at_least_150_opcodes_on_the_older_targets not run");
        return;
    }
    let (tools, spec) = (Toolchain::find().unwrap(), Spec::embedded().unwrap());
    for arch in ["sm_80", "sm_86", "sm_89"] {
        let streams = prepare_streams(&spec, arch.parse().unwrap(), &tools, &[8], &|_| true).unwrap();
        let codes = streams.iter().flat_map(|p| &p.verified).flat_map(|v| &v.code.per_op);
        let opcodes: BTreeSet<&str> = codes.filter(|p| p.target).map(|p| p.opcode.as_str()).collect();
        assert!(opcodes.len() >= 150, "{arch}: {}", opcodes.len());
    }
}
