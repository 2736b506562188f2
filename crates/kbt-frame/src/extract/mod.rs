//! Reads a table out of a run by its layout. Tolerant of fields that are new or absent, strict on the type of those
//! that are read, and on the rule that a number has a provenance around it.

mod builder;
mod row;

use crate::layout::{Layout, Source};
use crate::run::Run;
use crate::table::{Missing, Table};
use crate::{FrameError, StepFile};
use builder::Builder;
use kbt_evidence::Step;
use row::Row;
use serde_json::Value;

/// The table, or why there is none.
pub(crate) fn table(layout: &'static Layout, run: &Run) -> Result<Result<Table, Missing>, FrameError> {
    let missing = |why: String| Ok(Err(Missing { table: layout.name, why, compared: layout.compared }));
    let mut builder = Builder::new(layout);
    match layout.from {
        Source::Steps => {
            for file in run.steps.values() {
                builder.walk(&Row::root(&file.path, &file.value, ""), layout.rows)?;
            }
        }
        Source::Profile => {
            let path = run.dir.join("profile.yaml");
            let Some(profile) = &run.profile else {
                return missing(
                    "the run has no profile.yaml, which is written where the rates are measured".into(),
                );
            };
            builder.walk(&Row::root(&path, profile, ""), layout.rows)?;
        }
        Source::Outcome(step) => {
            let Some(file) = run.steps.get(&step) else {
                return missing(format!("step {step} has not finished"));
            };
            let Some(outcome) = file.value.get("outcome") else { return missing(refusal(step, file)) };
            let root = Row::root(&file.path, outcome, "outcome");
            if let Some(first) = layout.rows.first()
                && root.find(first)?.is_none()
            {
                return missing(format!("the outcome of step {step} has no `{first}`"));
            }
            builder.walk(&root, layout.rows)?;
        }
    }
    Ok(Ok(builder.finish()))
}

fn refusal(step: Step, file: &StepFile) -> String {
    let said = |field: &str| file.value.get(field).and_then(Value::as_str);
    let mut why = format!("step {step}: {}", said("headline").unwrap_or("refused"));
    if let Some(needs) = said("needs") {
        why += &format!("; it needs {needs}");
    }
    why
}
