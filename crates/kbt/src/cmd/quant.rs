//! Step 4: exact number formats, and which cheaper program computes the same.

mod hardware;
mod quantize;

use crate::output::{Failure, Format, Outcome, emit, print, read_input};
use kbt_device::{DeviceChoice, DeviceProfile, embedded_profile, embedded_profiles};
use kbt_quant::check::Scheme;
use kbt_quant::cost::CostModel;
use kbt_quant::emit::cuda as emit_cuda;
use kbt_quant::lang::{BUILTIN, Program, builtin};
use kbt_quant::lift::{Region, lift as lift_module};
use kbt_quant::outcome::{LiftError, LiftOutcome, RewriteOutcome, lift_outcome};
use kbt_quant::rewrite::{Limits, SearchError, search};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Convert f32 values to codes, to the bit.
    #[command(
        after_help = "Example:\n  printf '3f800000\\n7fc00000\\n' | kbt quant quantize --to e4m3 --hex"
    )]
    Quantize(quantize::Args),
    /// Run a GPU's own conversions over all 2^32 f32 and compare every code with kbt's. Exit 1 if one differs.
    #[command(after_help = "Example:\n  kbt quant hardware --to e4m3 --cuts cuts/")]
    Hardware(hardware::Args),
    /// Search for cheaper programs that compute the same.
    #[command(
        after_help = "Examples:\n  kbt quant rewrite softmax-nvfp4-linear --device recorded:h200-sxm --format \
                            json\n  kbt quant rewrite --list"
    )]
    Rewrite(Rewrite),
    /// Lift a kernel's arithmetic from its PTX, and search it for what could be cheaper.
    #[command(
        after_help = "Examples:\n  kbt quant lift kernel.ptx --function softmax --device recorded:h200-sxm\n  kbt quant \
                      lift kernel.ptx --lines softmax.cuh:40-90 --format json\n\nThe programs it prints can be saved, \
                      given narrower ranges, and searched again with `kbt quant rewrite FILE`."
    )]
    Lift(Lift),
    /// Check a described scheme: offset budget, lost codes and groups, free improvements. Exit 1 if it does not fit.
    #[command(after_help = "Example:\n  printf 'schema: kbt.scheme/1\\nname: mine\\nelement: e2m1\\nscale: \
                            e4m3\\noffset_log2: 2.585\\n' | kbt quant check -\n\nFields: schema, name, element, scale \
                            (optional), scale_rounding (rz or rp, of ue8m0), offset_log2, rescale_threshold_log2 (0), \
                            row_sum (unquantised or quantised)")]
    Check(Check),
}

#[derive(clap::Args)]
struct Rewrite {
    /// A built-in program (see --list), or a file; `-` reads standard input.
    #[arg(required_unless_present = "list", conflicts_with = "list")]
    program: Option<String>,
    /// Print every built-in program: its name alone on a line, its text, an empty line.
    #[arg(long)]
    list: bool,
    /// Whose rates give the costs: recorded:NAME, model:sm_103a, a profile file, or auto for the newest recording.
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
    /// Candidates to report.
    #[arg(long, default_value_t = 5, value_parser = at_least_one)]
    candidates: usize,
    /// Print the first candidate as CUDA C++ and nothing else; the program itself where none is cheaper.
    #[arg(long, conflicts_with_all = ["list", "format"])]
    cuda: bool,
    /// How many times the usual number of steps the search may take; what it left out for want of them is said.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    effort: usize,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// A built-in program, as `--list --format json` gives it.
#[derive(serde::Serialize)]
struct Listed {
    name: &'static str,
    program: &'static str,
}

fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("expected a whole number from 1 up".to_owned()),
    }
}

#[derive(clap::Args)]
struct Lift {
    /// The PTX; `-` reads standard input.
    ptx: PathBuf,
    /// Functions whose name matches this regular expression. Default: all.
    #[arg(long)]
    function: Option<String>,
    /// A region: source lines `40-90` of the first source file, `FILE:40-90` of another, inlined code included (PTX lines
    /// where the PTX has no source lines), or two labels, `$L__BB0_3-$L__BB0_5` (`$L__BB0_3-`: up to the function's end).
    #[arg(long)]
    lines: Option<Region>,
    /// Whose rates give the costs: recorded:NAME, model:sm_103a, a profile file, or auto for the newest recording.
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
    /// How many times the usual number of steps the search may take; what it left out for want of them is said.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    effort: usize,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(clap::Args)]
struct Check {
    /// The scheme file; `-` reads standard input.
    scheme: PathBuf,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(crate) fn run(args: Args) -> Outcome {
    match args.command {
        Command::Quantize(args) => quantize::run(&args),
        Command::Hardware(args) => hardware::run(&args),
        Command::Rewrite(args) => rewrite(&args),
        Command::Lift(args) => lift(&args),
        Command::Check(args) => check(&args),
    }
}

fn rewrite(args: &Rewrite) -> Outcome {
    if args.list {
        let programs: Vec<Listed> = BUILTIN.iter().map(|&(name, program)| Listed { name, program }).collect();
        return print(args.format, &programs, |all| {
            all.iter().map(|Listed { name, program }| format!("{name}\n{program}\n")).collect()
        });
    }
    let name = args.program.as_deref().unwrap_or_default();
    let text = match builtin(name) {
        Some(text) => text.to_owned(),
        None if name == "-" || Path::new(name).is_file() => {
            String::from_utf8(read_input(Path::new(name))?)
                .map_err(|_| Failure::input(format!("{name}: not text")))?
        }
        None => {
            let names: Vec<&str> = BUILTIN.iter().map(|(name, _)| *name).collect();
            return Err(Failure::input(format!(
                "`{name}` is no file and no built-in program: {}",
                names.join(", ")
            )));
        }
    };
    let program: Program = text.parse().map_err(|e| Failure::input(format!("{name}:{e}")))?;
    let profile = profile(&args.device)?;
    let model = CostModel::new(&profile, program.layout);
    let limits = Limits { candidates: args.candidates, ..Limits::default().times(args.effort) };
    match search(&program, &model, &limits) {
        Ok(found) => {
            if args.cuda {
                let first = found.candidates.first();
                let source = first.map_or_else(
                    || emit_cuda(&program, name, &[]),
                    |c| emit_cuda(&c.priced.program, name, &c.guards),
                );
                return emit(&source);
            }
            let outcome = RewriteOutcome::new(name, &profile.name, &found).with_cuda(&found);
            print(args.format, &outcome, RewriteOutcome::render_text)
        }
        Err(SearchError::Missing(missing)) => Err(Failure::Refused(missing.to_string())),
        // No fault of the program's.
        Err(error @ (SearchError::Unsound { .. } | SearchError::Rules(_))) => Err(Failure::Refused(format!(
            "{name}: {error}; this is a fault of the search, not of the program"
        ))),
        Err(error) => Err(Failure::input(format!("{name}: {error}"))),
    }
}

fn lift(args: &Lift) -> Outcome {
    let origin = args.ptx.display().to_string();
    let text = String::from_utf8(read_input(&args.ptx)?)
        .map_err(|_| Failure::input(format!("{origin}: not text")))?;
    let module = kbt_ptx::parse(&text).map_err(|e| Failure::input(format!("{origin}: {e}")))?;
    for problem in &module.problems {
        crate::output::tell!("kbt: {origin}: {problem}");
    }
    let pattern =
        args.function.as_deref().map(|t| kbt_sass::metrics::pattern("--function", t)).transpose()?;
    let region = args.lines.clone().unwrap_or_default();
    let select = |name: &str| pattern.as_ref().is_none_or(|p| p.is_match(name));
    let functions = lift_module(&module, &select, &region);
    if functions.is_empty() {
        if module.functions.is_empty() {
            return Err(Failure::input(format!("{origin}: no function in this PTX")));
        }
        let names: Vec<&str> = module.functions.iter().map(|f| f.name.as_str()).collect();
        return Err(Failure::input(format!(
            "{origin}: no function is selected; there are: {}",
            names.join(", ")
        )));
    }
    region.check(&module, &select).map_err(|e| Failure::input(format!("{origin}: {e}")))?;
    let profile = profile(&args.device)?;
    match lift_outcome(&origin, &functions, &profile, &Limits::default().times(args.effort)) {
        Ok(outcome) => {
            let printed = print(args.format, &outcome, LiftOutcome::render_text)?;
            match outcome.unread().next() {
                None => Ok(printed),
                Some((f, unread)) => Err(Failure::input(format!(
                    "{origin}:{}: {}; `{}` is lifted only as far as it was read",
                    unread.ptx_line, unread.message, f.name
                ))),
            }
        }
        Err(LiftError::Missing(missing)) => Err(Failure::Refused(missing.to_string())),
        Err(error) => Err(Failure::input(format!("{origin}: {error}"))),
    }
}

fn profile(choice: &DeviceChoice) -> Result<DeviceProfile, Failure> {
    let embedded = |name: &str| {
        let known = || embedded_profiles().collect::<Vec<_>>().join(", ");
        match embedded_profile(name) {
            Some(profile) => Ok(profile?),
            None => Err(Failure::input(format!("no profile `{name}` is embedded; there are: {}", known()))),
        }
    };
    match choice {
        DeviceChoice::Auto => {
            let recorded =
                embedded_profiles().filter_map(|n| embedded_profile(n)?.ok()).filter(|p| p.device.is_some());
            recorded.last().ok_or_else(|| {
                Failure::Refused(
                    "no recorded device is embedded; `kbt microbench run --out PROFILE.yaml` makes a profile, and \
                     --device PROFILE.yaml takes it"
                        .to_owned(),
                )
            })
        }
        DeviceChoice::Live(n) => Err(Failure::Refused(format!(
            "a search reads rates, it does not measure them: `kbt microbench run --device live:{n} --out PROFILE.yaml`, \
             then --device PROFILE.yaml"
        ))),
        DeviceChoice::Recorded(name) => embedded(name),
        DeviceChoice::Model(arch) => embedded(&arch.to_string()),
        DeviceChoice::Path(path) => {
            let file = if path.is_dir() { path.join("profile.yaml") } else { path.clone() };
            let text = String::from_utf8(read_input(&file)?)
                .map_err(|_| Failure::input(format!("{}: not text", file.display())))?;
            Ok(DeviceProfile::from_yaml(&text, &file.display().to_string())?.read_back())
        }
    }
}

fn check(args: &Check) -> Outcome {
    let origin = args.scheme.display().to_string();
    let text = String::from_utf8(read_input(&args.scheme)?)
        .map_err(|_| Failure::input(format!("{origin}: not text")))?;
    let outcome = Scheme::from_yaml(&text, &origin)?.check();
    print(args.format, &outcome, kbt_quant::check::CheckOutcome::render_text)?;
    if outcome.findings.is_empty() { Ok(std::process::ExitCode::SUCCESS) } else { Err(Failure::Gate) }
}
