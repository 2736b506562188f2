//! `kbt tune`: the whole ladder on one kernel, into a run directory.

use crate::output::{Failure, Outcome};
use kbt_device::DeviceChoice;
use kbt_kernels::attention::PvMode;
use kbt_ladder::steps::AttentionTuner;
use kbt_ladder::{Backend, Ladder, RunDir, RunSpec, Summary, new_run_path};
use kbt_toolchain::Toolchain;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Where runs go without `--out`.
const RUNS: &str = "kbt-runs";

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    kbt tune --pv-mode fp4\n  \
    kbt tune --pv-mode bf16 --device live --out runs/today\n  \
    kbt tune --pv-mode fp8 --resume")]
pub(crate) struct Args {
    /// What P.V is multiplied in: bf16, fp8 or fp4.
    #[arg(long, value_name = "MODE")]
    pv_mode: PvMode,
    /// auto, live, live:N, recorded:NAME, model:sm_103a, or a path to a profile or recording.
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
    /// The run directory; default `kbt-runs/TIME-MODE`.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Continue an unfinished run: the one in --out, else the newest under kbt-runs.
    #[arg(long)]
    resume: bool,
    /// Overwrite the run in --out.
    #[arg(long, conflicts_with = "resume")]
    force: bool,
    /// Fewer repetitions and points.
    #[arg(long)]
    quick: bool,
    /// Who runs the points of a sweep.
    #[arg(long, value_parser = ["local"], default_value = "local")]
    engine: String,
}

pub(crate) fn run(args: Args) -> Outcome {
    let backend = Backend::resolve(&args.device)?;
    let spec = RunSpec {
        schema: "kbt.run/1".into(),
        pv_mode: Some(args.pv_mode.to_string()),
        target: None,
        device: backend.describe(),
        quick: args.quick,
        kbt: concat!(env!("CARGO_PKG_VERSION"), " ", env!("KBT_COMMIT")).into(),
    };
    let mut run = open(&args, &spec)?;
    let path = run.path().to_owned();
    eprintln!("kbt: {} on {}, into {}", args.pv_mode, backend.describe(), path.display());

    let mut progress = |text: &str| eprintln!("kbt: {text}");
    let tools = Toolchain::find().ok();
    let mut tuner = AttentionTuner::new(args.pv_mode, &backend, &path, tools, args.quick, &mut progress)?;
    let board = Ladder::new(&mut run).climb(&mut tuner)?;

    let summary = Summary::new(spec, run.finished(), &board, run.sent_back());
    run.write("summary.json", &serde_json::to_vec_pretty(&summary)?)?;
    let written = kbt_report::write(&path)?;
    run.finish()?;
    crate::output::emit(&summary.render_text())?;
    eprintln!("kbt: report {}", link(&written.html));
    Ok(ExitCode::SUCCESS)
}

fn open(args: &Args, spec: &RunSpec) -> Result<RunDir, Failure> {
    if args.resume {
        let path = match &args.out {
            Some(out) => out.clone(),
            None => RunDir::newest_unfinished(Path::new(RUNS))?,
        };
        return Ok(RunDir::resume(&path, spec)?);
    }
    let path = args.out.clone().unwrap_or_else(|| new_run_path(Path::new(RUNS), args.pv_mode.as_str()));
    Ok(RunDir::create(&path, spec, args.force)?)
}

/// A path that a terminal makes clickable.
fn link(path: &Path) -> String {
    match std::path::absolute(path) {
        Ok(path) if std::io::stderr().is_terminal() => format!("file://{}", path.display()),
        _ => path.display().to_string(),
    }
}
