//! Baseline and candidate run bit by bit on inputs made to tell them apart.
//!
//! The inputs: random within the declared ranges, with masked elements, a masked group, a masked row, huge and tiny
//! ones, the ends of the ranges in combination, inputs that equal each other, and inputs placed by bisection on either side of every boundary between neighbouring codes. Where a code
//! differs, the real value must lie within both programs' error bounds of the boundary; else the candidate is wrong.

mod compare;
mod report;
#[cfg(test)]
mod tests;
mod ties;

pub use report::{ErrorBound, Replay};

use super::sample::{self, Mask, Rng, Size};
use crate::lang::eval::{Extent, Tracked};
use crate::lang::{Op, Program, Shape};
use ties::ties;

/// The most elements of a group that are run.
const ELEMENTS: u32 = 256;

/// Groups in a row: two, more where groups are small.
fn groups(program: &Program) -> usize {
    (32 / program.layout.group as usize).max(2)
}

const fn kind(size: Size, mask: Mask) -> &'static str {
    match (size, mask) {
        (Size::Usual, Mask::None) => "usual",
        (Size::Usual, Mask::Some) => "usual, partly masked",
        (_, Mask::All) => "wholly masked",
        (Size::Huge, Mask::None) => "huge",
        (Size::Huge, Mask::Some) => "huge, partly masked",
        (Size::Tiny, _) => "tiny",
        (Size::Ends, _) => "ends of ranges",
    }
}

/// How often a row is drawn for one on which the candidate's guards hold.
const DRAWS: usize = 8;

/// Rows in which inputs equal each other.
const EQUAL_ROWS: usize = 8;

/// Runs both on the same inputs. The programs must have the same inputs and outputs.
#[must_use]
pub fn replay(baseline: &Program, candidate: &Program) -> Replay {
    replay_within(baseline, candidate, &[], f64::INFINITY, &mut { usize::MAX })
}

/// What it takes to place rows at the boundaries of one conversion and compare them, in values.
fn of_boundary(baseline: &Program, candidate: &Program, extent: Extent) -> usize {
    let varied = baseline.inputs.iter().filter(|input| input.shape == Shape::Elem).count();
    let row = extent.len(Shape::Elem);
    // Rows are found by running the program given, and each of four is run through both.
    varied * row * ((ties::RUNS + 4) * baseline.nodes.len() + 4 * candidate.nodes.len())
}

/// The same on inputs for which no finite value of the candidate's nodes `guarded` is greater than `most`.
///
/// Boundaries are placed while `values` lasts, which is how many values may be computed for them; the conversions that are
/// left out are named.
pub(super) fn replay_within(
    baseline: &Program,
    candidate: &Program,
    guarded: &[usize],
    most: f64,
    values: &mut usize,
) -> Replay {
    let extent = Extent::new(sample::layout(baseline.layout, ELEMENTS), groups(baseline));
    let mut report = Replay::new();
    let mut rng = Rng::new(0x7265_706c_6179);
    for (size, mask, rows) in [
        (Size::Usual, Mask::None, 12),
        (Size::Usual, Mask::Some, 12),
        (Size::Usual, Mask::All, 1),
        (Size::Huge, Mask::None, 4),
        (Size::Huge, Mask::Some, 4),
        (Size::Tiny, Mask::None, 4),
        (Size::Ends, Mask::None, 32),
    ] {
        'kind: for _ in 0..rows {
            for _ in 0..DRAWS {
                let Some(inputs) = sample::inputs(baseline, extent, size, mask, &mut rng) else {
                    break 'kind;
                };
                if within(candidate, guarded, most, &inputs, extent) {
                    report.row(baseline, candidate, &inputs, extent, kind(size, mask));
                    break;
                }
            }
        }
    }
    // Drawn apart, two inputs are never equal, and their difference never exactly 0.
    'equal: for _ in 0..EQUAL_ROWS {
        for _ in 0..DRAWS {
            let drawn = sample::inputs(baseline, extent, Size::Usual, Mask::None, &mut rng);
            let Some(inputs) = drawn.and_then(|x| sample::equal(baseline, x, extent, &mut rng)) else {
                break 'equal;
            };
            if sample::holds(baseline, &inputs, extent) && within(candidate, guarded, most, &inputs, extent) {
                report.row(baseline, candidate, &inputs, extent, "equal operands");
                break;
            }
        }
    }
    for _ in 0..6 {
        let Some(inputs) = sample::inputs(baseline, extent, Size::Usual, Mask::None, &mut rng) else {
            continue;
        };
        for (node, name) in conversions(baseline) {
            let takes = of_boundary(baseline, candidate, extent);
            if takes > *values {
                // The first row's are the least that is said to be compared.
                if !report.kinds.contains_key(&format!("{BOUNDARY}{name}"))
                    && !report.left_out.contains(&name)
                {
                    report.left_out.push(name);
                }
                continue;
            }
            *values -= takes;
            let rows = ties(baseline, node, &inputs, extent);
            for inputs in rows.into_iter().filter(|x| within(candidate, guarded, most, x, extent)) {
                report.tie_rows_count += 1;
                report.row(baseline, candidate, &inputs, extent, &format!("{BOUNDARY}{name}"));
            }
        }
    }
    report
}

/// What rows at the boundaries of a conversion are called, before its name.
const BOUNDARY: &str = "boundary of ";

/// The conversions, by the names of the outputs that they are, or as they are computed.
fn conversions(program: &Program) -> Vec<(usize, String)> {
    let all = (0..program.nodes.len()).filter(|&i| matches!(program.nodes[i].op, Op::Cvt(_)));
    let name = |i: usize| {
        let output = program.outputs.iter().find(|(_, node)| *node == i);
        output.map_or_else(|| program.expression(i, false), |(name, _)| name.clone())
    };
    all.map(|i| (i, name(i))).collect()
}

/// Whether the candidate's guards hold of a row. What is infinite is masked, and compared as such.
fn within(candidate: &Program, guarded: &[usize], most: f64, inputs: &[Vec<f64>], extent: Extent) -> bool {
    if guarded.is_empty() {
        return true;
    }
    let values = candidate.evaluate(inputs, extent);
    guarded.iter().all(|&node| values[node].iter().all(|x| !x.is_finite() || x.abs() <= most))
}

fn tracked(inputs: &[Vec<f64>]) -> Vec<Vec<Tracked>> {
    inputs.iter().map(|values| values.iter().map(|&x| Tracked::input(x as f32)).collect()).collect()
}
