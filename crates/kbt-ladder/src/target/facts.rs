//! The fact sheet of a target: the one that its file names, or one made of the file's own facts.

use super::tensors::Tensors;
use super::{TargetTuner, sheet};
use crate::StepFailure;
use kbt_evidence::{Figure, Provenance};
use kbt_roofline::{DeviceFacts, FactSheet, Timing};
use kbt_target::Report;

impl TargetTuner<'_> {
    /// The facts of the target file, without a time.
    pub(super) fn facts(&self) -> Result<FactSheet, StepFailure> {
        let refused = |reason: String| {
            StepFailure::Refused {
            reason,
            needs:
                "facts.operator (gemm, attention, normalization, elementwise, reduction), facts.shapes, \
                    facts.dtypes and facts.reuse in the target file, or facts.sheet: `kbt roofline triage` reads the same"
                    .into(),
        }
        };
        let facts = &self.target.facts;
        if let Some(sheet) = sheet::named(&self.target).map_err(|e| refused(e.to_string()))? {
            return Ok(sheet);
        }
        if facts.operator.is_none() && facts.shapes.is_empty() {
            return Err(refused("the target file has no facts of what the kernel computes".into()));
        }
        let tensors = Tensors::of(&self.target).map_err(refused)?;
        let origin = format!("facts of {}", self.file);
        let mut sheet = sheet::inline(&self.target, &tensors, &origin).map_err(|e| refused(e.to_string()))?;
        // The lines are those of a text that nobody wrote.
        let given = Provenance::given(origin);
        let sections = [
            sheet.operator.as_mut().map(|s| &mut s.provenance),
            sheet.shape.as_mut().map(|s| &mut s.provenance),
            sheet.dtypes.as_mut().map(|s| &mut s.provenance),
            sheet.dataflow.as_mut().map(|s| &mut s.provenance),
            sheet.timing.as_mut().map(|s| &mut s.provenance),
        ];
        for section in sections.into_iter().flatten() {
            *section = Some(given.clone());
        }
        Ok(sheet)
    }

    /// The facts with a time that processes of the target printed, and what they said of their device.
    pub(super) fn with_time(&self, mut sheet: FactSheet, time: &Figure, report: &Report) -> FactSheet {
        let spread = time.spread.as_ref();
        sheet.timing = Some(Timing {
            median_us: Some(time.value),
            low_us: spread.map(|s| s.low),
            high_us: spread.map(|s| s.high),
            spread: spread.map(|s| s.what.clone()),
            // What the sheet says of how the kernel is timed stays.
            provenance: Some(time.provenance.clone()),
            ..sheet.timing.unwrap_or_default()
        });
        if sheet.device.is_none() {
            sheet.device = report.device.as_ref().map(|name| DeviceFacts {
                name: Some(name.clone()),
                driver: report.driver.clone(),
                provenance: Some(time.provenance.clone()),
                ..DeviceFacts::default()
            });
        }
        sheet
    }
}
