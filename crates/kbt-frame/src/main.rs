//! `kbt-frame`: the tables of a run as Parquet, and two runs against each other.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool prints")]

mod args;

use args::{Cli, Command, Format};
use clap::Parser;
use kbt_frame::{Missing, Written, compare, export, trace_rows};
use std::error::Error;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

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
