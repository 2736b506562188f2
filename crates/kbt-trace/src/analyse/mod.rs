//! From records to what a tuner needs. One CTA is in memory at a time.
//!
//! Definitions; every time is in SM cycles:
//!
//! - **step**: from one step start of a role to the next. A step starts where the recorder says: at each begin of a
//!   wait on one barrier, or of one event. Where it does not say, the role's most frequent wait is taken, else its
//!   most frequent event, and a problem says so.
//! - **left out**: a step of which a record was refused, or the begin or end of a wait is missing, or that starts within a
//!   wait on the same barrier; how many is a problem. A lane where that holds of more than half the steps has a recorder
//!   that writes no ends, or records several warps as one: its steps are kept. Above 1 % of a role's steps, with those of
//!   which an event does not end, no gate passes and no absolute number is accepted.
//! - **steady state**: of a lane (one role in one CTA) with at least 12 whole steps, all but the first and last 2.
//!   A role with shorter lanes only is summed over all its steps, and a problem says so. Where some lanes are longer, the
//!   steps of the shorter ones are left out; above 10 % of the whole steps no gate passes. All means and quantiles
//!   are over steady steps.
//! - **period**: the length of a step: median, p10, p90, mean.
//! - **wait**: from the begin of a wait on a barrier to its end. Per step it is cut at the step's edges, so that
//!   mean period = busy + time in waits, and the sum over barriers where waits do not overlap.
//! - **busy**: the time of a step outside all waits, mean. Time blocked in anything that was not recorded as a wait
//!   (`wgmma.wait_group`, a scoreboard, a store queue) counts as busy.
//! - **event time**: from begin to end, waits inside included.
//! - **wait floor**: what a wait costs with nothing to wait for, at most: the shortest wait of the trace, prologue and
//!   tail included, or the shortest of its barriers' median round trips where that is less. Above 200 cycles neither
//!   is a wait on an open barrier: then the floor is 0, blocked time is all the time in waits, and a problem says so.
//! - **blocked time** of a wait: what it takes beyond the floor.
//! - **slack**: blocked time a step. A role could do that much more each step and still keep the pace.
//! - **ready**: a wait whose last recorded arrival came before its begin, of those at a time when every role that
//!   arrives on the barrier recorded.
//! - **round trip**: from the recorded arrival to the end of the wait that it released.
//! - **handoff's waits** (first, rest, free): the mean of one wait over all barriers of that purpose. Two buffers may
//!   wait in two ways, as where the consumer takes the first late and the second at once: the median of both together
//!   would be a wait that never happens. Chunk, tile and round trip are medians.
//! - **ring**: buffers that producers fill and consumers free, by a barrier *full* and a barrier *empty*. A slot is
//!   taken from the last producer's arrival on *full* (for TMA: from the issue) to the last consumer's on *empty*;
//!   where arrivals on both were not recorded, slots *ahead* are counted by waits, from the producer's getting the slot
//!   to the last consumer's. Both are weighted by time, from the first change to the last in each CTA, or to where the
//!   first of its lanes stopped recording. Where a record is missing they are counted up to there, and from there on
//!   back from the last change. The most seen at once is a lower bound of the ring's depth.
//! - **over CTAs**, **over SMs**: each lane's own mean steady step, and the mean over each SM's steady steps, of the
//!   same lanes.
//! - **prologue**: from open() to the first steady step; **tail**: from the last steady step to close(). Both only
//!   where nothing was overwritten.
//!
//! Quantiles interpolate linearly between ranks; durations from 2^16 ticks on enter them rounded down by less than
//! 0.004 %. A duration whose median is below two steps of the clock is refused, and with a period what follows from it.

mod critical;
mod damage;
mod gather;
mod handoff;
mod occupied;
mod parallel;
mod releases;
mod stats;
mod tally;
mod timeline;
mod walk;

use crate::observe::{DEFAULT_LIMIT_PERCENT, ObserverReport};
use crate::outcome::{Absolute, CleanStep, SCHEMA, TraceFacts, TraceOutcome};
use crate::rings::{self, Ring};
use crate::text::digits;
use crate::{Level, Problem, ProblemKind, Problems, Source, TraceError, TraceInfo, spelt};
pub(crate) use critical::{CRITICAL_PERCENT, slack_percent};
use kbt_evidence::{Figure, Provenance};
use parallel::{Gathered, Task, gather};
use std::num::NonZeroUsize;

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
    /// Threads to work on; by default as many as the machine runs at once. The outcome does not depend on it.
    pub threads: Option<NonZeroUsize>,
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
    let (rings, unpaired) = rings::find(&info);
    let task = Task {
        info: &info,
        rings: &rings,
        only_cta: options.cta,
        timeline_steps: options.timeline_steps,
        cycles_per_tick,
    };
    let threads = options.threads.or_else(|| std::thread::available_parallelism().ok());
    let all = gather(source, &task, threads.map_or(1, NonZeroUsize::get))?;
    if all.records == 0 {
        let why = match options.cta {
            Some(cta) => format!("CTA {cta} has none"),
            None => "every lane is empty".into(),
        };
        return Err(source.problems().empty(&options.name, why));
    }
    let mut problems = source.problems().clone();
    all.problems(&info, &mut problems);
    problems.add(ProblemKind::NoOccupancy, None, unpaired.len() as u64, || {
        unpaired.iter().map(|&id| info.barrier_name(id)).collect::<Vec<_>>().join(", ")
    });
    finish(all, &info, &rings, options, problems)
}

/// From the sums to the outcome.
fn finish(
    all: Gathered,
    info: &TraceInfo,
    rings: &[Ring],
    options: &AnalyseOptions,
    mut problems: Problems,
) -> Result<TraceOutcome, TraceError> {
    let cycles_per_tick = info.clock.cycles_per_tick().unwrap_or(1.0);
    let scale = stats::Scale { cycles_per_tick, quantum_ticks: info.clock.quantum_ticks() };
    let floor = stats::wait_floor(&all.roles, &scale);
    let any_wait = all.roles.iter().any(|r| r.shortest_wait.is_some());
    problems.add(ProblemKind::NoOpenWait, None, u64::from(any_wait && floor.is_none()), || {
        format!("at most {} clk", stats::OPEN_WAIT_CYCLES)
    });
    let mut roles = Vec::new();
    for (index, sum) in all.roles.iter().enumerate().filter(|(_, sum)| sum.lanes > 0) {
        let rule = all.rules.get(index).copied().flatten();
        roles.push(stats::role(index, (sum, rule), info, &scale, floor.unwrap_or(0.0), &mut problems));
    }
    if !all.any_arrival && roles.iter().any(|r| !r.waits.is_empty()) {
        problems.add(ProblemKind::NoArrivals, None, 1, String::new);
    }
    let ring_stats = all.rings.finish(rings, info, &scale, &mut problems);
    let critical = critical::find(&roles, info.level);
    let handoff = handoff::find(&all.roles, info, &scale);
    let provenance = options.provenance.clone().unwrap_or_else(|| provenance(info, &options.name));
    let clean = options.clean.as_ref().map(|c| clean_step(c, &roles, &provenance)).transpose()?;
    let problems = problems.list();
    let absolute = absolute(info.level, options.observer.as_ref(), clean.as_ref(), &problems);
    Ok(TraceOutcome {
        schema: SCHEMA.to_owned(),
        trace: TraceFacts {
            format: info.format,
            level: info.level,
            kernel: info.meta.get("kernel").cloned(),
            sm_clock_mhz: info.clock.sm_mhz(),
            quantum_cycles: scale.quantum_ticks as f64 * cycles_per_tick,
            ctas: all.ctas,
            sms: all.sms.len() as u64,
            records: all.records,
        },
        provenance,
        absolute,
        roles,
        wait_floor_cycles: floor.filter(|f| scale.tells_ticks(*f)).map(|f| f * cycles_per_tick),
        rings: ring_stats,
        critical,
        handoff,
        observer: options.observer.clone(),
        clean,
        problems,
        timeline: all.timeline,
    })
}

/// What the trace's own text says of where it comes from.
pub(crate) fn provenance(info: &TraceInfo, name: &str) -> Provenance {
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

/// A trace's step shorter than this part of the clean kernel's is not the same step.
const SHORT_RATIO: f64 = 0.5;

/// The observer gate: what may be said of cycles as such.
fn absolute(
    level: Option<Level>,
    observer: Option<&ObserverReport>,
    clean: Option<&CleanStep>,
    problems: &[Problem],
) -> Absolute {
    if level == Some(Level::Detail) {
        let reason =
            "recorded at level detail, which changes what the compiler interleaves; use a coarse trace";
        return Absolute::Refused { reason: reason.into() };
    }
    if let Some(problem) = problems.iter().find(|p| p.kind.damages()) {
        return Absolute::Refused { reason: format!("the trace is cut or damaged: {problem}") };
    }
    let limit = observer.map_or(DEFAULT_LIMIT_PERCENT, |o| o.limit_percent);
    // A launch's time holds prologue and tail too, so that a step of it is somewhat longer; half of it is another step.
    if let Some(clean) = clean.filter(|c| c.inflation_ratio < SHORT_RATIO) {
        let reason = format!(
            "the trace's step of {} is {:.3} times the clean kernel's by its time, less than {SHORT_RATIO}: the steps of \
             an SM, the clock or the role are another run's",
            clean.role, clean.inflation_ratio
        );
        return Absolute::Refused { reason };
    }
    if let Some(clean) = clean.filter(|c| 100.0 * (c.inflation_ratio - 1.0) > limit) {
        let reason = format!(
            "the trace's step of {} is {:.3} times the clean kernel's by its time, above the limit of {limit} %",
            clean.role, clean.inflation_ratio
        );
        return Absolute::Refused { reason };
    }
    let Some((report, coarse)) = observer.and_then(|o| Some((o, o.level(Level::Coarse)?))) else {
        let reason = format!(
            "what the tracer costs was not measured; time the kernel at off and coarse, alternating, and accept at \
             most {DEFAULT_LIMIT_PERCENT} %"
        );
        return Absolute::Unknown { reason };
    };
    let (cost, limit) = (coarse.high_percent, report.limit_percent);
    if coarse.inflation_percent < -limit {
        let reason = format!(
            "with coarse tracing the kernel is {:.2} % faster, more than the limit of {limit} %: not the same work was \
             timed, or under other clocks",
            -coarse.inflation_percent
        );
        return Absolute::Refused { reason };
    }
    let digits = digits(cost, limit);
    let says = format!("coarse tracing costs {:.2} % (at most {cost:.digits$} %)", coarse.inflation_percent);
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
    for (what, value) in [
        ("clean time in us (--clean-us)", clean.time.value),
        ("SM clock in MHz (--clock-mhz)", clean.sm_clock.value),
        ("steps of an SM (--steps-per-sm)", clean.steps_per_sm),
    ] {
        if !(value.is_finite() && value > 0.0) {
            return Err(argument(what, value.to_string(), "a positive number".into()));
        }
    }
    let names = || roles.iter().map(|r| spelt(&r.name)).collect::<Vec<_>>().join(", ");
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
