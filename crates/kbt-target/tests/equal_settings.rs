//! Equal settings on a chip with the noise of real ones: how often they are called different.
//!
//! The noise: a slow wander of the clock, an AR(1) series of which nineteen values in twenty lie within 5 % (chips
//! that warm up were seen to lose 15 % and more), a process's own scatter, and one process in twenty that reads a
//! quarter slow. None of it is the same for the two sides of a pair, and all of it is the same for the two settings.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use kbt_target::stats::{Rng, binomial_limit};
use kbt_target::{FakeLauncher, Launch, LaunchRequest, Setting, Speed, TimingPolicy, compare};
use std::sync::Mutex;

/// Twice the wander's standard deviation: 19 of 20 values are within it.
const WANDER: f64 = 0.05;
const SCATTER: f64 = 0.005;
const SLOW: f64 = 0.05;

struct Chip {
    rng: Rng,
    memory: f64,
    at: f64,
    effect: f64,
}

impl Chip {
    fn new(seed: u64, memory: f64, effect: f64) -> Self {
        let mut chip = Self { rng: Rng::new(seed), memory, at: 0.0, effect };
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
        let slow = if self.rng.unit() < SLOW { 1.25 } else { 1.0 };
        let effect = if request.setting.get("B") == Some("1") { self.effect } else { 1.0 };
        Launch::timed(vec![100.0 * (self.at + scatter).exp() * slow * effect])
    }
}

/// How often B is called faster and slower.
fn called(trials: u64, memory: f64, effect: f64, policy: &TimingPolicy) -> (u64, u64) {
    let (mut faster, mut slower) = (0, 0);
    for seed in 0..trials {
        let chip = Mutex::new(Chip::new(1 + seed, memory, effect));
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
