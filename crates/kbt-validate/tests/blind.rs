//! References by which nothing can be judged are refused; an output that is the same everywhere is wrong.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use kbt_evidence::Provenance;
use kbt_tensor::{Dtype, Tensor, TensorSet};
use kbt_validate::compare::{ChangeClass, CompareError, Comparison, Rules, Sides, Tensors, compare};

fn set(values: &[f32]) -> TensorSet {
    let mut set = TensorSet::new();
    set.insert(Tensor::from_f32("o", vec![values.len()], Dtype::F32, values).unwrap()).unwrap();
    set
}

fn compared(
    class: ChangeClass,
    saved: &[f32],
    variant: &[f32],
    right: &[f32],
) -> Result<Comparison, CompareError> {
    let (saved, variant, right) = (set(saved), set(variant), set(right));
    let sides = Sides { reference: Some(&right as &dyn Tensors), ..Sides::new(&saved, &variant) };
    // What a user accepts must not let a constant pass.
    let rules = Rules { class, tolerances: [("o".to_owned(), 9.0)].into(), ..Rules::default() };
    compare(&sides, &rules, Provenance::given("test"))
}

fn refused(result: Result<Comparison, CompareError>, says: &str) {
    match result {
        Err(CompareError::Refused(why)) => assert!(why.contains("blind") && why.contains(says), "{why}"),
        other => panic!("{other:?}"),
    }
}

const SAVED: [f32; 4] = [1.01, 2.0, 3.0, 4.0];

#[test]
fn a_reference_of_other_inputs_certifies_nothing() {
    let unrelated = [3.0, -4.0, 1.0, -2.0];
    for class in [ChangeClass::Reorder, ChangeClass::Algebra] {
        refused(
            compared(class, &SAVED, &SAVED, &unrelated),
            "relative RMS error against the reference is 1.6",
        );
    }
    refused(compared(ChangeClass::Algebra, &SAVED, &[1.0, 2.0, 3.0, 4.0], &unrelated), "the baseline's own");
    // Errors of 0.45 and 0.55 of the reference's size lie on the two sides of the limit.
    let scaled = |by: f32| [1.0, 2.0, 3.0, 4.0].map(|v| v * by);
    assert!(compared(ChangeClass::Reorder, &scaled(1.45), &scaled(1.45), &scaled(1.0)).is_ok());
    refused(compared(ChangeClass::Reorder, &scaled(1.55), &scaled(1.55), &scaled(1.0)), "less than 0.5 away");
}

#[test]
fn a_variant_that_is_constant_is_not_judged_by_its_error() {
    let right = [1.0, 2.0, 3.0, 4.0];
    assert!(compared(ChangeClass::Algebra, &SAVED, &right, &right).unwrap().passed());
    for value in [0.0, 2.5] {
        let judged = compared(ChangeClass::Algebra, &SAVED, &[value; 4], &right).unwrap();
        assert!(judged.violations[0].contains(&format!("it is {value} everywhere")), "{judged:?}");
    }
}
