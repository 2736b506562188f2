//! Step 4: pressure on the pipes before and after, the chain of rewrites with its guards, and what was timed.

use super::{plural, sentence, whole};
use crate::ReportError;
use crate::doc::{Block, Line, Plot, Row, Sources, Table, code, line, prose, strong, text};
use crate::plot::bars::{Bar, bars};
use crate::plot::chain::{Link, chain as drawn};
use crate::{number, plot};
use kbt_evidence::Provenance;
use kbt_quant::outcome::{AlgebraOutcome, CandidateOutcome, Form, PricedOutcome, RewriteOutcome};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn blocks(sources: &Sources, o: &AlgebraOutcome) -> Result<Vec<Block>, ReportError> {
    let mut blocks = Vec::new();
    if let Some(refused) = &o.refused {
        blocks.push(Block::Warning(prose(&sentence(refused))));
    }
    blocks.extend(measured(sources, o).block());
    blocks.extend(pressure(sources, o)?);
    blocks.extend(forms(sources, o).block());
    if let Some(rewrite) = &o.rewrite {
        blocks.extend(chain(sources, rewrite)?);
    }
    blocks.extend(budget(sources, o));
    Ok(blocks)
}

fn measured(sources: &Sources, o: &AlgebraOutcome) -> Table {
    let mut table = Table::new(
        "The forms, timed in the kernel",
        &["Form", "#Time of a launch", "#Times as fast as the first"],
    );
    let best = o.measured.iter().map(|m| m.us).fold(f64::INFINITY, f64::min);
    for m in &o.measured {
        let spread = format!("{} to {}, {}", number::time(m.low_us), number::time(m.high_us), m.spread);
        table.row(
            Row::new(vec![
                line![code(&m.name)],
                line![number::time(m.us), crate::doc::aside(spread)],
                line![number::ratio(m.speed_ratio)],
            ])
            .known(sources.of(&m.provenance))
            .marked(m.us <= best && o.measured.len() > 1),
        );
    }
    table
}

/// What an element costs on each pipe.
struct Pressure<'a> {
    name: &'a str,
    pipes: &'a BTreeMap<String, f64>,
    provenance: &'a Provenance,
}

/// The program given and the best candidate; where the search found none, the plainest form and the cheapest.
fn before_and_after(o: &AlgebraOutcome) -> Option<[Pressure<'_>; 2]> {
    if let Some(r) = &o.rewrite
        && let Some(best) = r.candidates.first()
    {
        let before = Pressure { name: &r.name, pipes: &r.baseline.pipes, provenance: &r.baseline.provenance };
        let after = Pressure { name: "best candidate", pipes: &best.pipes, provenance: &best.provenance };
        return Some([before, after]);
    }
    let cost = |f: &&Form| f.predicted.cycles_per_element;
    let (first, others) = o.forms.split_first()?;
    let best = others.iter().min_by(|a, b| cost(a).total_cmp(&cost(b)))?;
    Some([form(first), form(best)])
}

fn form(f: &Form) -> Pressure<'_> {
    Pressure { name: &f.name, pipes: &f.predicted.pipes, provenance: &f.predicted.provenance }
}

fn pressure(sources: &Sources, o: &AlgebraOutcome) -> Result<Vec<Block>, ReportError> {
    let Some([before, after]) = before_and_after(o) else { return Ok(Vec::new()) };
    let names: BTreeSet<&String> = before.pipes.keys().chain(after.pipes.keys()).collect();
    let of = |pipes: &BTreeMap<String, f64>, name: &String| pipes.get(name).copied().unwrap_or(0.0);
    let mut all: Vec<Bar> = names
        .into_iter()
        .map(|n| Bar { label: n.clone(), before: of(before.pipes, n), after: of(after.pipes, n) })
        .collect();
    all.sort_by(|a, b| b.before.total_cmp(&a.before));
    let title = "Pressure on the pipes, before and after";
    let svg = plot::inline(&bars(&all, [before.name, after.name], "cycles an element and SM")?, title);
    let caption = line![
        "The busiest bar is the least time that an element takes; everything else is hidden behind it, if it overlaps. ",
        sources.badge(before.provenance)
    ];
    let mut table = Table::new("Cycles an element and SM, by pipe", &["Pipe", "#Before", "#After"]);
    for bar in &all {
        let cells = vec![
            line![bar.label.as_str()],
            line![number::plain(bar.before)],
            line![number::plain(bar.after)],
        ];
        table.row(Row::new(cells).known(sources.of(after.provenance)));
    }
    let values = Block::Fold { title: line!["The plot's numbers"], blocks: vec![Block::Table(table)] };
    Ok(vec![Block::Plot(Plot { title: title.into(), svg, caption }), values])
}

fn forms(sources: &Sources, o: &AlgebraOutcome) -> Table {
    let columns =
        ["Form", "#Cycles an element and SM", "Busiest", "#Issue slots an element", "#Longest chain, clk"];
    let mut table = Table::new("What each form of the step is predicted to cost", &columns);
    let row = |name: Line, p: &PricedOutcome| {
        Row::new(vec![
            name,
            line![number::plain(p.cycles_per_element)],
            line![p.busiest_pipe.as_str()],
            line![number::plain(p.issue_slots)],
            line![number::cycles(p.chain)],
        ])
        .known(sources.of(&p.provenance))
    };
    for form in &o.forms {
        table.row(row(line![code(&form.name)], &form.predicted));
    }
    for (i, c) in o.rewrite.iter().flat_map(|r| r.candidates.iter().enumerate()) {
        let cells = vec![
            line![format!("found: candidate {}", i + 1)],
            line![number::plain(c.cycles_per_element)],
            line![c.busiest_pipe.as_str()],
            line![number::plain(c.issue_slots)],
            line![number::cycles(c.chain)],
        ];
        table.row(Row::new(cells).known(sources.of(&c.provenance)));
    }
    table
}

/// The rules from the program given to the best candidate, drawn.
fn rules(sources: &Sources, r: &RewriteOutcome, best: &CandidateOutcome) -> Result<Block, ReportError> {
    let cost = |cycles: f64, pipe: &str| {
        Some(format!("{} cycles an element, {pipe} busiest", number::plain(cycles)))
    };
    let mut links = vec![Link {
        label: r.name.clone(),
        cost: cost(r.baseline.cycles_per_element, &r.baseline.busiest_pipe),
    }];
    links.extend(best.rules.iter().map(|rule| Link { label: rule.clone(), cost: None }));
    links.push(Link {
        label: "best candidate".into(),
        cost: cost(best.cycles_per_element, &best.busiest_pipe),
    });
    let title = "The chain of rewrites";
    let svg = plot::inline(&drawn(&links)?, title);
    let caption = line![
        "Each grey box is a rule, in the order in which they prove that both programs compute the same. ",
        sources.badge(&best.provenance)
    ];
    Ok(Block::Plot(Plot { title: title.into(), svg, caption }))
}

fn chain(sources: &Sources, r: &RewriteOutcome) -> Result<Vec<Block>, ReportError> {
    let mut blocks = Vec::new();
    if let Some(best) = r.candidates.first() {
        blocks.push(Block::Heading(format!("From {} to the best candidate", r.name)));
        blocks.push(rules(sources, r, best)?);
        blocks.push(Block::Terms(candidate(sources, best)));
        let both = vec![
            Block::Paragraph(vec![strong("Before:")]),
            Block::Verbatim(r.baseline.program.clone()),
            Block::Paragraph(vec![strong("After:")]),
            Block::Verbatim(best.program.clone()),
        ];
        blocks.push(Block::Fold { title: line!["Both programs"], blocks: both });
    }
    let b = &r.lower_bound;
    blocks.push(Block::Paragraph(line![
        strong("Lower bound: "),
        sources
            .said(format!("{} cycles an element and SM", number::plain(b.cycles_per_element)), &b.provenance),
        ", ",
        sources.said(format!("{} issue slots", number::plain(b.issue_slots)), &b.provenance),
        ". ",
        prose(&sentence(&b.statement)),
    ]));
    let g = &r.graph;
    let size = format!(
        "{} terms in {} classes after {} rounds",
        whole(g.terms_count as u64),
        whole(g.classes_count as u64),
        whole(g.iterations_count as u64)
    );
    let end = if g.saturated {
        "; no rule had anything to add."
    } else {
        "; cut off before the rules had nothing to add."
    };
    blocks.push(Block::Paragraph(line!["The graph searched: ", sources.said(size, &g.provenance), end]));
    let mut left: Vec<Line> = r
        .refused
        .iter()
        .map(|x| line![code(&x.rule), " (", prose(&x.says), "): ", prose(&sentence(&x.because))])
        .collect();
    left.extend(r.rejected.iter().map(|c| {
        line!["A candidate that the replay refutes: ", prose(&sentence(&c.replay.wrong.join("; ")))]
    }));
    if !left.is_empty() {
        let title = line![format!("{} not taken, and why", plural(left.len(), "rewrite"))];
        blocks.push(Block::Fold { title, blocks: vec![Block::List(left)] });
    }
    Ok(blocks)
}

fn candidate(sources: &Sources, c: &CandidateOutcome) -> Vec<(Line, Vec<Line>)> {
    let mut rules = Line::new();
    for (i, rule) in c.rules.iter().enumerate() {
        rules.push(text(if i == 0 { "" } else { " → " }));
        rules.push(code(rule));
    }
    let r = &c.replay;
    let replay = format!(
        "{} of {} codes differ over {} rows ({} of them at code boundaries), {} of these explained as ties",
        whole(r.differing_count as u64),
        whole(r.codes_count as u64),
        whole(r.rows_count as u64),
        whole(r.tie_rows_count as u64),
        whole(r.explained_count as u64)
    );
    let wrong: Vec<Line> = r.wrong.iter().map(|w| line![strong("Wrong: "), prose(&sentence(w))]).collect();
    let guards: Vec<Line> = c.guards.iter().map(|g| prose(&sentence(g))).collect();
    vec![
        (line!["Rules, in order"], vec![rules]),
        (line!["Guards to keep"], if guards.is_empty() { vec![line!["none"]] } else { guards }),
        (
            line!["Replayed bit by bit"],
            std::iter::once(line![sources.said(replay, &r.provenance), "."]).chain(wrong).collect(),
        ),
    ]
}

fn budget(sources: &Sources, o: &AlgebraOutcome) -> Option<Block> {
    let b = o.budget.as_ref()?;
    let said = |v: f64| sources.said(number::plain(v), &b.provenance);
    let line = line![
        strong("Range of P: "),
        "offset ",
        said(b.offset_log2),
        " and rescale threshold ",
        said(b.rescale_threshold_log2),
        " of ",
        said(b.limit_log2),
        " powers of two: ",
        if b.fits {
            "nothing saturates."
        } else {
            "P exceeds what its formats hold, so it saturates while the row sum counts it whole."
        },
    ];
    Some(if b.fits { Block::Paragraph(line) } else { Block::Warning(line) })
}
