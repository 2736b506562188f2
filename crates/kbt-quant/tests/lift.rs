//! Kernels that the crate has never seen, compiled and lifted: what is found, where, and what is claimed.

#![allow(clippy::unwrap_used, reason = "a test that cannot run has failed")]

mod nvcc;

use kbt_device::{Arch, DeviceProfile, embedded_profile};
use kbt_quant::lang::Op;
use kbt_quant::lift::{LiftedFunction, Pattern, Region, lift};
use kbt_quant::outcome::{LiftOutcome, PieceOutcome, lift_outcome};
use kbt_quant::rewrite::Limits;
use kbt_toolchain::{NvccOptions, NvccOutput};

fn h200() -> DeviceProfile {
    embedded_profile("h200-sxm").unwrap().unwrap()
}

/// Options for PTX with source lines.
fn ptx(arch: Arch) -> NvccOptions {
    NvccOptions { output: NvccOutput::Ptx, line_info: true, ..NvccOptions::new(arch) }
        .include(nvcc::root().join("kernels/include"))
}

fn lifted(source: &str, options: &NvccOptions, region: &Region) -> Option<Vec<LiftedFunction>> {
    let tools = nvcc::tools("nothing was lifted from compiled PTX")?;
    let text = String::from_utf8(nvcc::compile(&tools, &nvcc::root().join(source), options)).unwrap();
    let module = kbt_ptx::parse(&text).unwrap();
    assert_eq!(module.problems, []);
    Some(lift(&module, &|_| true, region))
}

fn outcome(source: &str, options: &NvccOptions) -> Option<LiftOutcome> {
    let functions = lifted(source, options, &Region::Whole)?;
    let out = lift_outcome(source, &functions, &h200(), &Limits::default()).unwrap();
    let json = serde_json::to_value(&out).unwrap();
    assert_eq!(kbt_evidence::audit::uncovered_numbers(&json), Vec::<String>::new());
    assert_eq!(serde_json::from_value::<LiftOutcome>(json).unwrap(), out);
    assert!(out.render_text().contains(&out.functions[0].name));
    Some(out)
}

fn test_kernel(name: &str) -> Option<LiftOutcome> {
    outcome(&format!("crates/kbt-quant/tests/cuda/{name}.cu"), &ptx(Arch::SM_90A))
}

/// The best candidate that is claimed.
fn best(piece: &PieceOutcome) -> &kbt_quant::outcome::CandidateOutcome {
    assert!(piece.claim.pays, "{}", piece.claim.statement);
    let c = &piece.rewrite.candidates[piece.claim.candidates[0]];
    assert!(c.replay.holds() && c.replay.rows_count > 0);
    c
}

/// Where a pattern was found, as source lines.
fn places(piece: &PieceOutcome, pattern: Pattern) -> Vec<String> {
    let of = piece.patterns.iter().filter(|m| m.pattern == pattern);
    of.flat_map(|m| m.places.iter().filter_map(|p| p.source.clone())).collect()
}

/// The line of a source on which a text stands.
fn line_of(source: &str, text: &str) -> usize {
    let path = nvcc::root().join(source);
    1 + std::fs::read_to_string(path).unwrap().lines().position(|l| l.contains(text)).unwrap()
}

#[test]
fn a_softmax_divides_by_a_shared_sum_and_scales_beside_its_exp2() {
    let Some(out) = test_kernel("softmax") else { return };
    let [piece] = out.functions[0].pieces.as_slice() else { panic!("{out:#?}") };
    assert!(piece.program.contains("layout group=256 lanes=32 row=256"), "{}", piece.program);
    assert!(piece.program.contains("group_sum("), "{}", piece.program);
    let candidate = best(piece);
    assert_eq!(candidate.operations["div"], 0.0);
    assert_eq!(candidate.operations["rcp"], 0.125, "one a lane and row");
    assert_eq!(candidate.operations["fma"], 1.0, "the factor log2 e and the subtraction in one");
    let source = "crates/kbt-quant/tests/cuda/softmax.cu";
    for (pattern, text) in [(Pattern::DivisionByExp2, "v[i] / sum"), (Pattern::FoldedFactor, "__expf(")] {
        let at = places(piece, pattern);
        let line = line_of(source, text);
        assert_eq!(at.len(), 8, "{at:?}");
        assert!(at.iter().all(|p| p.ends_with(&format!("softmax.cu:{line}"))), "{at:?}, expected {line}");
    }
    // The factor goes into the multiply-add, and all share one reciprocal: the logarithm of the sum is in a dearer candidate.
    for (pattern, is_taken) in
        [(Pattern::FoldedFactor, true), (Pattern::SharedDivisor, true), (Pattern::DivisionByExp2, false)]
    {
        let m = piece.patterns.iter().find(|m| m.pattern == pattern).unwrap();
        assert_eq!(
            m.verdict.starts_with("taken by candidate 1 ("),
            is_taken,
            "{m:#?}\n{}",
            candidate.program
        );
    }
}

#[test]
fn an_rmsnorm_multiplies_by_one_reciprocal_root() {
    let Some(out) = test_kernel("rmsnorm") else { return };
    let f = &out.functions[0];
    assert_eq!((f.refused.as_slice(), f.unlifted.as_slice()), (&[][..], &[][..]));
    let [piece] = f.pieces.as_slice() else { panic!("{out:#?}") };
    assert!(piece.program.contains("sqrt_rn(") && piece.program.contains("group_sum("), "{}", piece.program);
    let candidate = best(piece);
    let count = |name: &str| candidate.operations.get(name).copied().unwrap_or(0.0);
    assert_eq!(
        [count("div"), count("sqrt_rn"), count("sqrt"), count("rcp")],
        [0.0; 4],
        "{}",
        candidate.program
    );
    assert_eq!(count("rsqrt"), 0.125, "one a lane and row");
    for rule in ["sqrt-approx", "div-to-rcp", "rcp-sqrt"] {
        assert!(candidate.rules.iter().any(|r| r == rule), "{rule}: {:?}", candidate.rules);
    }
    // What keeps the root from 0 is said.
    assert!(candidate.guards.iter().any(|g| g.contains("in [2^-60, 1024]")), "{:?}", candidate.guards);
    let roots = places(piece, Pattern::DivisionByRoot);
    let line = line_of("crates/kbt-quant/tests/cuda/rmsnorm.cu", "v[i] / rms");
    assert!(
        roots.len() == 8 && roots.iter().all(|p| p.ends_with(&format!("rmsnorm.cu:{line}"))),
        "{roots:?}"
    );
}

#[test]
fn a_gelu_has_constant_factors_in_a_row_before_its_exp2() {
    let Some(out) = test_kernel("gelu") else { return };
    let [piece] = out.functions[0].pieces.as_slice() else { panic!("{out:#?}") };
    let candidate = best(piece);
    assert!(candidate.rules.iter().any(|r| r == "constant-factors"), "{:?}", candidate.rules);
    assert!(candidate.operations["mul"] <= piece.rewrite.baseline.operations["mul"] - 1.0);
    let [place] = places(piece, Pattern::FoldedFactor).try_into().unwrap();
    let line = line_of("crates/kbt-quant/tests/cuda/gelu.cu", "__expf(");
    assert!(place.ends_with(&format!("gelu.cu:{line}")), "{place}");
}

#[test]
fn a_divisor_of_a_row_is_one_reciprocal_with_what_it_rests_on() {
    let Some(out) = test_kernel("merge") else { return };
    for (function, assumed, follows) in [
        ("merge", None, Some("in [1, 2]: one of its terms is 2^0")),
        ("sink", None, Some("in [1, 9]: one of its terms is 2^0")),
        ("weighted", Some("it has a reciprocal"), None),
    ] {
        let f = out.functions.iter().find(|f| f.name == function).unwrap();
        let [piece] = f.pieces.as_slice() else { panic!("{f:#?}") };
        let shared = piece.patterns.iter().find(|m| m.pattern == Pattern::SharedDivisor).unwrap();
        assert!(shared.verdict.starts_with("taken by candidate 1 ("), "{function}: {}", shared.verdict);
        let candidate = best(piece);
        let count = |op: &str| candidate.operations.get(op).copied().unwrap_or(0.0);
        assert_eq!([count("div"), count("rcp")], [0.0, 0.125], "{function}: {}", candidate.program);
        let has =
            |list: &[String], text: Option<&str>| text.is_none_or(|t| list.iter().any(|l| l.contains(t)));
        assert!(has(&piece.assumed, assumed), "{function}: {:?}", piece.assumed);
        assert!(has(&piece.follows, follows), "{function}: {:?}", piece.follows);
        assert_eq!(
            candidate.guards.iter().any(|g| g.contains("t2) in [2^-60, ")),
            assumed.is_some(),
            "{:?}",
            candidate.guards
        );
    }
}

#[test]
fn nothing_is_claimed_of_a_kernel_that_has_nothing_to_save() {
    let Some(out) = test_kernel("affine") else { return };
    let [piece] = out.functions[0].pieces.as_slice() else { panic!("{out:#?}") };
    assert!(!piece.claim.pays && piece.claim.candidates.is_empty(), "{:?}", piece.claim);
    assert!(piece.claim.statement.starts_with("nothing is claimed"), "{}", piece.claim.statement);
    assert_eq!(piece.patterns, []);
}

/// The forms of the attention kernel and of the quantisation step alone.
fn form(source: &str, arch: Arch, number: u32) -> Option<LiftOutcome> {
    let options = ptx(arch).define("KBT_PV_MODE", "2").define("KBT_QUANT_FORM", number.to_string());
    outcome(source, &options)
}

/// Linear goes to the log2 form; the log2 form in one FMA has nothing left.
fn check_forms(source: &str, arch: Arch, function: &str, lanes: u32) {
    let Some(linear) = form(source, arch, 0) else { return };
    let f = linear.functions.iter().find(|f| f.name == function).unwrap();
    assert_eq!(f.unlifted, []);
    let piece = &f.pieces[0];
    assert!(piece.program.contains(&format!("layout group=16 lanes={lanes} ")), "{}", piece.program);
    for expected in ["cvt_e2m1(t1 / max(t2, 2^-126))", "cvt_e4m3(t2)", "group_max(t1) / 6", "row_sum(t1)"] {
        assert!(piece.program.contains(expected), "{expected}\n{}", piece.program);
    }
    let candidate = best(piece);
    assert_eq!(candidate.operations["div"], 0.0);
    let a_lane = f64::from(16 / lanes);
    assert_eq!(candidate.operations["exp2"], 1.0 + 1.0 / a_lane, "{}", candidate.program);
    for rule in ["group-max-exp2", "group-max-fma", "exp2-absorbs-factor", "undo-div", "lane-sum-factor"] {
        assert!(candidate.rules.iter().any(|r| r == rule), "{rule}: {:?}", candidate.rules);
    }
    assert!(piece.claim.cycles_saved_ratio > 0.4, "{}", piece.claim.statement);
    assert_eq!(candidate.replay.differing_count, candidate.replay.explained_count);
    assert!(candidate.replay.tie_rows_count > 0);
    for pattern in [Pattern::DivisionByExp2, Pattern::MonotoneReduction] {
        let m = piece.patterns.iter().find(|m| m.pattern == pattern).unwrap();
        assert!(m.verdict.starts_with("taken by candidate 1"), "{m:?}");
        assert!(m.places.iter().all(|p| p.source.is_some()), "{m:?}");
    }
    let fused = form(source, arch, 3).unwrap();
    let f = fused.functions.iter().find(|f| f.name == function).unwrap();
    let quantised = f.pieces.iter().find(|p| p.program.contains("cvt_e2m1"));
    let quantised = quantised.unwrap_or_else(|| panic!("{:?}", f.unlifted));
    assert!(
        quantised.claim.cycles_saved_ratio < 0.02,
        "{}\n{}",
        quantised.program,
        quantised.claim.statement
    );
}

#[test]
fn the_attention_kernel_is_lifted_whole_and_its_linear_form_found_wanting() {
    check_forms("kernels/attention/attention.cu", Arch::SM_90A, "attention_forward", 4);
}

#[test]
fn the_quantisation_step_alone_is_lifted_on_hopper_and_blackwell() {
    check_forms("kernels/quant_step/quant_step.cu", Arch::SM_90A, "quant_step", 1);
    check_forms("kernels/quant_step/quant_step.cu", Arch::SM_103A, "quant_step", 1);
}

#[test]
fn a_region_of_source_lines_selects_what_is_inlined_there() {
    let source = "kernels/attention/attention.cu";
    let options = ptx(Arch::SM_90A).define("KBT_PV_MODE", "2").define("KBT_QUANT_FORM", "0");
    let has = |functions: &[LiftedFunction], op: Op| {
        let pieces = functions.iter().flat_map(|f| &f.pieces);
        pieces.flat_map(|p| &p.program.nodes).any(|n| n.op == op)
    };
    // The epilogue's row factors: divisions, no exp2.
    let files = ["kernels/attention/attention.cu", "kernels/attention/softmax.cuh"];
    let has_epilogue =
        |f: &&str| std::fs::read_to_string(nvcc::root().join(f)).unwrap().contains("float finish_row(");
    let file = *files.iter().find(|f| has_epilogue(f)).unwrap();
    let (from, to) = (line_of(file, "float finish_row("), line_of(file, "void write_rows("));
    let region: Region = format!("{file}:{from}-{to}").parse().unwrap();
    let Some(functions) = lifted(source, &options, &region) else { return };
    assert!(has(&functions, Op::Div) && !has(&functions, Op::Exp2));
    // By the name of a header; and nothing where there is no such line.
    let region: Region = "softmax.cuh:1-500".parse().unwrap();
    assert!(has(&lifted(source, &options, &region).unwrap(), Op::Exp2));
    let region: Region = "softmax.cuh:9000-9001".parse().unwrap();
    assert!(lifted(source, &options, &region).unwrap().iter().all(|f| f.blocks == 0));
}
