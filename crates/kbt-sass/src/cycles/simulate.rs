//! The warps of one scheduler, cycle by cycle.
//!
//! One instruction issues a cycle, of the warp that issued last if it can, else of the next in turn. A warp can
//! when its stall count has passed, the scoreboards that it waits for are released, its unit takes another
//! instruction and its operands can be read. Pipes without a queue hold the issue up; the XU and the LSU have a queue. What
//! the four schedulers of an SM share (shared memory, shuffles) is taken as their equal parts.

use super::files::Files;
use super::machine::{BRANCH, LSU_QUEUE, READ_BARRIER, XU_QUEUE};
use super::op::{Op, Unit};
use kbt_device::Pipe;
use std::collections::{BTreeMap, VecDeque};

/// Trips after which the rate is steady, and until which it is taken.
const TRIPS: [u32; 2] = [8, 24];

/// Cycles after which a simulation is given up: no loop that issues takes as long.
const LIMIT: u64 = 100_000_000;

/// Cycles for one more trip of each of `warps` warps.
pub(super) fn cycles_per_trip(ops: &[Op], warps: usize) -> f64 {
    if ops.is_empty() || warps == 0 {
        return 0.0;
    }
    let [few, many] = TRIPS.map(|trips| Scheduler::new(ops, warps).run(trips));
    many.saturating_sub(few) as f64 / f64::from(TRIPS[1] - TRIPS[0])
}

#[derive(Debug, Clone, Default)]
struct Warp {
    next: usize,
    ready: u64,
    /// When each scoreboard is released.
    scoreboards: [u64; 6],
    trips: u32,
}

#[derive(Debug)]
struct Scheduler<'a> {
    ops: &'a [Op],
    warps: Vec<Warp>,
    files: Files,
    /// When the halves of FMA are free: heavy, lite.
    halves: [u64; 2],
    /// When each other pipe is free.
    free: BTreeMap<Pipe, u64>,
    /// When what waits in front of a unit starts.
    queues: BTreeMap<Pipe, VecDeque<u64>>,
}

const fn queue_of(pipe: Pipe) -> Option<usize> {
    match pipe {
        Pipe::Xu => Some(XU_QUEUE),
        Pipe::Lsu => Some(LSU_QUEUE),
        _ => None,
    }
}

impl<'a> Scheduler<'a> {
    fn new(ops: &'a [Op], warps: usize) -> Self {
        Self {
            ops,
            warps: vec![Warp::default(); warps],
            files: Files::default(),
            halves: [0; 2],
            free: BTreeMap::new(),
            queues: BTreeMap::new(),
        }
    }

    /// The cycle at which the last warp ends its last trip.
    fn run(mut self, trips: u32) -> u64 {
        let (mut t, mut last, mut left) = (0, 0, self.warps.len());
        while left > 0 && t < LIMIT {
            let mut soonest = u64::MAX;
            let chosen = (0..self.warps.len()).map(|k| (last + k) % self.warps.len()).find(|&w| {
                let running = self.warps[w].trips < trips;
                let at = if running { self.ready(w, t) } else { u64::MAX };
                soonest = soonest.min(at);
                at <= t
            });
            let Some(warp) = chosen else {
                t = soonest.max(t + 1);
                continue;
            };
            last = warp;
            self.issue(warp, t);
            let state = &mut self.warps[warp];
            state.next += 1;
            if state.next == self.ops.len() {
                state.next = 0;
                state.trips += 1;
                left -= usize::from(state.trips == trips);
            }
            t += 1;
        }
        t
    }

    /// When a warp's next instruction may issue, as far as can be said at `t`.
    fn ready(&self, warp: usize, t: u64) -> u64 {
        let state = &self.warps[warp];
        let op = &self.ops[state.next];
        let mut at = state.ready.max(self.unit_ready(op, t));
        for (n, released) in state.scoreboards.iter().enumerate() {
            if op.wait >> n & 1 == 1 {
                at = at.max(*released);
            }
        }
        if at <= t { self.files.ready(warp, op, t) } else { at }
    }

    fn unit_ready(&self, op: &Op, t: u64) -> u64 {
        let [heavy, lite] = self.halves;
        match op.unit {
            Unit::None => 0,
            Unit::EitherHalf => heavy.min(lite),
            Unit::BothHalves => heavy.max(lite),
            Unit::Pipe(Pipe::FmaHeavy) => heavy,
            Unit::Pipe(Pipe::FmaLite) => lite,
            Unit::Pipe(pipe) => match (queue_of(pipe), self.queues.get(&pipe)) {
                (Some(depth), Some(queue)) => {
                    let waiting = queue.iter().filter(|start| **start > t).count();
                    if waiting < depth { 0 } else { queue[queue.len() - depth] }
                }
                (Some(_), None) => 0,
                (None, _) => self.free.get(&pipe).copied().unwrap_or(0),
            },
        }
    }

    /// Occupies the unit; the cycle at which it starts there.
    fn occupy(&mut self, op: &Op, t: u64) -> u64 {
        let busy = |free: u64| free.max(t) + op.interval;
        match op.unit {
            Unit::None => t,
            Unit::EitherHalf => {
                // The lite half if it is free: the heavy one has other work that only it can do.
                let half = usize::from(self.halves[1] <= t.max(self.halves[0]));
                self.halves[half] = busy(self.halves[half]);
                t
            }
            Unit::BothHalves => {
                self.halves = self.halves.map(busy);
                t
            }
            Unit::Pipe(Pipe::FmaHeavy) => {
                self.halves[0] = busy(self.halves[0]);
                t
            }
            Unit::Pipe(Pipe::FmaLite) => {
                self.halves[1] = busy(self.halves[1]);
                t
            }
            Unit::Pipe(pipe) => {
                let free = self.free.entry(pipe).or_default();
                let start = (*free).max(t);
                *free = start + op.interval;
                if queue_of(pipe).is_some() {
                    let queue = self.queues.entry(pipe).or_default();
                    queue.retain(|s| *s > t);
                    queue.push_back(start);
                }
                start
            }
        }
    }

    fn issue(&mut self, warp: usize, t: u64) {
        let op = &self.ops[self.warps[warp].next];
        self.files.take(warp, op, t);
        let start = self.occupy(op, t);
        let state = &mut self.warps[warp];
        let mut release = |scoreboard: Option<u8>, at: u64| {
            if let Some(s) = scoreboard.and_then(|n| state.scoreboards.get_mut(usize::from(n))) {
                *s = (*s).max(at);
            }
        };
        release(op.write, start + op.latency);
        release(op.read, start + READ_BARRIER);
        state.ready = t + op.stall + op.extra_stall;
        if op.taken_branch {
            state.ready = state.ready.max(t + BRANCH);
        }
    }
}
