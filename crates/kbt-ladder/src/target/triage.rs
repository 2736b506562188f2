//! Step 0: the target's time, or its facts alone, against the ceilings of the device.

use super::TargetTuner;
use crate::recording::FACTS_FILE;
use crate::steps::fatal;
use crate::{Backend, StepFailure, StepOutput};
use kbt_evidence::Step;
use kbt_roofline::outcome::Status;
use kbt_roofline::{Ceilings, FactSheet, triage};

impl TargetTuner<'_> {
    pub(super) fn triage(&mut self) -> Result<StepOutput, StepFailure> {
        // The build comes first: what it leaves, or how it fails, is every later step's business.
        self.found()?;
        let profile = self.profile()?;
        let mut notes = Vec::new();
        let facts = match self.backend {
            Backend::Live(_) => {
                let facts = self.facts()?;
                let setting = self.target.default_setting();
                match self.time(&setting, if self.quick { 3 } else { 5 }) {
                    Ok((time, launch)) => self.with_time(facts, &time, &launch.report),
                    Err(StepFailure::Refused { reason, .. }) => {
                        notes.push(reason);
                        facts
                    }
                    Err(error) => return Err(error),
                }
            }
            Backend::Recorded(recording) => match recording.file(&self.key(), FACTS_FILE) {
                Some(bytes) => {
                    notes.extend(self.recorded_with(Step::Triage)?);
                    let origin = format!("{}/{}/{FACTS_FILE}", recording.meta.name, self.key());
                    FactSheet::from_yaml(&String::from_utf8_lossy(bytes), &origin).map_err(fatal)?
                }
                None => self.facts()?,
            },
            Backend::Model(_) => self.facts()?,
        };
        let facts = self.with_issue_slots(facts);
        let path = self.run.join(FACTS_FILE);
        crate::rundir::write_atomic(&path, facts.to_yaml().map_err(fatal)?.as_bytes()).map_err(fatal)?;
        let outcome = triage(&facts, Some(&Ceilings::from_profile(&profile)), &[]).map_err(fatal)?;
        if outcome.status == Status::Refused {
            let supply = outcome.supply.first();
            let because: String = notes.iter().map(|n| format!("; {n}")).collect();
            return Err(StepFailure::Refused {
                reason: format!(
                    "{}{because}",
                    outcome.refusal.clone().unwrap_or_else(|| "facts are missing".into())
                ),
                needs: supply
                    .map_or_else(|| self.there(), |s| format!("{} (for example {})", s.keys, s.example)),
            });
        }
        self.noted(&outcome, None, &notes)
    }
}
