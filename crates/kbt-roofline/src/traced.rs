//! What a trace says of the warp roles, in place of what the triage would still have to measure.

use crate::candidates::spec;
use crate::conditions::Condition;
use crate::ladder::{new_row, reorder, settle};
use crate::outcome::{CheckStatus, Statement, TriageOutcome};
use crate::outputs::{MEASURED, NO_EXPERIMENT, first_sentence};
use crate::signals::{Signal, Signals};
use crate::validation::first_experiment;
use crate::{checks, experiments};
use kbt_evidence::{Figure, Unit};

/// The check and the candidate that read how busy the roles are.
const CHECK: &str = "warp_roles";
const CANDIDATE: &str = "role_imbalance";

impl TriageOutcome {
    /// The same triage with the roles of a trace in it: each figure is named as its role and holds the share of the time
    /// that the role does not wait. Roles that the sheet states itself stay as they are.
    #[must_use]
    pub fn with_roles(&self, roles: &[Figure]) -> Self {
        let mut outcome = self.clone();
        let Some(busiest) = roles.iter().max_by(|a, b| a.value.total_cmp(&b.value)) else { return outcome };
        let (Some(check), Some(row)) =
            (outcome.checks.iter_mut().find(|c| c.id == CHECK), checks::row(CHECK))
        else {
            return outcome;
        };
        let mut signals = Signals::default();
        for read in check.conditions.iter().flatten() {
            if let (Some(signal), Some(figure)) = (Signal::named(&read.signal), &read.read) {
                signals.set(signal, figure.clone());
            }
        }
        if signals.get(Signal::RoleBusy).is_some() {
            return outcome;
        }
        let how = format!("{} of {} traced roles", busiest.name, roles.len());
        let busy =
            Figure::computed(&how, busiest.value, Unit::Ratio, &how, &roles.iter().collect::<Vec<_>>());
        signals.set(Signal::RoleBusy, busy);
        let before = check.status;
        *check = checks::apply(row, &signals);
        // Of the check's two questions one may have fired before; then it still does.
        let said = Statement {
            text: format!("{} {}", check.question, check.finding),
            figures: signals.figure(Signal::RoleBusy).cloned().into_iter().collect(),
        };
        let status = check.status;
        let wanted = Signal::RoleBusy.meaning();
        for row in &mut outcome.evidence {
            row.needed.retain(|n| !n.starts_with(wanted));
            let asks = spec(&row.candidate).is_some_and(|s| s.checks.contains(&CHECK));
            match status {
                _ if !asks || status == before => {}
                CheckStatus::Fired => row.supports.push(said.clone()),
                CheckStatus::Clear => row.against.push(said.clone()),
                CheckStatus::NotEvaluated => {}
            }
            settle(row);
        }
        let first_said = first_sentence(outcome.lead());
        balance(&mut outcome, &signals);
        let had = !outcome.experiments.is_empty();
        predict_anew(&mut outcome);
        reorder(&mut outcome, &[]);
        retell(&mut outcome, &first_said, had);
        outcome
    }
}

/// What the experiment on the roles saves follows from the traced share, as the triage could only take all the idle time.
fn predict_anew(outcome: &mut TriageOutcome) {
    let measured =
        outcome.outputs.as_ref().and_then(|o| o.artifact.rows.iter().find(|r| r.quantity == MEASURED));
    let (Some(time), Some(row)) = (
        measured.map(|r| r.figure.clone()),
        outcome.evidence.iter().find(|r| r.candidate == CANDIDATE).cloned(),
    ) else {
        return;
    };
    let Some(at) = outcome.experiments.iter().position(|e| e.candidate == CANDIDATE) else { return };
    let old = outcome.experiments.remove(at);
    let before = old.prediction.clone();
    if let Some(new) = experiments::anew(old, &row, &time, &outcome.bounds) {
        for step in &mut outcome.order {
            step.why = step.why.replace(&before, &new.prediction);
        }
        outcome.experiments.insert(at, new);
    }
}

/// The words that stood on the share before the trace.
fn retell(outcome: &mut TriageOutcome, first_said: &str, had: bool) {
    let now = first_sentence(outcome.lead());
    let first = outcome.experiments.first().map(first_experiment);
    if let Some(outputs) = &mut outcome.outputs {
        outputs.conclusion = outputs.conclusion.replace(first_said, &now);
        match first {
            Some(first) => outputs.validation.experiment = first,
            None if had => outputs.validation.experiment = NO_EXPERIMENT.to_owned(),
            None => {}
        }
    }
}

/// The candidate that is about the roles alone.
fn balance(outcome: &mut TriageOutcome, signals: &Signals) {
    let Some(candidate) = spec(CANDIDATE) else { return };
    let reads = |c: &&Condition| c.signal == Signal::RoleBusy;
    let supports: Vec<Statement> = candidate
        .supports
        .iter()
        .flat_map(|group| group.iter())
        .filter(reads)
        .filter(|c| c.holds(signals) == Some(true))
        .filter_map(|c| c.statement(signals))
        .collect();
    if !supports.is_empty() && outcome.evidence.iter().all(|r| r.candidate != CANDIDATE) {
        outcome.evidence.push(new_row(candidate));
    }
    let Some(row) = outcome.evidence.iter_mut().find(|r| r.candidate == CANDIDATE) else { return };
    row.supports.extend(supports);
    for condition in candidate.against.iter().filter(reads) {
        match condition.holds(signals) {
            Some(true) => row.against.extend(condition.statement(signals)),
            Some(false) => row.looked_for.extend(condition.not_against(signals)),
            None => {}
        }
        row.counter_evidence_looked_for = true;
    }
    // The idle time of the busiest role stands where all the idle time stood.
    row.share = (candidate.claim)(signals);
    settle(row);
}
