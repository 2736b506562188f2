//! Tables of step 3: variants of the machine code, their pipes and runs, and how they differ.

use super::{
    Group, Kind, Layout, Source, Spread, What, bytes, column, count, flag, group, list, number, spread, text,
    word,
};
use kbt_evidence::{Step, Unit};

const SCHEDULE: Source = Source::Outcome(Step::Schedule);

const TIME: Spread =
    Spread::Between { low: "time.low_us", high: "time.high_us", what: What::At("time.spread") };

pub(super) const TABLES: &[Layout] = &[
    Layout::new(
        "schedule",
        "a variant's machine code in the region",
        SCHEDULE,
        &["variants"],
        &[word("variant").at("name")],
        &[
            group(&[
                text("kind"),
                text("built_by"),
                word("region").at("/region"),
                count("instructions").at("metrics.instructions"),
                text("unit_a").at("metrics.interleave.a"),
                text("unit_b").at("metrics.interleave.b"),
                count("a_instructions").at("metrics.interleave.a_instructions"),
                count("b_instructions").at("metrics.interleave.b_instructions"),
                count("transitions").at("metrics.interleave.transitions"),
                count("possible_transitions").at("metrics.interleave.possible"),
                count("longest_run_instructions").at("metrics.interleave.longest_run"),
                number("mean_run_instructions", Unit::Count).at("metrics.interleave.mean_run"),
                count("issue_slots").at("metrics.issue.issue_slots"),
                column("stall_cycles", Kind::Count(Unit::Cycles, Spread::Unknown), true)
                    .at("metrics.issue.stall_cycles"),
                count("scoreboard_waits").at("metrics.issue.scoreboard_waits"),
                bytes("spill_load_bytes").at("metrics.local_memory.spill_load_bytes"),
                bytes("spill_store_bytes").at("metrics.local_memory.spill_store_bytes"),
                bytes("shared_spill_load_bytes").at("metrics.local_memory.shared_spill_load_bytes"),
                bytes("shared_spill_store_bytes").at("metrics.local_memory.shared_spill_store_bytes"),
                bytes("stack_bytes").at("metrics.local_memory.stack_bytes"),
                flag("local_array").at("metrics.local_memory.array"),
                count("named_registers").at("metrics.registers.named"),
                count("live_registers").at("metrics.registers.live"),
                count("allocated_registers").at("metrics.registers.allocated"),
                // They name source lines.
                list("remarks").quiet(),
            ]),
            Group {
                prefix: "bound_",
                columns: &[
                    word("bound_by").at("bound.busiest"),
                    number("bound_cycles", Unit::Cycles).at("bound.lower_bound_cycles"),
                    number("scheduled_cycles", Unit::Cycles).at("bound.scheduled_cycles"),
                    number("headroom_percent", Unit::Percent).at("bound.headroom_percent"),
                ],
            },
            Group { prefix: "time_", columns: &[spread("time_us", Unit::Microseconds, TIME).at("time.us")] },
        ],
    ),
    Layout::new(
        "schedule_pipes",
        "the instructions of a variant on one pipe",
        SCHEDULE,
        &["variants", "metrics.pipes{}"],
        &[word("variant").at("^name"), word("pipe").at("@key")],
        &[group(&[count("instructions").at("@value")])],
    ),
    Layout::new(
        "schedule_pipe_cycles",
        "the cycles that a variant takes one pipe",
        SCHEDULE,
        &["variants", "bound.pipe_cycles{}"],
        &[word("variant").at("^name"), word("pipe").at("@key")],
        &[group(&[number("pipe_cycles", Unit::Cycles).at("@value")])],
    ),
    Layout::new(
        "schedule_runs",
        "instructions of one unit in a row, in program order",
        SCHEDULE,
        &["variants", "metrics.interleave.runs"],
        &[
            word("variant").at("^name"),
            column("run", Kind::Count(Unit::Count, Spread::Unknown), false).at("@index"),
        ],
        &[group(&[word("unit").at("of"), count("instructions")])],
    )
    // One instruction moved shifts all runs after it; the table `schedule` has their figures.
    .not_compared(),
    Layout::new(
        "schedule_comparisons",
        "two variants against each other",
        SCHEDULE,
        &["comparisons"],
        &[word("a"), word("b")],
        &[group(&[word("kind"), count("added"), count("removed"), count("spills_change")])],
    ),
];
