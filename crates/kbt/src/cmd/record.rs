//! `kbt record`: makes a recording of a real device out of finished runs.

use crate::output::{Failure, Outcome};
use kbt_ladder::recording::{self, RecordingMeta};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Import finished runs that were measured live, one a pv mode or target.
    #[command(
        after_help = "Example:\n  kbt record import runs/bf16 runs/fp8 runs/fp4 --into fixtures/recordings/h200-sxm"
    )]
    Import {
        /// Run directories.
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        /// The recording's folder; its last part is the recording's name.
        #[arg(long)]
        into: PathBuf,
    },
}

pub(crate) fn run(args: Args) -> Outcome {
    let Command::Import { runs, into } = args.command;
    let name = into.file_name().map(|n| n.to_string_lossy().into_owned());
    let name = name.ok_or_else(|| {
        Failure::input(format!("--into {}: has no last part to name it by", into.display()))
    })?;
    for run in &runs {
        let meta: RecordingMeta = recording::describe(run, &name)?;
        for path in recording::import(run, &into, &meta)? {
            crate::output::emit(&path.display().to_string())?;
        }
    }
    // What was written must read.
    recording::Recording::load(&into)?;
    Ok(ExitCode::SUCCESS)
}
