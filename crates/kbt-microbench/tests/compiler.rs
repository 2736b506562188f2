//! What a real ptxas makes of good and bad entries. Needs the compilers that KBT_CUDA names; without the variable
//! the tests say so and return.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "helpers of tests")]

use kbt_device::Arch;
use kbt_microbench::prepare::{Prepared, prepare};
use kbt_microbench::spec::Spec;
use kbt_toolchain::Toolchain;

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
    assert!(why.starts_with("test.yaml:2: ") && why.contains("ptxas") && why.contains("frobnicate"), "{why}");
}
