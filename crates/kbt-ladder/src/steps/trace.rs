//! Step 2: a coarse trace of the running kernel, and what the looking cost.

use super::{AttentionTuner, Size, failed, fatal, measured_by, output};
use crate::recording::TRACE_FILE;
use crate::{Backend, Origin, StepFailure, StepOutput};
use kbt_evidence::{Figure, Step, Unit};
use kbt_target::{LaunchRequest, Launcher, TraceLevel};
use kbt_trace::observe::{DEFAULT_LIMIT_PERCENT, ObserverReport};
use kbt_trace::outcome::TraceOutcome;
use kbt_trace::{AnalyseOptions, CleanRun, Level, ReadOptions, analyse};
use std::fs::File;
use std::path::Path;

/// The role whose steps are counted: one of the two that compute, since both walk every key tile.
const STEP_ROLE: &str = "Softmax0";

impl AttentionTuner<'_> {
    pub(super) fn trace(&mut self) -> Result<StepOutput, StepFailure> {
        if !self.is_live() {
            if let Backend::Recorded(r) = self.backend
                && let Some(bytes) = r.file(self.mode.as_str(), TRACE_FILE)
            {
                crate::rundir::write_atomic(&self.run.join(TRACE_FILE), bytes).map_err(fatal)?;
            }
            return self.replay::<TraceOutcome>(Step::Trace, "trace");
        }
        let rounds = if self.quick { 6 } else { 8 };
        let levels = [
            (Level::Off, None),
            (Level::Barrier, Some(TraceLevel::Barrier)),
            (Level::Coarse, Some(TraceLevel::Coarse)),
            (Level::Detail, Some(TraceLevel::Detail)),
        ];
        let launcher = self.launcher();
        let plain = self.plain();
        let path = self.run.join(TRACE_FILE);
        let mut samples: Vec<(Level, Vec<f64>)> = levels.iter().map(|(l, _)| (*l, Vec::new())).collect();
        let mut known = None;
        for round in 0..rounds {
            // Forwards and backwards in turn, so that drift within a round cancels.
            let order: Vec<usize> = if round % 2 == 0 { (0..4).collect() } else { (0..4).rev().collect() };
            for index in order {
                let (level, recording) = levels[index];
                let out = match level {
                    Level::Coarse => path.clone(),
                    _ => self.run.join(format!("{level}.kbttrace")),
                };
                let request = LaunchRequest {
                    trace: recording.map(|l| (l, out.clone())),
                    ..self.timed(plain.clone())?
                };
                launcher.cool_down(self.target.limits.cooldown_s);
                let launch = launcher.launch(&request);
                let Some(sample) = launch.sample().filter(|_| launch.is_ok()) else {
                    return Err(fatal(failed(&plain, &launch)));
                };
                samples[index].1.push(sample.time_us);
                if level == Level::Off {
                    known = Some((
                        measured_by(&launch, "kbt tune: trace levels in turn", sample.clock_mhz),
                        sample.clock_mhz,
                    ));
                } else if level != Level::Coarse && out.exists() {
                    // Only its cost was wanted: a verdict from a detailed trace is refused anyway.
                    std::fs::remove_file(&out).map_err(fatal)?;
                }
            }
        }
        let Some((p, clock)) = known else { return Err(fatal("no run without a trace")) };
        let observer = ObserverReport::new(&samples, DEFAULT_LIMIT_PERCENT, p.clone()).map_err(fatal)?;
        let clean = clock.map(|mhz| CleanRun {
            time: Figure::new(
                "time of the kernel without a trace",
                observer.off_us,
                Unit::Microseconds,
                p.clone(),
            ),
            sm_clock: Figure::new("SM clock", mhz, Unit::Megahertz, p.clone()),
            role: STEP_ROLE.to_owned(),
            steps_per_sm: Size::TUNING.steps_per_sm(self.sm_count()),
        });
        let outcome = read(&path, observer, clean, Some(p))?;
        output(Origin::Live, &outcome)
    }

    fn sm_count(&self) -> u32 {
        match self.backend {
            Backend::Live(info) => info.sm_count,
            Backend::Recorded(r) => r.profile().sm_count.unwrap_or(1),
            Backend::Model(p) => p.sm_count.unwrap_or(1),
        }
    }
}

fn read(
    path: &Path,
    observer: ObserverReport,
    clean: Option<CleanRun>,
    provenance: Option<kbt_evidence::Provenance>,
) -> Result<TraceOutcome, StepFailure> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|e| fatal(format!("{name}: {e}; the kernel wrote no trace")))?;
    let mut source = kbt_trace::open(Box::new(file), &name, &ReadOptions::default()).map_err(fatal)?;
    let options = AnalyseOptions {
        name: TRACE_FILE.to_owned(),
        provenance,
        observer: Some(observer),
        clean,
        cta: None,
        timeline_steps: 4,
        threads: None,
    };
    analyse(source.as_mut(), &options).map_err(fatal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StepRecord, rundir::write_json};
    use kbt_device::DeviceProfile;
    use serde_json::Value;

    /// Whether two values are one but for the last digits of numbers, which reading a text may change.
    fn same(a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::Object(a), Value::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
            }
            (Value::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
            }
            (Value::Number(a), Value::Number(b)) => {
                let (Some(a), Some(b)) = (a.as_f64(), b.as_f64()) else { return a == b };
                (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
            }
            _ => a == b,
        }
    }

    /// A recording keeps the trace as it was recorded; what it says of it must be what the analysis says today.
    /// `KBT_UPDATE_RECORDINGS=1` writes that into the recording.
    #[test]
    fn recorded_traces_say_what_the_analysis_says_of_them() {
        let recording = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings/h200-sxm");
        let text = |path: &Path| std::fs::read_to_string(path).unwrap();
        let profile =
            DeviceProfile::from_yaml(&text(&recording.join("profile.yaml")), "profile.yaml").unwrap();
        for mode in ["bf16", "fp8", "fp4"] {
            let step = recording.join(mode).join("2-trace.json");
            let mut stored: StepRecord = serde_json::from_str(&text(&step)).unwrap();
            let told: TraceOutcome = serde_json::from_value(stored.outcome.clone().unwrap()).unwrap();
            let (observer, known) = (told.observer.unwrap(), told.provenance);
            let figure = |name: &str, value, unit| Figure::new(name, value, unit, known.clone());
            let clean = CleanRun {
                time: figure("time of the kernel without a trace", observer.off_us, Unit::Microseconds),
                sm_clock: figure("SM clock", known.sm_clock_mhz.unwrap(), Unit::Megahertz),
                role: STEP_ROLE.to_owned(),
                steps_per_sm: Size::TUNING.steps_per_sm(profile.sm_count.unwrap()),
            };
            let trace = recording.join(mode).join(TRACE_FILE);
            let now = read(&trace, observer, Some(clean), Some(known)).unwrap();
            let now = output(stored.origin, &now).unwrap();
            let verdicts = |verdicts| serde_json::to_value(verdicts).unwrap();
            let holds = stored.headline == now.headline
                && same(&verdicts(&stored.verdicts), &verdicts(&now.verdicts))
                && same(stored.outcome.as_ref().unwrap(), &now.outcome);
            if !holds && std::env::var_os("KBT_UPDATE_RECORDINGS").is_some() {
                (stored.headline, stored.verdicts, stored.outcome) =
                    (now.headline, now.verdicts, Some(now.outcome));
                write_json(&step, &stored).unwrap();
                continue;
            }
            assert!(holds, "{mode}: the analysis says {}, the recording {}", now.headline, stored.headline);
        }
    }
}
