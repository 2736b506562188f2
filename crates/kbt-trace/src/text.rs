//! The outcome as text for a terminal.

use crate::analyse::slack_percent;
use crate::outcome::{Absolute, Critical, Handoff, Quantiles, RoleStats, TraceOutcome};
use std::fmt::{self, Write};

impl TraceOutcome {
    /// Several lines: what the trace is, each role with its waits, what sets the pace, what is odd.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.render(&mut out);
        out
    }

    fn render(&self, out: &mut String) -> fmt::Result {
        let t = &self.trace;
        let level = t.level.map_or_else(|| "level not stated".to_owned(), |l| format!("level {l}"));
        let kernel = t.kernel.as_ref().map_or_else(String::new, |k| format!("{k}: "));
        writeln!(
            out,
            "{kernel}{} trace, {level}, {} CTAs on {} SMs, {} records [{}]",
            t.format.as_str(),
            t.ctas,
            t.sms,
            t.records,
            self.provenance.kind
        )?;
        let (standing, reason) = match &self.absolute {
            Absolute::Accepted { reason } => ("accepted", reason),
            Absolute::Refused { reason } => ("refused", reason),
            Absolute::Unknown { reason } => ("unknown", reason),
        };
        writeln!(out, "absolute cycles: {standing}: {reason}")?;
        for role in &self.roles {
            self.role_text(role, out)?;
        }
        for ring in &self.rings {
            let counted = if ring.relative { ", counted from the fewest seen" } else { "" };
            writeln!(
                out,
                "ring {}: {:.2} slots {} on average, at most {} ({:.0} % of the time), none {:.0} % of the time; {} to \
                 {}{counted}",
                ring.name,
                ring.mean_slots,
                ring.counted.as_str(),
                ring.peak_slots,
                ring.peak_percent,
                ring.empty_percent,
                ring.producers.join(" or "),
                ring.consumers.join(" and ")
            )?;
        }
        match &self.critical {
            Critical::Roles { roles } => writeln!(out, "pace: set by {}", roles.join(" and "))?,
            Critical::Cycle { roles, barriers } => {
                let links =
                    roles.iter().zip(barriers).map(|(role, barrier)| format!("{role} -[{barrier}]-> "));
                let first = roles.first().map_or("", String::as_str);
                writeln!(out, "pace: a circle of waits: {}{first}", links.collect::<String>())?;
            }
            Critical::Hardware { role, barrier } => {
                writeln!(out, "pace: {role} waits for the hardware at {barrier}")?
            }
            Critical::Unknown { reason } => writeln!(out, "pace: unknown: {reason}")?,
        }
        if let Some(handoff) = &self.handoff {
            handoff_text(handoff, out)?;
        }
        if let Some(clean) = &self.clean {
            writeln!(
                out,
                "clean kernel: {:.0} clk a step of {} by its time; the trace's is {:.3} times that [{}]",
                clean.implied_cycles, clean.role, clean.inflation_ratio, clean.provenance.kind
            )?;
        }
        if let Some(observer) = &self.observer {
            write!(out, "{}", observer.render_text())?;
        }
        for problem in &self.problems {
            writeln!(out, "note: {problem}")?;
        }
        let verdicts = self.verdicts();
        match verdicts.split_first() {
            Some((first, rest)) if rest.iter().all(|v| v.reason == first.reason) => {
                writeln!(out, "verdicts: {}: {}", first.standing, first.reason)?;
            }
            _ => {
                for verdict in &verdicts {
                    writeln!(out, "verdict: {}: {}: {}", verdict.class, verdict.standing, verdict.reason)?;
                }
            }
        }
        Ok(())
    }

    fn role_text(&self, role: &RoleStats, out: &mut String) -> fmt::Result {
        write!(out, "{}: {} steps (start: {})", role.name, role.steps, role.step_starts_at)?;
        if let Some(period) = &role.period_cycles {
            write!(out, ", period {} clk", spread(period))?;
        }
        if let Some(busy) = role.busy_cycles {
            write!(out, ", busy {busy:.0}")?;
        }
        if let Some(slack) = slack_percent(role) {
            write!(out, ", slack {slack:.1} %")?;
        }
        writeln!(out)?;
        if let (Some(prologue), Some(tail)) = (role.prologue_cycles, role.tail_cycles) {
            writeln!(out, "  prologue {prologue:.0} clk, tail {tail:.0}")?;
        }
        let slowest = role.slowest.map_or_else(String::new, |s| format!(", slowest CTA {}", s.cta));
        if let Some(over) = &role.over_ctas_cycles {
            writeln!(out, "  mean step by CTA {}{slowest}", spread(over))?;
        }
        let slowest = role.slowest_sm.map_or_else(String::new, |sm| format!(", slowest SM {sm}"));
        if let Some(over) = &role.over_sms_cycles {
            writeln!(out, "  mean step by SM {}{slowest}", spread(over))?;
        }
        for wait in &role.waits {
            write!(out, "  wait {:<12} {} clk a step", wait.on, optional(wait.cycles))?;
            if let Some(each) = &wait.each_cycles {
                write!(out, ", each {}", spread(each))?;
            }
            if !wait.released_by.is_empty() {
                write!(out, ", released by {}", wait.released_by.join(" or "))?;
            }
            if let Some(ready) = wait.ready_percent {
                write!(out, ", ready {ready:.0} %")?;
            }
            if let Some(trip) = &wait.round_trip_cycles {
                write!(out, ", round trip {:.0}", trip.median)?;
            }
            writeln!(out)?;
        }
        for event in &role.events {
            write!(out, "  {:<17} {} clk a step", event.name, optional(event.cycles))?;
            if let Some(each) = &event.each_cycles {
                write!(out, ", each {}", spread(each))?;
            }
            writeln!(out, ", {:.2} a step", event.per_step)?;
        }
        Ok(())
    }
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
            let _ = writeln!(
                out,
                "  of coarse: {reordering:+.2} % compiler barriers, {stores:+.2} % clock reads and stores"
            );
        }
        out
    }
}

fn handoff_text(handoff: &Handoff, out: &mut String) -> fmt::Result {
    writeln!(
        out,
        "handoff: chunk {} clk, tile {}, round trip {}, wait first {}, wait rest {}, wait free {}",
        optional(handoff.chunk_cycles),
        optional(handoff.tile_cycles),
        optional(handoff.round_trip_cycles),
        optional(handoff.wait_first_cycles),
        optional(handoff.wait_rest_cycles),
        optional(handoff.wait_free_cycles)
    )
}

fn spread(q: &Quantiles) -> String {
    format!("{:.0} ({:.0} to {:.0})", q.median, q.p10, q.p90)
}

fn optional(cycles: Option<f64>) -> String {
    cycles.map_or_else(|| "?".into(), |c| format!("{c:.0}"))
}
