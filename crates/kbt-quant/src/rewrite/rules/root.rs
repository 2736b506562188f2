//! Rules of square roots, their reciprocals and the hyperbolic tangent.
//!
//! No rule leads to `tanh`: its instruction is right to eleven bits, and what it could replace is right to more.

use super::Need::{ExpInRange, Invertible, NotNegative, NotSubnormal, Positive, RarerThanA};
use super::{Rule, rule};

pub(super) const ROOTS: &[Rule] = &[
    rule(
        "sqrt-approx",
        "(sqrt_rn ?a)",
        "(sqrt ?a)",
        &[("?a", NotNegative), ("?a", NotSubnormal)],
        "the approximate root, to which anything below 2^-126 is 0",
    ),
    // A root and its reciprocal.
    rule("rcp-sqrt", "(rcp (sqrt ?a))", "(rsqrt ?a)", &[("?a", Positive)], "1 / sqrt a = rsqrt a"),
    rule("rcp-rsqrt", "(rcp (rsqrt ?a))", "(sqrt ?a)", &[("?a", Positive)], "1 / rsqrt a = sqrt a"),
    rule("rsqrt-to-rcp", "(rsqrt ?a)", "(rcp (sqrt ?a))", &[("?a", Positive)], "rsqrt a = 1 / sqrt a"),
    rule("sqrt-rcp", "(sqrt (rcp ?a))", "(rsqrt ?a)", &[("?a", Invertible)], "sqrt(1/a) = rsqrt a"),
    rule("rsqrt-rcp", "(rsqrt (rcp ?a))", "(sqrt ?a)", &[("?a", Invertible)], "rsqrt(1/a) = sqrt a"),
    // Products of roots of one value.
    rule("mul-rsqrt", "(mul ?a (rsqrt ?a))", "(sqrt ?a)", &[("?a", Positive)], "a rsqrt a = sqrt a"),
    rule("square-of-sqrt", "(mul (sqrt ?a) (sqrt ?a))", "?a", &[("?a", Positive)], "sqrt a sqrt a = a"),
    rule(
        "square-of-rsqrt",
        "(mul (rsqrt ?a) (rsqrt ?a))",
        "(rcp ?a)",
        &[("?a", Invertible)],
        "rsqrt a rsqrt a = 1/a",
    ),
    rule("sqrt-of-square", "(sqrt (mul ?a ?a))", "(abs ?a)", &[("?match", Positive)], "sqrt(a a) = |a|"),
    // A factor that many share leaves the root.
    rule(
        "sqrt-of-product",
        "(sqrt (mul ?a ?b))",
        "(mul (sqrt ?a) (sqrt ?b))",
        &[("?b", RarerThanA), ("?a", Positive), ("?b", Positive), ("?match", Positive)],
        "sqrt(a b) = sqrt a sqrt b",
    ),
    rule(
        "rsqrt-of-product",
        "(rsqrt (mul ?a ?b))",
        "(mul (rsqrt ?a) (rsqrt ?b))",
        &[("?b", RarerThanA), ("?a", Positive), ("?b", Positive), ("?match", Positive)],
        "rsqrt(a b) = rsqrt a rsqrt b",
    ),
    // A root halves the exponent.
    rule("sqrt-exp2", "(sqrt (exp2 ?a))", "(exp2 (mul ?a 0.5))", &[("?a", ExpInRange)], "sqrt 2^a = 2^(a/2)"),
    rule(
        "rsqrt-exp2",
        "(rsqrt (exp2 ?a))",
        "(exp2 (mul ?a -0.5))",
        &[("?a", ExpInRange)],
        "rsqrt 2^a = 2^(-a/2)",
    ),
    rule(
        "log2-sqrt",
        "(log2 (sqrt ?a))",
        "(mul (log2 ?a) 0.5)",
        &[("?a", Positive)],
        "log2 sqrt a = log2 a / 2",
    ),
    rule(
        "log2-rsqrt",
        "(log2 (rsqrt ?a))",
        "(mul (log2 ?a) -0.5)",
        &[("?a", Positive)],
        "log2 rsqrt a = -log2 a / 2",
    ),
    // Monotone functions and maxima.
    rule(
        "group-max-sqrt",
        "(group_max (sqrt ?a))",
        "(sqrt (group_max ?a))",
        &[("?a", NotNegative)],
        "the root is monotone",
    ),
    rule(
        "row-max-sqrt",
        "(row_max (sqrt ?a))",
        "(sqrt (row_max ?a))",
        &[("?a", NotNegative)],
        "the root is monotone",
    ),
    rule("group-max-tanh", "(group_max (tanh ?a))", "(tanh (group_max ?a))", &[], "tanh is monotone"),
    rule("row-max-tanh", "(row_max (tanh ?a))", "(tanh (row_max ?a))", &[], "tanh is monotone"),
    rule("tanh-neg", "(tanh (neg ?a))", "(neg (tanh ?a))", &[], "tanh(-a) = -tanh a"),
];
