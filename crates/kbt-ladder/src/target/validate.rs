//! Step 6: the target's outputs on saved inputs: against the framework's own reference where the target gives one, and
//! again and again in fresh processes; then the setting that the sweep found best, against the baseline's.

use super::TargetTuner;
use crate::steps::{measured_by, output};
use crate::{History, Origin, StepFailure, StepOutput};
use kbt_evidence::{Provenance, Step};
use kbt_split::SplitOutcome;
use kbt_target::{Change, LaunchRequest, Launcher, Setting, Status};
use kbt_tensor::{ReadOptions, TensorSet};
use kbt_validate::compare::{ChangeClass, Comparison, Rules, Sides, compare};
use kbt_validate::flake::{FlakePlan, flake};
use kbt_validate::outcome::{ValidateOutcome, VariantResult};
use kbt_validate::runner::{RunFailure, RunOutput, Runner};
use std::collections::BTreeMap;
use std::time::Instant;

/// Seconds that the repeated runs of one variant may take.
const REPEAT_S: f64 = 60.0;
/// The relative RMS error against the reference up to which an output counts as right, where the target file states no
/// `tolerance`: a few times what 8 bits of mantissa give.
const TOLERANCE: f64 = 0.02;

impl TargetTuner<'_> {
    pub(super) fn validate(&mut self, history: &History<'_>) -> Result<StepOutput, StepFailure> {
        if self.target.outputs.is_empty() {
            return Err(StepFailure::Refused {
                reason: format!("target {} saves no outputs", self.target.name),
                needs: "`outputs:` in the target file, and a run that writes them to KBT_OUT as safetensors"
                    .into(),
            });
        }
        if !self.is_live() {
            return self.replay::<ValidateOutcome>(Step::Validate, "validation");
        }
        self.launchable()?;
        let base = self.target.default_setting();
        let mut variants = vec![("baseline".to_owned(), base.clone())];
        let split = history.steps.get(&Step::Handoff).and_then(|r| r.outcome.clone());
        let split: Option<SplitOutcome> = split.and_then(|v| serde_json::from_value(v).ok());
        let best = split.as_ref().and_then(|s| s.points.iter().find(|p| Some(p.index) == s.best));
        if let Some(best) = best.filter(|p| p.setting != base) {
            variants.push((best.setting.differs_from(&base).to_string(), best.setting.clone()));
        }
        let mut results = Vec::new();
        let mut problems = Vec::new();
        let (reference, note) = match self.outputs(&base, 0) {
            // The reference is computed from the inputs that a run has saved.
            Ok(_) => self.reference(0)?,
            Err(_) => (None, None),
        };
        problems.extend(note);
        let reference = match reference.map(|path| TensorSet::read(&path, &ReadOptions::default())) {
            Some(Ok(set)) => Some(set),
            Some(Err(e)) => {
                problems.push(format!("the reference: {e}"));
                None
            }
            None => None,
        };
        if reference.is_none() && problems.is_empty() {
            problems.push(
                "the target file has no `reference:`, so outputs were compared with the baseline's alone"
                    .into(),
            );
        }
        for (name, setting) in variants {
            self.note(format!("  {name}"));
            results.push(self.variant(&name, &base, &setting, reference.as_ref())?);
        }
        let mut outcome = ValidateOutcome::new(results);
        outcome.problems = problems.clone();
        let mut out = output(Origin::Live, &outcome)?;
        for problem in problems {
            out.headline += &format!("; {problem}");
        }
        Ok(out)
    }

    fn variant(
        &self,
        name: &str,
        base: &Setting,
        setting: &Setting,
        reference: Option<&TensorSet>,
    ) -> Result<VariantResult, StepFailure> {
        let changed = setting.differs_from(base);
        let algebra = |k: &String| self.target.knob(k).is_some_and(|k| k.change == Change::Algebra);
        let class = if changed.0.keys().any(algebra) { ChangeClass::Algebra } else { ChangeClass::Reorder };
        let mut result = VariantResult::new(name, class);
        result.knobs = changed.0.iter().map(|(k, v)| (k.clone(), v.to_string())).collect();
        let started = Instant::now();
        let (saved, variant, how) = match (self.outputs(base, 0), self.outputs(setting, 0)) {
            (Ok((saved, _)), Ok((variant, how))) => (saved, variant, how),
            (Err(e), _) | (_, Err(e)) => {
                result.problems.push(e.to_string());
                return Ok(result);
            }
        };
        let each_s = started.elapsed().as_secs_f64() / 2.0;
        let sides = Sides {
            reference: reference.map(|r| r as _),
            baseline: reference.map(|_| &saved as _),
            ..Sides::new(&saved, &variant)
        };
        match compare(&sides, &Rules { class, ..Rules::default() }, how.clone()) {
            Ok(mut comparison) => {
                self.hold_to_tolerance(&mut comparison);
                result.comparison = Some(comparison);
            }
            Err(e) => result.problems.push(e.to_string()),
        }
        let most = if self.quick { 20.0 } else { 60.0 };
        let runs = (REPEAT_S / each_s.max(1e-3)).floor().clamp(4.0, most) as u32;
        let plan = FlakePlan { runs, sets: self.target.inputs.sets.min(2), ..FlakePlan::default() };
        let runner = Again { tuner: self, setting };
        let references: BTreeMap<u32, RunOutput> = (0..plan.sets)
            .filter_map(|set| Some((set, RunOutput::Tensors(self.outputs(setting, set).ok()?.0))))
            .collect();
        result.flake = Some(flake(&runner, &plan, &references, how));
        Ok(result)
    }

    /// Adds to a comparison's violations each tensor that is further from the reference than the target file allows.
    fn hold_to_tolerance(&self, comparison: &mut Comparison) {
        for tensor in &comparison.tensors {
            let stated = self.target.outputs.iter().find(|o| o.name == tensor.name).and_then(|o| o.tolerance);
            let allowed = stated.unwrap_or(TOLERANCE);
            let error = tensor.variant.as_ref().and_then(|s| s.relative_rms_error);
            if let Some(error) = error.filter(|e| e.is_nan() || *e > allowed) {
                comparison.violations.push(format!(
                    "`{}`: relative RMS error {error:.3e} against the reference, {allowed:.3e} is accepted",
                    tensor.name
                ));
            }
        }
    }

    /// The outputs of one fresh process of a setting on an input set.
    fn outputs(&self, setting: &Setting, set: u32) -> Result<(TensorSet, Provenance), RunFailure> {
        let start = |e: std::io::Error| RunFailure::Start(e.to_string());
        let folder = self.run.join("validate");
        let (inputs, out) = (self.inputs(set), folder.join("out.safetensors"));
        std::fs::create_dir_all(&folder).map_err(start)?;
        std::fs::create_dir_all(&inputs).map_err(start)?;
        let request = LaunchRequest {
            input_set: set,
            inputs: Some(inputs),
            ..LaunchRequest::saving(setting.clone(), &out)
        };
        let launch = self.launcher().launch(&request);
        match &launch.status {
            Status::Ok => {
                let set = TensorSet::read(&out, &ReadOptions::default());
                let set = set.map_err(|e| RunFailure::Output(e.to_string()))?;
                if let Some(lost) = self.target.lost_outputs(set.iter().map(kbt_tensor::Tensor::name)) {
                    return Err(RunFailure::Output(lost));
                }
                Ok((set, measured_by(&launch, "kbt tune: outputs of fresh processes on saved inputs", None)))
            }
            Status::TimedOut { limit_s } => Err(RunFailure::TimedOut { limit_s: *limit_s as u64 }),
            status => Err(RunFailure::Failed {
                status: status.to_string(),
                stderr: launch.stderr_tail.trim().to_owned(),
            }),
        }
    }
}

/// One setting, run again and again.
struct Again<'t, 'a> {
    tuner: &'t TargetTuner<'a>,
    setting: &'t Setting,
}

impl Runner for Again<'_, '_> {
    fn run(&self, env: &[(String, String)], set: u32) -> Result<RunOutput, RunFailure> {
        let mut setting = self.setting.clone();
        for (name, value) in env {
            setting = setting.with(name, value.as_str());
        }
        self.tuner.outputs(&setting, set).map(|(tensors, _)| RunOutput::Tensors(tensors))
    }
}
