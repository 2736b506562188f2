//! How a block's scale is found, as the libraries do it, operation by operation.

use super::BlockFormat;
use crate::format::{Conversion, Format, Rounding};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A scale rule. Sources: TransformerEngine d0067d0 core_nvfp4.cuh; flashinfer fb28d72 cvt_warp_fp16_to_fp4; torchao
/// 36027d8 nvfp4_quantize; SageAttention3 d1a57a5 fp4_quantization_4d.cu; OCP MX v1.0 section 6.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScaleRule {
    /// NVFP4: s = e4m3(amax (S (1/6))) with S = 2688 / tensor amax; elements times 1 / (s (1/S)).
    TransformerEngine,
    /// flashinfer's fast path. NVFP4: s = e4m3(S (amax rcp(6))), elements times rcp(s rcp(S)). MX: ue8m0 of
    /// amax rcp(max), rounded up.
    Flashinfer,
    /// torchao, two-level where the tensor's maximum is given: s = e4m3(clamp(amax / 6 / T, 2^-6, 448)), elements
    /// times (1/T) / s.
    Torchao,
    /// SageAttention3 for Q, K and V: s = e4m3(amax / 6), elements times 1/s; no scale for the tensor.
    Sage3,
    /// OCP MX: 2^(floor(log2 amax) - emax). Clips a maximum that lies above the format's.
    Floor,
    /// MX: the least power of two that does not clip: ue8m0 of amax / max, rounded up.
    RoundUp,
}

/// A rule or format that is unknown, or a rule that the format does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// No such rule.
    #[error(
        "`{0}` is no scale rule; accepted: te, flashinfer, flashinfer-exact, torchao, sage3, floor, round-up"
    )]
    Rule(String),
    /// No such block format.
    #[error("`{0}` is no block format; accepted: nvfp4, mxfp4, mxfp6-e2m3, mxfp6-e3m2, mxfp8, mxfp8-e5m2")]
    Format(String),
    /// The format has other rules.
    #[error("{format} has no scale rule `{rule}`; accepted: {accepted}")]
    Mismatch {
        /// The format.
        format: BlockFormat,
        /// The rule asked for.
        rule: ScaleRule,
        /// What the format has.
        accepted: &'static str,
    },
}

/// What elements are multiplied by.
#[derive(Debug, Clone, Copy)]
pub(super) enum Factor {
    /// An f32 product, rounded.
    Single(f32),
    /// A power of two, exact also where it is no normal f32.
    Power(i32),
}

impl Factor {
    #[inline]
    pub(super) fn apply(self, x: f32) -> f32 {
        match self {
            Self::Single(factor) => x * factor,
            Self::Power(k) => (f64::from(x) * f64::from(k).exp2()) as f32,
        }
    }
}

impl ScaleRule {
    /// Every rule.
    pub const ALL: [Self; 6] =
        [Self::TransformerEngine, Self::Flashinfer, Self::Torchao, Self::Sage3, Self::Floor, Self::RoundUp];

    /// The name in options.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TransformerEngine => "te",
            Self::Flashinfer => "flashinfer",
            Self::Torchao => "torchao",
            Self::Sage3 => "sage3",
            Self::Floor => "floor",
            Self::RoundUp => "round-up",
        }
    }

    /// Whether the rule scales the whole tensor first.
    #[must_use]
    pub const fn has_tensor_scale(self) -> bool {
        matches!(self, Self::TransformerEngine | Self::Flashinfer | Self::Torchao)
    }

    /// Whether the format has this rule.
    pub fn check(self, format: BlockFormat) -> Result<(), RuleError> {
        let (fits, accepted) = if format == BlockFormat::Nvfp4 {
            (!matches!(self, Self::Floor | Self::RoundUp), "te, flashinfer, flashinfer-exact, torchao, sage3")
        } else {
            (matches!(self, Self::Floor | Self::RoundUp | Self::Flashinfer), "floor, round-up, flashinfer")
        };
        if fits { Ok(()) } else { Err(RuleError::Mismatch { format, rule: self, accepted }) }
    }

    /// The scale's code and the factor for elements.
    pub(super) fn scale(self, format: BlockFormat, amax: f32, tensor_amax: f32) -> (u16, Factor) {
        let e4m3 = Conversion::usual(Format::E4m3);
        let sixth = 1.0f32 / 6.0;
        match self {
            Self::TransformerEngine => {
                let encode = encode_scale(tensor_amax);
                let code = e4m3.encode(amax * (encode * sixth));
                let factor = (1.0 / (Format::E4m3.decode(code) * (1.0 / encode))).min(f32::MAX);
                (code, Factor::Single(factor))
            }
            Self::Flashinfer if format == BlockFormat::Nvfp4 => {
                let encode = encode_scale(tensor_amax);
                let code = e4m3.encode(encode * (amax * sixth));
                let scale = Format::E4m3.decode(code);
                let factor = if scale == 0.0 { 0.0 } else { 1.0 / (scale * (1.0 / encode)) };
                (code, Factor::Single(factor))
            }
            Self::Torchao => {
                let tensor = if tensor_amax > 0.0 { tensor_amax / 2688.0 } else { 1.0 };
                let wanted = amax / 6.0 / tensor;
                // Not f32::clamp, which is the same but for NaN kept: so does torch.
                let code =
                    e4m3.encode(if wanted.is_nan() { wanted } else { wanted.clamp(2f32.powi(-6), 448.0) });
                (code, Factor::Single(1.0 / tensor / Format::E4m3.decode(code)))
            }
            Self::Sage3 => {
                let code = e4m3.encode(amax / 6.0);
                let scale = Format::E4m3.decode(code);
                (code, Factor::Single(if scale == 0.0 { 0.0 } else { 1.0 / scale }))
            }
            Self::Floor => {
                let top = f64::from(format.element().max()).log2().floor() as i32;
                let code = if amax.is_nan() {
                    0xff
                } else if amax == 0.0 {
                    0
                } else {
                    (f64::from(amax).log2().floor() as i32 - top + 127).clamp(0, 0xfe) as u16
                };
                (code, Factor::Power(127 - i32::from(code)))
            }
            Self::Flashinfer | Self::RoundUp => {
                let up = Conversion { rounding: Rounding::Rp, ..Conversion::usual(Format::Ue8m0) };
                let max = format.element().max();
                let code = up.encode(if self == Self::RoundUp { amax / max } else { amax * (1.0 / max) });
                (code, Factor::Power(127 - i32::from(code)))
            }
        }
    }

    /// What a dequantised product is multiplied by for the tensor's scale.
    pub(super) fn tensor_factor(self, tensor_amax: f32) -> f32 {
        match self {
            Self::TransformerEngine | Self::Flashinfer => 1.0 / encode_scale(tensor_amax),
            Self::Torchao if tensor_amax > 0.0 => tensor_amax / 2688.0,
            _ => 1.0,
        }
    }
}

/// 448 * 6 / amax; 1 for a tensor of zeros, or where none is given.
fn encode_scale(tensor_amax: f32) -> f32 {
    let scale = (2688.0 / tensor_amax).min(f32::MAX);
    if tensor_amax == 0.0 || scale == 0.0 { 1.0 } else { scale }
}

impl fmt::Display for ScaleRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ScaleRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        // flashinfer's exact path is TransformerEngine's rule.
        if text == "flashinfer-exact" {
            return Ok(Self::TransformerEngine);
        }
        Self::ALL.into_iter().find(|r| r.as_str() == text).ok_or_else(|| RuleError::Rule(text.to_owned()))
    }
}
