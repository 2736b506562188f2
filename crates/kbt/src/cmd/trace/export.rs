//! `kbt trace export`: the trace for viewers and tables.

use super::whole::{Whole, apart};
use super::{Reading, TIMELINE_STEPS, failure, options};
use crate::output::{Failure, Format, Outcome, emit, print};
use kbt_evidence::Provenance;
use kbt_trace::export::{ExportCounts, LeftOut, RowCounts, svg, write_chrome, write_perfetto, write_rows};
use kbt_trace::{AnalyseOptions, Source, TraceError, analyse};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The trace; `-` reads standard input.
    file: PathBuf,
    #[command(flatten)]
    reading: Reading,
    /// The format to write.
    #[arg(long, value_enum)]
    to: To,
    /// The file to write; `-` is standard output, for every format but Parquet.
    #[arg(short, long)]
    out: PathBuf,
    /// SVG: the steps that are drawn; 4 by default.
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
    /// SVG: the CTA that is drawn; by default the first one with a step.
    #[arg(long, value_name = "N")]
    cta: Option<u32>,
    /// How the count of what was written is printed, where it does not go to standard output itself.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum To {
    /// Perfetto's protobuf.
    Perfetto,
    /// Chrome trace events.
    Chrome,
    /// A row for each span, instant and arrival.
    Parquet,
    /// A drawing of a few steps.
    Svg,
}

type Writer = fn(&mut dyn Source, &mut dyn Write) -> Result<ExportCounts, TraceError>;

pub(super) fn run(args: &Args) -> Outcome {
    apart(&args.out, &args.file)?;
    for (option, given, all) in
        [("--cta", args.cta.is_some(), "CTA"), ("--steps", args.steps.is_some(), "step")]
    {
        if given && args.to != To::Svg {
            return Err(Failure::input(format!(
                "{option}: accepted: with --to svg only; the other formats hold every {all}"
            )));
        }
    }
    match args.to {
        To::Perfetto => viewer(args, write_perfetto),
        To::Chrome => viewer(args, write_chrome),
        To::Parquet => parquet(args),
        To::Svg => drawing(args),
    }
}

/// What was written, for scripts and people.
fn counted(args: &Args, counts: &[(&str, u64)]) -> Outcome {
    let (file, out) = (&args.file, &args.out);
    let provenance = Provenance::given(format!("{}, counted as it was written", file.display()));
    let mut written =
        serde_json::json!({ "schema": "kbt.trace-export/1", "provenance": provenance, "out": out });
    counts.iter().for_each(|(what, count)| written[*what] = (*count).into());
    print(args.format, &written, |_| {
        let each: Vec<_> = counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
        format!("{}: {}", out.display(), each.join(", "))
    })
}

/// What was odd about the trace, and what of it is not in the file.
fn notes(source: &dyn Source, left_out: LeftOut) {
    let mut problems = source.problems().clone();
    problems.merge(&left_out.problems());
    problems.list().iter().for_each(|problem| crate::output::tell!("kbt: note: {problem}"));
}

/// A trace of which nothing can be shown is no output.
fn something(args: &Args, source: &dyn Source, left_out: LeftOut, written: u64) -> Result<(), Failure> {
    if written > 0 {
        return Ok(());
    }
    notes(source, left_out);
    Err(Failure::input(format!("{}: no records: it has neither a span nor an instant", args.file.display())))
}

fn viewer(args: &Args, write: Writer) -> Outcome {
    let mut source = args.reading.open(&args.file)?;
    let counts = if args.out.as_os_str() == "-" {
        match write(source.as_mut(), &mut BufWriter::new(std::io::stdout().lock())) {
            Err(TraceError::Io { source, .. }) if source.kind() == ErrorKind::BrokenPipe => {
                return Ok(ExitCode::SUCCESS);
            }
            counts => counts.map_err(failure)?,
        }
    } else {
        let mut file = Whole::create(&args.out)?;
        let counts = write(source.as_mut(), &mut file).map_err(failure)?;
        something(args, source.as_ref(), counts.left_out, counts.slices + counts.instants)?;
        file.finish()?;
        counts
    };
    notes(source.as_ref(), counts.left_out);
    if args.out.as_os_str() == "-" {
        return Ok(ExitCode::SUCCESS);
    }
    let ExportCounts { tracks, slices, instants, flows, counters, left_out } = counts;
    let counts = [
        ("tracks", tracks),
        ("slices", slices),
        ("instants", instants),
        ("flows", flows),
        ("counters", counters),
        ("orphan_begins", left_out.orphan_begins),
        ("orphan_ends", left_out.orphan_ends),
    ];
    counted(args, &counts)
}

fn drawing(args: &Args) -> Outcome {
    let mut source = args.reading.open(&args.file)?;
    let steps = args.steps.unwrap_or(TIMELINE_STEPS);
    if steps == 0 {
        return Err(Failure::input("--steps 0: accepted: at least 1"));
    }
    let options = AnalyseOptions { cta: args.cta, timeline_steps: steps, ..options(&args.file) };
    let outcome = analyse(source.as_mut(), &options).map_err(failure)?;
    let drawing = svg(&outcome)?;
    outcome.problems.iter().for_each(|problem| crate::output::tell!("kbt: note: {problem}"));
    if args.out.as_os_str() == "-" {
        return emit(&drawing);
    }
    let mut file = Whole::create(&args.out)?;
    file.write_all(drawing.as_bytes()).map_err(|e| Failure::input(format!("{}: {e}", args.out.display())))?;
    file.finish()?;
    let timeline = outcome.timeline.as_ref();
    let count = |of: &dyn Fn(&kbt_trace::outcome::Timeline) -> usize| timeline.map_or(0, of) as u64;
    let counts = [
        ("steps", timeline.map_or(0, |t| t.steps)),
        ("rows", count(&|t| t.rows.len())),
        ("spans", count(&|t| t.rows.iter().map(|row| row.spans.len()).sum())),
        ("arrows", count(&|t| t.arrows.len())),
        ("curves", count(&|t| t.rings.len())),
    ];
    counted(args, &counts)
}

/// Streams the rows to kbt-frame, the one program that links a Parquet writer.
fn parquet(args: &Args) -> Outcome {
    if args.out.as_os_str() == "-" {
        return Err(Failure::input("--to parquet -o -: Parquet needs a file to seek in; name one"));
    }
    let frame = frame()?;
    let mut source = args.reading.open(&args.file)?;
    let start = |e: std::io::Error| Failure::input(format!("{}: {e}", frame.display()));
    let mut child = Command::new(&frame)
        .args(["trace", "--out"])
        .arg(&args.out)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(start)?;
    let pipe = child.stdin.take().ok_or_else(|| Failure::input("kbt-frame has no standard input"))?;
    let mut pipe = BufWriter::with_capacity(1 << 20, pipe);
    let name = args.file.display().to_string();
    let written = write_rows(source.as_mut(), &name, &mut pipe);
    // Closing the pipe is what ends kbt-frame, whether or not all rows went into it.
    drop(pipe);
    let status = child.wait().map_err(start)?;
    let written = match written {
        // kbt-frame has said why.
        Err(TraceError::Io { source, .. }) if source.kind() == ErrorKind::BrokenPipe => RowCounts::default(),
        written => written.map_err(failure)?,
    };
    if !status.success() {
        return Err(Failure::input(format!("{} trace: {status}", frame.display())));
    }
    let RowCounts { rows, left_out } = written;
    something(args, source.as_ref(), left_out, rows)?;
    notes(source.as_ref(), left_out);
    let LeftOut { orphan_begins, orphan_ends, .. } = left_out;
    counted(args, &[("rows", rows), ("orphan_begins", orphan_begins), ("orphan_ends", orphan_ends)])
}

/// The kbt-frame beside this program.
fn frame() -> Result<PathBuf, Failure> {
    let here = std::env::current_exe().map_err(|e| Failure::input(format!("where kbt is: {e}")))?;
    let frame = here.with_file_name(format!("kbt-frame{}", std::env::consts::EXE_SUFFIX));
    if frame.is_file() {
        return Ok(frame);
    }
    let folder = frame.parent().unwrap_or(Path::new(".")).display().to_string();
    Err(Failure::input(format!(
        "{folder} holds no kbt-frame, which writes Parquet: `cargo build --release -p kbt-frame` builds it there"
    )))
}
