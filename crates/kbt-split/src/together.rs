//! Points of one worker whose processes are set up together, where the target allows that.
//!
//! Checks ask for no time, so they simply run side by side, compilers inside them included. Screened processes are timed,
//! so they take turns. A process that fails takes only itself along: whoever waited behind it is started anew.

use crate::draft::{Asked, after_comparison};
use crate::error::SweepError;
use crate::journal::Probe;
use crate::point::{CheckRequest, Checked, PointRunner};
use crate::record::{Confirmation, Record};
use kbt_target::{Launch, LaunchRequest, TimingPolicy, compare_each};
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

/// What came of a request.
enum Outcome {
    /// The baseline, unless it failed this time.
    Probe(Option<Probe>),
    Point(usize, Box<Checked>),
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

    /// Runs points against another, which is finished, or the baseline alone: checks their outputs, unless that is done,
    /// then times those that may be. Each is handed on when it is finished.
    pub(crate) fn run_together(
        &self,
        asked: Vec<Asked>,
        against: usize,
        baseline: Option<&Record>,
        mut finished: impl FnMut(Result<Record, SweepError>),
    ) {
        let (mut requests, mut timed) = (Vec::new(), Vec::new());
        for asked in asked {
            match self.begun(asked) {
                Err(error) => finished(Err(error)),
                Ok((begun, Err(draft))) => finished(Ok(self.ended(begun, *draft, against, baseline, 0.0))),
                Ok((begun, Ok(check))) if begun.index == 0 => {
                    let started = Instant::now();
                    let draft = self.time_baseline(check);
                    let timed_s = started.elapsed().as_secs_f64();
                    finished(Ok(self.ended(begun, draft, against, baseline, timed_s)));
                }
                Ok((begun, Ok(check))) => {
                    requests.push(self.timed(begun.index));
                    timed.push(Some((begun, check)));
                }
            }
        }
        let bs: Vec<&LaunchRequest> = requests.iter().collect();
        let (a, rest_s) = (self.timed(against), self.spec.target.limits.cooldown_s);
        compare_each(self.launcher, &a, &bs, &self.timing(), rest_s, |compared| {
            if let Some((begun, check)) = timed.get_mut(compared.which).and_then(Option::take) {
                let draft = after_comparison(compared.result, check, against);
                finished(Ok(self.ended(begun, draft, against, baseline, compared.elapsed_s)));
            }
        });
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
            let number = launches.len().min(waiting.len());
            let ran: Vec<(Request, Launch)> = waiting.drain(..number).zip(launches).collect();
            for outcome in self.outcomes(ran, share_s) {
                match outcome? {
                    Outcome::Probe(None) => {}
                    Outcome::Probe(Some(fresh)) => {
                        probe = Some(fresh.clone());
                        seen(Seen::Probe(fresh))?;
                    }
                    Outcome::Point(index, checked) => {
                        let record = self.screened(index, *checked, probe.as_ref(), baseline);
                        seen(Seen::Point(Box::new(record)))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// What processes gave, the outputs of points checked side by side.
    fn outcomes(&self, ran: Vec<(Request, Launch)>, share_s: f64) -> Vec<Result<Outcome, SweepError>> {
        let started = Instant::now();
        let outcome = |(request, launch): (Request, Launch)| match request {
            Request::Probe(request) => Ok(Outcome::Probe(self.probed(&request, &launch, share_s))),
            Request::Point(index, request) => {
                self.judge(index, &request, launch, share_s).map(|c| Outcome::Point(index, Box::new(c)))
            }
        };
        let mut outcomes: Vec<_> = std::thread::scope(|scope| {
            let running: Vec<_> = ran.into_iter().map(|r| scope.spawn(|| outcome(r))).collect();
            running
                .into_iter()
                .map(|run| run.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
                .collect()
        });
        let check_s = started.elapsed().as_secs_f64() / count(outcomes.len());
        for outcome in outcomes.iter_mut().flatten() {
            if let Outcome::Point(_, checked) = outcome {
                checked.elapsed_s = share_s + check_s;
            }
        }
        outcomes
    }

    /// Times settings against the baseline with fresh samples and no early stop, and hands each on when it is decided.
    pub(crate) fn confirm(&self, indices: &[usize], mut confirmed: impl FnMut(Confirmation)) {
        let requests: Vec<LaunchRequest> = indices.iter().map(|i| self.timed(*i)).collect();
        let bs: Vec<&LaunchRequest> = requests.iter().collect();
        let policy = TimingPolicy { slow_margin: None, ..self.spec.timing.clone() };
        let (a, rest_s) = (self.timed(0), self.spec.target.limits.cooldown_s);
        compare_each(self.launcher, &a, &bs, &policy, rest_s, |compared| {
            let (comparison, problem) = match compared.result {
                Ok(comparison) => (Some(comparison), None),
                Err(error) => (None, Some(error.to_string())),
            };
            let index = indices[compared.which];
            confirmed(Confirmation { index, comparison, problem, elapsed_s: compared.elapsed_s });
        });
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
