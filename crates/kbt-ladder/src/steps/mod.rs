//! The steps' sources: what feeds each step live, from a recording, or on a model device, for the built-in
//! attention kernel. The analysis is the step crates'; here are the measurements they ask for, and the choice of
//! what to try next from what earlier steps left.

mod algebra;
mod handoff;
mod rates;
mod schedule;
mod trace;
mod triage;
mod validate;

pub use handoff::{LacksTime, handoff_times};

use crate::ladder::Progress;
use crate::{Backend, History, Origin, Runner, StepFailure, StepOutput};
use kbt_device::DeviceProfile;
use kbt_evidence::{Figure, Provenance, Step, Unit, Verdict};
use kbt_kernels::attention::PvMode;
use kbt_target::{Launch, LaunchRequest, Launcher, ProcessLauncher, Setting, Target, stats};
use kbt_toolchain::Toolchain;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// An outcome of a step crate, as the ladder needs it.
pub(crate) trait Outcome: Serialize + DeserializeOwned {
    /// Its verdicts.
    fn verdicts(&self) -> Vec<Verdict>;
    /// Its line for the terminal.
    fn headline(&self) -> String;
}

macro_rules! outcomes {
    ($($type:ty),* $(,)?) => {
        $(impl Outcome for $type {
            fn verdicts(&self) -> Vec<Verdict> { self.verdicts() }
            fn headline(&self) -> String { self.headline() }
        })*
    };
}

outcomes!(
    kbt_roofline::TriageOutcome,
    kbt_microbench::outcome::RatesOutcome,
    kbt_trace::outcome::TraceOutcome,
    kbt_sass::outcome::ScheduleOutcome,
    kbt_quant::outcome::AlgebraOutcome,
    kbt_split::SplitOutcome,
    kbt_validate::outcome::ValidateOutcome,
);

/// The size that the built-in kernel is tuned at, and the command line that says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Sequences.
    pub batch: u32,
    /// Heads of each.
    pub heads: u32,
    /// Queries and keys of each.
    pub seqlen: u32,
}

impl Size {
    /// What the target file says.
    const TUNING: Self = Self { batch: 2, heads: 16, seqlen: 4096 };

    /// Steps over the keys that one SM does one after the other in a launch: CTAs of 128 queries, one an SM, each
    /// with a step every 128 keys.
    fn steps_per_sm(self, sms: u32) -> f64 {
        let tiles = f64::from(self.seqlen.div_ceil(128));
        f64::from(self.batch * self.heads) * tiles * tiles / f64::from(sms)
    }
}

/// Tunes the built-in attention kernel in one pv mode.
pub struct AttentionTuner<'a> {
    mode: PvMode,
    backend: &'a Backend,
    target: Target,
    run: PathBuf,
    tools: Option<Toolchain>,
    quick: bool,
    progress: &'a mut dyn FnMut(&str),
}

/// Why a tuner cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TunerError {
    /// The target file, or the run that began with it.
    #[error("{0}")]
    Target(String),
}

impl<'a> AttentionTuner<'a> {
    /// A tuner whose files go to the run directory `run`. `progress` is told what goes on.
    pub fn new(
        mode: PvMode,
        backend: &'a Backend,
        run: &Path,
        tools: Option<Toolchain>,
        quick: bool,
        progress: &'a mut dyn FnMut(&str),
    ) -> Result<Self, TunerError> {
        let target = kbt_target::embedded_target("attention")
            .ok_or_else(|| {
                TunerError::Target("the built-in target: targets/attention.yaml is not embedded".into())
            })?
            .map_err(|e| TunerError::Target(e.to_string()))?;
        let run = std::path::absolute(run).map_err(|e| TunerError::Target(e.to_string()))?;
        Ok(Self { mode, backend, target, run, tools, quick, progress })
    }

    /// The plain setting of the mode: what tuning starts from.
    fn plain(&self) -> Setting {
        self.target.default_setting().with("KBT_PV_MODE", self.mode.as_str())
    }

    /// Whether the kernel runs here and now.
    fn is_live(&self) -> bool {
        matches!(self.backend, Backend::Live(info) if info.compute_capability == (9, 0))
    }

    /// The refusal of a step that needs the kernel to run.
    fn needs_live(&self, what: &str) -> StepFailure {
        let (reason, needs) = match self.backend {
            Backend::Live(info) => (
                format!(
                    "{what} needs the built-in kernel, which is compiled for sm_90a; {} has compute capability {}.{}",
                    info.name, info.compute_capability.0, info.compute_capability.1
                ),
                "a GPU of compute capability 9.0, or --target with a kernel for this one".to_owned(),
            ),
            Backend::Recorded(r) => (
                format!("recording {} has no finished {what} for pv mode {}", r.meta.name, self.mode),
                format!("cargo xtask tune --pv-mode {} --device live, on a Hopper GPU", self.mode),
            ),
            Backend::Model(p) => (
                format!(
                    "{what} needs a measurement, and profile {} of {} has no run behind it",
                    p.name, p.arch
                ),
                "a run on the real device: `cargo xtask dist` makes the bundle to take there".to_owned(),
            ),
        };
        StepFailure::Refused { reason, needs }
    }

    /// The step as it was recorded, where the backend is a recording that has it.
    fn recorded<T: Outcome>(&self, step: Step) -> Result<Option<T>, StepFailure> {
        let Backend::Recorded(recording) = self.backend else { return Ok(None) };
        let record = recording.step(self.mode.as_str(), step).map_err(fatal)?;
        let Some(value) = record.and_then(|r| r.outcome) else { return Ok(None) };
        serde_json::from_value(value)
            .map(Some)
            .map_err(|e| fatal(format!("recording {}, step {step}: {e}", recording.meta.name)))
    }

    /// Replays the step, or refuses it.
    fn replay<T: Outcome>(&self, step: Step, what: &str) -> Result<StepOutput, StepFailure> {
        match self.recorded::<T>(step)? {
            Some(outcome) => output(Origin::Recorded, &outcome),
            None => Err(self.needs_live(what)),
        }
    }

    /// What an earlier step of this run left.
    fn earlier<T: Outcome>(history: &History<'_>, step: Step) -> Result<Option<T>, StepFailure> {
        let Some(value) = history.steps.get(&step).and_then(|r| r.outcome.clone()) else { return Ok(None) };
        serde_json::from_value(value).map(Some).map_err(|e| fatal(format!("outcome of step {step}: {e}")))
    }

    fn launcher(&self) -> ProcessLauncher<'_> {
        ProcessLauncher::new(&self.target)
    }

    fn inputs(&self, set: u32) -> PathBuf {
        self.target.input_folder(set, &self.run.join("inputs"))
    }

    /// A timed run of a setting on the first input set.
    fn timed(&self, setting: Setting) -> Result<LaunchRequest, StepFailure> {
        let inputs = self.inputs(0);
        std::fs::create_dir_all(&inputs).map_err(|e| fatal(format!("{}: {e}", inputs.display())))?;
        Ok(LaunchRequest { inputs: Some(inputs), ..LaunchRequest::timed(setting) })
    }

    /// The median time of a setting over fresh processes, as a figure.
    fn time(
        &mut self,
        setting: &Setting,
        processes: usize,
        name: &str,
    ) -> Result<(Figure, Option<f64>), StepFailure> {
        let launcher = self.launcher();
        let mut samples = Vec::new();
        let mut last = None;
        for _ in 0..processes {
            launcher.cool_down(self.target.limits.cooldown_s);
            let launch = launcher.launch(&self.timed(setting.clone())?);
            match launch.sample().filter(|_| launch.is_ok()) {
                Some(sample) => samples.push(sample),
                None => return Err(fatal(failed(setting, &launch))),
            }
            last = Some(launch);
        }
        let times: Vec<f64> = samples.iter().map(|s| s.time_us).collect();
        let (Some(median), Some(launch)) = (stats::median(&times), last) else {
            return Err(fatal("no process was timed"));
        };
        let (low, high) = times.iter().fold((f64::MAX, f64::MIN), |(l, h), t| (l.min(*t), h.max(*t)));
        let clock = samples.iter().filter_map(|s| s.clock_mhz).next_back();
        let figure = Figure::new(name, median, Unit::Microseconds, measured_by(&launch, "kbt tune", clock))
            .with_spread(
                low,
                high,
                format!("least to most of {processes} processes, each a median of launches"),
            );
        Ok((figure, clock))
    }

    /// How a live measurement of this run is known.
    fn provenance_of(&self, command: &str) -> Provenance {
        match self.backend {
            Backend::Live(info) => info.measured(command),
            Backend::Recorded(_) | Backend::Model(_) => Provenance::assumed(command),
        }
    }

    fn note(&mut self, text: impl AsRef<str>) {
        (self.progress)(text.as_ref());
    }
}

/// A measured provenance from what a process said of itself.
pub(crate) fn measured_by(launch: &Launch, command: &str, clock: Option<f64>) -> Provenance {
    let device = launch.report.device.clone().unwrap_or_else(|| "device not named by the target".into());
    let mut p = Provenance::measured(command, device, kbt_target::today());
    if let Some(driver) = &launch.report.driver {
        p = p.with_driver(driver);
    }
    match clock {
        Some(mhz) => p.with_sm_clock_mhz(mhz),
        None => p,
    }
}

fn failed(setting: &Setting, launch: &Launch) -> String {
    let said = launch.stderr_tail.trim();
    format!("{setting}: {}{}{said}", launch.status, if said.is_empty() { "" } else { ": " })
}

pub(crate) fn fatal(error: impl ToString) -> StepFailure {
    StepFailure::Fatal(error.to_string())
}

pub(crate) fn output<T: Outcome>(origin: Origin, outcome: &T) -> Result<StepOutput, StepFailure> {
    Ok(StepOutput {
        origin,
        headline: outcome.headline(),
        verdicts: outcome.verdicts(),
        outcome: serde_json::to_value(outcome).map_err(fatal)?,
    })
}

impl Runner for AttentionTuner<'_> {
    fn run(&mut self, step: Step, history: &History<'_>) -> Result<StepOutput, StepFailure> {
        match step {
            Step::Triage => self.triage(),
            Step::Rates => self.rates(),
            Step::Trace => self.trace(),
            Step::Schedule => self.schedule(),
            Step::Algebra => self.algebra(),
            Step::Handoff => self.handoff(history),
            Step::Validate => self.validate(history),
        }
    }

    fn progress(&mut self, note: Progress<'_>) {
        if let Some(line) = progress_line(&note) {
            self.note(line);
        }
    }
}

/// What is told of the ladder's walk.
pub(crate) fn progress_line(note: &Progress<'_>) -> Option<String> {
    Some(match note {
        Progress::Begins(step) => format!("step {} {step}", step.index()),
        Progress::Resumed(record) => {
            format!("step {} {}: finished earlier", record.step.index(), record.step)
        }
        Progress::Done(record) if record.origin == Origin::Refused => {
            format!("  refused: {}", record.headline)
        }
        Progress::Done(record) => format!("  {}", record.headline),
        Progress::GoesBack(c) => {
            format!("going back to {}: {} contradicts it on `{}`", c.ruled_out_by, c.contradicted_by, c.class)
        }
        Progress::Struck(c) => format!(
            "struck: {} recommends `{}`, which {} ruled out",
            c.contradicted_by, c.class, c.ruled_out_by
        ),
    })
}

impl AttentionTuner<'_> {
    /// Rates and ceilings: measured once a run, else the backend's own.
    fn profile(&mut self) -> Result<DeviceProfile, StepFailure> {
        profile(self.backend, &self.run, self.tools.as_ref(), self.progress)
    }
}

/// Rates and ceilings of a run: measured once where the device is live, else the backend's own.
pub(crate) fn profile(
    backend: &Backend,
    run: &Path,
    tools: Option<&Toolchain>,
    progress: &mut dyn FnMut(&str),
) -> Result<DeviceProfile, StepFailure> {
    let profile = match backend {
        Backend::Recorded(r) => r.profile().clone(),
        Backend::Model(p) => (**p).clone(),
        Backend::Live(_) => return rates::live_profile(run, tools, progress),
    };
    // The run directory holds what its steps were computed from, whatever device that was.
    let text = profile.to_yaml().map_err(fatal)?;
    let path = run.join(crate::recording::PROFILE_FILE);
    crate::rundir::write_atomic(&path, text.as_bytes()).map_err(fatal)?;
    Ok(profile)
}
