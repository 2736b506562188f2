//! Reads what Slurm's commands and its job-completion log print. What is not understood is left out: the journal
//! says which points are finished, and this only why one is not.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// A task of an array job: `JOB_TASK`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId {
    /// The array's job id.
    pub job: u64,
    /// The task's number in the array.
    pub task: u32,
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.job, self.task)
    }
}

/// The last that Slurm says of a task that is no longer queued or running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Its state, in Slurm's word: `COMPLETED`, `NODE_FAIL`, `CANCELLED by 0`, ...
    pub state: String,
    /// `code:signal`; a segmentation fault is `0:11`. Empty where unknown.
    pub exit: String,
    /// Where it ran; empty where it never did.
    pub node: String,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.state)?;
        if !self.exit.is_empty() {
            write!(f, " (exit {})", self.exit)?;
        }
        if !self.node.is_empty() {
            write!(f, " on {}", self.node)?;
        }
        Ok(())
    }
}

/// What a task's last state means for its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// The node or the place on it went away: the point is innocent.
    Lost,
    /// Somebody cancelled it.
    Cancelled,
    /// It ended for reasons of its own: it would again.
    Failed,
}

impl Fate {
    pub(super) fn of(state: &str) -> Self {
        match state.split(' ').next().unwrap_or_default() {
            "FAILED" | "OUT_OF_MEMORY" | "TIMEOUT" | "DEADLINE" => Self::Failed,
            "CANCELLED" => Self::Cancelled,
            // NODE_FAIL, BOOT_FAIL, PREEMPTED, REVOKED, states of a running task whose end nobody saw, and
            // COMPLETED without a line, which a file system that lost it explains best.
            _ => Self::Lost,
        }
    }
}

/// What the settings of a cluster say that concerns arrays and their records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Arrays have indices below this.
    pub max_array_size: u32,
    /// Whether sacct can be asked.
    pub accounting: bool,
    /// The job-completion log, where it is a text file.
    pub completion_log: Option<String>,
}

impl Config {
    /// Slurm's own default of `MaxArraySize`.
    const DEFAULT_ARRAY: u32 = 1001;

    /// Reads `scontrol show config`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let values: BTreeMap<&str, &str> =
            text.lines().filter_map(|l| l.split_once('=')).map(|(k, v)| (k.trim(), v.trim())).collect();
        let is_set = |value: &&str| !value.is_empty() && !value.ends_with("none") && *value != "(null)";
        let to_file = values.get("JobCompType").is_some_and(|t| t.ends_with("filetxt"));
        Self {
            max_array_size: values
                .get("MaxArraySize")
                .and_then(|v| v.parse().ok())
                .filter(|n| *n > 0)
                .unwrap_or(Self::DEFAULT_ARRAY),
            accounting: values.get("AccountingStorageType").is_some_and(is_set),
            completion_log: values
                .get("JobCompLoc")
                .filter(|v| to_file && is_set(v))
                .map(|v| (*v).to_owned()),
        }
    }
}

/// The job id that `sbatch --parsable` prints: `12`, or `12;cluster`.
#[must_use]
pub fn submitted(text: &str) -> Option<u64> {
    let last = text.lines().rev().find(|l| !l.trim().is_empty())?;
    last.split(';').next()?.trim().parse().ok()
}

/// The tasks that `squeue --noheader --array --format=%i` lists.
#[must_use]
pub fn queued(text: &str) -> BTreeSet<TaskId> {
    text.lines().flat_map(task_ids).collect()
}

/// The tasks in lines of `ID|STATE|EXIT|NODES`, as sacct prints them; squeue has no exit code and prints it empty.
/// Where one was requeued the last line counts.
#[must_use]
pub fn parsable(text: &str) -> BTreeMap<TaskId, Ended> {
    let mut tasks = BTreeMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('|').map(str::trim).collect();
        let [id, state, exit, node, ..] = fields.as_slice() else { continue };
        let none = |s: &str| s.is_empty() || s.starts_with("None") || s.starts_with("(null");
        let node = if none(node) { "" } else { node };
        for task in task_ids(id) {
            let ended = Ended { state: (*state).to_owned(), exit: (*exit).to_owned(), node: node.to_owned() };
            tasks.insert(task, ended);
        }
    }
    tasks
}

/// The tasks of a job in the log of jobcomp/filetxt: `Key=value` words, where a value may hold spaces.
#[must_use]
pub fn completions(text: &str, job: u64) -> BTreeMap<TaskId, Ended> {
    let mut tasks = BTreeMap::new();
    for line in text.lines() {
        let field = |key: &str| {
            let start = line.rfind(&format!(" {key}="))? + key.len() + 2;
            line[start..].split(' ').next().filter(|v| !v.is_empty())
        };
        let number = |key: &str| field(key).and_then(|v| v.parse::<u64>().ok());
        if number("ArrayJobId") != Some(job) {
            continue;
        }
        let Some(task) = number("ArrayTaskId").and_then(|t| u32::try_from(t).ok()) else { continue };
        let text = |key: &str| field(key).unwrap_or_default().to_owned();
        let node = text("NodeList");
        let ended = Ended {
            state: text("JobState"),
            exit: text("ExitCode"),
            node: if node.starts_with("(null") { String::new() } else { node },
        };
        tasks.insert(TaskId { job, task }, ended);
    }
    tasks
}

/// The tasks that an id names: `12_3`, or `12_[3-5,9%2]` for several that are still one record.
fn task_ids(id: &str) -> Vec<TaskId> {
    let Some((job, tasks)) = id.trim().split_once('_') else { return Vec::new() };
    let Ok(job) = job.parse() else { return Vec::new() };
    let tasks = tasks.trim_start_matches('[').trim_end_matches(']');
    let tasks = tasks.split('%').next().unwrap_or_default();
    let mut ids = Vec::new();
    for part in tasks.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>())
            && last.saturating_sub(first) < 10_000_000
        {
            ids.extend((first..=last).map(|task| TaskId { job, task }));
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(ids: &[u32]) -> Vec<TaskId> {
        ids.iter().map(|task| TaskId { job: 12, task: *task }).collect()
    }

    #[test]
    fn settings_are_read_and_what_is_not_there_has_slurms_default() {
        let text = "Configuration data as of 2026-11-30T16:51:43\nAccountingStorageType   = accounting_storage/none\n\
                    JobCompLoc              = /d/jobcomp.log\nJobCompType             = jobcomp/filetxt\n\
                    MaxArraySize            = 17\n";
        let config = Config::parse(text);
        assert_eq!(config.max_array_size, 17);
        assert_eq!((config.accounting, config.completion_log.as_deref()), (false, Some("/d/jobcomp.log")));
        let config =
            Config::parse("AccountingStorageType = accounting_storage/slurmdbd\nJobCompLoc = (null)\n");
        assert_eq!(config, Config { max_array_size: 1001, accounting: true, completion_log: None });
        let config = Config::parse("JobCompType = jobcomp/none\nJobCompLoc = /var/log/slurm_jobcomp.log\n");
        assert_eq!(config.completion_log, None, "the path has a default even where nothing is written");
    }

    #[test]
    fn job_ids_come_with_and_without_a_cluster() {
        assert_eq!(submitted("12\n"), Some(12));
        assert_eq!(submitted("sbatch: note\n12;alpha\n"), Some(12));
        assert_eq!(submitted("Submitted batch job\n"), None);
    }

    #[test]
    fn queued_tasks_may_be_ranges_and_plain_jobs_are_not_ours() {
        let found: Vec<_> = queued("12_3\n12_[5-7,9%2]\n40\nx_1\n").into_iter().collect();
        assert_eq!(found, tasks(&[3, 5, 6, 7, 9]));
    }

    #[test]
    fn sacct_rows_hold_states_with_spaces_and_unstarted_ranges() {
        let text =
            "12_0|COMPLETED|0:0|n1\n12_1|FAILED|0:11|n2\n12_[2-3]|CANCELLED by 0|0:0|None assigned\nbad\n";
        let found = parsable(text);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), tasks(&[0, 1, 2, 3]));
        assert_eq!(found[&TaskId { job: 12, task: 1 }].to_string(), "FAILED (exit 0:11) on n2");
        let cancelled = &found[&TaskId { job: 12, task: 3 }];
        assert_eq!((cancelled.state.as_str(), cancelled.node.as_str()), ("CANCELLED by 0", ""));
    }

    #[test]
    fn the_completion_log_is_read_by_task_whatever_its_paths_hold() {
        let line = |job: u64, task: &str, state: &str, exit: &str| {
            format!(
                "JobId={job} UserId=root(0) Name=kbt JobState={state} Partition=debug NodeList=n2 NodeCnt=1 \
                 WorkDir=/a dir/b ReservationName= ArrayJobId=12 ArrayTaskId={task} DerivedExitCode=0:0 \
                 ExitCode={exit} \n"
            )
        };
        let text = line(13, "0", "COMPLETED", "0:0") + &line(14, "1", "FAILED", "0:11");
        let found = completions(&text, 12);
        assert_eq!(found.keys().copied().collect::<Vec<_>>(), tasks(&[0, 1]));
        assert_eq!(found[&TaskId { job: 12, task: 1 }].to_string(), "FAILED (exit 0:11) on n2");
        let requeued = line(14, "1", "NODE_FAIL", "0:0") + &line(14, "1", "COMPLETED", "0:0");
        let requeued = completions(&requeued, 12);
        assert_eq!(requeued[&TaskId { job: 12, task: 1 }].state, "COMPLETED", "the last line counts");
        assert!(completions(&text, 11).is_empty());
        assert!(completions("JobId=1 ArrayJobId=12 ArrayTaskId=4294967294\n\u{0}\n", 12).len() <= 1);
    }

    #[test]
    fn a_state_says_whether_another_try_can_help() {
        for (state, fate) in [
            ("NODE_FAIL", Fate::Lost),
            ("PREEMPTED", Fate::Lost),
            ("RUNNING", Fate::Lost),
            ("CANCELLED by 1000", Fate::Cancelled),
            ("OUT_OF_MEMORY", Fate::Failed),
            ("TIMEOUT", Fate::Failed),
        ] {
            assert_eq!(Fate::of(state), fate, "{state}");
        }
    }
}
