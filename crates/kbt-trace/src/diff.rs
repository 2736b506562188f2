//! Two traces beside each other, role by role, and a gate on what grew.

use crate::TraceError;
use crate::outcome::{RoleStats, TraceOutcome};
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One number of both traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The role.
    pub role: String,
    /// The metric: `period`, `busy`, `slack`, `wait NAME` or `event NAME`, a step's mean.
    pub metric: String,
    /// In the first trace.
    pub a_cycles: Option<f64>,
    /// In the second.
    pub b_cycles: Option<f64>,
    /// The second over the first, minus one; `None` where either is missing or the first is 0.
    pub change_percent: Option<f64>,
}

/// Two traces compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceDiff {
    /// Always `kbt.trace-diff/1`.
    pub schema: String,
    /// Of both traces.
    pub provenance: Provenance,
    /// Metrics, by role in the order of the first trace.
    pub changes: Vec<Change>,
    /// What makes the two unlike beyond their numbers.
    pub notes: Vec<String>,
}

/// A limit on how much a metric may grow.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// The metric, as [`Change::metric`] names it.
    pub metric: String,
    /// Growth allowed, in percent.
    pub percent: f64,
}

impl std::str::FromStr for Gate {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        let parse = || {
            let (metric, percent) = text.split_once('=')?;
            let percent: f64 = percent.trim().trim_end_matches('%').trim().parse().ok()?;
            (!metric.trim().is_empty() && percent.is_finite())
                .then(|| Self { metric: metric.trim().to_owned(), percent })
        };
        parse().ok_or_else(|| TraceError::Argument {
            what: "gate",
            found: text.to_owned(),
            accepted: "METRIC=PERCENT, for example period=3 or 'wait P_full1=10'".into(),
        })
    }
}

/// Compares two traces. A role or metric that one of them lacks has no value there.
#[must_use]
pub fn diff(a: &TraceOutcome, b: &TraceOutcome) -> TraceDiff {
    let mut names: Vec<&str> = a.roles.iter().map(|r| r.name.as_str()).collect();
    names.extend(b.roles.iter().map(|r| r.name.as_str()).filter(|n| a.role(n).is_none()));
    let changes = names.iter().flat_map(|name| role(name, a.role(name), b.role(name))).collect();
    let mut notes = Vec::new();
    if a.trace.level != b.trace.level {
        notes.push("the levels differ: part of each change is the tracer's".to_owned());
    }
    if a.trace.format != b.trace.format {
        notes.push("the recorders differ: part of each change is theirs".to_owned());
    }
    for (which, outcome) in [("first", a), ("second", b)] {
        if !outcome.absolute.is_accepted() {
            notes.push(format!("{which} trace: {}", outcome.absolute.reason()));
        }
    }
    let inputs = [("first trace", &a.provenance), ("second trace", &b.provenance)];
    TraceDiff {
        schema: "kbt.trace-diff/1".into(),
        provenance: Provenance::computed("one trace beside the other", inputs),
        changes,
        notes,
    }
}

fn role(name: &str, a: Option<&RoleStats>, b: Option<&RoleStats>) -> Vec<Change> {
    let metrics = |r: Option<&RoleStats>| {
        let mut found = Vec::new();
        if let Some(r) = r {
            found.push(("period".to_owned(), r.mean_period_cycles));
            found.push(("busy".to_owned(), r.busy_cycles));
            found.push(("slack".to_owned(), r.slack_cycles));
            found.extend(r.waits.iter().map(|w| (format!("wait {}", w.on), w.cycles)));
            found.extend(r.events.iter().map(|e| (format!("event {}", e.name), e.cycles)));
        }
        found
    };
    let (a, b) = (metrics(a), metrics(b));
    let mut seen = BTreeSet::new();
    let of =
        |side: &[(String, Option<f64>)], metric: &str| side.iter().find(|m| m.0 == metric).and_then(|m| m.1);
    let names = a.iter().chain(&b).map(|m| m.0.clone()).filter(|m| seen.insert(m.clone()));
    names
        .map(|metric| {
            let (a_cycles, b_cycles) = (of(&a, &metric), of(&b, &metric));
            let both = a_cycles.zip(b_cycles).filter(|(a, _)| *a != 0.0);
            let change_percent = both.map(|(a, b)| 100.0 * (b - a) / a);
            Change { role: name.to_owned(), metric, a_cycles, b_cycles, change_percent }
        })
        .collect()
}

impl TraceDiff {
    /// Changes that a gate forbids. A gate whose metric neither trace has is an error.
    ///
    /// # Errors
    /// If no role has the metric in both traces.
    pub fn violations(&self, gates: &[Gate]) -> Result<Vec<String>, TraceError> {
        let mut found = Vec::new();
        for gate in gates {
            let of_gate = self.changes.iter().filter(|c| c.metric == gate.metric);
            let changes: Vec<_> = of_gate.filter_map(|c| Some((c, c.change_percent?))).collect();
            if changes.is_empty() {
                let metrics: BTreeSet<_> = self.changes.iter().map(|c| c.metric.as_str()).collect();
                return Err(TraceError::Argument {
                    what: "gate",
                    found: gate.metric.clone(),
                    accepted: metrics.into_iter().collect::<Vec<_>>().join(", "),
                });
            }
            let over = changes.into_iter().filter(|(_, percent)| *percent > gate.percent);
            found.extend(over.map(|(c, percent)| {
                format!("{} {}: {percent:+.2} %, allowed {:+.2} %", c.role, c.metric, gate.percent)
            }));
        }
        Ok(found)
    }

    /// One line a metric.
    #[must_use]
    pub fn render_text(&self) -> String {
        let cycles = |c: Option<f64>| c.map_or_else(|| "-".into(), |c| format!("{c:.0}"));
        let mut out = String::new();
        for c in &self.changes {
            let change = c.change_percent.map_or_else(String::new, |p| format!("{p:+.2} %"));
            out += &format!(
                "{:<12} {:<20} {:>10} -> {:>10} clk  {change}\n",
                c.role,
                c.metric,
                cycles(c.a_cycles),
                cycles(c.b_cycles)
            );
        }
        self.notes.iter().for_each(|note| out += &format!("note: {note}\n"));
        out
    }
}
