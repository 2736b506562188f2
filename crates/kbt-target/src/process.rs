//! Runs a target as a fresh process in a process group of its own, with an environment of its own.
//!
//! The environment is built from nothing: [`MINIMUM`], what the file lists, the knobs, and [`RESERVED`]. At the
//! time limit the whole group is killed; when kbt itself dies, the process does too (Linux).
//!
//! Memory is the resident memory of the whole group, looked at while it runs: a limit on the address space would
//! stop every CUDA program, which reserves terabytes, and one on a single process would miss its children. Where
//! the machine itself runs out first, the kernel is told to take the target and not the sweep.

use crate::file::{SetBy, Target, TraceLevel};
use crate::launch::{Launch, LaunchRequest, Launcher, Report, Status};
use crate::lines::{LineReader, TimePattern};
use crate::stream::{Stream, read_in_background};
use std::collections::BTreeMap;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The variables that every process gets from kbt's own environment, where set there.
pub const MINIMUM: &[&str] =
    &["PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "TMPDIR", "KBT_CUDA"];

/// The variables that kbt sets for each run.
pub const RESERVED: &[&str] =
    &["KBT_INPUT_SET", "KBT_INPUTS", "KBT_OUT", "KBT_DUMP", "KBT_TRACE", "KBT_TRACE_OUT"];

/// Where compilers that run inside a process keep what they compiled. Some of them name an entry by its source
/// alone and not by the variables that shaped it, so that a setting could be served another setting's kernel.
/// kbt's own cache of the built-in kernels is named by everything that shapes one, and is shared.
pub const CACHES: &[&str] = &[
    "CUDA_CACHE_PATH",
    "CUTE_DSL_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "TRITON_CACHE_DIR",
];

/// Exit code of a command that refuses a setting.
const EXIT_REFUSED: i32 = 3;
/// How long the output streams may stay open after the group was killed.
const DRAIN: Duration = Duration::from_secs(2);
/// Between two looks at the group's memory.
const MEMORY_EVERY: Duration = Duration::from_millis(100);

/// Runs a target's own processes.
#[derive(Debug)]
pub struct ProcessLauncher<'a> {
    target: &'a Target,
    kbt: Option<PathBuf>,
}

impl<'a> ProcessLauncher<'a> {
    /// A launcher for a target. The program name `kbt` becomes the running executable.
    #[must_use]
    pub fn new(target: &'a Target) -> Self {
        Self { target, kbt: None }
    }

    /// Another executable for the program name `kbt`: for tests, which are not kbt.
    #[must_use]
    pub fn with_kbt(mut self, program: impl Into<PathBuf>) -> Self {
        self.kbt = Some(program.into());
        self
    }

    /// The environment of a run, complete.
    #[must_use]
    pub fn environment(&self, request: &LaunchRequest) -> BTreeMap<String, String> {
        let mut env = inherited(MINIMUM.iter().copied());
        env.extend(inherited(self.target.run.pass_env.iter().map(String::as_str)));
        if let Some(cache) = &request.cache {
            // What the file says comes after and so wins, be it a variable passed on or set.
            let passed = |name: &&&str| !self.target.run.pass_env.iter().any(|p| p == **name);
            for name in CACHES.iter().filter(passed) {
                env.insert((*name).to_owned(), absolute(&cache.join(name)));
            }
        }
        env.extend(self.target.run.env.iter().map(|(k, v)| (k.clone(), v.to_string())));
        for knob in self.target.knobs.iter().filter(|k| k.set == SetBy::Env) {
            let value = request.setting.get(&knob.name).unwrap_or(knob.default.as_str());
            env.insert(knob.name.clone(), value.to_owned());
        }
        env.insert("KBT_INPUT_SET".into(), request.input_set.to_string());
        let level = request.trace.as_ref().map_or(TraceLevel::Off, |(level, _)| *level);
        env.insert("KBT_TRACE".into(), level.as_str().into());
        if let Some(extra) = self.target.trace.as_ref().and_then(|t| t.levels.get(&level)) {
            env.extend(extra.iter().map(|(k, v)| (k.clone(), v.to_string())));
        }
        let trace_out = request.trace.as_ref().map(|(_, path)| path);
        let paths = [
            ("KBT_INPUTS", request.inputs.as_ref()),
            ("KBT_OUT", request.out.as_ref()),
            ("KBT_DUMP", request.dump.as_ref()),
            ("KBT_TRACE_OUT", trace_out),
        ];
        for (name, path) in paths {
            if let Some(path) = path {
                env.insert(name.into(), absolute(path));
            }
        }
        if let Some(gpu) = &request.gpu {
            env.insert("CUDA_VISIBLE_DEVICES".into(), gpu.clone());
        }
        env
    }

    /// The command of a run: program and arguments, with the knobs that are set by argument in place.
    #[must_use]
    pub fn command(&self, request: &LaunchRequest) -> Vec<String> {
        let mut command = self.target.run.command.clone();
        for knob in self.target.knobs.iter().filter(|k| k.set == SetBy::Argument) {
            let value = request.setting.get(&knob.name).unwrap_or(knob.default.as_str());
            for argument in command.iter_mut().skip(1) {
                *argument = argument.replace(&format!("{{{}}}", knob.name), value);
            }
        }
        command
    }

    /// Runs the file's build command.
    ///
    /// `None` where the file has none.
    #[must_use]
    pub fn build(&self) -> Option<Launch> {
        let build = self.target.build.as_ref()?;
        let mut environment = inherited(MINIMUM.iter().copied());
        environment.extend(inherited(self.target.run.pass_env.iter().map(String::as_str)));
        environment.extend(build.env.iter().map(|(k, v)| (k.clone(), v.to_string())));
        let order = Order {
            command: build.command.clone(),
            environment,
            directory: self.target.path(Path::new("")),
            limit_s: self.target.limits.build_s,
            memory_mb: None,
            pattern: None,
        };
        Some(self.execute(order))
    }

    fn execute(&self, order: Order) -> Launch {
        let started = Instant::now();
        let environment = order.environment.clone();
        let ended = self.spawn(&order).map(|child| supervise(child, order));
        let (status, report, stdout_tail, stderr_tail) = match ended {
            Ok(ended) => ended,
            Err(reason) => (Status::NotStarted { reason }, Report::default(), String::new(), String::new()),
        };
        let elapsed_s = started.elapsed().as_secs_f64();
        Launch { status, report, elapsed_s, stdout_tail, stderr_tail, environment }
    }

    fn spawn(&self, order: &Order) -> Result<Child, String> {
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
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        limit(&mut command);
        command.spawn().map_err(|e| format!("{} (in {}): {e}", program.display(), directory.display()))
    }
}

impl Launcher for ProcessLauncher<'_> {
    fn launch(&self, request: &LaunchRequest) -> Launch {
        let trace_out = request.trace.as_ref().map(|(_, path)| path);
        for path in [request.out.as_ref(), trace_out].into_iter().flatten() {
            // What an earlier run left must not be taken for this one's; its absence is the usual case.
            let _ = std::fs::remove_file(path);
        }
        let pattern = self.target.time.as_deref();
        let directory = self.target.run.directory.as_deref().unwrap_or(Path::new(""));
        let order = Order {
            command: self.command(request),
            environment: self.environment(request),
            directory: self.target.path(directory),
            limit_s: self.target.limits.run_s,
            memory_mb: self.target.limits.memory_mb,
            // The file was checked when it was read, so a bad pattern cannot come this far.
            pattern: pattern.and_then(|p| TimePattern::new(p).ok()),
        };
        let mut launch = self.execute(order);
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

    fn cool_down(&self, seconds: f64) {
        if let Ok(rest) = Duration::try_from_secs_f64(seconds) {
            std::thread::sleep(rest);
        }
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

/// A path for a process that may have another working directory.
fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).to_string_lossy().into_owned()
}

fn inherited<'n>(names: impl Iterator<Item = &'n str>) -> BTreeMap<String, String> {
    names.filter_map(|n| Some((n.to_owned(), std::env::var(n).ok()?))).collect()
}

/// Waits for the end of a process within its limits, and collects what it printed.
fn supervise(mut child: Child, order: Order) -> (Status, Report, String, String) {
    let (sender, receiver) = mpsc::channel();
    let output = child.stdout.take().map(|pipe| read_in_background(pipe, order.pattern, &sender, true));
    let errors = child.stderr.take().map(|pipe| read_in_background(pipe, None, &sender, false));
    drop(sender);
    let limit = wait(child.id(), order.limit_s, order.memory_mb);
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
fn wait(child: u32, limit_s: f64, memory_mb: Option<u64>) -> Option<Status> {
    let started = Instant::now();
    let limit = Duration::try_from_secs_f64(limit_s).unwrap_or(Duration::MAX);
    let mut pause = Duration::from_millis(1);
    let mut looked = started;
    loop {
        if has_ended(child) {
            return None;
        }
        if started.elapsed() >= limit {
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
        std::thread::sleep(pause.min(limit.saturating_sub(started.elapsed())));
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
