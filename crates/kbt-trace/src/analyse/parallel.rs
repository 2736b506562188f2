//! Reads a source on as many threads as there are cores: one reads a CTA at a time, the others analyse theirs.
//!
//! Whatever depends on the order of the CTAs is decided while the source is held, so that the outcome is the same with
//! any number of threads.

use super::gather::{Edges, RoleSum};
use super::occupied::RingSums;
use super::releases::{self, Arrivals};
use super::{timeline, walk};
use crate::outcome::{Place, Timeline};
use crate::rings::Ring;
use crate::{CtaTrace, Kind, ProblemKind, Problems, Releaser, Source, StepRule, TraceError, TraceInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

/// What every worker knows.
pub(super) struct Task<'a> {
    pub(super) info: &'a TraceInfo,
    pub(super) rings: &'a [Ring],
    pub(super) only_cta: Option<u32>,
    pub(super) timeline_steps: usize,
    pub(super) cycles_per_tick: f64,
}

/// Where a role's steps start, and whether that was guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    pub(super) step: StepRule,
    pub(super) guessed: bool,
}

/// The source, and what is decided in the order of its CTAs.
struct Reading<'a> {
    source: &'a mut dyn Source,
    /// CTAs read.
    read: u64,
    /// By role; set at its first lane with records.
    rules: Vec<Option<Rule>>,
    timeline: Option<Timeline>,
    failed: Option<TraceError>,
    ended: bool,
}

/// Everything summed over the CTAs.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) roles: Vec<RoleSum>,
    pub(super) rules: Vec<Option<Rule>>,
    pub(super) rings: RingSums,
    pub(super) any_arrival: bool,
    pub(super) ctas: u64,
    pub(super) records: u64,
    pub(super) sms: BTreeSet<u32>,
    pub(super) timeline: Option<Timeline>,
    /// By class and role: how often, and the first CTA of it by order and by number.
    odd: BTreeMap<(ProblemKind, usize), (u64, u64, u32)>,
}

/// Reads `source` to its end on `threads` threads.
pub(super) fn gather(
    source: &mut dyn Source,
    task: &Task<'_>,
    threads: usize,
) -> Result<Gathered, TraceError> {
    let reading = Mutex::new(Reading {
        source,
        read: 0,
        rules: Vec::new(),
        timeline: None,
        failed: None,
        ended: false,
    });
    let mut all = Gathered::default();
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(|| work(&reading, task))).collect();
        all.merge(work(&reading, task));
        for other in others {
            match other.join() {
                Ok(sums) => all.merge(sums),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    let reading = reading.into_inner().unwrap_or_else(PoisonError::into_inner);
    match reading.failed {
        Some(error) => Err(error),
        None => Ok(Gathered { rules: reading.rules, timeline: reading.timeline, ..all }),
    }
}

fn work(reading: &Mutex<Reading<'_>>, task: &Task<'_>) -> Gathered {
    let mut sums = Gathered::default();
    let mut tools = Tools::default();
    let (mut cta, mut rules) = (CtaTrace::default(), Vec::new());
    loop {
        let order = {
            // A worker that panicked is joined and its panic goes on there.
            let mut reading = reading.lock().unwrap_or_else(PoisonError::into_inner);
            match reading.next(&mut cta, task) {
                Some(order) => {
                    if rules != reading.rules {
                        rules.clone_from(&reading.rules);
                    }
                    order
                }
                None => return sums,
            }
        };
        if task.only_cta.is_none_or(|only| only == cta.cta) {
            sums.cta(order, &cta, &rules, task, &mut tools);
        }
    }
}

impl Reading<'_> {
    /// Reads the next CTA and says which one it is in the source's order; `None` at the end.
    fn next(&mut self, cta: &mut CtaTrace, task: &Task<'_>) -> Option<u64> {
        if self.ended {
            return None;
        }
        match self.source.next_cta(cta) {
            Ok(true) => {}
            Ok(false) => {
                self.ended = true;
                return None;
            }
            Err(error) => {
                self.failed = Some(error);
                self.ended = true;
                return None;
            }
        }
        let order = self.read;
        self.read += 1;
        if task.only_cta.is_some_and(|only| only != cta.cta) {
            return Some(order);
        }
        for lane in cta.lanes.iter().filter(|lane| !lane.events.is_empty()) {
            if lane.role >= self.rules.len() {
                self.rules.resize(lane.role + 1, None);
            }
            let stated = task.info.roles.get(lane.role).map_or(StepRule::Unstated, |r| r.step);
            self.rules[lane.role].get_or_insert_with(|| match stated {
                StepRule::Unstated => Rule { step: walk::guess_rule(lane), guessed: true },
                step => Rule { step, guessed: false },
            });
        }
        if self.timeline.is_none() && task.timeline_steps > 0 {
            self.timeline = timeline::cut(cta, &self.rules, task);
        }
        Some(order)
    }
}

/// Buffers of one worker.
#[derive(Default)]
struct Tools {
    arrivals: Arrivals,
    walk: walk::Walk,
    edges: Edges,
}

impl Gathered {
    fn cta(
        &mut self,
        order: u64,
        cta: &CtaTrace,
        rules: &[Option<Rule>],
        task: &Task<'_>,
        tools: &mut Tools,
    ) {
        self.ctas += 1;
        self.sms.extend(cta.smid);
        let Tools { arrivals, walk, edges } = tools;
        self.any_arrival |= arrivals.collect(cta, &task.info.edges);
        self.rings.add(order, cta, task.rings);
        let place = Place { cta: cta.cta, smid: cta.smid };
        for lane in &cta.lanes {
            if lane.role >= self.roles.len() {
                self.roles.resize_with(lane.role + 1, RoleSum::default);
            }
            let role = &mut self.roles[lane.role];
            self.records += lane.events.len() as u64;
            role.has_waits |= lane.events.iter().any(|e| e.kind == Kind::WaitBegin);
            let released = |barrier| {
                releases::releasers(&task.info.edges, barrier, lane.role)
                    .any(|r| matches!(r, Releaser::Role(_)))
            };
            let rule = rules.get(lane.role).copied().flatten().map_or(StepRule::Unstated, |rule| rule.step);
            let walked = role.lane((walk, edges), (lane, rule), place, arrivals, &released);
            for (kind, count) in walked.odd.into_iter().filter(|odd| odd.1 > 0) {
                let odd = self.odd.entry((kind, lane.role)).or_insert((0, order, cta.cta));
                odd.0 += count;
            }
        }
    }

    fn merge(&mut self, other: Self) {
        self.roles.resize_with(self.roles.len().max(other.roles.len()), RoleSum::default);
        self.roles.iter_mut().zip(other.roles).for_each(|(mine, theirs)| mine.merge(theirs));
        self.rings.merge(other.rings);
        self.any_arrival |= other.any_arrival;
        self.ctas += other.ctas;
        self.records += other.records;
        self.sms.extend(other.sms);
        for (key, (count, order, cta)) in other.odd {
            let mine = self.odd.entry(key).or_insert((0, order, cta));
            *mine = (mine.0 + count, mine.1.min(order), if order < mine.1 { cta } else { mine.2 });
        }
    }

    /// What was odd about the lanes, in words.
    pub(super) fn problems(&self, info: &TraceInfo, into: &mut Problems) {
        for (&(kind, role), &(count, _, cta)) in &self.odd {
            into.add(kind, Some(&info.role_name(role)), count, || format!("first in CTA {cta}"));
        }
    }
}
