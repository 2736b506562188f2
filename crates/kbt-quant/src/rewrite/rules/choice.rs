//! Rules of choices: `select` by a comparison. Both arms are computed, so an arm costs whether it is taken or not.

use super::Need::{Finite, NotNan, Share};
use super::{Rule, rule};

pub(super) const CHOICES: &[Rule] = &[
    // Maxima and minima written as choices. A NaN makes a comparison false, and a maximum its other operand.
    rule(
        "select-less-max",
        "(select (lt ?a ?b) ?b ?a)",
        "(max ?a ?b)",
        &[("?a", NotNan), ("?b", NotNan)],
        "b where a < b, else a, is the greater",
    ),
    rule(
        "select-most-max",
        "(select (le ?a ?b) ?b ?a)",
        "(max ?a ?b)",
        &[("?a", NotNan), ("?b", NotNan)],
        "b where a <= b, else a, is the greater",
    ),
    rule(
        "select-less-min",
        "(select (lt ?a ?b) ?a ?b)",
        "(neg (max (neg ?a) (neg ?b)))",
        &[("?a", NotNan), ("?b", NotNan)],
        "a where a < b, else b, is the lesser",
    ),
    rule(
        "select-most-min",
        "(select (le ?a ?b) ?a ?b)",
        "(neg (max (neg ?a) (neg ?b)))",
        &[("?a", NotNan), ("?b", NotNan)],
        "a where a <= b, else b, is the lesser",
    ),
    // A line that bends at 0.
    rule(
        "select-leaky",
        "(select (lt 0 ?a) ?a (mul ?b ?a))",
        "(max ?a (mul ?b ?a))",
        &[("?b", Share), ("?a", Finite)],
        "a where a > 0, else k a, is the greater of both for k in [0, 1]",
    ),
    // What both arms share.
    rule("select-same", "(select ?a ?b ?b)", "?b", &[], "the same either way"),
    rule(
        "select-of-products",
        "(select ?a (mul ?b ?c) (mul ?d ?c))",
        "(mul (select ?a ?b ?d) ?c)",
        &[],
        "a factor of both arms leaves the choice",
    ),
    rule(
        "select-of-sums",
        "(select ?a (add ?b ?c) (add ?d ?c))",
        "(add (select ?a ?b ?d) ?c)",
        &[],
        "a summand of both arms leaves the choice",
    ),
    rule(
        "select-of-exp2",
        "(select ?a (exp2 ?b) (exp2 ?c))",
        "(exp2 (select ?a ?b ?c))",
        &[],
        "a function of both arms leaves the choice",
    ),
];
