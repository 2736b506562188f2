//! `kbt microbench pipes`: measures mixes or reads them, explains them, and writes what was found.

use super::{load, progress, tool_failure, tools};
use crate::output::{Failure, Format, Outcome, emit, print, read_input};
use kbt_device::{Arch, DeviceChoice};
use kbt_microbench::filter::Filter;
use kbt_microbench::gpu::RunError;
use kbt_microbench::gpu::pipes::{PipesError, PipesOptions, counter_kernels, measure_mixes};
use kbt_microbench::pipes::assemble::{AssembleError, Assembler};
use kbt_microbench::pipes::subjects::subjects;
use kbt_microbench::pipes::{
    BUDGET, Comparison, Counters, CountersError, Mixes, PipesVerification, compare, infer, verify_all,
};
use kbt_toolchain::Tool;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The profile whose rates the instructions alone are held against; a file, `-`, or an embedded one's name.
    #[arg(long, value_name = "PROFILE.yaml", required_unless_present = "counter_kernels")]
    profile: Option<PathBuf>,
    /// Where the resources go; `-` writes them to standard output.
    #[arg(long, value_name = "FILE.yaml", required_unless_present_any = ["counter_kernels", "verify_only"])]
    out: Option<PathBuf>,
    /// The GPU: `live` or `live:N`.
    #[arg(long, default_value = "live")]
    device: DeviceChoice,
    /// Explain these measured mixes; no GPU is needed.
    #[arg(long, value_name = "FILE.yaml", conflicts_with_all = ["write_mixes", "verify_only", "counter_kernels", "only", "budget"])]
    mixes: Option<PathBuf>,
    /// Also write what was measured, for `--mixes`.
    #[arg(long, value_name = "FILE.yaml")]
    write_mixes: Option<PathBuf>,
    /// Nsight Compute's counters of the kernels that `--counter-kernels` launches, to compare with.
    #[arg(long, value_name = "NCU.csv")]
    counters: Option<PathBuf>,
    /// Mixes to measure at most, at least 1.
    #[arg(long, default_value_t = BUDGET, value_parser = at_least_one)]
    budget: usize,
    /// Only instructions (and with --verify-only mixes, `a+b`) that this regular expression matches.
    #[arg(long, value_name = "REGEX")]
    only: Option<String>,
    /// A folder in which compiled kernels are kept and looked for.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// Only assemble and check every instruction and every mix of two; no GPU is needed.
    #[arg(long, conflicts_with = "counter_kernels")]
    verify_only: bool,
    /// The compile target to check for.
    #[arg(long, default_value = "sm_90a", requires = "verify_only")]
    arch: Arch,
    /// Launch the kernel of each instruction once, under the instruction's name, for the profiler to count.
    #[arg(long)]
    counter_kernels: bool,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "a whole number of at least 1 is expected".to_owned())
}

pub(super) fn run(args: &Args) -> Outcome {
    let only = Filter::new(args.only.as_deref()).map_err(|e| Failure::input(format!("--only: {e}")))?;
    if args.counter_kernels {
        return count(args, &only);
    }
    if args.verify_only {
        return verify(args, &only);
    }
    let Some(out) = &args.out else { return Err(Failure::input("--out is needed")) };
    let Some(profile) = &args.profile else { return Err(Failure::input("--profile is needed")) };
    let profile = load(profile)?;
    // Read before anything is measured: a wrong file should cost nothing.
    let counters = args.counters.as_deref().map(read_counters).transpose()?;
    let mixes = match &args.mixes {
        Some(path) => Mixes::from_yaml(&text_of(path)?, &path.display().to_string())?,
        None => measure_mixes(&tools()?, &options(args, &only)?).map_err(failure)?,
    };
    progress("");
    if profile.arch != mixes.arch {
        return Err(Failure::input(format!(
            "--profile is of {}, the mixes are of {}: pass the profile of the same target",
            profile.arch, mixes.arch
        )));
    }
    if let Some(path) = &args.write_mixes {
        write(path, &mixes.to_yaml()?)?;
    }
    let mut outcome = infer(&mixes);
    outcome.hold_against(&profile);
    outcome.comparison = match counters {
        None => outcome.comparison,
        Some(Ok(counters)) => compare(&outcome, &mixes, &counters),
        Some(Err(refused)) => Comparison::refused(refused.to_string()),
    };
    let yaml = outcome.to_yaml()?;
    write(out, &yaml)?;
    if out.as_os_str() != "-" {
        print(args.format, &outcome, |o| o.render_text())?;
    }
    if outcome.comparison.mistakes.is_empty() {
        Ok(std::process::ExitCode::SUCCESS)
    } else {
        Err(Failure::Gate)
    }
}

/// The counters; or why the comparison is refused, where the profiler was not allowed to count.
fn read_counters(path: &Path) -> Result<Result<Counters, CountersError>, Failure> {
    match Counters::from_csv(&text_of(path)?, &path.display().to_string()) {
        Ok(counters) => Ok(Ok(counters)),
        Err(error @ CountersError::NoPermission(_)) => Ok(Err(error)),
        Err(other) => Err(other.into()),
    }
}

fn options<'a>(args: &'a Args, only: &'a Filter) -> Result<PipesOptions<'a>, Failure> {
    let DeviceChoice::Live(ordinal) = args.device else {
        return Err(Failure::input(format!(
            "--device {}: mixes are measured on live or live:N",
            args.device
        )));
    };
    Ok(PipesOptions {
        ordinal,
        command: "kbt microbench pipes".to_owned(),
        budget: args.budget,
        only,
        cache: args.cache.as_deref(),
        progress: &progress,
    })
}

fn count(args: &Args, only: &Filter) -> Outcome {
    let (names, refused) = counter_kernels(&tools()?, &options(args, only)?).map_err(failure)?;
    let mut text: String = names.iter().map(|n| format!("{n}\n")).collect();
    for r in refused {
        text.push_str(&format!("refused: {}: {}\n", r.what, r.why));
    }
    emit(&text)
}

fn verify(args: &Args, only: &Filter) -> Outcome {
    let Some(profile) = &args.profile else { return Err(Failure::input("--profile is needed")) };
    let (profile, tools) = (load(profile)?, tools()?);
    let ptxas = tools.version(Tool::Ptxas).map_err(tool_failure)?;
    let assembler = Assembler::new(&tools, args.arch, args.cache.as_deref()).map_err(assemble_failure)?;
    let parts = subjects(args.arch)?;
    let found =
        verify_all(&assembler, &parts, &profile, &ptxas, &|n| only.accepts(n)).map_err(assemble_failure)?;
    print(args.format, &found, PipesVerification::render_text)
}

fn assemble_failure(error: AssembleError) -> Failure {
    match error {
        AssembleError::Tool(e) => tool_failure(e),
        other => other.into(),
    }
}

fn failure(error: PipesError) -> Failure {
    match error {
        PipesError::Run(RunError::Gpu(e)) if e.is_absent() => Failure::Refused(format!(
            "{e}; `--mixes FILE.yaml` explains mixes that were measured elsewhere, and `--verify-only` checks the \
             machine code"
        )),
        PipesError::Run(RunError::Tool(e)) => tool_failure(e),
        PipesError::Assemble(e) => assemble_failure(e),
        other => other.into(),
    }
}

fn text_of(path: &Path) -> Result<String, Failure> {
    String::from_utf8(read_input(path)?).map_err(|_| Failure::input(format!("{}: not UTF-8", path.display())))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        return emit(text).map(|_| ());
    }
    std::fs::write(path, text).map_err(|e| Failure::input(format!("{}: {e}", path.display())))
}
