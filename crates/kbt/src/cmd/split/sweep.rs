//! `kbt split sweep` and `run-one`.

use super::check::Validate;
use super::{engine, model, parquet};
use crate::output::{Failure, Format, Outcome, print, tell};
use kbt_split::record::Ending;
use kbt_split::spec::write_whole;
use kbt_split::{Choice, Judging, Progress, Space, Spec, SplitOutcome, Sweep, SweepError};
use kbt_target::{ProcessLauncher, Setting, Target, TimingPolicy};
use kbt_tensor::{ReadOptions, TensorFile};
use kbt_validate::compare::Rules;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where the settings of a sweep run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(super) enum Engine {
    /// On this machine, one worker a GPU.
    #[default]
    Local,
    /// As Slurm job arrays, one task a setting; --out must lie on the file system that the nodes share.
    Slurm,
}

#[derive(clap::Args)]
pub(super) struct SweepArgs {
    /// A target file, or the name of one that comes with kbt: attention.
    target: PathBuf,
    /// The sweep's directory.
    #[arg(long)]
    pub(super) out: PathBuf,
    /// Go on with the sweep that is there; no finished point runs again.
    #[arg(long)]
    pub(super) resume: bool,
    /// Time every setting to a decision, however slow it is and however many there are.
    #[arg(long, conflicts_with = "quick")]
    exhaustive: bool,
    /// Print the settings that would run, one a line with its index, and run none.
    #[arg(long)]
    dry_run: bool,
    /// Where the settings run.
    #[arg(long, value_enum, default_value_t)]
    engine: Engine,
    /// An argument for sbatch, such as --gpus=1, which is the default. May be repeated.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(super) sbatch: Vec<String>,
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
    /// GPUs of this machine to use, one worker each, as CUDA_VISIBLE_DEVICES names them.
    #[arg(long, value_delimiter = ',')]
    pub(super) gpus: Vec<String>,
    /// Seconds after which no further setting is begun; with the engine slurm, what is queued is then cancelled.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) budget: Option<f64>,
    /// The right outputs in f32 or f64, by which settings that change the arithmetic are judged; where absent those that
    /// a resumed sweep was begun with, or made by the target's own `reference:`.
    #[arg(long, value_name = "FILE")]
    pub(super) reference: Option<PathBuf>,
    /// By how much the error of settings that change the arithmetic may exceed the baseline's.
    /// 1.02 where absent, or what a resumed sweep was begun with.
    #[arg(long, value_parser = factor)]
    pub(super) factor: Option<f64>,
    /// Times of the handoff, to model the curve beside the measured one.
    #[arg(long, value_name = "FILE")]
    times: Option<PathBuf>,
    /// A coarse trace of the baseline, to take those times from.
    #[arg(long, value_name = "FILE", conflicts_with = "times")]
    trace: Option<PathBuf>,
    /// Write the tables as Parquet too, into DIR/tables; needs the program kbt-frame beside kbt.
    #[arg(long)]
    parquet: bool,
    /// How the outcome is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(clap::Args)]
pub(super) struct RunOneArgs {
    /// The spec.json of a sweep's directory.
    spec: PathBuf,
    /// The point's index; 0 is the baseline.
    #[arg(long)]
    index: usize,
    /// Time the finished point against the baseline once more, with fresh processes.
    #[arg(long)]
    confirm: bool,
    /// The right outputs in f32 or f64, by which settings that change the arithmetic are judged; where absent those that
    /// the sweep was begun with, or made by the target's own `reference:`.
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// By how much the error of settings that change the arithmetic may exceed the baseline's; where absent what the
    /// sweep was begun with.
    #[arg(long, value_parser = factor)]
    factor: Option<f64>,
    /// How the point is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|s: &f64| s.is_finite() && *s >= 0.0);
    seconds.ok_or_else(|| format!("`{text}`: accepted: seconds, 0 or more"))
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|f: &f64| f.is_finite() && *f >= 1.0);
    factor.ok_or_else(|| format!("`{text}`: accepted: a number of 1 or more, as 1.02 for 2 %"))
}

fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}`: accepted: NAME=VALUE")),
    }
}

/// The sweep that the arguments describe.
fn plan(args: &SweepArgs) -> Result<Spec, Failure> {
    let target = Target::find(&args.target)?;
    let mut fix = Setting::default();
    for (name, value) in &args.fix {
        fix = fix.with(name, value);
    }
    let choice = Choice { fix, vary: (!args.vary.is_empty()).then(|| args.vary.clone()) };
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
    let spec = Spec::new(target, space, timing);
    // A cluster has room for every point at once; narrowing would only make them wait for each other.
    let narrow = !args.exhaustive && args.engine == Engine::Local;
    Ok(if narrow { spec.screened() } else { spec })
}

pub(super) fn sweep(args: SweepArgs) -> Outcome {
    let spec = plan(&args)?;
    if args.dry_run {
        return dry_run(&spec, args.format);
    }
    // Read before hours of sweeping, so that a mistake in it costs none of them.
    readable(args.reference.as_deref())?;
    let times = match (&args.times, &args.trace) {
        (Some(path), _) => Some(model::read_times(path)?),
        (None, Some(path)) => Some(model::times_of_trace(path)?),
        (None, None) => None,
    };
    let frame = args.parquet.then(parquet::program).transpose()?;
    let mut outcome = match args.engine {
        Engine::Local => local(&args, &spec)?,
        Engine::Slurm => engine::slurm(&args, &spec)?,
    };
    if let Some(times) = &times {
        outcome = outcome.with_model(times)?;
    }
    store(&args.out, &outcome)?;
    if let Some(frame) = frame {
        parquet::write(&frame, &args.out, &outcome)?;
    }
    print(args.format, &outcome, ToString::to_string)?;
    match outcome.refused {
        Some(why) => Err(Failure::Refused(why)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// That the right outputs can be read, where they are given.
fn readable(reference: Option<&Path>) -> Result<(), Failure> {
    reference.map_or(Ok(()), |file| TensorFile::open(file, &ReadOptions::default()).map(drop))?;
    Ok(())
}

/// That every worker has a GPU of its own: two on one would time each other.
fn one_worker_a_gpu(gpus: &[String]) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    match gpus.iter().find(|gpu| gpu.trim().is_empty() || !seen.insert(gpu.trim())) {
        None => Ok(()),
        Some(gpu) => Err(Failure::input(format!(
            "--gpus {}: `{gpu}`: accepted: each GPU once, as in 0,1",
            gpus.join(",")
        ))),
    }
}

/// By what the sweep's settings are judged: a resumed one as it was begun.
pub(super) fn judging(args: &SweepArgs) -> Result<Judging, SweepError> {
    let reference = args.reference.as_deref();
    if args.resume {
        return as_begun(&args.out, args.factor, reference);
    }
    Judging::new(args.factor.unwrap_or(Rules::default().factor), reference)
}

fn as_begun(dir: &Path, factor: Option<f64>, reference: Option<&Path>) -> Result<Judging, SweepError> {
    match Judging::begun(dir, factor, reference)? {
        Some(begun) => Ok(begun),
        None => Judging::new(factor.unwrap_or(Rules::default().factor), reference),
    }
}

fn validate(spec: &Spec, judging: &Judging) -> Validate {
    Validate::new(spec, judging.right().map(Path::to_owned)).with_factor(judging.factor_ratio)
}

fn local(args: &SweepArgs, spec: &Spec) -> Result<SplitOutcome, Failure> {
    one_worker_a_gpu(&args.gpus)?;
    if !args.sbatch.is_empty() {
        return Err(Failure::input("--sbatch is for the engine slurm; accepted with local: --gpus 0,1"));
    }
    let launcher = ProcessLauncher::new(&spec.target);
    let judging = judging(args)?;
    let correctness = validate(spec, &judging);
    let watch = |progress: &Progress<'_>| report_progress(progress);
    let mut sweep = Sweep::prepare(&args.out, spec.clone(), args.resume, &launcher, &correctness)?;
    judging.record(&args.out)?;
    sweep.gpus.clone_from(&args.gpus);
    sweep.budget_s = args.budget;
    sweep.watch = &watch;
    Ok(sweep.run()?)
}

fn dry_run(spec: &Spec, format: Format) -> Outcome {
    print(format, &spec.space, |space| {
        let line = |p: &kbt_split::space::Point| format!("{}  {}\n", p.index, p.setting);
        space.points.iter().map(line).collect()
    })?;
    let space = &spec.space;
    let merged: usize = space.points.iter().map(|p| p.merged.len()).sum();
    let excluded: usize = space.excluded.iter().map(|e| e.settings_count).sum();
    tell!(
        "{} settings to run; {merged} more round to one of them, {} are forbidden by the contract, {excluded} excluded",
        space.points.len(),
        space.forbidden.len()
    );
    Ok(ExitCode::SUCCESS)
}

fn store(dir: &Path, outcome: &SplitOutcome) -> Result<(), Failure> {
    write_whole(&dir.join("outcome.json"), &serde_json::to_vec_pretty(outcome)?)?;
    write_whole(&dir.join("table.csv"), outcome.to_csv().as_bytes())?;
    write_whole(&dir.join("t4.json"), &serde_json::to_vec_pretty(&outcome.to_t4())?)?;
    Ok(())
}

pub(super) fn report_progress(progress: &Progress<'_>) {
    match progress {
        Progress::Resumed { finished: 0, of } => tell!("{of} settings to run"),
        Progress::Resumed { finished, of } => {
            tell!("{finished} of {of} settings are finished already")
        }
        Progress::Finished { record, finished, of } => {
            let ending = match (&record.ending, &record.comparison) {
                (Ending::Timed, Some(c)) => {
                    format!("{}, {:.3} of the time of {}", c.speed, c.ratio, record.against.unwrap_or(0))
                }
                (Ending::Timed, None) => "the baseline".to_owned(),
                (ending, _) => failed(ending),
            };
            tell!("{finished}/{of}  {}  {}: {ending}", record.index, record.setting);
        }
        Progress::Screened { record, screened, of } => {
            let ending = match (&record.ending, record.samples.first()) {
                (Ending::Timed, Some(sample)) => format!("{:.2} us", sample.time_us),
                (ending, _) => failed(ending),
            };
            tell!("screened {screened}/{of}  {}  {}: {ending}", record.index, record.setting);
        }
        Progress::Narrowed { kept, of } => {
            tell!("the fastest {kept} of {of} settings are compared")
        }
        Progress::Requeued { index, attempts } => {
            tell!("the task of setting {index} was lost; submitted again after {attempts} attempts");
        }
        Progress::Confirming { index } => {
            tell!("timing setting {index} against the baseline once more")
        }
        _ => {}
    }
}

fn failed(ending: &Ending) -> String {
    match ending {
        Ending::Timed => "timed".to_owned(),
        Ending::Wrong { statement } => format!("wrong: {statement}"),
        Ending::Failed { status, .. } => status.to_string(),
        Ending::Unmeasured { reason } => reason.clone(),
    }
}

pub(super) fn run_one(args: &RunOneArgs) -> Outcome {
    let spec = Spec::load(&args.spec)?;
    readable(args.reference.as_deref())?;
    let launcher = ProcessLauncher::new(&spec.target);
    let dir = args.spec.parent().unwrap_or(Path::new(""));
    let correctness = validate(&spec, &as_begun(dir, args.factor, args.reference.as_deref())?);
    let run = if args.confirm { kbt_split::confirm_one } else { kbt_split::run_one };
    let point = run(&args.spec, args.index, None, &launcher, &correctness)?;
    print(args.format, &point, ToString::to_string)
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
