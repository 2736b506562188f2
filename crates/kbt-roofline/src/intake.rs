//! Intake: which facts are there, and what to write for each that is not.

use crate::facts::{FactSheet, OperatorKind};
use crate::outcome::{Fact, Supply};

/// Facts a sheet lacks, in the order to ask for them.
pub(crate) fn missing(sheet: &FactSheet) -> Vec<Fact> {
    let mut found = crate::work::derive(sheet).err().unwrap_or_default();
    if sheet.timing.as_ref().is_none_or(|t| t.median_us.is_none()) {
        found.push(Fact::Timing);
    }
    let access = sheet.dataflow.as_ref().and_then(|d| d.access);
    let chain =
        sheet.dataflow.as_ref().is_some_and(|d| d.chain_length.is_some() && d.chain_latency_ns.is_some());
    if matches!(
        access,
        Some(crate::facts::AccessPattern::DependentChain | crate::facts::AccessPattern::Irregular)
    ) && !chain
        && crate::bounds::moved_bytes(sheet).is_none()
    {
        found.push(Fact::Latency);
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// What to write for a missing fact. `roofs` are the kinds of ceiling that this operator lacks.
pub(crate) fn supply(sheet: &FactSheet, fact: Fact, roofs: &[&str]) -> Supply {
    let kind = sheet.operator.as_ref().and_then(|o| o.kind);
    let (keys, example) = match fact {
        Fact::Operator => (
            "operator.kind (gemm, attention, normalization, elementwise, reduction, convolution) or operator.flop and operator.hbm_bytes",
            "operator: {kind: gemm, formula: \"C = A B\"}",
        ),
        Fact::Shape => match kind {
            Some(OperatorKind::Attention) => (
                "shape.batch, heads, seqlen, head_dim, causal",
                "shape: {batch: 4, heads: 16, seqlen: 4096, head_dim: 128, causal: false}",
            ),
            Some(OperatorKind::Normalization) => {
                ("shape.rows, columns", "shape: {rows: 32768, columns: 8192}")
            }
            Some(OperatorKind::Elementwise | OperatorKind::Reduction) => {
                ("shape.elements", "shape: {elements: 16777216}")
            }
            Some(OperatorKind::Convolution) => (
                "shape.batch, channels, height, width, filters, kernel_height, kernel_width",
                "shape: {batch: 32, channels: 64, height: 56, width: 56, filters: 64, kernel_height: 3, kernel_width: 3, padding: 1}",
            ),
            Some(OperatorKind::Counts) => (
                "operator.flop, operator.hbm_bytes",
                "operator: {kind: counts, flop: 6.66e10, hbm_bytes: 1.6e9}",
            ),
            _ => ("shape.m, n, k, batch", "shape: {m: 8192, n: 8192, k: 8192}"),
        },
        Fact::Dtype => (
            "dtypes.inputs, accumulate, output, and mma where it differs",
            "dtypes: {inputs: [bf16], accumulate: fp32, output: bf16}",
        ),
        Fact::Timing => (
            "timing.median_us, method, warmup_launches, launches, communication_included",
            "timing: {median_us: 412.0, method: cuda_events, warmup_launches: 50, launches: 100, communication_included: false}",
        ),
        Fact::Dataflow => (
            "dataflow.reuse: which inputs and outputs are reused and where they stay, or operator.hbm_bytes",
            "dataflow: {reuse: \"A and B read once a tile, C written once; nothing stays in L2 between calls\"}",
        ),
        Fact::Ceilings => (
            "ceilings, or another --device",
            "ceilings: [{kind: hbm_copy, bytes_per_s: 4.3e12, provenance: {kind: given, by: own copy benchmark}}]",
        ),
        Fact::Latency => (
            "dataflow.chain_length and chain_latency_ns, or profiler.metrics with dram__bytes.sum: irregular access follows a latency model, not a roofline; rows at independent places are `access: gather`, which needs neither",
            "dataflow: {access: dependent_chain, chain_length: 4096, chain_latency_ns: 600}",
        ),
    };
    match roofs.first().filter(|_| fact == Fact::Ceilings) {
        Some(kind) => {
            let number = if kind.starts_with("hbm") { "bytes_per_s: 4.3e12" } else { "flop_per_s: 9.7e12" };
            Supply {
                fact,
                keys: format!("a ceiling of kind {}, or another --device", roofs.join(", ")),
                example: format!(
                    "ceilings: [{{kind: {kind}, {number}, provenance: {{kind: given, by: own benchmark}}}}]"
                ),
            }
        }
        None => Supply { fact, keys: keys.to_owned(), example: example.to_owned() },
    }
}
