//! The roofline as data: the roofs that hold the kernel, and the kernel under each, by the bytes of that roof's own level.

use crate::ceilings::RoofKind;
use crate::facts::FactSheet;
use crate::outcome::{Level, PlotPoint, PlotRoof, Resource, RooflinePlot};
use crate::published::same_device;
use crate::triage::Case;
use kbt_evidence::{Figure, Provenance, Unit};

/// Every roof with its name, and the kernel where it was timed. A level on chip has its roof only where the sheet knows
/// what the kernel moves there: under the bytes of device memory its line would mean nothing.
pub(crate) fn of(case: &Case<'_>) -> RooflinePlot {
    let (a, work) = (case.accounts, case.work);
    let mut plot = RooflinePlot {
        device: case.ceilings.device.clone(),
        formats: formats(case.sheet).into_iter().collect(),
        ..RooflinePlot::default()
    };
    let stated = case.sheet.device.as_ref().and_then(|d| d.name.as_deref());
    let other = stated.filter(|n| !same_device(n, &case.ceilings.device));
    // A roof of another device than the rest says so.
    let named = |kind: RoofKind| {
        let name = match kind {
            // Kernels of several mixes stand under several roofs.
            RoofKind::HbmMix => format!("HBM at {:.0} % reads", work.read_share * 100.0),
            _ => kind.as_str().to_owned(),
        };
        match other.filter(|_| case.ceilings.of_sheet(kind)) {
            Some(other) => format!("{name} of {other}"),
            None => name,
        }
    };
    let rate = a.time_us.as_ref().map(|time| {
        let what = "useful FLOP over the measured time";
        Figure::computed(
            what,
            work.flop.value / time.value * 1e6,
            Unit::FlopPerSecond,
            what,
            &[&work.flop, time],
        )
    });
    let mut level = |kind: RoofKind, roof: &Figure, level: Level, bytes: &Figure| {
        plot.roofs.push(PlotRoof {
            name: named(kind),
            bytes_per_s: Some(roof.value),
            flop_per_s: None,
            level,
            provenance: roof.provenance.clone(),
        });
        let Some(rate) = &rate else { return };
        let title = case.sheet.title();
        let name = match level {
            Level::Hbm => title.to_owned(),
            _ => format!("{title}, by its bytes of {}", level.phrase()),
        };
        let place = Figure::computed(
            &name,
            0.0,
            Unit::Ratio,
            "useful FLOP over the bytes, and over the time",
            &[rate, bytes],
        );
        plot.points.push(PlotPoint {
            name,
            flop_per_byte: work.flop.value / bytes.value,
            level,
            flop_per_s: rate.value,
            provenance: place.provenance,
        });
    };
    if let Some((kind, roof)) = &a.hbm_roof {
        level(*kind, roof, Level::Hbm, &work.hbm_bytes);
    }
    let on_chip = [
        (RoofKind::L2Read, Resource::L2, Level::L2),
        (RoofKind::SharedRead, Resource::Shared, Level::Shared),
    ];
    for (kind, resource, at) in on_chip {
        if let (Some(roof), Some(bound)) = (case.ceilings.roof(kind), a.bound(resource)) {
            let how = "the bound's time at its roof";
            let bytes = bound.time.value * 1e-6 * roof.value;
            level(kind, roof, at, &Figure::computed("bytes", bytes, Unit::Bytes, how, &[&bound.time, roof]));
        }
    }
    let mut flat = |name: String, value: f64, provenance: Provenance| {
        let level = Level::Hbm;
        plot.roofs.push(PlotRoof { name, bytes_per_s: None, flop_per_s: Some(value), level, provenance });
    };
    for (name, f) in &a.compute_parts {
        flat(name.clone(), f.value, f.provenance.clone());
    }
    if let (Some(roof), true) = (&a.compute_roof, a.compute_parts.len() > 1) {
        flat(format!("arithmetic at the mix of {}", case.sheet.title()), roof.value, roof.provenance.clone());
    }
    if let (Some(ex2), Some(rate)) = (&work.ex2, case.ceilings.roof(RoofKind::Ex2)) {
        let each = work.flop.value / ex2.value;
        let name = format!("exp2 on the XU pipe, {each:.0} useful FLOP an exp2");
        let f =
            Figure::computed(&name, each * rate.value, Unit::FlopPerSecond, &name, &[&work.flop, ex2, rate]);
        flat(name, f.value, f.provenance);
    }
    plot
}

/// The formats that the sheet states, in a few words.
fn formats(sheet: &FactSheet) -> Option<String> {
    let d = sheet.dtypes.as_ref()?;
    let mut words: Vec<&str> = Vec::new();
    for input in d.inputs.iter().flatten().chain(&d.mma) {
        if !words.contains(&input.as_str()) {
            words.push(input.as_str());
        }
    }
    let sums = d.accumulate.map(|a| format!(" with sums in {a}")).unwrap_or_default();
    (!words.is_empty()).then(|| format!("{}{sums}", words.join(" and ")))
}
