#![doc = include_str!("../README.md")]
//! # In this crate
//!
//! [`compare`] judges two outputs, [`flake`] runs the same thing again and again, [`bisect`] finds the knob to
//! blame, [`probe`] makes inputs with known answers, [`mod@reference`] computes attention in f64, [`stats`] says
//! what a number of runs can show, and [`outcome`] is what the ladder's step 6 keeps. Things are run through
//! [`runner::Runner`], which is a trait: no process is started here, and no GPU is known.

pub mod bisect;
pub mod compare;
pub mod flake;
pub mod outcome;
pub mod probe;
pub mod reference;
mod render;
mod rng;
pub mod runner;
mod simd;
pub mod stats;

/// The schema of this crate's outcome files.
pub const SCHEMA: &str = "kbt.validate/1";
