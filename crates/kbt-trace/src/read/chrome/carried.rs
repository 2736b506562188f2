//! What kbt's own export writes beside the events, so that an exported trace says no more than the one it came from.

use crate::read::{CHROME_LEVEL, CHROME_PROBLEMS, CHROME_STEPS};
use crate::{Barrier, EventName, Level, Problem, ProblemKind, Problems, StepRule};
use serde::Deserialize;
use serde_json::Value;

/// The level it was recorded at, where it says so.
pub(super) fn level(other_data: &Value, problems: &mut Problems) -> Option<Level> {
    let stated = other_data.get(CHROME_LEVEL)?;
    let level = Level::deserialize(stated).ok();
    problems.add(ProblemKind::Inconsistent, None, u64::from(level.is_none()), || {
        let known = Level::ALL.map(Level::as_str).join(", ");
        format!("otherData.{CHROME_LEVEL}: {stated}; accepted: {known}")
    });
    level
}

/// Where the steps of this role start, if it says so and records of that kind are there.
pub(super) fn step(other_data: &Value, role: &str, events: &[EventName], barriers: &[Barrier]) -> StepRule {
    let start = other_data.get(CHROME_STEPS).and_then(|steps| steps.get(role));
    let named = |key| start.and_then(|start| start.get(key)).and_then(Value::as_str);
    let id = |index: Option<usize>| index.and_then(|index| u16::try_from(index).ok());
    let wait = named("wait").and_then(|name| id(barriers.iter().position(|b| b.name == name)));
    let event = named("event").and_then(|name| id(events.iter().position(|e| e.name == name)));
    wait.map(StepRule::Wait).or(event.map(StepRule::Event)).unwrap_or(StepRule::Unstated)
}

/// What damages the trace that was exported.
pub(super) fn problems(carried: &Value, problems: &mut Problems) {
    let list = match carried {
        Value::Null => &[][..],
        Value::Array(list) => list,
        one => std::slice::from_ref(one),
    };
    for (index, value) in list.iter().enumerate() {
        match Problem::deserialize(value) {
            Ok(Problem { kind, role, count, says }) => {
                let place = says.strip_prefix(kind.says()).unwrap_or_default().trim();
                let place = place.strip_prefix('(').and_then(|p| p.strip_suffix(')')).unwrap_or(place);
                let place = format!("before its export{}{place}", if place.is_empty() { "" } else { "; " });
                problems.add(kind, role.as_deref(), count.max(1), || place);
            }
            Err(e) => problems.add(ProblemKind::Inconsistent, None, 1, || {
                format!("{CHROME_PROBLEMS}, entry {index}: {e}; accepted: what kbt writes there")
            }),
        }
    }
}
