#![doc = include_str!("../README.md")]

mod doc;
mod html;
mod markdown;
mod number;
mod plot;
mod record;
mod run;
mod section;

pub use run::ReportError;

use kbt_evidence::{Figure, Verdict};
use kbt_roofline::outcome::RooflinePlot;
use run::Run;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The files of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// `report.html`: everything, plots included, in one file that loads nothing.
    pub html: PathBuf,
    /// `report.md`: the same without the plots.
    pub markdown: PathBuf,
}

/// Reads a run directory and writes `report.html` and `report.md` into it, each whole or not at all. An unfinished run
/// gives a report of what is there.
///
/// # Errors
/// Where there is no run, where a file of it is damaged (naming file and field), or where a file cannot be written.
pub fn write(run_dir: &Path) -> Result<Written, ReportError> {
    let (html, markdown) = render(run_dir)?;
    let written = Written { html: run_dir.join("report.html"), markdown: run_dir.join("report.md") };
    whole(&written.html, html.as_bytes())?;
    whole(&written.markdown, markdown.as_bytes())?;
    Ok(written)
}

/// The report's two texts, HTML and Markdown, without writing them.
///
/// # Errors
/// As [`write()`], but for writing.
pub fn render(run_dir: &Path) -> Result<(String, String), ReportError> {
    let run = Run::read(run_dir)?;
    let document = section::document(&run)?;
    Ok((html::render(&document), markdown::render(&document)))
}

/// The verdicts of a run's finished steps, in the ladder's order: those that its journal holds and did not send back.
///
/// # Errors
/// Where there is no run, or where a step file or the journal is damaged (naming file and field).
pub fn verdicts(run_dir: &Path) -> Result<Vec<Verdict>, ReportError> {
    run::verdicts(run_dir)
}

/// How busy each warp role of a run's trace is, as a share of its own time; none where the run has no trace.
///
/// # Errors
/// Where the trace's step file or the journal is damaged (naming file and field).
pub fn traced_roles(run_dir: &Path) -> Result<Vec<Figure>, ReportError> {
    run::roles(run_dir)
}

/// A roofline as an SVG file of its own: roofs with their rates and provenance, kernels as points.
///
/// # Errors
/// Where the plot cannot be drawn.
pub fn roofline_svg(plot: &RooflinePlot) -> Result<String, ReportError> {
    Ok(plot::standalone(&plot::roofline::roofline(plot)?))
}

/// Whether a file's bytes are a plot that [`roofline_svg`] gave, so that nobody's work is in it.
#[must_use]
pub fn is_own_svg(bytes: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(512)]);
    let mut lines = head.lines();
    lines.next().is_some_and(|l| l.starts_with("<svg "))
        && lines.next().is_some_and(|l| l.starts_with(plot::OWN))
}

/// Writes beside the target and renames, so that a reader sees the old file or the new one.
fn whole(path: &Path, bytes: &[u8]) -> Result<(), ReportError> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let write = || -> io::Result<()> {
        let mut file = std::fs::File::create(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&partial, path)
    };
    write().map_err(|source| ReportError::Io { path: path.to_owned(), source })
}
