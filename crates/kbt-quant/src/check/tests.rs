//! Schemes that fit, that do not, and files that are none.

use super::*;

fn scheme(text: &str) -> Scheme {
    Scheme::from_yaml(&format!("schema: kbt.scheme/1\nname: t\n{text}"), "t.yaml").unwrap()
}

#[test]
fn an_offset_with_a_threshold_that_overflows_is_found() {
    // fp8 with offset 8 and a maximum that may be stale by 4: P up to 4096, saturated at 448.
    let outcome = scheme("element: e4m3\noffset_log2: 8\nrescale_threshold_log2: 4\n").check();
    assert!(!outcome.budget.fits);
    assert!(
        outcome.findings[0].contains("4096") && outcome.findings[0].contains("89 %"),
        "{:?}",
        outcome.findings
    );
    assert!(scheme("element: e4m3\noffset_log2: 8\n").check().budget.fits);
}

#[test]
fn a_scheme_that_cannot_work_is_no_scheme_that_fits() {
    // Element and scale hold 2^254, and f32 does not.
    let outcome =
        scheme("element: bf16\nscale: ue8m0\noffset_log2: 100\nrescale_threshold_log2: 100\n").check();
    assert!(!outcome.budget.fits && outcome.findings[0].contains("2^200"), "{outcome:?}");
    // The row's maximum, 2^-60, is nothing in e4m3.
    let outcome = scheme("element: e2m1\nscale: e4m3\noffset_log2: -60\n").check();
    assert!(outcome.findings[0].starts_with("nothing is left: groups"), "{outcome:?}");
    assert!(outcome.render_text().contains("DOES NOT FIT"), "{}", outcome.render_text());
    let text = "schema: kbt.scheme/1\nname: t\nelement: ue8m0\noffset_log2: 0\n";
    let error = Scheme::from_yaml(text, "t.yaml").unwrap_err().to_string();
    assert!(error.starts_with("t.yaml:3:1: element: ue8m0 is a scale's format"), "{error}");
}

#[test]
fn the_unused_scale_range_is_the_free_improvement() {
    let outcome = scheme("element: e2m1\nscale: e4m3\noffset_log2: 2.5849625\n").check();
    assert!(outcome.budget.fits && outcome.improvements[0].contains("from 2.5850 to 11.3923"));
    assert!((outcome.budget.slack_log2 - 448f64.log2()).abs() < 1e-6);
    let below = outcome.flush.below_row_max_log2.unwrap();
    assert!((below + 10.0).abs() < 1e-6, "a scale below 2^-10 is lost: {below}");
    let full = scheme("element: e2m1\nscale: e4m3\noffset_log2: 11.3923\nrow_sum: quantised\n").check();
    assert_eq!(full.codes.scale_unreachable_count, 127, "only the negative ones");
    assert_eq!(full.improvements.len(), 1);
    assert!(full.improvements[0].contains("before quantisation"));
    insta::assert_snapshot!(outcome.render_text());
}

#[test]
fn what_is_advised_fits() {
    let formats = [Format::E2m1, Format::E3m2, Format::E4m3, Format::E5m2, Format::Bf16, Format::F16];
    let scales = [None, Some(Format::E4m3), Some(Format::E5m2), Some(Format::Ue8m0)];
    let (mut raised, mut lowered, mut tightened) = (0, 0, 0);
    for (element, scale) in formats.into_iter().flat_map(|f| scales.map(|s| (f, s))) {
        for (offset, threshold) in
            [(0.0, 0.0), (8.0, 4.0), (30.0, 0.0), (3.0, 100.0), (100.0, 60.0), (-90.0, 0.0)]
        {
            let mut given = Scheme::new("t", element, scale, offset, "test");
            given.rescale_threshold_log2 = threshold;
            let outcome = given.check();
            let tried = |changed: Scheme| {
                let after = changed.check();
                assert!(after.findings.is_empty(), "{outcome:#?} became {after:#?}");
                assert!(changed.raised(&after.budget).is_none(), "{outcome:#?} became {after:#?}");
            };
            if let Some(better) = given.raised(&outcome.budget) {
                raised += 1;
                tried(Scheme { offset_log2: better, ..given.clone() });
            }
            if outcome.budget.fits {
                continue;
            }
            if let Some(lower) = given.lowered() {
                lowered += 1;
                tried(Scheme { offset_log2: lower, ..given.clone() });
            }
            if let Some(threshold) = given.tightened() {
                tightened += 1;
                tried(Scheme { rescale_threshold_log2: threshold, ..given.clone() });
            }
            let last = outcome.improvements.last().unwrap();
            assert!(last.starts_with("lower "), "{outcome:#?}");
        }
    }
    assert!(raised > 10 && lowered > 10 && tightened > 5, "{raised} {lowered} {tightened}");
    // An offset that is too great by itself: no threshold helps.
    let outcome = scheme("element: e4m3\noffset_log2: 12\nrescale_threshold_log2: 2\n").check();
    assert_eq!(outcome.improvements.last().unwrap(), "lower the offset to 6.8074");
    // A threshold that no offset meets.
    let outcome = scheme("element: e4m3\noffset_log2: 0\nrescale_threshold_log2: 60\n").check();
    assert_eq!(outcome.improvements.last().unwrap(), "lower the rescale threshold to 8.8074");
    // bf16 loses nothing that a sum would keep.
    let outcome = scheme("element: bf16\noffset_log2: 0\n").check();
    assert!(outcome.improvements.is_empty(), "{outcome:#?}");
    assert_eq!(outcome.flush.below_row_max_log2, Some(-126.0), "exp2 flushes before bf16 does");
    assert!(!outcome.render_text().contains("scale codes"), "{}", outcome.render_text());
    // All negative codes, those above 1, and the subnormal ones, all of them below 2^-126.
    assert_eq!(outcome.codes.element_unreachable_count, 32_640 + (0x7f80 - 0x3f81) + 127);
}

#[test]
fn a_ue8m0_scale_that_is_rounded_down_does_not_fit() {
    let text = "element: e4m3\nscale: ue8m0\noffset_log2: 8.807355\n";
    let (open, down, up) = (
        scheme(text).check(),
        scheme(&format!("{text}scale_rounding: rz\n")).check(),
        scheme(&format!("{text}scale_rounding: rp\n")).check(),
    );
    assert!(down.findings[0].contains("up to 50 %") && open.findings.is_empty() && up.findings.is_empty());
    assert!(open.improvements[0].ends_with("the scheme does not say how it is rounded"), "{open:#?}");
    assert!(down.improvements[0].starts_with("round the scale up (rp") && up.improvements.is_empty());
    assert_eq!(up.flush.what, "groups that exp2 flushes");
    assert!((up.flush.below_row_max_log2.unwrap() + 134.807_355).abs() < 1e-9);
    for (more, expect) in [
        (
            "scale: ue8m0\nscale_rounding: rn",
            "6:1: scale_rounding: ue8m0 has no conversion `.rn`; accepted: rz, rp",
        ),
        (
            "scale: e4m3\nscale_rounding: rp",
            "6:1: scale_rounding: e4m3 has no conversion `.rp`; accepted: rn",
        ),
        ("scale_rounding: rp", "5:1: scale_rounding: the scheme has no scale"),
    ] {
        let text = format!("schema: kbt.scheme/1\nname: t\nelement: e2m1\noffset_log2: 1\n{more}\n");
        let error = Scheme::from_yaml(&text, "t.yaml").unwrap_err().to_string();
        assert_eq!(error, format!("t.yaml:{expect}"));
    }
}

#[test]
fn a_bad_file_names_the_field_and_what_is_accepted() {
    for (text, expect) in [
        ("schema: kbt.scheme/2\nname: t\nelement: e2m1\noffset_log2: 0", "1:1: schema: `kbt.scheme/2`"),
        ("schema: kbt.scheme/1\nname: t\nelement: e2m2\noffset_log2: 0", "3:10: "),
        (
            "schema: kbt.scheme/1\nname: t\nelement: e2m1\nscale: f16\noffset_log2: 0",
            "4:1: scale: f16 is no scale's format; accepted are e4m3, e5m2 and ue8m0",
        ),
        (
            "schema: kbt.scheme/1\nname: t\nelement: e2m1\noffset_log2: 1e9",
            "4:1: offset_log2: 1000000000: expected",
        ),
        (
            "# mine\nschema: kbt.scheme/1\nname: t\nelement: e2m1\noffset_log2: 1\n\nrescale_threshold_log2 : -1",
            "7:1: rescale_threshold_log2: -1: expected a number from 0 to 100",
        ),
        ("schema: kbt.scheme/1\nname: t\nelement: e2m1\noffset: 1", "4:1: "),
        ("schema: kbt.scheme/1\nname: t\nelement: e2m1\n", "missing field `offset_log2`"),
        (
            "schema: kbt.scheme/1\nname: t\nelement: e2m1\noffset_log2: 1\noffset_log2: 2",
            "5:1: duplicate field `offset_log2`",
        ),
        ("schema: kbt.scheme/1\n  name: [t\n", "2:"),
        ("", "1:1: "),
    ] {
        let error = Scheme::from_yaml(text, "t.yaml").unwrap_err().to_string();
        assert!(error.starts_with("t.yaml:") && error.contains(expect), "{error}");
        let place: Vec<&str> = error.split(':').skip(1).take(2).collect();
        assert!(place.iter().all(|n| n.parse::<usize>().is_ok_and(|n| n > 0)), "{error}");
        assert!(!error.contains(" at line "), "{error}");
    }
}

#[test]
fn what_is_over_its_budget_by_more_than_its_digits_does_not_fit() {
    let check = |offset: &str| scheme(&format!("element: e4m3\noffset_log2: {offset}\n")).check();
    // 448 is 2^8.80735.
    let rounded = check("8.8074");
    assert!(rounded.budget.fits && rounded.findings.is_empty());
    assert!(rounded.render_text().contains("(0.0000 left)"), "{}", rounded.render_text());
    let over = check("8.8081");
    assert!(!over.budget.fits && over.render_text().contains("DOES NOT FIT"), "{}", over.render_text());
    assert!(over.render_text().contains("(-0.0007 left)"));
}

#[test]
fn what_is_too_great_for_f16_is_infinite_and_not_saturated() {
    let finding = |element: &str| {
        let outcome = scheme(&format!("element: {element}\noffset_log2: 17\n")).check();
        outcome.findings[0].clone()
    };
    assert!(finding("f16").ends_with("does not saturate, so the greatest keys become infinite"));
    assert!(finding("e5m2").contains("it saturates"), "{}", finding("e5m2"));
}
