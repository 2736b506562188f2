//! Writes `.kbttrace`: from a device buffer, or ring by ring.

use super::wire::Wire;
use super::{BufferLayout, MAX_TABLE};
use crate::bindings as b;
use crate::{BarrierPurpose, EventPurpose, Level, Releaser, Role, StepRule, TraceError, TraceInfo, Work};
use std::io::Write;

/// One ring, its records oldest first.
#[derive(Debug, Clone, Default)]
pub struct RingRecords {
    /// Its header; `kept` is set on writing.
    pub header: b::kbt_trace_ring,
    /// Its records.
    pub records: Vec<b::kbt_trace_record>,
}

/// Writes the file a ring at a time.
#[derive(Debug)]
pub struct FileWriter;

impl FileWriter {
    /// Writes a whole file. Rings of one CTA must be neighbours.
    ///
    /// # Errors
    /// If a name is too long, an index out of range, or writing fails.
    pub fn write(
        out: &mut dyn Write,
        info: &TraceInfo,
        ring_capacity: u32,
        rings: &[RingRecords],
    ) -> Result<(), TraceError> {
        if let Some(ring) = rings.iter().find(|r| r.header.role as usize >= info.roles.len()) {
            return Err(TraceError::Argument {
                what: "role of a ring",
                found: format!("{} in CTA {}", ring.header.role, ring.header.cta),
                accepted: format!("less than {}, the number of roles named", info.roles.len()),
            });
        }
        let mut bytes = Vec::new();
        let meta = meta_text(info);
        header(info, ring_capacity, rings, meta.len())?.put(&mut bytes);
        tables(info, &mut bytes)?;
        bytes.extend_from_slice(meta.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        for ring in rings {
            b::kbt_trace_ring { kept: count("records of a ring", ring.records.len())?, ..ring.header }
                .put(&mut bytes);
        }
        for ring in rings {
            ring.records.iter().for_each(|record| record.put(&mut bytes));
            out.write_all(&bytes).map_err(TraceError::io("trace"))?;
            bytes.clear();
        }
        out.write_all(&bytes).and_then(|()| out.flush()).map_err(TraceError::io("trace"))
    }
}

/// Writes the file from the bytes of a device buffer after the launch; rings that no role opened are left out.
///
/// # Errors
/// If `raw` is shorter than the layout says, or the file cannot be written.
pub fn write_device_buffer(
    out: &mut dyn Write,
    layout: &BufferLayout,
    raw: &[u8],
    info: &TraceInfo,
) -> Result<(), TraceError> {
    if raw.len() < layout.bytes() {
        return Err(TraceError::Argument {
            what: "device buffer",
            found: format!("{} bytes", raw.len()),
            accepted: format!("{} bytes", layout.bytes()),
        });
    }
    let mut rings = Vec::new();
    for index in 0..layout.rings() {
        let Some(header) = b::kbt_trace_ring::get(&raw[index * b::kbt_trace_ring::SIZE..]) else { break };
        if header.opened != b::KBT_TRACE_RING_OPEN {
            continue;
        }
        let start = layout.records_offset() + index * layout.ring_bytes();
        let slots = raw[start..start + layout.ring_bytes()].chunks_exact(b::kbt_trace_record::SIZE);
        let mut records: Vec<_> = slots.filter_map(b::kbt_trace_record::get).collect();
        unroll(&header, &mut records);
        rings.push(RingRecords { header, records });
    }
    FileWriter::write(out, info, layout.capacity(), &rings)
}

/// Puts a ring's slots in the order of time and drops those never written.
fn unroll(header: &b::kbt_trace_ring, slots: &mut Vec<b::kbt_trace_record>) {
    let capacity = slots.len();
    let written = slots.iter().take_while(|r| r.tag != 0).count();
    if written < capacity {
        slots.truncate(written);
    } else if header.closed == b::KBT_TRACE_RING_CLOSED {
        slots.rotate_left(header.total as usize % capacity);
    } else {
        // Without a count the oldest slot is the one whose clock lies behind its predecessor's.
        let behind = |w: &[b::kbt_trace_record]| w[1].clock.wrapping_sub(w[0].clock) >= 1 << 31;
        let oldest = slots.windows(2).position(behind).map_or(0, |i| i + 1);
        slots.rotate_left(oldest);
    }
}

fn header(
    info: &TraceInfo,
    ring_capacity: u32,
    rings: &[RingRecords],
    meta_bytes: usize,
) -> Result<b::kbt_trace_file_header, TraceError> {
    let mut magic = [0; 8];
    magic.copy_from_slice(&b::KBT_TRACE_FILE_MAGIC[..8]);
    let level = match info.level {
        Some(Level::Detail) => b::KBT_TRACE_DETAIL,
        _ => b::KBT_TRACE_COARSE,
    };
    let khz = info.clock.sm_mhz().map_or(0.0, |mhz| (mhz * 1000.0).round());
    let table = |what, length: usize| match count(what, length)? {
        n if n <= MAX_TABLE => Ok(n),
        n => {
            Err(TraceError::Argument { what, found: n.to_string(), accepted: format!("at most {MAX_TABLE}") })
        }
    };
    Ok(b::kbt_trace_file_header {
        magic,
        version: b::KBT_TRACE_FILE_VERSION,
        header_bytes: count("file header", b::kbt_trace_file_header::SIZE)?,
        level,
        // A float beyond the range saturates, and the reader takes 0 for unknown.
        sm_clock_khz: khz as u32,
        roles: table("roles", info.roles.len())?,
        events: table("events", info.events.len())?,
        barriers: table("barriers", info.barriers.len())?,
        edges: table("edges", info.edges.len())?,
        rings: count("rings", rings.len())?,
        ring_capacity,
        records: rings.iter().map(|r| r.records.len() as u64).sum(),
        meta_bytes: meta_bytes as u64,
    })
}

fn tables(info: &TraceInfo, bytes: &mut Vec<u8>) -> Result<(), TraceError> {
    for role in &info.roles {
        role_out(role)?.put(bytes);
    }
    for event in &info.events {
        let purpose = match event.purpose {
            EventPurpose::Plain => b::KBT_TRACE_EVENT_PLAIN,
            EventPurpose::ChunkWrite => b::KBT_TRACE_EVENT_CHUNK_WRITE,
            EventPurpose::Tile => b::KBT_TRACE_EVENT_TILE,
        };
        b::kbt_trace_event { name: name_bytes(&event.name)?, purpose, reserved: 0 }.put(bytes);
    }
    for barrier in &info.barriers {
        let purpose = match barrier.purpose {
            BarrierPurpose::Plain => b::KBT_TRACE_BARRIER_PLAIN,
            BarrierPurpose::First => b::KBT_TRACE_BARRIER_FIRST,
            BarrierPurpose::Rest => b::KBT_TRACE_BARRIER_REST,
            BarrierPurpose::Free => b::KBT_TRACE_BARRIER_FREE,
        };
        b::kbt_trace_barrier { name: name_bytes(&barrier.name)?, purpose, reserved: 0 }.put(bytes);
    }
    for edge in &info.edges {
        let role = |index: usize| count("role of an edge", index);
        let (arriving, issuer) = match edge.arriving {
            Releaser::Role(index) => (role(index)?, role(index)?),
            Releaser::Hardware { issuer } => {
                (b::KBT_TRACE_ROLE_HARDWARE, issuer.map_or(Ok(b::KBT_TRACE_ROLE_HARDWARE), role)?)
            }
        };
        let waiting = role(edge.waiting)?;
        b::kbt_trace_edge { barrier: edge.barrier.into(), arriving, waiting, issuer }.put(bytes);
    }
    Ok(())
}

fn role_out(role: &Role) -> Result<b::kbt_trace_role, TraceError> {
    let (step_kind, step_id) = match role.step {
        StepRule::Unstated => (b::KBT_TRACE_STEP_NONE, 0),
        StepRule::Wait(id) => (b::KBT_TRACE_STEP_WAIT, id),
        StepRule::Event(id) => (b::KBT_TRACE_STEP_EVENT, id),
    };
    let Work { load, tensor, math } = role.work;
    let bit = |set: bool, bit: u32| if set { bit } else { 0 };
    let work = bit(load, b::KBT_TRACE_WORK_LOAD)
        | bit(tensor, b::KBT_TRACE_WORK_TENSOR)
        | bit(math, b::KBT_TRACE_WORK_MATH);
    Ok(b::kbt_trace_role {
        name: name_bytes(&role.name)?,
        step_kind,
        step_id: step_id.into(),
        work,
        reserved: 0,
    })
}

fn name_bytes(name: &str) -> Result<[u8; b::KBT_TRACE_NAME_BYTES as usize], TraceError> {
    let mut bytes = [0; b::KBT_TRACE_NAME_BYTES as usize];
    if name.len() > bytes.len() || name.contains('\0') {
        return Err(TraceError::Argument {
            what: "name",
            found: format!("{name:?}"),
            accepted: format!("at most {} bytes of UTF-8 without NUL", bytes.len()),
        });
    }
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Ok(bytes)
}

/// One line a key; what would break the line is replaced by a space.
fn meta_text(info: &TraceInfo) -> String {
    let clean = |text: &str| text.replace(['\n', '\r'], " ");
    info.meta
        .iter()
        .map(|(key, value)| format!("{}: {}\n", clean(key).replace(':', " "), clean(value)))
        .collect()
}

fn count(what: &'static str, value: usize) -> Result<u32, TraceError> {
    u32::try_from(value).map_err(|_| TraceError::Argument {
        what,
        found: value.to_string(),
        accepted: format!("at most {}", u32::MAX),
    })
}
