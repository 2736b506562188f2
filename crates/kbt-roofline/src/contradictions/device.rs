//! What a sheet says of its device that the ceilings' own device cannot be, and rates that its clock does not allow.

use super::SHORT_CEILING;
use crate::bounds;
use crate::ceilings::Ceilings;
use crate::facts::{DeviceFacts, FactSheet};
use crate::outcome::{Contradiction, Resource};
use crate::published::{part, same_device};
use crate::work;
use kbt_device::Arch;
use kbt_evidence::{Figure, Unit};

/// What contradicts the device.
pub(super) fn of(sheet: &FactSheet, ceilings: &Ceilings) -> Vec<Contradiction> {
    let Some(d) = &sheet.device else { return Vec::new() };
    // Of another device the ceilings say nothing.
    if d.name.as_ref().is_some_and(|n| !same_device(n, &ceilings.device)) {
        return Vec::new();
    }
    [sms(d, sheet, ceilings), target(d, sheet, ceilings), rate(d, sheet, ceilings)]
        .into_iter()
        .flatten()
        .collect()
}

fn sms(d: &DeviceFacts, sheet: &FactSheet, ceilings: &Ceilings) -> Option<Contradiction> {
    let (stated, own) = (d.sm_count?, ceilings.sm_count.as_ref()?.value);
    ((stated - own).abs() > 0.5).then(|| Contradiction {
        what: format!("the sheet states {stated} SMs (device.sm_count), and {} has {own}", ceilings.device),
        figure: sheet.figure("device.sm_count", "SM count", stated, Unit::Count),
        causes: vec![
            "the time is of a part of the device (MIG, green contexts): its ceilings are not the whole device's"
                .to_owned(),
            "the time is of another device: name it in device.name".to_owned(),
        ],
        settle_first: true,
    })
}

fn target(d: &DeviceFacts, sheet: &FactSheet, ceilings: &Ceilings) -> Option<Contradiction> {
    let stated: Arch = d.compile_target.as_ref()?.parse().ok()?;
    let own = ceilings.arch;
    // Machine code runs on its own major version, at its own minor or a later one; with a suffix on its own alone.
    let runs = stated.major() == own.major()
        && stated.sm <= own.sm
        && (stated.suffix.is_none() || stated.sm == own.sm);
    (!runs).then(|| Contradiction {
        what: format!(
            "the code is built for {stated} (device.compile_target), and {} is {own}",
            ceilings.device
        ),
        figure: sheet.figure(
            "device.compile_target",
            "compute capability, times ten",
            f64::from(stated.sm),
            Unit::Count,
        ),
        causes: vec![
            "the time is of another device: name it in device.name".to_owned(),
            format!("the driver compiled PTX of {stated} anew: state the target it compiled to"),
        ],
        settle_first: true,
    })
}

/// Arithmetic faster than the sheet's clock and SMs allow, though not than the ceiling. It is held against the data sheet,
/// whose peak is a rate a clock: a measured ceiling may be of another clock than the profile states.
fn rate(d: &DeviceFacts, sheet: &FactSheet, ceilings: &Ceilings) -> Option<Contradiction> {
    let (ran, part) = (d.sm_clock_mhz?, part(&ceilings.device)?);
    let peak = Ceilings::published(part);
    let accounts = bounds::account(sheet, &work::derive(sheet).ok()?, &peak);
    let share = accounts.share(Resource::Compute).filter(|s| s.value <= 1.0 + SHORT_CEILING)?;
    let sms = d.sm_count.map_or(1.0, |stated| (stated / part.sm_count).min(1.0));
    let allowed = ran / part.sm_clock_mhz * sms;
    (allowed < 1.0 && share.value > allowed * (1.0 + SHORT_CEILING)).then(|| Contradiction {
        what: format!(
            "the arithmetic runs at {:.0} % of the data sheet's peak, and at {ran} MHz (device.sm_clock_mhz) no more than {:.0} % can be reached",
            share.value * 100.0,
            allowed * 100.0
        ),
        figure: Figure::computed(
            "arithmetic over what the clock allows",
            share.value / allowed,
            Unit::Ratio,
            "share of the peak over the clock's part of it",
            &[share, &sheet.figure("device.sm_clock_mhz", "SM clock", ran, Unit::Megahertz)],
        ),
        causes: vec![
            "the clock was read outside the timed launches: read it during them".to_owned(),
            "the time is of another clock, shape or format than stated".to_owned(),
        ],
        settle_first: true,
    })
}
