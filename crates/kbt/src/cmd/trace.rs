//! `kbt trace`: what an in-kernel trace says, what recording it costs, and the trace for viewers.

use crate::output::{Failure, Format, Outcome, print};
use kbt_evidence::{Figure, Provenance, Unit};
use kbt_target::{LaunchRequest, Launcher, ProcessLauncher, Target, TraceLevel, check};
use kbt_trace::diff::{Gate, diff};
use kbt_trace::export::{ExportCounts, write_chrome, write_perfetto};
use kbt_trace::observe::{DEFAULT_LIMIT_PERCENT, ObserverReport, alternate};
use kbt_trace::outcome::TraceOutcome;
use kbt_trace::{AnalyseOptions, CleanRun, Input, Level, ReadOptions, Source, TraceError, analyse};
use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Steps that the timeline of an outcome shows.
const TIMELINE_STEPS: usize = 4;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Period, busy time, waits and slack of every role, and what sets the pace.
    #[command(after_help = "Example:\n  kbt trace stats run.kbttrace --format json\n\n\
        Exit code 3 where the trace counts nanoseconds and no --clock-mhz turns them into cycles.")]
    Stats {
        /// The trace; `-` reads standard input.
        file: PathBuf,
        #[command(flatten)]
        reading: Reading,
        /// Only the CTA of this linear index.
        #[arg(long)]
        cta: Option<u32>,
        #[command(flatten)]
        clean: Clean,
        /// How the outcome is printed.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Write the trace for a viewer.
    #[command(after_help = "Example:\n  kbt trace export run.kbttrace --to perfetto -o run.pftrace\n\n\
        Perfetto's viewer is at https://ui.perfetto.dev.")]
    Export {
        /// The trace; `-` reads standard input.
        file: PathBuf,
        #[command(flatten)]
        reading: Reading,
        /// The format to write.
        #[arg(long, value_enum)]
        to: Viewer,
        /// The file to write; `-` is standard output.
        #[arg(short, long)]
        out: PathBuf,
        /// How the count of what was written is printed, where it does not go to standard output itself.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Compare two traces role by role.
    #[command(after_help = "Example:\n  kbt trace diff before.kbttrace after.kbttrace --gate period=3\n\n\
        Exit code 1 where a gated metric grew by more than its percentage.")]
    Diff {
        /// The first trace.
        a: PathBuf,
        /// The second trace.
        b: PathBuf,
        #[command(flatten)]
        reading: Reading,
        /// A metric and the percentage that it may grow by: period, busy, slack, `wait NAME` or `event NAME`.
        #[arg(long, value_name = "METRIC=PERCENT")]
        gate: Vec<Gate>,
        /// How the comparison is printed.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Run a target at every trace level in turn, and say what the looking costs.
    #[command(after_help = "Example:\n  kbt trace observe attention --rounds 8\n\n\
        Each run is a fresh process. The coarse trace is analysed with its cost beside it.\n\
        Exit code 3 where its absolute numbers are refused.")]
    Observe {
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
        /// Where the coarse trace is kept; it is deleted where absent.
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
    },
}

/// How to read the trace.
#[derive(clap::Args)]
struct Reading {
    /// The recorder's format.
    #[arg(long, default_value = "auto", value_parser = clap::builder::PossibleValuesParser::new(Input::ALL.map(Input::as_str)))]
    input: String,
    /// SM clock in MHz, for traces that count nanoseconds or do not state it.
    #[arg(long, value_name = "F")]
    clock_mhz: Option<f64>,
    /// What a Chrome file's time stamps are, where its values do not tell.
    #[arg(long, value_enum)]
    unit: Option<Stamp>,
}

/// The clean kernel's time, to put its step beside the trace's.
#[derive(clap::Args)]
struct Clean {
    /// Time of a launch of the kernel without a tracer, in microseconds.
    #[arg(long, requires_all = ["clean_role", "steps_per_sm"])]
    clean_us: Option<f64>,
    /// The role whose steps are counted.
    #[arg(long, requires = "clean_us")]
    clean_role: Option<String>,
    /// Steps of that role that one SM does one after the other in a launch.
    #[arg(long, requires = "clean_us")]
    steps_per_sm: Option<f64>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Stamp {
    /// Microseconds.
    Us,
    /// Nanoseconds.
    Ns,
    /// SM cycles.
    Cycles,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Viewer {
    /// Perfetto's protobuf.
    Perfetto,
    /// Chrome trace events.
    Chrome,
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Stats { file, reading, cta, clean, format } => {
            let mut source = reading.open(&file)?;
            let clean = clean.of(source.as_ref())?;
            let options = AnalyseOptions { cta, clean, ..options(&file) };
            let outcome = analyse(source.as_mut(), &options).map_err(failure)?;
            print(format, &outcome, TraceOutcome::render_text)
        }
        Command::Export { file, reading, to, out, format } => export(&file, &reading, to, &out, format),
        Command::Diff { a, b, reading, gate, format } => {
            let read = |file: &Path| {
                let mut source = reading.open(file)?;
                analyse(source.as_mut(), &options(file)).map_err(failure)
            };
            let diff = diff(&read(&a)?, &read(&b)?);
            let violations = diff.violations(&gate)?;
            print(format, &diff, |diff| diff.render_text())?;
            violations.iter().for_each(|violation| eprintln!("kbt: {violation}"));
            if violations.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(Failure::Gate) }
        }
        Command::Observe {
            target,
            set,
            rounds,
            limit_percent,
            trace_out,
            clean_role,
            steps_per_sm,
            format,
        } => {
            let clean = clean_role.zip(steps_per_sm);
            observe(&target, &set, rounds, limit_percent, trace_out, clean, format)
        }
    }
}

impl Reading {
    fn open(&self, file: &Path) -> Result<Box<dyn Source>, Failure> {
        let input: Box<dyn Read + Send> = if file.as_os_str() == "-" {
            Box::new(std::io::stdin())
        } else {
            let open = File::open(file).map_err(|e| Failure::input(format!("{}: {e}", file.display())))?;
            Box::new(std::io::BufReader::with_capacity(1 << 20, open))
        };
        let options = ReadOptions {
            input: Input::ALL.into_iter().find(|i| i.as_str() == self.input).unwrap_or_default(),
            clock_mhz: self.clock_mhz,
            unit: self.unit.map(|unit| match unit {
                Stamp::Us => kbt_trace::Unit::Microseconds,
                Stamp::Ns => kbt_trace::Unit::Nanoseconds,
                Stamp::Cycles => kbt_trace::Unit::Cycles,
            }),
        };
        kbt_trace::open(input, &file.display().to_string(), &options).map_err(failure)
    }
}

impl Clean {
    fn of(self, source: &dyn Source) -> Result<Option<CleanRun>, Failure> {
        let (Some(us), Some(role), Some(steps_per_sm)) = (self.clean_us, self.clean_role, self.steps_per_sm)
        else {
            return Ok(None);
        };
        let Some(mhz) = source.info().clock.sm_mhz() else {
            return Err(Failure::Refused("--clean-us needs the SM clock: give --clock-mhz".into()));
        };
        let figure =
            |name: &str, value, unit, option: &str| Figure::new(name, value, unit, Provenance::given(option));
        Ok(Some(CleanRun {
            time: figure("clean time", us, Unit::Microseconds, "--clean-us"),
            sm_clock: figure("SM clock", mhz, Unit::Megahertz, "the trace, or --clock-mhz"),
            role,
            steps_per_sm,
        }))
    }
}

fn options(file: &Path) -> AnalyseOptions {
    let name = file.display().to_string();
    AnalyseOptions { name, timeline_steps: TIMELINE_STEPS, ..AnalyseOptions::default() }
}

/// A trace without a clock is no bad input: evidence is missing.
fn failure(error: TraceError) -> Failure {
    match error {
        TraceError::NeedsClock { .. } => Failure::Refused(error.to_string()),
        error => error.into(),
    }
}

fn export(file: &Path, reading: &Reading, to: Viewer, out: &Path, format: Format) -> Outcome {
    let mut source = reading.open(file)?;
    let to_stdout = out.as_os_str() == "-";
    let mut sink: Box<dyn Write> = if to_stdout {
        Box::new(BufWriter::new(std::io::stdout().lock()))
    } else {
        let create = File::create(out).map_err(|e| Failure::input(format!("{}: {e}", out.display())))?;
        Box::new(BufWriter::with_capacity(1 << 20, create))
    };
    let counts = match to {
        Viewer::Perfetto => write_perfetto(source.as_mut(), &mut sink),
        Viewer::Chrome => write_chrome(source.as_mut(), &mut sink),
    };
    let counts = match counts {
        Err(TraceError::Io { source, .. })
            if to_stdout && source.kind() == std::io::ErrorKind::BrokenPipe =>
        {
            return Ok(ExitCode::SUCCESS);
        }
        counts => counts.map_err(failure)?,
    };
    drop(sink);
    source.problems().list().iter().for_each(|problem| eprintln!("kbt: note: {problem}"));
    if to_stdout {
        return Ok(ExitCode::SUCCESS);
    }
    let ExportCounts { tracks, slices, instants, flows } = counts;
    let provenance = Provenance::given(format!("{}, counted as it was written", file.display()));
    let written = serde_json::json!({
        "schema": "kbt.trace-export/1", "provenance": provenance, "out": out,
        "tracks": tracks, "slices": slices, "instants": instants, "flows": flows,
    });
    print(format, &written, |_| {
        format!("{}: {tracks} tracks, {slices} slices, {instants} instants, {flows} flows", out.display())
    })
}

fn observe(
    path: &Path,
    set: &[String],
    rounds: u32,
    limit_percent: f64,
    trace_out: Option<PathBuf>,
    clean: Option<(String, f64)>,
    format: Format,
) -> Outcome {
    let target = Target::find(path)?;
    let mut setting = target.default_setting();
    for pair in set {
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
    if !levels.iter().any(|(level, _)| *level == Level::Coarse) {
        return Err(Failure::Refused(format!("{} has no trace level coarse", target.name)));
    }
    let scratch = std::env::temp_dir().join(format!("kbt-trace-observe-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).map_err(|e| Failure::input(format!("{}: {e}", scratch.display())))?;
    let coarse = trace_out.unwrap_or_else(|| scratch.join("coarse.trace"));
    let input = Input::ALL.into_iter().find(|i| i.as_str() == known.format).unwrap_or_default();
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
            let Some(sample) = launch.sample().filter(|_| launch.is_ok()) else {
                return Err(Failure::input(format!(
                    "{} at level {level}: {}\n{}",
                    target.name, launch.status, launch.stderr_tail
                )));
            };
            eprintln!("kbt: {level}: {:.2} us", sample.time_us);
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
        let reading = ReadOptions { input, clock_mhz: clock, unit: None };
        let file = File::open(&coarse)
            .map_err(|e| Failure::input(format!("{}: {e}; the target wrote no trace", coarse.display())))?;
        let mut source =
            kbt_trace::open(Box::new(std::io::BufReader::new(file)), &coarse.display().to_string(), &reading)
                .map_err(failure)?;
        let more = AnalyseOptions {
            provenance: Some(provenance),
            observer: Some(observer),
            clean,
            ..options(&coarse)
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
