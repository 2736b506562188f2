//! How many processes a comparison may take, and what it must decide.

use serde::{Deserialize, Serialize};

/// How two settings are timed against each other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimingPolicy {
    /// Blocks of four processes, two pairs, before the first look; at least 2.
    pub min_blocks: u32,
    /// Blocks at which it ends undecided.
    pub max_blocks: u32,
    /// The chance that two equal settings are called faster or slower.
    pub error_rate: f64,
    /// Differences inside this fraction count as the same: 0.01 is 1 %.
    pub same_within: f64,
    /// Stop once every sample of B is slower than every sample of A by this fraction, or with fewer than five pairs
    /// by more, after two pairs at the earliest; never where absent.
    pub slow_margin: Option<f64>,
    /// A sample whose clock is below this fraction of the best one is discarded.
    pub clock_floor: f64,
    /// Seconds of rest before each process; the target's own where absent.
    pub cooldown_s: Option<f64>,
    /// Seconds after which no further block is begun.
    pub budget_s: Option<f64>,
    /// Bootstrap redraws.
    pub resamples: u32,
    /// Seed of the bootstrap.
    pub seed: u64,
}

impl Default for TimingPolicy {
    fn default() -> Self {
        Self {
            min_blocks: 2,
            max_blocks: 8,
            error_rate: 0.01,
            same_within: 0.01,
            slow_margin: Some(0.1),
            clock_floor: 0.9,
            cooldown_s: None,
            budget_s: None,
            resamples: 2000,
            seed: 1,
        }
    }
}

impl TimingPolicy {
    /// For a first look: fewer processes, the same error rate, hence more answers `ambiguous`.
    #[must_use]
    pub fn quick() -> Self {
        Self { max_blocks: 3, same_within: 0.02, ..Self::default() }
    }

    /// Every comparison to the end of its blocks or a decision, however slow the setting.
    #[must_use]
    pub fn exhaustive() -> Self {
        Self { slow_margin: None, ..Self::default() }
    }

    /// The numbers of blocks after which the data is looked at: half as many again each time.
    #[must_use]
    pub fn looks(&self) -> Vec<u32> {
        let last = self.max_blocks.max(self.min_blocks).max(2);
        let mut looks = Vec::new();
        let mut next = self.min_blocks.max(2);
        while next < last {
            looks.push(next);
            next = next.saturating_mul(3) / 2;
        }
        looks.push(last);
        looks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_few_and_end_at_the_last_block() {
        assert_eq!(TimingPolicy::default().looks(), [2, 3, 4, 6, 8]);
        assert_eq!(TimingPolicy::quick().looks(), [2, 3]);
        assert_eq!(TimingPolicy { min_blocks: 0, max_blocks: 0, ..TimingPolicy::default() }.looks(), [2]);
    }
}
