//! `kbt sass gate`.

use super::input::{self, InputArgs};
use crate::output::{Failure, Format, Outcome, print};
use kbt_sass::metrics::{self, Measure, MeasureOptions, Selection};
use kbt_sass::outcome::MetricsOutcome;
use kbt_sass::{GateReport, Tolerance};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub(super) struct GateArgs {
    /// A listing, cubin, fatbin, executable or PTX file; `-` is standard input.
    file: PathBuf,
    /// The committed metrics, as --write made them.
    #[arg(long, value_name = "FILE")]
    baseline: PathBuf,
    /// What may change: YAML with spill_bytes, stack_bytes, local_arrays, transitions_percent,
    /// instructions_percent, stalls_percent, operations_percent, structure, ignore.
    #[arg(long, value_name = "FILE")]
    tolerance: Option<PathBuf>,
    /// Write the baseline instead of comparing with it.
    #[arg(long)]
    write: bool,
    #[command(flatten)]
    input: InputArgs,
    /// Functions whose name matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    function: Option<String>,
    /// The two units whose runs are counted.
    #[arg(long, value_name = "A,B", default_value = "MUFU,F2FP")]
    units: String,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(args: GateArgs) -> Outcome {
    let [a, b] = super::units(&args.units)?;
    let units = (a.name().to_owned(), b.name().to_owned());
    let function = args.function.as_deref().map(|t| metrics::pattern("--function", t)).transpose()?;
    let selection = Selection { function: function.clone(), ..Selection::default() };
    let mut measure = Measure::new(MeasureOptions { a, b, blocks: false, selection });
    let listing = input::load(&args.file, &args.input, false)?.each(|f| measure.function(&f))?;
    super::whole(&args.file, &listing)?;
    let now = measure.finish(&listing);
    if now.functions.is_empty() {
        return Err(Failure::input(format!("{}: nothing in the listing is selected", args.file.display())));
    }
    if args.write {
        return write(&now, &args.baseline, args.format);
    }
    let mut baseline = read_baseline(&args.baseline)?;
    baseline.functions.retain(|f| function.as_ref().is_none_or(|p| p.is_match(&f.name)));
    same_units(&args.baseline, &baseline, &units)?;
    let report = kbt_sass::gate(&baseline, &now, &tolerance(args.tolerance.as_deref())?);
    // A gate that compared nothing has not passed.
    if report.compared == 0 && report.passes() {
        let message = format!("{}: no function to compare with is in the baseline", args.baseline.display());
        return Err(Failure::input(message));
    }
    print(args.format, &report, GateReport::render_text)?;
    if report.passes() { Ok(ExitCode::SUCCESS) } else { Err(Failure::Gate) }
}

/// Transitions between other units compare with nothing.
fn same_units(path: &Path, baseline: &MetricsOutcome, now: &(String, String)) -> Result<(), Failure> {
    let other = baseline.functions.iter().map(|f| &f.interleave).find(|i| (&i.a, &i.b) != (&now.0, &now.1));
    other.map_or(Ok(()), |was| {
        Err(Failure::input(format!(
            "{}: the baseline counts {},{}, not {},{}; pass --units {},{} or make a new one with --write",
            path.display(),
            was.a,
            was.b,
            now.0,
            now.1,
            was.a,
            was.b
        )))
    })
}

fn write(now: &MetricsOutcome, path: &Path, format: Format) -> Outcome {
    let mut text = serde_json::to_string_pretty(now)?;
    text.push('\n');
    std::fs::write(path, text).map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
    print(format, now, |now| format!("{}: {} functions written", path.display(), now.functions.len()))
}

fn read_baseline(path: &Path) -> Result<MetricsOutcome, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Failure::input(format!("{}: {e}; --write makes a baseline", path.display())))?;
    let baseline: MetricsOutcome = serde_json::from_str(&text)
        .map_err(|e| Failure::input(format!("{}: {e}; --write makes a baseline", path.display())))?;
    if baseline.schema != kbt_sass::outcome::SCHEMA {
        let message = format!(
            "{}: schema `{}` is not `{}`; --write makes a baseline of this version",
            path.display(),
            baseline.schema,
            kbt_sass::outcome::SCHEMA
        );
        return Err(Failure::input(message));
    }
    Ok(baseline)
}

fn tolerance(path: Option<&Path>) -> Result<Tolerance, Failure> {
    let Some(path) = path else { return Ok(Tolerance::default()) };
    let text =
        std::fs::read_to_string(path).map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
    let tolerance: Tolerance =
        serde_yaml::from_str(&text).map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
    let percents = [
        ("transitions_percent", tolerance.transitions_percent),
        ("instructions_percent", tolerance.instructions_percent),
        ("stalls_percent", tolerance.stalls_percent),
        ("operations_percent", tolerance.operations_percent),
    ];
    match percents.iter().find(|(_, value)| value.is_nan() || *value < 0.0) {
        Some((name, value)) => Err(Failure::input(format!(
            "{}: {name}: {value} is no tolerance; expected 0 or more",
            path.display()
        ))),
        None => Ok(tolerance),
    }
}
