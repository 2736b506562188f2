//! `kbt trace`: what an in-kernel trace says, what recording it costs, and the trace for viewers.

mod export;
mod observe;
mod whole;

use crate::output::{Failure, Format, Outcome, print};
use kbt_evidence::{Figure, Provenance, Unit, Verdict};
use kbt_trace::diff::{Gate, diff};
use kbt_trace::outcome::TraceOutcome;
use kbt_trace::{AnalyseOptions, CleanRun, Input, Level, ReadOptions, Source, TraceError, analyse};
use std::fs::File;
use std::io::Read;
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
    /// Write the trace for a viewer, for paper, or as a table.
    #[command(after_help = "Examples:\n  kbt trace export run.kbttrace --to perfetto -o run.pftrace\n  \
        kbt trace export run.kbttrace --to svg --steps 2 -o run.svg\n\n\
        Perfetto's viewer is at https://ui.perfetto.dev. Parquet is written by kbt-frame, which is looked for beside \
        kbt.")]
    Export(export::Args),
    /// Compare two traces role by role.
    #[command(after_help = "Example:\n  kbt trace diff before.kbttrace after.kbttrace --gate period=3\n\n\
        Metrics are means over steps where their name holds no quantile; `kbt trace stats` prints medians.\n\
        Exit code 1 where a gated metric is over its limit, or is in one trace alone; 2 where a gated trace is cut or \
        damaged or its buffer was full, a role of it did not come to its close(), or too many of its steps are left out; 3 where a gated trace is of level detail.")]
    Diff {
        /// The first trace.
        a: PathBuf,
        /// The second trace.
        b: PathBuf,
        #[command(flatten)]
        reading: Reading,
        /// What a metric may grow by in percent, or be at most (METRIC<=CYCLES): period, `period p90`, busy, slack,
        /// prologue, tail, `wait NAME`, `round trip NAME`, `event NAME` or `ring NAME`; `ROLE:` in front for one role.
        #[arg(long, value_name = "[ROLE:]METRIC=PERCENT")]
        gate: Vec<Gate>,
        /// How the comparison is printed.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Run a target at every trace level in turn, and say what the looking costs.
    #[command(after_help = "Example:\n  kbt trace observe attention --rounds 8\n\n\
        Each run is a fresh process; the target's build command runs once before them. The coarse trace is analysed with \
        its cost beside it.\n\
        Exit code 3 where its absolute numbers are refused.")]
    Observe(observe::Args),
}

/// How to read the trace.
#[derive(clap::Args)]
struct Reading {
    /// The recorder's format.
    #[arg(long, default_value = "auto", value_parser = clap::builder::PossibleValuesParser::new(Input::ALL.map(Input::as_str)))]
    input: String,
    #[command(flatten)]
    hints: Hints,
}

/// What a trace of a known format does not say of itself.
#[derive(clap::Args)]
struct Hints {
    /// SM clock in MHz, for traces that count nanoseconds or do not state it.
    #[arg(long, value_name = "F")]
    clock_mhz: Option<f64>,
    /// What a Chrome file's time stamps are, where its values do not tell.
    #[arg(long, value_enum)]
    unit: Option<Stamp>,
    /// Which tensor is the buffer, in a safetensors, npz or .pt file with several.
    #[arg(long, value_name = "NAME")]
    tensor: Option<String>,
    /// Which launch to read, from 0, of an IKET file with several; by default all of them together.
    #[arg(long, value_name = "N")]
    launch: Option<usize>,
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

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Stats { file, reading, cta, clean, format } => {
            let mut source = reading.open(&file)?;
            let clean = clean.of(source.as_ref())?;
            let options = AnalyseOptions { cta, clean, ..options(&file) };
            let outcome = analyse(source.as_mut(), &options).map_err(failure)?;
            print_judged(format, &outcome)
        }
        Command::Export(args) => export::run(&args),
        Command::Diff { a, b, reading, gate, format } => {
            if a.as_os_str() == "-" && b.as_os_str() == "-" {
                return Err(Failure::input(
                    "- and -: standard input can be read once; accepted: it for one of the two, a file for the other",
                ));
            }
            let read = |file: &Path| {
                let mut source = reading.open(file)?;
                analyse(source.as_mut(), &options(file)).map_err(failure)
            };
            let (left, right) = (read(&a)?, read(&b)?);
            // Half a trace passes no gate, nor does one with damaged records.
            for (file, outcome) in [(&a, &left), (&b, &right)] {
                let damage = outcome.problems.iter().find(|p| p.kind.damages());
                if let (Some(problem), false) = (damage, gate.is_empty()) {
                    let why = format!("{problem}; accepted for a gate: a whole and undamaged trace");
                    return Err(Failure::input(format!("{}: {why}", file.display())));
                }
            }
            for (file, outcome) in [(&a, &left), (&b, &right)] {
                if outcome.trace.level == Some(Level::Detail) && !gate.is_empty() {
                    let why = "recorded at level detail, which changes what the compiler interleaves";
                    let accepted = "accepted for a gate: a trace of level coarse";
                    return Err(Failure::Refused(format!("{}: {why}; {accepted}", file.display())));
                }
            }
            let mut diff = diff(&left, &right);
            diff.judge(&gate)?;
            print(format, &diff, |diff| diff.render_text())?;
            diff.violations.iter().for_each(|violation| crate::output::tell!("kbt: {violation}"));
            if diff.violations.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(Failure::Gate) }
        }
        Command::Observe(args) => observe::run(args),
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
        let options =
            self.hints.of(Input::ALL.into_iter().find(|i| i.as_str() == self.input).unwrap_or_default());
        kbt_trace::open(input, &file.display().to_string(), &options).map_err(failure)
    }
}

impl Hints {
    fn of(&self, input: Input) -> ReadOptions {
        ReadOptions {
            input,
            clock_mhz: self.clock_mhz,
            unit: self.unit.map(|unit| match unit {
                Stamp::Us => kbt_trace::Unit::Microseconds,
                Stamp::Ns => kbt_trace::Unit::Nanoseconds,
                Stamp::Cycles => kbt_trace::Unit::Cycles,
            }),
            tensor: self.tensor.clone(),
            launch: self.launch,
        }
    }
}

/// An outcome, and beside it the verdicts that its text ends with.
#[derive(serde::Serialize)]
struct Judged<'a> {
    #[serde(flatten)]
    outcome: &'a TraceOutcome,
    verdicts: Vec<Verdict>,
}

fn print_judged(format: Format, outcome: &TraceOutcome) -> Outcome {
    let judged = Judged { outcome, verdicts: outcome.verdicts() };
    print(format, &judged, |judged| judged.outcome.render_text())
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
