//! Walks through all sides of one tensor, chunk by chunk.

use super::bits::BitCounter;
use super::errors::{Constant, ErrorSum};
use super::ties::{TieCounter, is_code};
use super::{CompareError, Rules, Sides, TensorComparison, Tensors};
use kbt_tensor::{Dtype, TensorInfo};
use std::io::Read;
use std::ops::Range;

/// Elements a chunk. Even, so that packed codes are not cut.
const CHUNK: usize = 1 << 16;

/// One side of the walk.
struct Lane<'a> {
    name: String,
    dtype: Dtype,
    data: Box<dyn Read + Send + 'a>,
    bytes: Vec<u8>,
    values: Vec<f64>,
}

impl<'a> Lane<'a> {
    fn open(side: &'a dyn Tensors, info: &TensorInfo) -> Result<Self, CompareError> {
        let data = side.stream(&info.name)?;
        Ok(Self { name: info.name.clone(), dtype: info.dtype, data, bytes: Vec::new(), values: Vec::new() })
    }

    /// The lane of a side for the tensor `like`: the one of its name; where both sides hold a lone tensor, that.
    fn for_tensor(
        side: Option<&'a dyn Tensors>,
        like: &TensorInfo,
        lone: bool,
    ) -> Result<Option<(Self, Vec<usize>)>, CompareError> {
        let Some(side) = side else { return Ok(None) };
        let infos = side.infos();
        let named = infos.iter().find(|i| i.name == like.name);
        let Some(info) = named.or(infos.first().filter(|_| lone && infos.len() == 1)) else {
            return Ok(None);
        };
        Ok(Some((Self::open(side, info)?, info.shape.clone())))
    }

    /// The same, where it must have the shape of `like`.
    fn like(
        side: Option<&'a dyn Tensors>,
        like: &TensorInfo,
        lone: bool,
        what: &str,
    ) -> Result<Option<Self>, CompareError> {
        match Self::for_tensor(side, like, lone)? {
            None => Ok(None),
            Some((lane, shape)) if shape == like.shape => Ok(Some(lane)),
            Some((_, shape)) => Err(CompareError::Input(format!(
                "`{}`: the {what} is {shape:?}, the output {:?}",
                like.name, like.shape
            ))),
        }
    }

    fn next(&mut self, elements: usize) -> Result<(), CompareError> {
        self.bytes.resize(self.dtype.bytes_for(elements).unwrap_or(0), 0);
        self.data
            .read_exact(&mut self.bytes)
            .map_err(|error| CompareError::Read { name: self.name.clone(), error })
    }

    fn decode(&mut self) {
        self.values.clear();
        self.dtype.decode_f64(&self.bytes, &mut self.values);
    }
}

fn elements(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Whether the saved output is a single tensor, which then goes with a single one of any name.
fn lone(sides: &Sides<'_>) -> bool {
    sides.saved.infos().len() == 1
}

/// Which elements the reference holds.
struct Sample<'a> {
    rows: Option<&'a [usize]>,
    row_length: usize,
    /// Rows that lie wholly before the walk.
    passed: usize,
}

impl Sample<'_> {
    /// The parts of the next chunk, which starts at element `start`, that the reference holds.
    fn parts(&mut self, start: usize, chunk: usize) -> Vec<Range<usize>> {
        let Some(rows) = self.rows else { return std::iter::once(0..chunk).collect() };
        let mut parts = Vec::new();
        while let Some(row) = rows.get(self.passed) {
            let (first, end) = (row * self.row_length, (row + 1) * self.row_length);
            if first >= start + chunk {
                break;
            }
            parts.push(first.max(start) - start..end.min(start + chunk) - start);
            if end > start + chunk {
                break;
            }
            self.passed += 1;
        }
        parts
    }
}

/// The reference's lane, and which elements it holds.
fn reference_lane<'a>(
    sides: &Sides<'a>,
    like: &TensorInfo,
) -> Result<(Option<Lane<'a>>, Sample<'a>), CompareError> {
    let whole = Sample { rows: None, row_length: like.shape.last().copied().unwrap_or(1), passed: 0 };
    let Some(rows) = sides.rows else {
        return Ok((checked(Lane::like(sides.reference, like, lone(sides), "reference")?)?, whole));
    };
    let Some((lane, shape)) = Lane::for_tensor(sides.reference, like, lone(sides))? else {
        return Ok((None, whole));
    };
    let (held, all) = (elements(&shape), elements(&like.shape));
    let row_length = held.checked_div(rows.len()).unwrap_or(0);
    let ascending = rows.windows(2).all(|w| w[0] < w[1]);
    let within = rows
        .last()
        .is_some_and(|last| last.checked_add(1).and_then(|n| n.checked_mul(row_length)) <= Some(all));
    if row_length * rows.len() != held || row_length == 0 || !ascending || !within || is_code(like.dtype) {
        return Err(CompareError::Input(format!(
            "`{}`: a reference of shape {shape:?} does not hold {} ascending rows of {:?}",
            like.name,
            rows.len(),
            like.shape
        )));
    }
    Ok((checked(Some(lane))?, Sample { rows: Some(rows), row_length, passed: 0 }))
}

fn checked(lane: Option<Lane<'_>>) -> Result<Option<Lane<'_>>, CompareError> {
    match lane {
        Some(lane) if !matches!(lane.dtype, Dtype::F32 | Dtype::F64) => Err(CompareError::Input(format!(
            "`{}`: the reference is {}; it must be f32 or f64",
            lane.name, lane.dtype
        ))),
        lane => Ok(lane),
    }
}

pub(crate) fn tensor(
    sides: &Sides<'_>,
    saved_info: &TensorInfo,
    variant_info: &TensorInfo,
    rules: &Rules,
) -> Result<TensorComparison, CompareError> {
    let (dtype, shape) = (saved_info.dtype, &saved_info.shape);
    let mut saved = Lane::open(sides.saved, saved_info)?;
    let mut variant = Lane::open(sides.variant, variant_info)?;
    let (mut reference, mut sample) = reference_lane(sides, saved_info)?;
    let mut baseline = Lane::like(sides.baseline, saved_info, lone(sides), "baseline")?;
    if sides.baseline.is_some() && reference.is_some() && baseline.is_none() {
        return Err(CompareError::Input(format!(
            "the baseline has no `{}` of the output's shape",
            saved_info.name
        )));
    }
    let mut bits = BitCounter::new(dtype);
    let row_length = sample.row_length;
    let (mut variant_error, mut baseline_error) = (ErrorSum::new(row_length), ErrorSum::new(row_length));
    let mut ties = (is_code(dtype) && reference.is_some()).then(TieCounter::new);
    let (mut saved_constant, mut reference_constant) = (Constant::default(), Constant::default());
    let all = elements(shape);
    for start in (0..all).step_by(CHUNK) {
        let chunk = CHUNK.min(all - start);
        saved.next(chunk)?;
        variant.next(chunk)?;
        bits.push(&saved.bytes, &variant.bytes);
        if !saved_constant.varies() {
            saved.decode();
            saved_constant.push(&saved.values);
        }
        if let Some(reference) = &mut reference {
            let parts = sample.parts(start, chunk);
            reference.next(parts.iter().map(Range::len).sum())?;
            reference.decode();
            saved.decode();
            variant.decode();
            reference_constant.push(&reference.values);
            push_parts(&mut variant_error, &parts, &variant.values, &reference.values);
            match &mut baseline {
                None => push_parts(&mut baseline_error, &parts, &saved.values, &reference.values),
                Some(baseline) => {
                    baseline.next(chunk)?;
                    baseline.decode();
                    push_parts(&mut baseline_error, &parts, &baseline.values, &reference.values);
                }
            }
            if let Some(ties) = &mut ties {
                let (a, b) = ((&*saved.bytes, &*saved.values), (&*variant.bytes, &*variant.values));
                ties.push(dtype, a, b, &reference.values);
            }
        }
    }
    let bits = bits.finish(shape);
    let blind = [("reference", reference_constant.value()), ("saved output", saved_constant.value())];
    for (what, constant) in blind {
        // A difference is a difference, whatever it is from; only agreement with a constant shows nothing.
        let agrees = what == "reference" || bits.differing_count == 0;
        if let Some(value) = constant.filter(|_| agrees && !rules.allow_constant) {
            return Err(CompareError::Refused(format!(
                "`{}`: the {what} is {value} everywhere, and agreement with a constant is blind to most faults; use \
                 inputs whose output varies, or allow a constant for a probe that expects one",
                saved_info.name
            )));
        }
    }
    let judged = reference.is_some();
    Ok(TensorComparison {
        name: saved_info.name.clone(),
        dtype,
        shape: shape.clone(),
        bits,
        variant: judged.then(|| variant_error.finish(shape, sides.rows)),
        baseline: judged.then(|| baseline_error.finish(shape, sides.rows)),
        ties: ties.map(|t| t.finish(shape)),
        seeds_max_abs_error: largest_over_seeds(sides, saved_info)?,
    })
}

/// Adds the parts of a chunk that the reference holds.
fn push_parts(sum: &mut ErrorSum, parts: &[Range<usize>], values: &[f64], reference: &[f64]) {
    let mut at = 0;
    for part in parts {
        sum.push(&values[part.clone()], &reference[at..at + part.len()]);
        at += part.len();
    }
}

/// The largest error that the baseline reaches over its seeds.
fn largest_over_seeds(sides: &Sides<'_>, like: &TensorInfo) -> Result<Option<f64>, CompareError> {
    let mut largest: Option<f64> = None;
    for (output, reference) in sides.seeds {
        let output = Lane::like(Some(*output), like, lone(sides), "baseline's output for another seed")?;
        let reference = Lane::like(Some(*reference), like, lone(sides), "reference for another seed")?;
        let (Some(mut output), Some(mut reference)) = (output, checked(reference)?) else { continue };
        let mut sum = ErrorSum::new(1);
        let all = elements(&like.shape);
        for start in (0..all).step_by(CHUNK) {
            let chunk = CHUNK.min(all - start);
            output.next(chunk)?;
            reference.next(chunk)?;
            output.decode();
            reference.decode();
            sum.push(&output.values, &reference.values);
        }
        let max = sum.finish(&like.shape, None).max_abs_error;
        largest = Some(largest.map_or(max, |l| l.max(max)));
    }
    Ok(largest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_chunk_are_those_of_the_sampled_rows() {
        let rows = [0, 2, 3];
        let mut sample = Sample { rows: Some(&rows), row_length: 4, passed: 0 };
        let mut check = |start, chunk, expect: &[(usize, usize)]| {
            let parts: Vec<_> = sample.parts(start, chunk).iter().map(|p| (p.start, p.end)).collect();
            assert_eq!(parts, expect);
        };
        check(0, 10, &[(0, 4), (8, 10)]);
        check(10, 3, &[(0, 2), (2, 3)]);
        check(13, 7, &[(0, 3)]);
        check(20, 5, &[]);
        let mut far = Sample { rows: Some(&[0, 3]), row_length: 4, passed: 0 };
        assert_eq!(far.parts(0, 6).len(), 1, "a row beyond the chunk waits");
    }
}
