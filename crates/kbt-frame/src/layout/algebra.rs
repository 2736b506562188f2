//! Tables of step 4: the search, the forms that kernels have, and what was timed.

use super::{
    Column, Group, Kind, Layout, Source, Spread, What, column, flag, group, list, number, spread, text, word,
};
use kbt_evidence::{Step, Unit};

const ALGEBRA: Source = Source::Outcome(Step::Algebra);

const TIME: Spread = Spread::Between { low: "low_us", high: "high_us", what: What::At("spread") };

const fn cycles(name: &'static str) -> Column {
    number(name, Unit::Cycles)
}

pub(super) const TABLES: &[Layout] = &[
    Layout::new(
        "algebra",
        "the search: the program it starts from and the bound within its graph",
        ALGEBRA,
        &[],
        &[],
        &[
            group(&[
                word("mode"),
                text("program").at("rewrite.baseline.program"),
                word("busiest_pipe").at("rewrite.baseline.busiest_pipe"),
                cycles("cycles_per_element").at("rewrite.baseline.cycles_per_element"),
                number("issue_slots", Unit::Count).at("rewrite.baseline.issue_slots"),
                cycles("chain_cycles").at("rewrite.baseline.chain"),
                text("refused"),
            ]),
            Group {
                prefix: "bound_",
                columns: &[
                    cycles("bound_cycles_per_element").at("rewrite.lower_bound.cycles_per_element"),
                    flag("bound_reached").at("rewrite.lower_bound.reached"),
                ],
            },
        ],
    ),
    Layout::new(
        "algebra_candidates",
        "a cheaper program that the search found, by rank",
        ALGEBRA,
        &["rewrite.candidates"],
        &[column("rank", Kind::Count(Unit::Count, Spread::Unknown), false).at("@index")],
        &[group(&[
            text("program"),
            word("busiest_pipe"),
            cycles("cycles_per_element"),
            number("issue_slots", Unit::Count),
            cycles("chain_cycles").at("chain"),
            list("rules"),
            list("guards").quiet(),
        ])],
    ),
    Layout::new(
        "algebra_forms",
        "a form that kernels have, as the cost model has it",
        ALGEBRA,
        &["forms"],
        &[word("form").at("name")],
        &[group(&[
            text("program").at("predicted.program"),
            word("busiest_pipe").at("predicted.busiest_pipe"),
            cycles("cycles_per_element").at("predicted.cycles_per_element"),
            number("issue_slots", Unit::Count).at("predicted.issue_slots"),
            cycles("chain_cycles").at("predicted.chain"),
        ])],
    ),
    Layout::new(
        "algebra_form_pipes",
        "the cycles that a form takes one pipe for an element",
        ALGEBRA,
        &["forms", "predicted.pipes{}"],
        &[word("form").at("^name"), word("pipe").at("@key")],
        &[group(&[cycles("cycles_per_element").at("@value")])],
    ),
    Layout::new(
        "algebra_measured",
        "a kernel variant with one of the forms, timed",
        ALGEBRA,
        &["measured"],
        &[word("variant").at("name")],
        &[group(&[spread("time_us", Unit::Microseconds, TIME).at("us"), number("speed_ratio", Unit::Ratio)])],
    ),
];
