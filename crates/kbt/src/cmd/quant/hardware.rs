//! `kbt quant hardware`: a device's own conversions on every f32, beside kbt's.

use crate::output::{Failure, Format, Outcome, print};
use kbt_device::DeviceChoice;
use kbt_gpu::Gpu;
use kbt_kernels::convert::{Comparison, compare, conversions};
use kbt_quant::format::{Conversion, Format as Number};
use kbt_quant::outcome::{HardwareConversion, HardwareDifference, HardwareOutcome};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Only conversions to this format; else every one that the device has.
    #[arg(long)]
    to: Option<Number>,
    /// The GPU: `live` or `live:N`.
    #[arg(long, default_value = "live")]
    device: DeviceChoice,
    /// A folder for the cut points, one file a conversion: first and last input of each run and its code, in hex.
    #[arg(long, value_name = "DIR")]
    cuts: Option<PathBuf>,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(args: &Args) -> Outcome {
    let DeviceChoice::Live(ordinal) = args.device else {
        return Err(Failure::input(format!("--device {}: only live and live:N convert", args.device)));
    };
    let gpu = Gpu::open(ordinal).map_err(|e| match e.is_absent() {
        true => Failure::Refused(format!("{e}; `kbt quant quantize` converts without a GPU")),
        false => e.into(),
    })?;
    let info = gpu.info().clone();
    let wanted: Vec<Conversion> =
        conversions(info.sm()).filter(|c| args.to.is_none_or(|to| to == c.format)).collect();
    if wanted.is_empty() {
        let format = args.to.map_or_else(|| "any format".to_owned(), |to| to.to_string());
        let (major, minor) = info.compute_capability;
        return Err(Failure::Refused(format!(
            "{}, compute capability {major}.{minor}, has no conversion to {format}",
            info.name
        )));
    }
    if let Some(dir) = &args.cuts {
        std::fs::create_dir_all(dir).map_err(|e| Failure::input(format!("{}: {e}", dir.display())))?;
    }
    let command = match args.to {
        Some(to) => format!("kbt quant hardware --to {to}"),
        None => "kbt quant hardware".to_owned(),
    };
    let mut done = Vec::with_capacity(wanted.len());
    for conversion in wanted {
        if std::io::stderr().is_terminal() {
            crate::output::show!("\r\x1b[K{}", conversion.instruction().unwrap_or_default());
        }
        let found = compare(&gpu, conversion)?;
        if let Some(dir) = &args.cuts {
            let path = dir.join(format!("{}.txt", found.instruction));
            std::fs::write(&path, found.cut_points())
                .map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
        }
        done.push(entry(conversion, found, info.measured(command.as_str())));
    }
    if std::io::stderr().is_terminal() {
        crate::output::show!("\r\x1b[K");
    }
    let outcome = HardwareOutcome::new(done);
    print(args.format, &outcome, HardwareOutcome::render_text)?;
    if outcome.agrees() { Ok(ExitCode::SUCCESS) } else { Err(Failure::Gate) }
}

fn entry(
    conversion: Conversion,
    found: Comparison,
    provenance: kbt_evidence::Provenance,
) -> HardwareConversion {
    let digits = conversion.format.hex_digits();
    let differences = found
        .first
        .iter()
        .map(|d| HardwareDifference {
            input: format!("{:08x}", d.input),
            hardware: format!("{:0digits$x}", d.hardware),
            encoder: format!("{:0digits$x}", d.encoder),
        })
        .collect();
    HardwareConversion {
        instruction: found.instruction,
        inputs_count: 1 << 32,
        differing_count: found.differing,
        differences,
        runs_count: found.runs.len(),
        digest: found.digest,
        provenance,
    }
}
