//! What is odd about a trace: found while reading or analysing, counted, and said once per role.

use crate::{TraceError, spelt};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident, $says:literal;)*) => {
        /// A class of oddity.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum ProblemKind { $($(#[$doc])* $variant,)* }

        impl ProblemKind {
            /// What it means for the reader of the trace.
            #[must_use]
            pub const fn says(self) -> &'static str { match self { $(Self::$variant => $says,)* } }
        }
    };
}

kinds! {
    /// The file ends before what it announces.
    Truncated, "the file ends early; what came before the cut was read";
    /// Records overwritten by newer ones.
    Dropped, "records were overwritten (newest kept): the prologue and some steps are missing";
    /// A ring without close().
    NotClosed, "the role ended without close(): its last records may be missing, and the oldest where its ring was full";
    /// A buffer that stopped when full.
    StoppedFull, "the buffer filled and recording stopped (oldest kept): the numbers are of what was recorded until then, not of the kernel; a larger buffer, or a shorter launch, records all of it";
    /// An end without its begin.
    OrphanEnd, "an end without its begin; ignored";
    /// A begin without its end.
    OrphanBegin, "a begin without its end; ignored";
    /// Spans that cross.
    Overlap, "spans of one role that cross instead of nesting; each was measured alone";
    /// A clock that runs backwards.
    ClockBackwards, "a record earlier than the one before it by less than half the clock's range; ignored";
    /// A time stamp that is no time of this trace.
    FarStamp, "a time stamp or length so far from the others that it is no time of this trace; ignored";
    /// Time stamps below zero.
    NegativeStamps, "time stamps below zero; times are counted from the earliest";
    /// The clock's counter, of 32 bits or of 43, wrapped.
    ClockWrapped, "the clock's counter wrapped; unwrapped on the assumption that no two neighbours are half its range apart";
    /// A record that says nothing known.
    UnknownRecord, "a record of unknown kind, with an id beyond the tables, or without its name, place or time; ignored";
    /// NaN or Infinity in JSON.
    NotANumber, "NaN or Infinity in place of a number; a record without its time for it is ignored";
    /// Counts, tables or sizes of a file that do not fit each other.
    Inconsistent, "the file contradicts itself; its records were taken as they are";
    /// An empty slot between written ones.
    Hole, "an unwritten slot between written ones; the records after it were read";
    /// Block numbers that a decoder by tag would confuse.
    Aliased, "the tag's block number is not what a decoder by tag takes it for; lanes were told apart by their slot instead";
    /// FlashInfer's lost instants.
    OverwrittenInstants, "this recorder does not advance after an instant: all but a lane's last record were overwritten and cannot be counted";
    /// Too few steps to know the steady state.
    PrologueOnly, "too few steps to tell the steady state from prologue and tail; the numbers hold both";
    /// Steps left out for what is missing of them.
    StepDropped, "steps of which a record was refused, or a wait's begin or end is missing, or which start within a wait on the same barrier: they are left out of every number";
    /// Too many of these, or of events without an end, for the rest to stand for all.
    StepsLost, "steps of which a record is missing: what is lost may be what was slow, so that the rest does not stand for all";
    /// Lanes that no mean holds.
    ShortLanes, "lanes too short for a steady state beside longer ones: their steps are left out of every mean";
    /// Too many of them for the rest to stand for all.
    MostlyShort, "lanes too short for a steady state beside longer ones: so many steps are left out that the rest does not stand for all";
    /// A buffer that was full before the steady state.
    StoppedEarly, "the buffer filled before a steady state was recorded; a larger buffer records one";
    /// No step could be found.
    NoSteps, "no whole step, from one start to the next, was found; period and busy time are refused";
    /// No waits were recorded.
    NoWaits, "no waits were recorded; busy time, slack and the critical role are refused";
    /// Every wait blocked.
    NoOpenWait, "every wait recorded is longer than one with nothing to wait for: what that costs is not known, and all the time in waits counts as blocked";
    /// Durations near the clock's step.
    BelowQuantum, "shorter than two steps of the clock; the number is refused";
    /// Spans of zero length.
    ZeroLength, "spans of zero length: shorter than the clock's step";
    /// Events of a foreign file that have no place here.
    Ignored, "records of a kind that carries no span (counters, flows, metadata) were skipped";
    /// The step rule was guessed.
    StepGuessed, "the recorder names no step; the role's most frequent wait or event was taken";
    /// The timer's step was not told.
    StepAssumed, "stamps so regular do not tell the timer's step; it was taken as the timer's usual one";
    /// A clock given against the file's.
    ClockGiven, "the SM clock given was taken in place of the one that the file states";
    /// A range of several warps.
    OtherWarps, "a range of more than one warp; it is shown on the first of them";
    /// Several launches in one file.
    Launches, "the launches of one file were analysed together; their CTAs share numbers";
    /// The unit was deduced.
    UnitDetected, "the unit of the time stamps was deduced from their values";
    /// How full a ring is cannot be told.
    NoOccupancy, "how full this ring of buffers is cannot be told: neither arrivals nor waits on both of its barriers were recorded, or which barrier is the other is not known";
    /// Roles of a ring that stopped recording before the others.
    RingCut, "a role stopped recording before the others: how full a ring of buffers is was counted only while all of its roles recorded";
    /// Records missing in the middle of a ring.
    RingGap, "records of a role were refused, or of its waits are missing: how full a ring of buffers was is left out around them";
    /// Fills and releases of a ring that cannot be.
    RingContradicts, "the records of a ring of buffers contradict each other: how full it was in that CTA is left out";
    /// Roles that stopped recording while others waited for them.
    ReleaseCut, "waits at a time when a role that ends them had stopped recording: whether they were ready, and their round trip, are left out";
    /// Clocks of CTAs or SMs without a relation.
    ClocksApart, "clocks that nothing relates to each other: of CTAs on two of them it is not known which ran earlier, and each is shown from its own 0";
    /// Release times need arrivals.
    NoArrivals, "arrivals were not recorded: releases are known by the barrier's edges alone, not by time";
}

impl ProblemKind {
    /// Whether records are missing or wrong that the recorder did write, a role or its recording did not come to its end, or so much is
    /// left out of the numbers that they do not stand for the kernel: they pass no gate, and are no absolute ones.
    #[must_use]
    pub const fn damages(self) -> bool {
        matches!(
            self,
            Self::Truncated
                | Self::NotClosed
                | Self::StoppedFull
                | Self::ClockBackwards
                | Self::FarStamp
                | Self::UnknownRecord
                | Self::Inconsistent
                | Self::Hole
                | Self::StepsLost
                | Self::MostlyShort
                | Self::StoppedEarly
        )
    }
}

/// One class of oddity of one role, or of the trace as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Its class.
    pub kind: ProblemKind,
    /// The role, where it belongs to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// How often it was seen.
    pub count: u64,
    /// What it means, and where it was first seen.
    pub says: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(role) = &self.role {
            write!(f, "{}: ", spelt(role))?;
        }
        write!(f, "{} x {}", self.count, spelt(&self.says))
    }
}

/// Problems, gathered by class and role.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems {
    found: BTreeMap<(ProblemKind, Option<String>), (u64, String)>,
}

impl Problems {
    /// Counts `count` more of a class; the first place named is kept.
    pub fn add(&mut self, kind: ProblemKind, role: Option<&str>, count: u64, place: impl FnOnce() -> String) {
        if count == 0 {
            return;
        }
        let entry = self.found.entry((kind, role.map(str::to_owned)));
        entry.or_insert_with(|| (0, place())).0 += count;
    }

    /// Adds those of another collection.
    pub fn merge(&mut self, other: &Self) {
        for ((kind, role), (count, place)) in &other.found {
            self.add(*kind, role.as_deref(), *count, || place.clone());
        }
    }

    /// How often a class was seen, over all roles.
    #[must_use]
    pub fn count(&self, kind: ProblemKind) -> u64 {
        self.found.iter().filter(|((k, _), _)| *k == kind).map(|(_, (n, _))| n).sum()
    }

    /// Whether a class was seen for `role`.
    #[must_use]
    pub fn has(&self, kind: ProblemKind, role: &str) -> bool {
        self.found.contains_key(&(kind, Some(role.to_owned())))
    }

    /// The error of a trace without a record that could be read: `why`, and what was odd on the way there.
    pub(crate) fn empty(&self, name: &str, mut why: String) -> TraceError {
        let lost = |kind: ProblemKind| {
            kind.damages()
                || matches!(kind, ProblemKind::OrphanBegin | ProblemKind::OrphanEnd | ProblemKind::NotANumber)
        };
        for problem in self.list().iter().filter(|p| lost(p.kind)) {
            why += &format!("; {problem}");
        }
        TraceError::Empty { name: name.to_owned(), why }
    }

    /// All of them, in a fixed order.
    #[must_use]
    pub fn list(&self) -> Vec<Problem> {
        let problem = |((kind, role), (count, place)): (&(ProblemKind, Option<String>), &(u64, String))| {
            let says =
                if place.is_empty() { kind.says().to_owned() } else { format!("{} ({place})", kind.says()) };
            Problem { kind: *kind, role: role.clone(), count: *count, says }
        };
        self.found.iter().map(problem).collect()
    }
}
