//! A ring of buffers' numbers: how full it is.

use serde::{Deserialize, Serialize};

/// What is counted of a ring's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RingCount {
    /// From the fill, or its issue, to the release: by arrivals on both barriers.
    #[default]
    Taken,
    /// From the producer's getting the slot to the consumer's: by waits on both barriers, for want of arrivals.
    Ahead,
}

impl RingCount {
    /// The word used in texts.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Ahead => "ahead",
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(value: &f64) -> bool {
    *value == 0.0
}

/// How full a ring of buffers is, from its first fill to its last release in each CTA, while all its roles recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RingStats {
    /// Its name: what its barriers' names have in common.
    pub name: String,
    /// The barrier that says that a slot is full.
    pub full: String,
    /// The barrier that says that it is free.
    pub empty: String,
    /// Roles that fill it, or issue what fills it.
    pub producers: Vec<String>,
    /// Roles that free it.
    pub consumers: Vec<String>,
    /// What is counted.
    #[serde(default)]
    pub counted: RingCount,
    /// Slots counted, mean over time.
    pub mean_slots: f64,
    /// The most slots at once: a lower bound of its depth.
    pub peak_slots: u64,
    /// Time with no slot taken: the consumers have nothing.
    pub empty_percent: f64,
    /// Time with as many slots taken as ever: the producers have nowhere to write, if that is its depth.
    pub peak_percent: f64,
    /// CTAs that it was seen in.
    pub ctas: u64,
    /// Records are missing, or releases came before fills: the fewest slots seen were taken for none.
    pub relative: bool,
    /// Of the time to the last fill or release recorded, what is not in these numbers, since a role had stopped
    /// recording.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out_percent: f64,
}
