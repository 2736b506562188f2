//! Two traces beside each other, role by role. A [`Gate`] judges what grew.

mod gate;

pub use gate::{Gate, Limit};

use crate::Problem;
use crate::outcome::{EventStats, RingStats, RoleStats, TraceOutcome, WaitStats};
use crate::text::Lines;
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One number of both traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The role; `NAME #1` and so on where a trace has several of that name.
    pub role: String,
    /// The metric: `period`, `busy`, `slack`, `wait NAME` and `event NAME` are a step's mean; `period p90`, `prologue`,
    /// `tail` and `round trip NAME` are what their names say, the last three as medians. Barriers or events of a role
    /// that share a name are numbered as roles are.
    pub metric: String,
    /// In the first trace.
    pub a_cycles: Option<f64>,
    /// In the second.
    pub b_cycles: Option<f64>,
    /// The second over the first, minus one; `None` where either is missing or the first is 0.
    pub change_percent: Option<f64>,
}

/// How full a ring of buffers is in both traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RingChange {
    /// The ring; as a metric of a gate it is `ring NAME`.
    pub name: String,
    /// Mean slots taken in the first trace.
    pub a_slots: Option<f64>,
    /// In the second.
    pub b_slots: Option<f64>,
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
    /// How full the rings of buffers are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rings: Vec<RingChange>,
    /// What the gates forbid or cannot judge; set by [`TraceDiff::judge`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<String>,
    /// What makes the two unlike beyond their numbers.
    pub notes: Vec<String>,
    /// What is odd about the first trace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub a_problems: Vec<Problem>,
    /// What is odd about the second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub b_problems: Vec<Problem>,
}

/// Compares two traces. A role or metric that one of them lacks has no value there.
#[must_use]
pub fn diff(a: &TraceOutcome, b: &TraceOutcome) -> TraceDiff {
    let (a_roles, b_roles) = paired(&a.roles, &b.roles, |r| &r.name);
    let of = |side: &[(String, &RoleStats)], name: &str| side.iter().position(|r| r.0 == name);
    let mut changes = Vec::new();
    for (name, left) in &a_roles {
        let right = of(&b_roles, name).map(|index| b_roles[index].1);
        changes.extend(role(name, Some(left), right));
    }
    for (name, right) in b_roles.iter().filter(|r| of(&a_roles, &r.0).is_none()) {
        changes.extend(role(name, None, Some(right)));
    }
    let (a_rings, b_rings) = paired(&a.rings, &b.rings, |r| &r.name);
    let ring = |side: &[(String, &RingStats)], name: &str| side.iter().position(|r| r.0 == name);
    let known: BTreeSet<&String> = a_rings.iter().chain(&b_rings).map(|r| &r.0).collect();
    let rings = known.into_iter().map(|name| {
        let slots = |side: &[(String, &RingStats)]| ring(side, name).map(|index| side[index].1.mean_slots);
        let (a_slots, b_slots) = (slots(&a_rings), slots(&b_rings));
        RingChange { name: name.clone(), a_slots, b_slots, change_percent: percent(a_slots, b_slots) }
    });
    let rings: Vec<_> = rings.collect();
    let mut notes = Vec::new();
    if a.trace.level != b.trace.level {
        notes.push("the levels differ: part of each change is the tracer's".to_owned());
    }
    if a.trace.format != b.trace.format {
        notes.push("the recorders differ: part of each change is theirs".to_owned());
    }
    if let (Some(a), Some(b)) = (&a.provenance.device, &b.provenance.device)
        && a != b
    {
        notes.push(format!("the devices differ: {a} and {b}"));
    }
    for (name, left) in &a_rings {
        if ring(&b_rings, name).is_some_and(|index| b_rings[index].1.counted != left.counted) {
            notes.push(format!("ring {name}: the traces count it differently, by arrivals and by waits"));
        }
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
        rings,
        violations: Vec::new(),
        notes,
        a_problems: a.problems.clone(),
        b_problems: b.problems.clone(),
    }
}

/// Things of a trace, each with the name that it has in a comparison.
type Named<'a, T> = Vec<(String, &'a T)>;

/// Things of one kind of both traces. Those of one trace that share a name are numbered in their order, in both traces:
/// `NAME #1` and so on.
fn paired<'a, T>(a: &'a [T], b: &'a [T], name: impl Fn(&T) -> &String) -> (Named<'a, T>, Named<'a, T>) {
    let count = |side: &[T], wanted: &String| side.iter().filter(|one| name(one) == wanted).count();
    let names = |side: &'a [T]| {
        let named = side.iter().enumerate().map(|(index, one)| {
            let name = name(one);
            if count(a, name).max(count(b, name)) < 2 {
                return (name.clone(), one);
            }
            (format!("{name} #{}", count(&side[..=index], name)), one)
        });
        named.collect()
    };
    (names(a), names(b))
}

fn percent(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a?, b?) {
        (0.0, 0.0) => Some(0.0),
        (0.0, _) => None,
        (a, b) => Some(100.0 * (b - a) / a),
    }
}

fn role<'a>(name: &str, a: Option<&'a RoleStats>, b: Option<&'a RoleStats>) -> Vec<Change> {
    let of = |r: Option<&RoleStats>, waits: &Named<'_, WaitStats>, events: &Named<'_, EventStats>| {
        let mut found = Vec::new();
        if let Some(r) = r {
            found.push(("period".to_owned(), r.mean_period_cycles));
            found.push(("period p90".to_owned(), r.period_cycles.map(|p| p.p90)));
            found.push(("busy".to_owned(), r.busy_cycles));
            found.push(("slack".to_owned(), r.slack_cycles));
            found.push(("prologue".to_owned(), r.prologue_cycles));
            found.push(("tail".to_owned(), r.tail_cycles));
            found.extend(waits.iter().map(|(name, w)| (format!("wait {name}"), w.cycles)));
            found.extend(waits.iter().filter_map(|(name, w)| {
                Some((format!("round trip {name}"), Some(w.round_trip_cycles?.median)))
            }));
            found.extend(events.iter().map(|(name, e)| (format!("event {name}"), e.cycles)));
        }
        found
    };
    let waits = |r: Option<&'a RoleStats>| r.map_or(&[][..], |r| &r.waits);
    let events = |r: Option<&'a RoleStats>| r.map_or(&[][..], |r| &r.events);
    let (a_waits, b_waits) = paired(waits(a), waits(b), |w| &w.on);
    let (a_events, b_events) = paired(events(a), events(b), |e| &e.name);
    let (a, b) = (of(a, &a_waits, &a_events), of(b, &b_waits, &b_events));
    let mut seen = BTreeSet::new();
    let of =
        |side: &[(String, Option<f64>)], metric: &str| side.iter().find(|m| m.0 == metric).and_then(|m| m.1);
    let names = a.iter().chain(&b).map(|m| m.0.clone()).filter(|m| seen.insert(m.clone()));
    names
        .map(|metric| {
            let (a_cycles, b_cycles) = (of(&a, &metric), of(&b, &metric));
            let change_percent = percent(a_cycles, b_cycles);
            Change { role: name.to_owned(), metric, a_cycles, b_cycles, change_percent }
        })
        .collect()
}

impl TraceDiff {
    /// One line a metric.
    #[must_use]
    pub fn render_text(&self) -> String {
        let cycles = |c: Option<f64>| c.map_or_else(|| "-".into(), |c| format!("{c:.0}"));
        let mut out = Lines::default();
        for c in &self.changes {
            let change = c.change_percent.map_or_else(String::new, |p| format!("{p:+.2} %"));
            let (a, b) = (cycles(c.a_cycles), cycles(c.b_cycles));
            out.line(format!("{:<12} {:<20} {a:>10} -> {b:>10} clk  {change}", c.role, c.metric));
        }
        for r in &self.rings {
            let slots = |s: Option<f64>| s.map_or_else(|| "-".into(), |s| format!("{s:.2}"));
            let change = r.change_percent.map_or_else(String::new, |p| format!("{p:+.2} %"));
            let (a, b) = (slots(r.a_slots), slots(r.b_slots));
            out.line(format!("{:<12} {:<20} {a:>10} -> {b:>10} slots  {change}", "ring", r.name));
        }
        self.notes.iter().for_each(|note| out.line(format!("note: {note}")));
        for (which, problems) in [("first", &self.a_problems), ("second", &self.b_problems)] {
            problems.iter().for_each(|problem| out.line(format!("note: {which} trace: {problem}")));
        }
        out.text
    }
}
