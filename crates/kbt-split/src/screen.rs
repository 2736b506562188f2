//! Successive halving for large spaces: every point once, the best of them compared.
//!
//! Round 1 gives each point one process, whose outputs are checked and whose time counts where they are right.
//! Between them every worker runs the baseline now and then; a point's ratio is its time over the baseline's around
//! it on the same GPU, so that a chip that warms up, or is slower than its neighbour, moves all alike. Round 2 compares
//! the fastest few in pairs against the fastest so far, as a small space is compared whole; the confirmation on
//! fresh samples is the last round. What round 1 leaves out has a ratio without an interval and no verdict.
//!
//! The alternative, a model that guides the search, saves more where the space is smooth; these are not.

use crate::journal::{Entries, Glance};
use kbt_target::Sample;
use kbt_target::stats::median;
use serde::{Deserialize, Serialize};

/// Probes before and after a point that tell what the baseline took around it.
const PROBES_A_SIDE: usize = 2;

/// How a large space is narrowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Screening {
    /// Of so many points the fastest goes on.
    pub one_in: u32,
    /// At least so many go on.
    pub least: u32,
    /// Points between two runs of the baseline.
    pub probe_every: u32,
    /// The most blocks of four processes of those that go on.
    pub blocks: u32,
}

impl Default for Screening {
    fn default() -> Self {
        Self { one_in: 12, least: 8, probe_every: 6, blocks: 2 }
    }
}

impl Screening {
    /// Spaces of fewer points than these are compared whole.
    pub const LEAST_POINTS: usize = 48;

    /// The screening of a space of this many points; `None` where it is compared whole.
    #[must_use]
    pub fn of(points: usize) -> Option<Self> {
        (points >= Self::LEAST_POINTS).then(Self::default)
    }

    /// How many of the screened go on.
    #[must_use]
    pub fn kept(&self, screened: usize) -> usize {
        let whole = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        screened.div_ceil(whole(self.one_in.max(1))).max(whole(self.least)).min(screened)
    }
}

/// All points in an order of which every beginning is spread over the whole space, for a screening that runs out of time:
/// multiples of the golden ratio fill the unit interval evenly.
#[must_use]
pub fn spread(points: usize) -> Vec<usize> {
    let place = |k: usize| (k as f64 * 0.618_033_988_749_894_9).fract();
    let mut visits: Vec<usize> = (0..points).collect();
    visits.sort_by(|a, b| place(*a).total_cmp(&place(*b)));
    let mut order = vec![0; points];
    for (index, visit) in visits.into_iter().enumerate() {
        order[visit] = index;
    }
    order
}

/// The screened points by their time over the baseline's, the fastest first.
#[must_use]
pub fn ranked(entries: &Entries) -> Vec<(usize, f64)> {
    let mut ratios = Vec::new();
    for (place, glance) in entries.trail.iter().enumerate() {
        let Glance::Screened(index) = glance else { continue };
        let Some(record) = entries.screened.iter().find(|r| r.index == *index) else { continue };
        let Some(sample) = record.samples.first() else { continue };
        let base = baseline_at(entries, place, record.gpu.as_deref());
        if let Some(base) = base.filter(|b| *b > 0.0) {
            ratios.push((*index, sample.time_us / base));
        }
    }
    ratios.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    ratios
}

/// The baseline's time around a place of the trail on one GPU: the median of the nearest probes, of which one may
/// have read slow.
fn baseline_at(entries: &Entries, place: usize, gpu: Option<&str>) -> Option<f64> {
    let probe = |glance: &Glance| match glance {
        Glance::Probe(probe) if probe.gpu.as_deref() == gpu => Some(probe.sample.time_us),
        _ => None,
    };
    let (before, after) = entries.trail.split_at(place);
    let before = before.iter().rev().filter_map(probe).take(PROBES_A_SIDE);
    let near: Vec<f64> = before.chain(after.iter().filter_map(probe).take(PROBES_A_SIDE)).collect();
    // Without a probe on that GPU the baseline's own samples have to do.
    median(&near).or_else(|| median(&entries.record(0)?.times_us()))
}

/// Whether a sample may stand alone: not throttled, and not at a clock below `floor` of the probe's.
#[must_use]
pub fn is_steady(sample: &Sample, probe: Option<&Sample>, floor: f64) -> bool {
    let clocks = sample.clock_mhz.zip(probe.and_then(|p| p.clock_mhz));
    sample.throttle.is_none() && clocks.is_none_or(|(own, base)| own >= floor * base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Probe;
    use crate::record::{Ending, Record};
    use kbt_target::Setting;

    #[test]
    fn every_beginning_of_the_order_is_spread_over_the_space() {
        for points in [1, 2, 49, 144, 1000] {
            let order = spread(points);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..points), "each once");
            assert_eq!(order[0], 0);
            // No gap is much longer than it has to be.
            for seen in [8, 30, 100].into_iter().filter(|n| *n < points) {
                let mut seen_points = order[..seen].to_vec();
                seen_points.extend([0, points]);
                seen_points.sort_unstable();
                let gap = seen_points.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
                assert!(gap <= 3 * points.div_ceil(seen), "{points} points, {seen} seen: a gap of {gap}");
            }
        }
    }

    fn sample(time_us: f64) -> Sample {
        Sample { time_us, spread_us: 0.0, launches: 5, clock_mhz: Some(1980.0), throttle: None }
    }

    fn screened(entries: &mut Entries, index: usize, gpu: &str, time_us: f64) {
        entries.add_screened(Record {
            ending: Ending::Timed,
            samples: vec![sample(time_us)],
            gpu: Some(gpu.into()),
            ..Record::unmeasured(index, Setting::default(), String::new())
        });
    }

    fn probe(entries: &mut Entries, gpu: &str, time_us: f64) {
        let probe = Probe { gpu: Some(gpu.into()), sample: sample(time_us), elapsed_s: 0.0 };
        entries.trail.push(Glance::Probe(probe));
    }

    #[test]
    fn a_chip_that_drifts_or_is_slower_than_its_neighbour_changes_no_rank() {
        let mut entries = Entries::default();
        // GPU a drifts from 100 by 4 a probe, GPU b is a fifth slower; the two workers take turns. Each point stands
        // in the middle of its probes, so their median is the baseline's time there.
        probe(&mut entries, "a", 100.0);
        probe(&mut entries, "b", 120.0);
        screened(&mut entries, 1, "a", 102.0 * 0.9);
        screened(&mut entries, 2, "b", 120.0 * 0.8);
        probe(&mut entries, "a", 104.0);
        probe(&mut entries, "a", 108.0);
        screened(&mut entries, 3, "a", 110.0 * 0.95);
        probe(&mut entries, "a", 112.0);
        probe(&mut entries, "a", 116.0);
        let found = ranked(&entries);
        // Point 1 has one probe before it and two after.
        let expect = [(2, 0.8), (1, 102.0 * 0.9 / 104.0), (3, 0.95)];
        assert_eq!(found.len(), expect.len());
        for (found, expect) in found.iter().zip(expect) {
            assert!(found.0 == expect.0 && (found.1 - expect.1).abs() < 1e-9, "{found:?} {expect:?}");
        }
    }

    #[test]
    fn a_probe_that_read_slow_makes_no_point_around_it_look_fast() {
        let mut entries = Entries::default();
        for (place, time) in [100.0, 100.0, 130.0, 100.0].into_iter().enumerate() {
            probe(&mut entries, "a", time);
            screened(&mut entries, place + 1, "a", 100.0);
        }
        probe(&mut entries, "a", 100.0);
        assert!(
            ranked(&entries).iter().all(|(_, ratio)| (ratio - 1.0).abs() < 1e-9),
            "{:?}",
            ranked(&entries)
        );
    }

    #[test]
    fn a_twelfth_goes_on_but_never_too_few_nor_more_than_there_are() {
        let kept = |n| Screening::default().kept(n);
        assert_eq!([0, 4, 48, 96, 97, 200, 3600].map(kept), [0, 4, 8, 8, 9, 17, 300]);
        assert_eq!(Screening::of(47), None);
        assert!(Screening::of(48).is_some());
    }

    #[test]
    fn a_throttled_sample_or_one_at_a_low_clock_does_not_stand_alone() {
        let base = sample(1.0);
        assert!(is_steady(&sample(1.0), Some(&base), 0.9) && is_steady(&sample(1.0), None, 0.9));
        assert!(!is_steady(&Sample { clock_mhz: Some(1500.0), ..sample(1.0) }, Some(&base), 0.9));
        assert!(!is_steady(&Sample { throttle: Some("power cap".into()), ..sample(1.0) }, None, 0.9));
    }
}
