//! `kbt split`: the handoff's contract, sweeps over a target's knobs, and the model of the handoff.

use crate::output::{Failure, Format, Outcome, print, read_input};
use kbt_evidence::Provenance;
use kbt_split::record::{CheckOutcome, Correctness, Ending};
use kbt_split::score::ModelCurve;
use kbt_split::spec::write_whole;
use kbt_split::{Choice, ContractReport, HandoffTimes, Progress, Space, Spec, SplitOutcome, Sweep};
use kbt_target::{Change, ProcessLauncher, Setting, Target, TimingPolicy};
use kbt_tensor::{ReadOptions, TensorFile};
use kbt_validate::compare::{ChangeClass, Rules, Sides, compare};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Check a split against the handoff's safety contract, on the integers that it rounds to.
    #[command(after_help = "Example:\n  kbt split contract --num 7 --den 8 --chunks 4 --tiles 8\n\n\
        Exit code 1 where the setting would read what is not written yet.")]
    Contract(ContractArgs),
    /// Run every legal setting of a target's knobs, each in fresh processes, checked before it is timed.
    #[command(after_help = "Examples:\n  \
        kbt split sweep attention --set KBT_PV_MODE=fp8 --vary KBT_SPLIT_NUM --vary KBT_SPLIT_DEN --out sweep\n  \
        kbt split sweep my-kernel.yaml --out sweep --resume\n\n\
        DIR gets spec.json, journal.jsonl, outcome.json, table.csv and t4.json (Kernel Tuner's T4).")]
    Sweep(SweepArgs),
    /// Run one point of a sweep's directory: what another engine calls for each index.
    #[command(after_help = "Example:\n  kbt split run-one sweep/spec.json --index 3")]
    RunOne(RunOneArgs),
    /// Predict the curve over split and chunks from a kernel's own times.
    #[command(after_help = "Example:\n  kbt split model --times times.yaml --chunks 2,4,8 --tiles 8\n\n\
        times.yaml:\n  chunk_cycles: 300\n  tile_cycles: 64\n  other_consumer_cycles: 380\n  \
        round_trip_cycles: 80\n  producer_other_cycles: 1700\n  chunks_count: 4\n  \
        provenance: {kind: assumed, by: a first guess}")]
    Model(ModelArgs),
}

#[derive(clap::Args)]
struct ContractArgs {
    /// Numerator of the fraction handed over at the first signal.
    #[arg(long)]
    num: u32,
    /// Its denominator.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    den: u32,
    /// Chunks in which the producer stores its tile.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    chunks: u32,
    /// K tiles in which the consumer takes it.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    tiles: u32,
    /// How the answer is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(clap::Args)]
struct SweepArgs {
    /// A target file, or the name of one that comes with kbt: attention.
    target: PathBuf,
    /// The sweep's directory.
    #[arg(long)]
    out: PathBuf,
    /// Go on with the sweep that is there; no finished point runs again.
    #[arg(long)]
    resume: bool,
    /// Time every setting to a decision, however slow it is.
    #[arg(long, conflicts_with = "quick")]
    exhaustive: bool,
    /// Fewer processes a setting, hence more answers `ambiguous`.
    #[arg(long)]
    quick: bool,
    /// The most blocks of four processes a setting.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=1000))]
    blocks: Option<u32>,
    /// Hold a knob at a value: NAME=VALUE. May be repeated.
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = assignment)]
    fix: Vec<(String, String)>,
    /// Vary only this knob. May be repeated.
    #[arg(long, value_name = "NAME")]
    vary: Vec<String>,
    /// GPUs to use, one worker each, as CUDA_VISIBLE_DEVICES names them.
    #[arg(long, value_delimiter = ',')]
    gpus: Vec<String>,
    /// Seconds after which no further setting is begun.
    #[arg(long, value_name = "SECONDS")]
    budget: Option<f64>,
    /// The right outputs in f32 or f64, by which settings that change the arithmetic are judged.
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// Times of the handoff, to model the curve beside the measured one.
    #[arg(long, value_name = "FILE")]
    times: Option<PathBuf>,
    /// How the outcome is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(clap::Args)]
struct RunOneArgs {
    /// The spec.json of a sweep's directory.
    spec: PathBuf,
    /// The point's index; 0 is the baseline.
    #[arg(long)]
    index: usize,
    /// The right outputs in f32 or f64, by which settings that change the arithmetic are judged.
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// How the point is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(clap::Args)]
struct ModelArgs {
    /// The kernel's times, as YAML; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    times: PathBuf,
    /// Chunks in which the producer stores its tile; several with commas.
    #[arg(long, value_delimiter = ',', required = true, value_parser = clap::value_parser!(u32).range(2..=64))]
    chunks: Vec<u32>,
    /// K tiles in which the consumer takes it.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=64))]
    tiles: u32,
    /// How the curve is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}`: accepted: NAME=VALUE")),
    }
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Contract(args) => contract(&args),
        Command::Sweep(args) => sweep(args),
        Command::RunOne(args) => run_one(&args),
        Command::Model(args) => model(&args),
    }
}

fn contract(args: &ContractArgs) -> Outcome {
    let given = Provenance::given("--num, --den, --chunks and --tiles");
    let report = ContractReport::new(args.num, args.den, args.chunks, args.tiles, given);
    print(args.format, &report, ToString::to_string)?;
    if report.holds { Ok(ExitCode::SUCCESS) } else { Err(Failure::Gate) }
}

fn sweep(args: SweepArgs) -> Outcome {
    let target = Target::find(&args.target)?;
    let mut fix = Setting::default();
    for (name, value) in args.fix {
        fix = fix.with(name, value);
    }
    let choice = Choice { fix, vary: (!args.vary.is_empty()).then_some(args.vary) };
    let space = Space::new(&target, &choice)?;
    let mut timing = match (args.exhaustive, args.quick) {
        (true, _) => TimingPolicy::exhaustive(),
        (_, true) => TimingPolicy::quick(),
        _ => TimingPolicy::default(),
    };
    if let Some(blocks) = args.blocks {
        timing.max_blocks = blocks;
        timing.min_blocks = timing.min_blocks.min(blocks);
    }
    // Read before hours of sweeping, so that a mistake in it costs none of them.
    let times = args.times.as_deref().map(read_times).transpose()?;
    let spec = Spec::new(target, space, timing);
    let target = spec.target.clone();
    let launcher = ProcessLauncher::new(&target);
    let correctness = Validate::new(&spec, args.reference);
    let watch = |progress: &Progress<'_>| report_progress(progress);
    let mut sweep = Sweep::prepare(&args.out, spec.clone(), args.resume, &launcher, &correctness)?;
    sweep.gpus = args.gpus;
    sweep.budget_s = args.budget;
    sweep.watch = &watch;
    let mut outcome = sweep.run()?;
    if let Some(times) = &times {
        outcome = outcome.with_model(times)?;
    }
    store(&args.out, &outcome)?;
    print(args.format, &outcome, ToString::to_string)?;
    match outcome.refused {
        Some(why) => Err(Failure::Refused(why)),
        None => Ok(ExitCode::SUCCESS),
    }
}

fn store(dir: &Path, outcome: &SplitOutcome) -> Result<(), Failure> {
    write_whole(&dir.join("outcome.json"), &serde_json::to_vec_pretty(outcome)?)?;
    write_whole(&dir.join("table.csv"), outcome.to_csv().as_bytes())?;
    write_whole(&dir.join("t4.json"), &serde_json::to_vec_pretty(&outcome.to_t4())?)?;
    Ok(())
}

fn report_progress(progress: &Progress<'_>) {
    match progress {
        Progress::Resumed { finished: 0, of } => eprintln!("{of} settings to run"),
        Progress::Resumed { finished, of } => eprintln!("{finished} of {of} settings are finished already"),
        Progress::Finished { record, finished, of } => {
            let ending = match (&record.ending, &record.comparison) {
                (Ending::Timed, Some(c)) => {
                    format!("{}, {:.3} of the time of {}", c.speed, c.ratio, record.against.unwrap_or(0))
                }
                (Ending::Timed, None) => "the baseline".to_owned(),
                (Ending::Wrong { statement }, _) => format!("wrong: {statement}"),
                (Ending::Failed { status, .. }, _) => status.to_string(),
                (Ending::Unmeasured { reason }, _) => reason.clone(),
            };
            eprintln!("{finished}/{of}  {}  {}: {ending}", record.index, record.setting);
        }
        Progress::Confirming { index } => eprintln!("timing setting {index} against the baseline once more"),
        _ => {}
    }
}

fn run_one(args: &RunOneArgs) -> Outcome {
    let spec = Spec::load(&args.spec)?;
    let launcher = ProcessLauncher::new(&spec.target);
    let correctness = Validate::new(&spec, args.reference.clone());
    let point = kbt_split::run_one(&args.spec, args.index, None, &launcher, &correctness)?;
    print(args.format, &point, ToString::to_string)
}

fn read_times(path: &Path) -> Result<HandoffTimes, Failure> {
    let bytes = read_input(path)?;
    let times: HandoffTimes =
        serde_yaml::from_slice(&bytes).map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
    times.check().map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
    Ok(times)
}

fn model(args: &ModelArgs) -> Outcome {
    let times = read_times(&args.times)?;
    let curve = ModelCurve::over(&times, &args.chunks, args.tiles)?;
    print(args.format, &curve, ToString::to_string)
}

/// kbt-validate's comparison as a sweep's check: bitwise for settings that only reorder, and by accuracy against
/// a reference for those that change the arithmetic.
struct Validate {
    target: Target,
    baseline: Setting,
    reference: Option<PathBuf>,
}

impl Validate {
    fn new(spec: &Spec, reference: Option<PathBuf>) -> Self {
        let baseline = spec.space.points.first().map(|p| p.setting.clone()).unwrap_or_default();
        Self { target: spec.target.clone(), baseline, reference }
    }
}

impl Correctness for Validate {
    fn check(&self, saved: &Path, outputs: &Path, setting: &Setting) -> Result<CheckOutcome, String> {
        let open = |path: &Path| TensorFile::open(path, &ReadOptions::default()).map_err(|e| e.to_string());
        let (saved, outputs) = (open(saved)?, open(outputs)?);
        let given = || Provenance::given("the outputs of the target's processes");
        let bits =
            compare(&Sides::new(&saved, &outputs), &Rules::default(), given()).map_err(|e| e.to_string())?;
        if bits.identical() {
            return Ok(CheckOutcome::Bitwise);
        }
        let changed = setting.differs_from(&self.baseline);
        let algebra = |name: &String| self.target.knob(name).is_some_and(|k| k.change == Change::Algebra);
        if !changed.0.keys().any(algebra) {
            return Ok(CheckOutcome::Wrong { statement: bits.violations.join("; ") });
        }
        let reference = self.reference.as_deref().ok_or(
            "its bits differ and its knobs change the arithmetic: --reference FILE must hold the right outputs",
        )?;
        let reference = open(reference)?;
        let sides =
            Sides { reference: Some(&reference), baseline: Some(&saved), ..Sides::new(&saved, &outputs) };
        let rules = Rules { class: ChangeClass::Algebra, ..Rules::default() };
        let judged = compare(&sides, &rules, given()).map_err(|e| e.to_string())?;
        if judged.passed() {
            let statement = format!("as accurate as the baseline within a factor of {}", rules.factor);
            return Ok(CheckOutcome::Accurate { statement });
        }
        Ok(CheckOutcome::Wrong { statement: judged.violations.join("; ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assignment_has_a_name_and_any_value() {
        assert_eq!(assignment("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert!(assignment("A").is_err() && assignment("=b").is_err());
    }
}
