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

/// Says so where the run's own facts are of another operator than the sheet's; a run without facts cannot tell.
pub(super) fn another_kernel(run: &Path, sheet: &FactSheet) -> Option<String> {
    let path = run.join("facts.yaml");
    let of_run =
        FactSheet::from_yaml(&std::fs::read_to_string(&path).ok()?, &path.display().to_string()).ok()?;
    let kind = |s: &FactSheet| s.operator.as_ref().and_then(|o| o.kind);
    match (kind(&of_run), kind(sheet)) {
        (Some(a), Some(b)) if a != b => Some(format!(
            "the run is of `{}` ({}), the sheet of `{}` ({}): its verdicts are another kernel's",
            of_run.title(),
            a.as_str(),
            sheet.title(),
            b.as_str()
        )),
        _ => None,
    }
}
