//! The C structs as little-endian bytes, on any host, by the offsets that bindgen computed.

use crate::bindings::{
    kbt_trace_barrier, kbt_trace_edge, kbt_trace_event, kbt_trace_file_header, kbt_trace_record,
    kbt_trace_ring, kbt_trace_role,
};

/// A C struct that is stored as it lies in memory on a little-endian machine.
pub(super) trait Wire: Sized {
    /// Its size in bytes.
    const SIZE: usize;
    /// Reads it from the first `SIZE` bytes; `None` if there are fewer.
    fn get(bytes: &[u8]) -> Option<Self>;
    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);
}

/// A field of such a struct.
trait Field: Copy {
    fn get(bytes: &[u8], offset: usize) -> Option<Self>;
    fn put(self, out: &mut [u8], offset: usize);
}

macro_rules! numbers {
    ($($type:ty)*) => {$(
        impl Field for $type {
            fn get(bytes: &[u8], offset: usize) -> Option<Self> {
                let bytes = bytes.get(offset..offset + size_of::<Self>())?;
                Some(Self::from_le_bytes(bytes.try_into().ok()?))
            }
            fn put(self, out: &mut [u8], offset: usize) {
                out[offset..offset + size_of::<Self>()].copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
numbers!(u32 u64);

impl<const N: usize> Field for [u8; N] {
    fn get(bytes: &[u8], offset: usize) -> Option<Self> {
        bytes.get(offset..offset + N)?.try_into().ok()
    }
    fn put(self, out: &mut [u8], offset: usize) {
        out[offset..offset + N].copy_from_slice(&self);
    }
}

/// Every field is named, so that a field added to the header does not compile until it is named here.
macro_rules! wire {
    ($($type:ident { $($field:ident),* })*) => {$(
        impl Wire for $type {
            const SIZE: usize = size_of::<Self>();
            fn get(bytes: &[u8]) -> Option<Self> {
                Some(Self { $($field: Field::get(bytes, std::mem::offset_of!($type, $field))?,)* })
            }
            fn put(&self, out: &mut Vec<u8>) {
                let mut bytes = [0_u8; Self::SIZE];
                $(self.$field.put(&mut bytes, std::mem::offset_of!($type, $field));)*
                out.extend_from_slice(&bytes);
            }
        }
    )*};
}

wire! {
    kbt_trace_record { tag, clock }
    kbt_trace_ring {
        opened, closed, cta, smid, role, total, kept, reserved, open_clock, close_clock, open_global_ns,
        close_global_ns
    }
    kbt_trace_file_header {
        magic, version, header_bytes, level, sm_clock_khz, roles, events, barriers, edges, rings, ring_capacity,
        records, meta_bytes
    }
    kbt_trace_role { name, step_kind, step_id, work, reserved }
    kbt_trace_event { name, purpose, reserved }
    kbt_trace_barrier { name, purpose, reserved }
    kbt_trace_edge { barrier, arriving, waiting, issuer }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_struct_is_written_little_endian_and_read_back() {
        let ring = kbt_trace_ring { cta: 7, total: 0x0102_0304, close_global_ns: 9, ..Default::default() };
        let mut bytes = Vec::new();
        ring.put(&mut bytes);
        assert_eq!(bytes.len(), 64);
        assert_eq!(bytes[20..24], [4, 3, 2, 1], "total");
        let back = kbt_trace_ring::get(&bytes).unwrap();
        assert_eq!((back.cta, back.total, back.close_global_ns), (7, 0x0102_0304, 9));
        assert!(kbt_trace_ring::get(&bytes[..63]).is_none());
    }
}
