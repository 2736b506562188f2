//! The five required outputs: conclusion, evidence and assumptions, the auditable table, minimal validation,
//! risks and fallback. Each is written from the case at hand.

use crate::bounds::per_second;
use crate::outcome::{
    AccountingRow, Artifact, Call, CandidateRow, CandidateStanding as Standing, EvidenceOutput,
    NO_BOTTLENECK, Outputs, Statement, TriageOutcome, Validation,
};
use crate::signals::Signal;
use crate::triage::{Case, EXPLAINS};
use crate::validation::validation;
use kbt_evidence::Known;

/// The row of the table that holds the measured time.
pub(crate) const MEASURED: &str = "measured";
/// Where every change that could be predicted saves less than can be told from noise.
pub(crate) const NO_EXPERIMENT: &str =
    "none is left whose saving could be told from noise: measure what the candidates still need";

/// All five, of a diagnosis.
pub(crate) fn diagnosed(outcome: &TriageOutcome, case: &Case<'_>) -> Outputs {
    Outputs {
        conclusion: conclusion(outcome, case),
        evidence: evidence(outcome, case),
        artifact: artifact(outcome, case),
        validation: validation(outcome, case.sheet, case.work.kind),
        risks: risks(outcome, case),
    }
}

/// All five, where only the timing is missing.
pub(crate) fn initial(outcome: &TriageOutcome, case: &Case<'_>) -> Outputs {
    let call = outcome.call.map_or("unknown", Call::as_str);
    let margin = outcome.margin.as_ref().map_or_else(
        || outcome.margin_reason.clone().unwrap_or_default(),
        |m| format!("{:.1} x from the ridge of {}", m.value, case.ceilings.device),
    );
    let against = outcome.against_memory().map(|c| {
        format!("{NO_BOTTLENECK}: by its intensity the call would be memory-bound, but {}. Settle that first (P0).", c.what)
    });
    Outputs {
        conclusion: against.unwrap_or_else(|| format!(
            "initial call, by arithmetic intensity alone: {call}, {margin}. No time is given, so no bottleneck is asserted."
        )),
        evidence: evidence(outcome, case),
        artifact: artifact(outcome, case),
        validation: validation(outcome, case.sheet, case.work.kind),
        risks: risks(outcome, case),
    }
}

/// All five, of a refusal: what is there, what is not, and what not to conclude.
pub(crate) fn refused(outcome: &TriageOutcome) -> Outputs {
    let asked: Vec<String> = outcome.supply.iter().map(|s| format!("{}: {}", s.fact, s.keys)).collect();
    Outputs {
        conclusion: format!("{NO_BOTTLENECK}: {}", outcome.refusal.as_deref().unwrap_or("facts are missing")),
        evidence: EvidenceOutput { from_data: Vec::new(), assumptions: asked },
        artifact: Artifact {
            title: "accounting: none can be made from these facts".to_owned(),
            rows: Vec::new(),
        },
        validation: Validation {
            correctness: "save inputs and outputs of the kernel as it is, with the facts asked for"
                .to_owned(),
            boundary: "state the shapes that matter besides the main one".to_owned(),
            experiment: "the first measurement is the one that fills the missing facts".to_owned(),
        },
        risks: vec![format!(
            "an answer without {} would be a guess; supply it and run the triage again",
            outcome.missing.iter().map(|f| f.as_str()).collect::<Vec<_>>().join(", ")
        )],
    }
}

fn percent(case: &Case<'_>, signal: Signal) -> Option<f64> {
    case.signals.get(signal).map(|v| v * 100.0)
}

fn conclusion(outcome: &TriageOutcome, case: &Case<'_>) -> String {
    let Some(call) = outcome.call else { return "no call".to_owned() };
    let time = case.accounts.time_us.as_ref().map_or(0.0, |t| t.value);
    let busy = |s| percent(case, s).map_or_else(|| "an unknown part".to_owned(), |v| format!("{v:.0} %"));
    // A percentage that stands for bytes nobody counted is no share of the time.
    let uncounted = case.signals.get(Signal::ImpliedTraffic).is_some();
    let hbm = busy(if uncounted { Signal::HbmShare } else { Signal::HbmBusy });
    // An operator without operations leaves its pipe idle, whatever that pipe's roof is.
    let none = case.work.flop.value <= 0.0;
    let compute = if none { "0 %".to_owned() } else { busy(Signal::ComputeBusy) };
    let device = case.device;
    let why = match call {
        _ if case.cross_device => format!(
            "by intensity alone, since the time is another device's ({})",
            outcome.sheet_device.as_deref().unwrap_or("not named")
        ),
        Call::MemoryBound => {
            format!("device memory is busy {hbm} of {time:.1} us, the arithmetic {compute}")
        }
        Call::ComputeBound => {
            format!("the arithmetic fills {compute} of {time:.1} us, device memory {hbm}")
        }
        Call::NearRidge => {
            format!("both roofs are near: arithmetic {compute}, device memory {hbm} of {time:.1} us")
        }
        Call::Neither => format!(
            "device memory {hbm} and arithmetic {compute} of {time:.1} us (a roof that limits reads {:.0} % or more)",
            EXPLAINS * 100.0
        ),
    };
    let order = unmeasured(outcome, case);
    let conflict = crate::predict::beaten(case, outcome.contradictions.iter().any(|c| c.settle_first));
    if let Some(bound) = conflict {
        return format!(
            "{NO_BOTTLENECK} on {device}: the time of {time:.1} us lies below the {:.1} us that {} needs at its ceiling. Settle that first (P0).{order}",
            bound.time.value, bound.name
        );
    }
    let first = outcome.lead();
    let suspect = first_sentence(first);
    let doubt = match outcome.contradictions.iter().filter(|c| c.settle_first).count() {
        0 => String::new(),
        1 => " One figure contradicts the others: settle that first (P0).".to_owned(),
        n => format!(" {n} figures contradict each other: settle that first (P0)."),
    };
    let cold = match case.accounts.may_fit.filter(|_| !case.cross_device) {
        Some(l2) => format!(" Cold caches assumed: {}.", crate::bounds::fits(case.work, l2)),
        None => String::new(),
    };
    let call = if call == Call::Neither { "neither memory- nor compute-bound" } else { call.as_str() };
    format!("{call} on {device}: {why}.{cold}{suspect}{doubt}{order}")
}

/// What stands first, in a sentence; the same words wherever it is said.
pub(crate) fn first_sentence(first: Option<&CandidateRow>) -> String {
    let Some(r) = first else {
        return " Every candidate has evidence against it: look at the contradictions and the missing measurements."
            .to_owned();
    };
    let share = r.share.as_ref().map_or(String::new(), |s| format!(", {:.0} % of the time", s.value * 100.0));
    let word = match r.standing {
        Standing::Confirmed => "Confirmed by experiment",
        Standing::Open => "No candidate has evidence yet; first to measure",
        _ => "First suspect",
    };
    format!(" {word}: {} ({}{share}).", r.title, r.class)
}

/// Which figures carry an order of magnitude only.
fn unmeasured(outcome: &TriageOutcome, case: &Case<'_>) -> String {
    if !outcome.order_of_magnitude {
        return String::new();
    }
    let soft = |f: &kbt_evidence::Figure| !crate::ceilings::is_firm(f.provenance.kind);
    let mut which = Vec::new();
    if case.accounts.hbm_roof.iter().map(|(_, f)| f).chain(&case.accounts.compute_roof).any(soft) {
        which.push("the ceilings are not measured");
    }
    if case.accounts.time_us.as_ref().is_some_and(soft) {
        which.push("the time is not measured");
    }
    if outcome.sheet_device.is_some() {
        which.push("the time is another device's");
    }
    format!(" An order of magnitude: {}.", which.join(", and "))
}

fn evidence(outcome: &TriageOutcome, case: &Case<'_>) -> EvidenceOutput {
    let mut from_data = Vec::new();
    let mut assumptions: Vec<String> = case.work.assumptions.clone();
    let mut add = |text: String, figures: Vec<kbt_evidence::Figure>| {
        let weakest = figures.iter().map(|f| f.provenance.kind).min().unwrap_or(Known::Assumed);
        if weakest >= Known::Given {
            from_data.push(Statement { text, figures });
        } else {
            let sources: Vec<String> = figures
                .iter()
                .filter(|f| f.provenance.kind == weakest)
                .map(|f| format!("{}: {}", f.name, f.provenance))
                .collect();
            assumptions.push(format!("{text} [{}]", sources.join("; ")));
        }
    };
    if let Some(i) = &outcome.initial {
        add(i.flop_line.clone(), vec![i.flop.clone()]);
        add(i.hbm_line.clone(), vec![i.hbm_bytes.clone()]);
    }
    if let Some(t) = &case.accounts.time_us {
        let timing = case.sheet.timing.clone().unwrap_or_default();
        let method = timing.method.map_or("an unstated method", |m| m.phrase());
        add(format!("{:.2} us a call, by {method}", t.value), vec![t.clone()]);
    }
    if let Some((kind, f)) = &case.accounts.hbm_roof {
        add(format!("{} ceiling {}", kind.as_str(), per_second(f)), vec![f.clone()]);
    }
    for (name, f) in &case.accounts.compute_parts {
        add(format!("{name} ceiling {}", per_second(f)), vec![f.clone()]);
    }
    for row in outcome.evidence.iter().take(3) {
        for s in row.supports.iter().filter(|s| !s.figures.is_empty()) {
            add(format!("{}: {}", row.candidate, s.text), s.figures.clone());
        }
    }
    assumptions.extend(case.accounts.assumptions.iter().cloned());
    if let (Some(useful), Some(busy)) =
        (case.signals.get(Signal::HbmShare), case.signals.get(Signal::HbmBusy))
        && busy < useful - 0.1
    {
        assumptions.push(format!(
            "the profiled launch kept device memory {:.0} % busy, the useful bytes alone would need {:.0} % of the timed one: the profiled launch was slower (clocks, cold caches), or L2 held part of the bytes",
            busy * 100.0,
            useful * 100.0
        ));
    }
    let width = case.sheet.implementation.as_ref().and_then(|i| i.access_bytes_per_thread);
    if width.is_none() && case.signals.get(Signal::SectorExcess).is_some() {
        assumptions.push(
            "the access width is not stated: 16 bytes a thread are taken, so that of narrower accesses the sectors beyond need are more than is said (`implementation.access_bytes_per_thread`)"
                .to_owned(),
        );
    }
    assumptions.extend(case.ceilings.disputes.iter().map(|d| format!("disputed: {d}")));
    if let Some(other) = &outcome.sheet_device {
        assumptions.push(if case.cross_device {
            format!(
                "the sheet names {other}, the ceilings are {}'s: the time is no share of another device's roofs",
                case.ceilings.device
            )
        } else {
            format!(
                "the sheet names {other}, the ceilings are {}'s: shares of the time are of the ceilings that the sheet states, and no others; where it states one side alone, the ridge pairs two devices",
                case.ceilings.device
            )
        });
    }
    if let Some(rules) = case.sheet.profiler.as_ref().and_then(|p| p.rules.as_ref()) {
        assumptions.extend(rules.iter().map(|r| format!("lead from the profiler's rules, no verdict: {r}")));
    }
    assumptions.dedup();
    EvidenceOutput { from_data, assumptions }
}

fn artifact(outcome: &TriageOutcome, case: &Case<'_>) -> Artifact {
    let mut rows = Vec::new();
    if let Some(i) = &outcome.initial {
        for (quantity, how, figure) in [
            ("useful operations", i.flop_line.as_str(), &i.flop),
            ("useful HBM bytes", i.hbm_line.as_str(), &i.hbm_bytes),
            ("arithmetic intensity", "useful FLOP over useful HBM bytes", &i.intensity),
            ("ridge", "arithmetic roof over HBM roof", &i.ridge),
        ] {
            rows.push(AccountingRow {
                quantity: quantity.to_owned(),
                how: how.to_owned(),
                figure: figure.clone(),
            });
        }
    }
    for bound in &outcome.bounds {
        rows.push(AccountingRow {
            quantity: format!("{} needs at least", bound.name),
            how: bound.how.clone(),
            figure: bound.time.clone(),
        });
        if let Some(share) = &bound.share {
            rows.push(AccountingRow {
                quantity: format!("{} share of the time", bound.name),
                how: "bound over the measured time".to_owned(),
                figure: share.clone(),
            });
        }
    }
    if let Some(t) = &case.accounts.time_us {
        rows.push(AccountingRow {
            quantity: MEASURED.to_owned(),
            how: "median of one call".to_owned(),
            figure: t.clone(),
        });
    }
    Artifact { title: format!("accounting of {} on {}", outcome.name, case.device), rows }
}

fn risks(outcome: &TriageOutcome, case: &Case<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let published = case
        .accounts
        .hbm_roof
        .iter()
        .map(|(_, f)| f)
        .chain(&case.accounts.compute_roof)
        .any(|f| f.provenance.kind <= Known::Published);
    if published {
        found.push(
            "a published peak is no promise: the reachable ceiling lies below it. Fallback: measure it (kbt microbench run) and read every share again".to_owned(),
        );
    }
    let tensor = case.work.parts.iter().any(|p| p.tensor);
    match case.ceilings.arch.sm {
        _ if !tensor => found.push(format!(
            "a change of access width or launch bounds that helps on {} may spill or misalign on another shape or part. Fallback: keep the present kernel beside it, and choose by shape",
            case.ceilings.device
        )),
        90 => found.push(
            "WGMMA, TMA multicast and setmaxnreg need sm_90a code, which loads on 9.0 only. Fallback: mma.sync with cp.async".to_owned(),
        ),
        100 | 103 => found.push(format!(
            "tcgen05 code is tied to its target: an sm_100a cubin does not load on 10.3, nor sm_103a on 10.0. Fallback: build {} and the other, or mma.sync",
            case.ceilings.arch
        )),
        120 => found.push(
            "compute capability 12.0 has no tcgen05 and less shared memory a CTA: kernels for 10.x do not carry over. Fallback: mma.sync with smaller tiles".to_owned(),
        ),
        _ => found.push(format!(
            "{} has no TMA: asynchronous copies mean cp.async. Fallback: register double-buffering",
            case.ceilings.arch
        )),
    }
    if let Some(first) = outcome.experiments.first() {
        // One without an experiment of its own may still have evidence.
        let has_evidence = |r: &&CandidateRow| {
            r.candidate != first.candidate && r.standing.is_suspect() && !r.supports.is_empty()
        };
        let next = outcome
            .experiments
            .get(1)
            .map(|e| e.candidate.as_str())
            .or_else(|| outcome.evidence.iter().find(has_evidence).map(|r| r.candidate.as_str()));
        found.push(format!(
            "{} may cost registers or shared memory that residency needs: check spills and CTAs an SM after the change. Fallback: the next candidate, {}",
            first.candidate,
            next.unwrap_or("none with evidence")
        ));
    }
    if let Some(t) = &case.accounts.time_us
        && t.value < 10.0
    {
        found.push("a kernel this short is ruled by launch and dependency latencies that a roofline does not model. Fallback: a latency model, or batch the calls".to_owned());
    }
    if case.sheet.timing.as_ref().is_some_and(|t| t.communication_included == Some(true)) {
        found.push("communication is inside the time, which a roofline does not model. Fallback: time both parts apart".to_owned());
    }
    if case.sheet.profiler.is_some() {
        found.push("profiler counters come from replays, by default with base clocks and flushed caches: they explain, they do not time. Fallback: --clock-control none and --cache-control none, and CUDA events for time".to_owned());
    }
    found
}
