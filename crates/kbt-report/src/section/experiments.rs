//! The experiments that triage proposes, each with its command, and the order of work.

use super::sentence;
use crate::doc::{Block, Line, Row, Sources, Table, line, prose, strong};
use crate::run::Run;
use kbt_evidence::{Figure, Provenance};
use kbt_roofline::TriageOutcome;
use kbt_roofline::outcome::{Experiment, OrderStep};

pub(super) fn blocks(sources: &Sources, run: &Run, o: &TriageOutcome) -> Vec<Block> {
    let mut blocks = Vec::new();
    if !o.experiments.is_empty() {
        blocks.push(Block::Heading("Experiments still worth making".into()));
        blocks.push(Block::Paragraph(line![
            "Each changes one factor. Its result goes back in with ",
            crate::doc::code("kbt roofline triage FACTS --result RESULT.yaml"),
            "."
        ]));
        for (i, e) in o.experiments.iter().enumerate() {
            blocks.extend(experiment(sources, run, i + 1, e));
        }
    }
    let mut results =
        Table::new("Results taken back in", &["Experiment", "Says", "~Finding", "#Observed", "#Predicted"]);
    for r in &o.results {
        results.row(Row::new(vec![
            prose(&r.experiment),
            line![r.reading.as_str()],
            prose(&r.finding),
            line![sources.figure(&r.observed)],
            line![sources.figure(&r.predicted)],
        ]));
    }
    blocks.extend(results.block());
    let mut order = Table::new("Order of work", &["Rank", "~Do", "~Why"]);
    for step in &o.order {
        let row = Row::new(vec![
            line![strong(step.priority.as_str())],
            prose(&sentence(&step.action)),
            prose(&sentence(&step.why)),
        ]);
        order.row(behind(step, run, o).into_iter().fold(row, |row, p| row.known(sources.of(p))));
    }
    blocks.extend(order.block());
    blocks
}

fn experiment(sources: &Sources, run: &Run, number: usize, e: &Experiment) -> Vec<Block> {
    // The sentences have the numbers; the badges say how they are known.
    let with = |t: &str, f: &Figure| line![prose(&sentence(t)), " ", sources.badge(&f.provenance)];
    let mut inner = vec![Block::Terms(vec![
        (line!["Changes"], vec![prose(&sentence(&e.factor))]),
        (line!["Predicts"], vec![with(&e.prediction, &e.predicted)]),
        (line!["Falsified by"], vec![with(&e.falsified_by, &e.falsified_at)]),
        (line!["Stop"], vec![prose(&sentence(&e.stop_rule))]),
    ])];
    // The run's own trace is the one before the change.
    let filled = |c: &String| match run.files.contains("trace.kbttrace") {
        true => c.replace("TRACE", &format!("{}/trace.kbttrace", run.name)),
        false => c.clone(),
    };
    inner.extend(e.command.as_ref().map(filled).map(Block::Command));
    let title: Line = line![format!("{number}. {}", e.candidate.replace('_', " ")), ": ", prose(&e.factor)];
    vec![Block::Fold { title, blocks: inner }]
}

/// How the numbers in a step of the order are known: those of the experiment, the contradiction or the verdict behind it.
fn behind<'a>(step: &OrderStep, run: &'a Run, o: &'a TriageOutcome) -> Vec<&'a Provenance> {
    let named = step.action.split(':').next().unwrap_or_default();
    if let Some(e) = o.experiments.iter().find(|e| e.candidate == named) {
        return vec![&e.predicted.provenance];
    }
    if let Some(c) = o.contradictions.iter().find(|c| step.action.ends_with(&c.what)) {
        return vec![&c.figure.provenance];
    }
    let verdicts = run.steps_verdicts().filter(|v| step.why.ends_with(&v.reason));
    verdicts.flat_map(|v| &v.evidence).flat_map(|e| &e.figures).map(|f| &f.provenance).collect()
}
