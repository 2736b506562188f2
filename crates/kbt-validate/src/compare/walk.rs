//! Walks through all sides of one tensor: segments that threads take in turns, and each in chunks.
//!
//! The counts and sums of a segment are its own, and are put together in the order of the segments: the figures are
//! the same for any number of threads, and whether or not a file can be read from several places at once.

use super::bits::BitCounter;
use super::errors::{Constant, ErrorSum};
use super::lanes::{Lane, Place, Sample, elements, lone, reference};
use super::specials::SpecialCounter;
use super::ties::{TieCounter, is_code};
use super::{CompareError, Rules, Sides, TensorComparison};
use kbt_tensor::TensorInfo;
use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{panic, thread};

/// Elements a chunk: what a thread holds of each side. Even, so that packed codes are not cut.
const CHUNK: usize = 1 << 15;
/// The same where they are decoded: three sides of f64 stay in the first-level cache.
const DECODED_CHUNK: usize = 1 << 10;
/// Elements a segment.
const SEGMENT: usize = CHUNK * if cfg!(test) { 2 } else { 64 };
/// Threads at most: reading memory is what takes the time, and a few of them use all of its bandwidth.
const MOST_THREADS: usize = 16;

/// What is read of one tensor.
struct Walk<'a> {
    saved: Place<'a>,
    variant: Place<'a>,
    reference: Option<Place<'a>>,
    baseline: Option<Place<'a>>,
    sample: Sample<'a>,
    elements: usize,
}

/// The sides from some element on.
struct Lanes<'a> {
    saved: Lane<'a>,
    variant: Lane<'a>,
    reference: Option<Lane<'a>>,
    baseline: Option<Lane<'a>>,
}

/// What is counted and summed.
struct Counts {
    bits: BitCounter,
    specials: SpecialCounter,
    variant: ErrorSum,
    baseline: ErrorSum,
    ties: Option<TieCounter>,
    saved_constant: Constant,
    variant_constant: Constant,
    reference_constant: Constant,
}

impl Counts {
    /// What came right after.
    fn merge(mut self, next: &Self) -> Self {
        self.bits.merge(&next.bits);
        self.specials.merge(&next.specials);
        self.variant.merge(&next.variant);
        self.baseline.merge(&next.baseline);
        if let (Some(ties), Some(next)) = (&mut self.ties, &next.ties) {
            ties.merge(next);
        }
        self.saved_constant.merge(&next.saved_constant);
        self.variant_constant.merge(&next.variant_constant);
        self.reference_constant.merge(&next.reference_constant);
        self
    }
}

impl<'a> Walk<'a> {
    fn places(&self) -> impl Iterator<Item = &Place<'a>> {
        [Some(&self.saved), Some(&self.variant), self.reference.as_ref(), self.baseline.as_ref()]
            .into_iter()
            .flatten()
    }

    fn open(&self, start: usize) -> Result<Lanes<'a>, CompareError> {
        let held = self.sample.starting_at(start).1;
        Ok(Lanes {
            saved: self.saved.open(start)?,
            variant: self.variant.open(start)?,
            reference: self.reference.as_ref().map(|place| place.open(held)).transpose()?,
            baseline: self.baseline.as_ref().map(|place| place.open(start)).transpose()?,
        })
    }

    fn segments(&self) -> usize {
        self.elements.div_ceil(SEGMENT)
    }

    /// All segments: by as many threads as there are cores, where every side can be read from any place.
    fn run(&self) -> Result<Counts, CompareError> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = cores.min(MOST_THREADS).min(self.segments());
        let counted = if threads > 1 && self.places().all(Place::is_seekable) {
            self.spread(threads)?
        } else {
            let mut lanes = self.open(0)?;
            (0..self.segments()).map(|segment| self.segment(&mut lanes, segment)).collect::<Result<_, _>>()?
        };
        Ok(counted.iter().fold(self.counts(0), |all, next| all.merge(next)))
    }

    /// The segments' counts, in their order.
    fn spread(&self, threads: usize) -> Result<Vec<Counts>, CompareError> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut counted = Vec::new();
            loop {
                let segment = next.fetch_add(1, Ordering::Relaxed);
                if segment >= self.segments() {
                    return Ok(counted);
                }
                match self.open(segment * SEGMENT).and_then(|mut lanes| self.segment(&mut lanes, segment)) {
                    Ok(counts) => counted.push((segment, counts)),
                    Err(error) => {
                        // The others stop where they are.
                        next.store(self.segments(), Ordering::Relaxed);
                        return Err(error);
                    }
                }
            }
        };
        let results: Vec<Result<_, CompareError>> = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let join = |worker: thread::ScopedJoinHandle<'_, _>| {
                worker.join().unwrap_or_else(|panicked| panic::resume_unwind(panicked))
            };
            workers.into_iter().map(join).collect()
        });
        let mut counted: Vec<(usize, Counts)> =
            results.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        counted.sort_unstable_by_key(|(segment, _)| *segment);
        Ok(counted.into_iter().map(|(_, counts)| counts).collect())
    }

    /// Counts of nothing, from element `start` on.
    fn counts(&self, start: usize) -> Counts {
        let (row_length, held) = (self.sample.row_length, self.sample.starting_at(start).1);
        let codes = is_code(self.saved.dtype) && self.reference.is_some();
        Counts {
            bits: BitCounter::new(self.saved.dtype, start),
            specials: SpecialCounter::new(self.saved.dtype, start),
            variant: ErrorSum::new(row_length, held),
            baseline: ErrorSum::new(row_length, held),
            ties: codes.then(|| TieCounter::new(start)),
            saved_constant: Constant::default(),
            variant_constant: Constant::default(),
            reference_constant: Constant::default(),
        }
    }

    /// One segment; the lanes stand at its start.
    fn segment(&self, lanes: &mut Lanes<'_>, segment: usize) -> Result<Counts, CompareError> {
        let (first, end) = (segment * SEGMENT, self.elements.min((segment + 1) * SEGMENT));
        let mut counts = self.counts(first);
        let mut sample = self.sample.starting_at(first).0;
        let chunk = if self.reference.is_some() { DECODED_CHUNK } else { CHUNK };
        for start in (first..end).step_by(chunk) {
            self.chunk(lanes, &mut sample, start, chunk.min(end - start), &mut counts)?;
        }
        Ok(counts)
    }

    fn chunk(
        &self,
        lanes: &mut Lanes<'_>,
        sample: &mut Sample<'_>,
        start: usize,
        length: usize,
        counts: &mut Counts,
    ) -> Result<(), CompareError> {
        let Lanes { saved, variant, reference, baseline } = lanes;
        saved.next(length)?;
        variant.next(length)?;
        counts.bits.push(&saved.bytes, &variant.bytes);
        counts.specials.push(&saved.bytes);
        let Some(reference) = reference else {
            if !counts.saved_constant.varies() {
                saved.decode();
                counts.saved_constant.push(&saved.values);
            }
            return Ok(());
        };
        let parts = sample.parts(start, length);
        reference.next(parts.iter().map(Range::len).sum())?;
        reference.decode();
        saved.decode();
        variant.decode();
        counts.saved_constant.push(&saved.values);
        counts.variant_constant.push(&variant.values);
        counts.reference_constant.push(&reference.values);
        push_parts(&mut counts.variant, &parts, &variant.values, &reference.values);
        match baseline {
            None => push_parts(&mut counts.baseline, &parts, &saved.values, &reference.values),
            Some(baseline) => {
                baseline.next(length)?;
                baseline.decode();
                push_parts(&mut counts.baseline, &parts, &baseline.values, &reference.values);
            }
        }
        if let Some(ties) = &mut counts.ties {
            let (a, b) = ((&*saved.bytes, &*saved.values), (&*variant.bytes, &*variant.values));
            ties.push(self.saved.dtype, a, b, &reference.values);
        }
        Ok(())
    }
}

pub(crate) fn tensor(
    sides: &Sides<'_>,
    saved_info: &TensorInfo,
    variant_info: &TensorInfo,
    rules: &Rules,
) -> Result<TensorComparison, CompareError> {
    let (dtype, shape) = (saved_info.dtype, &saved_info.shape);
    let (reference, sample) = reference(sides, saved_info)?;
    let baseline = Place::like(sides.baseline, saved_info, lone(sides), "baseline")?;
    if sides.baseline.is_some() && reference.is_some() && baseline.is_none() {
        return Err(CompareError::Input(format!(
            "the baseline has no `{}` of the output's shape",
            saved_info.name
        )));
    }
    let judged = reference.is_some();
    let walk = Walk {
        saved: Place::new(sides.saved, saved_info),
        variant: Place::new(sides.variant, variant_info),
        // Without a reference there is nothing to measure the baseline by.
        baseline: baseline.filter(|_| judged),
        reference,
        sample,
        elements: elements(shape),
    };
    let counts = walk.run()?;
    let bits = counts.bits.finish(shape);
    let (saved_special_count, first_saved_special_index) = counts.specials.finish(shape);
    let blind = [("reference", &counts.reference_constant), ("saved output", &counts.saved_constant)];
    for (what, constant) in blind {
        // A difference is a difference, whatever it is from; only agreement with a constant shows nothing.
        let agrees = what == "reference" || bits.differing_count == 0;
        if let Some(value) = constant.value().filter(|_| agrees && !rules.allow_constant) {
            return Err(CompareError::Refused(format!(
                "`{}`: the {what} is {value} everywhere, and agreement with a constant is blind to most faults; use \
                 inputs whose output varies, or allow a constant for a probe that expects one",
                saved_info.name
            )));
        }
    }
    // A change that gives a constant computes nothing.
    let constant_value =
        counts.variant_constant.value().filter(|_| bits.differing_count > 0 && !rules.allow_constant);
    Ok(TensorComparison {
        name: saved_info.name.clone(),
        dtype,
        shape: shape.clone(),
        bits,
        constant_value,
        saved_special_count,
        first_saved_special_index,
        variant: judged.then(|| counts.variant.finish(shape, sides.rows)),
        baseline: judged.then(|| counts.baseline.finish(shape, sides.rows)),
        ties: counts.ties.map(|t| t.finish(shape)),
        seeds_max_abs_error: if judged { largest_over_seeds(sides, saved_info)? } else { None },
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
    for (output, right) in sides.seeds {
        let lone = lone(sides);
        let output = Place::like(Some(*output), like, lone, "baseline's output for another seed")?;
        let right = Place::right(Some(*right), like, lone, "reference for another seed")?;
        let (Some(output), Some(right)) = (output, right) else {
            return Err(CompareError::Input(format!(
                "the baseline's output for another seed, or its reference, has no `{}`",
                like.name
            )));
        };
        let (mut output, mut right) = (output.open(0)?, right.open(0)?);
        let all = elements(&like.shape);
        let mut sum = ErrorSum::new(all, 0);
        for start in (0..all).step_by(CHUNK) {
            let chunk = CHUNK.min(all - start);
            for lane in [&mut output, &mut right] {
                lane.next(chunk)?;
                lane.decode();
            }
            sum.push(&output.values, &right.values);
        }
        let max = sum.finish(&like.shape, None).max_abs_error;
        largest = Some(largest.map_or(max, |l| l.max(max)));
    }
    Ok(largest)
}

#[cfg(test)]
mod tests;
