//! A trace as the analysis and the writers see it, whoever recorded it. Reading a format lives in [`crate::read`].

use crate::{Problems, TimeLine, TraceError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How much the instrumented kernel recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Nothing; the machine code of a kernel without a tracer.
    Off,
    /// Compiler scheduling barriers at the coarse calls, nothing recorded.
    Barrier,
    /// Waits, arrivals and the events that bound a step.
    Coarse,
    /// Also the events inside a step.
    Detail,
}

impl Level {
    /// Every level, from the least intrusive.
    pub const ALL: [Self; 4] = [Self::Off, Self::Barrier, Self::Coarse, Self::Detail];

    /// The word used in files and options.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Barrier => "barrier",
            Self::Coarse => "coarse",
            Self::Detail => "detail",
        }
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a tick of the trace's clock is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Clock {
    /// SM clock cycles; the frequency, where it is known, is needed for wall time only.
    Cycles {
        /// SM clock in MHz.
        sm_mhz: Option<f64>,
    },
    /// Nanoseconds of the global timer.
    Nanoseconds {
        /// The timer's step: no statement finer than this holds.
        quantum_ns: u64,
        /// SM clock in MHz, which turns them into cycles.
        sm_mhz: Option<f64>,
    },
}

impl Clock {
    /// SM cycles in one tick; `None` where that needs a frequency nobody gave.
    #[must_use]
    pub fn cycles_per_tick(self) -> Option<f64> {
        match self {
            Self::Cycles { .. } => Some(1.0),
            Self::Nanoseconds { sm_mhz, .. } => sm_mhz.map(|mhz| mhz / 1000.0),
        }
    }

    /// Nanoseconds in one tick; `None` where that needs a frequency nobody gave.
    #[must_use]
    pub fn ns_per_tick(self) -> Option<f64> {
        match self {
            Self::Cycles { sm_mhz } => sm_mhz.map(|mhz| 1000.0 / mhz),
            Self::Nanoseconds { .. } => Some(1.0),
        }
    }

    /// Ticks below which no statement holds: 1 for a cycle counter.
    #[must_use]
    pub const fn quantum_ticks(self) -> u64 {
        match self {
            Self::Cycles { .. } => 1,
            Self::Nanoseconds { quantum_ns, .. } => quantum_ns,
        }
    }

    /// SM clock in MHz, where known.
    #[must_use]
    pub const fn sm_mhz(self) -> Option<f64> {
        match self {
            Self::Cycles { sm_mhz } | Self::Nanoseconds { sm_mhz, .. } => sm_mhz,
        }
    }
}

/// Where a role's step starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepRule {
    /// The recorder does not say; the analysis takes the role's most frequent wait, else its most frequent event.
    Unstated,
    /// At each begin of a wait on this barrier.
    Wait(u16),
    /// At each begin of this event.
    Event(u16),
}

/// What a role's work is; several may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Work {
    /// It moves data between global and shared memory.
    pub load: bool,
    /// It issues MMAs.
    pub tensor: bool,
    /// It computes on the other pipes: exp2, max, conversions.
    pub math: bool,
}

impl Work {
    /// Whether the recorder says anything at all.
    #[must_use]
    pub const fn is_stated(self) -> bool {
        self.load || self.tensor || self.math
    }
}

/// A warp role: a group of warps that does one job and records into one lane per CTA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// Where its step starts.
    pub step: StepRule,
    /// What its work is.
    pub work: Work,
}

impl Role {
    /// A role whose work is not stated.
    #[must_use]
    pub fn new(name: impl Into<String>, step: StepRule) -> Self {
        Self { name: name.into(), step, work: Work::default() }
    }

    /// The same role with its work stated.
    #[must_use]
    pub const fn works(mut self, work: Work) -> Self {
        self.work = work;
        self
    }
}

/// What an event is to the model of the handoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EventPurpose {
    /// Nothing.
    #[default]
    Plain,
    /// The producer writes one chunk of the tile it hands over.
    ChunkWrite,
    /// The consumer's MMA on one tile of it.
    Tile,
}

/// An event that roles begin and end, or mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventName {
    /// Its name.
    pub name: String,
    /// What it is to the handoff.
    pub purpose: EventPurpose,
}

impl EventName {
    /// An event.
    #[must_use]
    pub fn new(name: impl Into<String>, purpose: EventPurpose) -> Self {
        Self { name: name.into(), purpose }
    }
}

/// What a barrier is to the model of the handoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BarrierPurpose {
    /// Nothing.
    #[default]
    Plain,
    /// The first fraction of the handed-over tile is ready.
    First,
    /// The rest of it is ready.
    Rest,
    /// Its buffer may be written again.
    Free,
}

/// A barrier that roles wait on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Barrier {
    /// Its name.
    pub name: String,
    /// What it is to the handoff.
    pub purpose: BarrierPurpose,
}

impl Barrier {
    /// A barrier.
    #[must_use]
    pub fn new(name: impl Into<String>, purpose: BarrierPurpose) -> Self {
        Self { name: name.into(), purpose }
    }
}

/// Who releases a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Releaser {
    /// Warps of this role arrive.
    Role(usize),
    /// A TMA transaction or an MMA completes, which this role issued where that is known.
    Hardware {
        /// The issuing role.
        issuer: Option<usize>,
    },
}

/// One way that a barrier is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// Index into the barriers.
    pub barrier: u16,
    /// Who arrives.
    pub arriving: Releaser,
    /// The role that waits.
    pub waiting: usize,
}

/// Everything about a trace but its records.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceInfo {
    /// The format it was read from.
    pub format: crate::Input,
    /// The level it was recorded at, where known.
    pub level: Option<Level>,
    /// Its clock.
    pub clock: Clock,
    /// Whose ticks count from one zero.
    pub time_line: TimeLine,
    /// Roles; a lane names one by index.
    pub roles: Vec<Role>,
    /// Events, by id.
    pub events: Vec<EventName>,
    /// Barriers, by id.
    pub barriers: Vec<Barrier>,
    /// Who releases which wait.
    pub edges: Vec<Edge>,
    /// What the recorder says of the run: `device`, `driver`, `date`, `command`, `kernel`.
    pub meta: BTreeMap<String, String>,
}

impl TraceInfo {
    /// An empty description of a trace of kbt's own, to be filled in.
    #[must_use]
    pub fn new(level: Level, sm_clock_mhz: Option<f64>) -> Self {
        Self {
            format: crate::Input::Kbt,
            level: Some(level),
            clock: Clock::Cycles { sm_mhz: sm_clock_mhz },
            time_line: TimeLine::Timer,
            roles: Vec::new(),
            events: Vec::new(),
            barriers: Vec::new(),
            edges: Vec::new(),
            meta: BTreeMap::new(),
        }
    }

    /// Name of event `id`, or a name made from its number.
    #[must_use]
    pub fn event_name(&self, id: u16) -> String {
        self.events.get(usize::from(id)).map_or_else(|| format!("event {id}"), |e| e.name.clone())
    }

    /// Name of barrier `id`, or a name made from its number.
    #[must_use]
    pub fn barrier_name(&self, id: u16) -> String {
        self.barriers.get(usize::from(id)).map_or_else(|| format!("barrier {id}"), |b| b.name.clone())
    }

    /// Name of role `index`, or a name made from its number.
    #[must_use]
    pub fn role_name(&self, index: usize) -> String {
        self.roles.get(index).map_or_else(|| format!("role {index}"), |r| r.name.clone())
    }
}

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An event begins.
    Begin,
    /// An event ends.
    End,
    /// An event happens.
    Instant,
    /// A wait on a barrier begins.
    WaitBegin,
    /// A wait on a barrier ends.
    WaitEnd,
    /// The role is about to arrive on a barrier, or to issue the transaction that completes it.
    Arrive,
}

/// One record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, in ticks; lanes of one CTA share the zero, and others as [`TraceInfo::time_line`] says.
    pub at: u64,
    /// What.
    pub kind: Kind,
    /// Which event or barrier.
    pub id: u16,
    /// The role's step modulo 2^16, where the kernel gave it.
    pub step: u16,
}

/// The records of one role of one CTA, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lane {
    /// Index into the roles.
    pub role: usize,
    /// Its records.
    pub events: Vec<Event>,
    /// For each record, where it ends a span, the index of the record that began it. Empty where the recorder has
    /// no spans but begins and ends: an end then belongs to the last open begin of its id.
    pub begun_by: Vec<u32>,
    /// When recording started, in the records' ticks.
    pub opened: Option<u64>,
    /// When it ended.
    pub closed: Option<u64>,
    /// Records that were overwritten; `None` where the recorder left that unknown.
    pub dropped: Option<u64>,
    /// The recorder stopped when its buffer was full: the oldest records were kept.
    pub stopped_full: bool,
    /// Its open and close contradict its records: it may not be held against other lanes.
    pub torn: bool,
    /// Records that were refused: of each the index of the record kept after it. Ascending.
    pub gaps: Vec<usize>,
}

/// One moment on the lanes' clock and on the global timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    /// In the records' ticks.
    pub ticks: u64,
    /// In nanoseconds of the global timer.
    pub global_ns: u64,
}

/// The lanes of one CTA.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CtaTrace {
    /// Linear CTA index.
    pub cta: u32,
    /// The SM it ran on.
    pub smid: Option<u32>,
    /// One moment on both clocks, which places the CTA among the others.
    pub anchor: Option<Anchor>,
    /// One lane a role, in the order of the file.
    pub lanes: Vec<Lane>,
}

/// A trace being read, one CTA at a time, so that its size does not matter. It may be read from any thread.
pub trait Source: Send {
    /// What it says of itself.
    fn info(&self) -> &TraceInfo;

    /// Reads the next CTA into `cta`, replacing what is there. `false`: there is none.
    ///
    /// # Errors
    /// If the bytes cannot be read; what is merely odd is noted in [`Source::problems`].
    fn next_cta(&mut self, cta: &mut CtaTrace) -> Result<bool, TraceError>;

    /// What was odd so far; complete after the last CTA.
    fn problems(&self) -> &Problems;
}
