//! Step 4's outcome: what a kernel's quantisation costs in each form, what the search found, what was measured.

use super::rewrite::of_costs;
use super::{PricedOutcome, RewriteOutcome, SCHEMA};
use crate::check::{Budget, Scheme};
use crate::cost::CostModel;
use crate::format::Format;
use crate::lang::{Program, builtin};
use crate::rewrite::{Limits, SearchError, search};
use kbt_device::DeviceProfile;
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::str::FromStr;

/// In which format P enters the second matrix product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// bf16, no quantisation.
    Bf16,
    /// e4m3 without a group scale.
    Fp8,
    /// NVFP4.
    Fp4,
}

/// A word that is no mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no pv mode; accepted: bf16, fp8, fp4")]
pub struct UnknownMode(String);

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        [Self::Bf16, Self::Fp8, Self::Fp4]
            .into_iter()
            .find(|m| m.as_str() == text)
            .ok_or_else(|| UnknownMode(text.to_owned()))
    }
}

impl Mode {
    /// The name in options.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp8 => "fp8",
            Self::Fp4 => "fp4",
        }
    }

    /// The built-in programs that kernels of this mode have, the plainest first.
    #[must_use]
    pub const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Bf16 => &["softmax-bf16"],
            Self::Fp8 => &["softmax-fp8-linear", "softmax-fp8"],
            Self::Fp4 => &[
                "softmax-nvfp4-linear",
                "softmax-nvfp4-linear-rcp",
                "softmax-nvfp4-log2",
                "softmax-nvfp4-log2-fused",
            ],
        }
    }

    /// The scheme whose budget is checked: the offsets of kbt/quant.cuh. None for bf16.
    #[must_use]
    pub fn scheme(self) -> Option<Scheme> {
        match self {
            Self::Bf16 => None,
            Self::Fp8 => Some(Scheme::new("fp8 P", Format::E4m3, None, 8.0, "kOffsetFp8 in kbt/quant.cuh")),
            Self::Fp4 => Some(Scheme::new(
                "NVFP4 P",
                Format::E2m1,
                Some(Format::E4m3),
                2688f64.log2(),
                "kOffsetFull in kbt/quant.cuh",
            )),
        }
    }
}

/// A form that kernels have, with its predicted cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Form {
    /// The built-in program's name.
    pub name: String,
    /// Its cost.
    pub predicted: PricedOutcome,
}

/// A kernel variant with one of the forms, timed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MeasuredVariant {
    /// The variant's name; the first of a list is the baseline.
    pub name: String,
    /// What to set for it, where knobs make it: `KBT_QUANT_FORM=log2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
    /// The median time of a launch.
    pub us: f64,
    /// Lower end of its spread.
    pub low_us: f64,
    /// Upper end of its spread.
    pub high_us: f64,
    /// What the ends are, for example `p10 to p90 of 30 launches`.
    pub spread: String,
    /// The baseline's time over this one's: above 1 is faster.
    pub speed_ratio: f64,
    /// How the time is known.
    pub provenance: Provenance,
}

/// The outcome of step 4.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlgebraOutcome {
    /// `kbt.quant/1`.
    pub schema: String,
    /// The built-in kernel's mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The search from the plainest form, or from the lifted piece that could save most; none where it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewrite: Option<RewriteOutcome>,
    /// What each known form costs.
    pub forms: Vec<Form>,
    /// Whether the kernel's offset fits its formats; none without quantisation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Timed variants, the baseline first; empty until somebody measures them.
    #[serde(default)]
    pub measured: Vec<MeasuredVariant>,
    /// Why there is no search, and what would allow one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The arithmetic of another kernel, lifted from its PTX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lift: Option<super::LiftOutcome>,
}

impl AlgebraOutcome {
    /// Searches from the mode's plainest form, prices the known forms and checks the offset. A profile without the
    /// rates gives an outcome that says which are missing.
    pub fn new(mode: Mode, profile: &DeviceProfile, limits: &Limits) -> Result<Self, SearchError> {
        let mut outcome = Self {
            schema: SCHEMA.to_owned(),
            mode: Some(mode),
            rewrite: None,
            forms: Vec::new(),
            budget: mode.scheme().map(|s| s.check().budget),
            measured: Vec::new(),
            refused: None,
            lift: None,
        };
        for name in mode.programs() {
            let program: Program = builtin(name)
                .unwrap_or_default()
                .parse()
                .map_err(|e| SearchError::Rules(format!("built-in program {name}: {e}")))?;
            let model = CostModel::new(profile, program.layout);
            let plainest = outcome.forms.is_empty();
            // Only the first form is searched; the others are priced.
            let own = if plainest {
                limits.clone()
            } else {
                Limits { iterations: 0, candidates: 0, ..limits.clone() }
            };
            match search(&program, &model, &own) {
                Ok(found) => {
                    let predicted = PricedOutcome::new(&found.baseline, &of_costs(&found.sources));
                    outcome.forms.push(Form { name: (*name).to_owned(), predicted });
                    if plainest {
                        outcome.rewrite = Some(RewriteOutcome::new(name, &profile.name, &found));
                    }
                }
                Err(SearchError::Missing(missing)) => {
                    outcome.refused = Some(missing.to_string());
                    return Ok(outcome);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(outcome)
    }

    /// The same outcome with timed variants, the baseline first.
    #[must_use]
    pub fn with_measured(mut self, measured: Vec<MeasuredVariant>) -> Self {
        self.measured = measured;
        self
    }

    /// For people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "{}", self.headline());
        for form in &self.forms {
            let p = &form.predicted;
            let _ = writeln!(
                out,
                "  {:<26} {:.4} clk/element on {}, {:.2} issue slots [{}]",
                form.name, p.cycles_per_element, p.busiest_pipe, p.issue_slots, p.provenance.kind
            );
        }
        for v in &self.measured {
            let _ = writeln!(
                out,
                "  {:<26} {:.2} us ({:.2} to {:.2}, {}), {:.3}x [{}]",
                v.name, v.us, v.low_us, v.high_us, v.spread, v.speed_ratio, v.provenance.kind
            );
        }
        if let Some(b) = &self.budget {
            let _ = writeln!(
                out,
                "  offset {:.4} + threshold {:.4} of {:.4} powers of two: {}",
                b.offset_log2,
                b.rescale_threshold_log2,
                b.limit_log2,
                if b.fits { "fits" } else { "does not fit" }
            );
        }
        if let Some(rewrite) = &self.rewrite {
            let _ = writeln!(out, "  {}", rewrite.lower_bound.statement);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::tests::hopper;
    use kbt_evidence::audit::uncovered_numbers;
    use kbt_evidence::{FixClass, Standing};

    fn outcome(mode: Mode) -> AlgebraOutcome {
        AlgebraOutcome::new(mode, &hopper(), &Limits::default()).unwrap()
    }

    fn timed(name: &str, us: f64, baseline: f64) -> MeasuredVariant {
        MeasuredVariant {
            name: name.to_owned(),
            setting: None,
            us,
            low_us: us * 0.995,
            high_us: us * 1.005,
            spread: "p10 to p90 of 30 launches".to_owned(),
            speed_ratio: baseline / us,
            provenance: Provenance::measured("kbt kernel run", "NVIDIA H200", "2026-11-30"),
        }
    }

    fn standing(outcome: &AlgebraOutcome) -> Standing {
        let verdicts = outcome.verdicts();
        assert_eq!(verdicts.len(), 1);
        assert_eq!(verdicts[0].class, FixClass::Algebra);
        verdicts[0].standing
    }

    #[test]
    fn each_mode_gets_the_verdict_that_its_program_earns() {
        assert_eq!(standing(&outcome(Mode::Fp4)), Standing::Recommended);
        assert_eq!(standing(&outcome(Mode::Fp8)), Standing::Open);
        let bf16 = outcome(Mode::Bf16);
        assert_eq!(standing(&bf16), Standing::RuledOut);
        assert!(bf16.verdicts()[0].reason.contains("nothing to eliminate"));
        assert!(bf16.budget.is_none());
    }

    #[test]
    fn a_measurement_decides() {
        let fp4 = outcome(Mode::Fp4);
        assert!(!fp4.verdicts()[0].is_measured());
        let pays =
            fp4.clone().with_measured(vec![timed("linear", 1000.0, 1000.0), timed("log2", 800.0, 1000.0)]);
        assert_eq!(standing(&pays), Standing::Recommended);
        assert!(pays.verdicts()[0].is_measured());
        let not = fp4.with_measured(vec![timed("linear", 1000.0, 1000.0), timed("log2", 999.0, 1000.0)]);
        assert_eq!(standing(&not), Standing::RuledOut);
        assert!(not.verdicts()[0].is_measured(), "the prediction speaks against, and is no support");
        assert!(not.headline().contains("measured log2: 1.001x"), "{}", not.headline());
    }

    #[test]
    fn a_profile_without_rates_is_refused_with_the_measurement_that_is_missing() {
        let mut profile = hopper();
        profile.rates.clear();
        let outcome = AlgebraOutcome::new(Mode::Fp4, &profile, &Limits::default()).unwrap();
        assert_eq!(standing(&outcome), Standing::Refused);
        assert!(outcome.verdicts()[0].next.as_ref().unwrap().contains("kbt microbench run"));
    }

    #[test]
    fn files_read_back_equal_and_every_number_has_a_provenance() {
        for mode in [Mode::Bf16, Mode::Fp8, Mode::Fp4] {
            let outcome = outcome(mode).with_measured(vec![timed("a", 10.0, 10.0), timed("b", 9.0, 10.0)]);
            let value = serde_json::to_value(&outcome).unwrap();
            assert_eq!(uncovered_numbers(&value), Vec::<String>::new());
            let again: AlgebraOutcome = serde_json::from_value(value).unwrap();
            assert_eq!(again, outcome);
            assert!(outcome.render_text().contains("clk/element"));
        }
        let scheme = Mode::Fp4.scheme().unwrap().check();
        let value = serde_json::to_value(&scheme).unwrap();
        assert_eq!(uncovered_numbers(&value), Vec::<String>::new());
        assert_eq!(serde_json::from_value::<crate::check::CheckOutcome>(value).unwrap(), scheme);
    }

    #[test]
    fn forms_are_priced_in_the_order_that_the_published_gains_have() {
        let cycles: Vec<f64> =
            outcome(Mode::Fp4).forms.iter().map(|f| f.predicted.cycles_per_element).collect();
        assert_eq!(cycles.len(), 4);
        assert!(cycles[0] > 1.5 * cycles[2], "{cycles:?}");
        assert!(cycles[3] < cycles[2], "{cycles:?}");
    }
}
