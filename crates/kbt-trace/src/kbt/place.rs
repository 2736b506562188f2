//! Places the records of a ring on the SM's 64-bit clock, by the stamps of its open() and close().

use crate::Lane;
use crate::bindings as b;

/// In ticks; no kernel's roles are so far from each other, nor is open() from a role's first record.
const A_SECOND: u64 = 1 << 31;

/// Places records, timed from open() modulo 2^32 so far: by the close where there is one, since whole wraps may lie
/// between open() and the oldest record kept. Where the stamps contradict the records the answer says how, and the
/// records lie around open().
pub(super) fn place(ring: &b::kbt_trace_ring, lane: &mut Lane) -> Option<String> {
    let closed = ring.closed == b::KBT_TRACE_RING_CLOSED;
    let (open, close) = (ring.open_clock, ring.close_clock);
    let stamps = || {
        let end = if closed { format!("closed at {close}") } else { "not closed".to_owned() };
        format!("CTA {}: opened at {open}, {end}", ring.cta)
    };
    let Some((first, last)) = lane.events.first().zip(lane.events.last()).map(|(a, z)| (a.at, z.at)) else {
        return (closed && close < open).then(stamps);
    };
    let base = if closed {
        let low = (open as u32).wrapping_add(last as u32);
        let behind = u64::from((close as u32).wrapping_sub(low));
        close.checked_sub(behind).and_then(|at| at.checked_sub(last)).filter(|base| *base >= open)
    } else {
        Some(open).filter(|open| first < A_SECOND && open.checked_add(last).is_some())
    };
    if let Some(base) = base {
        lane.events.iter_mut().for_each(|event| event.at += base);
        // Where no record was overwritten the first one follows on open(): whole wraps lie in a pause further on.
        let wraps = (base - open) >> 32;
        return (wraps > 0 && ring.total <= ring.kept).then(|| {
            format!(
                "{}, {wraps} x 2^32 ticks more than the records tell, in a pause that may lie anywhere",
                stamps()
            )
        });
    }
    // The order is kept whatever the stamps are.
    let start = open.checked_add_signed(i64::from(first as u32 as i32)).unwrap_or(0);
    let start = if start.checked_add(last - first).is_some() { start } else { 0 };
    lane.events.iter_mut().for_each(|event| event.at = event.at - first + start);
    Some(format!("{}, records over {} ticks that do not lie between", stamps(), last - first))
}

/// Lanes that were recorded more than a second from all others of their CTA, by the stamps. Roles of a CTA run together:
/// of two such lanes either may be the one that is wrong.
pub(super) fn apart(lanes: &[Lane]) -> Vec<usize> {
    let span = |lane: &Lane| Some((lane.events.first()?.at, lane.events.last()?.at));
    let spans: Vec<_> = lanes.iter().map(|lane| span(lane).filter(|_| !lane.torn)).collect();
    let far = |a: (u64, u64), b: (u64, u64)| {
        a.0.saturating_sub(b.1) >= A_SECOND || b.0.saturating_sub(a.1) >= A_SECOND
    };
    let alone = |&(index, own): &(usize, (u64, u64))| {
        let mut others =
            spans.iter().enumerate().filter_map(|(i, other)| other.filter(|_| i != index)).peekable();
        others.peek().is_some() && others.all(|other| far(own, other))
    };
    let spans = spans.iter().enumerate().filter_map(|(index, span)| Some((index, (*span)?)));
    spans.filter(alone).map(|(index, _)| index).collect()
}
