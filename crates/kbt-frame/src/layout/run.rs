//! Tables over all steps: where each came from, its verdicts and their evidence.

use super::{Column, Group, Kind, Layout, Source, column, group, number, text, word};
use kbt_evidence::Unit;

pub(super) const TABLES: &[Layout] = &[
    Layout::new(
        "steps",
        "a finished step",
        Source::Steps,
        &[],
        &[word("step")],
        &[group(&[
            word("origin"),
            text("headline"),
            text("needs"),
            number("wall_s", Unit::Seconds).at("timing.wall_s").quiet(),
        ])],
    ),
    Layout::new(
        "verdicts",
        "what a step says of a class of fix",
        Source::Steps,
        &["verdicts"],
        &[word("step"), word("class")],
        &[group(&[word("standing"), text("reason"), text("next")])],
    ),
    Layout::new(
        "evidence",
        "a figure behind a verdict",
        Source::Steps,
        &["verdicts", "evidence", "figures"],
        EVIDENCE_KEYS,
        &[Group { prefix: "", columns: &[column("figure", Kind::Figure, false).at("@value")] }],
    )
    .not_compared(),
];

const EVIDENCE_KEYS: &[Column] = &[
    word("step").at("^^step"),
    word("class").at("^^class"),
    word("direction").at("^direction"),
    word("statement").at("^statement"),
    word("name"),
];
