//! A role's numbers: its steps, its waits, its events, and where it ran.

use super::Quantiles;
use crate::Work;
use serde::{Deserialize, Serialize};

/// What completes a barrier's phase where no warp arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hardware {
    /// A TMA transaction.
    Tma,
    /// An MMA.
    Mma,
    /// One of these; its issuer, or the issuer's work, is not stated.
    Unstated,
}

/// One barrier that a role waits on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WaitStats {
    /// The barrier.
    pub on: String,
    /// Mean time of a step spent in it; `None` below the clock's step.
    pub cycles: Option<f64>,
    /// One wait from begin to end; `None` below the clock's step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each_cycles: Option<Quantiles>,
    /// Waits a step.
    pub per_step: f64,
    /// Roles that release it, or issue what releases it; empty: the recorder does not say.
    pub released_by: Vec<String>,
    /// What completes it where no warp arrives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
    /// Whether it belongs to the handoff.
    pub handoff: bool,
    /// Of the waits whose release was recorded, the percentage that had nothing to wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_percent: Option<f64>,
    /// From the recorded arrival to the end of the wait, where the role was blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_cycles: Option<Quantiles>,
}

/// A wait that did not end while the role recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StuckWait {
    /// The barrier.
    pub on: String,
    /// CTAs in which the role is in it.
    pub ctas: u64,
    /// The first of them by number.
    pub first: Place,
    /// When that wait began, from the role's open() there.
    pub since_cycles: f64,
}

/// One event inside a role's step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventStats {
    /// Its name.
    pub name: String,
    /// Mean time of a step inside it, waits in it included; `None` below the clock's step.
    pub cycles: Option<f64>,
    /// The same without the waits in it.
    pub busy_cycles: Option<f64>,
    /// One occurrence from begin to end; `None` below the clock's step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each_cycles: Option<Quantiles>,
    /// Occurrences a step.
    pub per_step: f64,
}

/// One role over all its CTAs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoleStats {
    /// Its name.
    pub name: String,
    /// Step starts recorded, over all CTAs.
    pub steps: u64,
    /// What starts a step.
    pub step_starts_at: String,
    /// From one step start to the next; `None` without two starts.
    pub period_cycles: Option<Quantiles>,
    /// Mean length of a step; it is busy time plus waits.
    pub mean_period_cycles: Option<f64>,
    /// Mean time of a step not spent in waits; `None` where no waits were recorded.
    pub busy_cycles: Option<f64>,
    /// The same, step by step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_spread_cycles: Option<Quantiles>,
    /// Mean blocked time of a step beyond what a wait costs with nothing to wait for; a critical role has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slack_cycles: Option<f64>,
    /// Each barrier waited on.
    pub waits: Vec<WaitStats>,
    /// Each event.
    pub events: Vec<EventStats>,
    /// Steps that the means are over: steady-state ones, or all where there are too few to tell.
    pub steady_steps: u64,
    /// From the start of recording to the first steady step, median over CTAs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prologue_cycles: Option<f64>,
    /// From the end of the last steady step to the end of recording, median over CTAs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail_cycles: Option<f64>,
    /// The CTAs' own mean steps against each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_ctas_cycles: Option<Quantiles>,
    /// The CTA whose mean step is longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest: Option<Place>,
    /// The SMs' own mean steps against each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_sms_cycles: Option<Quantiles>,
    /// The SM whose mean step is longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowest_sm: Option<u32>,
    /// Waits that its records end in, without a close(): a deadlock, or a kernel stopped from outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck: Vec<StuckWait>,
    /// What the role's work is, where the recorder states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
}

/// Where a CTA ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Linear CTA index.
    pub cta: u32,
    /// SM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smid: Option<u32>,
}
