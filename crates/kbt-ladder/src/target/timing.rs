//! Times of the target's processes as figures, and what could not be timed as a refusal.

use super::TargetTuner;
use super::found::failed;
use crate::StepFailure;
use crate::steps::{fatal, measured_by};
use kbt_evidence::{Figure, Unit};
use kbt_target::{Launch, LaunchRequest, Launcher, Setting, stats};

impl TargetTuner<'_> {
    /// A run of a setting on the first input set that must print its time.
    pub(super) fn timed(&self, setting: Setting) -> Result<LaunchRequest, StepFailure> {
        let inputs = self.inputs(0);
        std::fs::create_dir_all(&inputs).map_err(|e| fatal(format!("{}: {e}", inputs.display())))?;
        Ok(LaunchRequest { inputs: Some(inputs), ..LaunchRequest::timed(setting) })
    }

    /// The median time of a setting over fresh processes, with the last of them.
    pub(super) fn time(
        &mut self,
        setting: &Setting,
        processes: usize,
    ) -> Result<(Figure, Launch), StepFailure> {
        self.launchable()?;
        let request = self.timed(setting.clone())?;
        let launcher = self.launcher();
        let (mut times, mut last) = (Vec::new(), None);
        for _ in 0..processes.max(1) {
            launcher.cool_down(self.target.limits.cooldown_s);
            let launch = launcher.launch(&request);
            match launch.sample().filter(|_| launch.is_ok()) {
                Some(sample) => times.push(sample.time_us),
                None => {
                    return Err(StepFailure::Refused {
                        reason: format!("no time of the target: {}", failed("the run", &launch)),
                        needs: "a run that ends well and prints its time: `kbt target check` runs each command once"
                            .into(),
                    });
                }
            }
            last = Some(launch);
        }
        let (Some(median), Some(launch)) = (stats::median(&times), last) else {
            return Err(fatal("no process was timed"));
        };
        let (low, high) = times.iter().fold((f64::MAX, f64::MIN), |(l, h), t| (l.min(*t), h.max(*t)));
        let clock = launch.sample().and_then(|s| s.clock_mhz);
        let figure = Figure::new(
            "time of the target",
            median,
            Unit::Microseconds,
            measured_by(&launch, "kbt tune", clock),
        )
        .with_spread(
            low,
            high,
            format!("least to most of {} processes, each a median of launches", times.len()),
        );
        Ok((figure, launch))
    }
}
