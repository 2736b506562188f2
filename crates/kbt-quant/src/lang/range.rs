//! Where values lie.

/// An interval of extended reals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

impl Range {
    /// Every finite f32: what an input without a range is taken to be.
    pub const FINITE: Self = Self { lo: -(f32::MAX as f64), hi: f32::MAX as f64 };

    /// Whether `x` lies in it; NaN does not.
    #[must_use]
    pub fn contains(self, x: f64) -> bool {
        self.lo <= x && x <= self.hi
    }
}
