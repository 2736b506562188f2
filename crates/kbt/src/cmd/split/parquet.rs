//! A sweep's tables as Parquet, written by the program kbt-frame: it alone links the table library.
//!
//! kbt-frame reads run directories, so the sweep's outcome is put into one of its own, as step 5 of a run.

use crate::output::Failure;
use kbt_evidence::{Provenance, Step};
use kbt_ladder::{Origin, RunDir, RunSpec, StepRecord, Timing};
use kbt_split::SplitOutcome;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The program beside this one.
pub(super) fn program() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(|e| Failure::input(format!("kbt itself: {e}")))?;
    let frame = own.with_file_name(format!("kbt-frame{}", std::env::consts::EXE_SUFFIX));
    if frame.is_file() {
        return Ok(frame);
    }
    Err(Failure::input(format!(
        "--parquet: there is no {}; build it: cargo build -p kbt-frame",
        frame.display()
    )))
}

/// Writes `DIR/tables/*.parquet`.
pub(super) fn write(frame: &Path, dir: &Path, outcome: &SplitOutcome) -> Result<(), Failure> {
    let run = dir.join("tables").join("run");
    let known = outcome.baseline().map_or(&outcome.provenance, |b| &b.provenance);
    let spec = RunSpec {
        schema: "kbt.run/1".to_owned(),
        pv_mode: None,
        target: Some(outcome.target.clone()),
        device: known.device.clone().unwrap_or_else(|| "not named by the target".to_owned()),
        quick: false,
        kbt: concat!(env!("CARGO_PKG_VERSION"), " (", env!("KBT_COMMIT"), ")").to_owned(),
    };
    let mut folder = RunDir::create(&run, &spec, true)?;
    folder.keep(StepRecord {
        schema: StepRecord::SCHEMA.to_owned(),
        step: Step::Handoff,
        origin: Origin::Live,
        headline: outcome.headline(),
        verdicts: outcome.verdicts(),
        outcome: Some(serde_json::to_value(outcome)?),
        needs: None,
        timing: Timing {
            wall_s: outcome.device_s.unwrap_or(0.0),
            provenance: Provenance::given("device time of the sweep, from its journal"),
        },
    })?;
    folder.finish()?;
    let output = Command::new(frame)
        .arg("export")
        .arg(&run)
        .arg("--out")
        .arg(dir.join("tables"))
        .output()
        .map_err(|e| Failure::input(format!("{}: {e}", frame.display())))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::input(format!("{}: {}: {}", frame.display(), output.status, said.trim())))
}
