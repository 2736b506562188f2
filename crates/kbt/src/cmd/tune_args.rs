//! The arguments of `kbt tune`. xtask reads this file too, so that its help needs no build of kbt; there a mode is any text.

use super::PvMode;
use kbt_device::DeviceChoice;
use std::path::PathBuf;

/// Run the whole ladder on a kernel and write a report.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("kernel").required(true).args(["pv_mode", "target"])))]
#[command(after_help = "Examples:\n  \
    kbt tune --pv-mode fp4\n  \
    kbt tune --pv-mode bf16 --device live --out runs/today\n  \
    kbt tune --pv-mode fp8 --resume\n  \
    kbt tune --target my-kernel.yaml\n  \
    kbt tune --target my-kernel.yaml --device model:sm_103a")]
pub(crate) struct Args {
    /// The built-in attention kernel, by what P.V is multiplied in: bf16, fp8 or fp4.
    #[arg(long, value_name = "MODE")]
    pub(crate) pv_mode: Option<PvMode>,
    /// A kernel of your own: its target file (`kbt target new` writes one), or the name of one that comes with kbt.
    #[arg(long, value_name = "FILE.yaml")]
    pub(crate) target: Option<PathBuf>,
    /// auto, live, live:N, recorded:NAME, model:sm_103a, or a path to a profile or recording.
    #[arg(long, default_value = "auto")]
    pub(crate) device: DeviceChoice,
    /// The run directory; default `kbt-runs/TIME-MODE`, or the target's name in place of the mode.
    #[arg(long)]
    pub(crate) out: Option<PathBuf>,
    /// Continue an unfinished run: the one in --out, else the newest under kbt-runs.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Overwrite the run in --out.
    #[arg(long, conflicts_with = "resume")]
    pub(crate) force: bool,
    /// Rates and ceilings measured earlier on this device (the profile.yaml of a run), instead of measuring them again on
    /// a live one; they count as recorded.
    #[arg(long, value_name = "PROFILE.yaml")]
    pub(crate) rates: Option<PathBuf>,
    /// Fewer repetitions and points.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Who runs the points of a sweep.
    #[arg(long, value_parser = ["local"], default_value = "local")]
    pub(crate) engine: String,
}
