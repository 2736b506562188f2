//! One run of a target: what is asked, what comes back, and the trait between.
//!
//! The trait lets everything above run on a fake target without processes; the real one is `process`.

use crate::stats::{mad, median};
use crate::{Setting, TraceLevel};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// What one process is asked to do.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LaunchRequest {
    /// The value of every knob.
    pub setting: Setting,
    /// The number of the input set: `KBT_INPUT_SET`.
    pub input_set: u32,
    /// The folder with that set's tensors: `KBT_INPUTS`.
    pub inputs: Option<PathBuf>,
    /// Where the outputs go: `KBT_OUT`; none are wanted where absent.
    pub out: Option<PathBuf>,
    /// An empty folder for PTX and cubin: `KBT_DUMP`.
    pub dump: Option<PathBuf>,
    /// A folder of this setting's own for the caches of compilers that run inside the process: each of
    /// [`crate::CACHES`] gets a subfolder, unless the target file sets that variable. The user's own where absent.
    pub cache: Option<PathBuf>,
    /// The trace level other than off and where the trace goes: `KBT_TRACE`, `KBT_TRACE_OUT`.
    pub trace: Option<(TraceLevel, PathBuf)>,
    /// The value of `CUDA_VISIBLE_DEVICES`; kbt's own where absent.
    pub gpu: Option<String>,
    /// Whether a run that prints no time has failed.
    pub needs_time: bool,
}

impl LaunchRequest {
    /// A run that is to be timed.
    #[must_use]
    pub fn timed(setting: Setting) -> Self {
        Self { setting, needs_time: true, ..Self::default() }
    }

    /// A run whose outputs are wanted.
    #[must_use]
    pub fn saving(setting: Setting, out: impl Into<PathBuf>) -> Self {
        Self { setting, out: Some(out.into()), ..Self::default() }
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// It ended well and gave what was asked.
    Ok,
    /// Exit code 3: the command refuses this setting, and says why.
    Refused {
        /// The last line of its standard error.
        reason: String,
    },
    /// Another exit code than 0.
    Exit {
        /// The code.
        code: i32,
    },
    /// Ended by a signal.
    Signal {
        /// The signal's number.
        signal: i32,
    },
    /// Still running at the time limit, and killed.
    TimedOut {
        /// The limit.
        limit_s: f64,
    },
    /// Over the memory limit, and killed.
    OverMemory {
        /// The limit.
        limit_mb: u64,
    },
    /// It ended well but printed no time.
    NoTime {
        /// What was looked for.
        looked_for: String,
    },
    /// It ended well but printed a time that cannot be: not a number, infinite, 0 or less, or over an hour.
    BadTime {
        /// The first line that says so.
        line: String,
    },
    /// It ended well but did not write the outputs.
    OutputMissing {
        /// Where they should be.
        path: PathBuf,
    },
    /// It ended well, and what it left in the place of its outputs is no file.
    OutputNoFile {
        /// Where the file should be.
        path: PathBuf,
    },
    /// It was set up beside others, and ran before it was its turn: it printed no `kbt-ready`, or did not wait.
    OutOfTurn,
    /// The process could not be started.
    NotStarted {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Refused { reason } => write!(f, "refused: {reason}"),
            // A shell reports its child's signal as 128 + n.
            Self::Exit { code: code @ 129..=159 } => {
                write!(f, "exit code {code} (a shell's word for signal {})", code - 128)
            }
            Self::Exit { code } => write!(f, "exit code {code}"),
            Self::Signal { signal } => write!(f, "killed by signal {signal}"),
            Self::TimedOut { limit_s } => write!(f, "still running after {limit_s} s, killed"),
            Self::OverMemory { limit_mb } => write!(f, "over {limit_mb} MB of memory, killed"),
            Self::NoTime { looked_for } => write!(f, "printed no time ({looked_for})"),
            Self::BadTime { line } => {
                write!(f, "printed `{line}`, which is no time; accepted: a number above 0, of an hour at most")
            }
            Self::OutputMissing { path } => write!(f, "wrote no {}", path.display()),
            Self::OutputNoFile { path } => write!(
                f,
                "made something else of {}: a directory, a pipe or a link to one; accepted: a file",
                path.display()
            ),
            Self::OutOfTurn => f.write_str(
                "ran before its turn: limits.set_up_at_once asks for `kbt-ready` and a read of standard input before \
                 the launches",
            ),
            Self::NotStarted { reason } => write!(f, "could not be started: {reason}"),
        }
    }
}

/// What one process printed about itself, beside its results.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Report {
    /// The time of each launch, in microseconds, in order.
    pub times_us: Vec<f64>,
    /// SM clocks that it read (`kbt-clock-mhz N`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clocks_mhz: Vec<f64>,
    /// Power that it read (`kbt-power-w N`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub power_w: Vec<f64>,
    /// The reason for which the chip held its clock down (`kbt-throttle REASON`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<String>,
    /// The device's own name (`kbt-device NAME`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The driver (`kbt-driver VERSION`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
}

/// What came back from one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// How it ended.
    pub status: Status,
    /// What it printed about itself.
    pub report: Report,
    /// Wall-clock seconds of the process.
    pub elapsed_s: f64,
    /// The end of its standard output.
    pub stdout_tail: String,
    /// The end of its standard error.
    pub stderr_tail: String,
    /// Its whole environment.
    pub environment: BTreeMap<String, String>,
}

impl Launch {
    /// A run that ended thus, with nothing printed.
    #[must_use]
    pub fn ended(status: Status) -> Self {
        Self {
            status,
            report: Report::default(),
            elapsed_s: 0.0,
            stdout_tail: String::new(),
            stderr_tail: String::new(),
            environment: BTreeMap::new(),
        }
    }

    /// A run that ended well with these times: for fake targets.
    #[must_use]
    pub fn timed(times_us: Vec<f64>) -> Self {
        Self { report: Report { times_us, ..Report::default() }, ..Self::ended(Status::Ok) }
    }

    /// Whether it ended well.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.status == Status::Ok
    }

    /// The process as one sample of time; `None` where it printed none.
    #[must_use]
    pub fn sample(&self) -> Option<Sample> {
        Some(Sample {
            time_us: median(&self.report.times_us)?,
            spread_us: mad(&self.report.times_us).unwrap_or(0.0),
            launches: u32::try_from(self.report.times_us.len()).unwrap_or(u32::MAX),
            clock_mhz: median(&self.report.clocks_mhz),
            throttle: self.report.throttle.clone(),
        })
    }
}

/// One process as one sample: the median over its launches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Median of its launches, in microseconds.
    pub time_us: f64,
    /// Median absolute deviation of its launches, in microseconds.
    pub spread_us: f64,
    /// How many launches.
    pub launches: u32,
    /// Median of the SM clocks that it read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_mhz: Option<f64>,
    /// Why the chip held its clock down, where it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<String>,
}

/// Runs a target. Implemented by [`crate::ProcessLauncher`]; tests use a closure through [`FakeLauncher`].
pub trait Launcher: Sync {
    /// One fresh process, to its end.
    fn launch(&self, request: &LaunchRequest) -> Launch;

    /// Rests, so that the next process starts on a cool chip. A fake target does not rest.
    fn cool_down(&self, _seconds: f64) {}

    /// How many processes [`Launcher::launch_in_turn`] sets up together.
    fn at_once(&self) -> usize {
        1
    }

    /// Fresh processes that are timed one after the other in this order, after `rest_s` of rest each. It ends with the
    /// first that fails, so that only the last may be one.
    fn launch_in_turn(&self, requests: &[&LaunchRequest], rest_s: f64) -> Vec<Launch> {
        in_a_row(
            |request| {
                self.cool_down(rest_s);
                self.launch(request)
            },
            requests,
        )
    }
}

/// One after the other, up to the first that fails.
pub(crate) fn in_a_row(
    launch: impl Fn(&LaunchRequest) -> Launch,
    requests: &[&LaunchRequest],
) -> Vec<Launch> {
    let mut launches = Vec::new();
    for request in requests {
        launches.push(launch(request));
        if launches.last().is_some_and(|l| !l.is_ok()) {
            break;
        }
    }
    launches
}

/// A target without processes, for tests of what is built on [`Launcher`].
pub struct FakeLauncher<F>(pub F);

impl<F: Fn(&LaunchRequest) -> Launch + Sync> Launcher for FakeLauncher<F> {
    fn launch(&self, request: &LaunchRequest) -> Launch {
        (self.0)(request)
    }
}
