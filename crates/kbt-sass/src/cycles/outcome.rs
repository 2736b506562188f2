//! `kbt sass cycles`: the model's answer for each user loop of a listing.

use super::{CyclesError, Limits, LoopModel};
use crate::metrics::Selection;
use crate::{Analysis, Function, Listing, LoopKind, Unit};
use kbt_device::DeviceProfile;
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Registers of a scheduler, and the step in which they are given to a thread.
const REGISTERS_PER_SCHEDULER: u32 = 16 * 1024;
const REGISTER_STEP: u32 = 8;
/// Cycles over the lower bound from which on latency, not a resource, is what binds.
const EXPOSED: f64 = 1.5;
/// Warps that a scheduler can hold.
const MOST_WARPS: u32 = 16;

/// All loops of a listing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CyclesOutcome {
    /// `kbt.sass.cycles/1`.
    pub schema: String,
    /// The device profile.
    pub device: String,
    /// Loops that were modelled.
    pub loops: Vec<LoopCycles>,
    /// Loops that were not, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedLoop>,
}

/// One loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoopCycles {
    /// The function.
    pub function: String,
    /// The loop's name, as `kbt sass metrics` gives it.
    pub name: String,
    /// Instructions of a trip.
    pub instructions: u64,
    /// Registers a thread: as stated in the listing, else the highest that is named, plus one.
    pub registers: u32,
    /// Warps a scheduler that these registers allow.
    pub warps_allowed: u32,
    /// By number of warps.
    pub rows: Vec<CyclesRow>,
    /// What was taken as given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assumptions: Vec<String>,
    /// How the cycles are known.
    pub provenance: Provenance,
}

/// One number of warps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CyclesRow {
    /// Warps a scheduler.
    pub warps: u32,
    /// Cycles until each of them has made one more trip.
    pub cycles: f64,
    /// No order of the same instructions takes less.
    pub lower_bound: f64,
    /// What binds: the resource that the lower bound comes from, or, where the cycles are far above it, the latency that
    /// too few warps leave exposed.
    pub binding: String,
    /// The resource that the lower bound comes from.
    pub bound_by: String,
    /// Cycles over the lower bound, less one.
    pub headroom_percent: f64,
    /// Each resource's own cycles.
    pub limits: Limits,
}

/// A loop without an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedLoop {
    /// The function.
    pub function: String,
    /// The loop.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// Models the user loops of a listing that `selection` takes, for the numbers of warps asked (empty: all that the
/// registers allow).
#[must_use]
pub fn cycles(
    listing: &Listing,
    profile: &DeviceProfile,
    selection: &Selection,
    warps: &[u32],
    global_latency: Option<u32>,
) -> CyclesOutcome {
    let mut outcome = CyclesOutcome {
        schema: "kbt.sass.cycles/1".to_owned(),
        device: profile.name.clone(),
        loops: Vec::new(),
        refused: Vec::new(),
    };
    for function in listing.functions.iter().filter(|f| selection.takes_function(&f.name)) {
        let analysis = Analysis::new(function, &Unit::mufu(), &Unit::f2fp());
        for (n, l) in analysis.loops.iter().enumerate() {
            let name = analysis.loop_name(n).to_owned();
            if l.kind != LoopKind::User || selection.region.as_ref().is_some_and(|r| !r.is_match(&name)) {
                continue;
            }
            match model(function, &analysis, n, profile, warps, global_latency) {
                Ok(mut modelled) => {
                    modelled.name = name;
                    outcome.loops.push(modelled);
                }
                Err(why) => outcome.refused.push(RefusedLoop {
                    function: function.name.clone(),
                    name,
                    reason: why.to_string(),
                }),
            }
        }
    }
    outcome
}

fn model(
    function: &Function,
    analysis: &Analysis<'_>,
    n: usize,
    profile: &DeviceProfile,
    warps: &[u32],
    global_latency: Option<u32>,
) -> Result<LoopCycles, CyclesError> {
    let l = &analysis.loops[n];
    let body: Vec<_> = l.body.indices().filter_map(|i| function.instructions.get(i)).collect();
    let model = LoopModel::new(function.arch, body.iter().copied(), profile, global_latency)?;
    let registers = registers(function);
    let warps_allowed = warps_allowed(registers);
    let asked: Vec<u32> = if warps.is_empty() { (1..=warps_allowed).collect() } else { warps.to_vec() };
    let rows = asked.iter().map(|&warps| row(&model, warps)).collect();
    let mut assumptions = Vec::new();
    if l.blocks.len() > 1 {
        assumptions.push(format!("each of the loop's {} blocks runs once a trip", l.blocks.len()));
    }
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for insn in &body {
        *counts.entry(insn.mnemonic()).or_default() += 1;
    }
    let any = |names: &[&str]| names.iter().any(|n| counts.contains_key(n));
    if any(&["BAR", "SYNCS", "WARPGROUP", "DEPBAR", "LDGDEPBAR", "WARPSYNC"]) {
        assumptions.push("barriers and asynchronous work are never waited for".to_owned());
    }
    if any(&["LDS", "STS", "LDSM", "STSM", "ATOMS"]) {
        assumptions.push("shared memory without bank conflicts".to_owned());
    }
    if let Some(cycles) = global_latency.filter(|_| any(super::machine::MAY_MISS)) {
        assumptions.push(format!("a load that may miss takes {cycles} cycles, as stated"));
    }
    let mut taken: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (opcode, what) in model.assumed() {
        taken.entry(what).or_default().push(opcode);
    }
    assumptions.extend(taken.iter().map(|(what, opcodes)| format!("{what}: {}", opcodes.join(", "))));
    Ok(LoopCycles {
        function: function.name.clone(),
        name: String::new(),
        instructions: model.len() as u64,
        registers,
        warps_allowed,
        rows,
        assumptions,
        provenance: model.provenance(),
    })
}

pub(super) fn row(model: &LoopModel, warps: u32) -> CyclesRow {
    let limits = model.limits(warps);
    let (bound_by, lower_bound) = limits.binding();
    // The simulation ends where its last trip ends: it may look a fraction shorter than the bound.
    let cycles = model.cycles(warps).max(lower_bound);
    let exposed = cycles > lower_bound * EXPOSED;
    CyclesRow {
        binding: if exposed { "exposed latency".to_owned() } else { bound_by.clone() },
        bound_by,
        warps,
        cycles,
        lower_bound,
        headroom_percent: if lower_bound > 0.0 { 100.0 * (cycles / lower_bound - 1.0) } else { 0.0 },
        limits,
    }
}

fn registers(function: &Function) -> u32 {
    let stated = function.resources.and_then(|r| r.registers);
    stated.unwrap_or_else(|| {
        let named = function.instructions.iter().flat_map(|i| {
            let found = super::registers::operands(i);
            let read = found.reads.iter().map(|r| r.registers().end).max();
            let written = found.writes.iter().filter_map(|p| match p {
                super::registers::Place::Register(r) => Some(r.saturating_add(1)),
                super::registers::Place::Predicate(_) => None,
            });
            read.into_iter().chain(written).max()
        });
        u32::from(named.max().unwrap_or(0))
    })
}

/// Warps a scheduler that so many registers a thread allow.
fn warps_allowed(registers: u32) -> u32 {
    let each = registers.max(1).next_multiple_of(REGISTER_STEP) * 32;
    (REGISTERS_PER_SCHEDULER / each).clamp(1, MOST_WARPS)
}

impl CyclesOutcome {
    /// For people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut text = format!("device {}\n", self.device);
        // Writing to a String cannot fail.
        for l in &self.loops {
            let _ = writeln!(
                text,
                "\n{} {}: {} instructions, {} registers (up to {} warps a scheduler)",
                l.function, l.name, l.instructions, l.registers, l.warps_allowed
            );
            let _ = writeln!(
                text,
                "{:>8} {:>10} {:>12} {:>10}  binding",
                "warps", "cycles", "lower bound", "headroom"
            );
            for r in &l.rows {
                let _ = writeln!(
                    text,
                    "{:>8} {:>10.1} {:>12.1} {:>8.1} %  {}",
                    r.warps,
                    r.cycles,
                    r.lower_bound,
                    r.headroom_percent,
                    if r.binding == r.bound_by {
                        r.binding.clone()
                    } else {
                        format!("{}, then {}", r.binding, r.bound_by)
                    }
                );
            }
            for note in &l.assumptions {
                let _ = writeln!(text, "  assumed: {note}");
            }
            let _ = writeln!(text, "  {}: {}", l.provenance.kind, l.provenance.by);
        }
        for r in &self.refused {
            let _ = writeln!(text, "\n{} {}: refused: {}", r.function, r.name, r.reason);
        }
        text
    }
}
