//! The error of an output against its reference: largest, mean, relative RMS, and the worst row.

use super::unravel;
use serde::{Deserialize, Serialize};

/// The error of one tensor. Errors are over the elements that are finite on both sides; where either is not,
/// both must be the same NaN or infinity, or the place counts as misplaced.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorStats {
    /// Largest absolute error.
    pub max_abs_error: f64,
    /// Its place.
    pub max_index: Vec<usize>,
    /// Mean absolute error.
    pub mean_abs_error: f64,
    /// Root of the summed squared errors over root of the summed squared reference; absent where the reference
    /// is all zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative_rms_error: Option<f64>,
    /// The row (all but the last index) with the largest RMS error.
    pub worst_row_index: Vec<usize>,
    /// That row's RMS error over the RMS of the whole reference; absent where the reference is all zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_row_relative_rms_error: Option<f64>,
    /// Places where one side is NaN or infinite and the other is not the same.
    pub misplaced_count: u64,
    /// The first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_misplaced_index: Option<Vec<usize>>,
}

/// Sums as the chunks come by.
#[derive(Debug, Default)]
pub(crate) struct ErrorSum {
    row_length: usize,
    elements: usize,
    finite: f64,
    abs: f64,
    squares: f64,
    reference_squares: f64,
    max: f64,
    max_at: usize,
    row_squares: f64,
    worst: f64,
    worst_row: usize,
    misplaced: u64,
    first_misplaced: Option<usize>,
}

impl ErrorSum {
    pub(crate) fn new(row_length: usize) -> Self {
        Self { row_length: row_length.max(1), ..Self::default() }
    }

    /// The next values and the reference's values at the same places.
    pub(crate) fn push(&mut self, values: &[f64], reference: &[f64]) {
        // Sums of a chunk are added to the whole once, which keeps rounding small over billions of elements.
        let (mut abs, mut squares, mut reference_squares) = (0.0, 0.0, 0.0);
        for (value, right) in values.iter().zip(reference) {
            if value.is_finite() && right.is_finite() {
                let error = (value - right).abs();
                let square = error * error;
                self.finite += 1.0;
                abs += error;
                squares += square;
                reference_squares += right * right;
                self.row_squares += square;
                if error > self.max {
                    (self.max, self.max_at) = (error, self.elements);
                }
            } else if !(value.is_nan() && right.is_nan() || value == right) {
                self.misplaced += 1;
                self.first_misplaced.get_or_insert(self.elements);
            }
            self.elements += 1;
            if self.elements.is_multiple_of(self.row_length) {
                if self.row_squares > self.worst {
                    (self.worst, self.worst_row) = (self.row_squares, self.elements / self.row_length - 1);
                }
                self.row_squares = 0.0;
            }
        }
        self.abs += abs;
        self.squares += squares;
        self.reference_squares += reference_squares;
    }

    /// The figures. `rows` are the rows that were pushed, in their order; all of them where it is absent.
    #[expect(clippy::cast_precision_loss, reason = "a row is shorter than 2^53")]
    pub(crate) fn finish(self, shape: &[usize], rows: Option<&[usize]>) -> ErrorStats {
        let row = |pushed: usize| rows.map_or(pushed, |rows| rows.get(pushed).copied().unwrap_or(pushed));
        let place = |pushed: usize| {
            unravel(row(pushed / self.row_length) * self.row_length + pushed % self.row_length, shape)
        };
        // The extents that a row spans are those it takes off the end of the shape.
        let mut row_shape = shape;
        let mut span = 1;
        while let Some((&last, rest)) = row_shape.split_last()
            && span < self.row_length
        {
            (row_shape, span) = (rest, span * last);
        }
        let some = self.reference_squares > 0.0;
        let row_mean = (self.worst / self.row_length as f64) / (self.reference_squares / self.finite);
        ErrorStats {
            max_abs_error: self.max,
            max_index: place(self.max_at),
            mean_abs_error: if self.finite > 0.0 { self.abs / self.finite } else { 0.0 },
            relative_rms_error: some
                .then(|| (self.squares / self.reference_squares).sqrt())
                .filter(|v| v.is_finite()),
            worst_row_index: unravel(row(self.worst_row), row_shape),
            worst_row_relative_rms_error: some.then(|| row_mean.sqrt()).filter(|v| v.is_finite()),
            misplaced_count: self.misplaced,
            first_misplaced_index: self.first_misplaced.map(place),
        }
    }
}

/// Whether the values seen so far are all the same.
#[derive(Debug, Default)]
pub(crate) struct Constant {
    first: Option<f64>,
    varies: bool,
    elements: usize,
}

impl Constant {
    pub(crate) fn push(&mut self, values: &[f64]) {
        self.elements += values.len();
        if self.varies {
            return;
        }
        let Some(first) = self.first.or(values.first().copied()) else { return };
        self.first = Some(first);
        self.varies = values.iter().any(|v| *v != first && !(v.is_nan() && first.is_nan()));
    }

    pub(crate) const fn varies(&self) -> bool {
        self.varies
    }

    /// The one value that two or more elements share.
    pub(crate) fn value(&self) -> Option<f64> {
        self.first.filter(|_| !self.varies && self.elements > 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(shape: &[usize], values: &[f64], reference: &[f64]) -> ErrorStats {
        let mut sum = ErrorSum::new(shape.last().copied().unwrap_or(1));
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

    #[test]
    fn sampled_rows_are_named_by_their_place_in_the_whole() {
        let mut sum = ErrorSum::new(2);
        sum.push(&[1.0, 2.0, 3.0, 5.0], &[1.0, 2.0, 3.0, 4.0]);
        let s = sum.finish(&[2, 3, 2], Some(&[0, 4]));
        assert_eq!((s.max_index, s.worst_row_index), (vec![1, 1, 1], vec![1, 1]));
        let mut sum = ErrorSum::new(1);
        sum.push(&[1.0, 2.0], &[1.0, 4.0]);
        let s = sum.finish(&[2, 3], Some(&[0, 4]));
        assert_eq!((s.max_index, s.worst_row_index), (vec![1, 1], vec![1, 1]), "one value a row");
    }

    #[test]
    fn a_constant_is_seen_across_chunks_and_a_lone_element_is_none() {
        for (values, constant) in [
            (vec![2.0; 5], Some(2.0)),
            (vec![2.0, 2.0, 2.0, 2.0, 3.0], None),
            (vec![0.0], None),
            (vec![], None),
        ] {
            let mut c = Constant::default();
            values.chunks(2).for_each(|chunk| c.push(chunk));
            assert_eq!(c.value(), constant, "{values:?}");
        }
        let mut c = Constant::default();
        c.push(&[f64::NAN, f64::NAN]);
        assert!(c.value().unwrap().is_nan());
    }
}
