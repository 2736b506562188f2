//! How full the rings of buffers are, over all CTAs.

use super::stats::Scale;
use crate::outcome::{RingCount, RingStats};
use crate::rings::{self, Refusal, Ring};
use crate::{CtaTrace, ProblemKind, Problems, TraceInfo};

/// CTAs that a ring was not, or not wholly, counted in.
#[derive(Debug)]
struct Odd<T> {
    ctas: u64,
    /// The first of them, by the order of the file: order, number, and what was odd.
    first: Option<(u64, u32, T)>,
}

impl<T> Default for Odd<T> {
    fn default() -> Self {
        Self { ctas: 0, first: None }
    }
}

impl<T> Odd<T> {
    fn add(&mut self, (order, cta): (u64, u32), what: T) {
        self.merge(Self { ctas: 1, first: Some((order, cta, what)) });
    }

    fn merge(&mut self, other: Self) {
        self.ctas += other.ctas;
        let earlier = |a: &(u64, u32, T), b: &Option<(u64, u32, T)>| b.as_ref().is_none_or(|b| a.0 < b.0);
        if let Some(first) = other.first.filter(|first| earlier(first, &self.first)) {
            self.first = Some(first);
        }
    }
}

/// One ring, summed.
#[derive(Debug, Default)]
struct RingSum {
    /// Ticks during which so many slots were taken.
    ticks: Vec<u128>,
    ctas: u64,
    /// Of these, CTAs whose slots were counted by waits.
    ahead: u64,
    relative: bool,
    /// Ticks after a role stopped recording, or around missing records.
    left_out: u128,
    /// The role that stopped first.
    cut: Odd<usize>,
    /// The role of which records are missing.
    gap: Odd<usize>,
    /// The role whose records do not fit, and how.
    contradicts: Odd<(usize, rings::Contradiction)>,
}

/// All rings, summed; those of two workers add up.
#[derive(Debug, Default)]
pub(super) struct RingSums {
    sums: Vec<RingSum>,
}

impl RingSums {
    /// Adds `cta`, which is number `order` of the source.
    pub(super) fn add(&mut self, order: u64, cta: &CtaTrace, rings: &[Ring]) {
        self.sums.resize_with(rings.len(), RingSum::default);
        let place = (order, cta.cta);
        for (ring, sum) in rings.iter().zip(&mut self.sums) {
            let found = match rings::counted(cta, ring) {
                Ok(found) => found,
                Err(Refusal::Silent) => continue,
                Err(Refusal::Cut { role }) => {
                    sum.cut.add(place, role);
                    continue;
                }
                Err(Refusal::Contradicts { role, how }) => {
                    sum.contradicts.add(place, (role, how));
                    continue;
                }
            };
            sum.ctas += 1;
            sum.ahead += u64::from(found.parts.iter().any(|part| part.count == RingCount::Ahead));
            sum.left_out += u128::from(found.left_out);
            if let Some(role) = found.gap_by {
                sum.gap.add(place, role);
            }
            for part in &found.parts {
                sum.relative |= part.relative;
                if let Some(role) = part.cut_by {
                    sum.cut.add(place, role);
                }
                let ends = part.changes.iter().skip(1).map(|c| c.0).chain([part.until]);
                for (&(at, taken), end) in part.changes.iter().zip(ends) {
                    let index = taken as usize;
                    if index >= sum.ticks.len() {
                        sum.ticks.resize(index + 1, 0);
                    }
                    sum.ticks[index] += u128::from(end - at);
                }
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
            mine.left_out += theirs.left_out;
            mine.cut.merge(theirs.cut);
            mine.gap.merge(theirs.gap);
            mine.contradicts.merge(theirs.contradicts);
        }
    }

    /// The numbers of each ring that tells; of the others, and of what was left out, the problems say why.
    pub(super) fn finish(
        &self,
        rings: &[Ring],
        info: &TraceInfo,
        scale: &Scale,
        problems: &mut Problems,
    ) -> Vec<RingStats> {
        let mut found = Vec::new();
        let (mut silent, mut cut, mut contradicts) = (Said::default(), Said::default(), Said::default());
        let mut gaps = Said::default();
        for (index, ring) in rings.iter().enumerate() {
            let Some(sum) = self.sums.get(index) else {
                silent.add(1, ring.name.clone());
                continue;
            };
            let stats = stats(ring, sum, info, scale);
            if stats.is_none() && sum.cut.ctas + sum.contradicts.ctas == 0 {
                silent.add(1, ring.name.clone());
            }
            let ctas = |n: u64| if n == 1 { "1 CTA".to_owned() } else { format!("{n} CTAs") };
            for (odd, said, does) in [(&sum.cut, &mut cut, "stops"), (&sum.gap, &mut gaps, "has a gap")] {
                let Some((_, cta, role)) = odd.first else { continue };
                let out = stats.as_ref().map_or_else(
                    || "left out".to_owned(),
                    |s| format!("without {:.1} % of its time", s.left_out_percent),
                );
                let (n, role) = (ctas(odd.ctas), info.role_name(role));
                said.add(
                    odd.ctas,
                    format!("{}: {out}, {n}, first CTA {cta}, where {role} {does}", ring.name),
                );
            }
            if let Some((_, cta, (role, how))) = sum.contradicts.first {
                let (n, role) = (ctas(sum.contradicts.ctas), info.role_name(role));
                let says = format!("{}: {n}, first CTA {cta}, where {role} {how}", ring.name);
                contradicts.add(sum.contradicts.ctas, says);
            }
            found.extend(stats);
        }
        silent.note(ProblemKind::NoOccupancy, problems);
        cut.note(ProblemKind::RingCut, problems);
        gaps.note(ProblemKind::RingGap, problems);
        contradicts.note(ProblemKind::RingContradicts, problems);
        found
    }
}

/// What is said of the rings with one problem.
#[derive(Default)]
struct Said {
    count: u64,
    rings: Vec<String>,
}

impl Said {
    fn add(&mut self, count: u64, says: String) {
        self.count += count;
        self.rings.push(says);
    }

    fn note(self, kind: ProblemKind, problems: &mut Problems) {
        problems.add(kind, None, self.count, || self.rings.join("; "));
    }
}

fn stats(ring: &Ring, sum: &RingSum, info: &TraceInfo, scale: &Scale) -> Option<RingStats> {
    let total: u128 = sum.ticks.iter().sum();
    let peak = sum.ticks.iter().rposition(|ticks| *ticks > 0)?;
    // One change a CTA at least; with fewer ticks than the clock's step between them nothing is told.
    if total < 2 * u128::from(scale.quantum_ticks) {
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
        left_out_percent: 100.0 * sum.left_out as f64 / (sum.left_out + total) as f64,
    })
}
