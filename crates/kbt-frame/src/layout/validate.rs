//! Tables of step 6: each variant's repeated runs, its tensors against the saved ones, and its probes.

use super::{Column, Group, Kind, Layout, Source, Spread, column, count, flag, group, list, number, word};
use kbt_evidence::{Step, Unit};

const VALIDATE: Source = Source::Outcome(Step::Validate);

/// A variant that gives the same bits every time gives the same error every time.
const SAME_BITS: Spread =
    Spread::NoneIf { path: "^flake.finding", is: "same", what: "repeated runs gave the same bits" };

const fn error(name: &'static str, unit: Unit) -> Column {
    column(name, Kind::Number(unit, SAME_BITS), true)
}

pub(super) const TABLES: &[Layout] = &[
    Layout::new(
        "variants",
        "a variant, and its repeated runs",
        VALIDATE,
        &["variants"],
        &[word("variant").at("name")],
        &[
            group(&[
                column("knob", Kind::Knobs, false).at("knobs"),
                word("class"),
                list("violations").at("comparison.violations"),
                list("problems"),
            ]),
            Group {
                prefix: "flake_",
                columns: &[
                    word("finding").at("flake.finding"),
                    count("runs_count").at("flake.runs_count").quiet(),
                    number("low_rate_ratio", Unit::Ratio).at("flake.rate.low_ratio").quiet(),
                    number("high_rate_ratio", Unit::Ratio).at("flake.rate.high_ratio").quiet(),
                    number("confidence_ratio", Unit::Ratio).at("flake.rate.confidence_ratio").quiet(),
                ],
            },
        ],
    ),
    Layout::new(
        "validation",
        "a tensor of a variant against the saved one and against the reference",
        VALIDATE,
        &["variants", "comparison.tensors"],
        &[word("variant").at("^name"), word("tensor").at("name")],
        &[group(&[
            word("dtype"),
            count("elements_count").at("bits.elements_count").quiet(),
            column("differing_count", Kind::Count(Unit::Count, SAME_BITS), true).at("bits.differing_count"),
            column("max_ulps", Kind::Count(Unit::Count, SAME_BITS), true).at("bits.max_ulps"),
            error("relative_rms_error", Unit::RelativeError).at("variant.relative_rms_error"),
            error("max_abs_error", Unit::Ratio).at("variant.max_abs_error"),
            error("mean_abs_error", Unit::Ratio).at("variant.mean_abs_error"),
            error("baseline_relative_rms_error", Unit::RelativeError).at("baseline.relative_rms_error"),
        ])],
    ),
    Layout::new(
        "probes",
        "a variant on an input with a known answer",
        VALIDATE,
        &["variants", "probes"],
        &[word("variant").at("^name"), word("probe").at("kind")],
        &[group(&[
            flag("passed"),
            // The repeated runs are of other inputs.
            number("max_abs_error", Unit::Ratio),
            number("allowed_abs_error", Unit::Ratio).quiet(),
        ])],
    ),
];
