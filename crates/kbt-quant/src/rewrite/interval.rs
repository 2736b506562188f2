//! What is known of a value's size: an interval of extended reals as f32 has them, and whether it may be NaN.
//!
//! Results below the least normal f32 may be flushed to zero and results above the greatest are infinite, so a
//! bound that holds here holds for the f32 too, up to rounding.

use crate::format::Format;
use crate::lang::{Layout, Op, Range, eval};
use std::fmt;

/// The least normal f32.
pub(super) const TINY: f64 = f32::MIN_POSITIVE as f64;
/// The share of a bound by which the rounding of what comes before may move it: of some hundred operations.
const ROUNDED: f64 = 1.0 / 65_536.0;
/// The greatest f32.
pub(super) const HUGE: f64 = f32::MAX as f64;

/// An interval, and whether NaN is possible besides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interval {
    pub(crate) lo: f64,
    pub(crate) hi: f64,
    pub(crate) nan: bool,
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = Range { lo: self.lo, hi: self.hi };
        write!(f, "{range}{}", if self.nan { " or NaN" } else { "" })
    }
}

impl Interval {
    pub(super) const ALL: Self = Self { lo: f64::NEG_INFINITY, hi: f64::INFINITY, nan: true };

    pub(crate) fn from_range(range: Range) -> Self {
        Self { lo: range.lo, hi: range.hi, nan: false }
    }

    fn point(x: f64) -> Self {
        Self { lo: x, hi: x, nan: x.is_nan() }
    }

    /// As f32 has it: flushed towards zero below [`TINY`], infinite above [`HUGE`].
    fn as_f32(self) -> Self {
        let lo = match self.lo {
            x if x > 0.0 && x < TINY => 0.0,
            x if x < -HUGE => f64::NEG_INFINITY,
            x => x,
        };
        let hi = match self.hi {
            x if x < 0.0 && x > -TINY => 0.0,
            x if x > HUGE => f64::INFINITY,
            x => x,
        };
        Self { lo, hi, nan: self.nan }
    }

    /// What both say together.
    pub(crate) fn meet(self, other: Self) -> Self {
        let (lo, hi) = (self.lo.max(other.lo), self.hi.min(other.hi));
        // Rounding in the bounds' own arithmetic may cross them by an ulp.
        let (lo, hi) = if lo <= hi { (lo, hi) } else { (hi, lo) };
        Self { lo, hi, nan: self.nan && other.nan }
    }

    /// Without -inf, for which something else was chosen.
    pub(super) fn without_minus_infinity(self) -> Self {
        Self { lo: self.lo.max(-HUGE), hi: self.hi.max(-HUGE), nan: self.nan }
    }

    /// What a promise adds: where it is a number, it lies in `range`. NaN is no number, and is not promised away.
    pub(crate) fn within(self, range: Range) -> Self {
        Self { nan: self.nan, ..self.meet(Self::from_range(range)) }
    }

    /// Whether `self` says enough more than `other` to be worth passing on; rounding must not count, or cycles of
    /// equal terms would tighten for ever.
    pub(super) fn tightens(self, other: Self) -> bool {
        let apart = |a: f64, b: f64| {
            a != b && (a.is_infinite() || b.is_infinite() || (a - b).abs() > 1e-6 * a.abs().max(b.abs()))
        };
        (other.nan && !self.nan) || apart(self.lo, other.lo) || apart(self.hi, other.hi)
    }

    pub(super) fn is_finite(self) -> bool {
        !self.nan && self.lo >= -HUGE && self.hi <= HUGE
    }

    pub(super) fn may_be_zero(self) -> bool {
        self.lo <= 0.0 && self.hi >= 0.0
    }

    fn may_be_infinite(self) -> bool {
        self.lo == f64::NEG_INFINITY || self.hi == f64::INFINITY
    }

    fn plus(self, other: Self) -> Self {
        let nan = (self.lo == f64::NEG_INFINITY && other.hi == f64::INFINITY)
            || (self.hi == f64::INFINITY && other.lo == f64::NEG_INFINITY);
        let lo = if self.lo == f64::NEG_INFINITY || other.lo == f64::NEG_INFINITY {
            f64::NEG_INFINITY
        } else {
            self.lo + other.lo
        };
        let hi = if self.hi == f64::INFINITY || other.hi == f64::INFINITY {
            f64::INFINITY
        } else {
            self.hi + other.hi
        };
        Self { lo, hi, nan: nan || self.nan || other.nan }
    }

    fn times(self, other: Self) -> Self {
        let nan = (self.may_be_zero() && other.may_be_infinite())
            || (self.may_be_infinite() && other.may_be_zero());
        let corner = |a: f64, b: f64| if a == 0.0 || b == 0.0 { 0.0 } else { a * b };
        let corners = [
            corner(self.lo, other.lo),
            corner(self.lo, other.hi),
            corner(self.hi, other.lo),
            corner(self.hi, other.hi),
        ];
        Self {
            lo: corners.into_iter().fold(f64::INFINITY, f64::min),
            hi: corners.into_iter().fold(f64::NEG_INFINITY, f64::max),
            nan: nan || self.nan || other.nan,
        }
    }

    fn reciprocal(self) -> Self {
        if self.may_be_zero() {
            let (lo, hi) = match (self.lo >= 0.0, self.hi <= 0.0) {
                (true, _) => (if self.hi == 0.0 { f64::INFINITY } else { 1.0 / self.hi }, f64::INFINITY),
                (_, true) => (f64::NEG_INFINITY, 1.0 / self.lo),
                _ => (f64::NEG_INFINITY, f64::INFINITY),
            };
            return Self { lo, hi, nan: self.nan };
        }
        Self { lo: 1.0 / self.hi, hi: 1.0 / self.lo, nan: self.nan }
    }

    fn magnitude(self) -> Self {
        let (a, b) = (self.lo.abs(), self.hi.abs());
        let lo = if self.may_be_zero() { 0.0 } else { a.min(b) };
        Self { lo, hi: a.max(b), nan: self.nan }
    }

    fn root(self) -> Self {
        Self { lo: self.lo.max(0.0).sqrt(), hi: self.hi.max(0.0).sqrt(), nan: self.nan || self.lo < 0.0 }
    }

    fn rounded(self, format: Format) -> Self {
        let to = eval::conversion(format);
        // FP4 and FP6 turn NaN into their greatest value.
        let keeps_nan = to.round(f32::NAN).is_nan();
        // What rounding moves a bound by may take it over a boundary between codes.
        let moved = |x: f64, by: f64| if x.is_finite() { x + by * x.abs() } else { x };
        let bound = |x: f64, by: f64| f64::from(to.round(moved(x, by) as f32));
        let hi = if self.nan && !keeps_nan { f64::from(format.max()) } else { bound(self.hi, ROUNDED) };
        let (lo, hi) = if format == Format::Ue8m0 {
            (format.decode(0).into(), HUGE)
        } else {
            (bound(self.lo, -ROUNDED), hi)
        };
        Self { lo, hi, nan: self.nan && keeps_nan }
    }

    /// The interval of an operation's result, whose first two operands are one value if `square` says so.
    pub(crate) fn of_square(op: Op, args: &[Self], layout: Layout, square: bool) -> Self {
        let known = Self::of(op, args, layout);
        let Some(x) = args.first().filter(|_| square) else { return known };
        let product = Self { lo: 0.0, nan: x.nan, ..x.times(*x) };
        match op {
            Op::Mul => Self { lo: known.lo.max(0.0), nan: x.nan, ..known },
            Op::Fma => args.get(2).map_or(known, |z| product.plus(*z).as_f32().meet(known)),
            _ => known,
        }
    }

    /// The interval of an operation's result.
    pub(crate) fn of(op: Op, args: &[Self], layout: Layout) -> Self {
        let x = args.first().copied().unwrap_or(Self::ALL);
        let y = args.get(1).copied().unwrap_or(Self::ALL);
        let z = args.get(2).copied().unwrap_or(Self::ALL);
        let repeated = |count: u32| {
            let n = f64::from(count);
            Self {
                lo: x.lo.min(x.lo * n),
                hi: x.hi.max(x.hi * n),
                nan: x.nan || x.lo == -x.hi && x.may_be_infinite(),
            }
        };
        let result = match op {
            Op::Num(bits) => Self::point(f64::from_bits(bits)),
            Op::Neg => Self { lo: -x.hi, hi: -x.lo, nan: x.nan },
            Op::Abs => x.magnitude(),
            Op::Exp2 => Self { lo: x.lo.exp2(), hi: x.hi.exp2(), nan: x.nan },
            Op::Log2 => Self { lo: x.lo.max(0.0).log2(), hi: x.hi.max(0.0).log2(), nan: x.nan || x.lo < 0.0 },
            Op::Rcp => x.reciprocal(),
            Op::Sqrt | Op::SqrtRn => x.root(),
            Op::Rsqrt => x.root().reciprocal(),
            Op::Tanh => Self { lo: x.lo.tanh(), hi: x.hi.tanh(), nan: x.nan },
            Op::Lt | Op::Le | Op::Eq => Self { lo: 0.0, hi: 1.0, nan: false },
            Op::Select => Self { lo: y.lo.min(z.lo), hi: y.hi.max(z.hi), nan: y.nan || z.nan },
            Op::Add => x.plus(y),
            Op::Mul => x.times(y),
            Op::Div => {
                let undefined =
                    (x.may_be_zero() && y.may_be_zero()) || (x.may_be_infinite() && y.may_be_infinite());
                let quotient = x.times(y.reciprocal());
                Self { nan: undefined || x.nan || y.nan, ..quotient }
            }
            Op::Fma => x.times(y).plus(z),
            Op::Max => {
                // Beside NaN the other operand is the result.
                let lo = match (x.nan, y.nan) {
                    (false, false) => x.lo.max(y.lo),
                    (true, false) => y.lo,
                    (false, true) => x.lo,
                    (true, true) => x.lo.min(y.lo),
                };
                Self { lo, hi: x.hi.max(y.hi), nan: x.nan || y.nan }
            }
            Op::GroupMax | Op::RowMax => x,
            Op::GroupSum => repeated(layout.group),
            Op::LaneSum => repeated(layout.elements_a_lane()),
            Op::RowSum => repeated(layout.row),
            Op::Cvt(format) => x.rounded(format),
            Op::Input(_) | Op::Out => Self::ALL,
        };
        if matches!(op, Op::Num(_)) { result } else { result.as_f32() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { group: 16, lanes: 4, row: 128 };

    fn of(op: Op, args: &[(f64, f64)]) -> String {
        let args: Vec<Interval> = args.iter().map(|&(lo, hi)| Interval { lo, hi, nan: false }).collect();
        Interval::of(op, &args, LAYOUT).to_string()
    }

    #[test]
    fn a_square_is_not_negative() {
        let x = Interval { lo: -3.0, hi: 2.0, nan: false };
        let of = |op, args: &[Interval], square| Interval::of_square(op, args, LAYOUT, square).to_string();
        assert_eq!(of(Op::Mul, &[x, x], false), "[-6, 9]");
        assert_eq!(of(Op::Mul, &[x, x], true), "[0, 9]");
        let one = Interval { lo: 1.0, hi: 1.0, nan: false };
        assert_eq!(of(Op::Fma, &[x, x, one], true), "[1, 10]");
        let masked = Interval { lo: f64::NEG_INFINITY, hi: 2.0, nan: false };
        assert_eq!(of(Op::Mul, &[masked, masked], true), "[0, inf]", "0 times itself, infinity times itself");
    }

    #[test]
    fn beside_nan_a_maximum_is_the_other_operand() {
        let x = Interval { lo: 5.0, hi: 10.0, nan: true };
        let y = Interval { lo: -3.0, hi: -2.0, nan: false };
        for args in [[x, y], [y, x]] {
            assert_eq!(Interval::of(Op::Max, &args, LAYOUT).to_string(), "[-3, 10] or NaN");
        }
    }

    #[test]
    fn operations_on_extended_reals() {
        let inf = f64::INFINITY;
        for (op, args, expect) in [
            (Op::Add, vec![(-inf, 1.0), (2.0, 3.0)], "[-inf, 4]"),
            (Op::Add, vec![(-inf, 1.0), (2.0, inf)], "[-inf, inf] or NaN"),
            (Op::Mul, vec![(-inf, 1.0), (2.0, 3.0)], "[-inf, 3]"),
            (Op::Mul, vec![(-inf, 1.0), (0.0, 3.0)], "[-inf, 3] or NaN"),
            (Op::Abs, vec![(-inf, 3.0)], "[0, inf]"),
            (Op::Abs, vec![(-5.0, -2.0)], "[2, 5]"),
            (Op::Abs, vec![(-5.0, 7.0)], "[0, 7]"),
            (Op::Exp2, vec![(-inf, 3.0)], "[0, 8]"),
            (Op::Exp2, vec![(-140.0, 130.0)], "[0, inf]"),
            (Op::Div, vec![(0.0, 1.0), (0.0, 2.0)], "[0, inf] or NaN"),
            (Op::Div, vec![(0.0, 1.0), (0.5, 2.0)], "[0, 2]"),
            (Op::Rcp, vec![(-2.0, 2.0)], "[-inf, inf]"),
            (Op::Sqrt, vec![(4.0, 9.0)], "[2, 3]"),
            (Op::SqrtRn, vec![(-4.0, 9.0)], "[0, 3] or NaN"),
            (Op::Rsqrt, vec![(0.0, 4.0)], "[0.5, inf]"),
            (Op::Tanh, vec![(-inf, 0.0)], "[-1, 0]"),
            (Op::Lt, vec![(-inf, inf), (0.0, 1.0)], "[0, 1]"),
            (Op::Select, vec![(0.0, 1.0), (-3.0, -2.0), (5.0, inf)], "[-3, inf]"),
            (Op::Cvt(Format::E2m1), vec![(0.3, 100.0)], "[0.5, 6]"),
            (Op::Cvt(Format::E2m1), vec![(-0.25, 2.5)], "[-0.5, 3]"),
            (Op::Cvt(Format::E2m1), vec![(inf, inf)], "[6, 6]"),
            (Op::RowSum, vec![(0.0, 1.0)], "[0, 128]"),
            (Op::Max, vec![(-inf, 1.0), (-100.0, -100.0)], "[-100, 1]"),
        ] {
            assert_eq!(of(op, &args), expect, "{op:?} {args:?}");
        }
    }
}
