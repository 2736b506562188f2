//! Rules of |a|. As an operand of most instructions it costs nothing, where the greater of a and -a is an instruction, and two
//! maxima over a and -a are two butterflies.

use super::Need::{NotMinusZero, NotNegative};
use super::{Rule, rule};

pub(super) const MAGNITUDES: &[Rule] = &[
    rule("max-of-signs", "(max ?a (neg ?a))", "(abs ?a)", &[], "max(a, -a) = |a|"),
    rule(
        "group-max-of-signs",
        "(max (group_max ?a) (group_max (neg ?a)))",
        "(group_max (abs ?a))",
        &[],
        "max(max a, max -a) = max |a|",
    ),
    rule(
        "row-max-of-signs",
        "(max (row_max ?a) (row_max (neg ?a)))",
        "(row_max (abs ?a))",
        &[],
        "max(max a, max -a) = max |a|",
    ),
    rule(
        "abs-of-positive",
        "(abs ?a)",
        "?a",
        &[("?a", NotNegative), ("?a", NotMinusZero)],
        "|a| = a where a is not negative",
    ),
    rule("abs-neg", "(abs (neg ?a))", "(abs ?a)", &[], "|-a| = |a|"),
    rule("abs-exp2", "(abs (exp2 ?a))", "(exp2 ?a)", &[], "|2^a| = 2^a"),
    rule("abs-of-product", "(abs (mul ?a ?b))", "(mul (abs ?a) (abs ?b))", &[], "|a b| = |a| |b|"),
    rule("abs-of-quotient", "(abs (div ?a ?b))", "(div (abs ?a) (abs ?b))", &[], "|a / b| = |a| / |b|"),
    rule("square-of-abs", "(mul (abs ?a) (abs ?a))", "(mul ?a ?a)", &[], "|a| |a| = a a"),
];
