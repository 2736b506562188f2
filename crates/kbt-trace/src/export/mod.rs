//! Writes a trace for the viewers: Perfetto's protobuf, and Chrome trace events, CTA after CTA, as a stream; its spans
//! as rows for tables; and a few steps of it as a drawing.

mod chrome;
mod perfetto;
mod proto;
mod rows;
mod svg;
mod time;

pub use chrome::write_chrome;
pub use perfetto::write_perfetto;
pub use rows::{ROWS_SCHEMA, RowCounts, RowsHead, write_rows};
pub use svg::svg;

use crate::recorded::Arriving;
use crate::rings::{self, Occupancy, Refusal, Ring};
use crate::{CtaTrace, Kind, Lane, ProblemKind, Problems, Releaser, TraceInfo};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// What was written, to be counted back by whoever reads it. The viewers differ: Perfetto's protobuf has an instant more
/// where a recorded arrival ended a wait, which carries the flow's end, and a track for each ring of buffers; Chrome's
/// events have flow events and counters of their own for these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExportCounts {
    /// Tracks: one a CTA, one a role of it, one for each line of crossing spans; in Perfetto's
    /// protobuf one a ring of buffers.
    pub tracks: u64,
    /// Spans.
    pub slices: u64,
    /// Instants, arrivals and releases.
    pub instants: u64,
    /// Arrivals joined to the wait that they end.
    pub flows: u64,
    /// Changes of how many slots of a ring are taken.
    pub counters: u64,
    /// Records that no writer can show.
    pub left_out: LeftOut,
}

/// What is in none of the files written: records without their partner, and rings that cannot be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// Begins without an end.
    pub orphan_begins: u64,
    /// Ends without a begin.
    pub orphan_ends: u64,
    /// Rings of CTAs whose counter is missing or ends early, since a role had stopped recording.
    pub rings_cut: u64,
    /// Rings of CTAs whose counter stands still for a while, since records are missing.
    pub rings_gap: u64,
    /// Rings of CTAs without a counter, since their records contradict each other.
    pub rings_contradict: u64,
    /// Clocks, of SMs or CTAs, that nothing relates to each other, where there are several: when their CTAs ran is known
    /// on each alone.
    pub clocks_apart: u64,
}

impl LeftOut {
    /// The same in words.
    #[must_use]
    pub fn problems(&self) -> Problems {
        let mut problems = Problems::default();
        problems.add(ProblemKind::OrphanBegin, None, self.orphan_begins, || "not exported".into());
        problems.add(ProblemKind::OrphanEnd, None, self.orphan_ends, || "not exported".into());
        problems.add(ProblemKind::RingCut, None, self.rings_cut, || "its counter ends there".into());
        problems.add(ProblemKind::RingGap, None, self.rings_gap, || "its counter stands still there".into());
        problems.add(ProblemKind::RingContradicts, None, self.rings_contradict, || "no counter".into());
        problems.add(ProblemKind::ClocksApart, None, self.clocks_apart, String::new);
        problems
    }
}

/// How full `ring` was in `cta`, part by part; where that cannot be said, or not all the time, it is counted.
fn occupancy(cta: &CtaTrace, ring: &Ring, left_out: &mut LeftOut) -> Vec<Occupancy> {
    match rings::counted(cta, ring) {
        Ok(found) => {
            left_out.rings_cut += u64::from(found.parts.iter().any(|part| part.cut_by.is_some()));
            left_out.rings_gap += u64::from(found.gap_by.is_some());
            return found.parts;
        }
        Err(Refusal::Silent) => {}
        Err(Refusal::Cut { .. }) => left_out.rings_cut += 1,
        Err(Refusal::Contradicts { .. }) => left_out.rings_contradict += 1,
    }
    Vec::new()
}

/// A span of a lane in ticks; `wait` tells its id's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    begin: u64,
    end: u64,
    wait: bool,
    id: u16,
    /// The step that its begin was recorded with.
    step: u16,
    /// Spans of one line nest.
    line: usize,
}

/// Pairs begins with ends and puts crossing spans on lines of their own. What has no partner is counted.
fn spans(lane: &Lane, left_out: &mut LeftOut) -> Vec<Span> {
    let mut open: Vec<(bool, u16, u64, u16, usize)> = Vec::new();
    let mut spans = Vec::new();
    for (record, event) in lane.events.iter().enumerate() {
        let (wait, begins) = match event.kind {
            Kind::Begin => (false, true),
            Kind::End => (false, false),
            Kind::WaitBegin => (true, true),
            Kind::WaitEnd => (true, false),
            Kind::Instant | Kind::Arrive => continue,
        };
        if begins {
            open.push((wait, event.id, event.at, event.step, record));
            continue;
        }
        match lane.begin_of(record, &open, |o| o.4, |&(w, id, ..)| w == wait && id == event.id) {
            Some(index) => {
                let (_, id, begin, step, _) = open.remove(index);
                spans.push(Span { begin, end: event.at, wait, id, step, line: 0 });
            }
            None => left_out.orphan_ends += 1,
        }
    }
    left_out.orphan_begins += open.len() as u64;
    spans.sort_by_key(|s| (s.begin, Reverse(s.end)));
    // Per line the ends of the spans still open, innermost last.
    let mut lines: Vec<Vec<u64>> = Vec::new();
    for span in &mut spans {
        lines.iter_mut().for_each(|ends| {
            while ends.last().is_some_and(|&end| end <= span.begin) {
                ends.pop();
            }
        });
        let fits = |ends: &Vec<u64>| ends.last().is_none_or(|&end| span.end <= end);
        span.line = lines.iter().position(fits).unwrap_or_else(|| {
            lines.push(Vec::new());
            lines.len() - 1
        });
        lines[span.line].push(span.end);
    }
    spans
}

/// A wait that a recorded arrival ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Release {
    barrier: u16,
    /// The arrival's lane and time.
    from: (usize, u64),
    /// The wait's lane and end.
    to: (usize, u64),
}

/// Joins each wait that was blocked until a recorded arrival to that arrival.
fn releases(cta: &CtaTrace, info: &TraceInfo, spans: &[Vec<Span>]) -> Vec<Release> {
    let mut arrivals: BTreeMap<u16, Vec<(u64, usize)>> = BTreeMap::new();
    for (lane, events) in cta.lanes.iter().enumerate().map(|(i, l)| (i, &l.events)) {
        for event in events.iter().filter(|e| e.kind == Kind::Arrive) {
            arrivals.entry(event.id).or_default().push((event.at, lane));
        }
    }
    arrivals.values_mut().for_each(|times| times.sort_unstable());
    let mut recorded = Arriving::default();
    recorded.collect(cta, &info.edges);
    let mut found = Vec::new();
    for (lane, spans) in spans.iter().enumerate() {
        let role = cta.lanes[lane].role;
        for wait in spans.iter().filter(|s| s.wait) {
            let released = info.edges.iter().any(|e| {
                e.barrier == wait.id && e.waiting == role && matches!(e.arriving, Releaser::Role(_))
            });
            // After a role stopped recording its arrivals are not known, and another's need not be the last.
            let Some(known) = recorded.before(wait.id, wait.end) else { continue };
            let Some(times) = arrivals.get(&wait.id).filter(|_| released) else { continue };
            let before = times.partition_point(|&(at, _)| at <= wait.end);
            let Some(&(at, from)) = before.checked_sub(1).and_then(|i| times.get(i)) else { continue };
            if at > wait.begin && at >= known.from && !known.misses_after(at) {
                found.push(Release { barrier: wait.id, from: (from, at), to: (lane, wait.end) });
            }
        }
    }
    found
}

/// Arrivals joined to waits: for each, the flow's number and what it joins. Keys are (lane, time, barrier).
#[derive(Default)]
struct Flows {
    from: BTreeMap<(usize, u64, u16), Vec<u64>>,
    to: BTreeMap<(usize, u64, u16), u64>,
}

/// Gives each release a number, from `next` on.
fn flows(cta: &CtaTrace, info: &TraceInfo, spans: &[Vec<Span>], next: &mut u64) -> Flows {
    let mut flows = Flows::default();
    for Release { barrier, from, to } in releases(cta, info, spans) {
        flows.from.entry((from.0, from.1, barrier)).or_default().push(*next);
        flows.to.insert((to.0, to.1, barrier), *next);
        *next += 1;
    }
    flows
}

fn span_name(info: &TraceInfo, span: &Span) -> String {
    if span.wait { format!("wait {}", info.barrier_name(span.id)) } else { info.event_name(span.id) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;

    #[test]
    fn nested_spans_share_a_line_and_crossing_ones_do_not() {
        let at = |at, kind, id| Event { at, kind, id, step: 0 };
        let events = vec![
            at(0, Kind::Begin, 0),
            at(1, Kind::Begin, 1),
            at(2, Kind::End, 1),
            at(3, Kind::Begin, 2),
            at(5, Kind::End, 0),
            at(7, Kind::End, 2),
            at(7, Kind::WaitBegin, 0),
            at(9, Kind::WaitEnd, 0),
            at(9, Kind::Begin, 3),
        ];
        let mut left_out = LeftOut::default();
        let spans = spans(&Lane { events, ..Lane::default() }, &mut left_out);
        let lines: Vec<_> = spans.iter().map(|s| (s.begin, s.end, s.line)).collect();
        assert_eq!(lines, [(0, 5, 0), (1, 2, 0), (3, 7, 1), (7, 9, 0)]);
        assert_eq!(left_out, LeftOut { orphan_begins: 1, ..LeftOut::default() });
    }
}
