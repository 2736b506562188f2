//! How far a sweep got with some of its points, and what a conclusion about all of them may rest on.
//!
//! Only a comparison speaks for or against a setting. One process of a screening decides what is compared first, and
//! nothing else: the settings that were seen once rule nothing out, nor does what could not be measured.

use crate::outcome::{Confirmed, PointOutcome, PointStatus, SplitOutcome};
use crate::verdict::{WORTH_HAVING, shown};
use kbt_target::Speed;

const RESUME: &str = "go on with the sweep: kbt split sweep TARGET.yaml --out DIR --resume";
const EXHAUSTIVE: &str = "compare every setting: kbt split sweep TARGET.yaml --out ANOTHER_DIR --exhaustive";

/// Points by what is known of them.
pub(crate) struct Tally<'a> {
    all: usize,
    /// Timed against the baseline or the fastest so far.
    pub(crate) compared: Vec<&'a PointOutcome>,
    /// Of those, called faster, and not timed against the baseline again since.
    unconfirmed: Vec<&'a PointOutcome>,
    /// Of those, undecided, and maybe worth having.
    unsettled: usize,
    /// Seen by one process of a screening.
    once: Vec<&'a PointOutcome>,
    not_run: usize,
    unmeasured: Vec<&'a PointOutcome>,
}

/// What the points come to where none of them is confirmed to be faster.
pub(crate) enum Conclusion {
    /// All that could be timed were compared, and none can win.
    RuledOut,
    /// Every point failed, was wrong or was refused.
    NoneTimed,
    /// Something is not known, and what would tell.
    Open(String),
}

impl<'a> Tally<'a> {
    pub(crate) fn of(points: &[&'a PointOutcome], confirmed: &[Confirmed]) -> Self {
        let with = |what: &dyn Fn(&PointOutcome) -> bool| -> Vec<&PointOutcome> {
            points.iter().copied().filter(|p| what(p)).collect()
        };
        let compared = with(&|p| p.status == PointStatus::Timed && p.speed.is_some());
        let unconfirmed: Vec<&PointOutcome> =
            compared.iter().copied().filter(|p| is_unconfirmed(p, confirmed)).collect();
        let unsettled =
            compared.iter().filter(|p| !is_unconfirmed(p, confirmed) && could_win(p, confirmed)).count();
        Self {
            all: points.len(),
            unconfirmed,
            unsettled,
            compared,
            once: with(&PointOutcome::is_seen_once),
            not_run: with(&|p| p.status == PointStatus::NotRun && !p.is_seen_once()).len(),
            unmeasured: with(&|p| matches!(p.status, PointStatus::Unmeasured { .. })),
        }
    }

    /// The compared point with the lowest ratio.
    pub(crate) fn nearest_compared(&self) -> Option<&'a PointOutcome> {
        nearest(&self.compared)
    }

    pub(crate) fn conclusion(&self) -> Conclusion {
        // What was seen once and has no record yet is compared when the sweep goes on.
        let goes_on = self.once.iter().any(|p| p.status == PointStatus::NotRun);
        let next = if self.not_run > 0 || !self.unmeasured.is_empty() || goes_on {
            RESUME.to_owned()
        } else if let Some(point) = nearest(&self.unconfirmed) {
            format!("time it once more: kbt split run-one DIR/spec.json --index {} --confirm", point.index)
        } else if !self.once.is_empty() {
            EXHAUSTIVE.to_owned()
        } else if self.unsettled > 0 {
            "time them with more blocks: kbt split sweep --blocks".to_owned()
        } else {
            return if self.compared.is_empty() { Conclusion::NoneTimed } else { Conclusion::RuledOut };
        };
        Conclusion::Open(next)
    }

    /// What is known, and what is not.
    pub(crate) fn statement(&self) -> String {
        let (all, compared) = (self.all, self.compared.len());
        let mut said = Vec::new();
        if compared == 0 {
            said.push(format!("none of the {all} other legal settings was compared with the baseline"));
        } else if self.unconfirmed.is_empty() && self.unsettled == 0 {
            said.push(format!(
                "{compared} of {all} other legal settings were compared, and none of them beats the baseline beyond noise"
            ));
        }
        if !self.unconfirmed.is_empty() {
            let n = self.unconfirmed.len();
            said.push(format!("{n} of {all} other legal settings read faster, and were not confirmed"));
        }
        if self.unsettled > 0 {
            said.push(format!(
                "{} of {compared} settings are neither faster nor slower beyond noise, and could still gain {:.0} %",
                self.unsettled,
                WORTH_HAVING * 100.0
            ));
        }
        if !self.once.is_empty() {
            said.push(format!(
                "{} seen once{}, which rules nothing out",
                were(self.once.len()),
                self.how_near()
            ));
        }
        if self.not_run > 0 {
            said.push(format!("{} not run", were(self.not_run)));
        }
        if let Some(why) = self.unmeasured.first().and_then(|p| p.status.why()) {
            said.push(format!("{} could not be measured ({why})", self.unmeasured.len()));
        }
        said.join("; ")
    }

    /// How far off the nearest of those was that were seen once.
    fn how_near(&self) -> String {
        let ratio = nearest(&self.once).and_then(|p| p.to_baseline);
        ratio
            .map(|r| format!(" (the nearest took {:.3} of the baseline's time)", r.ratio))
            .unwrap_or_default()
    }
}

fn were(n: usize) -> String {
    format!("{n} {}", if n == 1 { "was" } else { "were" })
}

fn nearest<'a>(points: &[&'a PointOutcome]) -> Option<&'a PointOutcome> {
    let ratio = |p: &PointOutcome| p.to_baseline.map_or(f64::INFINITY, |r| r.ratio);
    points.iter().copied().min_by(|a, b| ratio(a).total_cmp(&ratio(b)))
}

/// What a setting's direct comparison with the baseline says of it.
fn direct<'c>(point: &PointOutcome, confirmed: &'c [Confirmed]) -> Option<&'c Confirmed> {
    confirmed.iter().find(|c| c.index == point.index && c.speed.is_some())
}

fn is_unconfirmed(point: &PointOutcome, confirmed: &[Confirmed]) -> bool {
    point.speed == Some(Speed::Faster) && direct(point, confirmed).is_none()
}

/// Whether a timed point may still be faster than the baseline by what is worth having, for all that is known.
fn could_win(point: &PointOutcome, confirmed: &[Confirmed]) -> bool {
    let (speed, ratio) = match direct(point, confirmed) {
        Some(c) => (c.speed, c.to_baseline),
        None => (point.speed, point.to_baseline),
    };
    let best_case = ratio.map_or(0.0, |r| r.low_ratio.unwrap_or(r.ratio));
    // A point that was called slower or the same against the incumbent is settled: the incumbent is the
    // baseline, or a setting that beat it and was not confirmed.
    !matches!(speed, Some(Speed::Slower | Speed::Same)) && best_case < 1.0 - WORTH_HAVING
}

impl SplitOutcome {
    /// One line for the terminal.
    #[must_use]
    pub fn headline(&self) -> String {
        if let Some(why) = &self.refused {
            return format!("split: refused: {why}");
        }
        let others: Vec<&PointOutcome> = self.points.iter().filter(|p| p.index != 0).collect();
        let tally = Tally::of(&others, &self.confirmed);
        format!("split: {}; {}{}", self.result(&tally), self.counted(&tally), self.without_briefly())
    }

    /// What the sweep found.
    fn result(&self, tally: &Tally<'_>) -> String {
        let best =
            self.confirmed.iter().find(|c| Some(c.index) == self.best && c.speed == Some(Speed::Faster));
        if let Some((point, ratio)) = best.and_then(|c| Some((self.points.get(c.index)?, c.to_baseline?))) {
            return format!("{} takes {} of the baseline's time", self.changed(point), shown(&ratio));
        }
        // What failed, or was seen once, was not compared.
        if tally.compared.is_empty() {
            return "no setting was compared with the baseline".to_owned();
        }
        if let Some((point, ratio)) = nearest(&tally.unconfirmed).and_then(|p| Some((p, p.to_baseline?))) {
            return format!(
                "{} reads {} of the baseline's time, faster but not confirmed",
                self.changed(point),
                shown(&ratio)
            );
        }
        let faster: Vec<&PointOutcome> =
            tally.compared.iter().copied().filter(|p| p.speed == Some(Speed::Faster)).collect();
        let again = nearest(&faster).and_then(|p| Some((p, direct(p, &self.confirmed)?)));
        let again = again.and_then(|(p, c)| {
            let (setting, speed, ratio) = (self.changed(p), c.speed?, c.to_baseline?);
            Some(format!(
                " ({setting} read faster at first, and {speed} when timed again: {})",
                shown(&ratio)
            ))
        });
        let none = match tally.once.len() + tally.not_run + tally.unmeasured.len() {
            0 => "no setting beats the baseline beyond noise".to_owned(),
            _ => {
                format!("none of {} compared settings beats the baseline beyond noise", tally.compared.len())
            }
        };
        none + &again.unwrap_or_default()
    }

    /// How many settings that rests on.
    fn counted(&self, tally: &Tally<'_>) -> String {
        let baseline = self.baseline().filter(|b| b.status == PointStatus::Timed).into_iter().count();
        let mut said = format!("{} of {} settings timed", tally.compared.len() + baseline, self.points.len());
        if !tally.once.is_empty() {
            said += &format!(", {} more seen once{}", tally.once.len(), tally.how_near());
        }
        if !tally.unmeasured.is_empty() {
            said += &format!(", {} could not be measured", tally.unmeasured.len());
        }
        said + &format!(", {} forbidden by the contract", self.forbidden.len())
    }

    fn without_briefly(&self) -> String {
        self.without.as_ref().map(|w| format!("; {}", w.headline())).unwrap_or_default()
    }
}
