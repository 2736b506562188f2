//! Streams, events and timed launches.

use crate::error::check;
use crate::gpu::Context;
use crate::{Buffer, Gpu, GpuError};
use cudarc::driver::sys;
use std::sync::Arc;

/// A queue of work in order. Clones are the same queue.
#[derive(Clone)]
pub struct Stream {
    inner: Arc<RawStream>,
}

struct RawStream {
    context: Arc<Context>,
    raw: sys::CUstream,
}

// SAFETY: stream handles may be used from any thread with the context current.
unsafe impl Send for RawStream {}
// SAFETY: as above.
unsafe impl Sync for RawStream {}

impl Drop for RawStream {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: created once, destroyed once; the driver finishes queued work first.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.raw) };
        }
    }
}

impl Stream {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, GpuError> {
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current, `raw` outlives the call.
        check(unsafe { sys::cuStreamCreate(&raw mut raw, flags) }, || "cuStreamCreate".to_owned())?;
        Ok(Self { inner: Arc::new(RawStream { context: context.clone(), raw }) })
    }

    /// Waits until all work queued so far is done; reports a kernel that failed.
    pub fn synchronize(&self) -> Result<(), GpuError> {
        self.inner.context.bind()?;
        // SAFETY: the stream lives as long as self.
        check(unsafe { sys::cuStreamSynchronize(self.inner.raw) }, || "cuStreamSynchronize".to_owned())
    }

    /// Whether all work queued so far is done. A watchdog asks this instead of waiting for a kernel that hangs.
    pub fn is_done(&self) -> Result<bool, GpuError> {
        self.inner.context.bind()?;
        // SAFETY: the stream lives as long as self.
        match unsafe { sys::cuStreamQuery(self.inner.raw) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            status => check(status, || "cuStreamQuery".to_owned()).map(|()| true),
        }
    }

    pub(crate) fn raw(&self) -> sys::CUstream {
        self.inner.raw
    }
}

/// A point in a stream, with its time.
pub struct Event {
    context: Arc<Context>,
    raw: sys::CUevent,
}

// SAFETY: event handles may be used from any thread with the context current.
unsafe impl Send for Event {}

impl Event {
    /// Queues the event on a stream; its time is taken when the stream reaches it.
    pub fn record(&self, stream: &Stream) -> Result<(), GpuError> {
        self.context.bind()?;
        // SAFETY: event and stream live through the call and belong to one context.
        check(unsafe { sys::cuEventRecord(self.raw, stream.raw()) }, || "cuEventRecord".to_owned())
    }

    /// Microseconds from this event to a later one; both must have been reached. Resolution about 0.5 us.
    pub fn micros_until(&self, later: &Self) -> Result<f64, GpuError> {
        self.context.bind()?;
        let mut millis = 0f32;
        // SAFETY: both events live through the call, the output outlives it.
        check(unsafe { sys::cuEventElapsedTime_v2(&raw mut millis, self.raw, later.raw) }, || {
            "cuEventElapsedTime".to_owned()
        })?;
        Ok(f64::from(millis) * 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: created once, destroyed once.
            let _ = unsafe { sys::cuEventDestroy_v2(self.raw) };
        }
    }
}

impl Gpu {
    /// An event that keeps time.
    pub fn event(&self) -> Result<Event, GpuError> {
        self.context().bind()?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUevent_flags_enum::CU_EVENT_DEFAULT as u32;
        // SAFETY: the context is current, `raw` outlives the call.
        check(unsafe { sys::cuEventCreate(&raw mut raw, flags) }, || "cuEventCreate".to_owned())?;
        Ok(Event { context: self.context().clone(), raw })
    }

    /// Times `n` calls of `launch` after `warmup` untimed ones; microseconds of each, in order.
    ///
    /// `launch` queues work on the default stream. All calls are queued back to back.
    pub fn time_launches(
        &self,
        n: usize,
        warmup: usize,
        launch: impl FnMut() -> Result<(), GpuError>,
    ) -> Result<Vec<f64>, GpuError> {
        self.time_launches_with(n, warmup, || Ok(()), launch)
    }

    /// Like [`Gpu::time_launches`], with `before` called, untimed, ahead of each launch: an L2 flush, a reset
    /// of barriers.
    pub fn time_launches_with(
        &self,
        n: usize,
        warmup: usize,
        mut before: impl FnMut() -> Result<(), GpuError>,
        mut launch: impl FnMut() -> Result<(), GpuError>,
    ) -> Result<Vec<f64>, GpuError> {
        for _ in 0..warmup {
            before()?;
            launch()?;
        }
        let mut pairs = Vec::with_capacity(n);
        for _ in 0..n {
            pairs.push((self.event()?, self.event()?));
        }
        for (start, end) in &pairs {
            before()?;
            start.record(self.stream())?;
            launch()?;
            end.record(self.stream())?;
        }
        self.synchronize()?;
        pairs.iter().map(|(start, end)| start.micros_until(end)).collect()
    }

    /// A buffer whose overwriting leaves nothing of the caller's in L2: twice its capacity.
    pub fn l2_flush(&self) -> Result<L2Flush, GpuError> {
        let bytes = usize::try_from(self.info().l2_bytes * 2).unwrap_or(usize::MAX).max(64 << 20);
        Ok(L2Flush { buffer: self.alloc(bytes)? })
    }
}

/// Overwrites more than L2 holds, so that the next launch starts cold.
#[derive(Debug)]
pub struct L2Flush {
    buffer: Buffer,
}

impl L2Flush {
    /// Queues the overwrite on the default stream.
    pub fn run(&mut self) -> Result<(), GpuError> {
        self.buffer.fill(0)
    }
}
