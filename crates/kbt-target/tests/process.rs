//! The process runner on real processes: shell scripts that end in every way a target can.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod readers;

use kbt_target::check::FindingState;
use kbt_target::{Launch, LaunchRequest, Launcher, ProcessLauncher, Setting, Status, Target, TraceLevel};
use readers::Fake;
use std::path::Path;
use std::time::{Duration, Instant};

/// A target whose one process is a shell script.
fn target(folder: &Path, script: &str, extra: &str) -> Target {
    std::fs::write(folder.join("run.sh"), script).unwrap();
    let text = format!(
        "schema: kbt.target/1\nname: sh\nrun:\n  command: [sh, run.sh, '{{N}}']\n  env: {{LISTED: 1}}\nknobs:\n  \
         - {{name: MODE, values: [a, b], default: a}}\n  - {{name: N, set: argument, values: [1, 2], default: 1}}\n{extra}"
    );
    Target::from_yaml(&text, "sh.yaml", folder).unwrap()
}

fn run(script: &str, extra: &str, request: impl FnOnce(&Path) -> LaunchRequest) -> Launch {
    let folder = tempfile::tempdir().unwrap();
    let target = target(folder.path(), script, extra);
    ProcessLauncher::new(&target).launch(&request(folder.path()))
}

fn ends(script: &str, expect: &Status) {
    // Only a hang meets its limit, on a busy machine too.
    let limit = if script.starts_with("sleep") { "limits: {run_s: 0.5}\n" } else { "" };
    let launch = run(script, limit, |_| LaunchRequest::timed(Setting::default()));
    assert_eq!(&launch.status, expect, "{script}");
}

#[test]
fn every_ending_is_a_status_of_its_own() {
    ends("echo kbt-time-us 5", &Status::Ok);
    ends("echo no >&2; echo because >&2; exit 3", &Status::Refused { reason: "because".into() });
    ends("echo kbt: refused: why >&2; exit 3", &Status::Refused { reason: "why".into() });
    ends("exit 7", &Status::Exit { code: 7 });
    ends("kill -SEGV $$", &Status::Signal { signal: 11 });
    ends("sleep 60", &Status::TimedOut { limit_s: 0.5 });
    ends("echo done", &Status::NoTime { looked_for: "lines `kbt-time-us N`".into() });
    let bad = |line: &str| Status::BadTime { line: line.into() };
    ends("echo kbt-time-us 5; echo kbt-time-us nan; echo kbt-time-us 0", &bad("kbt-time-us nan"));
    ends("echo kbt-time-us 5; echo kbt-time-us 1e300", &bad("kbt-time-us 1e300"));
    ends("echo kbt-time-us 3600000001", &bad("kbt-time-us 3600000001"));
    ends("echo kbt-time-us 3600000000", &Status::Ok);
    ends("echo kbt-time-us -5; exit 7", &Status::Exit { code: 7 });
    assert!(bad("kbt-time-us 0").to_string().contains("`kbt-time-us 0`, which is no time; accepted"));
}

#[test]
fn times_and_tails_come_back_whole() {
    let script = "yes filler | head -n 200000; for t in 3 1 2; do echo kbt-time-us $t; done; echo last >&2";
    let launch = run(script, "", |_| LaunchRequest::timed(Setting::default()));
    assert!(launch.is_ok(), "{}", launch.status);
    assert_eq!(launch.report.times_us, [3.0, 1.0, 2.0]);
    assert_eq!(launch.sample().unwrap().time_us, 2.0);
    assert!(launch.stdout_tail.len() <= 8192 && launch.stdout_tail.ends_with("kbt-time-us 2\n"));
    assert_eq!(launch.stderr_tail, "last\n");
}

#[test]
fn the_environment_is_the_minimum_what_is_listed_the_knobs_and_nothing_else() {
    // cargo sets CARGO_* for every test, which stands for any secret of the user's shell.
    assert!(std::env::vars().any(|(k, _)| k.starts_with("CARGO")));
    let script = "env | sort; echo arg $1";
    let launch = run(script, "", |folder| LaunchRequest {
        setting: Setting::default().with("MODE", "b").with("N", "2"),
        input_set: 4,
        inputs: Some(folder.join("in")),
        gpu: Some("1".into()),
        ..LaunchRequest::default()
    });
    let allowed =
        ["LISTED", "MODE", "KBT_INPUT_SET", "KBT_INPUTS", "KBT_TRACE", "PWD", "SHLVL", "OLDPWD", "_"];
    for line in launch.stdout_tail.lines().filter(|l| l.contains('=')) {
        let name = line.split('=').next().unwrap();
        assert!(allowed.contains(&name) || kbt_target::MINIMUM.contains(&name), "{line}");
    }
    for line in ["LISTED=1", "MODE=b", "KBT_INPUT_SET=4", "KBT_TRACE=off", "CUDA_VISIBLE_DEVICES=1", "arg 2"]
    {
        assert!(launch.stdout_tail.lines().any(|l| l == line), "{line} in {}", launch.stdout_tail);
    }
    assert_eq!(launch.environment.get("MODE").map(String::as_str), Some("b"));
}

#[test]
fn a_setting_has_caches_of_its_own_unless_the_file_says_otherwise() {
    let script = "mkdir -p $TRITON_CACHE_DIR && env; grep . /proc/self/oom_score_adj; ulimit -c";
    let own = |folder: &Path| LaunchRequest { cache: Some(folder.join("c")), ..LaunchRequest::default() };
    let launch = run(script, "", own);
    assert!(launch.is_ok(), "{}", launch.stderr_tail);
    let line = |name: &str| launch.environment.get(name).cloned().unwrap_or_default();
    for name in kbt_target::CACHES {
        assert!(line(name).ends_with(&format!("/c/{name}")), "{name}={}", line(name));
    }
    let last: Vec<&str> = launch.stdout_tail.lines().rev().take(2).collect();
    assert_eq!(last, ["0", "1000"], "no core file, and the first to go when memory runs out");
    let folder = tempfile::tempdir().unwrap();
    let text = "schema: kbt.target/1\nname: sh\nrun: {command: [sh], env: {TRITON_CACHE_DIR: /mine}}\n";
    let target = Target::from_yaml(text, "sh.yaml", folder.path()).unwrap();
    let environment = ProcessLauncher::new(&target).environment(&own(folder.path()));
    assert_eq!(environment.get("TRITON_CACHE_DIR").map(String::as_str), Some("/mine"));
    let shared = ProcessLauncher::new(&target).environment(&LaunchRequest::default());
    assert!(!shared.contains_key("CUDA_CACHE_PATH"));
}

#[test]
fn the_build_and_the_reference_are_told_what_they_need_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let text = "schema: kbt.target/1\nname: k\nrun: {command: [sh, -c, 'echo arch $KBT_ARCH']}\n\
                build: {command: [sh, -c, 'env > $KBT_DUMP/env; echo {KBT_ARCH} {KBT_COMPUTE_ARCH}; ls {KBT_DUMP}'], env: {OWN: 1}}\n\
                reference: {command: [sh, -c, 'cat $KBT_INPUTS/x > $KBT_OUT']}\n";
    let target = Target::from_yaml(text, "k.yaml", folder.path()).unwrap();
    let launcher = ProcessLauncher::new(&target).for_arch("sm_103a");
    let built = launcher.build(Some(folder.path())).unwrap();
    assert_eq!(built.stdout_tail, "sm_103a compute_103a\nenv\n", "{}", built.stderr_tail);
    let env = std::fs::read_to_string(folder.path().join("env")).unwrap();
    assert!(env.contains("KBT_COMPUTE_ARCH=compute_103a\n"), "{env}");
    assert!(env.contains("KBT_ARCH=sm_103a\n") && env.contains("OWN=1\n") && !env.contains("CARGO"), "{env}");
    assert_eq!(launcher.launch(&LaunchRequest::default()).stdout_tail, "arch sm_103a\n");
    let out = folder.path().join("right");
    std::fs::write(&out, "from last week").unwrap();
    let missing = launcher.reference(folder.path(), &out).unwrap();
    assert_eq!(missing.status, Status::Exit { code: 1 });
    std::fs::write(folder.path().join("x"), "right").unwrap();
    assert!(launcher.reference(folder.path(), &out).unwrap().is_ok());
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "right");
}

#[test]
fn outputs_and_traces_must_be_written_by_this_very_run() {
    let stale = |folder: &Path| {
        std::fs::write(folder.join("o"), "from last week").unwrap();
        LaunchRequest::saving(Setting::default(), folder.join("o"))
    };
    assert!(matches!(run("true", "", stale).status, Status::OutputMissing { .. }));
    let folder = run("rm -f $KBT_OUT; mkdir $KBT_OUT", "", stale).status;
    assert!(matches!(folder, Status::OutputNoFile { .. }), "{folder}");
    assert!(
        folder.to_string().contains("/o: a directory") && folder.to_string().contains("accepted: a file")
    );
    assert_eq!(run("echo x > $KBT_OUT", "", stale).status, Status::Ok);
    let extra = "trace: {format: kbt, levels: {barrier: {}, coarse: {PROFILE: 1}}}\n";
    let traced = |level| {
        move |folder: &Path| LaunchRequest {
            trace: Some((level, folder.join("t"))),
            ..LaunchRequest::default()
        }
    };
    assert!(matches!(run("true", extra, traced(TraceLevel::Coarse)).status, Status::OutputMissing { .. }));
    let script = "test $KBT_TRACE = coarse && test $PROFILE = 1 && echo x > $KBT_TRACE_OUT";
    assert_eq!(run(script, extra, traced(TraceLevel::Coarse)).status, Status::Ok);
    assert_eq!(run("true", extra, traced(TraceLevel::Barrier)).status, Status::Ok);
}

/// A background process that holds the pipes open for a minute; its number is in `pid`.
const LEFT: &str = "sleep 60 & echo $! > pid";
/// The same in a session of its own, which no signal to the group reaches.
const DETACHED: &str = "setsid sh -c 'echo $$ > pid.part; mv pid.part pid; exec sleep 60' & until [ -e pid ]; do sleep 0.01; done";

/// Runs one of these before a script.
fn leaves_nothing(left: &str, script: &str, extra: &str, expect: &Status) {
    let folder = tempfile::tempdir().unwrap();
    let target = target(folder.path(), &format!("{left}; {script}"), extra);
    let started = Instant::now();
    let launch = ProcessLauncher::new(&target).launch(&LaunchRequest::default());
    assert_eq!(&launch.status, expect);
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    let pid = std::fs::read_to_string(folder.path().join("pid")).unwrap();
    let alive = || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        // A zombie is dead, and waits for its new parent.
        !stat.is_empty() && !stat.contains(") Z ")
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while alive() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!alive(), "process {pid} outlived what started it");
}

#[test]
fn a_hang_is_killed_with_its_children() {
    for left in [LEFT, DETACHED] {
        leaves_nothing(left, "sleep 60", "limits: {run_s: 1}\n", &Status::TimedOut { limit_s: 1.0 });
    }
}

#[test]
fn what_a_finished_process_leaves_running_is_killed_too() {
    for left in [LEFT, DETACHED] {
        leaves_nothing(left, "exit 0", "", &Status::Ok);
        leaves_nothing(left, "kill -SEGV $$", "", &Status::Signal { signal: 11 });
    }
}

#[test]
fn what_is_left_behind_is_what_nobody_watches() {
    let folder = tempfile::tempdir().unwrap();
    let script = "sh -c 'echo $$ > pid.part; mv pid.part pid; sleep 60'; true";
    let target = target(folder.path(), script, "limits: {run_s: 2}\n");
    let request = LaunchRequest { inputs: Some(folder.path().join("in")), ..LaunchRequest::default() };
    std::thread::scope(|scope| {
        let running = scope.spawn(|| ProcessLauncher::new(&target).launch(&request));
        while !folder.path().join("pid").exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        // A child that kbt did not start under a guard has the same environment.
        let variables = [("KBT_INPUT_SET", "0".into()), ("KBT_INPUTS", folder.path().join("in"))];
        let mut alone = std::process::Command::new("sleep").arg("60").envs(variables).spawn().unwrap();
        // By another name of the directory too.
        let other = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(folder.path(), other.path().join("link")).unwrap();
        let lefts = [folder.path(), &other.path().join("link")].map(kbt_target::left_behind);
        alone.kill().unwrap();
        alone.wait().unwrap();
        for left in lefts {
            assert_eq!(left, [format!("{} (sleep)", alone.id())]);
        }
        assert!(matches!(running.join().unwrap().status, Status::TimedOut { .. }));
    });
}

/// Whoever starts kbt may ignore the ends of its children, which kbt inherits: the test runs itself so, by bash, since
/// dash does not pass it on.
#[test]
fn a_run_ends_where_the_ends_of_children_are_ignored() {
    if std::env::var_os("IGNORES_CHILDREN").is_some() {
        return ends("echo kbt-time-us 5", &Status::Ok);
    }
    let own = std::env::current_exe().unwrap();
    let line = "trap '' CHLD; exec \"$0\" --exact a_run_ends_where_the_ends_of_children_are_ignored";
    let mut inner = std::process::Command::new("bash");
    let mut inner = inner.args(["-c", line]).arg(own).env("IGNORES_CHILDREN", "1").spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let ended = loop {
        match inner.try_wait().unwrap() {
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            ended => break ended,
        }
    };
    let _ = inner.kill();
    assert!(ended.is_some_and(|e| e.success()), "{ended:?}");
}

#[test]
fn memory_over_the_limit_ends_the_process() {
    // A shell variable that doubles: 64 MB and more within the second.
    let script = "x=0123456789abcdef; while true; do x=$x$x; [ ${#x} -gt 200000000 ] && sleep 60; done";
    // What it started counts as well, in a session of its own too.
    let detached = format!("setsid sh -c '{script}' & wait");
    for script in [script, &detached] {
        let launch = run(script, "limits: {run_s: 30, memory_mb: 64}\n", |_| LaunchRequest::default());
        assert_eq!(launch.status, Status::OverMemory { limit_mb: 64 }, "{script}");
    }
}

#[test]
fn a_program_that_is_not_there_and_the_program_kbt() {
    let text = "schema: kbt.target/1\nname: k\nrun: {command: [./nothing]}\n";
    let target = Target::from_yaml(text, "k.yaml", Path::new("")).unwrap();
    let launch = ProcessLauncher::new(&target).launch(&LaunchRequest::default());
    assert!(
        matches!(launch.status, Status::NotStarted { ref reason } if reason.contains("nothing")),
        "{launch:?}"
    );
    let text = "schema: kbt.target/1\nname: k\nrun: {command: [kbt, -c, 'echo kbt-time-us 2']}\n";
    let target = Target::from_yaml(text, "k.yaml", Path::new("")).unwrap();
    let launcher = ProcessLauncher::new(&target).with_kbt("/bin/sh");
    assert_eq!(launcher.launch(&LaunchRequest::timed(Setting::default())).report.times_us, [2.0]);
}

#[test]
fn a_check_says_what_the_ladder_can_do() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo kbt-time-us 5; echo kbt-device Fake; [ -z $KBT_OUT ] || echo x > $KBT_OUT\n\
                  [ -z $KBT_DUMP ] || { echo .version 8.8; echo .target sm_90a; } > $KBT_DUMP/k.ptx; ls $KBT_INPUTS >/dev/null";
    let extra = "outputs: [{name: y}]\ntrace: {format: kbt, levels: {coarse: {}}}\nfacts: {formula: y, shapes: {n: 1}}\n";
    let target = target(folder.path(), script, extra);
    let scratch = folder.path().join("scratch");
    let report =
        kbt_target::check::check(&target, &ProcessLauncher::new(&target), &scratch, &Fake::default())
            .unwrap();
    let ready: Vec<(&str, bool)> = report.steps.iter().map(|a| (a.step.as_str(), a.ready)).collect();
    assert_eq!(
        ready,
        [
            ("triage", true),
            ("rates", true),
            ("trace", false),
            ("schedule", true),
            ("algebra", true),
            ("handoff", true),
            ("validate", true)
        ]
    );
    assert_eq!(report.state(), FindingState::Failed, "the trace was promised and is not written");
    let text = report.to_string();
    assert!(
        text.contains("FAILED   trace coarse") && text.contains("5.00 us, median of 1 launches (Fake)"),
        "{text}"
    );
    // What the file does not give, no run would; and what is no PTX serves nobody.
    let text = "schema: kbt.target/1\nname: k\nrun: {command: [sh, -c, 'echo not here >&2; exit 3']}\n\
                build: {command: [sh, -c, 'echo nothing > $KBT_DUMP/k.ptx; echo x > $KBT_DUMP/k.cubin']}\n";
    let target = Target::from_yaml(text, "k.yaml", folder.path()).unwrap();
    let bare = kbt_target::check::check(
        &target,
        &ProcessLauncher::new(&target),
        &scratch.join("bare"),
        &Fake::default(),
    );
    let text = bare.unwrap().to_string();
    for line in [
        "it is no PTX: it has no `.version` and `.target`",
        "it is no cubin: no ELF file",
        "refused  trace     needs a `trace:`",
        "refused  handoff   needs `knobs:`",
        "refused  validate  needs `outputs:`",
        "refused  triage    the run was refused here: not here",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // Nor does a run that was refused say that the build left nothing.
    let text = "schema: kbt.target/1\nname: k\nrun: {command: [sh, -c, 'echo not here >&2; exit 3']}\n\
                build: {command: ['true']}\n";
    let target = Target::from_yaml(text, "k.yaml", folder.path()).unwrap();
    let launcher = ProcessLauncher::new(&target);
    let left = kbt_target::check::check(&target, &launcher, &scratch.join("left"), &Fake::default()).unwrap();
    let said = "refused  rates     the run was refused here: not here; the build left no machine code: needs PTX or a cubin";
    assert!(left.to_string().contains(said), "{left}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(kbt_evidence::audit::uncovered_numbers(&json), Vec::<String>::new());
}

#[test]
fn after_a_failed_build_nothing_is_launched_and_the_check_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let text = "schema: kbt.target/1\nname: k\nbuild: {command: [sh, -c, 'echo no such header >&2; exit 1'],\n  \
                artifacts: {ptx: [old.ptx]}}\nrun: {command: [sh, -c, 'touch launched; echo kbt-time-us 5']}\n\
                trace: {format: kbt, levels: {coarse: {}}}\nreference: {command: [sh, -c, 'touch launched']}\n\
                facts: {formula: y}\n";
    let target = Target::from_yaml(text, "k.yaml", folder.path()).unwrap();
    std::fs::write(folder.path().join("old.ptx"), "bad, of another build").unwrap();
    let scratch = folder.path().join("scratch");
    let fake = Fake { lack: Some("facts.operator"), ..Fake::default() };
    let report = kbt_target::check::check(&target, &ProcessLauncher::new(&target), &scratch, &fake).unwrap();
    assert!(!folder.path().join("launched").exists());
    assert_eq!(report.state(), FindingState::Failed);
    let states: Vec<(&str, FindingState)> =
        report.findings.iter().map(|f| (f.what.as_str(), f.state)).collect();
    assert_eq!(
        states,
        [
            ("build", FindingState::Failed),
            ("run", FindingState::NotTried),
            ("trace coarse", FindingState::NotTried),
            ("reference", FindingState::NotTried),
            ("machine code", FindingState::Failed),
            ("kernel", FindingState::Failed)
        ]
    );
    let text = report.to_string();
    assert!(
        text.contains("not run  run           the build failed, so what would run is not this build's"),
        "{text}"
    );
    assert!(text.contains("STALE: the build did not write it"), "{text}");
    assert!(text.contains("refused  triage    its facts lack facts.operator"), "{text}");
    assert!(text.contains("not tried, since the build failed"), "{text}");
}
