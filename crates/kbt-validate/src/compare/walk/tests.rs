//! The walk's segments against the whole, and against sums worked out plainly.

use super::super::{ChangeClass, Comparison, Tensors, compare};
use super::*;
use crate::rng::Rng;
use kbt_evidence::Provenance;
use kbt_tensor::{Dtype, Tensor, TensorError, TensorSet};
use std::collections::BTreeMap;
use std::io::Read;

/// A set that can only be read from its beginning, as a packed file can.
struct FromTheStart<'a>(&'a TensorSet);

impl Tensors for FromTheStart<'_> {
    fn infos(&self) -> Vec<TensorInfo> {
        Tensors::infos(self.0)
    }

    fn stream_from(&self, name: &str, start: u64) -> Result<Box<dyn Read + Send + '_>, TensorError> {
        assert_eq!(start, 0, "what is not seekable is read once, in order");
        Tensors::stream_from(self.0, name, 0)
    }

    fn is_seekable(&self, _: &str) -> bool {
        false
    }

    fn input_digests(&self) -> BTreeMap<&str, &str> {
        BTreeMap::new()
    }
}

fn set(shape: &[usize], dtype: Dtype, values: &[f32]) -> TensorSet {
    let mut set = TensorSet::new();
    set.insert(Tensor::from_f32("o", shape.to_vec(), dtype, values).unwrap()).unwrap();
    set
}

/// A right answer, and it with noise, a large error, a NaN and an infinity at places in several segments.
fn outputs(count: usize, seed: u64) -> (Vec<f32>, Vec<f32>) {
    let mut rng = Rng::new(seed);
    let right: Vec<f32> = (0..count).map(|_| rng.signed()).collect();
    let mut noisy: Vec<f32> =
        right.iter().map(|v| if rng.below(4) == 0 { v + 0.01 * rng.signed() } else { *v }).collect();
    for (part, value) in [(7, f32::NAN), (5, f32::INFINITY), (3, 9.0)] {
        noisy[count - count / part] = value;
    }
    (right, noisy)
}

fn run(sides: &Sides<'_>) -> Comparison {
    let rules = Rules { class: ChangeClass::Algebra, ..Rules::default() };
    compare(sides, &rules, Provenance::given("test")).unwrap()
}

/// Lengths of several segments, and rows that are short, that cross segments, and that span all of them.
const SHAPES: [&[usize]; 4] =
    [&[3 * SEGMENT + 77], &[5, SEGMENT / 2 + 3], &[SEGMENT / 64, 3, 64], &[SEGMENT - 1, 3]];

#[test]
fn segments_give_the_same_figures_in_any_order_and_in_one_go() {
    for shape in SHAPES {
        let count = shape.iter().product();
        let ((right, saved), (_, variant)) = (outputs(count, 1), outputs(count, 2));
        let (saved, variant) = (set(shape, Dtype::Bf16, &saved), set(shape, Dtype::Bf16, &variant));
        let right = set(shape, Dtype::F32, &right);
        let spread = run(&Sides { reference: Some(&right), ..Sides::new(&saved, &variant) });
        let once = FromTheStart(&variant);
        let in_order = run(&Sides { reference: Some(&right), ..Sides::new(&saved, &once) });
        assert_eq!(spread, in_order, "{shape:?}");
    }
}

#[test]
fn figures_are_those_of_plain_sums() {
    for shape in SHAPES {
        let count = shape.iter().product();
        let (right, variant) = outputs(count, 3);
        let sides = (set(shape, Dtype::F32, &right), set(shape, Dtype::F32, &variant));
        let tensor =
            run(&Sides { reference: Some(&sides.0), ..Sides::new(&sides.0, &sides.1) }).tensors.remove(0);
        let differing = |i: &usize| right[*i].to_bits() != variant[*i].to_bits();
        assert_eq!(tensor.bits.differing_count, (0..count).filter(differing).count() as u64);
        let first = (0..count).find(differing).unwrap();
        assert_eq!(tensor.bits.first_index.unwrap(), super::super::unravel(first, shape));
        assert_eq!(tensor.bits.special_differing_count, 2);

        let error =
            |i: usize| if variant[i].is_finite() { f64::from(variant[i]) - f64::from(right[i]) } else { 0.0 };
        let near = |a: f64, b: f64| assert!((a - b).abs() <= 1e-12 * b.abs(), "{shape:?}: {a} is not {b}");
        let squares = |range: Range<usize>| range.map(|i| error(i) * error(i)).sum::<f64>();
        let stats = tensor.variant.unwrap();
        near(stats.mean_abs_error, (0..count).map(|i| error(i).abs()).sum::<f64>() / (count - 2) as f64);
        let finite = (0..count).filter(|&i| variant[i].is_finite());
        let reference: f64 = finite.map(|i| f64::from(right[i]).powi(2)).sum();
        near(stats.relative_rms_error.unwrap(), (squares(0..count) / reference).sqrt());
        assert_eq!(stats.max_index, super::super::unravel(count - count / 3, shape));
        assert_eq!((stats.misplaced_count, stats.first_misplaced_index.is_some()), (2, true));

        let row = *shape.last().unwrap();
        let rows = (0..count / row).map(|r| squares(r * row..(r + 1) * row));
        let (worst, most) = rows.enumerate().fold((0, 0.0), |w, r| if r.1 > w.1 { r } else { w });
        assert_eq!(stats.worst_row_index, super::super::unravel(worst, &shape[..shape.len() - 1]));
        let mean = reference / (count - 2) as f64;
        near(stats.worst_row_relative_rms_error.unwrap(), (most / row as f64 / mean).sqrt());
    }
}

#[test]
fn sampled_rows_are_found_from_every_segment() {
    let (row, rows) = (1000, 4 * SEGMENT / 1000);
    let shape = [rows, row];
    let (right, variant) = outputs(rows * row, 4);
    let held: Vec<usize> = (0..rows).filter(|r| r % 3 == 1).collect();
    let sample: Vec<f32> = held.iter().flat_map(|r| right[r * row..(r + 1) * row].to_vec()).collect();
    let (saved, variant) = (set(&shape, Dtype::F32, &right), set(&shape, Dtype::F32, &variant));
    let sample = set(&[held.len(), row], Dtype::F32, &sample);
    let sides = Sides { reference: Some(&sample), rows: Some(&held), ..Sides::new(&saved, &variant) };
    let spread = run(&sides);
    let once = FromTheStart(&variant);
    assert_eq!(spread, run(&Sides { variant: &once, ..sides }));
    let baseline = spread.tensors[0].baseline.as_ref().unwrap();
    assert_eq!(baseline.max_abs_error, 0.0, "every sampled row is that of the reference");
}

#[test]
fn a_side_that_ends_early_is_an_error_in_any_segment() {
    struct Short(TensorSet);
    impl Tensors for Short {
        fn infos(&self) -> Vec<TensorInfo> {
            Tensors::infos(&self.0)
        }
        fn stream_from(&self, name: &str, start: u64) -> Result<Box<dyn Read + Send + '_>, TensorError> {
            let there = (3 * SEGMENT as u64).saturating_sub(start);
            Ok(Box::new(Tensors::stream_from(&self.0, name, start)?.take(there)))
        }
        fn is_seekable(&self, _: &str) -> bool {
            true
        }
        fn input_digests(&self) -> BTreeMap<&str, &str> {
            BTreeMap::new()
        }
    }
    let values: Vec<f32> = (0..4 * SEGMENT).map(|i| (i % 7) as f32).collect();
    let whole = set(&[values.len()], Dtype::Bf16, &values);
    let short = Short(whole.clone());
    let result = compare(&Sides::new(&whole, &short), &Rules::default(), Provenance::given("test"));
    assert!(matches!(result, Err(CompareError::Read { .. })), "{result:?}");
}
