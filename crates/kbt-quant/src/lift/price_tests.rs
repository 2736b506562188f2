//! What lifted code costs as it is compiled, what is known of its inputs, and what is said of its patterns.

use super::tests::lifted;
use super::*;

/// What each instruction of the one piece costs as compiled, in issue slots an element.
fn slots(body: &str) -> f64 {
    let found = lifted(body);
    let [piece] = found.pieces.as_slice() else { panic!("{found:?}") };
    let profile = kbt_device::embedded_profile("h200-sxm").unwrap().unwrap();
    let model = crate::cost::CostModel::new(&profile, piece.program.layout);
    let cost = |(what, times): &(Compiled, f64)| model.compiled(*what).unwrap().cost.issue_slots * times;
    piece.compiled.iter().map(cost).sum()
}

/// Counts of SASS by ptxas 13.0.88 for sm_90a.
#[test]
fn compiled_code_costs_what_ptxas_makes_of_it() {
    let head = "ld.global.f32 %f1, [%rd1];\nld.global.f32 %f2, [%rd1];\nld.global.f32 %f5, [%rd1];\nld.param.f32 %f6, \
                [p];\n";
    let tail = "\nst.global.f32 [%rd2], %f3;";
    for (code, expected) in [
        ("ex2.approx.f32 %f3, %f1;", 4.0),
        ("lg2.approx.f32 %f3, %f1;", 4.0),
        // The last product of a division goes into a sum that PTX gives no rounding.
        ("div.approx.f32 %f4, %f1, %f2;\nadd.f32 %f3, %f4, %f5;", 5.0),
        ("div.approx.ftz.f32 %f4, %f1, %f2;\nadd.ftz.f32 %f3, %f4, %f5;", 2.0),
        ("div.full.f32 %f4, %f1, %f2;\nadd.f32 %f3, %f4, %f5;", 8.0),
        ("div.full.ftz.f32 %f4, %f1, %f2;\nadd.ftz.f32 %f3, %f4, %f5;", 5.0),
        ("div.approx.f32 %f4, %f1, %f2;\nsub.f32 %f3, %f5, %f4;", 5.0),
        ("div.approx.f32 %f4, %f1, %f2;\nadd.rn.f32 %f3, %f4, %f5;", 6.0),
        ("div.full.f32 %f4, %f1, 0f40400000;\nadd.f32 %f3, %f4, %f5;", 1.0),
        // What flushes subnormals and what does not is no one multiply-add.
        ("mul.ftz.f32 %f4, %f1, %f2;\nadd.f32 %f3, %f4, %f5;", 2.0),
        ("mul.f32 %f4, %f1, %f2;\nsub.ftz.f32 %f3, %f5, %f4;", 2.0),
        ("mul.ftz.f32 %f4, %f1, %f2;\nadd.ftz.f32 %f3, %f4, %f5;", 1.0),
        ("div.approx.ftz.f32 %f4, %f1, %f2;\nadd.f32 %f3, %f4, %f5;", 3.0),
        // Squares and a division under a reciprocal root.
        (
            "mul.ftz.f32 %f4, %f1, %f1;\nfma.rn.ftz.f32 %f7, %f2, %f2, 0f3F800000;\ndiv.approx.ftz.f32 %f8, %f4, \
             %f7;\nadd.ftz.f32 %f9, %f8, 0f3F800000;\nrsqrt.approx.ftz.f32 %f3, %f9;",
            5.0,
        ),
        // A thread computes the parameter's reciprocal.
        ("div.approx.ftz.f32 %f4, %f1, %f6;\ntanh.approx.f32 %f7, %f4;\nmul.ftz.f32 %f3, %f7, %f6;", 4.0),
    ] {
        assert_eq!(slots(&format!("{head}{code}{tail}")), expected, "{code}");
    }
}

#[test]
fn what_parameters_alone_give_is_said_and_is_no_gain() {
    let body = "ld.global.f32 %f1, [%rd1];\nld.param.f32 %f6, [p];\ndiv.approx.ftz.f32 %f4, %f1, %f6;\n\
                tanh.approx.f32 %f7, %f4;\nmul.ftz.f32 %f3, %f7, %f6;\nst.global.f32 [%rd2], %f3;";
    let found = lifted(body);
    let follows = &found.pieces[0].follows;
    assert!(
        follows.iter().any(|f| f.starts_with("rcp(f6) from parameters") && f.contains("host")),
        "{follows:?}"
    );
    let profile = kbt_device::embedded_profile("h200-sxm").unwrap().unwrap();
    let limits = crate::rewrite::Limits::default();
    let out = crate::outcome::lift_outcome("k.ptx", std::slice::from_ref(&found), &profile, &limits).unwrap();
    let piece = &out.functions[0].pieces[0];
    assert!((piece.compiled.cycles_per_element - 0.125).abs() < 1e-9, "{:?}", piece.compiled);
    assert_eq!(piece.rewrite.baseline.issue_slots, 4.0);
    assert!(!piece.claim.pays, "{}", piece.claim.statement);
}

#[test]
fn what_a_conversion_from_an_integer_gives_is_known() {
    for (from, range) in [
        ("s32", "[-2^31, 2^31]"),
        ("s64", "[-2^63, 2^63]"),
        ("u32", "[0, 2^32]"),
        ("u64", "[0, 2^64]"),
        ("u8", "[0, 255]"),
        ("s16", "[-2^15, 32767]"),
    ] {
        let body = format!(
            "ld.global.u32 %r1, [%rd1];\ncvt.rn.f32.{from} %f1, %r1;\nadd.f32 %f3, %f1, %f1;\nst.global.f32 [%rd2], %f3;"
        );
        let found = lifted(&body);
        let program = found.pieces[0].program.to_string();
        assert!(program.contains(&format!("f1 in {range}")), "{from}: {program}");
        assert!(found.pieces[0].assumed.is_empty(), "{:?}", found.pieces[0].assumed);
    }
}

/// 1 / sqrt is one function, and is told as taken.
#[test]
fn a_reciprocal_root_is_taken() {
    let body = "ld.global.f32 %f1, [%rd1];\nfma.rn.f32 %f2, %f1, %f1, 0f3F800000;\nsqrt.rn.f32 %f3, %f2;\n\
                rcp.rn.f32 %f4, %f3;\nst.global.f32 [%rd2], %f4;";
    let found = lifted(body);
    let profile = kbt_device::embedded_profile("h200-sxm").unwrap().unwrap();
    let limits = crate::rewrite::Limits::default();
    let out = crate::outcome::lift_outcome("k.ptx", std::slice::from_ref(&found), &profile, &limits).unwrap();
    let piece = &out.functions[0].pieces[0];
    let root = piece.patterns.iter().find(|m| m.pattern == Pattern::DivisionByRoot).unwrap();
    assert_eq!(root.instead, "rsqrt(fma(f1, f1, 1))");
    assert!(root.verdict.starts_with("taken by candidate 1 ("), "{piece:#?}");
}

/// A piece with a pattern whose own condition fails, and one whose does not while another rule's does.
#[test]
fn a_pattern_is_refused_by_its_own_condition_only() {
    let profile = kbt_device::embedded_profile("h200-sxm").unwrap().unwrap();
    let limits = crate::rewrite::Limits::default();
    let verdicts = |body: &str| {
        let found = lifted(body);
        let out =
            crate::outcome::lift_outcome("k.ptx", std::slice::from_ref(&found), &profile, &limits).unwrap();
        let patterns = &out.functions[0].pieces[0].patterns;
        patterns.iter().map(|m| (m.found.clone(), m.verdict.clone())).collect::<Vec<_>>()
    };
    // The greater of two that may both be -inf.
    let merged = verdicts(
        "ld.global.f32 %f1, [%rd1];\nld.global.f32 %f2, [%rd1];\nmax.f32 %f3, %f1, %f2;\nsub.f32 %f4, %f1, %f3;\n\
         mul.f32 %f5, %f4, 0f3FB8AA3B;\nex2.approx.ftz.f32 %f6, %f5;\nst.global.f32 [%rd2], %f6;",
    );
    assert!(!merged.is_empty());
    // The exponential is a factor too, of what may be anything: that condition is not the exponent's.
    let beside = verdicts(
        "ld.param.f32 %f50, [p];\nld.global.f32 %f1, [%rd1];\nld.global.f32 %f2, [%rd1];\nmax.f32 %f3, %f1, %f2;\n\
         sub.f32 %f4, %f1, %f3;\nmul.f32 %f5, %f4, %f50;\nex2.approx.ftz.f32 %f6, %f5;\nmul.f32 %f7, %f6, %f51;\n\
         st.global.f32 [%rd2], %f7;",
    );
    assert!(beside.iter().any(|(found, _)| found.starts_with("exp2(")), "{beside:?}");
    for (found, verdict) in beside {
        assert!(
            !found.starts_with("exp2(") || !verdict.contains("exp2-absorbs-factor"),
            "{found}: {verdict}"
        );
    }
    for (found, verdict) in merged {
        assert!(!verdict.contains("undo-"), "{found}: {verdict}");
        let subject = verdict.strip_prefix("refused: ").and_then(|v| v.split_once(" must ")).map(|v| v.0);
        assert!(subject.is_none_or(|s| found.contains(s.trim_start_matches('-'))), "{found}: {verdict}");
    }
}

/// What takes a pattern is looked for in every candidate, and inside multiply-adds: the best one has the quotients of a sum as
/// multiply-adds by the reciprocal, and another one the exponential of a logarithm.
#[test]
fn a_pattern_is_taken_by_the_candidate_that_has_it() {
    let profile = kbt_device::embedded_profile("h200-sxm").unwrap().unwrap();
    let limits = crate::rewrite::Limits::default();
    let each = |text: &str| -> String { (1..=4).map(|i| text.replace('#', &i.to_string())).collect() };
    let loads = tests::loads(4);
    let head = "ld.param.f32 %f50, [p];\n";
    let over_sum = format!(
        "{head}{loads}ld.global.f32 %f51, [%rd5];\n{}",
        each("sub.f32 %f1#, %f#, %f50;\ndiv.rn.f32 %f2#, %f1#, %f51;\nst.global.f32 [%rd9+#], %f2#;\n")
    );
    // Of a square and 1, so that the root is not 0.
    let root = over_sum.replace(
        "\nsub.f32 %f11",
        "\ntanh.approx.f32 %f54, %f51;\nfma.rn.f32 %f52, %f54, %f54, 0f3F800000;\nsqrt.rn.f32 %f53, %f52;\nsub.f32 %f11",
    );
    let root = root.replace(", %f51;\nst", ", %f53;\nst");
    let softmax = format!(
        "{head}{loads}max.f32 %f5, %f1, %f2;\nmax.f32 %f6, %f5, %f3;\nmax.f32 %f7, %f6, %f4;\n{}add.f32 %f40, %f31, %f32;\n\
         add.f32 %f41, %f40, %f33;\nadd.f32 %f42, %f41, %f34;\n{}",
        each("sub.f32 %f1#, %f#, %f7;\nmul.f32 %f2#, %f1#, 0f3FB8AA3B;\nex2.approx.ftz.f32 %f3#, %f2#;\n"),
        each("div.rn.f32 %f6#, %f3#, %f42;\nst.global.f32 [%rd9+#], %f6#;\n")
    );
    for (body, pattern, has, first) in [
        (&over_sum, Pattern::SharedDivisor, "rcp(", true),
        (&root, Pattern::SharedDivisor, "rsqrt(", true),
        (&root, Pattern::DivisionByRoot, "rsqrt(", true),
        (&softmax, Pattern::SharedDivisor, "rcp(", true),
        (&softmax, Pattern::DivisionByExp2, "log2(", false),
    ] {
        let found = lifted(body);
        let out =
            crate::outcome::lift_outcome("k.ptx", std::slice::from_ref(&found), &profile, &limits).unwrap();
        let [piece] = out.functions[0].pieces.as_slice() else { panic!("{out:#?}") };
        let m = piece.patterns.iter().find(|m| m.pattern == pattern).unwrap();
        let number = m.verdict.strip_prefix("taken by candidate ").and_then(|v| v.split_once(' '));
        let number: usize = number.unwrap_or_else(|| panic!("{}", m.verdict)).0.parse().unwrap();
        let candidate = &piece.rewrite.candidates[number - 1];
        assert!(candidate.program.contains(has), "{}\n{}", m.verdict, candidate.program);
        assert!(m.verdict.contains(&format!("{:.2} issue slots", candidate.issue_slots)), "{}", m.verdict);
        assert_eq!(number == 1, first, "{}", m.verdict);
    }
}
