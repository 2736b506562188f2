#![doc = include_str!("../README.md")]
//! # In this crate
//!
//! What lives here: the element types ([`Dtype`]), a tensor in memory ([`Tensor`], [`TensorSet`]), and readers
//! for safetensors, npy, npz and PyTorch `.pt` files ([`TensorFile`] reads headers first and streams the data;
//! [`TensorSet::read`] takes a whole file). Files are recognised by their content, never by their name, and
//! an element type that a file lost is asked for ([`ReadOptions`]), never guessed.
//!
//! What does not: arithmetic on tensors, comparison (kbt-validate), and encoding to 8- and 4-bit formats
//! (kbt-quant). Decoding them is exact and lives here, in [`Dtype::decode_f64`].

mod archive;
mod dtype;
mod error;
mod file;
mod layout;
mod npy;
mod pickle;
mod pt;
mod safetensors;
mod set;
mod source;
mod swapped;
mod tensor;

pub use dtype::{Dtype, UnknownDtype};
pub use error::TensorError;
pub use file::{ReadOptions, TensorFile, TensorInfo};
pub use npy::{npy_bytes, write_npy};
pub use set::TensorSet;
pub use tensor::{Tensor, sha256_hex};
