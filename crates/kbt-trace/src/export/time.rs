//! When CTAs ran, beside each other: by the global timer, by the one clock of all, or each clock from its own 0.

use crate::{Clock, CtaTrace, TimeLine};
use std::collections::BTreeSet;

/// What places a CTA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// The global timer.
    Timer,
    /// The clock of all CTAs.
    Trace,
    /// The clock of its SM.
    Sm,
    /// Nothing: its first record is its 0.
    Itself,
}

/// Where a CTA lies: the tick `tick` is shown at `ns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) from: From,
    pub(super) tick: u64,
    pub(super) ns: u64,
}

impl Origin {
    /// When `tick` is, in ns.
    pub(super) fn at(self, tick: u64, ns_per_tick: f64) -> u64 {
        self.ns.saturating_add_signed((minus(tick, self.tick) * ns_per_tick).round() as i64)
    }
}

/// Ticks to the time of the viewer, in nanoseconds.
pub(super) struct Time {
    pub(super) ns_per_tick: f64,
    /// One tick is shown as one nanosecond, for want of the frequency.
    assumed: bool,
    line: TimeLine,
    sms: BTreeSet<u32>,
    /// CTAs that nothing places.
    alone: u64,
}

impl Time {
    pub(super) fn of(clock: Clock, line: TimeLine) -> Self {
        let known = clock.ns_per_tick();
        Self {
            ns_per_tick: known.unwrap_or(1.0),
            assumed: known.is_none(),
            line,
            sms: BTreeSet::new(),
            alone: 0,
        }
    }

    /// What places `cta`.
    pub(super) fn origin(&mut self, cta: &CtaTrace) -> Origin {
        let first = || cta.first_tick().unwrap_or(0);
        match (cta.anchor, self.line, cta.smid) {
            (Some(anchor), ..) => Origin { from: From::Timer, tick: anchor.ticks, ns: anchor.global_ns },
            (None, TimeLine::Trace { zero }, _) => {
                let ns = if self.ns_per_tick == 1.0 { zero } else { (zero as f64 * self.ns_per_tick) as u64 };
                Origin { from: From::Trace, tick: zero, ns }
            }
            (None, TimeLine::Sm, Some(sm)) => {
                self.sms.insert(sm);
                Origin { from: From::Sm, tick: 0, ns: 0 }
            }
            (None, ..) => {
                self.alone += 1;
                Origin { from: From::Itself, tick: first(), ns: 0 }
            }
        }
    }

    /// When the first record of `cta` was made beside other CTAs': in ns of the global timer, else in ticks.
    pub(super) fn begin(&mut self, cta: &CtaTrace) -> Option<u64> {
        let origin = self.origin(cta);
        let first = cta.first_tick()?;
        match origin.from {
            From::Timer if self.assumed && first != origin.tick => None,
            From::Timer => Some(origin.at(first, self.ns_per_tick)),
            From::Trace | From::Sm => Some(first.saturating_sub(origin.tick)),
            From::Itself => None,
        }
    }

    /// Clocks so far that nothing relates to each other; 0 for a single one.
    pub(super) fn clocks_apart(&self) -> u64 {
        let clocks = self.sms.len() as u64 + self.alone;
        if clocks > 1 { clocks } else { 0 }
    }

    /// What a track of the CTA is called.
    pub(super) fn name(&self, cta: &CtaTrace, origin: Origin) -> String {
        let sm = cta.smid.map_or_else(String::new, |sm| format!(", SM {sm}"));
        let unit = if self.assumed { ", 1 SM cycle shown as 1 ns" } else { "" };
        let placed = match origin.from {
            From::Timer | From::Trace => "",
            From::Sm => ", from the first record of its SM",
            From::Itself => ", starts at its own 0",
        };
        format!("CTA {}{sm}{unit}{placed}", cta.cta)
    }
}

/// `a - b`, which may be negative, without a loss before the difference.
pub(super) fn minus(a: u64, b: u64) -> f64 {
    if a >= b { (a - b) as f64 } else { -((b - a) as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_before_the_origin_is_shown_before_it() {
        assert_eq!((minus(3, 10), minus(10, 3)), (-7.0, 7.0));
        assert_eq!(minus(u64::MAX - 1, u64::MAX), -1.0, "no loss before the difference");
        let origin = Origin { from: From::Timer, tick: 100, ns: 1000 };
        assert_eq!((origin.at(40, 0.5), origin.at(160, 0.5)), (970, 1030));
    }
}
