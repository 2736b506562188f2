//! The smallest experiment for a candidate: one factor, a number predicted, a number that falsifies, a rule to stop.

use crate::candidates::{CandidateSpec, spec};
use crate::facts::OperatorKind;
use crate::outcome::{CandidateRow, CandidateStanding as Standing, Experiment};
use kbt_evidence::{Figure, Provenance, Unit};

/// A change below this share of the time is taken for noise where no spread is stated.
const NOISE: f64 = 0.02;
/// The smallest saving that is predicted: below it an experiment cannot be told from noise.
const LEAST_EFFECT: f64 = 0.04;
/// The smallest share of the time worth an experiment.
const LEAST_SHARE: f64 = 0.05;
/// Taken for the share of a candidate that has no number yet.
const UNKNOWN_SHARE: f64 = 0.2;

/// The noise of the time, relative.
pub(crate) fn noise(time: &Figure) -> f64 {
    time.spread.as_ref().map_or(NOISE, |s| ((s.high - s.low) / 2.0 / time.value).max(0.005))
}

/// The saving that a candidate predicts, as a share of the time.
pub(crate) fn effect(candidate: &CandidateSpec, share: Option<&Figure>) -> Figure {
    let part = Figure::new(
        "effect",
        candidate.experiment.effect,
        Unit::Ratio,
        Provenance::assumed(format!(
            "the change removes {:.0} % of what the candidate accounts for",
            candidate.experiment.effect * 100.0
        )),
    );
    let (claim, inputs) = match share {
        Some(f) => (f.value.min(1.0), vec![f, &part]),
        None => (UNKNOWN_SHARE, vec![&part]),
    };
    let value = (claim * part.value).clamp(LEAST_EFFECT, 0.95);
    Figure::computed("predicted saving", value, Unit::Ratio, "share x effect of the change", &inputs)
}

/// Experiments for the candidates that are still open, in their order.
pub(crate) fn design(evidence: &[CandidateRow], time: &Figure, kind: OperatorKind) -> Vec<Experiment> {
    evidence
        .iter()
        .filter(|r| matches!(r.standing, Standing::Supported | Standing::Contested | Standing::Open))
        // What accounts for less than this cannot be told from noise, whatever speaks for it.
        .filter(|r| r.share.as_ref().is_none_or(|s| s.value >= LEAST_SHARE))
        .filter_map(|r| Some(one(spec(&r.candidate)?, r, time, kind)))
        .collect()
}

fn one(candidate: &CandidateSpec, row: &CandidateRow, time: &Figure, kind: OperatorKind) -> Experiment {
    let effect = effect(candidate, row.share.as_ref());
    let predicted = Figure::computed(
        "predicted time",
        time.value * (1.0 - effect.value),
        Unit::Microseconds,
        "time x (1 - predicted saving)",
        &[time, &effect],
    );
    let noise = noise(time);
    let falsified = {
        let limit = (1.0 - effect.value / 4.0).min(1.0 - noise);
        Figure::computed(
            "falsified at",
            time.value * limit,
            Unit::Microseconds,
            "less than a quarter of the predicted saving, or within the noise",
            &[time, &effect],
        )
    };
    let basis = if row.share.is_some() {
        String::new()
    } else {
        format!(
            " (no share is known yet: {:.0} % is assumed; measure first: {})",
            UNKNOWN_SHARE * 100.0,
            row.needed.first().map_or("nothing", String::as_str)
        )
    };
    Experiment {
        id: candidate.id.to_owned(),
        candidate: candidate.id.to_owned(),
        factor: candidate.experiment.factor(kind).to_owned(),
        command: candidate.experiment.command.map(str::to_owned),
        prediction: format!(
            "{:.1} us, {:.0} % less than {:.1} us{basis}",
            predicted.value,
            effect.value * 100.0,
            time.value
        ),
        falsified_by: format!("{:.1} us or more", falsified.value),
        stop_rule: format!(
            "one run, interleaved with the baseline, clocks fixed; if falsified, stop: no second change of class {}, back to the contradiction check",
            candidate.class
        ),
        predicted,
        falsified_at: falsified,
    }
}
