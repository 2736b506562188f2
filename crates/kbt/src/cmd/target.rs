//! `kbt target`: a target file to start from, and what the ladder can do with one.

use crate::output::{Failure, Format, Outcome, find_target, print};
use kbt_device::DeviceChoice;
use kbt_ladder::Backend;
use kbt_ladder::target::{TargetTuner, check_facts};
use kbt_target::check::{FindingState, check};
use kbt_target::{ProcessLauncher, TEMPLATE};
use kbt_toolchain::Toolchain;
use serde::Serialize;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Write a commented, valid target file to start from.
    #[command(after_help = "Example:\n  kbt target new my-kernel.yaml")]
    New {
        /// The file to write; it must not exist. `-` prints it.
        file: PathBuf,
        /// How the answer is printed.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Run each command of a target once, and say what the ladder can do with it.
    #[command(after_help = "Example:\n  kbt target check my-kernel.yaml\n\n\
        Exit code 1 where something that the file promises is not so, 3 where its command refuses to run here.")]
    Check {
        /// A target file, or the name of one that comes with kbt: attention.
        file: PathBuf,
        /// The device that it is for, which tells the build its compile target: as for `kbt tune`.
        #[arg(long, default_value = "auto")]
        device: DeviceChoice,
        /// How the answer is printed.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::New { file, format } => new(&file, format),
        Command::Check { file, device, format } => check_file(&file, &device, format),
    }
}

/// The target file that was written.
#[derive(Serialize)]
struct NewFile<'a> {
    schema: &'static str,
    /// Where it is; absent where it is in `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a Path>,
    /// What it holds, where it was to be printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'static str>,
}

fn new(path: &Path, format: Format) -> Outcome {
    let schema = "kbt.target.new/1";
    if path.as_os_str() == "-" {
        let new = NewFile { schema, file: None, text: Some(TEMPLATE) };
        return print(format, &new, |_| TEMPLATE.to_owned());
    }
    let written = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    written
        .and_then(|mut file| file.write_all(TEMPLATE.as_bytes()))
        .map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
    print(format, &NewFile { schema, file: Some(path), text: None }, |_| {
        format!("{}: edit it, then: kbt target check {}", path.display(), path.display())
    })
}

fn check_file(path: &Path, device: &DeviceChoice, format: Format) -> Outcome {
    let target = find_target(path)?;
    check_facts(&target)?;
    let backend = Backend::resolve(device)?;
    let arch = backend.arch().to_string();
    let scratch = std::env::temp_dir().join(format!("kbt-target-check-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).map_err(|e| Failure::input(format!("{}: {e}", scratch.display())))?;
    let file = path.display().to_string();
    let mut quiet = |_: &str| {};
    let tools = Toolchain::find().ok();
    let readers = TargetTuner::new(target.clone(), &file, &backend, &scratch, tools, true, &mut quiet)?;
    let report = check(&target, &ProcessLauncher::new(&target).for_arch(arch), &scratch, &readers);
    // What it wrote there has been looked at; a leftover does no harm.
    let _ = std::fs::remove_dir_all(&scratch);
    let report = report.map_err(|e| Failure::input(format!("{}: {e}", scratch.display())))?;
    print(format, &report, ToString::to_string)?;
    match report.state() {
        FindingState::Ok => Ok(ExitCode::SUCCESS),
        FindingState::Failed | FindingState::NotTried => Err(Failure::Gate),
        FindingState::Refused => Err(Failure::Refused(
            "the target's command, or a tool that reads what it left, does not run here".to_owned(),
        )),
    }
}
