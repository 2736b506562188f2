//! The circular buffer of Triton Proton's instrumentation backend (triton-lang/triton, `third_party/proton`).
//!
//! File: u32 version (1), 8 bytes unread, then u32 payload offset, payload size, blocks, units (warps), bytes per
//! block. Block: u32 0xdeadbeef, block, processor (SM), buffer bytes; in later versions three u64 of global ns; one
//! u32 per unit: words that it wrote; then the buffer, split equally among the units, the newest records kept.
//! Record: `{end << 31 | scope << 23 | clock[42:32], clock[31:0]}`. Scope names live in the launcher.

use super::ReadOptions;
use crate::{
    Anchor, Clock, CtaTrace, Event, EventName, EventPurpose, Input, Kind, Lane, MemoryTrace, ProblemKind,
    Problems, Role, StepRule, TimeLine, TraceError, TraceInfo,
};
use std::collections::BTreeMap;

const PREAMBLE: u32 = 0xdead_beef;
/// Words of a block's header before the counts, without and with the global times.
const HEADERS: [usize; 2] = [4, 10];
const FILE_WORDS: usize = 8;
/// The clock has 43 bits.
const CLOCK_RANGE: u64 = 1 << 43;

struct Layout {
    payload: usize,
    payload_bytes: usize,
    blocks: usize,
    units: usize,
    block_bytes: usize,
}

fn word(bytes: &[u8], index: usize) -> Option<u32> {
    let bytes = bytes.get(index.checked_mul(4)?..)?.get(..4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn layout(bytes: &[u8]) -> Option<Layout> {
    let number = |index| word(bytes, index).map(|w| w as usize);
    let layout = Layout {
        payload: number(3)?,
        payload_bytes: number(4)?,
        blocks: number(5)?,
        units: number(6)?,
        block_bytes: number(7)?,
    };
    let sound = word(bytes, 0)? == 1
        && layout.payload >= FILE_WORDS * 4
        && (1..=1024).contains(&layout.units)
        && layout.blocks > 0
        && layout.block_bytes >= (HEADERS[0] + layout.units) * 4;
    sound.then_some(layout)
}

impl Layout {
    /// Holds the sizes that the file states against each other and against the file's own.
    fn check(&self, file: usize, problems: &mut Problems) {
        let blocks = self.blocks.saturating_mul(self.block_bytes);
        problems.add(ProblemKind::Inconsistent, None, u64::from(self.payload_bytes != blocks), || {
            format!(
                "a payload of {} bytes, which {} blocks of {} are not",
                self.payload_bytes, self.blocks, self.block_bytes
            )
        });
        let more = file.saturating_sub(self.payload.saturating_add(blocks));
        problems.add(ProblemKind::Inconsistent, None, u64::from(more > 0), || {
            format!("{more} bytes after the last block")
        });
    }
}

/// Whether the bytes start as this format does, up to the first block's preamble.
pub(super) fn is_proton(bytes: &[u8]) -> bool {
    let preamble = |l: Layout| bytes.get(l.payload..).and_then(|b| word(b, 0)) == Some(PREAMBLE);
    layout(bytes).is_some_and(preamble)
}

pub(super) fn read(bytes: &[u8], name: &str, options: &ReadOptions) -> Result<MemoryTrace, TraceError> {
    let Some(layout) = layout(bytes) else {
        return Err(TraceError::Damaged {
            name: name.to_owned(),
            offset: 0,
            field: "header",
            found: format!("words {:x?}", (0..FILE_WORDS).map_while(|i| word(bytes, i)).collect::<Vec<_>>()),
            accepted: "version 1, then payload offset, payload size, blocks, units, bytes per block".into(),
        });
    };
    let mut problems = Problems::default();
    layout.check(bytes.len(), &mut problems);
    let mut ctas = Vec::new();
    let mut scopes = 0;
    for index in 0..layout.blocks {
        let start = index.saturating_mul(layout.block_bytes).saturating_add(layout.payload);
        let Some(block) = bytes.get(start..).filter(|b| !b.is_empty()) else {
            problems.add(ProblemKind::Truncated, None, 1, || format!("block {index} of {}", layout.blocks));
            break;
        };
        let block = &block[..block.len().min(layout.block_bytes)];
        if word(block, 0) != Some(PREAMBLE) {
            problems.add(ProblemKind::UnknownRecord, None, 1, || format!("block {index} has no preamble"));
            continue;
        }
        match read_block(block, &layout, &mut problems) {
            Some((cta, highest)) => {
                scopes = scopes.max(highest);
                ctas.push(cta);
            }
            None => problems.add(ProblemKind::Truncated, None, 1, || format!("inside block {index}")),
        }
    }
    ctas.retain(|cta| cta.lanes.iter().any(|lane| !lane.events.is_empty()));
    if ctas.is_empty() {
        return Err(problems.empty(name, format!("{} blocks without a record", layout.blocks)));
    }
    let info = TraceInfo {
        format: Input::Proton,
        level: None,
        clock: Clock::Cycles { sm_mhz: options.clock_mhz },
        time_line: TimeLine::Timer,
        roles: (0..layout.units).map(|u| Role::new(format!("warp {u}"), StepRule::Unstated)).collect(),
        events: (0..=scopes).map(|s| EventName::new(format!("scope {s}"), EventPurpose::Plain)).collect(),
        barriers: Vec::new(),
        edges: Vec::new(),
        meta: BTreeMap::new(),
    };
    let anchored = ctas.iter().any(|cta| cta.anchor.is_some());
    let trace = MemoryTrace::new(info, ctas, problems);
    Ok(if anchored { trace } else { trace.by_sm() })
}

/// One block, and the highest scope in it; `None` where its header does not fit.
fn read_block(block: &[u8], layout: &Layout, problems: &mut Problems) -> Option<(CtaTrace, u16)> {
    let (cta, smid, buffer) = (word(block, 1)?, word(block, 2)?, word(block, 3)? as usize);
    // The two header sizes are told apart by what the buffer leaves of the block.
    let header = HEADERS.into_iter().rev().find(|h| (h + layout.units) * 4 + buffer <= layout.block_bytes)?;
    let data = block.get((header + layout.units) * 4..)?;
    let segment = buffer / layout.units / 8 * 8;
    let mut lanes = Vec::new();
    let mut highest = 0;
    for unit in 0..layout.units {
        let written = word(block, header + unit)? as usize / 2;
        let slots = data.get(unit * segment..)?;
        let slots = &slots[..slots.len().min(segment)];
        let role = format!("warp {unit}");
        let capacity = segment / 8;
        let kept = written.min(capacity);
        if kept == 0 {
            continue;
        }
        problems.add(ProblemKind::Truncated, Some(&role), u64::from(slots.len() < kept * 8), || {
            format!("block {cta}")
        });
        // Once the ring is full the next slot to be written holds the oldest record.
        let first = if written > capacity { written % capacity } else { 0 };
        let mut lane = Lane { role: unit, dropped: Some((written - kept) as u64), ..Lane::default() };
        let mut backwards = 0;
        let mut wraps = 0;
        let mut base = 0_u64;
        let mut last = None;
        for k in 0..kept {
            let slot = (first + k) % capacity;
            let (Some(high), Some(low)) = (word(slots, slot * 2), word(slots, slot * 2 + 1)) else {
                continue;
            };
            let clock = u64::from(high & 0x7ff) << 32 | u64::from(low);
            let scope = (high >> 23 & 0xff) as u16;
            if let Some(last) = last.filter(|&last| clock < last) {
                if last - clock < CLOCK_RANGE / 2 {
                    backwards += 1;
                    lane.refused();
                    continue;
                }
                base += CLOCK_RANGE;
                wraps += 1;
            }
            last = Some(clock);
            highest = highest.max(scope);
            let kind = if high >> 31 == 1 { Kind::End } else { Kind::Begin };
            lane.events.push(Event { at: base + clock, kind, id: scope, step: 0 });
        }
        let place = || format!("first in block {cta}");
        problems.add(ProblemKind::Dropped, Some(&role), (written - kept) as u64, place);
        problems.add(ProblemKind::ClockBackwards, Some(&role), backwards, place);
        problems.add(ProblemKind::ClockWrapped, Some(&role), wraps, place);
        lanes.push(lane);
    }
    // As Proton itself does it: a block's earliest record stands for the time at which the block was initialised.
    let first = lanes.iter().filter_map(|lane| lane.events.first()).map(|event| event.at).min();
    let init = word(block, HEADERS[0]).zip(word(block, HEADERS[0] + 1)).filter(|_| header == HEADERS[1]);
    let init = init.map(|(low, high)| u64::from(high) << 32 | u64::from(low)).filter(|ns| *ns > 0);
    let anchor = first.zip(init).map(|(ticks, global_ns)| Anchor { ticks, global_ns });
    Some((CtaTrace { cta, smid: Some(smid), anchor, lanes }, highest))
}
