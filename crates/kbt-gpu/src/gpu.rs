//! The device and its context.

use crate::error::check;
use crate::{DeviceInfo, GpuError, Monitor, Stream};
use cudarc::driver::sys;
use std::sync::Arc;

/// One GPU, its primary context retained. Cheap to clone; clones share the context and the stream.
///
/// Work goes to one stream in order unless another is named, so a launch after a copy sees the copy.
#[derive(Clone)]
pub struct Gpu {
    inner: Arc<Inner>,
}

struct Inner {
    context: Arc<Context>,
    info: DeviceInfo,
    stream: Stream,
}

/// A retained primary context. Everything that lives in it holds one of these.
pub(crate) struct Context {
    device: sys::CUdevice,
    raw: sys::CUcontext,
}

// SAFETY: a CUcontext may be made current in any thread; every call binds it first.
unsafe impl Send for Context {}
// SAFETY: as above; the driver locks its own state.
unsafe impl Sync for Context {}

impl Context {
    /// Makes the context current in this thread. Every driver call of the crate is preceded by it.
    pub(crate) fn bind(&self) -> Result<(), GpuError> {
        // SAFETY: the context is retained for as long as self lives.
        check(unsafe { sys::cuCtxSetCurrent(self.raw) }, || "cuCtxSetCurrent".to_owned())
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once in `open`. A failure here leaves nothing to do.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

impl Gpu {
    /// Opens a device by its ordinal, from 0.
    ///
    /// On a machine without a driver this is [`GpuError::NoDriver`]; with a driver and no device
    /// [`GpuError::NoDevice`].
    pub fn open(ordinal: u32) -> Result<Self, GpuError> {
        let count = Self::count()?;
        if ordinal >= count {
            return Err(GpuError::NoSuchDevice { ordinal, count });
        }
        let cuda = cuda_version()?;
        let mut device = 0;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the driver is initialised (count) and the ordinal exists; both outputs outlive the calls.
        unsafe {
            let index = i32::try_from(ordinal).unwrap_or(i32::MAX);
            check(sys::cuDeviceGet(&raw mut device, index), || format!("cuDeviceGet({ordinal})"))?;
            check(sys::cuDevicePrimaryCtxRetain(&raw mut raw, device), || {
                format!("cuDevicePrimaryCtxRetain({ordinal})")
            })?;
        }
        let context = Arc::new(Context { device, raw });
        context.bind()?;
        let info = DeviceInfo::query(ordinal, device, cuda)?;
        let stream = Stream::new(&context)?;
        Ok(Self { inner: Arc::new(Inner { context, info, stream }) })
    }

    /// How many devices the driver sees; at least one, else an error that says why.
    pub fn count() -> Result<u32, GpuError> {
        // SAFETY: only tries to load the library by its usual names.
        if !unsafe { sys::is_culib_present() } {
            return Err(GpuError::NoDriver);
        }
        let mut count = 0;
        // SAFETY: the library is present; cuInit may be called any number of times.
        unsafe {
            check(sys::cuInit(0), || "cuInit".to_owned())?;
            check(sys::cuDeviceGetCount(&raw mut count), || "cuDeviceGetCount".to_owned())?;
        }
        match u32::try_from(count) {
            Ok(count) if count > 0 => Ok(count),
            _ => Err(GpuError::NoDevice),
        }
    }

    /// What the device is.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }

    /// The stream that work goes to where no other is named.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.inner.stream
    }

    /// A further stream, which does not wait for the others.
    pub fn new_stream(&self) -> Result<Stream, GpuError> {
        Stream::new(&self.inner.context)
    }

    /// Waits until all work of the default stream is done; reports a kernel that failed.
    pub fn synchronize(&self) -> Result<(), GpuError> {
        self.inner.stream.synchronize()
    }

    /// Clocks, power and throttle state of this device. Values that cannot be had are unknown.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor::for_bus_id(&self.inner.info.pci_bus_id)
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.inner.context
    }
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Gpu").field(&self.inner.info.name).finish()
    }
}

/// The CUDA version that the driver supports, 13000 for 13.0. A driver that lacks a function we call would end
/// the process at the call; the newest one called is cuEventElapsedTime_v2, of 12.8.
fn cuda_version() -> Result<u32, GpuError> {
    let mut version = 0;
    // SAFETY: the library is present, `version` outlives the call.
    check(unsafe { sys::cuDriverGetVersion(&raw mut version) }, || "cuDriverGetVersion".to_owned())?;
    let version = u32::try_from(version).unwrap_or(0);
    if version < 12_080 {
        return Err(GpuError::DriverTooOld { major: version / 1000, minor: version % 1000 / 10 });
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_gpu_is_an_ordinary_error_and_a_bad_ordinal_names_the_count() {
        match Gpu::open(4096) {
            Err(GpuError::NoSuchDevice { ordinal: 4096, count }) => assert!(count > 0),
            Err(error) => assert!(error.is_absent(), "{error}"),
            Ok(_) => panic!("no machine has 4097 devices"),
        }
    }
}
