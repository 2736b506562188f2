//! Step 1: what each instruction can do, the mixes, the suspects, and what has no number.

use super::sentence;
use crate::doc::{Block, Inline, Row, Sources, Table, cell, code, line, prose};
use crate::number;
use kbt_microbench::outcome::{InstructionRate, RatesOutcome};

pub(super) fn blocks(sources: &Sources, o: &RatesOutcome) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut suspects = Table::new(
        "Instructions under suspicion of being expensive",
        &["Instruction", "Choosing another", "~Why", "~Figures"],
    );
    for s in &o.suspects {
        suspects.row(Row::new(vec![
            line![code(&s.instruction)],
            line![Inline::Standing(s.standing)],
            prose(&sentence(&s.reason)),
            sources.named(&s.figures),
        ]));
    }
    blocks.extend(suspects.block());
    let (rated, refused): (Vec<_>, Vec<_>) = o.rates.iter().partition(|r| r.refused.is_none());
    blocks.extend(rates(sources, o, &rated).block());
    blocks.extend(mixes(sources, o).block());
    let mut without = Table::new("No rate, and why", &["Instruction", "Does", "~Why there is no number"]);
    for r in refused {
        let why = r.refused.as_deref().unwrap_or_default();
        without.row(Row::new(vec![line![code(&r.instruction)], prose(&r.does), prose(&sentence(why))]));
    }
    for m in o.mixes.iter().filter(|m| m.refused.is_some()) {
        let why = m.refused.as_deref().unwrap_or_default();
        without.row(Row::new(vec![line![code(parts(&m.parts))], line!["mix"], prose(&sentence(why))]));
    }
    blocks.extend(without.block());
    if !o.missing.is_empty() {
        blocks.push(Block::Heading("What the profile lacks".into()));
        blocks.push(Block::List(o.missing.iter().map(|m| prose(&sentence(m))).collect()));
    }
    blocks
}

fn rates(sources: &Sources, o: &RatesOutcome, rows: &[&InstructionRate]) -> Table {
    let device = o.device.as_deref().unwrap_or(&o.profile);
    let columns = [
        "Instruction",
        "Does",
        "Opcode in the timed code",
        "Pipe",
        "#Lanes a clk and SM",
        "#Results a clk and SM",
        "#Latency, clk",
    ];
    let mut table = Table::new(
        format!("Rates of the instructions of the {} step on {device} ({})", o.subject(), o.arch),
        &columns,
    );
    for r in rows {
        let opcode = r.opcode.as_ref().map_or_else(|| line!["several"], |o| line![code(o)]);
        table.row(
            Row::new(vec![
                line![code(&r.instruction)],
                prose(&r.does),
                opcode,
                line![r.pipe.as_str()],
                cell(r.lanes_per_clk_sm.map(number::plain)),
                cell(r.results_per_clk_sm.map(number::plain)),
                cell(r.latency_clk.map(number::plain)),
            ])
            .known(sources.of(&r.provenance)),
        );
    }
    table
}

fn mixes(sources: &Sources, o: &RatesOutcome) -> Table {
    let columns = [
        "Issued together",
        "#Lanes a clk and SM",
        "#If on separate pipes",
        "#If on one pipe",
        "#Of what separate pipes allow",
    ];
    let mut table = Table::new("Mixes with the exponential", &columns);
    for m in o.mixes.iter().filter(|m| m.refused.is_none()) {
        let share = m.lanes_per_clk_sm.zip(m.separate_lanes_per_clk_sm).map(|(a, b)| number::percent(a / b));
        table.row(
            Row::new(vec![
                line![code(parts(&m.parts))],
                cell(m.lanes_per_clk_sm.map(number::plain)),
                cell(m.separate_lanes_per_clk_sm.map(number::plain)),
                cell(m.shared_lanes_per_clk_sm.map(number::plain)),
                cell(share),
            ])
            .known(sources.of(&m.provenance)),
        );
    }
    table
}

fn parts(parts: &[(String, u32)]) -> String {
    parts.iter().map(|(name, n)| format!("{n} × {name}")).collect::<Vec<_>>().join(" + ")
}
