//! The report as a document: sections of paragraphs, tables, lists, plots and commands, told once and written as HTML
//! and as Markdown. A number enters through [`Sources`], which gives it the badge that says how it is known; or it
//! stands in a table whose row has one. How things look is not here.

use crate::number;
use crate::record::Origin;
use kbt_evidence::{Figure, Known, Provenance, Standing, Unit};
use std::cell::RefCell;

/// A piece of a line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Inline {
    Text(String),
    Code(String),
    Strong(String),
    /// A number with its interval, and how it is known.
    Number {
        text: String,
        spread: Option<String>,
        source: Source,
    },
    /// What goes with a number or a name, smaller.
    Aside(String),
    /// How something is known, without a number.
    Badge(Source),
    /// Where a class of fix stands.
    Standing(Standing),
    /// Where a step's numbers come from.
    Origin(Origin),
    /// A word with a mark: good or bad.
    Mark(Mark, String),
    /// A link to a section.
    Link {
        to: &'static str,
        text: String,
    },
}

/// A mark before a word, so that nothing hangs on colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    Good,
    Bad,
    Unclear,
}

/// How something is known: the kind, and the entry in the list of sources where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) known: Known,
    pub(crate) id: Option<usize>,
}

/// A line of text.
pub(crate) type Line = Vec<Inline>;

/// A column's title and what it holds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Column {
    pub(crate) title: String,
    pub(crate) holds: Holds,
}

/// What a column holds, which is how much room it gets and where its text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holds {
    /// A word or a few.
    Words,
    /// A sentence or more.
    Prose,
    /// Numbers.
    Numbers,
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Row {
    pub(crate) cells: Vec<Line>,
    /// How the row's plain numbers are known.
    pub(crate) known: Vec<Source>,
    /// Whether the row is the one to look at.
    pub(crate) marked: bool,
}

/// A table. If any row says how it is known, a last column does.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Table {
    pub(crate) caption: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
}

/// A plot as SVG, with what it shows in words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) svg: String,
    pub(crate) caption: Line,
}

/// A part of a section.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Block {
    Heading(String),
    Paragraph(Line),
    /// Something to be seen before the numbers are used.
    Warning(Line),
    List(Vec<Line>),
    /// Terms and what they are.
    Terms(Vec<(Line, Vec<Line>)>),
    Table(Table),
    Plot(Plot),
    /// A command to copy.
    Command(String),
    /// Text as it stands in a file.
    Verbatim(String),
    /// The list of sources that badges link to, with the number of each.
    Sources(Vec<(usize, Provenance)>),
    /// Details that are closed at first.
    Fold {
        title: Line,
        blocks: Vec<Self>,
    },
    /// The one thing to read.
    Lead {
        kicker: String,
        text: Line,
        blocks: Vec<Self>,
    },
}

/// A section.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Section {
    pub(crate) id: &'static str,
    /// Its title.
    pub(crate) title: String,
    /// Its word in the navigation.
    pub(crate) short: &'static str,
    /// The place on the ladder, for steps.
    pub(crate) step: Option<usize>,
    /// Beside the title: where its numbers come from.
    pub(crate) aside: Line,
    pub(crate) blocks: Vec<Block>,
}

/// The whole report.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Document {
    pub(crate) title: String,
    pub(crate) subtitle: Line,
    pub(crate) sections: Vec<Section>,
}

/// The provenances that the report's numbers have, each once.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    entries: RefCell<Vec<Provenance>>,
}

impl Sources {
    /// The badge of a provenance.
    pub(crate) fn of(&self, provenance: &Provenance) -> Source {
        let mut entries = self.entries.borrow_mut();
        let at = entries.iter().position(|p| p == provenance).unwrap_or_else(|| {
            entries.push(provenance.clone());
            entries.len() - 1
        });
        Source { known: provenance.kind, id: Some(at + 1) }
    }

    /// A badge inline.
    pub(crate) fn badge(&self, provenance: &Provenance) -> Inline {
        Inline::Badge(self.of(provenance))
    }

    /// A figure's number, without its name.
    pub(crate) fn figure(&self, figure: &Figure) -> Inline {
        let spread = number::spread(figure);
        Inline::Number { text: number::figure(figure), spread, source: self.of(&figure.provenance) }
    }

    /// A number in a unit.
    pub(crate) fn number(&self, value: f64, unit: Unit, provenance: &Provenance) -> Inline {
        self.said(number::in_unit(value, unit), provenance)
    }

    /// A number that is written out already.
    pub(crate) fn said(&self, text: impl Into<String>, provenance: &Provenance) -> Inline {
        Inline::Number { text: text.into(), spread: None, source: self.of(provenance) }
    }

    /// Figures by name: `ridge 295 FLOP/B, time 412 µs`.
    pub(crate) fn named<'a>(&self, figures: impl IntoIterator<Item = &'a Figure>) -> Line {
        let mut line = Line::new();
        for figure in figures {
            let gap = if line.is_empty() { "" } else { "; " };
            line.push(text(gap));
            line.extend(prose(&figure.name));
            line.extend([text(" "), self.figure(figure)]);
        }
        line
    }

    /// All of them, in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<Provenance> {
        self.entries.borrow().clone()
    }
}

/// Plain text.
pub(crate) fn text(t: impl Into<String>) -> Inline {
    Inline::Text(t.into())
}

/// Code, a name or a path.
pub(crate) fn code(t: impl Into<String>) -> Inline {
    Inline::Code(t.into())
}

/// What goes with what stands before it, smaller.
pub(crate) fn aside(t: impl Into<String>) -> Inline {
    Inline::Aside(t.into())
}

/// Text to stand out.
pub(crate) fn strong(t: impl Into<String>) -> Inline {
    Inline::Strong(t.into())
}

/// Prose of an outcome: what stands between backticks is code.
pub(crate) fn prose(t: &str) -> Line {
    // An odd backtick has no partner: then nothing is code.
    if !t.matches('`').count().is_multiple_of(2) {
        return vec![text(t)];
    }
    let parts = t.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    parts.map(|(i, part)| if i % 2 == 1 { code(part) } else { text(part) }).collect()
}

/// A line of several parts.
macro_rules! line {
    ($($part:expr),* $(,)?) => {{
        let mut line: $crate::doc::Line = Vec::new();
        $($crate::doc::Append::append(&mut line, $part);)*
        line
    }};
}
pub(crate) use line;

/// What can be appended to a line.
pub(crate) trait Append<T> {
    fn append(&mut self, part: T);
}

impl Append<&str> for Line {
    fn append(&mut self, part: &str) {
        self.push(text(part));
    }
}

impl Append<String> for Line {
    fn append(&mut self, part: String) {
        self.push(text(part));
    }
}

impl Append<Inline> for Line {
    fn append(&mut self, part: Inline) {
        self.push(part);
    }
}

impl Append<Self> for Line {
    fn append(&mut self, part: Self) {
        self.extend(part);
    }
}

impl Append<Option<Inline>> for Line {
    fn append(&mut self, part: Option<Inline>) {
        self.extend(part);
    }
}

impl Table {
    /// A table; a column title that starts with `#` is of numbers, with `~` of prose.
    pub(crate) fn new(caption: impl Into<String>, columns: &[&str]) -> Self {
        let column = |t: &&str| {
            let (holds, title) = match (t.strip_prefix('#'), t.strip_prefix('~')) {
                (Some(title), _) => (Holds::Numbers, title),
                (_, Some(title)) => (Holds::Prose, title),
                (None, None) => (Holds::Words, *t),
            };
            Column { title: title.to_owned(), holds }
        };
        Self { caption: caption.into(), columns: columns.iter().map(column).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Whether the last column says how rows are known.
    pub(crate) fn has_known(&self) -> bool {
        self.rows.iter().any(|r| !r.known.is_empty())
    }

    /// The table as a block, unless it is empty.
    pub(crate) fn block(self) -> Option<Block> {
        (!self.rows.is_empty()).then_some(Block::Table(self))
    }
}

impl Row {
    /// A row whose numbers carry their own badges.
    pub(crate) fn new(cells: Vec<Line>) -> Self {
        Self { cells, known: Vec::new(), marked: false }
    }

    /// The same row with a badge for its plain numbers.
    pub(crate) fn known(mut self, source: Source) -> Self {
        if !self.known.contains(&source) {
            self.known.push(source);
        }
        self
    }

    /// The same row, marked.
    pub(crate) fn marked(mut self, marked: bool) -> Self {
        self.marked = marked;
        self
    }
}

/// A cell with a number that the row's badge covers; a dash where there is none.
pub(crate) fn cell(value: Option<String>) -> Line {
    vec![text(value.unwrap_or_else(|| "–".into()))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_between_backticks_is_code() {
        assert_eq!(prose("run `kbt tune` now"), line!["run ", code("kbt tune"), " now"]);
        assert_eq!(prose("an odd ` one"), line!["an odd ` one"]);
    }

    #[test]
    fn equal_provenances_are_one_source() {
        let sources = Sources::default();
        let a = Provenance::assumed("a");
        let first = sources.of(&a);
        assert_eq!(sources.of(&Provenance::mined("ptxas")).id, Some(2));
        assert_eq!((sources.of(&a), sources.all().len()), (first, 2));
    }
}
