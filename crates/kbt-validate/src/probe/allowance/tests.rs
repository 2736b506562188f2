//! Kernels that are right pass, emulated and recorded; one whose output is scaled does not, however many keys there are.

use super::super::{Probe, ProbeOutput, ProbeResult};
use super::*;
use crate::reference::{AttentionInputs, AttentionShape};
use kbt_evidence::Provenance;
use kbt_tensor::Tensor;
use std::path::Path;

const FORMATS: [PFormat; 3] = [PFormat::Bf16, PFormat::E4m3, PFormat::Nvfp4];

/// To nearest even with so many significant bits, the least step being 2^least.
fn to_nearest(x: f64, bits: i32, least: i32) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    #[expect(clippy::cast_possible_truncation, reason = "an exponent is small")]
    let exponent = x.abs().log2().floor() as i32;
    let step = f64::from((exponent + 1 - bits).max(least)).exp2();
    (x / step).round_ties_even() * step
}

/// What an NVFP4 kernel makes of a group: its scale, and its codes.
#[derive(Clone, Copy)]
enum Fp4 {
    /// max / 6 times 448 / (1 / 6), which uses the range of e4m3; codes from the unrounded scale.
    Ranged,
    /// max / 6 as it is; codes from the rounded scale.
    Divided,
}

/// A row's weights as the kernel stores them.
fn quantised(format: PFormat, fp4: Fp4, weights: &[f64]) -> Vec<f64> {
    let group = |group: &[f64]| -> Vec<f64> {
        let largest = group.iter().copied().fold(0.0, f64::max);
        let (range, consistent) = match fp4 {
            Fp4::Ranged => (6.0 * 448.0, false),
            Fp4::Divided => (1.0, true),
        };
        let scale = to_nearest(largest / 6.0 * range, 4, -9) / range;
        let by = if consistent { scale } else { largest / 6.0 };
        let code = |w: f64| {
            let x = if by > 0.0 { (w / by).min(6.0) } else { 0.0 };
            to_nearest(x, 2, -1)
        };
        group.iter().map(|&w| scale * code(w)).collect()
    };
    match format {
        PFormat::Bf16 => weights.iter().map(|&w| to_nearest(w, 8, -133)).collect(),
        PFormat::E4m3 => weights.iter().map(|&w| to_nearest(w * 256.0, 4, -9) / 256.0).collect(),
        PFormat::Nvfp4 => weights.chunks(GROUP).flat_map(group).collect(),
    }
}

/// The output of a right kernel before its rounding, its row sum of the weights before theirs or after.
fn emulated(probe: &Probe, format: PFormat, fp4: Fp4, sums_stored: bool) -> Vec<f64> {
    let t = |name| probe.inputs.require(name).unwrap();
    let inputs = AttentionInputs::new(t("q"), t("k"), t("v")).unwrap();
    let (shape, v) = (inputs.shape, t("v").to_f64().unwrap());
    let mut weights = Vec::new();
    let mut o = Vec::new();
    for row in 0..shape.rows() {
        inputs.weights(row, probe.causal, f64::from(probe.scale), &mut weights);
        let stored = quantised(format, fp4, &weights);
        let sum: f64 = if sums_stored { &stored } else { &weights }.iter().sum();
        // One key head.
        let mut out = vec![0.0; shape.dim];
        for (p, v) in stored.iter().zip(v.chunks_exact(shape.dim)) {
            out.iter_mut().zip(v).for_each(|(o, v)| *o += p * v);
        }
        o.extend(out.iter().map(|x| if sum > 0.0 { x / sum } else { 0.0 }));
    }
    o
}

fn probe(kind: ProbeKind, seq_k: usize) -> Probe {
    let seq_q = if kind == ProbeKind::MaskedRow { seq_k + 3 } else { 6 };
    let shape = AttentionShape { batch: 1, heads: 1, heads_kv: 1, seq_q, seq_k, dim: 64 };
    Probe::new(kind, shape, Dtype::Bf16, 1).unwrap()
}

/// The result for an output that is scaled by `factor` and then rounded to so many bits.
fn checked(probe: &Probe, o: &[f64], factor: f64, bits: i32, format: PFormat) -> ProbeResult {
    let o: Vec<f64> = o.iter().map(|x| to_nearest(x * factor, bits, -149)).collect();
    let o = Tensor::from_f64("o", probe.o.shape().to_vec(), &o).unwrap();
    probe.check(ProbeOutput { o: &o, lse: None }, format, Provenance::given("test")).unwrap()
}

#[test]
fn a_right_kernel_passes_and_one_that_is_off_by_a_factor_fails_with_any_number_of_keys() {
    for kind in ProbeKind::ALL {
        // Many keys, or for masked-row fewer, since it has as many rows.
        let sizes: &[usize] = match kind {
            ProbeKind::MaskedRow => &[200],
            _ => &[333, 4096],
        };
        for (&keys, format) in sizes.iter().flat_map(|keys| FORMATS.map(|format| (keys, format))) {
            let probe = probe(kind, keys);
            for (fp4, sums_stored) in
                [(Fp4::Ranged, false), (Fp4::Ranged, true), (Fp4::Divided, false), (Fp4::Divided, true)]
            {
                let o = emulated(&probe, format, fp4, sums_stored);
                // With few weights that stand out, max / 6 leaves the others no scale: what v-one asks.
                let vanishes =
                    kind == ProbeKind::VOne && matches!((format, fp4), (PFormat::Nvfp4, Fp4::Divided));
                for bits in [8, 11, 24] {
                    let result = checked(&probe, &o, 1.0, bits, format);
                    assert!(result.passed || vanishes, "{kind} {keys} {format:?} {bits} bits: {result:?}");
                    let small = match (kind, format) {
                        (ProbeKind::VOne | ProbeKind::TieAligned | ProbeKind::Extremes, PFormat::Nvfp4) => {
                            0.637
                        }
                        (ProbeKind::VOne | ProbeKind::TieAligned | ProbeKind::Extremes, PFormat::E4m3)
                        | (_, PFormat::Nvfp4) => 0.9,
                        _ => 0.97,
                    };
                    for factor in [0.0, 0.637, small] {
                        let wrong = checked(&probe, &o, factor, bits, format);
                        assert!(!wrong.passed, "{kind} {keys} {format:?} times {factor}: {wrong:?}");
                    }
                }
            }
        }
    }
}

/// The largest errors that the built-in kernel was seen to have on an H200 are within what is allowed where they were.
#[test]
fn what_the_built_in_kernel_was_recorded_with_is_allowed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/recordings/h200-sxm");
    let mut held = 0;
    for (mode, format) in [("bf16", PFormat::Bf16), ("fp8", PFormat::E4m3), ("fp4", PFormat::Nvfp4)] {
        let text = std::fs::read_to_string(folder.join(mode).join("6-validate.json")).unwrap();
        let recorded: serde_json::Value = serde_json::from_str(&text).unwrap();
        // Every variant of a mode has the same errors.
        let probes = recorded["outcome"]["variants"][0]["probes"].as_array().unwrap();
        for result in probes.iter().map(|p| serde_json::from_value::<ProbeResult>(p.clone()).unwrap()) {
            // As the ladder makes them.
            let shape = AttentionShape { batch: 1, heads: 2, heads_kv: 2, seq_q: 333, seq_k: 333, dim: 128 };
            let probe = Probe::new(result.kind, shape, Dtype::Bf16, 1).unwrap();
            let right = probe.o.to_f64().unwrap();
            let row = result.worst_index[..3].iter().zip([2, 333, 1]).fold(0, |row, (i, n)| (row + i) * n);
            let right = right[row * 128 + result.worst_index[3]];
            let allowed = probe.allowances(format).unwrap()[row].output(right, 1.0 / 256.0);
            assert!(
                result.max_abs_error <= allowed,
                "{mode} {}: {} > {allowed}",
                result.kind,
                result.max_abs_error
            );
            held += 1;
        }
    }
    assert_eq!(held, 21);
}
