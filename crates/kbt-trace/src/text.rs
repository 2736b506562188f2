//! The outcome as text for a terminal: a line at a time, so that no name in it can begin another.

use crate::analyse::slack_percent;
use crate::observe::Interval;
use crate::outcome::{Absolute, Critical, Handoff, Quantiles, RingStats, RoleStats, TraceOutcome};
use crate::{ProblemKind, spelt};
use std::fmt::Write;

impl TraceOutcome {
    /// Several lines: what the trace is, each role with its waits, what sets the pace, what is odd.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = Lines::default();
        let t = &self.trace;
        let level = t.level.map_or_else(|| "level not stated".to_owned(), |l| format!("level {l}"));
        let kernel = t.kernel.as_ref().map_or_else(String::new, |k| format!("{k}: "));
        let many = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        // Some recorders do not say which SM a CTA ran on.
        let sms = if t.sms > 0 { format!(" on {}", many(t.sms, "SM")) } else { String::new() };
        out.line(format!(
            "{kernel}{} trace, {level}, {}{sms}, {} [{}]",
            t.format.as_str(),
            many(t.ctas, "CTA"),
            many(t.records, "record"),
            self.provenance.kind
        ));
        let (standing, reason) = match &self.absolute {
            Absolute::Accepted { reason } => ("accepted", reason),
            Absolute::Refused { reason } => ("refused", reason),
            Absolute::Unknown { reason } => ("unknown", reason),
        };
        out.line(format!("absolute cycles: {standing}: {reason}"));
        if let Some(floor) = self.wait_floor_cycles {
            out.line(format!("wait floor: {floor:.0} clk; a wait is blocked for what it takes beyond that"));
        }
        if let Some(roles) = self.stopped_full() {
            out.line(format!(
                "recorded window: every number below is of what was recorded until a buffer was full ({roles}), not of \
                 the kernel"
            ));
        }
        self.roles.iter().for_each(|role| role_text(role, t.quantum_cycles, &mut out));
        self.rings.iter().for_each(|ring| ring_text(ring, &mut out));
        out.line(match &self.critical {
            Critical::Roles { roles } => format!("pace: set by {}", roles.join(" and ")),
            Critical::Cycle { roles, barriers } => {
                let links =
                    roles.iter().zip(barriers).map(|(role, barrier)| format!("{role} -[{barrier}]-> "));
                let first = roles.first().map_or("", String::as_str);
                format!("pace: a circle of waits: {}{first}", links.collect::<String>())
            }
            Critical::Hardware { role, barrier } => {
                format!("pace: {role} waits for the hardware at {barrier}")
            }
            Critical::Unknown { reason } => format!("pace: unknown: {reason}"),
        });
        if let Some(handoff) = &self.handoff {
            out.line(handoff_text(handoff));
        }
        if let Some(clean) = &self.clean {
            out.line(format!(
                "clean kernel: {:.0} clk a step of {} by its time; the trace's is {:.3} times that [{}]",
                clean.implied_cycles, clean.role, clean.inflation_ratio, clean.provenance.kind
            ));
        }
        if let Some(observer) = &self.observer {
            out.text.push_str(&observer.render_text());
        }
        self.problems.iter().for_each(|problem| out.line(format!("note: {problem}")));
        let verdicts = self.verdicts();
        match verdicts.split_first() {
            Some((first, rest)) if rest.iter().all(|v| v.reason == first.reason) => {
                out.line(format!("verdicts: {}: {}", first.standing, first.reason));
            }
            _ => {
                for verdict in &verdicts {
                    out.line(format!("verdict: {}: {}: {}", verdict.class, verdict.standing, verdict.reason));
                }
            }
        }
        out.text
    }

    /// The roles whose recording stopped since their buffer was full; `None` where none did.
    fn stopped_full(&self) -> Option<String> {
        let stopped = self.problems.iter().filter(|p| p.kind == ProblemKind::StoppedFull);
        let roles: Vec<_> = stopped.filter_map(|p| p.role.as_deref()).collect();
        (!roles.is_empty()).then(|| roles.join(", "))
    }
}

/// Lines of text, whatever the names in them are.
#[derive(Default)]
pub(crate) struct Lines {
    pub(crate) text: String,
}

impl Lines {
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(&spelt(line.as_ref()));
        self.text.push('\n');
    }
}

fn role_text(role: &RoleStats, quantum_cycles: f64, out: &mut Lines) {
    let told = |q: &Quantiles| told(q, quantum_cycles);
    let mut line = format!("{}: {} steps (start: {})", role.name, role.steps, role.step_starts_at);
    // Writing to a string does not fail.
    if let Some(period) = &role.period_cycles {
        let _ = write!(line, ", period {} clk", told(period));
    }
    if let Some(busy) = role.busy_cycles {
        let _ = write!(line, ", busy {busy:.0}");
    }
    if let Some(slack) = slack_percent(role) {
        let _ = write!(line, ", slack {slack:.1} %");
    }
    out.line(line);
    if let (Some(prologue), Some(tail)) = (role.prologue_cycles, role.tail_cycles) {
        out.line(format!("  prologue {prologue:.0} clk, tail {tail:.0}"));
    }
    let slowest = role.slowest.map_or_else(String::new, |s| format!(", slowest CTA {}", s.cta));
    if let Some(over) = &role.over_ctas_cycles {
        out.line(format!("  mean step by CTA {}{slowest}", spread(over)));
    }
    let slowest = role.slowest_sm.map_or_else(String::new, |sm| format!(", slowest SM {sm}"));
    if let Some(over) = &role.over_sms_cycles {
        out.line(format!("  mean step by SM {}{slowest}", spread(over)));
    }
    for stuck in &role.stuck {
        out.line(format!(
            "  stuck in {} in {} CTA{}, first in CTA {} since {:.0} clk after open()",
            stuck.on,
            stuck.ctas,
            if stuck.ctas == 1 { "" } else { "s" },
            stuck.first.cta,
            stuck.since_cycles
        ));
    }
    for wait in &role.waits {
        let mut line = format!("  wait {:<12} {} clk a step", wait.on, optional(wait.cycles));
        if let Some(each) = &wait.each_cycles {
            let _ = write!(line, ", each {}", told(each));
        }
        if !wait.released_by.is_empty() {
            let _ = write!(line, ", released by {}", wait.released_by.join(" or "));
        }
        if let Some(ready) = wait.ready_percent {
            let _ = write!(line, ", ready {ready:.0} %");
        }
        if let Some(trip) = &wait.round_trip_cycles {
            let _ = write!(line, ", round trip {:.0}", trip.median);
        }
        out.line(line);
    }
    for event in &role.events {
        let mut line = format!("  {:<17} {} clk a step", event.name, optional(event.cycles));
        if let Some(each) = &event.each_cycles {
            let _ = write!(line, ", each {}", told(each));
        }
        let _ = write!(line, ", {:.2} a step", event.per_step);
        out.line(line);
    }
}

fn ring_text(ring: &RingStats, out: &mut Lines) {
    let counted = if ring.relative { ", counted from the fewest seen" } else { "" };
    let left_out = if ring.left_out_percent > 0.0 {
        format!(", {:.1} % of the time left out", ring.left_out_percent)
    } else {
        String::new()
    };
    out.line(format!(
        "ring {}: {:.2} slots {} on average, at most {} ({:.0} % of the time), none {:.0} % of the time; {} to \
         {}{counted}{left_out}",
        ring.name,
        ring.mean_slots,
        ring.counted.as_str(),
        ring.peak_slots,
        ring.peak_percent,
        ring.empty_percent,
        ring.producers.join(" or "),
        ring.consumers.join(" and ")
    ));
}

impl crate::observe::ObserverReport {
    /// One line a level, and how the cost splits.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = format!("time at off: {:.2} us [{}]\n", self.off_us, self.provenance.kind);
        for l in &self.levels {
            let _ = writeln!(
                out,
                "  {:<8} {:.2} us, {:+.2} % ({:+.2} to {:+.2}, {:.1} % interval, {} pairs)",
                l.level.as_str(),
                l.median_us,
                l.inflation_percent,
                l.low_percent,
                l.high_percent,
                l.confidence_percent,
                l.pairs
            );
        }
        if let (Some(reordering), Some(stores)) = (self.reordering_percent, self.stores_percent) {
            let part = |percent: f64, interval: Option<Interval>| {
                let interval = interval.map_or_else(String::new, |i| {
                    let none = if i.holds_zero() { ", not told apart from none" } else { "" };
                    format!(" ({:+.2} to {:+.2}{none})", i.low_percent, i.high_percent)
                });
                format!("{percent:+.2} %{interval}")
            };
            let (reordering, stores) =
                (part(reordering, self.reordering_interval), part(stores, self.stores_interval));
            let _ =
                writeln!(out, "  of coarse: {reordering} compiler barriers, {stores} clock reads and stores");
        }
        out
    }
}

fn handoff_text(handoff: &Handoff) -> String {
    format!(
        "handoff: chunk {} clk, tile {}, round trip {}; mean wait first {}, rest {}, free {}",
        optional(handoff.chunk_cycles),
        optional(handoff.tile_cycles),
        optional(handoff.round_trip_cycles),
        optional(handoff.wait_first_cycles),
        optional(handoff.wait_rest_cycles),
        optional(handoff.wait_free_cycles)
    )
}

/// Digits after the point, at least 2, with which a value can be told from the limit that it is over.
pub(crate) fn digits(value: f64, limit: f64) -> usize {
    (2..12).find(|&digits| format!("{value:.digits$}") != format!("{limit:.digits$}")).unwrap_or(12)
}

/// One duration's spread: what lies below two steps of the clock is not told.
fn told(q: &Quantiles, quantum_cycles: f64) -> String {
    let least = 2.0 * quantum_cycles;
    if quantum_cycles > 1.0 && q.p10 < least {
        return format!("{:.0} (below {least:.0} to {:.0})", q.median, q.p90);
    }
    spread(q)
}

fn spread(q: &Quantiles) -> String {
    format!("{:.0} ({:.0} to {:.0})", q.median, q.p10, q.p90)
}

fn optional(cycles: Option<f64>) -> String {
    cycles.map_or_else(|| "?".into(), |c| format!("{c:.0}"))
}
