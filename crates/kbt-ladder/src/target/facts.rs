//! The fact sheet of a target: the one that its file names, or one made of the file's own facts.

use super::TargetTuner;
use super::tensors::Tensors;
use crate::StepFailure;
use kbt_evidence::{Figure, Provenance};

use kbt_roofline::{DeviceFacts, FactSheet, Timing};
use kbt_target::Report;
use std::fmt::Write as _;

/// Names that people give sizes, and what fact sheets call them.
const SIZES: &[(&str, &str)] = &[
    ("headdim", "head_dim"),
    ("hdim", "head_dim"),
    ("seqlen_q", "seqlen"),
    ("seqlen_k", "seqlen_kv"),
    ("heads_kv", "kv_heads"),
    ("n_elements", "elements"),
    ("cols", "columns"),
];

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
        if let Some(sheet) = &facts.sheet {
            let path = self.target.path(sheet);
            let origin = path.display().to_string();
            let text = std::fs::read_to_string(&path).map_err(|e| refused(format!("{origin}: {e}")))?;
            return FactSheet::from_yaml(&text, &origin).map_err(|e| refused(e.to_string()));
        }
        if facts.operator.is_none() && facts.shapes.is_empty() {
            return Err(refused("the target file has no facts of what the kernel computes".into()));
        }
        let tensors = Tensors::of(&self.target).map_err(refused)?;
        let text = self.as_sheet(&tensors);
        let mut sheet = FactSheet::from_yaml(&text, &format!("facts of {}", self.file))
            .map_err(|e| refused(e.message))?;
        // The lines are those of a text that nobody wrote.
        let given = Provenance::given(format!("facts of {}", self.file));
        let sections = [
            sheet.operator.as_mut().map(|s| &mut s.provenance),
            sheet.shape.as_mut().map(|s| &mut s.provenance),
            sheet.dtypes.as_mut().map(|s| &mut s.provenance),
            sheet.dataflow.as_mut().map(|s| &mut s.provenance),
        ];
        for section in sections.into_iter().flatten() {
            *section = Some(given.clone());
        }
        Ok(sheet)
    }

    /// The inline facts in the words of a fact sheet, so that its reader says what is wrong with them.
    fn as_sheet(&self, tensors: &Tensors<'_>) -> String {
        let facts = &self.target.facts;
        let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
        let mut text = format!("name: {}\n", quoted(&self.target.name));
        let formula = facts.formula.as_ref().map(|f| format!("  formula: {}\n", quoted(f)));
        let kind = facts.operator.as_ref().map(|k| format!("  kind: {}\n", quoted(k)));
        if formula.is_some() || kind.is_some() {
            let _ = write!(text, "operator:\n{}{}", kind.unwrap_or_default(), formula.unwrap_or_default());
            for (name, count) in [("inputs", tensors.read), ("outputs", tensors.written)] {
                if count > 1 {
                    let _ = writeln!(text, "  {name}: {count}");
                }
            }
        }
        if let Some(reuse) = &facts.reuse {
            let _ = writeln!(text, "dataflow:\n  reuse: {}", quoted(reuse));
        }
        if !facts.shapes.is_empty() {
            text += "shape:\n";
            for (name, value) in &facts.shapes {
                let name = SIZES.iter().find(|(n, _)| n == name).map_or(name.as_str(), |(_, known)| known);
                let _ = writeln!(text, "  {name}: {value}");
            }
        }
        if !facts.timing.is_empty() {
            text += "timing:\n";
            for (name, value) in &facts.timing {
                let _ = writeln!(text, "  {name}: {value}");
            }
        }
        let lines = |formats: &[&str]| formats.iter().map(|d| quoted(d)).collect::<Vec<_>>().join(", ");
        if !tensors.inputs.is_empty() || tensors.output.is_some() {
            text += "dtypes:\n";
        }
        if !tensors.inputs.is_empty() {
            let _ = writeln!(text, "  inputs: [{}]", lines(&tensors.inputs));
        }
        if let Some(dtype) = tensors.output {
            let _ = writeln!(text, "  output: {}", quoted(dtype));
        }
        text
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
