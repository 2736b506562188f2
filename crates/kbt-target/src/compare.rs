//! Two settings timed against each other, so that a difference found is a difference there.
//!
//! A process is one sample: the median of its launches. Samples are taken in blocks A B B A, then B A A B, and
//! so on: over a block a linear drift of the chip cancels, and over two blocks the place in the block does too.
//! Each neighbouring pair gives one log ratio; the interval for their mean is the hull of Student's and the
//! percentile bootstrap's (which alone is too narrow for so few). Pairs, not whole blocks, because the same
//! processes then give twice the degrees of freedom; a drift widens the interval instead of moving it. The number
//! of blocks adapts: the data is looked at after fixed counts, and the stated error rate is divided among those
//! looks, so that looking often does not find differences that are not there.
//!
//! Where a launcher sets several processes up at once, those up to the next look are; they are still timed one after
//! the other.
//!
//! The alternative, two batches one after the other, reads a chip that warms up as a slower kernel.

use crate::launch::{Launch, LaunchRequest, Launcher, Sample, Status};
use crate::policy::TimingPolicy;
use crate::stats::{Interval, bootstrap, mean, t_interval};
use serde::{Deserialize, Serialize};
use std::time::Instant;

pub use crate::comparison::{Comparison, Speed, Stopped};

/// With fewer pairs than these an interval means little.
const LEAST_PAIRS: usize = 3;

/// Which of the two settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The one compared against.
    A,
    /// The one in question.
    B,
}

/// A process of a comparison failed, so there is no comparison.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("a timed run of side {side:?} failed: {}", launch.status)]
pub struct CompareError {
    /// Whose process.
    pub side: Side,
    /// What came of it.
    pub launch: Box<Launch>,
}

/// Times B against A. `rest_s` is the target's own cool-down.
///
/// # Errors
/// Where a process of either side fails: the comparison has no partial result.
pub fn compare(
    launcher: &dyn Launcher,
    a: &LaunchRequest,
    b: &LaunchRequest,
    policy: &TimingPolicy,
    rest_s: f64,
) -> Result<Comparison, CompareError> {
    let started = Instant::now();
    let looks = policy.looks();
    let last = looks.last().copied().unwrap_or(2);
    let rest_s = policy.cooldown_s.unwrap_or(rest_s);
    let mut pairs: Vec<Pair> = Vec::new();
    loop {
        let next = looks.iter().copied().find(|look| pairs_of(*look) > pairs.len()).unwrap_or(last);
        // As many pairs as are set up together, but not beyond the look that may decide.
        let together = (launcher.at_once() / 2).max(1).min(pairs_of(next).saturating_sub(pairs.len()).max(1));
        let order: Vec<Side> = (pairs.len()..pairs.len() + together).flat_map(pair_order).collect();
        let requests: Vec<_> = order.iter().map(|side| if *side == Side::A { a } else { b }).collect();
        let samples = samples(&order, launcher.launch_in_turn(&requests, rest_s))?;
        for pair in samples.chunks_exact(2) {
            let [(first, one), (_, two)] = pair else { continue };
            let (one, two) = (one.clone(), two.clone());
            pairs.push(if *first == Side::A { Pair { a: one, b: two } } else { Pair { a: two, b: one } });
        }
        let over = policy.budget_s.is_some_and(|s| started.elapsed().as_secs_f64() >= s);
        let ended = pairs.len() >= pairs_of(last);
        let is_look = pairs.len() == pairs_of(next);
        if is_look || ended || (over && pairs.len().is_multiple_of(2)) {
            let result = finish(&pairs, policy, if over { Stopped::Budget } else { Stopped::Blocks });
            if result.speed != Speed::Ambiguous {
                return Ok(Comparison { stopped: Stopped::Decided, ..result });
            }
            if over || ended {
                return Ok(result);
            }
        }
        if clearly_slow(&pairs, policy) {
            return Ok(finish(&pairs, policy, Stopped::ClearlySlow));
        }
    }
}

/// The pairs of so many blocks.
fn pairs_of(blocks: u32) -> usize {
    usize::try_from(blocks).unwrap_or(usize::MAX).saturating_mul(2)
}

/// The samples of processes that ran in this order.
fn samples(order: &[Side], launches: Vec<Launch>) -> Result<Vec<(Side, Sample)>, CompareError> {
    let mut samples = Vec::with_capacity(order.len());
    let mut launches = launches.into_iter();
    for side in order {
        let none =
            || Launch::ended(Status::NotStarted { reason: "the launcher did not start it".to_owned() });
        let launch = launches.next().unwrap_or_else(none);
        match launch.sample().filter(|_| launch.is_ok()) {
            Some(sample) => samples.push((*side, sample)),
            None => return Err(CompareError { side: *side, launch: Box::new(launch) }),
        }
    }
    Ok(samples)
}

/// Which side comes first in a pair: A B, B A, then B A, A B, and so on, so that two pairs are a block.
const fn pair_order(pair: usize) -> [Side; 2] {
    if matches!(pair % 4, 0 | 3) { [Side::A, Side::B] } else { [Side::B, Side::A] }
}

/// Two neighbouring processes, one of each side.
#[derive(Debug, Clone)]
struct Pair {
    a: Sample,
    b: Sample,
}

impl Pair {
    fn is_steady(&self, floor_mhz: f64) -> bool {
        let steady = |s: &Sample| s.throttle.is_none() && s.clock_mhz.is_none_or(|c| c >= floor_mhz);
        steady(&self.a) && steady(&self.b)
    }

    /// The log of B's time over A's, each time turned by `of`; `None` where `of` has none.
    fn log_ratio(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        Some(of(&self.b)?.ln() - of(&self.a)?.ln())
    }
}

/// Whether every B is slower than every A by the margin; the fewer the pairs, the wider it is (five times on the
/// first), since processes that read 20 or 30 % slow do happen. Pairs at a low clock do not count.
fn clearly_slow(pairs: &[Pair], policy: &TimingPolicy) -> bool {
    let Some(margin) = policy.slow_margin else { return false };
    let floor = clock_floor(pairs, policy);
    let steady: Vec<&Pair> = pairs.iter().filter(|p| p.is_steady(floor)).collect();
    let slowest_a = steady.iter().map(|p| p.a.time_us).fold(0.0, f64::max);
    let fastest_b = steady.iter().map(|p| p.b.time_us).fold(f64::INFINITY, f64::min);
    #[allow(clippy::cast_precision_loss, reason = "a handful of pairs")]
    let widened = margin * (5.0 / steady.len() as f64).max(1.0);
    !steady.is_empty() && fastest_b > slowest_a * (1.0 + widened)
}

/// The clock below which a sample is not comparable with the others, in MHz.
fn clock_floor(pairs: &[Pair], policy: &TimingPolicy) -> f64 {
    let samples = pairs.iter().flat_map(|p| [&p.a, &p.b]);
    policy.clock_floor * samples.filter_map(|s| s.clock_mhz).fold(0.0, f64::max)
}

/// The pairs in which no sample was throttled or ran at a low clock; all of them where too few would remain,
/// since a table of doubtful numbers that says so is worth more than an empty one.
fn keep_steady(pairs: &[Pair], policy: &TimingPolicy, notes: &mut Vec<String>) -> Vec<Pair> {
    let floor = clock_floor(pairs, policy);
    let kept: Vec<Pair> = pairs.iter().filter(|p| p.is_steady(floor)).cloned().collect();
    let dropped = pairs.len() - kept.len();
    if dropped == 0 {
        return kept;
    }
    let all = pairs.len();
    let what = format!("{dropped} of {all} pairs had a throttled sample or a clock below {floor:.0} MHz");
    if kept.len() < LEAST_PAIRS {
        notes.push(format!("{what}; kept all the same, since fewer than {LEAST_PAIRS} would remain"));
        return pairs.to_vec();
    }
    notes.push(format!("{what}; discarded"));
    kept
}

fn finish(pairs: &[Pair], policy: &TimingPolicy, stopped: Stopped) -> Comparison {
    let mut notes = Vec::new();
    let kept = keep_steady(pairs, policy, &mut notes);
    let times: Vec<f64> = kept.iter().filter_map(|p| p.log_ratio(|s| Some(s.time_us))).collect();
    let cycles: Option<Vec<f64>> =
        kept.iter().map(|p| p.log_ratio(|s| Some(s.time_us * s.clock_mhz?))).collect();
    #[allow(clippy::cast_precision_loss, reason = "a handful of looks")]
    let level = 1.0 - policy.error_rate / policy.looks().len() as f64;
    let early = stopped == Stopped::ClearlySlow;
    let interval_of = |logs: &[f64]| {
        let student = t_interval(logs, level)?;
        let redraws = usize::try_from(policy.resamples).unwrap_or(usize::MAX);
        let redrawn = bootstrap(logs, level, redraws, policy.seed, mean);
        Some(redrawn.map_or(student, |b| b.hull(student)))
    };
    let interval = interval_of(&times).filter(|_| !early);
    let in_cycles = cycles.as_deref().and_then(interval_of).filter(|_| !early);
    let mut speed = match interval {
        _ if early => Speed::Slower,
        None => Speed::Ambiguous,
        Some(i) => judge(i, policy.same_within),
    };
    if let (Speed::Faster | Speed::Slower, Some(cycles)) = (speed, in_cycles)
        && judge(cycles, 0.0) != speed
    {
        notes.push(format!("{speed} in time, but not in cycles: the clocks of the two differed"));
        speed = Speed::Ambiguous;
    }
    let ratios = |i: Interval| Interval { low: i.low.exp(), high: i.high.exp() };
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Comparison {
        speed,
        ratio: mean(&times).unwrap_or(0.0).exp(),
        interval: interval.map(ratios),
        cycles: in_cycles.map(ratios),
        error_rate: policy.error_rate,
        pairs: count(pairs.len()),
        kept_pairs: count(kept.len()),
        stopped,
        notes,
        a: pairs.iter().map(|p| p.a.clone()).collect(),
        b: pairs.iter().map(|p| p.b.clone()).collect(),
    }
}

/// What an interval of log ratios says.
fn judge(logs: Interval, same_within: f64) -> Speed {
    let zone = same_within.ln_1p();
    if logs.low >= -zone && logs.high <= zone {
        Speed::Same
    } else if logs.high < 0.0 {
        Speed::Faster
    } else if logs.low > 0.0 {
        Speed::Slower
    } else {
        Speed::Ambiguous
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;
    use crate::launch::{FakeLauncher, Report};
    use crate::stats::Rng;
    use std::sync::Mutex;

    /// A chip with process noise, a linear drift, bursts of slowness, and an effect for `B=1`.
    struct Chip {
        rng: Rng,
        noise: f64,
        drift: f64,
        burst: f64,
        effect: f64,
        runs: u32,
    }

    impl Chip {
        fn new(seed: u64) -> Self {
            Self { rng: Rng::new(seed), noise: 0.01, drift: 0.0, burst: 0.0, effect: 1.0, runs: 0 }
        }

        fn run(&mut self, request: &LaunchRequest) -> Launch {
            let normal = (0..12).map(|_| self.rng.unit()).sum::<f64>() - 6.0;
            let mut time = 100.0 * (self.noise * normal).exp() * (1.0 + self.drift * f64::from(self.runs));
            if self.rng.unit() < self.burst {
                time *= 1.2;
            }
            self.runs += 1;
            Launch::timed(vec![time * if request.setting.get("B") == Some("1") { self.effect } else { 1.0 }])
        }
    }

    fn compared(chip: Chip, policy: &TimingPolicy) -> Comparison {
        let chip = Mutex::new(chip);
        let launcher = FakeLauncher(|r: &LaunchRequest| chip.lock().unwrap().run(r));
        let [a, b] = ["0", "1"].map(|v| LaunchRequest::timed(Setting::default().with("B", v)));
        compare(&launcher, &a, &b, policy, 0.0).unwrap()
    }

    fn decided(trials: u64, policy: &TimingPolicy, chip: impl Fn(u64) -> Chip) -> (u64, u64) {
        let speeds: Vec<Speed> = (0..trials).map(|seed| compared(chip(seed), policy).speed).collect();
        let count = |s| speeds.iter().filter(|x| **x == s).count() as u64;
        (count(Speed::Faster), count(Speed::Slower))
    }

    #[test]
    fn equal_settings_are_called_different_no_more_often_than_stated() {
        // 99 % upper limit of Binomial(1000, 0.01): 18. Same-zone off, so that every decision counts.
        let policy = TimingPolicy { same_within: 0.0, resamples: 200, ..TimingPolicy::default() };
        let chips: [fn(u64) -> Chip; 3] = [
            Chip::new,
            |seed| Chip { drift: 0.005, ..Chip::new(seed) },
            |seed| Chip { burst: 0.1, ..Chip::new(seed) },
        ];
        for (i, chip) in chips.into_iter().enumerate() {
            let (faster, slower) = decided(1000, &policy, chip);
            assert!(faster + slower <= 18, "chip {i}: {faster} faster, {slower} slower of 1000");
        }
    }

    #[test]
    fn real_differences_are_found_and_small_ones_are_the_same() {
        let quiet = |seed, effect| Chip { noise: 0.003, effect, ..Chip::new(seed) };
        let policy = TimingPolicy { resamples: 200, ..TimingPolicy::default() };
        let (faster, _) = decided(100, &policy, |seed| quiet(seed, 0.95));
        assert!(faster >= 95, "{faster}");
        let c = compared(quiet(3, 1.0), &policy);
        assert_eq!(c.speed, Speed::Same, "{c:?}");
        let c = compared(Chip { drift: 0.02, ..quiet(3, 0.8) }, &policy);
        assert_eq!((c.speed, c.pairs, c.stopped), (Speed::Faster, 4, Stopped::Decided));
        let i = c.interval.unwrap();
        assert!(i.low < 0.8 && 0.8 < i.high, "{i:?}");
    }

    #[test]
    fn a_clearly_slow_setting_costs_few_processes_unless_all_are_asked_for() {
        for (effect, pairs) in [(1.8, 1), (1.35, 2)] {
            let c = compared(Chip { effect, ..Chip::new(1) }, &TimingPolicy::default());
            assert_eq!((c.speed, c.pairs, c.stopped), (Speed::Slower, pairs, Stopped::ClearlySlow));
            assert_eq!(c.interval, None);
        }
        let c = compared(Chip { effect: 1.5, ..Chip::new(1) }, &TimingPolicy::exhaustive());
        assert_eq!((c.speed, c.stopped), (Speed::Slower, Stopped::Decided));
        assert!(c.pairs >= 4 && c.interval.is_some());
    }

    #[test]
    fn a_failed_process_ends_the_comparison_and_says_whose_it_was() {
        let launcher = FakeLauncher(|r: &LaunchRequest| match r.setting.get("B") {
            Some("1") => Launch::ended(Status::Signal { signal: 11 }),
            _ => Launch::timed(vec![1.0]),
        });
        let [a, b] = ["0", "1"].map(|v| LaunchRequest::timed(Setting::default().with("B", v)));
        let error = compare(&launcher, &a, &b, &TimingPolicy::default(), 0.0).unwrap_err();
        assert_eq!(error.side, Side::B);
        assert!(error.to_string().contains("signal 11"));
    }

    fn clocked(clock: impl Fn(u32, bool) -> (f64, f64, Option<&'static str>) + Sync) -> Comparison {
        let runs = Mutex::new(0);
        let launcher = FakeLauncher(|r: &LaunchRequest| {
            let mut runs = runs.lock().unwrap();
            let (time, mhz, throttle) = clock(*runs, r.setting.get("B") == Some("1"));
            *runs += 1;
            let report = Report {
                times_us: vec![time + f64::from(*runs % 3) * 0.01],
                clocks_mhz: vec![mhz],
                throttle: throttle.map(str::to_owned),
                ..Report::default()
            };
            Launch { report, ..Launch::ended(Status::Ok) }
        });
        let [a, b] = ["0", "1"].map(|v| LaunchRequest::timed(Setting::default().with("B", v)));
        compare(&launcher, &a, &b, &TimingPolicy::default(), 0.0).unwrap()
    }

    #[test]
    fn samples_at_a_low_clock_or_throttled_are_discarded_but_never_all() {
        let c = clocked(|run, _| if run == 1 { (150.0, 1300.0, None) } else { (100.0, 1980.0, None) });
        assert_eq!((c.speed, c.pairs, c.kept_pairs), (Speed::Same, 4, 3), "{c:?}");
        assert!(c.notes[0].contains("discarded"), "{:?}", c.notes);
        let c = clocked(|_, _| (100.0, 1980.0, Some("power cap")));
        assert_eq!((c.speed, c.kept_pairs), (Speed::Same, 4));
        assert!(c.notes[0].contains("kept all the same"), "{:?}", c.notes);
    }

    #[test]
    fn a_difference_that_is_only_the_clock_is_ambiguous() {
        let c = clocked(|_, b| if b { (95.0, 1980.0, None) } else { (100.0, 1881.0, None) });
        assert_eq!(c.speed, Speed::Ambiguous, "{c:?}");
        assert!(c.notes.iter().any(|n| n.contains("not in cycles")));
    }
}
