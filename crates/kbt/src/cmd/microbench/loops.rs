//! `kbt microbench loops`: the corpus that the static cycle model is tested on.

use super::{progress, tool_failure, tools};
use crate::output::{Failure, Outcome, emit};
use kbt_device::{Arch, DeviceChoice};
use kbt_kernels::cache::Cache;
use kbt_kernels::variant::Variant;
use kbt_microbench::gpu::measure_loops;
use kbt_microbench::loops::{CompiledLoops, LoopModule, prepare};
use kbt_toolchain::{NvdisasmOptions, Tool, Toolchain};
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
    }
}

/// The corpus for a target, and who compiled it.
pub(super) fn modules(arch: Arch, tools: &Toolchain) -> Result<(Vec<LoopModule>, String), Failure> {
    let variant = Variant::new("loops/loops.cu").for_arch(arch);
    let built = Cache::from_env().obtain(&variant, Some(tools))?;
    let compiled = CompiledLoops { cubin: &built.cubin, ptx: &built.ptx };
    let modules = prepare(arch, tools, &[compiled]).map_err(tool_failure)?;
    let ptxas = tools.version(Tool::Ptxas).map_err(tool_failure)?;
    Ok((modules, format!("{}, ptxas {ptxas} for {arch}", built.compiler)))
}

fn measure(args: &RunArgs) -> Outcome {
    let DeviceChoice::Live(ordinal) = args.device else {
        return Err(Failure::input(format!("--device {}: loops are timed on live or live:N", args.device)));
    };
    let (modules, compiler) = modules(Arch::SM_90A, &tools()?)?;
    let measured = measure_loops(ordinal, &modules, &compiler, "kbt microbench loops run", &progress)?;
    progress("");
    let yaml = serde_yaml::to_string(&measured)?;
    std::fs::write(&args.out, yaml).map_err(|e| Failure::input(format!("{}: {e}", args.out.display())))?;
    emit(&format!("{} loops timed, {} refused\n", measured.loops.len(), measured.refused.len()))
}

fn write(args: &WriteArgs) -> Outcome {
    let tools = tools()?;
    let (modules, _) = modules(args.arch, &tools)?;
    let failed = |path: &PathBuf, e: std::io::Error| Failure::input(format!("{}: {e}", path.display()));
    std::fs::create_dir_all(&args.dir).map_err(|e| failed(&args.dir, e))?;
    let mut text = String::new();
    for (n, module) in modules.iter().enumerate() {
        let path = args.dir.join(format!("loops_{n:02}.sass"));
        let listing =
            tools.disassemble(&module.cubin, &NvdisasmOptions { hex: true, ..Default::default() }).map_err(tool_failure)?;
        std::fs::write(&path, listing).map_err(|e| failed(&path, e))?;
        for l in &module.loops {
            text.push_str(&format!("{:24} {:10} {:5} instructions {:4} registers\n", l.name, l.family, l.body.len(), l.registers));
        }
        for (name, why) in &module.refused {
            text.push_str(&format!("{name:24} refused: {why}\n"));
        }
    }
    emit(&text)
}
