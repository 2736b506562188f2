//! What a journal holds, once its lines are read: which points came to an end, and what was seen on the way.
//!
//! The lines themselves are in `journal`.

use crate::record::{Confirmation, Record};
use kbt_target::Sample;
use serde::{Deserialize, Serialize};

/// A run of the baseline between points that are screened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// The GPU that the worker held, where one was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// Its time.
    pub sample: Sample,
    /// Wall-clock seconds of its process and rest.
    pub elapsed_s: f64,
}

/// A step of the screening.
#[derive(Debug, Clone, PartialEq)]
pub enum Glance {
    /// The baseline ran.
    Probe(Probe),
    /// The point of this index ran.
    Screened(usize),
}

/// What a journal holds. Where a point is there twice, the first line that is finished counts (two engines ran it at
/// once), or the last where none is: what could not be measured is tried again when the sweep goes on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Entries {
    /// The points that came to an end, in the order of their first lines.
    pub records: Vec<Record>,
    /// The confirmations.
    pub confirmations: Vec<Confirmation>,
    /// The points that were screened, each as far as one process brings it.
    pub screened: Vec<Record>,
    /// The steps of the screening in their order.
    pub trail: Vec<Glance>,
    /// Seconds of attempts that measured nothing and were made again.
    pub retried_s: f64,
}

impl Entries {
    /// The record of a point.
    #[must_use]
    pub fn record(&self, index: usize) -> Option<&Record> {
        self.records.iter().find(|r| r.index == index)
    }

    /// The record of a point that need not run again.
    #[must_use]
    pub fn finished(&self, index: usize) -> Option<&Record> {
        self.record(index).filter(|r| r.is_finished())
    }

    /// The confirmation of a point.
    #[must_use]
    pub fn confirmation(&self, index: usize) -> Option<&Confirmation> {
        self.confirmations.iter().find(|c| c.index == index)
    }

    /// Adds a record, in the place of one that measured nothing.
    pub(crate) fn add(&mut self, record: Record) {
        match self.records.iter_mut().find(|r| r.index == record.index) {
            None => self.records.push(record),
            Some(before) if before.is_finished() => {}
            Some(before) => {
                self.retried_s += before.elapsed_s;
                *before = record;
            }
        }
    }

    /// Adds a confirmation, in the place of one that failed.
    pub(crate) fn add_confirmation(&mut self, confirmation: Confirmation) {
        match self.confirmations.iter_mut().find(|c| c.index == confirmation.index) {
            None => self.confirmations.push(confirmation),
            Some(before) if before.comparison.is_some() => {}
            Some(before) => {
                self.retried_s += before.elapsed_s;
                *before = confirmation;
            }
        }
    }

    /// Seconds of processes and rests on devices, all workers together.
    #[must_use]
    pub fn device_s(&self) -> f64 {
        // A screened point that went on has two records, of different processes; one that did not has the same twice.
        let went_on = |r: &&Record| self.record(r.index).is_none_or(|r| r.screened_ratio.is_none());
        let screened = self.screened.iter().filter(went_on).map(|r| r.elapsed_s);
        let probes = self.trail.iter().filter_map(|g| match g {
            Glance::Probe(probe) => Some(probe.elapsed_s),
            Glance::Screened(_) => None,
        });
        let compared = self.records.iter().map(|r| r.elapsed_s);
        let confirmed = self.confirmations.iter().map(|c| c.elapsed_s);
        self.retried_s + compared.chain(screened).chain(probes).chain(confirmed).sum::<f64>()
    }

    pub(crate) fn add_screened(&mut self, record: Record) {
        if !self.screened.iter().any(|r| r.index == record.index) {
            self.trail.push(Glance::Screened(record.index));
            self.screened.push(record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Ending;
    use kbt_target::Setting;

    fn unmeasured(index: usize, reason: &str, elapsed_s: f64) -> Record {
        Record { elapsed_s, ..Record::unmeasured(index, Setting::default(), reason.to_owned()) }
    }

    #[test]
    fn the_last_attempt_holds_until_one_is_finished() {
        let mut entries = Entries::default();
        let timed = |elapsed_s| Record { ending: Ending::Timed, ..unmeasured(1, "", elapsed_s) };
        entries.add(unmeasured(1, "first", 1.0));
        entries.add(unmeasured(2, "other", 2.0));
        entries.add(unmeasured(1, "second", 4.0));
        assert_eq!(entries.record(1), Some(&unmeasured(1, "second", 4.0)));
        assert_eq!(entries.finished(1), None);
        entries.add(timed(8.0));
        entries.add(unmeasured(1, "late", 16.0));
        entries.add(timed(32.0));
        assert_eq!(entries.finished(1), Some(&timed(8.0)));
        assert_eq!(entries.records.iter().map(|r| r.index).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(entries.device_s(), 15.0, "every attempt took its time, but for those that came too late");
    }
}
