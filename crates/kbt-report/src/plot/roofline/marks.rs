//! Marks of kernels and tags of roofs, and the names beside them.

use super::super::{BAND, BLUE, DrawError, GREEN, GRID, INK, fit, label, text_width};
use super::{Canvas, LEFT, RIGHT, TOP};
use plotters::prelude::{Circle, PathElement, Polygon, RGBColor};
use plotters::style::Color;
use plotters::style::text_anchor::HPos;

/// Writes a kernel's name beside its mark, where there is room for it; the legend has all names in full.
pub(super) fn named(
    root: &Canvas<'_>,
    at: (i32, i32),
    name: &str,
    taken: &mut Vec<(i32, i32)>,
) -> Result<(), DrawError> {
    const SIZE: u32 = 12;
    /// Whole where there is room; a cut name still tells which mark is whose.
    const LENGTHS: [i32; 2] = [300, 150];
    let places = [
        ((at.0 + 14, at.1), HPos::Left),
        ((at.0 - 14, at.1), HPos::Right),
        ((at.0 + 14, at.1 + 16), HPos::Left),
        ((at.0 + 14, at.1 - 16), HPos::Left),
        ((at.0 - 14, at.1 + 16), HPos::Right),
        ((at.0 - 14, at.1 - 16), HPos::Right),
    ];
    let free = |width: i32, ((x, y), side): ((i32, i32), HPos)| {
        let left = if matches!(side, HPos::Left) { x } else { x - width };
        let inside = left > LEFT + 4 && left + width < RIGHT - 4 && y > TOP + 22;
        let apart = |p: &(i32, i32)| (p.1 - y).abs() > 13 || p.0 + 10 < left || p.0 - 10 > left + width;
        inside && taken.iter().filter(|p| **p != at).all(apart)
    };
    let found = LENGTHS.iter().find_map(|longest| {
        let name = fit(name, SIZE, *longest);
        let width = text_width(&name, SIZE);
        places.iter().find(|(at, side)| free(width, (*at, *side))).map(|(at, side)| (name, width, *at, *side))
    });
    let Some((name, width, place, side)) = found else { return Ok(()) };
    let left = if matches!(side, HPos::Left) { place.0 } else { place.0 - width };
    // The name keeps its whole length free.
    taken.extend((0..=width / 16).map(|step| (left + step * 16, place.1)));
    root.draw_text(&name, &label(SIZE, INK, side), place)
}

/// Slopes have their tags low on the line, flat roofs at its right end, each a bit further on than the last; where the
/// line is at its end they begin anew, beside the earlier ones.
pub(super) fn place_of_tag(from: (i32, i32), to: (i32, i32), nth: usize) -> (i32, i32) {
    let round = |places: usize| {
        let (round, place) = ((nth - 1) / places, (nth - 1) % places);
        (i32::try_from(round % 3).unwrap_or(0), i32::try_from(place).unwrap_or(0))
    };
    let share = if from.1 == to.1 {
        let (round, place) = round(9);
        91 - 9 * place - 3 * round
    } else {
        let (round, place) = round(6);
        20 + 12 * place + 4 * round
    };
    (from.0 + (to.0 - from.0) * share / 100, from.1 + (to.1 - from.1) * share / 100)
}

pub(super) fn tag(root: &Canvas<'_>, at: (i32, i32), letter: &str, ink: RGBColor) -> Result<(), DrawError> {
    root.draw(&Circle::new(at, 9, GRID.filled()))?;
    root.draw(&Circle::new(at, 9, ink.stroke_width(2)))?;
    root.draw_text(letter, &label(12, INK, HPos::Center), at)
}

/// How a point is marked.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    /// Which of the kernels, from 0.
    pub(super) kernel: usize,
    /// Whether kernels have numbers.
    pub(super) numbered: bool,
    /// Whether it stands at another level's bytes.
    pub(super) hollow: bool,
}

/// Circles for the kernel as it was, diamonds for what became of it; numbers where there are more.
pub(super) fn marker(root: &Canvas<'_>, (x, y): (i32, i32), mark: Mark) -> Result<(), DrawError> {
    let fill = |ink: RGBColor| if mark.hollow { GRID.filled() } else { ink.filled() };
    if mark.numbered {
        root.draw(&Circle::new((x, y), 9, fill(BAND)))?;
        root.draw(&Circle::new((x, y), 9, INK.stroke_width(1)))?;
        return root.draw_text(&(mark.kernel + 1).to_string(), &label(12, INK, HPos::Center), (x, y));
    }
    if mark.kernel == 0 {
        root.draw(&Circle::new((x, y), 6, fill(BLUE)))?;
        return root.draw(&Circle::new(
            (x, y),
            6,
            if mark.hollow { BLUE.stroke_width(2) } else { INK.stroke_width(1) },
        ));
    }
    let corners = [(x, y - 8), (x + 8, y), (x, y + 8), (x - 8, y), (x, y - 8)];
    root.draw(&Polygon::new(corners.to_vec(), fill(GREEN)))?;
    root.draw(&PathElement::new(corners.to_vec(), INK.stroke_width(1)))
}
