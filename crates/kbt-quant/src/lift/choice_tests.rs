//! Small PTX by hand: values of parameters alone, roots, comparisons, choices, and expf.

use super::tests::{lifted, loads, refused, short};
use super::*;

#[test]
fn what_follows_from_parameters_alone_is_the_same_for_all() {
    let given = "ld.param.f32 %f50, [p];\nld.param.f32 %f51, [p+4];\nmul.f32 %f52, %f50, %f50;\n\
                 add.f32 %f53, %f52, %f51;\nrcp.approx.ftz.f32 %f54, %f53;\n";
    // One element a thread.
    let body = format!(
        "{given}{}sub.f32 %f9, %f1, %f51;\nmul.f32 %f10, %f9, %f54;\nst.global.f32 [%rd9], %f10;",
        loads(1)
    );
    let found = lifted(&body);
    assert_eq!(found.unlifted, []);
    let shapes = |p: &Piece| p.program.shapes.iter().filter(|s| **s == crate::lang::Shape::Const).count();
    assert!(shapes(&found.pieces[0]) >= 5, "{}", found.pieces[0].program);
    short(
        &body,
        &["layout group=1 lanes=1 row=1; elem f1; const f50; const f51; \
           out f10 = (f1 - f51) * rcp(fma(f50, f50, f51))"
            .replace("fma(f50, f50, f51)", "f50 * f50 + f51")
            .as_str()],
    );
    // Several elements, a row's maximum, and a branch by parameters.
    let many: String = (1..=4)
        .map(|i| format!("sub.f32 %f1{i}, %f{i}, %f9;\nmul.f32 %f2{i}, %f1{i}, %f54;\nst.global.f32 [%rd9+{i}], %f2{i};\n"))
        .collect();
    let body = format!(
        "{given}setp.gt.f32 %p1, %f50, %f51;\nselp.f32 %f55, %f50, %f51, %p1;\n{}max.f32 %f5, %f1, %f2;\n\
         max.f32 %f6, %f5, %f3;\nmax.f32 %f7, %f6, %f4;\nmax.f32 %f9, %f7, %f55;\n{many}",
        loads(4)
    );
    let found = lifted(&body);
    assert_eq!((found.unlifted.as_slice(), found.refused.as_slice()), (&[][..], &[][..]));
    short(
        &body,
        &["layout group=4 lanes=1 row=4; elem f1; const f50; const f51; \
           out f21 = (f1 - max(select(lt(f51, f50), f50, f51), group_max(f1))) * rcp(f50 * f50 + f51)"],
    );
}

#[test]
fn roots_comparisons_and_choices_are_lifted() {
    let one = |op: &str| format!("{}{op}\nst.global.f32 [%rd9], %f9;", loads(2));
    let head = "layout group=1 lanes=1 row=1; elem f1";
    for (op, text) in [
        ("sqrt.rn.f32 %f9, %f1;", "sqrt_rn(f1)"),
        ("sqrt.approx.ftz.f32 %f9, %f1;", "sqrt(f1)"),
        ("rsqrt.approx.ftz.f32 %f9, %f1;", "rsqrt(f1)"),
        ("tanh.approx.f32 %f9, %f1;", "tanh(f1)"),
    ] {
        short(&one(op), &[&format!("{head}; out f9 = {text}")]);
    }
    // What is true of NaN is the opposite of what is not.
    for (comparison, text) in [
        ("lt", "lt(f1, f2), f1, f2"),
        ("le", "le(f1, f2), f1, f2"),
        ("gt", "lt(f2, f1), f1, f2"),
        ("ge", "le(f2, f1), f1, f2"),
        ("eq", "eq(f1, f2), f1, f2"),
        ("ltu", "le(f2, f1), f2, f1"),
        ("leu", "lt(f2, f1), f2, f1"),
        ("gtu", "le(f1, f2), f2, f1"),
        ("geu", "lt(f1, f2), f2, f1"),
        ("neu", "eq(f1, f2), f2, f1"),
    ] {
        let body = one(&format!("setp.{comparison}.ftz.f32 %p1, %f1, %f2;\nselp.f32 %f9, %f1, %f2, %p1;"));
        short(&body, &[&format!("{head}; elem f2; out f9 = select({text})")]);
        assert_eq!(lifted(&body).refused, []);
    }
    // `ne` is false of NaN and no opposite of `eq`.
    let found = lifted(&one("setp.ne.f32 %p1, %f1, %f2;\nselp.f32 %f9, %f1, %f2, %p1;"));
    refused(&found, &[("selp.f32", 1, "no comparison of floats"), ("setp.ne.f32", 1, "a comparison")]);
    // A predicate of integers.
    let found = lifted(&one(
        "setp.lt.s32 %p1, %r1, %r2;\nselp.f32 %f9, %f1, 0fFF800000, %p1;\nadd.f32 %f9, %f9, %f1;",
    ));
    refused(&found, &[("selp.f32", 1, "no comparison of floats")]);
}

#[test]
fn what_a_comparison_decides_for_others_is_an_output() {
    let body = format!(
        "{}mul.f32 %f3, %f1, %f2;\nsetp.gt.f32 %p1, %f3, %f2;\n@%p1 st.global.f32 [%rd9], %f1;\n\
         selp.f32 %f4, 0f7F800000, %f1, %p1;\nst.global.f32 [%rd9], %f4;",
        loads(2)
    );
    short(
        &body,
        &[
            "layout group=1 lanes=1 row=1; elem f1; elem f2; out p1 = lt(f2, f1 * f2); out f4 = select(p1, inf, f1)",
        ],
    );
}

/// expf of %f1 in %f17 and %f16, as nvcc writes it.
const EXP: &str = "fma.rn.f32 %f5, %f1, 0f3BBB989D, 0f3F000000;\ncvt.sat.f32.f32 %f6, %f5;\n\
    mov.f32 %f7, 0f4B400001;\nmov.f32 %f8, 0f437C0000;\nfma.rm.f32 %f9, %f6, %f8, %f7;\n\
    add.f32 %f10, %f9, 0fCB40007F;\nneg.f32 %f11, %f10;\nfma.rn.f32 %f13, %f1, 0f3FB8AA3B, %f11;\n\
    fma.rn.f32 %f15, %f1, 0f32A57060, %f13;\nmov.b32 %r5, %f9;\nshl.b32 %r6, %r5, 23;\nmov.b32 %f16, %r6;\n\
    ex2.approx.ftz.f32 %f17, %f15;\n";

#[test]
fn expf_written_out_is_one_exp2() {
    let head = "layout group=1 lanes=1 row=1; elem f1; out";
    let one = |last: &str| format!("{}{EXP}{last}\nst.global.f32 [%rd9], %f18;", loads(1));
    let found = lifted(&one("mul.f32 %f18, %f17, %f16;"));
    assert_eq!(found.refused, []);
    assert_eq!(
        found.pieces[0].compiled.iter().map(|(_, n)| n).sum::<f64>(),
        8.0,
        "as many as it is compiled to"
    );
    short(&one("mul.f32 %f18, %f17, %f16;"), &[&format!("{head} f18 = exp2(f1 * 1.442695)")]);
    short(
        &one("fma.rn.f32 %f18, %f16, %f17, 0f3F800000;"),
        &[&format!("{head} f18 = exp2(f1 * 1.442695) + 1")],
    );
    // With another constant it is something else, and what is rounded down is refused.
    let found = lifted(&one("mul.f32 %f18, %f17, %f16;").replace("0f437C0000", "0f437B0000"));
    assert!(found.refused.iter().any(|r| r.instruction == "fma.rm.f32"), "{:?}", found.refused);
    // A step on its own.
    let found = lifted(&one("mul.f32 %f18, %f17, 0f40000000;"));
    refused(&found, &[("mul.f32", 1, "a step of expf")]);
}

#[test]
fn an_expf_that_becomes_one_product_says_how_far_that_is_as_good() {
    let last = "mul.f32 %f18, %f17, %f16;\nst.global.f32 [%rd9], %f18;";
    let split = lifted(&format!("ld.global.f32 %f1, [%rd1];\n{EXP}{last}"));
    let [text] = split.pieces[0].narrowed.as_slice() else { panic!("{:?}", split.pieces[0].narrowed) };
    assert!(text.starts_with("only where |f1| <= 3.3") && text.contains("7.3e-8 |f1|"), "{text}");
    // e^x by one product in the code itself loses nothing more.
    let one = "ld.global.f32 %f1, [%rd1];\nmul.f32 %f2, %f1, 0f3FB8AA3B;\nex2.approx.ftz.f32 %f3, %f2;\nst.global.f32 [%rd2], %f3;";
    assert!(lifted(one).pieces[0].narrowed.is_empty());
    // In f32: what is said is kept, and near -80 needed.
    let error = |x: f32| {
        let product = f64::from(x * std::f32::consts::LOG2_E).exp2();
        (product / f64::from(x).exp() - 1.0).abs()
    };
    let worst = |from: f32, to: f32| {
        let step = |i: u16| from + (to - from) * f32::from(i) / 60_000.0;
        (0..60_000).map(|i| error(step(i)) / f64::from(step(i)).abs()).fold(0.0, f64::max)
    };
    assert!(worst(-88.0, -0.01) <= 7.3e-8 && error(-80.0).max(error(-79.9)) > 1e-7);
    assert!(worst(-3.3, -0.01) * 3.3 <= 1.0 / 4_194_304.0 * 1.02);
}

/// A row's maximum that is replaced where all of the row is masked: elements may be -inf, and the replay masks them.
#[test]
fn a_maximum_that_is_replaced_where_it_is_masked_allows_masks() {
    let body = |guard: &str| {
        let max = "max.f32 %f5, %f1, %f2;\nmax.f32 %f6, %f5, %f3;\nmax.f32 %f7, %f6, %f4;\n";
        let one = |i: usize| {
            format!(
                "sub.f32 %f1{i}, %f{i}, %f8;\nmul.f32 %f2{i}, %f1{i}, 0f3FB8AA3B;\nex2.approx.ftz.f32 %f3{i}, %f2{i};\nst.global.f32 [%rd9], %f3{i};\n"
            )
        };
        let ones: String = (1..=4).map(one).collect();
        format!("{}{max}{guard}{ones}", loads(4))
    };
    let select = "setp.eq.f32 %p1, %f7, 0fFF800000;\nselp.f32 %f8, 0f00000000, %f7, %p1;\n";
    let profile = kbt_device::embedded_profile("h200-sxm").unwrap().unwrap();
    let piece = |guard: &str| {
        let found = lifted(&body(guard));
        let limits = crate::rewrite::Limits::default();
        let out = crate::outcome::lift_outcome("k.ptx", &[found], &profile, &limits).unwrap();
        let [piece] = out.functions[0].pieces.as_slice() else { panic!("{out:#?}") };
        piece.clone()
    };
    let guarded = piece(select);
    assert!(guarded.program.contains("in [-inf, 1e30]"), "{}", guarded.program);
    assert!(guarded.follows.iter().all(|f| !f.contains("masked")), "{:?}", guarded.follows);
    let candidate = &guarded.rewrite.candidates[0];
    assert!(candidate.rules.iter().any(|r| r == "factor-into-fma"), "{:?}", candidate.rules);
    assert!(
        candidate.replay.holds() && candidate.replay.kinds["wholly masked"] > 0,
        "{:?}",
        candidate.replay.kinds
    );
    // Not replaced: a row of -inf is NaN.
    let plain = piece("mov.f32 %f8, %f7;\n");
    assert!(!plain.program.contains("in [-inf, 1e30]"), "{}", plain.program);
}

#[test]
fn a_constant_that_log2_e_is_folded_into_is_counted_in_what_expf_loses() {
    // expf(-1.403 x): the product of 1.403 and log2 e is rounded by nearly half a unit.
    let split = lifted(&format!(
        "ld.global.f32 %f2, [%rd1];\nmul.f32 %f1, %f2, 0fBFB39581;\n{EXP}mul.f32 %f18, %f17, %f16;\n\
         st.global.f32 [%rd9], %f18;"
    ));
    let [text] = split.pieces[0].narrowed.as_slice() else { panic!("{:?}", split.pieces[0].narrowed) };
    assert!(text.contains("1.3e-7 |") && text.starts_with("only where |f2 * (-1.403)| <= 1.8"), "{text}");
    let factor = f32::from_bits(0x3FB3_9581);
    let folded = (f64::from(factor) * std::f64::consts::LOG2_E) as f32;
    let of = |i: u16| {
        let x = f32::from(i) / 1200.0 + 0.01;
        let exact = f64::from(factor) * f64::from(x);
        (f64::from(folded * x).exp2() / exact.exp() - 1.0).abs() / exact
    };
    let worst = (0..60_000).map(of).fold(0.0, f64::max);
    assert!(worst > 7.3e-8 && worst <= 1.33e-7, "{worst:e}");
}
