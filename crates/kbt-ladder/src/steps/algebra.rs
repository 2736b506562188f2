//! Step 4: cheaper programs for the quantisation of P, searched on the profile and timed on the device.

use super::{AttentionTuner, fatal, output};
use crate::{History, Origin, StepFailure, StepOutput};
use kbt_evidence::{Figure, Step};
use kbt_kernels::attention::PvMode;
use kbt_quant::outcome::{AlgebraOutcome, MeasuredVariant, Mode};
use kbt_quant::rewrite::Limits;
use kbt_target::Setting;

/// The forms of the quantisation that the kernel has in a mode, the plain one first.
pub(super) const fn forms(mode: PvMode) -> &'static [&'static str] {
    match mode {
        PvMode::Bf16 => &["linear"],
        PvMode::Fp8 => &["linear", "log2"],
        PvMode::Fp4 => &["linear", "linear_rcp", "log2", "log2_fused"],
    }
}

impl AttentionTuner<'_> {
    pub(super) fn algebra(&mut self) -> Result<StepOutput, StepFailure> {
        let profile = self.profile()?;
        let mode = match self.mode {
            PvMode::Bf16 => Mode::Bf16,
            PvMode::Fp8 => Mode::Fp8,
            PvMode::Fp4 => Mode::Fp4,
        };
        let found = AlgebraOutcome::new(mode, &profile, &Limits::default()).map_err(fatal)?;
        if let Some(reason) = &found.refused {
            return Err(StepFailure::Refused { reason: reason.clone(), needs: "the rates it names".into() });
        }
        let measured = if self.is_live() {
            self.time_forms()?
        } else {
            self.recorded::<AlgebraOutcome>(Step::Algebra)?.map_or_else(Vec::new, |o| o.measured)
        };
        // An outcome speaks of forms; people set knobs.
        let measured: Vec<_> = measured
            .into_iter()
            .map(|v| MeasuredVariant { setting: Some(format!("KBT_QUANT_FORM={}", v.name)), ..v })
            .collect();
        let outcome = if measured.is_empty() { found } else { found.with_measured(measured) };
        output(Origin::Live, &outcome)
    }

    /// Each form against the plain one, in turn.
    fn time_forms(&mut self) -> Result<Vec<MeasuredVariant>, StepFailure> {
        let plain = self.plain();
        let (first, others) = match forms(self.mode).split_first() {
            Some((first, others)) if !others.is_empty() => (*first, others),
            _ => return Ok(Vec::new()),
        };
        let mut measured: Vec<MeasuredVariant> = Vec::new();
        for &form in others {
            self.note(format!("  {form} against {first}"));
            let (base, time) = self.versus(&plain, &plain.clone().with("KBT_QUANT_FORM", form))?;
            let ratio = base.value / time.value;
            if measured.is_empty() {
                measured.push(variant(first, &base, 1.0));
            }
            measured.push(variant(form, &time, ratio));
        }
        Ok(measured)
    }
}

/// The speed ratio is against the plain form's processes of the same comparison.
fn variant(name: &str, time: &Figure, speed_ratio: f64) -> MeasuredVariant {
    let (low_us, high_us, spread) = match &time.spread {
        Some(s) => (s.low, s.high, s.what.clone()),
        None => (time.value, time.value, "one process".to_owned()),
    };
    MeasuredVariant {
        name: name.to_owned(),
        setting: None,
        us: time.value,
        low_us,
        high_us,
        spread,
        speed_ratio,
        provenance: time.provenance.clone(),
    }
}

/// The setting with the form that step 4 measured fastest, beyond the spread of both; the plain one otherwise.
pub(super) fn best_setting(plain: Setting, history: &History<'_>) -> Result<Setting, StepFailure> {
    let Some(outcome) = AttentionTuner::earlier::<AlgebraOutcome>(history, Step::Algebra)? else {
        return Ok(plain);
    };
    let Some((base, others)) = outcome.measured.split_first() else { return Ok(plain) };
    let best = others.iter().filter(|v| v.high_us < base.low_us).min_by(|a, b| a.us.total_cmp(&b.us));
    Ok(match best {
        Some(best) => plain.with("KBT_QUANT_FORM", best.name.as_str()),
        None => plain,
    })
}
