//! Pressure on the pipes: how long each is busy for one element, before and after a rewrite.

use super::{BLUE, Canvas, DrawError, GREY, GRID, INK, MUTED, RED, Scale, WIDTH, draw, label, text_width};
use crate::{ReportError, number};
use plotters::prelude::{PathElement, Rectangle};
use plotters::style::Color;
use plotters::style::text_anchor::HPos;

/// One pipe.
#[derive(Debug, Clone)]
pub(crate) struct Bar {
    pub(crate) label: String,
    pub(crate) before: f64,
    pub(crate) after: f64,
}

const TOP: i32 = 36;
const ROW: i32 = 44;

/// The plot; `unit` is what the axis says.
pub(crate) fn bars(bars: &[Bar], names: [&str; 2], unit: &str) -> Result<String, ReportError> {
    let bottom = TOP + ROW * i32::try_from(bars.len()).unwrap_or(0);
    draw("pipe pressure", (bottom + 52).unsigned_abs(), |root| picture(root, bars, names, unit, bottom))
}

fn picture(
    root: &Canvas<'_>,
    bars: &[Bar],
    names: [&str; 2],
    unit: &str,
    bottom: i32,
) -> Result<(), DrawError> {
    let left = (bars.iter().map(|b| text_width(&b.label, 13)).max().unwrap_or(0) + 20).clamp(80, 240);
    let right = i32::try_from(WIDTH).unwrap_or(900) - 80;
    let most = bars.iter().flat_map(|b| [b.before, b.after]).fold(0.0, f64::max);
    let x = Scale { from: (0.0, if most > 0.0 { most * 1.02 } else { 1.0 }), to: (left, right) };
    for tick in x.ticks(7) {
        root.draw(&PathElement::new([(x.at(tick), TOP - 8), (x.at(tick), bottom)], GRID))?;
        root.draw_text(&number::plain(tick), &label(12, MUTED, HPos::Center), (x.at(tick), bottom + 14))?;
    }
    root.draw_text(unit, &label(13, INK, HPos::Center), (i32::midpoint(left, right), bottom + 36))?;
    let mut at = left;
    for (name, ink) in names.into_iter().zip([GREY, BLUE]) {
        root.draw(&Rectangle::new([(at, 7), (at + 20, 21)], ink.filled()))?;
        root.draw_text(name, &label(12, MUTED, HPos::Left), (at + 28, 14))?;
        at += 56 + text_width(name, 12);
    }
    for (i, bar) in bars.iter().enumerate() {
        let y = TOP + ROW * i32::try_from(i).unwrap_or(0);
        root.draw_text(&bar.label, &label(13, INK, HPos::Left), (4, y + 18))?;
        for (value, ink, dy, all) in [
            (bar.before, GREY, 2, bars.iter().map(|b| b.before).fold(0.0, f64::max)),
            (bar.after, BLUE, 19, bars.iter().map(|b| b.after).fold(0.0, f64::max)),
        ] {
            let end = x.at(value).max(left + 1);
            root.draw(&Rectangle::new([(left, y + dy), (end, y + dy + 15)], ink.filled()))?;
            let busiest = value > 0.0 && (value - all).abs() <= 1e-9 * all;
            let ink = if busiest { RED } else { INK };
            let said = format!("{}{}", number::plain(value), if busiest { " busiest" } else { "" });
            root.draw_text(&said, &label(12, ink, HPos::Left), (end + 6, y + dy + 8))?;
        }
    }
    Ok(())
}
