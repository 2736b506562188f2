//! `kbt split`: the handoff's contract, sweeps over a target's knobs, and the model of the handoff.

mod check;
mod engine;
mod model;
mod parquet;
mod sweep;

use crate::output::{Failure, Format, Outcome, print};
use kbt_evidence::Provenance;
use kbt_ladder::StepRecord;
use kbt_split::outcome::SCHEMA;
use kbt_split::{Agreement, ContractReport, SplitOutcome};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What holds a sweep.
const ACCEPTED: &str = "a sweep's directory, its outcome.json (kbt.split/1), or 5-handoff.json of a run";

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Check a split against the handoff's safety contract, on the integers that it rounds to.
    #[command(after_help = "Example:\n  kbt split contract --num 7 --den 8 --chunks 4 --tiles 8\n\n\
        Exit code 1 where the setting would read what is not written yet, 2 where the numbers describe no split.")]
    Contract(ContractArgs),
    /// Run every legal setting of a target's knobs, each in fresh processes, checked before it is timed.
    #[command(after_help = "Examples:\n  \
        kbt split sweep attention --set KBT_PV_MODE=fp8 --vary KBT_SPLIT_NUM --vary KBT_SPLIT_DEN --out sweep\n  \
        kbt split sweep my-kernel.yaml --out sweep --gpus 0,1 --resume\n  \
        kbt split sweep my-kernel.yaml --out /shared/sweep --engine slurm --sbatch=--partition=gpu --sbatch=--gpus=1\n\n\
        DIR gets spec.json, judging.json, journal.jsonl, outcome.json, table.csv and t4.json (Kernel Tuner's T4).\n\
        A space of 48 settings or more is narrowed first: one process each, then the fastest twelfth compared.")]
    Sweep(sweep::SweepArgs),
    /// Run one point of a sweep's directory: what another engine calls for each index.
    #[command(after_help = "Example:\n  kbt split run-one sweep/spec.json --index 3")]
    RunOne(sweep::RunOneArgs),
    /// Predict the curve over split and chunks from a kernel's own times.
    #[command(after_help = "Examples:\n  \
        kbt split model --trace run/trace.kbttrace --chunks 2,4,8 --tiles 8 --sweep run-sweep/outcome.json\n  \
        kbt split model --times times.yaml --chunks 4 --tiles 8\n\n\
        times.yaml:\n  chunk_cycles: 300\n  tile_cycles: 64\n  other_consumer_cycles: 380\n  \
        round_trip_cycles: 80\n  producer_other_cycles: 1700\n  chunks_count: 4\n  \
        provenance: {kind: assumed, by: a first guess}\n\n\
        Exit code 3 where the trace lacks a time that the model needs.")]
    Model(model::ModelArgs),
    /// Set two sweeps of one space side by side: contradictions, and what the second one's best loses to the first's.
    #[command(after_help = "Example:\n  kbt split compare exhaustive tuned\n\n\
        Exit code 1 where a setting is faster in one and slower in the other, or more intervals are apart than chance \
        explains, 3 where no setting could be compared.")]
    Compare(CompareArgs),
}

#[derive(clap::Args)]
struct CompareArgs {
    /// The directory of the first sweep, or its outcome.json.
    first: PathBuf,
    /// The directory of the second sweep, or its outcome.json.
    second: PathBuf,
    /// The error rate of one comparison that both sweeps state.
    #[arg(long, default_value_t = 0.01)]
    error_rate: f64,
    /// How the answer is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(clap::Args)]
struct ContractArgs {
    /// Numerator of the fraction handed over at the first signal.
    #[arg(long)]
    num: u32,
    /// Its denominator.
    #[arg(long)]
    den: u32,
    /// Chunks in which the producer stores its tile.
    #[arg(long)]
    chunks: u32,
    /// K tiles in which the consumer takes it.
    #[arg(long)]
    tiles: u32,
    /// How the answer is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Contract(args) => contract(&args),
        Command::Sweep(args) => sweep::sweep(args),
        Command::RunOne(args) => sweep::run_one(&args),
        Command::Model(args) => model::model(&args),
        Command::Compare(args) => compare(&args),
    }
}

fn contract(args: &ContractArgs) -> Outcome {
    let given = Provenance::given("--num, --den, --chunks and --tiles");
    let report = ContractReport::new(args.num, args.den, args.chunks, args.tiles, given)?;
    print(args.format, &report, ToString::to_string)?;
    if report.holds { Ok(ExitCode::SUCCESS) } else { Err(Failure::Gate) }
}

fn compare(args: &CompareArgs) -> Outcome {
    if !(0.0..=1.0).contains(&args.error_rate) {
        return Err(Failure::input(format!("--error-rate {}: accepted: 0 to 1", args.error_rate)));
    }
    let agreement = Agreement::new(&outcome(&args.first)?, &outcome(&args.second)?, args.error_rate)?;
    print(args.format, &agreement, ToString::to_string)?;
    match agreement.refusal() {
        Some(why) => Err(Failure::Refused(why)),
        None if agreement.holds() => Ok(ExitCode::SUCCESS),
        None => Err(Failure::Gate),
    }
}

/// A sweep's outcome, from its directory, its file, or the file of a run's or a recording's handoff step.
fn outcome(path: &Path) -> Result<SplitOutcome, Failure> {
    let file = if path.is_dir() { path.join("outcome.json") } else { path.to_owned() };
    let bad = |problem: String| Failure::input(format!("{}: {problem}", file.display()));
    let bytes = std::fs::read(&file).map_err(|e| bad(e.to_string()))?;
    let mut value: serde_json::Value = serde_json::from_slice(&bytes).map_err(|e| bad(e.to_string()))?;
    let stated = |value: &serde_json::Value| {
        value.get("schema").and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()
    };
    let mut schema = stated(&value);
    if schema == StepRecord::SCHEMA {
        let step = value.get("step").cloned().unwrap_or_default();
        value = value.get_mut("outcome").map(serde_json::Value::take).unwrap_or_default();
        schema = stated(&value);
        if value.is_null() {
            return Err(bad(format!(
                "the file of the step {step}, which has no outcome; accepted: {ACCEPTED}"
            )));
        }
    }
    if schema != SCHEMA {
        return Err(bad(format!("its schema is `{schema}`; accepted: {ACCEPTED}")));
    }
    let outcome: SplitOutcome = serde_json::from_value(value).map_err(|e| bad(e.to_string()))?;
    Ok(outcome.read_back())
}
