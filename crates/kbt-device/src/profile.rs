//! The device profile: the file format `kbt.device/1` and its lookups.

mod check;

use crate::{Arch, Pipe};
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The schema that profiles state.
pub const SCHEMA: &str = "kbt.device/1";

/// What one device, or one compile target, can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceProfile {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// A short name: `h200-sxm`, `sm_103a`.
    pub name: String,
    /// The compile target.
    pub arch: Arch,
    /// The device's own name, where one was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// How the plain numbers of this object are known.
    pub provenance: Provenance,
    /// Streaming multiprocessors; unknown for a bare compile target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_count: Option<u32>,
    /// The SM clock that cycle figures are turned into time with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_clock_mhz: Option<f64>,
    /// Instruction rates and latencies.
    #[serde(default)]
    pub rates: Vec<RateRow>,
    /// Rates of mixes of two instructions.
    #[serde(default)]
    pub mixes: Vec<MixRow>,
    /// Memory, tensor-core and launch ceilings.
    #[serde(default)]
    pub ceilings: Vec<Ceiling>,
    /// What ptxas emits for an operation.
    #[serde(default)]
    pub lowering: Vec<Lowering>,
}

/// The rate and latency of one instruction; or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateRow {
    /// The name in the microbenchmark's spec, for example `ex2.approx.ftz.f32`.
    pub instruction: String,
    /// The full SASS mnemonic with modifiers that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opcode: Option<String>,
    /// The pipe it occupies.
    pub pipe: Pipe,
    /// Thread-level instructions a clock and SM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes_per_clk_sm: Option<f64>,
    /// Results a clock and SM: lanes times elements an instruction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results_per_clk_sm: Option<f64>,
    /// Cycles from issue to a dependent issue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_clk: Option<f64>,
    /// Spread of the rate over repeats, relative to the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_percent: Option<f64>,
    /// Why there is no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// How the numbers are known.
    pub provenance: Provenance,
}

impl RateRow {
    /// The latency of the row's opcode; none where several take turns, of which it would be a mean that is no one's.
    #[must_use]
    pub fn latency(&self) -> Option<f64> {
        self.latency_clk.filter(|_| !self.opcode.as_deref().is_some_and(|o| o.contains('+')))
    }
}

/// The combined rate of two instructions issued together, and what separate pipes would allow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MixRow {
    /// The instruction names, as in [`RateRow::instruction`], with how many of each a body holds.
    pub parts: Vec<(String, u32)>,
    /// Measured: instructions of all parts together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes_per_clk_sm: Option<f64>,
    /// What the parts' own rates allow if they share nothing but the issue port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separate_lanes_per_clk_sm: Option<f64>,
    /// What the parts' own rates allow if they share one pipe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_lanes_per_clk_sm: Option<f64>,
    /// Why there is no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// How the numbers are known.
    pub provenance: Provenance,
}

/// What a ceiling limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CeilingKind {
    /// Bytes read from device memory a second.
    HbmRead,
    /// Bytes written to device memory a second.
    HbmWrite,
    /// Bytes read plus written by a copy a second.
    HbmCopy,
    /// Bytes read from L2 a second.
    L2Read,
    /// Bytes read from shared memory a second, all SMs.
    SharedRead,
    /// Dense bf16 matrix products with f32 accumulation.
    TensorBf16,
    /// Dense f16 matrix products with f32 accumulation.
    TensorF16,
    /// Dense tf32 matrix products.
    TensorTf32,
    /// Dense fp8 (e4m3) matrix products.
    TensorFp8,
    /// Dense fp8 (e5m2) matrix products.
    TensorE5m2,
    /// Dense 8-bit integer matrix products; a multiply-add counted as two operations.
    TensorInt8,
    /// Dense 4-bit integer matrix products; a multiply-add counted as two operations.
    TensorInt4,
    /// Dense fp4 matrix products.
    TensorFp4,
    /// FP32 arithmetic, an FMA counted as two.
    Fp32,
    /// FP64 arithmetic.
    Fp64,
    /// Time of an empty launch.
    LaunchLatency,
    /// Round trip of an mbarrier arrive and wait.
    MbarrierRoundTrip,
}

impl CeilingKind {
    /// The name in files and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HbmRead => "hbm_read",
            Self::HbmWrite => "hbm_write",
            Self::HbmCopy => "hbm_copy",
            Self::L2Read => "l2_read",
            Self::SharedRead => "shared_read",
            Self::TensorBf16 => "tensor_bf16",
            Self::TensorF16 => "tensor_f16",
            Self::TensorTf32 => "tensor_tf32",
            Self::TensorFp8 => "tensor_fp8",
            Self::TensorE5m2 => "tensor_e5m2",
            Self::TensorInt8 => "tensor_int8",
            Self::TensorInt4 => "tensor_int4",
            Self::TensorFp4 => "tensor_fp4",
            Self::Fp32 => "fp32",
            Self::Fp64 => "fp64",
            Self::LaunchLatency => "launch_latency",
            Self::MbarrierRoundTrip => "mbarrier_round_trip",
        }
    }
}

impl fmt::Display for CeilingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One ceiling. Exactly one of the numbers is set, the one its kind is measured in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ceiling {
    /// What it limits.
    pub kind: CeilingKind,
    /// For memory levels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<f64>,
    /// For arithmetic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flop_per_s: Option<f64>,
    /// For latencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Spread over repeats, relative to the median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_percent: Option<f64>,
    /// How the number is known.
    pub provenance: Provenance,
}

/// What ptxas emits for one operation of the algebra step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lowering {
    /// The operation, for example `div.rn.f32`.
    pub operation: String,
    /// Results one expansion gives (2 for a packed conversion).
    pub results: f64,
    /// The instructions of the path that is usually taken.
    pub instructions: Vec<Lowered>,
    /// How the expansion is known.
    pub provenance: Provenance,
}

/// One kind of instruction within a lowering.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lowered {
    /// SASS mnemonic with modifiers.
    pub opcode: String,
    /// Its pipe.
    pub pipe: Pipe,
    /// How many of it.
    pub count: f64,
}

/// A number that a profile does not have, and the measurement that would give it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingFigure {
    /// The profile asked.
    pub profile: String,
    /// What it lacks.
    pub what: String,
    /// The command that gives it.
    pub measure_with: String,
}

impl fmt::Display for MissingFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "profile `{}` has no {}; `{}` gives it", self.profile, self.what, self.measure_with)
    }
}

impl std::error::Error for MissingFigure {}

/// A profile file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{origin}: {message}")]
pub struct ProfileError {
    /// The file, or the name of an embedded profile.
    pub origin: String,
    /// What is wrong, with line and column where the parser knows them.
    pub message: String,
}

impl DeviceProfile {
    /// An empty profile.
    #[must_use]
    pub fn new(name: impl Into<String>, arch: Arch, provenance: Provenance) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            name: name.into(),
            arch,
            device: None,
            provenance,
            sm_count: None,
            sm_clock_mhz: None,
            rates: Vec::new(),
            mixes: Vec::new(),
            ceilings: Vec::new(),
            lowering: Vec::new(),
        }
    }

    /// Reads a profile from YAML; `origin` names the file in errors.
    pub fn from_yaml(text: &str, origin: &str) -> Result<Self, ProfileError> {
        let error = |message: String| ProfileError { origin: origin.to_owned(), message };
        let profile: Self = serde_yaml::from_str(text)
            .map_err(|e| error(e.to_string().replace("struct Raw", "a provenance: `kind`, `by`")))?;
        if profile.schema != SCHEMA {
            return Err(error(format!("schema `{}` is not `{SCHEMA}`", profile.schema)));
        }
        profile.check_numbers().map_err(&error)?;
        for row in &profile.rates {
            if row.lanes_per_clk_sm.is_none() && row.refused.is_none() {
                return Err(error(format!(
                    "rate `{}` has neither lanes_per_clk_sm nor refused",
                    row.instruction
                )));
            }
            if row.lanes_per_clk_sm.is_some() && row.refused.is_some() {
                return Err(error(format!(
                    "rate `{}` has both lanes_per_clk_sm and refused, where one of the two is expected",
                    row.instruction
                )));
            }
        }
        for ceiling in &profile.ceilings {
            let set = [ceiling.bytes_per_s, ceiling.flop_per_s, ceiling.seconds].iter().flatten().count();
            if set != 1 {
                return Err(error(format!("ceiling `{}` needs exactly one number, has {set}", ceiling.kind)));
            }
        }
        Ok(profile)
    }

    /// Writes the profile as YAML.
    pub fn to_yaml(&self) -> Result<String, ProfileError> {
        serde_yaml::to_string(self)
            .map_err(|e| ProfileError { origin: self.name.clone(), message: e.to_string() })
    }

    /// The same profile as a recording: measured becomes recorded.
    #[must_use]
    pub fn read_back(mut self) -> Self {
        self.provenance = self.provenance.read_back();
        for p in self
            .rates
            .iter_mut()
            .map(|r| &mut r.provenance)
            .chain(self.mixes.iter_mut().map(|r| &mut r.provenance))
            .chain(self.ceilings.iter_mut().map(|r| &mut r.provenance))
            .chain(self.lowering.iter_mut().map(|r| &mut r.provenance))
        {
            *p = p.clone().read_back();
        }
        self
    }

    /// The row of an instruction that has a rate.
    pub fn rate(&self, instruction: &str) -> Result<&RateRow, MissingFigure> {
        self.rates.iter().find(|r| r.instruction == instruction && r.lanes_per_clk_sm.is_some()).ok_or_else(
            || self.missing(format!("rate for `{instruction}`"), &format!("--only '^{instruction}$'")),
        )
    }

    /// A row by the SASS mnemonic that was seen, that has a rate. Where several have it, the first with a latency comes first:
    /// its chain was that opcode and nothing else, where another row's may have had more to do in each operation.
    #[must_use]
    pub fn rate_of_opcode(&self, opcode: &str) -> Option<&RateRow> {
        let of = |r: &&RateRow| r.opcode.as_deref() == Some(opcode) && r.lanes_per_clk_sm.is_some();
        let alone = self.rates.iter().filter(of).find(|r| r.latency_clk.is_some());
        alone.or_else(|| self.rates.iter().find(of))
    }

    /// A ceiling.
    pub fn ceiling(&self, kind: CeilingKind) -> Result<&Ceiling, MissingFigure> {
        self.ceilings
            .iter()
            .find(|c| c.kind == kind)
            .ok_or_else(|| self.missing(format!("ceiling `{kind}`"), "--only '^ceiling:'"))
    }

    /// What ptxas emits for an operation.
    pub fn lowering(&self, operation: &str) -> Result<&Lowering, MissingFigure> {
        self.lowering.iter().find(|l| l.operation == operation).ok_or_else(|| MissingFigure {
            profile: self.name.clone(),
            what: format!("lowering of `{operation}`"),
            measure_with: format!("kbt microbench mine --arch {} --out PROFILE.yaml", self.arch),
        })
    }

    fn missing(&self, what: String, only: &str) -> MissingFigure {
        MissingFigure {
            profile: self.name.clone(),
            what,
            measure_with: format!("kbt microbench run {only} --out PROFILE.yaml"),
        }
    }
}
