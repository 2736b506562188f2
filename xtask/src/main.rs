//! `cargo xtask`: the repository's own commands. Sequencing only: what is run, in which order, with which
//! environment. Nothing here analyses anything; no step crate is linked.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool prints")]

mod ci;
#[path = "../../crates/kbt-frame/src/args.rs"]
#[allow(dead_code, reason = "only its help is printed here")]
mod frame;
mod fuzz;
mod pins;
mod process;
mod setup;
mod tool;

use clap::{Args, CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// The repository's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the ladder on a kernel: builds kbt and runs `kbt tune`.
    #[command(disable_help_flag = true)]
    Tune(Rest),
    /// Run the test suite.
    #[command(after_help = "Example: cargo xtask test -p kbt-sass")]
    Test(tool::TestArgs),
    /// Install the pinned CUDA compilers into target/cuda.
    #[command(after_help = "Example: cargo xtask setup")]
    Setup(setup::SetupArgs),
    /// Everything that CI checks.
    #[command(after_help = "Example: cargo xtask ci --only clippy")]
    Ci(ci::CiArgs),
    /// Build target/dist/kbt: stripped, with its kernels, for a GPU machine with no Rust.
    #[command(after_help = "Example: cargo xtask dist && scp target/dist/kbt gpu-machine:")]
    Dist(tool::DistArgs),
    /// Make or import a recording: builds kbt and runs `kbt record`.
    #[command(disable_help_flag = true)]
    Record(Rest),
    /// Write a run's tables as Parquet: builds kbt-frame and runs `kbt-frame export`.
    #[command(disable_help_flag = true)]
    Export(Rest),
    /// Join two runs: builds kbt-frame and runs `kbt-frame compare`.
    #[command(disable_help_flag = true)]
    Compare(Rest),
    /// Regenerate the Rust bindings of kernels/include, or check them; needs libclang.
    #[command(after_help = "Example: cargo xtask bindings --check")]
    Bindings {
        /// Change nothing; exit 1 if a file is not what bindgen makes.
        #[arg(long)]
        check: bool,
    },
}

/// Arguments handed on as they stand.
#[derive(Args)]
struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// A command of kbt-frame. Its help comes at once; polars takes minutes to build.
fn of_frame(command: &str, args: &[OsString]) -> anyhow::Result<ExitCode> {
    if args.iter().any(|a| a == "--help" || a == "-h") {
        let frame = frame::Cli::command().bin_name("cargo xtask");
        let asked = [OsString::from("cargo xtask"), command.into(), "--help".into()];
        // clap gives help as an error that goes to standard output and ends with 0.
        if let Err(help) = frame.try_get_matches_from(asked) {
            print!("{}", help.render().to_string().replace("kbt-frame ", "cargo xtask "));
        }
        return Ok(ExitCode::SUCCESS);
    }
    tool::run("kbt-frame", command, args)
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Tune(rest) => tool::run("kbt", "tune", &rest.args),
        Command::Record(rest) => tool::run("kbt", "record", &rest.args),
        Command::Export(rest) => of_frame("export", &rest.args),
        Command::Compare(rest) => of_frame("compare", &rest.args),
        Command::Test(args) => tool::test(&args),
        Command::Dist(args) => tool::dist(&args),
        Command::Setup(args) => setup::setup(&args),
        Command::Ci(args) => ci::ci(&args),
        Command::Bindings { check } => tool::bindings(check),
    };
    result.unwrap_or_else(|error| {
        eprintln!("cargo xtask: {error:#}");
        ExitCode::from(2)
    })
}
