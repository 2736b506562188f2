//! The strided buffer that flash-attention-fp4 and FlashInfer share: where records lie and what a tag holds.
//!
//! Entry 0 is `{blocks, groups}`; record k of block b, group g is entry `1 + b*groups + g + k*blocks*groups`,
//! `{tag, stamp}`, both u32. Tag: SM in bits 31..24, block 23..12, event 11..2, type 1..0. Block and group are
//! taken from the slot: the tag's fields are too narrow and FlashInfer fills them ambiguously.

use crate::clock::Unwrap;
use crate::{Event, Kind, Lane, ProblemKind, Problems};

/// Numbers of blocks and groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) blocks: u32,
    pub(super) groups: u32,
}

/// More groups per block than any recorder has.
const MAX_GROUPS: u32 = 64;

/// One entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    tag: u32,
    stamp: u32,
}

impl Slot {
    pub(super) const fn event(self) -> u16 {
        (self.tag >> 2 & 0x3ff) as u16
    }

    pub(super) const fn kind(self) -> Option<Kind> {
        match self.tag & 3 {
            0 => Some(Kind::Begin),
            1 => Some(Kind::End),
            2 => Some(Kind::Instant),
            _ => None,
        }
    }

    const fn block(self) -> u32 {
        self.tag >> 12 & 0xfff
    }

    const fn sm(self) -> u32 {
        self.tag >> 24
    }

    /// A begin of event 0 by block 0 on SM 0 has tag 0 as well; only its stamp tells it from an empty slot.
    const fn is_empty(self) -> bool {
        self.tag == 0 && self.stamp == 0
    }
}

impl Shape {
    /// The shape that the first entry states, if it can be one.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let slot = slot(bytes, 0)?;
        let (blocks, groups) = (slot.tag, slot.stamp);
        let fits = u64::from(blocks) * u64::from(groups) < (bytes.len() as u64 / 8);
        (blocks > 0 && (1..=MAX_GROUPS).contains(&groups) && fits).then_some(Self { blocks, groups })
    }

    /// Why [`Shape::of`] finds none.
    pub(super) fn refusal(bytes: &[u8]) -> String {
        match slot(bytes, 0) {
            None => format!("{} bytes are too few for any format", bytes.len()),
            Some(Slot { tag, stamp }) => format!(
                "as a profiler buffer it would have {tag} blocks of {stamp} groups, which {} bytes cannot hold or no \
                 recorder writes",
                bytes.len()
            ),
        }
    }

    /// Slots that one lane has at most.
    fn depth(self, bytes: &[u8]) -> usize {
        let lanes = self.blocks as usize * self.groups as usize;
        (bytes.len() / 8 - 1).div_ceil(lanes)
    }
}

fn slot(bytes: &[u8], index: usize) -> Option<Slot> {
    let bytes: [u8; 8] = bytes.get(index.checked_mul(8)?..)?.get(..8)?.try_into().ok()?;
    let [a, b, c, d, e, f, g, h] = bytes;
    Some(Slot { tag: u32::from_le_bytes([a, b, c, d]), stamp: u32::from_le_bytes([e, f, g, h]) })
}

/// The slots of one lane, and whether its number of records is bounded by the buffer.
pub(super) struct LaneSlots {
    pub(super) slots: Vec<Slot>,
    holes: u64,
    /// Every slot that the buffer has for the lane is written.
    pub(super) full: bool,
}

pub(super) fn lane_slots(bytes: &[u8], shape: Shape, block: u32, group: u32) -> LaneSlots {
    let lanes = shape.blocks as usize * shape.groups as usize;
    let first = 1 + block as usize * shape.groups as usize + group as usize;
    let (mut slots, mut holes, mut pending) = (Vec::new(), 0, 0);
    let mut seen = 0;
    for found in (0..shape.depth(bytes)).map_while(|k| slot(bytes, first + k * lanes)) {
        seen += 1;
        if found.is_empty() {
            pending += 1;
        } else {
            holes += pending;
            pending = 0;
            slots.push(found);
        }
    }
    let full = seen > 0 && pending == 0 && holes == 0;
    LaneSlots { slots, holes, full }
}

/// Whether all stamps of the first lanes are multiples of 32, as a timer's are; `None` without records.
pub(super) fn looks_quantised(bytes: &[u8], shape: &Shape) -> Option<bool> {
    let lanes = (0..shape.blocks.min(16)).flat_map(|b| (0..shape.groups).map(move |g| (b, g)));
    let mut stamps =
        lanes.flat_map(|(b, g)| lane_slots(bytes, *shape, b, g).slots).map(|s| s.stamp).peekable();
    stamps.peek()?;
    Some(stamps.all(|stamp| stamp % 32 == 0))
}

/// What the tags of a lane say beyond its records.
pub(super) struct LaneRead {
    pub(super) lane: Lane,
    /// The tag's block number is the block's own, modulo 4096.
    pub(super) block_matches: bool,
}

/// Decodes one lane, in ticks from the stamp `zero`. `of` maps an event number and kind to what the record says here.
pub(super) fn decode(
    found: &LaneSlots,
    zero: Option<u32>,
    role: usize,
    block: u32,
    role_name: &str,
    problems: &mut Problems,
    of: impl Fn(u16, Kind) -> Option<(Kind, u16)>,
) -> LaneRead {
    let mut lane = Lane { role, dropped: Some(0), ..Lane::default() };
    let mut clock: Option<Unwrap> = None;
    let (mut unknown, mut block_matches) = (0, true);
    for (index, slot) in found.slots.iter().enumerate() {
        block_matches &= slot.block() == block % 4096;
        let Some((kind, id)) = slot.kind().and_then(|kind| of(slot.event(), kind)) else {
            unknown += 1;
            lane.refused();
            continue;
        };
        let at = match &mut clock {
            Some(clock) => {
                let mut at = clock.next(slot.stamp);
                let after = found.slots.get(index + 1).map(|after| after.stamp);
                if at.is_none() && clock.takes_back(slot.stamp, after) {
                    lane.take_back();
                    at = clock.next(slot.stamp);
                }
                at
            }
            None => {
                let at = u64::from(slot.stamp.wrapping_sub(zero.unwrap_or(slot.stamp)));
                clock = Some(Unwrap::new(slot.stamp, at));
                Some(at)
            }
        };
        match at {
            Some(at) => lane.events.push(Event { at, kind, id, step: 0 }),
            None => lane.refused(),
        }
    }
    let place = || format!("first in block {block}");
    problems.add(ProblemKind::UnknownRecord, Some(role_name), unknown, place);
    problems.add(ProblemKind::Hole, Some(role_name), found.holes, place);
    if let Some(clock) = clock {
        problems.add(ProblemKind::ClockWrapped, Some(role_name), clock.wraps, place);
        problems.add(ProblemKind::ClockBackwards, Some(role_name), clock.backwards, place);
        problems.add(ProblemKind::FarStamp, Some(role_name), clock.far, place);
    }
    LaneRead { lane, block_matches }
}

/// A block's lanes, and its SM.
pub(super) struct BlockSlots {
    pub(super) lanes: Vec<LaneSlots>,
    pub(super) smid: Option<u32>,
}

impl BlockSlots {
    /// The first stamp of each lane.
    pub(super) fn first_stamps(&self) -> impl Iterator<Item = u32> {
        self.lanes.iter().filter_map(|lane| lane.slots.first()).map(|slot| slot.stamp)
    }
}

pub(super) fn blocks(bytes: &[u8], shape: Shape) -> Vec<BlockSlots> {
    let block = |block| {
        let lanes: Vec<_> = (0..shape.groups).map(|group| lane_slots(bytes, shape, block, group)).collect();
        let smid = lanes.iter().find_map(|lane| lane.slots.first()).map(|slot| slot.sm());
        BlockSlots { lanes, smid }
    };
    (0..shape.blocks).map(block).collect()
}
