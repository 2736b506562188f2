//! What follows where a fact is lacking: bytes behind a percentage, products on another pipe, sectors of accesses of
//! unknown width.

use super::{Signal, Signals};
use crate::bounds::{self, Accounts};
use crate::ceilings::{Ceilings, RoofKind};
use crate::facts::FactSheet;
use crate::metrics::{self, Metrics};
use crate::outcome::Resource;
use crate::work::Work;
use kbt_evidence::{Figure, Unit};

/// A percentage that stands for more than this many times the useful bytes wants its bytes counted.
const IMPLIED: f64 = 2.0;
/// Below this part of the time such bytes decide nothing: a product reads its operands several times, behind its
/// arithmetic.
const DECIDES: f64 = 0.3;

/// The widest access of a thread, in bytes.
pub(super) const WIDEST: f64 = 16.0;
/// How a figure begins that the widest access was assumed for, and one that the narrowest was.
pub(crate) const AT_LEAST: &str = "at least";
pub(crate) const AT_MOST: &str = "at most";
/// So many times the sectors are too many (the threshold of the check).
const TOO_MANY: f64 = 1.5;

/// Sectors a request over the least: 32 threads of N bytes fill N sectors of 32 bytes. Without N, too many are only those
/// beyond the widest access's, and none those within one element a thread; between the two nothing is known.
pub(super) fn sector_excess(sheet: &FactSheet, worst: f64, width: Option<f64>) -> Option<Figure> {
    let sectors = sheet.figure("profiler.metrics", "sectors a request", worst, Unit::Count);
    let over = |ideal: f64, how: &str| Figure::computed("", worst / ideal, Unit::Ratio, how, &[&sectors]);
    if let Some(width) = width {
        return Some(over(width.max(1.0), "sectors a request over the bytes a thread accesses"));
    }
    let formats = sheet.dtypes.as_ref().map(|d| d.inputs.iter().flatten().chain(&d.output));
    let narrowest = formats.and_then(|f| f.map(|d| d.storage_bits() / 8.0).reduce(f64::min));
    if worst / WIDEST > TOO_MANY {
        return Some(over(
            WIDEST,
            &format!("{AT_LEAST} this, as no access is wider than {WIDEST} bytes a thread"),
        ));
    }
    let element = narrowest.filter(|bytes| *bytes >= 1.0 && worst / bytes <= TOO_MANY)?;
    Some(over(element, &format!("{AT_MOST} this, with one element of {element} bytes a thread")))
}

/// Bytes that a percentage of device memory stands for where none were counted, over the useful ones: at this many times
/// them, and busy enough to matter, the percentage alone says nothing of the timed call.
pub(super) fn traffic(s: &mut Signals, sheet: &FactSheet, ceilings: &Ceilings, m: &Metrics) {
    if metrics::dram_bytes(m).is_some() {
        return;
    }
    let Some((percent, share)) = of_the_call(sheet, ceilings, m) else { return };
    let Some(useful) = s.get(Signal::HbmShare) else { return };
    let ratio = share / useful;
    let busy = sheet.figure("profiler.metrics", "device memory busy", percent, Unit::Ratio);
    let inputs: Vec<&Figure> = std::iter::once(&busy).chain(s.figure(Signal::HbmShare)).collect();
    let how = "bytes that the busy percentage stands for over the useful ones; none were counted";
    let figure = Figure::computed("", ratio, Unit::Ratio, how, &inputs);
    if ratio > IMPLIED && percent >= DECIDES {
        s.set(Signal::ImpliedTraffic, figure);
        s.set(Signal::HbmBusy, busy);
    }
}

/// The profiler's percentage of device memory as a ratio, and the share of the timed call at the roof used that it stands
/// for: a percentage is of the data sheet's rate, and of the profiled launch's own time.
pub(crate) fn of_the_call(sheet: &FactSheet, ceilings: &Ceilings, m: &Metrics) -> Option<(f64, f64)> {
    let ((_, percent), time) = (metrics::first(m, metrics::DRAM_PCT)?, bounds::time(sheet)?);
    let ran = m.get("gpu__time_duration.sum").map_or(time.value, |ns| ns / 1e3);
    let peak = match (ceilings.roof(RoofKind::HbmPeak), ceilings.hbm(1.0)) {
        (Some(peak), Some((_, roof))) => peak.value / roof.value,
        _ => 1.0,
    };
    Some((percent / 100.0, percent / 100.0 * peak * ran / time.value))
}

/// What the FMA pipe would need for products that have a tensor core, where the time may be held against these roofs.
pub(super) fn scalar(s: &mut Signals, work: &Work, ceilings: &Ceilings, a: &Accounts) {
    let held = a.share(Resource::Compute).is_some();
    let (Some(roof), Some(time), true) = (ceilings.roof(RoofKind::Fp32), &a.time_us, held) else { return };
    let share = work.flop.value / roof.value / time.value * 1e6;
    let how = "useful FLOP at the FP32 roof, over the time";
    s.set(Signal::ScalarShare, Figure::computed("", share, Unit::Ratio, how, &[&work.flop, roof, time]));
}
