//! `kbt target`: a target file to start from, and what the ladder can do with one.

use crate::output::{Failure, Format, Outcome, emit, find_target, print};
use kbt_device::DeviceChoice;
use kbt_ladder::Backend;
use kbt_ladder::target::{check_facts, check_outputs, facts_lack};
use kbt_target::check::{FindingState, check};
use kbt_target::{ProcessLauncher, TEMPLATE};
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
        Command::New { file } => new(&file),
        Command::Check { file, device, format } => check_file(&file, &device, format),
    }
}

fn new(path: &Path) -> Outcome {
    if path.as_os_str() == "-" {
        return emit(TEMPLATE);
    }
    let written = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    written
        .and_then(|mut file| file.write_all(TEMPLATE.as_bytes()))
        .map_err(|e| Failure::input(format!("{}: {e}", path.display())))?;
    emit(&format!("{}: edit it, then: kbt target check {}", path.display(), path.display()))
}

fn check_file(path: &Path, device: &DeviceChoice, format: Format) -> Outcome {
    let target = find_target(path)?;
    check_facts(&target)?;
    let lack = facts_lack(&target)?;
    let arch = Backend::resolve(device)?.arch().to_string();
    let scratch = std::env::temp_dir().join(format!("kbt-target-check-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).map_err(|e| Failure::input(format!("{}: {e}", scratch.display())))?;
    let mut report = check(&target, &ProcessLauncher::new(&target).for_arch(arch), &scratch, lack.as_deref());
    if let Ok(report) = &mut report {
        check_outputs(&target, &scratch.join("out.safetensors"), report);
    }
    // What it wrote there has been looked at; a leftover does no harm.
    let _ = std::fs::remove_dir_all(&scratch);
    let report = report.map_err(|e| Failure::input(format!("{}: {e}", scratch.display())))?;
    print(format, &report, ToString::to_string)?;
    match report.state() {
        FindingState::Ok => Ok(ExitCode::SUCCESS),
        FindingState::Failed | FindingState::NotTried => Err(Failure::Gate),
        FindingState::Refused => Err(Failure::Refused("the target's command does not run here".to_owned())),
    }
}
