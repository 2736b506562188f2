//! Step 2: a coarse trace of the target where its file says how to make one, and what the looking cost.

use super::TargetTuner;
use super::found::failed;
use crate::recording::TRACE_FILE;
use crate::steps::{fatal, measured_by};
use crate::{Backend, StepFailure, StepOutput};
use kbt_target::{LaunchRequest, Launcher, TraceLevel};
use kbt_trace::observe::{DEFAULT_LIMIT_PERCENT, ObserverReport};
use kbt_trace::outcome::TraceOutcome;
use kbt_trace::{AnalyseOptions, Input, Level, ReadOptions, analyse};
use std::fs::File;

/// Rounds over the levels, each timing every level once; the fewest that the observer's report takes, and more.
const ROUNDS_QUICK: usize = 6;
const ROUNDS: usize = 8;

impl TargetTuner<'_> {
    pub(super) fn trace(&mut self) -> Result<StepOutput, StepFailure> {
        let Some(trace) = self.target.trace.clone() else {
            return Err(StepFailure::Refused {
                reason: format!("target {} gives no trace", self.target.name),
                needs: "a `trace:` in the target file, of a format that `kbt trace stats` reads; kbt/trace.cuh records one \
                        in CUDA C++"
                    .into(),
            });
        };
        if !self.is_live() {
            if let Backend::Recorded(r) = self.backend
                && let Some(bytes) = r.file(&self.key(), TRACE_FILE)
            {
                crate::rundir::write_atomic(&self.run.join(TRACE_FILE), bytes).map_err(fatal)?;
            }
            return self.replay::<TraceOutcome>(kbt_evidence::Step::Trace, "trace");
        }
        self.launchable()?;
        let Some(input) = input_named(&trace.format) else {
            return Err(refused(format!(
                "trace format `{}` is not known; known: {}",
                trace.format,
                Input::ALL.map(Input::as_str).join(", ")
            )));
        };
        if !trace.levels.contains_key(&TraceLevel::Coarse) {
            return Err(refused("the target file names no level `coarse` of its trace".into()));
        }
        let levels: Vec<(Level, Option<TraceLevel>)> = std::iter::once((Level::Off, None))
            .chain(trace.levels.keys().map(|l| (level(*l), Some(*l))))
            .collect();
        let launcher = self.launcher();
        let setting = self.target.default_setting();
        let path = self.run.join(TRACE_FILE);
        let mut samples: Vec<(Level, Vec<f64>)> = levels.iter().map(|(l, _)| (*l, Vec::new())).collect();
        let mut known = None;
        for round in 0..if self.quick { ROUNDS_QUICK } else { ROUNDS } {
            // Forwards and backwards in turn, so that drift within a round cancels.
            let order: Vec<usize> =
                if round % 2 == 0 { (0..levels.len()).collect() } else { (0..levels.len()).rev().collect() };
            for index in order {
                let (level, recording) = levels[index];
                let out = match level {
                    Level::Coarse => path.clone(),
                    _ => self.run.join(format!("{level}.trace")),
                };
                let request = LaunchRequest {
                    trace: recording.map(|l| (l, out.clone())),
                    ..self.timed(setting.clone())?
                };
                launcher.cool_down(self.target.limits.cooldown_s);
                let launch = launcher.launch(&request);
                let Some(sample) = launch.sample().filter(|_| launch.is_ok()) else {
                    return Err(refused(failed(&format!("the run at trace level {level}"), &launch)));
                };
                samples[index].1.push(sample.time_us);
                if level == Level::Off {
                    known = Some(measured_by(&launch, "kbt tune: trace levels in turn", sample.clock_mhz));
                } else if level != Level::Coarse && out.exists() {
                    // Only its cost was wanted: a verdict from a detailed trace is refused anyway.
                    std::fs::remove_file(&out).map_err(fatal)?;
                }
            }
        }
        let observer =
            known.as_ref().map(|p| ObserverReport::new(&samples, DEFAULT_LIMIT_PERCENT, p.clone()));
        let observer = observer.transpose().map_err(|e| refused(e.to_string()))?;
        let name = path.display().to_string();
        let file =
            File::open(&path).map_err(|e| refused(format!("{name}: {e}; the target wrote no trace")))?;
        let options = ReadOptions { input, ..ReadOptions::default() };
        let mut source =
            kbt_trace::open(Box::new(file), &name, &options).map_err(|e| refused(e.for_target()))?;
        let options = AnalyseOptions {
            name: TRACE_FILE.to_owned(),
            provenance: known,
            observer,
            clean: None,
            cta: None,
            timeline_steps: 4,
            threads: None,
        };
        let outcome = analyse(source.as_mut(), &options).map_err(|e| refused(e.to_string()))?;
        self.noted(&outcome, None, &[])
    }
}

fn refused(reason: String) -> StepFailure {
    StepFailure::Refused {
        reason,
        needs: "`kbt target check` runs each trace level once and says what it left".into(),
    }
}

/// The reader of a format, by the names that options take.
pub(super) fn input_named(name: &str) -> Option<Input> {
    Input::ALL.into_iter().find(|i| i.as_str() == name || (i.as_str() == "fa4-fp4" && name == "fa4"))
}

const fn level(l: TraceLevel) -> Level {
    match l {
        TraceLevel::Off => Level::Off,
        TraceLevel::Barrier => Level::Barrier,
        TraceLevel::Coarse => Level::Coarse,
        TraceLevel::Detail => Level::Detail,
    }
}
