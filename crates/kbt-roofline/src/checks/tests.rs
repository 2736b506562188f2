//! What fires each check, what clears it, and what leaves it open.

use super::*;
use crate::conditions::Fires;
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
            &[
                (S::Occupancy, 0.12),
                (S::Stages, 4.0),
                (S::Residency, 1.0),
                (S::Spills, 0.0),
                (S::SpillBytes, 0.0),
            ],
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

/// A reading on the firing side of a condition, or on the other.
fn reading_of(condition: &Condition, fires: bool) -> (S, f64) {
    let up = (condition.fires == Fires::Above) == fires;
    let step = (condition.threshold.abs() * 0.01).max(0.01);
    (condition.signal, if up { condition.threshold + step } else { condition.threshold - step })
}

#[test]
fn every_alternative_of_a_check_fires_by_itself_and_only_with_all_of_its_conditions() {
    for row in CHECKS {
        for group in row.any {
            let all: Vec<(S, f64)> = group.iter().map(|c| reading_of(c, true)).collect();
            assert_eq!(status(row.id, &all), CheckStatus::Fired, "{}: {all:?}", row.id);
            for (i, condition) in group.iter().enumerate() {
                let mut one_off = all.clone();
                one_off[i] = reading_of(condition, false);
                assert_ne!(status(row.id, &one_off), CheckStatus::Fired, "{}: {one_off:?}", row.id);
                let mut unknown = all.clone();
                unknown.remove(i);
                assert_ne!(status(row.id, &unknown), CheckStatus::Fired, "{}: {unknown:?}", row.id);
            }
        }
    }
}

#[test]
fn residency_counts_only_without_asynchronous_copies_or_matrix_instructions() {
    let few = [(S::Residency, 0.1), (S::Occupancy, 0.1), (S::IssueActive, 0.2)];
    let with = |asynchronous: f64, matrix: f64| {
        let mut all = few.to_vec();
        all.extend([(S::AsyncCopies, asynchronous), (S::TensorInstructions, matrix)]);
        status("occupancy_limits", &all)
    };
    assert_eq!(with(0.0, 0.0), CheckStatus::Fired);
    assert_ne!(with(1.0, 0.0), CheckStatus::Fired, "copies run by themselves");
    assert_ne!(with(0.0, 1.0), CheckStatus::Fired, "matrix instructions need few warps");
}
