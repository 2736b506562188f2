//! Time stamps of 32 bits made whole.

/// Extends 32-bit time stamps of one lane to 64 bits.
///
/// Neighbours are taken to be less than 2^31 ticks apart: a smaller stamp is then a wrap if it is ahead modulo
/// 2^32, and a clock that ran backwards if it is behind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unwrap {
    last: u32,
    at: u64,
    /// Wraps seen.
    pub(crate) wraps: u64,
    /// Stamps refused because they lie before their predecessor.
    pub(crate) backwards: u64,
}

impl Unwrap {
    /// Starts at the first stamp, which stands for `at`.
    pub(crate) const fn new(first: u32, at: u64) -> Self {
        Self { last: first, at, wraps: 0, backwards: 0 }
    }

    /// The whole time of the next stamp; `None` if it lies before its predecessor.
    pub(crate) fn next(&mut self, stamp: u32) -> Option<u64> {
        let ahead = stamp.wrapping_sub(self.last);
        if ahead >= 1 << 31 {
            self.backwards += 1;
            return None;
        }
        self.wraps += u64::from(stamp < self.last);
        self.last = stamp;
        self.at = self.at.saturating_add(u64::from(ahead));
        Some(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::Unwrap;

    #[test]
    fn a_wrap_goes_on_and_a_step_back_is_refused() {
        let mut clock = Unwrap::new(u32::MAX - 5, 1000);
        assert_eq!(clock.next(u32::MAX), Some(1005));
        assert_eq!(clock.next(4), Some(1010));
        assert_eq!(clock.next(3), None);
        assert_eq!(clock.next(9), Some(1015));
        assert_eq!((clock.wraps, clock.backwards), (1, 1));
    }
}
