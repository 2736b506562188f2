//! Runs a target as a fresh process in a process group of its own, with an environment of its own.
//!
//! When it ends, at the time limit, and when kbt itself dies, whatever it started is killed with it: `guard`.
//!
//! Memory is the resident memory of all of that, looked at while it runs: a limit on the address space would stop every
//! CUDA program, which reserves terabytes, and one on a single process would miss its children. Where the machine itself
//! runs out first, the kernel is told to take the target and not the sweep.

use crate::file::{Target, TraceLevel};
use crate::guard::Guarded;
use crate::launch::{Launch, LaunchRequest, Launcher, Report, Status, in_a_row};
use crate::lines::{LineReader, TimePattern};
use crate::running::memory_bytes_under;
use crate::stream::{Stream, read_in_background};
use crate::turn::{self, Gate};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Exit code of a command that refuses a setting.
const EXIT_REFUSED: i32 = 3;
/// How long the output streams may stay open after all was killed.
const DRAIN: Duration = Duration::from_secs(2);
/// Between two looks at the memory.
const MEMORY_EVERY: Duration = Duration::from_millis(100);

/// Runs a target's own processes.
#[derive(Debug)]
pub struct ProcessLauncher<'a> {
    pub(crate) target: &'a Target,
    kbt: Option<PathBuf>,
    pub(crate) arch: Option<String>,
}

impl<'a> ProcessLauncher<'a> {
    /// A launcher for a target. The program name `kbt` becomes the running executable.
    #[must_use]
    pub fn new(target: &'a Target) -> Self {
        Self { target, kbt: None, arch: None }
    }

    /// Another executable for the program name `kbt`: for tests, which are not kbt.
    #[must_use]
    pub fn with_kbt(mut self, program: impl Into<PathBuf>) -> Self {
        self.kbt = Some(program.into());
        self
    }

    /// The compile target that is told to every process as `KBT_ARCH`, such as `sm_90a`.
    #[must_use]
    pub fn for_arch(mut self, arch: impl Into<String>) -> Self {
        self.arch = Some(arch.into());
        self
    }

    /// Runs the file's build command; `dump` is an empty folder for machine code, as `KBT_DUMP`.
    ///
    /// `None` where the file has none.
    #[must_use]
    pub fn build(&self, dump: Option<&Path>) -> Option<Launch> {
        let build = self.target.build.as_ref()?;
        let order = Order {
            command: self.in_place(&build.command, dump),
            environment: self.beside_a_run(&build.env, [("KBT_DUMP", dump)]),
            directory: self.target.path(Path::new("")),
            limit_s: self.target.limits.build_s,
            memory_mb: None,
            pattern: None,
        };
        Some(self.execute(order, None))
    }

    /// Runs the file's reference on the tensors in `inputs`, its outputs to `out`.
    ///
    /// `None` where the file has none.
    #[must_use]
    pub fn reference(&self, inputs: &Path, out: &Path) -> Option<Launch> {
        let reference = self.target.reference.as_ref()?;
        // What an earlier run left must not be taken for this one's.
        let _ = std::fs::remove_file(out);
        let directory = self.target.run.directory.as_deref().unwrap_or(Path::new(""));
        let order = Order {
            command: reference.command.clone(),
            environment: self
                .beside_a_run(&reference.env, [("KBT_INPUTS", Some(inputs)), ("KBT_OUT", Some(out))]),
            directory: self.target.path(directory),
            limit_s: self.target.limits.run_s,
            memory_mb: self.target.limits.memory_mb,
            pattern: None,
        };
        let mut launch = self.execute(order, None);
        if launch.is_ok() && !out.is_file() {
            launch.status = no_file(out);
        }
        Some(launch)
    }

    /// One process to its end, in its turn where it has to wait for one.
    pub(crate) fn run(&self, request: &LaunchRequest, gate: Option<&Arc<Gate>>) -> Launch {
        let trace_out = request.trace.as_ref().map(|(_, path)| path);
        for path in [request.out.as_ref(), trace_out].into_iter().flatten() {
            // What an earlier run left must not be taken for this one's; its absence is the usual case.
            let _ = std::fs::remove_file(path);
        }
        let pattern = self.target.time.as_deref();
        let directory = self.target.run.directory.as_deref().unwrap_or(Path::new(""));
        let mut environment = self.environment(request);
        if gate.is_some() {
            environment.insert(turn::VARIABLE.into(), "1".into());
        }
        let order = Order {
            command: self.command(request),
            environment,
            directory: self.target.path(directory),
            limit_s: self.target.limits.run_s,
            memory_mb: self.target.limits.memory_mb,
            // The file was checked when it was read, so a bad pattern cannot come this far.
            pattern: pattern.and_then(|p| TimePattern::new(p).ok()),
        };
        let mut launch = self.execute(order, gate);
        if launch.is_ok() && gate.is_some_and(|g| !g.had_turn()) {
            launch.status = Status::OutOfTurn;
        }
        if launch.is_ok() {
            // At the barrier level nothing is recorded, so there may be no file.
            let records = request.trace.as_ref().is_some_and(|(level, _)| *level > TraceLevel::Barrier);
            let trace_out = trace_out.filter(|_| records);
            let missing = [request.out.as_ref(), trace_out].into_iter().flatten().find(|p| !p.is_file());
            if let Some(path) = missing {
                launch.status = no_file(path);
            } else if request.needs_time && launch.report.times_us.is_empty() {
                launch.status = Status::NoTime { looked_for: LineReader::looked_for(pattern) };
            }
        }
        launch
    }

    fn execute(&self, order: Order, gate: Option<&Arc<Gate>>) -> Launch {
        let started = Instant::now();
        let environment = order.environment.clone();
        let ended = self.spawn(&order, gate.is_some()).map(|running| supervise(running, order, gate));
        let (status, report, stdout_tail, stderr_tail) = match ended {
            Ok(ended) => ended,
            Err(reason) => (Status::NotStarted { reason }, Report::default(), String::new(), String::new()),
        };
        let elapsed_s = started.elapsed().as_secs_f64();
        Launch { status, report, elapsed_s, stdout_tail, stderr_tail, environment }
    }

    fn spawn(&self, order: &Order, waits: bool) -> Result<Guarded, String> {
        let (name, arguments) = order.command.split_first().ok_or("the command is empty")?;
        let directory =
            if order.directory.as_os_str().is_empty() { Path::new(".") } else { &order.directory };
        let program = match (name.as_str(), &self.kbt) {
            ("kbt", Some(path)) => path.clone(),
            ("kbt", None) => std::env::current_exe().map_err(|e| format!("kbt itself: {e}"))?,
            // A path is meant from the working directory, whatever the system's own rule.
            (path, _) if path.contains('/') => {
                std::path::absolute(directory.join(path)).map_err(|e| format!("{path}: {e}"))?
            }
            (name, _) => PathBuf::from(name),
        };
        let mut command = Command::new(&program);
        command
            .args(arguments)
            .env_clear()
            .envs(&order.environment)
            .current_dir(directory)
            .stdin(if waits { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Guarded::spawn(&mut command)
            .map_err(|e| format!("{} (in {}): {e}", program.display(), directory.display()))
    }
}

impl Launcher for ProcessLauncher<'_> {
    fn launch(&self, request: &LaunchRequest) -> Launch {
        self.run(request, None)
    }

    fn cool_down(&self, seconds: f64) {
        if let Ok(rest) = Duration::try_from_secs_f64(seconds) {
            std::thread::sleep(rest);
        }
    }

    fn at_once(&self) -> usize {
        // One of them is the lead, whose time does not count.
        usize::try_from(self.target.limits.set_up_at_once).unwrap_or(1).saturating_sub(1).max(1)
    }

    fn launch_in_turn(&self, requests: &[&LaunchRequest], rest_s: f64) -> Vec<Launch> {
        let at_once = self.at_once();
        if self.target.limits.set_up_at_once <= 1 {
            let launch = |request: &LaunchRequest| {
                self.cool_down(rest_s);
                self.launch(request)
            };
            return in_a_row(launch, requests);
        }
        let mut launches: Vec<Launch> = Vec::new();
        for together in requests.chunks(at_once) {
            launches.extend(turn::launch_behind_a_lead(self, together, rest_s));
            if launches.last().is_some_and(|l| !l.is_ok()) {
                break;
            }
        }
        launches
    }
}

/// What it says of a run that its output is no file.
fn no_file(path: &Path) -> Status {
    let path = path.to_owned();
    // A link that leads nowhere is nothing that was written.
    if path.exists() { Status::OutputNoFile { path } } else { Status::OutputMissing { path } }
}

/// One process to run.
struct Order {
    command: Vec<String>,
    environment: BTreeMap<String, String>,
    directory: PathBuf,
    limit_s: f64,
    memory_mb: Option<u64>,
    pattern: Option<TimePattern>,
}

/// Waits for the end of a process within its limits, and collects what it printed.
fn supervise(
    mut running: Guarded,
    order: Order,
    gate: Option<&Arc<Gate>>,
) -> (Status, Report, String, String) {
    let (sender, receiver) = mpsc::channel();
    let child = &mut running.child;
    if let (Some(gate), Some(input)) = (gate, child.stdin.take()) {
        gate.started(input);
    }
    let lines = LineReader::new(order.pattern).with_turn(gate);
    let output = child.stdout.take().map(|pipe| read_in_background(pipe, lines, &sender, true));
    let errors =
        child.stderr.take().map(|pipe| read_in_background(pipe, LineReader::default(), &sender, false));
    drop(sender);
    let limit = wait(&running, order.limit_s, order.memory_mb, gate.map(Arc::as_ref));
    // Whatever the process left behind goes with it, and so do the open ends of its pipes.
    let exit = running.end();
    let (mut stdout, mut stderr) = (Stream::default(), Stream::default());
    let deadline = Instant::now() + DRAIN;
    for _ in 0..usize::from(output.is_some()) + usize::from(errors.is_some()) {
        // What cannot be killed may hold a pipe open; then what was read so far is lost, and the reading thread ends with
        // it.
        match receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((true, stream)) => stdout = stream,
            Ok((false, stream)) => stderr = stream,
            Err(_) => break,
        }
    }
    let stderr_tail = stderr.tail();
    let status = match (limit, exit) {
        (Some(status), _) => status,
        (None, Ok(exit)) => classify(exit, &stderr_tail),
        (None, Err(e)) => Status::NotStarted { reason: format!("cannot wait for it: {e}") },
    };
    let status = match stdout.bad_time() {
        Some(line) if status == Status::Ok => Status::BadTime { line },
        _ => status,
    };
    (status, stdout.report(), stdout.tail(), stderr_tail)
}

fn classify(status: ExitStatus, stderr_tail: &str) -> Status {
    match (status.code(), status.signal()) {
        (Some(0), _) => Status::Ok,
        (Some(EXIT_REFUSED), _) => {
            let last = stderr_tail.lines().rev().map(str::trim).find(|l| !l.is_empty());
            let reason = last.unwrap_or("it gave no reason on standard error");
            // Where the command is kbt itself, its own preamble says nothing new.
            Status::Refused { reason: reason.strip_prefix("kbt: refused: ").unwrap_or(reason).to_owned() }
        }
        (Some(code), _) => Status::Exit { code },
        (None, signal) => Status::Signal { signal: signal.unwrap_or(0) },
    }
}

/// Waits until the process has ended, without reaping it, or has passed a limit, which is then the answer.
/// Time spent waiting for a turn does not count.
fn wait(running: &Guarded, limit_s: f64, memory_mb: Option<u64>, gate: Option<&Gate>) -> Option<Status> {
    let (mut spent, mut last) = (Duration::ZERO, Instant::now());
    let limit = Duration::try_from_secs_f64(limit_s).unwrap_or(Duration::MAX);
    let mut pause = Duration::from_millis(1);
    let mut looked = last;
    loop {
        if running.has_ended() {
            return None;
        }
        if gate.is_some_and(Gate::is_cancelled) {
            return Some(Status::OutOfTurn);
        }
        if gate.is_none_or(Gate::is_at_work) {
            spent += last.elapsed();
        }
        last = Instant::now();
        if spent >= limit {
            return Some(Status::TimedOut { limit_s });
        }
        if let Some(limit_mb) = memory_mb
            && looked.elapsed() >= MEMORY_EVERY
        {
            looked = Instant::now();
            if memory_bytes_under(running.child.id()) > limit_mb.saturating_mul(1 << 20) {
                return Some(Status::OverMemory { limit_mb });
            }
        }
        std::thread::sleep(pause.min(limit.saturating_sub(spent)));
        pause = (pause * 2).min(Duration::from_millis(16));
    }
}
