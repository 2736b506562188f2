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
#[path = "../../crates/kbt/src/cmd/record_args.rs"]
#[allow(dead_code, reason = "only its help is printed here")]
mod record_args;
mod setup;
mod tool;
#[path = "../../crates/kbt/src/cmd/tune_args.rs"]
#[allow(dead_code, reason = "only its help is printed here")]
mod tune_args;

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

/// What kbt calls a mode of P.V and a form of its answers; the help of xtask names no values.
type PvMode = String;
type Format = String;

/// The commands of kbt that are run from here, for their help.
#[derive(Parser)]
#[command(name = "kbt")]
enum OfKbt {
    Tune(tune_args::Args),
    Record(record_args::Args),
}

/// Arguments handed on as they stand.
#[derive(Args)]
struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

/// Builds a binary and runs a command of it. Its help comes at once: kbt and its kernels, or polars, take minutes to build.
fn hand_on<C: CommandFactory>(package: &str, command: &str, args: &[OsString]) -> anyhow::Result<ExitCode> {
    let Some(at) = args.iter().position(|a| a == "--help" || a == "-h") else {
        return tool::run(package, command, args);
    };
    // Words before it may name a command of the command; options may lack their values.
    let words = args[..at].iter().take_while(|a| !a.as_encoded_bytes().starts_with(b"-")).cloned();
    let asked = [OsString::from("cargo xtask"), command.into()];
    let asked = asked.into_iter().chain(words).chain([args[at].clone()]);
    let Err(answer) = C::command().bin_name("cargo xtask").try_get_matches_from(asked) else {
        return tool::run(package, command, args);
    };
    // clap gives help as an error that goes to standard output and ends with 0.
    if answer.use_stderr() {
        answer.exit();
    }
    let (of_package, here) = (format!("{package} {command}"), format!("cargo xtask {command}"));
    print!("{}", answer.render().to_string().replace(&of_package, &here));
    Ok(ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Tune(rest) => hand_on::<OfKbt>("kbt", "tune", &rest.args),
        Command::Record(rest) => hand_on::<OfKbt>("kbt", "record", &rest.args),
        Command::Export(rest) => hand_on::<frame::Cli>("kbt-frame", "export", &rest.args),
        Command::Compare(rest) => hand_on::<frame::Cli>("kbt-frame", "compare", &rest.args),
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
