//! What a register holds, as far as it is known: a float, parts of floats, codes, an integer constant.

use super::decode::Step;
use super::scalar::Id;
use crate::format::Format;

/// The content of a register.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A node, as f32 or as its bits.
    F32(Id),
    /// A constant's f32 bits.
    Bits(u32),
    /// A node as f16, exactly.
    Half(Id),
    /// Two nodes in 64 bits, the lower half first.
    Pair(Id, Id),
    /// Two nodes as f16, exactly; the lower half first.
    Halves(Id, Id),
    /// Whether a comparison's node is not 0, or, negated, is 0.
    Predicate(Id, bool),
    /// A step of expf of a node.
    Exp(Step, Id),
    /// Codes of a format, the lowest first.
    Codes(Format, Vec<Id>),
    /// An integer constant.
    Int(i64),
    /// Whatever this register holds: copied, perhaps as a float.
    Same(String),
}

impl Value {
    /// The nodes in it.
    pub(super) fn nodes(&self) -> Vec<Id> {
        match self {
            Self::F32(a) | Self::Half(a) | Self::Predicate(a, _) | Self::Exp(_, a) => vec![*a],
            Self::Pair(a, b) | Self::Halves(a, b) => vec![*a, *b],
            Self::Codes(_, ids) => ids.clone(),
            Self::Bits(_) | Self::Int(_) | Self::Same(_) => Vec::new(),
        }
    }
}

/// The bits of `0f3F800000`, or of the f32 nearest to `1.0`.
pub(super) fn float_literal(text: &str) -> Option<u32> {
    if let Some(digits) = text.strip_prefix("0f").or_else(|| text.strip_prefix("0F")) {
        return u32::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 8);
    }
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.'));
    let decimal = is_number && text.contains('.');
    text.parse::<f32>().ok().filter(|x| decimal && x.is_finite()).map(f32::to_bits)
}

/// `31`, `-1`, `0x1f`, `5U`.
pub(super) fn integer_literal(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |t| (true, t));
    let digits = digits.trim_end_matches('U');
    let value = match digits.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_as_ptx_writes_them() {
        assert_eq!(float_literal("0f3F800000").map(f32::from_bits), Some(1.0));
        assert_eq!(
            (float_literal("0f3F8"), float_literal("1.0"), float_literal("%f1")),
            (None, Some(0x3f80_0000), None)
        );
        assert_eq!(
            (float_literal("-.5"), float_literal("1"), float_literal("1.0.0")),
            (Some(0xbf00_0000), None, None)
        );
        assert_eq!((integer_literal("31"), integer_literal("-1")), (Some(31), Some(-1)));
        assert_eq!((integer_literal("0x1f"), integer_literal("7U")), (Some(31), Some(7)));
        assert_eq!((integer_literal("%r1"), integer_literal("0f3F800000")), (None, None));
    }
}
