//! From records to what a tuner needs. One CTA is in memory at a time.
//!
//! Definitions; every time is in SM cycles:
//!
//! - **step**: from one step start of a role to the next. A step starts where the recorder says: at each begin of a
//!   wait on one barrier, or of one event. Where it does not say, the role's most frequent wait is taken, else its
//!   most frequent event, and a problem says so.
//! - **steady state**: of a lane (one role in one CTA) with at least 12 whole steps, all but the first and last 2.
//!   A role with shorter lanes only is summed over all its steps, and a problem says so. All means and quantiles
//!   are over steady steps.
//! - **period**: the length of a step: median, p10, p90, mean.
//! - **wait**: from the begin of a wait on a barrier to its end. Per step it is cut at the step's edges, so that
//!   mean period = busy + time in waits, and the sum over barriers where waits do not overlap.
//! - **busy**: the time of a step outside all waits, mean. Time blocked in anything that was not recorded as a wait
//!   (`wgmma.wait_group`, a scoreboard, a store queue) counts as busy.
//! - **event time**: from begin to end, waits inside included.
//! - **wait floor**: the shortest wait of the trace: what a wait costs with nothing to wait for, at most.
//! - **blocked time** of a wait: what it takes beyond the floor.
//! - **slack**: blocked time a step. A role could do that much more each step and still keep the pace.
//! - **ready**: a wait whose last recorded arrival came before its begin.
//! - **round trip**: from the recorded arrival to the end of the wait that it released.
//! - **prologue**: from open() to the first steady step; **tail**: from the last steady step to close(). Both only
//!   where nothing was overwritten.
//!
//! Quantiles interpolate linearly between ranks. A duration whose median is below two steps of the clock is refused.

mod critical;
mod gather;
mod handoff;
mod releases;
mod stats;
mod tally;
mod timeline;
mod walk;

use crate::observe::{DEFAULT_LIMIT_PERCENT, ObserverReport};
use crate::outcome::{Absolute, CleanStep, Place, SCHEMA, TraceFacts, TraceOutcome};
use crate::{
    CtaTrace, Kind, Level, ProblemKind, Problems, Releaser, Source, StepRule, TraceError, TraceInfo,
};
pub(crate) use critical::slack_percent;
use gather::RoleSum;
use kbt_evidence::{Figure, Provenance};
use releases::Arrivals;
use std::collections::BTreeSet;

/// The clean kernel, to put its step beside the trace's.
#[derive(Debug, Clone, PartialEq)]
pub struct CleanRun {
    /// Time of one launch, in microseconds.
    pub time: Figure,
    /// SM clock during it, in MHz.
    pub sm_clock: Figure,
    /// The role whose steps are counted.
    pub role: String,
    /// Steps of that role that one SM does one after the other in a launch.
    pub steps_per_sm: f64,
}

/// What the analysis is told beside the trace.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AnalyseOptions {
    /// The file's name, for messages and provenance.
    pub name: String,
    /// How the trace is known; by default what its own text says, read back.
    pub provenance: Option<Provenance>,
    /// What the looking costs.
    pub observer: Option<ObserverReport>,
    /// The clean kernel.
    pub clean: Option<CleanRun>,
    /// Only this CTA.
    pub cta: Option<u32>,
    /// Steps of the timeline; 0 for none.
    pub timeline_steps: usize,
}

/// Analyses a trace to its end.
///
/// # Errors
/// If the source fails, holds no record, or counts nanoseconds and no SM clock is known.
pub fn analyse(source: &mut dyn Source, options: &AnalyseOptions) -> Result<TraceOutcome, TraceError> {
    let info = source.info().clone();
    let clock = info.clock;
    let cycles_per_tick = clock.cycles_per_tick().ok_or_else(|| TraceError::NeedsClock {
        name: options.name.clone(),
        quantum_ns: clock.quantum_ticks(),
    })?;
    let mut all = Gathered { quantum: clock.quantum_ticks(), ..Gathered::default() };
    let mut cta = CtaTrace::default();
    while source.next_cta(&mut cta)? {
        if options.cta.is_none_or(|only| only == cta.cta) {
            all.cta(&cta, &info, options.timeline_steps, cycles_per_tick);
        }
    }
    if all.records == 0 {
        let why = match options.cta {
            Some(cta) => format!("CTA {cta} has none"),
            None => "every lane is empty".into(),
        };
        return Err(TraceError::Empty { name: options.name.clone(), why });
    }
    let mut problems = source.problems().clone();
    problems.merge(&all.problems);
    all.finish(&info, options, cycles_per_tick, problems)
}

/// Sums over the CTAs seen.
#[derive(Default)]
struct Gathered {
    roles: Vec<RoleSum>,
    arrivals: Arrivals,
    any_arrival: bool,
    walk: walk::Walk,
    problems: Problems,
    quantum: u64,
    ctas: u64,
    records: u64,
    sms: BTreeSet<u32>,
    timeline: Option<crate::outcome::Timeline>,
}

impl Gathered {
    fn cta(&mut self, cta: &CtaTrace, info: &TraceInfo, timeline_steps: usize, cycles_per_tick: f64) {
        self.ctas += 1;
        self.sms.extend(cta.smid);
        self.arrivals.collect(cta);
        self.any_arrival |= cta.lanes.iter().flat_map(|l| &l.events).any(|e| e.kind == Kind::Arrive);
        for lane in &cta.lanes {
            if lane.role >= self.roles.len() {
                self.roles.resize_with(lane.role + 1, RoleSum::default);
            }
            let role = &mut self.roles[lane.role];
            self.records += lane.events.len() as u64;
            role.has_waits |= lane.events.iter().any(|e| e.kind == Kind::WaitBegin);
            if role.rule.is_none() && !lane.events.is_empty() {
                let stated = info.roles.get(lane.role).map_or(StepRule::Unstated, |r| r.step);
                role.guessed = stated == StepRule::Unstated;
                role.rule = Some(if role.guessed { walk::guess_rule(lane) } else { stated });
            }
            let place = Place { cta: cta.cta, smid: cta.smid };
            let released = |barrier| {
                releases::releasers(&info.edges, barrier, lane.role).any(|r| matches!(r, Releaser::Role(_)))
            };
            let walked = role.lane(&mut self.walk, lane, place, &self.arrivals, &released);
            let name = info.role_name(lane.role);
            for (kind, count) in walked.odd {
                self.problems.add(kind, Some(&name), count, || format!("first in CTA {}", cta.cta));
            }
        }
        if self.timeline.is_none() && timeline_steps > 0 {
            let rules: Vec<_> = self.roles.iter().map(|r| r.rule.unwrap_or(StepRule::Unstated)).collect();
            self.timeline = timeline::cut(cta, info, &rules, timeline_steps, cycles_per_tick);
        }
    }

    fn finish(
        self,
        info: &TraceInfo,
        options: &AnalyseOptions,
        cycles_per_tick: f64,
        mut problems: Problems,
    ) -> Result<TraceOutcome, TraceError> {
        let scale = stats::Scale { cycles_per_tick, quantum_ticks: self.quantum };
        let floor = stats::wait_floor(&self.roles);
        let mut roles = Vec::new();
        for (index, sum) in self.roles.iter().enumerate().filter(|(_, sum)| sum.lanes > 0) {
            roles.push(stats::role(index, sum, info, &scale, floor, &mut problems));
        }
        if !self.any_arrival && roles.iter().any(|r| !r.waits.is_empty()) {
            problems.add(ProblemKind::NoArrivals, None, 1, String::new);
        }
        let critical = critical::find(&roles);
        let handoff = handoff::find(&self.roles, info, &scale);
        let provenance = options.provenance.clone().unwrap_or_else(|| provenance(info, &options.name));
        let absolute = absolute(info.level, options.observer.as_ref());
        let clean = options.clean.as_ref().map(|c| clean_step(c, &roles, &provenance)).transpose()?;
        Ok(TraceOutcome {
            schema: SCHEMA.to_owned(),
            trace: TraceFacts {
                format: info.format,
                level: info.level,
                kernel: info.meta.get("kernel").cloned(),
                sm_clock_mhz: info.clock.sm_mhz(),
                quantum_cycles: self.quantum as f64 * cycles_per_tick,
                ctas: self.ctas,
                sms: self.sms.len() as u64,
                records: self.records,
            },
            provenance,
            absolute,
            roles,
            wait_floor_cycles: floor.map(|f| f as f64 * cycles_per_tick),
            critical,
            handoff,
            observer: options.observer.clone(),
            clean,
            problems: problems.list(),
            timeline: self.timeline,
        })
    }
}

/// What the trace's own text says of where it comes from.
fn provenance(info: &TraceInfo, name: &str) -> Provenance {
    let meta = |key: &str| info.meta.get(key).filter(|v| !v.trim().is_empty());
    let (Some(device), Some(date)) = (meta("device"), meta("date")) else {
        return Provenance::given(format!("{name}, a trace that does not name its device and date"));
    };
    let command = meta("command").map_or(name, String::as_str);
    let mut provenance = Provenance::measured(command, device, date);
    if let Some(driver) = meta("driver") {
        provenance = provenance.with_driver(driver);
    }
    if let Some(mhz) = info.clock.sm_mhz() {
        provenance = provenance.with_sm_clock_mhz(mhz);
    }
    provenance.read_back()
}

/// The observer gate: what may be said of cycles as such.
fn absolute(level: Option<Level>, observer: Option<&ObserverReport>) -> Absolute {
    if level == Some(Level::Detail) {
        let reason =
            "recorded at level detail, which changes what the compiler interleaves; use a coarse trace";
        return Absolute::Refused { reason: reason.into() };
    }
    let Some((report, coarse)) = observer.and_then(|o| Some((o, o.level(Level::Coarse)?))) else {
        let reason = format!(
            "what the tracer costs was not measured; time the kernel at off and coarse, alternating, and accept at \
             most {DEFAULT_LIMIT_PERCENT} %"
        );
        return Absolute::Unknown { reason };
    };
    let (cost, limit) = (coarse.high_percent, report.limit_percent);
    let says = format!("coarse tracing costs {:.2} % (at most {cost:.2} %)", coarse.inflation_percent);
    if cost <= limit {
        Absolute::Accepted { reason: format!("{says}, within the limit of {limit} %") }
    } else {
        Absolute::Refused { reason: format!("{says}, above the limit of {limit} %") }
    }
}

fn clean_step(
    clean: &CleanRun,
    roles: &[crate::outcome::RoleStats],
    trace: &Provenance,
) -> Result<CleanStep, TraceError> {
    let argument = |what, found: String, accepted: String| TraceError::Argument { what, found, accepted };
    if !(clean.steps_per_sm.is_finite() && clean.steps_per_sm > 0.0) {
        return Err(argument("steps_per_sm", clean.steps_per_sm.to_string(), "a positive number".into()));
    }
    let names = || roles.iter().map(|r| r.name.as_str()).collect::<Vec<_>>().join(", ");
    let period = roles.iter().find(|r| r.name == clean.role).and_then(|r| r.mean_period_cycles);
    let period =
        period.ok_or_else(|| argument("clean role", clean.role.clone(), format!("one of {}", names())))?;
    let implied = clean.time.value * clean.sm_clock.value / clean.steps_per_sm;
    let inputs = [
        (clean.time.name.as_str(), &clean.time.provenance),
        (clean.sm_clock.name.as_str(), &clean.sm_clock.provenance),
        ("trace period", trace),
    ];
    Ok(CleanStep {
        role: clean.role.clone(),
        implied_cycles: implied,
        inflation_ratio: period / implied,
        provenance: Provenance::computed("clean time x SM clock / steps an SM does in turn", inputs),
    })
}
