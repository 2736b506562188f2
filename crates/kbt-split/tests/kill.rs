//! A sweep that is killed: `kill -9` at random moments loses nothing that was finished and repeats none of it,
//! and leaves no process of the target behind.
//!
//! The test runs itself again as the process that sweeps, with the sweep's directory in `SWEEP_DIR`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use kbt_split::{Choice, SameBytes, Space, Spec, Sweep, journal};
use kbt_target::stats::Rng;
use kbt_target::{ProcessLauncher, Target, TimingPolicy};
use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const KILLS: usize = 50;
const POINTS: usize = 160;

/// Writes its setting to a log when it starts, so that the test knows what ran. The baseline, N = 0, is the
/// fastest, so every other setting is launched as itself and never as another's opponent.
const SCRIPT: &str = "echo $N >> log\n[ -z $KBT_OUT ] || echo o > $KBT_OUT\necho kbt-time-us $((100 + N))\n";

fn spec(folder: &Path) -> Spec {
    let values = (0..POINTS).map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
    let text = format!(
        "schema: kbt.target/1\nname: sh\nrun: {{command: [sh, run.sh]}}\nknobs:\n  - {{name: N, values: [{values}], \
         default: 0}}\noutputs: [{{name: o}}]\nlimits: {{cooldown_s: 0}}\n"
    );
    let target = Target::from_yaml(&text, "sh.yaml", folder).unwrap();
    let space = Space::new(&target, &Choice::default()).unwrap();
    let timing = TimingPolicy { min_blocks: 2, max_blocks: 2, resamples: 50, ..TimingPolicy::default() };
    Spec::new(target, space, timing)
}

#[test]
fn sweeping_child() {
    let Ok(folder) = std::env::var("SWEEP_DIR") else { return };
    let folder = Path::new(&folder);
    let spec = spec(folder);
    let target = spec.target.clone();
    let launcher = ProcessLauncher::new(&target);
    Sweep::prepare(&folder.join("out"), spec, true, &launcher, &SameBytes).unwrap().run().unwrap();
}

fn start(folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sweeping_child"])
        .env("SWEEP_DIR", folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// How often each setting was launched so far.
fn launches(folder: &Path) -> BTreeMap<usize, usize> {
    let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for n in log.lines().filter_map(|l| l.parse().ok()) {
        *counts.entry(n).or_default() += 1;
    }
    counts
}

fn finished(folder: &Path) -> Vec<usize> {
    let path = folder.join("out/journal.jsonl");
    if !path.exists() {
        return Vec::new();
    }
    journal::load(&path).unwrap().records.iter().map(|r| r.index).collect()
}

#[test]
fn kill_at_fifty_random_moments_loses_nothing_finished_and_repeats_none() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("run.sh"), SCRIPT).unwrap();
    let mut rng = Rng::new(2026);
    // What was launched for each point when it was first seen finished: it may not grow.
    let mut settled: BTreeMap<usize, usize> = BTreeMap::new();
    let mut order: Vec<usize> = Vec::new();
    for kill in 0..KILLS {
        let mut child = start(folder);
        // After none to some two points' worth of processes, however fast the machine is, and then a moment more: kills
        // fall into every stage of a point, and into the start.
        let processes = launches(folder).values().sum::<usize>() + rng.below(20);
        let deadline = Instant::now() + Duration::from_secs(60);
        while launches(folder).values().sum::<usize>() < processes && child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "kill {kill}: the sweep does nothing");
            std::thread::sleep(Duration::from_micros(500));
        }
        std::thread::sleep(Duration::from_micros(rng.below(2000) as u64));
        child.kill().unwrap();
        let ended = child.wait().unwrap();
        assert_eq!(ended.signal(), Some(9), "kill {kill} came too late: the sweep was over");
        // The target's process dies with the sweep; it may take a moment to be gone.
        std::thread::sleep(Duration::from_millis(5));
        let (now, counts) = (finished(folder), launches(folder));
        assert_eq!(now[..order.len().min(now.len())], order[..], "kill {kill}: a finished point was lost");
        for index in &now {
            let launched = counts.get(index).copied().unwrap_or(0);
            let before = *settled.entry(*index).or_insert(launched);
            assert!(*index == 0 || launched == before, "kill {kill}: finished point {index} ran again");
        }
        order = now;
    }
    assert!(
        order.len() > 3 && order.len() < POINTS,
        "the kills fell into the sweep: {} points done",
        order.len()
    );
    assert!(start(folder).wait().unwrap().success());
    let (now, counts) = (finished(folder), launches(folder));
    assert_eq!(now[..order.len()], order[..]);
    for index in &order {
        assert!(*index == 0 || counts[index] == settled[index], "finished point {index} ran again");
    }
    let mut all = now;
    all.sort_unstable();
    assert_eq!(all, (0..POINTS).collect::<Vec<_>>(), "every point is there once");
}

/// Starts a sweep whose first process runs this script, waits until `pids` names three processes, and ends the sweep by
/// a signal; none of the three may outlive it.
fn leaves_nothing(script: &str, signal: &str) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("run.sh"), script).unwrap();
    let mut child = start(folder);
    let deadline = Instant::now() + Duration::from_secs(30);
    let pids: Vec<String> = loop {
        let text = std::fs::read_to_string(folder.join("pids")).unwrap_or_default();
        if text.ends_with('\n') && text.lines().count() == 3 {
            break text.lines().map(str::to_owned).collect();
        }
        assert!(Instant::now() < deadline, "the sweep never started its first process");
        std::thread::sleep(Duration::from_millis(5));
    };
    let killed = Command::new("sh").args(["-c", &format!("kill -s {signal} {}", child.id())]).status();
    assert!(killed.unwrap().success());
    child.wait().unwrap();
    for pid in pids {
        while is_alive(&pid) {
            assert!(Instant::now() < deadline, "process {pid} outlived the sweep, which ended by {signal}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[test]
fn a_killed_sweep_leaves_no_process_of_its_target_behind() {
    // The process itself, its child, and one in a session of its own whose parent is gone.
    let script = "echo $$ >> pids\nsh -c 'echo $$ >> pids; sleep 60'&\n\
                  (setsid sh -c 'echo $$ >> pids; exec sleep 60' &)\n";
    for signal in ["KILL", "TERM", "HUP"] {
        leaves_nothing(&format!("{script}wait\n"), signal);
        leaves_nothing(&format!("{script}exec sleep 60\n"), signal);
    }
}

#[test]
fn a_sweep_does_not_go_on_beside_what_a_killed_one_left() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (dir, spec) = (folder.join("out"), spec(folder));
    let launcher = ProcessLauncher::new(&spec.target);
    let prepared = || Sweep::prepare(&dir, spec.clone(), true, &launcher, &SameBytes).map(drop);
    prepared().unwrap();
    let start = |set: Option<&str>| {
        let mut command = Command::new("sleep");
        command.arg("60").env("KBT_OUT", dir.join("points/0/out.safetensors"));
        command.envs(set.map(|set| ("KBT_INPUT_SET", set))).spawn().unwrap()
    };
    // A shell in which someone looks around, and then what a killed guard left.
    let mut other = start(None);
    prepared().unwrap();
    let mut left = start(Some("0"));
    let refused = prepared().unwrap_err().to_string();
    assert!(refused.contains(&format!("{} (sleep)", left.id())) && refused.contains("accepted"), "{refused}");
    assert!(!refused.contains(&other.id().to_string()), "{refused}");
    for child in [&mut left, &mut other] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    prepared().unwrap();
}
