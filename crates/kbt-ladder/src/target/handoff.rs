//! Step 5: the handoff's contract, from the target file and from PTX, and the sweep over the knobs where the target runs.

use super::TargetTuner;
use super::check::AgainstReference;
use super::found::failed;
use super::schedule::handoffs_briefly;
use crate::steps::{fatal, handoff_times, output};
use crate::{History, Origin, StepFailure, StepOutput};
use kbt_evidence::{Evidence, Step, Verdict};
use kbt_sass::{Cover, Handoff};
use kbt_split::{Choice, Space, Spec, SplitOutcome, Sweep};
use kbt_target::TimingPolicy;
use kbt_trace::outcome::TraceOutcome;
use std::path::{Path, PathBuf};

/// Seconds after which no further setting of a sweep is begun; `kbt split sweep` has no such limit.
const BUDGET_S: f64 = 240.0;
const BUDGET_QUICK_S: f64 = 60.0;

impl TargetTuner<'_> {
    pub(super) fn handoff(&mut self, history: &History<'_>) -> Result<StepOutput, StepFailure> {
        let in_ptx = self.handoffs_in_ptx();
        let space = Space::new(&self.target, &Choice::default());
        let refused = |reason: String, needs: String| StepFailure::Refused { reason, needs };
        let space = match space {
            Ok(space) => space,
            Err(e) => return Err(refused(e.to_string(), "knobs whose default setting is legal".into())),
        };
        let varies = space.points.len() > 1;
        if !varies && in_ptx.is_empty() {
            return Err(refused(
                format!(
                    "target {} has no knob with more than one legal value, and its PTX no two-barrier handoff",
                    self.target.name
                ),
                "`knobs:` in the target file, with the values to try".into(),
            ));
        }
        // Each comparison is of four processes a block; a sweep within a run has minutes, not hours.
        let timing = TimingPolicy {
            min_blocks: 2,
            max_blocks: if self.quick { 2 } else { 3 },
            slow_margin: Some(0.05),
            ..TimingPolicy::default()
        };
        let spec = Spec::new(self.target.clone(), space, timing).screened();
        if !varies {
            let why = "no knob has more than one legal value: nothing to sweep";
            return told(&SplitOutcome::unmeasured(&spec, why), Origin::Live, &in_ptx, None);
        }
        if !self.is_live() {
            return match self.recorded::<SplitOutcome>(Step::Handoff)? {
                Some(outcome) => {
                    let with = self.recorded_with(Step::Handoff)?;
                    let mut out = told(&outcome, Origin::Recorded, &in_ptx, None)?;
                    out.headline += &with.map(|w| format!("; {w}")).unwrap_or_default();
                    Ok(out)
                }
                // Where nothing is known without a run, there is nothing to tell.
                None if in_ptx.is_empty() && self.target.handoff.is_none() => Err(self.needs_live("sweep")),
                None => match self.needs_live("sweep") {
                    StepFailure::Refused { reason, needs } => {
                        told(&SplitOutcome::unmeasured(&spec, reason), Origin::Live, &in_ptx, Some(needs))
                    }
                    failure @ StepFailure::Fatal(_) => Err(failure),
                },
            };
        }
        self.launchable()?;
        let dir = self.run.join("sweep");
        // The sweep reads the tensors that the reference was computed from.
        copy_inputs(&self.inputs(0), &spec.target.input_folder(0, &dir.join("inputs"))).map_err(fatal)?;
        let (reference, note) = self.reference(0)?;
        let correctness = AgainstReference::new(&spec, reference);
        let launcher = self.launcher();
        let resume = dir.join("spec.json").exists();
        let mut sweep = Sweep::prepare(&dir, spec, resume, &launcher, &correctness).map_err(fatal)?;
        sweep.budget_s = Some(if self.quick { BUDGET_QUICK_S } else { BUDGET_S });
        let mut outcome = sweep.run().map_err(fatal)?;
        let trace = history.steps.get(&Step::Trace).and_then(|r| r.outcome.clone());
        let trace: Option<TraceOutcome> = trace.and_then(|v| serde_json::from_value(v).ok());
        if let Some(times) = trace.as_ref().and_then(|t| handoff_times(t).ok()) {
            outcome = outcome.with_model(&times).map_err(fatal)?;
        }
        let mut out = told(&outcome, Origin::Live, &in_ptx, None)?;
        out.headline += &note.map(|n| format!("; {n}")).unwrap_or_default();
        Ok(out)
    }

    /// The two-barrier handoffs that the kernel's PTX shows; none where there is no PTX.
    fn handoffs_in_ptx(&mut self) -> Vec<Handoff> {
        let Ok(code) = self.code() else { return Vec::new() };
        let module = code.ptx.as_deref().and_then(|text| kbt_ptx::parse(text).ok());
        module.map(|m| kbt_sass::lint_ptx(&m).handoffs).unwrap_or_default()
    }

    /// The file with the right outputs of an input set, where the target says how they are made; else why not.
    pub(super) fn reference(&self, set: u32) -> Result<(Option<PathBuf>, Option<String>), StepFailure> {
        let folder = self.run.join("reference");
        std::fs::create_dir_all(&folder).map_err(|e| fatal(format!("{}: {e}", folder.display())))?;
        let out = folder.join(format!("{set}.safetensors"));
        if out.exists() {
            return Ok((Some(out), None));
        }
        let partial = folder.join(format!("{set}.partial"));
        match self.launcher().reference(&self.inputs(set), &partial) {
            None => Ok((None, None)),
            Some(launch) if launch.is_ok() => {
                std::fs::rename(&partial, &out).map_err(fatal)?;
                Ok((Some(out), None))
            }
            Some(launch) => Ok((None, Some(failed("the reference", &launch)))),
        }
    }
}

/// The outcome with what the PTX shows of its handoffs beside it.
fn told(
    outcome: &SplitOutcome,
    origin: Origin,
    in_ptx: &[Handoff],
    needs: Option<String>,
) -> Result<StepOutput, StepFailure> {
    let mut out = output(origin, outcome)?;
    if outcome.refused.is_some() && !outcome.handoff_knobs.is_empty() {
        let legal = outcome.points.len();
        out.headline = format!(
            "contract: {legal} settings are legal, {} break it; {}",
            outcome.forbidden.len(),
            out.headline
        );
    }
    for line in handoffs_briefly(in_ptx) {
        out.headline += &format!("; {line}");
    }
    if let Some(needs) = &needs {
        out.headline += &format!("; needs: {needs}");
    }
    out.verdicts = out.verdicts.into_iter().map(|v| with_ptx(v, in_ptx, needs.as_deref())).collect();
    Ok(out)
}

fn with_ptx(verdict: Verdict, in_ptx: &[Handoff], needs: Option<&str>) -> Verdict {
    let short = in_ptx.iter().any(|h| h.cover == Some(Cover::Short));
    let verdict = handoffs_briefly(in_ptx).into_iter().fold(verdict, |v, line| {
        v.with(if short { Evidence::against(line, Vec::new()) } else { Evidence::supports(line, Vec::new()) })
    });
    match needs {
        Some(needs) => verdict.next(needs),
        None => verdict,
    }
}

/// Copies saved inputs where there are none yet.
fn copy_inputs(from: &Path, to: &Path) -> std::io::Result<()> {
    if from == to {
        return Ok(());
    }
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let there = to.join(entry.file_name());
        if entry.path().is_file() && !there.exists() {
            std::fs::copy(entry.path(), there)?;
        }
    }
    Ok(())
}
