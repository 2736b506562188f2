//! The sweep: a row a setting, its time over the baseline's with the interval, and the model's curve beside it.

use super::{
    BLUE, Canvas, DrawError, GREEN, GRID, INK, MUTED, ORANGE, RED, Scale, WIDTH, draw, fit, label, text_width,
};
use crate::{ReportError, number};
use plotters::element::DashedPathElement;
use plotters::prelude::{Circle, PathElement, Polygon};
use plotters::style::Color;
use plotters::style::text_anchor::HPos;

/// One setting.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) label: String,
    /// Time over the baseline's with its interval, low and high.
    pub(crate) ratio: Option<(f64, Option<(f64, f64)>)>,
    /// The model's ratio.
    pub(crate) model: Option<f64>,
    /// Why there is no time.
    pub(crate) why: Option<String>,
    pub(crate) best: bool,
    pub(crate) baseline: bool,
}

const TOP: i32 = 40;
const ROW: i32 = 26;

/// The plot, rows in the order given.
pub(crate) fn forest(entries: &[Entry]) -> Result<String, ReportError> {
    let bottom = TOP + ROW * i32::try_from(entries.len()).unwrap_or(0) + 8;
    draw("sweep", (bottom + 52).unsigned_abs(), |root| picture(root, entries, bottom))
}

fn picture(root: &Canvas<'_>, entries: &[Entry], bottom: i32) -> Result<(), DrawError> {
    let widest = entries.iter().map(|e| text_width(&e.label, 13)).max().unwrap_or(0);
    let left = (widest + 20).clamp(120, 380);
    let right = i32::try_from(WIDTH).unwrap_or(900) - 96;
    let values = entries.iter().flat_map(|e| {
        let (value, interval) = e.ratio.unzip();
        let (low, high) = interval.flatten().unzip();
        [value, low, high, e.model].into_iter().flatten()
    });
    let (low, high) = values.fold((1.0f64, 1.0f64), |(l, h), v| (l.min(v), h.max(v)));
    let room = ((high - low) * 0.06).max(0.01);
    let x = Scale { from: (low - room, high + room), to: (left, right) };
    for tick in x.ticks(7) {
        root.draw(&PathElement::new([(x.at(tick), TOP - 8), (x.at(tick), bottom)], GRID))?;
        root.draw_text(&format!("{tick:.3}"), &label(12, MUTED, HPos::Center), (x.at(tick), bottom + 14))?;
    }
    let one = x.at(1.0);
    root.draw(&DashedPathElement::new([(one, TOP - 8), (one, bottom)], 5, 4, INK.stroke_width(1)))?;
    let axis = "time over the baseline's time (left of 1 is faster)";
    root.draw_text(axis, &label(13, INK, HPos::Center), (i32::midpoint(left, right), bottom + 36))?;
    legend(root, left, entries.iter().any(|e| e.model.is_some()))?;
    let y = |i: usize| TOP + 12 + ROW * i32::try_from(i).unwrap_or(0);
    let curve: Vec<(i32, i32)> =
        entries.iter().enumerate().filter_map(|(i, e)| Some((x.at(e.model?), y(i)))).collect();
    root.draw(&PathElement::new(curve.clone(), ORANGE.stroke_width(1)))?;
    for at in curve {
        diamond(root, at)?;
    }
    for (i, e) in entries.iter().enumerate() {
        let y = y(i);
        let ink = if e.best { GREEN } else { INK };
        root.draw_text(&fit(&e.label, 13, left - 14), &label(13, ink, HPos::Left), (4, y))?;
        match e.ratio {
            Some((value, interval)) => {
                if let Some((low, high)) = interval {
                    root.draw(&PathElement::new([(x.at(low), y), (x.at(high), y)], BLUE.stroke_width(2)))?;
                    for end in [low, high] {
                        root.draw(&PathElement::new(
                            [(x.at(end), y - 4), (x.at(end), y + 4)],
                            BLUE.stroke_width(2),
                        ))?;
                    }
                }
                let fill = if e.best { GREEN } else { BLUE };
                root.draw(&Circle::new((x.at(value), y), 5, fill.filled()))?;
                let said = if e.baseline { "baseline".to_owned() } else { number::ratio(value) };
                let said = if e.best && !e.baseline { format!("{said} best") } else { said };
                root.draw_text(&said, &label(12, ink, HPos::Left), (right + 10, y))?;
            }
            None => {
                let why = e.why.as_deref().unwrap_or("no time");
                root.draw_text(
                    &fit(&format!("✕ {why}"), 12, right - left),
                    &label(12, RED, HPos::Left),
                    (left + 4, y),
                )?;
            }
        }
    }
    Ok(())
}

fn diamond(root: &Canvas<'_>, (x, y): (i32, i32)) -> Result<(), DrawError> {
    let corners = vec![(x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y), (x, y - 5)];
    root.draw(&Polygon::new(corners.clone(), GRID.filled()))?;
    root.draw(&PathElement::new(corners, ORANGE.stroke_width(2)))
}

fn legend(root: &Canvas<'_>, left: i32, model: bool) -> Result<(), DrawError> {
    let text = label(12, MUTED, HPos::Left);
    root.draw(&PathElement::new([(left, 14), (left + 24, 14)], BLUE.stroke_width(2)))?;
    root.draw(&Circle::new((left + 12, 14), 5, BLUE.filled()))?;
    root.draw_text("measured, with its interval", &text, (left + 32, 14))?;
    if model {
        diamond(root, (left + 240, 14))?;
        root.draw_text("model", &text, (left + 252, 14))?;
    }
    Ok(())
}
