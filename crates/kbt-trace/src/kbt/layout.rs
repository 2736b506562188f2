//! How the device buffer is laid out, for whoever allocates it and launches the kernel.

use crate::TraceError;
use crate::bindings::{kbt_trace_buffer, kbt_trace_record, kbt_trace_ring};

/// The shape of a device buffer: ring headers of every recording CTA and role, then their records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferLayout {
    roles: u32,
    capacity: u32,
    cta_stride: u32,
    cta_limit: u32,
}

impl BufferLayout {
    /// A buffer for `cta_limit` CTAs, every `cta_stride`-th of the grid, with `roles` rings each of `capacity`
    /// records.
    ///
    /// # Errors
    /// If a number is zero, the capacity no power of two, or the buffer larger than 64 GiB.
    pub fn new(roles: u32, capacity: u32, cta_stride: u32, cta_limit: u32) -> Result<Self, TraceError> {
        let argument = |what, found: u32, accepted: &str| TraceError::Argument {
            what,
            found: found.to_string(),
            accepted: accepted.to_owned(),
        };
        if !capacity.is_power_of_two() {
            return Err(argument("records per ring", capacity, "a power of two"));
        }
        for (what, value) in [("roles", roles), ("cta_stride", cta_stride), ("cta_limit", cta_limit)] {
            if value == 0 {
                return Err(argument(what, value, "at least 1"));
            }
        }
        let layout = Self { roles, capacity, cta_stride, cta_limit };
        let rings = u128::from(roles) * u128::from(cta_limit);
        let bytes = rings
            * (size_of::<kbt_trace_ring>() as u128
                + u128::from(capacity) * size_of::<kbt_trace_record>() as u128);
        if bytes > 64 << 30 {
            return Err(argument("cta_limit", cta_limit, "a buffer of at most 64 GiB in all"));
        }
        Ok(layout)
    }

    /// Rings in the buffer.
    #[must_use]
    pub const fn rings(&self) -> usize {
        self.roles as usize * self.cta_limit as usize
    }

    /// Rings per CTA.
    #[must_use]
    pub const fn roles(&self) -> u32 {
        self.roles
    }

    /// Records per ring.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Bytes to allocate, 16-byte aligned, and to zero before the launch.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.records_offset() + self.rings() * self.ring_bytes()
    }

    /// What the kernel takes by value, for a buffer at the device address `base`.
    #[must_use]
    pub const fn buffer(&self, base: u64) -> kbt_trace_buffer {
        kbt_trace_buffer {
            base,
            roles: self.roles,
            ring_mask: self.capacity - 1,
            cta_stride: self.cta_stride,
            cta_limit: self.cta_limit,
        }
    }

    /// What the kernel takes where nothing is to be recorded.
    #[must_use]
    pub fn no_buffer() -> kbt_trace_buffer {
        kbt_trace_buffer { cta_stride: 1, ..Default::default() }
    }

    pub(super) const fn records_offset(&self) -> usize {
        self.rings() * size_of::<kbt_trace_ring>()
    }

    pub(super) const fn ring_bytes(&self) -> usize {
        self.capacity as usize * size_of::<kbt_trace_record>()
    }
}
