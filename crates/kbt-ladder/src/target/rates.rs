//! Step 1: the rates of the instructions that the kernel's machine code contains.

use super::TargetTuner;
use crate::{History, StepFailure, StepOutput};
use kbt_evidence::{Evidence, Step};
use kbt_microbench::outcome::rates_contained;
use kbt_roofline::TriageOutcome;
use kbt_roofline::outcome::{Call, Status};

impl TargetTuner<'_> {
    pub(super) fn rates(&mut self, history: &History<'_>) -> Result<StepOutput, StepFailure> {
        let profile = self.profile()?;
        let code = self.code()?;
        let Some(kernel) = code.kernel() else {
            return Err(crate::steps::fatal(format!("the listing lost {}", code.function)));
        };
        let outcome = rates_contained(&profile, &code.listing, kernel);
        let mut out = self.noted(&outcome, code.stale.as_deref(), &code.notes)?;
        if let Some(against) = memory_bound(history) {
            out.verdicts = out.verdicts.into_iter().map(|v| v.with(against.clone())).collect();
        }
        Ok(out)
    }
}

/// What a measured triage says against any choice of instructions: that the time is device memory's.
fn memory_bound(history: &History<'_>) -> Option<Evidence> {
    let outcome = history.steps.get(&Step::Triage)?.outcome.clone()?;
    let triage: TriageOutcome = serde_json::from_value(outcome).ok()?;
    let is_memory = triage.status == Status::Diagnosed && triage.call == Some(Call::MemoryBound);
    is_memory.then(|| {
        let figures = triage.margin.into_iter().collect();
        Evidence::against(
            "step 0 found the time to be device memory's, which no instruction changes",
            figures,
        )
    })
}
