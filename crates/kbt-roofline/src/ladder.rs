//! What later steps of the ladder found, as evidence in the matrix: a rate, a trace, a schedule, an algebra, a sweep or a
//! validation speaks for or against a class where the triage alone has only what it would still have to measure.

use crate::candidates::{self, BottleneckClass, CandidateSpec};
use crate::outcome::{
    CandidateRow, CandidateStanding as Standing, OrderStep, Priority, Statement, TriageOutcome,
};
use crate::outputs::first_sentence;
use crate::remeasured::{CHEAPER, Remeasured};
use crate::signals::Signal;
use crate::validation::first_experiment;
use kbt_evidence::{Direction, Evidence, Figure, FixClass, Standing as Ruled, Step, Unit, Verdict};

/// The classes of bottleneck that a class of fix answers; none for one that answers no bottleneck.
const fn answers(class: FixClass) -> &'static [BottleneckClass] {
    use BottleneckClass as B;
    match class {
        FixClass::MemoryTraffic => &[B::MemoryTraffic, B::AccessPattern, B::MemoryLatency, B::OnChipTraffic],
        FixClass::TensorThroughput => &[B::TensorThroughput, B::Overlap],
        FixClass::LaunchShape => &[B::LaunchShape, B::HostSide],
        FixClass::InstructionChoice | FixClass::Algebra => &[B::InstructionPipe],
        FixClass::RoleBalance => &[B::RoleBalance],
        FixClass::Reorder => &[B::Overlap],
        FixClass::RegisterBudget => &[B::Resources],
        FixClass::HandoffSplit => &[B::Synchronisation],
        _ => &[],
    }
}

/// Where the ladder leaves a row; rows of one place keep the triage's order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Recommended,
    AsTriaged,
    RuledOut,
    Barred,
}

impl TriageOutcome {
    /// The same triage with the verdicts of the ladder's later steps in its matrix, ranked anew. What a step recommends
    /// comes first; what one rules out speaks against its classes, and what one rules out by measurement is not
    /// proposed again. Verdicts of the triage itself, and those that could not tell, change nothing.
    ///
    /// This is a view on a run, made anew by whoever shows it, and never written back: the first step's file is what the
    /// later steps were decided on, and a copy with their verdicts in it would be a second account of them, which a run
    /// that is sent back would leave stale.
    #[must_use]
    pub fn with_ladder(&self, verdicts: &[Verdict]) -> Self {
        let mut outcome = self.clone();
        let told: Vec<&Verdict> =
            verdicts.iter().filter(|v| v.step != Step::Triage && v.standing != Ruled::Refused).collect();
        if told.is_empty() || self.evidence.is_empty() {
            return outcome;
        }
        let first_said = first_sentence(outcome.lead());
        // Without an experiment the triage named what comes next; after the ladder that is told anew.
        if outcome.experiments.is_empty() && outcome.confirmed().is_none() {
            let said = outcome.next().action;
            outcome.order.retain(|s| s.action != said);
        }
        let changed = Remeasured::among(&told, outcome.measured_us());
        if let Some(c) = &changed {
            outcome.evidence.extend(c.row());
        }
        for verdict in &told {
            add_missing_row(&mut outcome.evidence, verdict);
        }
        let mut rows: Vec<(Place, CandidateRow)> = Vec::new();
        for mut row in outcome.evidence {
            let (mut place, class) = (Place::AsTriaged, row.class);
            for verdict in told.iter().filter(|v| answers(v.class).contains(&class)) {
                // What a change saved is the row's that it made, not of every row of its class.
                let own = changed.as_ref().filter(|c| std::ptr::eq(*verdict, c.verdict) && c.row().is_some());
                if own.is_none() || row.candidate == CHEAPER {
                    place = apply(&mut row, verdict, place);
                }
            }
            if matches!(row.standing, Standing::Refuted | Standing::Barred) {
                place = Place::Barred;
            }
            rows.push((place, row));
        }
        rows.sort_by_key(|(place, _)| *place);
        outcome.evidence = rows.into_iter().map(|(_, row)| row).collect();
        let at = |id: &str| outcome.evidence.iter().position(|r| r.candidate == id);
        let out = |r: &CandidateRow| matches!(r.standing, Standing::Refuted | Standing::Barred);
        outcome.experiments.retain(|e| at(&e.candidate).is_some_and(|i| !out(&outcome.evidence[i])));
        outcome.experiments.sort_by_key(|e| at(&e.candidate));
        if let Some(c) = &changed {
            c.rebase(&mut outcome);
        }
        reorder(&mut outcome, &told);
        follow(&mut outcome);
        conclude(&mut outcome, &told, &first_said);
        outcome
    }
}

/// What comes next where the ladder leaves no experiment and recommends nothing.
fn follow(outcome: &mut TriageOutcome) {
    let settled = outcome.contradictions.iter().all(|c| !c.settle_first);
    if !settled || outcome.order.iter().any(|s| s.priority == Priority::P1) {
        return;
    }
    let next = outcome.next();
    let at = outcome.order.partition_point(|s| s.priority < Priority::P1);
    outcome.order.insert(at, OrderStep { priority: Priority::P1, action: next.action, why: next.falsified });
}

/// A class that no row of the matrix has gets its first candidate, so that no evidence is lost.
fn add_missing_row(rows: &mut Vec<CandidateRow>, verdict: &Verdict) {
    let classes = answers(verdict.class);
    if verdict.standing == Ruled::Open || rows.iter().any(|r| classes.contains(&r.class)) {
        return;
    }
    rows.extend(candidates::all().find(|c| classes.contains(&c.class)).map(new_row));
}

/// A candidate of which nothing is known yet.
pub(crate) fn new_row(spec: &CandidateSpec) -> CandidateRow {
    CandidateRow {
        candidate: spec.id.to_owned(),
        class: spec.class,
        title: spec.title.to_owned(),
        fix: spec.fix.to_owned(),
        standing: Standing::Open,
        share: None,
        supports: Vec::new(),
        against: Vec::new(),
        looked_for: Vec::new(),
        counter_evidence_looked_for: false,
        needed: Vec::new(),
    }
}

/// Where what speaks for and against a row leaves it, unless an experiment or a measurement has said so.
pub(crate) fn settle(row: &mut CandidateRow) {
    if !matches!(row.standing, Standing::Confirmed | Standing::Refuted | Standing::Barred) {
        row.standing = match (row.supports.is_empty(), row.against.is_empty()) {
            (false, true) => Standing::Supported,
            (false, false) => Standing::Contested,
            (true, false) => Standing::Unlikely,
            (true, true) => Standing::Open,
        };
    }
}

/// A step that loses less than this to what a class answers speaks against the class.
const LITTLE_LOST_PERCENT: f64 = 2.0;

/// Which way evidence of an open verdict speaks. Recordings count a loss for the class that answers it however small it
/// is: there the figure decides.
fn speaks(evidence: &Evidence) -> Direction {
    let lost = |f: &&Figure| f.unit == Unit::Percent && f.name.starts_with("step lost");
    match evidence.figures.iter().find(lost) {
        Some(lost) if lost.value < LITTLE_LOST_PERCENT => Direction::Against,
        _ => evidence.direction,
    }
}

/// The signal that a verdict's step has read, whether it helps or not: it is no longer to be measured.
const fn has_read(verdict: &Verdict) -> Option<Signal> {
    match (verdict.step, verdict.class) {
        (Step::Trace, FixClass::RoleBalance) => Some(Signal::RoleBusy),
        (Step::Schedule, FixClass::RegisterBudget) => Some(Signal::SpillBytes),
        _ => None,
    }
}

fn apply(row: &mut CandidateRow, verdict: &Verdict, place: Place) -> Place {
    if let (Some(signal), false) = (has_read(verdict), verdict.evidence.is_empty()) {
        row.needed.retain(|n| !n.starts_with(signal.meaning()));
    }
    let figures = verdict.evidence.iter().filter(|e| e.direction == Direction::For);
    let statement = Statement {
        text: format!(
            "step {} ({}): {}: {}",
            verdict.step.index(),
            verdict.step,
            verdict.class,
            verdict.reason
        ),
        figures: figures.flat_map(|e| e.figures.iter().cloned()).collect(),
    };
    // What the step itself found that speaks the other way.
    let other = verdict.evidence.iter().filter(|e| e.direction == Direction::Against).map(|e| Statement {
        text: format!("step {} ({}): {}", verdict.step.index(), verdict.step, e.statement),
        figures: e.figures.clone(),
    });
    let place = match verdict.standing {
        Ruled::Recommended => {
            row.supports.insert(0, statement);
            row.against.extend(other);
            place.min(Place::Recommended)
        }
        Ruled::RuledOut => {
            row.against.insert(0, statement);
            row.supports.extend(other);
            row.counter_evidence_looked_for = true;
            // A step that measured stands above a reading of counters.
            if verdict.is_measured() && row.standing != Standing::Confirmed {
                row.standing = Standing::Barred;
            }
            if place == Place::Recommended { place } else { Place::RuledOut }
        }
        _ => {
            let step = format!("step {} ({})", verdict.step.index(), verdict.step);
            // A class of fix that answers one class of bottleneck alone speaks of that one; a wider one cannot say which.
            if let ([_], false) = (answers(verdict.class), verdict.evidence.is_empty()) {
                for evidence in &verdict.evidence {
                    // What speaks against it is settled for its part.
                    let (list, text) = match speaks(evidence) {
                        Direction::For => {
                            (&mut row.supports, format!("{step} leaves it open: {}", evidence.statement))
                        }
                        Direction::Against => (&mut row.against, format!("{step}: {}", evidence.statement)),
                    };
                    list.push(Statement { text, figures: evidence.figures.clone() });
                }
                row.counter_evidence_looked_for |= !row.against.is_empty();
                row.needed.extend(verdict.next.iter().map(|n| format!("{step}: {n}")));
            } else {
                let next = verdict.next.as_ref().map_or_else(String::new, |n| format!("; {n}"));
                row.needed.push(format!("{step} leaves it open: {}{next}", verdict.reason));
            }
            place
        }
    };
    settle(row);
    place
}

/// Priorities follow the new order of the experiments; a wrong result comes before everything.
pub(crate) fn reorder(outcome: &mut TriageOutcome, told: &[&Verdict]) {
    let candidate = |s: &OrderStep| s.action.split(':').next().unwrap_or_default().to_owned();
    let known = |id: &str| candidates::spec(id).is_some();
    // What a step recommends was measured or proven: it comes before what is still an experiment.
    let recommended =
        told.iter().any(|v| v.standing == Ruled::Recommended && v.class != FixClass::Correctness);
    let changed = recommended || outcome.confirmed().is_some();
    let mut steps: Vec<OrderStep> = Vec::new();
    for step in std::mem::take(&mut outcome.order) {
        let id = candidate(&step);
        if !known(&id) {
            steps.push(step);
            continue;
        }
        let Some(index) = outcome.experiments.iter().position(|e| e.candidate == id) else { continue };
        let supported = outcome.evidence.iter().any(|r| r.candidate == id && !r.supports.is_empty());
        let priority = match (index, supported) {
            (0, _) if !changed => Priority::P1,
            (_, true) => Priority::P2,
            (_, false) => Priority::P3,
        };
        steps.push(OrderStep { priority, ..step });
    }
    for verdict in told.iter().filter(|v| v.standing == Ruled::Recommended) {
        let first = verdict.class == FixClass::Correctness;
        let step = OrderStep {
            priority: if first { Priority::P0 } else { Priority::P1 },
            action: verdict.next.clone().unwrap_or_else(|| verdict.class.phrase().to_owned()),
            why: format!("step {} ({}): {}", verdict.step.index(), verdict.step, verdict.reason),
        };
        if first { steps.insert(0, step) } else { steps.push(step) }
    }
    let rank = |s: &OrderStep| outcome.experiments.iter().position(|e| e.candidate == candidate(s));
    steps.sort_by_key(|s| (s.priority, rank(s)));
    outcome.order = steps;
}

fn conclude(outcome: &mut TriageOutcome, told: &[&Verdict], first_said: &str) {
    let Some(lead) = outcome.lead() else { return };
    let by = told
        .iter()
        .rev()
        .find(|v| v.standing == Ruled::Recommended && answers(v.class).contains(&lead.class))
        .map_or_else(String::new, |v| {
            format!(", as step {} ({}) recommends: {}", v.step.index(), v.step, v.class)
        });
    let text = format!(" With what the ladder found: {} ({}){by}.", lead.title, lead.class);
    if let Some(outputs) = &mut outcome.outputs {
        // One statement on what comes first: the ladder's.
        outputs.conclusion = outputs.conclusion.replace(first_said, "");
        outputs.conclusion.push_str(&text);
        match (outcome.experiments.first(), outcome.order.iter().find(|s| s.priority == Priority::P1)) {
            (Some(e), _) => outputs.validation.experiment = first_experiment(e),
            (None, Some(next)) => outputs.validation.experiment = format!("{}: {}", next.action, next.why),
            (None, None) => {}
        }
    }
}

#[cfg(test)]
mod tests;
