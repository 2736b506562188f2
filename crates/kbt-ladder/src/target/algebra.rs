//! Step 4: the kernel's arithmetic, lifted from its PTX, and what of it could be cheaper on this device.

use super::TargetTuner;
use super::found::CODE;
use super::notes::with_file;
use crate::steps::fatal;
use crate::{StepFailure, StepOutput};
use kbt_device::DeviceProfile;
use kbt_evidence::{Standing, Verdict};
use kbt_quant::lift::{Region, lift};
use kbt_quant::outcome::{AlgebraOutcome, LiftError, LiftOutcome, lift_outcome};
use kbt_quant::rewrite::Limits;

impl TargetTuner<'_> {
    pub(super) fn algebra(&mut self) -> Result<StepOutput, StepFailure> {
        let profile = self.profile()?;
        let found = self.found()?;
        let code = self.code()?;
        let Some(ptx) = &code.ptx else {
            return Err(refused(format!("the target gives no PTX to lift from{}", found.because())));
        };
        let lifted = lifted(ptx, &code.function, &profile)?;
        let text = self.run.join(CODE).join("lift.txt");
        crate::rundir::write_atomic(&text, lifted.render_text().as_bytes()).map_err(fatal)?;
        let mut out = self.noted(&AlgebraOutcome::of_lift(lifted), code.ptx_stale.as_deref(), &[])?;
        let (file, arch) = (code.ptx_file.as_deref(), self.arch());
        out.verdicts = out.verdicts.into_iter().map(|v| with_file(unproven(v), file, arch)).collect();
        Ok(out)
    }
}

fn refused(reason: String) -> StepFailure {
    StepFailure::Refused {
        reason,
        needs:
            "PTX of the kernel: named under build.artifacts, or written to KBT_DUMP by the build or the run"
                .into(),
    }
}

/// The arithmetic of a kernel, lifted from its PTX and priced by a profile.
pub(super) fn lifted(ptx: &str, function: &str, profile: &DeviceProfile) -> Result<LiftOutcome, StepFailure> {
    let module = kbt_ptx::parse(ptx).map_err(|e| refused(format!("the PTX does not read: {e}")))?;
    if let Some(cut) = module.ends_early() {
        return Err(refused(format!("the PTX is not whole: {cut}")));
    }
    let named = module.functions.iter().any(|f| f.name == function);
    let functions = lift(&module, &|name| !named || name == function, &Region::default());
    match lift_outcome(&format!("{CODE}/*.ptx"), &functions, profile, &Limits::default()) {
        Ok(lifted) => Ok(lifted),
        Err(LiftError::Missing(missing)) => {
            Err(StepFailure::Refused { reason: missing.to_string(), needs: missing.measure_with.clone() })
        }
        Err(error) => Err(refused(error.to_string())),
    }
}

/// That the rules found nothing is no proof that there is nothing: the search is over rules, not over programs.
fn unproven(mut verdict: Verdict) -> Verdict {
    if verdict.standing == Standing::RuledOut && !verdict.is_measured() {
        verdict.standing = Standing::Open;
        verdict.reason = format!("no rule found a cheaper program: {}", verdict.reason);
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_evidence::{FixClass, Step};

    #[test]
    fn a_search_that_found_nothing_leaves_the_class_open() {
        let found = Verdict::new(FixClass::Algebra, Standing::RuledOut, Step::Algebra, "none of 1 pieces");
        let told = unproven(found);
        assert_eq!(told.standing, Standing::Open);
        assert_eq!(told.reason, "no rule found a cheaper program: none of 1 pieces");
        let refused = Verdict::new(FixClass::Algebra, Standing::Refused, Step::Algebra, "no PTX");
        assert_eq!(unproven(refused).standing, Standing::Refused);
    }
}
