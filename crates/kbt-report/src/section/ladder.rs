//! The ladder as a table, and what the order struck or sent back.

use super::names;
use crate::doc::{
    Block, Inline, Line, Row, Section, Source, Sources, Table, cell, line, prose, strong, text,
};
use crate::record::Conflict;
use crate::run::Run;
use kbt_evidence::{Step, Unit};

/// A step's line; the triage's, written before there was a trace, says so.
fn told(run: &Run, step: Step, headline: &str) -> Line {
    let mut line = prose(headline);
    if step == Step::Triage && run.traced() {
        line.push(text(" (before the trace had looked)"));
    }
    line
}

pub(super) fn section(sources: &Sources, run: &Run) -> Section {
    let mut table = Table::new(
        "The steps in their order",
        &["Step", "Numbers", "~What it found", "Needs", "#Took", "Known"],
    );
    for rung in run.rungs() {
        let (id, short, _) = names(rung.step);
        let name = line![Inline::Link { to: id, text: format!("{} {short}", rung.step.index()) }];
        let Some(done) = rung.done else {
            table.row(Row::new(vec![name, line!["not run"], line!["–"], cell(None), cell(None), cell(None)]));
            continue;
        };
        let known: Line = done
            .kinds
            .iter()
            .rev()
            .flat_map(|known| [text(" "), Inline::Badge(Source { known: *known, id: None })])
            .skip(1)
            .collect();
        table.row(Row::new(vec![
            name,
            line![Inline::Origin(done.origin)],
            told(run, rung.step, done.headline),
            done.needs.map_or_else(|| cell(None), prose),
            line![sources.number(done.timing.wall_s, Unit::Seconds, &done.timing.provenance)],
            known,
        ]));
    }
    let mut blocks = vec![
        Block::Paragraph(line![
            "Each step rules out classes of fix before effort goes into the next. What a step ruled out by measurement is \
             not recommended later; a later measurement that contradicts it sends the ladder back."
        ]),
        Block::Table(table),
    ];
    if let Some(summary) = &run.summary {
        let said = |verb: &str, how: &str, c: &Conflict| {
            line![
                strong(verb),
                format!(
                    " {} had ruled “{}” out ({}), and {} recommended it {how} ({}).",
                    c.ruled_out_by, c.class, c.reason, c.contradicted_by, c.claim
                )
            ]
        };
        let went = summary.sent_back.iter().map(|c| said("The ladder went back:", "on a measurement", c));
        let struck = summary
            .struck
            .iter()
            .map(|c| said("A recommendation was struck:", "on less than a measurement", c));
        let all: Vec<Line> = went.chain(struck).collect();
        if !all.is_empty() {
            blocks.push(Block::Heading("Where steps contradicted each other".into()));
            blocks.push(Block::List(all));
        }
    }
    Section {
        id: "ladder",
        title: "The ladder".into(),
        short: "The ladder",
        step: None,
        aside: Line::new(),
        blocks,
    }
}
