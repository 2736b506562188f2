//! The outcome as text for a terminal.

use crate::model::Predicted;
use crate::outcome::{PointOutcome, PointStatus, SplitOutcome};
use crate::score::ModelCurve;
use crate::space::Forbidden;
use crate::verdict::shown;
use kbt_target::Speed;
use std::fmt;

/// More settings than this that were not compared are counted, not listed.
const UNCOMPARED_SHOWN: usize = 20;

impl fmt::Display for SplitOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.headline())?;
        if let Some(base) = self.baseline() {
            writeln!(f, "baseline {}", base.setting)?;
            writeln!(f, "known by: {}", base.provenance)?;
        }
        let width = self.points.iter().map(|p| self.changed(p).len()).max().unwrap_or(0);
        let mut rows: Vec<&PointOutcome> = self.points.iter().collect();
        rows.sort_by(|a, b| {
            let key = |p: &PointOutcome| p.to_baseline.map_or(f64::INFINITY, |r| r.ratio);
            key(a).total_cmp(&key(b)).then(a.index.cmp(&b.index))
        });
        let uncompared = rows.iter().filter(|p| p.status == PointStatus::NotRun).count();
        let fold = uncompared > UNCOMPARED_SHOWN;
        for p in rows.iter().filter(|p| !(fold && p.status == PointStatus::NotRun)) {
            writeln!(f, "  {:>4}  {:<width$}  {}", p.index, self.changed(p), result(p))?;
            notes(p).try_for_each(|note| writeln!(f, "        note: {note}"))?;
        }
        if fold {
            let seen = rows.iter().filter(|p| p.status == PointStatus::NotRun && p.is_seen_once()).count();
            writeln!(
                f,
                "  {uncompared} more were not compared: {seen} seen once, {} not run",
                uncompared - seen
            )?;
        }
        if let Some(seconds) = self.device_s {
            writeln!(f, "{seconds:.1} s of processes and rests on devices, all workers together")?;
        }
        let merged: usize = self.points.iter().map(|p| p.merged_count).sum();
        if merged > 0 {
            writeln!(
                f,
                "{merged} more settings round to a handoff that is there already, and were not run again"
            )?;
        }
        // Knobs that are not of the handoff repeat each violation; the outcome's JSON has every setting.
        let mut violations: Vec<(&str, Vec<&Forbidden>)> = Vec::new();
        for forbidden in &self.forbidden {
            match violations.iter_mut().find(|(why, _)| *why == forbidden.violation) {
                Some((_, settings)) => settings.push(forbidden),
                None => violations.push((&forbidden.violation, vec![forbidden])),
            }
        }
        for (why, settings) in violations {
            let and_more = match settings.len() - 1 {
                0 => String::new(),
                n => format!(" and {n} more"),
            };
            writeln!(f, "forbidden: {}{and_more}: {why}", settings[0].setting)?;
        }
        if let Some(model) = &self.model {
            writeln!(f, "model of the handoff\n{model}")?;
        }
        for verdict in self.verdicts() {
            writeln!(f, "{}: {}: {}", verdict.class, verdict.standing, verdict.reason)?;
            if let Some(next) = &verdict.next {
                writeln!(f, "  next: {next}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for PointOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "point {}: {}: {}", self.index, self.setting, result(self))?;
        notes(self).try_for_each(|note| write!(f, "\n  note: {note}"))
    }
}

/// What was noticed of a point that was compared; that others were only screened is said once for all.
fn notes(p: &PointOutcome) -> impl Iterator<Item = &String> {
    p.notes.iter().filter(|_| p.speed.is_some())
}

/// A point's handoff, and its time or why it has none.
fn result(p: &PointOutcome) -> String {
    let integers = p.integers.map(|i| i.to_string()).unwrap_or_default();
    let what = match (&p.status, p.time_us, &p.to_baseline) {
        (PointStatus::Timed, Some(time), Some(ratio)) => {
            // The ratio is to the baseline; the word may be against a setting that had beaten it by then.
            let than = p.against.filter(|a| *a != 0).map(|a| match p.speed {
                Some(Speed::Same) => format!(" as {a}"),
                Some(Speed::Ambiguous) => format!(" against {a}"),
                _ => format!(" than {a}"),
            });
            let than = than.unwrap_or_default();
            let once = if p.is_seen_once() { "seen once" } else { "" };
            let speed = p.speed.map_or_else(|| once.to_owned(), |s| format!("{s}{than}"));
            format!("{time:>10.2} us  {:<24} {speed}", shown(ratio))
        }
        (status, ..) => format!("{}: {}", status.word(), status.why().unwrap_or("-")),
    };
    format!("{integers:<22}  {}", what.trim_end())
}

impl fmt::Display for ModelCurve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "known by: {}", self.provenance)?;
        f.write_str(&curve(&self.curve))?;
        match self.best() {
            Some(_) if self.is_flat() => f.write_str("flat: the model sees no difference between these")?,
            Some(best) => write!(f, "shortest period: {} with {:.0} clk", best.integers, best.period_cycles)?,
            None => return f.write_str("no legal handoff at these counts"),
        }
        if let Some(why) = self.explanation() {
            write!(f, "\nwhy: {why}")?;
        }
        if let Some(s) = &self.score {
            let rank = s.rank_correlation.map_or_else(
                || "no rank correlation, since one side is constant".to_owned(),
                |r| format!("rank correlation {r:.2}"),
            );
            write!(
                f,
                "\nscore: {rank}, largest error {:.1} % over {} points",
                s.max_error_percent, s.points_count
            )?;
        }
        Ok(())
    }
}

/// A modelled curve as a table, the shortest period first.
fn curve(points: &[Predicted]) -> String {
    let mut rows: Vec<&Predicted> = points.iter().collect();
    rows.sort_by(|a, b| a.period_cycles.total_cmp(&b.period_cycles));
    let mut text = format!(
        "  {:<22}  {:>10}  {:>12}  {:>13}  {:>13}\n",
        "handoff", "period clk", "wait 1st clk", "wait 2nd clk", "producer clk"
    );
    for p in rows {
        text += &format!(
            "  {:<22}  {:>10.0}  {:>12.0}  {:>13.0}  {:>13.0}\n",
            p.integers.to_string(),
            p.period_cycles,
            p.wait_first_cycles,
            p.wait_second_cycles,
            p.producer_wait_cycles
        );
    }
    text
}
