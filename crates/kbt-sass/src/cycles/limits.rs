//! What no schedule of the same instructions can beat: the lower bounds, resource by resource.

use super::files::Files;
use super::machine::{BRANCH, FIXED_LATENCY};
use super::op::{Op, Unit};
use super::registers::Place;
use kbt_device::Pipe;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Trips between which the length of the longest chain is taken.
const TRIPS: [u64; 2] = [16, 32];

/// Cycles that each resource needs for one trip of all warps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// One instruction a cycle.
    pub issue: f64,
    /// Each pipe that is used.
    pub pipes: BTreeMap<String, f64>,
    /// The busier bank of the register file, one read a cycle.
    pub register_ports: f64,
    /// One warp alone: the longest chain of results that a trip hands to the next.
    pub dependence: f64,
    /// One warp alone: an instruction a cycle and the way back to the loop's head.
    pub one_warp: f64,
}

impl Limits {
    /// The resource that binds, and its cycles.
    #[must_use]
    pub fn binding(&self) -> (String, f64) {
        let mut best = ("issue".to_owned(), self.issue);
        let pipes = self.pipes.iter().map(|(pipe, cycles)| (format!("pipe {pipe}"), *cycles));
        let others = [
            ("register ports".to_owned(), self.register_ports),
            ("dependence chain".to_owned(), self.dependence),
            ("one warp".to_owned(), self.one_warp),
        ];
        for (name, cycles) in pipes.chain(others) {
            if cycles > best.1 {
                best = (name, cycles);
            }
        }
        best
    }
}

/// The bounds for `warps` warps a scheduler.
pub(super) fn limits(ops: &[Op], warps: u32) -> Limits {
    let each = f64::from(warps);
    let mut pipes: BTreeMap<String, f64> = BTreeMap::new();
    let (mut either, mut heavy, mut lite) = (0.0, 0.0, 0.0);
    for op in ops {
        let cycles = op.interval as f64;
        match op.unit {
            Unit::None => {}
            Unit::EitherHalf => either += cycles,
            Unit::BothHalves => {
                heavy += cycles;
                lite += cycles;
            }
            Unit::Pipe(Pipe::FmaHeavy) => heavy += cycles,
            Unit::Pipe(Pipe::FmaLite) => lite += cycles,
            Unit::Pipe(pipe) => *pipes.entry(pipe.as_str().to_owned()).or_default() += cycles * each,
        }
    }
    let mut add = |pipe: Pipe, cycles: f64| {
        if cycles > 0.0 {
            pipes.insert(pipe.as_str().to_owned(), cycles * each);
        }
    };
    add(Pipe::Fma, f64::midpoint(either, heavy + lite));
    add(Pipe::FmaHeavy, heavy);
    let taken = ops.iter().any(|op| op.taken_branch);
    Limits {
        issue: ops.len() as f64 * each,
        pipes,
        register_ports: register_ports(ops) * each,
        dependence: dependence(ops),
        one_warp: ops.len() as f64 + if taken { (BRANCH - 1) as f64 } else { 0.0 },
    }
}

/// Reads of the busier bank in one trip of a warp that is never interrupted, its cache filled by the trip before.
fn register_ports(ops: &[Op]) -> f64 {
    let mut files = Files::default();
    let mut total = [0u64; 2];
    for trip in 0..2 {
        for (n, op) in ops.iter().enumerate() {
            let reads = files.reads(0, op);
            // No port is ever waited for here: each instruction comes long after the one before.
            files.take(0, op, (trip * ops.len() + n) as u64 * 16);
            if trip == 1 {
                total[0] += reads[0];
                total[1] += reads[1];
            }
        }
    }
    total[0].max(total[1]) as f64
}

/// Cycles by which the longest chain of dependent results grows a trip.
fn dependence(ops: &[Op]) -> f64 {
    let mut available: HashMap<Place, u64> = HashMap::new();
    let mut ends = Vec::new();
    let mut longest = 0;
    for trip in 1..=TRIPS[1] {
        for op in ops {
            let registers = op.operands.reads.iter().flat_map(|r| r.registers()).map(Place::Register);
            let predicates = op.operands.predicates.iter().map(|p| Place::Predicate(*p));
            let start =
                registers.chain(predicates).filter_map(|p| available.get(&p)).max().copied().unwrap_or(0);
            let latency = if op.scoreboard { op.latency } else { FIXED_LATENCY };
            for place in &op.operands.writes {
                available.insert(*place, start + latency);
                longest = longest.max(start + latency);
            }
        }
        if TRIPS.contains(&trip) {
            ends.push(longest);
        }
    }
    match ends[..] {
        [a, b] => (b - a) as f64 / (TRIPS[1] - TRIPS[0]) as f64,
        _ => 0.0,
    }
}
