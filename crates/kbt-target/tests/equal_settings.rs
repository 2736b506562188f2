//! Equal settings on a chip with the noise of real ones: how often they are called different.
//!
//! The noise: a slow wander of the clock, an AR(1) series of which nineteen values in twenty lie within 5 % (chips
//! that warm up were seen to lose 15 % and more), a process's own scatter, and processes that read slow: one in twenty by a
//! quarter, or one in ten by more, alone or some in a row. None of it is the same for the two sides of a pair, and all of it is the same for the two settings.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use kbt_target::stats::{Rng, binomial_limit};
use kbt_target::{FakeLauncher, Launch, LaunchRequest, Setting, Speed, TimingPolicy, compare};
use std::sync::Mutex;

/// Twice the wander's standard deviation: 19 of 20 values are within it.
const WANDER: f64 = 0.05;
const SCATTER: f64 = 0.005;

/// Processes that read slow.
#[derive(Clone, Copy)]
struct Disturbed {
    /// How many of all do.
    share: f64,
    /// By how much.
    factor: f64,
    /// How many in a row.
    lasts: u32,
}

/// One in twenty, by a quarter, each for itself.
const USUAL: Disturbed = Disturbed { share: 0.05, factor: 1.25, lasts: 1 };

struct Chip {
    rng: Rng,
    memory: f64,
    at: f64,
    effect: f64,
    disturbed: Disturbed,
    /// How many of the next processes read slow.
    slow: u32,
}

impl Chip {
    fn new(seed: u64, memory: f64, effect: f64) -> Self {
        let rng = Rng::new(seed);
        let mut chip = Self { rng, memory, at: 0.0, effect, disturbed: USUAL, slow: 0 };
        chip.at = WANDER / 2.0 * chip.normal();
        chip
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.rng.unit()).sum::<f64>() - 6.0
    }

    fn run(&mut self, request: &LaunchRequest) -> Launch {
        let fresh = (1.0 - self.memory * self.memory).sqrt() * WANDER / 2.0;
        self.at = self.memory * self.at + fresh * self.normal();
        let scatter = SCATTER * self.normal();
        let Disturbed { share, factor, lasts } = self.disturbed;
        // Of all processes that find the chip sound so many disturb it, for their share to be that.
        if self.slow == 0 && self.rng.unit() < share / (f64::from(lasts) * (1.0 - share) + share) {
            self.slow = lasts;
        }
        let slow = if self.slow > 0 { factor } else { 1.0 };
        self.slow = self.slow.saturating_sub(1);
        let effect = if request.setting.get("B") == Some("1") { self.effect } else { 1.0 };
        Launch::timed(vec![100.0 * (self.at + scatter).exp() * slow * effect])
    }
}

/// How often B is called faster and slower.
fn called(trials: u64, memory: f64, effect: f64, policy: &TimingPolicy) -> (u64, u64) {
    counted(trials, policy, |seed| Chip::new(seed, memory, effect))
}

fn counted(trials: u64, policy: &TimingPolicy, chip: impl Fn(u64) -> Chip) -> (u64, u64) {
    let (mut faster, mut slower) = (0, 0);
    for seed in 0..trials {
        let chip = Mutex::new(chip(1 + seed));
        let launcher = FakeLauncher(|r: &LaunchRequest| chip.lock().unwrap().run(r));
        let [a, b] = ["0", "1"].map(|v| LaunchRequest::timed(Setting::default().with("B", v)));
        match compare(&launcher, &a, &b, policy, 0.0).unwrap().speed {
            Speed::Faster => faster += 1,
            Speed::Slower => slower += 1,
            Speed::Same | Speed::Ambiguous => {}
        }
    }
    (faster, slower)
}

#[test]
fn they_are_called_different_no_more_often_than_stated_however_the_chip_wanders() {
    // Without the zone that counts as the same, so that every decision is one that could be wrong.
    let policy = TimingPolicy { same_within: 0.0, resamples: 100, ..TimingPolicy::default() };
    let trials = 1000;
    let limit = binomial_limit(trials, policy.error_rate, 0.99);
    for memory in [0.0, 0.5, 0.9, 0.99] {
        let (faster, slower) = called(trials, memory, 1.0, &policy);
        assert!(
            faster + slower <= limit,
            "memory {memory}: {faster} faster, {slower} slower of {trials}, limit {limit}"
        );
    }
}

#[test]
fn one_process_in_ten_that_reads_far_too_slow_makes_no_setting_slower() {
    let trials = 1000;
    for (slow_margin, same_within) in [(0.1, 0.0), (0.05, 0.01)] {
        let policy = TimingPolicy {
            slow_margin: Some(slow_margin),
            same_within,
            resamples: 100,
            ..TimingPolicy::default()
        };
        let limit = binomial_limit(trials, policy.error_rate, 0.99);
        for lasts in [1, 2, 3, 8] {
            let disturbed = Disturbed { share: 0.1, factor: 1.7, lasts };
            let (faster, slower) =
                counted(trials, &policy, |seed| Chip { disturbed, ..Chip::new(seed, 0.5, 1.0) });
            assert!(
                faster + slower <= limit,
                "margin {slow_margin}, {lasts} in a row: {faster} faster, {slower} slower of {trials}, limit {limit}"
            );
        }
    }
}

#[test]
fn a_hundred_equal_settings_have_no_more_winners_than_chance_explains() {
    let policy = TimingPolicy { resamples: 200, ..TimingPolicy::default() };
    let (faster, _) = called(100, 0.9, 1.0, &policy);
    let limit = binomial_limit(100, policy.error_rate, 0.99);
    assert!(faster <= limit, "{faster} of 100, limit {limit}");
}

#[test]
fn a_real_gain_is_found_through_the_same_noise_and_never_called_a_loss() {
    let policy = TimingPolicy { resamples: 100, max_blocks: 12, ..TimingPolicy::default() };
    let (faster, slower) = called(60, 0.9, 0.8, &policy);
    assert!(faster >= 45 && slower == 0, "{faster} faster, {slower} slower of 60");
}
