//! The conclusion: what to do, what it rests on, and where every class of fix stands.

use super::{any_refused, evidence, gain, instruction, names, sentence};
use crate::doc::{
    Block, Inline, Line, Row, Section, Source, Sources, Table, code, line, prose, strong, text,
};
use crate::number;
use crate::record::{Origin, Summary};
use crate::run::Run;
use kbt_evidence::{FixClass, Known, Standing, Verdict};
use kbt_quant::outcome::MeasuredVariant;

pub(super) fn section(sources: &Sources, run: &Run) -> Section {
    let mut blocks = Vec::new();
    match &run.summary {
        Some(summary) => {
            blocks.push(lead(sources, run, summary));
            blocks.extend(gain::block(sources, run));
            blocks.extend(then(summary));
            blocks.extend(classes(run, summary));
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
    let timed = run.algebra.as_ref().and_then(|d| d.outcome.as_ref()).map_or(&[][..], |o| &o.measured);
    if let Some(next) = &first.next {
        blocks.push(instruction("Do: ", next));
        if let Some(set) = setting(timed, next).map(str::to_owned).or_else(|| of_the_sweep(run, next)) {
            blocks.push(Block::Paragraph(line![strong("Set: "), code(set)]));
        }
    }
    if first.class == FixClass::Algebra {
        blocks.extend(where_the_gain_lies(sources, timed));
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

/// What to set for the timed variant that an instruction names, where that is not in it already.
fn setting<'a>(timed: &'a [MeasuredVariant], next: &str) -> Option<&'a str> {
    let named =
        |m: &&MeasuredVariant| next.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|w| w == m.name);
    let set = timed.iter().find(named)?.setting.as_deref()?;
    (!next.contains(set)).then_some(set)
}

/// The sweep's knob whose value an instruction names by itself.
fn of_the_sweep(run: &Run, next: &str) -> Option<String> {
    let split = run.handoff.as_ref()?.outcome.as_ref()?;
    let named = |value: &str| next.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|w| w == value);
    let letters = |value: &str| value.chars().any(char::is_alphabetic);
    let (knob, value) =
        split.baseline()?.setting.0.iter().find(|(_, v)| letters(v.as_str()) && named(v.as_str()))?;
    let set = format!("{knob}={value}");
    (!next.contains(&set)).then_some(set)
}

/// What the built-in kernel's forms change against the one before them.
const FORMS: &[(&str, &str)] = &[
    ("linear_rcp", "an IEEE division becomes a product with an approximate reciprocal"),
    ("log2", "the quantisation is done on the exponent, before exp2"),
    ("log2_fused", "the exponent's sum becomes one FMA"),
];

/// What each form takes off the one before it, where the largest step is not the last: a reader who does no more than that
/// one has most of the gain.
fn where_the_gain_lies(sources: &Sources, timed: &[MeasuredVariant]) -> Option<Block> {
    let last = timed.iter().map(|m| m.us).fold(f64::INFINITY, f64::min);
    let first = timed.first().filter(|m| timed.len() > 2 && m.us > last)?;
    let steps = || timed.windows(2).map(|pair| (&pair[0], &pair[1]));
    let (from, to) = steps().max_by(|a, b| (a.0.us - a.1.us).total_cmp(&(b.0.us - b.1.us)))?;
    Some(Block::Paragraph(line![
        strong("Where the gain lies: "),
        format!("{:.0} % of it from ", (from.us - to.us) / (first.us - last) * 100.0),
        code(from.name.as_str()),
        " to ",
        code(to.name.as_str()),
        format!(" ({} to {}) ", number::time(from.us), number::time(to.us)),
        sources.badge(&to.provenance),
        FORMS
            .iter()
            .find(|(name, _)| *name == to.name)
            .map_or_else(String::new, |(_, what)| format!(": {what}")),
        "; every form is in step 4.",
    ]))
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

fn classes(run: &Run, summary: &Summary) -> Option<Block> {
    let verdicts = run.verdicts();
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
        // A share that speaks against a class is a figure behind what is said of it, too.
        let known = c.known.or_else(|| {
            let said =
                verdicts.iter().find(|v| v.step == c.step && v.class == c.class && v.reason == c.reason)?;
            said.evidence.iter().flat_map(|e| &e.figures).map(|f| f.provenance.kind).min()
        });
        let badge =
            known.map_or_else(|| line!["no figure"], |known| vec![Inline::Badge(Source { known, id: None })]);
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

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_evidence::Provenance;

    #[test]
    fn what_to_set_is_said_where_the_instruction_names_a_variant_alone() {
        let variant = |name: &str| MeasuredVariant {
            name: name.to_owned(),
            setting: Some(format!("KBT_QUANT_FORM={name}")),
            us: 1.0,
            low_us: 1.0,
            high_us: 1.0,
            spread: String::new(),
            speed_ratio: 1.0,
            provenance: Provenance::given("a test"),
        };
        let timed = [variant("log2"), variant("log2_fused")];
        assert_eq!(setting(&timed, "use log2_fused"), Some("KBT_QUANT_FORM=log2_fused"));
        assert_eq!(setting(&timed, "use log2"), Some("KBT_QUANT_FORM=log2"));
        assert_eq!(setting(&timed, "build with KBT_QUANT_FORM=log2"), None);
        assert_eq!(setting(&timed, "split the handoff"), None);
    }
}
