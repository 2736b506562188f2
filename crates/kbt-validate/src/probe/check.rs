//! Judging a kernel's output on a probe.

use super::{Probe, ProbeKind};
use crate::compare::unravel;
use kbt_evidence::Provenance;
use kbt_tensor::{Tensor, TensorError};
use serde::{Deserialize, Serialize};

/// What the kernel holds P in when it multiplies with V: what bounds its error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PFormat {
    /// bf16 or f16.
    Bf16,
    /// e4m3, with a power of two as its scale.
    E4m3,
    /// e2m1 codes in groups of 16 with an e4m3 scale.
    Nvfp4,
}

impl PFormat {
    /// Half a unit in the last place relative to the value: bf16 keeps 8 significant bits, e4m3 4; an NVFP4
    /// group's e4m3 scale has the same 4.
    const fn scale_error(self) -> f64 {
        match self {
            Self::Bf16 => 1.0 / 256.0,
            Self::E4m3 | Self::Nvfp4 => 1.0 / 16.0,
        }
    }

    /// The largest error of a weighted mean over weights that the format rounds, relative to the largest value.
    const fn weight_error(self) -> f64 {
        match self {
            Self::Bf16 | Self::E4m3 => self.scale_error(),
            // Codes are off by up to a quarter of the smallest step that matters, and the scale on top.
            Self::Nvfp4 => 0.25 + 1.0 / 16.0,
        }
    }
}

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeResult {
    /// `kbt.validate/1`.
    pub schema: String,
    /// The probe.
    pub kind: ProbeKind,
    /// Where the output comes from.
    pub provenance: Provenance,
    /// Whether the output is right.
    pub passed: bool,
    /// Largest absolute error over the finite outputs.
    pub max_abs_error: f64,
    /// The error that P's format and the output's type account for.
    pub allowed_abs_error: f64,
    /// The place of the worst output.
    pub worst_index: Vec<usize>,
    /// What is wrong, or what was shown.
    pub statement: String,
}

/// Rounding of the output to bf16, and the accumulation.
const OUTPUT_ERROR: f64 = 1.0 / 256.0;

impl Probe {
    /// The error that is no fault: what a kernel with P in `format` may be off by on this probe.
    #[must_use]
    pub fn allowed_error(&self, format: PFormat) -> f64 {
        let largest = if self.kind == ProbeKind::VOne { 1.0 } else { 4.0 };
        let weights = match (self.kind, format) {
            // Weights of 0 and 1, or all alike, are exact in bf16 and e4m3; in NVFP4 but for the scale.
            (
                ProbeKind::OneHot
                | ProbeKind::TwoHot
                | ProbeKind::Uniform
                | ProbeKind::MaskedRow
                | ProbeKind::MaskedGroup,
                PFormat::Nvfp4,
            ) => format.scale_error(),
            // Powers of two are exact in bf16 and, down to its least subnormal, in e4m3.
            (
                ProbeKind::OneHot
                | ProbeKind::TwoHot
                | ProbeKind::Uniform
                | ProbeKind::MaskedRow
                | ProbeKind::MaskedGroup
                | ProbeKind::TieAligned,
                _,
            ) if format != PFormat::Nvfp4 => 0.0,
            _ => format.weight_error(),
        };
        largest * (weights + OUTPUT_ERROR)
    }

    /// Judges an output of any floating-point type.
    ///
    /// # Errors
    /// Where the output has another shape than the probe's or cannot be read as numbers.
    pub fn check(
        &self,
        o: &Tensor,
        format: PFormat,
        provenance: Provenance,
    ) -> Result<ProbeResult, TensorError> {
        if o.shape() != self.o.shape() {
            return Err(TensorError::Tensor {
                name: o.name().to_owned(),
                problem: format!("shape {:?}; the probe's output is {:?}", o.shape(), self.o.shape()),
            });
        }
        let (got, right) = (o.to_f64()?, self.o.to_f64()?);
        let allowed = self.allowed_error(format);
        let error = |i: usize| (got[i] - right[i]).abs();
        let wild = (0..got.len()).find(|&i| !got[i].is_finite());
        let worst =
            (0..got.len()).filter(|&i| got[i].is_finite()).max_by(|&a, &b| error(a).total_cmp(&error(b)));
        let max = worst.map_or(0.0, error);
        let worst = wild.or(worst).unwrap_or(0);
        let place = unravel(worst, o.shape());
        let passed = wild.is_none() && max <= allowed;
        let statement = if passed {
            format!("every output is within {allowed:.3e} of the right one; the worst is {max:.3e} off")
        } else {
            format!("{place:?} is {} where {:.6} is right (allowed {allowed:.3e})", got[worst], right[worst])
        };
        Ok(ProbeResult {
            schema: crate::SCHEMA.to_owned(),
            kind: self.kind,
            provenance,
            passed,
            max_abs_error: max,
            allowed_abs_error: allowed,
            worst_index: place,
            statement,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Probe;
    use super::*;
    use crate::reference::{AttentionInputs, AttentionShape, attention_reference};
    use kbt_tensor::{Dtype, TensorSet};

    fn shape(kind: ProbeKind) -> AttentionShape {
        let seq_q = if kind == ProbeKind::MaskedRow { 200 } else { 40 };
        AttentionShape { batch: 1, heads: 2, heads_kv: 1, seq_q, seq_k: 160, dim: 64 }
    }

    fn probe(kind: ProbeKind) -> Probe {
        Probe::new(kind, shape(kind), Dtype::Bf16, 7).unwrap()
    }

    fn check(probe: &Probe, values: &[f64]) -> ProbeResult {
        let o = Tensor::from_f64("o", probe.o.shape().to_vec(), values).unwrap();
        probe.check(&o, PFormat::Bf16, Provenance::given("test")).unwrap()
    }

    #[test]
    fn every_probe_has_the_answer_that_its_construction_says() {
        for kind in ProbeKind::ALL {
            let p = probe(kind);
            let right = p.o.to_f64().unwrap();
            assert!(check(&p, &right).passed, "{kind}");
            let v = p.inputs.require("v").unwrap().to_f64().unwrap();
            let lse = p.lse.to_f64().unwrap();
            let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "{kind}: {a} is not {b}");
            match kind {
                ProbeKind::VOne => right.iter().for_each(|&o| near(o, 1.0)),
                // Every output is one of V's values, or half a sum of two.
                ProbeKind::OneHot => right.iter().for_each(|&o| assert!([1.0, 2.0, 4.0].contains(&o.abs()))),
                ProbeKind::TwoHot => right.iter().for_each(|&o| near((2.0 * o).round(), 2.0 * o)),
                ProbeKind::Uniform => {
                    let mean: f64 = v.chunks(64).map(|row| row[5]).sum::<f64>() / 160.0;
                    near(right[5], mean);
                    near(lse[0], 160f64.ln());
                }
                ProbeKind::MaskedRow => {
                    assert!(right[..40 * 64].iter().all(|&o| o == 0.0));
                    assert_eq!((lse[39], lse[40]), (f64::NEG_INFINITY, 0.0));
                }
                ProbeKind::MaskedGroup => near(lse[0], 80f64.ln()),
                ProbeKind::TieAligned => {
                    // 20 times 1 + 1/2 + 3/8 + 1/4 + 1/16 + 1/32.
                    near(lse[0], (20.0 * (1.0 + 0.5 + 0.375 + 0.25 + 0.0625 + 0.03125f64)).ln());
                }
                ProbeKind::Extremes => assert!(lse.iter().all(|l| l.is_finite())),
            }
        }
    }

    #[test]
    fn a_wrong_output_fails_and_is_placed() {
        let p = probe(ProbeKind::VOne);
        let mut values = p.o.to_f64().unwrap();
        values[64 + 3] = 0.637;
        let result = check(&p, &values);
        assert!(!result.passed);
        assert_eq!(result.worst_index, [0, 0, 1, 3]);
        assert!(result.statement.contains("0.637 where 1.000000 is right"), "{}", result.statement);
        values[5] = f64::NAN;
        assert_eq!(check(&p, &values).worst_index, [0, 0, 0, 5]);
        let short = Tensor::from_f64("o", vec![1], &[1.0]).unwrap();
        assert!(p.check(&short, PFormat::Bf16, Provenance::given("test")).is_err());
    }

    /// Attention with P rounded to e4m3 without a scale, the row sum from the unrounded weights, as in a known
    /// bug: with many keys the small weights vanish. `v-one` must show it.
    #[test]
    fn v_one_shows_weights_that_underflow() {
        let shape = AttentionShape { batch: 1, heads: 1, heads_kv: 1, seq_q: 4, seq_k: 2048, dim: 16 };
        let p = Probe::new(ProbeKind::VOne, shape, Dtype::Bf16, 1).unwrap();
        let (q, k) = (
            p.inputs.require("q").unwrap().to_f64().unwrap(),
            p.inputs.require("k").unwrap().to_f64().unwrap(),
        );
        let mut o = Vec::new();
        for q in q.chunks(16) {
            let dot = |k: &[f64]| f64::from(p.scale) * q.iter().zip(k).map(|(a, b)| a * b).sum::<f64>();
            let scores: Vec<f64> = k.chunks(16).map(dot).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let kept: f64 = weights.iter().filter(|&&w| w > 1.0 / 1024.0).sum();
            o.extend([kept / sum; 16]);
        }
        let o = Tensor::from_f64("o", vec![1, 1, 4, 16], &o).unwrap();
        let result = p.check(&o, PFormat::E4m3, Provenance::given("test")).unwrap();
        assert!(!result.passed, "{}", result.statement);
    }

    #[test]
    fn the_set_holds_what_a_kernel_needs_and_gives_the_answer_again() {
        let p = probe(ProbeKind::TwoHot);
        let set = p.to_set().unwrap();
        let read = TensorSet::from_bytes(set.to_safetensors().unwrap(), "p", &Default::default()).unwrap();
        assert_eq!(read.metadata()["kbt_probe"], "two-hot");
        let t = |name: &str| read.require(name).unwrap();
        let inputs = AttentionInputs::new(t("q"), t("k"), t("v")).unwrap();
        let scale: f32 = read.metadata()["scale"].parse().unwrap();
        let rows = attention_reference(&inputs, false, f64::from(scale));
        assert_eq!(rows.o, t("o").to_f64().unwrap());
    }

    #[test]
    fn shapes_that_cannot_hold_a_probe_are_refused_and_names_read_back() {
        let small = AttentionShape { batch: 1, heads: 1, heads_kv: 1, seq_q: 8, seq_k: 8, dim: 2 };
        for kind in [ProbeKind::OneHot, ProbeKind::MaskedRow, ProbeKind::MaskedGroup] {
            assert!(Probe::new(kind, small, Dtype::Bf16, 1).is_err(), "{kind}");
        }
        let none = AttentionShape { dim: 0, ..small };
        assert!(Probe::new(ProbeKind::Uniform, none, Dtype::Bf16, 1).is_err());
        for kind in ProbeKind::ALL {
            assert_eq!(kind.as_str().parse::<ProbeKind>().unwrap(), kind);
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
        assert!("v-two".parse::<ProbeKind>().unwrap_err().to_string().contains("v-one"));
    }
}
