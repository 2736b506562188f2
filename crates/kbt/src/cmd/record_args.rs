//! The arguments of `kbt record`. xtask reads this file too, so that its help needs no build of kbt; there a format is any
//! text.

use super::Format;
use std::path::PathBuf;

/// Make a recording of a real device out of finished runs.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Import finished runs that were measured live, one a pv mode or target.
    #[command(after_help = "Examples:\n  kbt record import brought-back/run\n  \
                      kbt record import runs/bf16 runs/fp8 runs/fp4 --into fixtures/recordings/h200-sxm")]
    Import {
        /// Run directories, or folders that hold some.
        #[arg(required = true)]
        runs: Vec<PathBuf>,
        /// The recording's folder; its last part is the recording's name. Default: recordings/DEVICE-DATE.
        #[arg(long)]
        into: Option<PathBuf>,
        /// Replace runs of the same pv mode or target that the recording has.
        #[arg(long)]
        force: bool,
        /// How the answer is printed: text or json.
        #[arg(long, default_value = "text", hide_possible_values = true)]
        format: Format,
    },
}
