//! Where signals come from: accountings, stated facts, the profiler's metrics, and each other.

use super::implied::WIDEST;
use super::{Signal, Signals};
use crate::bounds::{self, Accounts};
use crate::ceilings::Ceilings;
use crate::facts::{AccessPattern, FactSheet, Implementation, Timing};
use crate::metrics::{self, Metrics};
use crate::outcome::Resource;
use crate::published;
use crate::work::Work;
use kbt_evidence::{Figure, Provenance, Unit};

/// Derives every signal that the facts allow.
pub(crate) fn derive(sheet: &FactSheet, work: &Work, ceilings: &Ceilings, accounts: &Accounts) -> Signals {
    let mut s = Signals::default();
    from_accounts(&mut s, sheet, work, ceilings, accounts);
    from_facts(&mut s, sheet, work, ceilings);
    if let Some(metrics) = sheet.profiler.as_ref().and_then(|p| p.metrics.as_ref()) {
        // Of bytes that L2 may have held, the share is none of device memory's.
        let bytes_known = s.get(Signal::HbmBusy).is_some() && !accounts.held;
        from_metrics(&mut s, sheet, work, ceilings, metrics, bytes_known);
    }
    super::combined::combine(&mut s);
    s
}

fn from_accounts(s: &mut Signals, sheet: &FactSheet, work: &Work, ceilings: &Ceilings, a: &Accounts) {
    for (signal, resource) in [
        (Signal::HbmShare, Resource::Hbm),
        (Signal::ComputeShare, Resource::Compute),
        (Signal::SharedShare, Resource::Shared),
        (Signal::LaunchShare, Resource::Launch),
        (Signal::SubmissionShare, Resource::Submission),
        (Signal::TransferShare, Resource::HostTransfer),
        (Signal::CommShare, Resource::Communication),
        (Signal::ChainShare, Resource::Chain),
        (Signal::AtomicShare, Resource::Atomics),
        (Signal::L2Busy, Resource::L2),
        (Signal::Ex2Share, Resource::Xu),
    ] {
        if let Some(share) = a.share(resource) {
            s.set(signal, share.clone());
        }
    }
    super::implied::scalar(s, work, ceilings, a);
    if work.flop.value <= 0.0 && a.time_us.is_some() {
        s.set(Signal::ComputeShare, Figure::computed("", 0.0, Unit::Ratio, "no operations", &[&work.flop]));
    }
    if let Some(moved) = bounds::moved_bytes(sheet) {
        let ratio = moved.value / work.hbm_bytes.value;
        let figure =
            Figure::computed("", ratio, Unit::Ratio, "counted over useful bytes", &[&moved, &work.hbm_bytes]);
        s.set(Signal::TrafficRatio, figure);
    }
    if let Some(bytes) = sheet.dataflow.as_ref().and_then(|d| d.intermediate_hbm_bytes) {
        let bytes = sheet.figure("dataflow.intermediate_hbm_bytes", "intermediates", bytes, Unit::Bytes);
        let ratio = bytes.value / work.hbm_bytes.value;
        let how = "intermediates over useful bytes";
        let figure = Figure::computed("", ratio, Unit::Ratio, how, &[&bytes, &work.hbm_bytes]);
        s.set(Signal::IntermediateRatio, figure);
    }
    if let Some(fill) = bounds::sm_fill(sheet, ceilings) {
        s.set(Signal::SmFill, fill);
    }
    if let Some(waves) = bounds::wave_efficiency(sheet, ceilings) {
        s.set(Signal::WaveEfficiency, waves);
    }
    // Device memory: what the profiler saw, else counted bytes, else useful bytes and stated intermediates.
    let counted = a.share(Resource::HbmTraffic).cloned();
    let stated = a.share(Resource::Hbm).map(|share| match s.figure(Signal::IntermediateRatio) {
        Some(extra) => Figure::computed(
            "",
            share.value * (1.0 + extra.value),
            Unit::Ratio,
            "useful bytes and stated intermediates at the HBM roof, over the time",
            &[share, extra],
        ),
        None => share.clone(),
    });
    if let Some(busy) = counted.or(stated) {
        s.set(Signal::HbmBusy, busy);
    }
}

fn from_facts(s: &mut Signals, sheet: &FactSheet, work: &Work, ceilings: &Ceilings) {
    let i = sheet.implementation.clone().unwrap_or_default();
    let t = sheet.timing.clone().unwrap_or_default();
    let given = |path: &str, value: f64, unit| sheet.figure(path, "", value, unit);
    let flag = |b: bool| if b { 1.0 } else { 0.0 };
    let plain = [
        (Signal::Stages, "implementation.pipeline_stages", i.pipeline_stages, Unit::Count),
        (Signal::AsyncCopies, "implementation.async_copies", i.async_copies.map(flag), Unit::Count),
        (
            Signal::WarpSpecialized,
            "implementation.warp_specialized",
            i.warp_specialized.map(flag),
            Unit::Count,
        ),
        (
            Signal::TensorInstructions,
            "implementation.tensor_instructions",
            i.tensor_instructions.map(flag),
            Unit::Count,
        ),
        (Signal::HostSyncs, "implementation.host_syncs", i.host_syncs, Unit::Count),
        (Signal::SpillBytes, "implementation.spill_bytes_per_thread", i.spill_bytes_per_thread, Unit::Bytes),
    ];
    for (signal, path, value, unit) in plain {
        if let Some(value) = value {
            s.set(signal, given(path, value, unit));
        }
    }
    if let Some(access) = sheet.dataflow.as_ref().and_then(|d| d.access) {
        s.set(Signal::Strided, given("dataflow.access", flag(access == AccessPattern::Strided), Unit::Count));
        let chain = access == AccessPattern::DependentChain;
        s.set(Signal::DependentChain, given("dataflow.access", flag(chain), Unit::Count));
    }
    if let Some(busiest) = i.roles.as_ref().and_then(|r| r.iter().map(|r| r.busy_percent).reduce(f64::max)) {
        s.set(Signal::RoleBusy, given("implementation.roles", busiest / 100.0, Unit::Ratio));
    }
    // wgmma on 9.0 and tcgen05 on 10.x are asynchronous; mma.sync still runs there, at a part of the rate.
    let own = match ran_on(sheet, ceilings).major() {
        9 => Some("wgmma"),
        10 => Some("tcgen05"),
        _ => None,
    };
    if let Some(used) = &i.mma_instruction {
        // Elsewhere mma.sync is the part's own.
        let legacy = own.is_some_and(|own| !used.to_lowercase().contains(own));
        s.set(Signal::LegacyMma, given("implementation.mma_instruction", flag(legacy), Unit::Count));
    }
    tile_use(s, sheet, &i);
    storage_width(s, sheet);
    in_flight(s, sheet, &i, ceilings);
    host(s, sheet, &t);
    clock(s, sheet, ceilings);
    let tensor = work.parts.iter().any(|p| p.tensor);
    let why = Provenance::given(sheet.provenance("dtypes").by);
    s.set(Signal::TensorKernel, Figure::new("", flag(tensor), Unit::Count, why));
}

/// The architecture of the sheet's device, or of the ceilings.
fn ran_on(sheet: &FactSheet, ceilings: &Ceilings) -> kbt_device::Arch {
    published::part(device_name(sheet).unwrap_or_default()).map_or(ceilings.arch, |p| p.arch)
}

fn device_name(sheet: &FactSheet) -> Option<&str> {
    sheet.device.as_ref().and_then(|d| d.name.as_deref())
}

fn tile_use(s: &mut Signals, sheet: &FactSheet, i: &Implementation) {
    let Some(shape) = &sheet.shape else { return };
    let (m, n) = (shape.m.or(shape.seqlen), shape.n.or(shape.seqlen_kv.or(shape.seqlen)));
    let used = |size: Option<u64>, tile: Option<u64>| -> Option<f64> {
        let (size, tile) = (size?, tile.filter(|t| *t > 0)?);
        Some(size as f64 / (size.div_ceil(tile) as f64 * tile as f64))
    };
    if let (Some(a), Some(b)) = (used(m, i.tile_m), used(n, i.tile_n)) {
        let (shape, tile) = (
            sheet.figure("shape", "shape", 1.0, Unit::Count),
            sheet.figure("implementation.tile_m", "tile", 1.0, Unit::Count),
        );
        let figure =
            Figure::computed("", a * b, Unit::Ratio, "useful over padded rows and columns", &[&shape, &tile]);
        s.set(Signal::TileUse, figure);
    }
}

fn storage_width(s: &mut Signals, sheet: &FactSheet) {
    let Some(d) = &sheet.dtypes else { return };
    let Some(widest) = d.inputs.as_ref().and_then(|i| i.iter().map(|d| d.storage_bits()).reduce(f64::max))
    else {
        return;
    };
    let enough = [d.sufficient, d.mma].into_iter().flatten().map(|d| d.storage_bits()).reduce(f64::min);
    if let Some(enough) = enough {
        s.set(Signal::StorageWidth, sheet.figure("dtypes.inputs", "", widest / enough, Unit::Ratio));
    }
}

/// Little's law: bandwidth times latency must be in flight. The latency is a published one.
fn in_flight(s: &mut Signals, sheet: &FactSheet, i: &Implementation, ceilings: &Ceilings) {
    /// Cycles of a load that misses L2, on a B300 with locked clocks.
    const DRAM_LATENCY_CLK: f64 = 789.0;
    let (Some(bytes), Some((kind, hbm))) = (i.bytes_in_flight_per_sm, ceilings.hbm(1.0)) else { return };
    // Bytes in flight on one device do not fill another's memory.
    let another = device_name(sheet).is_some_and(|n| !published::same_device(n, &ceilings.device));
    if another && !ceilings.of_sheet(kind) {
        return;
    }
    let (Some(sms), Some(clock)) = (&ceilings.sm_count, &ceilings.sm_clock_mhz) else { return };
    let latency = Figure::new(
        "DRAM latency",
        DRAM_LATENCY_CLK,
        Unit::Cycles,
        Provenance::published("a public B300 latency study, locked clocks", "2026-11"),
    );
    let bytes = sheet.figure("implementation.bytes_in_flight_per_sm", "bytes in flight", bytes, Unit::Bytes);
    let needed = hbm.value * (latency.value / (clock.value * 1e6)) / sms.value;
    let how = format!("{} B in flight over {needed:.0} B by Little's law", bytes.value);
    let inputs = [&bytes, &hbm, &latency, sms, clock];
    s.set(Signal::InFlight, Figure::computed("", bytes.value / needed, Unit::Ratio, &how, &inputs));
}

fn host(s: &mut Signals, sheet: &FactSheet, t: &Timing) {
    // Where its size is known, that speaks for it.
    if let (Some(inside), None) = (t.communication_included, t.communication_us) {
        let flag = if inside { 1.0 } else { 0.0 };
        s.set(Signal::CommInside, sheet.figure("timing.communication_included", "", flag, Unit::Count));
    }
    if let (Some(kernel), Some(total)) = (t.kernel_us, bounds::time(sheet)) {
        let kernel = sheet.figure("timing.kernel_us", "kernel time", kernel, Unit::Microseconds);
        let gap = (total.value - kernel.value) / total.value;
        let figure = Figure::computed("", gap, Unit::Ratio, "(call - kernels) / call", &[&total, &kernel]);
        s.set(Signal::HostGap, figure);
    }
}

fn clock(s: &mut Signals, sheet: &FactSheet, ceilings: &Ceilings) {
    let Some(d) = &sheet.device else { return };
    if let (Some(ran), Some(behind)) = (d.sm_clock_mhz, &ceilings.sm_clock_mhz) {
        let ran = sheet.figure("device.sm_clock_mhz", "SM clock", ran, Unit::Megahertz);
        let how = format!("{} MHz over {} MHz", ran.value, behind.value);
        let figure = Figure::computed("", ran.value / behind.value, Unit::Ratio, &how, &[&ran, behind]);
        s.set(Signal::ClockRatio, figure);
    }
    let limit = d
        .power_limit_w
        .map(|w| sheet.figure("device.power_limit_w", "power limit", w, Unit::Watts))
        .or_else(|| ceilings.power_limit_w.clone());
    if let (Some(drawn), Some(limit)) = (d.power_draw_w, limit) {
        let drawn = sheet.figure("device.power_draw_w", "power draw", drawn, Unit::Watts);
        let figure = Figure::computed(
            "",
            drawn.value / limit.value,
            Unit::Ratio,
            "drawn over limit",
            &[&drawn, &limit],
        );
        s.set(Signal::PowerRatio, figure);
    }
}

fn from_metrics(
    s: &mut Signals,
    sheet: &FactSheet,
    work: &Work,
    ceilings: &Ceilings,
    m: &Metrics,
    bytes_known: bool,
) {
    let figure =
        |name: &str, value: f64, unit| sheet.figure(&format!("profiler.metrics.{name}"), "", value, unit);
    // One percentage never stands above what counts and the measured time give: it stands in where they give nothing.
    let arithmetic_known = s.get(Signal::ComputeShare).is_some();
    let mut percent = |signal: Signal, found: Option<(&str, f64)>| {
        if let Some((name, value)) = found {
            s.set(signal, figure(name, value / 100.0, Unit::Ratio));
        }
    };
    percent(Signal::HbmBusy, metrics::first(m, metrics::DRAM_PCT).filter(|_| !bytes_known));
    percent(Signal::SmBusy, metrics::first(m, metrics::SM_PCT));
    percent(Signal::L2Busy, metrics::first(m, metrics::L2_PCT));
    percent(Signal::L1Busy, metrics::first(m, metrics::L1_PCT));
    percent(Signal::Occupancy, metrics::first(m, metrics::OCCUPANCY_PCT));
    percent(Signal::IssueActive, metrics::first(m, metrics::ISSUE_PCT));
    percent(Signal::AtomicBusy, metrics::first(m, metrics::ATOMIC_PCT));
    percent(Signal::L2Hit, metrics::first(m, metrics::L2_HIT_PCT));
    // The tensor pipe says how busy the useful arithmetic is only where that is the tensor cores' work.
    let tensor_work = work.parts.iter().any(|p| p.tensor);
    let tensor = metrics::first(m, metrics::TENSOR_PCT).filter(|_| tensor_work && !arithmetic_known);
    percent(Signal::ComputeBusy, tensor);
    for (signal, pipe) in
        [(Signal::LsuBusy, "lsu"), (Signal::XuBusy, "xu"), (Signal::AluBusy, "alu"), (Signal::FmaBusy, "fma")]
    {
        percent(signal, metrics::pipe_pct(m, pipe).map(|v| (pipe, v)));
    }
    for (signal, value) in [
        (Signal::LongScoreboard, metrics::stall_share(m, &["long_scoreboard"])),
        (Signal::SyncStall, metrics::stall_share(m, &["barrier", "membar", "sleeping"])),
        (Signal::Spills, metrics::local_share(m)),
        (Signal::AtomicTraffic, metrics::atomic_share(m)),
        (Signal::ConflictShare, metrics::conflict_share(m)),
        (Signal::ConflictOfL1, metrics::conflicts_of_l1(m)),
    ] {
        if let Some(value) = value {
            s.set(signal, figure("", value, Unit::Ratio));
        }
    }
    if let Some((name, value)) = metrics::first(m, metrics::THREADS_PER_INST) {
        s.set(Signal::ThreadsPerInst, figure(name, value, Unit::Count));
    }
    // A zero of one counter says nothing where others exist, so only a sum over all of them does.
    if s.get(Signal::TensorInstructions).is_none() {
        let counts: Vec<f64> = metrics::TENSOR_COUNT.iter().filter_map(|n| m.get(*n).copied()).collect();
        if !counts.is_empty() {
            let any = counts.iter().any(|c| *c > 0.0);
            s.set(Signal::TensorInstructions, figure("", if any { 1.0 } else { 0.0 }, Unit::Count));
        }
    }
    let width = sheet.implementation.as_ref().and_then(|i| i.access_bytes_per_thread);
    let ideal = width.map_or(WIDEST, |bytes| bytes.max(1.0));
    let worst = ["ld", "st"].iter().filter_map(|w| metrics::sectors_per_request(m, w)).reduce(f64::max);
    if let Some(excess) = worst.and_then(|worst| super::implied::sector_excess(sheet, worst, width)) {
        s.set(Signal::SectorExcess, excess);
    }
    let block = sheet.implementation.as_ref().and_then(|i| i.block_threads);
    let arch = ran_on(sheet, ceilings);
    let l2_reuse = match (m.get("lts__t_bytes.sum"), metrics::dram_bytes(m)) {
        (Some(l2), Some(hbm)) if *l2 > 0.0 => Some(l2 / hbm.max(1.0)),
        _ => None,
    };
    for (signal, value) in [
        (Signal::SectorWaste, metrics::sector_waste(m, ideal)),
        (Signal::L2Reuse, l2_reuse),
        (
            Signal::Residency,
            block
                .or(m.get("launch__block_size").copied())
                .and_then(|b| metrics::residency(m, b, published::arch_figures(arch)?.max_warps_per_sm)),
        ),
    ] {
        if let Some(value) = value {
            s.set(signal, figure("", value, Unit::Ratio));
        }
    }
    if let Some((name, requests)) = metrics::first(m, metrics::LOAD_REQUESTS).filter(|(_, r)| *r > 0.0)
        && !tensor_work
    {
        // One warp-level FMA is 64 operations.
        let requests = bounds::of_a_call(sheet, figure(name, requests, Unit::Count));
        let value = work.flop.value / 64.0 / requests.value;
        let figure = Figure::computed(
            "",
            value,
            Unit::Ratio,
            "useful FLOP / 64 / load requests",
            &[&work.flop, &requests],
        );
        s.set(Signal::FmaPerLoad, figure);
    }
    super::implied::traffic(s, sheet, ceilings, m);
    if s.get(Signal::ClockRatio).is_none()
        && let (Some(hz), Some(behind)) = (m.get("sm__cycles_elapsed.avg.per_second"), &ceilings.sm_clock_mhz)
    {
        let ran = figure("sm__cycles_elapsed.avg.per_second", hz / 1e6, Unit::Megahertz);
        let figure = Figure::computed(
            "",
            ran.value / behind.value,
            Unit::Ratio,
            "profiled SM clock over the ceilings'",
            &[&ran, behind],
        );
        s.set(Signal::ClockRatio, figure);
    }
}
