//! Step 4 of the ladder: exact number formats, and which cheaper program computes the same.
//!
//! - [`mod@format`] and [`block`]: e2m1 to f16 and the block formats over them, to the bit, without a GPU.
//! - [`lang`]: a small expression language for what a kernel does per element, group and row.
//! - [`lift`]: compiled PTX to programs of that language, with what could not be lifted named.
//! - [`rewrite`]: equality saturation and exact extraction; candidates with their guards, proof and replay.
//! - [`cost`]: what operations cost on a device, from its profile.
//! - [`emit`]: a program as CUDA source for device and host.
//! - [`check`]: offset budget, lost codes and free improvements of a described scheme.
//! - [`outcome`]: all of it as files, and the step's verdict.
//!
//! No GPU, no CUDA and no command line are known here.

pub mod attention;
pub mod block;
pub mod check;
pub mod cost;
pub mod emit;
pub mod format;
pub mod lang;
pub mod lift;
pub mod outcome;
pub mod rewrite;
mod simd;
