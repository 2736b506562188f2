//! What a run of the loops gives: cycles a trip, by loop and number of warps.

use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredLoops {
    /// `kbt.loops/1`.
    pub schema: String,
    /// Who compiled the loops, for which target.
    pub compiler: String,
    /// The card, the command, the date.
    pub provenance: Provenance,
    /// The loops, in the corpus' order.
    pub loops: Vec<MeasuredLoop>,
    /// Loops without a time, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<(String, String)>,
}

/// One loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredLoop {
    /// The kernel's name.
    pub name: String,
    /// The digest of its instructions' encodings, 16 hex digits: a time belongs to this machine code alone.
    pub digest: String,
    /// Its times.
    pub times: Vec<TripTime>,
}

/// The time of one trip.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TripTime {
    /// Warps each scheduler ran.
    pub warps: u32,
    /// Cycles until all of them had made one more trip, the median over the SMs and repeats.
    pub cycles: f64,
    /// Largest less smallest over the repeats, relative to the median, in percent.
    pub spread_percent: f64,
}

impl MeasuredLoops {
    /// The schema this version writes.
    pub const SCHEMA: &'static str = "kbt.loops/1";
}
