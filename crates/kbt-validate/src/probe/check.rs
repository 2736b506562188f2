//! Judging a kernel's output on a probe.

use super::allowance::{Allowance, output_rounding, rounding};
use super::{Probe, ProbeKind};
use crate::compare::unravel;
use crate::reference::AttentionInputs;
use kbt_evidence::Provenance;
use kbt_tensor::{Tensor, TensorError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::str::FromStr;

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

/// The base of the logarithm in a log-sum of exponentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LseBase {
    /// e: the natural logarithm.
    #[default]
    Natural,
    /// 2.
    Two,
}

impl LseBase {
    /// The key in a file's metadata that states it: `e` or `2`.
    pub const KEY: &'static str = "lse_base";

    /// What a file states; natural where it states nothing.
    ///
    /// # Errors
    /// Where it states something else.
    pub fn stated(metadata: &BTreeMap<String, String>) -> Result<Self, UnknownBase> {
        metadata.get(Self::KEY).map_or(Ok(Self::default()), |text| text.parse())
    }

    /// What a log-sum of this base is to be multiplied by to be a natural one.
    const fn to_natural(self) -> f64 {
        match self {
            Self::Natural => 1.0,
            Self::Two => std::f64::consts::LN_2,
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Natural => Self::Two,
            Self::Two => Self::Natural,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Natural => "e",
            Self::Two => "2",
        }
    }
}

/// A base that no log-sum has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is `{0}`; accepted: e (natural) and 2", key = LseBase::KEY)]
pub struct UnknownBase(pub String);

impl FromStr for LseBase {
    type Err = UnknownBase;

    fn from_str(text: &str) -> Result<Self, UnknownBase> {
        [Self::Natural, Self::Two]
            .into_iter()
            .find(|base| base.as_str() == text)
            .ok_or_else(|| UnknownBase(text.to_owned()))
    }
}

/// What a kernel wrote on a probe.
#[derive(Debug, Clone, Copy)]
pub struct ProbeOutput<'a> {
    /// `[batch, heads, queries, dim]`.
    pub o: &'a Tensor,
    /// The log-sums of exponentials, `[batch, heads, queries]`, where it writes them, and the base of their logarithm.
    pub lse: Option<(&'a Tensor, LseBase)>,
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
    /// Whether the output is right, and the log-sums where there are any.
    pub passed: bool,
    /// Absolute error of the worst finite output: the one that is farthest off for what is allowed at its place.
    pub max_abs_error: f64,
    /// The error that P's format and the output's type account for at that place.
    pub allowed_abs_error: f64,
    /// The place of the worst output.
    pub worst_index: Vec<usize>,
    /// The log-sums; absent where the kernel wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lse: Option<LseResult>,
    /// What is wrong, or what was shown.
    pub statement: String,
}

/// What a probe found in the log-sums.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LseResult {
    /// Whether they are right.
    pub passed: bool,
    /// Absolute error of the worst finite one, as a natural logarithm.
    pub max_abs_error: f64,
    /// The error that is allowed there.
    pub allowed_abs_error: f64,
    /// The place of the worst one.
    pub worst_index: Vec<usize>,
}

/// Values held against the right ones.
struct Judged {
    passed: bool,
    /// The worst place: a value that is not finite and should be, or not the infinity that it should be, before all.
    worst: usize,
    /// Error and allowance of the worst finite value.
    error: f64,
    allowed: f64,
}

fn judge(got: &[f64], right: &[f64], allowed: &dyn Fn(usize) -> f64) -> Judged {
    let wild = (0..got.len()).find(|&i| !(got[i].is_finite() && right[i].is_finite()) && got[i] != right[i]);
    let excess = |i: usize| {
        let error = (got[i] - right[i]).abs();
        if error == 0.0 { 0.0 } else { error / allowed(i) }
    };
    let finite = (0..got.len()).filter(|&i| got[i].is_finite() && right[i].is_finite());
    let far = finite.map(|i| (i, excess(i))).max_by(|a, b| a.1.total_cmp(&b.1));
    let (error, limit) = far.map_or((0.0, 0.0), |(i, _)| ((got[i] - right[i]).abs(), allowed(i)));
    Judged {
        passed: wild.is_none() && error <= limit,
        worst: wild.or(far.map(|f| f.0)).unwrap_or(0),
        error,
        allowed: limit,
    }
}

impl Probe {
    /// What each row may be off by, in the order of the output's rows.
    pub(super) fn allowances(&self, format: PFormat) -> Result<Vec<Allowance>, TensorError> {
        let tensor = |name| self.inputs.require(name);
        let inputs = AttentionInputs::new(tensor("q")?, tensor("k")?, tensor("v")?)
            .map_err(|error| TensorError::Tensor { name: "q".to_owned(), problem: error.to_string() })?;
        let mut allowances = vec![Allowance::default(); inputs.shape.rows()];
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let share = allowances.len().div_ceil(threads).max(1);
        let (inputs, scale) = (&inputs, f64::from(self.scale));
        std::thread::scope(|scope| {
            for (part, allowances) in allowances.chunks_mut(share).enumerate() {
                scope.spawn(move || {
                    let mut weights = Vec::with_capacity(inputs.shape.seq_k);
                    for (row, allowance) in allowances.iter_mut().enumerate() {
                        inputs.weights(part * share + row, self.causal, scale, &mut weights);
                        *allowance = Allowance::of(self.kind, format, &weights);
                    }
                });
            }
        });
        Ok(allowances)
    }

    /// Judges an output of any floating-point type, and its log-sums where there are any.
    ///
    /// # Errors
    /// Where a tensor has another shape than the probe's or cannot be read as numbers.
    pub fn check(
        &self,
        output: ProbeOutput<'_>,
        format: PFormat,
        provenance: Provenance,
    ) -> Result<ProbeResult, TensorError> {
        let o = output.o;
        same_shape(o, &self.o)?;
        let allowances = self.allowances(format)?;
        let (got, right) = (o.to_f64()?, self.o.to_f64()?);
        let (dim, unit) =
            (self.o.shape().last().copied().unwrap_or(1).max(1), output_rounding(o.dtype(), &got));
        let judged = judge(&got, &right, &|i| allowances[i / dim].output(right[i], unit));
        let place = unravel(judged.worst, o.shape());
        let mut statement = if judged.passed {
            let (error, allowed) = (judged.error, judged.allowed);
            format!(
                "every output is right within what its formats lose; the worst is {error:.3e} off of {allowed:.3e} \
                 allowed at {place:?}"
            )
        } else {
            let (got, right, allowed) = (got[judged.worst], right[judged.worst], judged.allowed);
            format!("{place:?} is {got} where {right:.6} is right (allowed {allowed:.3e})")
        };
        let lse = match output.lse {
            Some((lse, base)) => {
                let (result, says) = self.check_lse(lse, base, &allowances)?;
                statement =
                    if judged.passed && !result.passed { says } else { format!("{statement}; {says}") };
                Some(result)
            }
            None => {
                statement.push_str("; no `lse` was written, so log-sums are not checked");
                None
            }
        };
        Ok(ProbeResult {
            schema: crate::SCHEMA.to_owned(),
            kind: self.kind,
            provenance,
            passed: judged.passed && lse.as_ref().is_none_or(|l| l.passed),
            max_abs_error: judged.error,
            allowed_abs_error: judged.allowed,
            worst_index: place,
            lse,
            statement,
        })
    }

    fn check_lse(
        &self,
        lse: &Tensor,
        base: LseBase,
        allowances: &[Allowance],
    ) -> Result<(LseResult, String), TensorError> {
        same_shape(lse, &self.lse)?;
        let (got, right) = (lse.to_f64()?, self.lse.to_f64()?);
        let unit = rounding(lse.dtype());
        let held = |base: LseBase| {
            let natural: Vec<f64> = got.iter().map(|l| l * base.to_natural()).collect();
            judge(&natural, &right, &|i| allowances[i].lse(right[i], unit))
        };
        let judged = held(base);
        let place = unravel(judged.worst, lse.shape());
        let says = if judged.passed {
            format!("every log-sum is within {:.3e} of {:.3e} allowed", judged.error, judged.allowed)
        } else {
            let (right, allowed) =
                (right[judged.worst] / base.to_natural(), judged.allowed / base.to_natural());
            let other = if held(base.other()).passed {
                let (key, other) = (LseBase::KEY, base.other().as_str());
                format!("; all are right to base {other}, which `{key}` in the file's metadata would state")
            } else {
                String::new()
            };
            format!(
                "`lse` {place:?} is {} where {right:.6} is right to base {} (allowed {allowed:.3e}){other}",
                got[judged.worst],
                base.as_str()
            )
        };
        let result = LseResult {
            passed: judged.passed,
            max_abs_error: judged.error,
            allowed_abs_error: judged.allowed,
            worst_index: place,
        };
        Ok((result, says))
    }
}

/// An error where a tensor has not the right one's shape; extents of 1 at its end do not count.
fn same_shape(tensor: &Tensor, right: &Tensor) -> Result<(), TensorError> {
    let bare = |shape: &[usize]| {
        let ones = shape.iter().rev().take_while(|e| **e == 1).count();
        shape[..shape.len() - ones].to_vec()
    };
    if tensor.shape() == right.shape() || bare(tensor.shape()) == bare(right.shape()) {
        return Ok(());
    }
    Err(TensorError::Tensor {
        name: tensor.name().to_owned(),
        problem: format!("shape {:?}; the probe's `{}` is {:?}", tensor.shape(), right.name(), right.shape()),
    })
}
