//! The smallest experiment for a candidate: one factor, a number predicted, a number that falsifies, a rule to stop.

use crate::candidates::{BottleneckClass, CandidateSpec, spec};
use crate::outcome::{Bound, CandidateRow, CandidateStanding as Standing, Experiment, Reading, ResultRow};
use crate::predict::{self, LEAST_SAVING, predict};
use crate::triage::Case;
use kbt_evidence::{Figure, Unit};

/// A change below this share of the time is taken for noise where no spread is stated.
const NOISE: f64 = 0.02;

/// Candidates whose experiments change the same factor, whatever their classes: once it was changed, none of them proposes
/// it again.
const SAME_FACTOR: &[&[&str]] = &[
    // Loads in flight: one more pipeline stage.
    &["memory_latency", "no_overlap"],
    // A narrower format in memory.
    &["hbm_bandwidth", "wide_dtype"],
    // The SM clock.
    &["arithmetic_roof", "clocks"],
];

/// Whether two candidates' experiments change the same factor.
pub(crate) fn same_factor(a: &str, b: &str) -> bool {
    a == b || SAME_FACTOR.iter().any(|group| group.contains(&a) && group.contains(&b))
}

/// The noise of the time, relative.
pub(crate) fn noise(time: &Figure) -> f64 {
    time.spread.as_ref().map_or(NOISE, |s| ((s.high - s.low) / 2.0 / time.value).max(0.005))
}

/// Experiments for the candidates that are still open, in their order: each with a number behind it, none whose factor was
/// changed already, or is changed by one before it.
pub(crate) fn design(
    evidence: &[CandidateRow],
    results: &[ResultRow],
    time: &Figure,
    case: &Case<'_>,
) -> Vec<Experiment> {
    let confirmed = results.iter().rev().find(|r| r.reading == Reading::Confirmed);
    let confirmed = confirmed.map(|r| r.experiment.as_str());
    let mut found: Vec<Experiment> = Vec::new();
    for row in evidence {
        let open = matches!(row.standing, Standing::Supported | Standing::Contested | Standing::Open);
        // What accounts for less than this cannot be told from noise, whatever speaks for it. What nothing speaks for
        // and no figure measures is to be measured, not changed.
        let worth = row.matters() && (row.share.is_some() || !row.supports.is_empty());
        let again = results.iter().any(|r| same_factor(&r.experiment, &row.candidate))
            || found.iter().any(|e| same_factor(&e.candidate, &row.candidate));
        if let (true, Some(spec)) = (open && worth && !again, spec(&row.candidate)) {
            found.extend(one(spec, row, time, case, confirmed));
        }
    }
    found
}

/// The time from which on a prediction is wrong; none where the saving cannot be told from noise.
fn falsified(predicted: &Figure, time: &Figure) -> Option<Figure> {
    let (saving, noise) = (1.0 - predicted.value / time.value, noise(time));
    (saving >= LEAST_SAVING && saving > noise).then(|| {
        Figure::computed(
            "falsified at",
            time.value * (1.0 - saving / 4.0).min(1.0 - noise),
            Unit::Microseconds,
            "less than a quarter of the predicted saving, or within the noise",
            &[time, predicted],
        )
    })
}

fn in_words(predicted: &Figure, time: &Figure, notes: &[String]) -> String {
    let basis = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    let less = (1.0 - predicted.value / time.value) * 100.0;
    format!("{:.1} us, {less:.0} % less than {:.1} us{basis}", predicted.value, time.value)
}

/// An experiment with its numbers from what the candidate accounts for by now; none where nothing is left to win.
pub(crate) fn anew(
    experiment: Experiment,
    row: &CandidateRow,
    time: &Figure,
    bounds: &[Bound],
) -> Option<Experiment> {
    let open = matches!(row.standing, Standing::Supported | Standing::Contested | Standing::Open);
    let (true, Some(spec), Some(share)) = (open && row.matters(), spec(&row.candidate), &row.share) else {
        return None;
    };
    let (predicted, notes) = predict::anew(spec, share, time, bounds)?;
    let falsified_at = falsified(&predicted, time)?;
    Some(Experiment {
        prediction: in_words(&predicted, time, &notes),
        falsified_by: format!("{:.1} us or more", falsified_at.value),
        predicted,
        falsified_at,
        ..experiment
    })
}

/// What a figure of the sheet's own time says once a change has made another of it.
fn before_the_change(id: &str) -> String {
    format!("of the time before the change of {id}: triage the changed kernel first")
}

fn one(
    candidate: &CandidateSpec,
    row: &CandidateRow,
    time: &Figure,
    case: &Case<'_>,
    confirmed: Option<&str>,
) -> Option<Experiment> {
    let prediction = predict(candidate, row.share.as_ref(), time, case);
    let falsified = falsified(&prediction.us, time)?;
    let mut notes = prediction.notes;
    if row.share.is_none()
        && let Some(needed) = row.needed.first()
    {
        notes.push(format!("measure first: {needed}"));
    }
    notes.extend(confirmed.map(before_the_change));
    Some(Experiment {
        id: candidate.id.to_owned(),
        candidate: candidate.id.to_owned(),
        command: command(candidate.id, case),
        prediction: in_words(&prediction.us, time, &notes),
        factor: prediction.factor,
        falsified_by: format!("{:.1} us or more", falsified.value),
        stop_rule: format!(
            "one run, interleaved with the baseline, {}; if falsified, stop: no second change of class {}, back to the contradiction check",
            if candidate.class == BottleneckClass::Clocks || candidate.id == "arithmetic_roof" {
                "clock and power logged"
            } else {
                "clocks fixed"
            },
            candidate.class
        ),
        predicted: prediction.us,
        falsified_at: falsified,
    })
}

/// A command that makes the change itself, where the sheet's figures fill it; the kernel's own source is the user's, and
/// its changes are in words.
fn command(id: &str, case: &Case<'_>) -> Option<String> {
    let most = case.ceilings.sm_clock_mhz.as_ref()?.value;
    let mhz = match id {
        _ if predict::power_capped(case.signals) => return None,
        "clocks" => most,
        // Raised by as much as the experiment says, where the device has that much.
        "arithmetic_roof" => {
            let raised = case.sheet.device.as_ref()?.sm_clock_mhz? * 1.05;
            Some(raised).filter(|mhz| *mhz <= most)?
        }
        _ => return None,
    };
    Some(format!("nvidia-smi --lock-gpu-clocks={mhz:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_evidence::Provenance;

    #[test]
    fn a_saving_within_the_spread_of_the_time_is_no_experiment() {
        let us = |value| Figure::new("time", value, Unit::Microseconds, Provenance::given("f.yaml"));
        let spread = |low, high| us(100.0).with_spread(low, high, "p10 to p90");
        // 8 % of a time that varies by 10 %, and of one that varies by 2 %.
        assert_eq!(falsified(&us(92.0), &spread(90.0, 110.0)), None);
        let at = falsified(&us(92.0), &spread(98.0, 102.0)).unwrap();
        assert!((at.value - 98.0).abs() < 1e-9, "{at}");
        // Below the least saving nothing is predicted, however still the time stands.
        assert_eq!(falsified(&us(98.5), &spread(99.9, 100.1)), None);
        assert!(falsified(&us(97.5), &spread(99.9, 100.1)).is_some());
    }
}
