//! Step 1: what each instruction can do here, alone and together, proven in its own machine code.
//!
//! A [`spec`] names instructions and how to chain them; [`ptx`] writes the kernels, [`prepare`] compiles them,
//! and [`verify`] finds the timed window in the machine code and refuses what is not as meant. [`measure`] and
//! [`net`] turn clock counts into net rates, on a GPU through `gpu` (feature `gpu`). [`mine`] reads the rates
//! that ptxas itself writes into the control fields, for any target and with no GPU. Both end in a
//! `DeviceProfile`; [`table`] and [`compare`] show profiles, and [`outcome`] says which rates the softmax step of
//! a P·V mode rests on and what they rule out.
//!
//! The rule: no number unless the machine code between the clock reads is the one that was meant.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod ceilings;
pub mod choice;
pub mod compare;
pub mod filter;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod loops;
pub mod lowering;
pub mod measure;
pub mod mine;
pub mod net;
pub mod outcome;
pub mod pipes;
pub mod prepare;
pub mod ptx;
pub mod published;
pub mod pv;
pub mod rows;
pub mod spec;
pub mod table;
pub mod verification;
pub mod verify;

pub use outcome::{RatesOutcome, rates_for};
pub use pv::PvMode;
