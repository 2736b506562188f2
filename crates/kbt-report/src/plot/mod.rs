//! Plots as SVG, drawn by plotters: text stays text, colours are the Okabe-Ito palette, and shapes, dashes and hatching
//! say the same as the colours. A plot inside the report takes its colours from the page, dark or light; one alone
//! stands on white.

pub(crate) mod bars;
pub(crate) mod chain;
pub(crate) mod forest;
pub(crate) mod roofline;
pub(crate) mod strip;
pub(crate) mod timeline;

use crate::ReportError;
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea, RGBColor, SVGBackend};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, TextStyle};

/// What drawing can fail with.
pub(crate) type DrawError = DrawingAreaErrorKind<std::io::Error>;
/// The whole picture, in pixels.
pub(crate) type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

macro_rules! inks {
    ($($name:ident = $rgb:expr, $css:literal;)*) => {
        $(pub(crate) const $name: RGBColor = RGBColor($rgb.0, $rgb.1, $rgb.2);)*
        /// Each colour with the page's variable for it.
        const INKS: &[(RGBColor, &str)] = &[$(($name, $css),)*];
    };
}

inks! {
    INK = (0x16, 0x19, 0x1d), "ink";
    MUTED = (0x56, 0x60, 0x6c), "muted";
    GRID = (0xdf, 0xe4, 0xe9), "grid";
    BLUE = (0x00, 0x72, 0xb2), "blue";
    SKY = (0x7c, 0xc3, 0xec), "sky";
    ORANGE = (0xe6, 0x9f, 0x00), "orange";
    RED = (0xd5, 0x5e, 0x00), "red";
    GREEN = (0x00, 0x9e, 0x73), "green";
    PURPLE = (0xb3, 0x58, 0x8f), "purple";
    GREY = (0x9a, 0xa4, 0xaf), "grey";
    BAND = (0xcf, 0xe3, 0xf2), "band";
}

/// A fill that becomes hatching: what waits is hatched.
pub(crate) const HATCH: RGBColor = RGBColor(0xe6, 0x9f, 0x01);
const HATCH_ID: &str = "kbt-hatch";

/// Width of every plot, in its own pixels.
pub(crate) const WIDTH: u32 = 900;

/// Draws a plot and gives its SVG with the colours as they stand here.
fn draw(
    name: &'static str,
    height: u32,
    picture: impl FnOnce(&Canvas<'_>) -> Result<(), DrawError>,
) -> Result<String, ReportError> {
    let failed = |e: DrawError| ReportError::Plot { plot: name, message: e.to_string() };
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        picture(&root).map_err(failed)?;
        root.present().map_err(failed)?;
    }
    Ok(svg)
}

/// The plot for the page: its colours are the page's variables, its size that of its place.
pub(crate) fn inline(svg: &str, label: &str) -> String {
    let mut out = svg.to_owned();
    for (ink, css) in INKS {
        let hex = hex(*ink);
        for attribute in ["fill", "stroke"] {
            let styled = format!("style=\"{attribute}:var(--p-{css})\"");
            out = out.replace(&format!("{attribute}=\"{hex}\""), &styled);
        }
    }
    out = hatched(&out, "style=\"stroke:var(--p-red)\"");
    let head = format!("<svg width=\"{WIDTH}\" height=\"");
    let label = label.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    if let Some(rest) = out.strip_prefix(&head)
        && let Some((_, rest)) = rest.split_once("\" viewBox")
    {
        out = format!("<svg role=\"img\" aria-label=\"{label}\" viewBox{rest}");
    }
    out.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1)
}

/// How the text of a plot of its own file is set, which no other program's drawing begins with.
pub(crate) const OWN: &str = "<style>text{font-family:system-ui,sans-serif}</style>";

/// The plot as a file of its own, on white.
pub(crate) fn standalone(svg: &str) -> String {
    let out = hatched(svg, &format!("stroke=\"{}\"", hex(RED)));
    let font = format!("{OWN}<rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>\n");
    match out.split_once(">\n") {
        Some((head, rest)) => format!("{head}>\n{font}{rest}"),
        None => out,
    }
}

/// Puts the pattern in for the fill that stands for it.
fn hatched(svg: &str, stroke: &str) -> String {
    let fill = format!("fill=\"{}\"", hex(HATCH));
    if !svg.contains(&fill) {
        return svg.to_owned();
    }
    let pattern = format!(
        "<defs><pattern id=\"{HATCH_ID}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\" stroke-width=\"3\" {stroke}/>\
         </pattern></defs>\n"
    );
    let filled = svg.replace(&fill, &format!("fill=\"url(#{HATCH_ID})\""));
    match filled.split_once(">\n") {
        Some((head, rest)) => format!("{head}>\n{pattern}{rest}"),
        None => filled,
    }
}

fn hex(c: RGBColor) -> String {
    format!("#{:02X}{:02X}{:02X}", c.0, c.1, c.2)
}

/// Text of a size and colour, anchored at its middle height.
pub(crate) fn label(size: u32, ink: RGBColor, at: HPos) -> TextStyle<'static> {
    let font = FontDesc::new(FontFamily::SansSerif, f64::from(size), FontStyle::Normal);
    TextStyle { font, color: ink.to_backend_color(), pos: Pos::new(at, VPos::Center) }
}

/// About how wide a text is, in pixels: labels are kept apart by it.
pub(crate) fn text_width(t: &str, size: u32) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "labels are short")]
    let width = (t.chars().count() as f64 * f64::from(size) * 0.56) as i32;
    width
}

/// A text cut to a width.
pub(crate) fn fit(t: &str, size: u32, width: i32) -> String {
    if text_width(t, size) <= width {
        return t.to_owned();
    }
    let keep = (f64::from(width) / (f64::from(size) * 0.56) - 1.0).max(0.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and short")]
    let cut: String = t.chars().take(keep as usize).collect();
    if cut.is_empty() { cut } else { format!("{cut}…") }
}

/// A scale from values to pixels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) from: (f64, f64),
    pub(crate) to: (i32, i32),
}

impl Scale {
    /// The pixel of a value.
    pub(crate) fn at(&self, value: f64) -> i32 {
        let share = (value - self.from.0) / (self.from.1 - self.from.0);
        #[expect(clippy::cast_possible_truncation, reason = "clamped to the picture")]
        let pixel = (f64::from(self.to.0) + share * f64::from(self.to.1 - self.to.0))
            .clamp(-2000.0, 4000.0)
            .round() as i32;
        pixel
    }

    /// Round values for an axis, about `wanted` of them.
    pub(crate) fn ticks(&self, wanted: u32) -> Vec<f64> {
        let raw = (self.from.1 - self.from.0) / f64::from(wanted.max(1));
        let power = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|m| m * power).find(|s| *s >= raw * 0.999);
        let step = step.unwrap_or(raw);
        let mut ticks = Vec::new();
        let mut at = (self.from.0 / step).ceil();
        while at * step <= self.from.1 + step * 1e-9 && ticks.len() < 100 {
            ticks.push(at * step);
            at += 1.0;
        }
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_scale() {
        let scale = |from, to| Scale { from: (from, to), to: (0, 100) };
        assert_eq!(scale(0.0, 4310.0).ticks(5), [0.0, 1000.0, 2000.0, 3000.0, 4000.0]);
        assert_eq!(scale(0.9, 1.1).ticks(4).len(), 5);
        assert_eq!(scale(0.0, 10.0).at(5.0), 50);
    }

    #[test]
    fn a_plot_on_the_page_has_no_fixed_colour_and_one_alone_has_a_ground() {
        let svg = draw("test", 100, |root| {
            root.draw(&plotters::prelude::Rectangle::new([(1, 1), (9, 9)], Color::filled(&HATCH)))?;
            root.draw_text("a < b", &label(13, INK, HPos::Left), (5, 5))
        })
        .unwrap();
        let page = inline(&svg, "a \"label\"");
        assert!(
            page.starts_with("<svg role=\"img\" aria-label=\"a &quot;label&quot;\" viewBox=\"0 0 900 100\">"),
            "{page}"
        );
        assert!(
            page.contains("url(#kbt-hatch)")
                && page.contains("a &lt; b")
                && page.contains("fill:var(--p-ink)"),
            "{page}"
        );
        assert!(!page.contains('#') || !page.contains("=\"#"), "{page}");
        let alone = standalone(&svg);
        assert!(alone.contains("xmlns=") && alone.contains("fill=\"#FFFFFF\""), "{alone}");
    }
}
