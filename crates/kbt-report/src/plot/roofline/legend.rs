//! The legend: each roof by its letter and each kernel by its mark, with rates and how they are known.

use super::super::{DrawError, INK, MUTED, WIDTH, fit, label, text_width};
use super::{Canvas, LEGEND, has_place, letter};
use crate::number;
use kbt_roofline::outcome::{PlotPoint, PlotRoof};
use plotters::style::text_anchor::HPos;

/// An entry of the legend, in lines: the name, and what goes with it.
pub(super) struct Entry {
    name: Vec<String>,
    what: Vec<String>,
}

impl Entry {
    const LINE: i32 = 16;
    const GAP: i32 = 10;

    fn new(name: &str, what: &str) -> Self {
        let room = i32::try_from(WIDTH).unwrap_or(900) - LEGEND - 38;
        Self { name: wrapped(name, 13, room), what: wrapped(what, 12, room) }
    }

    pub(super) fn height(&self) -> i32 {
        i32::try_from(self.name.len() + self.what.len()).unwrap_or(2) * Self::LINE + Self::GAP
    }

    /// Draws it from a height on and gives the next one's.
    pub(super) fn draw(&self, root: &Canvas<'_>, y: i32) -> Result<i32, DrawError> {
        let lines = self.name.iter().map(|l| (l, 13, INK)).chain(self.what.iter().map(|l| (l, 12, MUTED)));
        for (at, (line, size, ink)) in (0..).map(|i| y + i * Self::LINE).zip(lines) {
            root.draw_text(line, &label(size, ink, HPos::Left), (LEGEND + 36, at))?;
        }
        Ok(y + self.height())
    }
}

pub(super) fn said_of_roof(index: usize, name: &str, roof: &PlotRoof) -> Entry {
    let rate = roof
        .bytes_per_s
        .map_or_else(|| number::si(roof.flop_per_s.unwrap_or(f64::NAN), "FLOP/s"), |b| number::si(b, "B/s"));
    Entry::new(&format!("{} – {name}", letter(index)), &format!("{rate}, {}", roof.provenance.kind))
}

pub(super) fn said_of_point(point: &PlotPoint) -> Entry {
    let known = point.provenance.kind;
    let what = if has_place(point) {
        let rate = number::si(point.flop_per_s, "FLOP/s");
        format!("{rate} at {} FLOP/B, {known}", number::plain(point.flop_per_byte))
    } else {
        format!("no useful operations, no place here, {known}")
    };
    Entry::new(&point.name, &what)
}

/// A text in lines of a width; only a single word that is longer is cut.
fn wrapped(text: &str, size: u32, room: i32) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(last) if last.is_empty() => word.clone_into(last),
            Some(last) if text_width(&format!("{last} {word}"), size) <= room => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| fit(line, size, room)).collect()
}
