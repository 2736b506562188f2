//! An outcome as Markdown: everything, for a report or an issue.

use crate::outcome::{Outputs, Statement, Status, TriageOutcome};
use crate::render::{capital, percent, sourced};
use kbt_evidence::markdown::{escape, escape_prose};
use std::fmt::Write as _;

impl TriageOutcome {
    /// Everything, for a report or an issue.
    #[must_use]
    pub fn render_markdown(&self) -> String {
        let mut out = format!("# Triage: {}\n\n", escape(&self.name));
        if let Some(q) = &self.question {
            let _ = writeln!(out, "> {}\n", escape(q));
        }
        match (&self.outputs, &self.refusal) {
            (Some(o), _) => {
                let _ = writeln!(out, "## Conclusion\n\n{}\n", escape_prose(&o.conclusion));
            }
            (None, Some(r)) => {
                let _ = writeln!(out, "{}\n", escape_prose(r));
            }
            (None, None) => {}
        }
        if !self.supply.is_empty() {
            let _ = writeln!(out, "| missing | supply | example |\n|---|---|---|");
            for s in &self.supply {
                let _ = writeln!(
                    out,
                    "| {} | {} | `{}` |",
                    escape_prose(&s.fact.to_string()),
                    escape_prose(&s.keys),
                    s.example
                );
            }
            out.push('\n');
        }
        let Some(o) = &self.outputs else { return out };
        self.markdown_evidence(&mut out, o);
        self.markdown_matrix(&mut out);
        self.markdown_plan(&mut out, o);
        out
    }

    fn markdown_evidence(&self, out: &mut String, o: &Outputs) {
        let _ = writeln!(out, "## Evidence and assumptions\n");
        for s in &o.evidence.from_data {
            let _ = writeln!(out, "- {}", escape_prose(&sourced(s)));
        }
        for a in &o.evidence.assumptions {
            let word = if self.status == Status::Refused { "missing" } else { "assumed" };
            let _ = writeln!(out, "- {word}: {}", escape_prose(a));
        }
        for c in &self.contradictions {
            let word = if c.settle_first { "**contradiction**" } else { "within a few percent" };
            let _ = writeln!(
                out,
                "- {word}: {} (could be: {})",
                escape_prose(&c.what),
                escape_prose(&c.causes.join("; "))
            );
        }
        for left in &self.not_used {
            let _ = writeln!(out, "- not used: {}", escape_prose(left));
        }
        let _ = writeln!(out, "\n## {}\n", escape_prose(&capital(&o.artifact.title)));
        if !o.artifact.rows.is_empty() {
            let _ = writeln!(out, "| quantity | how | value | known |\n|---|---|---|---|");
            for r in &o.artifact.rows {
                let value = r.figure.to_string();
                // A figure prints as `name value unit [kind]`; name and kind have their own columns.
                let value = value.strip_prefix(&r.figure.name).unwrap_or(&value);
                let value = value.rsplit_once(" [").map_or(value, |(v, _)| v).trim();
                let _ = writeln!(
                    out,
                    "| {} | {} | {} | {} |",
                    escape_prose(&r.quantity),
                    escape_prose(&r.how),
                    escape_prose(value),
                    r.figure.provenance.kind
                );
            }
            out.push('\n');
        }
    }

    fn markdown_matrix(&self, out: &mut String) {
        if !self.checks.is_empty() {
            let _ = writeln!(out, "## Does the implementation contradict the call?\n");
            let _ = writeln!(out, "| side | check | finding | measurement needed |\n|---|---|---|---|");
            for c in &self.checks {
                let _ = writeln!(
                    out,
                    "| {} | {} | {} | {} |",
                    c.side,
                    escape_prose(&c.question),
                    escape_prose(&c.finding),
                    c.needed.first().map_or(String::new(), |needed| escape_prose(needed))
                );
            }
            out.push('\n');
        }
        if !self.evidence.is_empty() {
            let _ = writeln!(out, "## Evidence matrix\n");
            let _ = writeln!(
                out,
                "| candidate | class | standing | share {} | for | against | measurement needed |\n|---|---|---|---|---|---|---|",
                self.of_which_time()
            );
            for r in &self.evidence {
                let list = |s: &[Statement]| {
                    s.iter().map(|s| escape_prose(&sourced(s))).collect::<Vec<_>>().join("<br>")
                };
                let against = match (r.against.is_empty(), r.counter_evidence_looked_for) {
                    (true, false) => "no counter-evidence looked for".to_owned(),
                    (true, true) => format!("looked for, not found: {}", list(&r.looked_for)),
                    (false, _) => list(&r.against),
                };
                let _ = writeln!(
                    out,
                    "| {} | {} | {} | {} | {} | {against} | {} |",
                    escape_prose(&r.title),
                    r.class,
                    r.standing,
                    r.share.as_ref().map_or("?".to_owned(), |f| format!(
                        "{} [{}]",
                        percent(f),
                        f.provenance.kind
                    )),
                    list(&r.supports),
                    r.needed.iter().map(|needed| escape_prose(needed)).collect::<Vec<_>>().join("<br>")
                );
            }
            out.push('\n');
        }
    }

    fn markdown_plan(&self, out: &mut String, o: &Outputs) {
        if !self.experiments.is_empty() {
            let _ = writeln!(out, "## Experiments\n");
            for e in &self.experiments {
                let _ = writeln!(out, "- **{}**: {}", e.id, escape_prose(&e.factor));
                if let Some(c) = &e.command {
                    let _ = writeln!(out, "  - command: `{c}`");
                }
                let _ = writeln!(
                    out,
                    "  - predicted: {}; wrong if {}",
                    escape_prose(&e.prediction.to_string()),
                    escape_prose(&e.falsified_by)
                );
                let _ = writeln!(out, "  - stop: {}", escape_prose(&e.stop_rule));
            }
            out.push('\n');
        }
        if !self.order.is_empty() {
            let _ = writeln!(out, "## Order\n");
            for s in &self.order {
                let _ =
                    writeln!(out, "- {} {}: {}", s.priority, escape_prose(&s.action), escape_prose(&s.why));
            }
            out.push('\n');
        }
        let v = &o.validation;
        let _ = writeln!(
            out,
            "## Minimal validation\n\n- correctness: {}\n- boundary: {}\n- experiment: {}\n",
            escape_prose(&v.correctness),
            escape_prose(&v.boundary),
            escape_prose(&v.experiment)
        );
        let _ = writeln!(out, "## Risks and fallback\n");
        for r in &o.risks {
            let _ = writeln!(out, "- {}", escape_prose(r));
        }
    }
}
