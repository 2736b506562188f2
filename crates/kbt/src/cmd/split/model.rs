//! `kbt split model`: the modelled curve, from a coarse trace or from times that the user gives.

use super::outcome;
use crate::output::{Failure, Format, Outcome, print, read_input};
use kbt_ladder::StepRecord;
use kbt_ladder::steps::handoff_times;
use kbt_split::HandoffTimes;
use kbt_split::score::ModelCurve;
use kbt_trace::outcome::TraceOutcome;
use kbt_trace::{AnalyseOptions, ReadOptions, TraceError, analyse};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("from").required(true)))]
pub(super) struct ModelArgs {
    /// A coarse trace in any format that `kbt trace` reads, or its outcome (`kbt trace stats --format json`).
    #[arg(long, value_name = "FILE", group = "from")]
    trace: Option<PathBuf>,
    /// The kernel's times, as YAML; `-` reads standard input.
    #[arg(long, value_name = "FILE", group = "from")]
    times: Option<PathBuf>,
    /// Chunks in which the producer stores its tile; several with commas.
    #[arg(long, value_delimiter = ',', required = true, value_parser = clap::value_parser!(u32).range(2..=64))]
    chunks: Vec<u32>,
    /// K tiles in which the consumer takes it.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=64))]
    tiles: u32,
    /// A measured sweep to score the curve against: its directory, or its outcome.json.
    #[arg(long, value_name = "DIR")]
    sweep: Option<PathBuf>,
    /// How the curve is printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn model(args: &ModelArgs) -> Outcome {
    let times = match (&args.trace, &args.times) {
        (Some(path), _) => times_of_trace(path)?,
        (None, Some(path)) => read_times(path)?,
        (None, None) => return Err(Failure::input("accepted: --trace FILE or --times FILE")),
    };
    let measured = args.sweep.as_deref().map(outcome).transpose()?;
    let curve = ModelCurve::over(&times, &args.chunks, args.tiles, measured.as_ref())?;
    print(args.format, &curve, ToString::to_string)
}

/// Times of the handoff from a YAML file.
pub(super) fn read_times(path: &Path) -> Result<HandoffTimes, Failure> {
    let bytes = read_input(path)?;
    let times: HandoffTimes =
        serde_yaml::from_slice(&bytes).map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
    times.check().map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
    Ok(times)
}

/// Times of the handoff from a coarse trace.
pub(super) fn times_of_trace(path: &Path) -> Result<HandoffTimes, Failure> {
    let name = path.display().to_string();
    let bad = |problem: String| Failure::input(format!("{name}: {problem}"));
    let refused = |lacks: &dyn std::fmt::Display| {
        Failure::Refused(format!(
            "{name}: {lacks}; a coarse trace of the handoff gives it: kbt trace observe"
        ))
    };
    let outcome = match trace_outcome(path)? {
        Some(outcome) => outcome,
        None => {
            let file = File::open(path).map_err(|e| bad(e.to_string()))?;
            let mut source = kbt_trace::open(Box::new(BufReader::new(file)), &name, &ReadOptions::default())?;
            let options = AnalyseOptions { name: name.clone(), ..AnalyseOptions::default() };
            analyse(source.as_mut(), &options).map_err(|error| match error {
                TraceError::NeedsClock { .. } => Failure::Refused(error.to_string()),
                error => error.into(),
            })?
        }
    };
    handoff_times(&outcome).map_err(|lacks| refused(&lacks))
}

/// The outcome of an analysis, where the file is one and no trace.
fn trace_outcome(path: &Path) -> Result<Option<TraceOutcome>, Failure> {
    let bad = |problem: String| Failure::input(format!("{}: {problem}", path.display()));
    let mut file = File::open(path).map_err(|e| bad(e.to_string()))?;
    let mut start = [0; 4096];
    let read = std::io::Read::read(&mut file, &mut start).map_err(|e| bad(e.to_string()))?;
    let start = String::from_utf8_lossy(&start[..read]);
    let schemas = [kbt_trace::outcome::SCHEMA, StepRecord::SCHEMA];
    if !schemas.iter().any(|schema| start.contains(&format!("\"{schema}\""))) {
        return Ok(None);
    }
    let text = std::fs::read(path).map_err(|e| bad(e.to_string()))?;
    let mut value: serde_json::Value = serde_json::from_slice(&text).map_err(|e| bad(e.to_string()))?;
    // A run's step file holds the outcome beside its verdicts.
    if let Some(inner) = value.get_mut("outcome").filter(|o| o.is_object()) {
        value = inner.take();
    }
    serde_json::from_value(value).map(Some).map_err(|e| bad(e.to_string()))
}
