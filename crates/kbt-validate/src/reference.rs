//! Attention in f64 on the CPU: what a kernel's output is compared with.
//!
//! One row at a time, with the maximum subtracted and no tiling, so that nothing here resembles the kernels it
//! judges. Rows are spread over threads; large shapes are checked on a sample of rows.

use kbt_tensor::{Tensor, TensorError, TensorSet};

/// Inputs of attention, each `[batch, heads, rows, dim]`. With fewer key and value heads than query heads,
/// groups of query heads share one.
#[derive(Debug, Clone)]
pub struct AttentionInputs {
    /// Extents.
    pub shape: AttentionShape,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
}

/// The extents of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionShape {
    /// Independent sequences.
    pub batch: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; they divide the query heads.
    pub heads_kv: usize,
    /// Queries a head.
    pub seq_q: usize,
    /// Keys a head.
    pub seq_k: usize,
    /// Elements a query, key or value.
    pub dim: usize,
}

/// What attention gives for the rows asked for, in their order.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionRows {
    /// Output, `dim` values a row. A row that sees no key is 0.
    pub o: Vec<f64>,
    /// Natural logarithm of the sum of exponentials, one a row. A row that sees no key is negative infinity.
    pub lse: Vec<f64>,
}

/// Inputs that are no attention problem.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// A tensor cannot be read as needed.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// The shapes do not fit one another.
    #[error(
        "q {q:?}, k {k:?}, v {v:?}: [batch, heads, rows, dim] expected, k and v alike, q's heads a multiple of theirs"
    )]
    Shapes {
        /// The query tensor's shape.
        q: Vec<usize>,
        /// The key tensor's shape.
        k: Vec<usize>,
        /// The value tensor's shape.
        v: Vec<usize>,
    },
    /// A row number beyond the rows there are.
    #[error("row {row} of {rows}")]
    Row {
        /// The row asked for.
        row: usize,
        /// How many rows there are.
        rows: usize,
    },
}

impl AttentionRows {
    /// `o` and `lse` as f64 tensors: `[batch, heads, queries, dim]` and `[batch, heads, queries]` for all rows,
    /// `[rows, dim]` and `[rows]` for a sample.
    ///
    /// # Errors
    /// Where `shape` is not the one that the rows were computed for.
    pub fn to_set(&self, shape: &AttentionShape) -> Result<TensorSet, TensorError> {
        let rows = if self.lse.len() == shape.rows() {
            vec![shape.batch, shape.heads, shape.seq_q]
        } else {
            vec![self.lse.len()]
        };
        let mut set = TensorSet::new();
        set.insert(Tensor::from_f64("o", [rows.as_slice(), &[shape.dim]].concat(), &self.o)?)?;
        set.insert(Tensor::from_f64("lse", rows, &self.lse)?)?;
        Ok(set)
    }
}

impl AttentionShape {
    /// Output rows: one a batch, head and query, in that order.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.batch * self.heads * self.seq_q
    }

    /// Keys that query `index` sees: all, or under a causal mask those up to its own place, where the last
    /// query stands at the last key. None where the mask hides every key.
    #[must_use]
    pub const fn visible(&self, index: usize, causal: bool) -> usize {
        if !causal {
            return self.seq_k;
        }
        let visible = (index + 1 + self.seq_k).saturating_sub(self.seq_q);
        if visible < self.seq_k { visible } else { self.seq_k }
    }
}

impl AttentionInputs {
    /// Takes three tensors of any floating-point type but f64. A scale that belongs to codes (V in fp8, say) is
    /// to be multiplied in before.
    ///
    /// # Errors
    /// Where the shapes do not fit one another or a type cannot be taken as f32.
    pub fn new(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Self, ReferenceError> {
        let shapes =
            || ReferenceError::Shapes { q: q.shape().to_vec(), k: k.shape().to_vec(), v: v.shape().to_vec() };
        let (&[batch, heads, seq_q, dim], &[batch_k, heads_kv, seq_k, dim_k]) = (q.shape(), k.shape()) else {
            return Err(shapes());
        };
        let fits = k.shape() == v.shape() && (batch, dim) == (batch_k, dim_k);
        if !fits || dim == 0 || heads_kv == 0 || !heads.is_multiple_of(heads_kv) {
            return Err(shapes());
        }
        let shape = AttentionShape { batch, heads, heads_kv, seq_q, seq_k, dim };
        Ok(Self { shape, q: q.to_f32()?, k: k.to_f32()?, v: v.to_f32()? })
    }

    /// The weights of one row's visible keys relative to the largest, before the division by their sum; and the
    /// largest score, negative infinity where no key is visible.
    pub(crate) fn weights(&self, row: usize, causal: bool, scale: f64, weights: &mut Vec<f64>) -> f64 {
        let AttentionShape { seq_q, dim, .. } = self.shape;
        let kv = self.keys_of(row);
        let visible = self.shape.visible(row % seq_q, causal);
        let q = &self.q[row * dim..(row + 1) * dim];
        let keys = self.k[kv..kv + visible * dim].chunks_exact(dim);
        weights.clear();
        weights.extend(
            keys.map(|k| scale * q.iter().zip(k).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum::<f64>()),
        );
        let max = weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        weights.iter_mut().for_each(|w| *w = (*w - max).exp());
        max
    }

    /// Where the keys and values that a row sees begin.
    fn keys_of(&self, row: usize) -> usize {
        let AttentionShape { heads, heads_kv, seq_q, seq_k, dim, .. } = self.shape;
        let head = row / seq_q;
        (head / heads * heads_kv + head % heads * heads_kv / heads) * seq_k * dim
    }

    /// One row: scores, softmax, weighted values; all in f64.
    fn row(&self, row: usize, causal: bool, scale: f64, weights: &mut Vec<f64>, o: &mut [f64]) -> f64 {
        let max = self.weights(row, causal, scale, weights);
        o.fill(0.0);
        if weights.is_empty() {
            return f64::NEG_INFINITY;
        }
        let mut sum = 0.0;
        for (&p, v) in weights.iter().zip(self.v[self.keys_of(row)..].chunks_exact(self.shape.dim)) {
            sum += p;
            o.iter_mut().zip(v).for_each(|(o, &v)| *o += p * f64::from(v));
        }
        o.iter_mut().for_each(|o| *o /= sum);
        max + sum.ln()
    }
}

/// Softmax(scale · Q Kᵀ) V for all rows.
#[must_use]
pub fn attention_reference(inputs: &AttentionInputs, causal: bool, scale: f64) -> AttentionRows {
    rows_of(inputs, causal, scale, &(0..inputs.shape.rows()).collect::<Vec<_>>())
}

/// The same for some rows: row `(batch * heads + head) * seq_q + query`.
///
/// # Errors
/// Where a row is beyond the rows there are.
pub fn attention_rows(
    inputs: &AttentionInputs,
    causal: bool,
    scale: f64,
    rows: &[usize],
) -> Result<AttentionRows, ReferenceError> {
    let all = inputs.shape.rows();
    if let Some(&row) = rows.iter().find(|&&row| row >= all) {
        return Err(ReferenceError::Row { row, rows: all });
    }
    Ok(rows_of(inputs, causal, scale, rows))
}

fn rows_of(inputs: &AttentionInputs, causal: bool, scale: f64, rows: &[usize]) -> AttentionRows {
    let dim = inputs.shape.dim;
    let mut o = vec![0.0; rows.len() * dim];
    let mut lse = vec![0.0; rows.len()];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let share = rows.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let parts = rows.chunks(share).zip(lse.chunks_mut(share)).zip(o.chunks_mut((share * dim).max(1)));
        for ((rows, lse), o) in parts {
            scope.spawn(move || {
                let mut weights = Vec::with_capacity(inputs.shape.seq_k);
                for ((&row, lse), o) in rows.iter().zip(lse).zip(o.chunks_exact_mut(dim)) {
                    *lse = inputs.row(row, causal, scale, &mut weights, o);
                }
            });
        }
    });
    AttentionRows { o, lse }
}

/// Evenly spread rows with both ends among them: a sample for shapes too large to check whole.
#[must_use]
pub fn sample_rows(rows: usize, count: usize) -> Vec<usize> {
    if count >= rows || count < 2 {
        return (0..rows.min(count.max(1))).collect();
    }
    (0..count).map(|i| i * (rows - 1) / (count - 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_tensor::Dtype;

    fn tensor(name: &str, shape: [usize; 4], values: &[f32]) -> Tensor {
        Tensor::from_f32(name, shape.to_vec(), Dtype::F32, values).unwrap()
    }

    fn near(got: &[f64], expect: &[f64]) {
        assert!(got.len() == expect.len(), "{got:?} is not {expect:?}");
        let close = |(g, e): (&f64, &f64)| g == e || (g - e).abs() < 1e-12;
        assert!(got.iter().zip(expect).all(close), "{got:?} is not {expect:?}");
    }

    #[test]
    fn a_case_worked_by_hand() {
        // Scores 0 and ln 3: weights 1/4 and 3/4.
        let q = tensor("q", [1, 1, 1, 2], &[1.0, 0.0]);
        let k = tensor("k", [1, 1, 2, 2], &[0.0, 5.0, 1.0, 7.0]);
        let v = tensor("v", [1, 1, 2, 2], &[4.0, 0.0, 8.0, 1.0]);
        let inputs = AttentionInputs::new(&q, &k, &v).unwrap();
        let rows = attention_reference(&inputs, false, 3f64.ln());
        near(&rows.o, &[7.0, 0.75]);
        near(&rows.lse, &[4f64.ln()]);
    }

    #[test]
    fn the_causal_mask_ends_at_the_last_key_and_hidden_rows_are_zero() {
        let q = tensor("q", [1, 1, 3, 1], &[0.0; 3]);
        let k = tensor("k", [1, 1, 2, 1], &[0.0; 2]);
        let v = tensor("v", [1, 1, 2, 1], &[2.0, 4.0]);
        let inputs = AttentionInputs::new(&q, &k, &v).unwrap();
        let rows = attention_reference(&inputs, true, 1.0);
        near(&rows.o, &[0.0, 2.0, 3.0]);
        near(&rows.lse, &[f64::NEG_INFINITY, 0.0, 2f64.ln()]);
        near(&attention_rows(&inputs, true, 1.0, &[2, 0]).unwrap().o, &[3.0, 0.0]);
        assert!(attention_rows(&inputs, true, 1.0, &[3]).is_err());
    }

    #[test]
    fn grouped_heads_share_keys_and_values_and_batches_do_not() {
        let q = tensor("q", [2, 4, 1, 1], &[0.0; 8]);
        let k = tensor("k", [2, 2, 1, 1], &[0.0; 4]);
        let v = tensor("v", [2, 2, 1, 1], &[1.0, 2.0, 3.0, 4.0]);
        let inputs = AttentionInputs::new(&q, &k, &v).unwrap();
        near(&attention_reference(&inputs, false, 1.0).o, &[1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]);
        let odd = tensor("k", [2, 3, 1, 1], &[0.0; 6]);
        assert!(AttentionInputs::new(&q, &odd, &odd).is_err());
    }

    #[test]
    fn samples_reach_both_ends() {
        assert_eq!(sample_rows(100, 4), [0, 33, 66, 99]);
        assert_eq!(sample_rows(3, 10), [0, 1, 2]);
        assert_eq!(sample_rows(0, 10), [0usize; 0]);
        assert_eq!(sample_rows(9, 1), [0]);
    }
}
