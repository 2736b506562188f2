//! Generated attention inputs whose right output is known beforehand.
//!
//! Random inputs hide most faults of a quantised kernel: constant inputs pass with a wrong layout, and a wrong
//! scale looks like format noise. A probe's answer follows from its construction, not from another kernel, so
//! that a fault shows as a wrong number at a place that says what is wrong.
//!
//! What lives here: the kinds and what a probe holds. `build` constructs them, `check` judges an output by
//! what `allowance` says that it may be off by.

mod allowance;
mod build;
mod check;
#[cfg(test)]
mod tests;

pub use check::{LseBase, LseResult, PFormat, ProbeOutput, ProbeResult, UnknownBase};

use crate::reference::{AttentionInputs, AttentionShape, ReferenceError, attention_reference};
use kbt_evidence::Provenance;
use kbt_tensor::{Dtype, Tensor, TensorError, TensorSet};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a probe asks of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeKind {
    /// V is 1, scores are uneven: the output must be 1, whatever the weights. Shows a row sum that counts other
    /// weights than those multiplied, and P that saturates or is not scaled.
    VOne,
    /// Every query sees one key: the output must be that key's value. Shows wrong addresses and layouts.
    OneHot,
    /// Every query sees two keys alike: the output must be the mean of their values.
    TwoHot,
    /// All scores are equal: the output must be the mean of V.
    Uniform,
    /// Causal with more queries than keys: the first rows see no key and must be 0, their log-sum minus infinity.
    MaskedRow,
    /// Every other group of 16 keys has weight 0 for every query: a group whose maximum vanishes must add
    /// nothing, and no NaN.
    MaskedGroup,
    /// Weights are powers of two, so that 4-bit codes lie on ties: two rounding orders that agree on random
    /// inputs part here.
    TieAligned,
    /// Scores that rise from tile to tile by 7 binary orders and then jump: a stale row maximum, rescaling and
    /// saturation of P.
    Extremes,
}

impl ProbeKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::VOne,
        Self::OneHot,
        Self::TwoHot,
        Self::Uniform,
        Self::MaskedRow,
        Self::MaskedGroup,
        Self::TieAligned,
        Self::Extremes,
    ];

    /// Its name in options and files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::VOne => "v-one",
            Self::OneHot => "one-hot",
            Self::TwoHot => "two-hot",
            Self::Uniform => "uniform",
            Self::MaskedRow => "masked-row",
            Self::MaskedGroup => "masked-group",
            Self::TieAligned => "tie-aligned",
            Self::Extremes => "extremes",
        }
    }
}

impl fmt::Display for ProbeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is no kind of probe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no probe; there is {all}", all = ProbeKind::ALL.map(ProbeKind::as_str).join(" "))]
pub struct UnknownProbe(pub String);

impl FromStr for ProbeKind {
    type Err = UnknownProbe;

    fn from_str(text: &str) -> Result<Self, UnknownProbe> {
        Self::ALL.into_iter().find(|k| k.as_str() == text).ok_or_else(|| UnknownProbe(text.to_owned()))
    }
}

/// A probe: inputs `[batch, heads, rows, dim]`, how to call the kernel, and the right output.
#[derive(Debug, Clone)]
pub struct Probe {
    /// What it asks.
    pub kind: ProbeKind,
    /// Whether the causal mask is on.
    pub causal: bool,
    /// The softmax scale.
    pub scale: f32,
    /// `q`, `k` and `v` in the type asked for; every value is held exactly.
    pub inputs: TensorSet,
    /// The right output, `[batch, heads, queries, dim]`.
    pub o: Tensor,
    /// The right natural-log sum of exponentials, `[batch, heads, queries]`.
    pub lse: Tensor,
}

/// A probe in a file, in a few words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeSummary {
    /// `kbt.validate/1`.
    pub schema: String,
    /// What it asks.
    pub kind: ProbeKind,
    /// Whether the kernel is to be called with the causal mask.
    pub causal: bool,
    /// The softmax scale to call it with.
    pub scale_ratio: f32,
    /// Each tensor with its type and shape.
    pub tensors: Vec<String>,
    /// What was asked for.
    pub provenance: Provenance,
}

impl fmt::Display for ProbeSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: call the kernel with causal {} and scale {}",
            self.kind, self.causal, self.scale_ratio
        )?;
        write!(f, "{}", self.tensors.join("\n"))
    }
}

/// Why there is no such probe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The shape cannot hold it.
    #[error("{kind}: {problem}")]
    Shape {
        /// The probe.
        kind: ProbeKind,
        /// What is needed.
        problem: String,
    },
    /// The reference cannot be computed.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// A tensor cannot be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl Probe {
    /// Makes a probe. The same seed gives the same probe everywhere.
    ///
    /// # Errors
    /// Where the shape cannot hold the probe, or `dtype` is not f32, f16 or bf16.
    pub fn new(kind: ProbeKind, shape: AttentionShape, dtype: Dtype, seed: u64) -> Result<Self, ProbeError> {
        let problem = |problem: &str| ProbeError::Shape { kind, problem: problem.to_owned() };
        let AttentionShape { batch, heads, heads_kv, seq_q, seq_k, dim } = shape;
        if [batch, heads, heads_kv, seq_q, seq_k, dim].contains(&0) || !heads.is_multiple_of(heads_kv) {
            return Err(problem("no extent may be 0, and key heads must divide query heads"));
        }
        // What the tensors and the f64 reference take: a gigabyte, and minutes on one core.
        let within = |extents: &[usize], most: u128| {
            extents.iter().try_fold(1_u128, |n, e| n.checked_mul(*e as u128)).is_some_and(|n| n <= most)
        };
        let rows = seq_q.max(seq_k);
        if !within(&[batch, heads, rows, dim], 1 << 28)
            || !within(&[batch, heads, seq_q, seq_k, dim], 1 << 40)
        {
            return Err(problem(
                "it is too large: at most 2^28 elements a tensor and 2^40 products are accepted",
            ));
        }
        if kind == ProbeKind::MaskedRow && seq_q <= seq_k {
            return Err(problem(
                "it needs more queries than keys, and a kernel that takes them under a causal mask",
            ));
        }
        let parts = build::build(kind, shape, seed).map_err(|p| ProbeError::Shape { kind, problem: p })?;
        let tensor = |name: &str, heads: usize, rows: usize, values: &[f32]| {
            let tensor = Tensor::from_f32(name, vec![batch, heads, rows, dim], dtype, values)?;
            Ok::<_, ProbeError>(tensor)
        };
        let (q, k, v) = (
            tensor("q", heads, seq_q, &parts.q)?,
            tensor("k", heads_kv, seq_k, &parts.k)?,
            tensor("v", heads_kv, seq_k, &parts.v)?,
        );
        // The reference sees what the kernel sees: the values after rounding to the type.
        let rows =
            attention_reference(&AttentionInputs::new(&q, &k, &v)?, parts.causal, f64::from(parts.scale));
        let o = Tensor::from_f64("o", vec![batch, heads, seq_q, dim], &rows.o)?;
        let lse = Tensor::from_f64("lse", vec![batch, heads, seq_q], &rows.lse)?;
        let mut inputs = TensorSet::new();
        for tensor in [q, k, v] {
            inputs.insert(tensor)?;
        }
        Ok(Self { kind, causal: parts.causal, scale: parts.scale, inputs, o, lse })
    }

    /// What a user of the file needs to know.
    #[must_use]
    pub fn summary(&self, provenance: Provenance) -> ProbeSummary {
        let tensors = self.inputs.iter().chain([&self.o, &self.lse]);
        ProbeSummary {
            schema: crate::SCHEMA.to_owned(),
            kind: self.kind,
            causal: self.causal,
            scale_ratio: self.scale,
            tensors: tensors.map(|t| format!("{} {} {:?}", t.name(), t.dtype(), t.shape())).collect(),
            provenance,
        }
    }

    /// The probe as one set: `q`, `k`, `v`, the right `o` and `lse`, and in the metadata how to call the kernel
    /// (`kbt_probe`, `causal`, `scale`), and the base of the log-sums (`lse_base`).
    ///
    /// # Errors
    /// None for a probe that [`Probe::new`] made.
    pub fn to_set(&self) -> Result<TensorSet, TensorError> {
        let mut set = self.inputs.clone();
        set.insert(self.o.clone())?;
        set.insert(self.lse.clone())?;
        set.set_metadata("kbt_probe", self.kind.as_str());
        set.set_metadata("causal", self.causal.to_string());
        set.set_metadata("scale", self.scale.to_string());
        set.set_metadata(LseBase::KEY, "e");
        Ok(set)
    }
}
