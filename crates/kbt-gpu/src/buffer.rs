//! Device memory: owned buffers, and copies that check their bounds.

use crate::error::check;
use crate::gpu::Context;
use crate::{Gpu, GpuError, Stream};
use cudarc::driver::sys;
use std::sync::Arc;

/// A plain number that is the same bytes on both sides.
///
/// # Safety
/// The type has no padding and every bit pattern is a valid value.
pub unsafe trait Scalar: Copy + 'static {}

macro_rules! scalars { ($($t:ty)*) => { $(
    // SAFETY: a primitive number: no padding, every bit pattern valid.
    unsafe impl Scalar for $t {}
)* } }
scalars! { u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 }

fn bytes_of<T: Scalar>(values: &[T]) -> &[u8] {
    // SAFETY: a Scalar has no padding, so all its bytes are initialised.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

fn bytes_of_mut<T: Scalar>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as above, and every bit pattern is a valid Scalar.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// Device memory, freed when dropped. Lengths and offsets are in bytes.
pub struct Buffer {
    context: Arc<Context>,
    stream: Stream,
    address: u64,
    len: usize,
}

impl Gpu {
    /// Allocates device memory; its contents are undefined. At least 256-byte aligned.
    pub fn alloc(&self, bytes: usize) -> Result<Buffer, GpuError> {
        self.context().bind()?;
        let mut address = 0;
        if bytes > 0 {
            // SAFETY: the context is current, `address` outlives the call.
            check(unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) }, || {
                format!("cuMemAlloc({bytes} bytes)")
            })?;
        }
        Ok(Buffer { context: self.context().clone(), stream: self.stream().clone(), address, len: bytes })
    }

    /// Allocates device memory and zeroes it.
    pub fn zeros(&self, bytes: usize) -> Result<Buffer, GpuError> {
        let mut buffer = self.alloc(bytes)?;
        buffer.fill(0)?;
        Ok(buffer)
    }

    /// Allocates device memory that holds a copy of `values`.
    pub fn upload<T: Scalar>(&self, values: &[T]) -> Result<Buffer, GpuError> {
        let mut buffer = self.alloc(size_of_val(values))?;
        buffer.write(0, values)?;
        Ok(buffer)
    }
}

impl Buffer {
    /// The device address.
    #[must_use]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Bytes held.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds nothing.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets every byte, in stream order.
    pub fn fill(&mut self, byte: u8) -> Result<(), GpuError> {
        if self.len == 0 {
            return Ok(());
        }
        self.context.bind()?;
        // SAFETY: the range is the whole allocation, which lives until after the stream-ordered work.
        check(unsafe { sys::cuMemsetD8Async(self.address, byte, self.len, self.stream.raw()) }, || {
            format!("cuMemsetD8({} bytes)", self.len)
        })
    }

    /// Fills with 0xFF bytes: NaN in every float format, so a result that was never written shows.
    pub fn poison(&mut self) -> Result<(), GpuError> {
        self.fill(0xff)
    }

    /// Copies values to the device at a byte offset. The copy is done when this returns.
    pub fn write<T: Scalar>(&mut self, offset: usize, values: &[T]) -> Result<(), GpuError> {
        let bytes = bytes_of(values);
        let address = self.range(offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.context.bind()?;
        // SAFETY: the range was checked; both sides live until the synchronisation below.
        check(
            unsafe {
                sys::cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), self.stream.raw())
            },
            || format!("cuMemcpyHtoD({} bytes)", bytes.len()),
        )?;
        self.stream.synchronize()
    }

    /// Copies from the device at a byte offset, after all earlier work of the default stream.
    pub fn read_into<T: Scalar>(&self, offset: usize, values: &mut [T]) -> Result<(), GpuError> {
        let bytes = bytes_of_mut(values);
        let address = self.range(offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.context.bind()?;
        let len = bytes.len();
        // SAFETY: the range was checked; both sides live until the synchronisation below.
        check(
            unsafe { sys::cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), address, len, self.stream.raw()) },
            || format!("cuMemcpyDtoH({len} bytes)"),
        )?;
        self.stream.synchronize()
    }

    /// The whole buffer as values; a rest shorter than one value is left out.
    pub fn read<T: Scalar + Default>(&self) -> Result<Vec<T>, GpuError> {
        let mut values = vec![T::default(); self.len / size_of::<T>()];
        self.read_into(0, &mut values)?;
        Ok(values)
    }

    /// Copies another buffer's first bytes into this one's start, in stream order.
    pub fn copy_from(&mut self, source: &Self, bytes: usize) -> Result<(), GpuError> {
        let to = self.range(0, bytes)?;
        let from = source.range(0, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        self.context.bind()?;
        // SAFETY: both ranges were checked and live; the driver keeps the order within the stream.
        check(unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.stream.raw()) }, || {
            format!("cuMemcpyDtoD({bytes} bytes)")
        })
    }

    /// Fills the buffer with copies of `pattern`, in stream order; a pattern of no length changes nothing.
    pub fn fill_with(&mut self, pattern: &Self) -> Result<(), GpuError> {
        self.context.bind()?;
        let mut offset = 0;
        while offset < self.len && !pattern.is_empty() {
            let bytes = pattern.len.min(self.len - offset);
            let (to, from) = (self.range(offset, bytes)?, pattern.range(0, bytes)?);
            // SAFETY: both ranges were checked and live; the driver keeps the order within the stream.
            check(unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.stream.raw()) }, || {
                format!("cuMemcpyDtoD({bytes} bytes)")
            })?;
            offset += bytes;
        }
        Ok(())
    }

    fn range(&self, offset: usize, bytes: usize) -> Result<u64, GpuError> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.len);
        end.map(|_| self.address + offset as u64).ok_or(GpuError::OutOfBounds {
            offset,
            bytes,
            len: self.len,
        })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.address != 0 && self.context.bind().is_ok() {
            // SAFETY: allocated by `alloc`, freed once. cuMemFree waits for work that uses it.
            let _ = unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({:#x}, {} bytes)", self.address, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_their_own_bytes() {
        assert_eq!(bytes_of(&[1u32, 2]), [1, 0, 0, 0, 2, 0, 0, 0]);
        let mut halves = [0u16; 2];
        bytes_of_mut(&mut halves).copy_from_slice(&[0x34, 0x12, 0xff, 0xff]);
        assert_eq!(halves, [0x1234, 0xffff]);
    }
}
