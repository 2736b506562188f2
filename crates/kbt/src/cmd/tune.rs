//! `kbt tune`: the whole ladder on one kernel, into a run directory.

pub(crate) use super::tune_args::Args;
use crate::output::{Failure, Outcome, find_target};
use kbt_ladder::recording::PROFILE_FILE;
use kbt_ladder::steps::AttentionTuner;
use kbt_ladder::target::{TargetTuner, check_facts};
use kbt_ladder::{Backend, Ladder, Origin, RunDir, RunSpec, Summary, new_run_path};
use kbt_toolchain::Toolchain;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

/// Where runs go without `--out`.
const RUNS: &str = "kbt-runs";

pub(crate) fn run(args: Args) -> Outcome {
    let target = args.target.as_deref().map(find_target).transpose()?;
    if let Some(target) = &target {
        check_facts(target)?;
    }
    let backend = Backend::resolve(&args.device)?;
    let spec = RunSpec {
        schema: "kbt.run/1".into(),
        pv_mode: args.pv_mode.map(|m| m.to_string()),
        target: args.target.as_ref().map(|path| path.display().to_string()),
        device: backend.describe(),
        quick: args.quick,
        kbt: concat!(env!("CARGO_PKG_VERSION"), " ", env!("KBT_COMMIT")).into(),
    };
    let what = match (&target, args.pv_mode) {
        (Some(target), _) => target.name.clone(),
        (None, mode) => mode.map(|m| m.to_string()).unwrap_or_default(),
    };
    let mut run = open(&args, &spec, &what)?;
    let path = run.path().to_owned();
    crate::output::tell!("kbt: {what} on {}, into {}", backend.describe(), path.display());

    if let (Some(file), Backend::Live(_)) = (&args.rates, &backend) {
        // A live run measures what its directory does not hold.
        let profile = super::microbench::load(file)?;
        run.write(PROFILE_FILE, profile.to_yaml()?.as_bytes())?;
    }

    let mut progress = |text: &str| crate::output::tell!("kbt: {text}");
    let tools = Toolchain::find().ok();
    let board = match (target, args.pv_mode, &args.target) {
        (Some(target), _, Some(file)) => {
            let file = file.display().to_string();
            let mut tuner =
                TargetTuner::new(target, &file, &backend, &path, tools, args.quick, &mut progress)?;
            Ladder::new(&mut run).climb(&mut tuner)?
        }
        (_, Some(mode), _) => {
            let mut tuner = AttentionTuner::new(mode, &backend, &path, tools, args.quick, &mut progress)?;
            Ladder::new(&mut run).climb(&mut tuner)?
        }
        _ => return Err(Failure::input("give --pv-mode or --target")),
    };

    let summary = Summary::new(spec, run.finished(), &board, run.sent_back());
    run.write("summary.json", &serde_json::to_vec_pretty(&summary)?)?;
    let written = kbt_report::write(&path)?;
    run.finish()?;
    crate::output::emit(&summary.render_text())?;
    crate::output::tell!("kbt: report {}", link(&written.html));
    if run.finished().values().all(|r| r.origin == Origin::Refused) {
        return Err(Failure::Refused("every step was refused; each says what it needs".into()));
    }
    Ok(ExitCode::SUCCESS)
}

fn open(args: &Args, spec: &RunSpec, what: &str) -> Result<RunDir, Failure> {
    if args.resume {
        let path = match &args.out {
            Some(out) => out.clone(),
            None => RunDir::newest_unfinished(Path::new(RUNS))?,
        };
        return Ok(RunDir::resume(&path, spec)?);
    }
    let path = args.out.clone().unwrap_or_else(|| new_run_path(Path::new(RUNS), what));
    Ok(RunDir::create(&path, spec, args.force)?)
}

/// A path that a terminal makes clickable.
fn link(path: &Path) -> String {
    match std::path::absolute(path) {
        Ok(path) if std::io::stderr().is_terminal() => format!("file://{}", path.display()),
        _ => path.display().to_string(),
    }
}
