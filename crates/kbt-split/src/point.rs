//! One point of a sweep, from its first process to its record: right before timed.

use crate::draft::{Allowed, Asked, Begun, Draft, failed, judged};
use crate::error::SweepError;
use crate::journal::Probe;
use crate::record::{CheckOutcome, Correctness, Ending, Record, Stage};
use crate::screen::is_steady;
use crate::spec::{Spec, SweepDir};
use kbt_target::{Launch, LaunchRequest, Launcher, Report, Sample, Setting, TimingPolicy, today};
use std::collections::BTreeMap;
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

/// What the process whose outputs are checked is asked.
pub(crate) struct CheckRequest {
    pub(crate) launch: LaunchRequest,
    out: PathBuf,
    inputs: PathBuf,
    /// Where the baseline makes the inputs.
    made: Option<PathBuf>,
}

/// What that process gave.
pub(crate) struct Checked {
    pub(crate) launch: Launch,
    /// Whether its outputs are right, or why nobody can say; absent where the process failed.
    pub(crate) check: Option<Result<CheckOutcome, String>>,
    /// Its share of the time that the processes took which ran beside it.
    pub(crate) elapsed_s: f64,
}

impl PointRunner<'_> {
    /// Runs a point against another, which is finished: checks its outputs, unless they are checked, then times it. What
    /// a screening found of it already is not asked again.
    pub(crate) fn run(
        &self,
        index: usize,
        against: usize,
        baseline: Option<&Record>,
        screened: Option<&Record>,
        checked: Option<Checked>,
    ) -> Result<Record, SweepError> {
        let asked = Asked { index, screened: screened.cloned(), checked };
        let mut result = Err(SweepError::NotTimed { index, why: "it was not run".to_owned() });
        self.run_together(vec![asked], against, baseline, |record| result = record);
        result
    }

    /// What is known of a point before it is timed: the check of its outputs, or how it ended.
    pub(crate) fn begun(&self, asked: Asked) -> Result<(Begun, Allowed), SweepError> {
        let (index, started) = (asked.index, Instant::now());
        let before_s = asked.checked.as_ref().map_or(0.0, |c| c.elapsed_s);
        let (check, report, environment) = match asked.screened {
            Some(known) => {
                let check = known.check.ok_or_else(|| "not checked when screened".to_owned());
                (judged(check), known.report, known.environment)
            }
            None => {
                let Checked { launch, check, .. } = asked.checked.map_or_else(|| self.checked(index), Ok)?;
                let ended = || Err(Box::new(Draft::ended(failed(Stage::Check, &launch))));
                (check.map_or_else(ended, judged), launch.report, launch.environment)
            }
        };
        let elapsed_s = before_s + started.elapsed().as_secs_f64();
        Ok((Begun { index, report, environment, elapsed_s }, check))
    }

    /// The record of a point that was begun.
    pub(crate) fn ended(
        &self,
        begun: Begun,
        draft: Draft,
        against: usize,
        baseline: Option<&Record>,
        timed_s: f64,
    ) -> Record {
        let Begun { index, report, environment, elapsed_s, .. } = begun;
        self.record(index, draft, Some(against), report, environment, baseline, elapsed_s + timed_s)
    }

    /// A point as one process brings it: its outputs checked, and its time. A probe of the same GPU says what clock to
    /// expect; a sample that is not steady is taken once more.
    pub(crate) fn screened(
        &self,
        index: usize,
        checked: Checked,
        probe: Option<&Probe>,
        baseline: Option<&Record>,
    ) -> Record {
        let started = Instant::now();
        let Checked { launch, check, elapsed_s } = checked;
        let steady =
            |sample: &Sample| is_steady(sample, probe.map(|p| &p.sample), self.spec.timing.clock_floor);
        let draft = match check.map(judged) {
            None => Draft::ended(failed(Stage::Check, &launch)),
            Some(Err(draft)) => *draft,
            Some(Ok(check)) => {
                let first = launch.sample();
                let again = first.as_ref().is_none_or(|s| !steady(s)).then(|| {
                    self.rest();
                    self.launcher.launch(&self.timed(index))
                });
                match again {
                    None => Draft {
                        samples: first.into_iter().collect(),
                        check: Some(check),
                        ..Draft::ended(Ending::Timed)
                    },
                    Some(launch) => match launch.sample().filter(|_| launch.is_ok()) {
                        Some(sample) => {
                            Draft { samples: vec![sample], check: Some(check), ..Draft::ended(Ending::Timed) }
                        }
                        None => Draft { check: Some(check), ..Draft::ended(failed(Stage::Timing, &launch)) },
                    },
                }
            }
        };
        let elapsed_s = elapsed_s + started.elapsed().as_secs_f64();
        self.record(index, draft, None, launch.report, launch.environment, baseline, elapsed_s)
    }

    /// What the baseline is asked when it runs as a screened point does: with its outputs written, at which nobody looks
    /// again.
    pub(crate) fn probe_request(&self) -> Result<LaunchRequest, SweepError> {
        let folder = self.dir.point(0);
        fs::create_dir_all(&folder).map_err(SweepError::io(&folder))?;
        let name = format!("probe-{}.safetensors", self.gpu.as_deref().unwrap_or("any").replace('/', "_"));
        let wants_out = !self.spec.target.outputs.is_empty();
        Ok(LaunchRequest { out: wants_out.then(|| folder.join(name)), ..self.timed(0) })
    }

    /// What such a process gave; `None` where it failed this time.
    pub(crate) fn probed(&self, request: &LaunchRequest, launch: &Launch, elapsed_s: f64) -> Option<Probe> {
        if let Some(out) = &request.out {
            remove_outputs(out);
        }
        let sample = launch.sample().filter(|_| launch.is_ok())?;
        Some(Probe { gpu: self.gpu.clone(), sample, elapsed_s })
    }

    /// What a timed process of a point is asked.
    pub(crate) fn timed(&self, index: usize) -> LaunchRequest {
        LaunchRequest {
            inputs: Some(self.spec.target.input_folder(0, &self.dir.inputs())),
            cache: Some(self.dir.point(index).join("cache")),
            gpu: self.gpu.clone(),
            ..LaunchRequest::timed(self.spec.space.points[index].setting.clone())
        }
    }

    /// Seconds of rest before a process that is timed.
    pub(crate) fn rest_s(&self) -> f64 {
        self.spec.timing.cooldown_s.unwrap_or(self.spec.target.limits.cooldown_s)
    }

    fn rest(&self) {
        self.launcher.cool_down(self.rest_s());
    }

    /// The first process of a point, and whether its outputs are right.
    pub(crate) fn checked(&self, index: usize) -> Result<Checked, SweepError> {
        let started = Instant::now();
        let request = self.check_request(index)?;
        let launch = self.launcher.launch(&request.launch);
        self.judge(index, &request, launch, started.elapsed().as_secs_f64())
    }

    /// What the first process of a point is asked, in a folder of its own that is empty.
    pub(crate) fn check_request(&self, index: usize) -> Result<CheckRequest, SweepError> {
        let folder = self.dir.point(index);
        clear_folder(&folder)?;
        let dump = folder.join("dump");
        clear_folder(&dump)?;
        let (inputs, made) = self.inputs(index)?;
        let out = folder.join("out.safetensors");
        let launch = LaunchRequest {
            inputs: Some(made.clone().unwrap_or(inputs.clone())),
            out: (!self.spec.target.outputs.is_empty()).then(|| out.clone()),
            dump: Some(dump),
            needs_time: false,
            ..self.timed(index)
        };
        Ok(CheckRequest { launch, out, inputs, made })
    }

    /// Whether the outputs of that process are right.
    pub(crate) fn judge(
        &self,
        index: usize,
        request: &CheckRequest,
        launch: Launch,
        elapsed_s: f64,
    ) -> Result<Checked, SweepError> {
        let (started, out) = (Instant::now(), &request.out);
        let mut check = None;
        if launch.is_ok() {
            if index == 0 {
                self.keep_baseline(out, request.made.as_deref(), &request.inputs)?;
            }
            check = Some(self.check(out, &self.spec.space.points[index].setting));
        }
        if !matches!(check, Some(Ok(CheckOutcome::Wrong { .. }))) {
            // Wrong outputs are kept for whoever wants to know why; right ones are the reference again.
            remove_outputs(out);
        }
        Ok(Checked { launch, check, elapsed_s: elapsed_s + started.elapsed().as_secs_f64() })
    }

    #[allow(clippy::too_many_arguments, reason = "a record has as many parts")]
    fn record(
        &self,
        index: usize,
        draft: Draft,
        against: Option<usize>,
        mut report: Report,
        environment: BTreeMap<String, String>,
        baseline: Option<&Record>,
        elapsed_s: f64,
    ) -> Record {
        report.times_us.clear();
        if let (None, Some(baseline)) = (&report.device, baseline) {
            report.device.clone_from(&baseline.report.device);
            report.driver.clone_from(&baseline.report.driver);
        }
        Record {
            index,
            setting: self.spec.space.points[index].setting.clone(),
            ending: draft.ending,
            check: draft.check,
            against: against.filter(|_| draft.comparison.is_some()),
            comparison: draft.comparison,
            samples: draft.samples,
            screened_ratio: None,
            report,
            environment,
            gpu: self.gpu.clone(),
            elapsed_s,
            date: today(),
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

    /// The baseline's own times.
    pub(crate) fn time_baseline(&self, check: CheckOutcome) -> Draft {
        let (check, request, mut samples) = (Some(check), self.timed(0), Vec::new());
        for launch in self.launcher.launch_in_turn(&[&request; BASELINE_SAMPLES], self.rest_s()) {
            match launch.sample().filter(|_| launch.is_ok()) {
                Some(sample) => samples.push(sample),
                None => return Draft { check, ..Draft::ended(failed(Stage::Timing, &launch)) },
            }
        }
        Draft { ending: Ending::Timed, check, comparison: None, samples }
    }

    /// How points are timed against another.
    pub(crate) fn timing(&self) -> TimingPolicy {
        let timing = &self.spec.timing;
        let blocks =
            self.spec.screening.as_ref().map_or(timing.max_blocks, |s| timing.max_blocks.min(s.blocks));
        TimingPolicy { max_blocks: blocks, ..timing.clone() }
    }
}

/// Removes what a process left in the place of its outputs, whatever it is.
fn remove_outputs(out: &Path) {
    let is_folder = fs::symlink_metadata(out).is_ok_and(|left| left.is_dir());
    // Most often there is nothing. What cannot be removed costs room and no result: it lies in a folder of the point's
    // own, which is emptied, or else named, before the point runs again.
    let _ = if is_folder { fs::remove_dir_all(out) } else { fs::remove_file(out) };
}

/// Makes a folder empty, whatever an interrupted run left in it.
pub(crate) fn clear_folder(folder: &Path) -> Result<(), SweepError> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(SweepError::io(folder))?;
    }
    fs::create_dir_all(folder).map_err(SweepError::io(folder))
}
