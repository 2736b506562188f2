//! Medians, spreads and intervals, with a random generator that gives the same draws every time.

use serde::{Deserialize, Serialize};

/// An interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// The smallest interval that holds both.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

/// The middle value; the mean of the middle two where there are two. `None` of nothing or of a NaN.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    if values.iter().any(|v| v.is_nan()) {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(if sorted.len() % 2 == 1 { upper } else { f64::midpoint(sorted[sorted.len() / 2 - 1], upper) })
}

/// The median absolute deviation from the median, as it is (not scaled to a standard deviation).
#[must_use]
pub fn mad(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    median(&values.iter().map(|v| (v - middle).abs()).collect::<Vec<_>>())
}

/// The mean; `None` of nothing.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "counts of samples are small")]
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// A small random generator (splitmix64): the same seed gives the same numbers on every machine.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator from a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in [0, 1).
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit exactly")]
    pub const fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// An index below `n`; 0 for an `n` of 0.
    #[allow(clippy::cast_possible_truncation, reason = "the high half of the product is below n")]
    pub const fn below(&mut self, n: usize) -> usize {
        ((self.bits() as u128 * n as u128) >> 64) as usize
    }
}

/// The percentile bootstrap interval of a statistic at a confidence level: `resamples` redraws with
/// replacement. `None` of nothing.
///
/// With few samples this interval is too narrow (it never leaves the samples' own range): verdicts take the
/// hull of it and of [`t_interval`].
#[must_use]
pub fn bootstrap(
    values: &[f64],
    level: f64,
    resamples: usize,
    seed: u64,
    statistic: impl Fn(&[f64]) -> Option<f64>,
) -> Option<Interval> {
    let mut rng = Rng::new(seed);
    let mut draw = vec![0.0; values.len()];
    let mut found = Vec::with_capacity(resamples);
    for _ in 0..resamples {
        for slot in &mut draw {
            *slot = values[rng.below(values.len())];
        }
        found.push(statistic(&draw)?);
    }
    found.sort_by(f64::total_cmp);
    let tail = (1.0 - level) / 2.0;
    Some(Interval { low: quantile(&found, tail)?, high: quantile(&found, 1.0 - tail)? })
}

/// A quantile of sorted values, linear between neighbours.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn quantile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = q.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64))
}

/// Student's interval for the mean of independent samples at a confidence level; `None` below two samples.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "counts of samples are small")]
pub fn t_interval(values: &[f64], level: f64) -> Option<Interval> {
    let (n, middle) = (values.len(), mean(values)?);
    if n < 2 {
        return None;
    }
    let variance = values.iter().map(|v| (v - middle).powi(2)).sum::<f64>() / (n - 1) as f64;
    let half = t_quantile(n - 1, f64::midpoint(1.0, level)) * (variance / n as f64).sqrt();
    Some(Interval { low: middle - half, high: middle + half })
}

/// The most successes among `n` independent trials of probability `p` that chance explains at a level: the least `k`
/// with P(X <= k) >= `level`.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "counts of trials are small")]
pub fn binomial_limit(n: u64, p: f64, level: f64) -> u64 {
    if p <= 0.0 {
        return 0;
    }
    if p >= 1.0 {
        return n;
    }
    // Logarithms, since the first term is 0 in f64 for many trials.
    let (mut log_term, mut below) = (n as f64 * (-p).ln_1p(), 0.0);
    for k in 0..n {
        below += log_term.exp();
        if below >= level {
            return k;
        }
        log_term += ((n - k) as f64 / (k + 1) as f64).ln() + p.ln() - (-p).ln_1p();
    }
    n
}

/// The quantile of Student's t with whole degrees of freedom, for a probability above one half.
fn t_quantile(freedom: usize, probability: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while t_below(freedom, high) < probability && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if t_below(freedom, middle) < probability {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// P(T <= t) for t >= 0, by the finite series for whole degrees of freedom (Abramowitz & Stegun 26.7.3, 26.7.4).
#[allow(clippy::cast_precision_loss, reason = "degrees of freedom are small")]
fn t_below(freedom: usize, t: f64) -> f64 {
    let n = freedom as f64;
    let theta = (t / n.sqrt()).atan();
    let cos2 = theta.cos().powi(2);
    let odd = freedom % 2 == 1;
    // 1 + 1/2 cos² + 1·3/(2·4) cos⁴ …, or the odd series cos + 2/3 cos³ + …, up to cos^(n-2).
    let terms = if odd { freedom.saturating_sub(1) / 2 } else { freedom / 2 };
    let (mut term, mut sum) = (if odd { theta.cos() } else { 1.0 }, 0.0);
    for k in 1..=terms {
        sum += term;
        let (numerator, denominator) = if odd { (2 * k, 2 * k + 1) } else { (2 * k - 1, 2 * k) };
        term *= cos2 * numerator as f64 / denominator as f64;
    }
    let two_sided =
        if odd { (theta + theta.sin() * sum) * std::f64::consts::FRAC_2_PI } else { theta.sin() * sum };
    f64::midpoint(1.0, two_sided)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64, within: f64) {
        assert!((a - b).abs() <= within, "{a} is not {b}");
    }

    #[test]
    fn medians_and_deviations() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[1.0, f64::NAN]), None);
        assert_eq!(mad(&[1.0, 1.0, 2.0, 9.0]), Some(0.5));
    }

    #[test]
    fn student_quantiles_are_those_of_the_tables() {
        // Abramowitz & Stegun, table 26.10.
        for (freedom, probability, expect) in [
            (1, 0.975, 12.706),
            (2, 0.975, 4.303),
            (3, 0.995, 5.841),
            (4, 0.95, 2.132),
            (5, 0.9995, 6.869),
            (10, 0.975, 2.228),
            (30, 0.995, 2.750),
        ] {
            near(t_quantile(freedom, probability), expect, 6e-4);
        }
    }

    #[test]
    fn the_generator_is_the_published_splitmix64() {
        // First outputs for seed 1234567, as in the reference implementation by S. Vigna.
        let mut rng = Rng::new(1_234_567);
        assert_eq!([rng.bits(), rng.bits()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        assert_eq!(rng.below(0), 0);
        assert!((0..1000).all(|_| rng.below(7) < 7));
    }

    #[test]
    fn the_bootstrap_repeats_itself_and_holds_the_median() {
        let values = [1.0, 1.1, 0.9, 1.05, 0.95, 1.02, 0.98];
        let a = bootstrap(&values, 0.95, 1000, 1, median).unwrap();
        assert_eq!(Some(a), bootstrap(&values, 0.95, 1000, 1, median));
        assert!(a.low <= 1.0 && 1.0 <= a.high && a.low >= 0.9 && a.high <= 1.1, "{a:?}");
        assert_eq!(bootstrap(&[], 0.95, 10, 1, median), None);
    }

    #[test]
    fn binomial_limits_are_those_of_the_distribution() {
        // P(X <= k) at 99 %: Binomial(100, 0.01) has 0.9816 at 3 and 0.9966 at 4; Binomial(1000, 0.01) 0.9929 at 18.
        for (n, p, limit) in
            [(100, 0.01, 4), (1000, 0.01, 18), (5, 0.5, 5), (0, 0.3, 0), (7, 0.0, 0), (7, 1.0, 7)]
        {
            assert_eq!(binomial_limit(n, p, 0.99), limit, "{n} {p}");
        }
        assert_eq!(binomial_limit(100_000, 0.01, 0.99), 1074);
    }

    #[test]
    fn the_t_interval_covers_the_mean_as_often_as_it_says() {
        let mut rng = Rng::new(7);
        let trials = 4000;
        let missed = (0..trials)
            .filter(|_| {
                // Sum of twelve uniforms: near enough to a normal.
                let values: Vec<f64> =
                    (0..4).map(|_| (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0).collect();
                let i = t_interval(&values, 0.95).unwrap();
                i.low > 0.0 || i.high < 0.0
            })
            .count();
        // 5 % of 4000 is 200; the binomial 99.9 % limits are about 155 and 247.
        assert!((155..=247).contains(&missed), "{missed}");
    }
}
