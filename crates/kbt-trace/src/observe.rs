//! What the looking costs: times of one kernel at each trace level, and how far they lie apart.
//!
//! Running the kernel is the caller's; here is the arithmetic. A sample is the time of one process at one level;
//! samples of one index were taken next to each other (interleaved), so that ratios are taken pairwise and drift
//! cancels. The interval of a median ratio is read from the order of the ratios (distribution-free, by the binomial
//! law): at least 95 %, and refused below 6 pairs, where no such interval exists.

use crate::{Level, TraceError};
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};

/// Above this cost of coarse tracing the trace's absolute numbers are refused, unless the caller states another.
pub const DEFAULT_LIMIT_PERCENT: f64 = 5.0;

/// One level against level off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LevelCost {
    /// The level.
    pub level: Level,
    /// Median time of a launch.
    pub median_us: f64,
    /// Pairs compared.
    pub pairs: u64,
    /// Median of the pairs' time over that at level off, minus one.
    pub inflation_percent: f64,
    /// Lower end of its interval.
    pub low_percent: f64,
    /// Upper end of its interval.
    pub high_percent: f64,
    /// How likely the interval covers the true median, at least.
    pub confidence_percent: f64,
}

/// What each level costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObserverReport {
    /// How the times are known.
    pub provenance: Provenance,
    /// Median time at level off.
    pub off_us: f64,
    /// Each level that was run, from the least intrusive.
    pub levels: Vec<LevelCost>,
    /// Above this cost of coarse tracing absolute numbers are refused.
    pub limit_percent: f64,
    /// Of coarse tracing's cost, what the compiler barriers alone cost: that of level barrier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reordering_percent: Option<f64>,
    /// Its interval; recordings from before there was one have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reordering_interval: Option<Interval>,
    /// The rest of it, clock reads and stores: median over the rounds of the time at coarse less that at barrier, as a
    /// part of that at off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stores_percent: Option<f64>,
    /// Its interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stores_interval: Option<Interval>,
}

/// Where a median lies, as likely as the levels' `confidence_percent`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low_percent: f64,
    /// Upper end.
    pub high_percent: f64,
}

impl Interval {
    /// Whether the cost may as well be none.
    #[must_use]
    pub fn holds_zero(self) -> bool {
        self.low_percent <= 0.0 && self.high_percent >= 0.0
    }
}

/// A median and its interval.
struct Middle {
    median: f64,
    low: f64,
    high: f64,
    /// How likely the interval covers the true median, at least.
    confidence: f64,
}

impl Middle {
    /// `None` of fewer than 6, where no interval is that likely.
    fn of(values: &[f64]) -> Option<Self> {
        let (rank, confidence) = median_interval(values.len())?;
        let sorted = sorted(values);
        let (low, high) = (sorted[rank], sorted[sorted.len() - 1 - rank]);
        Some(Self { median: median(values), low, high, confidence })
    }
}

impl ObserverReport {
    /// From samples in microseconds: `samples[i]` belongs to `level`, and the n-th samples of all levels were taken
    /// next to each other.
    ///
    /// # Errors
    /// If the limit is no percentage, level off is missing, a time is not positive, or fewer than 6 pairs are left.
    pub fn new(
        samples: &[(Level, Vec<f64>)],
        limit_percent: f64,
        provenance: Provenance,
    ) -> Result<Self, TraceError> {
        let argument = |what, found: String, accepted: &str| TraceError::Argument {
            what,
            found,
            accepted: accepted.to_owned(),
        };
        if let Some(bad) = samples.iter().flat_map(|s| &s.1).find(|t| !(t.is_finite() && **t > 0.0)) {
            return Err(argument("time", bad.to_string(), "a positive number of microseconds"));
        }
        if !(limit_percent.is_finite() && limit_percent >= 0.0) {
            return Err(argument(
                "--limit-percent",
                limit_percent.to_string(),
                "a number of percent, at least 0",
            ));
        }
        let of = |level| samples.iter().find(|s| s.0 == level).map(|s| s.1.as_slice());
        let off =
            of(Level::Off).ok_or_else(|| argument("levels", "no level off".into(), "off and one more"))?;
        let mut levels = Vec::new();
        for level in Level::ALL.into_iter().filter(|l| *l != Level::Off) {
            let Some(times) = of(level) else { continue };
            let ratios: Vec<f64> = times.iter().zip(off).map(|(t, base)| t / base).collect();
            let Some(ratio) = Middle::of(&ratios) else {
                return Err(argument("pairs of samples", ratios.len().to_string(), "at least 6"));
            };
            let percent = |ratio: f64| (ratio - 1.0) * 100.0;
            levels.push(LevelCost {
                level,
                median_us: median(times),
                pairs: ratios.len() as u64,
                inflation_percent: percent(ratio.median),
                low_percent: percent(ratio.low),
                high_percent: percent(ratio.high),
                confidence_percent: ratio.confidence * 100.0,
            });
        }
        if levels.is_empty() {
            return Err(argument("levels", "level off alone".into(), "off and one more"));
        }
        // By round too: the difference of two medians has no interval, and need be no round's.
        let stores = of(Level::Barrier).zip(of(Level::Coarse)).and_then(|(barrier, coarse)| {
            let parts = coarse.iter().zip(barrier).zip(off);
            Middle::of(&parts.map(|((coarse, barrier), off)| (coarse - barrier) / off).collect::<Vec<_>>())
        });
        let barrier = levels.iter().find(|l: &&LevelCost| l.level == Level::Barrier);
        let barrier = barrier.filter(|_| stores.is_some());
        let interval = |low_percent, high_percent| Interval { low_percent, high_percent };
        Ok(Self {
            provenance,
            off_us: median(off),
            limit_percent,
            reordering_percent: barrier.map(|l| l.inflation_percent),
            reordering_interval: barrier.map(|l| interval(l.low_percent, l.high_percent)),
            stores_percent: stores.as_ref().map(|s| s.median * 100.0),
            stores_interval: stores.as_ref().map(|s| interval(s.low * 100.0, s.high * 100.0)),
            levels,
        })
    }

    /// The cost of `level`.
    #[must_use]
    pub fn level(&self, level: Level) -> Option<&LevelCost> {
        self.levels.iter().find(|l| l.level == level)
    }
}

/// Runs every level once a round, `rounds` rounds, forwards and backwards in turn so that drift within a round
/// cancels. `run` gives the time of one process at a level, in microseconds.
///
/// # Errors
/// The first one that `run` gives.
pub fn alternate<E>(
    levels: &[Level],
    rounds: usize,
    mut run: impl FnMut(Level) -> Result<f64, E>,
) -> Result<Vec<(Level, Vec<f64>)>, E> {
    let mut samples: Vec<(Level, Vec<f64>)> = levels.iter().map(|&level| (level, Vec::new())).collect();
    for round in 0..rounds {
        let mut order: Vec<usize> = (0..samples.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let time = run(samples[index].0)?;
            samples[index].1.push(time);
        }
    }
    Ok(samples)
}

/// Rank from either end of the interval of at least 95 % for the median of `n` values, and its confidence.
fn median_interval(n: usize) -> Option<(usize, f64)> {
    // P(fewer than k + 1 of n fall below the median), n fair coins, in logarithms to hold for any n.
    let mut best = None;
    let mut log_term = -(n as f64) * std::f64::consts::LN_2;
    let mut tail = 0.0;
    for k in 0..n / 2 {
        tail += log_term.exp();
        let confidence = 1.0 - 2.0 * tail;
        if confidence < 0.95 {
            break;
        }
        best = Some((k, confidence));
        log_term += ((n - k) as f64 / (k + 1) as f64).ln();
    }
    best
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(levels: &[(Level, Vec<f64>)]) -> Result<ObserverReport, TraceError> {
        let provenance = Provenance::measured("kbt trace observe", "a device", "2026-01-01");
        ObserverReport::new(levels, DEFAULT_LIMIT_PERCENT, provenance)
    }

    #[test]
    fn the_interval_has_the_ranks_of_the_binomial_law() {
        // Tables of the sign test: n = 6 takes the extremes (96.9 %), n = 10 the second ones (97.9 %).
        for (n, rank, confidence) in [(6, 0, 0.969), (10, 1, 0.979), (30, 9, 0.957), (100, 39, 0.965)] {
            let (got, c) = median_interval(n).unwrap();
            assert_eq!(got, rank, "n = {n}");
            assert!((c - confidence).abs() < 1e-3, "n = {n}: {c}");
        }
        assert_eq!(median_interval(5), None);
    }

    #[test]
    fn drift_common_to_a_pair_cancels() {
        let off: Vec<f64> = (0..20).map(|i| 100.0 + f64::from(i)).collect();
        let scaled = |f: f64| off.iter().map(|t| t * f).collect::<Vec<_>>();
        let levels =
            [(Level::Off, off.clone()), (Level::Barrier, scaled(1.001)), (Level::Coarse, scaled(1.011))];
        let report = report(&levels).unwrap();
        let coarse = report.level(Level::Coarse).unwrap();
        assert!((coarse.inflation_percent - 1.1).abs() < 1e-9);
        assert!((coarse.high_percent - 1.1).abs() < 1e-9);
        assert!((report.reordering_percent.unwrap() - 0.1).abs() < 1e-9);
        assert!((report.stores_percent.unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_split_of_the_cost_is_told_by_round_with_its_interval() {
        // Of each round barrier or coarse costs 10 more: as medians they differ by nothing, by round by 10 or -10.
        let times = |cost: fn(usize) -> f64| (0..10).map(|i| 100.0 + cost(i)).collect::<Vec<_>>();
        let split = |coarse| {
            let barrier = times(|i| if i % 2 == 0 { 10.0 } else { 0.0 });
            let off = times(|_| 0.0);
            report(&[(Level::Off, off), (Level::Barrier, barrier), (Level::Coarse, coarse)]).unwrap()
        };
        let unclear = split(times(|i| if i % 2 == 1 { 10.0 } else { 0.0 }));
        let near = |interval: Option<Interval>, low: f64, high: f64| {
            let found = interval.unwrap();
            (found.low_percent - low).abs() < 1e-9 && (found.high_percent - high).abs() < 1e-9
        };
        assert!(near(unclear.stores_interval, -10.0, 10.0), "{:?}", unclear.stores_interval);
        assert!(near(unclear.reordering_interval, 0.0, 10.0), "{:?}", unclear.reordering_interval);
        let text = unclear.render_text();
        let said = "+0.00 % (-10.00 to +10.00, not told apart from none) clock reads and stores";
        assert!(text.contains(said), "{text}");
        // 3 more than barrier in every round.
        let clear = split(times(|i| if i % 2 == 0 { 13.0 } else { 3.0 }));
        assert!(near(clear.stores_interval, 3.0, 3.0), "{:?}", clear.stores_interval);
        assert!(clear.render_text().contains("+3.00 % (+3.00 to +3.00) clock"), "{}", clear.render_text());
    }

    #[test]
    fn rounds_alternate_in_direction() {
        let mut order = Vec::new();
        let levels = [Level::Off, Level::Coarse, Level::Detail];
        let samples = alternate(&levels, 2, |level| {
            order.push(level);
            Ok::<_, ()>(order.len() as f64)
        });
        let [off, coarse, detail] = levels;
        assert_eq!(order, [off, coarse, detail, detail, coarse, off]);
        assert_eq!(samples.unwrap()[0], (off, vec![1.0, 6.0]));
        assert_eq!(alternate(&levels, 2, |_| Err::<f64, _>("no")), Err("no"));
    }

    #[test]
    fn too_few_samples_or_no_baseline_are_refused() {
        let five = || vec![1.0; 5];
        let error = report(&[(Level::Off, five()), (Level::Coarse, five())]).unwrap_err().to_string();
        assert!(error.contains("at least 6"), "{error}");
        assert!(report(&[(Level::Coarse, vec![1.0; 9])]).is_err());
        assert!(report(&[(Level::Off, vec![0.0; 9])]).is_err());
    }

    #[test]
    fn a_limit_that_nothing_can_be_held_against_is_refused() {
        let levels = [(Level::Off, vec![1.0; 9]), (Level::Coarse, vec![1.0; 9])];
        for limit in [f64::NAN, f64::INFINITY, -1.0] {
            let provenance = Provenance::measured("kbt trace observe", "a device", "2026-01-01");
            let error = ObserverReport::new(&levels, limit, provenance).unwrap_err().to_string();
            assert!(error.contains("--limit-percent"), "{error}");
        }
    }
}
