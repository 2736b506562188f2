//! Tables of step 2: the trace as a whole, its roles, their waits and events, and what the looking cost.

use super::{Column, Group, Layout, Source, Spread, between, count, flag, group, list, number, spread, word};
use kbt_evidence::{Step, Unit};

const TRACE: Source = Source::Outcome(Step::Trace);

const EACH: Spread = between("each_cycles.p10", "each_cycles.p90", "p10 to p90 of occurrences");
const STEPS: Spread = between("period_cycles.p10", "period_cycles.p90", "p10 to p90 of steps");
const BUSY: Spread = between("busy_spread_cycles.p10", "busy_spread_cycles.p90", "p10 to p90 of steps");
const CTAS: Spread =
    between("over_ctas_cycles.p10", "over_ctas_cycles.p90", "p10 to p90 of the CTAs' own means");
const TRIPS: Spread = between("round_trip_cycles.p10", "round_trip_cycles.p90", "p10 to p90 of round trips");
const PAIRS: Spread = between("low_percent", "high_percent", "interval of the median over pairs");

const fn cycles(name: &'static str) -> Column {
    number(name, Unit::Cycles)
}

const fn per_step(name: &'static str) -> Column {
    number(name, Unit::Count).at("per_step").quiet()
}

pub(super) const TABLES: &[Layout] = &[
    Layout::new(
        "trace",
        "the trace as a whole, and what the model of the handoff needs of it",
        TRACE,
        &[],
        &[],
        &[
            group(&[
                word("critical").at("critical.kind"),
                list("critical_roles").at("critical.roles"),
                word("absolute").at("absolute.standing"),
                word("level").at("trace.level"),
                cycles("wait_floor_cycles"),
                cycles("quantum_cycles").at("trace.quantum_cycles").quiet(),
                count("ctas").at("trace.ctas").quiet(),
                count("records").at("trace.records").quiet(),
                cycles("chunk_cycles").at("handoff.chunk_cycles"),
                cycles("producer_other_cycles").at("handoff.producer_other_cycles"),
                cycles("tile_cycles").at("handoff.tile_cycles"),
                cycles("consumer_other_cycles").at("handoff.consumer_other_cycles"),
                cycles("wait_first_cycles").at("handoff.wait_first_cycles"),
                cycles("wait_rest_cycles").at("handoff.wait_rest_cycles"),
                cycles("wait_free_cycles").at("handoff.wait_free_cycles"),
                cycles("round_trip_cycles").at("handoff.round_trip_cycles"),
            ]),
            Group {
                prefix: "clean_",
                columns: &[
                    cycles("clean_implied_cycles").at("clean.implied_cycles"),
                    number("clean_inflation_ratio", Unit::Ratio).at("clean.inflation_ratio"),
                ],
            },
        ],
    ),
    Layout::new(
        "roles",
        "a warp role",
        TRACE,
        &["roles"],
        &[word("role").at("name")],
        &[group(&[
            word("step_starts_at"),
            count("steps").quiet(),
            count("steady_steps").quiet(),
            spread("period_cycles", Unit::Cycles, STEPS).at("period_cycles.median"),
            spread("mean_period_cycles", Unit::Cycles, CTAS),
            spread("busy_cycles", Unit::Cycles, BUSY),
            cycles("slack_cycles"),
            cycles("prologue_cycles"),
            cycles("tail_cycles"),
        ])],
    ),
    Layout::new(
        "waits",
        "a barrier that a role waits on",
        TRACE,
        &["roles", "waits"],
        &[word("role").at("^name"), word("on")],
        &[group(&[
            list("released_by"),
            word("hardware"),
            flag("handoff"),
            cycles("cycles"),
            spread("each_cycles", Unit::Cycles, EACH).at("each_cycles.median"),
            per_step("waits_per_step"),
            number("ready_percent", Unit::Percent),
            spread("round_trip_cycles", Unit::Cycles, TRIPS).at("round_trip_cycles.median"),
        ])],
    ),
    Layout::new(
        "events",
        "an event inside a role's step",
        TRACE,
        &["roles", "events"],
        &[word("role").at("^name"), word("event").at("name")],
        &[group(&[
            cycles("cycles"),
            cycles("busy_cycles"),
            spread("each_cycles", Unit::Cycles, EACH).at("each_cycles.median"),
            per_step("events_per_step"),
        ])],
    ),
    Layout::new(
        "rings",
        "a ring of buffers between roles",
        TRACE,
        &["rings"],
        &[word("ring").at("name")],
        &[group(&[
            word("full"),
            word("empty"),
            list("producers"),
            list("consumers"),
            word("counted"),
            number("mean_slots", Unit::Count),
            count("peak_slots"),
            number("empty_percent", Unit::Percent),
            number("peak_percent", Unit::Percent),
            flag("relative"),
        ])],
    ),
    Layout::new(
        "observer",
        "what tracing at one level costs",
        TRACE,
        &["observer.levels"],
        &[word("level")],
        &[group(&[
            number("median_us", Unit::Microseconds),
            spread("inflation_percent", Unit::Percent, PAIRS),
            number("confidence_percent", Unit::Percent).quiet(),
            count("pairs").quiet(),
        ])],
    ),
];
