//! Which settings are ahead, as far as the journal goes.

use crate::journal::Entries;
use crate::record::{Confirmation, Ending, Record};
use kbt_target::stats::median;
use kbt_target::{Comparison, Speed};

/// How many of the fastest are confirmed where most points were only screened.
const CONFIRMED_AFTER_SCREENING: usize = 4;

/// The setting that no other beats beyond noise, as far as the records go.
pub(crate) fn fastest(entries: &Entries) -> usize {
    let faster = entries.records.iter().filter(|r| {
        r.ending == Ending::Timed && r.comparison.as_ref().is_some_and(|c| c.speed == Speed::Faster)
    });
    let ratio = |r: &&Record| ratio_to_baseline(entries, r.index).unwrap_or(1.0);
    faster.min_by(|a, b| ratio(a).total_cmp(&ratio(b))).filter(|r| ratio(r) < 1.0).map_or(0, |r| r.index)
}

fn lowest_ratio(entries: &Entries) -> Option<&Record> {
    let timed = entries.records.iter().filter(|r| r.ending == Ending::Timed);
    let ratios = timed.filter_map(|r| Some((r, ratio_to_baseline(entries, r.index)?)));
    ratios.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(record, _)| record)
}

/// A point's time over the baseline's, through the settings that it was timed against.
pub(crate) fn ratio_to_baseline(entries: &Entries, index: usize) -> Option<f64> {
    let (mut at, mut ratio) = (index, 1.0);
    // The chain ends at the baseline; a damaged journal could make a ring.
    for _ in 0..=entries.records.len() {
        if at == 0 {
            return Some(ratio);
        }
        let record = entries.record(at)?;
        if let Some(screened) = record.screened_ratio {
            return Some(ratio * screened);
        }
        ratio *= record.comparison.as_ref()?.ratio;
        at = record.against?;
    }
    None
}

/// The settings worth timing against the baseline once more, in the order to do it: that with the lowest ratio,
/// then the fastest beyond noise. After a screening, whose comparisons are short, the fastest few.
pub(crate) fn confirmation_candidates(entries: &Entries) -> Vec<usize> {
    let incumbent = fastest(entries);
    if !entries.screened.is_empty() {
        let compared = entries.records.iter().filter(|r| r.comparison.is_some());
        let mut ranked: Vec<(f64, usize)> =
            compared.filter_map(|r| Some((typical_ratio(entries, r.index)?, r.index))).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
        return ranked.iter().take(CONFIRMED_AFTER_SCREENING).map(|r| r.1).collect();
    }
    let mut candidates = vec![incumbent];
    // A setting that is the same as the incumbent within noise is no better for having the luckier sample.
    if let Some(lowest) = lowest_ratio(entries).filter(|r| r.index != incumbent)
        && lowest.comparison.as_ref().is_some_and(|c| c.speed != Speed::Same)
    {
        candidates.insert(0, lowest.index);
    }
    candidates.retain(|i| *i != 0);
    candidates
}

/// As [`ratio_to_baseline`], from the medians of the pairs: one process that read slow moves a mean of four pairs by
/// more than the settings differ.
fn typical_ratio(entries: &Entries, index: usize) -> Option<f64> {
    let (mut at, mut ratio) = (index, 1.0);
    for _ in 0..=entries.records.len() {
        if at == 0 {
            return Some(ratio);
        }
        let record = entries.record(at)?;
        ratio *= median_ratio(record.comparison.as_ref()?)?;
        at = record.against?;
    }
    None
}

fn median_ratio(comparison: &Comparison) -> Option<f64> {
    let pairs = comparison.b.iter().zip(&comparison.a).map(|(b, a)| b.time_us / a.time_us);
    median(&pairs.collect::<Vec<_>>())
}

/// The fastest of the settings that were confirmed to be faster than the baseline, again by medians.
pub(crate) fn fastest_confirmed(entries: &Entries) -> Option<usize> {
    let compared = entries.confirmations.iter().filter_map(|c| Some((c.index, c.comparison.as_ref()?)));
    let faster = compared.filter(|(_, c)| c.speed == Speed::Faster);
    let ratios = faster.filter_map(|(index, c)| Some((index, median_ratio(c)?)));
    ratios.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(index, _)| index)
}

/// Whether a setting's confirmation ends the search: it is faster than the baseline, and nothing else is to be compared
/// with it.
pub(crate) fn confirmation_settles(entries: &Entries, index: usize) -> bool {
    let faster = |c: &Confirmation| c.comparison.as_ref().is_some_and(|c| c.speed == Speed::Faster);
    entries.screened.is_empty() && entries.confirmations.iter().any(|c| c.index == index && faster(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_target::{Sample, Setting, Stopped};

    /// A timed point, compared with another.
    fn point(index: usize, against: usize, speed: Speed, ratio: f64) -> Record {
        let comparison = Comparison {
            speed,
            ratio,
            interval: None,
            cycles: None,
            error_rate: 0.01,
            pairs: 0,
            kept_pairs: 0,
            stopped: Stopped::Decided,
            notes: Vec::new(),
            a: Vec::new(),
            b: Vec::new(),
        };
        Record {
            ending: Ending::Timed,
            against: Some(against),
            comparison: Some(comparison),
            ..Record::unmeasured(index, Setting::default(), String::new())
        }
    }

    #[test]
    fn the_lowest_ratio_is_confirmed_too_unless_it_is_known_to_be_the_same() {
        let candidates = |speed| {
            let baseline = Record { comparison: None, against: None, ..point(0, 0, Speed::Same, 1.0) };
            let records = vec![baseline, point(1, 0, Speed::Faster, 0.8), point(2, 1, speed, 0.99)];
            confirmation_candidates(&Entries { records, ..Entries::default() })
        };
        assert_eq!(candidates(Speed::Ambiguous), [2, 1]);
        assert_eq!(candidates(Speed::Same), [1]);
        assert_eq!(candidates(Speed::Faster), [2]);
    }

    #[test]
    fn only_what_was_confirmed_to_be_faster_is_the_fastest_confirmed() {
        let sample =
            |time_us| Sample { time_us, spread_us: 0.0, launches: 5, clock_mhz: None, throttle: None };
        let confirmed = |index: usize, speed, ratio: f64| {
            let comparison = Comparison {
                a: vec![sample(100.0)],
                b: vec![sample(100.0 * ratio)],
                ..point(index, 0, speed, ratio).comparison.unwrap()
            };
            Confirmation { index, comparison: Some(comparison), problem: None, elapsed_s: 0.0 }
        };
        let undecided = vec![confirmed(1, Speed::Ambiguous, 0.7), confirmed(2, Speed::Same, 0.995)];
        let fastest = |confirmations: Vec<Confirmation>| {
            fastest_confirmed(&Entries { confirmations, ..Entries::default() })
        };
        assert_eq!(fastest(undecided.clone()), None);
        let faster = [confirmed(3, Speed::Faster, 0.9), confirmed(4, Speed::Faster, 0.8)];
        assert_eq!(fastest([undecided, faster.to_vec()].concat()), Some(4));
    }
}
