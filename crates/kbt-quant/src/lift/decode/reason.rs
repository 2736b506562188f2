//! Why an instruction is refused.

/// Why an instruction was not lifted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::lift) enum Reason {
    /// Arithmetic that the language has no word for.
    NoOperation,
    /// Another rounding, saturation or NaN rule than the language's.
    OtherRounding,
    /// Integer arithmetic on the bits of a float.
    Bits,
    /// A comparison, or a choice by a predicate, that the language has no word for.
    Select,
    /// A constant that is NaN.
    NotANumber,
    /// An operand that is no literal of PTX.
    Literal,
    /// A step of expf on its own.
    Exponential,
    /// Another lane's value.
    Shuffle,
    /// Executes under a predicate.
    Guarded,
    /// Puts codes together.
    Packing,
}

impl Reason {
    pub(in crate::lift) const fn as_str(self) -> &'static str {
        match self {
            Self::NoOperation => "the language has no such operation",
            Self::OtherRounding => "rounds, saturates or treats NaN in a way that the language does not",
            Self::Bits => "integer arithmetic on the bits of a float",
            Self::Select => {
                "a comparison that the language does not have, or by a predicate that is no comparison of floats in \
                 this block"
            }
            Self::NotANumber => "an operand is a NaN constant",
            Self::Literal => "an operand is no literal: a float is 0f and 8 hexadecimal digits",
            Self::Exponential => "takes a step of expf for something else",
            Self::Shuffle => "another lane's value outside a sum or maximum over lanes",
            Self::Guarded => "executes under a predicate",
            Self::Packing => "puts codes together; kept as it is",
        }
    }
}
