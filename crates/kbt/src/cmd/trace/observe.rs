//! `kbt trace observe`: a target at every trace level in turn, and what the looking costs.

use super::whole::Whole;
use super::{Hints, failure, options, print_judged};
use crate::output::{Failure, Format, Outcome};
use kbt_evidence::{Figure, Provenance, Unit};
use kbt_target::{LaunchRequest, Launcher, ProcessLauncher, Status, Target, TraceLevel, check};
use kbt_trace::observe::{DEFAULT_LIMIT_PERCENT, ObserverReport, alternate};
use kbt_trace::{AnalyseOptions, CleanRun, Input, Level, ReadOptions, Source, TraceError, analyse};
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
    #[command(flatten)]
    hints: Hints,
    /// How the outcome is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(args: Args) -> Outcome {
    let Args { target: path, set, rounds, limit_percent, trace_out, clean_role, steps_per_sm, hints, format } =
        args;
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
    if let Some((_, steps)) = clean.as_ref().filter(|(_, steps)| !(steps.is_finite() && *steps > 0.0)) {
        return Err(Failure::input(format!("--steps-per-sm {steps}: accepted: a positive number")));
    }
    if let Some(mhz) = hints.clock_mhz.filter(|mhz| !(mhz.is_finite() && *mhz > 0.0)) {
        return Err(Failure::input(format!("--clock-mhz {mhz}: accepted: a positive number of MHz")));
    }
    trace_out.as_deref().map_or(Ok(()), writable)?;
    let scratch = std::env::temp_dir().join(format!("kbt-trace-observe-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).map_err(|e| Failure::input(format!("{}: {e}", scratch.display())))?;
    let coarse = scratch.join("coarse.trace");
    let reader = Reader {
        // What it is called in messages: the file in the scratch folder is gone when they are read.
        name: trace_out.as_ref().map_or_else(
            || format!("{}: its coarse trace", target.name),
            |kept| format!("{}: its coarse trace, {}", target.name, kept.display()),
        ),
        file: coarse.clone(),
        options: hints.of(input),
    };
    let launcher = ProcessLauncher::new(&target);
    let built = built(&target, &launcher);
    let mut clean_report = None;
    let mut read_once = false;
    let samples = built.and_then(|()| {
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
            // The first coarse trace tells what the last one would: whether it can be read, and which roles it has.
            if level == Level::Coarse && !std::mem::replace(&mut read_once, true) {
                let clock = clean_report.as_ref().and_then(|(_, clock)| *clock);
                let source = reader.open(clock)?;
                if let Some((role, _)) = &clean {
                    reader.has_role(source.as_ref(), role)?;
                    reader.clock(source.as_ref(), clock)?;
                }
            }
            Ok(sample.time_us)
        })
    });
    let outcome = samples.and_then(|samples| {
        let (report, clock) =
            clean_report.ok_or_else(|| Failure::input(format!("--rounds {rounds}: accepted: at least 6")))?;
        let provenance = check::measured("kbt trace observe", &report);
        let observer = ObserverReport::new(&samples, limit_percent, provenance.clone())?;
        let measured = observer.clone();
        let analysed = || {
            // Kept first, so that a trace that cannot be read can be looked at.
            if let Some(kept) = trace_out.as_ref().filter(|_| coarse.exists()) {
                keep(&coarse, kept)?;
            }
            let mut source = reader.open(clock)?;
            let clean = clean.map(|(role, steps_per_sm)| {
                let (mhz, known) = reader.clock(source.as_ref(), clock)?;
                let (name, known) = match known {
                    Some(known) => (format!("SM clock by {known}"), Provenance::given(known)),
                    None => ("SM clock".to_owned(), provenance.clone()),
                };
                Ok::<_, Failure>(CleanRun {
                    time: Figure::new("clean time", observer.off_us, Unit::Microseconds, provenance.clone()),
                    sm_clock: Figure::new(name, mhz, Unit::Megahertz, known),
                    role,
                    steps_per_sm,
                })
            });
            let more = AnalyseOptions {
                clean: clean.transpose()?,
                provenance: Some(provenance),
                observer: Some(observer),
                name: reader.name.clone(),
                ..options(&coarse)
            };
            analyse(source.as_mut(), &more).map_err(failure)
        };
        // What was measured is told even where the trace says nothing.
        analysed().inspect_err(|_| crate::output::tell!("{}", measured.render_text().trim_end()))
    });
    // What it held has been read; a leftover does no harm.
    let _ = std::fs::remove_dir_all(&scratch);
    let outcome = outcome?;
    let done = print_judged(format, &outcome)?;
    if outcome.absolute.is_accepted() {
        Ok(done)
    } else {
        Err(Failure::Refused(outcome.absolute.reason().into()))
    }
}

/// Runs the target's build command, where it has one.
fn built(target: &Target, launcher: &ProcessLauncher) -> Result<(), Failure> {
    match launcher.build(None) {
        Some(launch) if !launch.is_ok() => {
            let what = format!("{}: build: {}", target.name, launch.status);
            Err(Failure::input(format!("{what}\n{}", launch.stderr_tail)))
        }
        _ => Ok(()),
    }
}

/// The coarse trace, and how it is read.
struct Reader {
    name: String,
    file: PathBuf,
    options: ReadOptions,
}

impl Reader {
    /// Opens it; `clock` is what the clean run measured, where it did.
    fn open(&self, clock: Option<f64>) -> Result<Box<dyn Source>, Failure> {
        let file = File::open(&self.file)
            .map_err(|e| Failure::input(format!("{}: {e}; the target wrote no trace", self.name)))?;
        let mut options = self.options.clone();
        options.clock_mhz = options.clock_mhz.or(clock);
        let opened = kbt_trace::open(Box::new(std::io::BufReader::new(file)), &self.name, &options);
        opened.map_err(|error| match error {
            TraceError::NeedsClock { .. } => failure(error),
            error => Failure::input(error.for_target()),
        })
    }

    fn has_role(&self, source: &dyn Source, role: &str) -> Result<(), Failure> {
        let roles = &source.info().roles;
        if roles.iter().any(|r| r.name == role) {
            return Ok(());
        }
        let known: Vec<_> = roles.iter().map(|r| r.name.as_str()).collect();
        let why = format!("not in {}; accepted: {}", self.name, known.join(", "));
        Err(Failure::input(format!("--clean-role {role}: {why}")))
    }

    /// The SM clock of the clean run in MHz, and who gave it where the run did not measure it.
    fn clock(
        &self,
        source: &dyn Source,
        measured: Option<f64>,
    ) -> Result<(f64, Option<&'static str>), Failure> {
        let given = self.options.clock_mhz.map(|mhz| (mhz, Some("--clock-mhz")));
        let stated = || source.info().clock.sm_mhz().map(|mhz| (mhz, Some("the trace's own clock")));
        given.or(measured.map(|mhz| (mhz, None))).or_else(stated).ok_or_else(|| {
            let why = format!("{} states no SM clock, nor do the runs", self.name);
            Failure::Refused(format!("--clean-role: {why}: give --clock-mhz, or print kbt-clock-mhz"))
        })
    }
}

/// Whether a file can be written there, found before an hour of runs.
fn writable(kept: &Path) -> Result<(), Failure> {
    // To open a pipe is to use it.
    let pipe = std::fs::metadata(kept).is_ok_and(|m| !m.is_file() && !m.is_dir());
    if pipe { Ok(()) } else { Whole::create(kept).map(drop) }
}

/// Copies the trace to where it is kept; what was there stays until the copy is whole.
fn keep(trace: &Path, kept: &Path) -> Result<(), Failure> {
    let mut out = Whole::create(kept)?;
    let copied = File::open(trace).and_then(|mut file| std::io::copy(&mut file, &mut out));
    copied.map_err(|e| Failure::input(format!("{}: {e}", kept.display())))?;
    out.finish()
}
