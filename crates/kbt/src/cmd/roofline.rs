//! `kbt roofline`: triage of a fact sheet, and fact sheets from a program on a GPU or from profiler exports.

mod gather;
mod ladder;
mod plot;

use crate::output::{Failure, Outcome, emit, read_input};
use kbt_device::{DeviceChoice, DeviceProfile, embedded_profile, embedded_profiles};
use kbt_roofline::outcome::Status;
use kbt_roofline::{
    Ceilings, ExperimentResult, FactSheet, Part, also_meant, import, model_part, nearest, part, parts, triage,
};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Say which roof holds a kernel, which candidates explain its time, and what to try first.
    #[command(after_help = TRIAGE_HELP)]
    Triage {
        /// The fact sheet (YAML); `-` reads standard input.
        facts: PathBuf,
        /// Whose ceilings: auto, recorded:NAME, model:ARCH, a profile or recording, or a part (B200).
        #[arg(long, default_value = "auto")]
        device: String,
        /// The result of an experiment; give it again for each one made so far.
        #[arg(long = "result")]
        results: Vec<PathBuf>,
        /// A run of `kbt tune`: what its later steps found becomes evidence.
        #[arg(long)]
        run: Option<PathBuf>,
        /// How to print.
        #[arg(long, value_enum, default_value_t)]
        format: Shape,
    },
    /// Draw kernels under the roofs of a device.
    #[command(after_help = PLOT_HELP)]
    Plot(plot::Args),
    /// Run a target for its times and under Nsight Compute, read its machine code, and write its fact sheet.
    #[command(after_help = GATHER_HELP)]
    Gather(gather::Args),
    /// Turn an Nsight Compute CSV export into a fact sheet.
    #[command(after_help = IMPORT_HELP)]
    Import {
        /// The export (ncu --csv, page details or raw); `-` reads standard input.
        csv: PathBuf,
        /// Where to write the sheet; standard output where absent.
        #[arg(long)]
        out: Option<PathBuf>,
        /// The kernel whose name contains this; the one that took most time where absent.
        #[arg(long)]
        kernel: Option<String>,
        /// Overwrite the sheet.
        #[arg(long)]
        force: bool,
        /// How to print the sheet on standard output.
        #[arg(long, value_enum, default_value_t)]
        format: crate::output::Format,
    },
}

const TRIAGE_HELP: &str = "\
Example:
  kbt roofline triage fixtures/facts/rmsnorm.yaml --device H100
  kbt roofline triage facts.yaml --device PROFILE.yaml --result r.yaml --format json

A result file: {experiment: too_few_ctas, observed_us: 15.79, baseline_us: 15.14}
After a contradiction its class is not proposed again; give every result so far.
Exit 3 where facts are missing or the question is none for a roofline; the outcome says which.";

const PLOT_HELP: &str = "\
Example:
  kbt roofline plot before.yaml after.yaml --device H100 -o roofline.svg

A kernel without a time has no point, only its roofs; that is said. Exit 3 where a sheet has too few facts for either.";

const GATHER_HELP: &str = "\
Example:
  kbt roofline gather my-kernel.yaml --out facts.yaml
  kbt roofline triage facts.yaml --device auto

Clocks and caches stay as they are in the timed launches. Without ncu, or where it may not count, the sheet holds the
times and what the machine code says.";

const IMPORT_HELP: &str = "\
Example:
  LC_ALL=C ncu --csv --page raw --set full ./app > app.csv
  kbt roofline import app.csv --out facts.yaml";

/// Text, JSON, or Markdown.
#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum Shape {
    /// For a terminal.
    #[default]
    Text,
    /// The outcome's own schema.
    Json,
    /// Everything, for a report.
    Md,
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Triage { facts, device, results, run, format } => {
            run_triage(&facts, &device, &results, run.as_deref(), format)
        }
        Command::Plot(args) => plot::run(&args),
        Command::Gather(args) => gather::run(&args),
        Command::Import { csv, out, kernel, force, format } => {
            run_import(&csv, out.as_deref(), kernel.as_deref(), force, format)
        }
    }
}

fn text(path: &Path) -> Result<String, Failure> {
    String::from_utf8(read_input(path)?)
        .map_err(|_| Failure::input(format!("{}: not UTF-8 text", path.display())))
}

fn name(path: &Path) -> String {
    if path.as_os_str() == "-" { "standard input".to_owned() } else { path.display().to_string() }
}

fn run_triage(facts: &Path, device: &str, results: &[PathBuf], run: Option<&Path>, format: Shape) -> Outcome {
    let sheet = FactSheet::from_yaml(&text(facts)?, &name(facts))?;
    let ceilings = ceilings(device, &sheet)?;
    let mut read = Vec::new();
    for path in results {
        read.push((ExperimentResult::from_yaml(&text(path)?, &name(path))?, name(path)));
    }
    let mut outcome = triage(&sheet, ceilings.as_ref(), &read)?;
    if let Some(run) = run {
        let (roles, verdicts) = (ladder::roles(run)?, ladder::verdicts(run)?);
        match ladder::another_kernel(run, &sheet)? {
            Some(why) => {
                let told = format!("{}: {why}; nothing of the run is used", run.display());
                crate::output::tell!("kbt: {told}");
                outcome.not_used.push(told);
            }
            None => outcome = outcome.with_roles(&roles).with_ladder(&verdicts),
        }
    }
    let rendered = match format {
        Shape::Text => outcome.render_text(),
        Shape::Json => serde_json::to_string_pretty(&outcome)?,
        Shape::Md => outcome.render_markdown(),
    };
    let code = emit(&rendered)?;
    match outcome.status {
        Status::Diagnosed => Ok(code),
        _ => Err(Failure::Refused(outcome.refusal.unwrap_or_else(|| "no diagnosis".to_owned()))),
    }
}

/// The ceilings that `--device` names; none where `auto` finds neither a recording nor the sheet's own part.
fn ceilings(device: &str, sheet: &FactSheet) -> Result<Option<Ceilings>, Failure> {
    if let Some(part) = part(device) {
        tell_taken(device, part);
        return Ok(Some(Ceilings::published(part)));
    }
    if let Some(profile) = ceilings_profile(device)? {
        return Ok(Some(Ceilings::from_profile(&profile)));
    }
    match device.parse() {
        Ok(DeviceChoice::Model(arch)) => {
            model_part(arch).map(|p| Some(Ceilings::published(p))).ok_or_else(|| {
                Failure::input(format!("no published figures for {arch}; give a part or a profile"))
            })
        }
        _ => {
            let named = sheet.device.as_ref().and_then(|d| d.name.as_deref());
            Ok(named.and_then(|n| part(n).inspect(|p| tell_taken(n, p))).map(Ceilings::published))
        }
    }
}

/// Says which part a name was taken for, where it could mean another.
fn tell_taken(name: &str, taken: &Part) {
    let others = also_meant(name);
    if !others.is_empty() {
        crate::output::tell!("kbt: {name} is taken as {}; there is also {}", taken.name, others.join(", "));
    }
}

/// The profile that `--device` names; none for a part, for a model without one, and where `auto` finds no recording.
fn ceilings_profile(device: &str) -> Result<Option<DeviceProfile>, Failure> {
    if part(device).is_some() {
        return Ok(None);
    }
    let choice: DeviceChoice = device.parse().map_err(|e| {
        let names: Vec<&str> = parts().iter().map(|p| p.name.as_str()).collect();
        let known = parts().iter().flat_map(|p| p.aliases.iter().chain([&p.name]));
        let meant = nearest(device, known.map(String::as_str))
            .map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
        Failure::input(format!("{e}; or one of the parts {}{meant}", names.join(", ")))
    })?;
    match choice {
        // Recordings name the device they were made on; bare compile targets do not.
        DeviceChoice::Auto => Ok(embedded_profiles()
            .filter_map(|n| embedded_profile(n)?.ok())
            .filter(|p| p.device.is_some())
            .last()),
        DeviceChoice::Live(n) => Err(Failure::Refused(format!(
            "a triage reads ceilings, it does not measure them: `kbt microbench run --device live:{n} --out PROFILE.yaml`, then --device PROFILE.yaml"
        ))),
        DeviceChoice::Recorded(name) => match embedded_profile(&name) {
            Some(profile) => Ok(Some(profile?)),
            None => {
                let names: Vec<&str> = embedded_profiles().collect();
                Err(Failure::input(format!(
                    "no recording `{name}` is embedded; there are: {}",
                    names.join(", ")
                )))
            }
        },
        DeviceChoice::Model(arch) => Ok(embedded_profile(&arch.to_string()).transpose()?),
        DeviceChoice::Path(path) => {
            let file = if path.is_dir() { path.join("profile.yaml") } else { path };
            Ok(Some(DeviceProfile::from_yaml(&text(&file)?, &name(&file))?.read_back()))
        }
    }
}

fn run_import(
    csv: &Path,
    out: Option<&Path>,
    kernel: Option<&str>,
    force: bool,
    format: crate::output::Format,
) -> Outcome {
    let import = import(&read_input(csv)?, &name(csv), kernel)?;
    for problem in &import.problems {
        crate::output::tell!("kbt: {}: {problem}", name(csv));
    }
    for other in &import.left_out {
        crate::output::tell!("kbt: {}: left out, of another size than the launches read: {other}", name(csv));
    }
    if !import.others.is_empty() {
        crate::output::tell!(
            "kbt: {} taken; also there: {} (--kernel picks)",
            import.kernel,
            import.others.join("; ")
        );
    }
    let launches = if import.launches == 1 { "launch" } else { "launches" };
    crate::output::tell!("kbt: {} {launches} of {}", import.launches, import.kernel);
    write_sheet(&import.sheet, || Ok(import.to_yaml()?), out, force, format)
}

/// Writes a sheet to a file, or prints it.
fn write_sheet(
    sheet: &FactSheet,
    yaml: impl FnOnce() -> Result<String, Failure>,
    out: Option<&Path>,
    force: bool,
    format: crate::output::Format,
) -> Outcome {
    let Some(out) = out else {
        return match format {
            crate::output::Format::Text => emit(&yaml()?),
            crate::output::Format::Json => emit(&serde_json::to_string_pretty(sheet)?),
        };
    };
    // A sheet is filled in by hand: only an empty file is taken for nobody's work.
    if std::fs::metadata(out).is_ok_and(|m| m.len() > 0) && !force {
        return Err(Failure::input(format!("{} exists; --force overwrites it", out.display())));
    }
    std::fs::write(out, yaml()?).map_err(|e| Failure::input(format!("{}: {e}", out.display())))?;
    crate::output::tell!("kbt: {} written", out.display());
    Ok(std::process::ExitCode::SUCCESS)
}
