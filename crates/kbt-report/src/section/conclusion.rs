//! The conclusion: what to do, what it rests on, and where every class of fix stands.

use super::{any_refused, evidence, gain, instruction, names, sentence};
use crate::doc::{
    Block, Inline, Line, Row, Section, Source, Sources, Table, code, line, prose, strong, text,
};
use crate::record::{Origin, Summary};
use crate::run::Run;
use kbt_evidence::{Known, Standing, Verdict};

pub(super) fn section(sources: &Sources, run: &Run) -> Section {
    let mut blocks = Vec::new();
    match &run.summary {
        Some(summary) => {
            blocks.push(lead(sources, run, summary));
            blocks.extend(gain::block(sources, run));
            blocks.extend(then(summary));
            blocks.extend(classes(summary));
        }
        None => blocks.push(Block::Warning(line![
            "This run is not finished: what follows is what its steps left so far, and no class of fix is recommended yet. ",
            code("kbt tune --resume"),
            " with the options of this run goes on with it.",
        ])),
    }
    blocks.extend(refusals(run));
    blocks.push(legend());
    Section {
        id: "conclusion",
        title: "What to do, and what is ruled out".into(),
        short: "Conclusion",
        step: None,
        aside: Line::new(),
        blocks,
    }
}

fn lead(sources: &Sources, run: &Run, summary: &Summary) -> Block {
    let Some(first) = summary.recommendations.first().map(|r| &r.verdict) else {
        let open: Vec<&str> = summary
            .classes
            .iter()
            .filter(|c| c.standing == Standing::Open)
            .map(|c| c.class.phrase())
            .collect();
        let more = if open.is_empty() { String::new() } else { format!(" Still open: {}.", open.join("; ")) };
        let why = if any_refused(run) {
            "Some steps were refused for want of evidence; what each needs is below."
        } else {
            "Every class that was looked at is ruled out or still open."
        };
        return Block::Lead {
            kicker: "Recommendation".into(),
            text: line!["None: no class of fix has evidence for it."],
            blocks: vec![Block::Paragraph(line![why, more])],
        };
    };
    let mut blocks = vec![Block::Paragraph(line![prose(&sentence(&first.reason)), " ", known(first)])];
    if let Some(next) = &first.next {
        blocks.push(instruction("Do: ", next));
    }
    if !first.evidence.is_empty() {
        blocks.push(Block::List(evidence(sources, &first.evidence)));
    }
    Block::Lead {
        kicker: format!("Recommendation, from step {} ({})", first.step.index(), first.step),
        text: line![capital(first.class.phrase())],
        blocks,
    }
}

fn known(v: &Verdict) -> Line {
    match v.known() {
        Some(known) => vec![Inline::Badge(Source { known, id: None })],
        None => line!["(no figure supports it)"],
    }
}

fn then(summary: &Summary) -> Vec<Block> {
    let rest: Vec<Line> = summary
        .recommendations
        .iter()
        .skip(1)
        .map(|r| {
            let v = &r.verdict;
            let next = v.next.as_ref().map_or_else(Line::new, |n| line![" Do: ", prose(&sentence(n))]);
            line![strong(capital(v.class.phrase())), ": ", prose(&sentence(&v.reason)), " ", known(v), next]
        })
        .collect();
    if rest.is_empty() {
        return Vec::new();
    }
    vec![Block::Heading("After that".into()), Block::List(rest)]
}

fn classes(summary: &Summary) -> Option<Block> {
    let mut table = Table::new(
        "Where each class of fix stands",
        &["Class of fix", "Stands", "~Why", "Says step", "Known"],
    );
    let rank = |s: Standing| match s {
        Standing::Recommended => 0,
        Standing::Open => 1,
        Standing::RuledOut => 2,
        Standing::Refused => 3,
    };
    let mut lines: Vec<_> = summary.classes.iter().collect();
    lines.sort_by_key(|c| rank(c.standing));
    for c in lines {
        let (to, short, _) = names(c.step);
        let badge = c
            .known
            .map_or_else(|| line!["no figure"], |known| vec![Inline::Badge(Source { known, id: None })]);
        table.row(Row::new(vec![
            line![capital(c.class.phrase())],
            line![Inline::Standing(c.standing)],
            prose(&sentence(&c.reason)),
            line![Inline::Link { to, text: format!("{} {short}", c.step.index()) }],
            badge,
        ]));
    }
    table.block()
}

/// The steps that could not tell.
fn refusals(run: &Run) -> Option<Block> {
    let rungs = run.rungs();
    let refused: Vec<Line> = rungs
        .iter()
        .filter_map(|r| Some((r.step, r.done.as_ref()?)))
        .filter(|(_, d)| d.origin == Origin::Refused)
        .map(|(step, d)| {
            let needs = d.needs.map_or_else(Line::new, |n| line![" It needs: ", prose(&sentence(n))]);
            line![
                strong(format!("Step {} ({step})", step.index())),
                ": ",
                prose(&sentence(d.headline)),
                needs
            ]
        })
        .collect();
    if refused.is_empty() {
        return None;
    }
    let title =
        line![format!("{} of {} steps were refused for want of evidence", refused.len(), rungs.len())];
    Some(Block::Fold { title, blocks: vec![Block::List(refused)] })
}

/// What the badges mean.
fn legend() -> Block {
    let says = |known| match known {
        Known::Measured => "measured now, on the device named",
        Known::Recorded => "a measurement read back from a file",
        Known::Mined => "read from a compiler's output",
        Known::Given => "given by the user",
        Known::Published => "published by somebody",
        Known::Modelled => "computed by a model",
        Known::Assumed => "taken to be so",
    };
    let mut items = line!["Every number says how it is known, strongest first: "];
    for (i, known) in Known::ALL.into_iter().rev().enumerate() {
        items.push(text(if i == 0 { "" } else { "; " }));
        items.push(Inline::Badge(Source { known, id: None }));
        items.push(text(format!(" {}", says(known))));
    }
    items.extend(line![
        ". A computed number is as weak as its weakest input. A badge leads to its ",
        Inline::Link { to: "sources", text: "source".into() },
        ".",
    ]);
    Block::Paragraph(items)
}

fn capital(t: &str) -> String {
    let mut chars = t.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().collect::<String>() + chars.as_str())
}
