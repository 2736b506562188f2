//! The modelled curve beside the measured sweep, and how well it did.

use crate::model::{HandoffTimes, Predicted, TimesError};
use crate::outcome::{PointOutcome, PointStatus, SplitOutcome};
use kbt_evidence::Provenance;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Periods closer than this are one: less than any sweep could tell apart.
const FLAT: f64 = 0.005;

/// A modelled curve.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelCurve {
    /// The times it was computed from, which have a provenance of their own.
    pub times: HandoffTimes,
    /// The points of the curve: every handoff of the sweep.
    pub curve: Vec<Predicted>,
    /// The score against the measured points; absent where fewer than two were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// Modelled, with the score as its known error.
    pub provenance: Provenance,
}

/// How well a modelled curve fits a measured sweep.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Points that are both modelled and measured, the baseline among them.
    pub points_count: usize,
    /// Spearman's rank correlation of the two ratios to the baseline, from -1 to 1; absent where either is
    /// constant, which has no ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank_correlation: Option<f64>,
    /// The largest error of the modelled ratio to the baseline.
    pub max_error_percent: f64,
    /// How the figures are known: computed from the model and the measurements.
    pub provenance: Provenance,
}

impl ModelCurve {
    /// The curve over the handoffs of a sweep, with its score where points were measured. Only points that differ
    /// from the baseline in nothing but the handoff are scored: the times hold for no other kernel.
    ///
    /// # Errors
    /// Where the times cannot be.
    pub fn new(times: &HandoffTimes, outcome: &SplitOutcome) -> Result<Self, TimesError> {
        let mut curve = BTreeMap::new();
        let comparable: Vec<&PointOutcome> =
            outcome.baseline().into_iter().chain(outcome.handoff_points()).collect();
        for point in &comparable {
            if let Some(integers) = point.integers {
                curve.insert(integers, times.predict(integers)?);
            }
        }
        Ok(Self::scored(times, curve.into_values().collect(), &comparable))
    }

    /// The curve over every legal handoff at these counts, scored against a measured sweep where one is given.
    ///
    /// # Errors
    /// Where the times cannot be.
    pub fn over(
        times: &HandoffTimes,
        chunks: &[u32],
        tiles: u32,
        measured: Option<&SplitOutcome>,
    ) -> Result<Self, TimesError> {
        let mut curve = Vec::new();
        for (place, count) in chunks.iter().enumerate() {
            if !chunks[..place].contains(count) {
                curve.extend(times.curve(*count, tiles)?);
            }
        }
        let points: Vec<&PointOutcome> =
            measured.into_iter().flat_map(|o| o.baseline().into_iter().chain(o.handoff_points())).collect();
        Ok(Self::scored(times, curve, &points))
    }

    fn scored(times: &HandoffTimes, curve: Vec<Predicted>, points: &[&PointOutcome]) -> Self {
        let score = score(&curve, points, times);
        let error = match &score {
            Some(s) => {
                format!("largest error {:.1} % over {} measured points", s.max_error_percent, s.points_count)
            }
            None => "its error is not known: no measured sweep beside it".to_owned(),
        };
        Self { times: times.clone(), curve, score, provenance: modelled(&error, times) }
    }

    /// The same curve read back from a file.
    #[must_use]
    pub fn read_back(mut self) -> Self {
        self.times.provenance = self.times.provenance.read_back();
        self
    }

    /// Whether the model sees no difference between the handoffs.
    #[must_use]
    pub fn is_flat(&self) -> bool {
        let periods = || self.curve.iter().map(|p| p.period_cycles);
        let (low, high) = (periods().fold(f64::INFINITY, f64::min), periods().fold(0.0, f64::max));
        high <= low * (1.0 + FLAT)
    }

    /// Why the curve is as it is, in a sentence; `None` of an empty curve.
    #[must_use]
    pub fn explanation(&self) -> Option<String> {
        let best = self.best()?;
        let worst = self.curve.iter().max_by(|a, b| a.period_cycles.total_cmp(&b.period_cycles))?;
        if self.is_flat() {
            let waits = best.wait_first_cycles + best.wait_second_cycles;
            return Some(if best.producer_wait_cycles <= FLAT * best.period_cycles {
                format!(
                    "the producers set the pace: they never wait for the consumer, which waits {waits:.0} clk a tile for \
                     them, whatever the split"
                )
            } else {
                format!(
                    "the consumer sets the pace: the producers wait {:.0} clk a tile for it, whatever the split",
                    best.producer_wait_cycles
                )
            });
        }
        let lost = worst.period_cycles - best.period_cycles;
        let held = worst.wait_second_cycles - best.wait_second_cycles;
        let starved = worst.wait_first_cycles - best.wait_first_cycles;
        let why = if held >= starved {
            "it is released early, begun at once, and then holds up the line while it waits for its second signal"
        } else {
            "the consumer stands idle until its first signal"
        };
        Some(format!("{} takes {lost:.0} clk a tile more than {}: {why}", worst.integers, best.integers))
    }

    /// The handoff with the shortest period.
    #[must_use]
    pub fn best(&self) -> Option<&Predicted> {
        self.curve.iter().min_by(|a, b| a.period_cycles.total_cmp(&b.period_cycles))
    }
}

/// The provenance of a figure of the model: never stronger than modelled, and as weak as its inputs.
#[must_use]
pub fn modelled(error: &str, times: &HandoffTimes) -> Provenance {
    let how = format!("event model of the two-signal handoff; {error}");
    let model = Provenance::modelled(how.clone());
    Provenance::computed(how, [("model", &model), ("handoff times", &times.provenance)])
}

fn score(curve: &[Predicted], points: &[&PointOutcome], times: &HandoffTimes) -> Option<Score> {
    let period =
        |p: &PointOutcome| curve.iter().find(|c| Some(c.integers) == p.integers).map(|c| c.period_cycles);
    let baseline = points.first().filter(|p| p.status == PointStatus::Timed)?;
    let base = period(baseline)?;
    let pairs: Vec<(f64, f64)> =
        points.iter().filter_map(|p| Some((period(p)? / base, p.to_baseline?.ratio))).collect();
    if pairs.len() < 2 {
        return None;
    }
    let error = pairs.iter().map(|(model, measured)| (model / measured - 1.0).abs()).fold(0.0, f64::max);
    let model = modelled("scored here", times);
    Some(Score {
        points_count: pairs.len(),
        rank_correlation: spearman(&pairs),
        max_error_percent: error * 100.0,
        provenance: Provenance::computed(
            "the modelled ratios against the measured ones",
            [("modelled curve", &model), ("measured sweep", &baseline.provenance)],
        ),
    })
}

/// Spearman's rank correlation with tied ranks averaged; `None` where either side is constant.
#[must_use]
pub fn spearman(pairs: &[(f64, f64)]) -> Option<f64> {
    let ranks = |of: fn(&(f64, f64)) -> f64| -> Vec<f64> {
        // Modelled periods that differ by rounding alone are ties.
        let below = |a: f64, b: f64| a < b - 1e-9 * b.abs();
        let rank = |x: f64| {
            let less = pairs.iter().filter(|p| below(of(p), x)).count();
            let same = pairs.iter().filter(|p| !below(of(p), x) && !below(x, of(p))).count();
            #[allow(clippy::cast_precision_loss, reason = "a sweep has few points")]
            let rank = less as f64 + (same as f64 + 1.0) / 2.0;
            rank
        };
        pairs.iter().map(|p| rank(of(p))).collect()
    };
    let (a, b) = (ranks(|p| p.0), ranks(|p| p.1));
    let mean = kbt_target::stats::mean(&a)?;
    let product = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x - mean) * (y - mean)).sum::<f64>();
    let scale = (product(&a, &a) * product(&b, &b)).sqrt();
    (scale > 0.0).then(|| product(&a, &b) / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(chunk: f64, tile: f64, other_consumer: f64, producer_other: f64, feeds: bool) -> HandoffTimes {
        HandoffTimes {
            chunk_cycles: chunk,
            tile_cycles: tile,
            other_consumer_cycles: other_consumer,
            round_trip_cycles: 80.0,
            producer_other_cycles: producer_other,
            chunks_count: None,
            tiles_count: None,
            producers_count: 2,
            consumer_feeds_producer: feeds,
            provenance: Provenance::assumed("a test"),
        }
    }

    #[test]
    fn a_curve_says_why_it_is_flat_or_what_the_worst_split_waits_for() {
        let why = |t: HandoffTimes| ModelCurve::over(&t, &[4], 4, None).unwrap().explanation().unwrap();
        let producers = why(times(50.0, 20.0, 50.0, 4000.0, false));
        assert!(producers.starts_with("the producers set the pace"), "{producers}");
        let consumer = why(times(10.0, 900.0, 50.0, 100.0, false));
        assert!(consumer.starts_with("the consumer sets the pace"), "{consumer}");
        let held = why(times(400.0, 100.0, 300.0, 100.0, true));
        assert!(held.contains("holds up the line") && held.ends_with("second signal"), "{held}");
    }

    #[test]
    fn a_count_that_is_asked_for_twice_is_one() {
        let over = |chunks: &[u32]| {
            ModelCurve::over(&times(50.0, 20.0, 50.0, 400.0, true), chunks, 4, None).unwrap().curve
        };
        assert_eq!(over(&[4, 2, 4, 4]), over(&[4, 2]));
        assert!(over(&[4, 2]).len() > over(&[4]).len());
    }

    #[test]
    fn rank_correlation_knows_order_ties_and_constants() {
        let near = |pairs: &[(f64, f64)], expect: f64| {
            let got = spearman(pairs).unwrap();
            assert!((got - expect).abs() < 1e-9, "{got}");
        };
        near(&[(1.0, 10.0), (2.0, 20.0), (3.0, 40.0)], 1.0);
        near(&[(1.0, 3.0), (2.0, 2.0), (3.0, 1.0)], -1.0);
        // Ranks 1, 2.5, 2.5, 4 against 1, 3, 2, 4: 4.5 / sqrt(4.5 x 5).
        near(&[(1.0, 1.0), (2.0, 3.0), (2.0, 2.0), (5.0, 4.0)], 4.5 / (4.5f64 * 5.0).sqrt());
        assert_eq!(spearman(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(spearman(&[]), None);
    }
}
