//! The contradiction check: nineteen rows of data, each with the signals it reads, thresholds and their sources.
//! Does the implementation contradict the roofline's call? An unknown signal is never taken for a no.

use crate::conditions::{
    Condition, FLAG, HBM_BUSY, LOCAL_SECTORS, NCU_60, SECTORS, Source, above, below, reading,
};
use crate::outcome::{Check, CheckStatus, Side};
use crate::signals::{Signal as S, Signals};

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CheckRow {
    pub(crate) id: &'static str,
    pub(crate) side: Side,
    pub(crate) question: &'static str,
    /// Fires when all conditions of any one group hold.
    pub(crate) any: &'static [&'static [Condition]],
    /// Whether the groups ask one thing in several ways, so that any one of them clears it; else each must.
    pub(crate) one_thing: bool,
}

const TRAFFIC: Source =
    Source::Assumed("a quarter more than compulsory traffic is past what caches and partial sectors explain");
const TENTH: Source = Source::Assumed("a tenth of the time or traffic is worth a look");
const HALF_STALLS: Source = Source::Assumed("one reason behind half of all stalls rules the warp's time");
const TILES: Source = Source::Assumed("15 % of a tile wasted is more than a usual tail");
const ONE: Source = Source::Definition("one stage cannot overlap");
const WHOLE: Source = Source::Definition("less than a whole");
const CLOCK: Source = Source::Published(
    "the FA4 FP4 fork's bench notes: a B200 throttled 1965 to 1580 MHz, 15 % slower; half of that is called",
    "2026-11",
);
const POWER: Source = Source::Assumed("at 97 % of the limit the power controller acts");
const OCCUPANCY: Source =
    Source::Assumed("one warp in four resident is few, unless a pipeline hides the latency");
const ISSUE: Source = Source::Published(
    "Nsight Compute, rule IssueSlotUtilization: below 60 % of issue slots the schedulers starve",
    "2026-11",
);

/// The nineteen checks.
pub(crate) const CHECKS: &[CheckRow] = &[
    CheckRow {
        id: "repeated_traffic",
        side: Side::Memory,
        question: "does device memory move bytes again that it moved already?",
        any: &[&[above(S::TrafficRatio, 1.25, TRAFFIC)]],
        one_thing: true,
    },
    CheckRow {
        id: "intermediates_in_hbm",
        side: Side::Memory,
        question: "do intermediates go to device memory and back?",
        any: &[&[above(S::IntermediateRatio, 0.1, TENTH)]],
        one_thing: true,
    },
    CheckRow {
        id: "uncoalesced",
        side: Side::Memory,
        question: "do the threads of a warp touch more sectors than they need?",
        any: &[&[above(S::SectorExcess, 1.5, SECTORS)], &[above(S::Strided, 0.5, FLAG)]],
        one_thing: true,
    },
    CheckRow {
        id: "wide_dtype",
        side: Side::Memory,
        question: "are inputs stored wider than the arithmetic or the accuracy needs?",
        any: &[&[above(S::StorageWidth, 1.2, Source::Assumed("block scales alone add up to 13 %"))]],
        one_thing: true,
    },
    CheckRow {
        id: "request_concurrency",
        side: Side::Memory,
        question: "are too few bytes in flight to cover the latency?",
        any: &[
            &[below(S::InFlight, 1.0, WHOLE)],
            &[above(S::LongScoreboard, 0.5, HALF_STALLS), below(S::HbmBusy, 0.6, HBM_BUSY)],
        ],
        one_thing: true,
    },
    CheckRow {
        id: "no_tensor_instructions",
        side: Side::Compute,
        question: "does tensor-core work run without this generation's matrix instructions?",
        any: &[
            &[below(S::TensorInstructions, 0.5, FLAG), above(S::TensorKernel, 0.5, FLAG)],
            &[above(S::LegacyMma, 0.5, FLAG)],
        ],
        one_thing: true,
    },
    CheckRow {
        id: "tile_use",
        side: Side::Compute,
        question: "is much of each tile padding?",
        any: &[&[below(S::TileUse, 0.85, TILES)]],
        one_thing: true,
    },
    CheckRow {
        id: "no_overlap",
        side: Side::Compute,
        question: "do load, arithmetic and store take turns?",
        any: &[
            &[below(S::Stages, 2.0, ONE), below(S::ComputeBusy, 0.6, NCU_60)],
            &[
                below(S::AsyncCopies, 0.5, FLAG),
                below(S::ComputeBusy, 0.6, NCU_60),
                above(S::TensorKernel, 0.5, FLAG),
            ],
        ],
        one_thing: false,
    },
    CheckRow {
        id: "warp_roles",
        side: Side::Compute,
        question: "do warp roles wait for each other?",
        any: &[
            &[below(
                S::RoleBusy,
                0.8,
                Source::Assumed("where the busiest role idles a fifth of the time, no role is the limit"),
            )],
            &[
                below(S::WarpSpecialized, 0.5, FLAG),
                below(S::ComputeBusy, 0.6, NCU_60),
                above(S::TensorKernel, 0.5, FLAG),
            ],
        ],
        one_thing: false,
    },
    CheckRow {
        id: "tail_tiles",
        side: Side::Compute,
        question: "does the last wave of tiles leave SMs empty?",
        any: &[&[below(S::WaveEfficiency, 0.85, TILES), above(S::SmFill, 1.0, WHOLE)]],
        one_thing: true,
    },
    CheckRow {
        id: "small_shape",
        side: Side::Compute,
        question: "are there fewer CTAs than SMs?",
        any: &[&[below(S::SmFill, 1.0, WHOLE)]],
        one_thing: true,
    },
    CheckRow {
        id: "launch_latency",
        side: Side::Neither,
        question: "is the launch itself a large part of the time?",
        any: &[&[above(
            S::LaunchShare,
            0.2,
            Source::Planted(
                "launches take all of the time in launch_overhead, at most 5 % in the nine others",
            ),
        )]],
        one_thing: true,
    },
    CheckRow {
        id: "synchronisation",
        side: Side::Neither,
        question: "do warps or the host wait at synchronisation?",
        any: &[
            &[above(
                S::SyncStall,
                0.3,
                Source::Assumed("a third of all stalls at barriers is past a usual epilogue"),
            )],
            &[above(S::HostSyncs, 0.5, Source::Definition("any host synchronisation empties the queue"))],
        ],
        one_thing: false,
    },
    CheckRow {
        id: "cpu_submission",
        side: Side::Neither,
        question: "does the GPU wait for the host to submit?",
        any: &[
            &[above(
                S::HostGap,
                0.2,
                Source::Planted(
                    "38 % of the time outside the kernels in launch_overhead, at most 9 % in the nine others",
                ),
            )],
            &[above(S::SubmissionShare, 0.1, TENTH)],
        ],
        one_thing: true,
    },
    CheckRow {
        id: "host_device_transfers",
        side: Side::Neither,
        question: "are host-device transfers inside the time?",
        any: &[&[above(S::TransferShare, 0.1, TENTH)]],
        one_thing: true,
    },
    CheckRow {
        id: "communication",
        side: Side::Neither,
        question: "is communication inside the time?",
        any: &[&[above(S::CommShare, 0.1, TENTH)]],
        one_thing: true,
    },
    CheckRow {
        id: "power_or_frequency",
        side: Side::Neither,
        question: "did the clock or the power limit hold it back?",
        any: &[&[below(S::ClockRatio, 0.92, CLOCK)], &[above(S::PowerRatio, 0.97, POWER)]],
        one_thing: false,
    },
    CheckRow {
        id: "warp_divergence",
        side: Side::Neither,
        question: "do threads of a warp go separate ways?",
        any: &[&[below(S::ThreadsPerInst, 24.0, Source::Assumed("a quarter of the lanes idle"))]],
        one_thing: true,
    },
    CheckRow {
        id: "occupancy_limits",
        side: Side::Neither,
        question: "do registers or shared memory keep too few warps resident, with nothing else to hide latency?",
        any: &[
            // Neither alone: few warps matter only where no pipeline hides the latency and the schedulers starve.
            &[
                below(S::Occupancy, 0.25, OCCUPANCY),
                below(S::Stages, 2.0, ONE),
                below(S::IssueActive, 0.6, ISSUE),
            ],
            // What registers and shared memory leave room for; no copy runs by itself, and no matrix instruction
            // that needs few warps.
            &[
                below(S::Residency, 0.25, OCCUPANCY),
                below(S::Occupancy, 0.25, OCCUPANCY),
                below(S::AsyncCopies, 0.5, FLAG),
                below(S::TensorInstructions, 0.5, FLAG),
                below(S::IssueActive, 0.6, ISSUE),
            ],
            &[above(S::Spills, 0.05, LOCAL_SECTORS)],
            &[above(S::SpillBytes, 0.0, Source::Definition("any spill")), below(S::IssueActive, 0.6, ISSUE)],
        ],
        one_thing: false,
    },
];

/// A row by name.
pub(crate) fn row(id: &str) -> Option<&'static CheckRow> {
    CHECKS.iter().find(|c| c.id == id)
}

/// Applies every check.
pub(crate) fn run(signals: &Signals) -> Vec<Check> {
    CHECKS.iter().map(|c| apply(c, signals)).collect()
}

/// Applies one.
pub(crate) fn apply(row: &CheckRow, signals: &Signals) -> Check {
    let groups: Vec<Vec<Option<bool>>> =
        row.any.iter().map(|g| g.iter().map(|c| c.holds(signals)).collect()).collect();
    let fired = groups.iter().position(|g| g.iter().all(|h| *h == Some(true)));
    // A group with one false condition cannot fire, whatever the others are.
    let refuted = |g: &[Option<bool>]| g.contains(&Some(false));
    let open: Vec<usize> = (0..groups.len()).filter(|i| fired != Some(*i) && !refuted(&groups[*i])).collect();
    let cleared = if row.one_thing { open.len() < groups.len() } else { open.is_empty() };
    let status = match fired {
        Some(_) => CheckStatus::Fired,
        None if cleared => CheckStatus::Clear,
        None => CheckStatus::NotEvaluated,
    };
    let read = |group: &[Condition]| -> Vec<String> {
        group.iter().filter_map(|c| signals.figure(c.signal).map(|f| reading(c.signal, f))).collect()
    };
    let finding = match (status, fired) {
        (CheckStatus::Fired, Some(i)) => format!("yes: {}", read(row.any[i]).join("; ")),
        (CheckStatus::Clear, _) => {
            // Only what decided it: the readings that are on the harmless side.
            let mut said: Vec<String> = row
                .any
                .iter()
                .flat_map(|g| g.iter())
                .filter(|c| c.holds(signals) == Some(false))
                .filter_map(|c| signals.figure(c.signal).map(|f| reading(c.signal, f)))
                .collect();
            let mut seen: Vec<String> = Vec::new();
            said.retain(|s| {
                !seen.contains(s) && {
                    seen.push(s.clone());
                    true
                }
            });
            format!("no: {}", said.join("; "))
        }
        _ => "not evaluated: a signal that decides it is not known".to_owned(),
    };
    let mut needed: Vec<String> = Vec::new();
    // What is answered asks for nothing more.
    if status == CheckStatus::NotEvaluated {
        for condition in open.iter().flat_map(|i| row.any[*i]) {
            let Some(text) = signals.ask(condition.signal) else { continue };
            if condition.holds(signals).is_none() && !needed.contains(&text) {
                needed.push(text);
            }
        }
    }
    Check {
        id: row.id.to_owned(),
        side: row.side,
        question: row.question.to_owned(),
        status,
        finding,
        conditions: row.any.iter().map(|g| g.iter().map(|c| c.applied(signals)).collect()).collect(),
        needed,
    }
}

#[cfg(test)]
mod tests;
