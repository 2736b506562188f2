//! Why a sweep cannot run.

use crate::slurm::ClusterError;
use std::path::{Path, PathBuf};

/// Why a sweep cannot run. What happens to a point is never one of these.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// A file or folder of the sweep cannot be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// Which.
        file: PathBuf,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// A file of the sweep says something that is not accepted.
    #[error("{}: {problem}", file.display())]
    Content {
        /// Which.
        file: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The directory holds a sweep already.
    #[error("{} holds a sweep already; accepted: --resume to go on with it, or another directory", .0.display())]
    NotEmpty(PathBuf),
    /// The directory holds another sweep.
    #[error(
        "{}/spec.json was made from another target file or other options; accepted: the same ones, or another \
         directory", .0.display()
    )]
    OtherSpec(PathBuf),
    /// The directory holds a sweep that is judged by something else.
    #[error(
        "{}: the sweep was begun with {before}, and {now} is given now, so that its settings would not be judged alike; \
         accepted: {before}, or another directory", dir.display()
    )]
    OtherJudging {
        /// The sweep's directory.
        dir: PathBuf,
        /// What it was begun with.
        before: String,
        /// What is given now.
        now: String,
    },
    /// Another process sweeps there now.
    #[error("{} is in use by another sweep", .0.display())]
    Locked(PathBuf),
    /// Processes of a sweep that was killed there still run.
    #[error(
        "{}: processes that an earlier sweep started here still run, and would disturb every time: {processes}; accepted: \
         --resume when they have ended, or are killed", dir.display()
    )]
    RunsOn {
        /// The sweep's directory.
        dir: PathBuf,
        /// Their numbers and names.
        processes: String,
    },
    /// A cluster's command did not do what it was asked.
    #[error("{0}")]
    Cluster(ClusterError),
    /// A point that cannot be confirmed yet.
    #[error("point {index} cannot be timed against the baseline: {why}")]
    NotTimed {
        /// Which.
        index: usize,
        /// What is missing.
        why: String,
    },
    /// There is no point of that index.
    #[error("there is no point {index}; accepted: 0 to {last}")]
    NoPoint {
        /// As asked.
        index: usize,
        /// The last there is.
        last: usize,
    },
}

impl SweepError {
    pub(crate) fn io(file: &Path) -> impl Fn(std::io::Error) -> Self {
        |source| Self::Io { file: file.to_owned(), source }
    }
}
