//! What a conversion is: a target format and the modifiers of PTX's `cvt`, and which of them go together.

use super::Format;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// A rounding mode, by its PTX suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rounding {
    /// To nearest, ties to the even code. For ue8m0, where PTX has no such mode, midpoints go up, as NVIDIA's
    /// host header does it for bf16 input.
    #[default]
    Rn,
    /// Towards zero.
    Rz,
    /// Towards minus infinity.
    Rm,
    /// Towards plus infinity. For ue8m0, which ignores the sign, away from zero.
    Rp,
}

/// What a magnitude above the greatest finite value becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// The greatest finite value (PTX `.satfinite`).
    Saturate,
    /// Infinity where the format has one, else NaN, else (FP4, FP6) the greatest value.
    Special,
}

/// How an f32 is converted: the modifiers of a PTX `cvt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conversion {
    /// The target.
    pub format: Format,
    /// The rounding mode.
    pub rounding: Rounding,
    /// What overflow gives.
    pub overflow: Overflow,
    /// Negative input, minus zero included, gives plus zero (PTX `.relu`).
    pub relu: bool,
}

/// A combination of modifiers that the target format does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// The rounding mode.
    #[error("{format} has no conversion `.{rounding}`; PTX has {accepted}")]
    Rounding {
        /// The target.
        format: Format,
        /// The mode asked for.
        rounding: &'static str,
        /// What PTX has.
        accepted: &'static str,
    },
    /// `.relu` or `.satfinite` in a mode that has neither.
    #[error("{format} has no conversion `.{rounding}.{modifier}`; `.{modifier}` goes with rn and rz")]
    Directed {
        /// The target.
        format: Format,
        /// The mode asked for.
        rounding: &'static str,
        /// The other modifier.
        modifier: &'static str,
    },
    /// `.relu` on a format without sign.
    #[error("ue8m0 has no sign, so `.relu` means nothing there")]
    Relu,
    /// A mode's name.
    #[error("`{0}` is no rounding mode; accepted: rn, rz, rm, rp")]
    Unknown(String),
}

impl Rounding {
    /// The PTX suffix, without the dot.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rn => "rn",
            Self::Rz => "rz",
            Self::Rm => "rm",
            Self::Rp => "rp",
        }
    }
}

impl FromStr for Rounding {
    type Err = ConversionError;

    fn from_str(text: &str) -> Result<Self, ConversionError> {
        [Self::Rn, Self::Rz, Self::Rm, Self::Rp]
            .into_iter()
            .find(|r| r.as_str() == text)
            .ok_or_else(|| ConversionError::Unknown(text.to_owned()))
    }
}

impl Conversion {
    /// What kernels use: `rn.satfinite` for FP4, FP6 and FP8, `rz.satfinite` for ue8m0, plain `rn` (overflow to
    /// infinity) for bf16 and f16.
    #[must_use]
    pub const fn usual(format: Format) -> Self {
        let (rounding, overflow) = match format {
            Format::Ue8m0 => (Rounding::Rz, Overflow::Saturate),
            Format::Bf16 | Format::F16 => (Rounding::Rn, Overflow::Special),
            _ => (Rounding::Rn, Overflow::Saturate),
        };
        Self { format, rounding, overflow, relu: false }
    }

    /// Checks that the format has these modifiers. `rn` for all (for ue8m0 as the host header has it), `rz` also for
    /// ue8m0, bf16 and f16, `rp` for these too, `rm` for bf16 and f16; `rm` and `rp` of bf16 and f16 have neither
    /// `.relu` nor `.satfinite`. FP8 without `.satfinite` is not PTX's but the host header's.
    ///
    /// Source: what ptxas 13.0.88 assembles for sm_90a and sm_100a.
    pub fn checked(self) -> Result<Self, ConversionError> {
        let (modes, accepted): (&[Rounding], _) = match self.format {
            Format::Ue8m0 => {
                (&[Rounding::Rz, Rounding::Rp, Rounding::Rn], "rz, rp (and rn in the host header)")
            }
            Format::Bf16 | Format::F16 => {
                (&[Rounding::Rn, Rounding::Rz, Rounding::Rm, Rounding::Rp], "rn, rz, rm, rp")
            }
            _ => (&[Rounding::Rn], "rn"),
        };
        let (format, rounding) = (self.format, self.rounding.as_str());
        if !modes.contains(&self.rounding) {
            return Err(ConversionError::Rounding { format, rounding, accepted });
        }
        if self.relu && format == Format::Ue8m0 {
            return Err(ConversionError::Relu);
        }
        let directed = format != Format::Ue8m0 && matches!(self.rounding, Rounding::Rm | Rounding::Rp);
        if directed && (self.relu || self.overflow == Overflow::Saturate) {
            let modifier = if self.relu { "relu" } else { "satfinite" };
            return Err(ConversionError::Directed { format, rounding, modifier });
        }
        Ok(self)
    }

    /// Every conversion that [`Self::checked`] accepts.
    pub fn all() -> impl Iterator<Item = Self> {
        use Rounding::{Rm, Rn, Rp, Rz};
        let modes = move |format| {
            [Rn, Rz, Rm, Rp].into_iter().flat_map(move |rounding| {
                [Overflow::Saturate, Overflow::Special].into_iter().flat_map(move |overflow| {
                    [false, true].map(|relu| Self { format, rounding, overflow, relu })
                })
            })
        };
        Format::ALL.into_iter().flat_map(modes).filter_map(|c| c.checked().ok())
    }
}
