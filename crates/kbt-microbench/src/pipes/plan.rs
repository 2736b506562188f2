//! How many operations of each of two instructions a mix holds.

/// Chains a thread of each instruction.
pub const CHAINS: u32 = 4;
/// Most steps of one instruction in a round.
const MOST_STEPS: u32 = 16;
/// Instructions of a round of all chains: twice as many, and the loop, must fit the instruction cache.
pub(crate) const ROUND: f64 = 150.0;

/// Operations of each in a round, such that the first's time is `share` of the second's as nearly as a short round
/// allows. `cycles` and `issued` are those of one operation; a step holds `step` operations.
#[must_use]
pub fn counts(cycles: [f64; 2], issued: [f64; 2], step: [u32; 2], share: f64) -> [u32; 2] {
    let mut best = (f64::INFINITY, step);
    for n in (1..=MOST_STEPS).map(|k| k * step[0]) {
        for m in (1..=MOST_STEPS).map(|k| k * step[1]) {
            let length = f64::from(n) * issued[0] + f64::from(m) * issued[1];
            if length * f64::from(CHAINS) > ROUND && [n, m] != step {
                continue;
            }
            let off = (f64::from(n) * cycles[0] / (f64::from(m) * cycles[1]) / share).ln().abs();
            // Of two that are nearly as near, the shorter: in a long round one kind comes in bursts, and warps wait.
            let cost = off + 0.012 * length;
            if cost < best.0 {
                best = (cost, [n, m]);
            }
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_are_met_within_a_tenth_and_a_round_fits() {
        for (cycles, share) in
            [([2.0, 2.0], 0.6), ([8.0, 2.0], 0.6), ([2.0, 8.0], 0.6), ([1.0, 6.0], 1.0), ([4.0, 2.0], 1.7)]
        {
            let [n, m] = counts(cycles, [1.0, 1.0], [1, 1], share);
            let got = f64::from(n) * cycles[0] / (f64::from(m) * cycles[1]);
            assert!((got / share).ln().abs() < 0.12, "{cycles:?} {share}: {n} and {m}");
            assert!(f64::from((n + m) * CHAINS) <= ROUND);
        }
        assert_eq!(counts([2.0, 2.0], [1.0, 1.0], [4, 1], 1.0)[0] % 4, 0, "whole steps");
        assert_eq!(counts([2.0, 2.0], [40.0, 1.0], [1, 1], 0.6), [1, 1], "too long: the shortest there is");
    }
}
