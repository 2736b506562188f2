//! The fact sheet of the attention forward kernel that ships with kbt.

use crate::dtype::Dtype;
use crate::facts::{
    Dataflow, Dtypes, FactSheet, Implementation, Operator, OperatorKind, Shape, Timing, TimingMethod,
};
use kbt_evidence::{Figure, Provenance};
use std::fmt;
use std::str::FromStr;

/// The number format of P and V in the second product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PvMode {
    /// bf16.
    Bf16,
    /// FP8 E4M3.
    Fp8,
    /// NVFP4: E2M1 with a scale for 16 elements.
    Fp4,
}

impl PvMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Bf16, Self::Fp8, Self::Fp4];

    /// The name in options.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Fp4 => "fp4",
        }
    }

    const fn dtype(self) -> Dtype {
        match self {
            Self::Bf16 => Dtype::Bf16,
            Self::Fp8 => Dtype::Fp8E4m3,
            Self::Fp4 => Dtype::Nvfp4,
        }
    }
}

/// Text that is no P·V mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pv mode `{0}` is not known; accepted: bf16, fp8, fp4")]
pub struct PvModeError(String);

impl FromStr for PvMode {
    type Err = PvModeError;

    fn from_str(text: &str) -> Result<Self, PvModeError> {
        Self::ALL.into_iter().find(|m| m.as_str() == text).ok_or_else(|| PvModeError(text.to_owned()))
    }
}

impl fmt::Display for PvMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The facts of one forward call. `time` is the median of one call in microseconds, with its spread and
/// provenance; without it a triage gives the initial call only. The shape is that of the launch that was timed,
/// so it is known as well as the time is. Further facts (`device`, `profiler`, roles) may be set on the result.
#[must_use]
pub fn attention_facts(
    batch: u64,
    heads: u64,
    seqlen: u64,
    head_dim: u64,
    causal: bool,
    pv_mode: PvMode,
    time: Option<Figure>,
) -> FactSheet {
    let launch = time.as_ref().map_or_else(
        || Provenance::given("the kernel's parameters"),
        |t| {
            let mut p = t.provenance.clone();
            p.by = format!("parameters of the timed launch ({})", p.by);
            p
        },
    );
    let pv = pv_mode.dtype();
    let timing = time.map(|t| Timing {
        median_us: Some(t.value),
        low_us: t.spread.as_ref().map(|s| s.low),
        high_us: t.spread.as_ref().map(|s| s.high),
        spread: t.spread.as_ref().map(|s| s.what.clone()),
        method: Some(TimingMethod::CudaEvents),
        kernels: Some(1.0),
        communication_included: Some(false),
        provenance: Some(t.provenance),
        ..Timing::default()
    });
    FactSheet {
        name: Some(format!("attention forward, P·V in {pv_mode}")),
        operator: Some(Operator {
            kind: Some(OperatorKind::Attention),
            formula: Some("O = softmax(Q K^T / sqrt(D)) V".to_owned()),
            provenance: Some(launch.clone()),
            ..Operator::default()
        }),
        shape: Some(Shape {
            batch: Some(batch),
            heads: Some(heads),
            seqlen: Some(seqlen),
            head_dim: Some(head_dim),
            causal: Some(causal),
            provenance: Some(launch.clone()),
            ..Shape::default()
        }),
        dtypes: Some(Dtypes {
            inputs: Some(vec![Dtype::Bf16, Dtype::Bf16, pv]),
            accumulate: Some(Dtype::Fp32),
            output: Some(Dtype::Bf16),
            mma: Some(Dtype::Bf16),
            mma_pv: Some(pv),
            provenance: Some(launch.clone()),
            ..Dtypes::default()
        }),
        dataflow: Some(Dataflow {
            reuse: Some("K and V are read once a tile of Q and stay in L2 across heads of one batch; P never leaves the SM".to_owned()),
            provenance: Some(launch.clone()),
            ..Dataflow::default()
        }),
        implementation: Some(Implementation {
            path: Some("cuda".to_owned()),
            tensor_instructions: Some(true),
            async_copies: Some(true),
            warp_specialized: Some(true),
            provenance: Some(launch),
            ..Implementation::default()
        }),
        timing,
        ..FactSheet::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ceilings::Ceilings;
    use crate::outcome::{Resource, Status};
    use crate::published::part;
    use crate::triage::triage;
    use kbt_evidence::{Known, Unit};

    fn ms(value: f64) -> Option<Figure> {
        let p = Provenance::measured("kbt kernel run", "NVIDIA H200", "2026-11-30");
        Some(Figure::new("time", value * 1e3, Unit::Microseconds, p))
    }

    #[test]
    fn the_arithmetic_roof_of_a_mixed_mode_is_harmonic_and_exp2_is_a_roof_of_its_own() {
        let c = Ceilings::published(part("H200").unwrap());
        let roof = |mode| {
            let sheet = attention_facts(4, 16, 4096, 128, false, mode, ms(1.0));
            let outcome = triage(&sheet, Some(&c), &[]).unwrap();
            assert_eq!(outcome.status, Status::Diagnosed);
            let bound = |r| outcome.bounds.iter().find(|b| b.resource == r).unwrap().time.value;
            let names: Vec<String> = outcome.plot.unwrap().roofs.iter().map(|r| r.name.clone()).collect();
            assert!(names.iter().any(|n| n.contains("exp2 on the XU pipe, 512 useful FLOP")), "{names:?}");
            (bound(Resource::Compute), bound(Resource::Xu))
        };
        let (bf16, xu) = roof(PvMode::Bf16);
        let (fp8, _) = roof(PvMode::Fp8);
        let (fp4, _) = roof(PvMode::Fp4);
        // QK^T in bf16 and P·V at twice its rate: three quarters of the time.
        assert!((fp8 / bf16 - 0.75).abs() < 1e-3, "{fp8} {bf16}");
        // No FP4 tensor core on 9.0: 16-bit products.
        assert!((fp4 - bf16).abs() < 1e-9);
        // 1024 clk of exp2 for 2048 clk of bf16 products a tile of 128x128x128 (clock of the peak: 1830 MHz).
        assert!((xu / bf16 - 0.5).abs() < 2e-3, "{xu} {bf16}");
    }

    #[test]
    fn a_measured_launch_makes_its_shape_as_well_known_as_its_time() {
        let sheet = attention_facts(4, 16, 4096, 128, true, PvMode::Fp8, ms(1.0));
        let work = crate::work::derive(&sheet).unwrap();
        assert_eq!(work.flop.provenance.kind, Known::Measured);
        assert_eq!(work.flop.value, 2.0 * 4.0 * 16.0 * 4096.0 * 4096.0 * 128.0);
    }
}
