//! The rule of each class of change.
//!
//! - both: NaN and infinity where the reference has them, if there is one, though the saved output be wrong there too.
//! - reorder: every bit the same.
//! - algebra: every bit the same, or: relative RMS and mean error within the factor of the baseline's, or both at the rounding of the tensor's own type (f32 and f64 only), or
//!   the relative RMS error within what is accepted of that tensor;
//!   the largest error within what the baseline itself reaches over its seeds, where such are given; and codes
//!   of an 8- or 4-bit format equal or explained as ties.
//!
//! A reference from which the baseline itself is far is refused whatever the class: it is the right answer to another
//! question, and every output is as far from it.

use super::{ChangeClass, CompareError, ErrorStats, Rules, TensorComparison};
use kbt_tensor::Dtype;

/// From this relative RMS error of the baseline on, its reference says nothing: one that has nothing to do with the
/// output gives 1 or more, and the coarsest 4-bit kernel stays far below.
pub const BLIND_FROM: f64 = 0.5;

pub(crate) fn judge(
    tensor: &TensorComparison,
    rules: &Rules,
    violations: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> Result<(), CompareError> {
    let name = &tensor.name;
    if let Some(error) = tensor.baseline.as_ref().and_then(|b| b.relative_rms_error)
        && error >= BLIND_FROM
    {
        return Err(CompareError::Refused(format!(
            "`{name}`: the baseline's own relative RMS error against the reference is {error:.3}, so that reference is \
             blind: it is not of these inputs, or the baseline is wrong; accepted: one from which the baseline is less \
             than {BLIND_FROM} away"
        )));
    }
    if let Some(variant) = &tensor.variant
        && let Some(place) = &variant.first_misplaced_index
    {
        let count = variant.misplaced_count;
        let too = if tensor.baseline.as_ref().is_some_and(|b| b.misplaced_count > 0) {
            " (the baseline's output has such places too)"
        } else {
            ""
        };
        violations.push(format!(
            "`{name}`: {count} NaN or infinities where the reference has none, or the other way round, the first at \
             {place:?}{too}"
        ));
    }
    if tensor.bits.differing_count == 0 {
        return Ok(());
    }
    if rules.class == ChangeClass::Reorder {
        let first = tensor.bits.first_index.as_deref().unwrap_or_default();
        let (differing, all) = (tensor.bits.differing_count, tensor.bits.elements_count);
        let what = "a reordering keeps every bit";
        violations
            .push(format!("`{name}`: {differing} of {all} elements differ, the first at {first:?}; {what}"));
        return Ok(());
    }
    // Its error may be small where the right output hardly varies.
    if let Some(value) = tensor.constant_value {
        violations.push(format!("`{name}`: it is {value} everywhere, and the saved output is not"));
        return Ok(());
    }
    let (Some(variant), Some(baseline)) = (&tensor.variant, &tensor.baseline) else {
        return Err(CompareError::Refused(format!(
            "`{name}` differs and has no reference, so whether it is as accurate is not known; give one in f32 or f64"
        )));
    };
    if let Some(place) = tensor.ties.as_ref().and_then(|t| t.first_unexplained_index.as_ref()) {
        let count = tensor.ties.as_ref().map_or(0, |t| t.unexplained_count);
        violations.push(format!("`{name}`: {count} codes differ and lie on no tie, the first at {place:?}"));
    }
    let rounding = rounding(tensor.dtype);
    if [variant, baseline].iter().all(|e| e.relative_rms_error.is_some_and(|e| e <= rounding)) {
        notes.push(format!(
            "`{name}`: both errors are at the rounding of {} (below {rounding:.1e})",
            tensor.dtype
        ));
    } else if let (Some(error), Some(limit)) = (variant.relative_rms_error, rules.tolerances.get(name))
        && error <= *limit
    {
        notes.push(format!(
            "`{name}`: relative RMS error {error:.3e}, within the {limit:.3e} that is accepted"
        ));
    } else {
        accuracy(name, variant, baseline, rules.factor, violations);
    }
    match tensor.seeds_max_abs_error.map(|limit| limit.max(baseline.max_abs_error)) {
        Some(limit) if variant.max_abs_error > limit => violations.push(format!(
            "`{name}`: largest error {:.3e}; the baseline reaches {limit:.3e} over its seeds",
            variant.max_abs_error
        )),
        Some(_) => {}
        None => notes.push(format!(
            "`{name}`: the largest error is not judged: no outputs of the baseline for other seeds were given"
        )),
    }
    Ok(())
}

/// Relative RMS errors up to this are rounding: four units of the last place of f32 or f64, which the approximate
/// exp2 and log2 of any program take. Narrower types have no such floor, since their rounding is the output's error.
fn rounding(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F32 => 4.0 * 0.5_f64.powi(24),
        Dtype::F64 => 4.0 * 0.5_f64.powi(53),
        _ => 0.0,
    }
}

fn accuracy(
    name: &str,
    variant: &ErrorStats,
    baseline: &ErrorStats,
    factor: f64,
    violations: &mut Vec<String>,
) {
    let pairs = [
        ("relative RMS error", variant.relative_rms_error, baseline.relative_rms_error),
        ("mean absolute error", Some(variant.mean_abs_error), Some(baseline.mean_abs_error)),
    ];
    for (what, variant, baseline) in pairs {
        let (Some(variant), Some(baseline)) = (variant, baseline) else { continue };
        if variant > factor * baseline {
            let times =
                if baseline > 0.0 { format!(", {:.3} times it", variant / baseline) } else { String::new() };
            violations.push(format!(
                "`{name}`: {what} {variant:.4e}; the baseline's is {baseline:.4e}{times}, and {factor} times is allowed"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Comparison, Sides, Tensors, compare};
    use super::*;
    use kbt_evidence::Provenance;
    use kbt_tensor::{Tensor, TensorSet};

    fn set(name: &str, dtype: Dtype, values: &[f32]) -> TensorSet {
        let mut set = TensorSet::new();
        set.insert(Tensor::from_f32(name, vec![values.len() / 2, 2], dtype, values).unwrap()).unwrap();
        set
    }

    fn f32s(values: &[f32]) -> TensorSet {
        set("o", Dtype::F32, values)
    }

    fn run(sides: &Sides<'_>, rules: &Rules) -> Result<Comparison, CompareError> {
        compare(sides, rules, Provenance::given("test"))
    }

    fn algebra() -> Rules {
        Rules { class: ChangeClass::Algebra, ..Rules::default() }
    }

    fn judged(saved: &[f32], variant: &[f32], reference: &[f32]) -> Vec<String> {
        let (saved, variant, reference) = (f32s(saved), f32s(variant), f32s(reference));
        let sides = Sides { reference: Some(&reference as &dyn Tensors), ..Sides::new(&saved, &variant) };
        run(&sides, &algebra()).unwrap().violations
    }

    #[test]
    fn a_reordering_keeps_every_bit() {
        let (a, b) = (f32s(&[1.0, 2.0, 3.0, 4.0]), f32s(&[1.0, 2.0, 3.0, 4.0000005]));
        assert!(run(&Sides::new(&a, &a), &Rules::default()).unwrap().identical());
        let differs = run(&Sides::new(&a, &b), &Rules::default()).unwrap();
        assert_eq!(
            differs.violations,
            ["`o`: 1 of 4 elements differ, the first at [1, 1]; a reordering keeps every bit"]
        );
    }

    #[test]
    fn an_algebraic_change_is_as_accurate_as_the_baseline() {
        let right = [1.0, 2.0, 3.0, 4.0];
        let saved = [1.01, 2.0, 3.0, 4.0];
        assert_eq!(judged(&saved, &[1.0, 2.01, 3.0, 4.0], &right), [""; 0]);
        let worse = judged(&saved, &[1.011, 2.0, 3.0, 4.0], &right);
        assert_eq!(worse.len(), 2, "{worse:?}");
        assert!(
            worse[0].starts_with("`o`: relative RMS error") && worse[0].contains("1.02 times is allowed")
        );
        let misplaced = judged(&saved, &[f32::NAN, 2.0, 3.0, 4.0], &right);
        assert!(misplaced[0].contains("NaN") && misplaced[0].contains("[0, 0]"), "{misplaced:?}");
        let exact = judged(&right, &saved, &right);
        assert!(exact[0].contains("the baseline's is 0.0000e0, and"), "{exact:?}");
    }

    #[test]
    fn errors_at_the_rounding_of_the_type_are_no_difference() {
        let right = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(judged(&right, &[1.000_000_1, 2.0, 3.0, 4.0], &right), [""; 0]);
        assert_eq!(judged(&right, &[1.000_002, 2.0, 3.0, 4.0], &right).len(), 2);
    }

    #[test]
    fn an_error_that_is_accepted_of_a_tensor_needs_no_baseline_as_bad() {
        let (right, variant) = (f32s(&[1.0, 2.0, 3.0, 4.0]), f32s(&[1.001, 2.0, 3.0, 4.0]));
        let sides = Sides { reference: Some(&right as &dyn Tensors), ..Sides::new(&right, &variant) };
        // Relative RMS error: 1e-3 over the root of 30.
        for (name, limit, passes) in [("o", 2e-4, true), ("o", 1.8e-4, false), ("lse", 1.0, false)] {
            let rules = Rules { tolerances: [(name.to_owned(), limit)].into(), ..algebra() };
            let comparison = run(&sides, &rules).unwrap();
            assert_eq!(comparison.passed(), passes, "{:?}", comparison.violations);
            assert_eq!(comparison.notes.iter().any(|n| n.contains("that is accepted")), passes);
        }
        let broken = f32s(&[f32::NAN, 2.0, 3.0, 4.0]);
        let sides = Sides { variant: &broken, ..sides };
        let rules = Rules { tolerances: [("o".to_owned(), 9.0)].into(), ..algebra() };
        assert!(!run(&sides, &rules).unwrap().passed(), "a NaN is no small error");
    }

    #[test]
    fn the_largest_error_is_judged_by_the_baselines_spread_over_seeds() {
        let (right, saved, variant) = ([1.0, 2.0, 3.0, 4.0], [1.01, 2.0, 3.01, 4.0], [1.015, 2.0, 3.0, 4.0]);
        let (right, saved, variant) = (f32s(&right), f32s(&saved), f32s(&variant));
        let wide = (f32s(&[5.1, 6.0, 7.0, 8.0]), f32s(&[5.0, 6.0, 7.0, 8.0]));
        let narrow = (f32s(&[5.001, 6.0, 7.0, 8.0]), f32s(&[5.0, 6.0, 7.0, 8.0]));
        for (seed, passes) in [(&narrow, false), (&wide, true)] {
            let seeds: [(&dyn Tensors, &dyn Tensors); 1] = [(&seed.0, &seed.1)];
            let sides = Sides { reference: Some(&right), seeds: &seeds, ..Sides::new(&saved, &variant) };
            let violations = run(&sides, &algebra()).unwrap().violations;
            let found = violations.iter().any(|v| v.contains("over its seeds"));
            assert_eq!(found, !passes, "{violations:?}");
        }
        // The baseline's own error on these inputs is part of its spread.
        let variant_within = f32s(&[1.0, 2.009, 3.0, 4.0]);
        let seeds: [(&dyn Tensors, &dyn Tensors); 1] = [(&narrow.0, &narrow.1)];
        let sides = Sides { reference: Some(&right), seeds: &seeds, ..Sides::new(&saved, &variant_within) };
        assert!(run(&sides, &algebra()).unwrap().passed());
        let sides = Sides { reference: Some(&right as &dyn Tensors), ..Sides::new(&saved, &variant) };
        assert!(run(&sides, &algebra()).unwrap().notes.iter().any(|n| n.contains("not judged")));
    }

    #[test]
    fn a_factor_that_no_error_exceeds_is_refused() {
        let (right, worse) = (f32s(&[1.0, 2.0, 3.0, 4.0]), f32s(&[9.0, 2.0, 3.0, 4.0]));
        let sides = Sides { reference: Some(&right as &dyn Tensors), ..Sides::new(&right, &worse) };
        for factor in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            let error = run(&sides, &Rules { factor, ..algebra() }).unwrap_err().to_string();
            assert!(error.contains("accepted: a finite number above 0"), "{error}");
        }
    }

    #[test]
    fn outputs_without_an_element_show_nothing_and_nan_on_both_sides_is_said() {
        let mut none = TensorSet::new();
        none.insert(Tensor::from_f32("o", vec![0, 2], Dtype::F32, &[]).unwrap()).unwrap();
        let error = run(&Sides::new(&none, &none), &Rules::default()).unwrap_err().to_string();
        assert!(error.contains("no element"), "{error}");
        let holds = f32s(&[1.0, f32::NAN, 3.0, f32::INFINITY]);
        let same = run(&Sides::new(&holds, &holds), &Rules::default()).unwrap();
        assert!(same.identical());
        assert!(
            same.notes.iter().any(|n| n.contains("holds 2 NaN or infinities, the first at [0, 1]")),
            "{same:?}"
        );
    }

    #[test]
    fn an_output_that_is_nan_where_the_reference_is_not_never_passes() {
        let (holds, right) = (f32s(&[1.0, f32::NAN, 3.0, 4.0]), f32s(&[1.0, 2.0, 3.0, 4.0]));
        let nan_too = f32s(&[1.0, f32::NAN, 3.0, 4.0]);
        for rules in [algebra(), Rules::default()] {
            let sides = Sides { reference: Some(&right), ..Sides::new(&holds, &holds) };
            let same = run(&sides, &rules).unwrap();
            assert!(!same.passed(), "{same:?}");
            assert!(same.violations[0].contains("the first at [0, 1] (the baseline's"), "{same:?}");
            let sides = Sides { reference: Some(&nan_too), ..sides };
            assert!(run(&sides, &rules).unwrap().passed());
        }
    }

    #[test]
    fn an_output_that_is_the_same_everywhere_is_wrong_and_not_refused() {
        let (saved, right) = (f32s(&[1.0, 1.001, 1.0, 1.001]), f32s(&[1.0, 1.0011, 1.0, 1.0011]));
        for value in [0.0, 1.0] {
            let flat = f32s(&[value; 4]);
            let sides = Sides { reference: Some(&right), ..Sides::new(&saved, &flat) };
            let judged = run(&sides, &algebra()).unwrap();
            assert_eq!(
                judged.violations,
                [format!("`o`: it is {value} everywhere, and the saved output is not")]
            );
        }
    }

    #[test]
    fn a_separate_baseline_is_the_measure() {
        let (right, saved) = (f32s(&[1.0, 2.0, 3.0, 4.0]), f32s(&[1.0, 2.0, 3.0, 4.0]));
        let (variant, baseline) = (f32s(&[1.01, 2.0, 3.0, 4.0]), f32s(&[1.0, 2.0, 3.01, 4.0]));
        let sides =
            Sides { reference: Some(&right), baseline: Some(&baseline), ..Sides::new(&saved, &variant) };
        assert_eq!(run(&sides, &algebra()).unwrap().violations, [""; 0]);
        let short = f32s(&[1.0, 2.0]);
        let sides = Sides { baseline: Some(&short), ..sides };
        assert!(matches!(run(&sides, &algebra()), Err(CompareError::Input(_))));
    }

    #[test]
    fn a_reference_may_hold_some_of_the_rows() {
        let (saved, variant) =
            (f32s(&[1.0, 2.0, 3.0, 4.0, 5.01, 6.0]), f32s(&[1.0, 9.0, 3.0, 4.0, 5.0, 6.005]));
        let mut right = TensorSet::new();
        right.insert(Tensor::from_f64("o", vec![2, 2], &[3.0, 4.0, 5.0, 6.0]).unwrap()).unwrap();
        let sides = Sides { reference: Some(&right), rows: Some(&[1, 2]), ..Sides::new(&saved, &variant) };
        let comparison = run(&sides, &algebra()).unwrap();
        assert_eq!(comparison.violations, [""; 0], "the wrong row 0 is not in the sample");
        assert_eq!(comparison.tensors[0].bits.differing_count, 3, "bits are compared everywhere");
        let stats = comparison.tensors[0].variant.as_ref().unwrap();
        assert_eq!((stats.max_index.as_slice(), stats.worst_row_index.as_slice()), (&[2, 1][..], &[2][..]));
        for rows in [&[1usize][..], &[2, 1], &[1, 3], &[0, 1, 2], &[]] {
            let sides = Sides { rows: Some(rows), ..sides };
            assert!(matches!(run(&sides, &algebra()), Err(CompareError::Input(_))), "{rows:?}");
        }
    }

    #[test]
    fn what_would_mislead_is_refused() {
        let (a, b, zero) = (f32s(&[1.0, 2.0]), f32s(&[1.0, 3.0]), f32s(&[0.0, -0.0]));
        let refused = |sides: &Sides<'_>, rules: &Rules, says: &str| match run(sides, rules) {
            Err(CompareError::Refused(why)) => assert!(why.contains(says), "{why}"),
            other => panic!("{other:?}"),
        };
        let blind = Sides { reference: Some(&zero as &dyn Tensors), ..Sides::new(&a, &b) };
        refused(&blind, &algebra(), "the reference is 0 everywhere");
        refused(&Sides::new(&zero, &zero), &Rules::default(), "the saved output is 0 everywhere");
        let allowed = Rules { allow_constant: true, ..Rules::default() };
        assert!(run(&Sides::new(&zero, &zero), &allowed).unwrap().identical());
        assert!(!run(&Sides::new(&zero, &a), &Rules::default()).unwrap().passed(), "a difference is one");
        refused(&Sides::new(&a, &b), &algebra(), "no reference");
        refused(&Sides::new(&TensorSet::new(), &b), &algebra(), "no tensor");

        let with_input = |mut set: TensorSet, value: f32| {
            let mut inputs = TensorSet::new();
            inputs.insert(Tensor::from_f32("q", vec![1], Dtype::F32, &[value]).unwrap()).unwrap();
            set.record_inputs(&inputs);
            set
        };
        let (one, two) = (with_input(a.clone(), 1.0), with_input(a.clone(), 2.0));
        refused(&Sides::new(&one, &two), &Rules::default(), "another input `q`");
        let seeds: [(&dyn Tensors, &dyn Tensors); 1] = [(&one, &two)];
        let other_seed = Sides { seeds: &seeds, ..Sides::new(&a, &b) };
        refused(
            &other_seed,
            &Rules::default(),
            "the reference for another seed was computed from another input `q`",
        );
        assert_eq!(run(&Sides::new(&one, &one), &Rules::default()).unwrap().notes, [""; 0]);
        let coarse = set("o", Dtype::Bf16, &[1.0, 2.0]);
        let sides = Sides { reference: Some(&coarse as &dyn Tensors), ..Sides::new(&a, &b) };
        assert!(matches!(run(&sides, &algebra()), Err(CompareError::Input(_))));
    }

    #[test]
    fn tensors_are_paired_by_name_and_lone_ones_whatever_they_are_called() {
        let (a, renamed) = (f32s(&[1.0, 2.0]), set("out", Dtype::F32, &[1.0, 2.0]));
        assert!(run(&Sides::new(&a, &renamed), &Rules::default()).unwrap().identical());
        let mut two = a.clone();
        two.insert(Tensor::from_f32("lse", vec![2], Dtype::F32, &[1.0, 2.0]).unwrap()).unwrap();
        let missing = run(&Sides::new(&two, &a), &Rules::default()).unwrap();
        assert_eq!(missing.violations, ["`lse` is missing from the variant's output"]);
        let extra = run(&Sides::new(&a, &two), &Rules::default()).unwrap();
        assert!(extra.passed() && extra.notes.iter().any(|n| n.contains("`lse`")));
        let half = set("o", Dtype::F16, &[1.0, 2.0]);
        let violations = run(&Sides::new(&a, &half), &Rules::default()).unwrap().violations;
        assert_eq!(violations, ["`o`: the saved output is f32 [1, 2], the variant's f16 [1, 2]"]);
    }

    #[test]
    fn codes_may_differ_on_ties_alone() {
        let codes = |bytes: &[u8]| {
            let mut set = TensorSet::new();
            set.insert(Tensor::new("p", Dtype::E2m1, vec![4], bytes.to_vec()).unwrap()).unwrap();
            set
        };
        let mut before = TensorSet::new();
        before.insert(Tensor::from_f32("p", vec![4], Dtype::F32, &[1.25, 1.0, 3.0, 6.0]).unwrap()).unwrap();
        // 1.25 lies between codes 2 and 3; 3.0 is code 5 and nothing else.
        let saved = codes(&[0x22, 0x75]);
        for (variant, expect) in [([0x23, 0x75], 0), ([0x22, 0x76], 1)] {
            let variant = codes(&variant);
            let sides = Sides { reference: Some(&before as &dyn Tensors), ..Sides::new(&saved, &variant) };
            let violations = run(&sides, &algebra()).unwrap().violations;
            let unexplained = violations.iter().filter(|v| v.contains("lie on no tie")).count();
            assert_eq!(unexplained, expect, "{violations:?}");
        }
    }
}
