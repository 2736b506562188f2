//! Gates: limits on the metrics of a comparison.

use super::TraceDiff;
use crate::text::digits;
use crate::{Problem, ProblemKind, TraceError, spelt};
use std::collections::BTreeSet;

/// What a metric may be at most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// This much more than in the first trace, in percent of it.
    Growth(f64),
    /// This value in the second trace, in cycles; for a ring in slots.
    Value(f64),
}

/// A limit on a metric of one role, or of every role that has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// The metric, as [`Change::metric`](super::Change::metric) names it, or `ring NAME`: of every role that has it;
    /// with `ROLE: ` in front, of that role. Names are held against it whole, so that they may have colons too.
    pub what: String,
    /// The limit.
    pub limit: Limit,
}

impl Gate {
    fn covers(&self, role: Option<&str>, metric: &str) -> bool {
        self.what == metric.trim() || role.and_then(|role| of_role(&self.what, role)) == Some(metric.trim())
    }
}

/// What `what` says after this role and a colon.
fn of_role<'a>(what: &'a str, role: &str) -> Option<&'a str> {
    Some(what.strip_prefix(role.trim())?.trim_start().strip_prefix(':')?.trim())
}

impl std::str::FromStr for Gate {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        let number = |text: &str, unit: &str| {
            let text = text.trim();
            let value = text.strip_suffix(unit).unwrap_or(text).trim().parse().ok()?;
            f64::is_finite(value).then_some(value)
        };
        let parse = || {
            // From the end, since a name may hold these signs too.
            let value = text.rsplit_once("<=");
            let value = value.and_then(|(what, value)| Some((what, Limit::Value(number(value, "clk")?))));
            let growth = || {
                let (what, percent) = text.rsplit_once('=').filter(|(what, _)| !what.ends_with('<'))?;
                Some((what, Limit::Growth(number(percent, "%")?)))
            };
            let (what, limit) = value.or_else(growth)?;
            let what = what.trim();
            let named = !what.is_empty() && !what.starts_with(':');
            // What no trace can meet is a slip.
            let possible = match limit {
                Limit::Growth(percent) => percent >= -100.0,
                Limit::Value(value) => value >= 0.0,
            };
            (named && possible).then(|| Self { what: what.to_owned(), limit })
        };
        parse().ok_or_else(|| TraceError::Argument {
            what: "gate",
            found: text.to_owned(),
            accepted: "METRIC=PERCENT of growth, at least -100, or METRIC<=CYCLES, at least 0, each with `ROLE:` in front for one role: period=3, \
                       'wait P_full1=10', 'Softmax0: busy<=2500'"
                .into(),
        })
    }
}

impl std::fmt::Display for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.limit {
            Limit::Growth(percent) => write!(f, "{}={percent}", self.what),
            Limit::Value(value) => write!(f, "{}<={value}", self.what),
        }
    }
}

/// Role, metric, both values and the change.
type Judged<'a> = (Option<&'a str>, String, Option<f64>, Option<f64>, Option<f64>);

impl Limit {
    /// Why these values are over the limit, or cannot be held against it.
    fn forbids(self, (a, b): (Option<f64>, Option<f64>), percent: Option<f64>) -> Option<String> {
        match (self, b, percent) {
            (_, None, _) => Some("not in the second trace, so that the gate cannot be judged".into()),
            (Self::Growth(_), _, _) if a.is_none() => {
                Some("not in the first trace, so that the gate cannot be judged".into())
            }
            (Self::Growth(_), Some(b), None) => Some(format!("from 0 to {b:.2}, which no percentage tells")),
            (Self::Growth(limit), _, Some(p)) => {
                let digits = digits(p, limit);
                (p > limit).then(|| format!("{p:+.digits$} %, allowed {limit:+.digits$} %"))
            }
            (Self::Value(limit), Some(b), _) => {
                let digits = digits(b, limit);
                (b > limit).then(|| format!("{b:.digits$}, allowed at most {limit:.digits$}"))
            }
        }
    }
}

impl TraceDiff {
    /// Judges every gate and keeps what it forbids in [`TraceDiff::violations`]. Where a role has the metric in one
    /// trace alone, or its growth cannot be told, that is a violation too: a gate never passes for want of a number. So
    /// is growth of a mean over steady steps against one that holds the prologue too.
    ///
    /// A trace with a problem that [damages](ProblemKind::damages) it is the caller's to refuse.
    ///
    /// # Errors
    /// If no role has the metric in either trace.
    pub fn judge(&mut self, gates: &[Gate]) -> Result<(), TraceError> {
        let mut found = Vec::new();
        for gate in gates {
            let mut seen = false;
            for (role, metric, a, b, percent) in self.judged() {
                if !gate.covers(role, &metric) || (a.is_none() && b.is_none()) {
                    continue;
                }
                seen = true;
                let what = role.map_or_else(|| metric.clone(), |role| format!("{role} {metric}"));
                let unlike = role.filter(|_| !matches!(metric.as_str(), "prologue" | "tail"));
                let why = match (gate.limit, unlike.and_then(|role| self.steady_in_one(role))) {
                    (Limit::Growth(_), Some(which)) => Some(format!(
                        "steady steps in the {which} trace alone, so that the gate cannot be judged"
                    )),
                    (limit, _) => limit.forbids((a, b), percent),
                };
                found.extend(why.map(|why| spelt(&format!("{what}: {why}")).into_owned()));
            }
            if !seen {
                return Err(self.unknown(gate));
            }
        }
        self.violations = found;
        Ok(())
    }

    /// The trace that has steady steps of `role` where the other one's steps are too few to tell them.
    fn steady_in_one(&self, role: &str) -> Option<&'static str> {
        // A problem is told by the name alone.
        let plain = role.rsplit_once(" #").filter(|(_, n)| n.bytes().all(|c| c.is_ascii_digit()));
        let names = [Some(role), plain.map(|plain| plain.0)];
        let short = |problems: &[Problem]| {
            problems.iter().any(|p| {
                p.kind == ProblemKind::PrologueOnly && p.role.is_some() && names.contains(&p.role.as_deref())
            })
        };
        match (short(&self.a_problems), short(&self.b_problems)) {
            (false, true) => Some("first"),
            (true, false) => Some("second"),
            _ => None,
        }
    }

    /// Every number that a gate can be about: role, metric, both values, change.
    fn judged(&self) -> impl Iterator<Item = Judged<'_>> {
        let rings = self.rings.iter();
        let rings = rings.map(|r| (None, format!("ring {}", r.name), r.a_slots, r.b_slots, r.change_percent));
        let roles = self.changes.iter();
        let roles = roles
            .map(|c| (Some(c.role.as_str()), c.metric.clone(), c.a_cycles, c.b_cycles, c.change_percent));
        roles.chain(rings)
    }

    fn unknown(&self, gate: &Gate) -> TraceError {
        let known = self.judged().filter(|(_, _, a, b, _)| a.is_some() || b.is_some());
        // Of roles whose names begin alike the longest is meant.
        let roles = self.changes.iter().map(|c| c.role.as_str());
        let role = roles.filter(|role| of_role(&gate.what, role).is_some()).max_by_key(|role| role.len());
        let metrics: BTreeSet<String> = match role {
            Some(role) => known.filter(|j| j.0 == Some(role)).map(|j| format!("{role}: {}", j.1)).collect(),
            None => {
                let of_roles = self.changes.iter().filter(|_| gate.what.contains(':'));
                of_roles.map(|c| format!("{}: …", c.role)).chain(known.map(|j| j.1)).collect()
            }
        };
        TraceError::Argument {
            what: "gate",
            found: spelt(&gate.to_string()).into_owned(),
            accepted: metrics.iter().map(|metric| spelt(metric)).collect::<Vec<_>>().join(", "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_barely_over_its_limit_is_not_rounded_to_it() {
        let grown = Limit::Growth(5.0).forbids((Some(1e5), Some(105_001.0)), Some(5.001));
        assert_eq!(grown.as_deref(), Some("+5.001 %, allowed +5.000 %"));
        let value = Limit::Value(700.0).forbids((None, Some(700.0004)), None);
        assert_eq!(value.as_deref(), Some("700.0004, allowed at most 700.0000"));
        assert_eq!(Limit::Growth(5.0).forbids((Some(1.0), Some(1.05)), Some(5.0)), None);
    }

    #[test]
    fn what_no_trace_can_meet_is_no_gate() {
        for bad in ["period=-100.1", "period<=-1", "period = -200 %"] {
            let message = bad.parse::<Gate>().unwrap_err().to_string();
            assert!(message.contains("at least -100, or METRIC<=CYCLES, at least 0"), "{message}");
        }
        for sound in ["period=-100", "period=-5", "tail<=0"] {
            assert!(sound.parse::<Gate>().is_ok(), "{sound}");
        }
    }
}
