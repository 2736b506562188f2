//! The process that `flake` and `bisect` run: a user's command, fresh each time. Whatever a run started ends with it, and
//! with kbt.

use super::args::RunArgs;
use crate::output::{Failure, tell};
use kbt_evidence::Provenance;
use kbt_target::Guarded;
use kbt_validate::runner::{RunFailure, RunOutput, Runner};
use std::cell::{Cell, RefCell};
use std::fs::{self, File};
use std::io::{IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Runs the user's command, each time as a fresh process.
pub(super) struct Process {
    command: Vec<String>,
    limit: Duration,
    sets: u32,
    scratch: PathBuf,
    runs: Cell<u32>,
    planned: Option<u32>,
    between: Option<String>,
    /// Why the work between two runs failed.
    between_failed: RefCell<Option<String>>,
    device: RefCell<Option<String>>,
    driver: RefCell<Option<String>>,
}

/// How much of a failed run's standard error is shown.
const STDERR_TAIL: usize = 400;

impl Process {
    pub(super) fn new(args: &RunArgs, planned: Option<u32>) -> Result<Self, Failure> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let own = format!("kbt-validate-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let scratch = std::env::temp_dir().join(own);
        fs::create_dir_all(&scratch).map_err(|e| Failure::input(format!("{}: {e}", scratch.display())))?;
        Ok(Self {
            command: args.command.clone(),
            limit: Duration::from_secs(args.limit_s),
            sets: args.sets,
            scratch,
            runs: Cell::new(0),
            planned,
            between: args.between.clone(),
            between_failed: RefCell::new(None),
            device: RefCell::new(None),
            driver: RefCell::new(None),
        })
    }

    /// Where it ran: the device that the command named on standard output (`kbt-device NAME`), else this host.
    pub(super) fn provenance(&self, what: &str) -> Provenance {
        let host = || {
            let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            format!("host {} (the command names no device)", name.trim())
        };
        let device = self.device.borrow().clone().unwrap_or_else(host);
        let between =
            self.between.as_ref().map_or_else(String::new, |work| format!(", `{work}` between two runs"));
        let command =
            format!("kbt validate {what}, {} input sets{between}: {}", self.sets, self.command.join(" "));
        let provenance = Provenance::measured(command, device, kbt_target::today());
        match &*self.driver.borrow() {
            Some(driver) => provenance.with_driver(driver),
            None => provenance,
        }
    }

    fn progress(&self) {
        let run = self.runs.get();
        let mut err = std::io::stderr().lock();
        if err.is_terminal() {
            let of = self.planned.map_or_else(String::new, |n| format!(" of {n}"));
            // Progress that cannot be shown is no reason to stop.
            let _ = write!(err, "\rrun {run}{of}");
        }
    }

    pub(super) fn end_progress(&self) {
        if std::io::stderr().is_terminal() {
            tell!("");
        }
    }

    fn spawn(&self, env: &[(String, String)], set: u32) -> Result<Guarded, std::io::Error> {
        let out = self.scratch.join("out");
        // What the run before left must not be taken for this one's; its absence is the usual case.
        let _ = fs::remove_file(&out);
        let (program, arguments) = self.command.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
        self.start(
            Command::new(program)
                .args(arguments)
                .envs(env.iter().map(|(name, value)| (name, value)))
                .env("KBT_INPUT_SET", set.to_string())
                .env("KBT_OUT", &out),
        )
    }

    fn start(&self, command: &mut Command) -> Result<Guarded, std::io::Error> {
        Guarded::spawn(
            command
                .stdin(Stdio::null())
                // Files, not pipes: a process left behind cannot hold them open.
                .stdout(File::create(self.scratch.join("stdout"))?)
                .stderr(File::create(self.scratch.join("stderr"))?),
        )
    }

    /// The other work, to its end. Where it fails, the runs are not what was asked for.
    fn work_between(&self) -> Result<(), RunFailure> {
        let Some(work) = &self.between else { return Ok(()) };
        let started = self.start(Command::new("sh").args(["-c", work]));
        let problem = match started.and_then(|running| self.wait(running)) {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => {
                let (ended, said) = (words(status), self.stderr_tail());
                if said.is_empty() { ended } else { format!("{ended}: {said}") }
            }
            Ok(None) => format!("it was still running after {} s and was killed", self.limit.as_secs()),
            Err(error) => error.to_string(),
        };
        self.between_failed.replace(Some(problem.clone()));
        Err(RunFailure::Start(format!("the work between two runs failed: {problem}")))
    }

    /// An error where the work between two runs failed, which says nothing of the command.
    pub(super) fn check_between(&self) -> Result<(), Failure> {
        match &*self.between_failed.borrow() {
            None => Ok(()),
            Some(problem) => Err(Failure::input(format!("--between: {problem}"))),
        }
    }

    /// Waits for the end, and ends whatever is left; `None` where the limit came first.
    fn wait(&self, running: Guarded) -> Result<Option<ExitStatus>, std::io::Error> {
        let started = Instant::now();
        let mut pause = Duration::from_millis(1);
        while !running.has_ended() {
            if started.elapsed() >= self.limit {
                running.end()?;
                return Ok(None);
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        running.end().map(Some)
    }

    fn stderr_tail(&self) -> String {
        let bytes = fs::read(self.scratch.join("stderr")).unwrap_or_default();
        let text =
            String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(STDERR_TAIL)..]).trim().to_owned();
        text.lines().last().unwrap_or_default().to_owned()
    }

    fn output(&self) -> Result<RunOutput, RunFailure> {
        let failure = |problem: String| RunFailure::Output(problem);
        let stdout = fs::read(self.scratch.join("stdout")).map_err(|e| failure(e.to_string()))?;
        for line in String::from_utf8_lossy(&stdout[..stdout.len().min(1 << 16)]).lines() {
            if let Some(name) = line.strip_prefix("kbt-device ") {
                self.device.replace(Some(name.trim().to_owned()));
            } else if let Some(version) = line.strip_prefix("kbt-driver ") {
                self.driver.replace(Some(version.trim().to_owned()));
            }
        }
        let bytes = match fs::read(self.scratch.join("out")) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => stdout,
            Err(e) => return Err(failure(e.to_string())),
        };
        if bytes.is_empty() {
            return Err(failure("it wrote neither $KBT_OUT nor anything to standard output".to_owned()));
        }
        RunOutput::from_bytes(bytes).map_err(|e| failure(e.to_string()))
    }
}

fn words(status: ExitStatus) -> String {
    status.code().map_or_else(
        || format!("signal {}", status.signal().unwrap_or(0)),
        |code| format!("exit code {code}"),
    )
}

impl Runner for Process {
    fn run(&self, env: &[(String, String)], set: u32) -> Result<RunOutput, RunFailure> {
        if self.runs.get() > 0 {
            self.work_between()?;
        }
        self.runs.set(self.runs.get() + 1);
        self.progress();
        let start = |e: std::io::Error| RunFailure::Start(format!("{}: {e}", self.command[0]));
        let running = self.spawn(env, set).map_err(start)?;
        match self.wait(running).map_err(start)? {
            None => Err(RunFailure::TimedOut { limit_s: self.limit.as_secs() }),
            Some(status) if status.success() => self.output(),
            Some(status) => Err(RunFailure::Failed { status: words(status), stderr: self.stderr_tail() }),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Scratch that cannot be removed is left to the system's own cleaning.
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Format;
    use kbt_validate::flake::{FlakeFinding, FlakePlan, flake};
    use std::collections::BTreeMap;

    fn shell(script: &str) -> Process {
        let args = RunArgs {
            sets: 2,
            rate: 0.05,
            confidence: 0.95,
            limit_s: 60,
            between: None,
            format: Format::Text,
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        };
        Process::new(&args, None).unwrap()
    }

    fn once(script: &str) -> Result<RunOutput, RunFailure> {
        shell(script).run(&[("KNOB".to_owned(), "7".to_owned())], 1)
    }

    #[test]
    fn the_output_is_the_file_or_else_standard_output() {
        let bytes = |text: &str| Ok(RunOutput::Bytes(text.as_bytes().to_vec()));
        assert_eq!(once("printf $KNOB$KBT_INPUT_SET"), bytes("71"));
        assert_eq!(once("echo talk; printf file > $KBT_OUT"), bytes("file"));
        assert!(matches!(once("true"), Err(RunFailure::Output(_))));
        let failed =
            RunFailure::Failed { status: "exit code 3".to_owned(), stderr: "no such split".to_owned() };
        assert_eq!(once("echo no such split >&2; exit 3"), Err(failed));
    }

    #[test]
    fn a_planted_race_of_one_in_twenty_is_found_by_the_default_plan() {
        let folder = shell("").scratch.clone();
        fs::create_dir_all(&folder).unwrap();
        let count = folder.join("count");
        let process = shell(&format!(
            "n=$(cat {0} 2>/dev/null || echo 0); echo $((n + 1)) > {0}; \
             if [ $((n % 20)) = 17 ]; then printf bad; else printf good$KBT_INPUT_SET; fi",
            count.display()
        ));
        let result = flake(&process, &FlakePlan::default(), &BTreeMap::new(), process.provenance("flake"));
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!((result.finding, result.runs_count), (FlakeFinding::DiffersFromItself, 18));
    }

    #[test]
    fn other_work_is_done_between_two_runs_and_must_succeed() {
        let mut process = shell("cat \"${KBT_OUT%out}log\" 2>/dev/null; printf r$KBT_INPUT_SET");
        let log = process.scratch.join("log");
        process.between = Some(format!("printf w >> {}", log.display()));
        let bytes = |text: &str| Ok(RunOutput::Bytes(text.as_bytes().to_vec()));
        assert_eq!(process.run(&[], 0), bytes("r0"), "none before the first");
        assert_eq!(process.run(&[], 1), bytes("wr1"));
        assert_eq!(process.run(&[], 0), bytes("wwr0"));
        assert!(process.check_between().is_ok());
        assert!(process.provenance("flake").by.contains("between two runs"));
        process.between = Some("echo no memory >&2; exit 4".to_owned());
        assert!(matches!(process.run(&[], 1), Err(RunFailure::Start(_))));
        let Err(failure) = process.check_between() else { panic!("it failed") };
        assert!(format!("{failure:?}").contains("exit code 4: no memory"), "{failure:?}");
    }

    #[test]
    fn a_run_past_its_limit_is_killed_with_its_descendants() {
        let mut process = shell("(sleep 0.5; touch \"$KBT_OUT.late\") & sleep 5; printf done");
        process.limit = Duration::from_millis(200);
        assert!(matches!(process.run(&[], 0), Err(RunFailure::TimedOut { .. })));
        std::thread::sleep(Duration::from_millis(600));
        assert!(!process.scratch.join("out.late").exists());
    }

    #[test]
    fn the_device_is_the_one_the_command_names() {
        let process = shell("echo kbt-device NVIDIA H200; echo kbt-driver 580.1");
        assert!(process.provenance("flake").device.unwrap().starts_with("host "));
        process.run(&[], 0).unwrap();
        let provenance = process.provenance("flake");
        assert_eq!(
            (provenance.device.as_deref(), provenance.driver.as_deref()),
            (Some("NVIDIA H200"), Some("580.1"))
        );
    }
}
