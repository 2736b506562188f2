//! The algebra step's verdict: predicted from the search, decided by timed variants where there are any.

use super::{AlgebraOutcome, MeasuredVariant, RewriteOutcome};
use kbt_evidence::{Evidence, Figure, FixClass, Provenance, Standing, Step, Unit, Verdict};
use std::fmt::Write;

/// A gain that pays: predicted, on the busiest pipe.
const PREDICTED_GAIN: f64 = 0.02;
/// A gain that pays: measured, beyond the spread of both.
const MEASURED_GAIN: f64 = 1.01;

impl AlgebraOutcome {
    /// The fastest timed variant that is not the baseline, and the baseline.
    fn fastest(&self) -> Option<(&MeasuredVariant, &MeasuredVariant)> {
        let (baseline, rest) = self.measured.split_first()?;
        let best = rest.iter().min_by(|a, b| a.us.total_cmp(&b.us))?;
        Some((baseline, best))
    }

    /// One line for a terminal.
    #[must_use]
    pub fn headline(&self) -> String {
        if let Some(lift) = &self.lift {
            return lift.headline();
        }
        let Some(rewrite) = &self.rewrite else {
            return format!("algebra: refused: {}", self.refused.as_deref().unwrap_or("no search"));
        };
        let base = &rewrite.baseline;
        let mut line = match rewrite.candidates.first() {
            None => format!(
                "algebra: {} cannot be made cheaper ({:.4} clk/element on {})",
                rewrite.name, base.cycles_per_element, base.busiest_pipe
            ),
            Some(best) => format!(
                "algebra: {} {:.4} -> {:.4} clk/element ({} -> {}), {:.1} -> {:.1} issue slots",
                rewrite.name,
                base.cycles_per_element,
                best.cycles_per_element,
                base.busiest_pipe,
                best.busiest_pipe,
                base.issue_slots,
                best.issue_slots
            ),
        };
        let _ = match self.fastest() {
            Some((_, best)) => write!(line, "; measured {}: {:.3}x", best.name, best.speed_ratio),
            None => write!(line, " [{}]", base.provenance.kind),
        };
        line
    }

    /// What the step says of eliminating instructions by algebra.
    #[must_use]
    pub fn verdicts(&self) -> Vec<Verdict> {
        if let Some(lift) = &self.lift {
            return vec![lift.verdict()];
        }
        let verdict =
            |standing, reason: String| Verdict::new(FixClass::Algebra, standing, Step::Algebra, reason);
        let Some(rewrite) = &self.rewrite else {
            let reason = self.refused.clone().unwrap_or_else(|| "no search was made".to_owned());
            return vec![verdict(Standing::Refused, reason.clone()).next(reason)];
        };
        let mut verdicts = vec![match self.fastest() {
            Some((baseline, best)) => self.measured_verdict(baseline, best, rewrite),
            None => predicted_verdict(rewrite),
        }];
        if let Some(budget) = self.budget.as_ref().filter(|b| !b.fits) {
            let slack =
                Figure::new("slack of the offset", budget.slack_log2, Unit::Count, budget.provenance.clone());
            verdicts.push(
                Verdict::new(
                    FixClass::Correctness,
                    Standing::Recommended,
                    Step::Algebra,
                    "P exceeds what its formats hold, so it saturates while the row sum counts it whole",
                )
                .with(Evidence::supports(
                    "offset plus rescale threshold exceed log2 of the greatest value",
                    vec![slack],
                )),
            );
        }
        verdicts
    }

    fn measured_verdict(
        &self,
        baseline: &MeasuredVariant,
        best: &MeasuredVariant,
        rewrite: &RewriteOutcome,
    ) -> Verdict {
        let figure = |v: &MeasuredVariant| {
            Figure::new(v.name.clone(), v.us, Unit::Microseconds, v.provenance.clone()).with_spread(
                v.low_us,
                v.high_us,
                v.spread.clone(),
            )
        };
        let (slow, fast) = (figure(baseline), figure(best));
        let ratio =
            Figure::computed("speed ratio", best.speed_ratio, Unit::Ratio, "time over time", &[&slow, &fast]);
        let pays = best.speed_ratio >= MEASURED_GAIN && best.high_us < baseline.low_us;
        let (standing, reason) = if pays {
            (
                Standing::Recommended,
                format!("{} is {:.3} times as fast as {}", best.name, best.speed_ratio, baseline.name),
            )
        } else {
            (
                Standing::RuledOut,
                format!(
                    "no cheaper form of the quantisation pays: the best, {}, measures {:.3} times the speed of {}",
                    best.name, best.speed_ratio, baseline.name
                ),
            )
        };
        let mut verdict = Verdict::new(FixClass::Algebra, standing, Step::Algebra, reason)
            .with(Evidence::supports("timed variants of the kernel", vec![slow, fast, ratio]));
        let predicted = cycles(rewrite);
        if !predicted.is_empty() {
            // A prediction is context; it neither strengthens nor weakens what was timed.
            let statement =
                format!("predicted for the quantisation alone: {:.0} % fewer cycles", 100.0 * rewrite.gain());
            let agrees = (rewrite.gain() >= PREDICTED_GAIN) == pays;
            if !agrees {
                verdict = verdict.with(Evidence::against(statement, predicted));
            }
        }
        let next = best.setting.as_ref().map_or_else(|| format!("use {}", best.name), |s| format!("set {s}"));
        if pays { verdict.next(next) } else { verdict }
    }
}

fn cycles(rewrite: &RewriteOutcome) -> Vec<Figure> {
    let figure = |name: &str, value, p: &Provenance| Figure::new(name, value, Unit::Cycles, p.clone());
    let base = &rewrite.baseline;
    let mut figures =
        vec![figure("baseline, cycles an element and SM", base.cycles_per_element, &base.provenance)];
    if let Some(best) = rewrite.candidates.first() {
        figures.push(figure(
            "best candidate, cycles an element and SM",
            best.cycles_per_element,
            &best.provenance,
        ));
    }
    figures
}

fn predicted_verdict(rewrite: &RewriteOutcome) -> Verdict {
    let verdict = |standing, reason: String| Verdict::new(FixClass::Algebra, standing, Step::Algebra, reason);
    let Some(best) = rewrite.candidates.first() else {
        let reason = if rewrite
            .baseline
            .operations
            .keys()
            .any(|k| k.starts_with("cvt_e") || k.starts_with("cvt_ue"))
        {
            format!("no cheaper program than {} exists under the rules", rewrite.name)
        } else {
            format!(
                "{} quantises nothing: there is nothing to eliminate, and no cheaper form of the rest",
                rewrite.name
            )
        };
        return verdict(Standing::RuledOut, reason)
            .with(Evidence::supports(rewrite.lower_bound.statement.clone(), cycles(rewrite)));
    };
    let (gain, issue) = (rewrite.gain(), rewrite.issue_gain());
    let evidence = Evidence::supports(
        format!("by {}; replayed bit by bit, every differing code a tie", best.rules.join(", ")),
        cycles(rewrite),
    );
    if gain >= PREDICTED_GAIN {
        verdict(
            Standing::Recommended,
            format!(
                "a program for the same result takes {:.0} % fewer cycles on its busiest pipe and {:.0} % fewer issue slots",
                100.0 * gain,
                100.0 * issue
            ),
        )
        .with(evidence)
        .next(format!("keep its guards: {}; time the variants to confirm it", best.guards.join("; ")))
    } else if issue >= PREDICTED_GAIN {
        verdict(
            Standing::Open,
            format!(
                "a program for the same result has {:.0} % fewer issue slots, but the same busiest pipe",
                100.0 * issue
            ),
        )
        .with(evidence)
        .next("time the variants: a saving off the busiest pipe may not show".to_owned())
    } else {
        verdict(
            Standing::RuledOut,
            format!("what could be saved is below {:.0} % of the cycles", 100.0 * PREDICTED_GAIN),
        )
        .with(evidence)
    }
}
