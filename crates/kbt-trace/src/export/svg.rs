//! A few steps of one CTA as an SVG drawing that also reads in black and white: a row a role, waits hatched, events
//! grey, lines from an arrival to the wait that it ended, and a curve for each ring of buffers.

mod letters;

use crate::outcome::{Absolute, SpanKind, Timeline, TimelineRing, TimelineRow, TimelineSpan, TraceOutcome};
use crate::{Problem, TraceError};
use letters::{LETTER, escaped, fit, tick, width, wrapped};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Width of the drawing in pixels: a landscape page.
const WIDTH: f64 = 1120.0;
const LEFT: f64 = 130.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 96.0;
/// From one row to the next, and the height of its bar; the names of waits stand in between.
const ROW: f64 = 64.0;
const BAR: f64 = 36.0;
const RING: f64 = 46.0;
const CURVE: f64 = 30.0;
/// How far the name of a short wait may run on below its neighbours.
const BELOW: f64 = 120.0;
/// A name of fewer letters than these says too little.
const LEAST_LETTERS: usize = 5;
/// More arrows than this hide the rows.
const ARROWS: usize = 80;

const STYLE: &str = "text{font-family:Helvetica,Arial,sans-serif;font-size:12px;fill:#111}\
.h{font-size:16px;font-weight:bold}.m{fill:#555}.e{text-anchor:end}.c{text-anchor:middle}\
.g{stroke:#ccc;stroke-width:1}.b{fill:#fff;stroke:#111;stroke-width:1}\
.v{stroke:#333;stroke-width:1}.w{fill:url(#hatch);stroke:#111;stroke-width:1}\
.n{fill:#333;stroke:#fff;stroke-width:3px;paint-order:stroke}.k{font-size:10px}\
.a{stroke:#111;stroke-width:1;fill:none}.o{stroke:#111;stroke-width:2;fill:none}";

/// The drawing of the outcome's timeline, as a whole file.
///
/// # Errors
/// If the outcome has no timeline: no role has two step starts, or none was asked for.
pub fn svg(outcome: &TraceOutcome) -> Result<String, TraceError> {
    let timeline = outcome.timeline.as_ref().ok_or_else(|| TraceError::Argument {
        what: "timeline",
        found: "no role with two step starts in the CTAs read".into(),
        accepted: "a trace that holds a step; --cta names another CTA".into(),
    })?;
    let bottom = TOP + timeline.rows.len() as f64 * ROW;
    let axis = bottom + timeline.rings.len() as f64 * RING;
    let mut drawing = Drawing { out: String::new(), timeline, end: axis, numbered: Vec::new() };
    // Writing to a string does not fail.
    let _ = drawing.all(outcome, bottom);
    Ok(drawing.out)
}

/// What the reader must know beside the drawing.
fn notes(outcome: &TraceOutcome) -> Vec<String> {
    let standing = match &outcome.absolute {
        Absolute::Accepted { reason } => format!("absolute cycles accepted: {reason}"),
        Absolute::Refused { reason } => format!("absolute cycles refused: {reason}"),
        Absolute::Unknown { reason } => format!("absolute cycles unknown: {reason}"),
    };
    let known = format!("{}: {}", outcome.provenance.kind, outcome.provenance.by);
    let mut notes: Vec<_> = outcome.trace.kernel.iter().map(|kernel| format!("kernel: {kernel}")).collect();
    notes.extend([known, standing]);
    notes.extend(outcome.problems.iter().take(4).map(Problem::to_string));
    notes
}

struct Drawing<'a> {
    out: String,
    timeline: &'a Timeline,
    /// Where the time axis lies.
    end: f64,
    /// Spans that have a number in place of their name, for want of room.
    numbered: Vec<(SpanKind, &'a str)>,
}

impl<'a> Drawing<'a> {
    fn x(&self, cycles: f64) -> f64 {
        let length = self.timeline.length_cycles.max(1.0);
        LEFT + (WIDTH - LEFT - RIGHT) * (cycles / length).clamp(0.0, 1.0)
    }

    fn all(&mut self, outcome: &TraceOutcome, bottom: f64) -> std::fmt::Result {
        let t = self.timeline;
        let title = format!("{} of {} in CTA {}", steps(t.steps), t.role, t.cta);
        self.text(20.0, 28.0, "h", &fit(&title, (WIDTH - 40.0) * 0.7))?;
        self.text(20.0, 48.0, "m", &fit(&outcome.headline(), WIDTH - 40.0))?;
        self.legend()?;
        self.axis()?;
        for (index, row) in t.rows.iter().enumerate() {
            self.row(row, TOP + index as f64 * ROW)?;
        }
        self.arrows()?;
        for (index, row) in t.rows.iter().enumerate() {
            self.names(row, TOP + index as f64 * ROW)?;
        }
        for (index, ring) in t.rings.iter().enumerate() {
            self.ring(ring, bottom + index as f64 * RING)?;
        }
        let notes = [self.key(), notes(outcome)].concat();
        let notes: Vec<_> = notes.iter().flat_map(|note| wrapped(note, WIDTH - 40.0)).collect();
        for (index, note) in notes.iter().enumerate() {
            self.text(20.0, self.end + 56.0 + index as f64 * 16.0, "m", &fit(note, WIDTH - 40.0))?;
        }
        let head = head(self.end + 60.0 + notes.len() as f64 * 16.0);
        self.out.insert_str(0, &head);
        self.out.write_str("</svg>\n")
    }

    /// What the numbers over the rows stand for.
    fn key(&self) -> Vec<String> {
        let entry = |(index, (kind, name)): (usize, &(SpanKind, &str))| {
            let what = if *kind == SpanKind::Wait { "wait " } else { "" };
            format!("{} {what}{name}", index + 1)
        };
        let entries: Vec<_> = self.numbered.iter().enumerate().map(entry).collect();
        if entries.is_empty() { Vec::new() } else { vec![format!("over the rows: {}", entries.join(", "))] }
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) -> std::fmt::Result {
        write!(self.out, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{}</text>", escaped(text))
    }

    fn rect(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        look: &str,
        title: &str,
    ) -> std::fmt::Result {
        write!(
            self.out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" {look}><title>{}</title></rect>",
            width.max(1.0),
            escaped(title)
        )
    }

    fn legend(&mut self) -> std::fmt::Result {
        let y = 62.0;
        let mut x = LEFT;
        for (look, text) in [
            ("class=\"b\"", "busy"),
            ("class=\"v\" fill=\"#ddd\"", "recorded event"),
            ("class=\"w\"", "wait at a barrier"),
        ] {
            self.rect((x, y), (26.0, 14.0), look, text)?;
            self.text(x + 32.0, y + 12.0, "", text)?;
            x += 32.0 + width(text) + 24.0;
        }
        write!(self.out, "<path class=\"a\" d=\"M{x:.1} {:.1}h26\" marker-end=\"url(#tip)\"/>", y + 7.0)?;
        self.text(x + 32.0, y + 12.0, "", "arrival, and the end of the wait that it released")
    }

    fn axis(&mut self) -> std::fmt::Result {
        let length = self.timeline.length_cycles.max(1.0);
        let step = tick(length / 8.0);
        for index in 0..=(length / step) as u32 {
            let at = f64::from(index) * step;
            let (x, end) = (self.x(at), self.end);
            write!(
                self.out,
                "<line class=\"g\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{end:.1}\"/>",
                TOP - 8.0
            )?;
            self.text(x, end + 16.0, "m c", &format!("{at}"))?;
        }
        self.text(f64::midpoint(LEFT, WIDTH - RIGHT), self.end + 34.0, "c", "SM clock cycles")
    }

    fn row(&mut self, row: &TimelineRow, y: f64) -> std::fmt::Result {
        self.text(LEFT - 10.0, y + BAR / 2.0 + 4.0, "e", &fit(&row.role, LEFT - 24.0))?;
        let from = self.x(row.start_cycles.unwrap_or(0.0));
        let to = self.x(row.end_cycles.unwrap_or(self.timeline.length_cycles));
        self.rect((from, y), (to - from, BAR), "class=\"b\"", &row.role)?;
        let of = |kind| row.spans.iter().filter(move |s: &&TimelineSpan| s.kind == kind);
        for span in of(SpanKind::Event) {
            let inset = 3.0 * f64::from(span.depth.min(4));
            let grey = ["#ddd", "#c4c4c4", "#aaa", "#bbb"][span.depth.min(3) as usize];
            let look = format!("class=\"v\" fill=\"{grey}\"");
            let (from, to) = (self.x(span.start_cycles), self.x(span.end_cycles));
            self.rect((from, y + 2.0 + inset), (to - from, BAR - 4.0 - 2.0 * inset), &look, &said(span))?;
        }
        for span in of(SpanKind::Wait) {
            let (from, to) = (self.x(span.start_cycles), self.x(span.end_cycles));
            self.rect((from, y), (to - from, BAR), "class=\"w\"", &said(span))?;
        }
        Ok(())
    }

    /// Names of events in their bars, cut where the bar is short or covered; of waits below the row, cut at
    /// the edge of the drawing, and left out where another stands. What finds no room anywhere in the row has a number
    /// over it.
    fn names(&mut self, row: &'a TimelineRow, y: f64) -> std::fmt::Result {
        let mut free = LEFT;
        let mut named: BTreeSet<(bool, &str)> = BTreeSet::new();
        let is = |span: &'a TimelineSpan| (span.kind == SpanKind::Wait, span.label.as_str());
        for span in &row.spans {
            let (from, to) = (self.x(span.start_cycles), self.x(span.end_cycles));
            let drawn = match span.kind {
                SpanKind::Event if to - from >= 2.0 * LETTER => {
                    let (at, end) = self.widest_gap(row, span);
                    self.name(at + 4.0, y + BAR / 2.0 + 4.0, "", &span.label, end - at - 6.0)?
                }
                // Below the begin of the wait, or further right below the wait itself.
                SpanKind::Wait if to - from >= 2.0 => {
                    let x = from.max(free);
                    let room = if x == from { (to - x).max(BELOW).min(WIDTH - 4.0 - x) } else { to - x };
                    let drawn = self.name(x, y + BAR + 13.0, "n", &span.label, room)?;
                    free = if drawn > 0.0 { x + drawn + 6.0 } else { free };
                    drawn
                }
                _ => 0.0,
            };
            if drawn > 0.0 {
                named.insert(is(span));
            }
        }
        let mut free = 0.0;
        for span in row.spans.iter().filter(|span| !named.contains(&is(span))) {
            let known = self.numbered.iter().position(|n| *n == (span.kind, span.label.as_str()));
            let number = known.unwrap_or(self.numbered.len());
            let x = f64::midpoint(self.x(span.start_cycles), self.x(span.end_cycles));
            let text = (number + 1).to_string();
            let half = width(&text) / 2.0;
            let x = if x < free + half && free + half - x < LETTER { free + half } else { x };
            if x - half >= free {
                if known.is_none() {
                    self.numbered.push((span.kind, &span.label));
                }
                self.text(x, y - 2.0, "k c", &text)?;
                free = x + half + 2.0;
            }
        }
        Ok(())
    }

    /// Of an event's bar, the widest part that nothing else covers; of equals the first.
    fn widest_gap(&self, row: &TimelineRow, span: &TimelineSpan) -> (f64, f64) {
        let (mut at, end) = (self.x(span.start_cycles), self.x(span.end_cycles));
        let covers = |s: &&TimelineSpan| s.kind == SpanKind::Wait || s.depth > span.depth;
        let mut widest = (at, at);
        let mut gap = |from: f64, to: f64| {
            if to - from > widest.1 - widest.0 {
                widest = (from, to);
            }
        };
        for cover in row.spans.iter().filter(covers) {
            let (from, to) = (self.x(cover.start_cycles), self.x(cover.end_cycles));
            if to > at && from < end {
                gap(at, from.max(at));
                at = to;
            }
        }
        gap(at, end.max(at));
        widest
    }

    /// A name in so much room, and what it took of it: nothing where too few of its letters fit.
    fn name(&mut self, x: f64, y: f64, class: &str, name: &str, room: f64) -> Result<f64, std::fmt::Error> {
        let shown = fit(name, room);
        if shown.is_empty() || (shown != name && shown.chars().count() < LEAST_LETTERS) {
            return Ok(0.0);
        }
        self.text(x, y, class, &shown)?;
        Ok(width(&shown))
    }

    fn arrows(&mut self) -> std::fmt::Result {
        let t = self.timeline;
        for arrow in t.arrows.iter().take(ARROWS) {
            let place = |role: &str| t.rows.iter().position(|r| r.role == role);
            let (Some(from), Some(to)) = (place(&arrow.from), place(&arrow.to)) else { continue };
            if from == to {
                continue;
            }
            // From the edge of one bar to the facing edge of the other.
            let edge =
                |row: usize, other: usize| TOP + row as f64 * ROW + if other > row { BAR } else { 0.0 };
            write!(
                self.out,
                "<path class=\"a\" d=\"M{:.1} {:.1}L{:.1} {:.1}\" marker-end=\"url(#tip)\"><title>{}</title></path>",
                self.x(arrow.from_cycles),
                edge(from, to),
                self.x(arrow.to_cycles),
                edge(to, from),
                escaped(&format!("{}: {} to {}", arrow.barrier, arrow.from, arrow.to))
            )?;
        }
        Ok(())
    }

    fn ring(&mut self, ring: &TimelineRing, y: f64) -> std::fmt::Result {
        let most = ring.samples.iter().map(|s| s.slots).max().unwrap_or(0);
        let level = |slots: u32| y + CURVE * (1.0 - f64::from(slots) / f64::from(most.max(1)));
        let name = format!("{} {}", ring.name, ring.counted.as_str());
        self.text(LEFT - 24.0, y + CURVE / 2.0 + 4.0, "e", &fit(&name, LEFT - 40.0))?;
        self.text(LEFT - 6.0, y + 8.0, "m e", &most.to_string())?;
        self.text(LEFT - 6.0, y + CURVE + 4.0, "m e", "0")?;
        let mut path = String::new();
        let mut last = None;
        for sample in &ring.samples {
            let (x, to) = (self.x(sample.at_cycles), level(sample.slots));
            match last {
                None => write!(path, "M{x:.1} {to:.1}")?,
                Some(_) => write!(path, "H{x:.1}V{to:.1}")?,
            }
            last = Some(to);
        }
        let end = self.x(ring.end_cycles.unwrap_or(self.timeline.length_cycles));
        write!(self.out, "<path class=\"o\" d=\"{path}H{end:.1}\"><title>{}</title></path>", escaped(&name))
    }
}

/// The file's beginning: the drawing's size and its looks.
fn head(height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} \
         {height}\"><style>{STYLE}</style><defs><pattern id=\"hatch\" width=\"6\" height=\"6\" \
         patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" \
         fill=\"#fff\"/><line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\" stroke=\"#111\" stroke-width=\"2\"/></pattern>\
         <marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#111\"/></marker></defs>\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>"
    )
}

fn steps(n: u64) -> String {
    if n == 1 { "1 step".into() } else { format!("{n} steps") }
}

/// What a pointer over a span is told.
fn said(span: &TimelineSpan) -> String {
    let what = if span.kind == SpanKind::Wait { "wait " } else { "" };
    format!(
        "{what}{}: {:.0} to {:.0}, {:.0} clk",
        span.label,
        span.start_cycles,
        span.end_cycles,
        span.end_cycles - span.start_cycles
    )
}
