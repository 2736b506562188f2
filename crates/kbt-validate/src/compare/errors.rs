//! The error of an output against its reference: largest, mean, relative RMS, and the worst row.

use super::unravel;
use crate::simd::{Kernel, Level};
use serde::{Deserialize, Serialize};
use std::array;

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
    level: Level,
    row_length: usize,
    /// Elements before the next one, from the start of what is pushed in all.
    at: usize,
    finite: u64,
    abs: f64,
    squares: f64,
    reference_squares: f64,
    max: f64,
    max_at: usize,
    /// Squared errors of the row that is under way.
    row_squares: f64,
    first_row: FirstRow,
    worst: f64,
    worst_row: usize,
    misplaced: u64,
    first_misplaced: Option<usize>,
}

/// A row that was under way where the sums begin belongs to what came before, too.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
enum FirstRow {
    /// The sums begin with a row.
    #[default]
    Whole,
    /// It has not ended.
    UnderWay,
    /// It has ended with these squared errors.
    Ended(f64),
}

/// Sums side by side.
const LANES: usize = 8;

#[inline(always)]
fn larger(a: f64, b: f64) -> f64 {
    if b > a { b } else { a }
}

/// The lanes put together: the halves first, as vectors are.
#[inline(always)]
fn across([a, b, c, d, e, f, g, h]: [f64; LANES], put: impl Fn(f64, f64) -> f64) -> f64 {
    put(put(put(a, e), put(c, g)), put(put(b, f), put(d, h)))
}

/// Sums over some elements, all of them finite on both sides.
#[derive(Default, Clone, Copy)]
struct Run {
    abs: f64,
    squares: f64,
    reference_squares: f64,
    max: f64,
}

impl Run {
    /// `None` where an element is not finite or a square is not. Sums in lanes, which become vector code.
    #[inline(always)]
    fn of(values: &[f64], reference: &[f64]) -> Option<Self> {
        let [mut abs, mut squares, mut reference_squares, mut max] = [[0.0; LANES]; 4];
        let mut add = |values: &[f64; LANES], reference: &[f64; LANES]| {
            let error: [f64; LANES] = array::from_fn(|lane| (values[lane] - reference[lane]).abs());
            abs = array::from_fn(|lane| abs[lane] + error[lane]);
            squares = array::from_fn(|lane| squares[lane] + error[lane] * error[lane]);
            reference_squares =
                array::from_fn(|lane| reference_squares[lane] + reference[lane] * reference[lane]);
            max = array::from_fn(|lane| larger(max[lane], error[lane]));
        };
        let (whole, rest) = values.as_chunks::<LANES>();
        let (right, right_rest) = reference.as_chunks::<LANES>();
        whole.iter().zip(right).for_each(|(values, right)| add(values, right));
        if !rest.is_empty() {
            // Zeros beside zeros add nothing.
            let padded = |rest: &[f64]| array::from_fn(|lane| rest.get(lane).copied().unwrap_or(0.0));
            add(&padded(rest), &padded(right_rest));
        }
        let sum = Self::across(&abs, &squares, &reference_squares, &max);
        // NaN and infinity on either side end in these sums.
        (sum.abs.is_finite() && sum.squares.is_finite() && sum.reference_squares.is_finite()).then_some(sum)
    }

    /// The lanes put together. Not inlined: what is done across lanes would decide how the loop over them is laid out.
    #[inline(never)]
    fn across(
        abs: &[f64; LANES],
        squares: &[f64; LANES],
        reference_squares: &[f64; LANES],
        max: &[f64; LANES],
    ) -> Self {
        Self {
            abs: across(*abs, |a, b| a + b),
            squares: across(*squares, |a, b| a + b),
            reference_squares: across(*reference_squares, |a, b| a + b),
            max: across(*max, larger),
        }
    }
}

/// One push as a loop for the widest vectors.
struct Push<'a> {
    sum: &'a mut ErrorSum,
    values: &'a [f64],
    reference: &'a [f64],
}

impl Kernel for Push<'_> {
    #[inline(always)]
    fn run(self) {
        self.sum.push_inlined(self.values, self.reference);
    }
}

impl ErrorSum {
    /// Sums over rows of this length, from element `at` of them on.
    pub(crate) fn new(row_length: usize, at: usize) -> Self {
        let row_length = row_length.max(1);
        let first_row = if at.is_multiple_of(row_length) { FirstRow::Whole } else { FirstRow::UnderWay };
        Self { level: Level::widest(), row_length, at, first_row, ..Self::default() }
    }

    /// The next values and the reference's values at the same places.
    pub(crate) fn push(&mut self, values: &[f64], reference: &[f64]) {
        self.level.run(Push { sum: self, values, reference });
    }

    #[inline(always)]
    fn push_inlined(&mut self, mut values: &[f64], mut reference: &[f64]) {
        // Sums of a part of a row are added to the whole once, which keeps rounding small over billions of elements.
        while !values.is_empty() {
            let length = (self.row_length - self.at % self.row_length).min(values.len()).min(reference.len());
            if length == 0 {
                break;
            }
            let (now, right);
            (now, values) = values.split_at(length);
            (right, reference) = reference.split_at(length);
            match Run::of(now, right) {
                Some(run) => self.run(run, now, right),
                None => self.one_by_one(now, right),
            }
            self.at += length;
            if self.at.is_multiple_of(self.row_length) {
                self.end_row();
            }
        }
    }

    fn run(&mut self, run: Run, values: &[f64], reference: &[f64]) {
        if run.max > self.max {
            let at = values.iter().zip(reference).position(|(v, r)| (v - r).abs() == run.max);
            (self.max, self.max_at) = (run.max, self.at + at.unwrap_or(0));
        }
        self.finite += values.len() as u64;
        self.abs += run.abs;
        self.squares += run.squares;
        self.row_squares += run.squares;
        self.reference_squares += run.reference_squares;
    }

    /// Elements among which some are not finite.
    #[cold]
    fn one_by_one(&mut self, values: &[f64], reference: &[f64]) {
        let mut run = Run::default();
        for (index, (value, right)) in values.iter().zip(reference).enumerate() {
            if value.is_finite() && right.is_finite() {
                let error = (value - right).abs();
                self.finite += 1;
                run.abs += error;
                run.squares += error * error;
                run.reference_squares += right * right;
                if error > self.max {
                    (self.max, self.max_at) = (error, self.at + index);
                }
            } else if !(value.is_nan() && right.is_nan() || value == right) {
                self.misplaced += 1;
                self.first_misplaced.get_or_insert(self.at + index);
            }
        }
        self.abs += run.abs;
        self.squares += run.squares;
        self.row_squares += run.squares;
        self.reference_squares += run.reference_squares;
    }

    /// The row that ends before the next element.
    fn end_row(&mut self) {
        let squares = std::mem::take(&mut self.row_squares);
        if self.first_row == FirstRow::UnderWay {
            self.first_row = FirstRow::Ended(squares);
        } else {
            self.row(squares, self.at / self.row_length - 1);
        }
    }

    fn row(&mut self, squares: f64, row: usize) {
        if squares > self.worst {
            (self.worst, self.worst_row) = (squares, row);
        }
    }

    /// The sums over what came right after.
    pub(crate) fn merge(&mut self, next: &Self) {
        match next.first_row {
            FirstRow::Whole => self.row_squares = next.row_squares,
            FirstRow::UnderWay => self.row_squares += next.row_squares,
            FirstRow::Ended(squares) => {
                self.row_squares += squares;
                // Rows are counted by their ends, and this one ends in the row that the next sums begin with.
                let row = self.at / self.row_length;
                let whole = std::mem::replace(&mut self.row_squares, next.row_squares);
                if self.first_row == FirstRow::UnderWay {
                    self.first_row = FirstRow::Ended(whole);
                } else {
                    self.row(whole, row);
                }
            }
        }
        self.row(next.worst, next.worst_row);
        if next.max > self.max {
            (self.max, self.max_at) = (next.max, next.max_at);
        }
        self.at = next.at;
        self.finite += next.finite;
        self.abs += next.abs;
        self.squares += next.squares;
        self.reference_squares += next.reference_squares;
        self.misplaced += next.misplaced;
        self.first_misplaced = self.first_misplaced.or(next.first_misplaced);
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
        let (finite, some) = (self.finite as f64, self.reference_squares > 0.0);
        let row_mean = (self.worst / self.row_length as f64) / (self.reference_squares / finite);
        ErrorStats {
            max_abs_error: self.max,
            max_index: place(self.max_at),
            mean_abs_error: if self.finite > 0 { self.abs / finite } else { 0.0 },
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

    /// What came right after.
    pub(crate) fn merge(&mut self, next: &Self) {
        self.varies |= next.varies;
        if let Some(value) = next.first {
            self.push(&[value]);
            self.elements -= 1;
        }
        self.elements += next.elements;
    }

    /// The one value that two or more elements share.
    pub(crate) fn value(&self) -> Option<f64> {
        self.first.filter(|_| !self.varies && self.elements > 1)
    }
}

#[cfg(test)]
mod tests;
