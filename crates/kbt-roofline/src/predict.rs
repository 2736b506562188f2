//! The time that an experiment predicts, from the sheet's own figures: the bytes of the tensor named, the bytes in flight,
//! the kernels' own time, the chain, the waves. No prediction lies below a bound that the change leaves where it is.

use crate::bounds;
use crate::candidates::{CandidateSpec, Saving};
use crate::ceilings::is_firm;
use crate::outcome::{Bound, Resource};
use crate::signals::{Signal as S, Signals};
use crate::stated;
use crate::triage::Case;
use crate::work::bytes;
use kbt_evidence::{Figure, Provenance, Unit};

/// The smallest saving that is predicted: below it an experiment cannot be told from noise.
pub(crate) const LEAST_SAVING: f64 = 0.02;
/// Taken for the share of a candidate that has no number yet.
const UNKNOWN_SHARE: f64 = 0.2;
/// No kernel reaches a published peak: a prediction stays at this part of it.
const OF_A_PEAK: f64 = 0.95;
/// The most parts that one CTA's work is split into.
const MOST_PARTS: u32 = 8;
/// Drawn over limit from which the power limit holds the clock (the threshold of the check).
const POWER_LIMIT: f64 = 0.97;

/// What a change is predicted to do.
pub(crate) struct Prediction {
    /// The factor, with the figures it names.
    pub(crate) factor: String,
    /// The time after it.
    pub(crate) us: Figure,
    /// What it saves, as a share of the time.
    pub(crate) saving: Figure,
    /// The largest bound that the change leaves, over the time: no result lies below it.
    pub(crate) least: f64,
    /// What was assumed, and which bound stops it.
    pub(crate) notes: Vec<String>,
}

/// Whether the power limit, and not the clock's own, holds the clock.
pub(crate) fn power_capped(signals: &Signals) -> bool {
    signals.get(S::PowerRatio).is_some_and(|p| p > POWER_LIMIT)
}

/// The time after a change before any bound is looked at, how it comes about, and from which figures.
struct Raw {
    us: f64,
    how: String,
    from: Vec<Figure>,
    /// What is left of the useful bytes in device memory.
    bytes_left: f64,
    notes: Vec<String>,
}

/// Predicts the time of a candidate's experiment. `share` is what the candidate accounts for.
pub(crate) fn predict(
    candidate: &CandidateSpec,
    share: Option<&Figure>,
    time: &Figure,
    case: &Case<'_>,
) -> Prediction {
    let saving = candidate.experiment.saving;
    let (mut raw, parts) = match saving {
        Saving::MoreCtas => more_ctas(time, case).unwrap_or_else(|| (part(0.5, share, time), 2)),
        _ => (special(saving, share, time, case), 2),
    };
    let (floor, binding) = floor(candidate, raw.bytes_left, time, case);
    let mut us = raw.us;
    if us < floor {
        raw.notes.push(binding);
        us = floor;
    }
    let inputs: Vec<&Figure> = std::iter::once(time).chain(&raw.from).collect();
    let us = us.min(time.value);
    let us = Figure::computed("predicted time", us, Unit::Microseconds, &raw.how, &inputs);
    let saving = Figure::computed(
        "predicted saving",
        1.0 - us.value / time.value,
        Unit::Ratio,
        "1 less the predicted over the measured time",
        &[&us, time],
    );
    Prediction {
        factor: factor(candidate, parts, case),
        us,
        saving,
        least: floor.min(time.value) / time.value,
        notes: raw.notes,
    }
}

fn factor(candidate: &CandidateSpec, parts: u32, case: &Case<'_>) -> String {
    let power = "raise the power limit by a tenth, or feed operands that toggle fewer bits (zeros: wrong results, right timing): the power limit holds the clock, a higher clock limit would change nothing";
    if matches!(candidate.id, "arithmetic_roof" | "clocks") && power_capped(case.signals) {
        return power.to_owned();
    }
    let tensor = case.work.largest().map_or_else(String::new, |t| format!("{}, {}", t.name, bytes(t.bytes)));
    stated::factor(candidate, case)
        .unwrap_or_else(|| candidate.experiment.factor(case.work.kind))
        .replace("{tensor}", &tensor)
        .replace("{parts}", &parts.to_string())
}

fn special(saving: Saving, share: Option<&Figure>, time: &Figure, case: &Case<'_>) -> Raw {
    let s = case.signals;
    let found = match saving {
        Saving::HalfOfLargestTensor => case.work.largest().and_then(|t| {
            fewer_bytes(t.bytes / 2.0, &format!("half of {} ({})", t.name, bytes(t.bytes)), time, case)
        }),
        Saving::WiderBits => wider_bits(time, case),
        Saving::TwiceInFlight => s.figure(S::InFlight).map(|ratio| Raw {
            us: time.value * ratio.value.clamp(0.5, 1.0),
            how: "Little's law: twice the bytes in flight, up to those that cover the latency".to_owned(),
            from: vec![ratio.clone()],
            bytes_left: 1.0,
            notes: Vec::new(),
        }),
        Saving::OutsideTheKernels => s.figure(S::HostGap).map(|gap| Raw {
            us: time.value * (1.0 - gap.value),
            how: "the kernels' own time".to_owned(),
            from: vec![gap.clone()],
            bytes_left: 1.0,
            notes: Vec::new(),
        }),
        Saving::Part(_) | Saving::MoreCtas => None,
    };
    found.unwrap_or_else(|| match saving {
        Saving::Part(of) => part(of, share, time),
        Saving::OutsideTheKernels | Saving::WiderBits => part(0.8, share, time),
        _ => part(0.5, share, time),
    })
}

/// A stated part of what the candidate accounts for goes.
fn part(of: f64, share: Option<&Figure>, time: &Figure) -> Raw {
    let mut notes = Vec::new();
    let assumed = Figure::new(
        "part removed",
        of,
        Unit::Ratio,
        Provenance::assumed(format!(
            "the change removes {:.0} % of what the candidate accounts for",
            of * 100.0
        )),
    );
    let claim = share.map_or(UNKNOWN_SHARE, |f| f.value.clamp(0.0, 1.0));
    if share.is_none() {
        notes.push(format!("no share is known yet: {:.0} % is assumed", UNKNOWN_SHARE * 100.0));
    }
    Raw {
        us: time.value * (1.0 - claim * of),
        how: format!("time x (1 - {:.0} % of the candidate's share)", of * 100.0),
        from: share.cloned().into_iter().chain([assumed]).collect(),
        bytes_left: 1.0,
        notes,
    }
}

/// Bytes that no longer move take their time at the roof with them.
fn fewer_bytes(saved: f64, what: &str, time: &Figure, case: &Case<'_>) -> Option<Raw> {
    let share = case.signals.figure(S::HbmShare)?;
    let all = case.work.hbm_bytes.value;
    let part = (saved / all).clamp(0.0, 1.0);
    Some(Raw {
        // A kernel that beats the ceiling spends no more than all of its time on its bytes.
        us: time.value * (1.0 - part * share.value.min(1.0)),
        how: format!("time less that of {what} at the HBM roof"),
        from: vec![share.clone(), case.work.hbm_bytes.clone()],
        bytes_left: 1.0 - part,
        notes: Vec::new(),
    })
}

fn wider_bits(time: &Figure, case: &Case<'_>) -> Option<Raw> {
    let d = case.sheet.dtypes.as_ref()?;
    let enough = [d.sufficient, d.mma].into_iter().flatten().map(|d| d.storage_bits()).reduce(f64::min)?;
    let saved: f64 = case
        .work
        .tensors
        .iter()
        .filter_map(|t| Some(t.bytes * (1.0 - enough / t.read_as?.storage_bits()).max(0.0)))
        .sum();
    (saved > 0.0).then_some(())?;
    fewer_bytes(saved, &format!("the {} beyond {enough} bits an element", bytes(saved)), time, case)
}

/// The same work in `parts` times the CTAs: as long as the fullest SM works, which holds a whole number of them.
fn more_ctas(time: &Figure, case: &Case<'_>) -> Option<(Raw, u32)> {
    let fill = case.signals.figure(S::SmFill)?;
    let of = |parts: u32| (fill.value * f64::from(parts)).ceil() / f64::from(parts) / fill.value.ceil();
    let best = (2..=MOST_PARTS).map(of).fold(1.0, f64::min);
    // The fewest parts that give nearly the most: each costs a longer reduction.
    let parts = (2..=MOST_PARTS).find(|p| of(*p) <= best + 0.02)?;
    // Only time within the kernels follows the grid.
    let inside = 1.0 - case.signals.get(S::HostGap).unwrap_or(0.0).clamp(0.0, 1.0);
    let raw = Raw {
        us: time.value * (1.0 - inside * (1.0 - of(parts))),
        how: format!(
            "{:.2} CTAs an SM: {} on the fullest; with {parts} times as many, each 1/{parts} as long, {}",
            fill.value,
            fill.value.ceil(),
            (fill.value * f64::from(parts)).ceil()
        ),
        from: vec![fill.clone()],
        bytes_left: 1.0,
        notes: Vec::new(),
    };
    Some((raw, parts))
}

/// The largest bound that the change leaves where it is, and how to say so.
fn floor(candidate: &CandidateSpec, bytes_left: f64, time: &Figure, case: &Case<'_>) -> (f64, String) {
    let Some((at, b, left)) = stays(&case.accounts.bounds, candidate, bytes_left, time) else {
        return (0.0, String::new());
    };
    let known = case.signals.get(S::CommShare).is_some();
    let overlap = match candidate.id {
        "communication" if known => ", which overlaps the communication",
        "communication" => "; at most that, as the size of the communication is not known",
        _ => "",
    };
    (at, format!("no less: {} needs {left:.1} us{overlap}", b.name))
}

/// The largest bound that a change leaves: the least time after it, the bound, and what is left of that.
fn stays<'a>(
    bounds: &'a [Bound],
    candidate: &CandidateSpec,
    bytes_left: f64,
    time: &Figure,
) -> Option<(f64, &'a Bound, f64)> {
    let moved = candidate.experiment.moves;
    let mut most: Option<(f64, &Bound, f64)> = None;
    for b in bounds {
        let unmoved = !moved.contains(&b.resource);
        // Launches that queue overlap: their sum bounds nothing. Another device's roof bounds no time.
        if b.resource == Resource::Launch || b.share.is_none() {
            continue;
        }
        let left = match b.resource {
            Resource::Hbm if !unmoved => bytes_left,
            _ if unmoved => 1.0,
            _ => continue,
        };
        // What the time beats already does not stop it.
        let peak = !is_firm(b.time.provenance.kind) && b.time.value / OF_A_PEAK <= time.value;
        let at = b.time.value * left / if peak { OF_A_PEAK } else { 1.0 };
        if at > most.map_or(0.0, |m| m.0) {
            most = Some((at, b, b.time.value * left));
        }
    }
    most
}

/// The time after a change that takes a stated part of `share`, where that share was read after the triage; none for a
/// change that is predicted otherwise.
pub(crate) fn anew(
    candidate: &CandidateSpec,
    share: &Figure,
    time: &Figure,
    bounds: &[Bound],
) -> Option<(Figure, Vec<String>)> {
    let Saving::Part(of) = candidate.experiment.saving else { return None };
    let mut raw = part(of, Some(share), time);
    if let Some((least, b, left)) =
        stays(bounds, candidate, 1.0, time).filter(|(least, _, _)| raw.us < *least)
    {
        raw.notes.push(format!("no less: {} needs {left:.1} us", b.name));
        raw.us = least.min(time.value);
    }
    let inputs: Vec<&Figure> = std::iter::once(time).chain(&raw.from).collect();
    Some((Figure::computed("predicted time", raw.us, Unit::Microseconds, &raw.how, &inputs), raw.notes))
}

/// The bound that nothing but a contradiction explains: the time lies below it, and no counted traffic says why.
pub(crate) fn beaten<'a>(case: &'a Case<'_>, contradicted: bool) -> Option<&'a Bound> {
    let counted = bounds::moved_bytes(case.sheet).is_some();
    case.accounts.bounds.iter().filter(|_| contradicted).find(|b| {
        let beats = b.share.as_ref().is_some_and(|s| s.value > 1.05);
        beats && b.resource != Resource::Launch && !(b.resource == Resource::Hbm && counted)
    })
}
