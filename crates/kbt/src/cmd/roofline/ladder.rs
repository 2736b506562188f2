//! The verdicts of a run's finished steps, as a triage takes them.

use crate::output::Failure;
use kbt_evidence::{Figure, Verdict};
use kbt_roofline::FactSheet;
use std::path::Path;

/// All verdicts that the run's journal holds, in the ladder's order. What was measured then is a recording now.
pub(super) fn verdicts(run: &Path) -> Result<Vec<Verdict>, Failure> {
    let mut all = kbt_report::verdicts(run)?;
    for figure in all.iter_mut().flat_map(|v| &mut v.evidence).flat_map(|e| &mut e.figures) {
        figure.provenance = figure.provenance.clone().read_back();
    }
    Ok(all)
}

/// How busy the traced roles of the run are.
pub(super) fn roles(run: &Path) -> Result<Vec<Figure>, Failure> {
    let mut all = kbt_report::traced_roles(run)?;
    for figure in &mut all {
        figure.provenance = figure.provenance.clone().read_back();
    }
    Ok(all)
}

/// How the run's own facts differ from the sheet's; a run without facts cannot tell.
pub(super) fn another_kernel(run: &Path, sheet: &FactSheet) -> Result<Option<String>, Failure> {
    let path = run.join("facts.yaml");
    if !path.exists() {
        return Ok(None);
    }
    let of_run = FactSheet::from_yaml(&super::text(&path)?, &super::name(&path))?;
    let differ = sheet.differs_from(&of_run);
    Ok((!differ.is_empty()).then(|| {
        format!(
            "the run is of `{}`, another kernel than the sheet's `{}` ({})",
            of_run.title(),
            sheet.title(),
            differ.join(", ")
        )
    }))
}
