//! Inputs on either side of every boundary between neighbouring codes, found by bisection.

use super::tracked;
use crate::lang::eval::{Extent, Tracked};
use crate::lang::{Op, Program, Shape};

/// Steps of a bisection: f32 have 32 bits.
const STEPS: usize = 34;
/// How often the program is run for each input that is varied.
pub(super) const RUNS: usize = STEPS + 2;

/// The f32 in the middle of two, in the order of all f32.
pub(super) fn middle(lo: f32, hi: f32) -> f32 {
    let key = |x: f32| {
        let bits = x.to_bits() as i32;
        if bits < 0 { i32::MIN.wrapping_sub(bits).into() } else { i64::from(bits) }
    };
    let back = |k: i64| {
        let k = k as i32;
        f32::from_bits(if k < 0 { i32::MIN.wrapping_sub(k) as u32 } else { k as u32 })
    };
    back((key(lo) + key(hi)).div_euclid(2))
}

/// Rows in which elements lie directly below and directly above boundaries of the conversion `node`. One value per
/// element input is varied by bisection, all elements of a row at once: each aims at another boundary. The first
/// element of a group stays the greatest, so that what depends on the group's maximum stays put; for a conversion
/// that exists once a group it is the first element that moves.
pub(super) fn ties(
    program: &Program,
    node: usize,
    inputs: &[Vec<f64>],
    extent: Extent,
) -> Vec<Vec<Vec<f64>>> {
    let elements = extent.len(Shape::Elem);
    let each = elements / extent.len(Shape::Group);
    let by_group = program.shapes[node] < Shape::Elem;
    let mut rows = Vec::new();
    for (j, _) in program.inputs.iter().enumerate().filter(|(_, input)| input.shape == Shape::Elem) {
        let moving: Vec<usize> = (0..elements).filter(|e| (e % each == 0) == by_group).collect();
        let mut base = inputs.to_vec();
        for group in base[j].chunks_mut(each) {
            let greatest = group.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            group.fill(greatest - 64.0);
            group[0] = greatest;
        }
        let code_at = |e: usize, values: &[Vec<Tracked>]| {
            values[node][extent.index(program.shapes[node], Shape::Elem, e)].value
        };
        let run = |x: &[Vec<f64>]| program.evaluate(&tracked(x), extent);
        // From far below to the greatest (or well above it, for the group's own value).
        let mut lo: Vec<f32> = moving.iter().map(|&e| base[j][e] as f32 - 64.0).collect();
        let mut hi: Vec<f32> = moving
            .iter()
            .map(|&e| base[j][e / each * each] as f32 + if by_group { 16.0 } else { 0.0 })
            .collect();
        let place = |at: &[f32]| {
            let mut x = base.clone();
            for (&e, &v) in moving.iter().zip(at) {
                x[j][e] = f64::from(v);
            }
            x
        };
        let (low, high) = (run(&place(&lo)), run(&place(&hi)));
        let format = match program.nodes[node].op {
            Op::Cvt(format) => format,
            _ => return rows,
        };
        // Boundaries between the codes at the ends, one for each moving element in turn.
        let values: Vec<f32> = {
            let mut v: Vec<f32> = format.values().into_iter().filter(|v| v.is_finite()).collect();
            v.sort_by(f32::total_cmp);
            v.dedup();
            v
        };
        let goals: Vec<Option<f32>> = moving
            .iter()
            .enumerate()
            .map(|(n, &e)| {
                let (from, to) = (code_at(e, &low), code_at(e, &high));
                let between: Vec<f32> = values.iter().copied().filter(|v| *v > from && *v <= to).collect();
                // Where there are more boundaries than elements: from the smallest to the greatest, where a step counts.
                let few = between.len() <= moving.len();
                let at = if few { (n * 7) % between.len().max(1) } else { n * between.len() / moving.len() };
                between.get(at).copied()
            })
            .collect();
        for _ in 0..STEPS {
            let mid: Vec<f32> = lo.iter().zip(&hi).map(|(&a, &b)| middle(a, b)).collect();
            let values = run(&place(&mid));
            for (n, &e) in moving.iter().enumerate() {
                let Some(goal) = goals[n] else { continue };
                if code_at(e, &values) >= goal { hi[n] = mid[n] } else { lo[n] = mid[n] }
            }
        }
        rows.push(place(&lo));
        rows.push(place(&hi));
        // One step further on either side, where only the error of exp2 reaches.
        rows.push(place(&lo.iter().map(|x| x.next_down()).collect::<Vec<_>>()));
        rows.push(place(&hi.iter().map(|x| x.next_up()).collect::<Vec<_>>()));
    }
    rows
}
