//! `kbt trace observe`: a target at every trace level in turn, and what the looking costs.

use super::whole::Whole;
use super::{failure, options};
use crate::output::{Failure, Format, Outcome, print};
use kbt_evidence::{Figure, Unit};
use kbt_target::{LaunchRequest, Launcher, ProcessLauncher, Status, Target, TraceLevel, check};
use kbt_trace::observe::{DEFAULT_LIMIT_PERCENT, ObserverReport, alternate};
use kbt_trace::outcome::TraceOutcome;
use kbt_trace::{AnalyseOptions, CleanRun, Input, Level, ReadOptions, analyse};
use std::fs::File;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(super) struct Args {
    /// A target file, or the name of one that comes with kbt: attention.
    target: PathBuf,
    /// A knob's value in place of its default.
    #[arg(long, value_name = "KNOB=VALUE")]
    set: Vec<String>,
    /// Rounds, each running every level once; at least 6.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(6..))]
    rounds: u32,
    /// The cost of coarse tracing above which the trace's absolute numbers are refused.
    #[arg(long, default_value_t = DEFAULT_LIMIT_PERCENT)]
    limit_percent: f64,
    /// Where the coarse trace is kept once every run has succeeded; without it the trace is deleted.
    #[arg(long)]
    trace_out: Option<PathBuf>,
    /// The role whose steps are set beside the clean kernel's time.
    #[arg(long, requires = "steps_per_sm")]
    clean_role: Option<String>,
    /// Steps of that role that one SM does one after the other in a launch.
    #[arg(long, requires = "clean_role")]
    steps_per_sm: Option<f64>,
    /// How the outcome is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(args: Args) -> Outcome {
    let Args { target: path, set, rounds, limit_percent, trace_out, clean_role, steps_per_sm, format } = args;
    let clean = clean_role.zip(steps_per_sm);
    let target = Target::find(&path)?;
    let mut setting = target.default_setting();
    for pair in &set {
        let (knob, value) =
            pair.split_once('=').filter(|(knob, _)| target.knob(knob).is_some()).ok_or_else(|| {
                Failure::input(format!("--set {pair}: not KNOB=VALUE of a knob of {}", target.name))
            })?;
        setting = setting.with(knob, value);
    }
    let known = target.trace.as_ref().ok_or_else(|| {
        Failure::Refused(format!("{} has no `trace:`: say how it is traced, at which levels", target.name))
    })?;
    let all = [
        (Level::Off, TraceLevel::Off),
        (Level::Barrier, TraceLevel::Barrier),
        (Level::Coarse, TraceLevel::Coarse),
        (Level::Detail, TraceLevel::Detail),
    ];
    let levels: Vec<_> =
        all.into_iter().filter(|(level, l)| *level == Level::Off || known.levels.contains_key(l)).collect();
    let formats = Input::ALL.map(Input::as_str).join(", ");
    let input = Input::named(&known.format).ok_or_else(|| {
        Failure::input(format!("{}: trace.format {}: accepted: {formats}", target.name, known.format))
    })?;
    if !(limit_percent.is_finite() && limit_percent >= 0.0) {
        let found = format!("--limit-percent {limit_percent}");
        return Err(Failure::input(format!("{found}: accepted: a number of percent, at least 0")));
    }
    if !levels.iter().any(|(level, _)| *level == Level::Coarse) {
        return Err(Failure::Refused(format!("{} has no trace level coarse", target.name)));
    }
    let scratch = std::env::temp_dir().join(format!("kbt-trace-observe-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).map_err(|e| Failure::input(format!("{}: {e}", scratch.display())))?;
    let coarse = scratch.join("coarse.trace");
    let launcher = ProcessLauncher::new(&target);
    let mut clean_report = None;
    let samples =
        alternate(&levels.iter().map(|(level, _)| *level).collect::<Vec<_>>(), rounds as usize, |level| {
            let recording = levels.iter().find(|(l, _)| *l == level && level != Level::Off).map(|(_, l)| *l);
            let out =
                if level == Level::Coarse { coarse.clone() } else { scratch.join(format!("{level}.trace")) };
            let request =
                LaunchRequest { trace: recording.map(|l| (l, out)), ..LaunchRequest::timed(setting.clone()) };
            launcher.cool_down(target.limits.cooldown_s);
            let launch = launcher.launch(&request);
            if let Status::Refused { reason } = &launch.status {
                return Err(Failure::Refused(format!("{} at level {level}: {reason}", target.name)));
            }
            let Some(sample) = launch.sample().filter(|_| launch.is_ok()) else {
                return Err(Failure::input(format!(
                    "{} at level {level}: {}\n{}",
                    target.name, launch.status, launch.stderr_tail
                )));
            };
            crate::output::tell!("kbt: {level}: {:.2} us", sample.time_us);
            if level == Level::Off {
                clean_report = Some((launch.report, sample.clock_mhz));
            }
            Ok(sample.time_us)
        });
    let outcome = samples.and_then(|samples| {
        let (report, clock) =
            clean_report.ok_or_else(|| Failure::input(format!("--rounds {rounds}: accepted: at least 6")))?;
        let provenance = check::measured("kbt trace observe", &report);
        let observer = ObserverReport::new(&samples, limit_percent, provenance.clone())?;
        let clean = clean.zip(clock).map(|((role, steps_per_sm), mhz)| CleanRun {
            time: Figure::new("clean time", observer.off_us, Unit::Microseconds, provenance.clone()),
            sm_clock: Figure::new("SM clock", mhz, Unit::Megahertz, provenance.clone()),
            role,
            steps_per_sm,
        });
        let reading = ReadOptions { input, clock_mhz: clock, ..ReadOptions::default() };
        let file = File::open(&coarse)
            .map_err(|e| Failure::input(format!("{}: {e}; the target wrote no trace", coarse.display())))?;
        if let Some(kept) = &trace_out {
            keep(&coarse, kept)?;
        }
        let coarse = trace_out.as_ref().unwrap_or(&coarse);
        let mut source =
            kbt_trace::open(Box::new(std::io::BufReader::new(file)), &coarse.display().to_string(), &reading)
                .map_err(failure)?;
        let more = AnalyseOptions {
            provenance: Some(provenance),
            observer: Some(observer),
            clean,
            ..options(coarse)
        };
        analyse(source.as_mut(), &more).map_err(failure)
    });
    // What it held has been read; a leftover does no harm.
    let _ = std::fs::remove_dir_all(&scratch);
    let outcome = outcome?;
    let done = print(format, &outcome, TraceOutcome::render_text)?;
    if outcome.absolute.is_accepted() {
        Ok(done)
    } else {
        Err(Failure::Refused(outcome.absolute.reason().into()))
    }
}

/// Copies the trace to where it is kept; what was there stays until the copy is whole.
fn keep(trace: &Path, kept: &Path) -> Result<(), Failure> {
    let mut out = Whole::create(kept)?;
    let copied = File::open(trace).and_then(|mut file| std::io::copy(&mut file, &mut out));
    copied.map_err(|e| Failure::input(format!("{}: {e}", kept.display())))?;
    out.finish()
}
