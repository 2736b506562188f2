//! The ladder on a target of the user's own: what feeds each step from what the target gives, and a refusal that names
//! what is missing where it gives nothing.
//!
//! Nothing that a target does ends the run: a command that fails, a time that is not printed, machine code of another
//! build become a step's refusal or a note beside what the step found, and the ladder goes on. The analysis is the step
//! crates'.

mod algebra;
mod check;
mod code;
mod facts;
mod found;
mod handoff;
mod issue;
mod notes;
mod rates;
mod ready;
mod same;
mod schedule;
mod sheet;
mod tensors;
mod timing;
mod trace;
mod triage;
mod validate;

pub use check::AgainstReference;
pub use sheet::{FactsError, check_facts, facts_lack};

use crate::ladder::Progress;
// The copy of the target file that a run keeps, so that a resumed run is of the same target.
use crate::recording::TARGET_FILE;
use crate::steps::{Outcome, TunerError, fatal, progress_line};
use crate::{Backend, History, Origin, Runner, StepFailure, StepOutput};
use code::Code;
use found::Found;
use kbt_device::{Arch, DeviceProfile};
use kbt_evidence::Step;
use kbt_target::{ProcessLauncher, Target};
use kbt_toolchain::Toolchain;
use std::path::{Path, PathBuf};

/// Tunes a target of the user's own.
pub struct TargetTuner<'a> {
    target: Target,
    /// The target file as the user named it.
    file: String,
    backend: &'a Backend,
    run: PathBuf,
    tools: Option<Toolchain>,
    quick: bool,
    found: Option<Found>,
    code: Option<Code>,
    progress: &'a mut dyn FnMut(&str),
}

impl<'a> TargetTuner<'a> {
    /// A tuner whose files go to the run directory `run`; `file` is the target as the user named it. `progress` is told
    /// what goes on.
    ///
    /// # Errors
    /// Where the run in that directory began with another target file, or a file of it cannot be read or written.
    pub fn new(
        target: Target,
        file: &str,
        backend: &'a Backend,
        run: &Path,
        tools: Option<Toolchain>,
        quick: bool,
        progress: &'a mut dyn FnMut(&str),
    ) -> Result<Self, TunerError> {
        let error = |e: &dyn ToString| TunerError::Target(format!("{file}: {}", e.to_string()));
        let run = std::path::absolute(run).map_err(|e| error(&e))?;
        let kept = run.join(TARGET_FILE);
        let text = serde_json::to_string_pretty(&target).map_err(|e| error(&e))?;
        match std::fs::read_to_string(&kept) {
            Ok(was) if was == text => {}
            Ok(_) => {
                return Err(error(
                    &"the run began with another target file; start a new one, or give back what was changed",
                ));
            }
            Err(_) => crate::rundir::write_atomic(&kept, text.as_bytes()).map_err(|e| error(&e))?,
        }
        let file = file.to_owned();
        Ok(Self { target, file, backend, run, tools, quick, found: None, code: None, progress })
    }

    /// The name that a recording of this target has.
    fn key(&self) -> String {
        crate::recording::key_of_target(&self.file)
    }

    /// Whether the target can run here and now: on whatever GPU that is.
    fn is_live(&self) -> bool {
        matches!(self.backend, Backend::Live(_))
    }

    fn arch(&self) -> Arch {
        self.backend.arch()
    }

    fn launcher(&self) -> ProcessLauncher<'_> {
        ProcessLauncher::new(&self.target).for_arch(self.arch().to_string())
    }

    fn inputs(&self, set: u32) -> PathBuf {
        self.target.input_folder(set, &self.run.join("inputs"))
    }

    fn note(&mut self, text: impl AsRef<str>) {
        (self.progress)(text.as_ref());
    }

    /// The command that measures on the real device.
    fn there(&self) -> String {
        format!(
            "a run on the real device: `cargo xtask dist` makes the bundle to take there, and there `kbt tune --target \
             {} --device live`",
            self.file
        )
    }

    /// The refusal of a step that needs the target to run.
    fn needs_live(&self, what: &str) -> StepFailure {
        let (reason, needs) = match self.backend {
            Backend::Recorded(r) => (
                format!("recording {} has no finished {what} of target {}", r.meta.name, self.key()),
                format!(
                    "{}, then `cargo xtask record import RUN` here makes a recording of it",
                    self.there()
                ),
            ),
            Backend::Model(p) => (
                format!(
                    "the {what} needs a measurement, and profile {} of {} has no device behind it",
                    p.name, p.arch
                ),
                self.there(),
            ),
            // A live device is asked for what it can give before this is.
            Backend::Live(info) => (format!("no {what} on {}", info.name), self.there()),
        };
        StepFailure::Refused { reason, needs }
    }

    /// The step as it was recorded, where the backend is a recording of this target that has it.
    fn recorded<T: Outcome>(&self, step: Step) -> Result<Option<T>, StepFailure> {
        let Backend::Recorded(recording) = self.backend else { return Ok(None) };
        let record = recording.step(&self.key(), step).map_err(fatal)?;
        let Some(value) = record.and_then(|r| r.outcome) else { return Ok(None) };
        serde_json::from_value(value)
            .map(Some)
            .map_err(|e| fatal(format!("recording {}, step {step}: {e}", recording.meta.name)))
    }

    /// Replays the step, or refuses it.
    fn replay<T: Outcome>(&self, step: Step, what: &str) -> Result<StepOutput, StepFailure> {
        match self.recorded::<T>(step)? {
            Some(outcome) => {
                let with = self.recorded_with(step)?;
                let mut out = crate::steps::output(Origin::Recorded, &outcome)?;
                out.headline += &with.map(|w| format!("; {w}")).unwrap_or_default();
                Ok(out)
            }
            None => Err(self.needs_live(what)),
        }
    }

    /// Rates and ceilings: measured once a run, else the backend's own.
    fn profile(&mut self) -> Result<DeviceProfile, StepFailure> {
        crate::steps::profile(self.backend, &self.run, self.tools.as_ref(), self.progress)
    }
}

impl Runner for TargetTuner<'_> {
    fn run(&mut self, step: Step, history: &History<'_>) -> Result<StepOutput, StepFailure> {
        match step {
            Step::Triage => self.triage(),
            Step::Rates => self.rates(history),
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
