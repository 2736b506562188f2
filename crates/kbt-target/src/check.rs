//! What the ladder can do with a target: each of its commands is run once, and each step says ready or refused.

use crate::artifacts::{self, ArtifactKind, Snapshot};
use crate::launch::{Launch, LaunchRequest, Launcher, Report, Status};
use crate::process::ProcessLauncher;
use crate::stats::{mad, median};
use crate::{Target, date};
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

/// The whole answer of a check.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckReport {
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

/// Runs each command of a target once, at its default setting, in the empty folder `scratch`.
///
/// # Errors
/// Only where `scratch` cannot be written; whatever the target does is a finding.
pub fn check(
    target: &Target,
    launcher: &ProcessLauncher<'_>,
    scratch: &Path,
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
    let run = launcher.launch(&LaunchRequest {
        inputs: Some(inputs.clone()),
        out: (!target.outputs.is_empty()).then(|| scratch.join("out.safetensors")),
        dump: Some(dump.clone()),
        ..LaunchRequest::timed(target.default_setting())
    });
    findings.push(of_run(target, &run));
    let mut traced = Vec::new();
    for level in target.trace.iter().flat_map(|t| t.levels.keys()) {
        let launch = launcher.launch(&LaunchRequest {
            setting: target.default_setting(),
            inputs: Some(inputs.clone()),
            trace: Some((*level, scratch.join(format!("{}.trace", level.as_str())))),
            ..LaunchRequest::default()
        });
        let finding = of_launch(&format!("trace {}", level.as_str()), &launch, "traced");
        traced.push((level.as_str(), launch.is_ok()));
        findings.push(finding);
    }
    let right =
        run.is_ok().then(|| launcher.reference(&inputs, &scratch.join("reference.safetensors"))).flatten();
    if let Some(launch) = &right {
        findings.push(of_launch("reference", launch, "computed"));
    }
    let found = artifacts::find(target, &[&build_dump, &dump], &before);
    findings.extend(of_artifacts(target, &found));
    if let Some(sheet) = &target.facts.sheet {
        let path = target.path(sheet);
        let there = path.is_file();
        let found = format!("{}: {}", path.display(), if there { "found" } else { "not there" });
        let state = FindingState::of(there);
        findings.push(Finding { what: "fact sheet".into(), state, found, figures: Vec::new() });
    }
    let has = |kind| found.iter().any(|a| a.kind == kind);
    let steps = abilities(
        target,
        &run,
        has(ArtifactKind::Ptx),
        has(ArtifactKind::Cubin) || has(ArtifactKind::Sass),
        &traced,
    );
    Ok(CheckReport { target: target.name.clone(), findings, steps })
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
    let last = launch.stderr_tail.lines().rev().find(|l| !l.trim().is_empty());
    match last {
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

fn of_artifacts(target: &Target, found: &[artifacts::Artifact]) -> Vec<Finding> {
    let finding = |ok, found| Finding {
        what: "machine code".into(),
        state: FindingState::of(ok),
        found,
        figures: Vec::new(),
    };
    let mut findings = Vec::new();
    for artifact in found {
        let stale = artifact.stale.as_ref().map(|why| format!(", STALE: {why}")).unwrap_or_default();
        let said = format!("{} {}{stale}", artifact.kind, artifact.path.display());
        findings.push(finding(artifact.stale.is_none(), said));
    }
    for path in artifacts::missing(target) {
        findings.push(finding(false, format!("{} is not there after the build", path.display())));
    }
    findings
}

fn abilities(target: &Target, run: &Launch, ptx: bool, code: bool, traced: &[(&str, bool)]) -> Vec<Ability> {
    let timed = run.is_ok();
    let facts = &target.facts;
    let has_facts = facts.sheet.is_some() || (facts.formula.is_some() && !facts.shapes.is_empty());
    let coarse = traced.iter().any(|(level, ok)| *level == "coarse" && *ok);
    let varied = target.knobs.iter().filter(|k| k.values.len() > 1).count();
    let any_code = ptx || code;
    let answer = |step, ready: bool, yes: &str, no: &str| {
        let why = match (&run.status, ready) {
            (_, true) => yes.to_owned(),
            (Status::Refused { reason }, false) => format!("the run was refused here: {reason}"),
            (_, false) => no.to_owned(),
        };
        Ability { step, ready, why }
    };
    vec![
        answer(
            Step::Triage,
            has_facts && timed,
            "facts and a time",
            "needs `facts` (or a fact sheet) and a run that prints its time",
        ),
        answer(
            Step::Rates,
            any_code,
            "for the instructions in its machine code",
            "needs PTX or a cubin: name them under build.artifacts, or let the build or the run write them to KBT_DUMP",
        ),
        answer(
            Step::Trace,
            coarse,
            "a coarse trace",
            "needs a `trace:` with a level `coarse` whose run writes KBT_TRACE_OUT",
        ),
        answer(Step::Schedule, any_code, "from its machine code", "needs PTX, a cubin or a listing"),
        answer(
            Step::Algebra,
            ptx,
            "lifted from its PTX",
            "needs PTX: name it under build.artifacts or write it to KBT_DUMP",
        ),
        match (timed, &target.handoff, varied) {
            (true, Some(_), 1..) => answer(Step::Handoff, true, "a sweep within the handoff's contract", ""),
            (true, None, 1..) => answer(
                Step::Handoff,
                true,
                "a sweep of its knobs; no `handoff:`, so no contract is checked",
                "",
            ),
            _ => answer(
                Step::Handoff,
                false,
                "",
                "needs `knobs:` with more than one value and a run that prints its time",
            ),
        },
        answer(
            Step::Validate,
            timed && !target.outputs.is_empty(),
            "its saved outputs",
            "needs `outputs:` and a run that writes them to KBT_OUT",
        ),
    ]
}
