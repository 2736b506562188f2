//! What can go wrong between kbt and a GPU.

use crate::TensorMapError;
use cudarc::driver::sys;
use std::ffi::CStr;

/// Why a GPU could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// The machine has no CUDA driver library.
    #[error("no CUDA driver on this machine (libcuda was not found)")]
    NoDriver,
    /// There is a driver, and no device it can use.
    #[error("the CUDA driver sees no device")]
    NoDevice,
    /// There are devices, but not this one.
    #[error("there is no device {ordinal}; the driver sees {count}, numbered from 0")]
    NoSuchDevice {
        /// The ordinal asked for.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// The driver lacks functions that kbt calls.
    #[error("the driver supports CUDA {major}.{minor}; 12.8 or newer is needed")]
    DriverTooOld {
        /// Major version the driver supports.
        major: u32,
        /// Minor version the driver supports.
        minor: u32,
    },
    /// The driver refused a call.
    #[error("{call} failed: {name} ({text})")]
    Driver {
        /// The driver function, with what it was called for.
        call: String,
        /// The driver's name of the error, for example `CUDA_ERROR_INVALID_VALUE`.
        name: String,
        /// The driver's own explanation.
        text: String,
    },
    /// A module holds no kernel of this name.
    #[error("the module has no kernel `{0}`")]
    NoKernel(String),
    /// A module holds no variable of this name.
    #[error("the module has no variable `{0}`")]
    NoVariable(String),
    /// The arguments do not fit the kernel's parameters.
    #[error("kernel `{kernel}`: {message}")]
    Arguments {
        /// The kernel.
        kernel: String,
        /// What does not fit.
        message: String,
    },
    /// A copy does not fit its buffer.
    #[error("a copy of {bytes} bytes at offset {offset} does not fit a buffer of {len}")]
    OutOfBounds {
        /// Where in the buffer.
        offset: usize,
        /// How much.
        bytes: usize,
        /// The buffer's length.
        len: usize,
    },
    /// A tensor map that the hardware cannot encode.
    #[error("tensor map: {0}")]
    TensorMap(#[from] TensorMapError),
}

impl GpuError {
    /// Whether the machine simply has no usable GPU, as opposed to one that failed.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::NoDriver | Self::NoDevice)
    }
}

/// Turns a driver status into a result; `call` says which function was called, and for what.
pub(crate) fn check(status: sys::CUresult, call: impl FnOnce() -> String) -> Result<(), GpuError> {
    match status {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        sys::CUresult::CUDA_ERROR_NO_DEVICE => Err(GpuError::NoDevice),
        // What a CUDA toolkit installs in place of a driver, to link against.
        sys::CUresult::CUDA_ERROR_STUB_LIBRARY => Err(GpuError::NoDriver),
        other => Err(GpuError::Driver { call: call(), name: format!("{other:?}"), text: describe(other) }),
    }
}

/// The driver's sentence for a status. Only called after a driver function returned, so the library is there.
fn describe(status: sys::CUresult) -> String {
    let mut text = std::ptr::null();
    // SAFETY: `text` outlives the call; on success it points at a static string of the driver.
    unsafe {
        if sys::cuGetErrorString(status, &raw mut text) == sys::CUresult::CUDA_SUCCESS && !text.is_null() {
            return CStr::from_ptr(text).to_string_lossy().into_owned();
        }
    }
    "the driver gives no explanation".to_owned()
}
