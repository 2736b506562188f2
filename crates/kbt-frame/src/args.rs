//! The command line of `kbt-frame`. xtask reads this file too, so that its help needs no build of polars.

use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// The tables of a run as Parquet, and two runs against each other.
#[derive(Parser)]
#[command(name = "kbt-frame", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
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
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// `kbt.compare/1`.
    Json,
}
