//! Errors worked by hand, specials in their places, and the same bits at every level.

use super::*;
use crate::rng::Rng;

fn stats(shape: &[usize], values: &[f64], reference: &[f64]) -> ErrorStats {
    let mut sum = ErrorSum::new(shape.last().copied().unwrap_or(1), 0);
    // Chunks that cut through rows.
    for (v, r) in values.chunks(3).zip(reference.chunks(3)) {
        sum.push(v, r);
    }
    sum.finish(shape, None)
}

#[test]
fn errors_are_those_worked_by_hand() {
    let s = stats(&[2, 2], &[1.0, 2.5, 3.0, 1.0], &[1.0, 2.0, 3.0, 4.0]);
    assert_eq!((s.max_abs_error, s.mean_abs_error), (3.0, 3.5 / 4.0));
    assert_eq!((s.max_index, s.worst_row_index), (vec![1, 1], vec![1]));
    assert_eq!(s.relative_rms_error, Some((9.25f64 / 30.0).sqrt()));
    assert_eq!(s.worst_row_relative_rms_error, Some((4.5f64 / 7.5).sqrt()));
    assert_eq!(s.misplaced_count, 0);
}

#[test]
fn specials_must_be_in_place() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let s = stats(&[4], &[inf, nan, -inf, 1.0], &[inf, nan, inf, nan]);
    assert_eq!((s.misplaced_count, s.first_misplaced_index), (2, Some(vec![2])));
    assert_eq!(s.relative_rms_error, None, "no finite reference");
    let s = stats(&[], &[2.0], &[1.0]);
    assert_eq!((s.max_abs_error, s.max_index, s.worst_row_index), (1.0, vec![], vec![]));
}

/// Rows of every length beside the vectors', with and without specials: the same bits at every level.
#[test]
fn every_level_sums_the_same() {
    let mut rng = Rng::new(4);
    for (row_length, special) in [(1, false), (7, false), (64, true), (100, false), (128, true), (900, false)]
    {
        let mut values = || -> Vec<f64> { (0..1800).map(|_| f64::from(rng.signed())).collect() };
        let (mut left, mut right) = (values(), values());
        if special {
            (left[130], right[130], left[640], right[641]) =
                (f64::NAN, f64::NAN, f64::INFINITY, f64::NEG_INFINITY);
        }
        let summed: Vec<ErrorStats> = Level::available()
            .map(|level| {
                let mut sum = ErrorSum { level, ..ErrorSum::new(row_length, 0) };
                left.chunks(1024).zip(right.chunks(1024)).for_each(|(l, r)| sum.push(l, r));
                sum.finish(&[1800_usize.div_ceil(row_length), row_length], None)
            })
            .collect();
        let errors = || left.iter().zip(&right).map(|(l, r)| (l - r).abs()).filter(|e| e.is_finite());
        assert_eq!(summed[0].max_abs_error, errors().fold(0.0, f64::max));
        assert_eq!(summed[0].misplaced_count, if special { 2 } else { 0 });
        let mean = errors().sum::<f64>() / errors().count() as f64;
        assert!((summed[0].mean_abs_error / mean - 1.0).abs() < 1e-12);
        assert!(summed.iter().all(|stats| *stats == summed[0]), "{row_length}: {summed:?}");
    }
}

#[test]
fn sampled_rows_are_named_by_their_place_in_the_whole() {
    let mut sum = ErrorSum::new(2, 0);
    sum.push(&[1.0, 2.0, 3.0, 5.0], &[1.0, 2.0, 3.0, 4.0]);
    let s = sum.finish(&[2, 3, 2], Some(&[0, 4]));
    assert_eq!((s.max_index, s.worst_row_index), (vec![1, 1, 1], vec![1, 1]));
    let mut sum = ErrorSum::new(1, 0);
    sum.push(&[1.0, 2.0], &[1.0, 4.0]);
    let s = sum.finish(&[2, 3], Some(&[0, 4]));
    assert_eq!((s.max_index, s.worst_row_index), (vec![1, 1], vec![1, 1]), "one value a row");
}

#[test]
fn a_constant_is_seen_across_chunks_and_a_lone_element_is_none() {
    for (values, constant) in
        [(vec![2.0; 5], Some(2.0)), (vec![2.0, 2.0, 2.0, 2.0, 3.0], None), (vec![0.0], None), (vec![], None)]
    {
        let mut c = Constant::default();
        values.chunks(2).for_each(|chunk| c.push(chunk));
        assert_eq!(c.value(), constant, "{values:?}");
    }
    let mut c = Constant::default();
    c.push(&[f64::NAN, f64::NAN]);
    assert!(c.value().unwrap().is_nan());
}
