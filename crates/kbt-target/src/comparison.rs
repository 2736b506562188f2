//! What a comparison of two settings came to.

use crate::launch::Sample;
use crate::stats::Interval;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a comparison says of B against A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speed {
    /// B takes less time.
    Faster,
    /// B takes more time.
    Slower,
    /// The difference lies inside what counts as the same.
    Same,
    /// Not enough is known.
    Ambiguous,
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Same => "same",
            Self::Ambiguous => "ambiguous",
        })
    }
}

/// Why a comparison ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// The interval decided.
    Decided,
    /// B was clearly slow, so no interval was made tight.
    ClearlySlow,
    /// The last block was reached.
    Blocks,
    /// The time was over.
    Budget,
}

/// B timed against A.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What it says.
    pub speed: Speed,
    /// Time of B over time of A: below 1 B is faster.
    pub ratio: f64,
    /// The interval of the ratio at the stated error rate; absent after an early stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// The interval of the ratio in clock cycles, where every process read its clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycles: Option<Interval>,
    /// The chance that two equal settings are called faster or slower.
    pub error_rate: f64,
    /// Pairs of processes that were run.
    pub pairs: u32,
    /// Pairs that the interval rests on.
    pub kept_pairs: u32,
    /// Why it ended.
    pub stopped: Stopped,
    /// What else to know: discarded samples, clocks that moved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The samples of A, in the order taken.
    pub a: Vec<Sample>,
    /// The samples of B, in the order taken.
    pub b: Vec<Sample>,
}
