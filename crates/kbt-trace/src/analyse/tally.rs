//! Counts of durations, in memory that does not grow with the trace: exact below 2^16 ticks, and from there on to 16
//! binary digits. Means are always exact.

use std::collections::BTreeMap;

/// Durations below this are counted one by one in a table, longer ones in a map.
const DENSE: usize = 1 << DIGITS;
/// Leading binary digits of a longer duration that are kept: rounded down by less than 0.004 %.
const DIGITS: u32 = 16;

/// A long duration without what lies beyond its leading digits, which bounds the entries of the map.
const fn rounded(value: u64) -> u64 {
    let beyond = (u64::BITS - value.leading_zeros()).saturating_sub(DIGITS);
    value >> beyond << beyond
}

/// How often each duration was seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    dense: Vec<u64>,
    sparse: BTreeMap<u64, u64>,
    count: u64,
    total: u128,
}

impl Tally {
    pub(crate) fn add(&mut self, value: u64) {
        self.count += 1;
        self.total += u128::from(value);
        match usize::try_from(value).ok().filter(|&v| v < DENSE) {
            Some(index) => {
                if index >= self.dense.len() {
                    self.dense.resize((index + 1).next_power_of_two(), 0);
                }
                self.dense[index] += 1;
            }
            None => *self.sparse.entry(rounded(value)).or_default() += 1,
        }
    }

    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    pub(crate) const fn total(&self) -> u128 {
        self.total
    }

    /// Adds what another one counted.
    pub(crate) fn merge(&mut self, other: &Self) {
        if other.dense.len() > self.dense.len() {
            self.dense.resize(other.dense.len(), 0);
        }
        self.dense.iter_mut().zip(&other.dense).for_each(|(mine, theirs)| *mine += theirs);
        for (&value, n) in &other.sparse {
            *self.sparse.entry(value).or_default() += n;
        }
        self.count += other.count;
        self.total += other.total;
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.total as f64 / self.count as f64)
    }

    /// The quantile `q` in 0..=1, interpolated linearly between the two nearest ranks.
    pub(crate) fn quantile(&self, q: f64) -> Option<f64> {
        let last = self.count.checked_sub(1)?;
        let place = q.clamp(0.0, 1.0) * last as f64;
        let below = place.floor() as u64;
        let low = self.rank(below)? as f64;
        let high = self.rank((below + 1).min(last))? as f64;
        Some(low + (high - low) * (place - below as f64))
    }

    /// The value of rank `rank`, from 0.
    fn rank(&self, rank: u64) -> Option<u64> {
        let dense = self.dense.iter().enumerate().map(|(value, &n)| (value as u64, n));
        let mut seen = 0;
        for (value, n) in dense.chain(self.sparse.iter().map(|(&value, &n)| (value, n))) {
            seen += n;
            if n > 0 && seen > rank {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn quantiles_hold_across_both_ranges() {
        let mut tally = Tally::default();
        for value in [5, 1, 1_000_000, 3, 70_000] {
            tally.add(value);
        }
        assert_eq!(tally.quantile(0.5), Some(5.0));
        assert_eq!(tally.quantile(0.0), Some(1.0));
        assert_eq!(tally.quantile(1.0), Some(1_000_000.0));
        assert_eq!(tally.quantile(0.125), Some(2.0), "half way between ranks 0 and 1");
        assert_eq!(tally.mean(), Some(214_001.8));
        assert_eq!(Tally::default().quantile(0.5), None);
    }

    #[test]
    fn long_durations_take_bounded_memory_and_keep_their_mean() {
        let mut tally = Tally::default();
        for value in 1 << 20..(1 << 20) + 300_000 {
            tally.add(value);
        }
        assert!(tally.sparse.len() < 20_000, "{}", tally.sparse.len());
        assert_eq!(tally.mean(), Some((1 << 20) as f64 + 149_999.5));
        let median = tally.quantile(0.5).unwrap();
        assert!((median / 1_198_575.5 - 1.0).abs() < 4e-5, "{median}");
        tally.add(u64::MAX);
        assert_eq!(tally.quantile(1.0), Some(u64::MAX.wrapping_shl(48) as f64));
    }
}
