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

/// A variant's name, with how many trips of it stand beside one of the first where they are not alike.
fn name(v: &Variant) -> Line {
    match v.trips {
        Some(1.0) => line![strong(v.name.as_str())],
        Some(n) => line![strong(v.name.as_str()), format!(", {} trips", number::plain(n))],
        None => line![strong(v.name.as_str()), ", whose trips are not the first one's"],
    }
}

/// A count of one trip, for as many trips as do what one of the first variant's does; none where nobody can say.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count for people"
)]
fn each(v: &Variant, count: u64) -> String {
    v.trips.map_or_else(|| "not comparable".to_owned(), |n| whole((count as f64 * n).round() as u64))
}

/// Cycles of one trip, likewise.
fn clk(v: &Variant, cycles: f64) -> String {
    v.trips.map_or_else(|| "not comparable".to_owned(), |n| number::cycles(cycles * n))
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
                line![each(v, v.metrics.instructions)],
                line![format!(
                    "{} {} / {} {}",
                    each(v, u.a_instructions),
                    u.a,
                    each(v, u.b_instructions),
                    u.b
                )],
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
            line![each(v, v.metrics.issue.issue_slots)],
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
            line![clk(v, b.lower_bound_cycles)],
            line![b.busiest.as_str()],
            cell(b.scheduled_cycles.map(|c| clk(v, c))),
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

#[cfg(test)]
mod tests {
    use super::*;
    use kbt_sass::Unit;
    use kbt_sass::outcome::{ScheduleBuilder, VariantInput};

    #[test]
    fn counts_of_a_trip_are_those_of_as_many_trips_as_do_the_same_or_none() {
        let text = "\tcode for sm_90a\n\t\tFunction : f\n        /*0000*/                   EXIT ;\n";
        let listing = kbt_sass::parse(text.as_bytes()).unwrap_or_else(|e| panic!("{e}"));
        let mut builder = ScheduleBuilder::new("f", None, [Unit::mufu(), Unit::f2fp()], None, 1);
        let input = VariantInput {
            name: "v",
            kind: VariantKind::OptLevel,
            built_by: "ptxas",
            listing: &listing,
            function: None,
            remarks: Vec::new(),
        };
        builder.add(input).unwrap_or_else(|e| panic!("{e}"));
        let first = builder.finish().variants.remove(0);
        for (trips, count, cycles) in
            [(Some(1.0), "10", "5"), (Some(4.0), "40", "20"), (None, "not comparable", "not comparable")]
        {
            let v = Variant { trips, ..first.clone() };
            assert_eq!((each(&v, 10).as_str(), clk(&v, 5.0).as_str()), (count, cycles), "{trips:?}");
            assert_eq!(format!("{:?}", name(&v)).contains("trips"), trips != Some(1.0));
        }
    }
}
