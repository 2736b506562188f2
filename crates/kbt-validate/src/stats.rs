//! Exact statements about a rate from a count of runs. No normal approximation: at a handful of differences in
//! tens of runs it is wrong by factors.

use serde::{Deserialize, Serialize};

/// How the runs came to an end, which changes what their count says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// A number of runs that was fixed beforehand (Clopper-Pearson).
    Fixed,
    /// Runs until the first difference (the exact interval of a geometric waiting time).
    FirstDifference,
}

/// What runs say of the rate at which one run differs. One-sided: each limit alone holds with the confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RateBound {
    /// How the runs ended.
    pub sampling: Sampling,
    /// The confidence of each limit.
    pub confidence_ratio: f64,
    /// The rate is not below this.
    pub low_ratio: f64,
    /// The rate is not above this.
    pub high_ratio: f64,
}

impl RateBound {
    /// From `differences` in a fixed number of runs.
    #[must_use]
    pub fn fixed(differences: u32, runs: u32, confidence: f64) -> Self {
        let alpha = 1.0 - confidence;
        let low = match differences {
            0 => 0.0,
            k => solve(|p| 1.0 - at_most(k - 1, runs, p) >= alpha),
        };
        let high = if differences >= runs { 1.0 } else { solve(|p| at_most(differences, runs, p) <= alpha) };
        Self { sampling: Sampling::Fixed, confidence_ratio: confidence, low_ratio: low, high_ratio: high }
    }

    /// From runs that were stopped at the first difference, which was the last of `runs`.
    #[must_use]
    pub fn first_difference(runs: u32, confidence: f64) -> Self {
        Self::first_difference_of(runs, runs, confidence)
    }

    /// The same where only `held` of the runs could be seen to differ when they came, the last among them; any of
    /// `runs` may have been the odd one.
    #[must_use]
    pub fn first_difference_of(runs: u32, held: u32, confidence: f64) -> Self {
        let alpha = 1.0 - confidence;
        let (runs, held) = (f64::from(runs.max(1)), f64::from(held.max(1)));
        // P(first at or before n) = 1 - (1-p)^n and P(first at or after n) = (1-p)^(n-1).
        let low = 1.0 - (1.0 - alpha).powf(1.0 / runs);
        let high = if held > 1.0 { 1.0 - alpha.powf(1.0 / (held - 1.0)) } else { 1.0 };
        let sampling = Sampling::FirstDifference;
        Self { sampling, confidence_ratio: confidence, low_ratio: low, high_ratio: high }
    }
}

/// Runs needed to see at least one difference of this rate with this confidence; `None` for a rate or a
/// confidence that is not between 0 and 1.
#[must_use]
pub fn runs_needed(rate: f64, confidence: f64) -> Option<u32> {
    let inside = |x: f64| x > 0.0 && x < 1.0;
    if !inside(rate) || !inside(confidence) {
        return None;
    }
    let runs = ((1.0 - confidence).ln() / (-rate).ln_1p()).ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive, and checked")]
    (runs <= f64::from(u32::MAX)).then_some(runs as u32)
}

/// P(at most k of n) at probability p, summed from the terms of the binomial.
fn at_most(k: u32, n: u32, p: f64) -> f64 {
    if p <= 0.0 || k >= n {
        return 1.0;
    }
    if p >= 1.0 {
        return 0.0;
    }
    let (ln_p, ln_q, n) = (p.ln(), (-p).ln_1p(), f64::from(n));
    let mut ln_choose = 0.0;
    let mut sum = 0.0;
    for i in 0..=k {
        let i = f64::from(i);
        if i > 0.0 {
            ln_choose += ((n - i + 1.0) / i).ln();
        }
        sum += (ln_choose + i * ln_p + (n - i) * ln_q).exp();
    }
    sum.min(1.0)
}

/// The least probability at which a condition that is false at 0 and true from some point on becomes true.
fn solve(holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 5e-4, "{a} is not {b}");
    }

    #[test]
    fn bounds_are_the_published_ones() {
        // 0 of 20: 13.9 % one-sided at 95 %, 16.8 % two-sided; 1 of 20: 0.13 % to 24.9 % two-sided.
        near(RateBound::fixed(0, 20, 0.95).high_ratio, 0.139);
        near(RateBound::fixed(0, 20, 0.975).high_ratio, 0.168);
        let one = RateBound::fixed(1, 20, 0.975);
        near(one.low_ratio, 0.0013);
        near(one.high_ratio, 0.249);
        near(RateBound::fixed(0, 60, 0.95).high_ratio, 0.0487);
        assert_eq!(RateBound::fixed(0, 60, 0.95).low_ratio, 0.0);
        assert_eq!(RateBound::fixed(7, 7, 0.95).high_ratio, 1.0);
        // Symmetric under exchanging differences and agreements.
        let (a, b) = (RateBound::fixed(3, 50, 0.9), RateBound::fixed(47, 50, 0.9));
        near(a.low_ratio, 1.0 - b.high_ratio);
        near(a.high_ratio, 1.0 - b.low_ratio);
    }

    #[test]
    fn runs_needed_are_the_published_ones() {
        for (rate, confidence, runs) in
            [(0.05, 0.90, 45), (0.05, 0.95, 59), (0.05, 0.99, 90), (0.01, 0.95, 299)]
        {
            assert_eq!(runs_needed(rate, confidence), Some(runs));
        }
        for (rate, confidence) in [(0.0, 0.9), (1.0, 0.9), (0.1, 1.0), (f64::NAN, 0.9), (1e-12, 0.9)] {
            assert_eq!(runs_needed(rate, confidence), None);
        }
    }

    #[test]
    fn the_waiting_time_has_its_own_interval() {
        let bound = RateBound::first_difference(20, 0.95);
        near(1.0 - (1.0 - bound.low_ratio).powi(20), 0.05);
        near((1.0 - bound.high_ratio).powi(19), 0.05);
        assert_eq!(RateBound::first_difference(1, 0.95).high_ratio, 1.0);
    }
}
