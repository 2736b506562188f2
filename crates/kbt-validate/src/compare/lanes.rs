//! What a walk reads: where each side keeps a tensor, and which of its rows a reference holds.

use super::ties::is_code;
use super::{CompareError, Sides, Tensors};
use crate::simd::{Kernel, Level};
use kbt_tensor::{Dtype, TensorInfo};
use std::io::{BufReader, Read};
use std::ops::Range;

/// Bytes asked of a file at a time. A chunk of as many or more goes past the buffer.
const READ_AHEAD: usize = 1 << 16;

/// A tensor of one side, to be read from any of its elements on.
#[derive(Clone)]
pub(super) struct Place<'a> {
    side: &'a dyn Tensors,
    pub(super) name: String,
    pub(super) dtype: Dtype,
}

impl<'a> Place<'a> {
    pub(super) fn new(side: &'a dyn Tensors, info: &TensorInfo) -> Self {
        Self { side, name: info.name.clone(), dtype: info.dtype }
    }

    /// A side's tensor that goes with `like`: the one of its name; where both sides hold a lone tensor, that.
    fn for_tensor(
        side: Option<&'a dyn Tensors>,
        like: &TensorInfo,
        lone: bool,
    ) -> Option<(Self, Vec<usize>)> {
        let side = side?;
        let infos = side.infos();
        let named = infos.iter().find(|i| i.name == like.name);
        let info = named.or(infos.first().filter(|_| lone && infos.len() == 1))?;
        Some((Self::new(side, info), info.shape.clone()))
    }

    /// The same, where it must have the shape of `like`.
    pub(super) fn like(
        side: Option<&'a dyn Tensors>,
        like: &TensorInfo,
        lone: bool,
        what: &str,
    ) -> Result<Option<Self>, CompareError> {
        match Self::for_tensor(side, like, lone) {
            None => Ok(None),
            Some((place, shape)) if shape == like.shape => Ok(Some(place)),
            Some((_, shape)) => Err(CompareError::Input(format!(
                "`{}`: the {what} is {shape:?}, the output {:?}",
                like.name, like.shape
            ))),
        }
    }

    /// The same, where it holds the right answer.
    pub(super) fn right(
        side: Option<&'a dyn Tensors>,
        like: &TensorInfo,
        lone: bool,
        what: &str,
    ) -> Result<Option<Self>, CompareError> {
        Self::like(side, like, lone, what)?.map(Self::checked).transpose()
    }

    fn checked(self) -> Result<Self, CompareError> {
        if matches!(self.dtype, Dtype::F32 | Dtype::F64) {
            return Ok(self);
        }
        Err(CompareError::Input(format!(
            "`{}`: the reference is {}; it must be f32 or f64",
            self.name, self.dtype
        )))
    }

    pub(super) fn is_seekable(&self) -> bool {
        self.side.is_seekable(&self.name)
    }

    /// Reads from element `at` on, which for packed codes is even.
    pub(super) fn open(&self, at: usize) -> Result<Lane<'a>, CompareError> {
        let byte = self.dtype.bytes_for(at).unwrap_or(usize::MAX) as u64;
        let data = BufReader::with_capacity(READ_AHEAD, self.side.stream_from(&self.name, byte)?);
        Ok(Lane {
            name: self.name.clone(),
            dtype: self.dtype,
            data,
            bytes: Vec::new(),
            values: Vec::new(),
            level: Level::widest(),
        })
    }
}

/// A side's tensor under way.
pub(super) struct Lane<'a> {
    name: String,
    dtype: Dtype,
    data: BufReader<Box<dyn Read + Send + 'a>>,
    pub(super) bytes: Vec<u8>,
    pub(super) values: Vec<f64>,
    level: Level,
}

/// The decoding of a chunk as a loop for the widest vectors.
struct Decode<'a> {
    dtype: Dtype,
    bytes: &'a [u8],
    values: &'a mut Vec<f64>,
}

impl Kernel for Decode<'_> {
    #[inline(always)]
    fn run(self) {
        self.dtype.decode_f64(self.bytes, self.values);
    }
}

impl Lane<'_> {
    /// Reads the next elements.
    pub(super) fn next(&mut self, elements: usize) -> Result<(), CompareError> {
        self.bytes.resize(self.dtype.bytes_for(elements).unwrap_or(0), 0);
        self.data
            .read_exact(&mut self.bytes)
            .map_err(|error| CompareError::Read { name: self.name.clone(), error })
    }

    /// Decodes them.
    pub(super) fn decode(&mut self) {
        self.values.clear();
        self.level.run(Decode { dtype: self.dtype, bytes: &self.bytes, values: &mut self.values });
    }
}

/// Which elements of a tensor its reference holds.
#[derive(Clone, Copy)]
pub(super) struct Sample<'a> {
    rows: Option<&'a [usize]>,
    pub(super) row_length: usize,
    /// Rows that lie wholly before the walk.
    passed: usize,
}

impl Sample<'_> {
    /// The same with a walk that begins at element `start`, and the elements that the reference holds before it.
    pub(super) fn starting_at(&self, start: usize) -> (Self, usize) {
        let Some(rows) = self.rows else { return (*self, start) };
        let passed = rows.partition_point(|row| (row + 1) * self.row_length <= start);
        let begun = rows.get(passed).map_or(0, |row| start.saturating_sub(row * self.row_length));
        (Self { passed, ..*self }, passed * self.row_length + begun)
    }

    /// The parts of the next chunk, which starts at element `start`, that the reference holds.
    pub(super) fn parts(&mut self, start: usize, chunk: usize) -> Vec<Range<usize>> {
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

/// The number of elements of a shape that a tensor has.
pub(super) fn elements(shape: &[usize]) -> usize {
    // A zero extent makes a tensor empty, however large the others are.
    if shape.contains(&0) { 0 } else { shape.iter().product() }
}

/// Whether the saved output is a single tensor, which then goes with a single one of any name.
pub(super) fn lone(sides: &Sides<'_>) -> bool {
    sides.saved.infos().len() == 1
}

/// The reference's tensor, and which elements it holds.
pub(super) fn reference<'a>(
    sides: &Sides<'a>,
    like: &TensorInfo,
) -> Result<(Option<Place<'a>>, Sample<'a>), CompareError> {
    let whole = Sample { rows: None, row_length: like.shape.last().copied().unwrap_or(1), passed: 0 };
    let Some(rows) = sides.rows else {
        return Ok((Place::right(sides.reference, like, lone(sides), "reference")?, whole));
    };
    let Some((place, shape)) = Place::for_tensor(sides.reference, like, lone(sides)) else {
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
    Ok((Some(place.checked()?), Sample { rows: Some(rows), row_length, passed: 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_chunk_are_those_of_the_sampled_rows() {
        let rows = [0, 2, 3];
        let whole = Sample { rows: Some(&rows), row_length: 4, passed: 0 };
        let check = |sample: &mut Sample<'_>, start, chunk, expect: &[(usize, usize)]| {
            let parts: Vec<_> = sample.parts(start, chunk).iter().map(|p| (p.start, p.end)).collect();
            assert_eq!(parts, expect);
        };
        let mut sample = whole;
        check(&mut sample, 0, 10, &[(0, 4), (8, 10)]);
        check(&mut sample, 10, 3, &[(0, 2), (2, 3)]);
        check(&mut sample, 13, 7, &[(0, 3)]);
        check(&mut sample, 20, 5, &[]);
        let mut far = Sample { rows: Some(&[0, 3]), row_length: 4, passed: 0 };
        assert_eq!(far.parts(0, 6).len(), 1, "a row beyond the chunk waits");
        // A walk that begins within row 2, between rows, at a row's end, and beyond them.
        for (start, before, parts) in
            [(10, 6, &[(0, 2), (2, 6)][..]), (5, 4, &[(3, 7), (7, 11)]), (12, 8, &[(0, 4)]), (16, 12, &[])]
        {
            let (mut sample, held) = whole.starting_at(start);
            assert_eq!(held, before, "before {start}");
            check(&mut sample, start, 20, parts);
        }
    }
}
