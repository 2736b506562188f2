//! The roofline: roofs and kernels on logarithmic axes. Every roof is tagged with a letter and named beside the plot
//! with its rate and how it is known; one that nobody measured is dashed.

mod legend;
mod marks;

use super::{
    BLUE, Canvas, DrawError, GREEN, GREY, GRID, INK, MUTED, ORANGE, PURPLE, RED, SKY, Scale, draw, fit, label,
};
use crate::{ReportError, number};
use kbt_roofline::outcome::{Level, PlotPoint, PlotRoof, RooflinePlot};
use legend::{said_of_point, said_of_roof};
use marks::{Mark, marker, named, place_of_tag, tag};
use plotters::element::DashedPathElement;
use plotters::prelude::{PathElement, RGBColor, Rectangle};
use plotters::style::Color;
use plotters::style::text_anchor::HPos;

/// The plotting area, left to right and top to bottom.
const LEFT: i32 = 84;
const RIGHT: i32 = 566;
const TOP: i32 = 58;
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
    let names = plot.roof_names();
    let roofs = plot.roofs.iter().zip(&names).enumerate().map(|(i, (r, name))| said_of_roof(i, name, r));
    let legend: i32 = roofs.chain(plot.points.iter().map(said_of_point)).map(|e| e.height()).sum();
    let height = (TOP + 16 + legend).max(480);
    let svg = draw("roofline", height.unsigned_abs(), |root| picture(root, plot, height - 56))?;
    Ok(dashed(&svg))
}

/// Lines of this width become dashed ones: dashes that are drawn one by one are ragged on slopes.
const DASHED: u32 = 3;

fn dashed(svg: &str) -> String {
    svg.replace(&format!("stroke-width=\"{DASHED}\""), "stroke-width=\"2\" stroke-dasharray=\"7 5\"")
}

/// Whose roofs, which formats, and how the roofs are known.
fn title(root: &Canvas<'_>, plot: &RooflinePlot) -> Result<(), DrawError> {
    let device = if plot.device.is_empty() { String::new() } else { format!(" of {}", plot.device) };
    let mut kinds: Vec<String> = Vec::new();
    for roof in &plot.roofs {
        let kind = roof.provenance.kind.to_string();
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let formats =
        if plot.formats.is_empty() { String::new() } else { format!("{}; ", plot.formats.join(", ")) };
    let known = if kinds.is_empty() { String::new() } else { format!("roofs {}", kinds.join(" and ")) };
    let room = i32::try_from(super::WIDTH).unwrap_or(900) - LEFT - 16;
    root.draw_text(&fit(&format!("Roofline{device}"), 17, room), &label(17, INK, HPos::Left), (LEFT, 18))?;
    root.draw_text(&fit(&format!("{formats}{known}"), 13, room), &label(13, MUTED, HPos::Left), (LEFT, 40))
}

fn picture(root: &Canvas<'_>, plot: &RooflinePlot, bottom: i32) -> Result<(), DrawError> {
    let axes = axes(plot, bottom);
    title(root, plot)?;
    let levels = plot.points.iter().any(|p| p.level != Level::Hbm);
    grid(root, &axes, levels)?;
    let fastest = plot.roofs.iter().filter_map(|r| r.bytes_per_s).fold(0.0, f64::max);
    let highest = plot.roofs.iter().filter_map(|r| r.flop_per_s).fold(0.0, f64::max);
    let (mut slopes, mut flats) = (0, 0);
    let mut tags: Vec<((i32, i32), String, RGBColor, bool)> = Vec::new();
    let names = plot.roof_names();
    let mut y = TOP + 12;
    for (index, (roof, name)) in plot.roofs.iter().zip(&names).enumerate() {
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
        y = said_of_roof(index, name, roof).draw(root, y)?;
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
    // Several kernels have numbers; one before and after has two shapes. A kernel's marks by other bytes are hollow.
    let numbered = plot.points.iter().filter(|p| p.level == Level::Hbm).count() > 2;
    let mut kernel = 0;
    for (index, point) in plot.points.iter().enumerate() {
        if point.level == Level::Hbm && index > 0 {
            kernel += 1;
        }
        let mark = Mark { kernel, numbered, hollow: point.level != Level::Hbm };
        let at = axes.at(point.flop_per_byte, point.flop_per_s);
        let own = |r: &&PlotRoof| r.bytes_per_s.is_none() || r.level == point.level;
        let heights = plot.roofs.iter().filter(own).filter_map(|r| height_at(r, point.flop_per_byte));
        let roof = heights.fold(f64::INFINITY, f64::min);
        if roof.is_finite() && roof > point.flop_per_s && index == 0 && !numbered {
            let top = axes.at(point.flop_per_byte, roof);
            root.draw(&DashedPathElement::new([at, top], 2, 4, MUTED.stroke_width(1)))?;
        }
        if has_place(point) {
            marker(root, at, mark)?;
            // The number or the place beside the first mark says whose it is.
            let name = match point.level {
                Level::Hbm => point.name.clone(),
                level => format!("by {}", level.phrase()),
            };
            named(root, at, &name, &mut taken)?;
        }
        marker(root, (LEGEND + 13, y), mark)?;
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

fn grid(root: &Canvas<'_>, axes: &Axes, levels: bool) -> Result<(), DrawError> {
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
    let bytes = if levels {
        "useful operations a byte of the level that roof and mark name (FLOP/B)"
    } else {
        "useful operations a byte of HBM (FLOP/B)"
    };
    root.draw_text(bytes, &label(13, INK, HPos::Center), (middle, bottom + 36))?;
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

fn stroke(root: &Canvas<'_>, line: Vec<(i32, i32)>, ink: RGBColor, solid: bool) -> Result<(), DrawError> {
    if solid {
        root.draw(&PathElement::new(line, ink.stroke_width(2)))
    } else {
        root.draw(&PathElement::new(line, ink.stroke_width(DASHED)))
    }
}

/// A roof's letter in the plot and its legend.
fn letter(index: usize) -> String {
    char::from(b'a' + u8::try_from(index % 26).unwrap_or(0)).to_string()
}

/// The kernel after tuning: the same useful work in another time.
pub(crate) fn moved(
    before: &PlotPoint,
    name: &str,
    flop_per_s: f64,
    provenance: kbt_evidence::Provenance,
) -> PlotPoint {
    let (flop_per_byte, level) = (before.flop_per_byte, before.level);
    PlotPoint { name: name.to_owned(), flop_per_byte, level, flop_per_s, provenance }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_evidence::Provenance;

    #[test]
    fn a_level_on_chip_has_its_own_mark_and_the_axis_says_so() {
        let p = || Provenance::published("a thread", "2026-11");
        let roof = |name: &str, rate, level| PlotRoof {
            name: name.into(),
            bytes_per_s: Some(rate),
            flop_per_s: None,
            level,
            provenance: p(),
        };
        let point = |name: &str, flop_per_byte, level| PlotPoint {
            name: name.into(),
            flop_per_byte,
            level,
            flop_per_s: 1e12,
            provenance: p(),
        };
        let mut plot = RooflinePlot {
            roofs: vec![roof("HBM", 4e12, Level::Hbm)],
            points: vec![point("a kernel", 4.0, Level::Hbm)],
            ..RooflinePlot::default()
        };
        let alone = roofline(&plot).unwrap();
        assert!(alone.contains("a byte of HBM (FLOP/B)"));
        plot.roofs.push(roof("L2 read", 12e12, Level::L2));
        plot.points.push(point("by L2", 1.0, Level::L2));
        let both = roofline(&plot).unwrap();
        assert!(both.contains("the level that roof and mark name"), "{both}");
        assert!(both.contains("by L2") && both.contains("1 FLOP/B, published"), "{both}");
        // In the plot and in the legend.
        assert_eq!(both.matches("a kernel").count(), 2, "{both}");
    }

    #[test]
    fn two_rates_of_one_roof_are_told_apart_in_the_legend() {
        let of = |rate, by: &str| PlotRoof {
            name: "HBM copy".into(),
            bytes_per_s: Some(rate),
            flop_per_s: None,
            level: Level::Hbm,
            provenance: Provenance::given(by),
        };
        let svg = roofline(&RooflinePlot {
            roofs: vec![of(4.0e12, "a.yaml:9"), of(3.6e12, "b.yaml:9")],
            ..RooflinePlot::default()
        })
        .unwrap();
        let text: String =
            svg.split("<text").skip(1).flat_map(|t| [t.split(['>', '<']).nth(1).unwrap(), " "]).collect();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains("a – HBM copy: a.yaml:9 4 TB/s, given"), "{text}");
        assert!(text.contains("b – HBM copy: b.yaml:9 3.6 TB/s, given"), "{text}");
    }

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
            level: Level::Hbm,
            flop_per_s: 630.2e6,
            provenance: p(),
        };
        let roof = PlotRoof {
            name: "HBM".into(),
            bytes_per_s: Some(4e12),
            flop_per_s: None,
            level: Level::Hbm,
            provenance: p(),
        };
        let plot = RooflinePlot {
            device: "NVIDIA H200".into(),
            formats: vec!["bf16".into()],
            roofs: vec![roof],
            points: (0..40).map(point).collect(),
        };
        let svg = roofline(&plot).unwrap();
        for said in ["Roofline of NVIDIA H200", "bf16; roofs published", "stroke-dasharray"] {
            assert!(svg.contains(said), "{said} is not in {svg}");
        }
        let legend = svg.split("<text").filter(|t| t.contains("x=\"624\""));
        assert!(legend.clone().count() > 40 && legend.clone().all(|t| !t.contains('…')));
        let number = |text: &str| text.split('"').next().unwrap().parse::<i32>().unwrap();
        let height = number(svg.split("height=\"").nth(1).unwrap());
        let lowest =
            svg.split("<text").skip(1).map(|t| number(t.split(" y=\"").nth(1).unwrap())).max().unwrap();
        assert!(lowest + 8 < height, "{lowest} of {height}");
        assert!(svg.contains("kernel number 39") && svg.matches("published").count() == 42);
    }
}
