//! `kbt sass`: metrics, diff, gate, lint and register sweeps of machine code.

mod cycles;
mod gate;
mod input;
mod lint;
mod regs;

use crate::output::{Failure, Format, Outcome, print};
use input::{InputArgs, Loaded};
use kbt_sass::metrics::{self, MeasureOptions, Selection};
use kbt_sass::outcome::{DiffOutcome, MetricsOutcome};
use kbt_sass::{Listing, Problem, ProblemKind, Unit};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Count what a listing has: pipes, runs of two units, stalls, spills, by function, region and loop.
    #[command(after_help = "Example:\n  nvdisasm -c -hex k.cubin | kbt sass metrics - --format json\n  \
                            kbt sass metrics k.ptx --arch sm_103a --units MUFU,F2FP --region '^loop:'")]
    Metrics(MetricsArgs),
    /// Predict what a trip of each loop takes, by number of warps, what binds it and what another order could gain.
    #[command(after_help = "Example:\n  kbt sass cycles k.cubin --device h200-sxm --warps 1,2,4\n  \
                            kbt sass cycles k.ptx --arch sm_103a --device model:sm_103a --format json")]
    Cycles(cycles::CyclesArgs),
    /// Compare two versions of a kernel: identical, control fields only, reordered, or changed (exit 1 if not
    /// identical).
    #[command(after_help = "Example:\n  kbt sass diff old.cubin new.cubin --function softmax")]
    Diff(DiffArgs),
    /// Compare with a committed baseline; exit 1 with the most telling lines.
    #[command(after_help = "Example:\n  kbt sass gate k.cubin --baseline k.sass.json --write\n  \
                            kbt sass gate k.cubin --baseline k.sass.json --tolerance gate.yaml")]
    Gate(gate::GateArgs),
    /// Find spills and local arrays in loops, serialised wgmma, ignored register budgets, missing proxy fences and
    /// handoffs that fall short; exit 1 on a finding.
    #[command(
        after_help = "Example:\n  kbt sass lint k.cubin --allow spill\n  kbt sass lint k.ptx --arch sm_90a"
    )]
    Lint(lint::LintArgs),
    /// Assemble PTX under a sweep of register caps or budgets and print what each costs.
    #[command(after_help = "Example:\n  kbt sass regs k.ptx --arch sm_90a --maxnreg 64,96,128\n  \
                            kbt sass regs k.ptx --arch sm_90a --setmaxnreg 232=200,216,232,240\n  \
                            kbt sass regs k.ptx --arch sm_90a --roles --settings 40")]
    Regs(regs::RegsArgs),
}

/// Which functions and parts are looked at.
#[derive(clap::Args)]
struct SelectArgs {
    /// Functions whose name matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    function: Option<String>,
    /// Regions, loops and blocks whose name matches: setmaxnreg:232, role:0, loop:0.1.
    #[arg(long, value_name = "REGEX")]
    region: Option<String>,
    /// Instructions at these addresses: 0x160..0x640.
    #[arg(long, value_name = "FROM..TO")]
    range: Option<String>,
    /// Instructions of these source lines: k.cu:12-40 (the listing needs -g).
    #[arg(long, value_name = "FILE:FROM-TO")]
    lines: Option<String>,
}

impl SelectArgs {
    fn selection(&self) -> Result<Selection, Failure> {
        let pattern =
            |option, text: &Option<String>| text.as_deref().map(|t| metrics::pattern(option, t)).transpose();
        Ok(Selection {
            function: pattern("--function", &self.function)?,
            region: pattern("--region", &self.region)?,
            addresses: self.range.as_deref().map(metrics::address_range).transpose()?,
            lines: self.lines.as_deref().map(metrics::line_range).transpose()?,
        })
    }
}

#[derive(clap::Args)]
struct MetricsArgs {
    /// A listing, cubin, fatbin, executable or PTX file; `-` is standard input.
    file: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    select: SelectArgs,
    /// The two units whose runs are counted: mnemonics or pipe:NAME; `+` joins several into one unit.
    #[arg(long, value_name = "A,B", default_value = "MUFU,F2FP")]
    units: String,
    /// List basic blocks too.
    #[arg(long)]
    blocks: bool,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(clap::Args)]
struct DiffArgs {
    /// The first version.
    a: PathBuf,
    /// The second version.
    b: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    /// Functions whose name matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    function: Option<String>,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Metrics(args) => metrics(args),
        Command::Cycles(args) => cycles::run(&args),
        Command::Diff(args) => diff(args),
        Command::Gate(args) => gate::run(args),
        Command::Lint(args) => lint::run(args),
        Command::Regs(args) => regs::run(args),
    }
}

/// `A,B`, where `+` joins the mnemonics of one unit.
fn units(text: &str) -> Result<[Unit; 2], Failure> {
    let Some((a, b)) = text.split_once(',') else {
        return Err(Failure::input(format!(
            "--units `{text}` needs two units with a comma between, as in MUFU,F2FP"
        )));
    };
    Ok([a.replace('+', ",").parse()?, b.replace('+', ",").parse()?])
}

fn metrics(args: MetricsArgs) -> Outcome {
    let [a, b] = units(&args.units)?;
    let lines = args.select.lines.is_some();
    let options = MeasureOptions { a, b, blocks: args.blocks, selection: args.select.selection()? };
    let loaded = input::load(&args.file, &args.input, lines)?;
    let (measure, listing) = metrics::measure_parallel(options, |each| loaded.each(each))?;
    let outcome = measure.finish(&listing);
    if outcome.functions.is_empty() {
        return Err(Failure::input(format!("{}: nothing in the listing is selected", args.file.display())));
    }
    print(args.format, &outcome, MetricsOutcome::render_text)
}

fn listing(file: &std::path::Path, input: &InputArgs) -> Result<(Listing, Loaded), Failure> {
    let loaded = input::load(file, input, false)?;
    let mut functions = Vec::new();
    let mut listing = loaded.each(|function| functions.push(function))?;
    listing.functions = functions;
    Ok((listing, loaded))
}

fn diff(args: DiffArgs) -> Outcome {
    let pattern = args.function.as_deref().map(|t| metrics::pattern("--function", t)).transpose()?;
    let both = |file| {
        let (listing, _) = listing(file, &args.input)?;
        whole(file, &listing)?;
        Ok::<_, Failure>(listing)
    };
    let (a, b) = (both(&args.a)?, both(&args.b)?);
    let outcome = kbt_sass::diff_listings(&a, &b, |name| pattern.as_ref().is_none_or(|p| p.is_match(name)));
    if outcome.functions.is_empty() && outcome.only_in_a.is_empty() && outcome.only_in_b.is_empty() {
        return Err(Failure::input("neither listing has a function that is selected"));
    }
    let identical = outcome.is_identical();
    print(args.format, &outcome, DiffOutcome::render_text)?;
    if identical { Ok(ExitCode::SUCCESS) } else { Err(Failure::Gate) }
}

/// A check over half a kernel proves nothing: a listing that breaks off is no input for one.
fn whole(file: &std::path::Path, listing: &Listing) -> Result<(), Failure> {
    let harmless = |p: &&Problem| matches!(p.kind, ProblemKind::UnknownMnemonic | ProblemKind::Empty);
    let cut = listing.problems.iter().find(|p| p.kind == ProblemKind::Truncated);
    let broken = cut.or_else(|| listing.problems.iter().find(|p| !harmless(p)));
    broken.map_or(Ok(()), |problem| {
        Err(Failure::input(format!("{}: {problem}; expected a listing that is whole and understood in full (`kbt sass metrics` lists all problems)", file.display())))
    })
}
