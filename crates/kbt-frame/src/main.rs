//! `kbt-frame`: the tables of a run as Parquet, and two runs against each other.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool prints")]

use clap::{Parser, Subcommand, ValueEnum};
use kbt_frame::{Missing, Written, compare, export, trace_rows};
use std::error::Error;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// The tables of a run as Parquet, and two runs against each other.
#[derive(Parser)]
#[command(name = "kbt-frame", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write a run's tables as Parquet, a file each.
    #[command(after_help = "Example: kbt-frame export kbt-runs/20261130T130509Z-fp4")]
    Export {
        /// The run directory.
        run: PathBuf,
        /// Where to; the run's own folder `tables` if absent.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Write the rows of a trace that standard input holds as one Parquet file; `kbt trace export` calls it.
    #[command(after_help = "Example: kbt trace export run.kbttrace --to parquet -o run.parquet")]
    Trace {
        /// The file to write.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Join two runs and print what differs, against the spread. Differences are no failure: exit 0.
    #[command(after_help = "Example: kbt-frame compare runs/before runs/after")]
    Compare {
        /// The first run directory.
        before: PathBuf,
        /// The second.
        after: PathBuf,
        /// How to print it.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
        /// In text, differences within the noise too; JSON holds them always.
        #[arg(long)]
        all: bool,
    },
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Format {
    /// For people.
    #[default]
    Text,
    /// `kbt.compare/1`.
    Json,
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(text) => emit(&text),
        Err(error) => {
            eprintln!("kbt-frame: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(command: Command) -> Result<String, Box<dyn Error>> {
    match command {
        Command::Export { run, out } => {
            let exported = export(&run, out.as_deref())?;
            for (why, tables) in by_reason(&exported.missing) {
                eprintln!("kbt-frame: no {}: {why}", tables.join(", "));
            }
            Ok(exported.written.iter().map(line).collect())
        }
        Command::Trace { out } => {
            let written = trace_rows(&mut std::io::stdin().lock(), "standard input", &out)?;
            Ok(line(&written))
        }
        Command::Compare { before, after, format, all } => {
            let found = compare(&before, &after)?;
            match format {
                Format::Text => Ok(found.render_text(all)),
                Format::Json => Ok(serde_json::to_string_pretty(&found)? + "\n"),
            }
        }
    }
}

fn line(w: &Written) -> String {
    let rows = if w.rows == 1 { "row" } else { "rows" };
    format!("{}: {} {rows} of {} columns; a row is {}\n", w.path.display(), w.rows, w.columns, w.about)
}

/// The tables that are missing for one reason, together.
fn by_reason(missing: &[Missing]) -> Vec<(&str, Vec<&str>)> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for m in missing {
        match reasons.iter_mut().find(|(why, _)| *why == m.why) {
            Some((_, tables)) => tables.push(m.table),
            None => reasons.push((&m.why, vec![m.table])),
        }
    }
    reasons
}

/// Writes to standard output. A closed pipe is no error.
fn emit(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            eprintln!("kbt-frame: standard output: {e}");
            ExitCode::from(2)
        }
        _ => ExitCode::SUCCESS,
    }
}
