//! Tensors of codes: a differing code is explained where the value it was rounded from lies on a tie.
//!
//! Two programs that differ by an ulp before a conversion give other codes only next to a rounding boundary. So
//! a code may differ by one step, and only where the reference, the value before rounding, is within a few f32
//! ulps of the middle between the two.

use kbt_tensor::Dtype;
use serde::{Deserialize, Serialize};

/// How near to the middle counts as on it, in f32 ulps of the middle: a handful of roundings before it.
pub const TIE_ULPS: f64 = 4.0;

/// Differing codes of one tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ties {
    /// Codes that differ by one step where the reference lies on the boundary between the two.
    pub explained_count: u64,
    /// The others.
    pub unexplained_count: u64,
    /// The flat place of the first of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_unexplained_index: Option<Vec<usize>>,
}

/// Whether the type's elements are codes of a coarse format.
#[must_use]
pub const fn is_code(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::E4m3 | Dtype::E5m2 | Dtype::E2m1)
}

/// Counts as the chunks come by.
pub(crate) struct TieCounter {
    /// Elements before the next one, from the tensor's start.
    at: usize,
    explained: u64,
    unexplained: u64,
    first: Option<usize>,
}

impl TieCounter {
    /// Counts from element `at` on.
    pub(crate) const fn new(at: usize) -> Self {
        Self { at, explained: 0, unexplained: 0, first: None }
    }

    pub(crate) fn push(
        &mut self,
        dtype: Dtype,
        saved: (&[u8], &[f64]),
        variant: (&[u8], &[f64]),
        reference: &[f64],
    ) {
        for (index, right) in reference.iter().enumerate() {
            let (Some(a), Some(b)) = (dtype.code(saved.0, index), dtype.code(variant.0, index)) else {
                break;
            };
            if a != b {
                let step = dtype.rank(a).abs_diff(dtype.rank(b));
                if step <= 1 && on_boundary(saved.1[index], variant.1[index], *right) {
                    self.explained += 1;
                } else {
                    self.unexplained += 1;
                    self.first.get_or_insert(self.at + index);
                }
            }
        }
        self.at += reference.len();
    }

    /// The counts of what came right after.
    pub(crate) fn merge(&mut self, next: &Self) {
        self.at = next.at;
        self.explained += next.explained;
        self.unexplained += next.unexplained;
        self.first = self.first.or(next.first);
    }

    pub(crate) fn finish(self, shape: &[usize]) -> Ties {
        Ties {
            explained_count: self.explained,
            unexplained_count: self.unexplained,
            first_unexplained_index: self.first.map(|index| super::unravel(index, shape)),
        }
    }
}

fn on_boundary(a: f64, b: f64, right: f64) -> bool {
    let middle = f64::midpoint(a, b);
    let ulp = middle.abs().max(f64::from(f32::MIN_POSITIVE)) * f64::from(f32::EPSILON);
    (right - middle).abs() <= TIE_ULPS * ulp
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tie_explains_a_step_and_nothing_explains_two() {
        // e2m1 codes 2, 3, 4 are 1, 1.5, 2; the boundary between the first two is 1.25.
        let ulps = |n: f64| 1.25 * n.mul_add(f64::from(f32::EPSILON), 1.0);
        for (saved, variant, right, explained) in [
            (2u8, 3u8, ulps(3.9), true),
            (2, 3, ulps(-3.9), true),
            (2, 3, ulps(4.1), false),
            (2, 3, ulps(-4.1), false),
            (2, 3, 1.3, false),
            (2, 4, 1.5, false),
            (0, 8, 0.0, true),
        ] {
            let values = |code: u8| {
                let mut out = Vec::new();
                Dtype::E2m1.decode_f64(&[code], &mut out);
                out
            };
            let mut counter = TieCounter::new(0);
            counter.push(
                Dtype::E2m1,
                (&[saved], &values(saved)),
                (&[variant], &values(variant)),
                &[right, 0.0],
            );
            let ties = counter.finish(&[2]);
            assert_eq!(
                (ties.explained_count, ties.unexplained_count),
                if explained { (1, 0) } else { (0, 1) }
            );
        }
    }
}
