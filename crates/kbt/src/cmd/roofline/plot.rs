//! `kbt roofline plot`: fact sheets as points under the roofs of a device, in one SVG file.

use super::{ceilings, name, text};
use crate::output::{Failure, Outcome, emit};
use kbt_roofline::outcome::RooflinePlot;
use kbt_roofline::{FactSheet, triage};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The fact sheets (YAML); `-` reads standard input.
    #[arg(required = true)]
    facts: Vec<PathBuf>,
    /// Whose ceilings: auto, recorded:NAME, model:ARCH, a profile or recording, or a part (B200).
    #[arg(long, default_value = "auto")]
    device: String,
    /// The SVG to write; `-` is standard output.
    #[arg(short, long)]
    out: PathBuf,
    /// Overwrite a file that is no plot of kbt's.
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &Args) -> Outcome {
    // A plot is drawn anew at will; whatever else is there is somebody's work.
    let others = |bytes: &Vec<u8>| !bytes.is_empty() && !kbt_report::is_own_svg(bytes);
    if !args.force && std::fs::read(&args.out).is_ok_and(|bytes| others(&bytes)) {
        let told = format!("{} exists and is no plot of kbt's; --force overwrites it", args.out.display());
        return Err(Failure::input(told));
    }
    let mut all = RooflinePlot::default();
    for path in &args.facts {
        let origin = name(path);
        let sheet = FactSheet::from_yaml(&text(path)?, &origin)?;
        let outcome = triage(&sheet, ceilings(&args.device, &sheet)?.as_ref(), &[])?;
        let why = outcome.refusal.clone().unwrap_or_else(|| "no roofs are known".to_owned());
        let Some(mut plot) = outcome.plot else { return Err(Failure::Refused(format!("{origin}: {why}"))) };
        if plot.points.is_empty() {
            crate::output::tell!("kbt: {origin}: no point, only roofs: {why}");
        }
        if let (Some(other), Some(device)) = (&outcome.sheet_device, &outcome.device) {
            crate::output::tell!("kbt: {origin}: timed on {other}, drawn under the roofs of {device}");
            // In the picture too, which travels without the message.
            plot.points.iter_mut().for_each(|p| p.name.push_str(&format!(" (timed on {other})")));
        }
        all.add(plot);
    }
    let svg = kbt_report::roofline_svg(&all)?;
    if args.out.as_os_str() == "-" {
        return emit(&svg);
    }
    std::fs::write(&args.out, svg).map_err(|e| Failure::input(format!("{}: {e}", args.out.display())))?;
    crate::output::tell!("kbt: {} written", args.out.display());
    Ok(std::process::ExitCode::SUCCESS)
}
