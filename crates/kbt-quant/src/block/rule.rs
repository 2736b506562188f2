//! The scale rules: their names, which formats have them. Their arithmetic is in `scale`.

use super::BlockFormat;
use super::scale::encode_scale;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A scale rule. Sources: TransformerEngine d0067d0 core_nvfp4.cuh; flashinfer 014327a quantization_utils.cuh;
/// torchao 36027d8 nvfp4_quantize; SageAttention3 d1a57a5 fp4_quantization_4d.cu; OCP MX v1.0 section 6.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScaleRule {
    /// NVFP4: s = e4m3(amax (S (1/6))) with S = 2688 / tensor amax; elements times 1 / (s (1/S)).
    TransformerEngine,
    /// flashinfer's fast path. NVFP4: s = e4m3(S (amax rcp(6))), elements times rcp(s rcp(S)). MX: ue8m0 of
    /// amax rcp(max), rounded up. What flashinfer does where a scale is 0 is done here too.
    Flashinfer,
    /// flashinfer without its fast path (NVFP4): TransformerEngine's scales; a block whose scale rounds to 0 has
    /// other elements.
    FlashinferExact,
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
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RuleError {
    /// No such rule.
    #[error(
        "`{0}` is no scale rule; accepted: te (transformer-engine), flashinfer, flashinfer-exact, torchao, \
         sage3, floor (ocp-floor), round-up (rceil)"
    )]
    Rule(String),
    /// No such block format.
    #[error("`{0}` is no block format; accepted: nvfp4, mxfp4, mxfp6-e2m3, mxfp6-e3m2, mxfp8, mxfp8-e5m2")]
    Format(String),
    /// A greatest magnitude that none is.
    #[error(
        "the tensor's greatest magnitude cannot be {0}; accepted: a number from 0 up, 0 for no tensor scale"
    )]
    TensorAmax(f32),
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

impl ScaleRule {
    /// Every rule.
    pub const ALL: [Self; 7] = [
        Self::TransformerEngine,
        Self::Flashinfer,
        Self::FlashinferExact,
        Self::Torchao,
        Self::Sage3,
        Self::Floor,
        Self::RoundUp,
    ];

    /// The name in options.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TransformerEngine => "te",
            Self::Flashinfer => "flashinfer",
            Self::FlashinferExact => "flashinfer-exact",
            Self::Torchao => "torchao",
            Self::Sage3 => "sage3",
            Self::Floor => "floor",
            Self::RoundUp => "round-up",
        }
    }

    /// Whether the rule scales the whole tensor first, in this format.
    #[must_use]
    pub const fn has_tensor_scale(self, format: BlockFormat) -> bool {
        matches!(format, BlockFormat::Nvfp4)
            && matches!(
                self,
                Self::TransformerEngine | Self::Flashinfer | Self::FlashinferExact | Self::Torchao
            )
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

    /// What a dequantised product is multiplied by for the tensor's scale.
    pub(super) fn tensor_factor(self, format: BlockFormat, tensor_amax: f32) -> f32 {
        match self {
            _ if !self.has_tensor_scale(format) => 1.0,
            Self::TransformerEngine | Self::Flashinfer | Self::FlashinferExact => {
                1.0 / encode_scale(tensor_amax)
            }
            Self::Torchao if tensor_amax > 0.0 => tensor_amax / 2688.0,
            _ => 1.0,
        }
    }
}

/// Names that others use.
const OTHER_NAMES: [(&str, ScaleRule); 3] = [
    ("transformer-engine", ScaleRule::TransformerEngine),
    ("ocp-floor", ScaleRule::Floor),
    ("rceil", ScaleRule::RoundUp),
];

impl fmt::Display for ScaleRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ScaleRule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let other = OTHER_NAMES.iter().find(|(name, _)| *name == text).map(|(_, rule)| *rule);
        other
            .or_else(|| Self::ALL.into_iter().find(|r| r.as_str() == text))
            .ok_or_else(|| RuleError::Rule(text.to_owned()))
    }
}
