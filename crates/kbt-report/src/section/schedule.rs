//! Step 3: the variants' machine code: how two units alternate, headroom, spills, and what differs between variants.

use super::{sentence, whole};
use crate::ReportError;
use crate::doc::{Block, Line, Plot, Row, Sources, Table, cell, code, line, prose, strong, text};
use crate::{number, plot};
use kbt_sass::outcome::{ScheduleOutcome, Variant, VariantKind};

/// Runs of a variant that are printed.
const RUNS: usize = 400;

pub(super) fn blocks(sources: &Sources, o: &ScheduleOutcome) -> Result<Vec<Block>, ReportError> {
    let mut blocks = vec![Block::Paragraph(line![
        "The region ",
        code(&o.region),
        " of ",
        code(&o.subject),
        "; the first variant is the one in use."
    ])];
    let rows: Vec<_> = o
        .variants
        .iter()
        .filter(|v| !v.metrics.interleave.runs.is_empty())
        .map(|v| (v.name.as_str(), &v.metrics.interleave))
        .collect();
    if let Some((_, first)) = rows.first() {
        let title = format!("{} and {} in program order", first.a, first.b);
        let svg = plot::inline(&plot::strip::strip(&rows)?, &title);
        let caption = line![
            "Each stripe is a run of instructions of one unit; other instructions are left out. Narrow stripes are interleaved code."
        ];
        blocks.push(Block::Plot(Plot { title, svg, caption }));
    }
    blocks.extend(interleaving(sources, o).block());
    blocks.extend(headroom(sources, o).block());
    blocks.extend(cost(sources, o).block());
    blocks.extend(comparisons(sources, o).block());
    let mut notes = remarks(o);
    notes.extend(o.problems.iter().map(|p| prose(&sentence(p))));
    notes.push(prose(&sentence(&o.caveat)));
    blocks.push(Block::List(notes));
    let lists = o.variants.iter().filter(|v| !v.metrics.interleave.runs.is_empty()).map(run_list);
    let lists: Vec<Block> = lists.flatten().collect();
    if !lists.is_empty() {
        blocks.push(Block::Fold { title: line!["The runs in program order"], blocks: lists });
    }
    Ok(blocks)
}

/// What the compiler said and what the bounds leave out, once for all variants that share it.
fn remarks(o: &ScheduleOutcome) -> Vec<Line> {
    let mut said: Vec<(String, Vec<&str>)> = Vec::new();
    for v in &o.variants {
        let without = v.bound.as_ref().filter(|b| !b.without_rate.is_empty()).map(|b| {
            let names: Vec<&str> = b.without_rate.keys().map(String::as_str).collect();
            format!(
                "no rate is known of {}; the bound leaves them out and is only lower for it",
                names.join(", ")
            )
        });
        for remark in v.remarks.iter().map(|r| format!("the compiler says: {r}")).chain(without) {
            match said.iter_mut().find(|(text, _)| *text == remark) {
                Some((_, names)) if names.contains(&v.name.as_str()) => {}
                Some((_, names)) => names.push(&v.name),
                None => said.push((remark, vec![&v.name])),
            }
        }
    }
    said.into_iter().map(|(t, names)| line![strong(names.join(", ")), ": ", prose(&sentence(&t))]).collect()
}

const fn kind(k: VariantKind) -> &'static str {
    match k {
        VariantKind::SourceOrder => "source order",
        VariantKind::OptLevel => "optimisation level",
        VariantKind::Trace => "trace stamps",
        _ => "other",
    }
}

fn name(v: &Variant) -> Line {
    line![strong(v.name.as_str())]
}

fn interleaving(sources: &Sources, o: &ScheduleOutcome) -> Table {
    let columns = [
        "Variant",
        "Differs by",
        "Built by",
        "#Instructions",
        "#Of each unit",
        "#Transitions of possible",
        "#Share",
        "#Longest run",
        "#Mean run",
    ];
    let mut table = Table::new("How the two units alternate", &columns);
    for v in &o.variants {
        let u = &v.metrics.interleave;
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let share = (u.possible > 0).then(|| number::percent(u.transitions as f64 / u.possible as f64));
        table.row(
            Row::new(vec![
                name(v),
                line![kind(v.kind)],
                line![v.built_by.as_str()],
                line![whole(v.metrics.instructions)],
                line![format!("{} {} / {} {}", whole(u.a_instructions), u.a, whole(u.b_instructions), u.b)],
                line![format!("{} of {}", whole(u.transitions), whole(u.possible))],
                cell(share),
                line![whole(u.longest_run)],
                line![number::plain(u.mean_run)],
            ])
            .known(sources.of(&v.provenance)),
        );
    }
    table
}

fn cost(sources: &Sources, o: &ScheduleOutcome) -> Table {
    let columns = [
        "Variant",
        "#Issue slots",
        "#Registers named",
        "#Spilled out",
        "#Spilled back",
        "#Time of the kernel",
    ];
    let mut table = Table::new("Issue slots, registers and time", &columns);
    for v in &o.variants {
        let local = &v.metrics.local_memory;
        let (out, back) = (
            local.spill_store_bytes + local.shared_spill_store_bytes,
            local.spill_load_bytes + local.shared_spill_load_bytes,
        );
        let row = vec![
            name(v),
            line![whole(v.metrics.issue.issue_slots)],
            line![whole(v.metrics.registers.named.into())],
            line![format!("{} B", whole(out))],
            line![format!("{} B", whole(back))],
            v.time.as_ref().map_or_else(|| line!["not timed"], |t| line![sources.figure(t)]),
        ];
        table.row(Row::new(row).known(sources.of(&v.provenance)));
    }
    table
}

fn headroom(sources: &Sources, o: &ScheduleOutcome) -> Table {
    let columns =
        ["Variant", "#At least, clk", "Busiest", "#As scheduled, clk", "#Headroom", "#Warps a scheduler"];
    let mut table = Table::new("What any order of the same instructions needs at least", &columns);
    for (v, b) in o.variants.iter().filter_map(|v| Some((v, v.bound.as_ref()?))) {
        let row = vec![
            name(v),
            line![number::cycles(b.lower_bound_cycles)],
            line![b.busiest.as_str()],
            cell(b.scheduled_cycles.map(number::cycles)),
            cell(b.headroom_percent.map(number::of_percent)),
            line![whole(b.warps_per_scheduler.into())],
        ];
        table.row(Row::new(row).known(sources.of(&b.provenance)));
    }
    table
}

fn comparisons(sources: &Sources, o: &ScheduleOutcome) -> Table {
    let columns = [
        "From",
        "To",
        "~Difference over the whole function",
        "#Added",
        "#Removed",
        "#Spill loads and stores",
    ];
    let mut table = Table::new("Variants compared", &columns);
    for c in &o.comparisons {
        let spills =
            if c.spills_change > 0 { format!("+{}", c.spills_change) } else { c.spills_change.to_string() };
        table.row(
            Row::new(vec![
                prose(&c.a),
                prose(&c.b),
                line![c.kind.phrase()],
                line![whole(c.added)],
                line![whole(c.removed)],
                line![spills],
            ])
            .known(sources.of(&c.provenance)),
        );
    }
    table
}

fn run_list(v: &Variant) -> Vec<Block> {
    let list = v.metrics.interleave.run_list();
    let shown: Vec<&str> = list.split(' ').take(RUNS).collect();
    let more = v.metrics.interleave.runs.len().saturating_sub(RUNS);
    let more = if more > 0 { format!(" … and {more} more runs") } else { String::new() };
    vec![
        Block::Paragraph(vec![strong(v.name.as_str()), text(":")]),
        Block::Verbatim(format!("{}{more}", shown.join(" "))),
    ]
}
