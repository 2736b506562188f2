//! How each probe is constructed. Every q, k and v is a small integer or a power of two (but `v-one`'s q and k),
//! which f32, f16 and bf16 hold exactly; values of V survive e4m3 and NVFP4 exactly too, because every group of
//! 16 keys holds the largest magnitude 4 in every column, and the others are half or a quarter of it.

use super::ProbeKind;
use crate::reference::AttentionShape;
use crate::rng::Rng;

pub(crate) struct Parts {
    pub(crate) q: Vec<f32>,
    pub(crate) k: Vec<f32>,
    pub(crate) v: Vec<f32>,
    pub(crate) causal: bool,
    pub(crate) scale: f32,
}

/// Keys a quantisation group.
const GROUP: usize = 16;
/// Keys a tile, for probes that change from tile to tile.
const TILE: usize = 128;
/// A difference of scores, in natural units, at which the smaller weight is 0 in f32: 2^-150 is below half of
/// the least subnormal.
const VANISHES: f32 = 110.0;

/// How far the score of the one key of `v-one` stands out, in natural units.
const PEAK: f32 = 7.5;

pub(crate) fn build(kind: ProbeKind, shape: AttentionShape, seed: u64) -> Result<Parts, String> {
    let mut rng = Rng::new(seed ^ 0x6b62_7470_726f_6265);
    let AttentionShape { batch, heads, heads_kv, seq_q, seq_k, dim } = shape;
    let (q_len, k_len) = (batch * heads * seq_q * dim, batch * heads_kv * seq_k * dim);
    #[expect(clippy::cast_precision_loss, reason = "a head dimension is small")]
    let usual = 1.0 / (dim as f32).sqrt();
    let zeros = || vec![0.0; q_len];
    let parts = |q, k, v, scale| Parts { q, k, v, causal: false, scale };
    Ok(match kind {
        ProbeKind::VOne => {
            let random = |rng: &mut Rng, n: usize| (0..n).map(|_| rng.signed()).collect::<Vec<_>>();
            let (mut q, mut k) = (random(&mut rng, q_len), random(&mut rng, k_len));
            // One key stands out by 7.5: the weight of each other one is below 2^-10, where e4m3 without a scale
            // has nothing left, and together they weigh as much as the one.
            q.iter_mut().step_by(dim).for_each(|q| *q = 1.0);
            for (row, key) in k.chunks_exact_mut(dim).enumerate() {
                key[0] = if row % seq_k == seq_k / 2 { PEAK / usual } else { 0.0 };
            }
            parts(q, k, vec![1.0; k_len], usual)
        }
        ProbeKind::Uniform => {
            let k = signs(&mut rng, k_len);
            parts(zeros(), k, values(&mut rng, shape), usual)
        }
        ProbeKind::MaskedRow => {
            let k = signs(&mut rng, k_len);
            Parts { causal: true, ..parts(zeros(), k, values(&mut rng, shape), usual) }
        }
        ProbeKind::OneHot | ProbeKind::TwoHot => hot(kind, shape, usual, &mut rng)?,
        ProbeKind::MaskedGroup => {
            if seq_k <= GROUP {
                return Err(format!("it needs more than {GROUP} keys"));
            }
            // Twice the difference that vanishes, as a power of two.
            let low = -(2.0 * VANISHES / usual).log2().ceil().exp2();
            let k = by_key(shape, |key| if (key / GROUP).is_multiple_of(2) { 0.0 } else { low });
            parts(first_axis(q_len, dim), k, values(&mut rng, shape), usual)
        }
        // With a scale of ln 2 a score of -n is a weight of 2^-n.
        ProbeKind::TieAligned => {
            let k = by_key(shape, |key| -f32::from([0u8, 1, 3, 2, 3, 4, 5, 3][key % 8]));
            parts(first_axis(q_len, dim), k, values(&mut rng, shape), std::f32::consts::LN_2)
        }
        ProbeKind::Extremes => {
            // 0, 7, 14, … a tile: 7 is below the usual rescaling threshold of 8. Within a tile the scores fall
            // by up to 127, and the last key stands out by 4.
            let k = by_key(shape, |key| {
                #[expect(clippy::cast_precision_loss, reason = "keys and tiles are few")]
                let (tile, place) = ((key / TILE) as f32, (key % TILE) as f32);
                7.0 * tile.min(16.0) - place + if key + 1 == seq_k { place + 4.0 } else { 0.0 }
            });
            parts(first_axis(q_len, dim), k, values(&mut rng, shape), std::f32::consts::LN_2)
        }
    })
}

/// Queries of 1 along the first axis: a key's score is its first element.
fn first_axis(length: usize, dim: usize) -> Vec<f32> {
    (0..length).map(|i| if i.is_multiple_of(dim) { 1.0 } else { 0.0 }).collect()
}

/// Keys whose first element depends on their place.
fn by_key(shape: AttentionShape, score: impl Fn(usize) -> f32) -> Vec<f32> {
    let AttentionShape { batch, heads_kv, seq_k, dim, .. } = shape;
    let mut k = vec![0.0; batch * heads_kv * seq_k * dim];
    for (row, key) in k.chunks_exact_mut(dim).enumerate() {
        key[0] = score(row % seq_k);
    }
    k
}

fn signs(rng: &mut Rng, n: usize) -> Vec<f32> {
    (0..n).map(|_| if rng.below(2) == 0 { 1.0 } else { -1.0 }).collect()
}

/// ±1, ±2 and ±4, with a ±4 in every group of 16 keys of every column.
fn values(rng: &mut Rng, shape: AttentionShape) -> Vec<f32> {
    let AttentionShape { batch, heads_kv, seq_k, dim, .. } = shape;
    let mut v = Vec::with_capacity(batch * heads_kv * seq_k * dim);
    for row in 0..batch * heads_kv * seq_k {
        for column in 0..dim {
            let magnitude =
                if row % seq_k % GROUP == column % GROUP { 4.0 } else { [1.0, 2.0][rng.below(2) as usize] };
            v.push(if rng.below(2) == 0 { magnitude } else { -magnitude });
        }
    }
    v
}

/// Keys are random signs; a query is one key, or the sum of two, times a power of two large enough that every
/// other key's weight vanishes.
fn hot(kind: ProbeKind, shape: AttentionShape, scale: f32, rng: &mut Rng) -> Result<Parts, String> {
    let AttentionShape { batch, heads, heads_kv, seq_q, seq_k, dim } = shape;
    let count = if kind == ProbeKind::OneHot { 1 } else { 2 };
    if seq_k < count {
        return Err(format!("it needs at least {count} keys"));
    }
    let k = signs(rng, batch * heads_kv * seq_k * dim);
    let v = values(rng, shape);
    let mut q = Vec::with_capacity(batch * heads * seq_q * dim);
    let mut least = f32::INFINITY;
    for row in 0..batch * heads * seq_q {
        let head = row / seq_q;
        let kv = head / heads * heads_kv + head % heads * heads_kv / heads;
        let keys = &k[kv * seq_k * dim..(kv + 1) * seq_k * dim];
        let key = |index: usize| &keys[index * dim..(index + 1) * dim];
        let mut chosen = vec![rng.below(seq_k as u64) as usize];
        while chosen.len() < count {
            let next = rng.below(seq_k as u64) as usize;
            if !chosen.contains(&next) {
                chosen.push(next);
            }
        }
        let query: Vec<f32> = (0..dim).map(|d| chosen.iter().map(|&c| key(c)[d]).sum()).collect();
        let dot = |index: usize| -> f32 { query.iter().zip(key(index)).map(|(a, b)| a * b).sum() };
        let own = dot(chosen[0]);
        for other in (0..seq_k).filter(|i| !chosen.contains(i)) {
            least = least.min(own - dot(other));
        }
        q.extend(query);
    }
    if least <= 0.0 {
        return Err(format!(
            "{seq_k} keys of dimension {dim} are too alike to be told apart; take fewer keys"
        ));
    }
    let factor =
        if least.is_finite() { (VANISHES / (scale * least)).log2().ceil().exp2().max(1.0) } else { 1.0 };
    q.iter_mut().for_each(|q| *q *= factor);
    Ok(Parts { q, k, v, causal: false, scale })
}
