//! Two settings timed against each other, so that a difference found is a difference there.
//!
//! A process is one sample: the median of its launches. Samples are taken in pairs A B, A B, B A, B A, then in blocks
//! A B B A, B A A B, and so on: at every look a linear drift of the chip cancels, and over four pairs the place in the
//! pair does too. Each neighbouring pair gives one log ratio; the interval for their mean is the hull of Student's and the
//! percentile bootstrap's (which alone is too narrow for so few). Pairs, not whole blocks, because the same
//! processes then give twice the degrees of freedom; a drift widens the interval instead of moving it. The number
//! of blocks adapts: the data is looked at after fixed counts, and the stated error rate is divided among those
//! looks, so that looking often does not find differences that are not there.
//!
//! Where a launcher sets several processes up at once, those up to the next look are, and those of the next comparison
//! where there is room for them; they are still timed one after the other.
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
    let unknown = || Launch::ended(Status::NotStarted { reason: "nothing was compared".to_owned() });
    let mut result = Err(CompareError { side: Side::B, launch: Box::new(unknown()) });
    compare_each(launcher, a, &[b], policy, rest_s, |compared| result = compared.result);
    result
}

/// One of several comparisons, decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The place of its B among those that were asked for.
    pub which: usize,
    /// What came of it.
    pub result: Result<Comparison, CompareError>,
    /// Its processes' share of the time that they and those beside them took.
    pub elapsed_s: f64,
}

/// Times each of several B against A: as many comparisons as [`compare`] would make, each from its own processes, and
/// tells each when it is decided. Where the launcher sets more processes up at once than one comparison needs for its
/// next look, the next comparison's are among them.
pub fn compare_each(
    launcher: &dyn Launcher,
    a: &LaunchRequest,
    bs: &[&LaunchRequest],
    policy: &TimingPolicy,
    rest_s: f64,
    mut decided: impl FnMut(Compared),
) {
    let rest_s = policy.cooldown_s.unwrap_or(rest_s);
    let mut running: Vec<(usize, Running)> = (0..bs.len()).map(|which| (which, Running::default())).collect();
    while !running.is_empty() {
        let mut room = (launcher.at_once() / 2).max(1);
        let mut orders: Vec<Vec<Side>> = Vec::new();
        for (_, one) in &running {
            let (from, pairs) = (one.pairs.len(), room.min(one.wanted(policy)));
            if pairs == 0 {
                break;
            }
            orders.push((from..from + pairs).flat_map(pair_order).collect());
            room -= pairs;
        }
        let sides =
            running.iter().zip(&orders).flat_map(|((which, _), order)| order.iter().map(|s| (*which, *s)));
        let requests: Vec<_> =
            sides.map(|(which, side)| if side == Side::A { a } else { bs[which] }).collect();
        let began = Instant::now();
        let launches = launcher.launch_in_turn(&requests, rest_s);
        let launch_s = began.elapsed().as_secs_f64() / count(launches.len());
        let mut launches = launches.into_iter();
        for (place, ((_, one), order)) in running.iter_mut().zip(&orders).enumerate() {
            let own: Vec<Launch> = launches.by_ref().take(order.len()).collect();
            if own.is_empty() && place > 0 {
                // A process before these failed; they are asked for again.
                break;
            }
            one.elapsed_s += launch_s * count(own.len());
            match samples(order, own) {
                Ok(samples) => one.take(&samples, policy),
                Err(error) => one.result = Some(Err(error)),
            }
        }
        for (which, one) in running.extract_if(.., |(_, one)| one.result.is_some()) {
            if let Some(result) = one.result {
                decided(Compared { which, result, elapsed_s: one.elapsed_s });
            }
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "a handful of processes")]
fn count(n: usize) -> f64 {
    n.max(1) as f64
}

/// A comparison under way.
#[derive(Default)]
struct Running {
    elapsed_s: f64,
    pairs: Vec<Pair>,
    result: Option<Result<Comparison, CompareError>>,
}

impl Running {
    /// The number of blocks that is looked at next.
    fn next_look(&self, policy: &TimingPolicy) -> u32 {
        let looks = policy.looks();
        let last = looks.last().copied().unwrap_or(2);
        looks.iter().copied().find(|look| pairs_of(*look) > self.pairs.len()).unwrap_or(last)
    }

    /// Pairs up to the next look, and no further.
    fn wanted(&self, policy: &TimingPolicy) -> usize {
        pairs_of(self.next_look(policy)).saturating_sub(self.pairs.len()).max(1)
    }

    /// Adds whole pairs and decides, where they allow it.
    fn take(&mut self, samples: &[(Side, Sample)], policy: &TimingPolicy) {
        let next = self.next_look(policy);
        for pair in samples.chunks_exact(2) {
            let [(first, one), (_, two)] = pair else { continue };
            let (one, two) = (one.clone(), two.clone());
            self.pairs.push(if *first == Side::A {
                Pair { a: one, b: two }
            } else {
                Pair { a: two, b: one }
            });
        }
        let pairs = &self.pairs;
        let over = policy.budget_s.is_some_and(|s| self.elapsed_s >= s);
        let ended = pairs.len() >= pairs_of(policy.looks().last().copied().unwrap_or(2));
        let is_look = pairs.len() == pairs_of(next);
        if is_look || ended || (over && pairs.len().is_multiple_of(2)) {
            let result = finish(pairs, policy, if over { Stopped::Budget } else { Stopped::Blocks });
            if result.speed != Speed::Ambiguous {
                self.result = Some(Ok(Comparison { stopped: Stopped::Decided, ..result }));
                return;
            }
            if over || ended {
                self.result = Some(Ok(result));
                return;
            }
        }
        if clearly_slow(pairs, policy) {
            self.result = Some(Ok(finish(pairs, policy, Stopped::ClearlySlow)));
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

/// Which side comes first in a pair: A B, A B, B A, B A, then A B, B A, B A, A B, and so on. Between the first two Bs
/// stands an A, so that nothing which lasts for some processes makes both of them slow and no A: two pairs may be the
/// end, see [`clearly_slow`].
const fn pair_order(pair: usize) -> [Side; 2] {
    let a_first = if pair < 4 { pair < 2 } else { matches!(pair % 4, 0 | 3) };
    if a_first { [Side::A, Side::B] } else { [Side::B, Side::A] }
}

/// Clocks closer than this are one.
const ONE_CLOCK: f64 = 0.01;

/// A card under load may be at its power limit all of the time: what matters then is that both ran at one clock.
fn is_power_cap(why: &str) -> bool {
    let why = why.to_ascii_lowercase();
    why.contains("power cap") || why.contains("powercap")
}

/// Two neighbouring processes, one of each side.
#[derive(Debug, Clone)]
struct Pair {
    a: Sample,
    b: Sample,
}

impl Pair {
    fn is_steady(&self, floor_mhz: f64) -> bool {
        let held = |s: &Sample| {
            s.throttle.as_deref().is_some_and(|why| !(is_power_cap(why) && self.has_one_clock()))
        };
        let steady = |s: &Sample| !held(s) && s.clock_mhz.is_none_or(|c| c >= floor_mhz);
        steady(&self.a) && steady(&self.b)
    }

    /// Whether both ran at one clock, as far as it is known.
    fn has_one_clock(&self) -> bool {
        let clocks = self.a.clock_mhz.zip(self.b.clock_mhz);
        clocks.is_some_and(|(a, b)| (a / b - 1.0).abs() <= ONE_CLOCK)
    }

    /// The log of B's time over A's, each time turned by `of`; `None` where `of` has none.
    fn log_ratio(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        Some(of(&self.b)?.ln() - of(&self.a)?.ln())
    }
}

/// With fewer steady pairs than these nothing is clearly slow.
///
/// Some processes read slow by any factor, and no margin helps against them. Let one process in 1/p be so disturbed. Of
/// equal settings one pair has a slow B and a sound A with p (1 - p): 9 % where it is one in ten. Two pairs have two
/// slow Bs and two sound As with p^2 (1 - p)^2: 0.81 % there, and 0.04 % at one in fifty. More pairs add nothing, since
/// they hold the first two. That is within the default error rate of 1 % up to p = 0.11, and the intervals add next to
/// nothing to it, which such processes make wide. A setting that is slow indeed costs one pair more than with one.
const LEAST_SLOW_PAIRS: usize = 2;

/// Whether every B is slower than every A by the margin; the fewer the pairs, the wider it is (two and a half times on
/// two), since processes that read 20 or 30 % slow do happen. Pairs at a low clock do not count.
fn clearly_slow(pairs: &[Pair], policy: &TimingPolicy) -> bool {
    let Some(margin) = policy.slow_margin else { return false };
    let floor = clock_floor(pairs, policy);
    let steady: Vec<&Pair> = pairs.iter().filter(|p| p.is_steady(floor)).collect();
    let slowest_a = steady.iter().map(|p| p.a.time_us).fold(0.0, f64::max);
    let fastest_b = steady.iter().map(|p| p.b.time_us).fold(f64::INFINITY, f64::min);
    #[allow(clippy::cast_precision_loss, reason = "a handful of pairs")]
    let widened = margin * (5.0 / steady.len() as f64).max(1.0);
    steady.len() >= LEAST_SLOW_PAIRS && fastest_b > slowest_a * (1.0 + widened)
}

/// The clock below which a sample is not comparable with the others, in MHz.
fn clock_floor(pairs: &[Pair], policy: &TimingPolicy) -> f64 {
    let samples = pairs.iter().flat_map(|p| [&p.a, &p.b]);
    policy.clock_floor * samples.filter_map(|s| s.clock_mhz).fold(0.0, f64::max)
}

/// The pairs in which no sample was throttled or ran at a low clock; all of them where too few would remain,
/// since a table of doubtful numbers that says so is worth more than an empty one. They decide nothing.
fn keep_steady(pairs: &[Pair], policy: &TimingPolicy, notes: &mut Vec<String>) -> (Vec<Pair>, bool) {
    let floor = clock_floor(pairs, policy);
    let kept: Vec<Pair> = pairs.iter().filter(|p| p.is_steady(floor)).cloned().collect();
    let dropped = pairs.len() - kept.len();
    if dropped == 0 {
        return (kept, true);
    }
    let all = pairs.len();
    // No clock was read, so none was low.
    let low = if floor > 0.0 { format!(" or a clock below {floor:.0} MHz") } else { String::new() };
    let what = format!("{dropped} of {all} pairs had a throttled sample{low}");
    if kept.len() < LEAST_PAIRS {
        notes.push(format!(
            "{what}; kept all the same, since fewer than {LEAST_PAIRS} would remain, and decides nothing"
        ));
        return (pairs.to_vec(), false);
    }
    notes.push(format!("{what}; discarded"));
    (kept, true)
}

fn finish(pairs: &[Pair], policy: &TimingPolicy, stopped: Stopped) -> Comparison {
    let mut notes = Vec::new();
    let (kept, are_steady) = keep_steady(pairs, policy, &mut notes);
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
        _ if !are_steady || kept.len() < LEAST_PAIRS => Speed::Ambiguous,
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
mod tests;
