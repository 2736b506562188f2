//! The search for a cheaper program: equality saturation, then exact extraction over shared terms.
//!
//! [`search`] is the entry. Rules are data in `rules`; what they may assume of values is worked out in `analysis`;
//! `extract` finds the cheapest choice; `replay` runs baseline and candidates bit by bit.

mod analysis;
mod baseline;
mod decision;
mod deliberate;
mod extract;
mod extraction;
mod fate;
mod graph;
pub(crate) mod interval;
#[cfg(test)]
mod magnitude_tests;
pub(crate) mod maximum;
mod need;
mod node;
#[cfg(test)]
mod odd_tests;
#[cfg(test)]
mod range_tests;
mod replay;
#[cfg(test)]
mod root_tests;
mod rounding;
mod rules;
mod sample;
mod search;
#[cfg(test)]
mod tests;

pub use fate::Fate;
pub use replay::{ErrorBound, Replay, replay};
pub use search::{Candidate, LowerBound, Priced, Refusal, Search, search};

use kbt_device::MissingFigure;
use std::time::Duration;

/// How far a search goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Rounds of rule application.
    pub iterations: usize,
    /// Terms in the graph.
    pub nodes: usize,
    /// Time for rule application: for programs out of all proportion. What is found must not depend on how busy the
    /// machine is, so the limits above stop a search long before.
    pub time: Duration,
    /// Steps of one extraction.
    pub steps: usize,
    /// Values that may be computed to compare candidates at the boundaries of conversions, all together.
    pub values: usize,
    /// Candidates to report.
    pub candidates: usize,
}

/// Some seconds, where every boundary of a usual program takes less than one.
const VALUES: usize = 100_000_000;

impl Limits {
    /// This many times as much of everything but candidates.
    #[must_use]
    pub fn times(self, effort: usize) -> Self {
        Self {
            iterations: self.iterations.saturating_mul(effort),
            nodes: self.nodes.saturating_mul(effort),
            steps: self.steps.saturating_mul(effort),
            values: self.values.saturating_mul(effort),
            time: self.time.saturating_mul(u32::try_from(effort).unwrap_or(u32::MAX)),
            ..self
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            iterations: 16,
            nodes: 4000,
            time: Duration::from_secs(30),
            steps: 20_000,
            values: VALUES,
            candidates: 5,
        }
    }
}

/// A search that could not be done.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The device's profile lacks a rate that the program itself needs.
    #[error(transparent)]
    Missing(#[from] MissingFigure),
    /// No inputs within the declared ranges meet the assumptions.
    #[error("no inputs within the declared ranges were found on which the program's assumptions hold")]
    Assumptions,
    /// A rule made two terms equal that differ on a sample: nothing the graph says can be used.
    #[error("a rule made unequal terms equal ({left} and {right} on one sample); the search is void")]
    Unsound {
        /// One value.
        left: f64,
        /// The other.
        right: f64,
    },
    /// The rule table has a mistake.
    #[error("{0}")]
    Rules(String),
}
