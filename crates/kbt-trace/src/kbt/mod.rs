//! kbt's own trace: the device buffer that `kbt/trace.cuh` fills, and the `.kbttrace` file.
//!
//! The layout is `kbt/trace_format.h`, read here through [`crate::bindings`]; no offset is written by hand.
//!
//! A record names its event or barrier by its place in [`TraceInfo::events`](crate::TraceInfo::events) or
//! [`TraceInfo::barriers`](crate::TraceInfo::barriers), 4095 at most. The device does not mask the id: a larger one changes
//! the kind of its record, so that begins and ends lack their partners, or the kind is unknown; both are reported.

mod check;
mod layout;
mod place;
mod read;
mod tables;
mod wire;
mod write;

pub use layout::BufferLayout;
pub use read::KbtSource;
pub use write::{FileWriter, RingRecords, write_device_buffer};

use crate::bindings as b;

/// Tables longer than this are taken for damage.
const MAX_TABLE: u32 = b::KBT_TRACE_ID_MASK + 1;
/// Text longer than this is taken for damage.
const MAX_META: u64 = 1 << 20;

/// A record's tag. An id above 4095 loses its upper bits here, where the device's would change the kind.
#[must_use]
pub const fn tag(kind: u32, id: u32, step: u32) -> u32 {
    kind << b::KBT_TRACE_KIND_SHIFT
        | (id & b::KBT_TRACE_ID_MASK) << b::KBT_TRACE_ID_SHIFT
        | (step & b::KBT_TRACE_STEP_MASK)
}
