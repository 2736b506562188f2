//! One point of a sweep, from its first process to its record: right before timed.

use crate::record::{CheckOutcome, Correctness, Ending, Record, Stage};
use crate::spec::{Spec, SweepDir};
use crate::sweep::SweepError;
use kbt_target::{
    Comparison, Launch, LaunchRequest, Launcher, Report, Sample, Setting, Side, compare, today,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Timed processes of the baseline alone: it is compared with nothing.
const BASELINE_SAMPLES: usize = 3;

/// Runs points in a sweep's directory.
pub(crate) struct PointRunner<'a> {
    pub(crate) dir: &'a SweepDir,
    pub(crate) spec: &'a Spec,
    pub(crate) launcher: &'a dyn Launcher,
    pub(crate) correctness: &'a dyn Correctness,
    pub(crate) gpu: Option<String>,
}

/// What is known of a point so far.
struct Draft {
    ending: Ending,
    check: Option<CheckOutcome>,
    comparison: Option<Comparison>,
    samples: Vec<Sample>,
}

impl Draft {
    fn ended(ending: Ending) -> Self {
        Self { ending, check: None, comparison: None, samples: Vec::new() }
    }
}

impl PointRunner<'_> {
    /// Runs a point against another, which is finished: checks its outputs, then times it.
    pub(crate) fn run(
        &self,
        index: usize,
        against: usize,
        baseline: Option<&Record>,
    ) -> Result<Record, SweepError> {
        let started = Instant::now();
        let setting = &self.spec.space.points[index].setting;
        let folder = self.dir.point(index);
        clear_folder(&folder)?;
        let dump = folder.join("dump");
        clear_folder(&dump)?;
        let (inputs, inputs_part) = self.inputs(index)?;
        let out = folder.join("out.safetensors");
        let launch = self.launcher.launch(&LaunchRequest {
            inputs: Some(inputs_part.clone().unwrap_or(inputs.clone())),
            out: (!self.spec.target.outputs.is_empty()).then(|| out.clone()),
            dump: Some(dump),
            gpu: self.gpu.clone(),
            setting: setting.clone(),
            ..LaunchRequest::default()
        });
        let mut report = Report { times_us: Vec::new(), ..launch.report.clone() };
        let draft = if launch.is_ok() {
            if index == 0 {
                self.keep_baseline(&out, inputs_part.as_deref(), &inputs)?;
            }
            let check = self.check(&out, setting);
            self.time(index, against, check)
        } else {
            Draft::ended(failed(Stage::Check, &launch))
        };
        if !matches!(draft.ending, Ending::Wrong { .. }) && out.exists() {
            // Wrong outputs are kept for whoever wants to know why; right ones are the reference again.
            fs::remove_file(&out).map_err(SweepError::io(&out))?;
        }
        if let (None, Some(baseline)) = (&report.device, baseline) {
            report.device.clone_from(&baseline.report.device);
            report.driver.clone_from(&baseline.report.driver);
        }
        Ok(Record {
            index,
            setting: setting.clone(),
            ending: draft.ending,
            check: draft.check,
            against: draft.comparison.is_some().then_some(against),
            comparison: draft.comparison,
            samples: draft.samples,
            report,
            environment: launch.environment,
            gpu: self.gpu.clone(),
            elapsed_s: started.elapsed().as_secs_f64(),
            date: today(),
        })
    }

    /// What a timed process of a setting is asked.
    pub(crate) fn timed(&self, setting: &Setting) -> LaunchRequest {
        LaunchRequest {
            inputs: Some(self.spec.target.input_folder(0, &self.dir.inputs())),
            gpu: self.gpu.clone(),
            ..LaunchRequest::timed(setting.clone())
        }
    }

    /// The folder with the saved inputs, and for the baseline, which may have to make them, a folder that becomes
    /// it only when the baseline has ended well: nothing half-written is ever read.
    fn inputs(&self, index: usize) -> Result<(PathBuf, Option<PathBuf>), SweepError> {
        let inputs = self.spec.target.input_folder(0, &self.dir.inputs());
        let ready = fs::read_dir(&inputs).is_ok_and(|mut entries| entries.next().is_some());
        if ready || self.spec.target.inputs.folder.is_some() || index != 0 {
            return Ok((inputs, None));
        }
        let part = self.dir.0.join("inputs.part");
        clear_folder(&part)?;
        Ok((inputs, Some(part)))
    }

    fn keep_baseline(&self, out: &Path, made: Option<&Path>, inputs: &Path) -> Result<(), SweepError> {
        if let Some(made) = made {
            let parent = inputs.parent().unwrap_or(inputs);
            fs::create_dir_all(parent).map_err(SweepError::io(parent))?;
            if inputs.exists() {
                fs::remove_dir_all(inputs).map_err(SweepError::io(inputs))?;
            }
            fs::rename(made, inputs).map_err(SweepError::io(inputs))?;
        }
        if out.exists() {
            let reference = self.dir.reference();
            let part = reference.with_extension("part");
            fs::copy(out, &part).map_err(SweepError::io(&part))?;
            fs::rename(&part, &reference).map_err(SweepError::io(&reference))?;
        }
        Ok(())
    }

    fn check(&self, out: &Path, setting: &Setting) -> Result<CheckOutcome, String> {
        if self.spec.target.outputs.is_empty() {
            let why = "the target file lists no outputs".to_owned();
            return Ok(CheckOutcome::Unchecked { why });
        }
        self.correctness.check(&self.dir.reference(), out, setting)
    }

    fn time(&self, index: usize, against: usize, check: Result<CheckOutcome, String>) -> Draft {
        let check = match check {
            Err(reason) => {
                return Draft::ended(Ending::Unmeasured { reason: format!("not checked: {reason}") });
            }
            Ok(CheckOutcome::Wrong { statement }) => {
                let ending = Ending::Wrong { statement: statement.clone() };
                return Draft { check: Some(CheckOutcome::Wrong { statement }), ..Draft::ended(ending) };
            }
            Ok(check) => Some(check),
        };
        let setting = &self.spec.space.points[index].setting;
        let rest_s = self.spec.target.limits.cooldown_s;
        let timing = &self.spec.timing;
        if index == 0 {
            let mut samples = Vec::new();
            for _ in 0..BASELINE_SAMPLES {
                self.launcher.cool_down(timing.cooldown_s.unwrap_or(rest_s));
                let launch = self.launcher.launch(&self.timed(setting));
                match launch.sample().filter(|_| launch.is_ok()) {
                    Some(sample) => samples.push(sample),
                    None => return Draft { check, ..Draft::ended(failed(Stage::Timing, &launch)) },
                }
            }
            return Draft { ending: Ending::Timed, check, comparison: None, samples };
        }
        let incumbent = &self.spec.space.points[against].setting;
        let (a, b) = (self.timed(incumbent), self.timed(setting));
        match compare(self.launcher, &a, &b, timing, rest_s) {
            Ok(comparison) => {
                Draft { ending: Ending::Timed, check, comparison: Some(comparison), samples: Vec::new() }
            }
            Err(error) if error.side == Side::B => {
                Draft { check, ..Draft::ended(failed(Stage::Timing, &error.launch)) }
            }
            Err(error) => {
                let reason =
                    format!("setting {against}, which it was timed against, failed: {}", error.launch.status);
                Draft { check, ..Draft::ended(Ending::Unmeasured { reason }) }
            }
        }
    }
}

fn failed(stage: Stage, launch: &Launch) -> Ending {
    Ending::Failed { stage, status: launch.status.clone(), stderr: launch.stderr_tail.clone() }
}

/// Makes a folder empty, whatever an interrupted run left in it.
pub(crate) fn clear_folder(folder: &Path) -> Result<(), SweepError> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(SweepError::io(folder))?;
    }
    fs::create_dir_all(folder).map_err(SweepError::io(folder))
}
