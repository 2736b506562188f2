//! `kbt quant quantize`: f32 values to codes, alone or in blocks.

use crate::output::{Failure, Format, Outcome, emit, print, read_input};
use kbt_quant::block::{BlockFormat, Quantiser, ScaleRule};
use kbt_quant::format::{Conversion, Format as Number, Overflow, Rounding};
use std::fmt::Write;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The format: e2m1, e2m3, e3m2, e4m3, e5m2, ue8m0, bf16 or f16.
    #[arg(long, required_unless_present_any = ["block", "scale_rule", "tensor_amax"], conflicts_with = "block")]
    to: Option<Number>,
    /// A block format: nvfp4, mxfp4, mxfp6-e2m3, mxfp6-e3m2, mxfp8 or mxfp8-e5m2. Each block prints its scale's code,
    /// then its elements' codes.
    #[arg(long, requires = "scale_rule")]
    block: Option<BlockFormat>,
    /// How a block's scale is found: te, flashinfer, flashinfer-exact, torchao, sage3 (nvfp4); floor, round-up (rceil),
    /// flashinfer (mx).
    #[arg(long)]
    scale_rule: Option<ScaleRule>,
    /// The greatest magnitude of the whole tensor, for rules that scale it (nvfp4: te, flashinfer, flashinfer-exact,
    /// torchao); else that of the input. 0 for no such scale. The scale is printed on standard error, and in the JSON.
    #[arg(long)]
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

/// What `quantize` prints as JSON: codes in hex, the scale of each block apart.
#[derive(serde::Serialize)]
struct Codes {
    schema: &'static str,
    to: String,
    /// The rule, for blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    scale_rule: Option<String>,
    /// Of a rule that scales the tensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor: Option<Tensor>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scales: Vec<String>,
    codes: Vec<String>,
}

/// What a tensor's scale was worked out from, and what code times block scale is multiplied by for a value.
#[derive(serde::Serialize)]
struct Tensor {
    amax: f32,
    scale: f32,
    /// The scale's bits.
    scale_hex: String,
}

/// What only blocks have, given without `--block`: clap's own `requires` lets it pass beside `--to`.
fn for_blocks_alone(args: &Args) -> Result<(), Failure> {
    let rule = args.scale_rule.map(|rule| format!("--scale-rule {rule}"));
    let given = rule.or_else(|| args.tensor_amax.map(|amax| format!("--tensor-amax {amax}")));
    match given {
        Some(given) if args.block.is_none() => {
            let blocks: Vec<String> = BlockFormat::ALL.iter().map(ToString::to_string).collect();
            Err(Failure::input(format!(
                "{given}: only blocks have a scale; it goes with --block, which takes {}",
                blocks.join(", ")
            )))
        }
        _ => Ok(()),
    }
}

pub(super) fn run(args: &Args) -> Outcome {
    for_blocks_alone(args)?;
    let xs = values(&args.input, args.hex)?;
    let mut codes = vec![0u16; xs.len()];
    let mut scales = Vec::new();
    let mut tensor = None;
    let (name, digits, each) = if let (Some(block), Some(rule)) = (args.block, args.scale_rule) {
        if let Some(amax) = args.tensor_amax.filter(|amax| *amax > 0.0 && !rule.has_tensor_scale(block)) {
            let text = format!("--tensor-amax {amax}: {block} with `{rule}` has no scale for the tensor");
            return Err(Failure::input(text));
        }
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
        let amax = args.tensor_amax.unwrap_or_else(greatest);
        let quantiser = Quantiser::new(block, rule, amax)?;
        if rule.has_tensor_scale(block) {
            let scale = quantiser.tensor_scale();
            tensor = Some(Tensor { amax, scale, scale_hex: format!("{:08x}", scale.to_bits()) });
        }
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
        let out = Codes { schema: kbt_quant::outcome::SCHEMA, to: name, scale_rule, tensor, scales, codes };
        return print(args.format, &out, |_| String::new());
    }
    if let Some(Tensor { amax, scale, scale_hex }) = tensor {
        crate::output::tell!(
            "kbt: a value is its code times its block's scale times {scale} ({scale_hex}), the tensor's scale for a greatest \
             magnitude of {amax}"
        );
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
            let plain = digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit());
            u32::from_str_radix(digits, 16).ok().filter(|_| plain).map(f32::from_bits)
        } else {
            // What only rounding makes infinite is no f32.
            let infinite = line.trim_start_matches(['+', '-']).starts_with(['i', 'I']);
            line.parse().ok().filter(|x: &f32| x.is_finite() || x.is_nan() || infinite)
        };
        let expected = if hex {
            "an f32's bits as eight hex digits, for example 3f800000"
        } else {
            "a decimal number within f32's range, inf or nan"
        };
        let bad = || Failure::input(format!("{}:{}: `{line}` is not {expected}", path.display(), i + 1));
        xs.push(parsed.ok_or_else(bad)?);
    }
    Ok(xs)
}
