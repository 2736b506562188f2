//! What each section says: the conclusion, the ladder, one section a step, and the sources. Each takes outcomes and
//! gives blocks; how blocks look is not here.

mod algebra;
mod conclusion;
mod experiments;
mod gain;
mod handoff;
mod ladder;
mod rates;
mod schedule;
mod sources;
mod trace;
mod triage;
mod validate;

use crate::ReportError;
use crate::doc::{Block, Document, Inline, Line, Mark, Section, Source, Sources, line, prose, strong, text};
use crate::record::Origin;
use crate::run::{Done, Run, Slot};
use kbt_evidence::{Direction, Evidence, Figure, Known, Provenance, Step, Unit, Verdict};

/// The whole report of a run.
pub(crate) fn document(run: &Run) -> Result<Document, ReportError> {
    let sources = Sources::default();
    let s = &sources;
    let mut sections = vec![
        conclusion::section(s, run),
        ladder::section(s, run),
        step(s, &run.triage, Step::Triage, |o, _| triage::blocks(s, run, o))?,
        step(s, &run.rates, Step::Rates, |o, _| Ok(rates::blocks(s, o)))?,
        step(s, &run.trace, Step::Trace, |o, _| trace::blocks(s, o))?,
        step(s, &run.schedule, Step::Schedule, |o, _| schedule::blocks(s, o))?,
        step(s, &run.algebra, Step::Algebra, |o, _| algebra::blocks(s, o))?,
        step(s, &run.handoff, Step::Handoff, |o, _| handoff::blocks(s, o))?,
        step(s, &run.validate, Step::Validate, |o, _| Ok(validate::blocks(s, o)))?,
    ];
    sections.push(sources::section(s, run));
    let quick = if run.spec.quick { "; a quick run, with fewer repetitions and points" } else { "" };
    Ok(Document {
        title: run.spec.subject(),
        subtitle: line![format!("{}{quick}. Run ", run.spec.device), Inline::Code(run.name.clone())],
        sections,
    })
}

/// A step's names: its section, its word in the navigation, and its question.
const fn names(step: Step) -> (&'static str, &'static str, &'static str) {
    match step {
        Step::Triage => ("triage", "Roofline", "Which roof, which candidates, what evidence"),
        Step::Rates => ("rates", "Rates", "What each instruction can do, alone and together"),
        Step::Trace => ("trace", "Pipeline", "Which role waits for which, step by step"),
        Step::Schedule => ("schedule", "Schedule", "Is there scheduling headroom in the machine code"),
        Step::Algebra => ("algebra", "Algebra", "Which cheaper program computes the same"),
        Step::Handoff => ("handoff", "Handoff", "Which split of the handoff is best and safe"),
        Step::Validate => ("validate", "Validation", "Is each variant right, every time"),
    }
}

/// A step's section: where its numbers come from, its line, its verdicts, and what `body` tells of the outcome; for a
/// step that was refused or did not run, that, and what would give it.
fn step<T>(
    sources: &Sources,
    slot: &Slot<T>,
    step: Step,
    body: impl FnOnce(&T, &Done<T>) -> Result<Vec<Block>, ReportError>,
) -> Result<Section, ReportError> {
    let (id, short, title) = names(step);
    let (mut aside, mut blocks) = (Line::new(), Vec::new());
    match slot {
        None => blocks.push(Block::Warning(line![
            "This step has not run, so nothing is known of it. ",
            Inline::Code("kbt tune --resume".into()),
            " with the options of this run goes on with it.",
        ])),
        Some(done) => {
            aside.extend(line!["This step: ", Inline::Origin(done.origin), kinds(&done.kinds)]);
            match &done.outcome {
                Some(outcome) => {
                    blocks.push(Block::Paragraph(headline(&done.headline)));
                    blocks.extend(done.verdicts.iter().flat_map(|v| verdict(sources, v)));
                    blocks.extend(body(outcome, done)?);
                }
                None => {
                    blocks.push(Block::Warning(prose(&sentence(&done.headline))));
                    blocks.extend(done.verdicts.iter().flat_map(|v| verdict(sources, v)));
                }
            }
            if let Some(needs) = &done.needs {
                blocks.push(Block::Paragraph(line![strong("What would give it: "), prose(&sentence(needs))]));
            }
        }
    }
    Ok(Section { id, title: title.into(), short, step: Some(step.index()), aside, blocks })
}

/// A step's line, standing out.
fn headline(t: &str) -> Line {
    let stand_out = |i| match i {
        Inline::Text(t) => Inline::Strong(t),
        other => other,
    };
    prose(&sentence(t)).into_iter().map(stand_out).collect()
}

/// Badges of the kinds of knowledge that a step's numbers have, strongest first.
fn kinds(kinds: &[Known]) -> Line {
    let mut line = Line::new();
    if !kinds.is_empty() {
        line.push(text(". Its numbers:"));
    }
    for known in kinds.iter().rev() {
        line.push(text(" "));
        line.push(Inline::Badge(Source { known: *known, id: None }));
    }
    line
}

/// A verdict: where the class stands and why, what to do, and its evidence to unfold.
fn verdict(sources: &Sources, v: &Verdict) -> Vec<Block> {
    let mut first =
        line![Inline::Standing(v.standing), " ", strong(v.class.phrase()), ": ", prose(&sentence(&v.reason))];
    if let Some(known) = v.known() {
        first.extend([text(" "), Inline::Badge(Source { known, id: None })]);
    }
    let mut blocks = Vec::new();
    if let Some(next) = &v.next {
        match instruction("Next: ", next) {
            Block::Paragraph(short) => first.extend([text(" ")].into_iter().chain(short)),
            long => blocks.push(long),
        }
    }
    blocks.insert(0, Block::Paragraph(first));
    if !v.evidence.is_empty() {
        let title = line![format!("Evidence: {}", v.class.phrase())];
        blocks.push(Block::Fold { title, blocks: vec![Block::List(evidence(sources, &v.evidence))] });
    }
    blocks
}

/// What to do next; where that is long, its beginning with the whole to unfold.
fn instruction(label: &str, t: &str) -> Block {
    const LONG: usize = 240;
    const SHOWN: usize = 90;
    if t.chars().count() <= LONG {
        return Block::Paragraph(line![strong(label), prose(&sentence(t))]);
    }
    let mut shown = String::new();
    for word in sentence(t).split(' ') {
        if shown.chars().count() + word.chars().count() > SHOWN {
            break;
        }
        shown.push_str(word);
        shown.push(' ');
    }
    let whole = vec![Block::Paragraph(prose(&sentence(t)))];
    Block::Fold { title: line![label, shown.trim_end().replace('`', ""), " …"], blocks: whole }
}

/// Pieces of evidence with their figures.
fn evidence(sources: &Sources, all: &[Evidence]) -> Vec<Line> {
    let one = |e: &Evidence| {
        let mark = match e.direction {
            Direction::For => Inline::Mark(Mark::Good, "for".into()),
            Direction::Against => Inline::Mark(Mark::Bad, "against".into()),
        };
        let figures = sources.named(&e.figures);
        let gap = if figures.is_empty() { "" } else { " — " };
        line![mark, " ", prose(&e.statement), gap, figures]
    };
    all.iter().map(one).collect()
}

/// A statement that begins and ends as a sentence does. Names (of tools, instructions, knobs) stay as they are.
fn sentence(t: &str) -> String {
    const NAMES: [&str; 6] = ["kbt", "ptxas", "nvcc", "wgmma", "setmaxnreg", "ncu"];
    let t = t.trim();
    let first = t.split([' ', ',', ':', ';', '.']).next().unwrap_or_default();
    let plain = first.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !NAMES.contains(&first);
    let follows = t[first.len()..].chars().next().is_none_or(|c| c != '.');
    let mut chars = t.chars();
    let begun = match chars.next() {
        Some(c) if plain && follows => c.to_uppercase().chain(chars).collect(),
        _ => t.to_owned(),
    };
    if begun.ends_with(['.', '!', '?', ':']) { begun } else { format!("{begun}.") }
}

/// `1 setting`, `3 settings`.
fn plural(n: usize, of: &str) -> String {
    format!("{} {of}{}", whole(n as u64), if n == 1 { "" } else { "s" })
}

/// A count that a provenance covers.
fn whole(n: u64) -> String {
    crate::number::count(n)
}

/// A figure from parts of an outcome that is not one itself.
fn figure(name: &str, value: f64, unit: Unit, provenance: &Provenance) -> Figure {
    Figure::new(name, value, unit, provenance.clone())
}

/// Whether a step could not tell.
fn any_refused(run: &Run) -> bool {
    run.rungs().iter().any(|r| r.done.as_ref().is_some_and(|d| d.origin == Origin::Refused))
}
