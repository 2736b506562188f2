//! Which instructions a P·V mode's softmax step uses, and which of them are suspects. Data only.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The format in which P enters the product with V.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PvMode {
    /// bfloat16.
    Bf16,
    /// e4m3.
    Fp8,
    /// NVFP4: e2m1 codes with an e4m3 scale for each 16 elements.
    Fp4,
}

impl PvMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Bf16, Self::Fp8, Self::Fp4];

    /// The name in options and files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Fp4 => "fp4",
        }
    }
}

impl fmt::Display for PvMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A mode that there is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no P·V mode; bf16, fp8 or fp4")]
pub struct PvModeError(String);

impl FromStr for PvMode {
    type Err = PvModeError;

    fn from_str(text: &str) -> Result<Self, PvModeError> {
        Self::ALL.into_iter().find(|m| m.as_str() == text).ok_or_else(|| PvModeError(text.to_owned()))
    }
}

/// What an instruction is to the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The exponential: one result for each element of P, on the special-function unit.
    Exponential,
    /// Suspected of being expensive: one result for each element of P.
    Suspect,
    /// Part of the step, and suspected by nobody.
    Other,
    /// Not part of the step; its rate is what the ALU can do.
    Reference,
}

/// One instruction of the step.
#[derive(Debug, Clone, Copy)]
pub struct Use {
    /// Its name in profiles.
    pub instruction: &'static str,
    /// What it is to the step.
    pub role: Role,
    /// What it does there.
    pub does: &'static str,
    /// Modes that use it.
    pub modes: &'static [PvMode],
}

/// The exponential that everything is measured against.
pub const EX2: &str = "ex2.approx.ftz.f32";
/// The instruction that shows what the ALU can do.
pub const ALU: &str = "lop3.b32";

use PvMode::{Bf16, Fp4, Fp8};
const EVERY: &[PvMode] = &PvMode::ALL;

/// The step's instructions: online softmax, then P in the mode's format.
pub const USES: &[Use] = &[
    Use { instruction: EX2, role: Role::Exponential, does: "the exponential of each score", modes: EVERY },
    Use { instruction: "fma.rn.f32", role: Role::Other, does: "scale and shift of each score", modes: EVERY },
    Use { instruction: "max.f32", role: Role::Other, does: "the row maximum", modes: EVERY },
    Use { instruction: "add.rn.f32", role: Role::Other, does: "the row sum", modes: EVERY },
    Use {
        instruction: "shfl.sync.bfly.b32",
        role: Role::Other,
        does: "reductions across the lanes of a row",
        modes: EVERY,
    },
    Use {
        instruction: "cvt.rn.bf16x2.f32",
        role: Role::Suspect,
        does: "P to bf16, two elements an instruction",
        modes: &[Bf16, Fp4],
    },
    Use {
        instruction: "cvt.rn.satfinite.e4m3x2.f32",
        role: Role::Suspect,
        does: "P to e4m3, two elements an instruction",
        modes: &[Fp8],
    },
    Use {
        instruction: "cvt.rn.satfinite.e4m3x2.f32",
        role: Role::Other,
        does: "the groups' scales to e4m3",
        modes: &[Fp4],
    },
    Use {
        instruction: "e2m1.round.below7",
        role: Role::Suspect,
        does: "P to the e2m1 grid where there is no native conversion",
        modes: &[Fp4],
    },
    Use {
        instruction: "cvt.rn.satfinite.e2m1x2.f32",
        role: Role::Suspect,
        does: "P to e2m1 codes, two elements an operation",
        modes: &[Fp4],
    },
    Use {
        instruction: "div.rn.f32",
        role: Role::Suspect,
        does: "P over its group's scale, in the linear form with IEEE division",
        modes: &[Fp4],
    },
    Use {
        instruction: "rcp.approx.ftz.f32",
        role: Role::Other,
        does: "the reciprocal of a group's scale, one for 16 elements",
        modes: &[Fp4],
    },
    Use { instruction: "mul.rn.f32", role: Role::Other, does: "codes times scales", modes: &[Fp4] },
    Use { instruction: ALU, role: Role::Reference, does: "what the ALU can do", modes: EVERY },
];

/// The instructions of a mode.
pub fn uses(mode: PvMode) -> impl Iterator<Item = &'static Use> {
    USES.iter().filter(move |u| u.modes.contains(&mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_is_in_the_embedded_spec_and_named_once_a_mode() {
        let spec = crate::spec::Spec::embedded().unwrap();
        for mode in PvMode::ALL {
            let mut seen = std::collections::BTreeSet::new();
            for u in uses(mode) {
                assert!(spec.entry(u.instruction).is_some(), "{}", u.instruction);
                assert!(seen.insert(u.instruction), "{} twice in {mode}", u.instruction);
            }
        }
        assert_eq!("fp4".parse(), Ok(Fp4));
        assert!("fp6".parse::<PvMode>().unwrap_err().to_string().contains("bf16, fp8 or fp4"));
    }
}
