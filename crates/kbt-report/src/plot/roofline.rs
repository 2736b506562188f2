//! The roofline: roofs and kernels on logarithmic axes. Every roof is tagged with a letter and named beside the plot
//! with its rate and how it is known; one that nobody measured is dashed.

use super::{
    BAND, BLUE, Canvas, DrawError, GREEN, GREY, GRID, INK, MUTED, ORANGE, PURPLE, RED, SKY, Scale, draw, fit,
    label, text_width,
};
use crate::{ReportError, number};
use kbt_roofline::outcome::{PlotPoint, PlotRoof, RooflinePlot};
use plotters::element::DashedPathElement;
use plotters::prelude::{Circle, PathElement, Polygon, RGBColor, Rectangle};
use plotters::style::Color;
use plotters::style::text_anchor::HPos;

/// The plotting area, left to right and top to bottom.
const LEFT: i32 = 84;
const RIGHT: i32 = 566;
const TOP: i32 = 16;
/// Where the legend begins.
const LEGEND: i32 = 588;

struct Axes {
    x: Scale,
    y: Scale,
}

impl Axes {
    fn at(&self, x: f64, y: f64) -> (i32, i32) {
        (self.x.at(x.log10()), self.y.at(y.log10()))
    }
}

/// The plot; the first point is the kernel as it was, those after it are what became of it.
pub(crate) fn roofline(plot: &RooflinePlot) -> Result<String, ReportError> {
    let roofs = plot.roofs.iter().enumerate().map(|(i, r)| said_of_roof(i, r));
    let legend: i32 = roofs.chain(plot.points.iter().map(said_of_point)).map(|e| e.height()).sum();
    let height = (TOP + 16 + legend).max(440);
    draw("roofline", height.unsigned_abs(), |root| picture(root, plot, height - 56))
}

fn picture(root: &Canvas<'_>, plot: &RooflinePlot, bottom: i32) -> Result<(), DrawError> {
    let axes = axes(plot, bottom);
    grid(root, &axes)?;
    let fastest = plot.roofs.iter().filter_map(|r| r.bytes_per_s).fold(0.0, f64::max);
    let highest = plot.roofs.iter().filter_map(|r| r.flop_per_s).fold(0.0, f64::max);
    let (mut slopes, mut flats) = (0, 0);
    let mut tags: Vec<((i32, i32), String, RGBColor, bool)> = Vec::new();
    let mut y = TOP + 12;
    for (index, roof) in plot.roofs.iter().enumerate() {
        let ink = if roof.bytes_per_s.is_some() {
            slopes += 1;
            [BLUE, GREEN, SKY, PURPLE][(slopes - 1) % 4]
        } else {
            flats += 1;
            [RED, ORANGE, INK, GREY][(flats - 1) % 4]
        };
        let letter = letter(index);
        if let Some((from, to)) = ends(roof, &axes, fastest, highest) {
            stroke(root, vec![from, to], ink, roof.provenance.kind.is_measurement())?;
            let nth = if roof.bytes_per_s.is_some() { slopes } else { flats };
            tags.push((place_of_tag(from, to, nth), letter.clone(), ink, roof.bytes_per_s.is_none()));
        }
        stroke(root, vec![(LEGEND, y), (LEGEND + 26, y)], ink, roof.provenance.kind.is_measurement())?;
        y = said_of_roof(index, roof).draw(root, y)?;
    }
    // After all lines, since roofs of one height lie over each other.
    let points: Vec<(i32, i32)> =
        plot.points.iter().filter(|p| has_place(p)).map(|p| axes.at(p.flop_per_byte, p.flop_per_s)).collect();
    let mut taken = points;
    for (mut at, letter, ink, flat) in tags {
        // Not over a kernel or another tag; a flat roof has room to its left.
        let near = |at: (i32, i32)| taken.iter().any(|p| (p.0 - at.0).abs() < 24 && (p.1 - at.1).abs() < 26);
        while flat && near(at) && at.0 > LEFT + 40 {
            at.0 -= 4;
        }
        taken.push(at);
        tag(root, at, &letter, ink)?;
    }
    // Several kernels have numbers; one before and after has two shapes.
    let numbered = plot.points.len() > 2;
    for (index, point) in plot.points.iter().enumerate() {
        let at = axes.at(point.flop_per_byte, point.flop_per_s);
        let roof =
            plot.roofs.iter().filter_map(|r| height_at(r, point.flop_per_byte)).fold(f64::INFINITY, f64::min);
        if roof.is_finite() && roof > point.flop_per_s && index == 0 && !numbered {
            let top = axes.at(point.flop_per_byte, roof);
            root.draw(&DashedPathElement::new([at, top], 2, 4, MUTED.stroke_width(1)))?;
        }
        let nth = numbered.then_some(index + 1);
        if has_place(point) {
            marker(root, at, index, nth)?;
        }
        marker(root, (LEGEND + 13, y), index, nth)?;
        y = said_of_point(point).draw(root, y)?;
    }
    Ok(())
}

/// The ranges: all ridges and points with room around them.
fn axes(plot: &RooflinePlot, bottom: i32) -> Axes {
    let slopes = || plot.roofs.iter().filter_map(|r| r.bytes_per_s);
    let flats = || plot.roofs.iter().filter_map(|r| r.flop_per_s);
    let ridges = flats().flat_map(|f| slopes().map(move |b| f / b));
    let xs: Vec<f64> =
        ridges.chain(plot.points.iter().map(|p| p.flop_per_byte)).filter(|x| *x > 0.0).collect();
    let bounds = |values: &[f64], low: f64, high: f64| {
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(0.0, f64::max);
        if max > 0.0 { ((min / low).log10(), (max * high).log10()) } else { (0.0, 3.0) }
    };
    let x = bounds(&xs, 6.0, 6.0);
    let tops: Vec<f64> =
        flats().chain(plot.points.iter().map(|p| p.flop_per_s)).filter(|y| *y > 0.0).collect();
    let (low, high) = bounds(&tops, 3.0, 2.0);
    let y = (low.min(high - 2.0), high);
    Axes { x: Scale { from: x, to: (LEFT, RIGHT) }, y: Scale { from: y, to: (bottom, TOP) } }
}

fn grid(root: &Canvas<'_>, axes: &Axes) -> Result<(), DrawError> {
    let ((left, right), (bottom, top)) = (axes.x.to, axes.y.to);
    for (value, major) in decades(axes.x.from) {
        let x = axes.x.at(value.log10());
        root.draw(&PathElement::new([(x, top), (x, bottom)], GRID))?;
        if major {
            root.draw_text(&number::plain(value), &label(12, MUTED, HPos::Center), (x, bottom + 14))?;
        }
    }
    for (value, major) in decades(axes.y.from) {
        let y = axes.y.at(value.log10());
        root.draw(&PathElement::new([(left, y), (right, y)], GRID))?;
        if major {
            root.draw_text(&prefixed(value), &label(12, MUTED, HPos::Right), (left - 8, y))?;
        }
    }
    root.draw(&Rectangle::new([(left, top), (right, bottom)], MUTED))?;
    let middle = i32::midpoint(left, right);
    root.draw_text(
        "useful operations a byte of HBM (FLOP/B)",
        &label(13, INK, HPos::Center),
        (middle, bottom + 36),
    )?;
    root.draw_text("FLOP/s", &label(13, INK, HPos::Left), (left + 8, top + 12))
}

/// Powers of ten in a logarithmic range, with 2 and 5 between them where there are few.
fn decades(range: (f64, f64)) -> Vec<(f64, bool)> {
    let few = range.1 - range.0 < 2.5;
    let mut ticks = Vec::new();
    let mut power = range.0.floor();
    while power <= range.1 {
        for step in [1.0, 2.0, 5.0] {
            let value = step * 10f64.powf(power);
            if (range.0..=range.1).contains(&value.log10()) {
                ticks.push((value, step < 1.5 || few));
            }
        }
        power += 1.0;
    }
    ticks
}

fn prefixed(value: f64) -> String {
    number::si(value.max(1e4), "").trim_end().to_owned()
}

/// A kernel without useful operations, such as a transposition, has no place on logarithmic axes.
fn has_place(point: &PlotPoint) -> bool {
    point.flop_per_byte > 0.0 && point.flop_per_s > 0.0
}

fn height_at(roof: &PlotRoof, x: f64) -> Option<f64> {
    roof.bytes_per_s.map(|b| b * x).or(roof.flop_per_s)
}

/// Where a roof's line begins and ends: slopes up to the highest flat roof, flat roofs from the fastest slope on.
fn ends(roof: &PlotRoof, axes: &Axes, fastest: f64, highest: f64) -> Option<((i32, i32), (i32, i32))> {
    let ten = |log: f64| 10f64.powf(log);
    let (x, y) = (axes.x.from, axes.y.from);
    let (from, to) = match (roof.bytes_per_s, roof.flop_per_s) {
        (Some(b), _) => {
            let top = if highest > 0.0 { highest } else { ten(y.1) };
            (ten(x.0).max(ten(y.0) / b), ten(x.1).min(top / b))
        }
        (None, Some(f)) => (if fastest > 0.0 { ten(x.0).max(f / fastest) } else { ten(x.0) }, ten(x.1)),
        (None, None) => return None,
    };
    (from < to).then(|| {
        (axes.at(from, height_at(roof, from).unwrap_or(1.0)), axes.at(to, height_at(roof, to).unwrap_or(1.0)))
    })
}

/// Slopes have their tags low on the line, flat roofs at its right end, each a bit further on than the last; where the
/// line is at its end they begin anew, beside the earlier ones.
fn place_of_tag(from: (i32, i32), to: (i32, i32), nth: usize) -> (i32, i32) {
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

fn stroke(root: &Canvas<'_>, line: Vec<(i32, i32)>, ink: RGBColor, solid: bool) -> Result<(), DrawError> {
    if solid {
        root.draw(&PathElement::new(line, ink.stroke_width(2)))
    } else {
        root.draw(&DashedPathElement::new(line, 6, 5, ink.stroke_width(2)))
    }
}

fn tag(root: &Canvas<'_>, at: (i32, i32), letter: &str, ink: RGBColor) -> Result<(), DrawError> {
    root.draw(&Circle::new(at, 9, GRID.filled()))?;
    root.draw(&Circle::new(at, 9, ink.stroke_width(2)))?;
    root.draw_text(letter, &label(12, INK, HPos::Center), at)
}

/// A roof's letter in the plot and its legend.
fn letter(index: usize) -> String {
    char::from(b'a' + u8::try_from(index % 26).unwrap_or(0)).to_string()
}

/// An entry of the legend, in lines: the name, and what goes with it.
struct Entry {
    name: Vec<String>,
    what: Vec<String>,
}

impl Entry {
    const LINE: i32 = 16;
    const GAP: i32 = 10;

    fn new(name: &str, what: &str) -> Self {
        let room = i32::try_from(super::WIDTH).unwrap_or(900) - LEGEND - 38;
        Self { name: wrapped(name, 13, room), what: wrapped(what, 12, room) }
    }

    fn height(&self) -> i32 {
        i32::try_from(self.name.len() + self.what.len()).unwrap_or(2) * Self::LINE + Self::GAP
    }

    /// Draws it from a height on and gives the next one's.
    fn draw(&self, root: &Canvas<'_>, y: i32) -> Result<i32, DrawError> {
        let lines = self.name.iter().map(|l| (l, 13, INK)).chain(self.what.iter().map(|l| (l, 12, MUTED)));
        for (at, (line, size, ink)) in (0..).map(|i| y + i * Self::LINE).zip(lines) {
            root.draw_text(line, &label(size, ink, HPos::Left), (LEGEND + 36, at))?;
        }
        Ok(y + self.height())
    }
}

fn said_of_roof(index: usize, roof: &PlotRoof) -> Entry {
    let rate = roof
        .bytes_per_s
        .map_or_else(|| number::si(roof.flop_per_s.unwrap_or(f64::NAN), "FLOP/s"), |b| number::si(b, "B/s"));
    Entry::new(&format!("{} – {}", letter(index), roof.name), &format!("{rate}, {}", roof.provenance.kind))
}

fn said_of_point(point: &PlotPoint) -> Entry {
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

/// Circles for the kernel as it was, diamonds for what became of it; numbers where there are more.
fn marker(root: &Canvas<'_>, (x, y): (i32, i32), index: usize, nth: Option<usize>) -> Result<(), DrawError> {
    if let Some(nth) = nth {
        root.draw(&Circle::new((x, y), 9, BAND.filled()))?;
        root.draw(&Circle::new((x, y), 9, INK.stroke_width(1)))?;
        return root.draw_text(&nth.to_string(), &label(12, INK, HPos::Center), (x, y));
    }
    if index == 0 {
        root.draw(&Circle::new((x, y), 6, BLUE.filled()))?;
        return root.draw(&Circle::new((x, y), 6, INK.stroke_width(1)));
    }
    let corners = [(x, y - 8), (x + 8, y), (x, y + 8), (x - 8, y), (x, y - 8)];
    root.draw(&Polygon::new(corners.to_vec(), GREEN.filled()))?;
    root.draw(&PathElement::new(corners.to_vec(), INK.stroke_width(1)))
}

/// The kernel after tuning: the same useful work in another time.
pub(crate) fn moved(
    before: &PlotPoint,
    name: &str,
    flop_per_s: f64,
    provenance: kbt_evidence::Provenance,
) -> PlotPoint {
    PlotPoint { name: name.to_owned(), flop_per_byte: before.flop_per_byte, flop_per_s, provenance }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_evidence::Provenance;

    #[test]
    fn every_tag_is_on_its_line_however_many_there_are() {
        for nth in 1..60 {
            let (x, y) = place_of_tag((100, 900), (500, 100), nth);
            assert!((100..=500).contains(&x) && (100..=900).contains(&y), "{nth}: {x}, {y}");
            let (x, _) = place_of_tag((100, 300), (500, 300), nth);
            assert!((100..=500).contains(&x), "{nth}: {x}");
        }
    }

    #[test]
    fn the_legend_cuts_no_text_and_the_picture_holds_all_of_it() {
        let p = || Provenance::published("a thread", "2026-11");
        let point = |i: usize| PlotPoint {
            name: format!(
                "kernel number {i} with a name that takes more than a line of the legend and then some"
            ),
            flop_per_byte: 0.1667,
            flop_per_s: 630.2e6,
            provenance: p(),
        };
        let roof =
            PlotRoof { name: "HBM".into(), bytes_per_s: Some(4e12), flop_per_s: None, provenance: p() };
        let plot = RooflinePlot { roofs: vec![roof], points: (0..40).map(point).collect() };
        let svg = roofline(&plot).unwrap();
        assert!(!svg.contains('…'));
        let number = |text: &str| text.split('"').next().unwrap().parse::<i32>().unwrap();
        let height = number(svg.split("height=\"").nth(1).unwrap());
        let lowest =
            svg.split("<text").skip(1).map(|t| number(t.split(" y=\"").nth(1).unwrap())).max().unwrap();
        assert!(lowest + 8 < height, "{lowest} of {height}");
        assert!(svg.contains("kernel number 39") && svg.matches("published").count() == 41);
    }
}
