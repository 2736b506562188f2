//! Time stamps of 32 bits made whole, and whose stamps may be held against each other.

/// Whose ticks count from one zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeLine {
    /// The lanes of one CTA; nothing relates CTAs to each other.
    #[default]
    Cta,
    /// The lanes of one CTA, which its [`Anchor`](crate::Anchor) places on the global timer.
    Timer,
    /// The CTAs of one SM, whose clock counted them, from its first record; clocks of two SMs have no relation.
    Sm,
    /// All CTAs.
    Trace {
        /// The earliest record.
        zero: u64,
    },
}

impl TimeLine {
    /// The word used in files.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Cta => "cta",
            Self::Timer => "timer",
            Self::Sm => "sm",
            Self::Trace { .. } => "trace",
        }
    }
}

/// The earliest of stamps of one 32-bit clock that lie within one turn of it: the one after the widest gap.
pub(crate) fn earliest(stamps: impl IntoIterator<Item = u32>) -> Option<u32> {
    let mut stamps: Vec<u32> = stamps.into_iter().collect();
    stamps.sort_unstable();
    let before = stamps.last().into_iter().chain(&stamps);
    stamps
        .iter()
        .zip(before)
        .max_by_key(|(stamp, before)| stamp.wrapping_sub(**before))
        .map(|(stamp, _)| *stamp)
}

/// Extends 32-bit time stamps of one lane to 64 bits.
///
/// Neighbours are taken to be less than 2^31 ticks apart: a smaller stamp is then a wrap if it is ahead modulo
/// 2^32, and a clock that ran backwards if it is behind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unwrap {
    last: u32,
    at: u64,
    /// Last stamp, time and wraps one stamp ago.
    before: Option<(u32, u64, u64)>,
    /// Wraps seen.
    pub(crate) wraps: u64,
    /// Stamps refused because they lie before their predecessor.
    pub(crate) backwards: u64,
    /// Stamps taken back because all that follow lie before them.
    pub(crate) far: u64,
}

impl Unwrap {
    /// Starts at the first stamp, which stands for `at`.
    pub(crate) const fn new(first: u32, at: u64) -> Self {
        Self { last: first, at, before: None, wraps: 0, backwards: 0, far: 0 }
    }

    /// The whole time of the next stamp; `None` if it lies before its predecessor.
    pub(crate) fn next(&mut self, stamp: u32) -> Option<u64> {
        let ahead = stamp.wrapping_sub(self.last);
        if ahead >= BEHIND {
            self.backwards += 1;
            return None;
        }
        self.before = Some((self.last, self.at, self.wraps));
        self.wraps += u64::from(stamp < self.last);
        self.last = stamp;
        self.at = self.at.saturating_add(u64::from(ahead));
        Some(self.at)
    }

    /// Called where `refused` lay before the stamp ahead of it: whether that stamp is the one that is wrong, since
    /// `refused` and the one after it follow on what came before. It is taken back then, and `refused` may be tried
    /// again.
    pub(crate) fn takes_back(&mut self, refused: u32, after: Option<u32>) -> bool {
        let Some(((last, at, wraps), after)) = self.before.zip(after) else { return false };
        let follows = |stamp: u32, on: u32| stamp.wrapping_sub(on) < BEHIND;
        if follows(after, self.last) || !follows(refused, last) || !follows(after, refused) {
            return false;
        }
        (self.last, self.at, self.wraps, self.before) = (last, at, wraps, None);
        self.backwards -= 1;
        self.far += 1;
        true
    }
}

/// From here on the difference of two stamps is a step back.
const BEHIND: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::{Unwrap, earliest};

    #[test]
    fn the_earliest_stamp_follows_the_widest_gap() {
        assert_eq!(earliest([500, 100, 900]), Some(100));
        assert_eq!(earliest([5, u32::MAX - 5, 60]), Some(u32::MAX - 5), "across a wrap");
        assert_eq!((earliest([7]), earliest([])), (Some(7), None));
    }

    #[test]
    fn a_wrap_goes_on_and_a_step_back_is_refused() {
        let mut clock = Unwrap::new(u32::MAX - 5, 1000);
        assert_eq!(clock.next(u32::MAX), Some(1005));
        assert_eq!(clock.next(4), Some(1010));
        assert_eq!(clock.next(3), None);
        assert_eq!(clock.next(9), Some(1015));
        assert_eq!((clock.wraps, clock.backwards), (1, 1));
    }

    #[test]
    fn a_stamp_that_all_others_lie_before_is_taken_back() {
        let mut clock = Unwrap::new(100, 100);
        assert_eq!(clock.next(110), Some(110));
        assert_eq!(clock.next(1_000_000), Some(1_000_000));
        assert_eq!(clock.next(120), None);
        assert!(!clock.takes_back(120, None), "nothing tells which is wrong");
        assert!(!clock.takes_back(120, Some(1_000_010)), "120 is");
        assert!(!clock.takes_back(105, Some(130)), "105 does not follow on 110");
        assert!(clock.takes_back(120, Some(130)));
        assert_eq!((clock.next(120), clock.next(130)), (Some(120), Some(130)));
        assert_eq!((clock.backwards, clock.far), (0, 1));
    }
}
