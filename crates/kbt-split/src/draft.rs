//! A point between its first process and its record.

use crate::point::Checked;
use crate::record::{CheckOutcome, Ending, Record, Stage};
use kbt_target::{CompareError, Comparison, Launch, Report, Sample, Side, Status};
use std::collections::BTreeMap;

/// A point to be run, and what is known of it already.
pub(crate) struct Asked {
    pub(crate) index: usize,
    /// What a screening found.
    pub(crate) screened: Option<Record>,
    pub(crate) checked: Option<Checked>,
}

/// The check that lets a point be timed, or its end.
pub(crate) type Allowed = Result<CheckOutcome, Box<Draft>>;

/// A point before it is timed.
pub(crate) struct Begun {
    pub(crate) index: usize,
    pub(crate) report: Report,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) elapsed_s: f64,
}

/// What is known of a point so far.
pub(crate) struct Draft {
    pub(crate) ending: Ending,
    pub(crate) check: Option<CheckOutcome>,
    pub(crate) comparison: Option<Comparison>,
    pub(crate) samples: Vec<Sample>,
}

impl Draft {
    pub(crate) fn ended(ending: Ending) -> Self {
        Self { ending, check: None, comparison: None, samples: Vec::new() }
    }
}

/// What came of timing a point against another.
pub(crate) fn after_comparison(
    result: Result<Comparison, CompareError>,
    check: CheckOutcome,
    against: usize,
) -> Draft {
    let check = Some(check);
    match result {
        Ok(comparison) => {
            Draft { ending: Ending::Timed, check, comparison: Some(comparison), samples: Vec::new() }
        }
        Err(error) if error.side == Side::B => {
            Draft { check, ..Draft::ended(failed(Stage::Timing, &error.launch)) }
        }
        Err(error) => {
            let reason =
                format!("setting {against}, which it was timed against, failed: {}", error.launch.status);
            Draft { check, ..Draft::ended(Ending::Unmeasured { reason }) }
        }
    }
}

/// What a check allows: to be timed, or an end.
pub(crate) fn judged(check: Result<CheckOutcome, String>) -> Allowed {
    let ended = |ending, check| Err(Box::new(Draft { check, ..Draft::ended(ending) }));
    match check {
        Err(reason) => ended(Ending::Unmeasured { reason: format!("not checked: {reason}") }, None),
        Ok(CheckOutcome::Wrong { statement }) => {
            ended(Ending::Wrong { statement: statement.clone() }, Some(CheckOutcome::Wrong { statement }))
        }
        Ok(check) => Ok(check),
    }
}

/// A process that failed, as the end of its point. One that could not be started says nothing of the setting.
pub(crate) fn failed(stage: Stage, launch: &Launch) -> Ending {
    if matches!(launch.status, Status::NotStarted { .. }) {
        return Ending::Unmeasured { reason: launch.status.to_string() };
    }
    Ending::Failed { stage, status: launch.status.clone(), stderr: launch.stderr_tail.clone() }
}
