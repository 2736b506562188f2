//! Rules of sums, products, exponentials and logarithms.

use super::{Need, Rule, inverse, rule};
use crate::lang::Shape::{Elem, Group, Row};
use Need::*;

pub(super) const ARITHMETIC: &[Rule] = &[
    // Order of operands.
    rule("add-commutes", "(add ?a ?b)", "(add ?b ?a)", &[], "a + b = b + a"),
    rule("mul-commutes", "(mul ?a ?b)", "(mul ?b ?a)", &[], "a b = b a"),
    rule("max-commutes", "(max ?a ?b)", "(max ?b ?a)", &[], "max(a, b) = max(b, a)"),
    rule("fma-commutes", "(fma ?a ?b ?c)", "(fma ?b ?a ?c)", &[], "a b + c = b a + c"),
    // Negation.
    rule("neg-neg", "(neg (neg ?a))", "?a", &[], "-(-a) = a"),
    rule("neg-add", "(neg (add ?a ?b))", "(add (neg ?a) (neg ?b))", &[], "-(a + b) = -a - b"),
    rule("neg-mul", "(mul (neg ?a) ?b)", "(neg (mul ?a ?b))", &[], "(-a) b = -(a b)"),
    // Neutral elements.
    rule("add-zero", "(add ?a 0)", "?a", &[("?a", NotMinusZero)], "a + 0 = a"),
    rule("exp2-add-zero", "(exp2 (add ?a 0))", "(exp2 ?a)", &[], "2^(a + 0) = 2^a"),
    rule("mul-one", "(mul ?a 1)", "?a", &[], "1 a = a"),
    rule("opposites", "(add ?a (neg ?a))", "0", &[("?a", Finite)], "a - a = 0"),
    rule("cancel", "(add (add ?a ?b) (neg ?b))", "?a", &[("?b", Finite)], "a + b - b = a"),
    rule("cancel-neg", "(add (add ?a (neg ?b)) ?b)", "?a", &[("?b", Finite)], "a - b + b = a"),
    // Division and reciprocal.
    rule("div-to-rcp", "(div ?a ?b)", "(mul ?a (rcp ?b))", &[("?b", Invertible)], "a / b = a (1/b)"),
    rule("inverses", "(mul ?a (rcp ?a))", "1", &[("?a", Invertible)], "a (1/a) = 1"),
    rule("rcp-exp2", "(rcp (exp2 ?a))", "(exp2 (neg ?a))", &[("?a", ExpInRange)], "1 / 2^a = 2^-a"),
    inverse(
        "undo-div",
        "(div ?a ?b)",
        "?a",
        "(mul (div ?a ?b) ?b)",
        &[
            ("?a", Finite),
            ("?b", Invertible),
            ("?match", Finite),
            ("?match", KeptBeside("?b")),
            ("?b", AtMost(Group)),
        ],
        "a = (a / b) b",
    ),
    inverse(
        "undo-mul",
        "(mul ?a ?b)",
        "?a",
        "(mul (mul ?a ?b) (rcp ?b))",
        &[
            ("?b", Number),
            ("?a", Exactly(Elem)),
            ("?b", Invertible),
            ("?b", NotMinute),
            ("?match", Finite),
            ("?a", Finite),
        ],
        "a = (a k) (1/k)",
    ),
    inverse(
        "undo-mul-rcp",
        "(mul ?a (rcp ?b))",
        "?a",
        "(mul (mul ?a (rcp ?b)) ?b)",
        &[
            ("?a", Finite),
            ("?b", Invertible),
            ("?match", Finite),
            ("?match", KeptBeside("?b")),
            ("?b", AtMost(Group)),
        ],
        "a = (a (1/b)) b",
    ),
    // Exponentials and logarithms.
    rule(
        "exp2-absorbs-factor",
        "(mul (exp2 ?a) ?b)",
        "(exp2 (add ?a (log2 ?b)))",
        &[("?b", AtMost(Group)), ("?b", Positive), ("?a", ExpKept("?b")), ("?match", Finite)],
        "2^a b = 2^(a + log2 b)",
    ),
    rule("log2-exp2", "(log2 (exp2 ?a))", "?a", &[("?a", ExpInRange)], "log2 2^a = a"),
    rule(
        "log2-rcp",
        "(log2 (rcp ?a))",
        "(neg (log2 ?a))",
        &[("?a", Invertible), ("?a", Positive)],
        "log2 (1/a) = -log2 a",
    ),
    rule("exp2-log2", "(exp2 (log2 ?a))", "?a", &[("?a", Positive)], "2^(log2 a) = a"),
    rule(
        "exp2-split",
        "(exp2 (add ?a ?b))",
        "(mul (exp2 ?a) (exp2 ?b))",
        &[("?b", AtMost(Row)), ("?a", Exactly(Elem)), ("?a", ExpInRange), ("?b", ExpInRange)],
        "2^(a + b) = 2^a 2^b",
    ),
    // Factors.
    rule(
        "constant-factors",
        "(mul (mul ?a ?b) ?c)",
        "(mul ?a (mul ?b ?c))",
        &[
            ("?b", RarerThanA),
            ("?c", RarerThanA),
            ("?a", FiniteTimes("?b")),
            ("?b", FiniteTimes("?c")),
            ("?a", ProductKept("?b", "?c")),
            ("?b", ProductKept("?c", "?a")),
            ("?match", Finite),
        ],
        "(a b) c = a (b c)",
    ),
    rule(
        "factor-into-fma",
        "(mul (add ?a ?b) ?c)",
        "(fma ?a ?c (mul ?b ?c))",
        &[
            // Of a group or row both: the product may be there already, for its elements.
            ("?b", NoMoreThanA),
            ("?c", RarerThanA),
            ("?b", FiniteTimes("?c")),
            ("?a", PlusKept("?b")),
            ("?c", NotZero),
        ],
        "(a + b) c = a c + b c",
    ),
    rule(
        "constant-factor-of-fma",
        "(mul (fma ?a ?b ?c) ?d)",
        "(fma ?a (mul ?b ?d) (mul ?c ?d))",
        &[
            ("?b", RarerThanA),
            ("?c", RarerThanA),
            ("?d", RarerThanA),
            ("?b", FiniteTimes("?d")),
            ("?c", FiniteTimes("?d")),
            ("?b", ProductKept("?d", "?a")),
            ("?d", OuterFactor),
            ("?d", NotZero),
        ],
        "(a b + c) d = a (b d) + c d",
    ),
    rule(
        "log2-of-product",
        "(log2 (mul ?a ?b))",
        "(add (log2 ?a) (log2 ?b))",
        &[("?b", RarerThanA), ("?a", Positive), ("?b", Positive), ("?a", NormalTimes("?b"))],
        "log2(a b) = log2 a + log2 b",
    ),
    // Multiply-add.
    rule(
        "fuse",
        "(add (mul ?a ?b) ?c)",
        "(fma ?a ?b ?c)",
        &[("?c", AddendOf("?a", "?b"))],
        "a b + c in one operation",
    ),
    rule(
        "fuse-neg",
        "(add (neg (mul ?a ?b)) ?c)",
        "(fma (neg ?a) ?b ?c)",
        &[("?c", AddendOf("?a", "?b"))],
        "c - a b in one operation",
    ),
    rule(
        "add-into-fma",
        "(add (fma ?a ?b ?c) ?d)",
        "(fma ?a ?b (add ?c ?d))",
        &[("?c", RarerThanA), ("?d", RarerThanA), ("?c", Finite), ("?d", Finite), ("?c", FinitePlus("?d"))],
        "(a b + c) + d = a b + (c + d)",
    ),
    rule(
        "add-of-add",
        "(add (add ?a ?b) ?c)",
        "(add ?a (add ?b ?c))",
        &[("?b", RarerThanA), ("?c", RarerThanA), ("?b", Finite), ("?c", Finite), ("?b", FinitePlus("?c"))],
        "(a + b) + c = a + (b + c)",
    ),
];
