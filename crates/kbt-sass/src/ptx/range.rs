//! Whole numbers from one to another in equal steps: what is known of a register's value.

/// `lo`, `lo + step`, … up to `hi`; a single number has step 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) lo: i64,
    pub(crate) hi: i64,
    step: i64,
}

/// Beyond this a value counts as unknown: far above any address, far below overflow of the arithmetic here.
const FAR: i64 = 1 << 40;

impl Range {
    /// Nothing is known.
    pub(crate) const ALL: Self = Self { lo: -FAR, hi: FAR, step: 1 };

    pub(crate) const fn constant(value: i64) -> Self {
        Self { lo: value, hi: value, step: 0 }
    }

    pub(crate) fn between(lo: i64, hi: i64) -> Self {
        Self::new(lo, hi, 1)
    }

    pub(crate) fn new(lo: i64, hi: i64, step: i64) -> Self {
        if lo <= -FAR || hi >= FAR || lo > hi {
            return Self::ALL;
        }
        if lo == hi || step == 0 {
            return Self { lo, hi: lo.max(hi), step: if lo == hi { 0 } else { 1 } };
        }
        Self { lo, hi: lo + (hi - lo) / step * step, step }.single()
    }

    fn single(self) -> Self {
        if self.lo == self.hi { Self::constant(self.lo) } else { self }
    }

    pub(crate) fn is_all(self) -> bool {
        self.lo <= -FAR || self.hi >= FAR
    }

    pub(crate) fn as_constant(self) -> Option<i64> {
        (self.lo == self.hi).then_some(self.lo)
    }

    /// Every number of either.
    pub(crate) fn join(self, other: Self) -> Self {
        if self.is_all() || other.is_all() {
            return Self::ALL;
        }
        let step = gcd(gcd(self.step, other.step), self.lo - other.lo);
        Self::new(self.lo.min(other.lo), self.hi.max(other.hi), step)
    }

    pub(crate) fn add(self, other: Self) -> Self {
        if self.is_all() || other.is_all() {
            return Self::ALL;
        }
        Self::new(self.lo + other.lo, self.hi + other.hi, gcd(self.step, other.step))
    }

    pub(crate) fn negate(self) -> Self {
        if self.is_all() { self } else { Self::new(-self.hi, -self.lo, self.step) }
    }

    pub(crate) fn multiply(self, other: Self) -> Self {
        let (many, by) = match (self.as_constant(), other.as_constant()) {
            (_, Some(by)) => (self, by),
            (Some(by), None) => (other, by),
            (None, None) if self.is_all() || other.is_all() => return Self::ALL,
            (None, None) => {
                let ends =
                    [self.lo, self.hi].map(|a| [other.lo, other.hi].map(|b| a.saturating_mul(b))).concat();
                let lowest = ends.iter().copied().min().unwrap_or(-FAR);
                return Self::new(lowest, ends.into_iter().max().unwrap_or(FAR), 1);
            }
        };
        if by == 0 {
            return Self::constant(0);
        }
        if many.is_all() || by.abs() >= FAR {
            return Self::ALL;
        }
        let (a, b) = (many.lo.saturating_mul(by), many.hi.saturating_mul(by));
        Self::new(a.min(b), a.max(b), many.step.saturating_mul(by.abs()))
    }

    /// Division by a power of two, downwards.
    pub(crate) fn shift_right(self, bits: u32) -> Self {
        if self.is_all() || bits > 62 {
            return Self::ALL;
        }
        let unit = 1_i64 << bits;
        let whole = self.step % unit == 0 && self.lo % unit == 0;
        Self::new(self.lo >> bits, self.hi >> bits, if whole { self.step >> bits } else { 1 })
    }

    /// Bitwise and with a mask that is not negative.
    pub(crate) fn mask(self, mask: i64) -> Self {
        if mask == 0 {
            return Self::constant(0);
        }
        if let Some(value) = self.as_constant() {
            return Self::constant(value & mask);
        }
        if mask >= FAR {
            return if self.lo >= 0 { Self::between(0, self.hi) } else { Self::ALL };
        }
        let unit = 1_i64 << mask.trailing_zeros();
        // A mask that only cuts low bits off what fits under it.
        let fits =
            self.lo >= 0 && self.hi <= (mask | (unit - 1)) && ((mask | (unit - 1)) + 1).count_ones() == 1;
        if fits {
            if self.step % unit == 0 && self.lo % unit == 0 {
                return self;
            }
            return Self::new(self.lo & mask, self.hi & mask, unit);
        }
        let highest = if self.lo >= 0 { mask.min(self.hi) } else { mask };
        Self::new(0, highest, unit.max(self.unit().min(FAR >> 1)))
    }

    /// Bitwise or, and exclusive or: exact where the two have no bit in common, else bounded by their bits.
    pub(crate) fn bits_of_either(self, other: Self) -> Self {
        if let (Some(0), _) = (self.as_constant(), other) {
            return other;
        }
        if let (_, Some(0)) = (self, other.as_constant()) {
            return self;
        }
        if self.is_all() || other.is_all() || self.lo < 0 || other.lo < 0 {
            return Self::ALL;
        }
        let apart = |low: Self, high: Self| low.hi < high.unit();
        if apart(self, other) || apart(other, self) {
            return self.add(other);
        }
        let top = (self.hi | other.hi).unsigned_abs().checked_next_power_of_two().unwrap_or(1 << 41);
        let top = if (self.hi | other.hi).count_ones() == 1 { top * 2 } else { top };
        Self::new(0, i64::try_from(top).unwrap_or(FAR) - 1, self.unit().min(other.unit()).max(1))
    }

    /// The largest power of two that divides every number here.
    fn unit(self) -> i64 {
        let bits = self.lo | self.step;
        if bits == 0 { FAR } else { bits & -bits }
    }

    /// The numbers for which `holds` is known to be possible at the ends: cuts what a comparison excludes.
    pub(crate) fn without(self, value: i64) -> Option<Self> {
        match (self.lo == value, self.hi == value) {
            (true, true) => None,
            (true, false) => Some(Self::new(self.lo + self.step, self.hi, self.step)),
            (false, true) => Some(Self::new(self.lo, self.hi - self.step, self.step)),
            (false, false) => Some(self),
        }
    }

    pub(crate) fn at_least(self, value: i64) -> Option<Self> {
        if value > self.hi {
            return None;
        }
        if value <= self.lo {
            return Some(self);
        }
        let step = self.step.max(1);
        let lo = self.lo + (value - self.lo + step - 1) / step * step;
        (lo <= self.hi).then(|| Self::new(lo, self.hi, self.step))
    }

    pub(crate) fn at_most(self, value: i64) -> Option<Self> {
        if value < self.lo {
            return None;
        }
        Some(Self::new(self.lo, self.hi.min(value), self.step))
    }

    /// Whether `self` with `bytes` behind each number and `other` with `other_bytes` can share a byte.
    pub(crate) fn overlaps(self, bytes: i64, other: Self, other_bytes: i64) -> bool {
        if self.is_all() || other.is_all() {
            return true;
        }
        if self.hi + bytes <= other.lo || other.hi + other_bytes <= self.lo {
            return false;
        }
        // In equal steps that never meet: apart by a rest modulo the common step.
        let step = gcd(self.step, other.step);
        if step == 0 {
            return true;
        }
        let rest = (other.lo - self.lo).rem_euclid(step);
        rest < bytes || step - rest < other_bytes
    }

    pub(crate) fn step(self) -> i64 {
        self.step
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of a small range.
    fn numbers(r: Range) -> Vec<i64> {
        let step = usize::try_from(r.step().max(1)).unwrap();
        (r.lo..=r.hi).step_by(step).collect()
    }

    fn all() -> Vec<Range> {
        let mut ranges = Vec::new();
        for lo in [0, 1, 4, -3] {
            for (step, count) in [(0, 1), (1, 4), (2, 3), (4, 2), (8, 3)] {
                ranges.push(Range::new(lo, lo + step * (count - 1), step));
            }
        }
        ranges
    }

    #[test]
    fn every_operation_holds_every_result_of_its_numbers() {
        let check = |name: &str, result: Range, value: i64| {
            let held = result.is_all() || numbers(result).contains(&value);
            assert!(held, "{name}: {value} not in {result:?}");
        };
        for a in all() {
            for b in all() {
                for (x, y) in numbers(a).into_iter().flat_map(|x| numbers(b).into_iter().map(move |y| (x, y)))
                {
                    check("add", a.add(b), x + y);
                    check("multiply", a.multiply(b), x * y);
                    check("negate", a.negate(), -x);
                    check("join", a.join(b), x);
                    check("or", a.bits_of_either(b), x | y);
                    check("xor", a.bits_of_either(b), x ^ y);
                    check("shift", a.shift_right(1), x >> 1);
                    assert!(x != y || a.overlaps(1, b, 1), "{a:?} {b:?}");
                    if x != y {
                        check("without", a.without(y).unwrap(), x);
                    }
                    if x >= y {
                        check("at least", a.at_least(y).unwrap(), x);
                    }
                    if x <= y {
                        check("at most", a.at_most(y).unwrap(), x);
                    }
                }
            }
            for mask in [1, 3, 6, 12, 0xff] {
                for x in numbers(a) {
                    check("mask", a.mask(mask), x & mask);
                }
            }
        }
    }

    #[test]
    fn what_has_no_number_in_common_is_told_apart() {
        let barriers = Range::new(0, 24, 8);
        assert!(!barriers.overlaps(8, Range::constant(32), 8));
        assert!(!Range::new(0, 64, 32).overlaps(8, Range::new(8, 72, 32), 8));
        assert!(barriers.overlaps(8, Range::constant(20), 8));
        assert!(Range::ALL.overlaps(1, Range::constant(0), 1));
        assert_eq!(Range::new(0, 48, 16).bits_of_either(Range::between(0, 7)), Range::new(0, 55, 1));
    }
}
