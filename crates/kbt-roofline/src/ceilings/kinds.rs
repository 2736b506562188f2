//! What a roof limits, its names and its unit.

use kbt_device::CeilingKind;
use kbt_evidence::Unit;
use serde::{Deserialize, Serialize};

/// What a roof limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RoofKind {
    /// Device memory by its data sheet, whatever the direction.
    HbmPeak,
    /// Bytes read from device memory a second.
    HbmRead,
    /// Bytes written to device memory a second.
    HbmWrite,
    /// Bytes read plus written by a copy a second.
    HbmCopy,
    /// Bytes read plus written a second at an operator's own mix, between the measured ones.
    HbmMix,
    /// Bytes read from L2 a second.
    L2Read,
    /// Bytes read from shared memory a second, all SMs.
    SharedRead,
    /// TF32 matrix products.
    TensorTf32,
    /// bf16 matrix products with f32 accumulation; those of f16 too, where nothing else is known of them.
    TensorBf16,
    /// f16 matrix products with f32 accumulation.
    TensorF16,
    /// FP8 matrix products.
    TensorFp8,
    /// FP4 matrix products.
    TensorFp4,
    /// 8-bit integer matrix products.
    TensorInt8,
    /// 4-bit integer matrix products.
    TensorInt4,
    /// FP32 arithmetic, an FMA counted as two.
    Fp32,
    /// FP64 arithmetic.
    Fp64,
    /// exp2 results a second on the XU pipe, all SMs.
    Ex2,
    /// Time of an empty launch.
    LaunchLatency,
}

impl RoofKind {
    /// The name in files and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HbmPeak => "HBM, data sheet",
            Self::HbmRead => "HBM read",
            Self::HbmWrite => "HBM write",
            Self::HbmCopy => "HBM copy",
            Self::HbmMix => "HBM at this mix of reads and writes",
            Self::L2Read => "L2 read",
            Self::SharedRead => "shared memory",
            Self::TensorTf32 => "tensor tf32",
            Self::TensorBf16 => "tensor bf16",
            Self::TensorF16 => "tensor f16",
            Self::TensorFp8 => "tensor fp8",
            Self::TensorFp4 => "tensor fp4",
            Self::TensorInt8 => "tensor int8",
            Self::TensorInt4 => "tensor int4",
            Self::Fp32 => "FP32 on the FMA pipe",
            Self::Fp64 => "FP64",
            Self::Ex2 => "exp2 on the XU pipe",
            Self::LaunchLatency => "launch latency",
        }
    }

    /// The key of a ceiling that holds its number.
    pub(crate) const fn number_key(self) -> &'static str {
        match self.unit() {
            Unit::BytesPerSecond => "bytes_per_s",
            Unit::Seconds => "seconds",
            _ => "flop_per_s",
        }
    }

    pub(super) const fn unit(self) -> Unit {
        match self {
            Self::HbmPeak
            | Self::HbmRead
            | Self::HbmWrite
            | Self::HbmCopy
            | Self::HbmMix
            | Self::L2Read
            | Self::SharedRead => Unit::BytesPerSecond,
            Self::LaunchLatency => Unit::Seconds,
            _ => Unit::FlopPerSecond,
        }
    }

    pub(crate) const fn is_device_memory(self) -> bool {
        matches!(self, Self::HbmPeak | Self::HbmRead | Self::HbmWrite | Self::HbmCopy | Self::HbmMix)
    }

    pub(crate) const fn of(kind: CeilingKind) -> Option<Self> {
        Some(match kind {
            CeilingKind::HbmRead => Self::HbmRead,
            CeilingKind::HbmWrite => Self::HbmWrite,
            CeilingKind::HbmCopy => Self::HbmCopy,
            CeilingKind::L2Read => Self::L2Read,
            CeilingKind::SharedRead => Self::SharedRead,
            CeilingKind::TensorBf16 => Self::TensorBf16,
            CeilingKind::TensorF16 => Self::TensorF16,
            CeilingKind::TensorTf32 => Self::TensorTf32,
            CeilingKind::TensorInt8 => Self::TensorInt8,
            CeilingKind::TensorInt4 => Self::TensorInt4,
            CeilingKind::TensorFp8 | CeilingKind::TensorE5m2 => Self::TensorFp8,
            CeilingKind::TensorFp4 => Self::TensorFp4,
            CeilingKind::Fp32 => Self::Fp32,
            CeilingKind::Fp64 => Self::Fp64,
            CeilingKind::LaunchLatency => Self::LaunchLatency,
            _ => return None,
        })
    }
}
