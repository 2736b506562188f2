//! The engine for sweeps that outgrow one machine: Slurm job arrays, one task a point.
//!
//! A task is `kbt split run-one DIR/spec.json --index N` and nothing else; it writes its own line to the journal,
//! which lies on the file system that all nodes share. The journal alone says what is finished. Slurm is asked only
//! for what it knows better: which tasks are still queued or running, and why one ended without a line.
//!
//! What lives elsewhere: the loop is in `engine`, Slurm's commands in `commands`, their output in `read`.

mod commands;
mod engine;
pub mod read;

pub use commands::Slurm;
pub use engine::SlurmSweep;
pub use read::{Ended, TaskId};

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A command of the cluster that did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{command}: {problem}")]
pub struct ClusterError {
    /// The command.
    pub command: String,
    /// What it said.
    pub problem: String,
}

/// What the engine needs of a cluster. [`Slurm`] is the real one.
pub trait Cluster {
    /// The most tasks of one array.
    fn max_tasks(&self) -> u32;

    /// Submits a script as an array with tasks from 0, each of which gets its number in `SLURM_ARRAY_TASK_ID`.
    ///
    /// # Errors
    /// Where the cluster does not take it.
    fn submit(&self, script: &Path, tasks: u32, options: &[String]) -> Result<u64, ClusterError>;

    /// The user's tasks that are queued or running.
    ///
    /// # Errors
    /// Where the cluster does not answer.
    fn live(&self) -> Result<BTreeSet<TaskId>, ClusterError>;

    /// What is known of the tasks of a job, ended ones in particular.
    ///
    /// # Errors
    /// Where the cluster does not answer.
    fn ended(&self, job: u64) -> Result<BTreeMap<TaskId, Ended>, ClusterError>;

    /// Cancels jobs.
    ///
    /// # Errors
    /// Where the cluster does not take it.
    fn cancel(&self, jobs: &[u64]) -> Result<(), ClusterError>;
}

/// How points are submitted.
#[derive(Debug, Clone, PartialEq)]
pub struct SlurmOptions {
    /// The program that knows `split run-one`, on every node: kbt itself.
    pub program: PathBuf,
    /// Arguments of sbatch: what a task needs. [`SlurmOptions::ONE_GPU`] where the user names none.
    pub sbatch: Vec<String>,
    /// Between two looks at the queue.
    pub poll: Duration,
    /// How often a point is submitted before it is given up: nodes are lost, points are not.
    pub attempts: u32,
    /// How long the line of a task that has ended may take to arrive over the shared file system.
    pub grace: Duration,
    /// How long the cluster may not answer before the sweep ends; its tasks go on.
    pub patience: Duration,
}

impl SlurmOptions {
    /// What a task asks for by default.
    pub const ONE_GPU: &'static str = "--gpus=1";

    /// One GPU a task, `program` on every node.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            sbatch: vec![Self::ONE_GPU.to_owned()],
            poll: Duration::from_secs(2),
            attempts: 3,
            grace: Duration::from_secs(15),
            patience: Duration::from_secs(900),
        }
    }
}
