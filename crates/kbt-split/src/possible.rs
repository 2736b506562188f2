//! Whether the numbers of a journal's line can be what kbt measured. Whatever edits a journal may leave others, and a
//! verdict would rest on them.

use crate::entries::Probe;
use crate::record::{Confirmation, Record};
use kbt_target::{Comparison, Sample};

/// An error says which number cannot be.
pub(crate) fn record(record: &Record) -> Result<(), String> {
    seconds(record.elapsed_s)?;
    record.samples.iter().try_for_each(sample)?;
    record.screened_ratio.map_or(Ok(()), |r| positive("a ratio", r, ""))?;
    record.comparison.as_ref().map_or(Ok(()), comparison)
}

pub(crate) fn probe(probe: &Probe) -> Result<(), String> {
    seconds(probe.elapsed_s)?;
    sample(&probe.sample)
}

pub(crate) fn confirmation(confirmation: &Confirmation) -> Result<(), String> {
    seconds(confirmation.elapsed_s)?;
    confirmation.comparison.as_ref().map_or(Ok(()), comparison)
}

fn comparison(comparison: &Comparison) -> Result<(), String> {
    comparison.a.iter().chain(&comparison.b).try_for_each(sample)?;
    positive("a ratio", comparison.ratio, "")?;
    let Some(interval) = comparison.interval else { return Ok(()) };
    positive("the end of an interval", interval.low, "")?;
    positive("the end of an interval", interval.high, "")?;
    if interval.low > interval.high {
        return Err(format!("it has an interval from {} to {}", interval.low, interval.high));
    }
    Ok(())
}

fn sample(sample: &Sample) -> Result<(), String> {
    positive("a time", sample.time_us, " us")?;
    sample.clock_mhz.map_or(Ok(()), |clock| positive("a clock", clock, " MHz"))?;
    if sample.spread_us.is_finite() && sample.spread_us >= 0.0 {
        return Ok(());
    }
    Err(format!("it has a spread of {} us", sample.spread_us))
}

fn positive(what: &str, value: f64, unit: &str) -> Result<(), String> {
    if value.is_finite() && value > 0.0 { Ok(()) } else { Err(format!("it has {what} of {value}{unit}")) }
}

fn seconds(elapsed: f64) -> Result<(), String> {
    if elapsed.is_finite() && elapsed >= 0.0 {
        return Ok(());
    }
    Err(format!("it says that its processes took {elapsed} s"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_target::{FakeLauncher, Launch, LaunchRequest, Setting, TimingPolicy, compare};

    #[test]
    fn every_number_that_a_verdict_rests_on_is_held_against_what_can_be() {
        let launcher = FakeLauncher(|_: &LaunchRequest| Launch::timed(vec![5.0, 6.0]));
        let request = LaunchRequest::timed(Setting::default());
        let policy = TimingPolicy { resamples: 50, ..TimingPolicy::default() };
        let sound = compare(&launcher, &request, &request, &policy, 0.0).unwrap();
        let sample = sound.a[0].clone();
        let timed = Record {
            samples: vec![sample.clone()],
            screened_ratio: Some(1.0),
            comparison: Some(sound.clone()),
            ..Record::unmeasured(1, Setting::default(), String::new())
        };
        assert_eq!(record(&timed), Ok(()));
        let said = |change: &dyn Fn(&mut Record)| {
            let mut changed = timed.clone();
            change(&mut changed);
            record(&changed).unwrap_err()
        };
        assert_eq!(said(&|r| r.samples[0].time_us = -5.0), "it has a time of -5 us");
        assert_eq!(said(&|r| r.samples[0].spread_us = -1.0), "it has a spread of -1 us");
        assert_eq!(said(&|r| r.samples[0].clock_mhz = Some(0.0)), "it has a clock of 0 MHz");
        assert_eq!(said(&|r| r.screened_ratio = Some(0.0)), "it has a ratio of 0");
        assert_eq!(said(&|r| r.elapsed_s = -1.0), "it says that its processes took -1 s");
        let compared = |change: &dyn Fn(&mut Comparison)| {
            said(&|r| change(r.comparison.as_mut().expect("it is compared")))
        };
        assert_eq!(compared(&|c| c.a[0].time_us = 0.0), "it has a time of 0 us");
        assert_eq!(compared(&|c| c.b[0].time_us = -1.0), "it has a time of -1 us");
        assert_eq!(compared(&|c| c.ratio = -1.0), "it has a ratio of -1");
        let turned = |c: &mut Comparison| {
            let interval = c.interval.as_mut().expect("it has an interval");
            (interval.low, interval.high) = (2.0, 1.0);
        };
        assert_eq!(compared(&turned), "it has an interval from 2 to 1");
        let again = Confirmation { index: 1, comparison: Some(sound), problem: None, elapsed_s: 1.0 };
        assert_eq!(confirmation(&again), Ok(()));
        assert!(confirmation(&Confirmation { elapsed_s: -1.0, ..again }).is_err());
        let ran = Probe { gpu: None, sample: Sample { time_us: -1.0, ..sample }, elapsed_s: 1.0 };
        assert_eq!(probe(&ran).unwrap_err(), "it has a time of -1 us");
    }
}
