//! Accountings: how long each resource needs for the work at its ceiling. A bound above the measured time is a
//! contradiction to report; nothing is clamped.

use crate::ceilings::{Ceilings, RoofKind};
use crate::facts::{FactSheet, TimingMethod};
use crate::metrics;
use crate::outcome::{Bound, Resource};
use crate::published::arch_figures;
use crate::work::{Work, bytes, scaled};
use kbt_evidence::{Figure, Provenance, Unit};

/// Bounds, and the effective arithmetic roof of the operator's mix.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Accounts {
    pub(crate) bounds: Vec<Bound>,
    /// Useful FLOP a second at the operator's mix of arithmetic.
    pub(crate) compute_roof: Option<Figure>,
    /// The parts of that mix, each roof named.
    pub(crate) compute_parts: Vec<(String, Figure)>,
    pub(crate) hbm_roof: Option<(RoofKind, Figure)>,
    pub(crate) roofs_used: Vec<RoofKind>,
    pub(crate) time_us: Option<Figure>,
    /// Whether the useful bytes may have come from L2: stated warm, and no more than it holds.
    pub(crate) warm: bool,
    /// How much L2 holds, where nothing says that the caches were cold and it holds all the useful bytes.
    pub(crate) may_fit: Option<f64>,
    /// Whether L2 may have held the useful bytes, so that their share of the time is none of device memory's.
    pub(crate) held: bool,
    pub(crate) assumptions: Vec<String>,
}

impl Accounts {
    pub(crate) fn bound(&self, resource: Resource) -> Option<&Bound> {
        self.bounds.iter().find(|b| b.resource == resource)
    }

    /// A bound's share of the measured time.
    pub(crate) fn share(&self, resource: Resource) -> Option<&Figure> {
        self.bound(resource).and_then(|b| b.share.as_ref())
    }
}

/// The measured time of one call.
pub(crate) fn time(sheet: &FactSheet) -> Option<Figure> {
    let t = sheet.timing.as_ref()?;
    let figure = sheet.figure("timing.median_us", "time of one call", t.median_us?, Unit::Microseconds);
    Some(match (t.low_us, t.high_us) {
        (Some(low), Some(high)) => figure.with_spread(low, high, t.spread.clone().unwrap_or_default()),
        _ => figure,
    })
}

/// What the device's L2 holds; of a device without a size, the largest L2 of its architecture.
fn l2_size(ceilings: &Ceilings) -> Option<f64> {
    let of_arch = || arch_figures(ceilings.arch).map(|a| a.l2_bytes);
    ceilings.l2_bytes.as_ref().map(|l2| l2.value).or_else(of_arch)
}

fn stated_warm(sheet: &FactSheet) -> bool {
    let cache = sheet.timing.as_ref().and_then(|t| t.cache.as_deref());
    cache.is_some_and(|c| c.trim().eq_ignore_ascii_case("warm"))
}

/// L2's size, where the useful bytes fit in it and neither the cache's state nor device memory's traffic is known.
fn may_fit(sheet: &FactSheet, work: &Work, ceilings: &Ceilings) -> Option<f64> {
    let metrics = sheet.profiler.as_ref().and_then(|p| p.metrics.as_ref());
    let seen = metrics.is_some_and(|m| metrics::first(m, metrics::DRAM_PCT).is_some());
    let stated = sheet.timing.as_ref().is_some_and(|t| t.cache.is_some());
    let l2 = l2_size(ceilings)?;
    (work.hbm_bytes.value <= l2 && !seen && !stated && moved_bytes(sheet).is_none()).then_some(l2)
}

/// All accountings that the facts allow.
pub(crate) fn account(sheet: &FactSheet, work: &Work, ceilings: &Ceilings) -> Accounts {
    let mut a = Accounts {
        bounds: Vec::new(),
        compute_roof: None,
        compute_parts: Vec::new(),
        hbm_roof: ceilings.hbm(work.read_share),
        roofs_used: Vec::new(),
        time_us: time(sheet),
        held: l2_size(ceilings).is_some_and(|l2| work.hbm_bytes.value <= l2)
            && sheet.timing.as_ref().is_none_or(|t| t.cache.as_deref() != Some("cold"))
            && moved_bytes(sheet).is_none(),
        warm: stated_warm(sheet)
            && l2_size(ceilings).is_none_or(|l2| work.hbm_bytes.value <= l2)
            && moved_bytes(sheet).is_none(),
        may_fit: may_fit(sheet, work, ceilings),
        assumptions: Vec::new(),
    };
    memory(&mut a, sheet, work, ceilings);
    arithmetic(&mut a, work, ceilings);
    terms(&mut a, sheet, ceilings);
    a
}

fn push(a: &mut Accounts, resource: Resource, name: &str, how: String, work: &Figure, roof: &Figure) {
    let us = work.value / roof.value * 1e6;
    let time = Figure::computed(name, us, Unit::Microseconds, &how, &[work, roof]);
    push_time(a, resource, name, how, time);
}

fn push_time(a: &mut Accounts, resource: Resource, name: &str, how: String, time: Figure) {
    let share = a.time_us.as_ref().map(|measured| {
        let what = format!("{name} bound over the measured time");
        Figure::computed(&what, time.value / measured.value, Unit::Ratio, &what, &[&time, measured])
    });
    a.bounds.push(Bound { resource, name: name.to_owned(), how, time, share });
}

fn memory(a: &mut Accounts, sheet: &FactSheet, work: &Work, ceilings: &Ceilings) {
    if let Some((kind, roof)) = a.hbm_roof.clone() {
        a.roofs_used.push(kind);
        let rate = per_second(&roof);
        let how = format!("{} useful at {rate} ({})", bytes(work.hbm_bytes.value), kind.as_str());
        push(a, Resource::Hbm, "HBM", how, &work.hbm_bytes, &roof);
        if a.warm {
            // What L2 holds, device memory need not move: the bound is of a cold call.
            if let Some(bound) = a.bounds.last_mut() {
                bound.share = None;
                bound.name = "HBM, were the caches cold".to_owned();
            }
            a.assumptions.push(format!(
                "the caches are warm, as stated, and {} may lie in L2: device memory's roof bounds no such call",
                bytes(work.hbm_bytes.value)
            ));
        }
        if let Some(l2) =
            stated_warm(sheet).then(|| l2_size(ceilings)).flatten().filter(|l2| *l2 < work.hbm_bytes.value)
        {
            a.assumptions.push(format!(
                "the caches are stated to be warm, and L2 ({}) does not hold {}: device memory moves them at every call",
                bytes(l2),
                bytes(work.hbm_bytes.value)
            ));
        }
        if let Some(l2) = a.may_fit {
            a.assumptions.push(format!("cold caches: {}", fits(work, l2)));
        }
        if let Some(moved) = moved_bytes(sheet) {
            let how = format!("{} moved, as counted, at {rate} ({})", bytes(moved.value), kind.as_str());
            push(a, Resource::HbmTraffic, "HBM traffic as counted", how, &moved, &roof);
        }
    }
    let dataflow = sheet.dataflow.as_ref();
    let counted_l2 =
        sheet.profiler.as_ref().and_then(|p| p.metrics.as_ref()?.get("lts__t_bytes.sum").copied());
    let l2 = match dataflow.and_then(|d| d.l2_bytes) {
        Some(b) => Some(sheet.figure("dataflow.l2_bytes", "L2 bytes", b, Unit::Bytes)),
        None => {
            let one = |b| sheet.figure("profiler.metrics.lts__t_bytes.sum", "L2 bytes", b, Unit::Bytes);
            counted_l2.map(|b| of_a_call(sheet, one(b)))
        }
    };
    if let (Some(moved), Some(roof)) = (l2, ceilings.roof(RoofKind::L2Read).cloned()) {
        let how = format!("{} at {}", bytes(moved.value), per_second(&roof));
        push(a, Resource::L2, "L2", how, &moved, &roof);
    }
    if let (Some(b), Some(roof)) =
        (dataflow.and_then(|d| d.shared_bytes), ceilings.roof(RoofKind::SharedRead).cloned())
    {
        let moved = sheet.figure("dataflow.shared_bytes", "shared-memory bytes", b, Unit::Bytes);
        let how = format!("{} at {}", bytes(b), per_second(&roof));
        push(a, Resource::Shared, "shared memory", how, &moved, &roof);
    }
}

/// Device-memory traffic of a call, as the profiler counted it.
pub(crate) fn moved_bytes(sheet: &FactSheet) -> Option<Figure> {
    let counted = metrics::dram_bytes(sheet.profiler.as_ref()?.metrics.as_ref()?)?;
    let one = sheet.figure("profiler.metrics.dram__bytes.sum", "HBM bytes counted", counted, Unit::Bytes);
    Some(of_a_call(sheet, one))
}

/// A counter of one launch, times the kernels of a call where these are like the one profiled: together they must fit
/// into the call's time. Of a call of unlike kernels only the profiled one is known.
pub(crate) fn of_a_call(sheet: &FactSheet, one: Figure) -> Figure {
    /// Profiled launches are this much slower at most.
    const SLOWER: f64 = 1.1;
    let timing = sheet.timing.clone().unwrap_or_default();
    let duration =
        sheet.profiler.as_ref().and_then(|p| p.metrics.as_ref()?.get("gpu__time_duration.sum").copied());
    match (timing.kernels, duration, timing.median_us) {
        (Some(kernels), Some(ns), Some(us)) if kernels > 1.0 && kernels * ns / 1e3 <= us * SLOWER => {
            let count = sheet.figure("timing.kernels", "kernels a call", kernels, Unit::Count);
            let how = format!("{kernels} kernels a call, each as the one profiled");
            Figure::computed(&one.name, one.value * kernels, one.unit, &how, &[&one, &count])
        }
        _ => one,
    }
}

/// That L2 may hold what a repeated call reads and writes.
pub(crate) fn fits(work: &Work, l2: f64) -> String {
    format!(
        "{} fit in L2 (up to {}), and `timing.cache` is not stated",
        bytes(work.hbm_bytes.value),
        bytes(l2)
    )
}

fn arithmetic(a: &mut Accounts, work: &Work, ceilings: &Ceilings) {
    let mut seconds = 0.0;
    let mut known = true;
    let mut roofs: Vec<Figure> = Vec::new();
    for part in &work.parts {
        let Some((kind, roof, note)) = ceilings.math(part.math, part.tensor) else {
            known = false;
            continue;
        };
        seconds += part.flop / roof.value;
        a.assumptions.extend(note);
        a.roofs_used.push(kind);
        a.compute_parts.push((format!("{}, {}", part.what, kind.as_str()), roof.clone()));
        roofs.push(roof);
    }
    if known && seconds > 0.0 && work.flop.value > 0.0 {
        let how = match a.compute_parts.as_slice() {
            [(name, _)] => name.clone(),
            parts => {
                let names: Vec<&str> = parts.iter().map(|(n, _)| n.as_str()).collect();
                format!("harmonic mean over the operations of {}", names.join(" and "))
            }
        };
        let inputs: Vec<&Figure> = roofs.iter().collect();
        let roof = Figure::computed(
            "arithmetic roof",
            work.flop.value / seconds,
            Unit::FlopPerSecond,
            &how,
            &inputs,
        );
        let line = format!("{} at {} ({how})", crate::work::flop_text(work.flop.value), per_second(&roof));
        push(a, Resource::Compute, "arithmetic", line, &work.flop, &roof);
        a.compute_roof = Some(roof);
    } else if known {
        // No operations at all: the roof still places the ridge.
        a.compute_roof = roofs.first().cloned();
    }
    if let (Some(count), Some(roof)) = (&work.ex2, ceilings.roof(RoofKind::Ex2).cloned()) {
        let how = format!("{:.3e} exp2 at {:.3e} a second", count.value, roof.value);
        push(a, Resource::Xu, "exp2 on the XU pipe", how, count, &roof);
    }
}

/// Terms that are no throughput: launch, waves, communication, transfers, chains.
fn terms(a: &mut Accounts, sheet: &FactSheet, ceilings: &Ceilings) {
    let timing = sheet.timing.clone().unwrap_or_default();
    // That latency is of a launch by the host between two events: a graph's kernels start without it.
    let replayed = timing.method == Some(TimingMethod::CudaGraph);
    if let Some(latency) = ceilings.roof(RoofKind::LaunchLatency).cloned().filter(|_| !replayed) {
        let kernels = timing.kernels.unwrap_or(1.0);
        let count = if timing.kernels.is_some() {
            sheet.figure("timing.kernels", "kernels a call", kernels, Unit::Count)
        } else {
            let why = Provenance::assumed("one kernel a call, as `timing.kernels` is not stated");
            Figure::new("kernels a call", kernels, Unit::Count, why)
        };
        let overlap = if kernels > 1.0 { ", one after another; launches that queue overlap" } else { "" };
        let how = format!("{kernels} x the launch latency of {:.2} us{overlap}", latency.value * 1e6);
        let us = kernels * latency.value * 1e6;
        let time = Figure::computed("launch", us, Unit::Microseconds, &how, &[&count, &latency]);
        push_time(a, Resource::Launch, "launch", how, time);
    }
    if let (Some(fill), Some(compute)) = (sm_fill(sheet, ceilings), a.bound(Resource::Compute).cloned()) {
        let efficiency = wave_efficiency(sheet, ceilings).unwrap_or_else(|| fill.clone());
        if efficiency.value < 1.0 {
            let why = Provenance::modelled(
                "arithmetic spread over the SMs that hold a CTA, every CTA alike; error not known",
            );
            let model = Figure::new("wave model", 1.0, Unit::Ratio, why);
            let us = compute.time.value / efficiency.value;
            let how = format!(
                "{:.1} us of arithmetic on the {:.0} % of SM-waves that hold a CTA",
                compute.time.value,
                efficiency.value * 100.0
            );
            let inputs = [&compute.time, &efficiency, &model];
            let time = Figure::computed("wave quantisation", us, Unit::Microseconds, &how, &inputs);
            push_time(a, Resource::Waves, "arithmetic with these waves", how, time);
        }
    }
    let direct = [
        (Resource::Communication, "communication", "timing.communication_us", timing.communication_us),
        (Resource::HostTransfer, "host-device transfers", "timing.host_transfer_us", timing.host_transfer_us),
        (Resource::Submission, "submission by the host", "timing.submission_us", timing.submission_us),
    ];
    for (resource, name, path, value) in direct {
        if let Some(us) = value {
            let time = sheet.figure(path, name, us, Unit::Microseconds);
            push_time(a, resource, name, "as stated".to_owned(), time);
        }
    }
    if let Some(d) = &sheet.dataflow
        && let (Some(length), Some(ns)) = (d.chain_length, d.chain_latency_ns)
    {
        let time =
            sheet.figure("dataflow.chain_length", "dependency chain", length * ns / 1e3, Unit::Microseconds);
        let how = format!("{length} dependent loads x {ns} ns");
        push_time(a, Resource::Chain, "dependency chain", how, time);
    }
    atomics(a, sheet, ceilings);
}

/// Updates of one address follow each other in its slice of L2, at most one a clock.
fn atomics(a: &mut Accounts, sheet: &FactSheet, ceilings: &Ceilings) {
    let stated = sheet.dataflow.as_ref().and_then(|d| d.atomics_of_one_address);
    let (Some(updates), Some(clock)) = (stated, &ceilings.sm_clock_mhz) else { return };
    let updates = sheet.figure("dataflow.atomics_of_one_address", "updates", updates, Unit::Count);
    let why = "an update a clock of one address at most; 32-bit integers reach 0.7 on an H200, floats less";
    let model = Figure::new("atomic model", 1.0, Unit::Ratio, Provenance::modelled(why));
    let how = format!("{:.3e} updates of one address, one a clock of {:.0} MHz", updates.value, clock.value);
    let us = updates.value / clock.value;
    let name = "atomic updates of one address";
    let time = Figure::computed(name, us, Unit::Microseconds, &how, &[&updates, clock, &model]);
    push_time(a, Resource::Atomics, name, how, time);
}

fn grid(sheet: &FactSheet) -> Option<Figure> {
    let i = sheet.implementation.as_ref();
    let count = |path: &str, value: f64| sheet.figure(path, "CTAs", value, Unit::Count);
    if let Some(tiles) = i.and_then(|i| i.tiles) {
        return Some(count("implementation.tiles", tiles));
    }
    if let Some(grid) = i.and_then(|i| i.grid_ctas) {
        return Some(count("implementation.grid_ctas", grid));
    }
    let metrics = sheet.profiler.as_ref()?.metrics.as_ref()?;
    metrics.get("launch__grid_size").map(|g| count("profiler.metrics.launch__grid_size", *g))
}

fn sm_count(sheet: &FactSheet, ceilings: &Ceilings) -> Option<Figure> {
    let stated = sheet.device.as_ref().and_then(|d| d.sm_count);
    stated
        .map(|n| sheet.figure("device.sm_count", "SM count", n, Unit::Count))
        .or_else(|| ceilings.sm_count.clone())
}

/// CTAs (or tiles) over SMs: below 1, SMs stay empty.
pub(crate) fn sm_fill(sheet: &FactSheet, ceilings: &Ceilings) -> Option<Figure> {
    let (grid, sms) = (grid(sheet)?, sm_count(sheet, ceilings)?);
    Some(Figure::computed(
        "CTAs over SMs",
        grid.value / sms.value,
        Unit::Ratio,
        &format!("{} CTAs over {} SMs", grid.value, sms.value),
        &[&grid, &sms],
    ))
}

/// Work over capacity of the waves that the grid needs; a persistent kernel's waves are those of its tiles.
pub(crate) fn wave_efficiency(sheet: &FactSheet, ceilings: &Ceilings) -> Option<Figure> {
    let (grid, sms) = (grid(sheet)?, sm_count(sheet, ceilings)?);
    let i = sheet.implementation.as_ref();
    let metrics = sheet.profiler.as_ref().and_then(|p| p.metrics.as_ref());
    let persistent = i.and_then(|i| i.persistent).unwrap_or(false);
    if persistent && i.and_then(|i| i.tiles).is_none() {
        return None;
    }
    let resident = if persistent {
        Some(1.0)
    } else {
        i.and_then(|i| i.ctas_per_sm).or_else(|| metrics.and_then(metrics::ctas_per_sm))
    };
    // Without the residency, a grid of at most one CTA an SM is one wave; a larger one is not known.
    let resident = resident.or((grid.value <= sms.value).then_some(1.0))?;
    let waves = grid.value / (sms.value * resident);
    let per_sm = grid.value / sms.value;
    // All resident at once: the fullest SM decides. More than one wave: the last one decides.
    let (value, how) = if waves <= 1.0 {
        (per_sm / per_sm.ceil(), format!("{per_sm:.2} CTAs an SM, {} on the fullest", per_sm.ceil()))
    } else {
        let capacity = sms.value * resident;
        (waves / waves.ceil(), format!("{waves:.2} waves of {capacity} CTAs take {}", waves.ceil()))
    };
    Some(Figure::computed("wave efficiency", value, Unit::Ratio, &how, &[&grid, &sms]))
}

/// A rate as people read it.
pub(crate) fn per_second(f: &Figure) -> String {
    let units = match f.unit {
        Unit::BytesPerSecond => [(1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s")],
        _ => [(1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s")],
    };
    scaled(f.value, &units, if f.unit == Unit::BytesPerSecond { "B/s" } else { "FLOP/s" })
}
