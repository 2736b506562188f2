//! Step 2: a few steps drawn, each role's period, busy time and waits, what sets the pace, and what the looking cost.

use super::{sentence, whole};
use crate::ReportError;
use crate::doc::{Block, Line, Plot, Row, Sources, Table, cell, code, line, prose, strong, text};
use crate::{number, plot};
use kbt_evidence::Unit;
use kbt_trace::observe::{Interval, ObserverReport};
use kbt_trace::outcome::{Absolute, Critical, Quantiles, RoleStats, TraceOutcome};

pub(super) fn blocks(sources: &Sources, o: &TraceOutcome) -> Result<Vec<Block>, ReportError> {
    let mut blocks = vec![absolute(o), Block::Paragraph(critical(o))];
    if let Some(t) = o.timeline.as_ref().filter(|t| !t.rows.is_empty()) {
        let title = format!("{} steps of {} in CTA {}", t.steps, t.role, t.cta);
        let svg = plot::inline(&plot::timeline::timeline(t)?, &title);
        let caption = line!["One CTA of the trace, from a step's start. ", sources.badge(&o.provenance)];
        blocks.push(Block::Plot(Plot { title, svg, caption }));
    }
    blocks.extend(roles(sources, o).block());
    blocks.extend(waits(sources, o).block());
    blocks.extend(events(sources, o));
    if let Some(observer) = &o.observer {
        blocks.extend(self::observer(sources, observer));
    }
    if let Some(clean) = &o.clean {
        blocks.push(Block::Paragraph(line![
            format!("The kernel without a trace takes, per step of {}, ", clean.role),
            sources.number(clean.implied_cycles, Unit::Cycles, &clean.provenance),
            "; the trace's mean period over that is ",
            sources.number(clean.inflation_ratio, Unit::Ratio, &clean.provenance),
            "."
        ]));
    }
    blocks.extend(facts(sources, o));
    Ok(blocks)
}

fn absolute(o: &TraceOutcome) -> Block {
    let reason = prose(&sentence(o.absolute.reason()));
    match &o.absolute {
        Absolute::Accepted { .. } => Block::Paragraph(line![strong("Absolute numbers accepted: "), reason]),
        Absolute::Refused { .. } => Block::Warning(line![
            strong("Absolute numbers refused: "),
            reason,
            " The cycles below compare roles with each other and say nothing of the kernel without a trace."
        ]),
        Absolute::Unknown { .. } => Block::Warning(line![
            strong("What the looking cost is not known: "),
            reason,
            " The cycles below compare roles with each other only."
        ]),
    }
}

fn critical(o: &TraceOutcome) -> Line {
    match &o.critical {
        Critical::Roles { roles } => {
            let they = if roles.len() == 1 { "it hardly ever waits" } else { "they hardly ever wait" };
            line![
                strong(roles.join(" and ")),
                format!(" set the pace: {they}. The other roles have slack, and work on them cannot help.")
            ]
        }
        Critical::Cycle { roles, barriers } => line![
            "Every role waits; ",
            strong(roles.join(", ")),
            format!(" wait for each other in a circle, at {}.", barriers.join(", "))
        ],
        Critical::Hardware { role, barrier } => line![
            "Every role waits in the end for the hardware: ",
            strong(role.as_str()),
            format!(" at {barrier}.")
        ],
        Critical::Unknown { reason } => {
            line![strong("What sets the pace is not known: "), prose(&sentence(reason))]
        }
    }
}

fn quantiles(q: &Quantiles) -> Line {
    line![number::cycles(q.median), format!(" ({} to {})", number::cycles(q.p10), number::cycles(q.p90))]
}

fn critical_roles(o: &TraceOutcome) -> &[String] {
    match &o.critical {
        Critical::Roles { roles } | Critical::Cycle { roles, .. } => roles,
        Critical::Hardware { role, .. } => std::slice::from_ref(role),
        Critical::Unknown { .. } => &[],
    }
}

fn roles(sources: &Sources, o: &TraceOutcome) -> Table {
    let columns = [
        "Role",
        "#Period: median (p10 to p90), clk",
        "#Busy, clk",
        "#Busy share",
        "#Waits, clk",
        "#Slack, clk",
        "#Steps",
    ];
    let mut table = Table::new("Each role's step (marked: what sets the pace)", &columns);
    for r in &o.roles {
        let share = r.busy_cycles.zip(r.mean_period_cycles).map(|(b, p)| number::percent(b / p));
        let waiting = r.busy_cycles.zip(r.mean_period_cycles).map(|(b, p)| number::cycles((p - b).max(0.0)));
        table.row(
            Row::new(vec![
                line![strong(r.name.as_str())],
                r.period_cycles.as_ref().map_or_else(|| cell(None), quantiles),
                cell(r.busy_cycles.map(number::cycles)),
                cell(share),
                cell(waiting),
                cell(r.slack_cycles.map(number::cycles)),
                line![whole(r.steady_steps)],
            ])
            .known(sources.of(&o.provenance))
            .marked(critical_roles(o).contains(&r.name)),
        );
    }
    table
}

fn waits(sources: &Sources, o: &TraceOutcome) -> Table {
    let columns = [
        "Role",
        "Waits at",
        "#A step, clk",
        "#Waits a step",
        "#Each: median (p10 to p90), clk",
        "#Nothing to wait for",
        "Released by",
    ];
    let mut table = Table::new("Where each role waits", &columns);
    for (r, w) in o.roles.iter().flat_map(|r| r.waits.iter().map(move |w| (r, w))) {
        let by = match (w.released_by.is_empty(), w.hardware) {
            (true, None) => "not recorded".to_owned(),
            (true, Some(h)) => hardware(h).to_owned(),
            (false, None) => w.released_by.join(", "),
            (false, Some(h)) => format!("{} through {}", w.released_by.join(", "), hardware(h)),
        };
        let handoff = if w.handoff { " (handoff)" } else { "" };
        table.row(
            Row::new(vec![
                line![r.name.as_str()],
                line![code(&w.on), handoff],
                cell(Some(w.cycles.map_or_else(|| "below the clock's step".into(), number::cycles))),
                line![number::plain(w.per_step)],
                w.each_cycles.as_ref().map_or_else(|| cell(None), quantiles),
                cell(w.ready_percent.map(number::of_percent)),
                line![by],
            ])
            .known(sources.of(&o.provenance)),
        );
    }
    table
}

const fn hardware(h: kbt_trace::outcome::Hardware) -> &'static str {
    use kbt_trace::outcome::Hardware;
    match h {
        Hardware::Tma => "a TMA transaction",
        Hardware::Mma => "an MMA",
        Hardware::Unstated => "the hardware",
    }
}

fn events(sources: &Sources, o: &TraceOutcome) -> Option<Block> {
    let columns = ["Role", "Event", "#A step, clk", "#Without its waits, clk", "#A step"];
    let mut table = Table::new("Recorded events inside a step", &columns);
    let all = o.roles.iter().flat_map(|r: &RoleStats| r.events.iter().map(move |e| (r, e)));
    for (r, e) in all {
        table.row(
            Row::new(vec![
                line![r.name.as_str()],
                line![code(&e.name)],
                cell(e.cycles.map(number::cycles)),
                cell(e.busy_cycles.map(number::cycles)),
                line![number::plain(e.per_step)],
            ])
            .known(sources.of(&o.provenance)),
        );
    }
    table.block().map(|t| Block::Fold { title: line!["Events inside a step"], blocks: vec![t] })
}

fn observer(sources: &Sources, o: &ObserverReport) -> Vec<Block> {
    let columns = ["Trace level", "#Time of a launch", "#Slower by", "#Interval", "#Confidence", "#Pairs"];
    let mut table = Table::new("What the looking costs", &columns);
    let source = sources.of(&o.provenance);
    let off =
        vec![line!["off"], line![number::time(o.off_us)], cell(None), cell(None), cell(None), cell(None)];
    table.row(Row::new(off).known(source));
    for l in &o.levels {
        table.row(
            Row::new(vec![
                line![l.level.as_str()],
                line![number::time(l.median_us)],
                line![number::of_percent(l.inflation_percent)],
                line![format!(
                    "{} to {}",
                    number::of_percent(l.low_percent),
                    number::of_percent(l.high_percent)
                )],
                line![number::of_percent(l.confidence_percent)],
                line![whole(l.pairs)],
            ])
            .known(source),
        );
    }
    let mut said = line![
        "Above ",
        sources.number(
            o.limit_percent,
            Unit::Percent,
            &kbt_evidence::Provenance::given("the limit of the observer gate")
        ),
        " for coarse tracing the trace's absolute numbers are refused; a verdict from a detailed trace always is."
    ];
    if let (Some(reordering), Some(stores)) = (o.reordering_percent, o.stores_percent) {
        let interval = |interval: Option<Interval>| {
            interval.map_or_else(String::new, |i| {
                let none = if i.holds_zero() { ", not told apart from none" } else { "" };
                let ends = (number::of_percent(i.low_percent), number::of_percent(i.high_percent));
                format!(" ({} to {}{none})", ends.0, ends.1)
            })
        };
        said.extend(line![
            " Of coarse tracing's cost, lost reordering is ",
            sources.number(reordering, Unit::Percent, &o.provenance),
            interval(o.reordering_interval),
            ", clock reads and stores ",
            sources.number(stores, Unit::Percent, &o.provenance),
            interval(o.stores_interval),
            "."
        ]);
    }
    vec![Block::Table(table), Block::Paragraph(said)]
}

fn facts(sources: &Sources, o: &TraceOutcome) -> Vec<Block> {
    let t = &o.trace;
    let mut line = line!["The trace: "];
    let level = t.level.map_or_else(String::new, |l| format!("level {}, ", l.as_str()));
    line.push(text(level));
    let counts = format!(
        "{} records of {} CTAs{}, clock step {} clk",
        whole(t.records),
        whole(t.ctas),
        if t.sms > 0 { format!(" on {} SMs", whole(t.sms)) } else { String::new() },
        number::cycles(t.quantum_cycles)
    );
    line.push(sources.said(counts, &o.provenance));
    if let Some(floor) = o.wait_floor_cycles {
        line.extend(line!["; the shortest wait seen ", sources.number(floor, Unit::Cycles, &o.provenance)]);
    }
    line.push(text("."));
    let mut blocks = vec![Block::Paragraph(line)];
    if !o.problems.is_empty() {
        let problems = o.problems.iter().map(|p| line![p.to_string()]).collect();
        blocks.push(Block::Fold {
            title: line!["What is odd about the trace"],
            blocks: vec![Block::List(problems)],
        });
    }
    blocks
}
