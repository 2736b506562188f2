//! The outcome of step 2 (schema `kbt.trace/1`). Computing it lives in [`crate::analyse()`], judging it in
//! `verdicts`.

mod rings;
mod roles;
mod timeline;

pub use rings::{RingCount, RingStats};
pub use roles::{EventStats, Hardware, Place, RoleStats, StuckWait, WaitStats};
pub use timeline::{
    SpanKind, Timeline, TimelineArrow, TimelineRing, TimelineRow, TimelineSample, TimelineSpan,
};

use crate::observe::ObserverReport;
use crate::{Input, Level, Problem, spelt};
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
