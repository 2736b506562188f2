//! Step 0: the roofline, the accountings, the checks, the evidence matrix and the five outputs.

use super::experiments;
use super::{figure, sentence};
use crate::ReportError;
use crate::doc::{Block, Inline, Line, Plot, Row, Sources, Table, cell, line, prose, strong, text};
use crate::plot;
use crate::run::Run;
use kbt_evidence::{Figure, Provenance, Unit};
use kbt_roofline::TriageOutcome;
use kbt_roofline::outcome::{Check, CheckStatus, PlotPoint, RooflinePlot, Statement, Status};

pub(super) fn blocks(sources: &Sources, run: &Run, o: &TriageOutcome) -> Result<Vec<Block>, ReportError> {
    // The matrix as the run leaves it: what later steps found stands where the triage had only leads.
    let o = &o.with_roles(&run.roles()).with_ladder(&run.verdicts());
    let mut blocks = Vec::new();
    if run.traced() {
        blocks.push(Block::Paragraph(line![
            "The line above is of the triage alone, before the trace had looked; what follows is with what the later \
             steps found."
        ]));
    }
    if let Some(question) = &o.question {
        blocks.push(Block::Paragraph(line!["Asked: ", prose(question)]));
    }
    if let Some(refusal) = &o.refusal {
        blocks.push(Block::Warning(prose(&sentence(refusal))));
    }
    if !o.supply.is_empty() {
        let supply = |s: &kbt_roofline::outcome::Supply| {
            line![
                strong(s.fact.as_str()),
                ": ",
                prose(&s.keys),
                "; for example ",
                prose(&format!("`{}`", s.example))
            ]
        };
        blocks.push(Block::List(o.supply.iter().map(supply).collect()));
    }
    blocks.extend(call(sources, o));
    for c in &o.contradictions {
        let shown = if c.settle_first { Block::Warning } else { Block::Paragraph };
        blocks.push(shown(line![
            strong(if c.settle_first { "A figure that cannot be: " } else { "Above by a few percent: " }),
            prose(&sentence(&c.what)),
            " ",
            sources.figure(&c.figure),
            format!(" Possible causes: {}.", c.causes.join("; ")),
        ]));
    }
    blocks.extend(roofline(sources, run, o)?);
    blocks.extend(bounds(sources, o));
    blocks.extend(matrix(sources, o));
    blocks.extend(experiments::blocks(sources, run, o));
    blocks.extend(outputs(sources, o));
    blocks.extend(checks(sources, o));
    if let Some(facts) = &run.facts {
        blocks.push(Block::Fold {
            title: line!["The facts as they were used (facts.yaml)"],
            blocks: vec![Block::Verbatim(facts.clone())],
        });
    }
    Ok(blocks)
}

fn call(sources: &Sources, o: &TriageOutcome) -> Option<Block> {
    let mut line = match o.call {
        Some(call) => {
            let initial = if o.status == Status::Initial { " (by arithmetic intensity alone)" } else { "" };
            line!["The kernel is ", strong(call.as_str()), initial]
        }
        None => return None,
    };
    if let Some(margin) = &o.margin {
        line.extend(line!["; ", format!("{} ", margin.name), sources.figure(margin)]);
    }
    line.push(text(". "));
    if let Some(initial) = &o.initial {
        line.extend(line![
            prose(&sentence(&initial.flop_line)),
            " ",
            sources.badge(&initial.flop.provenance),
            " ",
            prose(&sentence(&initial.hbm_line)),
            " ",
            sources.badge(&initial.hbm_bytes.provenance),
            " Intensity ",
            sources.figure(&initial.intensity),
            ", ridge ",
            sources.figure(&initial.ridge),
            ".",
        ]);
    }
    Some(Block::Paragraph(line))
}

fn roofline(sources: &Sources, run: &Run, o: &TriageOutcome) -> Result<Vec<Block>, ReportError> {
    let Some(plot) = o.plot.as_ref().filter(|p| !p.roofs.is_empty()) else { return Ok(Vec::new()) };
    let mut plot = plot.clone();
    plot.points.extend(after(run, o, &plot));
    let title = "Roofline";
    let svg = plot::inline(&plot::roofline::roofline(&plot)?, title);
    let caption = line![
        "Dashed roofs are not measured. The vertical line is what separates the kernel from its lowest roof."
    ];
    let mut table = Table::new("Roofs and kernels of the plot", &["Roof or kernel", "#Rate", "#FLOP/B"]);
    for roof in &plot.roofs {
        let rate = match (roof.bytes_per_s, roof.flop_per_s) {
            (Some(b), _) => crate::number::in_unit(b, Unit::BytesPerSecond),
            (None, Some(f)) => crate::number::in_unit(f, Unit::FlopPerSecond),
            (None, None) => "–".into(),
        };
        table.row(
            Row::new(vec![prose(&roof.name), line![rate], cell(None)]).known(sources.of(&roof.provenance)),
        );
    }
    for point in &plot.points {
        let rate = crate::number::in_unit(point.flop_per_s, Unit::FlopPerSecond);
        let ai = crate::number::plain(point.flop_per_byte);
        table.row(
            Row::new(vec![prose(&point.name), line![rate], line![ai]]).known(sources.of(&point.provenance)),
        );
    }
    Ok(vec![Block::Plot(Plot { title: title.into(), svg, caption }), Block::Table(table)])
}

/// The kernel after the sweep: the same useful work in the time of the best setting.
fn after(run: &Run, o: &TriageOutcome, plot: &RooflinePlot) -> Option<PlotPoint> {
    let before = plot.points.first()?;
    let flop = &o.initial.as_ref()?.flop;
    let split = run.handoff.as_ref()?.outcome.as_ref()?;
    let best = split.best.and_then(|i| split.points.iter().find(|p| p.index == i))?;
    let time =
        figure("time of the sweep's best setting", best.time_us?, Unit::Microseconds, &best.provenance);
    let how =
        "useful operations of the fact sheet over the time of the sweep's best setting: the same problem";
    let provenance = Provenance::computed(
        how,
        [(flop.name.as_str(), &flop.provenance), (time.name.as_str(), &time.provenance)],
    );
    let rate = flop.value / (time.value * 1e-6);
    (rate.is_finite() && rate > 0.0)
        .then(|| plot::roofline::moved(before, "best setting of the sweep", rate, provenance))
}

fn bounds(sources: &Sources, o: &TriageOutcome) -> Option<Block> {
    let mut table = Table::new(
        "The least time that each resource needs",
        &["Resource", "~Arithmetic", "#Time", "#Of the measured time"],
    );
    for b in &o.bounds {
        let share = b.share.as_ref().map_or_else(|| cell(None), |s| line![share(sources, s)]);
        table.row(Row::new(vec![prose(&b.name), prose(&b.how), line![sources.figure(&b.time)], share]));
    }
    table.block()
}

/// A share as a percentage.
fn share(sources: &Sources, f: &Figure) -> Inline {
    sources.said(crate::number::percent(f.value), &f.provenance)
}

fn statements(sources: &Sources, all: &[Statement]) -> Line {
    let mut line = Line::new();
    for (i, s) in all.iter().enumerate() {
        if i > 0 {
            line.push(text(" "));
        }
        line.extend(prose(&sentence(&s.text)));
        // The statement has the figures' numbers; what it needs is how they are known.
        let mut badges: Vec<Inline> = Vec::new();
        for badge in s.figures.iter().map(|f| sources.badge(&f.provenance)) {
            if !badges.contains(&badge) {
                badges.push(badge);
            }
        }
        line.extend(badges.into_iter().flat_map(|b| [text(" "), b]));
    }
    line
}

fn matrix(sources: &Sources, o: &TriageOutcome) -> Vec<Block> {
    let columns = ["~Candidate", "Stands", "#Share of the time", "~Supporting evidence", "~Counter-evidence"];
    let mut table = Table::new("Evidence matrix, best candidate first", &columns);
    let mut needed: Vec<(Line, Vec<Line>)> = Vec::new();
    for row in &o.evidence {
        let share = row.share.as_ref().map_or_else(|| cell(None), |s| line![share(sources, s)]);
        let against = match (row.against.is_empty(), row.counter_evidence_looked_for) {
            (true, false) => line!["none could be looked for"],
            (true, true) => {
                let mut line = line!["looked for, none found: "];
                line.extend(statements(sources, &row.looked_for));
                line
            }
            (false, _) => statements(sources, &row.against),
        };
        let supports =
            if row.supports.is_empty() { line!["none"] } else { statements(sources, &row.supports) };
        table.row(Row::new(vec![
            line![
                strong(&row.title),
                format!(" ({}). {}", row.class.as_str().replace('_', " "), sentence(&row.fix))
            ],
            line![row.standing.as_str()],
            share,
            supports,
            against,
        ]));
        if !row.needed.is_empty() {
            let items = row.needed.iter().map(|n| prose(&sentence(n))).collect();
            needed.push((line![strong(&row.title)], items));
        }
    }
    let Some(table) = table.block() else { return Vec::new() };
    let mut blocks = vec![Block::Heading("Evidence for and against each candidate".into()), table];
    if !needed.is_empty() {
        let title = line!["What is still to be measured, candidate by candidate"];
        blocks.push(Block::Fold { title, blocks: vec![Block::Terms(needed)] });
    }
    blocks
}

fn outputs(sources: &Sources, o: &TriageOutcome) -> Vec<Block> {
    let Some(out) = &o.outputs else { return Vec::new() };
    let list = |items: &[String]| -> Vec<Line> { items.iter().map(|i| prose(&sentence(i))).collect() };
    let data: Vec<Line> =
        out.evidence.from_data.iter().map(|s| statements(sources, std::slice::from_ref(s))).collect();
    let data_figures = out.evidence.from_data.iter().flat_map(|s| &s.figures);
    let rests: Vec<&Figure> = data_figures.chain(o.evidence.first().and_then(|r| r.share.as_ref())).collect();
    let weakest = rests.iter().min_by_key(|f| f.provenance.kind);
    let mut conclusion = prose(&sentence(&out.conclusion));
    if let Some(f) = weakest {
        conclusion.extend([text(" "), sources.badge(&f.provenance)]);
    }
    let mut experiment = prose(&sentence(&out.validation.experiment));
    if let Some(e) = o.experiments.first() {
        experiment.extend([text(" "), sources.badge(&e.predicted.provenance)]);
    }
    let terms = vec![
        (line!["Conclusion"], vec![conclusion]),
        (line!["Evidence"], data),
        (line!["Assumptions"], list(&out.evidence.assumptions)),
        (line!["Correctness test"], vec![prose(&sentence(&out.validation.correctness))]),
        (line!["Boundary test"], vec![prose(&sentence(&out.validation.boundary))]),
        (line!["Falsifiable experiment"], vec![experiment]),
        (line!["Risks and fallback"], list(&out.risks)),
    ];
    let terms =
        terms.into_iter().map(|(t, is)| (t, if is.is_empty() { vec![line!["none"]] } else { is })).collect();
    let mut blocks = vec![Block::Heading("The five outputs".into()), Block::Terms(terms)];
    let mut table = Table::new(&out.artifact.title, &["Quantity", "~Arithmetic", "#Result"]);
    for row in &out.artifact.rows {
        table.row(Row::new(vec![prose(&row.quantity), prose(&row.how), line![sources.figure(&row.figure)]]));
    }
    blocks.extend(table.block());
    blocks
}

fn checks(sources: &Sources, o: &TriageOutcome) -> Option<Block> {
    let mut table = Table::new(
        "Does the implementation contradict the call?",
        &["~Check", "Found", "~Finding", "~Read against", "~Would tell"],
    );
    let rank = |c: &&Check| match c.status {
        CheckStatus::Fired => 0,
        CheckStatus::Clear => 1,
        CheckStatus::NotEvaluated => 2,
        _ => 3,
    };
    let mut all: Vec<&Check> = o.checks.iter().collect();
    all.sort_by_key(rank);
    for c in all {
        let mut read = Line::new();
        for t in c.conditions.iter().flatten().filter(|t| t.read.is_some()) {
            if let Some(value) = &t.read {
                let gap = if read.is_empty() { "" } else { "; " };
                read.extend(line![
                    format!("{gap}{} ", t.meaning),
                    sources.figure(value),
                    format!(", fires {} ", t.fires),
                    sources.figure(&t.threshold)
                ]);
            }
        }
        table.row(Row::new(vec![
            prose(&c.question),
            line![c.status.as_str().replace('_', " ")],
            prose(&c.finding),
            if read.is_empty() { cell(None) } else { read },
            if c.needed.is_empty() { cell(None) } else { prose(&c.needed.join("; ")) },
        ]));
    }
    let fired = o.checks.iter().filter(|c| c.status == CheckStatus::Fired).count();
    let blind = o.checks.iter().filter(|c| c.status == CheckStatus::NotEvaluated).count();
    let title =
        line![format!("The {} checks: {fired} fired, {blind} without a signal to tell by", o.checks.len())];
    table.block().map(|t| Block::Fold { title, blocks: vec![t] })
}
