//! Generic stores to shared memory that reach a reader of the async proxy with no proxy fence on the way.
//!
//! A forward analysis: a store is pending in its thread until `fence.proxy.async`. An arrival hands the pending
//! stores to every wait on the same barrier, where they are pending for the waiting thread; its own fence takes
//! them too. A reader of the async proxy that may touch what a pending store wrote is a finding.

use super::Traffic;
use super::effect::{Channel, Effect, Meet, Region};
use std::collections::{BTreeMap, BTreeSet};

/// Stores that reach one reader unfenced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unfenced {
    /// Lines of the stores, ascending.
    pub(crate) store_lines: Vec<u32>,
    /// The first store's opcode.
    pub(crate) store: String,
    /// The arrival that hands them over, line and opcode; none where the storing thread reads itself.
    pub(crate) handed_over: Option<(u32, String)>,
    /// The wait that takes them.
    pub(crate) wait_line: Option<u32>,
    /// The first reader, line and opcode.
    pub(crate) reader: (u32, String),
    /// Whether both addresses are known and meet; else one could not be followed.
    pub(crate) is_certain: bool,
}

/// Stores by their place in the list of stores.
type Pending = BTreeSet<usize>;

struct Flow<'t, 'p> {
    traffic: &'t Traffic<'p>,
    /// By block: what is pending on entry.
    entry: Vec<Pending>,
    /// By arrival: what it hands over.
    handed: BTreeMap<usize, Pending>,
    /// Arrivals that each wait can be ended by.
    partners: BTreeMap<usize, Vec<usize>>,
}

/// Every store that reaches a reader unfenced, one entry for each handoff and reader's wait.
pub(crate) fn unfenced(traffic: &Traffic<'_>) -> Vec<Unfenced> {
    let is_read = |e: &Effect| matches!(e, Effect::AsyncRead(_) | Effect::TensorRead(_));
    let is_store = |e: &Effect| matches!(e, Effect::Store(_));
    let any = |test: &dyn Fn(&Effect) -> bool| traffic.effects.iter().any(|(_, e)| test(e));
    if !any(&is_read) || !any(&is_store) {
        return Vec::new();
    }
    let mut flow = Flow {
        traffic,
        entry: vec![Pending::new(); traffic.code.blocks.len()],
        handed: BTreeMap::new(),
        partners: partners(traffic),
    };
    while flow.pass(&mut |_, _, _| {}) {}
    let ways = Ways { traffic, handed: flow.handed.clone(), partners: flow.partners.clone() };
    let mut found: BTreeMap<(Option<usize>, usize), Found> = BTreeMap::new();
    flow.pass(&mut |reader, regions, pending| {
        for store in pending {
            let Effect::Store(to) = &traffic.effects[*store].1 else { continue };
            let meets: Vec<Meet> = regions.iter().map(|r| r.meets(to)).collect();
            let certain = meets.contains(&Meet::Together);
            if !certain && !meets.contains(&Meet::Unknown) {
                continue;
            }
            let via = ways.handoff(*store, reader);
            let entry = found.entry((via.map(|(_, arrive)| arrive), via.map_or(reader, |(wait, _)| wait)));
            let seen = entry.or_insert_with(|| Found { stores: BTreeSet::new(), reader, certain: false });
            // One certain store speaks for its handoff; the uncertain ones beside it add nothing.
            if certain && !seen.certain {
                (seen.certain, seen.reader) = (true, reader);
                seen.stores.clear();
            }
            if certain == seen.certain {
                seen.stores.insert(*store);
            }
        }
    });
    // A store that its own thread hands over needs no mention of those who pass it on.
    let is_own = |store: usize, arrive: Option<usize>| {
        arrive.is_none_or(|a| ways.is_before(traffic.effects[store].0, a))
    };
    let own: BTreeSet<usize> = (found.iter())
        .flat_map(|((arrive, _), seen)| seen.stores.iter().copied().filter(|s| is_own(*s, *arrive)))
        .collect();
    for ((arrive, _), seen) in &mut found {
        seen.stores.retain(|s| is_own(*s, *arrive) || !own.contains(s));
    }
    let line = |index: usize| traffic.insn(index).line;
    let named = |index: usize| (line(index), traffic.insn(index).opcode.clone());
    (found.into_iter())
        .filter_map(|((arrive, wait), seen)| {
            let first = *seen.stores.first()?;
            Some(Unfenced {
                store_lines: seen.stores.iter().map(|s| line(traffic.effects[*s].0)).collect(),
                store: traffic.insn(traffic.effects[first].0).opcode.clone(),
                handed_over: arrive.map(named),
                wait_line: arrive.map(|_| line(wait)),
                reader: named(seen.reader),
                is_certain: seen.certain,
            })
        })
        .collect()
}

struct Found {
    stores: BTreeSet<usize>,
    reader: usize,
    certain: bool,
}

impl Flow<'_, '_> {
    /// Once through all blocks; `read` is told what is pending at each reader. Whether anything grew.
    fn pass(&mut self, read: &mut dyn FnMut(usize, &[Region], &Pending)) -> bool {
        let traffic = self.traffic;
        let mut grew = false;
        for b in traffic.code.forward() {
            let mut pending = self.entry[b].clone();
            // The effects are in the order of the instructions, so a block's are in a row.
            let ops = &traffic.code.blocks[b].ops;
            let first = traffic.effects.partition_point(|(index, _)| *index < ops.start);
            let in_block = |(_, (index, _)): &(usize, &(usize, Effect))| *index < ops.end;
            for (n, (index, effect)) in traffic.effects.iter().enumerate().skip(first).take_while(in_block) {
                grew |= self.step(n, *index, effect, &mut pending, read);
            }
            for &s in &traffic.code.blocks[b].successors {
                let before = self.entry[s].len();
                self.entry[s].extend(&pending);
                grew |= self.entry[s].len() > before;
            }
        }
        grew
    }

    fn step(
        &mut self,
        n: usize,
        index: usize,
        effect: &Effect,
        pending: &mut Pending,
        read: &mut dyn FnMut(usize, &[Region], &Pending),
    ) -> bool {
        let mut grew = false;
        match effect {
            Effect::Store(_) => {
                pending.insert(n);
            }
            // A fence under a predicate is taken to be its thread's own business: where it does not run, the
            // stores it is for do not either.
            Effect::ProxyFence => pending.clear(),
            Effect::AsyncRead(regions) | Effect::TensorRead(regions) => read(index, regions, pending),
            _ => {}
        }
        if matches!(effect, Effect::Arrive(_) | Effect::Sync(_)) {
            let handed = self.handed.entry(index).or_default();
            let before = handed.len();
            handed.extend(pending.iter());
            grew |= handed.len() > before;
        }
        if matches!(effect, Effect::Wait(_) | Effect::Sync(_)) {
            // What grows here has grown at its arrival, which says so.
            for arrive in self.partners.get(&index).into_iter().flatten() {
                pending.extend(self.handed.get(arrive).into_iter().flatten());
            }
        }
        grew
    }
}

/// The arrivals that can end each wait. Where a wait dominates an arrival that never leads back to it, every
/// arriving thread is past the wait, so the arrival belongs to a later phase.
fn partners(traffic: &Traffic<'_>) -> BTreeMap<usize, Vec<usize>> {
    let channel = |e: &Effect| -> (Option<Channel>, Option<Channel>) {
        match e {
            Effect::Arrive(c) => (Some(*c), None),
            Effect::Wait(c) => (None, Some(*c)),
            Effect::Sync(c) => (Some(*c), Some(*c)),
            _ => (None, None),
        }
    };
    let arrives: Vec<(usize, Channel)> =
        traffic.effects.iter().filter_map(|(i, e)| Some((*i, channel(e).0?))).collect();
    let code = &traffic.code;
    let mut all = BTreeMap::new();
    for (wait, on) in traffic.effects.iter().filter_map(|(i, e)| Some((*i, channel(e).1?))) {
        let home = code.ops[wait].block;
        let is_past = |arrive: usize| {
            let there = code.ops[arrive].block;
            let behind = if home == there { wait < arrive } else { code.dominates(home, there) };
            behind && arrive != wait && !code.reachable(there)[home]
        };
        let ends = arrives.iter().filter(|(i, c)| c.meets(&on) && !is_past(*i)).map(|(i, _)| *i);
        all.insert(wait, ends.collect());
    }
    all
}

/// How stores come to their readers, once everything is known.
struct Ways<'t, 'p> {
    traffic: &'t Traffic<'p>,
    handed: BTreeMap<usize, Pending>,
    partners: BTreeMap<usize, Vec<usize>>,
}

impl Ways<'_, '_> {
    /// The wait that brings a store to a reader and the arrival that ends it; none where the reading thread
    /// stored it itself. The last wait before the reader is preferred, and there an arrival of the storing
    /// thread to one that passes the store on.
    fn handoff(&self, store: usize, reader: usize) -> Option<(usize, usize)> {
        let at = self.traffic.effects[store].0;
        let takes = |(wait, arrives): (&usize, &Vec<usize>)| {
            let hands = |a: &&usize| self.handed.get(a).is_some_and(|stores| stores.contains(&store));
            let by = arrives
                .iter()
                .filter(hands)
                .max_by_key(|a| (self.is_before(at, **a), std::cmp::Reverse(**a)))?;
            Some((*wait, *by))
        };
        let all = || self.partners.iter().filter_map(takes);
        let nearest = all()
            .filter(|(wait, _)| self.is_before(*wait, reader))
            .max_by_key(|(wait, by)| (self.is_before(at, *by), *wait));
        match nearest {
            None if self.is_before(at, reader) => None,
            None => all().max_by_key(|(wait, _)| *wait),
            found => found,
        }
    }

    /// Whether an instruction is on every way to another.
    fn is_before(&self, a: usize, b: usize) -> bool {
        let code = &self.traffic.code;
        let (home, there) = (code.ops[a].block, code.ops[b].block);
        if home == there { a < b } else { code.dominates(home, there) }
    }
}
