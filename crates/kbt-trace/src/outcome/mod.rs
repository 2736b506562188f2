//! The outcome of step 2 (schema `kbt.trace/1`). Computing it lives in [`crate::analyse()`], judging it in
//! `verdicts`.

mod timeline;

pub use timeline::{
    SpanKind, Timeline, TimelineArrow, TimelineRing, TimelineRow, TimelineSample, TimelineSpan,
};

use crate::observe::ObserverReport;
use crate::{Input, Level, Problem, Work, spelt};
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};

/// The schema's name.
pub const SCHEMA: &str = "kbt.trace/1";

/// Median and spread of a duration, in SM cycles.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half lie below.
    pub median: f64,
    /// A tenth lie below.
    pub p10: f64,
    /// A tenth lie above.
    pub p90: f64,
}

/// What the trace is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceFacts {
    /// The format it was read from.
    pub format: Input,
    /// The level it was recorded at, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<Level>,
    /// The kernel, where the recorder names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// SM clock, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sm_clock_mhz: Option<f64>,
    /// The clock's step: no statement finer than two of it is made.
    pub quantum_cycles: f64,
    /// CTAs analysed.
    pub ctas: u64,
    /// SMs that they ran on, where known.
    pub sms: u64,
    /// Records read.
    pub records: u64,
}

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

/// What sets the pace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Critical {
    /// These roles hardly ever wait: each is as slow as the step.
    Roles {
        /// Their names.
        roles: Vec<String>,
    },
    /// Every role waits; these wait for each other in a circle.
    Cycle {
        /// Their names, each waiting for the next, the last for the first.
        roles: Vec<String>,
        /// The barriers of those waits.
        barriers: Vec<String>,
    },
    /// Every role waits, in the end for a TMA transaction or an MMA that nobody seems late to issue.
    Hardware {
        /// The role that waits for it.
        role: String,
        /// The barrier.
        barrier: String,
    },
    /// The trace does not say.
    Unknown {
        /// Why, and what would tell.
        reason: String,
    },
}

/// What the model of the handoff needs, from roles and events marked for it. Medians of one occurrence,
/// but for the waits, which are means.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Handoff {
    /// Roles that write the handed-over tile.
    pub producers: Vec<String>,
    /// Roles that consume it.
    pub consumers: Vec<String>,
    /// Writing one chunk.
    pub chunk_cycles: Option<f64>,
    /// Chunk writes a producer's step.
    pub chunks_per_step: Option<f64>,
    /// A producer's busy time a step besides chunk writes.
    pub producer_other_cycles: Option<f64>,
    /// One recorded tile of the consumer's product, the wait inside it not counted.
    pub tile_cycles: Option<f64>,
    /// Recorded tiles a handoff.
    pub tiles_per_handoff: Option<f64>,
    /// The consumer's busy time a handoff besides tiles.
    pub consumer_other_cycles: Option<f64>,
    /// Handoffs a consumer's step: its waits for a first signal.
    pub handoffs_per_step: Option<f64>,
    /// One wait for the first signal, mean over the barriers marked as such.
    pub wait_first_cycles: Option<f64>,
    /// One wait for the second, likewise.
    pub wait_rest_cycles: Option<f64>,
    /// One wait of a producer for a free buffer, likewise.
    pub wait_free_cycles: Option<f64>,
    /// From an arrival on a handoff barrier to the end of the wait it releases.
    pub round_trip_cycles: Option<f64>,
}

/// The step of the clean kernel beside the trace's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CleanStep {
    /// The role whose steps are counted.
    pub role: String,
    /// Time of the clean kernel times clock, over the steps that one SM does in turn.
    pub implied_cycles: f64,
    /// The trace's mean period over that.
    pub inflation_ratio: f64,
    /// From the clean time, the clock and the trace.
    pub provenance: Provenance,
}

/// Whether the trace's absolute numbers may be used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "standing")]
pub enum Absolute {
    /// The looking costs less than the limit.
    Accepted {
        /// Why.
        reason: String,
    },
    /// It costs more, or the level forbids it.
    Refused {
        /// Why.
        reason: String,
    },
    /// Nobody measured what the looking costs.
    Unknown {
        /// What would tell.
        reason: String,
    },
}

impl Absolute {
    /// Whether they may.
    #[must_use]
    pub const fn is_accepted(&self) -> bool {
        matches!(self, Self::Accepted { .. })
    }

    /// The reason given.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Accepted { reason } | Self::Refused { reason } | Self::Unknown { reason } => reason,
        }
    }
}

/// What step 2 found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceOutcome {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// How the trace is known; it covers every number here that has no nearer one.
    pub provenance: Provenance,
    /// What the trace is.
    pub trace: TraceFacts,
    /// Whether its absolute numbers may be used.
    pub absolute: Absolute,
    /// Each role, in the format's order.
    pub roles: Vec<RoleStats>,
    /// What a wait costs with nothing to wait for, at most: from the shortest wait or round trip seen. `None` below the
    /// clock's step, or where every wait blocked; blocked time is counted from 0 then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_floor_cycles: Option<f64>,
    /// How full each ring of buffers is, where arrivals on both of its barriers were recorded, or else waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rings: Vec<RingStats>,
    /// What sets the pace.
    pub critical: Critical,
    /// For the model of the handoff, where roles, events and barriers are marked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff: Option<Handoff>,
    /// What the looking costs, where it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observer: Option<ObserverReport>,
    /// The clean kernel's step, where its time was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clean: Option<CleanStep>,
    /// What is odd about the trace.
    pub problems: Vec<Problem>,
    /// A few steps, for drawing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
}

impl TraceOutcome {
    /// The role of this name.
    #[must_use]
    pub fn role(&self, name: &str) -> Option<&RoleStats> {
        self.roles.iter().find(|r| r.name == name)
    }

    /// One line for the terminal.
    #[must_use]
    pub fn headline(&self) -> String {
        let pace = match &self.critical {
            Critical::Roles { roles } => format!("{} set the pace", roles.join(" and ")),
            Critical::Cycle { roles, .. } => format!("{} wait for each other", roles.join(", ")),
            Critical::Hardware { role, barrier } => format!("{role} waits for the hardware at {barrier}"),
            Critical::Unknown { reason } => format!("pace unknown: {reason}"),
        };
        let observed = match &self.absolute {
            Absolute::Accepted { .. } => "",
            Absolute::Refused { .. } => "; absolute numbers refused",
            Absolute::Unknown { .. } => "; observer effect not measured",
        };
        let sets_pace = |role: &&RoleStats| match &self.critical {
            Critical::Roles { roles } | Critical::Cycle { roles, .. } => roles.contains(&role.name),
            Critical::Hardware { .. } | Critical::Unknown { .. } => true,
        };
        let periods = self.roles.iter().filter(sets_pace).filter_map(|r| r.period_cycles.as_ref());
        let step = periods.map(|p| p.median).fold(0.0, f64::max);
        let step = if step > 0.0 { format!("step of {step:.0} clk (median): ") } else { String::new() };
        spelt(&format!("{step}{pace}{observed}")).into_owned()
    }
}
