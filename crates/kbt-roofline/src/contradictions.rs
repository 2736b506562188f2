//! Figures that cannot be: a time below a bound, a share of more than a whole. They are reported, never clamped; what is
//! within the reach of a measured ceiling's own kernel, or of counters of different passes, need not be settled first.

mod code;
mod device;
mod percentages;

pub(crate) use code::{ISSUE_OVER_BYTES, against_memory};

use crate::bounds::Accounts;
use crate::ceilings::{Ceilings, RoofKind};
use crate::facts::FactSheet;
use crate::outcome::{Bound, Contradiction, Resource};
use crate::signals::{Signal, Signals};
use kbt_evidence::{Figure, Unit};

/// Below this excess a time and a bound agree, where neither states a wider spread.
const AGREE: f64 = 0.02;
/// A ceiling is what its own kernel reached, which is not the most that the device can do: below this excess the
/// ceiling is short, and the kernel is at it. The planted three-stream kernel is 3 % above on an H200, and clocks move
/// by as much.
const SHORT_CEILING: f64 = 0.05;
/// The same of traffic that the data sheet's rate still explains.
const BELOW_DATA_SHEET: f64 = 0.10;
/// Counters of one ratio come from different passes; up to this part above a whole is their difference.
const PASSES: f64 = 0.02;

/// Bounds that the measured time beats beyond its own spread, and shares of more than a whole.
pub(crate) fn contradictions(
    a: &Accounts,
    sheet: &FactSheet,
    ceilings: &Ceilings,
    signals: &Signals,
) -> Vec<Contradiction> {
    let spread = a.time_us.as_ref().and_then(|t| t.spread.as_ref().map(|s| (s.high - s.low) / 2.0 / t.value));
    let agree = spread.unwrap_or(0.0).max(AGREE);
    let beaten = a.bounds.iter().filter_map(|bound| {
        let share = bound.share.as_ref().filter(|s| s.value > 1.0 + agree)?;
        // Latencies of launches that queue overlap: their sum bounds nothing.
        let bounds = bound.resource != Resource::Launch;
        bounds.then(|| beats(a, ceilings, bound, share))
    });
    beaten
        .chain(more_than_a_whole(sheet))
        .chain(uncounted(a, signals))
        .chain(percentages::of(a, sheet, ceilings, signals))
        .chain(parts_of_the_time(a, sheet, agree))
        .chain(outside_the_time(sheet))
        .chain(device::of(sheet, ceilings))
        .collect()
}

/// A busy percentage of device memory that the useful bytes do not explain, with no bytes counted.
fn uncounted(a: &Accounts, signals: &Signals) -> Option<Contradiction> {
    let (ratio, useful) = (signals.figure(Signal::ImpliedTraffic)?, a.share(Resource::Hbm)?);
    Some(Contradiction {
        what: format!(
            "device memory reads {:.0} % busy, which over this time is {:.0} times the useful bytes ({:.0} % of the time); no bytes were counted",
            signals.get(Signal::HbmBusy)? * 100.0,
            ratio.value,
            useful.value * 100.0
        ),
        figure: ratio.clone(),
        causes: vec![
            "redundant traffic: count it (ncu --metrics dram__bytes.sum)".to_owned(),
            "the profiled launch is another than the timed one: compare gpu__time_duration.sum with the time"
                .to_owned(),
        ],
        settle_first: true,
    })
}

/// Communication with a time of its own that is said not to be inside the call's.
fn outside_the_time(sheet: &FactSheet) -> Option<Contradiction> {
    let timing = sheet.timing.as_ref()?;
    let us =
        timing.communication_us.filter(|us| *us > 0.0 && timing.communication_included == Some(false))?;
    Some(Contradiction {
        what: format!(
            "{us:.1} us of the time are communication (timing.communication_us), and none is inside it (communication_included: false)"
        ),
        figure: sheet.figure("timing.communication_us", "communication", us, Unit::Microseconds),
        causes: vec![
            "communication is inside the time: communication_included is true".to_owned(),
            "it was timed beside the call: leave communication_us out".to_owned(),
        ],
        settle_first: true,
    })
}

/// Parts of the time that are longer than the time.
fn parts_of_the_time(a: &Accounts, sheet: &FactSheet, agree: f64) -> Option<Contradiction> {
    let (time, kernel) = (a.time_us.as_ref()?, sheet.timing.as_ref()?.kernel_us?);
    (kernel > time.value * (1.0 + agree)).then(|| Contradiction {
        what: format!(
            "the kernels run {kernel:.1} us (timing.kernel_us) within a call of {:.1} us",
            time.value
        ),
        figure: sheet.figure("timing.kernel_us", "kernel time", kernel, Unit::Microseconds),
        causes: vec![
            "kernels of the call overlap, so that their sum is no part of it".to_owned(),
            "the profiler's durations are of slower launches".to_owned(),
        ],
        settle_first: true,
    })
}

fn beats(a: &Accounts, ceilings: &Ceilings, bound: &Bound, share: &Figure) -> Contradiction {
    let causes: &[&str] = match bound.resource {
        Resource::Hbm => &[
            "part of the traffic never reached device memory (L2 held it)",
            "the ceiling is too low: another transfer direction, a memory clock above the data sheet's",
            "the useful bytes are overcounted",
        ],
        Resource::HbmTraffic => &[
            "the ceiling is too low for this mix of reads and writes",
            "the profiled launch and the timed one differ (cache state, clocks)",
        ],
        Resource::Compute | Resource::Xu => &[
            "the clock was above the one behind the ceiling",
            "sparsity, a narrower format, or fewer operations than counted",
            "the ceiling's own kernel does not reach the peak",
        ],
        Resource::Communication | Resource::HostTransfer | Resource::Submission => {
            &["a part of the time cannot be longer than it: both are of one call, in microseconds"]
        }
        _ => &["the model behind this bound does not hold here"],
    };
    /// So many times a bound, another unit is likelier than a faster device.
    const UNIT: f64 = 50.0;
    let unit: &[&str] = if share.value > UNIT {
        &["the time is in another unit: timing.median_us is in microseconds (a millisecond is 1000)"]
    } else {
        &[]
    };
    let excess = share.value - 1.0;
    // Above the data sheet no kernel can be; below it, a measured roof can be short.
    let reachable = match (bound.resource, &a.hbm_roof, ceilings.roof(RoofKind::HbmPeak)) {
        (Resource::Hbm | Resource::HbmTraffic, Some((kind, roof)), Some(peak))
            if *kind != RoofKind::HbmPeak =>
        {
            share.value * roof.value <= peak.value && excess <= BELOW_DATA_SHEET
        }
        _ => excess <= SHORT_CEILING,
    };
    Contradiction {
        what: format!(
            "the {} bound is {:.1} us and the measured time {:.1} us: {:.0} % of a ceiling",
            bound.name,
            bound.time.value,
            a.time_us.as_ref().map_or(0.0, |t| t.value),
            share.value * 100.0
        ),
        figure: share.clone(),
        causes: unit.iter().chain(causes).map(|c| (*c).to_owned()).collect(),
        settle_first: !reachable,
    }
}

fn more_than_a_whole(sheet: &FactSheet) -> Vec<Contradiction> {
    let Some(metrics) = sheet.profiler.as_ref().and_then(|p| p.metrics.as_ref()) else { return Vec::new() };
    // The largest instance against the mean instance's peak is no share of a whole.
    let share = |name: &str| {
        name.ends_with(".pct")
            || (name.contains("pct_of_peak") && !name.contains(".max.") && !name.contains(".min."))
    };
    metrics
        .iter()
        .filter(|(name, value)| share(name) && **value > 100.0)
        .map(|(name, value)| Contradiction {
            what: format!("{name} reads {value:.2} %, more than a whole"),
            figure: sheet.figure(&format!("profiler.metrics.{name}"), name, *value, Unit::Percent),
            causes: vec![
                "counters of one ratio were collected in different passes; the pass-to-pass difference shows"
                    .to_owned(),
            ],
            settle_first: *value > 100.0 * (1.0 + PASSES),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{part, triage};

    fn contradicted(peak_share: f64, ceiling: f64) -> Vec<bool> {
        // 128 MiB read and written once; the data sheet of an H200 says 4.8 TB/s.
        let bytes = 2.0 * 4.0 * 33_554_432.0;
        let us = bytes / (4.8e12 * peak_share) * 1e6;
        let text = format!(
            "operator: {{kind: elementwise, flop_per_element: 1}}\nshape: {{elements: 33554432}}\n\
             dtypes: {{inputs: [fp32], output: fp32}}\ndataflow: {{reuse: none}}\n\
             timing: {{median_us: {us}, method: cuda_events, communication_included: false}}\n\
             ceilings: [{{kind: hbm_copy, bytes_per_s: {ceiling}, provenance: {{kind: given, by: a copy}}}}]\n"
        );
        let sheet = FactSheet::from_yaml(&text, "f.yaml").unwrap();
        let outcome = triage(&sheet, Some(&Ceilings::published(part("H200").unwrap())), &[]).unwrap();
        outcome.contradictions.iter().map(|c| c.settle_first).collect()
    }

    #[test]
    fn what_the_data_sheet_still_explains_is_a_short_ceiling_and_what_it_does_not_comes_first() {
        assert_eq!(contradicted(0.90, 4.3e12), Vec::<bool>::new());
        assert_eq!(contradicted(0.95, 4.2e12), [false]);
        assert_eq!(contradicted(0.95, 3.9e12), [true], "17 % above a measured ceiling is no short ceiling");
        assert_eq!(contradicted(1.03, 4.7e12), [true], "nothing beats the data sheet");
    }

    #[test]
    fn only_shares_of_a_whole_can_be_more_than_one() {
        let text = "profiler: {metrics: {a.avg.pct_of_peak_sustained_elapsed: 101.0, b_hit_rate.pct: 140.0, \
                    c.max.pct_of_peak_sustained_active: 460.0, d.sum: 1000.0}}\n";
        let found = more_than_a_whole(&FactSheet::from_yaml(text, "f.yaml").unwrap());
        let said: Vec<(bool, bool)> =
            found.iter().map(|c| (c.what.starts_with("a.avg"), c.settle_first)).collect();
        assert_eq!(said, [(true, false), (false, true)]);
    }
}
