//! Code that masks its own scores: what is taken for granted of them allows for that, and a wholly masked group is told.

use super::tests::{lifted, loads};
use super::*;
use crate::outcome::{LiftOutcome, lift_outcome};
use crate::rewrite::Limits;

/// A softmax of four scores that another block masks.
fn softmax(mask: &str) -> String {
    let masks: String =
        (1..=4).map(|i| format!("@%p{i} {}\n", mask.replace("%f", &format!("%f{i}")))).collect();
    let powers: String = (1..=4)
        .map(|i| format!("sub.f32 %f1{i}, %f{i}, %f8;\nmul.f32 %f2{i}, %f1{i}, 0f3FB8AA3B;\nex2.approx.ftz.f32 %f3{i}, %f2{i};\n"))
        .collect();
    let quotients: String = (1..=4)
        .map(|i| format!("div.rn.f32 %f4{i}, %f3{i}, %f53;\nst.global.f32 [%rd9+{i}], %f4{i};\n"))
        .collect();
    format!(
        "{}{masks}bra NEXT;\nNEXT:\nmax.f32 %f6, %f1, %f2;\nmax.f32 %f7, %f6, %f3;\nmax.f32 %f8, %f7, %f4;\n{powers}\
         add.f32 %f51, %f31, %f32;\nadd.f32 %f52, %f51, %f33;\nadd.f32 %f53, %f52, %f34;\n{quotients}",
        loads(4)
    )
}

fn outcome(found: LiftedFunction) -> LiftOutcome {
    lift_outcome("k.ptx", &[found], &crate::cost::tests::hopper(), &Limits::default()).unwrap()
}

#[test]
fn scores_that_the_code_masks_are_not_taken_to_be_finite() {
    for (mask, range) in [
        ("mov.f32 %f, 0fFF800000;", "[-inf, 1e30]"),
        ("mov.b32 %f, -8388608;", "[-inf, 1e30]"),
        ("selp.f32 %f, 0fFF800000, %f, %q;", "[-inf, 1e30]"),
        ("selp.f32 %f, %f, 0fFF800000, %q;", "[-inf, 1e30]"),
        ("mov.f32 %f, %c9;", "[-inf, 1e30]"),
        ("mov.f32 %f, 0fFF7FFFFF;", "[-max, 1e30]"),
        ("mov.f32 %f, 0fCE6E6B28;", "[-1e30, 1e30]"),
    ] {
        let before = if mask.contains("%c9") { "mov.f32 %c9, 0fFF800000;\n" } else { "" };
        let found = lifted(&format!("{before}{}", softmax(mask)));
        let piece = found.pieces.iter().find(|p| p.program.to_string().contains("group_max")).unwrap();
        assert!(
            piece.program.to_string().contains(&format!("elem f1 in {range}")),
            "{mask}: {}",
            piece.program
        );
        let masked = !range.starts_with("[-1e30");
        let has = |text: &str| piece.assumed.iter().any(|a| a.contains(text));
        assert_eq!(has("the code sets it to -"), masked, "{mask}: {:?}", piece.assumed);
        assert_eq!(has("group_max(f1) in [-1e30, 1e30]: not all"), masked, "{mask}: {:?}", piece.assumed);
        assert_eq!(piece.masks[0].is_some(), masked);
    }
}

#[test]
fn a_wholly_masked_group_is_told_before_and_after() {
    for (mask, expected) in [
        ("mov.f32 %f, 0fFF800000;", "where all of f1 are -inf, f41 is NaN before and after"),
        (
            "mov.f32 %f, 0fFF7FFFFF;",
            "not where all of f1 are -3.4028235e38: f41 is 0.25 as the code stands, NaN with this",
        ),
        ("mov.f32 %f, 0fCE6E6B28;", ""),
    ] {
        let out = outcome(lifted(&softmax(mask)));
        let piece = out.functions[0].pieces.iter().find(|p| p.program.contains("group_max")).unwrap();
        assert!(piece.claim.pays, "{piece:#?}");
        let best = &piece.rewrite.candidates[piece.claim.candidates[0]];
        let told = best.guards.iter().find(|g| g.contains("all of f1"));
        assert_eq!(told.map_or("", String::as_str), expected, "{:?}", best.guards);
        assert!(best.replay.holds(), "{:?}", best.replay);
    }
}
