//! Step 4: exact number formats, and which cheaper program computes the same.

use crate::output::{Failure, Format, Outcome, emit, print, read_input};
use kbt_device::{DeviceChoice, DeviceProfile, embedded_profile, embedded_profiles};
use kbt_quant::block::{BlockFormat, Quantiser, ScaleRule};
use kbt_quant::check::Scheme;
use kbt_quant::cost::CostModel;
use kbt_quant::format::{Conversion, Format as Number, Overflow, Rounding};
use kbt_quant::lang::{BUILTIN, Program, builtin};
use kbt_quant::outcome::RewriteOutcome;
use kbt_quant::rewrite::{Limits, SearchError, search};
use std::fmt::Write;
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
    Quantize(Quantize),
    /// Search for cheaper programs that compute the same.
    #[command(
        after_help = "Examples:\n  kbt quant rewrite softmax-nvfp4-linear --device recorded:h200-sxm --format \
                            json\n  kbt quant rewrite --list"
    )]
    Rewrite(Rewrite),
    /// Check a described scheme: offset budget, lost codes and groups, free improvements. Exit 1 if it does not fit.
    #[command(after_help = "Example:\n  printf 'schema: kbt.scheme/1\\nname: mine\\nelement: e2m1\\nscale: \
                            e4m3\\noffset_log2: 2.585\\n' | kbt quant check -\n\nFields: schema, name, element, scale \
                            (optional), offset_log2, rescale_threshold_log2 (0), row_sum (unquantised or quantised)")]
    Check(Check),
}

#[derive(clap::Args)]
struct Quantize {
    /// The format: e2m1, e2m3, e3m2, e4m3, e5m2, ue8m0, bf16 or f16.
    #[arg(long, required_unless_present = "block", conflicts_with = "block")]
    to: Option<Number>,
    /// A block format: nvfp4, mxfp4, mxfp6-e2m3, mxfp6-e3m2, mxfp8 or mxfp8-e5m2. Each block prints its scale's code,
    /// then its elements' codes.
    #[arg(long, requires = "scale_rule")]
    block: Option<BlockFormat>,
    /// How a block's scale is found: te, flashinfer, flashinfer-exact, torchao, sage3 (nvfp4); floor, round-up,
    /// flashinfer (mx).
    #[arg(long, requires = "block")]
    scale_rule: Option<ScaleRule>,
    /// The greatest magnitude of the whole tensor, for rules that scale it; else that of the input. 0 for no such scale.
    #[arg(long, requires = "block")]
    tensor_amax: Option<f32>,
    /// Input lines are f32 bit patterns in hex; else decimal numbers.
    #[arg(long)]
    hex: bool,
    /// The rounding mode, as PTX names it: rn, rz, rm or rp. Default: rz for ue8m0, else rn.
    #[arg(long, conflicts_with = "block")]
    rounding: Option<Rounding>,
    /// Overflow gives the greatest finite value. Default but for bf16 and f16.
    #[arg(long, conflicts_with_all = ["block", "no_satfinite"])]
    satfinite: bool,
    /// Overflow gives infinity or NaN, as far as the format has them.
    #[arg(long, conflicts_with = "block")]
    no_satfinite: bool,
    /// Negative input gives zero.
    #[arg(long, conflicts_with = "block")]
    relu: bool,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// One value a line; `-` reads standard input.
    #[arg(default_value = "-")]
    input: PathBuf,
}

#[derive(clap::Args)]
struct Rewrite {
    /// A built-in program (see --list), or a file; `-` reads standard input.
    #[arg(required_unless_present = "list")]
    program: Option<String>,
    /// Print every built-in program: its name alone on a line, its text, an empty line.
    #[arg(long)]
    list: bool,
    /// Whose rates give the costs: recorded:NAME, model:sm_103a, a profile file, or auto for the newest recording.
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
    /// Candidates to report.
    #[arg(long, default_value_t = 5)]
    candidates: usize,
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
        Command::Quantize(args) => quantize(&args),
        Command::Rewrite(args) => rewrite(&args),
        Command::Check(args) => check(&args),
    }
}

/// What `quantize` prints as JSON: codes in hex, the scale of each block apart.
#[derive(serde::Serialize)]
struct Codes {
    schema: &'static str,
    to: String,
    /// The rule, for blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    scale_rule: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scales: Vec<String>,
    codes: Vec<String>,
}

fn quantize(args: &Quantize) -> Outcome {
    let xs = values(&args.input, args.hex)?;
    let mut codes = vec![0u16; xs.len()];
    let mut scales = Vec::new();
    let (name, digits, each) = if let (Some(block), Some(rule)) = (args.block, args.scale_rule) {
        let each = block.elements();
        if xs.len() % each != 0 {
            let text = format!(
                "{}: {} values are no whole number of {each}-element blocks",
                args.input.display(),
                xs.len()
            );
            return Err(Failure::input(text));
        }
        let greatest = || xs.iter().filter(|x| x.is_finite()).fold(0.0f32, |m, x| m.max(x.abs()));
        let quantiser = Quantiser::new(block, rule, args.tensor_amax.unwrap_or_else(greatest))?;
        for (xs, codes) in xs.chunks(each).zip(codes.chunks_mut(each)) {
            scales.push(format!("{:02x}", quantiser.block(xs, codes)));
        }
        (block.to_string(), 2, each)
    } else {
        let Some(format) = args.to else { return Err(Failure::input("--to or --block is needed")) };
        let usual = Conversion::usual(format);
        let overflow = match (args.satfinite, args.no_satfinite) {
            (true, _) => Overflow::Saturate,
            (_, true) => Overflow::Special,
            _ => usual.overflow,
        };
        let rounding = args.rounding.unwrap_or(usual.rounding);
        let conversion = Conversion { rounding, overflow, relu: args.relu, ..usual }.checked()?;
        conversion.encode_all(&xs, &mut codes);
        (format.to_string(), format.hex_digits(), 1)
    };
    if args.format == Format::Json {
        let hex = |code: &u16| format!("{code:0digits$x}");
        let scale_rule = args.scale_rule.map(|r| r.to_string());
        let codes = codes.iter().map(hex).collect();
        let out = Codes { schema: kbt_quant::outcome::SCHEMA, to: name, scale_rule, scales, codes };
        return print(args.format, &out, |_| String::new());
    }
    let mut text = String::with_capacity(codes.len() * (digits + 1));
    for (i, chunk) in codes.chunks(each).enumerate() {
        if let Some(scale) = scales.get(i) {
            writeln!(text, "{scale}")?;
        }
        for code in chunk {
            writeln!(text, "{code:0digits$x}")?;
        }
    }
    if text.is_empty() { Ok(std::process::ExitCode::SUCCESS) } else { emit(&text) }
}

fn values(path: &Path, hex: bool) -> Result<Vec<f32>, Failure> {
    let bytes = read_input(path)?;
    let text = std::str::from_utf8(&bytes)
        .map_err(|e| Failure::input(format!("{}: not text at byte {}", path.display(), e.valid_up_to())))?;
    let mut xs = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        let parsed = if hex {
            let digits = line.strip_prefix("0x").unwrap_or(line);
            let plain = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
            u32::from_str_radix(digits, 16).ok().filter(|_| plain).map(f32::from_bits)
        } else {
            line.parse().ok()
        };
        let expected = if hex { "an f32's bits in hex, for example 3f800000" } else { "a decimal number" };
        let bad = || Failure::input(format!("{}:{}: `{line}` is not {expected}", path.display(), i + 1));
        xs.push(parsed.ok_or_else(bad)?);
    }
    Ok(xs)
}

fn rewrite(args: &Rewrite) -> Outcome {
    if args.list {
        let text: String = BUILTIN.iter().map(|(name, text)| format!("{name}\n{text}\n")).collect();
        return emit(&text);
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
    let limits = Limits { candidates: args.candidates, ..Limits::default() };
    match search(&program, &model, &limits) {
        Ok(found) => {
            let outcome = RewriteOutcome::new(name, &profile.name, &found);
            print(args.format, &outcome, RewriteOutcome::render_text)
        }
        Err(SearchError::Missing(missing)) => Err(Failure::Refused(missing.to_string())),
        Err(error) => Err(Failure::input(format!("{name}: {error}"))),
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
    if outcome.budget.fits { Ok(std::process::ExitCode::SUCCESS) } else { Err(Failure::Gate) }
}
