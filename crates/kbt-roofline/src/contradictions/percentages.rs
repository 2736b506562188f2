//! Percentages of the profiler that differ from what counts and the measured time give. The counts decide; one percentage
//! is never end-to-end evidence.

use crate::bounds::Accounts;
use crate::ceilings::Ceilings;
use crate::facts::FactSheet;
use crate::metrics;
use crate::outcome::Contradiction;
use crate::signals::implied::of_the_call;
use crate::signals::{Signal, Signals};
use kbt_evidence::Unit;

/// So many times each other, a percentage and a share are not of the same thing. Between lie the profiler's clocks and
/// cold caches, and a roof below the data sheet's peak.
const DIFFER: f64 = 1.5;
/// Where both are below this part of the time, neither says that the resource matters.
const MATTERS: f64 = 0.3;

pub(super) fn of(
    a: &Accounts,
    sheet: &FactSheet,
    ceilings: &Ceilings,
    signals: &Signals,
) -> Vec<Contradiction> {
    let Some(m) = sheet.profiler.as_ref().and_then(|p| p.metrics.as_ref()) else { return Vec::new() };
    let mut found = Vec::new();
    let mut compare = |name: &str, what: &str, percent: f64, of_call: f64, share: f64| {
        let (low, high) = (of_call.min(share), of_call.max(share));
        if high < MATTERS || high <= low * DIFFER {
            return;
        }
        found.push(Contradiction {
            what: format!(
                "{name} reads {:.0} %, and {what} over the measured time give {:.0} % of the roof; the measured time decides, not one percentage",
                percent * 100.0,
                share * 100.0
            ),
            figure: sheet.figure(&format!("profiler.metrics.{name}"), name, percent * 100.0, Unit::Percent),
            causes: vec![
                "the profiled launch is another than the timed one: compare gpu__time_duration.sum with the time"
                    .to_owned(),
                "the shape, the formats or the counts in the sheet are not those of the launch".to_owned(),
                "the launch does work beyond the useful one (padding, repeated traffic): count it".to_owned(),
            ],
            settle_first: true,
        });
    };
    // Bytes that a percentage alone stands for have a contradiction of their own; those that L2 may have held are none
    // of device memory's.
    if signals.get(Signal::ImpliedTraffic).is_none()
        && !a.held
        && let (Some((name, _)), Some((percent, of_call)), Some(share)) = (
            metrics::first(m, metrics::DRAM_PCT),
            of_the_call(sheet, ceilings, m),
            signals.get(Signal::HbmShare).and(signals.get(Signal::HbmBusy)),
        )
    {
        compare(name, "the bytes", percent, of_call, share);
    }
    let tensor = signals.get(Signal::TensorKernel).is_some_and(|tensor| tensor > 0.5);
    if let (true, Some((name, percent)), Some(share)) =
        (tensor, metrics::first(m, metrics::TENSOR_PCT), signals.get(Signal::ComputeShare))
    {
        compare(name, "the useful operations", percent / 100.0, percent / 100.0, share);
    }
    found
}
