//! The verdicts of a run's finished steps, read from its directory.

use crate::output::Failure;
use kbt_evidence::{Step, Verdict};
use std::path::Path;

/// The part of a step file that a triage reads.
#[derive(serde::Deserialize)]
struct StepFile {
    verdicts: Vec<Verdict>,
}

/// All verdicts, in the ladder's order. What was measured then is a recording now.
pub(super) fn verdicts(run: &Path) -> Result<Vec<Verdict>, Failure> {
    if !run.join("run.json").is_file() {
        return Err(Failure::input(format!(
            "{} is not a run directory (it has no run.json); `kbt tune --out DIR` makes one",
            run.display()
        )));
    }
    let mut all = Vec::new();
    for step in Step::ALL {
        let path = run.join("steps").join(format!("{}-{step}.json", step.index()));
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
            Err(e) => return Err(Failure::input(format!("{}: {e}", path.display()))),
        };
        let file: StepFile =
            serde_json::from_slice(&bytes).map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
        all.extend(file.verdicts);
    }
    for figure in all.iter_mut().flat_map(|v| &mut v.evidence).flat_map(|e| &mut e.figures) {
        figure.provenance = figure.provenance.clone().read_back();
    }
    Ok(all)
}
