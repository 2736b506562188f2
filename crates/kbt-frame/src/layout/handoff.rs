//! Tables of step 5: the sweep's points, the confirmations, and the model's curve.

use super::{
    Column, Group, Kind, Layout, Source, Spread, between, column, count, group, number, spread, text, word,
};
use kbt_evidence::{Step, Unit};

const HANDOFF: Source = Source::Outcome(Step::Handoff);

const TIME: Spread = between("low_time_us", "high_time_us", "fastest to slowest process");
const RATIO: Spread =
    between("to_baseline.low_ratio", "to_baseline.high_ratio", "interval of the ratio to the baseline");

const fn index(name: &'static str) -> Column {
    column(name, Kind::Count(Unit::Count, Spread::Unknown), false)
}

pub(super) const TABLES: &[Layout] = &[
    Layout::new(
        "sweep",
        "a setting of the sweep",
        HANDOFF,
        &["points"],
        &[column("setting", Kind::Setting, true)],
        &[group(&[
            column("knob", Kind::Knobs, false).at("setting"),
            index("index"),
            index("first_chunks").at("integers.first_chunks"),
            index("chunks").at("integers.chunks"),
            index("first_tiles").at("integers.first_tiles"),
            index("tiles").at("integers.tiles"),
            word("status").at("status.kind"),
            text("why").at("status.why"),
            word("check").at("check.kind"),
            index("merged_count"),
            index("processes_count"),
            spread("time_us", Unit::Microseconds, TIME),
            spread("to_baseline_ratio", Unit::Ratio, RATIO).at("to_baseline.ratio"),
            word("speed"),
            index("against"),
        ])],
    ),
    // Keyed by the place in the sweep, which is another in another sweep.
    Layout::new(
        "sweep_confirmed",
        "a setting timed against the baseline once more",
        HANDOFF,
        &["confirmed"],
        &[index("index")],
        &[group(&[
            word("speed"),
            spread("to_baseline_ratio", Unit::Ratio, RATIO).at("to_baseline.ratio"),
            number("error_rate_ratio", Unit::Ratio),
            text("problem"),
        ])],
    )
    .not_compared(),
    Layout::new(
        "sweep_model",
        "a handoff as the event model has it",
        HANDOFF,
        &["model.curve"],
        &[
            index("first_chunks").at("integers.first_chunks"),
            index("chunks").at("integers.chunks"),
            index("first_tiles").at("integers.first_tiles"),
            index("tiles").at("integers.tiles"),
        ],
        &[group(&[
            number("period_cycles", Unit::Cycles),
            number("wait_first_cycles", Unit::Cycles),
            number("wait_second_cycles", Unit::Cycles),
            number("producer_wait_cycles", Unit::Cycles),
        ])],
    ),
    Layout::new(
        "sweep_summary",
        "the sweep as a whole, and how well the model did",
        HANDOFF,
        &[],
        &[],
        &[
            group(&[
                word("target"),
                text("refused"),
                index("best_index").at("best"),
                index("worst_index").at("worst"),
            ]),
            Group {
                prefix: "score_",
                columns: &[
                    count("score_points_count").at("model.score.points_count").quiet(),
                    number("rank_correlation", Unit::Ratio).at("model.score.rank_correlation"),
                    number("max_error_percent", Unit::Percent).at("model.score.max_error_percent"),
                ],
            },
        ],
    ),
];
