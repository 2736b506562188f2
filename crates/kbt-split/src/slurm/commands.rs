//! Slurm through its own commands: sbatch, squeue, sacct, scontrol and scancel.

use super::read::{self, Config, Ended, TaskId};
use super::{Cluster, ClusterError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Variables that stand for options of the commands that are read here, or say which array task this is. Those of
/// sbatch stay: sites have their users name an account or a partition in them.
const SHAPING: [&str; 3] = ["SQUEUE_", "SACCT_", "SLURM_ARRAY_"];

/// A Slurm, through the commands on the path.
#[derive(Debug)]
pub struct Slurm {
    config: Config,
    /// The `slurm.conf` to go by, where it is not the machine's own.
    file: Option<PathBuf>,
}

impl Slurm {
    /// Asks the cluster for its settings.
    ///
    /// # Errors
    /// Where Slurm is not installed here or its controller does not answer.
    pub fn connect() -> Result<Self, ClusterError> {
        Self::connect_by(None)
    }

    /// The same for the cluster of a `slurm.conf`, which is the machine's own where absent.
    ///
    /// # Errors
    /// As [`Slurm::connect`].
    pub fn connect_by(file: Option<PathBuf>) -> Result<Self, ClusterError> {
        let slurm = Self { config: Config::parse(""), file };
        let text = run(&mut slurm.command("scontrol", &["show", "config"]))?;
        Ok(Self { config: Config::parse(&text), ..slurm })
    }

    fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(name);
        command.args(arguments).stdin(Stdio::null());
        if let Some(file) = &self.file {
            command.env("SLURM_CONF", file);
        }
        // What the commands take from the environment must not shape a sweep that runs inside a job itself.
        for (key, _) in std::env::vars_os() {
            let name = key.to_string_lossy();
            if SHAPING.iter().any(|prefix| name.starts_with(prefix)) {
                command.env_remove(&key);
            }
        }
        command
    }
}

impl Cluster for Slurm {
    fn max_tasks(&self) -> u32 {
        self.config.max_array_size
    }

    fn submit(&self, script: &Path, tasks: u32, options: &[String]) -> Result<u64, ClusterError> {
        let mut sbatch = self.command("sbatch", &["--parsable"]);
        // A lost task is submitted again by the sweep, which knows what is finished: were Slurm to do it too, the
        // point could run in two places.
        sbatch.arg(format!("--array=0-{}", tasks.saturating_sub(1))).arg("--no-requeue");
        sbatch.args(options).arg(script);
        let text = run(&mut sbatch)?;
        read::submitted(&text).ok_or_else(|| ClusterError {
            command: "sbatch".into(),
            problem: format!("printed no job id: {text}"),
        })
    }

    fn live(&self) -> Result<BTreeSet<TaskId>, ClusterError> {
        // By user and not by job: a job that Slurm has forgotten is an error to squeue.
        let text = run(&mut self.command("squeue", &["--me", "--noheader", "--array", "--format=%i"]))?;
        Ok(read::queued(&text))
    }

    fn ended(&self, job: u64) -> Result<BTreeMap<TaskId, Ended>, ClusterError> {
        // What the controller still remembers, then the records, which are the last word.
        let states = ["--me", "--noheader", "--array", "--states=all", "--format=%i|%T||%N"];
        let remembered = run(&mut self.command("squeue", &states))?;
        let mut tasks = read::parsable(&remembered);
        tasks.retain(|id, _| id.job == job);
        if self.config.accounting {
            let mut sacct = self.command("sacct", &["--allocations", "--parsable2", "--noheader"]);
            sacct.arg(format!("--jobs={job}")).arg("--format=JobID,State,ExitCode,NodeList");
            tasks.extend(read::parsable(&run(&mut sacct)?));
        } else if let Some(log) = &self.config.completion_log
            && let Ok(bytes) = std::fs::read(log)
        {
            // Only Slurm's own user may be allowed to read it; then the controller's memory has to do.
            tasks.extend(read::completions(&String::from_utf8_lossy(&bytes), job));
        }
        Ok(tasks)
    }

    fn cancel(&self, jobs: &[u64]) -> Result<(), ClusterError> {
        let mut scancel = self.command("scancel", &[]);
        // A job that has ended meanwhile is nothing to complain about.
        scancel.arg("--quiet").args(jobs.iter().map(u64::to_string));
        run(&mut scancel).map(drop)
    }
}

fn run(command: &mut Command) -> Result<String, ClusterError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |problem: String| ClusterError { command: name.clone(), problem };
    let output = command.output().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => failed(
            "not found; the engine `slurm` needs Slurm's commands on the path (accepted too: local)".into(),
        ),
        _ => failed(e.to_string()),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", output.status, said.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
