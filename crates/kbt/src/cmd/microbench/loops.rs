//! `kbt microbench loops`: the corpus that the static cycle model is tested on.

use super::{load, progress, tool_failure, tools};
use crate::output::{Failure, Format, Outcome, emit, print, read_input};
use kbt_device::{Arch, DeviceChoice};
use kbt_kernels::cache::Cache;
use kbt_kernels::variant::Variant;
use kbt_microbench::gpu::measure_loops;
use kbt_microbench::loops::{CompiledLoops, LoopModule, LoopScore, MeasuredLoops, prepare, score};
use kbt_toolchain::{NvdisasmOptions, Toolchain};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Time every loop on a live GPU, at each number of warps that its registers allow.
    Run(RunArgs),
    /// Compare the static cycle model with the times of a run.
    #[command(after_help = "Example: kbt microbench loops score loops.yaml --device recorded:h200-sxm")]
    Score(ScoreArgs),
    /// Write the listings of the corpus, one file a module.
    Write(WriteArgs),
}

#[derive(clap::Args)]
struct RunArgs {
    /// The GPU: `live` or `live:N`.
    #[arg(long, default_value = "live")]
    device: DeviceChoice,
    /// Where the times go.
    #[arg(long, value_name = "LOOPS.yaml")]
    out: PathBuf,
}

#[derive(clap::Args)]
struct ScoreArgs {
    /// What `run` wrote.
    #[arg(value_name = "LOOPS.yaml")]
    loops: PathBuf,
    /// The profile that the model takes its rates from: recorded:NAME, model:ARCH, or a profile file.
    #[arg(long, default_value = "h200-sxm")]
    device: PathBuf,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(clap::Args)]
struct WriteArgs {
    /// The compile target.
    #[arg(long, default_value = "sm_90a")]
    arch: Arch,
    /// The folder.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(super) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Run(args) => measure(&args),
        Command::Write(args) => write(&args),
        Command::Score(args) => score_loops(&args),
    }
}

/// The corpus for a target, and who compiled it.
pub(super) fn modules(arch: Arch, tools: &Toolchain) -> Result<(Vec<LoopModule>, String), Failure> {
    let variant = Variant::new("loops/loops.cu").for_arch(arch);
    let built = Cache::from_env().obtain(&variant, Some(tools))?;
    let compiled = CompiledLoops { cubin: &built.cubin, ptx: &built.ptx };
    let modules = prepare(arch, tools, &|_| true, &[compiled]).map_err(tool_failure)?;
    Ok((modules, format!("{} for {arch}", built.compiler)))
}

fn measure(args: &RunArgs) -> Outcome {
    let DeviceChoice::Live(ordinal) = args.device else {
        return Err(Failure::input(format!("--device {}: loops are timed on live or live:N", args.device)));
    };
    let (modules, compiler) = modules(Arch::SM_90A, &tools()?)?;
    let measured = measure_loops(ordinal, &modules, &compiler, "kbt microbench loops run", &progress)
        .map_err(|e| {
            if e.is_absent() {
                Failure::Refused(format!(
                    "{e}; `kbt microbench loops score LOOPS.yaml` reads times of another run"
                ))
            } else {
                e.into()
            }
        })?;
    progress("");
    let yaml = measured.to_yaml()?;
    std::fs::write(&args.out, yaml).map_err(|e| Failure::input(format!("{}: {e}", args.out.display())))?;
    emit(&format!("{} loops timed, {} refused\n", measured.loops.len(), measured.refused.len()))
}

fn score_loops(args: &ScoreArgs) -> Outcome {
    let name = args.loops.display().to_string();
    let measured: MeasuredLoops = serde_yaml::from_slice(&read_input(&args.loops)?).map_err(|e| {
        Failure::input(format!("{name}: {e}; expected what `kbt microbench loops run` wrote"))
    })?;
    measured.check().map_err(|why| Failure::input(format!("{name}: {why}")))?;
    let profile = load(&args.device)?;
    let arch = profile.arch;
    let (modules, compiler) = modules(arch, &tools()?)?;
    let outcome = score(&measured, &modules, arch, &profile, &compiler);
    if outcome.families.is_empty() {
        return Err(Failure::Refused(format!(
            "{name}: timed with {}, and no loop has the same machine code when {compiler} compiles it",
            measured.compiler
        )));
    }
    print(args.format, &outcome, LoopScore::render_text)
}

fn write(args: &WriteArgs) -> Outcome {
    let tools = tools()?;
    let (modules, _) = modules(args.arch, &tools)?;
    let failed = |path: &PathBuf, e: std::io::Error| Failure::input(format!("{}: {e}", path.display()));
    std::fs::create_dir_all(&args.dir).map_err(|e| failed(&args.dir, e))?;
    let mut text = String::new();
    for (n, module) in modules.iter().enumerate() {
        let path = args.dir.join(format!("loops_{n:02}.sass"));
        let listing = tools
            .disassemble(&module.cubin, &NvdisasmOptions { hex: true, ..Default::default() })
            .map_err(tool_failure)?;
        std::fs::write(&path, listing).map_err(|e| failed(&path, e))?;
        for l in &module.loops {
            text.push_str(&format!(
                "{:24} {:10} {:5} instructions {:4} registers\n",
                l.name,
                l.family,
                l.body.len(),
                l.registers
            ));
        }
        for (name, why) in &module.refused {
            text.push_str(&format!("{name:24} refused: {why}\n"));
        }
    }
    emit(&text)
}
