//! The kbt command-line tool. It reads arguments, calls the step crates and prints; it holds no analysis.
#![allow(clippy::print_stdout, reason = "a command-line tool prints")]

mod cmd;
mod output;

use clap::{CommandFactory, Parser, Subcommand};
use std::process::ExitCode;

/// Finds what limits a GPU kernel, and which class of fix can help, in an order where each step rules out a
/// class before effort goes into the next.
#[derive(Parser)]
#[command(name = "kbt", version = concat!(env!("CARGO_PKG_VERSION"), " (", env!("KBT_COMMIT"), ")"), about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the whole ladder on a kernel and write a report.
    Tune(cmd::tune::Args),
    /// Step 0: which roof, which candidates, what evidence for and against.
    Roofline(cmd::roofline::Args),
    /// Step 1: what each instruction can do here, alone and together.
    Microbench(cmd::microbench::Args),
    /// Step 2: which role waits for which, per step.
    Trace(cmd::trace::Args),
    /// Step 3: read machine code and say what scheduling headroom it has.
    Sass(cmd::sass::Args),
    /// Step 4: exact number formats, and cheaper programs for the same result.
    Quant(cmd::quant::Args),
    /// Step 5: sweep the split of the producer-consumer handoff.
    Split(cmd::split::Args),
    /// Step 6: is a variant right, every time.
    Validate(cmd::validate::Args),
    /// Describe a kernel of your own.
    Target(cmd::target::Args),
    /// Run a built-in kernel as a target's process.
    Kernel(cmd::kernel::Args),
    /// Make a recording of a real device out of finished runs.
    Record(cmd::record::Args),
    /// Write the report of a run directory again.
    Report(cmd::report::Args),
    /// Print shell completions.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Tune(args) => cmd::tune::run(args),
        Command::Roofline(args) => cmd::roofline::run(args),
        Command::Microbench(args) => cmd::microbench::run(args),
        Command::Trace(args) => cmd::trace::run(args),
        Command::Sass(args) => cmd::sass::run(args),
        Command::Quant(args) => cmd::quant::run(args),
        Command::Split(args) => cmd::split::run(args),
        Command::Validate(args) => cmd::validate::run(args),
        Command::Target(args) => cmd::target::run(args),
        Command::Kernel(args) => cmd::kernel::run(args),
        Command::Record(args) => cmd::record::run(args),
        Command::Report(args) => cmd::report::run(args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "kbt", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    };
    result.unwrap_or_else(|failure| failure.report())
}
