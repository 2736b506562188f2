//! A few steps of one CTA: a row a role. Work is a plain bar, waits are hatched over it, recorded events lie in it,
//! and lines lead from an arrival to the wait that it ended.

use super::{
    BAND, BLUE, Canvas, DrawError, GRID, HATCH, INK, MUTED, RED, Scale, WIDTH, draw, fit, label, text_width,
};
use crate::{ReportError, number};
use kbt_trace::outcome::{SpanKind, Timeline, TimelineRow, TimelineSpan};
use plotters::prelude::{Circle, PathElement, Rectangle};
use plotters::style::Color;
use plotters::style::text_anchor::HPos;

const TOP: i32 = 44;
const ROW: i32 = 58;
const BAR: i32 = 36;
/// Arrows beyond this many would hide the rows.
const ARROWS: usize = 60;

/// The plot.
pub(crate) fn timeline(timeline: &Timeline) -> Result<String, ReportError> {
    let rows = i32::try_from(timeline.rows.len()).unwrap_or(0);
    let bottom = TOP + rows * ROW;
    draw("timeline", (bottom + 52).unsigned_abs(), |root| picture(root, timeline, bottom))
}

fn picture(root: &Canvas<'_>, t: &Timeline, bottom: i32) -> Result<(), DrawError> {
    let widest = t.rows.iter().map(|r| text_width(&r.role, 14)).max().unwrap_or(0);
    let left = (widest + 20).clamp(80, 220);
    let right = i32::try_from(WIDTH).unwrap_or(900) - 16;
    let x = Scale { from: (0.0, t.length_cycles.max(1.0)), to: (left, right) };
    legend(root, left)?;
    for tick in x.ticks(8) {
        root.draw(&PathElement::new([(x.at(tick), TOP - 6), (x.at(tick), bottom)], GRID))?;
        root.draw_text(&number::cycles(tick), &label(12, MUTED, HPos::Center), (x.at(tick), bottom + 14))?;
    }
    root.draw_text(
        "SM clock cycles",
        &label(13, INK, HPos::Center),
        (i32::midpoint(left, right), bottom + 36),
    )?;
    for (index, row) in t.rows.iter().enumerate() {
        let y = TOP + i32::try_from(index).unwrap_or(0) * ROW;
        root.draw_text(&fit(&row.role, 14, left - 14), &label(14, INK, HPos::Left), (4, y + BAR / 2))?;
        self::row(root, row, y, &x)?;
    }
    for arrow in t.arrows.iter().take(ARROWS) {
        let place =
            |role: &str| t.rows.iter().position(|r| r.role == role).and_then(|i| i32::try_from(i).ok());
        let (Some(from), Some(to)) = (place(&arrow.from), place(&arrow.to)) else { continue };
        if from == to {
            continue;
        }
        // From the edge of one bar to the facing edge of the other.
        let edge = |i: i32, other: i32| TOP + i * ROW + if other > i { BAR } else { 0 };
        let (start, end) =
            ((x.at(arrow.from_cycles), edge(from, to)), (x.at(arrow.to_cycles), edge(to, from)));
        root.draw(&PathElement::new([start, end], INK.mix(0.55).stroke_width(1)))?;
        root.draw(&Circle::new(end, 3, INK.filled()))?;
    }
    Ok(())
}

fn row(root: &Canvas<'_>, row: &TimelineRow, y: i32, x: &Scale) -> Result<(), DrawError> {
    // Before its first record and after its last nothing is known of a role.
    let recorded = (row.start_cycles.map_or(x.to.0, |c| x.at(c)), row.end_cycles.map_or(x.to.1, |c| x.at(c)));
    root.draw(&Rectangle::new([(recorded.0, y), (recorded.1, y + BAR)], BAND.filled()))?;
    let of = |kind| row.spans.iter().filter(move |s| s.kind == kind);
    for span in of(SpanKind::Event) {
        let inset = 4 * i32::try_from(span.depth.min(4)).unwrap_or(0);
        let (from, to) = (x.at(span.start_cycles), x.at(span.end_cycles).max(x.at(span.start_cycles) + 1));
        let corners = [(from, y + 2 + inset), (to, y + BAR - 2 - inset)];
        root.draw(&Rectangle::new(corners, BLUE.mix(0.28).filled()))?;
        root.draw(&Rectangle::new(corners, BLUE.stroke_width(1)))?;
    }
    for span in of(SpanKind::Wait) {
        let (from, to) = (x.at(span.start_cycles), x.at(span.end_cycles).max(x.at(span.start_cycles) + 1));
        root.draw(&Rectangle::new([(from, y), (to, y + BAR)], GRID.filled()))?;
        root.draw(&Rectangle::new([(from, y), (to, y + BAR)], HATCH.filled()))?;
        root.draw(&Rectangle::new([(from, y), (to, y + BAR)], RED.stroke_width(1)))?;
    }
    // Names last, below the bar for waits, so that no fill lies over them; only where they fit.
    let mut free = x.to.0;
    let mut sorted: Vec<_> = row.spans.iter().collect();
    sorted.sort_by(|a, b| a.start_cycles.total_cmp(&b.start_cycles));
    for span in sorted {
        let (from, to) = (x.at(span.start_cycles), x.at(span.end_cycles));
        let width = text_width(&span.label, 12);
        match span.kind {
            SpanKind::Event if width + 8 <= to - from && !covered(row, x, from, from + width) => {
                root.draw_text(&span.label, &label(12, INK, HPos::Left), (from + 4, y + BAR / 2))?;
            }
            SpanKind::Wait if from >= free && from + width <= x.to.1 + 10 && to - from >= 3 => {
                root.draw_text(&span.label, &label(12, RED, HPos::Left), (from, y + BAR + 9))?;
                free = from + width + 8;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether a wait lies over a stretch of the row, where a name could not be read.
fn covered(row: &TimelineRow, x: &Scale, from: i32, to: i32) -> bool {
    let over = |w: &TimelineSpan| x.at(w.start_cycles) < to && x.at(w.end_cycles) > from;
    row.spans.iter().any(|s| s.kind == SpanKind::Wait && over(s))
}

fn legend(root: &Canvas<'_>, left: i32) -> Result<(), DrawError> {
    let text = label(12, MUTED, HPos::Left);
    let mut x = left;
    let mut swatch = |name: &str| {
        let at = [(x, 8), (x + 22, 22)];
        x += 30 + text_width(name, 12) + 22;
        at
    };
    let at = swatch("work");
    root.draw(&Rectangle::new(at, BAND.filled()))?;
    root.draw_text("work", &text, (at[1].0 + 8, 15))?;
    let at = swatch("recorded event");
    root.draw(&Rectangle::new(at, BLUE.mix(0.28).filled()))?;
    root.draw(&Rectangle::new(at, BLUE.stroke_width(1)))?;
    root.draw_text("recorded event", &text, (at[1].0 + 8, 15))?;
    let at = swatch("wait at a barrier");
    root.draw(&Rectangle::new(at, HATCH.filled()))?;
    root.draw(&Rectangle::new(at, RED.stroke_width(1)))?;
    root.draw_text("wait at a barrier", &text, (at[1].0 + 8, 15))?;
    let at = swatch("arrival, and the wait that it ended");
    root.draw(&PathElement::new([(at[0].0, 15), (at[1].0, 15)], INK.mix(0.55).stroke_width(1)))?;
    root.draw(&Circle::new((at[1].0, 15), 3, INK.filled()))?;
    root.draw_text("arrival, and the wait that it ended", &text, (at[1].0 + 8, 15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_drawn_at_work_only_while_it_recorded() {
        let row = |end_cycles| TimelineRow {
            role: "PV".to_owned(),
            start_cycles: None,
            end_cycles,
            spans: Vec::new(),
        };
        let drawn = |rows| {
            let timeline = Timeline {
                cta: 0,
                role: "PV".to_owned(),
                steps: 1,
                length_cycles: 1000.0,
                rows,
                arrows: Vec::new(),
                rings: Vec::new(),
            };
            bar_width(&super::timeline(&timeline).unwrap())
        };
        let whole = drawn(vec![row(None)]);
        let half = drawn(vec![row(Some(500.0))]);
        assert!((half / whole - 0.5).abs() < 0.01, "{half} of {whole}");
    }

    /// The width of the bar in the row, which is as high as no other rectangle.
    fn bar_width(svg: &str) -> f64 {
        let attribute = |rect: &str, name: &str| -> f64 {
            let rest = rect.split_once(&format!("{name}=\"")).unwrap().1;
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        let bars = svg.split("<rect").skip(1).filter(|r| attribute(r, " height") as i32 == BAR);
        bars.map(|r| attribute(r, " width")).sum()
    }
}
