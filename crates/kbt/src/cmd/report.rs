//! `kbt report`: the pages of a run, from its directory.

use crate::output::{Format, Outcome, print};
use serde::Serialize;
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(after_help = "Example:\n  kbt report kbt-runs/20261130T130509Z-fp4\n\n\
    Writes report.html (one file, loads nothing) and report.md into the run directory and prints their paths. An\n\
    unfinished run gives a report of what is there. Exit 2 where a file of the run is damaged: file and field are named.")]
pub(crate) struct Args {
    /// The run directory: what `kbt tune` wrote.
    run: PathBuf,
    /// How the paths are printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What was written, for scripts.
#[derive(Serialize)]
struct Files {
    html: PathBuf,
    markdown: PathBuf,
}

pub(crate) fn run(args: Args) -> Outcome {
    let written = kbt_report::write(&args.run)?;
    let files = Files { html: written.html, markdown: written.markdown };
    print(args.format, &files, |f| format!("{}\n{}\n", f.html.display(), f.markdown.display()))
}
