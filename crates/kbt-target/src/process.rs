//! Runs a target as a fresh process in a process group of its own, with an environment of its own.
//!
//! At the time limit the whole group is killed; when kbt itself dies, the process does too (Linux).
//!
//! Memory is the resident memory of the whole group, looked at while it runs: a limit on the address space would
//! stop every CUDA program, which reserves terabytes, and one on a single process would miss its children. Where
//! the machine itself runs out first, the kernel is told to take the target and not the sweep.

use crate::file::{Target, TraceLevel};
use crate::launch::{Launch, LaunchRequest, Launcher, Report, Status, in_a_row};
use crate::lines::{LineReader, TimePattern};
use crate::stream::{Stream, read_in_background};
use crate::turn::{self, Gate};
use std::collections::BTreeMap;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

/// Exit code of a command that refuses a setting.
const EXIT_REFUSED: i32 = 3;
/// How long the output streams may stay open after the group was killed.
const DRAIN: Duration = Duration::from_secs(2);
/// Between two looks at the group's memory.
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
            launch.status = Status::OutputMissing { path: out.to_owned() };
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
                launch.status = Status::OutputMissing { path: path.clone() };
            } else if request.needs_time && launch.report.times_us.is_empty() {
                launch.status = Status::NoTime { looked_for: LineReader::looked_for(pattern) };
            }
        }
        launch
    }

    fn execute(&self, order: Order, gate: Option<&Arc<Gate>>) -> Launch {
        let started = Instant::now();
        let environment = order.environment.clone();
        let ended = self.spawn(&order, gate.is_some()).map(|child| supervise(child, order, gate));
        let (status, report, stdout_tail, stderr_tail) = match ended {
            Ok(ended) => ended,
            Err(reason) => (Status::NotStarted { reason }, Report::default(), String::new(), String::new()),
        };
        let elapsed_s = started.elapsed().as_secs_f64();
        Launch { status, report, elapsed_s, stdout_tail, stderr_tail, environment }
    }

    fn spawn(&self, order: &Order, waits: bool) -> Result<Child, String> {
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
            .stderr(Stdio::piped())
            .process_group(0);
        limit(&mut command);
        command.spawn().map_err(|e| format!("{} (in {}): {e}", program.display(), directory.display()))
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
fn supervise(mut child: Child, order: Order, gate: Option<&Arc<Gate>>) -> (Status, Report, String, String) {
    let (sender, receiver) = mpsc::channel();
    if let (Some(gate), Some(input)) = (gate, child.stdin.take()) {
        gate.started(input);
    }
    let lines = LineReader::new(order.pattern).with_turn(gate);
    let output = child.stdout.take().map(|pipe| read_in_background(pipe, lines, &sender, true));
    let errors =
        child.stderr.take().map(|pipe| read_in_background(pipe, LineReader::default(), &sender, false));
    drop(sender);
    let limit = wait(child.id(), order.limit_s, order.memory_mb, gate.map(Arc::as_ref));
    // Whatever the process left behind in its group goes with it, and so do the open ends of its pipes.
    kill_group(child.id());
    let exit = child.wait();
    let (mut stdout, mut stderr) = (Stream::default(), Stream::default());
    let deadline = Instant::now() + DRAIN;
    for _ in 0..usize::from(output.is_some()) + usize::from(errors.is_some()) {
        // A descendant that left the group may hold a pipe open; then what was read so far is lost, and the
        // reading thread ends with that descendant.
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
fn wait(child: u32, limit_s: f64, memory_mb: Option<u64>, gate: Option<&Gate>) -> Option<Status> {
    let (mut spent, mut last) = (Duration::ZERO, Instant::now());
    let limit = Duration::try_from_secs_f64(limit_s).unwrap_or(Duration::MAX);
    let mut pause = Duration::from_millis(1);
    let mut looked = last;
    loop {
        if has_ended(child) {
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
            if group_memory_bytes(child) > limit_mb.saturating_mul(1 << 20) {
                return Some(Status::OverMemory { limit_mb });
            }
        }
        std::thread::sleep(pause.min(limit.saturating_sub(spent)));
        pause = (pause * 2).min(Duration::from_millis(16));
    }
}

/// Whether a child has ended. It stays a zombie, so that its number, and its group's, cannot be reused before
/// the group is killed.
fn has_ended(child: u32) -> bool {
    // SAFETY: an all-zero siginfo_t is a valid one, and waitid writes to it alone.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        let answer = libc::waitid(libc::P_PID, child, &raw mut info, flags);
        // An error means that there is nothing left to wait for.
        answer != 0 || info.si_pid() != 0
    }
}

fn kill_group(leader: u32) {
    if let Ok(leader) = libc::pid_t::try_from(leader)
        && leader > 1
    {
        // SAFETY: `kill` takes two integers and touches no memory of ours. The number is still the group's:
        // its leader is our child and has not been reaped.
        unsafe { libc::kill(-leader, libc::SIGKILL) };
    }
}

/// Lets the process die when kbt does, so that a killed sweep leaves nothing on the GPU; lets the kernel take it
/// first when memory runs out; and lets a crash write no core file, which would be as large as its memory.
#[cfg(target_os = "linux")]
fn limit(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec the closure makes only system calls that are async-signal-safe, and
    // allocates nothing.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            if libc::setrlimit(libc::RLIMIT_CORE, &raw const none) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // Raising the score is allowed to everyone; where /proc is not there, nothing is lost but the order.
            let score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
            if score >= 0 {
                libc::write(score, c"1000".as_ptr().cast(), 4);
                libc::close(score);
            }
            // The parent may have died before the request took effect.
            if u32::try_from(libc::getppid()).is_ok_and(|p| p == parent) {
                Ok(())
            } else {
                Err(std::io::Error::from_raw_os_error(libc::ESRCH))
            }
        });
    }
}

#[cfg(not(target_os = "linux"))]
fn limit(_command: &mut Command) {}

/// Resident memory of a process group, from /proc. The address space is no measure: CUDA reserves terabytes.
fn group_memory_bytes(group: u32) -> u64 {
    let Ok(processes) = std::fs::read_dir("/proc") else { return 0 };
    // SAFETY: `sysconf` takes an integer and touches no memory of ours.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let mut total = 0u64;
    for process in processes.flatten() {
        let Ok(stat) = std::fs::read_to_string(process.path().join("stat")) else { continue };
        // The command's name, in brackets, may hold spaces: fields are counted after it.
        let Some((_, fields)) = stat.rsplit_once(") ") else { continue };
        let mut fields = fields.split(' ');
        let in_group = fields.nth(2).and_then(|g| g.parse().ok()) == Some(group);
        if in_group && let Some(pages) = fields.nth(18).and_then(|p| p.parse::<u64>().ok()) {
            total = total.saturating_add(pages.saturating_mul(page));
        }
    }
    total
}
