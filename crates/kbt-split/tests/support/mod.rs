//! A Slurm of the test's own: controller, two nodes and munge, all on loopback, from a temporary folder.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The programs that it needs.
const PROGRAMS: [&str; 8] =
    ["munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel", "sinfo"];

/// The nodes.
const NODES: [&str; 2] = ["n1", "n2"];

/// Running daemons; they end with this.
pub(crate) struct LoopbackSlurm {
    folder: tempfile::TempDir,
}

/// Lets everyone run a file.
pub(crate) fn make_executable(path: &Path) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// A program on the path or where daemons are installed.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|f| f.join(name)).find(|f| f.is_file())
}

fn must(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {said}", output.status);
    output
}

fn pid_in(path: &Path) -> Option<i32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: `kill` takes two integers and touches no memory of ours.
    unsafe { libc::kill(pid, signal) };
}

/// Ports that nobody listened on a moment ago.
fn free_ports<const N: usize>() -> [u16; N] {
    // All are held until the last is found, so that they differ.
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|l| l.local_addr().unwrap().port())
}

impl LoopbackSlurm {
    /// Starts it; `None`, with a loud word, where it is not installed and not required.
    pub(crate) fn start() -> Option<Self> {
        let missing: Vec<&str> = PROGRAMS.into_iter().filter(|p| find(p).is_none()).collect();
        if !missing.is_empty() {
            let required = std::env::var("KBT_REQUIRE_SLURM").is_ok_and(|v| v == "1");
            assert!(!required, "KBT_REQUIRE_SLURM is 1, but there is no {}", missing.join(", "));
            eprintln!(
                "SKIPPED: Slurm is not installed ({} missing), so no array was run",
                missing.join(", ")
            );
            return None;
        }
        let slurm = Self { folder: tempfile::tempdir().unwrap() };
        slurm.start_munge();
        slurm.configure();
        must(Command::new(find("slurmctld")?).arg("-c").env("SLURM_CONF", slurm.config()));
        for node in NODES {
            let mut slurmd = Command::new(find("slurmd")?);
            must(slurmd.args(["-c", "-N", node]).env("SLURM_CONF", slurm.config()));
        }
        slurm.wait_until_idle();
        Some(slurm)
    }

    /// Its `slurm.conf`.
    pub(crate) fn config(&self) -> PathBuf {
        self.path("slurm.conf")
    }

    /// Whether Slurm has lost count of its GPUs, as it may when a task comes back while its node is being given up: what
    /// runs from then on has no GPU or waits for one for ever.
    pub(crate) fn has_lost_count(&self) -> bool {
        let log = std::fs::read_to_string(self.path("slurmctld.log")).unwrap_or_default();
        log.contains("bad node_offset")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env("SLURM_CONF", self.config());
        command
    }

    fn start_munge(&self) {
        // munge wants its folder to be writable by its owner alone and open to those who use the socket.
        std::fs::set_permissions(self.folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let key = self.path("munge.key");
        // What a test's daemons tell each other on loopback is no secret.
        std::fs::write(&key, [b'k'; 128]).unwrap();
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o400)).unwrap();
        let mut munged = Command::new(find("munged").unwrap());
        for (option, file) in [
            ("key-file", "munge.key"),
            ("socket", "munge.socket"),
            ("pid-file", "munged.pid"),
            ("log-file", "munged.log"),
            ("seed-file", "munged.seed"),
        ] {
            munged.arg(format!("--{option}={}", self.path(file).display()));
        }
        must(munged.arg("--num-threads=2"));
    }

    fn configure(&self) {
        let folder = self.folder.path().display().to_string();
        let host = String::from_utf8(must(Command::new("hostname").arg("-s")).stdout).unwrap();
        let host = host.trim();
        let user = String::from_utf8(must(Command::new("id").arg("-un")).stdout).unwrap();
        let user = user.trim();
        let [controller, first, second] = free_ports();
        for name in ["state", "spool.n1", "spool.n2"] {
            std::fs::create_dir(self.path(name)).unwrap();
        }
        let text = format!(
            "ClusterName=kbt\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={controller}\n\
             AuthType=auth/munge\nAuthInfo=socket={folder}/munge.socket\nCredType=cred/munge\n\
             SlurmUser={user}\nSlurmdUser={user}\nStateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool.%n\n\
             SlurmctldPidFile={folder}/slurmctld.pid\nSlurmdPidFile={folder}/slurmd.%n.pid\n\
             SlurmctldLogFile={folder}/slurmctld.log\nSlurmdLogFile={folder}/slurmd.%n.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\n\
             SchedulerType=sched/backfill\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n\
             SchedulerParameters=batch_sched_delay=0,sched_min_interval=100000,sched_interval=1\n\
             JobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\n\
             JobCompType=jobcomp/filetxt\nJobCompLoc={folder}/jobcomp.log\n\
             SlurmdParameters=config_overrides\nSlurmdTimeout=10\nMaxArraySize=17\nGresTypes=gpu\n\
             NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=2 RealMemory=1000 Gres=gpu:2\n\
             NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=2 RealMemory=1000 Gres=gpu:2\n\
             PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP DefMemPerCPU=100\n"
        );
        std::fs::write(self.path("slurm.conf"), text).unwrap();
        // A generic resource must be a device; these are there on every machine, and nothing opens them.
        let gres = "AutoDetect=off\nNodeName=n[1-2] Name=gpu File=/dev/null\nNodeName=n[1-2] Name=gpu File=/dev/zero\n";
        std::fs::write(self.path("gres.conf"), gres).unwrap();
    }

    fn wait_until_idle(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let states = self.command("sinfo").args(["-N", "-h", "-o", "%T"]).output().unwrap().stdout;
            let states = String::from_utf8(states).unwrap();
            if states.lines().filter(|s| *s == "idle").count() == NODES.len() {
                return;
            }
            let log = std::fs::read_to_string(self.path("slurmctld.log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "the nodes did not come up: {states}\n{log}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// The ids of the jobs that run on a node.
    fn jobs_on(&self, node: &str) -> Vec<String> {
        let output = self.command("squeue").args(["-h", "-t", "R", "-w", node, "-o", "%A"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// Whether a job runs on a node.
    pub(crate) fn is_busy(&self, node: &str) -> bool {
        !self.jobs_on(node).is_empty()
    }

    /// Stops a node as a power cut would: its daemon first, then the keepers of its jobs, then the jobs, so that
    /// none of them can still report.
    pub(crate) fn lose_node(&self, node: &str) {
        let jobs = self.jobs_on(node);
        let daemon = pid_in(&self.path(&format!("slurmd.{node}.pid"))).unwrap();
        kill(daemon, libc::SIGKILL);
        let processes = || -> Vec<(i32, String, String)> {
            let entries = std::fs::read_dir("/proc").unwrap().flatten();
            let read = |pid: i32, file: &str| {
                let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                String::from_utf8_lossy(&bytes).replace('\0', " ")
            };
            let pids = entries.filter_map(|e| e.file_name().to_str()?.parse().ok());
            pids.map(|pid| (pid, read(pid, "cmdline"), read(pid, "environ"))).collect()
        };
        let conf = self.config().display().to_string();
        let all = processes();
        let keepers = all.iter().filter(|(_, command, _)| {
            jobs.iter().any(|job| command.starts_with(&format!("slurmstepd: [{job}.")))
        });
        keepers.for_each(|(pid, ..)| kill(*pid, libc::SIGKILL));
        let of_node = all.iter().filter(|(_, _, environment)| {
            environment.contains(&format!("SLURMD_NODENAME={node} ")) && environment.contains(&conf)
        });
        of_node.for_each(|(pid, ..)| kill(*pid, libc::SIGKILL));
    }
}

impl Drop for LoopbackSlurm {
    fn drop(&mut self) {
        // After a test that failed half-way, jobs may still run; after one that passed, there are none.
        if std::thread::panicking() {
            let _ = self.command("scancel").args(["--quiet", "--name=kbt-sh"]).output();
            std::thread::sleep(Duration::from_secs(2));
        }
        for file in ["slurmd.n1.pid", "slurmd.n2.pid", "slurmctld.pid", "munged.pid"] {
            if let Some(pid) = pid_in(&self.path(file)) {
                // A node that was lost on purpose has left its number behind; it is nobody's by now, or the daemon's.
                let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                if file.starts_with(name.trim()) && !name.trim().is_empty() {
                    kill(pid, libc::SIGTERM);
                }
            }
        }
        // Their last words go into the folder that is about to be removed.
        std::thread::sleep(Duration::from_millis(500));
    }
}
