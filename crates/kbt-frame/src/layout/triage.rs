//! Tables of step 0: roofs, bounds, candidates and checks.

use super::{Group, Layout, Source, group, number, text, word};
use kbt_evidence::{Step, Unit};

const TRIAGE: Source = Source::Outcome(Step::Triage);

pub(super) const TABLES: &[Layout] = &[
    Layout::new(
        "triage",
        "the diagnosis",
        TRIAGE,
        &[],
        &[],
        &[group(&[
            word("status"),
            word("call"),
            number("margin_ratio", Unit::Ratio).at("margin.ratio"),
            text("refusal"),
        ])],
    ),
    Layout::new(
        "roofs",
        "a roof of the roofline plot",
        TRIAGE,
        &["plot.roofs"],
        &[word("name")],
        &[group(&[number("bytes_per_s", Unit::BytesPerSecond), number("flop_per_s", Unit::FlopPerSecond)])],
    )
    // The table `ceilings` has them with their spread.
    .not_compared(),
    Layout::new(
        "bounds",
        "the least time that one resource needs",
        TRIAGE,
        &["bounds"],
        &[word("resource")],
        &[
            group(&[text("name"), text("how"), number("time_us", Unit::Microseconds).at("time.us")]),
            Group { prefix: "share_", columns: &[number("share_ratio", Unit::Ratio).at("share.ratio")] },
        ],
    ),
    Layout::new(
        "candidates",
        "a candidate of the evidence matrix",
        TRIAGE,
        &["evidence"],
        &[word("candidate")],
        &[group(&[
            word("class"),
            text("title"),
            word("standing"),
            number("share_ratio", Unit::Ratio).at("share.ratio"),
        ])],
    ),
    Layout::new(
        "checks",
        "a contradiction check",
        TRIAGE,
        &["checks"],
        &[word("id")],
        &[group(&[word("side"), word("status"), text("question"), text("finding")])],
    ),
];
