//! The execution pipes, by the names that Nsight Compute uses.

use serde::{Deserialize, Serialize};
use std::fmt;

/// An execution pipe of an SM. What runs on which is data (kbt-sass); the names live here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Pipe {
    /// Integer and logic, FP32 compare and min/max, F2FP conversions.
    Alu,
    /// FP32 arithmetic, either half.
    Fma,
    /// The half of FMA that also multiplies integers.
    FmaHeavy,
    /// The half of FMA that does FP32 only.
    FmaLite,
    /// Half precision, where it is a pipe of its own.
    Fp16,
    /// Double precision.
    Fp64,
    /// Transcendentals (MUFU) and slow conversions.
    Xu,
    /// Loads, stores, shuffles.
    Lsu,
    /// Address divergence unit: constants, barriers.
    Adu,
    /// Branches.
    Cbu,
    /// The uniform datapath.
    Uniform,
    /// Matrix instructions that read registers or shared memory.
    Tensor,
    /// Tensor-core commands of Blackwell.
    Tc,
    /// Tensor memory.
    Tmem,
    /// The bulk copy engine.
    Tma,
    /// Texture.
    Tex,
    /// Not known.
    Unknown,
}

impl Pipe {
    /// The name in files and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alu => "alu",
            Self::Fma => "fma",
            Self::FmaHeavy => "fma_heavy",
            Self::FmaLite => "fma_lite",
            Self::Fp16 => "fp16",
            Self::Fp64 => "fp64",
            Self::Xu => "xu",
            Self::Lsu => "lsu",
            Self::Adu => "adu",
            Self::Cbu => "cbu",
            Self::Uniform => "uniform",
            Self::Tensor => "tensor",
            Self::Tc => "tc",
            Self::Tmem => "tmem",
            Self::Tma => "tma",
            Self::Tex => "tex",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
