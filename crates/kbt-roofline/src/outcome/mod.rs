//! What a triage says: `kbt.roofline/1`. Types only, and their reading as verdicts and one headline; how they
//! come about is in `triage`, how they read as text in `render`.

mod plot;
mod words;

use crate::candidates::BottleneckClass;
use kbt_evidence::{Figure, Provenance};
use serde::{Deserialize, Serialize};

pub use plot::{Level, PlotPoint, PlotRoof, RooflinePlot};
pub use words::{Call, CandidateStanding, CheckStatus, Fact, Priority, Reading, Resource, Side, Status};

/// The schema that outcomes state.
pub const SCHEMA: &str = "kbt.roofline/1";
/// The schema that results of experiments state.
pub const RESULT_SCHEMA: &str = "kbt.experiment/1";

/// A statement with the figures it rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Statement {
    /// What it says.
    pub text: String,
    /// The numbers behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
}

/// What to supply for a missing fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Supply {
    /// The fact.
    pub fact: Fact,
    /// The keys that hold it.
    pub keys: String,
    /// An example.
    pub example: String,
}

/// The roofline by arithmetic intensity alone, before any timing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InitialCall {
    /// The call.
    pub call: Call,
    /// Useful FLOP over useful HBM bytes.
    pub intensity: Figure,
    /// Where the two roofs meet.
    pub ridge: Figure,
    /// The distance between the two; none of an operator without operations.
    #[serde(default)]
    pub margin: Option<Figure>,
    /// Useful operations in one line.
    pub flop_line: String,
    /// HBM bytes in one line.
    pub hbm_line: String,
    /// Useful operations.
    pub flop: Figure,
    /// Useful bytes.
    pub hbm_bytes: Figure,
}

/// The least time one resource needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// Which.
    pub resource: Resource,
    /// In words.
    pub name: String,
    /// The arithmetic.
    pub how: String,
    /// The bound.
    pub time: Figure,
    /// The bound over the measured time; above 1 is a contradiction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Figure>,
}

/// A figure that cannot be: reported, never clamped.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Contradiction {
    /// What contradicts what.
    pub what: String,
    /// By how much.
    pub figure: Figure,
    /// What could be behind it.
    pub causes: Vec<String>,
    /// Whether it is to be settled before any figure is believed. The rest is within what a measured ceiling's own
    /// kernel, or counters of different passes, leave open.
    #[serde(default = "yes")]
    pub settle_first: bool,
}

const fn yes() -> bool {
    true
}

/// A condition of a check, as it was applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Threshold {
    /// The signal read.
    pub signal: String,
    /// What the signal is.
    pub meaning: String,
    /// `above` or `below`.
    pub fires: String,
    /// The threshold; its provenance is its source.
    pub threshold: Figure,
    /// Whether it was set on measurements of planted bottlenecks.
    pub calibrated: bool,
    /// What was read, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Figure>,
}

/// One of the nineteen contradiction checks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Its name.
    pub id: String,
    /// The call it belongs to.
    pub side: Side,
    /// What it asks.
    pub question: String,
    /// What it found.
    pub status: CheckStatus,
    /// In one sentence.
    pub finding: String,
    /// The conditions: any group fires when all of its conditions hold.
    pub conditions: Vec<Vec<Threshold>>,
    /// Measurements that would let it tell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needed: Vec<String>,
}

/// A row of the evidence matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CandidateRow {
    /// The candidate's name.
    pub candidate: String,
    /// Its class.
    pub class: BottleneckClass,
    /// In words.
    pub title: String,
    /// What would be done about it.
    pub fix: String,
    /// Where it stands.
    pub standing: CandidateStanding,
    /// The share of the measured time that it would account for, where that can be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Figure>,
    /// Supporting evidence.
    pub supports: Vec<Statement>,
    /// Counter-evidence.
    pub against: Vec<Statement>,
    /// Counter-evidence that was looked for and not found, with what was read instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looked_for: Vec<Statement>,
    /// Whether any counter-evidence could be looked for at all.
    pub counter_evidence_looked_for: bool,
    /// Measurements still needed.
    pub needed: Vec<String>,
}

/// The smallest share of the time worth an experiment: less cannot be told from noise.
const LEAST_SHARE: f64 = 0.05;

impl CandidateRow {
    /// Whether it may account for a part of the time that can be told from noise.
    pub(crate) fn matters(&self) -> bool {
        self.share.as_ref().is_none_or(|s| s.value >= LEAST_SHARE)
    }
}

impl TriageOutcome {
    /// Whether the figures contradict each other so that no bottleneck is asserted and nothing predicted.
    pub(crate) fn asserts_nothing(&self) -> bool {
        let told = self.outputs.as_ref().map_or("", |o| o.conclusion.as_str());
        self.status == Status::Diagnosed && told.starts_with(NO_BOTTLENECK)
    }
}

/// How a conclusion without a bottleneck begins.
pub(crate) const NO_BOTTLENECK: &str = "no bottleneck is asserted";

/// The smallest experiment that changes one factor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Its name, which a result file repeats: the candidate's.
    pub id: String,
    /// The candidate it tests.
    pub candidate: String,
    /// The one factor that changes; all else stays.
    pub factor: String,
    /// A command, where one can be given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// What happens if the candidate is right.
    pub prediction: String,
    /// The number of that prediction.
    pub predicted: Figure,
    /// What would show that it is wrong.
    pub falsified_by: String,
    /// The number of that.
    pub falsified_at: Figure,
    /// When to stop and what to do then.
    pub stop_rule: String,
}

/// The outcome of an experiment, as a user hands it back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentResult {
    /// Always [`RESULT_SCHEMA`].
    #[serde(default = "result_schema")]
    pub schema: String,
    /// The experiment's id.
    pub experiment: String,
    /// Time of one call with the factor changed.
    pub observed_us: f64,
    /// Time of one call without the change, measured beside it; the sheet's median where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline_us: Option<f64>,
    /// Anything worth keeping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// How the times are known; where absent they are given by the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
}

fn result_schema() -> String {
    RESULT_SCHEMA.to_owned()
}

/// A result and what it says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultRow {
    /// The experiment.
    pub experiment: String,
    /// What the result says.
    pub reading: Reading,
    /// In one sentence.
    pub finding: String,
    /// Observed over baseline time.
    pub observed: Figure,
    /// Predicted over baseline time.
    pub predicted: Figure,
}

/// One step of the order of work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OrderStep {
    /// Its rank.
    pub priority: Priority,
    /// What to do.
    pub action: String,
    /// Why.
    pub why: String,
}

/// What the conclusion rests on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvidenceOutput {
    /// From the user's data, a recording or a measurement.
    pub from_data: Vec<Statement>,
    /// Assumptions pending verification.
    pub assumptions: Vec<String>,
}

/// A row of the accounting table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AccountingRow {
    /// What it is.
    pub quantity: String,
    /// The arithmetic.
    pub how: String,
    /// The result.
    pub figure: Figure,
}

/// The auditable table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its title.
    pub title: String,
    /// Its rows.
    pub rows: Vec<AccountingRow>,
}

/// The least that shows a change to be right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validation {
    /// A correctness test.
    pub correctness: String,
    /// A boundary test.
    pub boundary: String,
    /// One falsifiable experiment.
    pub experiment: String,
}

/// The five required outputs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outputs {
    /// The diagnosis, never "look at everything".
    pub conclusion: String,
    /// What it rests on.
    pub evidence: EvidenceOutput,
    /// The table.
    pub artifact: Artifact,
    /// How to validate.
    pub validation: Validation,
    /// Risks, each with its fallback.
    pub risks: Vec<String>,
}

/// What a triage says of one fact sheet on one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TriageOutcome {
    /// Always [`SCHEMA`].
    pub schema: String,
    /// The kernel.
    pub name: String,
    /// The question asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// How far it came.
    pub status: Status,
    /// The diagnosis; with status `initial`, the initial call.
    pub call: Option<Call>,
    /// By how much the call holds: the distance from the nearest threshold that would flip it.
    pub margin: Option<Figure>,
    /// Why there is a call and no margin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin_reason: Option<String>,
    /// True where ceilings or time are not measured here: the call is an order of magnitude.
    pub order_of_magnitude: bool,
    /// The device whose ceilings were used.
    pub device: Option<String>,
    /// The device named in the sheet, where it is another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sheet_device: Option<String>,
    /// Facts that are missing.
    #[serde(default)]
    pub missing: Vec<Fact>,
    /// What to supply for them.
    #[serde(default)]
    pub supply: Vec<Supply>,
    /// Why there is no diagnosis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The roofline by arithmetic intensity alone.
    pub initial: Option<InitialCall>,
    /// The accountings.
    pub bounds: Vec<Bound>,
    /// Figures that cannot be.
    pub contradictions: Vec<Contradiction>,
    /// The nineteen checks.
    pub checks: Vec<Check>,
    /// The evidence matrix, best first.
    pub evidence: Vec<CandidateRow>,
    /// Experiments for the open candidates, in the order to make them.
    pub experiments: Vec<Experiment>,
    /// Results taken back in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<ResultRow>,
    /// Evidence that was offered and is not used, with why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_used: Vec<String>,
    /// The order of work.
    pub order: Vec<OrderStep>,
    /// The five outputs; none for a question that is out of scope.
    pub outputs: Option<Outputs>,
    /// The plot.
    pub plot: Option<RooflinePlot>,
}
