//! Step 0: the plain kernel's time against the ceilings of the device.

use super::{AttentionTuner, Size, fatal, output};
use crate::recording::FACTS_FILE;
use crate::{Backend, Origin, StepFailure, StepOutput};
use kbt_evidence::Figure;
use kbt_kernels::attention::{PvMode, WARMUP_LAUNCHES};
use kbt_roofline::{Ceilings, FactSheet, triage};

impl AttentionTuner<'_> {
    pub(super) fn triage(&mut self) -> Result<StepOutput, StepFailure> {
        let facts = match self.backend {
            Backend::Live(_) if self.is_live() => {
                let plain = self.plain();
                let (time, _) =
                    self.time(&plain, if self.quick { 3 } else { 5 }, "time of the plain kernel")?;
                self.facts(Some(time))
            }
            Backend::Recorded(recording) => match recording.file(self.mode.as_str(), FACTS_FILE) {
                Some(bytes) => {
                    let origin = format!("{}/{}/{FACTS_FILE}", recording.meta.name, self.mode);
                    FactSheet::from_yaml(&String::from_utf8_lossy(bytes), &origin).map_err(fatal)?
                }
                None => self.facts(None),
            },
            Backend::Live(_) | Backend::Model(_) => self.facts(None),
        };
        let path = self.run.join(FACTS_FILE);
        crate::rundir::write_atomic(&path, facts.to_yaml().map_err(fatal)?.as_bytes()).map_err(fatal)?;
        let profile = self.profile()?;
        let outcome = triage(&facts, Some(&Ceilings::from_profile(&profile)), &[]).map_err(fatal)?;
        output(Origin::Live, &outcome)
    }

    /// The fact sheet of the built-in kernel at the tuned size.
    pub(super) fn facts(&self, time: Option<Figure>) -> FactSheet {
        let size = Size::TUNING;
        let mode = match self.mode {
            PvMode::Bf16 => kbt_roofline::PvMode::Bf16,
            PvMode::Fp8 => kbt_roofline::PvMode::Fp8,
            PvMode::Fp4 => kbt_roofline::PvMode::Fp4,
        };
        let mut facts = kbt_roofline::attention_facts(
            size.batch.into(),
            size.heads.into(),
            size.seqlen.into(),
            128,
            false,
            mode,
            time,
        );
        if let Some(timing) = &mut facts.timing {
            #[allow(clippy::cast_precision_loss, reason = "a count of launches")]
            let launches = WARMUP_LAUNCHES as f64;
            timing.warmup_launches = Some(launches);
        }
        let implementation = facts.implementation.get_or_insert_default();
        implementation.grid_ctas = Some(f64::from(size.batch * size.heads * size.seqlen.div_ceil(128)));
        implementation.ctas_per_sm = Some(1.0);
        implementation.block_threads = Some(512.0);
        implementation.tile_m = Some(128);
        implementation.tile_n = Some(128);
        implementation.pipeline_stages = Some(2.0);
        implementation.mma_instruction = Some("wgmma".into());
        facts
    }
}
