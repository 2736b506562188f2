//! Useful work from a fact sheet: floating-point operations, and the bytes that device memory must move, each
//! with one line that shows the arithmetic. What is missing is named, never guessed.

mod operators;

use crate::dtype::{Dtype, MathType};
use crate::facts::{FactSheet, Operator, OperatorKind};
use crate::outcome::Fact;
use kbt_evidence::{Figure, Provenance, Unit};
use operators::{Counts, Formats, counts};

/// Of a map whose operations nobody stated.
const ONE_EACH: &str = "1 operation an element assumed; state flop_per_element";

/// A share of the operations that runs under one arithmetic ceiling.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MathPart {
    pub(crate) what: &'static str,
    pub(crate) flop: f64,
    pub(crate) math: MathType,
    /// Matrix instruction, or the FMA pipe.
    pub(crate) tensor: bool,
}

/// The useful work of one call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Work {
    pub(crate) kind: OperatorKind,
    pub(crate) flop: Figure,
    pub(crate) flop_line: String,
    pub(crate) hbm_bytes: Figure,
    pub(crate) hbm_line: String,
    /// Share of the bytes that are reads.
    pub(crate) read_share: f64,
    pub(crate) parts: Vec<MathPart>,
    /// exp2 evaluations, where the operator has them.
    pub(crate) ex2: Option<Figure>,
    /// What is read and written, tensor by tensor.
    pub(crate) tensors: Vec<Tensor>,
    /// What was taken to be so.
    pub(crate) assumptions: Vec<String>,
}

/// A tensor of a call, by the compulsory bytes that it moves.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) bytes: f64,
    /// The format it is read in; absent of what is written.
    pub(crate) read_as: Option<Dtype>,
}

impl Tensor {
    fn read(name: impl Into<String>, bytes: f64, format: Dtype) -> Self {
        Self { name: name.into(), bytes, read_as: Some(format) }
    }

    fn written(name: impl Into<String>, bytes: f64) -> Self {
        Self { name: name.into(), bytes, read_as: None }
    }
}

impl Work {
    /// The tensor that moves most; the whole of the bytes where they are given as one count.
    pub(crate) fn largest(&self) -> Option<&Tensor> {
        // Among equals the first, so that an input comes before an output.
        self.tensors.iter().rev().max_by(|a, b| a.bytes.total_cmp(&b.bytes))
    }
}

/// Derives the work, or says which facts it lacks.
pub(crate) fn derive(sheet: &FactSheet) -> Result<Work, Vec<Fact>> {
    let mut missing = Vec::new();
    let operator = sheet.operator.clone().unwrap_or_default();
    if operator.kind.is_none() && operator.flop.is_none() {
        missing.push(Fact::Operator);
    }
    let kind = operator.kind.unwrap_or_default();
    let mut assumptions = Vec::new();
    let formats = formats(sheet, kind, &mut assumptions);
    if formats.is_none() {
        missing.push(Fact::Dtype);
    }
    let given_traffic = operator.hbm_bytes.is_some()
        || metric_bytes(sheet).is_some()
        || sheet.dataflow.as_ref().is_some_and(|d| d.reuse.as_ref().is_some_and(|r| !r.trim().is_empty()));
    if !given_traffic {
        missing.push(Fact::Dataflow);
    }
    let shape = sheet.shape.clone().unwrap_or_default();
    // Formats only scale bytes: any stand-in shows whether the shape suffices.
    let stand_in =
        || Formats { inputs: vec![Dtype::Fp32], output: Dtype::Fp32, mma: Dtype::Fp32, second: Dtype::Fp32 };
    let counts = counts(kind, &operator, &shape, &formats.unwrap_or_else(stand_in));
    let Some(counts) = counts else {
        missing.push(Fact::Shape);
        return Err(missing);
    };
    let Some(formats) = self::formats(sheet, kind, &mut Vec::new()) else { return Err(missing) };
    if !missing.is_empty() {
        return Err(missing);
    }
    Ok(figures(sheet, kind, &operator, counts, &formats, assumptions))
}

fn shape_name(shape: &Provenance) -> String {
    format!("shape, {}", shape.by)
}

fn metric_bytes(sheet: &FactSheet) -> Option<f64> {
    crate::metrics::dram_bytes(sheet.profiler.as_ref()?.metrics.as_ref()?)
}

fn formats(sheet: &FactSheet, kind: OperatorKind, assumptions: &mut Vec<String>) -> Option<Formats> {
    let d = sheet.dtypes.as_ref()?;
    let inputs = d.inputs.clone().filter(|i| !i.is_empty()).or_else(|| d.mma.map(|m| vec![m]))?;
    let first = *inputs.first()?;
    let output = d.output.unwrap_or_else(|| {
        assumptions.push(format!("the output is stored as {first}, like the first input"));
        first
    });
    // One instruction multiplies one format: of two operands the narrower is converted to the wider.
    let wider = |a: Dtype, b: Dtype| if b.storage_bits() > a.storage_bits() { b } else { a };
    let operand = |n: usize| inputs.get(n).or(inputs.last()).copied().unwrap_or(first);
    let mma = d.mma.unwrap_or_else(|| wider(first, operand(1)));
    let second = d.mma_pv.or(d.mma).unwrap_or_else(|| wider(mma, operand(2)));
    if d.mma.is_none() && !is_scalar(kind) && first.math() != operand(1).math() {
        assumptions.push(format!("the products are of {mma}, the wider of their operands"));
    }
    Some(Formats { inputs, output, mma, second })
}

/// Operators without products, on the FMA pipe.
const fn is_scalar(kind: OperatorKind) -> bool {
    matches!(kind, OperatorKind::Normalization | OperatorKind::Elementwise | OperatorKind::Reduction)
}

fn figures(
    sheet: &FactSheet,
    kind: OperatorKind,
    operator: &Operator,
    counts: Counts,
    formats: &Formats,
    mut assumptions: Vec<String>,
) -> Work {
    let shape = sheet.provenance(if sheet.shape.is_some() { "shape" } else { "operator" });
    let dtypes = sheet.provenance("dtypes");
    let from = |how: &str, with_dtypes: bool| {
        let shape_name = shape_name(&shape);
        let dtypes_name = format!("dtypes, {}", dtypes.by);
        let all = [(shape_name.as_str(), &shape), (dtypes_name.as_str(), &dtypes)];
        Provenance::computed(how, all.into_iter().take(if with_dtypes { 2 } else { 1 }))
    };
    let total = operator.flop.unwrap_or(counts.flop);
    let flop = match operator.flop {
        Some(given) => sheet.figure("operator.flop", "useful FLOP", given, Unit::Flop),
        // A map does anything to an element: what nobody counted is given by nobody.
        None if kind == OperatorKind::Elementwise && operator.flop_per_element.is_none() => {
            assumptions.push(ONE_EACH.to_owned());
            let assumed = ("operations an element", Provenance::assumed(ONE_EACH));
            let shape = (shape_name(&shape), shape.clone());
            let from = [(shape.0.as_str(), &shape.1), (assumed.0, &assumed.1)];
            let known = Provenance::computed(&counts.flop_line, from);
            Figure::new("useful FLOP", counts.flop, Unit::Flop, known)
        }
        None => Figure::new("useful FLOP", counts.flop, Unit::Flop, from(&counts.flop_line, false)),
    };
    let hbm_bytes = match operator.hbm_bytes {
        Some(given) => sheet.figure("operator.hbm_bytes", "useful HBM bytes", given, Unit::Bytes),
        None => Figure::new(
            "useful HBM bytes",
            counts.read + counts.written,
            Unit::Bytes,
            from(&counts.byte_line, true),
        ),
    };
    let read_share = match (operator.hbm_bytes, operator.hbm_read_bytes) {
        (Some(all), Some(read)) => (read / all).clamp(0.0, 1.0),
        _ => counts.read / (counts.read + counts.written),
    };
    if operator.hbm_bytes.is_none() {
        assumptions.push("each input is read once and each output written once (compulsory traffic)".into());
    }
    let accumulate = sheet.dtypes.as_ref().and_then(|d| d.accumulate);
    let parts = if is_scalar(kind) {
        let math = if accumulate.or(Some(formats.input(0))) == Some(Dtype::Fp64) {
            MathType::Fp64
        } else {
            MathType::Fp32
        };
        vec![MathPart { what: "arithmetic", flop: total, math, tensor: false }]
    } else {
        let tensor = |d: Dtype| d.math() != MathType::Fp32;
        let part = |what, flop, d: Dtype| MathPart { what, flop, math: d.math(), tensor: tensor(d) };
        let second = total * counts.second / counts.flop.max(1.0);
        if second > 0.0 && formats.second.math() != formats.mma.math() {
            vec![part("Q·K^T", total - second, formats.mma), part("P·V", second, formats.second)]
        } else {
            vec![part("products", total, formats.mma)]
        }
    };
    let ex2 = counts.ex2.map(|v| {
        Figure::new("exp2 evaluations", v, Unit::Count, from("one exp2 a score that is not masked", false))
    });
    Work {
        kind,
        flop_line: format!(
            "useful FLOP: {} = {}",
            counts_line(operator.flop, &counts.flop_line),
            flop_text(total)
        ),
        hbm_line: format!(
            "HBM bytes: {} = {}",
            counts_line(operator.hbm_bytes, &counts.byte_line),
            bytes(hbm_bytes.value)
        ),
        flop,
        hbm_bytes,
        read_share,
        parts,
        ex2,
        tensors: counts.tensors,
        assumptions,
    }
}

fn counts_line(given: Option<f64>, derived: &str) -> &str {
    if given.is_some() { "given" } else { derived }
}

/// A count with its noun.
pub(crate) fn plural(count: f64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1.0 { "" } else { "s" })
}

/// Bytes as people read them.
pub(crate) fn bytes(value: f64) -> String {
    scaled(value, &[(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")], "B")
}

/// Operations as people read them.
pub(crate) fn flop_text(value: f64) -> String {
    scaled(value, &[(1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")], "FLOP")
}

/// A value with the largest unit that leaves at least one digit before the point.
pub(crate) fn scaled(value: f64, units: &[(f64, &str)], base: &str) -> String {
    let (scaled, unit) = units
        .iter()
        .find(|(size, _)| value.abs() >= *size)
        .map_or((value, base), |(size, unit)| (value / size, *unit));
    let decimals = if scaled.abs() >= 100.0 {
        0
    } else if scaled.abs() >= 10.0 {
        1
    } else {
        2
    };
    format!("{scaled:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, flop: f64, hbm: f64) {
        let work = derive(&FactSheet::from_yaml(text, "f.yaml").unwrap()).unwrap();
        assert!((work.flop.value / flop - 1.0).abs() < 1e-12, "{} {flop}", work.flop_line);
        assert!((work.hbm_bytes.value / hbm - 1.0).abs() < 1e-12, "{} {hbm}", work.hbm_line);
    }

    const REUSE: &str = "dataflow: {reuse: none}\n";

    #[test]
    fn each_operators_counts_are_those_of_its_formula() {
        check(
            &format!(
                "operator: {{kind: gemm}}\nshape: {{m: 128, n: 7168, k: 16384}}\ndtypes: {{inputs: [nvfp4], output: bf16}}\n{REUSE}"
            ),
            2.0 * 128.0 * 7168.0 * 16384.0,
            (128.0 * 16384.0 + 7168.0 * 16384.0) * 4.5 / 8.0 + 128.0 * 7168.0 * 2.0,
        );
        check(
            &format!(
                "operator: {{kind: attention}}\nshape: {{batch: 2, heads: 16, kv_heads: 4, seqlen: 4096, head_dim: 128, causal: true}}\ndtypes: {{inputs: [bf16]}}\n{REUSE}"
            ),
            2.0 * 2.0 * 16.0 * 4096.0 * 4096.0 * 128.0,
            2.0 * (2.0 * 16.0 + 2.0 * 4.0) * 2.0 * 4096.0 * 128.0,
        );
        check(
            &format!(
                "operator: {{kind: normalization}}\nshape: {{rows: 100, columns: 64}}\ndtypes: {{inputs: [bf16]}}\n{REUSE}"
            ),
            4.0 * 6400.0,
            2.0 * 6400.0 * 2.0 + 128.0,
        );
        check(
            &format!(
                "operator: {{kind: elementwise, flop_per_element: 2, inputs: 2}}\nshape: {{elements: 1000}}\ndtypes: {{inputs: [fp32]}}\n{REUSE}"
            ),
            2000.0,
            12000.0,
        );
        check(
            &format!(
                "operator: {{kind: reduction}}\nshape: {{elements: 1000}}\ndtypes: {{inputs: [fp16], output: fp32}}\n{REUSE}"
            ),
            1000.0,
            2004.0,
        );
        check(
            &format!(
                "operator: {{kind: convolution}}\nshape: {{batch: 2, channels: 8, height: 16, width: 16, filters: 4, kernel_height: 3, kernel_width: 3, padding: 1}}\ndtypes: {{inputs: [fp16]}}\n{REUSE}"
            ),
            2.0 * 2.0 * 4.0 * 256.0 * 8.0 * 9.0,
            2.0 * (2.0 * 8.0 * 256.0 + 4.0 * 8.0 * 9.0 + 2.0 * 4.0 * 256.0),
        );
        check("operator: {kind: counts, flop: 10, hbm_bytes: 20}\ndtypes: {inputs: [bf16]}\n", 10.0, 20.0);
    }

    #[test]
    fn a_mixed_attention_has_one_part_a_product_and_a_decode_step_sees_the_whole_context() {
        let text = format!(
            "operator: {{kind: attention}}\nshape: {{heads: 8, seqlen: 1, seqlen_kv: 1024, head_dim: 128, causal: true}}\n\
             dtypes: {{inputs: [bf16], mma_pv: fp8}}\n{REUSE}"
        );
        let work = derive(&FactSheet::from_yaml(&text, "f.yaml").unwrap()).unwrap();
        assert_eq!(work.flop.value, 4.0 * 8.0 * 1024.0 * 128.0);
        assert_eq!(work.parts.len(), 2);
        assert_eq!(work.parts[0].flop, work.parts[1].flop);
        assert_eq!(work.ex2.unwrap().value, 8.0 * 1024.0);
    }

    #[test]
    fn what_is_missing_is_named() {
        for (text, missing) in [
            ("operator: {kind: gemm}\nshape: {m: 1, n: 1, k: 1}\ndataflow: {reuse: x}\n", vec![Fact::Dtype]),
            (
                "operator: {kind: gemm}\nshape: {m: 1, n: 1}\ndtypes: {inputs: [bf16]}\ndataflow: {reuse: x}\n",
                vec![Fact::Shape],
            ),
            (
                "operator: {kind: gemm}\nshape: {m: 1, n: 1, k: 1}\ndtypes: {inputs: [bf16]}\n",
                vec![Fact::Dataflow],
            ),
            ("name: x\n", vec![Fact::Operator, Fact::Dtype, Fact::Dataflow, Fact::Shape]),
        ] {
            assert_eq!(
                derive(&FactSheet::from_yaml(text, "f.yaml").unwrap()).unwrap_err(),
                missing,
                "{text}"
            );
        }
    }

    #[test]
    fn a_product_is_of_the_wider_of_its_operands_unless_the_sheet_says_what() {
        for (dtypes, wanted, said) in [
            ("inputs: [fp16, int4]", MathType::Fp16, true),
            ("inputs: [int4, bf16]", MathType::Bf16, true),
            ("inputs: [int4]", MathType::Int4, false),
            ("inputs: [nvfp4, fp4]", MathType::Fp4, false),
            ("inputs: [int4, bf16], mma: fp8", MathType::Fp8, false),
        ] {
            let text = format!(
                "operator: {{kind: gemm}}\nshape: {{m: 8, n: 8, k: 8}}\ndtypes: {{{dtypes}}}\n{REUSE}"
            );
            let work = derive(&FactSheet::from_yaml(&text, "f.yaml").unwrap()).unwrap();
            assert_eq!(work.parts[0].math, wanted, "{dtypes}");
            let told = work.assumptions.iter().any(|a| a.contains("the wider of their operands"));
            assert_eq!(told, said, "{dtypes}: {:?}", work.assumptions);
        }
    }
}
