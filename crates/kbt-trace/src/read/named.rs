//! What the formats that name their spans share: tables of names, which names are waits, spans put in order.

use crate::{Barrier, BarrierPurpose, Event, EventName, EventPurpose, Kind, Lane};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Whether a span's name says that it waits, and on what.
///
/// A name waits if one of its words (split at anything but letters and digits) starts with `wait`; it waits on the
/// other words: `wait S` and `S_wait` on `S`, `mbarrier_wait` on `mbarrier`, `wait` on `wait`. What follows `wait` and a
/// space, as kbt itself writes it, is taken as it is.
pub(super) fn waits_on(name: &str) -> Option<String> {
    if let Some(on) = name.strip_prefix("wait ").filter(|on| !on.trim().is_empty()) {
        return Some(on.to_owned());
    }
    let words: Vec<_> = name.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).collect();
    let waits = |word: &&str| word.get(..4).is_some_and(|head| head.eq_ignore_ascii_case("wait"));
    if !words.iter().any(waits) {
        return None;
    }
    let rest: Vec<_> = words.into_iter().filter(|w| !waits(w)).collect();
    Some(if rest.is_empty() { name.to_owned() } else { rest.join(" ") })
}

/// What a name stands for here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Means {
    Event(u16),
    Wait(u16),
}

/// Names met so far, with the ids given to them.
#[derive(Debug, Default)]
pub(super) struct Names {
    events: Vec<String>,
    barriers: Vec<String>,
    known: BTreeMap<String, Means>,
    instants: BTreeMap<String, u16>,
    /// Spans and instants whose name came after the ids ran out.
    pub(super) too_many: u64,
}

impl Names {
    /// The id of a span's name; `None` beyond 65536 names.
    pub(super) fn span(&mut self, name: &str) -> Option<Means> {
        if let Some(&means) = self.known.get(name) {
            return Some(means);
        }
        let means = match waits_on(name) {
            Some(on) => intern(&mut self.barriers, &on).map(Means::Wait),
            None => intern(&mut self.events, name).map(Means::Event),
        };
        match means {
            Some(means) => {
                self.known.insert(name.to_owned(), means);
            }
            None => self.too_many += 1,
        }
        means
    }

    /// The id of an instant's name, whatever the name says: an instant waits for nothing.
    pub(super) fn instant(&mut self, name: &str) -> Option<u16> {
        if let Some(&id) = self.instants.get(name) {
            return Some(id);
        }
        let id = intern(&mut self.events, name);
        match id {
            Some(id) => {
                self.instants.insert(name.to_owned(), id);
            }
            None => self.too_many += 1,
        }
        id
    }

    pub(super) fn tables(self) -> (Vec<EventName>, Vec<Barrier>) {
        let event = |name| EventName { name, purpose: EventPurpose::Plain };
        let barrier = |name| Barrier { name, purpose: BarrierPurpose::Plain };
        (self.events.into_iter().map(event).collect(), self.barriers.into_iter().map(barrier).collect())
    }
}

fn intern(table: &mut Vec<String>, name: &str) -> Option<u16> {
    let index = table.iter().position(|n| n == name).unwrap_or(table.len());
    let id = u16::try_from(index).ok()?;
    if index == table.len() {
        table.push(name.to_owned());
    }
    Some(id)
}

/// Spans and instants of one lane, in any order.
#[derive(Debug, Default)]
pub(super) struct Spans {
    spans: Vec<(u64, u64, Means)>,
    instants: Vec<(u64, u16)>,
}

impl Spans {
    pub(super) fn span(&mut self, start: u64, end: u64, means: Means) {
        self.spans.push((start, end, means));
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.spans.is_empty() && self.instants.is_empty()
    }

    pub(super) fn instant(&mut self, at: u64, event: u16) {
        self.instants.push((at, event));
    }

    /// A lane of records in order of time: outer spans begin first, and at equal times ends come before begins. Which
    /// begin an end belongs to is kept, since spans of one name may overlap.
    pub(super) fn into_lane(mut self, role: usize) -> Lane {
        let mut lane = Lane { role, dropped: None, ..Lane::default() };
        self.spans.sort_by_key(|&(start, end, _)| (start, Reverse(end)));
        self.instants.sort_unstable();
        let mut open = BinaryHeap::new();
        let mut instants = self.instants.into_iter().peekable();
        for (order, (start, end, means)) in self.spans.into_iter().enumerate() {
            close_until(start, &mut open, &mut instants, &mut lane);
            let begin = lane.events.len();
            let (kind, id) = match means {
                Means::Event(id) => (Kind::Begin, id),
                Means::Wait(id) => (Kind::WaitBegin, id),
            };
            put(&mut lane, start, kind, id, begin);
            // Of spans that end together the one begun last ends first.
            open.push(Reverse(Ends { at: end, order: Reverse(order), begin }));
        }
        close_until(u64::MAX, &mut open, &mut instants, &mut lane);
        lane
    }
}

/// A span's end to come.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Ends {
    at: u64,
    order: Reverse<usize>,
    /// The record that began it.
    begin: usize,
}

fn put(lane: &mut Lane, at: u64, kind: Kind, id: u16, begun_by: usize) {
    lane.events.push(Event { at, kind, id, step: 0 });
    // A lane of 2^32 records does not fit a file that is read whole.
    lane.begun_by.push(u32::try_from(begun_by).unwrap_or(u32::MAX));
}

fn close_until(
    until: u64,
    open: &mut BinaryHeap<Reverse<Ends>>,
    instants: &mut std::iter::Peekable<std::vec::IntoIter<(u64, u16)>>,
    lane: &mut Lane,
) {
    loop {
        let end = open.peek().map(|Reverse(ends)| ends.at).filter(|&end| end <= until);
        let instant = instants.peek().map(|&(at, _)| at).filter(|&at| at < until || until == u64::MAX);
        match (end, instant) {
            (Some(end), instant) if instant.is_none_or(|at| end <= at) => {
                let Some(Reverse(Ends { at, begin, .. })) = open.pop() else { return };
                let Some(&Event { kind, id, .. }) = lane.events.get(begin) else { return };
                let kind = if kind == Kind::WaitBegin { Kind::WaitEnd } else { Kind::End };
                put(lane, at, kind, id, begin);
            }
            (_, Some(_)) => {
                let Some((at, id)) = instants.next() else { return };
                let own = lane.events.len();
                put(lane, at, Kind::Instant, id, own);
            }
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_waits_on_its_other_words() {
        for (name, on) in [
            ("wait S", Some("S")),
            ("wait P_full 1", Some("P_full 1")),
            ("WAIT_P_full1", Some("P full1")),
            ("ab_wait", Some("ab")),
            ("wait", Some("wait")),
            ("waiting for kv", Some("for kv")),
            ("QK GEMM", None),
            ("await", None),
        ] {
            assert_eq!(waits_on(name).as_deref(), on, "{name}");
        }
    }

    #[test]
    fn spans_become_nested_records_in_order_of_time() {
        let mut spans = Spans::default();
        spans.span(10, 20, Means::Event(1));
        spans.span(0, 20, Means::Event(0));
        spans.span(20, 30, Means::Wait(0));
        spans.span(12, 12, Means::Event(2));
        spans.instant(15, 9);
        let events = spans.into_lane(0).events;
        let got: Vec<_> = events.iter().map(|e| (e.at, e.kind, e.id)).collect();
        use Kind::{Begin, End, Instant, WaitBegin, WaitEnd};
        let expected = [
            (0, Begin, 0),
            (10, Begin, 1),
            (12, Begin, 2),
            (12, End, 2),
            (15, Instant, 9),
            (20, End, 1),
            (20, End, 0),
            (20, WaitBegin, 0),
            (30, WaitEnd, 0),
        ];
        assert_eq!(got, expected);
    }
}
