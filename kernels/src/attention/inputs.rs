//! Inputs of the attention kernel: shapes, seeded tensors, and V as each mode takes it.

use super::PvMode;
use kbt_quant::format::{Conversion, Format};
use kbt_tensor::{Dtype, Tensor, TensorError, TensorSet};
use std::path::Path;

/// The problem size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Sequences.
    pub batch: usize,
    /// Query heads of each.
    pub heads: usize,
    /// Heads of K and V, a divisor of `heads`: so many query heads share one.
    pub heads_kv: usize,
    /// Queries and keys of each.
    pub seqlen: usize,
    /// Head dimension: 64 or 128.
    pub head_dim: usize,
    /// Whether a query sees only keys up to its own position.
    pub causal: bool,
}

/// A problem size that the kernel does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}; accepted: {accepted}")]
pub struct ShapeError {
    name: &'static str,
    value: usize,
    accepted: &'static str,
}

impl Shape {
    /// Checks the limits of the launch.
    pub fn check(&self) -> Result<(), ShapeError> {
        for (name, value, most, accepted) in [
            ("--batch", self.batch, 65_535, "1 to 65535"),
            ("--heads", self.heads, 65_535, "1 to 65535"),
            ("--seqlen", self.seqlen, 1 << 20, "1 to 1048576"),
        ] {
            if value == 0 || value > most {
                return Err(ShapeError { name, value, accepted });
            }
        }
        if self.heads_kv == 0 || !self.heads.is_multiple_of(self.heads_kv) {
            let accepted = "a divisor of --heads";
            return Err(ShapeError { name: "--heads-kv", value: self.heads_kv, accepted });
        }
        if !matches!(self.head_dim, 64 | 128) {
            return Err(ShapeError { name: "--headdim", value: self.head_dim, accepted: "64, 128" });
        }
        Ok(())
    }

    /// `[batch, heads, seqlen, head dimension]` of Q and the output.
    #[must_use]
    pub fn dims(&self) -> Vec<usize> {
        vec![self.batch, self.heads, self.seqlen, self.head_dim]
    }

    /// The same of K and V.
    #[must_use]
    pub fn dims_kv(&self) -> Vec<usize> {
        vec![self.batch, self.heads_kv, self.seqlen, self.head_dim]
    }

    /// Elements of Q.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.batch * self.heads * self.seqlen * self.head_dim
    }
}

/// Q, K and V in bf16, `[batch, heads, seqlen, head dimension]`.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// The tensors `q`, `k`, `v`.
    pub tensors: TensorSet,
}

/// V as a mode multiplies it.
#[derive(Debug, Clone)]
pub struct PreparedV {
    /// bf16 or e4m3 codes.
    pub bytes: Vec<u8>,
    /// Bytes from one row to the next.
    pub row_bytes: usize,
    /// One factor a (batch, head of V).
    pub scale: Option<Vec<f32>>,
}

impl Inputs {
    /// Normally distributed tensors that depend on the shape and the set's number alone. Q is drawn with twice the
    /// deviation of K and V, so that the scores, of deviation 2 after the usual scaling, have a clear maximum.
    pub fn seeded(shape: &Shape, set: u64) -> Result<Self, TensorError> {
        let mut tensors = TensorSet::new();
        for (index, (name, deviation)) in [("q", 2.0), ("k", 1.0), ("v", 1.0)].into_iter().enumerate() {
            let seed = set.wrapping_mul(0x9e37_79b9).wrapping_add(index as u64);
            let dims = if name == "q" { shape.dims() } else { shape.dims_kv() };
            let values = normal(dims.iter().product(), seed, deviation);
            tensors.insert(Tensor::from_f32(name, dims, Dtype::Bf16, &values)?)?;
        }
        Ok(Self { tensors })
    }

    /// Reads `inputs.safetensors` of a folder, or makes the set and saves it there where the folder is empty.
    pub fn load_or_make(folder: &Path, shape: &Shape, set: u64) -> Result<Self, TensorError> {
        let file = folder.join("inputs.safetensors");
        if file.exists() {
            return Ok(Self { tensors: TensorSet::read(&file, &kbt_tensor::ReadOptions::default())? });
        }
        let made = Self::seeded(shape, set)?;
        made.tensors.write_safetensors(&file)?;
        Ok(made)
    }

    /// V in the layout and type of a mode.
    pub fn prepare_v(&self, shape: &Shape, mode: PvMode) -> Result<PreparedV, TensorError> {
        let v = self.tensors.require("v")?;
        let d = shape.head_dim;
        if mode == PvMode::Bf16 {
            return Ok(PreparedV { bytes: v.bytes().to_vec(), row_bytes: 2 * d, scale: None });
        }
        let values = v.to_f32()?;
        let head_elements = shape.seqlen * d;
        let prepare = if mode == PvMode::Fp8 { fp8_head } else { fp4_head };
        let heads: Vec<(Vec<u8>, f32)> = parallel(shape.batch * shape.heads_kv, |h| {
            prepare(&values[h * head_elements..(h + 1) * head_elements], shape.seqlen, d)
        });
        let scale = Some(heads.iter().map(|(_, s)| *s).collect());
        let row_bytes = if mode == PvMode::Fp8 { padded(shape.seqlen) } else { 2 * d };
        Ok(PreparedV { bytes: heads.into_iter().flat_map(|(b, _)| b).collect(), row_bytes, scale })
    }
}

/// Keys of a row of V in fp8: rows begin at multiples of 16 bytes, as TMA asks.
const fn padded(seqlen: usize) -> usize {
    seqlen.next_multiple_of(16)
}

/// e4m3 with one scale a head, transposed to `[head dimension][padded keys]`, keys permuted within groups of 16 so that
/// position 4t + i holds key 2t + (i & 1) + 8 (i >> 1): the order in which the softmax lanes hold P.
fn fp8_head(v: &[f32], seqlen: usize, d: usize) -> (Vec<u8>, f32) {
    let scale = scale_for(v, 448.0);
    let row = padded(seqlen);
    let mut bytes = vec![0; d * row];
    for position in 0..row {
        let (group, p) = (position / 16 * 16, position % 16);
        let (t, i) = (p / 4, p % 4);
        let key = group + 2 * t + (i & 1) + 8 * (i >> 1);
        if key < seqlen {
            for (column, x) in v[key * d..(key + 1) * d].iter().enumerate() {
                bytes[column * row + position] = Conversion::usual(Format::E4m3).encode(x / scale) as u8;
            }
        }
    }
    (bytes, scale)
}

/// The NVFP4 grid along the keys (groups of 16, e4m3 scales, one tensor scale a head) as bf16, which holds every
/// product of a code and a scale exactly.
fn fp4_head(v: &[f32], seqlen: usize, d: usize) -> (Vec<u8>, f32) {
    let scale = scale_for(v, 6.0 * 448.0);
    let mut bytes = vec![0; 2 * d * seqlen];
    for column in 0..d {
        for group in (0..seqlen).step_by(16) {
            let keys = group..(group + 16).min(seqlen);
            let top = keys.clone().map(|k| (v[k * d + column] / scale).abs()).fold(0.0, f32::max);
            let step = Conversion::usual(Format::E4m3).round(top / 6.0);
            for key in keys {
                let x = v[key * d + column] / scale;
                let code = if step > 0.0 { Conversion::usual(Format::E2m1).round(x / step) } else { 0.0 };
                let value = (code * step).to_bits() >> 16;
                bytes[2 * (key * d + column)..][..2].copy_from_slice(&(value as u16).to_le_bytes());
            }
        }
    }
    (bytes, scale)
}

/// The factor that takes the greatest magnitude to `top`.
fn scale_for(v: &[f32], top: f32) -> f32 {
    let amax = v.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
    if amax > 0.0 { amax / top } else { 1.0 }
}

/// Runs a function over 0..n on every core, keeping the order.
fn parallel<T: Send>(n: usize, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let workers = std::thread::available_parallelism().map_or(1, |p| p.get()).min(n.max(1));
    let f = &f;
    let mut parts: Vec<Vec<T>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..workers)
            .map(|w| scope.spawn(move || (n * w / workers..n * (w + 1) / workers).map(f).collect()))
            .collect();
        handles.into_iter().map(|h| h.join().unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    });
    parts.iter_mut().flat_map(std::mem::take).collect()
}

/// Normal values; each block of 4096 has its own generator, so that the result does not depend on the threads.
fn normal(n: usize, seed: u64, deviation: f32) -> Vec<f32> {
    const BLOCK: usize = 4096;
    let blocks = parallel(n.div_ceil(BLOCK), |b| {
        let mut state =
            seed.wrapping_mul(0xd134_2543_de82_ef95) ^ (b as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut uniform = || {
            // SplitMix64: a value in (0, 1].
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (((z ^ (z >> 31)) >> 40) as f32 + 1.0) / 16_777_216.0
        };
        (0..BLOCK.min(n - b * BLOCK) / 2 + 1)
            .flat_map(|_| {
                let (radius, angle) = ((-2.0 * uniform().ln()).sqrt(), std::f32::consts::TAU * uniform());
                [radius * angle.cos() * deviation, radius * angle.sin() * deviation]
            })
            .take(BLOCK.min(n - b * BLOCK))
            .collect::<Vec<_>>()
    });
    blocks.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { batch: 1, heads: 4, heads_kv: 2, seqlen: 37, head_dim: 128, causal: false };

    #[test]
    fn a_set_is_the_same_every_time_and_its_moments_are_those_asked_for() {
        let a = normal(100_000, 7, 2.0);
        assert_eq!(a, normal(100_000, 7, 2.0));
        assert_ne!(a, normal(100_000, 8, 2.0));
        let mean = a.iter().sum::<f32>() / a.len() as f32;
        let var = a.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / a.len() as f32;
        assert!(mean.abs() < 0.03 && (var.sqrt() - 2.0).abs() < 0.03, "{mean} {var}");
    }

    #[test]
    fn v_in_fp8_is_transposed_and_permuted_and_decodes_to_v() {
        let inputs = Inputs::seeded(&SHAPE, 0).unwrap();
        let v = inputs.tensors.get("v").unwrap().to_f32().unwrap();
        let p = inputs.prepare_v(&SHAPE, PvMode::Fp8).unwrap();
        assert_eq!((p.row_bytes, p.bytes.len()), (48, 2 * 128 * 48));
        let scale = p.scale.unwrap();
        // The keys of a group's 16 positions: those that one thread of a quad has of P, in its order.
        let keys = [0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15];
        for (position, key) in keys.into_iter().enumerate() {
            for column in [0, 5, 127] {
                let got = Format::E4m3.decode(p.bytes[column * 48 + 16 + position].into()) * scale[0];
                let want = v[(16 + key) * 128 + column];
                assert!(
                    (got - want).abs() <= want.abs() / 16.0 + scale[0] / 512.0,
                    "{position}: {got} {want}"
                );
            }
        }
        assert_eq!(p.bytes[47], 0, "keys beyond the sequence are zero");
    }

    #[test]
    fn v_in_fp4_lies_on_the_grid() {
        let inputs = Inputs::seeded(&SHAPE, 1).unwrap();
        let p = inputs.prepare_v(&SHAPE, PvMode::Fp4).unwrap();
        let value = |i: usize| {
            f32::from_bits(u32::from(u16::from_le_bytes([p.bytes[2 * i], p.bytes[2 * i + 1]])) << 16)
        };
        for column in [0, 64] {
            let group: Vec<f32> = (0..16).map(|k| value(k * 128 + column)).collect();
            let step = group.iter().fold(0.0_f32, |m, x| m.max(x.abs())) / 6.0;
            for x in &group {
                let code = x.abs() / step;
                assert!([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0].contains(&code), "{code}");
            }
        }
    }
}
