//! The triage itself: facts to accountings, the call, the contradiction check, the matrix, the experiments.

use crate::bounds::{self, Accounts};
use crate::ceilings::{Ceilings, RoofKind, is_firm};
use crate::facts::FactSheet;
use crate::intake;
use crate::matrix;
use crate::order;
use crate::outcome::{Call, ExperimentResult, Fact, InitialCall, Resource, SCHEMA, Status, TriageOutcome};
use crate::outputs;
use crate::published::same_device;
use crate::sheet::SheetError;
use crate::signals::{self, Signal, Signals};
use crate::topics::{self, Scope};
use crate::work::{self, Work};
use crate::{checks, contradictions, experiments, picture, predict};
use kbt_evidence::{Figure, Unit};

/// Within this factor of the ridge neither side is called.
pub(crate) const NEAR_RIDGE: f64 = 1.5;
/// Below this share of its roof a side does not explain the time (Nsight Compute's SOLBottleneck rule).
pub(crate) const EXPLAINS: f64 = 0.6;

/// Why an initial call has no margin.
const NO_OPERATIONS: &str =
    "the operator computes nothing: its intensity is 0, which is no number of times below the ridge";

/// Everything between the facts and the outcome, for the parts that write it up.
pub(crate) struct Case<'a> {
    pub(crate) sheet: &'a FactSheet,
    pub(crate) work: &'a Work,
    pub(crate) ceilings: &'a Ceilings,
    pub(crate) accounts: &'a Accounts,
    pub(crate) signals: &'a Signals,
    /// The device that the time is held against: the sheet's, where its own ceilings are.
    pub(crate) device: &'a str,
    /// Whether the time is another device's than the roofs, so that only the intensity is left.
    pub(crate) cross_device: bool,
    /// Whether the intensity alone calls it compute-bound: then what speaks for nothing yet is asked of that side first.
    pub(crate) by_arithmetic: bool,
}

/// Triages a fact sheet against a device's ceilings. `results` are outcomes of experiments, each with the file it
/// came from; those within the sheet count too. An error is a result that names no experiment; missing facts
/// are no error but a refusal within the outcome.
pub fn triage(
    sheet: &FactSheet,
    ceilings: Option<&Ceilings>,
    results: &[(ExperimentResult, String)],
) -> Result<TriageOutcome, SheetError> {
    let mut outcome = empty(sheet, ceilings);
    match topics::scope(sheet) {
        Scope::Other(topic) => {
            outcome.status = Status::OutOfScope;
            let rest = if sheet.operator.is_some() {
                " The sheet does describe a kernel: ask about its performance, or drop `question`, to have it triaged."
            } else {
                ""
            };
            outcome.refusal = Some(format!(
                "the question is about {topic}, not about an operator's performance; a roofline does not answer it.{rest}"
            ));
            return Ok(outcome);
        }
        Scope::Performance | Scope::Unclear => {}
    }
    let mut missing = intake::missing(sheet);
    let ceilings = ceilings.map(|c| c.clone().with_sheet(sheet));
    let (Ok(work), Some(ceilings)) = (work::derive(sheet), &ceilings) else {
        if ceilings.is_none() {
            missing.push(Fact::Ceilings);
        }
        refuse(&mut outcome, sheet, missing);
        return Ok(outcome);
    };
    let mut accounts = bounds::account(sheet, &work, ceilings);
    let Some(initial) = initial(&work, &accounts) else {
        missing.push(Fact::Ceilings);
        refuse(&mut outcome, sheet, missing);
        let roofs = lacking(&work, &accounts, ceilings);
        outcome.supply = outcome.missing.iter().map(|f| intake::supply(sheet, *f, &roofs)).collect();
        if !roofs.is_empty() {
            outcome.refusal = Some(format!(
                "{}: no ceiling of kind {} is known for {}",
                outcome.refusal.unwrap_or_default(),
                roofs.join(", "),
                ceilings.device
            ));
        }
        outcome.outputs = Some(outputs::refused(&outcome));
        return Ok(outcome);
    };
    let named = sheet.device.as_ref().and_then(|d| d.name.clone());
    let differs = named.filter(|n| !same_device(n, &ceilings.device));
    if differs.is_some() {
        only_own_shares(&mut accounts, ceilings);
    }
    let cross_device = differs.is_some() && !roofs_of_the_time(&accounts);
    let device = differs.clone().filter(|_| !cross_device).unwrap_or_else(|| ceilings.device.clone());
    outcome.sheet_device = differs;
    let signals = signals::derive(sheet, &work, ceilings, &accounts);
    let case = Case {
        sheet,
        work: &work,
        ceilings,
        accounts: &accounts,
        signals: &signals,
        device: &device,
        cross_device,
        by_arithmetic: initial.call == Call::ComputeBound,
    };
    let against_memory = contradictions::against_memory(sheet, &work, &accounts, &initial);
    outcome.call = Some(initial.call);
    outcome.margin.clone_from(&initial.margin);
    outcome.margin_reason = outcome.margin.is_none().then(|| NO_OPERATIONS.to_owned());
    outcome.initial = Some(initial);
    outcome.bounds.clone_from(&accounts.bounds);
    outcome.plot = Some(picture::of(&case));
    let firm = |f: &Figure| is_firm(f.provenance.kind);
    let roofs_firm = accounts.hbm_roof.iter().map(|(_, f)| f).chain(&accounts.compute_roof).all(firm);
    outcome.order_of_magnitude =
        outcome.sheet_device.is_some() || !roofs_firm || accounts.time_us.as_ref().is_some_and(|t| !firm(t));
    if !missing.is_empty() {
        // Only the timing is missing, or only a latency: the roofline by intensity stands, no more.
        let only_time = missing == [Fact::Timing];
        refuse(&mut outcome, sheet, missing);
        if only_time {
            outcome.status = Status::Initial;
            if against_memory.is_some() {
                outcome.call = None;
                (outcome.margin, outcome.margin_reason) = (None, None);
            }
            outcome.contradictions.extend(against_memory);
            outcome.outputs = Some(outputs::initial(&outcome, &case));
        } else {
            outcome.call = None;
            (outcome.margin, outcome.margin_reason) = (None, None);
        }
        return Ok(outcome);
    }
    let Some(time) = accounts.time_us.clone() else { return Ok(outcome) };
    outcome.status = Status::Diagnosed;
    diagnose(&mut outcome, &case);
    outcome.contradictions = contradictions::contradictions(&accounts, sheet, ceilings, &signals);
    if let Some(against) = against_memory {
        if outcome.call == Some(Call::MemoryBound) {
            outcome.call = Some(Call::Neither);
            outcome.margin = None;
            outcome.margin_reason = Some("the issue slots of its machine code speak against it".to_owned());
        }
        outcome.contradictions.push(against);
    }
    outcome.checks = checks::run(&signals);
    let all: Vec<(ExperimentResult, String)> = sheet
        .results
        .iter()
        .map(|r| (r.clone(), sheet.origin.clone()))
        .chain(results.iter().cloned())
        .collect();
    let by_intensity = outcome.initial.as_ref().filter(|_| cross_device);
    let proposed: Vec<String> = if all.is_empty() {
        Vec::new()
    } else {
        let before = matrix::build(&case, &outcome.checks, &[], by_intensity);
        experiments::design(&before, &[], &time, &case).into_iter().map(|e| e.id).collect()
    };
    outcome.results = matrix::read_results(&all, &proposed, &time, &case)?;
    outcome.evidence = matrix::build(&case, &outcome.checks, &outcome.results, by_intensity);
    // Below a bound that nothing explains, or on a percentage alone, no change can be predicted.
    let first = outcome.contradictions.iter().any(|c| c.settle_first);
    let counted = signals.get(Signal::ImpliedTraffic).is_none();
    if counted && predict::beaten(&case, first).is_none() {
        outcome.experiments = experiments::design(&outcome.evidence, &outcome.results, &time, &case);
    }
    outcome.order = order::order(&outcome, &case);
    outcome.outputs = Some(outputs::diagnosed(&outcome, &case));
    Ok(outcome)
}

/// Time on one device is no share of another's roofs: of the bounds those keep their share that rest on the sheet's own
/// ceilings, or on no roof of a device.
fn only_own_shares(accounts: &mut Accounts, ceilings: &Ceilings) {
    let own = |kind| ceilings.of_sheet(kind);
    let memory = accounts.hbm_roof.as_ref().is_some_and(|(kind, _)| own(*kind));
    // What is used and no roof of memory is arithmetic.
    let mut arithmetic = accounts.roofs_used.iter().filter(|k| !k.is_device_memory()).peekable();
    let arithmetic = arithmetic.peek().is_some() && arithmetic.all(|k| own(*k));
    for bound in &mut accounts.bounds {
        let keeps = match bound.resource {
            Resource::Communication | Resource::HostTransfer | Resource::Submission | Resource::Chain => true,
            Resource::Hbm | Resource::HbmTraffic => memory,
            Resource::Compute | Resource::Waves => arithmetic,
            Resource::L2 => own(RoofKind::L2Read),
            Resource::Shared => own(RoofKind::SharedRead),
            Resource::Xu => own(RoofKind::Ex2),
            Resource::Launch => own(RoofKind::LaunchLatency),
            Resource::Atomics => false,
        };
        if !keeps {
            bound.share = None;
        }
    }
}

/// Whether the roofs with a share of the time decide the call: both sides, or one that explains it alone.
fn roofs_of_the_time(accounts: &Accounts) -> bool {
    let share = |r| accounts.share(r).map(|f| f.value);
    let memory = share(Resource::HbmTraffic).or(share(Resource::Hbm));
    let compute = share(Resource::Compute);
    let explains = |s: Option<f64>| s.is_some_and(|s| s >= EXPLAINS);
    (memory.is_some() && compute.is_some()) || explains(memory) || explains(compute)
}

fn empty(sheet: &FactSheet, ceilings: Option<&Ceilings>) -> TriageOutcome {
    TriageOutcome {
        schema: SCHEMA.to_owned(),
        name: sheet.title().to_owned(),
        question: sheet.question.clone(),
        status: Status::Refused,
        call: None,
        margin: None,
        margin_reason: None,
        order_of_magnitude: false,
        device: ceilings.map(|c| c.device.clone()),
        sheet_device: None,
        missing: Vec::new(),
        supply: Vec::new(),
        refusal: None,
        initial: None,
        bounds: Vec::new(),
        contradictions: Vec::new(),
        checks: Vec::new(),
        evidence: Vec::new(),
        experiments: Vec::new(),
        results: Vec::new(),
        not_used: Vec::new(),
        order: Vec::new(),
        outputs: None,
        plot: None,
    }
}

fn refuse(outcome: &mut TriageOutcome, sheet: &FactSheet, missing: Vec<Fact>) {
    let words: Vec<&str> = missing.iter().map(|f| f.as_str()).collect();
    outcome.status = Status::Refused;
    outcome.refusal = Some(format!("no diagnosis without {}", words.join(", ")));
    outcome.supply = missing.iter().map(|f| intake::supply(sheet, *f, &[])).collect();
    outcome.missing = missing;
    outcome.outputs = Some(outputs::refused(outcome));
}

/// The kinds of ceiling that this operator needs and the device lacks, as a sheet names them.
fn lacking(work: &Work, accounts: &Accounts, ceilings: &Ceilings) -> Vec<&'static str> {
    let mut kinds: Vec<&str> = Vec::new();
    if accounts.hbm_roof.is_none() {
        kinds.push("hbm_copy");
    }
    for part in work.parts.iter().filter(|p| ceilings.math(p.math, p.tensor).is_none()) {
        let kind = ceilings.multiplied_as(part.math).0.ceiling(part.tensor);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

/// The call by arithmetic intensity alone.
fn initial(work: &Work, accounts: &Accounts) -> Option<InitialCall> {
    let (_, hbm) = accounts.hbm_roof.as_ref()?;
    let compute = accounts.compute_roof.as_ref()?;
    let intensity = Figure::computed(
        "arithmetic intensity",
        work.flop.value / work.hbm_bytes.value,
        Unit::FlopPerByte,
        "useful FLOP over useful HBM bytes",
        &[&work.flop, &work.hbm_bytes],
    );
    let ridge = Figure::computed(
        "ridge",
        compute.value / hbm.value,
        Unit::FlopPerByte,
        "arithmetic roof over HBM roof",
        &[compute, hbm],
    );
    let ratio = intensity.value / ridge.value;
    let (call, name, margin) = if ratio > NEAR_RIDGE {
        (Call::ComputeBound, "intensity over ridge", ratio)
    } else if ratio < 1.0 / NEAR_RIDGE {
        (Call::MemoryBound, "ridge over intensity", 1.0 / ratio)
    } else {
        (Call::NearRidge, "intensity over ridge", ratio)
    };
    // No operation lies no number of times below the ridge.
    let margin =
        margin.is_finite().then(|| Figure::computed(name, margin, Unit::Ratio, name, &[&intensity, &ridge]));
    Some(InitialCall {
        call,
        intensity,
        ridge,
        margin,
        flop_line: work.flop_line.clone(),
        hbm_line: work.hbm_line.clone(),
        flop: work.flop.clone(),
        hbm_bytes: work.hbm_bytes.clone(),
    })
}

/// Whether the measured time bears the initial call out.
fn diagnose(outcome: &mut TriageOutcome, case: &Case<'_>) {
    let Some(initial) = &outcome.initial else { return };
    // Time on one device says nothing of another's roofs.
    if case.cross_device {
        return;
    }
    let busy = |s| case.signals.figure(s).cloned();
    let (hbm, compute) = (busy(Signal::HbmBusy), busy(Signal::ComputeBusy));
    let value = |f: &Option<Figure>| f.as_ref().map_or(0.0, |f| f.value);
    // One percentage that stands for many times the useful bytes, none of them counted, decides nothing.
    let counted = case.signals.get(Signal::ImpliedTraffic).is_none();
    let (memory_holds, compute_holds) = (counted && value(&hbm) >= EXPLAINS, value(&compute) >= EXPLAINS);
    let call = match initial.call {
        Call::NearRidge if memory_holds || compute_holds => Call::NearRidge,
        Call::ComputeBound if compute_holds => Call::ComputeBound,
        // The implementation contradicts the intensity: it moves more than the useful bytes.
        Call::MemoryBound | Call::ComputeBound if memory_holds => Call::MemoryBound,
        _ => Call::Neither,
    };
    let known: Vec<&Figure> = hbm.iter().chain(compute.iter()).collect();
    // What decides nothing flips nothing.
    let (hbm, compute) = (if counted { value(&hbm) } else { 0.0 }, value(&compute));
    // How far each threshold is from flipping the call; the nearest is its margin.
    let ridge = initial.intensity.value / initial.ridge.value;
    let (share, by_ridge) = match call {
        // Below the ridge busy arithmetic does not make a call compute-bound.
        Call::Neither if initial.call == Call::MemoryBound => (EXPLAINS / hbm, None),
        Call::Neither => (EXPLAINS / hbm.max(compute), None),
        Call::NearRidge => (hbm.max(compute) / EXPLAINS, Some(NEAR_RIDGE / ridge.max(1.0 / ridge))),
        Call::ComputeBound => (compute / EXPLAINS, Some(ridge / NEAR_RIDGE)),
        Call::MemoryBound if initial.call == call => (hbm / EXPLAINS, Some(1.0 / ridge / NEAR_RIDGE)),
        Call::MemoryBound => ((hbm / EXPLAINS).min(EXPLAINS / compute), None),
    };
    let near_ridge = by_ridge.filter(|r| *r < share);
    let (value, name, how) = match near_ridge {
        Some(value) => (
            value,
            "intensity's distance from where the call flips",
            format!("intensity and ridge, against {NEAR_RIDGE} x from each other"),
        ),
        None => (
            share,
            "busy share's distance from where the call flips",
            format!(
                "against the {:.0} % of its roof from which on a side explains the time",
                EXPLAINS * 100.0
            ),
        ),
    };
    let inputs: Vec<&Figure> =
        if near_ridge.is_some() { vec![&initial.intensity, &initial.ridge] } else { known.clone() };
    outcome.margin_reason =
        (!value.is_finite()).then(|| "no side that could explain the time is seen to be busy".to_owned());
    outcome.margin = value.is_finite().then(|| Figure::computed(name, value, Unit::Ratio, &how, &inputs));
    outcome.call = Some(call);
}
