//! Step 5: the sweep drawn and as a table, what the contract forbids, and how well the model did.

use super::{plural, sentence, whole};
use crate::ReportError;
use crate::doc::{
    Block, Inline, Line, Mark, Plot, Row, Sources, Table, aside, cell, code, line, prose, strong,
};
use crate::plot::forest::{Entry, forest};
use crate::{number, plot};
use kbt_evidence::Unit;
use kbt_split::outcome::{PointOutcome, PointStatus, RatioFigure};
use kbt_split::{CheckOutcome, SplitOutcome};
use kbt_target::{Setting, Speed};

pub(super) fn blocks(sources: &Sources, o: &SplitOutcome) -> Result<Vec<Block>, ReportError> {
    let mut blocks = Vec::new();
    if let Some(refused) = &o.refused {
        blocks.push(Block::Warning(prose(&sentence(refused))));
    }
    let points = sorted(o);
    if let Some(base) = o.baseline() {
        blocks.push(Block::Paragraph(line![
            "The baseline is ",
            code(base.setting.to_string()),
            "; settings are shown by what they change."
        ]));
    }
    if o.points.iter().any(|p| p.to_baseline.is_some()) || o.model.is_some() {
        let entries: Vec<Entry> = points.iter().map(|p| entry(o, p)).collect();
        let title = "The sweep: each setting's time over the baseline's";
        let svg = plot::inline(&forest(&entries)?, title);
        blocks.push(Block::Plot(Plot { title: title.into(), svg, caption: caption(sources, o) }));
    }
    blocks.extend(model(sources, o));
    blocks.extend(table(sources, o, &points).block());
    blocks.extend(confirmed(sources, o).block());
    blocks.extend(never_run(sources, o));
    Ok(blocks)
}

/// By chunks and the fraction handed over first, so that the model's curve is one; the rest after them.
fn sorted(o: &SplitOutcome) -> Vec<&PointOutcome> {
    let mut points: Vec<&PointOutcome> = o.points.iter().collect();
    let fraction = |first: u32, all: u32| u64::from(first) * 1_000_000 / u64::from(all.max(1));
    points.sort_by_key(|p| match p.integers {
        Some(i) => {
            (0, i.chunks, fraction(i.first_chunks, i.chunks), fraction(i.first_tiles, i.tiles), p.index)
        }
        None => (1, 0, 0, 0, p.index),
    });
    points
}

fn entry(o: &SplitOutcome, p: &PointOutcome) -> Entry {
    let base = o.baseline().map(|b| &b.setting);
    let others: Setting = match base {
        Some(base) => {
            let differs = p.setting.differs_from(base).0.into_iter();
            Setting(differs.filter(|(k, _)| !o.handoff_knobs.contains(k)).collect())
        }
        None => p.setting.clone(),
    };
    let others = if others.0.is_empty() { String::new() } else { others.to_string() };
    let label = match (&p.integers, others.is_empty()) {
        (Some(i), true) => i.to_string(),
        (Some(i), false) => format!("{i}, {others}"),
        (None, false) => others,
        (None, true) => format!("point {}", p.index),
    };
    let interval = |r: RatioFigure| r.low_ratio.zip(r.high_ratio);
    Entry {
        label,
        ratio: p.to_baseline.map(|r| (r.ratio, interval(r))),
        model: modelled(o, p),
        why: p.to_baseline.is_none().then(|| match p.status.why() {
            Some(why) => format!("{}: {why}", p.status.word()),
            None => p.status.word().to_owned(),
        }),
        best: o.best == Some(p.index),
        baseline: p.index == 0,
    }
}

/// The model's ratio to the baseline, for points that it speaks of.
fn modelled(o: &SplitOutcome, p: &PointOutcome) -> Option<f64> {
    let curve = &o.model.as_ref()?.curve;
    let comparable = p.index == 0 || o.handoff_points().any(|h| h.index == p.index);
    let period =
        |p: &PointOutcome| curve.iter().find(|c| Some(c.integers) == p.integers).map(|c| c.period_cycles);
    let base = period(o.baseline()?)?;
    comparable.then(|| period(p)).flatten().map(|own| own / base)
}

fn caption(sources: &Sources, o: &SplitOutcome) -> Line {
    let mut line = line!["Bars are the intervals of the ratios"];
    if let Some(p) = o.points.iter().find(|p| p.to_baseline.is_some()) {
        line.extend(line![" ", sources.badge(&p.provenance)]);
    }
    if let Some(m) = &o.model {
        line.extend(line!["; diamonds are the model's curve ", sources.badge(&m.provenance)]);
    }
    line.extend(line!["."]);
    line
}

fn model(sources: &Sources, o: &SplitOutcome) -> Option<Block> {
    let m = o.model.as_ref()?;
    let mut said = match &m.score {
        Some(s) => {
            let rank = s.rank_correlation.map_or_else(
                || line!["has no rank correlation (one side is constant)"],
                |r| {
                    line![
                        "ranks the settings with a correlation of ",
                        sources.said(format!("{r:.2}"), &s.provenance)
                    ]
                },
            );
            line![
                strong("The model "),
                rank,
                " and errs by at most ",
                sources.number(s.max_error_percent, Unit::Percent, &s.provenance),
                " over ",
                sources.said(whole(s.points_count as u64), &s.provenance),
                " measured points."
            ]
        }
        None => line![strong("The model "), "was not scored: fewer than two of its points were measured."],
    };
    if let Some(best) = m.best() {
        said.extend(line![
            " Its best: ",
            best.integers.to_string(),
            ", ",
            sources.number(best.period_cycles, Unit::Cycles, &m.provenance),
            " a tile."
        ]);
    }
    said.extend(line![" It explains and ranks; it never stands in for a measurement."]);
    Some(Block::Paragraph(said))
}

fn changed(o: &SplitOutcome, setting: &Setting) -> Line {
    match o.baseline() {
        Some(base) if base.setting == *setting => line!["baseline"],
        Some(base) => line![code(setting.differs_from(&base.setting).to_string())],
        None => line![code(setting.to_string())],
    }
}

fn speed(s: Option<Speed>) -> Line {
    match s {
        Some(s) => line![s.to_string()],
        None => cell(None),
    }
}

/// A ratio with its interval.
fn ratio(r: RatioFigure) -> Line {
    let interval = r.low_ratio.zip(r.high_ratio);
    let interval = interval.map(|(l, h)| aside(format!("{} to {}", number::ratio(l), number::ratio(h))));
    line![number::ratio(r.ratio), interval]
}

fn time(p: &PointOutcome) -> Line {
    let Some(time) = p.time_us else { return cell(None) };
    let interval = p.low_time_us.zip(p.high_time_us);
    let interval = interval.map(|(l, h)| aside(format!("{} to {}", number::time(l), number::time(h))));
    line![number::time(time), interval]
}

fn table(sources: &Sources, o: &SplitOutcome, points: &[&PointOutcome]) -> Table {
    let columns = [
        "~Setting",
        "Came to",
        "#Time, fastest to slowest process",
        "#Over the baseline's",
        "Verdict",
        "#Model",
        "#Processes",
        "#Merged",
    ];
    let mut table = Table::new("Every setting of the sweep (marked: the best)", &columns);
    for p in points {
        let mut status = match &p.status {
            PointStatus::Timed => line![Inline::Mark(Mark::Good, "timed".into())],
            status => line![
                Inline::Mark(Mark::Bad, status.word().into()),
                status.why().map_or_else(String::new, |w| format!(": {w}"))
            ],
        };
        status.extend(p.check.as_ref().map(|c| aside(checked(c))));
        status.extend(p.notes.iter().map(|n| aside(n.as_str())));
        let verdict = match (p.speed, p.against, p.index) {
            (_, _, 0) | (None, _, _) => cell(None),
            (Some(s), None | Some(0), _) => line![s.to_string()],
            (Some(s), Some(i), _) if o.best == Some(i) => line![format!("{s} against the best")],
            (Some(s), Some(i), _) => {
                let other = o.points.iter().find(|p| p.index == i).and_then(|p| p.integers);
                line![
                    s.to_string(),
                    aside(other.map_or_else(|| format!("against point {i}"), |x| format!("against {x}")))
                ]
            }
        };
        let mut row = Row::new(vec![
            line![changed(o, &p.setting), p.integers.map(|i| aside(i.to_string()))],
            status,
            time(p),
            p.to_baseline.map_or_else(|| cell(None), ratio),
            verdict,
            cell(modelled(o, p).map(number::ratio)),
            line![whole(p.processes_count as u64)],
            line![whole(p.merged_count as u64)],
        ])
        .known(sources.of(&p.provenance))
        .marked(o.best == Some(p.index));
        if let Some(m) = o.model.as_ref().filter(|_| modelled(o, p).is_some()) {
            row = row.known(sources.of(&m.provenance));
        }
        table.row(row);
    }
    table
}

fn checked(c: &CheckOutcome) -> String {
    match c {
        CheckOutcome::Bitwise => "outputs bitwise".into(),
        CheckOutcome::Accurate { statement } => format!("outputs accurate: {statement}"),
        CheckOutcome::Wrong { statement } => format!("wrong: {statement}"),
        CheckOutcome::Unchecked { why } => format!("outputs not looked at: {why}"),
    }
}

fn confirmed(sources: &Sources, o: &SplitOutcome) -> Table {
    let columns = ["Setting", "Verdict", "#Over the baseline's", "#Chance of a false call", "Problem"];
    let mut table =
        Table::new("The best settings against the baseline once more, on fresh samples", &columns);
    for c in &o.confirmed {
        let setting = o.points.iter().find(|p| p.index == c.index);
        table.row(
            Row::new(vec![
                setting.map_or_else(|| line![format!("point {}", c.index)], |p| changed(o, &p.setting)),
                speed(c.speed),
                c.to_baseline.map_or_else(|| cell(None), ratio),
                cell(c.error_rate_ratio.map(number::percent)),
                c.problem.as_deref().map_or_else(|| cell(None), prose),
            ])
            .known(sources.of(&c.provenance)),
        );
    }
    table
}

/// What was left out, and why that is safe or cheap.
fn never_run(sources: &Sources, o: &SplitOutcome) -> Vec<Block> {
    let mut blocks = Vec::new();
    if !o.forbidden.is_empty() {
        let items = o
            .forbidden
            .iter()
            .map(|f| line![code(f.setting.to_string()), ": ", prose(&sentence(&f.violation))])
            .collect();
        let count = plural(o.forbidden.len(), "setting");
        let title = line![format!("{count} that the handoff's contract forbids, never run")];
        blocks.push(Block::Fold { title, blocks: vec![Block::List(items)] });
    }
    let merged: usize = o.points.iter().map(|p| p.merged_count).sum();
    let mut items: Vec<Line> = o
        .excluded
        .iter()
        .map(|e| {
            line![
                code(&e.constraint),
                " excludes ",
                sources.said(plural(e.settings_count, "setting"), &o.provenance),
                "."
            ]
        })
        .collect();
    if merged > 0 {
        items.push(line![
            sources.said(plural(merged, "setting"), &o.provenance),
            " with a handoff that another has after rounding: the same kernel, so not run again."
        ]);
    }
    if !items.is_empty() {
        blocks.push(Block::List(items));
    }
    blocks
}
