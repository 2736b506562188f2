//! Comparisons on fake chips.

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
    for (effect, pairs) in [(5.0, 2), (1.8, 2), (1.35, 2), (1.22, 3)] {
        let c = compared(Chip { effect, ..Chip::new(1) }, &TimingPolicy::default());
        assert_eq!((c.speed, c.pairs, c.stopped), (Speed::Slower, pairs, Stopped::ClearlySlow));
        assert_eq!(c.interval, None);
    }
    let c = compared(Chip { effect: 1.5, ..Chip::new(1) }, &TimingPolicy::exhaustive());
    assert_eq!((c.speed, c.stopped), (Speed::Slower, Stopped::Decided));
    assert!(c.pairs >= 4 && c.interval.is_some());
}

#[test]
fn two_pairs_are_too_few_to_decide_when_the_time_is_over() {
    let policy = TimingPolicy { budget_s: Some(0.0), ..TimingPolicy::default() };
    let c = compared(Chip { noise: 0.0, effect: 0.8, ..Chip::new(1) }, &policy);
    assert_eq!((c.speed, c.pairs, c.stopped), (Speed::Ambiguous, 2, Stopped::Budget), "{c:?}");
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
            clocks_mhz: (mhz > 0.0).then_some(mhz).into_iter().collect(),
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
    let c = clocked(|_, _| (100.0, 1980.0, Some("Thermal")));
    assert_eq!(
        (c.speed, c.pairs, c.kept_pairs),
        (Speed::Ambiguous, 16, 16),
        "no pair decides, to the last block"
    );
    assert!(c.notes[0].contains("kept all the same"), "{:?}", c.notes);
    assert!(c.notes[0].contains("throttled sample or a clock below 1782 MHz"), "{:?}", c.notes);
    let c = clocked(|_, _| (100.0, 0.0, Some("Thermal")));
    assert!(c.notes[0].contains("throttled sample; kept"), "no clock was read: {:?}", c.notes);
    let c = clocked(|_, b| (if b { 80.0 } else { 100.0 }, 1980.0, Some("Thermal")));
    assert_eq!(c.speed, Speed::Ambiguous, "a gain of a chip that throttles is no gain");
    // Throttled at first: the pairs after that decide.
    let c = clocked(|run, b| (if b { 80.0 } else { 100.0 }, 1980.0, (run < 8).then_some("Thermal")));
    assert_eq!((c.speed, c.pairs > c.kept_pairs), (Speed::Faster, true), "{c:?}");
}

#[test]
fn at_the_power_limit_all_of_the_time_one_clock_decides_and_two_do_not() {
    let c = clocked(|_, b| (if b { 80.0 } else { 100.0 }, 1755.0, Some("PowerCap")));
    assert_eq!((c.speed, c.pairs), (Speed::Faster, c.kept_pairs), "{c:?}");
    let c =
        clocked(|_, b| if b { (80.0, 1800.0, Some("PowerCap")) } else { (100.0, 1755.0, Some("PowerCap")) });
    assert_eq!(c.speed, Speed::Ambiguous, "{c:?}");
}

#[test]
fn a_difference_that_is_only_the_clock_is_ambiguous() {
    let c = clocked(|_, b| if b { (95.0, 1980.0, None) } else { (100.0, 1881.0, None) });
    assert_eq!(c.speed, Speed::Ambiguous, "{c:?}");
    assert!(c.notes.iter().any(|n| n.contains("not in cycles")));
}

/// A launcher that sets many processes up together, and writes down how many each time.
struct Together<'f> {
    at_once: usize,
    batches: Mutex<Vec<usize>>,
    run: &'f (dyn Fn(&LaunchRequest) -> Launch + Sync),
}

impl Launcher for Together<'_> {
    fn launch(&self, request: &LaunchRequest) -> Launch {
        (self.run)(request)
    }

    fn at_once(&self) -> usize {
        self.at_once
    }

    fn launch_in_turn(&self, requests: &[&LaunchRequest], _: f64) -> Vec<Launch> {
        self.batches.lock().unwrap().push(requests.len());
        crate::launch::in_a_row(|request| self.launch(request), requests)
    }
}

/// Comparisons of several B with A, at most so many processes at once; and how many there were each time.
fn each(
    at_once: usize,
    values: &[&str],
    run: &(dyn Fn(&LaunchRequest) -> Launch + Sync),
) -> (Vec<Result<Comparison, CompareError>>, Vec<usize>) {
    let launcher = Together { at_once, batches: Mutex::default(), run };
    let request = |v: &str| LaunchRequest::timed(Setting::default().with("B", v));
    let (a, bs) = (request("0"), values.iter().map(|v| request(v)).collect::<Vec<_>>());
    let policy = TimingPolicy { slow_margin: None, ..TimingPolicy::default() };
    let mut compared: Vec<Compared> = Vec::new();
    compare_each(&launcher, &a, &bs.iter().collect::<Vec<_>>(), &policy, 0.0, |c| compared.push(c));
    assert!(compared.is_sorted_by_key(|c| c.which) && compared.len() == values.len());
    let compared = compared.into_iter().map(|c| c.result).collect();
    (compared, launcher.batches.into_inner().unwrap())
}

#[test]
fn comparisons_made_together_are_those_made_alone() {
    // Times are the setting's own, so that each comparison's are the same in whatever company.
    let run = |r: &LaunchRequest| {
        let n: f64 = r.setting.get("B").unwrap().parse().unwrap();
        Launch::timed(vec![100.0 + 10.0 * n])
    };
    let values = ["1", "2", "3", "4", "5"];
    let (together, batches) = each(20, &values, &run);
    // Room for ten pairs: four for each of two, two of the third, whose other two come with the rest.
    assert_eq!(batches, [20, 20]);
    let (alone, one_by_one) = each(8, &values, &run);
    assert_eq!(one_by_one, [8; 5]);
    assert_eq!(together, alone);
    let (pair_by_pair, batches) = each(1, &values, &run);
    assert_eq!((pair_by_pair, batches), (alone, vec![2; 20]));
}

#[test]
fn a_failure_is_that_of_its_own_comparison_alone() {
    let run = |r: &LaunchRequest| match r.setting.get("B") {
        Some("2") => Launch::ended(Status::Signal { signal: 11 }),
        _ => Launch::timed(vec![100.0]),
    };
    let (compared, _) = each(40, &["1", "2", "3"], &run);
    let words: Vec<String> = compared
        .iter()
        .map(|c| c.as_ref().map_or_else(|e| format!("{:?}", e.side), |c| format!("{} {}", c.speed, c.pairs)))
        .collect();
    assert_eq!(words, ["same 4", "B", "same 4"]);
    let none = each(40, &["1", "2"], &|_| Launch::ended(Status::NoTime { looked_for: String::new() })).0;
    assert!(none.iter().all(|c| c.as_ref().is_err_and(|e| e.side == Side::A)) && none.len() == 2);
}
