//! Cuts a few steps of one CTA out of the middle, for drawing.

use super::parallel::{Rule, Task};
use super::releases::{Arrivals, Release, releasers};
use super::walk::Wait;
use crate::outcome::{
    SpanKind, Timeline, TimelineArrow, TimelineRing, TimelineRow, TimelineSample, TimelineSpan,
};
use crate::rings::{self, Ring};
use crate::{CtaTrace, Event, Kind, Lane, Releaser, StepRule, TraceInfo};

/// More spans than this do not read well, and fewer steps are cut instead.
const MAX_SPANS: usize = 600;

/// A span in ticks.
struct Found {
    kind: SpanKind,
    id: u16,
    begin: u64,
    end: u64,
    depth: u32,
}

/// The steps in the middle of the lane that has most; `None` where no lane has two step starts.
pub(super) fn cut(cta: &CtaTrace, rules: &[Option<Rule>], task: &Task<'_>) -> Option<Timeline> {
    let info = task.info;
    let rule = |lane: &Lane| rules.get(lane.role).copied().flatten().map_or(StepRule::Unstated, |r| r.step);
    let lanes = cta.lanes.iter().map(|lane| (lane, starts(lane, rule(lane))));
    // Of lanes with equally many steps the first is taken.
    let (lane, starts) = lanes.fold(None, |best: Option<(&Lane, Vec<u64>)>, next| match best {
        Some(best) if best.1.len() >= next.1.len() => Some(best),
        _ => Some(next),
    })?;
    let mut steps = task.timeline_steps.min(starts.len().checked_sub(1)?).max(1);
    let first = (starts.len() - 1 - steps.min(starts.len() - 1)) / 2;
    loop {
        let window = (*starts.get(first)?, *starts.get(first + steps)?);
        let rows: Vec<_> = cta.lanes.iter().map(|lane| (lane, spans(lane, window))).collect();
        let total: usize = rows.iter().map(|(_, spans)| spans.len()).sum();
        if total <= MAX_SPANS || steps == 1 {
            let scale = |at: u64| at.saturating_sub(window.0) as f64 * task.cycles_per_tick;
            return Some(Timeline {
                cta: cta.cta,
                role: info.role_name(lane.role),
                steps: steps as u64,
                length_cycles: scale(window.1),
                arrows: arrows(cta, info, &rows, window, &scale),
                rings: task.rings.iter().filter_map(|r| ring(cta, r, window, &scale)).collect(),
                rows: rows.iter().map(|(lane, spans)| row(lane, spans, info, window, &scale)).collect(),
            });
        }
        steps -= 1;
    }
}

fn starts(lane: &Lane, rule: StepRule) -> Vec<u64> {
    let is = |e: &&Event| match rule {
        StepRule::Unstated => false,
        StepRule::Wait(id) => e.kind == Kind::WaitBegin && e.id == id,
        StepRule::Event(id) => e.kind == Kind::Begin && e.id == id,
    };
    lane.events.iter().filter(is).map(|e| e.at).collect()
}

/// Spans of a lane that overlap the window, by begin.
fn spans(lane: &Lane, window: (u64, u64)) -> Vec<Found> {
    let mut open: Vec<(SpanKind, u16, u64, usize)> = Vec::new();
    let mut found = Vec::new();
    for (record, event) in lane.events.iter().enumerate() {
        let (kind, begins) = match event.kind {
            Kind::Begin => (SpanKind::Event, true),
            Kind::End => (SpanKind::Event, false),
            Kind::WaitBegin => (SpanKind::Wait, true),
            Kind::WaitEnd => (SpanKind::Wait, false),
            Kind::Instant | Kind::Arrive => continue,
        };
        if begins {
            open.push((kind, event.id, event.at, record));
        } else if let Some(index) =
            lane.begin_of(record, &open, |o| o.3, |&(k, id, ..)| k == kind && id == event.id)
        {
            let (_, id, begin, _) = open.remove(index);
            if begin < window.1 && event.at > window.0 {
                found.push(Found { kind, id, begin, end: event.at, depth: index as u32 });
            }
        }
    }
    found.sort_by_key(|span| (span.begin, span.depth));
    found
}

fn row(
    lane: &Lane,
    spans: &[Found],
    info: &TraceInfo,
    window: (u64, u64),
    scale: &dyn Fn(u64) -> f64,
) -> TimelineRow {
    let span = |found: &Found| TimelineSpan {
        label: match found.kind {
            SpanKind::Wait => info.barrier_name(found.id),
            SpanKind::Event => info.event_name(found.id),
        },
        kind: found.kind,
        start_cycles: scale(found.begin.max(window.0)),
        end_cycles: scale(found.end.min(window.1)),
        depth: found.depth,
    };
    let first = lane.events.first().map_or(window.1, |e| e.at);
    let last = lane.events.last().map_or(window.0, |e| e.at);
    // What a role did before its oldest record, or after its newest without a close(), is not known.
    let from = lane.opened.filter(|_| lane.starts_whole()).unwrap_or(first).min(first);
    let to = lane.closed.filter(|_| lane.ends_whole()).unwrap_or(last).max(last);
    TimelineRow {
        role: info.role_name(lane.role),
        start_cycles: (from > window.0).then(|| scale(from.min(window.1))),
        end_cycles: (to < window.1).then(|| scale(to.max(window.0))),
        spans: spans.iter().map(span).collect(),
    }
}

/// How full a ring is within the window.
fn ring(cta: &CtaTrace, ring: &Ring, window: (u64, u64), scale: &dyn Fn(u64) -> f64) -> Option<TimelineRing> {
    let rings::Counted { parts, gap_by, .. } = rings::counted(cta, ring).ok()?;
    // Of parts with a gap between them the one that lies longest in the window.
    let within = |part: &rings::Occupancy| {
        let from = part.changes.first().map_or(window.1, |c| c.0).max(window.0);
        part.until.min(window.1).saturating_sub(from)
    };
    let rings::Occupancy { changes, count, until, cut_by, .. } = parts.into_iter().max_by_key(within)?;
    let ends = cut_by.is_some() || gap_by.is_some();
    if ends && until <= window.0 {
        return None;
    }
    let end_cycles = (ends && until < window.1).then(|| scale(until));
    let first = changes.partition_point(|&(at, _)| at <= window.0).saturating_sub(1);
    let within = changes.get(first..)?.iter().take_while(|(at, _)| *at < window.1);
    let sample = |&(at, slots): &(u64, u32)| TimelineSample { at_cycles: scale(at.max(window.0)), slots };
    let samples: Vec<_> = within.map(sample).collect();
    (!samples.is_empty()).then(|| TimelineRing {
        name: ring.name.clone(),
        counted: count,
        samples,
        end_cycles,
    })
}

/// Releases of waits that end in the window, where the arrival was recorded.
fn arrows(
    cta: &CtaTrace,
    info: &TraceInfo,
    rows: &[(&Lane, Vec<Found>)],
    window: (u64, u64),
    scale: &dyn Fn(u64) -> f64,
) -> Vec<TimelineArrow> {
    let mut arrivals = Arrivals::default();
    arrivals.collect(cta, &info.edges);
    let mut arrows = Vec::new();
    for (lane, spans) in rows {
        for span in spans.iter().filter(|s| s.kind == SpanKind::Wait && s.end <= window.1) {
            let from_role =
                releasers(&info.edges, span.id, lane.role).any(|r| matches!(r, Releaser::Role(_)));
            let wait = Wait { barrier: span.id, begin: span.begin, end: span.end };
            let Release::Blocked { round_trip } = arrivals.release(wait) else { continue };
            let at = span.end - round_trip;
            let arrived = |l: &&Lane| {
                let from = l.events.partition_point(|e| e.at < at);
                let now = l.events[from..].iter().take_while(|e| e.at == at);
                now.into_iter().any(|e| e.kind == Kind::Arrive && e.id == span.id)
            };
            let Some(from) = cta.lanes.iter().find(arrived).filter(|_| from_role && at >= window.0) else {
                continue;
            };
            arrows.push(TimelineArrow {
                barrier: info.barrier_name(span.id),
                from: info.role_name(from.role),
                from_cycles: scale(at),
                to: info.role_name(lane.role),
                to_cycles: scale(span.end),
            });
        }
    }
    arrows
}
