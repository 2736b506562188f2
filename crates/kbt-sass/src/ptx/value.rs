//! What is known of a register's value: a number, an address in shared memory, a matrix descriptor.

use super::range::Range;

/// What addresses are counted from: a shared variable, or a register that holds one aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Base {
    /// The n-th shared variable; all `.extern .shared` arrays are one.
    Variable(usize),
    /// What this register held when an address was rounded in it.
    Rounded(usize),
}

/// An abstract value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    /// Not computed yet.
    Nothing,
    /// A number.
    Number(Range),
    /// A byte address in shared memory.
    Address(Base, Range),
    /// A descriptor of a matrix in shared memory: its address in bytes, and its other fields as they stand.
    Matrix(Base, Range, u64),
    /// Anything.
    Any,
}

/// The bits of a descriptor that hold the address, in 16-byte units.
const ADDRESS_BITS: i64 = 0x3fff;

impl Value {
    pub(crate) const fn constant(value: i64) -> Self {
        Self::Number(Range::constant(value))
    }

    pub(crate) fn as_constant(self) -> Option<i64> {
        match self {
            Self::Number(range) => range.as_constant(),
            _ => None,
        }
    }

    /// A number, where anything is every number.
    pub(crate) fn number(self) -> Option<Range> {
        match self {
            Self::Number(range) => Some(range),
            Self::Any => Some(Range::ALL),
            _ => None,
        }
    }

    pub(crate) fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, v) | (v, Self::Nothing) => v,
            (Self::Number(a), Self::Number(b)) => Self::Number(a.join(b)),
            (Self::Address(a, x), Self::Address(b, y)) if a == b => Self::Address(a, x.join(y)),
            (Self::Matrix(a, x, f), Self::Matrix(b, y, g)) if a == b && f == g => {
                Self::Matrix(a, x.join(y), f)
            }
            (a, b) if a == b => a,
            _ => Self::Any,
        }
    }

    /// The value with what is between its ends given up, so that loops come to an end.
    pub(crate) fn widen(self) -> Self {
        match self {
            Self::Number(_) => Self::Any,
            Self::Address(base, _) => Self::Address(base, Range::ALL),
            Self::Matrix(base, _, fields) => Self::Matrix(base, Range::ALL, fields),
            v => v,
        }
    }

    pub(crate) fn add(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, _) | (_, Self::Nothing) => Self::Nothing,
            (Self::Address(base, at), v) | (v, Self::Address(base, at)) => {
                v.number().map_or(Self::Any, |n| Self::Address(base, at.add(n)))
            }
            (m @ Self::Matrix(..), v) | (v, m @ Self::Matrix(..)) => m.with_fields(v),
            (a, b) => Self::numbers(a, b, Range::add),
        }
    }

    pub(crate) fn subtract(self, other: Self) -> Self {
        match (self, other) {
            (Self::Address(a, x), Self::Address(b, y)) if a == b => Self::Number(x.add(y.negate())),
            (a, b) => match b.number() {
                Some(n) => a.add(Self::Number(n.negate())),
                None if b == Self::Nothing => Self::Nothing,
                None => Self::Any,
            },
        }
    }

    pub(crate) fn multiply(self, other: Self) -> Self {
        Self::numbers(self, other, Range::multiply)
    }

    pub(crate) fn shift_right(self, bits: Self, signed: bool) -> Self {
        let Some(bits) = bits.as_constant().and_then(|b| u32::try_from(b).ok()) else { return self.lost() };
        match self {
            Self::Address(base, at) if bits == 4 => Self::Matrix(base, at, 0),
            Self::Number(range) if signed || range.lo >= 0 => Self::Number(range.shift_right(bits)),
            Self::Number(_) | Self::Any if !signed && (1..32).contains(&bits) => {
                Self::Number(Range::between(0, (1_i64 << (32 - bits)) - 1))
            }
            v => v.lost(),
        }
    }

    pub(crate) fn and(self, other: Self, register: usize) -> Self {
        let (value, mask) = if self.as_constant().is_some() { (other, self) } else { (self, other) };
        let Some(mask) = mask.as_constant() else {
            return match (value.number(), other.number()) {
                (Some(a), Some(b)) if a.lo >= 0 && b.lo >= 0 => {
                    Self::Number(Range::between(0, a.hi.min(b.hi)))
                }
                _ => self.lost(),
            };
        };
        match value {
            // A mask that keeps a shared address whole (the window has 18 bits), but for what it rounds off.
            Self::Address(base, at) if !(0..0x3_0000).contains(&mask) => {
                let unit = 1_i64 << mask.trailing_zeros().min(30);
                let is_rounded = at.lo.rem_euclid(unit) == 0 && at.step() % unit == 0;
                match at.as_constant() {
                    // Descriptors mask what is aligned already.
                    _ if is_rounded && (unit <= 16 || mask > 0) => value,
                    Some(_) if mask < 0 => Self::Address(Base::Rounded(register), Range::constant(0)),
                    _ => Self::Address(base, at.add(Range::between(1 - unit, 0))),
                }
            }
            Self::Matrix(..) if mask & ADDRESS_BITS == ADDRESS_BITS => value,
            Self::Number(range) if mask >= 0 => Self::Number(range.mask(mask)),
            Self::Number(range) if range.lo >= 0 && mask < 0 => {
                Self::Number(range.mask(mask & i64::from(u32::MAX)))
            }
            Self::Any if mask >= 0 => Self::Number(Range::ALL.mask(mask)),
            v => v.lost(),
        }
    }

    /// Bitwise or; `exclusive` says which kind.
    pub(crate) fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Nothing, _) | (_, Self::Nothing) => Self::Nothing,
            (m @ Self::Matrix(..), v) | (v, m @ Self::Matrix(..)) => m.with_fields(v),
            (Self::Address(base, at), v) | (v, Self::Address(base, at)) => match v.number() {
                // Low bits set in an aligned address, as in swizzles.
                Some(n) if n.lo >= 0 && !n.is_all() => {
                    Self::Address(base, at.add(Range::between(0, n.hi.max(1))))
                }
                _ => Self::Any,
            },
            (a, b) => Self::numbers(a, b, Range::bits_of_either),
        }
    }

    /// A descriptor with a constant added or or-ed in: low bits move the address, the rest are fields.
    fn with_fields(self, other: Self) -> Self {
        let Self::Matrix(base, at, fields) = self else { return Self::Any };
        match other {
            Self::Nothing => Self::Nothing,
            Self::Number(n) => match n.as_constant() {
                Some(bits) => {
                    let low = bits & ADDRESS_BITS;
                    let high = (bits & !ADDRESS_BITS).cast_unsigned();
                    Self::Matrix(base, at.add(Range::constant(low * 16)), fields | high)
                }
                None if n.lo >= 0 && n.hi <= ADDRESS_BITS => {
                    Self::Matrix(base, at.add(n.multiply(Range::constant(16))), fields)
                }
                None => Self::Matrix(base, Range::ALL, fields),
            },
            _ => Self::Matrix(base, Range::ALL, fields),
        }
    }

    fn numbers(a: Self, b: Self, with: impl Fn(Range, Range) -> Range) -> Self {
        match (a, b) {
            (Self::Nothing, _) | (_, Self::Nothing) => Self::Nothing,
            _ => match (a.number(), b.number()) {
                (Some(x), Some(y)) => {
                    let range = with(x, y);
                    if range.is_all() { Self::Any } else { Self::Number(range) }
                }
                _ => Self::Any,
            },
        }
    }

    fn lost(self) -> Self {
        if self == Self::Nothing { self } else { Self::Any }
    }

    /// The part of a number for which a comparison holds; `None` where it never does.
    pub(crate) fn refined(self, compare: Compare, with: i64) -> Option<Self> {
        let Self::Number(range) = self else { return Some(self) };
        let cut = match compare {
            Compare::Equal => (range.lo..=range.hi).contains(&with).then(|| Range::constant(with)),
            Compare::NotEqual => range.without(with),
            Compare::Less => range.at_most(with.saturating_sub(1)),
            Compare::LessOrEqual => range.at_most(with),
            Compare::Greater => range.at_least(with.saturating_add(1)),
            Compare::GreaterOrEqual => range.at_least(with),
        };
        cut.map(Self::Number)
    }
}

/// A comparison that a predicate stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Compare {
    pub(crate) fn of(modifier: &str) -> Option<Self> {
        Some(match modifier {
            "eq" => Self::Equal,
            "ne" => Self::NotEqual,
            "lt" | "lo" => Self::Less,
            "le" | "ls" => Self::LessOrEqual,
            "gt" | "hi" => Self::Greater,
            "ge" | "hs" => Self::GreaterOrEqual,
            _ => return None,
        })
    }

    pub(crate) const fn opposite(self) -> Self {
        match self {
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::Less => Self::GreaterOrEqual,
            Self::LessOrEqual => Self::Greater,
            Self::Greater => Self::LessOrEqual,
            Self::GreaterOrEqual => Self::Less,
        }
    }
}
