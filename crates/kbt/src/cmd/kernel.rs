//! `kbt kernel run`: a built-in kernel as the process of a target. What it reads and prints is the protocol of
//! kbt-target: knobs and `KBT_*` variables in, `kbt-time-us` lines and a safetensors file out.

mod launches;

use self::launches::Launches;
use crate::output::{Failure, Format, Outcome};
use kbt_gpu::{Gpu, GpuError};
use kbt_kernels::attention::{
    AttentionError, Inputs, KnobError, Knobs, Prepared, Shape, TraceLevel, trace_names,
};
use kbt_kernels::cache::{BuildError, Built, Cache};
use kbt_tensor::{Dtype, ReadOptions, Tensor, TensorSet};
use kbt_toolchain::Toolchain;
use kbt_validate::reference::{AttentionInputs, AttentionShape, attention_reference};
use serde::Serialize;
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Variables of kbt that are neither knobs nor set for each run.
const OTHER_VARIABLES: &[&str] = &["KBT_CACHE", "KBT_CUDA", "KBT_CUDA_MORE", "KBT_OFFLINE"];

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run a built-in kernel once, timed.
    Run {
        #[command(subcommand)]
        kernel: Kernel,
    },
    /// Write the machine code of a built-in kernel; needs no GPU.
    Compile {
        #[command(subcommand)]
        kernel: Compiled,
    },
    /// Compute what a built-in kernel should, in f64 on the CPU: the tensors in KBT_INPUTS, the outputs to KBT_OUT.
    Reference {
        #[command(subcommand)]
        kernel: Right,
    },
    /// List the variants whose machine code is embedded.
    List {
        /// How to print them.
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}

#[derive(clap::Subcommand)]
enum Compiled {
    /// Attention forward for sm_90a; knobs as in `kernel run attention`.
    #[command(
        after_help = "Example:\n  KBT_TOPOLOGY=registers kbt kernel compile attention -o attention.cubin"
    )]
    Attention {
        /// Head dimension.
        #[arg(long, default_value = "128", value_parser = ["64", "128"])]
        headdim: String,
        /// Where to write the cubin.
        #[arg(long, short)]
        out: PathBuf,
        /// Where to write its PTX.
        #[arg(long)]
        ptx: Option<PathBuf>,
    },
}

#[derive(clap::Subcommand)]
enum Right {
    /// Attention forward: `o` in f32, `lse` in f64.
    #[command(
        after_help = "Example:\n  KBT_INPUTS=sweep/inputs/0 KBT_OUT=right.safetensors kbt kernel reference attention"
    )]
    Attention {
        /// What scores are multiplied by; default one over the root of the head dimension.
        #[arg(long, value_parser = positive)]
        scale: Option<f64>,
        /// A query sees only keys up to its own position.
        #[arg(long)]
        causal: bool,
    },
}

#[derive(clap::Subcommand)]
enum Kernel {
    /// Attention forward for sm_90a, head dimension 64 or 128.
    #[command(after_help = "Knobs are environment variables:\n  \
        KBT_PV_MODE=bf16|fp8|fp4  KBT_QUANT_FORM=linear|linear_rcp|log2|log2_fused\n  \
        KBT_SPLIT_NUM=1..64, KBT_SPLIT_DEN=1..64  KBT_CHUNKS=2|4|8  KBT_TOPOLOGY=smem|registers\n  \
        KBT_SOURCE_ORDER=chunked|exp_first|pipelined  KBT_EXP2_EIGHTHS=0..8  KBT_RESCALE_LOG2=0..8\n  \
        KBT_SOFTMAX_REGISTERS=0|128..160 (smem), 0|168..232 (registers)  KBT_TILE_N=128|176|192\n  \
        KBT_ROLLED=0|1  KBT_TRACE=off|barrier|coarse|detail\n\n\
        Example:\n  KBT_PV_MODE=fp4 KBT_QUANT_FORM=log2 kbt kernel run attention --seqlen 8192 --causal")]
    Attention(Attention),
}

#[derive(clap::Args)]
struct Attention {
    /// Sequences.
    #[arg(long, default_value_t = 4)]
    batch: usize,
    /// Query heads a sequence.
    #[arg(long, default_value_t = 16)]
    heads: usize,
    /// Heads of K and V, a divisor of the query heads; default as many as those.
    #[arg(long)]
    heads_kv: Option<usize>,
    /// Queries and keys a sequence; any number.
    #[arg(long, default_value_t = 4096)]
    seqlen: usize,
    /// Head dimension.
    #[arg(long, default_value = "128", value_parser = ["64", "128"])]
    headdim: String,
    /// What scores are multiplied by; default one over the root of the head dimension.
    #[arg(long, value_parser = positive)]
    scale: Option<f64>,
    /// A query sees only keys up to its own position.
    #[arg(long)]
    causal: bool,
    /// Timed launches.
    #[arg(long, default_value_t = 20)]
    launches: usize,
    /// Launches before them.
    #[arg(long, default_value_t = kbt_kernels::attention::WARMUP_LAUNCHES)]
    warmup: usize,
    /// CTAs that record where KBT_TRACE is set, spread over the grid; all of them, if it has no more.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    trace_ctas: u32,
    /// GPU to use.
    #[arg(long, default_value_t = 0)]
    gpu: u32,
    /// The lines that a target's run prints, or one JSON object.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// An embedded variant, as `kernel list` names it.
#[derive(Serialize)]
struct Listed {
    digest: &'static str,
    name: &'static str,
    arch: &'static str,
    compiler: &'static str,
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Run { kernel: Kernel::Attention(args) } => attention(&args),
        Command::Compile { kernel: Compiled::Attention { headdim, out, ptx } } => {
            if ptx.as_ref() == Some(&out) {
                return Err(Failure::input(format!("--out and --ptx are one file, {}", out.display())));
            }
            let built = build(&knobs(&headdim)?)?;
            write(&out, &built.cubin)?;
            if let Some(path) = ptx {
                write(&path, &built.ptx)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Reference { kernel: Right::Attention { scale, causal } } => right(scale, causal),
        Command::List { format } => {
            let listed: Vec<Listed> = kbt_kernels::cache::embedded()
                .iter()
                .map(|e| Listed { digest: e.digest, name: e.name, arch: e.arch, compiler: e.compiler })
                .collect();
            crate::output::print(format, &listed, |listed| match listed.as_slice() {
                [] => "no machine code is embedded: this kbt was built without a CUDA compiler\n".to_owned(),
                listed => listed
                    .iter()
                    .map(|e| format!("{}  {}  {}  {}\n", e.digest, e.name, e.arch, e.compiler))
                    .collect(),
            })
        }
    }
}

/// A scale, which the kernel takes in f32.
fn positive(text: &str) -> Result<f64, String> {
    let fits = |x: &f64| (1e-30..=1e30).contains(x);
    text.parse().ok().filter(fits).ok_or_else(|| "expected a number from 1e-30 to 1e30".to_owned())
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|v| !v.is_empty())
}

fn folder(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from)
}

/// The right outputs of the attention kernel. No input is made here: it must be what the kernel read.
fn right(scale: Option<f64>, causal: bool) -> Outcome {
    let needed = |name: &str| {
        folder(name)
            .ok_or_else(|| Failure::input(format!("{name} is not set; accepted: a path, as for a run")))
    };
    let (inputs, out) = (needed("KBT_INPUTS")?.join("inputs.safetensors"), needed("KBT_OUT")?);
    let inputs = TensorSet::read(&inputs, &ReadOptions::default())?;
    let attention = AttentionInputs::new(inputs.require("q")?, inputs.require("k")?, inputs.require("v")?)?;
    let AttentionShape { batch, heads, seq_q, dim, .. } = attention.shape;
    let rows = attention_reference(&attention, causal, scale.unwrap_or_else(|| (dim as f64).sqrt().recip()));
    #[allow(clippy::cast_possible_truncation, reason = "f32 is exact enough to judge narrower outputs by")]
    let o: Vec<f32> = rows.o.iter().map(|x| *x as f32).collect();
    let mut set = TensorSet::new();
    set.insert(Tensor::from_f32("o", vec![batch, heads, seq_q, dim], Dtype::F32, &o)?)?;
    set.insert(Tensor::from_f64("lse", vec![batch, heads, seq_q], &rows.lse)?)?;
    set.record_inputs(&inputs);
    set.write_safetensors(&out)?;
    Ok(ExitCode::SUCCESS)
}

fn attention(args: &Attention) -> Outcome {
    let knobs = knobs(&args.headdim)?;
    let shape = Shape {
        batch: args.batch,
        heads: args.heads,
        heads_kv: args.heads_kv.unwrap_or(args.heads),
        seqlen: args.seqlen,
        head_dim: knobs.head_dim as usize,
        causal: args.causal,
    };
    shape.check()?;
    let set = match variable("KBT_INPUT_SET") {
        None => 0,
        Some(n) => {
            n.parse().map_err(|_| Failure::input(format!("KBT_INPUT_SET is `{n}`; accepted: 0, 1, …")))?
        }
    };
    let gpu = Gpu::open(args.gpu).map_err(absent_is_refusal)?;
    if gpu.info().compute_capability != (9, 0) {
        let (major, minor) = gpu.info().compute_capability;
        return Err(Failure::Refused(format!(
            "the attention kernel is compiled for sm_90a; {} has compute capability {major}.{minor}",
            gpu.info().name
        )));
    }
    let built = build(&knobs)?;
    let inputs = match folder("KBT_INPUTS") {
        Some(dir) => Inputs::load_or_make(&dir, &shape, set)?,
        None => Inputs::seeded(&shape, set)?,
    };
    let scale = args.scale.unwrap_or_else(|| f64::from(knobs.head_dim).sqrt().recip());
    let mut kernel =
        Prepared::new(&gpu, &built.cubin, &knobs, shape, scale, &inputs).map_err(|e| match e {
            AttentionError::Gpu(e) => absent_is_refusal(e),
            e => e.into(),
        })?;
    if let Some(dump) = folder("KBT_DUMP") {
        write(&dump.join("attention.cubin"), &built.cubin)?;
        write(&dump.join("attention.ptx"), &built.ptx)?;
    }
    let in_turn = take_turn()?;
    time(args, &gpu, &built, &knobs, &mut kernel)?;
    if in_turn {
        // Outputs are read and memory is freed when nobody is timed any more.
        crate::output::emit("kbt-done\n")?;
        std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink())?;
    }
    if let Some(out) = folder("KBT_OUT") {
        let mut outputs = kernel.outputs()?;
        outputs.record_inputs(&inputs.tensors);
        outputs.set_metadata("kernel", &built.digest);
        outputs.write_safetensors(&out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The knobs of the environment for a head dimension that the parser has let pass.
fn knobs(headdim: &str) -> Result<Knobs, Failure> {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    if let Some((wrong, meant)) = misspelt(names) {
        return Err(Failure::input(format!("the variable {wrong} is not known; the nearest is {meant}")));
    }
    let knobs = Knobs::from_variables(variable, if headdim == "64" { 64 } else { 128 });
    let knobs = knobs.map_err(|e| match e {
        KnobError::Contract { .. } => Failure::Refused(e.to_string()),
        e => Failure::from(e),
    })?;
    for variable in knobs.without_effect() {
        crate::output::tell!("kbt: {variable} changes nothing beside the other knobs");
    }
    Ok(knobs)
}

/// A variable whose name is nearly that of a knob, or of another variable that a run reads: it would change nothing, and
/// the kernel timed would be another one than was meant.
fn misspelt(names: impl Iterator<Item = String>) -> Option<(String, &'static str)> {
    let known = || Knobs::VARIABLES.iter().chain(kbt_target::RESERVED).chain(OTHER_VARIABLES).copied();
    names
        .filter(|name| name.starts_with("KBT_") && !known().any(|k| k == name))
        .find_map(|name| kbt_roofline::nearest(&name, known()).map(|meant| (name, meant)))
}

/// Where kbt-target sets several processes up together, waits until this one is to be timed.
fn take_turn() -> Result<bool, Failure> {
    if variable("KBT_TURN").is_none() {
        return Ok(false);
    }
    crate::output::emit("kbt-ready\n")?;
    std::io::stdin().read_line(&mut String::new())?;
    Ok(true)
}

fn absent_is_refusal(error: GpuError) -> Failure {
    if error.is_absent() { Failure::Refused(error.to_string()) } else { error.into() }
}

/// The machine code: embedded, kept, or compiled now. A variant that cannot be had is a refusal of this setting.
fn build(knobs: &Knobs) -> Result<Built, Failure> {
    let tools = Toolchain::find().ok();
    Cache::from_env().obtain(&knobs.variant(), tools.as_ref()).map_err(|e| match e {
        BuildError::NoCompiler { .. } => Failure::Refused(e.to_string()),
        e => e.into(),
    })
}

/// Warm-up, timed launches, and the lines that tell of them; the last launch leaves the trace.
fn time(
    args: &Attention,
    gpu: &Gpu,
    built: &Built,
    knobs: &Knobs,
    kernel: &mut Prepared,
) -> Result<(), Failure> {
    let records = matches!(knobs.trace, TraceLevel::Coarse | TraceLevel::Detail);
    // Level barrier too: its compiler barriers stand in the CTAs that would record.
    if knobs.trace != TraceLevel::Off {
        kernel.record(args.trace_ctas, 16_384)?;
    }
    let times_us = gpu.time_launches(args.launches.max(1), args.warmup, || kernel.launch())?;
    let launches = Launches::new(gpu, &built.digest, times_us);
    crate::output::print(args.format, &launches, Launches::lines)?;
    if records {
        kernel.clear_trace()?;
        kernel.launch()?;
        gpu.synchronize()?;
        write_trace(gpu, knobs, kernel, launches.clock_mhz)?;
    }
    Ok(())
}

fn write_trace(gpu: &Gpu, knobs: &Knobs, kernel: &Prepared, clock: Option<f64>) -> Result<(), Failure> {
    let Some(path) = folder("KBT_TRACE_OUT") else { return Ok(()) };
    let (Some((layout, raw)), Some(mut names)) = (kernel.trace()?, trace_names(knobs, clock)) else {
        return Ok(());
    };
    let info = gpu.info();
    for (key, value) in [
        ("device", info.name.clone()),
        ("driver", info.driver()),
        ("date", kbt_gpu::today()),
        ("command", "kbt kernel run attention".to_owned()),
        ("kernel", knobs.variant().defines.iter().map(|(k, v)| format!("{k}={v} ")).collect::<String>()),
    ] {
        names.meta.insert(key.to_owned(), value.trim_end().to_owned());
    }
    let mut bytes = Vec::new();
    kbt_trace::kbt::write_device_buffer(&mut bytes, &layout, &raw, &names)?;
    write(&path, &bytes)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    std::fs::write(path, bytes).map_err(|e| Failure::input(format!("{}: {e}", path.display())))
}
