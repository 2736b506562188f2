//! A change that a later step of the ladder recommends and has timed: its saving is a row of the matrix, and what is still
//! to be tried starts from the time after it.

use crate::candidates::BottleneckClass;
use crate::outcome::{CandidateRow, CandidateStanding as Standing, TriageOutcome};
use kbt_evidence::{Direction, Figure, FixClass, Provenance, Standing as Ruled, Unit, Verdict};

/// The row of what a cheaper program saved.
pub(crate) const CHEAPER: &str = "cheaper_program";
/// A change timed on a call this far from the triage's, relative, is of another call.
const SAME_CALL: f64 = 0.1;

/// A recommended change with its time before and after.
pub(crate) struct Remeasured<'a> {
    pub(crate) verdict: &'a Verdict,
    before: &'a Figure,
    after: &'a Figure,
}

impl TriageOutcome {
    /// The time that the accountings were held against, in microseconds.
    pub(crate) fn measured_us(&self) -> Option<f64> {
        let held = self.bounds.iter().find_map(|b| Some((b.time.value, b.share.as_ref()?.value)));
        held.filter(|(_, share)| *share > 0.0).map(|(time, share)| time / share)
    }
}

impl<'a> Remeasured<'a> {
    /// The recommendation that leaves the least time, among those timed on a call of `us` microseconds.
    pub(crate) fn among(told: &[&'a Verdict], us: Option<f64>) -> Option<Self> {
        let us = us?;
        told.iter()
            .filter(|v| v.standing == Ruled::Recommended && v.class != FixClass::Correctness)
            .flat_map(|v| v.evidence.iter().map(move |e| (*v, e)))
            .filter(|(_, e)| e.direction == Direction::For)
            .filter_map(|(verdict, e)| {
                let mut times = e.figures.iter().filter(|f| f.unit == Unit::Microseconds);
                let before = times.next()?;
                let after = times.min_by(|a, b| a.value.total_cmp(&b.value))?;
                let same = (before.value / us - 1.0).abs() <= SAME_CALL;
                (same && after.value > 0.0 && after.value < before.value).then_some(Self {
                    verdict,
                    before,
                    after,
                })
            })
            .min_by(|a, b| a.after.value.total_cmp(&b.after.value))
    }

    /// What the change saved, where it is one of instructions: a share that was measured, beside those that are claimed.
    pub(crate) fn row(&self) -> Option<CandidateRow> {
        matches!(self.verdict.class, FixClass::Algebra | FixClass::InstructionChoice).then(|| CandidateRow {
            candidate: CHEAPER.to_owned(),
            class: BottleneckClass::InstructionPipe,
            title: format!("instructions of {} that {} does without", self.before.name, self.after.name),
            fix: format!("use {}", self.after.name),
            standing: Standing::Confirmed,
            share: Some(Figure::computed(
                "time saved",
                1.0 - self.after.value / self.before.value,
                Unit::Ratio,
                "1 less the time after over the time before",
                &[self.before, self.after],
            )),
            supports: Vec::new(),
            against: Vec::new(),
            looked_for: Vec::new(),
            counter_evidence_looked_for: false,
            needed: Vec::new(),
        })
    }

    /// Predictions from the time after the change. Shares of the time before it are taken to hold after it, which a new
    /// triage would tell; an experiment that has nothing left to win goes.
    pub(crate) fn rebase(&self, outcome: &mut TriageOutcome) {
        let Some(us) = outcome.measured_us() else { return };
        let assumed = Figure::new(
            "shares",
            1.0,
            Unit::Ratio,
            Provenance::assumed(format!("shares of the time before {} hold after it", self.after.name)),
        );
        let bounds: Vec<f64> =
            outcome.bounds.iter().filter(|b| b.share.is_some()).map(|b| b.time.value).collect();
        let mut told = Vec::new();
        for e in &mut outcome.experiments {
            let floor = bounds.iter().copied().filter(|b| *b <= e.predicted.value).fold(0.0, f64::max);
            let at = |f: &Figure, least: f64| {
                let inputs = [f, self.after, &assumed];
                let value = (self.after.value * f.value / us).max(least);
                Figure::computed(
                    &f.name,
                    value,
                    f.unit,
                    "the same part of the time after the change",
                    &inputs,
                )
            };
            let (predicted, falsified) = (at(&e.predicted, floor), at(&e.falsified_at, 0.0));
            let prediction = format!(
                "{:.1} us, {:.0} % less than the {:.1} us of {}, which step {} recommends (its shares are those before it: triage it anew first)",
                predicted.value,
                (1.0 - predicted.value / self.after.value) * 100.0,
                self.after.value,
                self.after.name,
                self.verdict.step.index()
            );
            told.push((std::mem::replace(&mut e.prediction, prediction.clone()), prediction));
            e.falsified_by = format!("{:.1} us or more", falsified.value);
            (e.predicted, e.falsified_at) = (predicted, falsified);
        }
        for (old, new) in told {
            for step in &mut outcome.order {
                step.why = step.why.replace(&old, &new);
            }
        }
        outcome.experiments.retain(|e| e.predicted.value < e.falsified_at.value);
    }
}

#[cfg(test)]
mod tests {
    use crate::{Ceilings, FactSheet, part, triage};
    use kbt_evidence::{Evidence, Figure, FixClass, Provenance, Standing, Step, Unit, Verdict};

    #[test]
    fn what_a_timed_change_saved_comes_first_and_the_rest_starts_from_its_time() {
        let text = include_str!("../../../fixtures/facts/attention-without-overlap.yaml");
        let sheet = FactSheet::from_yaml(text, "f.yaml").unwrap();
        let device = sheet.device.as_ref().and_then(|d| d.name.clone()).unwrap();
        let before = triage(&sheet, Some(&Ceilings::published(part(&device).unwrap())), &[]).unwrap();
        let us = before.measured_us().unwrap();
        let timed = |name: &str, value| {
            let p = Provenance::measured("kbt tune", "NVIDIA H200", "2026-11-30");
            Figure::new(name, value, Unit::Microseconds, p)
        };
        let verdict = |base: f64| {
            let times = vec![timed("linear", base), timed("log2", base / 2.0)];
            Verdict::new(FixClass::Algebra, Standing::Recommended, Step::Algebra, "twice as fast")
                .with(Evidence::supports("timed", times))
                .next("use log2")
        };
        let after = before.with_ladder(&[verdict(us)]);
        assert_eq!(after.evidence[0].candidate, super::CHEAPER);
        assert!((after.evidence[0].share.as_ref().unwrap().value - 0.5).abs() < 1e-9);
        assert!(
            after.evidence[1..].iter().all(|r| r.supports.iter().all(|s| !s.text.contains("twice as fast")))
        );
        for e in &after.experiments {
            assert!(e.predicted.value < us / 2.0, "{} {us}", e.prediction);
            assert!(e.prediction.contains("us of log2") && e.predicted.value < e.falsified_at.value);
        }
        assert!(!after.experiments.is_empty());
        // One statement on what comes first.
        let said = after.outputs.as_ref().unwrap().conclusion.clone();
        assert!(!said.contains("First suspect") && said.contains("that log2 does without"), "{said}");
        // Of another call it says nothing about this one's predictions.
        let other = before.with_ladder(&[verdict(us * 3.0)]);
        let told = |e: &[crate::outcome::Experiment]| {
            let mut all: Vec<_> = e.iter().map(|e| (e.id.clone(), e.prediction.clone())).collect();
            all.sort();
            all
        };
        assert_eq!(told(&other.experiments), told(&before.experiments));
    }
}
