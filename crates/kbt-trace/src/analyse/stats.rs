//! From a role's sums to the numbers of the outcome, in cycles, with what the clock cannot tell left out.

use super::gather::{RoleSum, SmSum, StepSum, StuckSum, WaitSum};
use super::parallel::Rule;
use super::releases::releasers;
use super::tally::Tally;
use crate::outcome::{EventStats, Hardware, Place, Quantiles, RoleStats, StuckWait, WaitStats};
use crate::{BarrierPurpose, ProblemKind, Problems, Releaser, StepRule, TraceInfo};
use std::collections::BTreeMap;

/// Ticks to cycles.
pub(super) struct Scale {
    pub(super) cycles_per_tick: f64,
    pub(super) quantum_ticks: u64,
}

impl Scale {
    /// A mean of ticks, in cycles.
    pub(super) fn mean(&self, ticks: f64) -> f64 {
        ticks * self.cycles_per_tick
    }

    /// Quantiles in cycles; `None` for an empty tally.
    pub(super) fn quantiles(&self, tally: &Tally) -> Option<Quantiles> {
        let at = |q| tally.quantile(q).map(|ticks| ticks * self.cycles_per_tick);
        Some(Quantiles { median: at(0.5)?, p10: at(0.1)?, p90: at(0.9)? })
    }

    pub(super) fn median(&self, tally: &Tally) -> Option<f64> {
        tally.quantile(0.5).map(|ticks| ticks * self.cycles_per_tick).filter(|_| self.tells(tally))
    }

    /// The mean of one duration, where the clock tells it.
    pub(super) fn told_mean(&self, tally: &Tally) -> Option<f64> {
        tally.mean().map(|ticks| self.mean(ticks)).filter(|_| self.tells(tally))
    }

    /// Whether the clock is fine enough for these durations; of none it need not be.
    pub(super) fn tells(&self, tally: &Tally) -> bool {
        tally.quantile(0.5).is_none_or(|median| median >= 2.0 * self.quantum_ticks as f64)
    }

    /// The same for one duration.
    pub(super) fn tells_ticks(&self, ticks: f64) -> bool {
        ticks >= 2.0 * self.quantum_ticks as f64
    }
}

/// A wait on an open barrier costs less than this many cycles: a test of the barrier and the two records around it.
/// The traces recorded on an H200 hold their shortest waits at 68 to 80 and the usual wait on an open barrier at 80 to
/// 180. Where every wait is longer, all of them blocked and none tells what an open barrier costs.
pub(super) const OPEN_WAIT_CYCLES: f64 = 200.0;

/// Of a role's steps in means, and in lanes too short for a steady state, the latter may be this part: they may be other
/// steps than the rest, as where a causal mask leaves some CTAs little to do.
const SHORT_PERCENT: f64 = 10.0;
/// Of a role's steps this part may have lost records: what is lost is often what was slow.
const LOST_PERCENT: f64 = 1.0;

/// What a wait costs with nothing to wait for, in ticks, at most: the shortest wait, or the usual time from an arrival
/// to the end of the wait that it ends, since that holds a successful test of the barrier too. `None` where neither is
/// as short as a wait on an open barrier.
pub(super) fn wait_floor(roles: &[RoleSum], scale: &Scale) -> Option<f64> {
    let waits = roles.iter().filter_map(|r| r.shortest_wait).map(|ticks| ticks as f64);
    let trips = roles.iter().flat_map(|r| r.sums().waits()).filter_map(|(_, w)| w.round_trip.quantile(0.5));
    let floor = waits.chain(trips).min_by(f64::total_cmp)?;
    (scale.mean(floor) <= OPEN_WAIT_CYCLES).then_some(floor)
}

/// The numbers of one role.
pub(super) fn role(
    index: usize,
    (sum, rule): (&RoleSum, Option<Rule>),
    info: &TraceInfo,
    scale: &Scale,
    floor: f64,
    problems: &mut Problems,
) -> RoleStats {
    let name = info.role_name(index);
    let (sums, places) = (sum.sums(), sum.places());
    let steps = sums.steps();
    note(&name, sum, rule, problems);
    // A mean over many steps is finer than the clock, but what it is made of is not.
    let told = scale.tells(&sums.period);
    let busy = sum.has_waits.then(|| sums.busy.mean()).flatten().filter(|_| told);
    let waits: Vec<_> = sums.waits().map(|(id, w)| wait(id, w, index, steps, info, scale)).collect();
    for (id, w) in sums.waits() {
        problems.add(ProblemKind::ReleaseCut, Some(&name), w.cut, || format!("of {}", info.barrier_name(id)));
    }
    let events: Vec<_> = sums
        .events()
        .map(|(id, event)| {
            let told = scale.tells(&event.each);
            let per_step = |total: f64| if steps > 0 { total / steps as f64 } else { 0.0 };
            EventStats {
                name: info.event_name(id),
                cycles: told.then(|| scale.mean(per_step(event.each.total() as f64))),
                busy_cycles: told.then(|| scale.mean(per_step(event.own.total() as f64))),
                each_cycles: scale.quantiles(&event.each).filter(|_| told),
                per_step: per_step(event.each.count() as f64),
            }
        })
        .collect();
    let refused = waits.iter().filter(|w| w.cycles.is_none()).count()
        + events.iter().filter(|e| e.cycles.is_none()).count()
        + usize::from(steps > 0 && !told);
    problems.add(ProblemKind::BelowQuantum, Some(&name), refused as u64, || {
        format!("the clock steps by {} ticks", scale.quantum_ticks)
    });
    RoleStats {
        steps: sum.starts,
        step_starts_at: match rule.map(|rule| rule.step) {
            Some(StepRule::Wait(id)) => format!("wait on {}", info.barrier_name(id)),
            Some(StepRule::Event(id)) => format!("begin of {}", info.event_name(id)),
            _ => "unknown".into(),
        },
        period_cycles: scale.quantiles(&sums.period).filter(|_| told),
        mean_period_cycles: sums.period.mean().filter(|_| told).map(|p| scale.mean(p)),
        busy_cycles: busy.map(|b| scale.mean(b)),
        busy_spread_cycles: busy.and_then(|_| scale.quantiles(&sums.busy)),
        slack_cycles: busy.map(|_| scale.mean(slack(sums, floor))),
        steady_steps: steps,
        prologue_cycles: scale.median(&sum.prologue),
        tail_cycles: scale.median(&sum.tail),
        over_ctas_cycles: over(places.by_lane.iter().map(|l| l.0), scale).filter(|_| told),
        slowest: slowest(&places.by_lane),
        over_sms_cycles: over(places.by_sm.values().map(sm_mean), scale).filter(|_| told),
        slowest_sm: slowest_sm(&places.by_sm),
        stuck: sum.stuck.iter().filter_map(|(&id, stuck)| self::stuck(id, stuck, info, scale)).collect(),
        work: info.roles.get(index).map(|r| r.work).filter(|w| w.is_stated()),
        waits,
        events,
        name,
    }
}

/// Blocked ticks a step: waits beyond the floor.
fn slack(sums: &StepSum, floor: f64) -> f64 {
    let steps = sums.steps().max(1) as f64;
    let of = |w: &WaitSum| w.in_steps as f64 - w.each.count() as f64 * floor;
    sums.waits().map(|(_, w)| of(w).max(0.0)).sum::<f64>() / steps
}

fn stuck(id: u16, sum: &StuckSum, info: &TraceInfo, scale: &Scale) -> Option<StuckWait> {
    let (first, since) = sum.first?;
    Some(StuckWait {
        on: info.barrier_name(id),
        ctas: sum.ctas,
        first,
        since_cycles: scale.mean(since as f64),
    })
}

fn wait(id: u16, sum: &WaitSum, role: usize, steps: u64, info: &TraceInfo, scale: &Scale) -> WaitStats {
    let told = scale.tells(&sum.each);
    let steps = steps.max(1) as f64;
    let (mut released_by, mut hardware): (Vec<String>, _) = (Vec::new(), None);
    for releaser in releasers(&info.edges, id, role) {
        let by = match releaser {
            Releaser::Role(index) => Some(index),
            Releaser::Hardware { issuer } => {
                let work = issuer.and_then(|i| info.roles.get(i)).map(|r| r.work).unwrap_or_default();
                let by = match (work.load, work.tensor) {
                    (true, false) => Hardware::Tma,
                    (false, true) => Hardware::Mma,
                    _ => Hardware::Unstated,
                };
                // Of a barrier that both complete it is not known which ended a wait.
                hardware =
                    Some(if hardware.is_none_or(|other| other == by) { by } else { Hardware::Unstated });
                issuer
            }
        };
        released_by.extend(by.map(|index| info.role_name(index)).filter(|name| !released_by.contains(name)));
    }
    let known = sum.ready + sum.round_trip.count();
    WaitStats {
        on: info.barrier_name(id),
        cycles: told.then(|| scale.mean(sum.in_steps as f64 / steps)),
        each_cycles: scale.quantiles(&sum.each).filter(|_| told),
        per_step: sum.each.count() as f64 / steps,
        released_by,
        hardware,
        handoff: info.barriers.get(usize::from(id)).is_some_and(|b| b.purpose != BarrierPurpose::Plain),
        ready_percent: (known > 0).then(|| 100.0 * sum.ready as f64 / known as f64),
        round_trip_cycles: scale.quantiles(&sum.round_trip).filter(|_| scale.tells(&sum.round_trip)),
    }
}

/// Means against each other; `None` for a single one.
fn over(means: impl Iterator<Item = f64>, scale: &Scale) -> Option<Quantiles> {
    let mut means: Vec<f64> = means.collect();
    means.sort_by(f64::total_cmp);
    let last = means.len().checked_sub(1)?;
    let at = |q: f64| {
        let place = q * last as f64;
        let (below, above) = (means[place.floor() as usize], means[place.ceil() as usize]);
        scale.mean(below + (above - below) * place.fract())
    };
    (last > 0).then(|| Quantiles { median: at(0.5), p10: at(0.1), p90: at(0.9) })
}

fn sm_mean(sm: &SmSum) -> f64 {
    sm.ticks as f64 / sm.steps.max(1) as f64
}

/// Of equals the first by number, whatever the order in which they were summed.
fn slowest(lanes: &[(f64, Place)]) -> Option<Place> {
    let first = |place: &Place| std::cmp::Reverse((place.cta, place.smid));
    let later =
        |a: &&(f64, Place), b: &&(f64, Place)| a.0.total_cmp(&b.0).then(first(&a.1).cmp(&first(&b.1)));
    lanes.iter().max_by(later).map(|lane| lane.1)
}

fn slowest_sm(sms: &BTreeMap<u32, SmSum>) -> Option<u32> {
    // Backwards, since of equals the last is taken.
    sms.iter().rev().max_by(|a, b| sm_mean(a.1).total_cmp(&sm_mean(b.1))).map(|(sm, _)| *sm)
}

fn note(name: &str, sum: &RoleSum, rule: Option<Rule>, problems: &mut Problems) {
    let found = [
        (ProblemKind::StepGuessed, rule.is_some_and(|r| r.guessed) && sum.starts > 0),
        (ProblemKind::NoSteps, sum.sums().steps() == 0),
        (ProblemKind::NoWaits, !sum.has_waits),
        (ProblemKind::PrologueOnly, sum.sums().steps() > 0 && !sum.is_steady()),
    ];
    for (kind, seen) in found {
        problems.add(kind, Some(name), u64::from(seen), String::new);
    }
    let percent = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
    let (lanes, short) = sum.left_out();
    let share = percent(short, sum.steady.steps() + short);
    let kind = if share > SHORT_PERCENT { ProblemKind::MostlyShort } else { ProblemKind::ShortLanes };
    problems.add(kind, Some(name), lanes as u64, || {
        format!("{short} steps, {share:.1} % of the whole ones; accepted {SHORT_PERCENT} %")
    });
    let share = percent(sum.lost, sum.starts);
    if share > LOST_PERCENT {
        problems.add(ProblemKind::StepsLost, Some(name), sum.lost, || {
            format!("{share:.1} % of its steps; accepted {LOST_PERCENT} %")
        });
    }
    problems.add(
        ProblemKind::StoppedEarly,
        Some(name),
        u64::from(sum.stopped_full && !sum.is_steady()),
        String::new,
    );
}
