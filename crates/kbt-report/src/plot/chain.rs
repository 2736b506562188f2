//! A chain of rewrites: the program given, each rule that was applied, the program found. Boxes run left to right and go
//! on in the next line; the two ends say what an element costs.

use super::{BAND, BLUE, Canvas, DrawError, GREEN, GRID, INK, MUTED, WIDTH, draw, fit, label, text_width};
use crate::ReportError;
use plotters::prelude::{PathElement, Polygon, RGBColor, Rectangle};
use plotters::style::Color;
use plotters::style::text_anchor::HPos;

/// One box of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) label: String,
    /// A second line; only the programs at the ends have one.
    pub(crate) cost: Option<String>,
}

const LEFT: i32 = 4;
const TOP: i32 = 8;
const BOX: i32 = 40;
const ROW: i32 = 66;
/// Between two boxes, where the arrow is.
const GAP: i32 = 30;
const PAD: i32 = 12;

fn width(link: &Link) -> i32 {
    let cost = link.cost.as_ref().map_or(0, |c| text_width(c, 12));
    (text_width(&link.label, 13).max(cost) + 2 * PAD).min(right() - LEFT)
}

fn right() -> i32 {
    i32::try_from(WIDTH).unwrap_or(900) - LEFT
}

/// The top left corner of each box.
fn places(links: &[Link]) -> Vec<(i32, i32)> {
    let (mut x, mut y) = (LEFT, TOP);
    links
        .iter()
        .map(|link| {
            if x > LEFT && x + width(link) > right() {
                (x, y) = (LEFT + GAP, y + ROW);
            }
            let place = (x, y);
            x += width(link) + GAP;
            place
        })
        .collect()
}

/// The plot.
pub(crate) fn chain(links: &[Link]) -> Result<String, ReportError> {
    let places = places(links);
    let height = places.last().map_or(TOP, |(_, y)| *y) + BOX + TOP;
    draw("rewrite chain", height.unsigned_abs(), |root| picture(root, links, &places))
}

fn picture(root: &Canvas<'_>, links: &[Link], places: &[(i32, i32)]) -> Result<(), DrawError> {
    for (i, (link, &(x, y))) in links.iter().zip(places).enumerate() {
        let w = width(link);
        let edge = match (i, i + 1 == links.len()) {
            (0, _) => BLUE,
            (_, true) => GREEN,
            _ => GRID,
        };
        let corners = [(x, y), (x + w, y + BOX)];
        root.draw(&Rectangle::new(corners, if edge == GRID { GRID } else { BAND }.filled()))?;
        root.draw(&Rectangle::new(corners, if edge == GRID { MUTED } else { edge }.stroke_width(2)))?;
        let middle = x + w / 2;
        let name = fit(&link.label, 13, w - PAD);
        match &link.cost {
            Some(cost) => {
                root.draw_text(&name, &label(13, INK, HPos::Center), (middle, y + 13))?;
                let cost = fit(cost, 12, w - PAD);
                root.draw_text(&cost, &label(12, INK, HPos::Center), (middle, y + 29))?;
            }
            None => root.draw_text(&name, &label(13, INK, HPos::Center), (middle, y + BOX / 2))?,
        }
        if i > 0 {
            arrow(root, (x - GAP + 4, y + BOX / 2), x - 3, INK)?;
        }
    }
    Ok(())
}

/// An arrow to the right.
fn arrow(root: &Canvas<'_>, from: (i32, i32), to: i32, ink: RGBColor) -> Result<(), DrawError> {
    root.draw(&PathElement::new([from, (to - 6, from.1)], ink.stroke_width(2)))?;
    root.draw(&Polygon::new(vec![(to, from.1), (to - 8, from.1 - 5), (to - 8, from.1 + 5)], ink.filled()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_chain_goes_on_in_the_next_line_and_stays_within_the_picture() {
        let links: Vec<Link> =
            (0..20).map(|i| Link { label: format!("rule-of-some-length-{i}"), cost: None }).collect();
        let places = places(&links);
        assert!(places.iter().map(|p| p.1).max().unwrap() > TOP);
        for (link, (x, _)) in links.iter().zip(&places) {
            assert!(*x >= LEFT && x + width(link) <= right(), "{x}");
        }
        // No two boxes of one line touch.
        for (i, pair) in places.windows(2).enumerate() {
            assert!(pair[0].1 != pair[1].1 || pair[0].0 + width(&links[i]) + GAP <= pair[1].0);
        }
        let svg = chain(&links).unwrap();
        assert!(svg.contains("rule-of-some-length-19"), "{svg}");
    }
}
