//! Points of one worker whose processes are set up together, where the target allows that.
//!
//! Checks ask for no time, so they simply run side by side, compilers inside them included. Screened processes are timed,
//! so they take turns. A process that fails takes only itself along: whoever waited behind it is started anew.

use crate::error::SweepError;
use crate::journal::Probe;
use crate::point::{CheckRequest, Checked, PointRunner};
use crate::record::Record;
use kbt_target::{Launch, LaunchRequest};
use std::collections::VecDeque;
use std::time::Instant;

/// What a worker of a screening runs next.
pub(crate) enum Step {
    /// The baseline.
    Probe,
    /// A point.
    Point(usize),
}

/// What came of it.
pub(crate) enum Seen {
    Probe(Probe),
    /// A point as one process brings it, or as it ended.
    Point(Box<Record>),
}

enum Request {
    Probe(LaunchRequest),
    Point(usize, CheckRequest),
}

impl Request {
    fn launch(&self) -> &LaunchRequest {
        match self {
            Self::Probe(launch) => launch,
            Self::Point(_, request) => &request.launch,
        }
    }
}

impl PointRunner<'_> {
    /// Checks the outputs of points side by side.
    pub(crate) fn check_together(&self, indices: &[usize]) -> Vec<Result<Checked, SweepError>> {
        let started = Instant::now();
        let checked = std::thread::scope(|scope| {
            let running: Vec<_> = indices.iter().map(|i| scope.spawn(|| self.checked(*i))).collect();
            let ended =
                running.into_iter().map(|run| run.join().unwrap_or_else(|p| std::panic::resume_unwind(p)));
            ended.collect::<Vec<_>>()
        });
        let share_s = started.elapsed().as_secs_f64() / count(indices.len());
        checked.into_iter().map(|c| c.map(|c| Checked { elapsed_s: share_s, ..c })).collect()
    }

    /// Screens points, and runs the baseline between them, each timed in its turn and handed on when it is judged.
    /// `probe` is the last run of the baseline before these.
    pub(crate) fn screen_together(
        &self,
        steps: &[Step],
        mut probe: Option<Probe>,
        baseline: Option<&Record>,
        mut seen: impl FnMut(Seen) -> Result<(), SweepError>,
    ) -> Result<(), SweepError> {
        let request = |step: &Step| match step {
            Step::Probe => self.probe_request().map(Request::Probe),
            Step::Point(index) => self.check_request(*index).map(|r| Request::Point(*index, r)),
        };
        let mut waiting = steps.iter().map(request).collect::<Result<VecDeque<_>, _>>()?;
        while !waiting.is_empty() {
            let started = Instant::now();
            let requests: Vec<_> = waiting.iter().map(Request::launch).collect();
            let launches = self.launcher.launch_in_turn(&requests, self.rest_s());
            let share_s = started.elapsed().as_secs_f64() / count(launches.len());
            let launches = if launches.is_empty() { vec![self.not_started()] } else { launches };
            for launch in launches {
                let Some(request) = waiting.pop_front() else { break };
                match request {
                    Request::Probe(request) => {
                        if let Some(fresh) = self.probed(&request, &launch, share_s)? {
                            probe = Some(fresh.clone());
                            seen(Seen::Probe(fresh))?;
                        }
                    }
                    Request::Point(index, request) => {
                        let checked = self.judge(index, &request, launch, share_s)?;
                        let record = self.screened(index, checked, probe.as_ref(), baseline);
                        seen(Seen::Point(Box::new(record)))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// What a launcher that starts nothing is taken to say.
    fn not_started(&self) -> Launch {
        let reason = "the launcher started nothing".to_owned();
        Launch::ended(kbt_target::Status::NotStarted { reason })
    }
}

#[allow(clippy::cast_precision_loss, reason = "a handful of processes")]
fn count(n: usize) -> f64 {
    n.max(1) as f64
}
