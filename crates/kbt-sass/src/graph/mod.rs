//! The control flow of a function: basic blocks, dominators, loops, role regions.
//!
//! Blocks start where control can come in: at branch targets and after branches. A label proves nothing,
//! because nvdisasm gives every annotated instruction one of its own.

mod blocks;
mod loops;
mod roles;
mod ways;

pub use blocks::{Block, Graph};
pub use loops::{Loop, LoopKind};
pub use roles::Role;
pub use ways::Ways;
pub(crate) use ways::has_slow_path;

use std::ops::Range;

/// A set of instructions of one function, as index ranges in address order that neither touch nor overlap.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Interval(Vec<Range<usize>>);

impl Interval {
    /// From ranges in any order.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = Range<usize>>) -> Self {
        let mut ranges: Vec<_> = ranges.into_iter().filter(|r| !r.is_empty()).collect();
        ranges.sort_by_key(|r| r.start);
        let mut merged: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        Self(merged)
    }

    /// The ranges.
    #[must_use]
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.0
    }

    /// The instruction indices, in address order.
    pub fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().cloned().flatten()
    }

    /// How many instructions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(ExactSizeIterator::len).sum()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an instruction is in it.
    #[must_use]
    pub fn contains(&self, index: usize) -> bool {
        self.0.iter().any(|r| r.contains(&index))
    }

    /// The instructions in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let pairs = self.0.iter().flat_map(|a| other.0.iter().map(move |b| (a, b)));
        Self::new(pairs.map(|(a, b)| a.start.max(b.start)..a.end.min(b.end)))
    }
}

#[cfg(test)]
mod tests {
    use super::Interval;

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "an interval of one range is meant")]
    fn ranges_are_sorted_merged_and_intersected() {
        let a = Interval::new([5..7, 0..2, 2..4, 9..9]);
        assert_eq!(a.ranges(), [0..4, 5..7]);
        assert_eq!((a.len(), a.contains(4), a.contains(6)), (6, false, true));
        assert_eq!(a.intersection(&Interval::new([3..6])).ranges(), [3..4, 5..6]);
        assert!(Interval::default().is_empty());
    }
}
