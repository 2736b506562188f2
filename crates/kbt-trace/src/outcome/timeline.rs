//! A few steps of one CTA, for drawing.

use super::RingCount;
use serde::{Deserialize, Serialize};

/// What a span of the timeline is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SpanKind {
    /// The role is in a wait.
    Wait,
    /// The role is in an event.
    Event,
}

/// One span of the timeline, in cycles from its origin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimelineSpan {
    /// The barrier waited on, or the event.
    pub label: String,
    /// What it is.
    pub kind: SpanKind,
    /// Begin, not before the timeline's.
    pub start_cycles: f64,
    /// End, not after the timeline's.
    pub end_cycles: f64,
    /// How many spans of the same row lie around it.
    pub depth: u32,
}

/// One role's row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimelineRow {
    /// The role.
    pub role: String,
    /// When its records begin, where that lies in the timeline: before it nothing is known of the role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_cycles: Option<f64>,
    /// When its records end, where that lies in the timeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_cycles: Option<f64>,
    /// Its spans, by begin.
    pub spans: Vec<TimelineSpan>,
}

/// A recorded release: an arrival and the wait it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimelineArrow {
    /// The barrier.
    pub barrier: String,
    /// The arriving role.
    pub from: String,
    /// When it arrived.
    pub from_cycles: f64,
    /// The waiting role.
    pub to: String,
    /// When its wait was over.
    pub to_cycles: f64,
}

/// Slots of a ring that are taken from a moment on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TimelineSample {
    /// The moment, not before the timeline's begin.
    pub at_cycles: f64,
    /// The slots.
    pub slots: u32,
}

/// How full a ring of buffers is along the timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimelineRing {
    /// The ring.
    pub name: String,
    /// What is counted.
    #[serde(default)]
    pub counted: RingCount,
    /// Its changes, the first at the timeline's begin or at its first fill.
    pub samples: Vec<TimelineSample>,
    /// When a role of it stopped recording, where that lies in the timeline: the count ends there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_cycles: Option<f64>,
}

/// A few steps of one CTA, for drawing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Linear CTA index.
    pub cta: u32,
    /// The role whose steps bound it.
    pub role: String,
    /// Steps shown.
    pub steps: u64,
    /// Its length; it starts at 0.
    pub length_cycles: f64,
    /// One row a role.
    pub rows: Vec<TimelineRow>,
    /// Releases between rows.
    pub arrows: Vec<TimelineArrow>,
    /// How full the rings are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rings: Vec<TimelineRing>,
}
