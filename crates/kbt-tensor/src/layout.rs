//! From the order a file keeps elements in to row-major.

/// A view over stored elements: element `i` is at `offset + sum(i[d] * strides[d])`, counted in elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    /// Bytes a stored element.
    pub(crate) width: usize,
    pub(crate) shape: Vec<usize>,
    pub(crate) offset: usize,
    strides: Vec<usize>,
}

impl View {
    pub(crate) fn new(width: usize, shape: Vec<usize>, offset: usize, strides: Vec<usize>) -> Self {
        Self { width, shape, offset, strides }
    }

    /// Whether the elements follow one another in row-major order. Strides of extents 0 and 1 say nothing.
    pub(crate) fn is_row_major(&self) -> bool {
        let plain = row_strides(&self.shape);
        self.shape.contains(&0)
            || self.shape.iter().zip(self.strides.iter().zip(&plain)).all(|(&n, (a, b))| n == 1 || a == b)
    }

    /// One more than the place of the last element, in elements; 0 for an empty view, `None` on overflow.
    pub(crate) fn extent(&self) -> Option<usize> {
        if self.shape.contains(&0) {
            return Some(0);
        }
        let mut steps = self.shape.iter().zip(&self.strides);
        let last =
            steps.try_fold(self.offset, |place, (&n, &step)| place.checked_add((n - 1).checked_mul(step)?));
        last?.checked_add(1)
    }

    /// The elements in row-major order; `None` where the view leaves `from`.
    pub(crate) fn gather(&self, from: &[u8]) -> Option<Vec<u8>> {
        let (width, shape) = (self.width, &self.shape);
        let count = crate::tensor::elements(shape)?;
        if count == 0 {
            return Some(Vec::new());
        }
        if self.extent()?.checked_mul(width)? > from.len() {
            return None;
        }
        let mut out = Vec::with_capacity(count.checked_mul(width)?);
        let mut index = vec![0usize; shape.len()];
        let mut place = self.offset;
        for _ in 0..count {
            out.extend_from_slice(&from[place * width..(place + 1) * width]);
            for d in (0..shape.len()).rev() {
                index[d] += 1;
                place += self.strides[d];
                if index[d] < shape[d] {
                    break;
                }
                place -= index[d] * self.strides[d];
                index[d] = 0;
            }
        }
        Some(out)
    }
}

/// The strides of a column-major shape, in elements.
pub(crate) fn column_strides(shape: &[usize]) -> Vec<usize> {
    shape
        .iter()
        .scan(1usize, |step, &extent| {
            let this = *step;
            *step = step.saturating_mul(extent);
            Some(this)
        })
        .collect()
}

/// The strides of a row-major shape, in elements.
pub(crate) fn row_strides(shape: &[usize]) -> Vec<usize> {
    let reversed: Vec<usize> = shape.iter().rev().copied().collect();
    let mut strides = column_strides(&reversed);
    strides.reverse();
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transposed_and_an_expanded_view_come_out_row_major() {
        let from: Vec<u8> = (0..6).collect();
        let check = |width, shape: &[usize], offset, strides: Vec<usize>, expect: &[u8]| {
            let view = View::new(width, shape.to_vec(), offset, strides);
            assert_eq!(view.gather(&from).unwrap(), expect, "{view:?}");
        };
        check(1, &[2, 3], 0, column_strides(&[2, 3]), &[0, 2, 4, 1, 3, 5]);
        check(1, &[2, 3], 0, row_strides(&[2, 3]), &[0, 1, 2, 3, 4, 5]);
        check(2, &[2, 2], 1, vec![0, 1], &[2, 3, 4, 5, 2, 3, 4, 5]);
        check(1, &[], 4, vec![], &[4]);
        check(4, &[0, 3], 9, vec![3, 1], &[]);
    }

    #[test]
    fn only_plain_order_counts_as_row_major() {
        for (shape, strides, expect) in [
            (vec![2, 3], vec![3, 1], true),
            (vec![2, 3], vec![1, 2], false),
            (vec![1, 3], vec![77, 1], true),
            (vec![4], vec![0], false),
            (vec![0, 3], vec![5, 5], true),
        ] {
            assert_eq!(View::new(1, shape.clone(), 0, strides).is_row_major(), expect, "{shape:?}");
        }
    }

    #[test]
    fn a_view_beyond_its_storage_is_none() {
        let gather = |shape: Vec<usize>, offset| View::new(1, shape, offset, vec![3, 1]).gather(&[0; 6]);
        assert_eq!(gather(vec![2, 3], 1), None);
        assert_eq!(gather(vec![2, usize::MAX], 1), None);
        assert_eq!(gather(vec![2, 3], usize::MAX), None);
    }
}
