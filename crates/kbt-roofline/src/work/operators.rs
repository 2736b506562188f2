//! Operations and compulsory bytes of each family of operators.

use super::{Tensor, bytes, plural};
use crate::dtype::Dtype;
use crate::facts::{Operator, OperatorKind, Shape};

/// Operations and bytes before they become figures.
pub(super) struct Counts {
    pub(super) flop: f64,
    pub(super) flop_line: String,
    pub(super) read: f64,
    pub(super) written: f64,
    pub(super) byte_line: String,
    /// Of the operations, the second matrix product's (attention).
    pub(super) second: f64,
    pub(super) ex2: Option<f64>,
    pub(super) tensors: Vec<Tensor>,
}

pub(super) struct Formats {
    pub(super) inputs: Vec<Dtype>,
    pub(super) output: Dtype,
    pub(super) mma: Dtype,
    pub(super) second: Dtype,
}

impl Formats {
    pub(super) fn input(&self, index: usize) -> Dtype {
        self.inputs.get(index).or(self.inputs.last()).copied().unwrap_or(Dtype::Fp32)
    }
}

/// The counts of an operator, `None` where the shape does not suffice.
pub(super) fn counts(kind: OperatorKind, operator: &Operator, s: &Shape, f: &Formats) -> Option<Counts> {
    let n = |v: Option<u64>| v.filter(|v| *v > 0).map(|v| v as f64);
    let one = |v: Option<u64>| v.map_or(1.0, |v| v as f64);
    Some(match kind {
        OperatorKind::Gemm => {
            let (b, m, nn, k) = (one(s.batch), n(s.m)?, n(s.n)?, n(s.k)?);
            let (a, w, c) =
                (f.input(0).bytes(b * m * k), f.input(1).bytes(b * k * nn), f.output.bytes(b * m * nn));
            Counts {
                flop: 2.0 * b * m * nn * k,
                flop_line: format!("2·batch·m·n·k = 2 x {b} x {m} x {nn} x {k}"),
                read: a + w,
                written: c,
                byte_line: format!(
                    "A {} {} + B {} {} once, C {} {}",
                    bytes(a),
                    f.input(0),
                    bytes(w),
                    f.input(1),
                    bytes(c),
                    f.output
                ),
                second: 0.0,
                ex2: None,
                tensors: vec![
                    Tensor::read("A", a, f.input(0)),
                    Tensor::read("B", w, f.input(1)),
                    Tensor::written("C", c),
                ],
            }
        }
        OperatorKind::Attention => attention(s, f)?,
        OperatorKind::Normalization => {
            let (rows, columns) = (n(s.rows)?, n(s.columns)?);
            let each = operator.flop_per_element.unwrap_or(4.0);
            let (i, o) = (operator.inputs.unwrap_or(1.0), operator.outputs.unwrap_or(1.0));
            let elements = rows * columns;
            // A norm has a weight for each column, a softmax none.
            let softmax = operator.formula.as_ref().is_some_and(|x| x.to_lowercase().contains("softmax"));
            let weights = if softmax { 0.0 } else { f.input(1).bytes(columns) };
            let read = f.input(0).bytes(i * elements) + weights;
            let written = f.output.bytes(o * elements);
            Counts {
                flop: each * elements,
                flop_line: format!(
                    "{} an element x {rows} rows x {columns} columns",
                    plural(each, "operation")
                ),
                read,
                written,
                byte_line: format!(
                    "{i} x {rows} x {columns} {}{} read, {o} x {rows} x {columns} {} written",
                    f.input(0),
                    if softmax { "" } else { " and one weight row" },
                    f.output
                ),
                second: 0.0,
                ex2: None,
                tensors: vec![
                    Tensor::read("the input", f.input(0).bytes(elements), f.input(0)),
                    Tensor::read("the weight row", weights, f.input(1)),
                    Tensor::written("the output", f.output.bytes(elements)),
                ],
            }
        }
        OperatorKind::Elementwise => {
            let elements = n(s.elements)?;
            let each = operator.flop_per_element.unwrap_or(1.0);
            let assumed = if operator.flop_per_element.is_none() { " (assumed)" } else { "" };
            let (i, o) = (operator.inputs.unwrap_or(1.0), operator.outputs.unwrap_or(1.0));
            // Inputs beyond the formats listed are of the last one.
            let listed = f.inputs.iter().take(i as usize);
            let first: f64 = listed.clone().map(|d| d.bytes(elements)).sum();
            let rest = (i - listed.count() as f64).max(0.0);
            let read = first + f.input(usize::MAX).bytes(rest * elements);
            // A million inputs of one format are as one.
            let mut tensors: Vec<Tensor> = (0..i.min(16.0) as usize)
                .map(|n| Tensor::read(format!("input {n}"), f.input(n).bytes(elements), f.input(n)))
                .collect();
            tensors.push(Tensor::written("the output", f.output.bytes(elements)));
            Counts {
                flop: each * elements,
                flop_line: format!("{} an element{assumed} x {elements}", plural(each, "operation")),
                read,
                written: f.output.bytes(o * elements),
                byte_line: format!("{} of {elements} read, {o} written", plural(i, "tensor")),
                second: 0.0,
                ex2: None,
                tensors,
            }
        }
        OperatorKind::Reduction => {
            let (elements, left) = (n(s.elements)?, one(s.output_elements));
            let each = operator.flop_per_element.unwrap_or(1.0);
            Counts {
                flop: each * elements,
                flop_line: format!("{} an element x {elements}", plural(each, "operation")),
                read: f.input(0).bytes(elements),
                written: f.output.bytes(left),
                byte_line: format!("{elements} {} read once, {left} {} written", f.input(0), f.output),
                second: 0.0,
                ex2: None,
                tensors: vec![
                    Tensor::read("the input", f.input(0).bytes(elements), f.input(0)),
                    Tensor::written("the output", f.output.bytes(left)),
                ],
            }
        }
        OperatorKind::Convolution => convolution(s, f)?,
        OperatorKind::Counts => {
            let (flop, all) = (operator.flop?, operator.hbm_bytes?);
            let read = operator.hbm_read_bytes.unwrap_or(all).min(all);
            Counts {
                flop,
                flop_line: "given".to_owned(),
                read,
                written: all - read,
                byte_line: "given".to_owned(),
                second: 0.0,
                ex2: None,
                // One count names no tensor.
                tensors: vec![Tensor::written("all that it moves", all)],
            }
        }
    })
}

fn attention(s: &Shape, f: &Formats) -> Option<Counts> {
    let n = |v: Option<u64>| v.filter(|v| *v > 0).map(|v| v as f64);
    let (b, h) = (s.batch.map_or(1.0, |v| v as f64), n(s.heads)?);
    let (sq, d) = (n(s.seqlen)?, n(s.head_dim)?);
    let (kv, hkv) = (n(s.seqlen_kv).unwrap_or(sq), n(s.kv_heads).unwrap_or(h));
    // The field counts half for a square causal problem; queries at the end of a longer context see the
    // context and the triangle of their own block.
    let (seen, note) = match s.causal.unwrap_or(false) {
        false => (1.0, ""),
        true if sq == kv => (0.5, ", half of it causal"),
        true if sq < kv => ((kv - (sq - 1.0) / 2.0) / kv, ", less the triangle that causality hides"),
        // More queries than keys: the last key is the last query's, and the first queries see none.
        true => ((kv + 1.0) / 2.0 / sq, ", the triangle of the keys alone"),
    };
    let product = 2.0 * b * h * sq * kv * d * seen;
    let (q, o) = (f.input(0).bytes(b * h * sq * d), f.output.bytes(b * h * sq * d));
    let (k, v) = (f.input(1).bytes(b * hkv * kv * d), f.input(2).bytes(b * hkv * kv * d));
    Some(Counts {
        flop: 2.0 * product,
        flop_line: format!("4·B·H·Sq·Skv·D = 4 x {b} x {h} x {sq} x {kv} x {d}{note}"),
        read: q + k + v,
        written: o,
        byte_line: format!("Q {} + K {} + V {} once, O {}", bytes(q), bytes(k), bytes(v), bytes(o)),
        second: product,
        ex2: Some(b * h * sq * kv * seen),
        tensors: vec![
            Tensor::read("Q", q, f.input(0)),
            Tensor::read("K", k, f.input(1)),
            Tensor::read("V", v, f.input(2)),
            Tensor::written("O", o),
        ],
    })
}

fn convolution(s: &Shape, f: &Formats) -> Option<Counts> {
    let n = |v: Option<u64>| v.filter(|v| *v > 0).map(|v| v as f64);
    let (b, c, k) = (s.batch.map_or(1.0, |v| v as f64), n(s.channels)?, n(s.filters)?);
    let (h, w, r, t) = (n(s.height)?, n(s.width)?, n(s.kernel_height)?, n(s.kernel_width)?);
    let (stride, pad, groups) =
        (n(s.stride).unwrap_or(1.0), s.padding.unwrap_or(0) as f64, n(s.groups).unwrap_or(1.0));
    let out = |size: f64, window: f64| ((size + 2.0 * pad - window) / stride).floor() + 1.0;
    let (p, q) = (out(h, r), out(w, t));
    if p < 1.0 || q < 1.0 {
        return None;
    }
    // A stride wider than the window skips positions, and nothing need read those.
    let (rows, columns) = (touched(h, r, stride, pad, p), touched(w, t, stride, pad, q));
    let (x, filter, y) = (
        f.input(0).bytes(b * c * rows * columns),
        f.input(1).bytes(k * c / groups * r * t),
        f.output.bytes(b * k * p * q),
    );
    Some(Counts {
        flop: 2.0 * b * k * p * q * c / groups * r * t,
        flop_line: format!(
            "2·N·K·P·Q·(C/groups)·R·S = 2 x {b} x {k} x {p} x {q} x {} x {r} x {t}",
            c / groups
        ),
        read: x + filter,
        written: y,
        byte_line: format!(
            "input {}{} + filters {} once, output {}",
            bytes(x),
            if rows < h || columns < w {
                format!(" ({rows} x {columns} of {h} x {w} positions are read)")
            } else {
                String::new()
            },
            bytes(filter),
            bytes(y)
        ),
        second: 0.0,
        ex2: None,
        tensors: vec![
            Tensor::read("the input", x, f.input(0)),
            Tensor::read("the filters", filter, f.input(1)),
            Tensor::written("the output", y),
        ],
    })
}

/// Positions of an input of `size` that `out` windows, `stride` apart from `pad` before it, read.
fn touched(size: f64, window: f64, stride: f64, pad: f64, out: f64) -> f64 {
    // Positions read before `end`, counted from the first window's start.
    let before = |end: f64| {
        let end = end.min((out - 1.0) * stride + window);
        if stride <= window { end } else { (end / stride).floor() * window + (end % stride).min(window) }
    };
    before(pad + size) - before(pad)
}

#[cfg(test)]
mod tests {
    use super::touched;

    #[test]
    fn positions_read_are_those_that_a_window_covers() {
        for size in 1..12_u32 {
            for window in 1..6 {
                for stride in 1..7 {
                    for pad in 0..5 {
                        let Some(room) = (size + 2 * pad).checked_sub(window) else { continue };
                        let out = room / stride + 1;
                        let covers =
                            |at: u32| (0..out).any(|o| (o * stride..o * stride + window).contains(&at));
                        let counted = (pad..pad + size).filter(|at| covers(*at)).count() as f64;
                        let [size, window, stride, pad, out] =
                            [size, window, stride, pad, out].map(f64::from);
                        let found = touched(size, window, stride, pad, out);
                        assert_eq!(found, counted, "{size} {window} {stride} {pad}");
                    }
                }
            }
        }
    }
}
