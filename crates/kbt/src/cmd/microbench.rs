//! `kbt microbench`: measure, mine, show and compare instruction rates.

mod loops;
mod pipes;

use crate::output::{Failure, Format, Outcome, emit, print, read_input};
use kbt_device::{Arch, DeviceChoice, DeviceProfile, embedded_profile, embedded_profiles};
use kbt_evidence::Standing;
use kbt_microbench::compare::compare;
use kbt_microbench::filter::Filter;
use kbt_microbench::gpu::{Run, RunError, RunOptions, run as run_on_gpu, run_unverified};
use kbt_microbench::mine::mine;
use kbt_microbench::prepare::{CHAINS, prepare};
use kbt_microbench::published::{self, Published};
use kbt_microbench::rows::Note;
use kbt_microbench::spec::Spec;
use kbt_microbench::table::{Table, render_profile};
use kbt_microbench::verification::Verification;
use kbt_microbench::{PvMode, rates_for};
use kbt_toolchain::{Tool, ToolError, Toolchain};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Measure rates, latencies, mixes and ceilings on a live GPU; each number is verified in machine code.
    #[command(after_help = "Example: kbt microbench run --only '^(ex2|cvt)' --out h200.yaml\n\
                            Without a GPU: kbt microbench run --verify-only --arch sm_90a")]
    Run(RunArgs),
    /// Read the rates that ptxas writes into its machine code, for any target, with no GPU.
    #[command(after_help = "Example: kbt microbench mine --arch sm_103a --out sm_103a.yaml")]
    Mine(MineArgs),
    /// Show a profile, or what it says of a P·V mode's softmax step.
    #[command(after_help = "Example: kbt microbench table sm_103a.yaml --format json\n\
                            Example: kbt microbench table sm_103a.yaml --pv-mode fp8\n\
                            Example: kbt microbench table sm_103a.yaml --published")]
    Table(TableArgs),
    /// Say what two profiles say differently.
    #[command(after_help = "Example: kbt microbench compare sm_100a.yaml sm_103a.yaml")]
    Compare(CompareArgs),
    /// Infer which instructions share a resource, from the times of mixes alone; compare with the profiler's counters.
    #[command(
        after_help = "Example: kbt microbench pipes --profile h200.yaml --out pipes.yaml --write-mixes mixes.yaml\n\
                            Without a GPU: kbt microbench pipes --profile h200.yaml --mixes mixes.yaml --out pipes.yaml\n\
                            Counters: ncu --csv --page raw --metrics sm__inst_executed.sum,\
                            sm__inst_executed_pipe_alu.sum,… kbt microbench pipes --counter-kernels"
    )]
    Pipes(pipes::Args),
    /// The corpus of loops that the static cycle model (`kbt sass cycles`) is tested on: time it, write it.
    Loops(loops::Args),
}

#[derive(clap::Args)]
struct SpecArgs {
    /// A spec of your own instead of the embedded one; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
    /// Only what this regular expression matches: instructions, mixes (`a+b`), ceilings (`ceiling:hbm_read`).
    #[arg(long, value_name = "REGEX")]
    only: Option<String>,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(clap::Args)]
struct RunArgs {
    #[command(flatten)]
    spec: SpecArgs,
    /// The GPU: `live` or `live:N`.
    #[arg(long, default_value = "live")]
    device: DeviceChoice,
    /// Where the profile goes.
    #[arg(
        long,
        value_name = "PROFILE.yaml",
        required_unless_present = "verify_only",
        conflicts_with = "verify_only"
    )]
    out: Option<PathBuf>,
    /// The profile's name; the file's stem otherwise.
    #[arg(long)]
    name: Option<String>,
    /// Only assemble and verify: needs ptxas and nvdisasm, and no GPU.
    #[arg(long)]
    verify_only: bool,
    /// Let the driver assemble, as where there is no toolkit: nobody sees the machine code, and every row says so.
    #[arg(long, conflicts_with = "verify_only")]
    unverified: bool,
    /// The compile target to verify for.
    #[arg(long, default_value = "sm_90a", requires = "verify_only")]
    arch: Arch,
}

#[derive(clap::Args)]
struct MineArgs {
    #[command(flatten)]
    spec: SpecArgs,
    /// The compile target.
    #[arg(long)]
    arch: Arch,
    /// Where the profile goes; `-` writes it to standard output.
    #[arg(long, value_name = "PROFILE.yaml")]
    out: PathBuf,
}

#[derive(clap::Args)]
struct TableArgs {
    /// A profile file, `-`, or the name of an embedded profile.
    profile: PathBuf,
    /// Only what a mode's softmax step uses, and what it rules out: bf16, fp8 or fp4.
    #[arg(long)]
    pv_mode: Option<PvMode>,
    /// Beside the rows, what others published for this compute capability; disagreements first.
    #[arg(long, conflicts_with = "pv_mode")]
    published: bool,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(clap::Args)]
struct CompareArgs {
    /// A profile file, `-`, or the name of an embedded profile.
    a: PathBuf,
    /// The other.
    b: PathBuf,
    /// How results are printed.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Run(args) if args.verify_only => verify(&args),
        Command::Run(args) => measure(args),
        Command::Mine(args) => mine_profile(&args),
        Command::Table(args) => table(&args),
        Command::Pipes(args) => pipes::run(&args),
        Command::Loops(args) => loops::run(args),
        Command::Compare(args) => {
            let (a, b) = (load(&args.a)?, load(&args.b)?);
            print(args.format, &compare(&a, &b), |c| c.render_text())
        }
    }
}

/// The spec, where it is from, and the filter over its names.
struct Selected {
    spec: Spec,
    origin: String,
    only: Filter,
}

impl Selected {
    fn from_args(args: &SpecArgs) -> Result<Self, Failure> {
        let spec = match &args.spec {
            Some(path) => {
                let text = String::from_utf8(read_input(path)?)
                    .map_err(|_| Failure::input(format!("{}: not UTF-8", path.display())))?;
                Spec::from_yaml(&text, &path.display().to_string())?
            }
            None => Spec::embedded()?,
        };
        let only = Filter::new(args.only.as_deref()).map_err(|e| Failure::input(format!("--only: {e}")))?;
        let origin =
            args.spec.as_ref().map_or_else(|| "the embedded spec".to_owned(), |p| p.display().to_string());
        Ok(Self { spec, origin, only })
    }

    /// The names that are in the spec, and wanted, and not for the target.
    fn not_for(&self, arch: Arch) -> Vec<String> {
        self.spec.not_for(arch, &|n| self.only.accepts(n))
    }

    /// Nothing to do is a mistake, not an empty profile: which, and what would be something.
    fn found(&self, arch: Arch, any: bool) -> Result<(), Failure> {
        if any {
            return Ok(());
        }
        let not_for = self.not_for(arch);
        let why = match self.spec.lowest_sm() {
            None => format!("{}: no entries under `instructions`", self.origin),
            Some(lowest) if arch.sm < lowest => {
                format!("{}: its entries are for sm_{lowest} and newer, and --arch is {arch}", self.origin)
            }
            _ if not_for.is_empty() => format!("{}: --only matches no entry", self.origin),
            _ => format!(
                "{}: none of its entries is for {arch}; others only: {}",
                self.origin,
                not_for.join(", ")
            ),
        };
        Err(Failure::input(why))
    }
}

/// The compiler tools; without them nothing can be verified, so nothing is measured.
fn tools() -> Result<Toolchain, Failure> {
    // A KBT_CUDA that names nothing is a mistake, and no machine without a toolkit.
    let set = std::env::var_os("KBT_CUDA").is_some();
    Toolchain::find()
        .map_err(|e| if set { Failure::input(e.to_string()) } else { Failure::Refused(e.to_string()) })
}

fn tool_failure(error: ToolError) -> Failure {
    match error {
        ToolError::Missing { .. } => Failure::Refused(error.to_string()),
        other => other.into(),
    }
}

/// A target that ptxas does not know is refused as a whole.
fn unassembled(error: ToolError, arch: Arch) -> Failure {
    match error {
        ToolError::Failed { tool: Tool::Ptxas, version, log, .. } => {
            let said: Vec<&str> = log.lines().map(str::trim).filter(|l| !l.is_empty()).take(2).collect();
            Failure::Refused(format!("ptxas {version} does not assemble for {arch}: {}", said.join("; ")))
        }
        other => tool_failure(other),
    }
}

fn verify(args: &RunArgs) -> Outcome {
    let selected = Selected::from_args(&args.spec)?;
    let tools = tools()?;
    let ptxas = tools.version(Tool::Ptxas).map_err(tool_failure)?;
    let prepared = prepare(&selected.spec, args.arch, &tools, &CHAINS, &|n| selected.only.accepts(n))
        .map_err(|e| unassembled(e, args.arch))?;
    selected.found(args.arch, !prepared.is_empty())?;
    let found = Verification::of(&prepared, args.arch, &ptxas).with_others(selected.not_for(args.arch));
    print(args.spec.format, &found, Verification::render_text)?;
    if found.unverified().next().is_some() { Err(Failure::Gate) } else { Ok(ExitCode::SUCCESS) }
}

fn measure(args: RunArgs) -> Outcome {
    let selected = Selected::from_args(&args.spec)?;
    let DeviceChoice::Live(ordinal) = args.device else {
        return Err(Failure::input(format!(
            "--device {}: rates are measured on live or live:N",
            args.device
        )));
    };
    let Some(out) = args.out else { return Err(Failure::input("--out is needed")) };
    let stem = out.file_stem().map_or_else(|| "profile".to_owned(), |s| s.to_string_lossy().into_owned());
    let only = args.spec.only.as_ref().map_or_else(String::new, |r| format!(" --only '{r}'"));
    let options = RunOptions {
        spec: &selected.spec,
        only: &|n| selected.only.accepts(n),
        ordinal,
        name: args.name.unwrap_or(stem),
        command: format!("kbt microbench run{only}"),
        progress: &progress,
    };
    let result = match Toolchain::find() {
        _ if args.unverified => run_unverified(&options),
        Ok(tools) if tools.has(Tool::Ptxas) && tools.has(Tool::Nvdisasm) => run_on_gpu(&tools, &options),
        // A KBT_CUDA that names nothing is a mistake, and no wish to go without.
        Err(error) if std::env::var_os("KBT_CUDA").is_some() => return Err(Failure::input(error.to_string())),
        _ => {
            crate::output::tell!(
                "kbt: no ptxas and nvdisasm: the driver assembles, nobody sees the machine code, and every row is marked \
                 unverified; `cargo xtask setup` installs them"
            );
            run_unverified(&options)
        }
    }
    .map_err(|e| match e {
        RunError::Gpu(e) if e.is_absent() => Failure::Refused(format!(
            "{e}; `kbt microbench mine --arch ARCH --out PROFILE.yaml` needs no GPU, and `kbt microbench run \
             --verify-only` checks the machine code"
        )),
        RunError::Tool(e) => tool_failure(e),
        other => other.into(),
    })?;
    progress("");
    let profile = &result.profile;
    selected.found(
        profile.arch,
        !(profile.rates.is_empty() && profile.mixes.is_empty() && profile.ceilings.is_empty()),
    )?;
    tell_others(&selected, profile.arch);
    write_profile(&out, profile)?;
    match args.spec.format {
        Format::Json => print(Format::Json, &Table::of(profile), |_| String::new()),
        Format::Text => emit(&render_run(&result)),
    }
}

fn render_run(run: &Run) -> String {
    let mut text = render_profile(&run.profile);
    text.push_str(&render_notes(&run.notes));
    for why in &run.refused_ceilings {
        text.push_str(&format!("ceiling refused: {why}\n"));
    }
    text
}

/// The reasoning of rows that more than one form, or none, speaks for.
fn render_notes(notes: &[Note]) -> String {
    let mut text = String::new();
    for note in notes.iter().filter(|n| n.reasoning.len() > 1) {
        text.push_str(&format!("\n{}\n", note.instruction));
        for line in &note.reasoning {
            text.push_str(&format!("  {line}\n"));
        }
    }
    text
}

/// Progress goes to a terminal only.
fn progress(what: &str) {
    if std::io::stderr().is_terminal() {
        crate::output::show!("\r\x1b[K{what}");
    }
}

/// What was asked for and has no row because it is for other targets.
fn tell_others(selected: &Selected, arch: Arch) {
    let others = selected.not_for(arch);
    if !others.is_empty() {
        crate::output::tell!(
            "kbt: {} of {} not for {arch}: {}",
            others.len(),
            selected.origin,
            others.join(", ")
        );
    }
}

fn mine_profile(args: &MineArgs) -> Outcome {
    let selected = Selected::from_args(&args.spec)?;
    let (profile, _) = mine(&selected.spec, args.arch, &tools()?, &|n| selected.only.accepts(n))
        .map_err(|e| unassembled(e, args.arch))?;
    selected.found(args.arch, !profile.rates.is_empty())?;
    tell_others(&selected, args.arch);
    write_profile(&args.out, &profile)?;
    if args.out.as_os_str() == "-" {
        return Ok(ExitCode::SUCCESS);
    }
    print(args.spec.format, &Table::of(&profile), |_| render_profile(&profile))
}

fn table(args: &TableArgs) -> Outcome {
    let profile = load(&args.profile)?;
    if args.published {
        let beside = Published::embedded()?.beside(&profile);
        let text = published::render(&beside);
        return print(args.format, &Table::of(&profile).with_published(beside), |_| text.clone());
    }
    match args.pv_mode {
        Some(mode) => {
            let outcome = rates_for(&profile, mode);
            print(args.format, &outcome, |o| o.render_text())?;
            let whole = || outcome.verdicts().into_iter().find(|v| v.standing == Standing::Refused);
            match outcome.unanswered().or_else(|| whole().map(|v| v.reason)) {
                Some(why) => Err(Failure::Refused(why)),
                None => Ok(ExitCode::SUCCESS),
            }
        }
        None => print(args.format, &Table::of(&profile), |_| render_profile(&profile)),
    }
}

/// A profile from a file, standard input, or by the name of an embedded one. What was measured becomes recorded.
pub(crate) fn load(path: &Path) -> Result<DeviceProfile, Failure> {
    let name = path.to_string_lossy();
    if path.as_os_str() != "-"
        && !path.exists()
        && let Some(profile) = embedded_profile(
            name.strip_prefix("recorded:").or_else(|| name.strip_prefix("model:")).unwrap_or(&name),
        )
    {
        return Ok(profile?);
    }
    let bytes = read_input(path).map_err(|failure| match failure {
        Failure::Input(e) => {
            let known: Vec<&str> = embedded_profiles().collect();
            Failure::input(format!("{e:#}; embedded profiles: {}", known.join(", ")))
        }
        other => other,
    })?;
    let text = String::from_utf8(bytes).map_err(|_| Failure::input(format!("{name}: not UTF-8")))?;
    Ok(DeviceProfile::from_yaml(&text, &name)?.read_back())
}

fn write_profile(path: &Path, profile: &DeviceProfile) -> Result<(), Failure> {
    let yaml = profile.to_yaml()?;
    if path.as_os_str() == "-" {
        return emit(&yaml).map(|_| ());
    }
    std::fs::write(path, yaml).map_err(|e| Failure::input(format!("{}: {e}", path.display())))
}
