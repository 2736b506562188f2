//! An outcome as text for a terminal: conclusion first, one screen.

use crate::outcome::{
    Bound, CandidateRow, CandidateStanding as Standing, CheckStatus, Outputs, Priority, Statement, Status,
    TriageOutcome,
};
use kbt_evidence::Figure;
use std::fmt::Write as _;

const WIDTH: usize = 110;
/// Candidates on the first screen.
const SHOWN: usize = 3;

/// Wraps text to the terminal's usual width; continuation lines are indented.
fn wrap(out: &mut String, first: &str, indent: usize, text: &str) {
    let mut line = first.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            out.push_str(line.trim_end());
            out.push('\n');
            line = " ".repeat(indent);
            empty = true;
        }
        if !empty {
            line.push(' ');
        }
        line.push_str(word);
        empty = false;
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

pub(crate) fn percent(figure: &Figure) -> String {
    format!("{:.0} %", figure.value * 100.0)
}

impl TriageOutcome {
    /// For a terminal: the conclusion, the roofs, the candidates, the next experiment, the order.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = String::new();
        let head = match self.status {
            Status::Diagnosed => "",
            Status::Initial => "INITIAL CALL ONLY ",
            Status::Refused => "REFUSED ",
            Status::OutOfScope => "OUT OF SCOPE ",
        };
        match &self.outputs {
            Some(o) => wrap(&mut out, "", 0, &format!("{head}{}: {}", self.name, o.conclusion)),
            None => wrap(&mut out, "", 0, &format!("{head}{}", self.refusal.as_deref().unwrap_or(""))),
        }
        for s in &self.supply {
            wrap(&mut out, &format!("  needs {:<9} ", s.fact), 18, &s.keys);
            wrap(&mut out, "                  e.g. ", 23, &s.example);
        }
        self.text_roofs(&mut out);
        if self.status == Status::Diagnosed {
            self.text_diagnosis(&mut out);
        } else if let (Status::Initial, Some(o)) = (self.status, &self.outputs) {
            text_outputs(&mut out, o);
        }
        out
    }

    fn text_roofs(&self, out: &mut String) {
        let Some(i) = &self.initial else { return };
        if self.call.is_none() {
            return;
        }
        let _ = writeln!(out, "\nwork      {}", i.flop_line);
        let _ = writeln!(out, "          {}", i.hbm_line);
        let _ = writeln!(
            out,
            "          {:.1} FLOP/B against a ridge of {:.1} [{}]: initial call {}",
            i.intensity.value, i.ridge.value, i.ridge.provenance.kind, i.call
        );
        for (index, b) in self.bounds.iter().enumerate() {
            let first = if index == 0 { "roofs     " } else { "          " };
            wrap(out, first, 12, &bound_line(b));
        }
        for c in &self.contradictions {
            let word = if c.settle_first { "CONFLICT  " } else { "note      " };
            wrap(out, word, 10, &format!("{}: {}", c.what, c.causes.join("; or ")));
        }
        for left in &self.not_used {
            wrap(out, "not used  ", 10, left);
        }
    }

    fn text_diagnosis(&self, out: &mut String) {
        let fired: Vec<&str> = self.checks_by(CheckStatus::Fired).map(|c| c.id.as_str()).collect();
        let clear = self.checks_by(CheckStatus::Clear).count();
        let unknown: Vec<&str> = self.checks_by(CheckStatus::NotEvaluated).map(|c| c.id.as_str()).collect();
        let _ = writeln!(out);
        wrap(
            out,
            "checks    ",
            10,
            &format!(
                "{} of 19 fire{}{}; {clear} clear; {} not evaluated",
                fired.len(),
                if fired.is_empty() { "" } else { ": " },
                fired.join(", "),
                unknown.len()
            ),
        );
        // A suspect has a figure or a reading behind it; of the rest, what speaks against it is worth knowing.
        let suspect = |r: &&CandidateRow| {
            let known = r.share.is_some() || !r.supports.is_empty();
            r.standing.is_suspect() && r.matters() && known
        };
        let shown = if self.asserts_nothing() { 0 } else { SHOWN };
        let of = self.of_which_time();
        let suspects: Vec<&CandidateRow> = self.evidence.iter().filter(suspect).take(shown).collect();
        for (index, row) in suspects.iter().enumerate() {
            let first = if index == 0 { "suspects  " } else { "          " };
            text_candidate(out, &format!("{first}{}. ", index + 1), row, &of);
        }
        // What speaks against a suspect may leave too little of it to be one.
        let little = |r: &&CandidateRow| r.standing == Standing::Contested && !r.matters();
        let unlikely = self.evidence.iter().filter(|r| r.standing == Standing::Unlikely || little(r));
        for (index, row) in unlikely.take(shown - suspects.len()).enumerate() {
            text_candidate(out, if index == 0 { "unlikely  -  " } else { "          -  " }, row, &of);
        }
        for r in &self.results {
            wrap(out, "result    ", 10, &r.finding);
        }
        self.text_next(out);
        let _ = writeln!(out);
        for priority in [Priority::P0, Priority::P2, Priority::P3] {
            // P1 stands above; of the rest the names do, the outcome has the words.
            let full = priority == Priority::P0;
            let actions: Vec<&str> = self
                .order
                .iter()
                .filter(|s| s.priority == priority)
                .map(
                    |s| if full { s.action.as_str() } else { s.action.split(':').next().unwrap_or_default() },
                )
                .collect();
            if !actions.is_empty() {
                let shown = &actions[..actions.len().min(if full { 3 } else { 5 })];
                let more = actions.len() - shown.len();
                let more = if more > 0 { format!("; and {more} more") } else { String::new() };
                wrap(out, &format!("{priority}        "), 10, &format!("{}{more}", shown.join("; ")));
            }
        }
        if let Some(o) = &self.outputs {
            text_outputs(out, o);
        }
    }

    /// The steps of P1: an experiment with all that is said of it, anything else with its reason.
    fn text_next(&self, out: &mut String) {
        let mut first = "\nnext      ";
        if self.order.iter().all(|s| s.priority != Priority::P1) {
            wrap(out, first, 10, &self.next().action);
        }
        for step in self.order.iter().filter(|s| s.priority == Priority::P1) {
            let experiment = step.action.split_once(": ").and_then(|(id, factor)| {
                self.experiments.iter().find(|e| e.candidate == id && e.factor == factor)
            });
            match experiment {
                Some(e) => {
                    wrap(out, first, 10, &e.factor);
                    let predicted = format!("predicted {}; wrong if {}", e.prediction, e.falsified_by);
                    wrap(out, "          ", 10, &predicted);
                    if let Some(command) = &e.command {
                        let _ = writeln!(out, "          {command}");
                    }
                    wrap(out, "          ", 10, &format!("stop: {}", e.stop_rule));
                }
                None => {
                    wrap(out, first, 10, &step.action);
                    wrap(out, "          ", 10, &step.why);
                }
            }
            first = "          ";
        }
    }

    /// What a share is one of: after a confirmed change no longer of the kernel's own time.
    pub(crate) fn of_which_time(&self) -> String {
        let of = "of the time";
        self.confirmed().map_or_else(|| of.to_owned(), |(id, _)| format!("{of} before the change of {id}"))
    }

    fn checks_by(&self, status: CheckStatus) -> impl Iterator<Item = &crate::outcome::Check> {
        self.checks.iter().filter(move |c| c.status == status)
    }
}

fn bound_line(b: &Bound) -> String {
    let share = b.share.as_ref().map_or(String::new(), |s| format!(", {} of the time", percent(s)));
    format!("{} >= {:.2} us{share}: {} [{}]", b.name, b.time.value, b.how, b.time.provenance.kind)
}

fn text_candidate(out: &mut String, first: &str, row: &CandidateRow, of: &str) {
    let share = row.share.as_ref().map_or("share unknown".to_owned(), |s| format!("{} {of}", percent(s)));
    let title = format!("{} ({}, {share}) {}", row.title, row.class, row.standing);
    wrap(out, first, 13, &title);
    let short = |s: &[Statement]| s.first().map(|s| s.text.clone());
    if let Some(text) = short(&row.supports) {
        wrap(out, "             + ", 15, &text);
    }
    match short(&row.against) {
        Some(text) => wrap(out, "             - ", 15, &text),
        None if !row.counter_evidence_looked_for => {
            wrap(out, "             - ", 15, "no counter-evidence looked for");
        }
        None => {
            if let Some(text) = short(&row.looked_for) {
                wrap(out, "             o ", 15, &format!("no counter-evidence: {text}"));
            }
        }
    }
    if let (Some(text), true) = (row.needed.first(), row.standing != Standing::Refuted) {
        wrap(out, "             ? ", 15, text);
    }
}

fn text_outputs(out: &mut String, o: &Outputs) {
    let _ = writeln!(out);
    if let Some(a) = o.evidence.assumptions.first() {
        let more = o.evidence.assumptions.len() - 1;
        let more = if more > 0 { format!(" (and {more} more: --format md)") } else { String::new() };
        wrap(out, "assumed   ", 10, &format!("{a}{more}"));
    }
    wrap(
        out,
        "validate  ",
        10,
        &format!("{}; at the boundary: {}", o.validation.correctness, o.validation.boundary),
    );
    if let Some(r) = o.risks.first() {
        wrap(out, "risk      ", 10, r);
    }
}

/// A statement with the weakest knowledge behind it.
pub(crate) fn sourced(s: &Statement) -> String {
    match s.figures.iter().map(|f| f.provenance.kind).min() {
        Some(kind) => format!("{} [{kind}]", s.text),
        None => s.text.clone(),
    }
}

pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |c| c.to_uppercase().chain(chars).collect())
}
