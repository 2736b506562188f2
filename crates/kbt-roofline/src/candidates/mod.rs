//! Candidate bottlenecks, as data: what each is, which checks and signals speak for and against it, how much of
//! the time it would account for, and the smallest experiment that would tell. The rows are in the three tables
//! beside this file.

mod arithmetic;
mod launch;
mod memory;

use crate::conditions::Condition;
use crate::facts::OperatorKind;
use crate::outcome::Resource;
use crate::signals::{Signal as S, Signals};
use kbt_evidence::{Figure, FixClass, Unit};
use serde::{Deserialize, Serialize};

/// Classes of bottleneck, wide enough that two of one class call for the same kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BottleneckClass {
    /// Too many bytes to and from device memory.
    MemoryTraffic,
    /// The right bytes, badly addressed.
    AccessPattern,
    /// Too few bytes in flight.
    MemoryLatency,
    /// L2, L1, shared memory.
    OnChipTraffic,
    /// The arithmetic itself: its amount, its format, its instructions.
    TensorThroughput,
    /// Load, arithmetic and store do not overlap.
    Overlap,
    /// Another pipe than the useful arithmetic's.
    InstructionPipe,
    /// Warp roles wait for each other.
    RoleBalance,
    /// Grid and waves.
    LaunchShape,
    /// Registers, shared memory, residency.
    Resources,
    /// Barriers and fences.
    Synchronisation,
    /// The host and its queue.
    HostSide,
    /// Links between GPUs.
    Communication,
    /// Clocks and power.
    Clocks,
}

impl BottleneckClass {
    /// The word in files and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MemoryTraffic => "memory_traffic",
            Self::AccessPattern => "access_pattern",
            Self::MemoryLatency => "memory_latency",
            Self::OnChipTraffic => "on_chip_traffic",
            Self::TensorThroughput => "tensor_throughput",
            Self::Overlap => "overlap",
            Self::InstructionPipe => "instruction_pipe",
            Self::RoleBalance => "role_balance",
            Self::LaunchShape => "launch_shape",
            Self::Resources => "resources",
            Self::Synchronisation => "synchronisation",
            Self::HostSide => "host_side",
            Self::Communication => "communication",
            Self::Clocks => "clocks",
        }
    }

    /// The ladder's class of fix that answers it, where the ladder has one.
    #[must_use]
    pub const fn fix_class(self) -> Option<FixClass> {
        Some(match self {
            Self::MemoryTraffic | Self::AccessPattern | Self::MemoryLatency | Self::OnChipTraffic => {
                FixClass::MemoryTraffic
            }
            Self::TensorThroughput | Self::Overlap => FixClass::TensorThroughput,
            Self::InstructionPipe => FixClass::InstructionChoice,
            Self::RoleBalance => FixClass::RoleBalance,
            Self::LaunchShape | Self::HostSide => FixClass::LaunchShape,
            Self::Resources => FixClass::RegisterBudget,
            Self::Synchronisation => FixClass::HandoffSplit,
            Self::Communication | Self::Clocks => return None,
        })
    }
}

impl std::fmt::Display for BottleneckClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The share of the time a candidate would account for.
type Claim = fn(&Signals) -> Option<Figure>;

/// How the time after an experiment follows from the sheet's figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Saving {
    /// This part of the claimed share goes: for changes whose effect no figure of a sheet gives.
    Part(f64),
    /// Half of the bytes of the largest tensor.
    HalfOfLargestTensor,
    /// The bits of the inputs beyond those that suffice.
    WiderBits,
    /// Twice the bytes in flight: by Little's law twice the bandwidth, up to the roof.
    TwiceInFlight,
    /// What lies outside the kernels.
    OutsideTheKernels,
    /// The waves of more and shorter CTAs.
    MoreCtas,
}

/// The experiment of a candidate: the factor, and how its time is predicted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExperimentRow {
    factor: &'static str,
    /// The factor where the operator reuses nothing within a tile.
    streaming: Option<&'static str>,
    pub(crate) saving: Saving,
    /// Bounds that the change moves; no prediction lies below any other.
    pub(crate) moves: &'static [Resource],
}

impl ExperimentRow {
    /// The factor to change for this kind of operator.
    pub(crate) const fn factor(&self, kind: OperatorKind) -> &'static str {
        match (kind, self.streaming) {
            (
                OperatorKind::Elementwise | OperatorKind::Normalization | OperatorKind::Reduction,
                Some(streaming),
            ) => streaming,
            _ => self.factor,
        }
    }

    const fn streaming(self, factor: &'static str) -> Self {
        Self { streaming: Some(factor), ..self }
    }

    const fn saves(self, saving: Saving) -> Self {
        Self { saving, ..self }
    }

    const fn moves(self, moves: &'static [Resource]) -> Self {
        Self { moves, ..self }
    }
}

/// A candidate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CandidateSpec {
    pub(crate) id: &'static str,
    pub(crate) class: BottleneckClass,
    pub(crate) title: &'static str,
    pub(crate) fix: &'static str,
    /// Checks whose firing supports it and whose clearance speaks against it.
    pub(crate) checks: &'static [&'static str],
    /// What else supports it: all conditions of any one group.
    pub(crate) supports: &'static [&'static [Condition]],
    pub(crate) against: &'static [Condition],
    pub(crate) claim: Claim,
    pub(crate) experiment: ExperimentRow,
}

/// A claim that is one signal.
macro_rules! share {
    ($signal:ident) => {
        |s| s.figure(S::$signal).cloned()
    };
}

/// A claim computed from signals.
fn made(s: &Signals, value: f64, how: &str, from: &[S]) -> Option<Figure> {
    let inputs: Vec<&Figure> = from.iter().filter_map(|x| s.figure(*x)).collect();
    (!inputs.is_empty()).then(|| Figure::computed(how, value, Unit::Ratio, how, &inputs))
}

/// The part of the global and local sectors that is neither spilled nor beyond need.
fn wanted_sectors(s: &Signals) -> f64 {
    (1.0 - s.get(S::Spills).unwrap_or(0.0)) * (1.0 - s.get(S::SectorWaste).unwrap_or(0.0))
}

/// Products that nobody timed alone run at this part of their roof or faster; they then need this much longer.
const OF_ROOF: f64 = 0.6;

/// The most of the time that products can have beyond what device memory takes beside them: `share` of it at their roof.
fn beyond_memory(s: &Signals, share: f64) -> f64 {
    (share / OF_ROOF - s.get(S::HbmShare).unwrap_or(0.0).min(1.0)).max(0.0)
}

/// The part of the lanes that takes part in an instruction.
fn active_lanes(s: &Signals) -> f64 {
    s.get(S::ThreadsPerInst).map_or(1.0, |threads| threads / 32.0)
}

/// What a shortfall of a signal below a whole leaves.
macro_rules! shortfall {
    ($signal:ident, $how:literal) => {
        |s| made(s, 1.0 - s.get(S::$signal)?, $how, &[S::$signal])
    };
}

/// A change of one factor that removes `part` of the claimed share, unless `saves` says how else it is predicted.
const fn experiment(factor: &'static str, part: f64) -> ExperimentRow {
    ExperimentRow { factor, streaming: None, saving: Saving::Part(part), moves: &[] }
}

use {share, shortfall};

/// Every candidate; among equals the earlier one is proposed first.
pub(crate) fn all() -> impl Iterator<Item = &'static CandidateSpec> {
    in_order(false)
}

/// Every candidate, those of the memory side last where the arithmetic is what the intensity calls.
pub(crate) fn in_order(by_arithmetic: bool) -> impl Iterator<Item = &'static CandidateSpec> {
    let tables = if by_arithmetic {
        [launch::CANDIDATES, arithmetic::CANDIDATES, memory::CANDIDATES]
    } else {
        [memory::CANDIDATES, launch::CANDIDATES, arithmetic::CANDIDATES]
    };
    tables.into_iter().flatten()
}

/// A candidate by name.
pub(crate) fn spec(id: &str) -> Option<&'static CandidateSpec> {
    all().find(|c| c.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::CHECKS;

    #[test]
    fn every_check_feeds_a_candidate_and_every_named_check_exists() {
        for check in CHECKS {
            assert!(all().any(|c| c.checks.contains(&check.id)), "{}", check.id);
        }
        for candidate in all() {
            for id in candidate.checks {
                assert!(CHECKS.iter().any(|c| c.id == *id), "{id}");
            }
            if let Saving::Part(part) = candidate.experiment.saving {
                assert!(part > 0.0 && part <= 1.0, "{}", candidate.id);
            }
            assert!(!candidate.checks.is_empty() || !candidate.supports.is_empty(), "{}", candidate.id);
        }
    }
}
