//! Perfetto's protobuf (`perfetto.protos.Trace`): a track per CTA, a child track per role, flows for releases,
//! counters for the slots taken in each ring of buffers.
//!
//! Field numbers as in Perfetto's protos, checked against the PyPI package perfetto 0.59.1. Stamps are nanoseconds
//! of the global timer where the trace relates its clock to it; else CTAs lie as their common clock has them.

use super::proto::Message;
use super::time::Time;
use super::{ExportCounts, Flows, Span, flows, occupancy, span_name, spans};
use crate::rings::{self, Ring};
use crate::{CtaTrace, Kind, Source, TraceError, TraceInfo};
use std::io::Write;

mod field {
    pub(super) const TRACE_PACKET: u32 = 1;
    pub(super) const PACKET_TIMESTAMP: u32 = 8;
    pub(super) const PACKET_SEQUENCE: u32 = 10;
    pub(super) const PACKET_TRACK_EVENT: u32 = 11;
    pub(super) const PACKET_SEQUENCE_FLAGS: u32 = 13;
    pub(super) const PACKET_TRACK_DESCRIPTOR: u32 = 60;
    pub(super) const TRACK_UUID: u32 = 1;
    pub(super) const TRACK_NAME: u32 = 2;
    pub(super) const TRACK_PARENT: u32 = 5;
    pub(super) const TRACK_COUNTER: u32 = 8;
    pub(super) const TRACK_CHILD_ORDERING: u32 = 11;
    pub(super) const TRACK_RANK: u32 = 12;
    pub(super) const EVENT_TYPE: u32 = 9;
    pub(super) const EVENT_TRACK: u32 = 11;
    pub(super) const EVENT_NAME: u32 = 23;
    pub(super) const EVENT_COUNTER_VALUE: u32 = 30;
    pub(super) const EVENT_FLOWS: u32 = 47;
    pub(super) const EVENT_LAST_FLOWS: u32 = 48;
    pub(super) const COUNTER_UNIT_NAME: u32 = 6;
}

const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;
/// TrackDescriptor.ChildTracksOrdering.EXPLICIT: children by rank.
const ORDER_EXPLICIT: u64 = 3;
/// TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED.
const STATE_CLEARED: u64 = 1;

/// Writes the whole of `source` as a Perfetto trace.
///
/// # Errors
/// If the source cannot be read or `out` not written.
pub fn write_perfetto(source: &mut dyn Source, out: &mut dyn Write) -> Result<ExportCounts, TraceError> {
    let info = source.info().clone();
    let (rings, _) = rings::find(&info);
    let mut writer = Writer {
        rings: &rings,
        time: Time::of(info.clock, info.time_line),
        info: &info,
        out,
        counts: ExportCounts::default(),
        next_uuid: 1,
        next_flow: 1,
        first: true,
    };
    let mut cta = CtaTrace::default();
    while source.next_cta(&mut cta)? {
        writer.cta(&cta)?;
    }
    let mut counts = writer.counts;
    counts.left_out.clocks_apart = writer.time.clocks_apart();
    out.flush().map_err(TraceError::io("perfetto trace"))?;
    Ok(counts)
}

struct Writer<'a> {
    info: &'a TraceInfo,
    rings: &'a [Ring],
    out: &'a mut dyn Write,
    time: Time,
    counts: ExportCounts,
    next_uuid: u64,
    next_flow: u64,
    first: bool,
}

/// One event of a track, ready but for its time.
struct Mark {
    at: u64,
    track: u64,
    kind: u64,
    name: Option<String>,
    flows: Vec<u64>,
    ends: Option<u64>,
    value: Option<u32>,
}

impl Mark {
    const fn new(at: u64, track: u64, kind: u64) -> Self {
        Self { at, track, kind, name: None, flows: Vec::new(), ends: None, value: None }
    }
}

impl Writer<'_> {
    fn cta(&mut self, cta: &CtaTrace) -> Result<(), TraceError> {
        let origin = self.time.origin(cta);
        let parent = self.track(&self.time.name(cta, origin), None, 0, None)?;
        let lanes: Vec<_> = cta.lanes.iter().map(|lane| spans(lane, &mut self.counts.left_out)).collect();
        let flows = flows(cta, self.info, &lanes, &mut self.next_flow);
        let mut marks = Vec::new();
        for (index, (lane, spans)) in cta.lanes.iter().zip(&lanes).enumerate() {
            let role = self.info.role_name(lane.role);
            let mut tracks = Vec::new();
            for line in 0..spans.iter().map(|s| s.line + 1).max().unwrap_or(1) {
                let name = if line == 0 { role.clone() } else { format!("{role} (line {line})") };
                tracks.push(self.track(&name, Some(parent), (lane.role * 16 + line) as u64, None)?);
            }
            self.slices(spans, &tracks, &mut marks);
            self.instants(index, cta, &flows, tracks[0], &mut marks);
        }
        for ring in self.rings {
            let parts = occupancy(cta, ring, &mut self.counts.left_out);
            let Some(first) = parts.first() else { continue };
            let name = format!("ring {}: slots {}", ring.name, first.count.as_str());
            let rank = self.info.roles.len() as u64 * 16 + u64::from(ring.empty);
            let track = self.track(&name, Some(parent), rank, Some("slots"))?;
            let changes = parts.into_iter().flat_map(|part| part.changes);
            marks.extend(
                changes.map(|(at, slots)| Mark { value: Some(slots), ..Mark::new(at, track, COUNTER) }),
            );
        }
        // The reader wants packets in order of time within a sequence; a stable sort keeps ends before begins.
        marks.sort_by_key(|mark| mark.at);
        for mark in marks {
            self.mark(&mark, origin.at(mark.at, self.time.ns_per_tick))?;
        }
        Ok(())
    }

    /// Begins and ends of one lane, in the order in which they nest.
    fn slices(&mut self, spans: &[Span], tracks: &[u64], marks: &mut Vec<Mark>) {
        let mark = |at, line: usize, kind, name| Mark { name, ..Mark::new(at, tracks[line], kind) };
        let mut open: Vec<Span> = Vec::new();
        for span in spans {
            while let Some(done) = pop_ended(&mut open, span.begin) {
                marks.push(mark(done.end, done.line, SLICE_END, None));
            }
            marks.push(mark(span.begin, span.line, SLICE_BEGIN, Some(span_name(self.info, span))));
            open.push(*span);
        }
        while let Some(done) = pop_ended(&mut open, u64::MAX) {
            marks.push(mark(done.end, done.line, SLICE_END, None));
        }
        self.counts.slices += spans.len() as u64;
    }

    /// Instants, arrivals, and the moments at which recorded arrivals released waits.
    fn instants(&mut self, index: usize, cta: &CtaTrace, flows: &Flows, track: u64, marks: &mut Vec<Mark>) {
        let before = marks.len();
        for event in &cta.lanes[index].events {
            let key = (index, event.at, event.id);
            let (name, flows, ends) = match event.kind {
                Kind::Instant => (self.info.event_name(event.id), Vec::new(), None),
                Kind::Arrive => {
                    let name = format!("arrive {}", self.info.barrier_name(event.id));
                    (name, flows.from.get(&key).cloned().unwrap_or_default(), None)
                }
                Kind::WaitEnd => match flows.to.get(&key) {
                    Some(&flow) => {
                        (format!("{} released", self.info.barrier_name(event.id)), Vec::new(), Some(flow))
                    }
                    None => continue,
                },
                Kind::Begin | Kind::End | Kind::WaitBegin => continue,
            };
            self.counts.flows += u64::from(ends.is_some());
            marks.push(Mark { name: Some(name), flows, ends, ..Mark::new(event.at, track, INSTANT) });
        }
        self.counts.instants += (marks.len() - before) as u64;
    }

    /// Describes a track; one with a unit is a counter's.
    fn track(
        &mut self,
        name: &str,
        parent: Option<u64>,
        rank: u64,
        unit: Option<&str>,
    ) -> Result<u64, TraceError> {
        let uuid = self.next_uuid;
        self.next_uuid += 1;
        self.counts.tracks += 1;
        let mut track = Message::default();
        track.number(field::TRACK_UUID, uuid).text(field::TRACK_NAME, name);
        match parent {
            Some(parent) => track.number(field::TRACK_PARENT, parent).number(field::TRACK_RANK, rank),
            None => track.number(field::TRACK_CHILD_ORDERING, ORDER_EXPLICIT),
        };
        if let Some(unit) = unit {
            let mut counter = Message::default();
            counter.text(field::COUNTER_UNIT_NAME, unit);
            track.message(field::TRACK_COUNTER, &counter);
        }
        let mut packet = Message::default();
        packet.number(field::PACKET_SEQUENCE, 1).message(field::PACKET_TRACK_DESCRIPTOR, &track);
        if std::mem::take(&mut self.first) {
            packet.number(field::PACKET_SEQUENCE_FLAGS, STATE_CLEARED);
        }
        self.packet(&packet)?;
        Ok(uuid)
    }

    fn mark(&mut self, mark: &Mark, ns: u64) -> Result<(), TraceError> {
        let mut event = Message::default();
        event.number(field::EVENT_TYPE, mark.kind).number(field::EVENT_TRACK, mark.track);
        if let Some(name) = &mark.name {
            event.text(field::EVENT_NAME, name);
        }
        for &flow in &mark.flows {
            event.fixed64(field::EVENT_FLOWS, flow);
        }
        if let Some(flow) = mark.ends {
            event.fixed64(field::EVENT_LAST_FLOWS, flow);
        }
        if let Some(value) = mark.value {
            event.number(field::EVENT_COUNTER_VALUE, value.into());
            self.counts.counters += 1;
        }
        let mut packet = Message::default();
        packet
            .number(field::PACKET_TIMESTAMP, ns)
            .number(field::PACKET_SEQUENCE, 1)
            .message(field::PACKET_TRACK_EVENT, &event);
        self.packet(&packet)
    }

    fn packet(&mut self, packet: &Message) -> Result<(), TraceError> {
        let mut trace = Message::default();
        trace.message(field::TRACE_PACKET, packet);
        self.out.write_all(trace.bytes()).map_err(TraceError::io("perfetto trace"))
    }
}

/// The open span that ends first, if it ends by `until`; of equal ends the one begun last.
fn pop_ended(open: &mut Vec<Span>, until: u64) -> Option<Span> {
    let (index, _) =
        open.iter().enumerate().rev().min_by_key(|(_, s)| s.end).filter(|(_, s)| s.end <= until)?;
    Some(open.remove(index))
}
