//! One GPU behind a guard: context, modules, launches, events, tensor maps, clocks and throttle state.
//!
//! Everything a step crate needs from the CUDA driver lives here, and nothing of what it is needed for. A
//! machine without a driver is an ordinary case: [`Gpu::open`] returns [`GpuError::NoDriver`] and nothing
//! panics. What is only nice to know (clocks, power, throttling) comes from NVML, which is loaded by name;
//! where it is absent those values are unknown, never an error.
//!
//! The driver API is called directly through `cudarc::driver::sys`: its safe layer has no clusters, no tensor
//! maps and no parameters of arbitrary alignment, and tracks events around every launch, which a measurement
//! cannot have.
//!
//! ```no_run
//! use kbt_gpu::{Args, Gpu, GpuError, LaunchShape};
//!
//! fn double(cubin: &[u8], values: &[f32]) -> Result<(Vec<f32>, Vec<f64>), GpuError> {
//!     let gpu = Gpu::open(0)?;
//!     let kernel = gpu.load(cubin)?.function("double_in_place")?;
//!     let data = gpu.upload(values)?;
//!     let shape = LaunchShape::linear(values.len().div_ceil(128) as u32, 128);
//!     let mut args = Args::new();
//!     args.push_buffer(&data).push(values.len() as u32);
//!     // SAFETY: the kernel takes a pointer to f32 and a length, and `data` outlives the launches.
//!     unsafe { gpu.launch(&kernel, shape, &mut args)? };
//!     let doubled = data.read()?;
//!     let micros = gpu.time_launches(30, 3, || unsafe { gpu.launch(&kernel, shape, &mut args) })?;
//!     Ok((doubled, micros))
//! }
//! ```

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod buffer;
mod date;
mod error;
mod gpu;
mod info;
mod launch;
mod module;
mod monitor;
mod tensor_map;
mod time;

pub use buffer::{Buffer, Scalar};
pub use date::today;
pub use error::GpuError;
pub use gpu::Gpu;
pub use info::DeviceInfo;
pub use launch::{Args, LaunchShape};
pub use module::{Function, Module};
pub use monitor::{DeviceState, Monitor, ThrottleReason};
pub use tensor_map::{ElementType, OobFill, Swizzle, TensorMap, TensorMapError, Tiled};
pub use time::{Event, L2Flush, Stream};
