//! FlashInfer's profiler buffer (flashinfer-ai/flashinfer, `include/flashinfer/profiler.cuh`).
//!
//! The layout of [`super::slots`]; stamps are the low half of `%globaltimer`, which all SMs share, and wrap every 4.29 s. Its writer does
//! not advance after an instant, so all but the last are lost, and does not check the buffer's end. Event names
//! live in each kernel's Python decoder, not in the buffer.

use super::ReadOptions;
use super::slots::{self, LaneRead, Shape};
use crate::clock::earliest;
use crate::{
    Clock, CtaTrace, EventName, EventPurpose, Input, Kind, MemoryTrace, ProblemKind, Problems, Role,
    StepRule, TimeLine, TraceError, TraceInfo,
};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn read(bytes: &[u8], name: &str, options: &ReadOptions) -> Result<MemoryTrace, TraceError> {
    let shape = Shape::of(bytes)
        .ok_or_else(|| TraceError::Unknown { name: name.to_owned(), why: Shape::refusal(bytes) })?;
    let mut problems = Problems::default();
    problems.add(ProblemKind::Truncated, None, u64::from(!bytes.len().is_multiple_of(8)), || {
        format!("{} bytes are no whole number of records", bytes.len())
    });
    let mut ctas = Vec::new();
    let (mut step, mut last_event) = (TimerStep::default(), 0);
    let blocks = slots::blocks(bytes, shape);
    let zero = earliest(blocks.iter().flat_map(slots::BlockSlots::first_stamps));
    for (block, slots::BlockSlots { lanes, smid }) in (0..).zip(&blocks) {
        let mut cta = CtaTrace { cta: block, smid: *smid, ..CtaTrace::default() };
        for (group, found) in (0..shape.groups).zip(lanes) {
            if found.slots.is_empty() {
                continue;
            }
            let role = format!("group {group}");
            last_event = found.slots.iter().map(|s| s.event()).max().unwrap_or(0).max(last_event);
            let instants = found.slots.iter().filter(|s| s.kind() == Some(Kind::Instant)).count() as u64;
            let LaneRead { mut lane, block_matches } =
                slots::decode(found, zero, group as usize, block, &role, &mut problems, |event, kind| {
                    Some((kind, event))
                });
            lane.dropped = (!found.full).then_some(0);
            lane.stopped_full = found.full;
            let place = || format!("first in block {block}");
            problems.add(ProblemKind::OverwrittenInstants, Some(&role), instants, place);
            problems.add(ProblemKind::StoppedFull, Some(&role), u64::from(found.full), place);
            let aliased = shape.groups > 1 && block_matches && block > 0;
            problems.add(ProblemKind::Aliased, Some(&role), u64::from(aliased), || {
                format!("block {block} would be read as block {}", block / shape.groups)
            });
            lane.events.windows(2).for_each(|pair| step.gap(pair[1].at - pair[0].at));
            cta.lanes.push(lane);
        }
        if !cta.lanes.is_empty() {
            ctas.push(cta);
        }
    }
    if ctas.is_empty() {
        let why = format!("all slots of {} blocks x {} groups are zero", shape.blocks, shape.groups);
        return Err(problems.empty(name, why));
    }
    let quantum_ns = step.take(&mut problems);
    let info = TraceInfo {
        format: Input::Flashinfer,
        level: None,
        clock: Clock::Nanoseconds { quantum_ns, sm_mhz: options.clock_mhz },
        time_line: TimeLine::default(),
        roles: (0..shape.groups).map(|g| Role::new(format!("group {g}"), StepRule::Unstated)).collect(),
        events: (0..=last_event).map(|e| EventName::new(format!("event {e}"), EventPurpose::Plain)).collect(),
        barriers: Vec::new(),
        edges: Vec::new(),
        meta: BTreeMap::new(),
    };
    Ok(MemoryTrace::new(info, ctas, problems).on_one_line())
}

/// The step of the timer, from the gaps between stamps.
#[derive(Default)]
struct TimerStep {
    factor: u64,
    /// Lengths of gaps, up to [`TELLING_GAPS`] of them.
    lengths: BTreeSet<u64>,
}

/// Gaps of so many lengths have no factor in common but the timer's step: were that a half of the factor, all of them
/// would be even by a chance of at most 2^-8.
pub(super) const TELLING_GAPS: usize = 8;
/// The step of the timer in the GPUs that FlashInfer's profiler is written for.
pub(super) const USUAL_STEP_NS: u64 = 32;

impl TimerStep {
    fn gap(&mut self, ns: u64) {
        self.factor = gcd(self.factor, ns);
        if ns > 0 && self.lengths.len() < TELLING_GAPS {
            self.lengths.insert(ns);
        }
    }

    /// The step in ns. A regular trace has few lengths, and their factor may be the kernel's: then the usual step is
    /// taken where it fits, and that is said.
    fn take(&self, problems: &mut Problems) -> u64 {
        let told = self.lengths.len() >= TELLING_GAPS;
        if told || self.factor == USUAL_STEP_NS || !self.factor.is_multiple_of(USUAL_STEP_NS) {
            return self.factor.max(1);
        }
        problems.add(ProblemKind::StepAssumed, None, 1, || {
            format!(
                "{USUAL_STEP_NS} ns; all stamps are also multiples of {} ns apart, below two of which nothing is \
                 certain",
                self.factor
            )
        });
        USUAL_STEP_NS
    }
}

/// Greatest common divisor; with 0 the other number.
pub(super) const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
