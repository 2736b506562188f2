//! What becomes of a group that is wholly masked, in code that masks its inputs itself: before, and with a candidate.

use crate::lang::eval::{Extent, Tracked};
use crate::lang::{Program, Range};
use crate::lift::Piece;

/// What is said of it with a candidate: nothing of a piece of which nothing is masked.
pub(super) fn wholly_masked(piece: &Piece, candidate: &Program) -> Vec<String> {
    let given = &piece.program;
    let names = given.inputs.iter().zip(&piece.masks);
    let masked: Vec<String> =
        names.filter_map(|(input, mask)| mask.map(|m| format!("all of {} are {m:?}", input.name))).collect();
    if masked.is_empty() {
        return Vec::new();
    }
    let extent = Extent::new(given.layout, 2);
    let usual = |range: Range| 1f64.clamp(range.lo, range.hi) as f32;
    let inputs: Vec<Vec<Tracked>> = given
        .inputs
        .iter()
        .zip(&piece.masks)
        .map(|(input, mask)| {
            let value = mask.unwrap_or_else(|| usual(input.range));
            vec![Tracked::input(value); extent.len(input.shape)]
        })
        .collect();
    let value = |program: &Program, name: &str| {
        let values = program.evaluate(&inputs, extent);
        let node = program.outputs.iter().find(|(n, _)| n == name)?.1;
        values[node].first().copied()
    };
    let one = |(name, _): &(String, usize)| {
        let (before, now) = (value(given, name)?, value(candidate, name)?);
        let (a, b) = (before.value, now.value);
        let within = f64::from((a - b).abs()) <= before.error + now.error;
        let shown = |x: f32| if x.is_nan() { "NaN".to_owned() } else { format!("{x}") };
        Some(if (a.is_nan() && b.is_nan()) || a == b || within {
            format!("where {}, {name} is {} before and after", masked.join(" and "), shown(a))
        } else {
            format!(
                "not where {}: {name} is {} as the code stands, {} with this",
                masked.join(" and "),
                shown(a),
                shown(b)
            )
        })
    };
    given.outputs.iter().filter_map(one).collect()
}
