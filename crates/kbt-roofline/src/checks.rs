//! The contradiction check: nineteen rows of data, each with the signals it reads, thresholds and their sources.
//! Does the implementation contradict the roofline's call? An unknown signal is never taken for a no.

use crate::conditions::{Condition, FLAG, NCU_60, Source, above, below, reading};
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
const SPILL: Source =
    Source::Assumed("one L1 sector in twenty for local memory costs bandwidth that the loop needs");

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
        any: &[
            &[above(
                S::SectorExcess,
                1.5,
                Source::Assumed("half again the least number of sectors is more than misalignment gives"),
            )],
            &[above(S::Strided, 0.5, FLAG)],
        ],
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
            &[above(S::LongScoreboard, 0.5, HALF_STALLS), below(S::HbmBusy, 0.6, NCU_60)],
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
        any: &[&[above(S::LaunchShare, 0.2, Source::Assumed("a fifth of the time"))]],
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
            &[above(S::HostGap, 0.2, Source::Assumed("a fifth of the time"))],
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
            &[above(S::Spills, 0.05, SPILL)],
            &[above(S::SpillBytes, 0.0, Source::Definition("any spill")), below(S::IssueActive, 0.6, ISSUE)],
        ],
        one_thing: false,
    },
];

/// A row by name.
#[cfg(test)]
pub(crate) fn row(id: &str) -> Option<&'static CheckRow> {
    CHECKS.iter().find(|c| c.id == id)
}

/// Applies every check.
pub(crate) fn run(signals: &Signals) -> Vec<Check> {
    CHECKS.iter().map(|c| apply(c, signals)).collect()
}

fn apply(row: &CheckRow, signals: &Signals) -> Check {
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
        group.iter().filter_map(|c| signals.get(c.signal).map(|v| reading(c.signal, v))).collect()
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
                .filter_map(|c| signals.get(c.signal).map(|v| reading(c.signal, v)))
                .collect();
            said.dedup();
            format!("no: {}", said.join("; "))
        }
        _ => "not evaluated: a signal that decides it is not known".to_owned(),
    };
    let mut needed: Vec<String> = Vec::new();
    if fired.is_none() {
        for condition in open.iter().flat_map(|i| row.any[*i]) {
            let text = format!("{} ({})", condition.signal.meaning(), condition.signal.measure());
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
mod tests {
    use super::*;
    use kbt_evidence::{Figure, Provenance, Unit};

    fn status(id: &str, values: &[(S, f64)]) -> CheckStatus {
        let mut signals = Signals::default();
        for (signal, value) in values {
            signals.set(*signal, Figure::new("", *value, Unit::Ratio, Provenance::given("test")));
        }
        apply(row(id).unwrap(), &signals).status
    }

    #[test]
    fn there_are_nineteen_and_each_has_signals_that_fire_it_and_signals_that_do_not() {
        type Readings = &'static [(S, f64)];
        let cases: &[(&str, Readings, Readings)] = &[
            ("repeated_traffic", &[(S::TrafficRatio, 1.5)], &[(S::TrafficRatio, 1.05)]),
            ("intermediates_in_hbm", &[(S::IntermediateRatio, 2.0)], &[(S::IntermediateRatio, 0.0)]),
            ("uncoalesced", &[(S::SectorExcess, 8.0)], &[(S::SectorExcess, 1.0), (S::Strided, 0.0)]),
            ("wide_dtype", &[(S::StorageWidth, 2.0)], &[(S::StorageWidth, 1.0)]),
            (
                "request_concurrency",
                &[(S::LongScoreboard, 0.7), (S::HbmBusy, 0.3)],
                &[(S::LongScoreboard, 0.7), (S::HbmBusy, 0.9), (S::InFlight, 1.4)],
            ),
            (
                "no_tensor_instructions",
                &[(S::TensorInstructions, 0.0), (S::TensorKernel, 1.0)],
                &[(S::TensorInstructions, 0.0), (S::TensorKernel, 0.0)],
            ),
            ("tile_use", &[(S::TileUse, 0.6)], &[(S::TileUse, 1.0)]),
            (
                "no_overlap",
                &[(S::Stages, 1.0), (S::ComputeBusy, 0.3)],
                &[(S::Stages, 1.0), (S::AsyncCopies, 1.0), (S::ComputeBusy, 0.8)],
            ),
            ("warp_roles", &[(S::RoleBusy, 0.5)], &[(S::RoleBusy, 0.95), (S::WarpSpecialized, 1.0)]),
            (
                "tail_tiles",
                &[(S::WaveEfficiency, 0.52), (S::SmFill, 1.04)],
                &[(S::WaveEfficiency, 0.95), (S::SmFill, 10.0)],
            ),
            ("small_shape", &[(S::SmFill, 0.76)], &[(S::SmFill, 1.0)]),
            ("launch_latency", &[(S::LaunchShare, 0.6)], &[(S::LaunchShare, 0.01)]),
            ("synchronisation", &[(S::SyncStall, 0.6)], &[(S::SyncStall, 0.05), (S::HostSyncs, 0.0)]),
            ("cpu_submission", &[(S::HostGap, 0.7)], &[(S::HostGap, 0.01), (S::SubmissionShare, 0.0)]),
            ("host_device_transfers", &[(S::TransferShare, 0.4)], &[(S::TransferShare, 0.0)]),
            ("communication", &[(S::CommShare, 0.4)], &[(S::CommShare, 0.02)]),
            ("power_or_frequency", &[(S::ClockRatio, 0.8)], &[(S::ClockRatio, 1.0), (S::PowerRatio, 0.6)]),
            ("warp_divergence", &[(S::ThreadsPerInst, 9.0)], &[(S::ThreadsPerInst, 31.5)]),
            (
                "occupancy_limits",
                &[(S::Occupancy, 0.12), (S::Stages, 1.0), (S::IssueActive, 0.2)],
                &[(S::Occupancy, 0.12), (S::Stages, 4.0), (S::Spills, 0.0), (S::SpillBytes, 0.0)],
            ),
        ];
        assert_eq!((CHECKS.len(), cases.len()), (19, 19));
        for (id, fires, clears) in cases {
            assert_eq!(status(id, fires), CheckStatus::Fired, "{id}");
            assert_eq!(status(id, clears), CheckStatus::Clear, "{id}");
            assert_eq!(status(id, &[]), CheckStatus::NotEvaluated, "{id}");
        }
        let sides = |side| CHECKS.iter().filter(|c| c.side == side).count();
        assert_eq!((sides(Side::Memory), sides(Side::Compute), sides(Side::Neither)), (5, 6, 8));
    }

    #[test]
    fn neither_occupancy_alone_nor_pipelining_alone_decides() {
        let few_warps = (S::Occupancy, 0.12);
        // Occupancy alone: no verdict.
        assert_eq!(status("occupancy_limits", &[few_warps]), CheckStatus::NotEvaluated);
        // A pipeline hides the latency of few warps.
        assert_eq!(status("occupancy_limits", &[few_warps, (S::Stages, 4.0)]), CheckStatus::NotEvaluated);
        // Few warps without one still say nothing while the schedulers are fed.
        assert_ne!(
            status("occupancy_limits", &[few_warps, (S::Stages, 1.0), (S::IssueActive, 0.9)]),
            CheckStatus::Fired
        );
        // A deep pipeline alone does not clear it: resources may keep warps out all the same.
        assert_ne!(status("occupancy_limits", &[(S::Stages, 4.0), (S::Spills, 0.3)]), CheckStatus::Clear);
        // One stage alone is no lack of overlap where the arithmetic is busy.
        assert_ne!(status("no_overlap", &[(S::Stages, 1.0)]), CheckStatus::Fired);
    }

    #[test]
    fn an_unknown_signal_is_listed_as_a_measurement_and_never_taken_for_a_no() {
        let check = apply(row("repeated_traffic").unwrap(), &Signals::default());
        assert_eq!(check.status, CheckStatus::NotEvaluated);
        assert!(check.needed[0].contains("dram__bytes.sum"), "{:?}", check.needed);
    }
}
