//! Signals made of signals.

use super::{Signal, Signals};

/// What follows from the signals that are there.
pub(super) fn combine(s: &mut Signals) {
    if s.get(Signal::ComputeBusy).is_none()
        && let Some(share) = s.figure(Signal::ComputeShare).cloned()
    {
        s.set(Signal::ComputeBusy, share);
    }
    if let (Some(busy), Some(useful)) = (s.get(Signal::SmBusy), s.get(Signal::ComputeShare)) {
        let pipes = [Signal::LsuBusy, Signal::XuBusy, Signal::Ex2Share, Signal::AluBusy, Signal::FmaBusy];
        let known = pipes.iter().filter_map(|pipe| s.get(*pipe)).fold(useful, f64::max);
        s.derive(
            Signal::BusyNotUseful,
            (busy - known).max(0.0),
            "sm__throughput less the busiest of useful arithmetic and the pipes",
            &[
                Signal::SmBusy,
                Signal::ComputeShare,
                Signal::LsuBusy,
                Signal::XuBusy,
                Signal::Ex2Share,
                Signal::AluBusy,
                Signal::FmaBusy,
            ],
        );
    }
    let levels: Vec<Signal> = [Signal::HbmBusy, Signal::L2Busy, Signal::L1Busy]
        .into_iter()
        .filter(|level| s.get(*level).is_some())
        .collect();
    // Device memory alone does not speak for the levels on chip.
    if levels.len() > 1
        && let Some(most) = levels.iter().filter_map(|level| s.get(*level)).reduce(f64::max)
    {
        s.derive(Signal::MemoryBusy, most, "the busiest memory level that was looked at", &levels);
    }
    let busy = [
        Signal::HbmBusy,
        Signal::ComputeBusy,
        Signal::L2Busy,
        Signal::L1Busy,
        Signal::LsuBusy,
        Signal::XuBusy,
        Signal::Ex2Share,
        Signal::AluBusy,
        Signal::FmaBusy,
        Signal::SharedShare,
        Signal::SmBusy,
        Signal::AtomicBusy,
        Signal::AtomicShare,
        // Nothing is busy while a chain waits, and yet that time is explained.
        Signal::ChainShare,
    ];
    let there: Vec<Signal> = busy.into_iter().filter(|b| s.get(*b).is_some()).collect();
    if let Some(most) = there.iter().filter_map(|b| s.get(*b)).reduce(f64::max) {
        s.derive(
            Signal::Gap,
            (1.0 - most).max(0.0),
            "1 less the busiest resource that was looked at",
            &there,
        );
    }
}
