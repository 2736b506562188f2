//! `kbt validate probe`: writes a probe, or checks an output against it.

use super::args::{PFormatArg, ProbeArgs};
use super::{gate, open_tensors};
use crate::output::{Failure, Outcome, emit, print};
use kbt_evidence::Provenance;
use kbt_tensor::ReadOptions;
use kbt_validate::probe::{LseBase, PFormat, Probe, ProbeKind, ProbeOutput};
use kbt_validate::reference::AttentionShape;
use std::io::Write;
use std::process::ExitCode;

pub(super) fn run(args: &ProbeArgs) -> Outcome {
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
    let named = |name: &str| output.infos().any(|info| info.name == name);
    let lse = if named("lse") { Some(output.load("lse")?) } else { None };
    let base = match args.lse_base {
        Some(base) => base,
        None => LseBase::stated(output.metadata())
            .map_err(|error| Failure::input(format!("{}: metadata: {error}", path.display())))?,
    };
    // A file of one tensor need not call it `o`.
    let lone = output.infos().next().filter(|info| output.infos().len() == 1 && info.name != "lse");
    let o = output.load(lone.map_or("o", |info| info.name.as_str()))?;
    let format = match args.p_format {
        PFormatArg::Bf16 => PFormat::Bf16,
        PFormatArg::E4m3 => PFormat::E4m3,
        PFormatArg::Nvfp4 => PFormat::Nvfp4,
    };
    let given = ProbeOutput { o: &o, lse: lse.as_ref().map(|lse| (lse, base)) };
    let result = probe.check(given, format, Provenance::given(path.display().to_string()))?;
    gate(result.passed, print(args.format, &result, ToString::to_string))
}
