//! What the ladder can do with a target: each of its commands is run once, and each step says ready or refused.

mod kernels;

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
/// nothing is launched: what would run is another build's. `facts_lack` says what the triage misses in the file's facts,
/// where it misses something.
///
/// # Errors
/// Only where `scratch` cannot be written; whatever the target does is a finding.
pub fn check(
    target: &Target,
    launcher: &ProcessLauncher<'_>,
    scratch: &Path,
    facts_lack: Option<&str>,
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
    let (run, traced) = if built.as_ref().is_none_or(Launch::is_ok) {
        let (run, traced, more) = launched(target, launcher, scratch, &inputs, &dump);
        findings.extend(more);
        (Some(run), traced)
    } else {
        findings.extend(not_tried(target));
        (None, Vec::new())
    };
    let found = artifacts::find(target, &[&build_dump, &dump], &before);
    findings.extend(of_artifacts(target, &found));
    let kernels = artifacts::kernels(&found);
    let chosen = kernels::chosen(target, &kernels);
    let lacks_kernel = chosen.as_ref().is_some_and(|f| f.state == FindingState::Failed);
    findings.extend(chosen);
    let real: Vec<_> = found.iter().filter(|a| artifacts::not_of_its_kind(a).is_none()).collect();
    let has = |kind| real.iter().any(|a| a.kind == kind);
    let stale = !real.is_empty() && real.iter().all(|a| a.stale.is_some());
    let steps = abilities(
        target,
        run.as_ref(),
        &Code {
            ptx: has(ArtifactKind::Ptx),
            code: has(ArtifactKind::Cubin) || has(ArtifactKind::Sass),
            stale,
            lacks_kernel,
        },
        &traced,
        facts_lack,
    );
    Ok(CheckReport { schema: SCHEMA.to_owned(), target: target.name.clone(), findings, steps })
}

/// The launches of a target whose build is there: the run, a run for each level of its trace, the reference.
fn launched(
    target: &Target,
    launcher: &ProcessLauncher<'_>,
    scratch: &Path,
    inputs: &Path,
    dump: &Path,
) -> (Launch, Vec<(&'static str, bool)>, Vec<Finding>) {
    let run = launcher.launch(&LaunchRequest {
        inputs: Some(inputs.to_owned()),
        out: (!target.outputs.is_empty()).then(|| scratch.join("out.safetensors")),
        dump: Some(dump.to_owned()),
        ..LaunchRequest::timed(target.default_setting())
    });
    let mut findings = vec![of_run(target, &run)];
    let mut traced = Vec::new();
    for level in target.trace.iter().flat_map(|t| t.levels.keys()) {
        let launch = launcher.launch(&LaunchRequest {
            setting: target.default_setting(),
            inputs: Some(inputs.to_owned()),
            trace: Some((*level, scratch.join(format!("{}.trace", level.as_str())))),
            ..LaunchRequest::default()
        });
        let finding = of_launch(&format!("trace {}", level.as_str()), &launch, "traced");
        traced.push((level.as_str(), launch.is_ok()));
        findings.push(finding);
    }
    let right =
        run.is_ok().then(|| launcher.reference(inputs, &scratch.join("reference.safetensors"))).flatten();
    findings.extend(right.map(|launch| of_launch("reference", &launch, "computed")));
    (run, traced, findings)
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

fn of_artifacts(target: &Target, found: &[artifacts::Artifact]) -> Vec<Finding> {
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
        let said =
            format!("{} {}{}", artifact.kind, artifact.path.display(), wrong.as_deref().unwrap_or_default());
        findings.push(finding(wrong.is_none(), said));
    }
    for path in artifacts::missing(target) {
        findings.push(finding(false, format!("{} is not there after the build", path.display())));
    }
    findings
}

/// The machine code that is there.
struct Code {
    ptx: bool,
    /// Cubins or listings.
    code: bool,
    /// Whether all of it may be another build's.
    stale: bool,
    /// Whether none of its kernels is the one that the file names.
    lacks_kernel: bool,
}

fn abilities(
    target: &Target,
    run: Option<&Launch>,
    code: &Code,
    traced: &[(&str, bool)],
    facts_lack: Option<&str>,
) -> Vec<Ability> {
    // A time is one, whatever became of the outputs.
    let wrote = run.is_some_and(Launch::is_ok);
    let lost = |r: &Launch| matches!(r.status, Status::OutputMissing { .. });
    let timed = wrote || run.is_some_and(|r| lost(r) && !r.report.times_us.is_empty());
    let coarse = traced.iter().any(|(level, ok)| *level == "coarse" && *ok);
    let varied = target.knobs.iter().filter(|k| k.values.len() > 1).count();
    let answer = |step, ready: bool, yes: &str, no: &str| {
        let why = match (run.map(|r| &r.status), ready) {
            (_, true) => yes.to_owned(),
            (Some(Status::Refused { reason }), false) => format!("the run was refused here: {reason}"),
            (Some(Status::Ok | Status::NoTime { .. } | Status::OutputMissing { .. }), false) => no.to_owned(),
            (Some(failed), false) => format!("the run failed: {failed}; {no}"),
            (None, false) => format!("not tried, since the build failed; {no}"),
        };
        Ability { step, ready, why }
    };
    // What the file itself does not give, no run would.
    let lacks = |step, no: &str| Ability { step, ready: false, why: no.to_owned() };
    let of_code = |step, there: bool, yes: &str, no: &str| {
        let stale = if code.stale { ", which is STALE: what it says decides nothing" } else { "" };
        match code.lacks_kernel && there {
            true => lacks(step, "`kernel:` names none of the kernels in its machine code"),
            false => answer(step, there, &format!("{yes}{stale}"), no),
        }
    };
    let any_code = code.ptx || code.code;
    let no_trace = "needs a `trace:` with a level `coarse` whose run writes KBT_TRACE_OUT";
    let no_outputs = "needs `outputs:` and a run that writes them to KBT_OUT";
    let no_sweep = "needs `knobs:` with more than one value and a run that prints its time";
    vec![
        match facts_lack {
            // Whatever the run gives, facts that lack something are the file's own matter.
            Some(lack) => Ability { step: Step::Triage, ready: false, why: format!("its facts lack {lack}") },
            None => answer(
                Step::Triage,
                timed,
                "facts and a time",
                "needs a run that prints its time; without one there is an initial call and no diagnosis",
            ),
        },
        of_code(
            Step::Rates,
            any_code,
            "for the instructions in its machine code",
            "needs PTX or a cubin: name them under build.artifacts, or let the build or the run write them to KBT_DUMP",
        ),
        match &target.trace {
            Some(_) => answer(Step::Trace, coarse, "a coarse trace", no_trace),
            None => lacks(Step::Trace, no_trace),
        },
        of_code(Step::Schedule, any_code, "from its machine code", "needs PTX, a cubin or a listing"),
        of_code(
            Step::Algebra,
            code.ptx,
            "lifted from its PTX",
            "needs PTX: name it under build.artifacts or write it to KBT_DUMP",
        ),
        match (&target.handoff, varied) {
            (_, 0) => lacks(Step::Handoff, no_sweep),
            (Some(_), _) => answer(Step::Handoff, timed, "a sweep within the handoff's contract", no_sweep),
            (None, _) => answer(
                Step::Handoff,
                timed,
                "a sweep of its knobs; no `handoff:`, so no contract is checked",
                no_sweep,
            ),
        },
        match target.outputs.is_empty() {
            true => lacks(Step::Validate, no_outputs),
            false => answer(Step::Validate, wrote, "its saved outputs", no_outputs),
        },
    ]
}
