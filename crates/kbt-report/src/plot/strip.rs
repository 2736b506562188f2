//! Machine code as a strip: the runs of two units in program order, a row a variant. Alternation shows as stripes.

use super::{BLUE, Canvas, DrawError, INK, MUTED, ORANGE, Scale, WIDTH, draw, fit, label, text_width};
use crate::ReportError;
use kbt_sass::outcome::Interleave;
use plotters::prelude::Rectangle;
use plotters::style::Color;
use plotters::style::text_anchor::HPos;

const TOP: i32 = 34;
const ROW: i32 = 34;

/// The plot of some variants' runs, each with its name.
pub(crate) fn strip(rows: &[(&str, &Interleave)]) -> Result<String, ReportError> {
    let height = TOP + ROW * i32::try_from(rows.len()).unwrap_or(0) + 8;
    draw("schedule", height.unsigned_abs(), |root| picture(root, rows))
}

fn picture(root: &Canvas<'_>, rows: &[(&str, &Interleave)]) -> Result<(), DrawError> {
    let left = (rows.iter().map(|r| text_width(r.0, 13)).max().unwrap_or(0) + 20).clamp(100, 300);
    let right = i32::try_from(WIDTH).unwrap_or(900) - 8;
    if let Some((_, first)) = rows.first() {
        let text = label(12, MUTED, HPos::Left);
        root.draw(&Rectangle::new([(left, 6), (left + 20, 20)], BLUE.filled()))?;
        root.draw_text(&first.a, &text, (left + 28, 13))?;
        let x = left + 60 + text_width(&first.a, 12);
        root.draw(&Rectangle::new([(x, 9), (x + 20, 17)], ORANGE.filled()))?;
        root.draw_text(&first.b, &text, (x + 28, 13))?;
    }
    for (i, (name, units)) in rows.iter().enumerate() {
        let y = TOP + ROW * i32::try_from(i).unwrap_or(0);
        root.draw_text(&fit(name, 13, left - 14), &label(13, INK, HPos::Left), (4, y + 11))?;
        #[expect(clippy::cast_precision_loss, reason = "instructions of one function")]
        let all = (units.a_instructions + units.b_instructions).max(1) as f64;
        let x = Scale { from: (0.0, all), to: (left, right) };
        let mut at = 0.0;
        for run in &units.runs {
            #[expect(clippy::cast_precision_loss, reason = "instructions of one function")]
            let end = at + run.instructions as f64;
            // The second unit is lower too, so that the stripes do not hang on colour.
            let (ink, inset) = if run.of == units.a { (BLUE, 0) } else { (ORANGE, 4) };
            root.draw(&Rectangle::new([(x.at(at), y + inset), (x.at(end), y + 22 - inset)], ink.filled()))?;
            at = end;
        }
    }
    Ok(())
}
