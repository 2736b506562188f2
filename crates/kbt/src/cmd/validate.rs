//! `kbt validate`: arguments, and the calls into kbt-validate. The user's command is run by `process`.

mod process;

use crate::output::{Failure, Format, Outcome, emit, print, read_input, tell};
use kbt_evidence::Provenance;
use kbt_tensor::{Dtype, ReadOptions, Tensor, TensorFile};
use kbt_validate::bisect::{Against, BisectError, BisectFinding, BisectPlan, Knob, bisect};
use kbt_validate::compare::{ChangeClass, CompareError, Rules, Sides, Tensors, compare};
use kbt_validate::flake::{FlakeFinding, FlakePlan, flake};
use kbt_validate::probe::{PFormat, Probe, ProbeKind};
use kbt_validate::reference::AttentionShape;
use kbt_validate::runner::RunOutput;
use process::Process;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Sub,
}

#[derive(clap::Subcommand)]
enum Sub {
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
struct CompareArgs {
    /// The output known to be good; - reads standard input.
    saved: PathBuf,
    /// The output in question; - reads standard input.
    variant: PathBuf,
    /// What the change claims to be: reorder keeps every bit, algebra keeps the accuracy.
    #[arg(long, value_enum, default_value_t)]
    class: ClassArg,
    /// The right answer, in f32 or f64.
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    /// The baseline's output, whose error is the measure; the saved output if left out.
    #[arg(long, value_name = "FILE", requires = "reference")]
    baseline: Option<PathBuf>,
    /// The baseline's output for another seed and its reference: how far its largest error spreads. Repeatable.
    #[arg(long, value_name = "OUTPUT,REFERENCE", requires = "reference")]
    baseline_seed: Vec<String>,
    /// By how much mean and relative RMS error may exceed the baseline's.
    #[arg(long, default_value_t = Rules::default().factor)]
    factor: f64,
    /// Take a reference or saved output that is constant: for a probe that expects one.
    #[arg(long)]
    allow_constant: bool,
    /// The element type of a tensor whose file lost it, e.g. p=e4m3. Repeatable.
    #[arg(long, value_name = "NAME=TYPE")]
    dtype: Vec<String>,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Default, clap::ValueEnum)]
enum ClassArg {
    #[default]
    Reorder,
    Algebra,
}

/// How a command is run.
#[derive(clap::Args)]
struct RunArgs {
    /// Input sets that take turns, as KBT_INPUT_SET.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    sets: u32,
    /// The rate of the fault that is to be shown.
    #[arg(long, default_value_t = 0.05, value_parser = proportion)]
    rate: f64,
    /// The confidence of what is stated.
    #[arg(long, default_value_t = 0.95, value_parser = proportion)]
    confidence: f64,
    /// Seconds after which a run is killed, with its whole process group.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    limit_s: u64,
    /// Other work to be done between two runs, as a shell command: what it leaves on the GPU is not what the run
    /// before left. Its output is dropped; it must succeed.
    #[arg(long, value_name = "SHELL COMMAND")]
    between: Option<String>,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// The command. It writes the file $KBT_OUT, or its standard output is its output.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Run a command again and again.
#[derive(clap::Args)]
#[command(
    after_help = "Example: kbt validate flake -n 60 --between './gemm --once' -- ./attention --seqlen 4096\n\nEvery \
                        run is a fresh process. It stops at the first difference: exit 1."
)]
struct FlakeArgs {
    /// Runs in all.
    #[arg(short = 'n', long, default_value_t = FlakePlan::default().runs, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// The saved output of an input set. Repeatable.
    #[arg(long, value_name = "SET=FILE")]
    reference: Vec<String>,
    #[command(flatten)]
    run: RunArgs,
}

/// Find the knob that is to blame.
#[derive(clap::Args)]
#[command(
    after_help = "Example: kbt validate bisect --knob SPLIT=1/2,3/4 --knob FORM=linear,log2 -- ./attention\n\nExit \
                        0 if knobs were found or nothing differs, 1 if the baseline itself is not steady, 3 if the \
                        runs ended before it was known."
)]
struct BisectArgs {
    /// An environment variable with its base and its changed value. Repeatable.
    #[arg(long, value_name = "NAME=BASE,CHANGED", required = true)]
    knob: Vec<String>,
    /// Runs in all, beside the baseline's own.
    #[arg(long, default_value_t = BisectPlan::default().max_runs)]
    max_runs: u32,
    /// What counts as a difference: from the baseline's output, or from another run of the same setting.
    #[arg(long, value_enum, default_value_t)]
    against: AgainstArg,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Clone, Copy, Default, clap::ValueEnum)]
enum AgainstArg {
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
struct ProbeArgs {
    /// What the probe asks of the kernel.
    kind: ProbeKind,
    /// Where to write it; - writes to standard output.
    #[arg(long, value_name = "FILE", required_unless_present = "check")]
    out: Option<PathBuf>,
    /// A kernel's output for this probe, made with the same options, to be checked: exit 1 if it is wrong.
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
    /// What the kernel holds P in, which bounds its error.
    #[arg(long, value_enum, default_value_t)]
    p_format: PFormatArg,
    /// Independent sequences.
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Query heads.
    #[arg(long, default_value_t = 2)]
    heads: usize,
    /// Key and value heads; as many as query heads if left out.
    #[arg(long)]
    heads_kv: Option<usize>,
    /// Queries a head; as many as keys if left out, twice as many for masked-row.
    #[arg(long)]
    queries: Option<usize>,
    /// Keys a head.
    #[arg(long, default_value_t = 512)]
    keys: usize,
    /// Elements a query, key or value.
    #[arg(long, default_value_t = 128)]
    dim: usize,
    /// The type of q, k and v: bf16, f16 or f32.
    #[arg(long, default_value = "bf16")]
    dtype: Dtype,
    /// Another probe of the same kind.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, Default, clap::ValueEnum)]
enum PFormatArg {
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

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Sub::Compare(args) => run_compare(&args),
        Sub::Flake(args) => run_flake(&args),
        Sub::Bisect(args) => run_bisect(&args),
        Sub::Probe(args) => run_probe(&args),
    }
}

fn run_compare(args: &CompareArgs) -> Outcome {
    let mut options = ReadOptions::default();
    for text in &args.dtype {
        options = options.with_dtype(text)?;
    }
    let files = [Some(&args.saved), Some(&args.variant), args.reference.as_ref(), args.baseline.as_ref()];
    if files.into_iter().flatten().filter(|file| file.as_os_str() == "-").count() > 1 {
        return Err(Failure::input("standard input (-) holds one file; give the others by name"));
    }
    let mut names = Vec::new();
    let mut open = |path: &Path| -> Result<TensorFile, Failure> {
        let file = open_tensors(path, &options)?;
        names.extend(file.infos().map(|i| i.name.clone()));
        file.notes().iter().for_each(|note| tell!("kbt: {}: {note}", path.display()));
        Ok(file)
    };
    let (saved, variant) = (open(&args.saved)?, open(&args.variant)?);
    let reference = args.reference.as_deref().map(&mut open).transpose()?;
    let baseline = args.baseline.as_deref().map(&mut open).transpose()?;
    let mut seeds = Vec::new();
    for pair in &args.baseline_seed {
        let (output, right) = pair
            .split_once(',')
            .ok_or_else(|| Failure::input(format!("--baseline-seed {pair}: OUTPUT,REFERENCE expected")))?;
        seeds.push((open(Path::new(output))?, open(Path::new(right))?));
    }
    if let Some(name) = options.dtypes.keys().find(|name| !names.contains(name)) {
        return Err(Failure::input(format!("--dtype {name}: no file has a tensor `{name}`")));
    }
    let seeds: Vec<(&dyn Tensors, &dyn Tensors)> =
        seeds.iter().map(|(o, r)| (o as &dyn Tensors, r as &dyn Tensors)).collect();
    let sides = Sides {
        saved: &saved,
        variant: &variant,
        reference: reference.as_ref().map(|r| r as &dyn Tensors),
        rows: None,
        baseline: baseline.as_ref().map(|b| b as &dyn Tensors),
        seeds: &seeds,
    };
    let class = match args.class {
        ClassArg::Reorder => ChangeClass::Reorder,
        ClassArg::Algebra => ChangeClass::Algebra,
    };
    let rules = Rules { class, factor: args.factor, allow_constant: args.allow_constant, ..Rules::default() };
    let provenance =
        Provenance::given(format!("{} against {}", args.variant.display(), args.saved.display()));
    let comparison = compare(&sides, &rules, provenance).map_err(|error| match error {
        CompareError::Refused(why) => Failure::Refused(why),
        other => other.into(),
    })?;
    gate(comparison.passed(), print(args.format, &comparison, ToString::to_string))
}

fn open_tensors(path: &Path, options: &ReadOptions) -> Result<TensorFile, Failure> {
    if path.as_os_str() == "-" {
        return Ok(TensorFile::from_bytes(read_input(path)?, "stdin", options)?);
    }
    Ok(TensorFile::open(path, options)?)
}

/// Exit code 1 where a gate failed, once the findings are printed.
fn gate(passed: bool, printed: Outcome) -> Outcome {
    let code = printed?;
    if passed { Ok(code) } else { Err(Failure::Gate) }
}

fn run_flake(args: &FlakeArgs) -> Outcome {
    let mut references = BTreeMap::new();
    for text in &args.reference {
        let parsed = text.split_once('=').and_then(|(set, file)| Some((set.parse::<u32>().ok()?, file)));
        let (set, file) = parsed.ok_or_else(|| {
            Failure::input(format!("--reference {text}: SET=FILE expected, e.g. 0=saved.safetensors"))
        })?;
        if set >= args.run.sets {
            return Err(Failure::input(format!(
                "--reference {text}: there are {} input sets, from 0",
                args.run.sets
            )));
        }
        if references.insert(set, RunOutput::from_bytes(read_input(Path::new(file))?)?).is_some() {
            return Err(Failure::input(format!("--reference {text}: input set {set} has one already")));
        }
    }
    let plan = FlakePlan {
        runs: args.runs,
        sets: args.run.sets,
        confidence: args.run.confidence,
        target_rate: args.run.rate,
        env: Vec::new(),
    };
    let process = Process::new(&args.run, Some(args.runs))?;
    let mut result = flake(&process, &plan, &references, process.provenance("flake"));
    process.end_progress();
    process.check_between()?;
    if result.finding == FlakeFinding::RunFailed && result.runs_count == 1 {
        return Err(Failure::input(format!("the command {}", result.statement())));
    }
    result.provenance = process.provenance("flake");
    if result.finding == FlakeFinding::OtherInputs {
        print(args.run.format, &result, ToString::to_string)?;
        return Err(Failure::Refused("the runs did not see the same inputs".to_owned()));
    }
    let printed = print(args.run.format, &result, ToString::to_string);
    if result.finding == FlakeFinding::Uncompared {
        printed?;
        return Err(Failure::Refused("nothing was compared".to_owned()));
    }
    gate(result.passed(), printed)
}

fn run_bisect(args: &BisectArgs) -> Outcome {
    let knob = |text: &String| -> Result<Knob, Failure> {
        let parts = text.split_once('=').and_then(|(name, values)| Some((name, values.split_once(',')?)));
        let (name, (base, changed)) = parts
            .filter(|p| !p.0.is_empty())
            .ok_or_else(|| Failure::input(format!("--knob {text}: NAME=BASE,CHANGED expected")))?;
        if kbt_target::RESERVED.contains(&name) {
            let why = format!(
                "--knob {text}: `{name}` is set by kbt for each run; accepted: a variable of the command's own"
            );
            return Err(Failure::input(why));
        }
        Ok(Knob { name: name.to_owned(), base: base.to_owned(), changed: changed.to_owned() })
    };
    let knobs = args.knob.iter().map(knob).collect::<Result<Vec<_>, _>>()?;
    let plan = BisectPlan {
        rate: args.run.rate,
        confidence: args.run.confidence,
        max_runs: args.max_runs,
        sets: args.run.sets,
        against: match args.against {
            AgainstArg::Baseline => Against::Baseline,
            AgainstArg::Itself => Against::Itself,
        },
    };
    let process = Process::new(&args.run, None)?;
    let result = bisect(&process, &knobs, &plan, process.provenance("bisect"));
    process.end_progress();
    process.check_between()?;
    let mut result = result.map_err(|error| match error {
        BisectError::OtherInputs(_) => Failure::Refused(error.to_string()),
        other => other.into(),
    })?;
    result.provenance = process.provenance("bisect");
    result.baseline.provenance = result.provenance.clone();
    let printed = print(args.run.format, &result, ToString::to_string);
    match &result.finding {
        BisectFinding::Unfinished(_) => {
            printed?;
            Err(Failure::Refused(format!("{}; allow more with --max-runs", result.statement())))
        }
        BisectFinding::BaselineFlaky => gate(false, printed),
        BisectFinding::Knobs(_) | BisectFinding::Clean => printed,
    }
}

fn run_probe(args: &ProbeArgs) -> Outcome {
    let queries = if args.kind == ProbeKind::MaskedRow { args.keys.saturating_mul(2) } else { args.keys };
    let shape = AttentionShape {
        batch: args.batch,
        heads: args.heads,
        heads_kv: args.heads_kv.unwrap_or(args.heads),
        seq_q: args.queries.unwrap_or(queries),
        seq_k: args.keys,
        dim: args.dim,
    };
    let probe = Probe::new(args.kind, shape, args.dtype, args.seed)?;
    if let Some(path) = &args.out {
        let set = probe.to_set()?;
        if path.as_os_str() == "-" {
            // A reader that has seen enough is no error.
            return match std::io::stdout().lock().write_all(&set.to_safetensors()?) {
                Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.into()),
                _ => Ok(ExitCode::SUCCESS),
            };
        }
        set.write_safetensors(path)?;
        if args.check.is_none() {
            let summary = probe.summary(Provenance::given("options of kbt validate probe"));
            return print(args.format, &summary, ToString::to_string);
        }
    }
    let Some(path) = &args.check else { return emit("") };
    let output = open_tensors(path, &ReadOptions::default())?;
    let o = lone_or_named(&output, "o")?;
    let format = match args.p_format {
        PFormatArg::Bf16 => PFormat::Bf16,
        PFormatArg::E4m3 => PFormat::E4m3,
        PFormatArg::Nvfp4 => PFormat::Nvfp4,
    };
    let result = probe.check(&o, format, Provenance::given(path.display().to_string()))?;
    gate(result.passed, print(args.format, &result, ToString::to_string))
}

fn lone_or_named(file: &TensorFile, name: &str) -> Result<Tensor, Failure> {
    let mut infos = file.infos();
    let lone = if infos.len() == 1 { infos.next() } else { None };
    Ok(file.load(lone.map_or(name, |info| info.name.as_str()))?)
}
