//! The options of `kbt validate`.

use crate::output::Format;
use kbt_tensor::Dtype;
use kbt_validate::bisect::BisectPlan;
use kbt_validate::compare::Rules;
use kbt_validate::flake::FlakePlan;
use kbt_validate::probe::{LseBase, ProbeKind};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(super) command: Sub,
}

#[derive(clap::Subcommand)]
pub(super) enum Sub {
    /// Compare a variant's output with the saved one: bit for bit, then by its error.
    Compare(CompareArgs),
    /// Run a command again and again: does it always give the same output?
    Flake(FlakeArgs),
    /// Find the knob that is to blame for a difference, even one that shows only in some runs.
    Bisect(BisectArgs),
    /// Write attention inputs whose right output is known, or check an output against it.
    Probe(ProbeArgs),
}

/// Compare a variant's output with the saved one.
#[derive(clap::Args)]
#[command(after_help = "Example: kbt validate compare saved.safetensors log2.safetensors --class algebra \
                        --reference right.safetensors\n\nReads safetensors, npy, npz and PyTorch .pt. Exit 1 if the \
                        class's rule is broken, 3 if a comparison would mislead (other inputs, a constant reference).")]
pub(super) struct CompareArgs {
    /// The output known to be good; - reads standard input.
    pub(super) saved: PathBuf,
    /// The output in question; - reads standard input.
    pub(super) variant: PathBuf,
    /// What the change claims to be: reorder keeps every bit, algebra keeps the accuracy.
    #[arg(long, value_enum, default_value_t)]
    pub(super) class: ClassArg,
    /// The right answer, in f32 or f64.
    #[arg(long, value_name = "FILE")]
    pub(super) reference: Option<PathBuf>,
    /// The baseline's output, whose error is the measure; the saved output if left out.
    #[arg(long, value_name = "FILE", requires = "reference")]
    pub(super) baseline: Option<PathBuf>,
    /// The baseline's output for another seed and its reference: how far its largest error spreads. Repeatable.
    #[arg(long, value_name = "OUTPUT,REFERENCE", requires = "reference")]
    pub(super) baseline_seed: Vec<String>,
    /// By how much mean and relative RMS error may exceed the baseline's.
    #[arg(long, default_value_t = Rules::default().factor)]
    pub(super) factor: f64,
    /// Take a reference or saved output that is constant: for a probe that expects one.
    #[arg(long)]
    pub(super) allow_constant: bool,
    /// The element type of a tensor whose file lost it, e.g. p=e4m3. Repeatable.
    #[arg(long, value_name = "NAME=TYPE")]
    pub(super) dtype: Vec<String>,
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

#[derive(Clone, Copy, Default, clap::ValueEnum)]
pub(super) enum ClassArg {
    #[default]
    Reorder,
    Algebra,
}

/// How a command is run.
#[derive(clap::Args)]
pub(super) struct RunArgs {
    /// Input sets that take turns, as KBT_INPUT_SET.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) sets: u32,
    /// The rate of the fault that is to be shown.
    #[arg(long, default_value_t = 0.05, value_parser = proportion)]
    pub(super) rate: f64,
    /// The confidence of what is stated.
    #[arg(long, default_value_t = 0.95, value_parser = proportion)]
    pub(super) confidence: f64,
    /// Seconds after which a run is killed, with all that it started.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) limit_s: u64,
    /// Other work to be done between two runs, as a shell command: what it leaves on the GPU is not what the run
    /// before left. Its output is dropped; it must succeed.
    #[arg(long, value_name = "SHELL COMMAND")]
    pub(super) between: Option<String>,
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
    /// The command. It writes the file $KBT_OUT, or its standard output is its output.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

/// Run a command again and again.
#[derive(clap::Args)]
#[command(
    after_help = "Example: kbt validate flake -n 60 --between './gemm --once' -- ./attention --seqlen 4096\n\nEvery \
                        run is a fresh process. It stops at the first difference: exit 1."
)]
pub(super) struct FlakeArgs {
    /// Runs in all.
    #[arg(short = 'n', long, default_value_t = FlakePlan::default().runs, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) runs: u32,
    /// The saved output of an input set. Repeatable.
    #[arg(long, value_name = "SET=FILE")]
    pub(super) reference: Vec<String>,
    #[command(flatten)]
    pub(super) run: RunArgs,
}

/// Find the knob that is to blame.
#[derive(clap::Args)]
#[command(
    after_help = "Example: kbt validate bisect --knob SPLIT=1/2,3/4 --knob FORM=linear,log2 -- ./attention\n\nExit \
                        0 if knobs were found or nothing differs, 1 if the baseline itself is not steady, 3 if the \
                        runs ended before it was known."
)]
pub(super) struct BisectArgs {
    /// An environment variable with its base and its changed value. Repeatable.
    #[arg(long, value_name = "NAME=BASE,CHANGED", required = true)]
    pub(super) knob: Vec<String>,
    /// Runs in all, beside the baseline's own.
    #[arg(long, default_value_t = BisectPlan::default().max_runs)]
    pub(super) max_runs: u32,
    /// What counts as a difference: from the baseline's output, or from another run of the same setting.
    #[arg(long, value_enum, default_value_t)]
    pub(super) against: AgainstArg,
    #[command(flatten)]
    pub(super) run: RunArgs,
}

#[derive(Clone, Copy, Default, clap::ValueEnum)]
pub(super) enum AgainstArg {
    #[default]
    Baseline,
    Itself,
}

/// Write attention inputs whose right output is known.
#[derive(clap::Args)]
#[command(
    after_help = "Example: kbt validate probe v-one --keys 4096 --out v-one.safetensors\n\nKinds: v-one one-hot \
                        two-hot uniform masked-row masked-group tie-aligned extremes. The file holds q, k, v, the \
                        right o and lse, and in its metadata `causal` and `scale`."
)]
pub(super) struct ProbeArgs {
    /// What the probe asks of the kernel.
    pub(super) kind: ProbeKind,
    /// Where to write it; - writes to standard output.
    #[arg(long, value_name = "FILE", required_unless_present = "check")]
    pub(super) out: Option<PathBuf>,
    /// A kernel's output for this probe, made with the same options, to be checked: exit 1 if it is wrong. The output is
    /// `o`; the log-sums of exponentials, where it has them, are `lse`.
    #[arg(long, value_name = "FILE")]
    pub(super) check: Option<PathBuf>,
    /// What the kernel holds P in, which bounds its error.
    #[arg(long, value_enum, default_value_t)]
    pub(super) p_format: PFormatArg,
    /// The base of the logarithm in `lse`, e or 2, where the file's metadata does not state it as `lse_base`; e if left out.
    #[arg(long, value_name = "BASE", requires = "check")]
    pub(super) lse_base: Option<LseBase>,
    /// Independent sequences.
    #[arg(long, default_value_t = 1)]
    pub(super) batch: usize,
    /// Query heads.
    #[arg(long, default_value_t = 2)]
    pub(super) heads: usize,
    /// Key and value heads; as many as query heads if left out.
    #[arg(long)]
    pub(super) heads_kv: Option<usize>,
    /// Queries a head; as many as keys if left out, twice as many for masked-row.
    #[arg(long)]
    pub(super) queries: Option<usize>,
    /// Keys a head.
    #[arg(long, default_value_t = 512)]
    pub(super) keys: usize,
    /// Elements a query, key or value.
    #[arg(long, default_value_t = 128)]
    pub(super) dim: usize,
    /// The type of q, k and v: bf16, f16 or f32.
    #[arg(long, default_value = "bf16")]
    pub(super) dtype: Dtype,
    /// Another probe of the same kind.
    #[arg(long, default_value_t = 0)]
    pub(super) seed: u64,
    #[arg(long, value_enum, default_value_t)]
    pub(super) format: Format,
}

#[derive(Clone, Copy, Default, clap::ValueEnum)]
pub(super) enum PFormatArg {
    #[default]
    Bf16,
    E4m3,
    Nvfp4,
}

fn proportion(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|p| *p > 0.0 && *p < 1.0)
        .ok_or_else(|| "a number between 0 and 1 expected".to_owned())
}
