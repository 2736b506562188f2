//! What sets the pace: follow the longest waits to whoever releases them.
//!
//! A role is critical if its slack is less than [`CRITICAL_PERCENT`] of its period: it could not do more and keep
//! the pace. Where a role has steps and no known slack, or the trace is of level detail, nothing is said.
//! If there is none, the walk starts at the role with the least slack and goes from each role along its longest wait to
//! the role that releases it; it ends in a circle, at the hardware, or where no edge is known.

use crate::Level;
use crate::outcome::{Critical, RoleStats, WaitStats};

/// A role with less slack than this part of its period sets the pace.
pub(crate) const CRITICAL_PERCENT: f64 = 5.0;

/// Slack of a role in percent of its period.
pub(crate) fn slack_percent(role: &RoleStats) -> Option<f64> {
    let period = role.mean_period_cycles.filter(|p| *p > 0.0)?;
    role.slack_cycles.map(|slack| 100.0 * slack / period)
}

pub(super) fn find(roles: &[RoleStats], level: Option<Level>) -> Critical {
    let unknown = |reason: &str| Critical::Unknown { reason: reason.into() };
    if level == Some(Level::Detail) {
        return unknown("refused at level detail, where another role can set it; record at level coarse");
    }
    let with_slack: Vec<_> = roles.iter().filter_map(|r| Some((r, slack_percent(r)?))).collect();
    let without = |role: &RoleStats| {
        let (why, advice) = if role.waits.is_empty() {
            ("recorded steps, but no waits", "record its waits too")
        } else if role.steady_steps == 0 {
            ("recorded no whole step", "record more steps of it")
        } else {
            ("has steps that the clock is too coarse to tell", "record SM cycles")
        };
        Critical::Unknown {
            reason: format!("{} {why}: whether it sets the pace is not known; {advice}", role.name),
        }
    };
    if with_slack.is_empty() {
        if let Some(role) = roles.iter().find(|r| r.steps > 0 && !r.waits.is_empty()) {
            return without(role);
        }
        return unknown(
            "no role recorded both waits and steps; record wait-begin and wait-end around each barrier",
        );
    }
    // A role that may be busy all the time could set the pace alone, so that nothing may be said of the others.
    if let Some(role) = roles.iter().find(|r| r.steps > 0 && slack_percent(r).is_none()) {
        return without(role);
    }
    let critical: Vec<_> = with_slack
        .iter()
        .filter(|(_, slack)| *slack < CRITICAL_PERCENT)
        .map(|(r, _)| r.name.clone())
        .collect();
    if !critical.is_empty() {
        return Critical::Roles { roles: critical };
    }
    let Some(&(start, _)) = with_slack.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else {
        return unknown("no role has steps");
    };
    let mut path: Vec<(&RoleStats, &WaitStats)> = Vec::new();
    let mut at = start;
    loop {
        if let Some(begin) = path.iter().position(|(role, _)| std::ptr::eq(*role, at)) {
            let (roles, barriers) =
                path[begin..].iter().map(|(role, wait)| (role.name.clone(), wait.on.clone())).unzip();
            return Critical::Cycle { roles, barriers };
        }
        let Some(wait) = longest(at) else {
            return unknown("every role waits, but the waits are shorter than the clock can tell");
        };
        let released = |name: &String| roles.iter().find(|r| r.name == *name && slack_percent(r).is_some());
        // A barrier with several releasers is as late as the busiest of them: the one with the least slack.
        let next = wait.released_by.iter().filter_map(released).min_by(|a, b| {
            slack_percent(a).partial_cmp(&slack_percent(b)).unwrap_or(std::cmp::Ordering::Equal)
        });
        match next {
            Some(next) => {
                path.push((at, wait));
                at = next;
            }
            None if wait.hardware.is_some() => {
                return Critical::Hardware { role: at.name.clone(), barrier: wait.on.clone() };
            }
            None if !wait.released_by.is_empty() => {
                let reason = format!(
                    "every role waits, and {}, which releases {} for {}, recorded neither steps nor waits; record it too",
                    wait.released_by.join(" or "),
                    wait.on,
                    at.name
                );
                return Critical::Unknown { reason };
            }
            None => {
                let reason = format!(
                    "every role waits, and who releases {} for {} is not recorded; name the barrier's edges",
                    wait.on, at.name
                );
                return Critical::Unknown { reason };
            }
        }
    }
}

fn longest(role: &RoleStats) -> Option<&WaitStats> {
    let timed = role.waits.iter().filter_map(|w| Some((w, w.cycles?)));
    timed.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(wait, _)| wait)
}
