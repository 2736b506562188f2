//! Rules of maxima and of reductions: what is monotone, what all share, what leaves a sum.

use super::{Need, Rule, rule};
use crate::lang::Op;
use crate::lang::Shape::{Elem, Group, Row};
use Need::*;

pub(super) const REDUCTIONS: &[Rule] = &[
    // Monotone functions and maxima.
    rule("max-exp2", "(max (exp2 ?a) (exp2 ?b))", "(exp2 (max ?a ?b))", &[], "max(2^a, 2^b) = 2^max(a, b)"),
    rule(
        "max-exp2-bound",
        "(max (exp2 ?a) ?b)",
        "(exp2 (max ?a (log2 ?b)))",
        &[("?b", Number), ("?b", Positive)],
        "max(2^a, k) = 2^max(a, log2 k)",
    ),
    rule("group-max-exp2", "(group_max (exp2 ?a))", "(exp2 (group_max ?a))", &[], "exp2 is monotone"),
    rule("row-max-exp2", "(row_max (exp2 ?a))", "(exp2 (row_max ?a))", &[], "exp2 is monotone"),
    rule(
        "group-max-add",
        "(group_max (add ?a ?b))",
        "(add (group_max ?a) ?b)",
        &[("?b", AtMost(Group)), ("?a", Exactly(Elem)), ("?b", Finite)],
        "adding the same to all moves the maximum by it",
    ),
    rule(
        "group-max-mul",
        "(group_max (mul ?a ?b))",
        "(mul (group_max ?a) ?b)",
        &[("?b", AtMost(Group)), ("?a", Exactly(Elem)), ("?b", Positive)],
        "a positive factor keeps the order",
    ),
    rule(
        "group-max-fma",
        "(group_max (fma ?a ?b ?c))",
        "(fma (group_max ?a) ?b ?c)",
        &[
            ("?b", AtMost(Group)),
            ("?c", AtMost(Group)),
            ("?a", Exactly(Elem)),
            ("?b", Positive),
            ("?c", Finite),
        ],
        "a positive factor keeps the order, adding the same moves the maximum",
    ),
    rule(
        "group-max-div",
        "(group_max (div ?a ?b))",
        "(div (group_max ?a) ?b)",
        &[("?b", AtMost(Group)), ("?a", Exactly(Elem)), ("?b", Positive)],
        "a positive divisor keeps the order",
    ),
    rule(
        "group-max-log2",
        "(group_max (log2 ?a))",
        "(log2 (group_max ?a))",
        &[("?a", NotNegative)],
        "log2 is monotone",
    ),
    rule(
        "row-max-add",
        "(row_max (add ?a ?b))",
        "(add (row_max ?a) ?b)",
        &[("?b", AtMost(Row)), ("?b", RarerThanA), ("?b", Finite)],
        "adding the same to all moves the maximum by it",
    ),
    rule(
        "row-max-mul",
        "(row_max (mul ?a ?b))",
        "(mul (row_max ?a) ?b)",
        &[("?b", AtMost(Row)), ("?b", RarerThanA), ("?b", Positive)],
        "a positive factor keeps the order",
    ),
    rule(
        "row-max-div",
        "(row_max (div ?a ?b))",
        "(div (row_max ?a) ?b)",
        &[("?b", AtMost(Row)), ("?b", RarerThanA), ("?b", Positive)],
        "a positive divisor keeps the order",
    ),
    rule(
        "row-max-fma",
        "(row_max (fma ?a ?b ?c))",
        "(fma (row_max ?a) ?b ?c)",
        &[
            ("?b", AtMost(Row)),
            ("?c", AtMost(Row)),
            ("?b", RarerThanA),
            ("?c", RarerThanA),
            ("?b", Positive),
            ("?c", Finite),
        ],
        "a positive factor keeps the order, adding the same moves the maximum",
    ),
    rule(
        "row-max-by-groups",
        "(row_max ?a)",
        "(row_max (group_max ?a))",
        &[("?a", Exactly(Elem))],
        "the row's maximum is the greatest of its groups' maxima",
    ),
    // What all share.
    rule("group-max-same", "(group_max ?a)", "?a", &[("?a", AtMost(Group))], "the maximum of equals"),
    rule("row-max-same", "(row_max ?a)", "?a", &[("?a", AtMost(Row))], "the maximum of equals"),
    rule("group-sum-zero", "(group_sum 0)", "0", &[], "a sum of zeros"),
    rule("lane-sum-zero", "(lane_sum 0)", "0", &[], "a sum of zeros"),
    rule("row-sum-zero", "(row_sum 0)", "0", &[], "a sum of zeros"),
    // Sums.
    rule(
        "row-sum-by-lanes",
        "(row_sum ?a)",
        "(row_sum (lane_sum ?a))",
        &[("?a", Exactly(Elem))],
        "a row's sum is the sum of its lanes' partial sums",
    ),
    rule(
        "lane-sum-factor",
        "(lane_sum (mul ?a ?b))",
        "(mul (lane_sum ?a) ?b)",
        &[
            ("?b", AtMost(Group)),
            ("?a", Exactly(Elem)),
            ("?b", Finite),
            ("?a", FiniteSum(Op::LaneSum)),
            ("?match", Finite),
        ],
        "a common factor leaves the sum",
    ),
    rule(
        "row-sum-factor",
        "(row_sum (mul ?a ?b))",
        "(mul (row_sum ?a) ?b)",
        &[("?b", AtMost(Row)), ("?b", Finite), ("?a", FiniteSum(Op::RowSum)), ("?match", Finite)],
        "a common factor leaves the sum",
    ),
    // Two reductions of one kind.
    rule(
        "group-max-joined",
        "(max (group_max ?a) (group_max ?b))",
        "(group_max (max ?a ?b))",
        &[("?a", Exactly(Elem)), ("?b", Exactly(Elem))],
        "the greater of two maxima is the maximum of the greater values",
    ),
    rule(
        "row-max-joined",
        "(max (row_max ?a) (row_max ?b))",
        "(row_max (max ?a ?b))",
        &[("?a", Exactly(Elem)), ("?b", Exactly(Elem))],
        "the greater of two maxima is the maximum of the greater values",
    ),
    rule(
        "group-sum-joined",
        "(add (group_sum ?a) (group_sum ?b))",
        "(group_sum (add ?a ?b))",
        &[
            ("?a", Exactly(Elem)),
            ("?b", Exactly(Elem)),
            ("?a", FiniteSum(Op::GroupSum)),
            ("?b", FiniteSum(Op::GroupSum)),
            ("?a", FinitePlus("?b")),
            ("?match", Finite),
        ],
        "the sum of two sums is one of sums",
    ),
    rule(
        "lane-sum-joined",
        "(add (lane_sum ?a) (lane_sum ?b))",
        "(lane_sum (add ?a ?b))",
        &[
            ("?a", Exactly(Elem)),
            ("?b", Exactly(Elem)),
            ("?a", FiniteSum(Op::LaneSum)),
            ("?b", FiniteSum(Op::LaneSum)),
            ("?a", FinitePlus("?b")),
            ("?match", Finite),
        ],
        "the sum of two sums is one of sums",
    ),
    rule(
        "row-sum-joined",
        "(add (row_sum ?a) (row_sum ?b))",
        "(row_sum (add ?a ?b))",
        &[
            ("?a", Exactly(Elem)),
            ("?b", Exactly(Elem)),
            ("?a", FiniteSum(Op::RowSum)),
            ("?b", FiniteSum(Op::RowSum)),
            ("?a", FinitePlus("?b")),
            ("?match", Finite),
        ],
        "the sum of two sums is one of sums",
    ),
];
