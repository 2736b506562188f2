//! What does not change in a loop: where ptxas moves it out, and where it does not.

use super::tests::lifted;
use super::*;
use crate::outcome::{PieceOutcome, lift_outcome};

/// A loop over elements, with `body` between the load of f2 and the store of f9; f1 is a parameter, f3 read before the loop.
fn piece(body: &str) -> PieceOutcome {
    let found = lifted(&format!(
        "ld.param.f32 %f1, [p];\nld.global.f32 %f3, [%rd3];\n$L1:\nld.global.f32 %f2, [%rd1];\n{body}\n\
         st.global.f32 [%rd1], %f9;\nadd.s64 %rd1, %rd1, 4;\nsetp.lt.u64 %p1, %rd1, %rd2;\n@%p1 bra $L1;"
    ));
    let profile = kbt_device::embedded_profile("h200-sxm").unwrap().unwrap();
    let limits = crate::rewrite::Limits::default();
    let out = lift_outcome("k.ptx", std::slice::from_ref(&found), &profile, &limits).unwrap();
    let [piece] = out.functions[0].pieces.as_slice() else { panic!("{out:#?}") };
    assert!(out.render_text().contains(&piece.program.lines().next().unwrap().to_owned()));
    piece.clone()
}

fn found(piece: &PieceOutcome, pattern: Pattern) -> Vec<(&str, &str)> {
    let of = piece.patterns.iter().filter(|m| m.pattern == pattern);
    of.map(|m| (m.found.as_str(), m.instead.as_str())).collect()
}

/// 2^(c log2 e), and the reciprocal of what was read before the loop.
const TWO: &str = "mul.f32 %f4, %f1, 0f3FB8AA3B;\nex2.approx.ftz.f32 %f5, %f4;\nrcp.approx.ftz.f32 %f6, %f3;\n\
                   mul.f32 %f7, %f2, %f5;\nmul.f32 %f8, %f7, %f6;\n";

#[test]
fn what_ptxas_moves_out_of_a_loop_costs_nothing_there() {
    let piece = piece(&format!("{TWO}mov.f32 %f9, %f8;"));
    assert_eq!(found(&piece, Pattern::LoopInvariant), []);
    assert_eq!(piece.compiled.issue_slots, 2.0, "two products");
    let said =
        piece.follows.iter().find(|f| f.contains("does not change in the loop at $L1 (PTX 10-")).unwrap();
    assert!(
        said.starts_with("rcp(f3), exp2(f1 * 1.442695)") || said.starts_with("exp2(f1 * 1.442695), rcp(f3)"),
        "{said}"
    );
    assert!(!piece.follows.iter().any(|f| f.contains("only if the host")), "{:?}", piece.follows);
}

#[test]
fn beside_a_call_it_stays_and_is_a_pattern_with_its_price() {
    let piece = piece(&format!("{TWO}div.rn.f32 %f9, %f8, %f2;"));
    let all = found(&piece, Pattern::LoopInvariant);
    assert_eq!(all.len(), 2, "{all:?}");
    for text in ["exp2(f1 * 1.442695)", "rcp(f3)"] {
        let (_, instead) = all.iter().find(|(found, _)| *found == text).unwrap();
        assert!(instead.starts_with("computed once before the loop at $L1 (PTX 10-"), "{instead}");
    }
    let priced = piece.patterns.iter().find(|m| m.found == "exp2(f1 * 1.442695)").unwrap();
    assert!(
        priced.verdict.contains("0.0625 cycles an element and SM on xu and 2.00 issue slots"),
        "{priced:?}"
    );
}

#[test]
fn a_division_by_what_does_not_change_shares_its_reciprocal_over_iterations() {
    let piece = piece("div.rn.f32 %f9, %f2, %f3;");
    let [(found, instead)] = found(&piece, Pattern::SharedDivisor)[..] else { panic!("{piece:#?}") };
    assert_eq!(found, "f2 / f3");
    assert!(
        instead.starts_with("f2 * rcp(f3), the reciprocal computed once before the loop at $L1"),
        "{instead}"
    );
    assert!(piece.patterns[0].verdict.starts_with("taken by candidate 1"), "{:?}", piece.patterns);
}

#[test]
fn what_elements_and_iterations_share_is_told_once() {
    // Two elements of an iteration, and one divisor of all.
    let body = "ld.global.f32 %f4, [%rd1+4];\ndiv.rn.f32 %f5, %f4, %f3;\nst.global.f32 [%rd1+4], %f5;\ndiv.rn.f32 %f9, %f2, %f3;";
    let piece = piece(body);
    assert!(piece.program.starts_with("layout group=2 lanes=1 row=2"), "{}", piece.program);
    let [(_, instead)] = found(&piece, Pattern::SharedDivisor)[..] else { panic!("{:#?}", piece.patterns) };
    assert!(instead.ends_with("before the loop at $L1 (PTX 10-19)"), "{instead}");
}

#[test]
fn what_the_loop_writes_is_computed_in_each_iteration() {
    let piece = piece(
        "rcp.approx.ftz.f32 %f6, %f3;\nmul.f32 %f9, %f2, %f6;\nadd.f32 %f3, %f3, %f2;\ndiv.rn.f32 %f9, %f9, %f3;",
    );
    assert_eq!(found(&piece, Pattern::LoopInvariant), [], "{piece:#?}");
    assert_eq!(found(&piece, Pattern::SharedDivisor), []);
    assert!(!piece.follows.iter().any(|f| f.contains("does not change")), "{:?}", piece.follows);
}

#[test]
fn a_multiply_add_of_what_only_one_of_two_flushes_has_a_guard() {
    let piece = |body: &str| {
        let loads: String = (1..=3).map(|i| format!("ld.global.f32 %f{i}, [%rd{i}];\n")).collect();
        let found = lifted(&format!("{loads}{body}\nst.global.f32 [%rd9], %f9;"));
        let profile = kbt_device::embedded_profile("h200-sxm").unwrap().unwrap();
        let out = lift_outcome("k.ptx", &[found], &profile, &crate::rewrite::Limits::default()).unwrap();
        out.functions[0].pieces[0].clone()
    };
    let guarded = |p: &PieceOutcome| {
        p.claim.pays
            && p.rewrite.candidates[0]
                .guards
                .iter()
                .any(|g| g.contains("subnormals do not matter: of the product and the sum in f1 * f2 + f3"))
    };
    assert!(guarded(&piece("mul.ftz.f32 %f4, %f1, %f2;\nadd.f32 %f9, %f4, %f3;")));
    assert!(guarded(&piece("mul.f32 %f4, %f1, %f2;\nadd.ftz.f32 %f9, %f4, %f3;")));
    let same = piece("mul.ftz.f32 %f4, %f1, %f2;\nadd.ftz.f32 %f9, %f4, %f3;");
    assert!(!guarded(&same) && !same.claim.pays, "{:?}", same.claim);
}

/// The line of each `rcp` and the label of the innermost loop that it is in.
fn around(body: &str) -> Vec<Option<String>> {
    let text = format!(".version 9.0\n.target sm_90a\n.visible .entry k()\n{{\n{body}\nret;\n}}\n");
    let module = kbt_ptx::parse(&text).unwrap();
    assert_eq!(module.problems, []);
    let f = &module.functions[0];
    let loops = loops::loops(f);
    let marks = f.instructions().filter(|i| i.base() == "rcp");
    marks.map(|i| Loop::around(&loops, i.line).map(|l| l.label.clone())).collect()
}

#[test]
fn a_loop_is_what_comes_back_to_its_label() {
    let mark = "rcp.approx.ftz.f32 %f1, %f2;\n";
    let check = |body: &str, expected: &[Option<&str>]| {
        let shown = around(&body.replace("MARK;", mark));
        assert_eq!(shown.iter().map(Option::as_deref).collect::<Vec<_>>(), expected, "{body}");
    };
    check(
        "MARK;\n$A:\nMARK;\n$B:\nMARK;\n@%p1 bra $B;\nMARK;\n@%p2 bra $A;\nMARK;",
        &[None, Some("$A"), Some("$B"), Some("$A"), None],
    );
    // A part that lies behind the loop, and one between that leaves it for good.
    check(
        "$A:\n@%p1 bra $C;\n@!%p2 bra $D;\nMARK;\n$B:\n@%p3 bra $A;\nbra $E;\n$D:\nMARK;\nbra $E;\n$C:\nMARK;\nbra $B;\n$E:\nMARK;",
        &[Some("$A"), None, Some("$A"), None],
    );
    // Entered in the middle, and a table of branches.
    check("bra $B;\n$A:\nMARK;\n$B:\nMARK;\n@%p1 bra $A;", &[None, None]);
    check("$A:\nMARK;\nbrx.idx %r1, ts;\n$B:\nMARK;\n@%p1 bra $A;", &[None, None]);
}
