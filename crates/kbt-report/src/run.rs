//! A run directory, read: what was asked, the summary, and each step's outcome in its crate's own type. What is
//! missing is `None`; what is damaged is an error that names the file and the field. No analysis and no layout here.

use crate::record::{Conflict, Origin, Spec, StepFile, Summary, Timing};
use kbt_evidence::{Figure, Known, Provenance, Step, Unit, Verdict};
use kbt_microbench::outcome::RatesOutcome;
use kbt_quant::outcome::AlgebraOutcome;
use kbt_roofline::TriageOutcome;
use kbt_sass::outcome::ScheduleOutcome;
use kbt_split::SplitOutcome;
use kbt_trace::outcome::TraceOutcome;
use kbt_validate::outcome::ValidateOutcome;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// No run is there.
    #[error("{0} is not a run directory (it has no run.json); `kbt tune --out DIR` makes one")]
    NotARun(PathBuf),
    /// A file of the run that does not read.
    #[error("{}: field `{field}`: {message}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The field, as a path from the top; `.` for the file as a whole.
        field: String,
        /// What is wrong with it.
        message: String,
    },
    /// The file system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A plot could not be drawn.
    #[error("plot `{plot}`: {message}")]
    Plot {
        /// Which.
        plot: &'static str,
        /// Why.
        message: String,
    },
}

/// A finished step, its outcome in the type of the crate that made it.
#[derive(Debug)]
pub(crate) struct Done<T> {
    pub(crate) origin: Origin,
    pub(crate) headline: String,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) needs: Option<String>,
    pub(crate) timing: Timing,
    /// Absent where the step was refused.
    pub(crate) outcome: Option<T>,
    /// The kinds of knowledge that its numbers have, weakest first.
    pub(crate) kinds: Vec<Known>,
}

/// A step: finished, or not there yet.
pub(crate) type Slot<T> = Option<Done<T>>;

/// Everything that a report is made of.
#[derive(Debug)]
pub(crate) struct Run {
    /// The directory's own name.
    pub(crate) name: String,
    pub(crate) spec: Spec,
    /// Absent while the run is not finished.
    pub(crate) summary: Option<Summary>,
    pub(crate) triage: Slot<TriageOutcome>,
    pub(crate) rates: Slot<RatesOutcome>,
    pub(crate) trace: Slot<TraceOutcome>,
    pub(crate) schedule: Slot<ScheduleOutcome>,
    pub(crate) algebra: Slot<AlgebraOutcome>,
    pub(crate) handoff: Slot<SplitOutcome>,
    pub(crate) validate: Slot<ValidateOutcome>,
    /// The fact sheet as it was used, where one is kept.
    pub(crate) facts: Option<String>,
    /// Which of the run's other files are there: its traces and the sweep's folder.
    pub(crate) files: BTreeSet<&'static str>,
}

/// Files and folders of a run that a reader may open with other commands.
const OTHER_FILES: [&str; 4] = ["profile.yaml", "trace.kbttrace", "trace.pftrace", "sweep"];

impl Run {
    /// Reads a run directory.
    pub(crate) fn read(dir: &Path) -> Result<Self, ReportError> {
        let spec: Spec = match read_json(&dir.join("run.json"))? {
            Some((spec, _)) => spec,
            None => return Err(ReportError::NotARun(dir.to_owned())),
        };
        check_schema(&dir.join("run.json"), "schema", &spec.schema, "kbt.run/1")?;
        let summary = match read_json::<Summary>(&dir.join("summary.json"))? {
            Some((summary, _)) => {
                check_schema(&dir.join("summary.json"), "schema", &summary.schema, "kbt.summary/1")?;
                Some(summary)
            }
            None => None,
        };
        let journal = journal(&dir.join("journal.jsonl"))?;
        let steps = Steps { dir, journal };
        let facts_path = dir.join("facts.yaml");
        let facts = text(&facts_path)?;
        if let Some(facts) = &facts {
            let sheet = kbt_roofline::FactSheet::from_yaml(facts, &facts_path.display().to_string());
            sheet.map_err(|e| damaged(&facts_path, ".", &e))?;
        }
        let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        Ok(Self {
            name: absolute.file_name().map_or_else(|| "run".into(), |n| n.to_string_lossy().into_owned()),
            spec,
            summary,
            triage: steps.read(Step::Triage, kbt_roofline::outcome::SCHEMA)?,
            rates: steps.read(Step::Rates, kbt_microbench::outcome::SCHEMA)?,
            trace: steps.read(Step::Trace, kbt_trace::outcome::SCHEMA)?,
            schedule: steps.read(Step::Schedule, kbt_sass::outcome::SCHEMA)?,
            algebra: steps.read(Step::Algebra, kbt_quant::outcome::SCHEMA)?,
            handoff: steps.read(Step::Handoff, kbt_split::outcome::SCHEMA)?,
            validate: steps.read(Step::Validate, kbt_validate::SCHEMA)?,
            facts,
            files: OTHER_FILES.into_iter().filter(|f| dir.join(f).exists()).collect(),
        })
    }
}

/// The verdicts of a run's finished steps, without their outcomes.
pub(crate) fn verdicts(dir: &Path) -> Result<Vec<Verdict>, ReportError> {
    if !dir.join("run.json").is_file() {
        return Err(ReportError::NotARun(dir.to_owned()));
    }
    let steps = Steps { dir, journal: journal(&dir.join("journal.jsonl"))? };
    let mut all = Vec::new();
    for step in Step::ALL {
        all.extend(steps.file(step)?.into_iter().flat_map(|(_, file)| file.verdicts));
    }
    Ok(all)
}

/// The busy share of each role of the run's trace, where it has one.
pub(crate) fn roles(dir: &Path) -> Result<Vec<Figure>, ReportError> {
    let steps = Steps { dir, journal: journal(&dir.join("journal.jsonl"))? };
    // Verdicts alone, without what they rest on, name no roles.
    if steps.file(Step::Trace)?.is_none_or(|(_, file)| file.outcome.is_none()) {
        return Ok(Vec::new());
    }
    let trace: Slot<TraceOutcome> = steps.read(Step::Trace, kbt_trace::outcome::SCHEMA)?;
    Ok(trace.and_then(|t| t.outcome).map(|t| busy_roles(&t)).unwrap_or_default())
}

fn busy_roles(trace: &TraceOutcome) -> Vec<Figure> {
    let share = |r: &kbt_trace::outcome::RoleStats| {
        let (busy, period) = (r.busy_cycles?, r.mean_period_cycles.filter(|p| *p > 0.0)?);
        let how = format!("mean time of a step of {} not spent in waits, over its mean period", r.name);
        let provenance = Provenance::computed(how, [("trace", &trace.provenance)]);
        Some(Figure::new(&r.name, busy / period, Unit::Ratio, provenance))
    };
    trace.roles.iter().filter_map(share).collect()
}

struct Steps<'a> {
    dir: &'a Path,
    /// The digest of each finished step's file; `None` where the directory has no journal and every file counts.
    journal: Option<BTreeMap<Step, String>>,
}

impl Steps<'_> {
    /// A step's file, where it counts.
    fn file(&self, step: Step) -> Result<Option<(PathBuf, StepFile)>, ReportError> {
        let path = self.dir.join("steps").join(format!("{}-{step}.json", step.index()));
        let digest = match &self.journal {
            // What the journal does not hold was not finished, or will be made again.
            Some(finished) => match finished.get(&step) {
                Some(digest) => Some(digest),
                None => return Ok(None),
            },
            None => None,
        };
        let Some((file, bytes)) = read_json::<StepFile>(&path)? else {
            return match digest {
                Some(_) => {
                    Err(damaged(&path, ".", &"missing, though the journal says that the step finished"))
                }
                None => Ok(None),
            };
        };
        if digest.is_some_and(|d| *d != blake3::hash(&bytes).to_string()) {
            return Err(damaged(&path, ".", &"the file is not the one that the journal finished"));
        }
        check_schema(&path, "schema", &file.schema, "kbt.step/1")?;
        if file.step != step {
            return Err(damaged(&path, "step", &format!("is `{}`, expected `{step}`", file.step)));
        }
        Ok(Some((path, file)))
    }

    fn read<T: DeserializeOwned>(&self, step: Step, schema: &str) -> Result<Slot<T>, ReportError> {
        let Some((path, file)) = self.file(step)? else { return Ok(None) };
        let mut kinds = BTreeSet::new();
        let outcome = match file.outcome {
            Some(value) => {
                collect_kinds(&value, &mut kinds);
                let stated = value.get("schema").and_then(Value::as_str).unwrap_or_default().to_owned();
                check_schema(&path, "outcome.schema", &stated, schema)?;
                let read = serde_path_to_error::deserialize(value);
                Some(read.map_err(|e| damaged(&path, &format!("outcome.{}", e.path()), e.inner()))?)
            }
            None if file.origin == Origin::Refused => None,
            None => return Err(damaged(&path, "outcome", &"missing, though the step was not refused")),
        };
        Ok(Some(Done {
            origin: file.origin,
            headline: file.headline,
            verdicts: file.verdicts,
            needs: file.needs,
            timing: file.timing,
            outcome,
            kinds: kinds.into_iter().collect(),
        }))
    }
}

/// The kinds of knowledge of all numbers within a value.
fn collect_kinds(value: &Value, kinds: &mut BTreeSet<Known>) {
    match value {
        Value::Object(map) => {
            for (key, item) in map {
                match (key.as_str(), item.get("kind")) {
                    ("provenance", Some(kind)) => kinds.extend(Known::deserialize(kind).ok()),
                    _ => collect_kinds(item, kinds),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|i| collect_kinds(i, kinds)),
        _ => {}
    }
}

/// What the journal finished and did not send back, with each file's digest.
fn journal(path: &Path) -> Result<Option<BTreeMap<Step, String>>, ReportError> {
    #[derive(Deserialize)]
    #[serde(tag = "event", rename_all = "snake_case")]
    enum Event {
        StepFinished {
            step: Step,
            digest: String,
        },
        SentBack {
            conflict: Conflict,
        },
        #[serde(other)]
        Other,
    }
    let Some(text) = text(path)? else { return Ok(None) };
    let mut finished = BTreeMap::new();
    for (number, line) in text.split_inclusive('\n').enumerate() {
        // A torn last line is what a kill leaves.
        let Some(line) = line.strip_suffix('\n') else { break };
        let event =
            serde_json::from_str(line).map_err(|e| damaged(path, &format!("line {}", number + 1), &e))?;
        match event {
            Event::StepFinished { step, digest } => {
                finished.insert(step, digest);
            }
            Event::SentBack { conflict } => finished.retain(|step, _| *step < conflict.ruled_out_by),
            Event::Other => {}
        }
    }
    Ok(Some(finished))
}

fn damaged(path: &Path, field: &str, message: &dyn ToString) -> ReportError {
    // A file that ends in the middle of a name has no path to the place.
    let field = if field.contains('?') { "." } else { field };
    ReportError::Damaged { path: path.to_owned(), field: field.to_owned(), message: message.to_string() }
}

fn check_schema(path: &Path, field: &str, stated: &str, expected: &str) -> Result<(), ReportError> {
    if stated == expected {
        return Ok(());
    }
    Err(damaged(path, field, &format!("is `{stated}`; this version reads `{expected}`")))
}

/// A text file, or `None` where there is none.
fn text(path: &Path) -> Result<Option<String>, ReportError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::InvalidData => Err(damaged(path, ".", &"not UTF-8 text")),
        Err(source) => Err(ReportError::Io { path: path.to_owned(), source }),
    }
}

/// A JSON file with its bytes, or `None` where there is none.
fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<(T, Vec<u8>)>, ReportError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(ReportError::Io { path: path.to_owned(), source }),
    };
    let mut reader = serde_json::Deserializer::from_slice(&bytes);
    let value: T = serde_path_to_error::deserialize(&mut reader)
        .map_err(|e| damaged(path, &e.path().to_string(), e.inner()))?;
    reader.end().map_err(|e| damaged(path, ".", &e))?;
    Ok(Some((value, bytes)))
}

/// A step's line for the ladder's table.
#[derive(Debug)]
pub(crate) struct Rung<'a> {
    pub(crate) step: Step,
    /// Absent where the step has not run.
    pub(crate) done: Option<RungDone<'a>>,
}

/// What the ladder's table shows of a finished step.
#[derive(Debug)]
pub(crate) struct RungDone<'a> {
    pub(crate) origin: Origin,
    pub(crate) headline: &'a str,
    pub(crate) needs: Option<&'a str>,
    pub(crate) kinds: &'a [Known],
    pub(crate) timing: &'a Timing,
}

impl Run {
    /// The verdicts of every finished step, in the ladder's order.
    pub(crate) fn steps_verdicts(&self) -> impl Iterator<Item = &Verdict> {
        fn of<T>(slot: &Slot<T>) -> impl Iterator<Item = &Verdict> {
            slot.iter().flat_map(|done| &done.verdicts)
        }
        of(&self.triage)
            .chain(of(&self.rates))
            .chain(of(&self.trace))
            .chain(of(&self.schedule))
            .chain(of(&self.algebra))
            .chain(of(&self.handoff))
            .chain(of(&self.validate))
    }

    /// The same, to hand on.
    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        self.steps_verdicts().cloned().collect()
    }

    /// Whether a trace was read after the triage had told its line.
    pub(crate) fn traced(&self) -> bool {
        let triaged = self.triage.as_ref().is_some_and(|t| t.outcome.is_some());
        triaged && self.trace.as_ref().is_some_and(|t| t.outcome.is_some())
    }

    /// The busy share of each traced role.
    pub(crate) fn roles(&self) -> Vec<Figure> {
        self.trace.as_ref().and_then(|t| t.outcome.as_ref()).map(busy_roles).unwrap_or_default()
    }

    /// Every step of the ladder, in order.
    pub(crate) fn rungs(&self) -> [Rung<'_>; 7] {
        fn rung<T>(step: Step, slot: &Slot<T>) -> Rung<'_> {
            let done = slot.as_ref().map(|d| RungDone {
                origin: d.origin,
                headline: &d.headline,
                needs: d.needs.as_deref(),
                kinds: &d.kinds,
                timing: &d.timing,
            });
            Rung { step, done }
        }
        [
            rung(Step::Triage, &self.triage),
            rung(Step::Rates, &self.rates),
            rung(Step::Trace, &self.trace),
            rung(Step::Schedule, &self.schedule),
            rung(Step::Algebra, &self.algebra),
            rung(Step::Handoff, &self.handoff),
            rung(Step::Validate, &self.validate),
        ]
    }
}
