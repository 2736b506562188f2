//! The document as one HTML file that loads nothing: styles, plots and the little script are in it. What it says is
//! decided elsewhere.

use crate::doc::{Block, Document, Holds, Inline, Line, Mark, Plot, Row, Section, Source, Table};
use crate::record::Origin;
use kbt_evidence::{Known, Provenance, Standing};
use maud::{DOCTYPE, Markup, PreEscaped, html};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The file's text.
pub(crate) fn render(document: &Document) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (document.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#conclusion" { "Skip to the conclusion" }
                header.top {
                    p.brand { "kbt report" }
                    h1 { (document.title) }
                    p.sub { (line(&document.subtitle)) }
                }
                div.page {
                    nav aria-label="Sections" {
                        ol {
                            @for s in &document.sections {
                                li { a href={ "#" (s.id) } { @if let Some(n) = s.step { span.n { (n) } } (s.short) } }
                            }
                        }
                    }
                    main { @for s in &document.sections { (section(s)) } }
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn section(s: &Section) -> Markup {
    html! {
        section id=(s.id) aria-labelledby={ (s.id) "-title" } {
            header {
                @if let Some(n) = s.step { p.kicker { "Step " (n) " · " (s.short) } }
                h2 id={ (s.id) "-title" } { (s.title) }
                @if !s.aside.is_empty() { p.aside { (line(&s.aside)) } }
            }
            (blocks(&s.blocks))
        }
    }
}

fn blocks(all: &[Block]) -> Markup {
    html! { @for b in all { (block(b)) } }
}

fn block(b: &Block) -> Markup {
    match b {
        Block::Heading(title) => html! { h3 { (title) } },
        Block::Paragraph(l) => html! { p { (line(l)) } },
        Block::Warning(l) => html! { p.warning role="note" { (line(l)) } },
        Block::List(items) => html! { ul { @for i in items { li { (line(i)) } } } },
        Block::Terms(terms) => html! {
            dl { @for (term, is) in terms { dt { (line(term)) } @for l in is { dd { (line(l)) } } } }
        },
        Block::Table(t) => table(t),
        Block::Plot(p) => plot(p),
        Block::Command(c) => html! { pre.command { code { (c) } } },
        Block::Verbatim(t) => html! { pre tabindex="0" { code { (t) } } },
        Block::Sources(list) => sources(list),
        Block::Fold { title, blocks: inner } => html! {
            details { summary { (line(title)) } div.fold { (blocks(inner)) } }
        },
        Block::Lead { kicker, text, blocks: inner } => html! {
            div.lead { p.kicker { (kicker) } p.what { (line(text)) } (blocks(inner)) }
        },
    }
}

fn plot(p: &Plot) -> Markup {
    html! {
        figure {
            div.scroll tabindex="0" role="region" aria-label=(p.title) { (PreEscaped(&p.svg)) }
            figcaption { strong { (p.title) "." } " " (line(&p.caption)) }
        }
    }
}

fn table(t: &Table) -> Markup {
    let known = t.has_known();
    html! {
        div.scroll tabindex="0" role="region" aria-label=(t.caption) {
            table {
                caption { (t.caption) }
                thead {
                    tr {
                        @for c in &t.columns { th class=[class(c.holds)] scope="col" { (c.title) } }
                        @if known { th scope="col" { "Known" } }
                    }
                }
                tbody { @for r in &t.rows { (row(t, r, known)) } }
            }
        }
    }
}

const fn class(holds: Holds) -> Option<&'static str> {
    match holds {
        Holds::Words => None,
        Holds::Prose => Some("prose"),
        Holds::Numbers => Some("num"),
    }
}

fn row(t: &Table, r: &Row, known: bool) -> Markup {
    html! {
        tr class=[r.marked.then_some("marked")] {
            // On a narrow screen each row is a card, whose cells are named by these.
            @for (c, cell) in t.columns.iter().zip(&r.cells) {
                td class=[class(c.holds)] data-label=(c.title) { (line(cell)) }
            }
            @if known { td.known data-label="Known" { @for s in &r.known { (badge(*s)) " " } } }
        }
    }
}

fn sources(list: &[(usize, Provenance)]) -> Markup {
    html! {
        ol.sources {
            @for (id, p) in list {
                li id={ "s" (id) } value=(id) {
                    (badge(Source { known: p.kind, id: None })) " " (p.by)
                    @let more = particulars(p);
                    @if !more.is_empty() { span.more { (more.join(" · ")) } }
                    @if !p.inputs.is_empty() { span.more { "from " (p.inputs.join("; ")) } }
                }
            }
        }
    }
}

/// Device, driver, clock and date of a provenance, those that are there.
pub(crate) fn particulars(p: &Provenance) -> Vec<String> {
    let driver = p.driver.as_ref().map(|d| format!("driver {d}"));
    let clock = p.sm_clock_mhz.map(|mhz| format!("SM clock {mhz:.0} MHz"));
    [p.device.clone(), driver, clock, p.date.clone()].into_iter().flatten().collect()
}

fn line(l: &Line) -> Markup {
    html! { @for i in l { (inline(i)) } }
}

fn inline(i: &Inline) -> Markup {
    match i {
        Inline::Text(t) => html! { (t) },
        Inline::Code(t) => html! { code { (t) } },
        Inline::Strong(t) => html! { strong { (t) } },
        Inline::Number { text, spread, source } => html! {
            // A number keeps to one line; a clause with numbers may break.
            span.value.clause[text.chars().count() > 28] { (text) } " "
            @if let Some(s) = spread { span.spread { "(" (s) ")" } " " }
            (badge(*source))
        },
        Inline::Aside(t) => html! { " " span.spread { "(" (t) ")" } },
        Inline::Badge(source) => badge(*source),
        Inline::Standing(s) => {
            let (class, mark) = match s {
                Standing::Recommended => ("recommended", "✓"),
                Standing::Open => ("open", "○"),
                Standing::RuledOut => ("out", "✕"),
                Standing::Refused => ("refused", "–"),
            };
            html! { span class={ "chip " (class) } { span aria-hidden="true" { (mark) } " " (s) } }
        }
        Inline::Origin(o) => {
            let (class, word) = origin(*o);
            html! { span class={ "chip " (class) } { (word) } }
        }
        Inline::Mark(mark, word) => {
            let (class, sign) = match mark {
                Mark::Good => ("good", "✓"),
                Mark::Bad => ("bad", "✕"),
                Mark::Unclear => ("unclear", "?"),
            };
            html! { span class={ "mark " (class) } { span aria-hidden="true" { (sign) } " " (word) } }
        }
        Inline::Link { to, text } => html! { a.ref href={ "#" (to) } { (text) } },
    }
}

/// The class and the word of an origin.
pub(crate) const fn origin(o: Origin) -> (&'static str, &'static str) {
    match o {
        Origin::Live => ("live", "live"),
        Origin::Recorded => ("rec", "recorded"),
        Origin::Refused => ("refused", "refused"),
    }
}

fn badge(s: Source) -> Markup {
    let strength = match s.known {
        Known::Measured | Known::Recorded => "strong",
        Known::Mined | Known::Given | Known::Published => "said",
        Known::Modelled | Known::Assumed => "weak",
    };
    match s.id {
        Some(id) => {
            // The sources are a section of their own; a tab stop a number would hide what else can be reached.
            html! { a class={ "b " (strength) } href={ "#s" (id) } tabindex="-1" { (s.known) } }
        }
        None => html! { span class={ "b " (strength) } { (s.known) } },
    }
}
