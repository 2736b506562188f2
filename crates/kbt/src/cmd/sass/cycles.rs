//! `kbt sass cycles`: what a loop takes, by number of warps.

use super::input::InputArgs;
use super::{listing, whole};
use crate::output::{Failure, Format, Outcome, print};
use kbt_device::DeviceProfile;
use kbt_sass::cycles::{CyclesOutcome, cycles};
use kbt_sass::metrics::{self, Selection};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(super) struct CyclesArgs {
    /// A listing with its encoding, cubin, fatbin, executable or PTX file; `-` is standard input.
    file: PathBuf,
    #[command(flatten)]
    input: InputArgs,
    /// Where rates and latencies come from: recorded:NAME, model:ARCH, the name of an embedded profile, or a profile
    /// file.
    #[arg(long, value_name = "DEVICE")]
    device: PathBuf,
    /// Warps a scheduler; all that the registers allow where it is left out.
    #[arg(long, value_name = "N,N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=16))]
    warps: Vec<u32>,
    /// Functions whose name matches this regular expression.
    #[arg(long, value_name = "REGEX")]
    function: Option<String>,
    /// Loops whose name matches, as in loop:0.1.
    #[arg(long, value_name = "REGEX")]
    region: Option<String>,
    /// What a load that may miss a cache takes, in cycles.
    #[arg(long, value_name = "CYCLES")]
    global_latency: Option<u32>,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(args: &CyclesArgs) -> Outcome {
    let pattern =
        |option, text: &Option<String>| text.as_deref().map(|t| metrics::pattern(option, t)).transpose();
    let selection = Selection {
        function: pattern("--function", &args.function)?,
        region: pattern("--region", &args.region)?,
        ..Selection::default()
    };
    let profile: DeviceProfile = crate::cmd::microbench::load(&args.device)?;
    let (listing, _) = listing(&args.file, &args.input)?;
    whole(&args.file, &listing)?;
    let outcome = cycles(&listing, &profile, &selection, &args.warps, args.global_latency);
    if outcome.loops.is_empty() {
        let why = outcome.refused.first().map_or_else(
            || "no user loop in the listing is selected".to_owned(),
            |r| format!("{} {}: {}", r.function, r.name, r.reason),
        );
        return Err(Failure::Refused(format!("{}: {why}", args.file.display())));
    }
    print(args.format, &outcome, CyclesOutcome::render_text)
}
