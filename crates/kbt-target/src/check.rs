//! What the ladder can do with a target: each of its commands is run once, and each step says ready or refused.

mod abilities;
mod readers;

pub use readers::{Readers, Replay, Studied};

use crate::artifacts::{self, Artifact, Snapshot};
use crate::launch::{Launch, LaunchRequest, Launcher, Report, Status};
use crate::process::ProcessLauncher;
use crate::stats::{mad, median};
use crate::{Target, TraceLevel, date};
use abilities::{Code, abilities};
use kbt_evidence::{Figure, Provenance, Step, Unit};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::Path;

/// Whether what was looked at is as the file promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingState {
    /// It is.
    Ok,
    /// It is not.
    Failed,
    /// The command refused to run here, which says nothing of the file.
    Refused,
    /// It was not tried, since what comes before it failed.
    NotTried,
}

impl FindingState {
    const fn of(ok: bool) -> Self {
        if ok { Self::Ok } else { Self::Failed }
    }
}

/// One command or file that was looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at: `build`, `run`, `trace coarse`, `artifacts`.
    pub what: String,
    /// Whether it is as it should be.
    pub state: FindingState,
    /// What was found.
    pub found: String,
    /// The numbers behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
}

/// Whether a step of the ladder can work on the target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ability {
    /// The step.
    pub step: Step,
    /// Whether it can run.
    pub ready: bool,
    /// With what, or what is missing.
    pub why: String,
}

/// The schema that reports of a check state.
pub const SCHEMA: &str = "kbt.target.check/1";

/// The whole answer of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The target's name.
    pub target: String,
    /// What was looked at.
    pub findings: Vec<Finding>,
    /// What each step can do.
    pub steps: Vec<Ability>,
}

impl CheckReport {
    /// The worst of what was found: failed before refused before ok.
    #[must_use]
    pub fn state(&self) -> FindingState {
        let any = |state| self.findings.iter().any(|f| f.state == state);
        let worst = [FindingState::Failed, FindingState::Refused].into_iter().find(|s| any(*s));
        worst.unwrap_or(FindingState::Ok)
    }
}

impl fmt::Display for CheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "target {}", self.target)?;
        for finding in &self.findings {
            let mark = match finding.state {
                FindingState::Ok => "ok",
                FindingState::Failed => "FAILED",
                FindingState::Refused => "refused",
                FindingState::NotTried => "not run",
            };
            writeln!(f, "  {mark:<7}  {:<13} {}", finding.what, finding.found)?;
        }
        writeln!(f, "the ladder on it")?;
        for ability in &self.steps {
            let mark = if ability.ready { "ready  " } else { "refused" };
            writeln!(f, "  {mark}  {:<9} {}", ability.step.as_str(), ability.why)?;
        }
        Ok(())
    }
}

/// The provenance of what a target's process measured: its device and driver in its own words.
#[must_use]
pub fn measured(command: &str, report: &Report) -> Provenance {
    let device = report.device.as_deref().unwrap_or("a device that the target did not name");
    let mut provenance = Provenance::measured(command, device, date::today());
    if let Some(driver) = &report.driver {
        provenance = provenance.with_driver(driver);
    }
    match median(&report.clocks_mhz) {
        Some(mhz) => provenance.with_sm_clock_mhz(mhz),
        None => provenance,
    }
}

/// Runs each command of a target once, at its default setting, in the empty folder `scratch`. After a build that failed
/// nothing is launched: what would run is another build's. What it leaves is read by `readers`, as the ladder would.
///
/// # Errors
/// Only where `scratch` cannot be written; whatever the target does is a finding.
pub fn check(
    target: &Target,
    launcher: &ProcessLauncher<'_>,
    scratch: &Path,
    readers: &dyn Readers,
) -> std::io::Result<CheckReport> {
    let mut findings = Vec::new();
    let before = Snapshot::of(target);
    let (inputs, dump) = (target.input_folder(0, &scratch.join("inputs")), scratch.join("dump"));
    let build_dump = scratch.join("build");
    for folder in [&inputs, &dump, &build_dump] {
        std::fs::create_dir_all(folder)?;
    }
    let built = launcher.build(Some(&build_dump));
    if let Some(launch) = &built {
        findings.push(of_launch("build", launch, "built"));
    }
    let ran = if built.as_ref().is_none_or(Launch::is_ok) {
        let (ran, more) = launched(target, launcher, scratch, &inputs, &dump, readers);
        findings.extend(more);
        ran
    } else {
        findings.extend(not_tried(target));
        Ran::default()
    };
    let mut found = artifacts::find(target, &[&build_dump, &dump], &before);
    // This build's come first, as in the ladder.
    found.sort_by_key(|a| (a.kind, a.stale.is_some()));
    let studied = (!found.is_empty()).then(|| readers.code(&found));
    findings.extend(of_artifacts(target, &found, studied.as_ref()));
    findings.extend(studied.as_ref().map(of_kernel));
    let stale = !found.is_empty() && found.iter().all(|a| a.stale.is_some());
    let steps = abilities(target, &ran, &Code { studied, stale }, readers);
    Ok(CheckReport { schema: SCHEMA.to_owned(), target: target.name.clone(), findings, steps })
}

/// What came of the launches.
#[derive(Default)]
struct Ran {
    /// The run; `None` where it was not tried.
    run: Option<Launch>,
    /// What is wrong with the outputs that it wrote.
    outputs: Option<String>,
    /// Whether the run of a coarse trace left one that can be read; what is wrong where not.
    coarse: Option<Result<(), String>>,
}

/// The launches of a target whose build is there: the run, a run for each level of its trace, the reference.
fn launched(
    target: &Target,
    launcher: &ProcessLauncher<'_>,
    scratch: &Path,
    inputs: &Path,
    dump: &Path,
    readers: &dyn Readers,
) -> (Ran, Vec<Finding>) {
    let out = scratch.join("out.safetensors");
    let run = launcher.launch(&LaunchRequest {
        inputs: Some(inputs.to_owned()),
        out: (!target.outputs.is_empty()).then(|| out.clone()),
        dump: Some(dump.to_owned()),
        ..LaunchRequest::timed(target.default_setting())
    });
    let mut findings = vec![of_run(target, &run)];
    let mut ran = Ran::default();
    if run.is_ok() && !target.outputs.is_empty() {
        let read = readers.outputs(&out);
        findings.push(of_file("outputs", &read, "each of `outputs:` is there"));
        ran.outputs = read.err();
    }
    for level in target.trace.iter().flat_map(|t| t.levels.keys()) {
        let path = scratch.join(format!("{}.trace", level.as_str()));
        let launch = launcher.launch(&LaunchRequest {
            setting: target.default_setting(),
            inputs: Some(inputs.to_owned()),
            trace: Some((*level, path.clone())),
            ..LaunchRequest::default()
        });
        let what = format!("trace {}", level.as_str());
        let mut finding = of_launch(&what, &launch, "traced");
        let mut read = Err(finding.found.clone());
        if launch.is_ok() {
            read = readers.trace(&path);
            finding = of_file(&what, &read, "traced, and the trace reads");
        }
        findings.push(finding);
        if *level == TraceLevel::Coarse {
            ran.coarse = Some(read);
        }
    }
    let right = scratch.join("reference.safetensors");
    if let Some(launch) = run.is_ok().then(|| launcher.reference(inputs, &right)).flatten() {
        findings.push(match launch.is_ok() {
            true => of_file("reference", &readers.outputs(&right), "computed"),
            false => of_launch("reference", &launch, "computed"),
        });
    }
    ran.run = Some(run);
    (ran, findings)
}

/// A file that a command left, as its reader found it.
fn of_file(what: &str, read: &Result<(), String>, good: &str) -> Finding {
    let found = read.as_ref().err().cloned().unwrap_or_else(|| good.to_owned());
    Finding { what: what.to_owned(), state: FindingState::of(read.is_ok()), found, figures: Vec::new() }
}

/// The kernel that is studied and why it is that one, or why none is.
fn of_kernel(studied: &Studied) -> Finding {
    let (state, found) = match &studied.kernel {
        Ok(which) => (FindingState::Ok, which.clone()),
        // That tools are not installed says nothing of the file.
        Err(why) if studied.no_tools => (FindingState::Refused, why.clone()),
        Err(why) => (FindingState::Failed, why.clone()),
    };
    Finding { what: "kernel".into(), state, found, figures: Vec::new() }
}

/// What is not launched after a build that failed.
fn not_tried(target: &Target) -> Vec<Finding> {
    let levels = target.trace.iter().flat_map(|t| t.levels.keys()).map(|l| format!("trace {}", l.as_str()));
    let reference = target.reference.iter().map(|_| "reference".to_owned());
    let skipped = std::iter::once("run".to_owned()).chain(levels).chain(reference);
    skipped
        .map(|what| Finding {
            what,
            state: FindingState::NotTried,
            found: "the build failed, so what would run is not this build's".into(),
            figures: Vec::new(),
        })
        .collect()
}

fn of_launch(what: &str, launch: &Launch, done: &str) -> Finding {
    let (state, found) = match &launch.status {
        Status::Ok => (FindingState::Ok, done.to_owned()),
        Status::Refused { reason } => (FindingState::Refused, reason.clone()),
        _ => (FindingState::Failed, with_stderr(launch)),
    };
    Finding { what: what.to_owned(), state, found, figures: Vec::new() }
}

/// How a run failed, with the last line it wrote about that.
fn with_stderr(launch: &Launch) -> String {
    let last_of = |tail: &str| tail.lines().rev().find(|l| !l.trim().is_empty()).map(str::to_owned);
    if let (Status::NoTime { .. }, Some(line)) = (&launch.status, last_of(&launch.stdout_tail)) {
        return format!("{}; the last line that it printed: {}", launch.status, line.trim());
    }
    match last_of(&launch.stderr_tail) {
        Some(line) => format!("{}; its last words: {}", launch.status, line.trim()),
        None => launch.status.to_string(),
    }
}

fn of_run(target: &Target, run: &Launch) -> Finding {
    let times = &run.report.times_us;
    let mut finding = of_launch("run", run, "ran");
    let (Some(time), Some(spread), true) = (median(times), mad(times), run.is_ok()) else { return finding };
    let provenance = measured(&target.run.command.join(" "), &run.report);
    let figure = Figure::new("time of a launch", time, Unit::Microseconds, provenance).with_spread(
        time - spread,
        time + spread,
        format!("median absolute deviation of {} launches", times.len()),
    );
    let device = run.report.device.as_deref().unwrap_or("no device named: print `kbt-device NAME`");
    finding.found = format!("{time:.2} us, median of {} launches ({device})", times.len());
    finding.figures.push(figure);
    finding
}

fn of_artifacts(target: &Target, found: &[Artifact], studied: Option<&Studied>) -> Vec<Finding> {
    let finding = |ok, found| Finding {
        what: "machine code".into(),
        state: FindingState::of(ok),
        found,
        figures: Vec::new(),
    };
    let mut findings = Vec::new();
    for artifact in found {
        let wrong = artifact.stale.as_ref().map(|why| format!(", STALE: {why}"));
        let wrong = wrong.or_else(|| artifacts::not_of_its_kind(artifact).map(|why| format!(", {why}")));
        let broken = studied.and_then(|s| s.broken.iter().find(|(path, _)| *path == artifact.path));
        let wrong = wrong.or_else(|| broken.map(|(_, why)| format!(", {why}")));
        let said =
            format!("{} {}{}", artifact.kind, artifact.path.display(), wrong.as_deref().unwrap_or_default());
        findings.push(finding(wrong.is_none(), said));
    }
    for path in artifacts::missing(target) {
        findings.push(finding(false, format!("{} is not there after the build", path.display())));
    }
    findings
}
