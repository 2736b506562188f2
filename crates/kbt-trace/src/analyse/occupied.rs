//! How full the rings of buffers are, over all CTAs.

use super::stats::Scale;
use crate::outcome::{RingCount, RingStats};
use crate::rings::{self, Ring};
use crate::{CtaTrace, TraceInfo};

/// More slots than any ring has: a ring that seems deeper is one whose releases were not recorded.
const DEEPEST: usize = 1 << 10;

/// One ring, summed.
#[derive(Debug, Default)]
struct RingSum {
    /// Ticks during which so many slots were taken.
    ticks: Vec<u128>,
    ctas: u64,
    /// Of these, CTAs whose slots were counted by waits.
    ahead: u64,
    relative: bool,
    beyond: bool,
}

/// All rings, summed; those of two workers add up.
#[derive(Debug, Default)]
pub(super) struct RingSums {
    sums: Vec<RingSum>,
}

impl RingSums {
    pub(super) fn add(&mut self, cta: &CtaTrace, rings: &[Ring]) {
        self.sums.resize_with(rings.len(), RingSum::default);
        for (ring, sum) in rings.iter().zip(&mut self.sums) {
            let Some(occupancy) = rings::occupancy(cta, ring) else { continue };
            sum.ctas += 1;
            sum.ahead += u64::from(occupancy.count == RingCount::Ahead);
            sum.relative |= occupancy.relative;
            for pair in occupancy.changes.windows(2) {
                let taken = pair[0].1 as usize;
                sum.beyond |= taken > DEEPEST;
                let index = taken.min(DEEPEST);
                if index >= sum.ticks.len() {
                    sum.ticks.resize(index + 1, 0);
                }
                sum.ticks[index] += u128::from(pair[1].0 - pair[0].0);
            }
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.sums.resize_with(self.sums.len().max(other.sums.len()), RingSum::default);
        for (mine, theirs) in self.sums.iter_mut().zip(other.sums) {
            mine.ticks.resize(mine.ticks.len().max(theirs.ticks.len()), 0);
            mine.ticks.iter_mut().zip(theirs.ticks).for_each(|(a, b)| *a += b);
            mine.ctas += theirs.ctas;
            mine.ahead += theirs.ahead;
            mine.relative |= theirs.relative;
            mine.beyond |= theirs.beyond;
        }
    }

    /// The numbers of each ring whose arrivals were recorded, and the names of those without.
    pub(super) fn finish(
        &self,
        rings: &[Ring],
        info: &TraceInfo,
        scale: &Scale,
    ) -> (Vec<RingStats>, Vec<String>) {
        let (mut found, mut silent) = (Vec::new(), Vec::new());
        for (index, ring) in rings.iter().enumerate() {
            let sum = self.sums.get(index);
            match sum.and_then(|sum| stats(ring, sum, info, scale)) {
                Some(stats) => found.push(stats),
                None => silent.push(ring.name.clone()),
            }
        }
        (found, silent)
    }
}

fn stats(ring: &Ring, sum: &RingSum, info: &TraceInfo, scale: &Scale) -> Option<RingStats> {
    let total: u128 = sum.ticks.iter().sum();
    let peak = sum.ticks.iter().rposition(|ticks| *ticks > 0)?;
    // One change a CTA at least; with fewer ticks than the clock's step between them nothing is told.
    if sum.beyond || total < 2 * u128::from(scale.quantum_ticks) {
        return None;
    }
    let part = |ticks: u128| ticks as f64 / total as f64;
    let names = |roles: &[usize]| roles.iter().map(|&role| info.role_name(role)).collect();
    Some(RingStats {
        name: ring.name.clone(),
        full: info.barrier_name(ring.full),
        empty: info.barrier_name(ring.empty),
        producers: names(&ring.producers),
        consumers: names(&ring.consumers),
        // Where CTAs differ the weaker word is said.
        counted: if sum.ahead > 0 { RingCount::Ahead } else { RingCount::Taken },
        mean_slots: sum.ticks.iter().enumerate().map(|(taken, ticks)| taken as f64 * part(*ticks)).sum(),
        peak_slots: peak as u64,
        empty_percent: 100.0 * part(sum.ticks[0]),
        peak_percent: 100.0 * part(sum.ticks[peak]),
        ctas: sum.ctas,
        relative: sum.relative,
    })
}
