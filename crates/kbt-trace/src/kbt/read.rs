//! Reads `.kbttrace` as a stream: the tables, then one CTA's rings at a time.

use super::tables::{barrier, edge, event, role};
use super::wire::Wire;
use super::{MAX_META, MAX_TABLE};
use super::{check, place};
use crate::bindings as b;
use crate::clock::Unwrap;
use crate::{
    Anchor, Clock, CtaTrace, Event, Input, Kind, Lane, Level, ProblemKind, Problems, Source, TimeLine,
    TraceError, TraceInfo, spelt,
};
use std::collections::BTreeMap;
use std::io::Read;

/// A `.kbttrace` file being read.
pub struct KbtSource<R> {
    name: String,
    input: R,
    info: TraceInfo,
    rings: Vec<b::kbt_trace_ring>,
    /// Records that a ring of the recorder holds.
    capacity: u32,
    next: usize,
    offset: u64,
    bytes: Vec<u8>,
    problems: Problems,
    /// The file has been read to its end, or as far as it can be.
    ended: bool,
}

impl<R: Read> KbtSource<R> {
    /// Reads everything but the records. `name` stands for the file in messages.
    ///
    /// # Errors
    /// If the header or the tables are damaged, or the version is unknown.
    pub fn open(input: R, name: &str) -> Result<Self, TraceError> {
        let mut reader = Tables { name, input, offset: 0 };
        let header: b::kbt_trace_file_header = reader.one("file header")?;
        check_header(name, &header)?;
        let roles: Vec<b::kbt_trace_role> = reader.many(header.roles, "roles")?;
        let events = reader.many(header.events, "events")?;
        let barriers = reader.many(header.barriers, "barriers")?;
        let edges_at = reader.offset;
        let edges: Vec<b::kbt_trace_edge> = reader.many(header.edges, "edges")?;
        let meta = reader.meta(header.meta_bytes)?;
        let mut problems = Problems::default();
        let rings = reader.rings(header.rings, &mut problems)?;
        check::roles(&roles, &header, &mut problems);
        check::rings(&rings, &header, &mut problems);
        let edge = |(index, raw): (usize, &b::kbt_trace_edge)| {
            edge(raw, &header, name, edges_at + (index * b::kbt_trace_edge::SIZE) as u64)
        };
        let info = TraceInfo {
            format: Input::Kbt,
            level: Some(if header.level == b::KBT_TRACE_DETAIL { Level::Detail } else { Level::Coarse }),
            clock: Clock::Cycles {
                sm_mhz: (header.sm_clock_khz != 0).then(|| f64::from(header.sm_clock_khz) / 1000.0),
            },
            time_line: TimeLine::Timer,
            roles: roles.iter().map(|raw| role(raw, &header)).collect(),
            events: events.iter().map(event).collect(),
            barriers: barriers.iter().map(barrier).collect(),
            edges: edges.iter().enumerate().map(edge).collect::<Result<_, _>>()?,
            meta,
        };
        let Tables { input, offset, .. } = reader;
        // Where the ring headers are cut nothing follows them.
        let ended = rings.len() < header.rings as usize;
        let name = name.to_owned();
        let capacity = header.ring_capacity;
        Ok(Self { name, input, info, rings, capacity, next: 0, offset, bytes: Vec::new(), problems, ended })
    }

    /// Takes another SM clock than the file's.
    pub fn set_clock(&mut self, mhz: Option<f64>) {
        if let (Some(given), Some(stated)) = (mhz, self.info.clock.sm_mhz())
            && given != stated
        {
            self.problems.add(ProblemKind::ClockGiven, None, 1, || {
                format!("{given} MHz given, {stated} MHz in the file")
            });
        }
        if mhz.is_some() {
            self.info.clock = Clock::Cycles { sm_mhz: mhz };
        }
    }

    /// Reads the records of one ring into `lane`; `false` where the file ends inside it.
    fn lane(&mut self, ring: &b::kbt_trace_ring, lane: &mut Lane) -> Result<bool, TraceError> {
        let wanted = ring.kept as usize * b::kbt_trace_record::SIZE;
        self.bytes.clear();
        let limit = (&mut self.input).take(wanted as u64);
        { limit }.read_to_end(&mut self.bytes).map_err(TraceError::io(&self.name))?;
        self.offset += self.bytes.len() as u64;
        lane.role = ring.role as usize;
        let whole = self.bytes.len() == wanted;
        let closed = ring.closed == b::KBT_TRACE_RING_CLOSED;
        lane.opened = Some(ring.open_clock);
        // Where the file ends inside the ring, its last records are missing: for the reader it was not closed.
        lane.closed = Some(ring.close_clock).filter(|_| closed && whole);
        lane.stopped_full = false;
        lane.dropped = if closed {
            Some(u64::from(ring.total).saturating_sub(u64::from(ring.kept)))
        } else {
            (ring.kept < self.capacity).then_some(0)
        };
        let role = self.info.role_name(lane.role);
        let found = decode(&self.bytes, ring, &self.info, lane);
        lane.torn = found.misplaced.is_some();
        let cta = ring.cta;
        let at = || format!("first in CTA {cta}");
        self.problems.add(ProblemKind::UnknownRecord, Some(&role), found.unknown, at);
        self.problems.add(ProblemKind::ClockBackwards, Some(&role), found.backwards, at);
        self.problems.add(ProblemKind::FarStamp, Some(&role), found.far, at);
        self.problems.add(ProblemKind::ClockWrapped, Some(&role), found.wraps, at);
        self.problems.add(ProblemKind::NotClosed, Some(&role), u64::from(!closed), at);
        let misplaced = u64::from(found.misplaced.is_some());
        self.problems.add(ProblemKind::Inconsistent, Some(&role), misplaced, || {
            format!("first in {}", found.misplaced.unwrap_or_default())
        });
        if whole {
            self.problems.add(ProblemKind::Dropped, Some(&role), lane.dropped.unwrap_or(0), at);
        }
        Ok(whole)
    }

    /// Says what the file holds after its last ring.
    fn end(&mut self) -> Result<(), TraceError> {
        if !std::mem::replace(&mut self.ended, true) {
            let more =
                std::io::copy(&mut self.input, &mut std::io::sink()).map_err(TraceError::io(&self.name))?;
            let offset = self.offset;
            self.problems.add(ProblemKind::Inconsistent, None, u64::from(more > 0), || {
                format!("at offset {offset}, {more} bytes after the last record")
            });
        }
        Ok(())
    }
}

impl<R: Read + Send> Source for KbtSource<R> {
    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn next_cta(&mut self, cta: &mut CtaTrace) -> Result<bool, TraceError> {
        let Some(&first) = self.rings.get(self.next) else {
            self.end()?;
            return Ok(false);
        };
        cta.cta = first.cta;
        cta.smid = Some(first.smid);
        cta.anchor = Some(Anchor { ticks: first.open_clock, global_ns: first.open_global_ns });
        let mut lanes = std::mem::take(&mut cta.lanes);
        let mut used = 0;
        while let Some(&ring) = self.rings.get(self.next).filter(|r| r.cta == first.cta) {
            if used == lanes.len() {
                lanes.push(Lane::default());
            }
            self.next += 1;
            let whole = self.lane(&ring, &mut lanes[used])?;
            if lanes[used].role < self.info.roles.len() {
                used += 1;
            } else {
                let records = lanes[used].events.len() as u64;
                let place = || format!("role {} in CTA {}", ring.role, ring.cta);
                self.problems.add(ProblemKind::UnknownRecord, None, records.max(1), place);
            }
            if !whole {
                let rest = &self.rings[self.next..];
                let here = u64::from(ring.kept) - (self.bytes.len() / b::kbt_trace_record::SIZE) as u64;
                let missing = here + rest.iter().map(|r| u64::from(r.kept)).sum::<u64>();
                let (offset, rings) = (self.offset, rest.len());
                self.problems.add(ProblemKind::Truncated, None, 1, || {
                    format!("at offset {offset}, {missing} records missing: of the ring there and {rings} after it")
                });
                // The other roles of this CTA were there too, and nothing is known of what they did.
                let here = rest.iter().take_while(|r| r.cta == first.cta).map(|r| r.role as usize);
                let cut = here.filter(|&role| role < self.info.roles.len()).collect::<Vec<_>>();
                lanes.truncate(used);
                lanes.extend(cut.into_iter().map(|role| Lane { role, ..Lane::default() }));
                used = lanes.len();
                self.next = self.rings.len();
                self.ended = true;
            }
        }
        lanes.truncate(used);
        for index in place::apart(&lanes) {
            lanes[index].torn = true;
            let role = self.info.role_name(lanes[index].role);
            self.problems.add(ProblemKind::Inconsistent, Some(&role), 1, || {
                format!("first in CTA {}: a second or more from all other roles of the CTA", first.cta)
            });
        }
        cta.lanes = lanes;
        Ok(true)
    }

    fn problems(&self) -> &Problems {
        &self.problems
    }
}

/// What went wrong while decoding a lane.
struct Decoded {
    unknown: u64,
    backwards: u64,
    far: u64,
    wraps: u64,
    /// How the stamps of open() and close() contradict the records.
    misplaced: Option<String>,
}

fn decode(bytes: &[u8], ring: &b::kbt_trace_ring, info: &TraceInfo, lane: &mut Lane) -> Decoded {
    lane.events.clear();
    lane.gaps.clear();
    let mut unknown = 0;
    let mut clock: Option<Unwrap> = None;
    let mut slots = bytes.chunks_exact(b::kbt_trace_record::SIZE);
    while let Some(slot) = slots.next() {
        let Some(record) = b::kbt_trace_record::get(slot) else { continue };
        let id = (record.tag >> b::KBT_TRACE_ID_SHIFT & b::KBT_TRACE_ID_MASK) as u16;
        let (kind, known) = match record.tag >> b::KBT_TRACE_KIND_SHIFT {
            b::KBT_TRACE_BEGIN => (Kind::Begin, info.events.len()),
            b::KBT_TRACE_END => (Kind::End, info.events.len()),
            b::KBT_TRACE_INSTANT => (Kind::Instant, info.events.len()),
            b::KBT_TRACE_WAIT_BEGIN => (Kind::WaitBegin, info.barriers.len()),
            b::KBT_TRACE_WAIT_END => (Kind::WaitEnd, info.barriers.len()),
            b::KBT_TRACE_ARRIVE => (Kind::Arrive, info.barriers.len()),
            _ => (Kind::Instant, 0),
        };
        if usize::from(id) >= known {
            unknown += 1;
            lane.refused();
            continue;
        }
        let step = (record.tag & b::KBT_TRACE_STEP_MASK) as u16;
        // The first kept record lies after open(); records are anchored to the ring's 64-bit clocks below.
        let at = match &mut clock {
            Some(clock) => {
                let mut at = clock.next(record.clock);
                if at.is_none() {
                    let after = slots.clone().next().and_then(b::kbt_trace_record::get).map(|r| r.clock);
                    if clock.takes_back(record.clock, after) {
                        lane.take_back();
                        at = clock.next(record.clock);
                    }
                }
                at
            }
            None => {
                let at = u64::from(record.clock.wrapping_sub(ring.open_clock as u32));
                clock = Some(Unwrap::new(record.clock, at));
                Some(at)
            }
        };
        match at {
            Some(at) => lane.events.push(Event { at, kind, id, step }),
            None => lane.refused(),
        }
    }
    let misplaced = place::place(ring, lane);
    let (backwards, far, wraps) = clock.map_or((0, 0, 0), |c| (c.backwards, c.far, c.wraps));
    Decoded { unknown, backwards, far, wraps, misplaced }
}

/// Reads the structs ahead of the records.
struct Tables<'a, R> {
    name: &'a str,
    input: R,
    offset: u64,
}

impl<R: Read> Tables<'_, R> {
    fn bytes(&mut self, length: u64, field: &'static str) -> Result<Vec<u8>, TraceError> {
        let mut bytes = Vec::new();
        (&mut self.input).take(length).read_to_end(&mut bytes).map_err(TraceError::io(self.name))?;
        if (bytes.len() as u64) < length {
            return Err(damaged(
                self.name,
                self.offset + bytes.len() as u64,
                field,
                format!("the file ends after {} bytes of it", bytes.len()),
                format!("{length} bytes"),
            ));
        }
        self.offset += length;
        Ok(bytes)
    }

    fn one<T: Wire>(&mut self, field: &'static str) -> Result<T, TraceError> {
        let bytes = self.bytes(T::SIZE as u64, field)?;
        T::get(&bytes).ok_or_else(|| damaged(self.name, self.offset, field, "short".into(), "whole".into()))
    }

    fn many<T: Wire>(&mut self, count: u32, field: &'static str) -> Result<Vec<T>, TraceError> {
        let bytes = self.bytes(u64::from(count) * T::SIZE as u64, field)?;
        Ok(bytes.chunks_exact(T::SIZE).filter_map(T::get).collect())
    }

    fn meta(&mut self, length: u64) -> Result<BTreeMap<String, String>, TraceError> {
        let bytes = self.bytes(length.next_multiple_of(8), "meta")?;
        let text = String::from_utf8_lossy(&bytes[..length as usize]).into_owned();
        let pair = |line: &str| line.split_once(": ").map(|(k, v)| (k.to_owned(), v.to_owned()));
        Ok(text.lines().filter_map(pair).collect())
    }

    /// Ring headers; those that are none are left out, with what would be their records unreadable after them.
    fn rings(&mut self, count: u32, problems: &mut Problems) -> Result<Vec<b::kbt_trace_ring>, TraceError> {
        let mut bytes = Vec::new();
        let wanted = u64::from(count) * b::kbt_trace_ring::SIZE as u64;
        (&mut self.input).take(wanted).read_to_end(&mut bytes).map_err(TraceError::io(self.name))?;
        let rings: Vec<_> =
            bytes.chunks_exact(b::kbt_trace_ring::SIZE).filter_map(b::kbt_trace_ring::get).collect();
        if let Some(bad) = rings.iter().position(|r: &b::kbt_trace_ring| r.opened != b::KBT_TRACE_RING_OPEN) {
            return Err(damaged(
                self.name,
                self.offset + (bad * b::kbt_trace_ring::SIZE) as u64,
                "ring header",
                format!("{:#x}", rings[bad].opened),
                format!("{:#x}", b::KBT_TRACE_RING_OPEN),
            ));
        }
        self.offset += bytes.len() as u64;
        if rings.len() < count as usize {
            let offset = self.offset;
            problems.add(ProblemKind::Truncated, None, 1, || {
                format!("at offset {offset}, inside the ring headers")
            });
        }
        Ok(rings)
    }
}

fn check_header(name: &str, header: &b::kbt_trace_file_header) -> Result<(), TraceError> {
    let magic = &b::KBT_TRACE_FILE_MAGIC[..8];
    if header.magic != *magic {
        let found = spelt(&String::from_utf8_lossy(&header.magic)).into_owned();
        return Err(damaged(name, 0, "magic", found, "KBTTRACE".into()));
    }
    let offset = |field: usize| field as u64;
    use std::mem::offset_of;
    type H = b::kbt_trace_file_header;
    let size = b::kbt_trace_file_header::SIZE as u32;
    for (field, at, found, accepted) in [
        ("version", offset_of!(H, version), header.version, b::KBT_TRACE_FILE_VERSION),
        ("header_bytes", offset_of!(H, header_bytes), header.header_bytes, size),
    ] {
        if found != accepted {
            return Err(damaged(name, offset(at), field, found.to_string(), accepted.to_string()));
        }
    }
    if !(b::KBT_TRACE_COARSE..=b::KBT_TRACE_DETAIL).contains(&header.level) {
        let accepted = "2 (coarse) or 3 (detail)".to_owned();
        return Err(damaged(name, offset(offset_of!(H, level)), "level", header.level.to_string(), accepted));
    }
    for (field, at, found) in [
        ("roles", offset_of!(H, roles), header.roles),
        ("events", offset_of!(H, events), header.events),
        ("barriers", offset_of!(H, barriers), header.barriers),
        ("edges", offset_of!(H, edges), header.edges),
    ] {
        if found > MAX_TABLE {
            return Err(damaged(name, offset(at), field, found.to_string(), format!("at most {MAX_TABLE}")));
        }
    }
    if header.meta_bytes > MAX_META {
        let at = offset(offset_of!(H, meta_bytes));
        return Err(damaged(
            name,
            at,
            "meta_bytes",
            header.meta_bytes.to_string(),
            format!("at most {MAX_META}"),
        ));
    }
    Ok(())
}

pub(super) fn damaged(
    name: &str,
    offset: u64,
    field: &'static str,
    found: String,
    accepted: String,
) -> TraceError {
    TraceError::Damaged { name: name.to_owned(), offset, field, found, accepted }
}
