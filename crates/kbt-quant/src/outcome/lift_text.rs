//! A lift for people to read.

use super::lift::{FunctionOutcome, LiftOutcome, PatternOutcome, PieceOutcome, PlaceOutcome};
use std::fmt::Write;

/// Places shown of a list.
const SHOWN: usize = 3;

impl LiftOutcome {
    /// For people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = String::new();
        for f in &self.functions {
            function(&mut out, f, &self.file, &self.device);
        }
        out
    }
}

fn function(out: &mut String, f: &FunctionOutcome, file: &str, device: &str) {
    let paying = f.pieces.iter().filter(|p| p.claim.pays).count();
    let _ = writeln!(
        out,
        "{} ({file}:{}) on {device}: {} straight blocks, {} pieces of arithmetic, {paying} of them could be cheaper",
        f.name,
        f.ptx_line,
        f.blocks_count,
        f.pieces.len()
    );
    for u in &f.unread {
        let _ = writeln!(out, "  NOT READ: line {}: {}", u.ptx_line, u.message);
    }
    for p in &f.pieces {
        piece(out, p);
    }
    for u in &f.unlifted {
        let _ = writeln!(
            out,
            "\nnot lifted: PTX {}-{}: {}, seen at {}",
            u.ptx_lines[0],
            u.ptx_lines[1],
            u.because,
            show(&u.place)
        );
    }
    if !f.refused.is_empty() {
        let _ = writeln!(out, "\nrefused instructions; their results are inputs of what follows:");
    }
    for r in &f.refused {
        let _ = writeln!(out, "  {} x {}: {}; {}", r.count, r.instruction, r.because, places(&r.places));
    }
    let _ = writeln!(out);
}

fn piece(out: &mut String, p: &PieceOutcome) {
    let lines: Vec<String> = p.ptx_lines.iter().take(SHOWN).map(|[a, b]| format!("{a}-{b}")).collect();
    let more = p.ptx_lines.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let _ = writeln!(
        out,
        "\nPTX {}{more}: {} instructions of arithmetic{}",
        lines.join(", "),
        p.instructions_count,
        if p.source.is_empty() { String::new() } else { format!(" ({})", p.source.join(", ")) }
    );
    for line in p.program.lines() {
        let _ = writeln!(out, "  | {line}");
    }
    for (name, from) in &p.inputs {
        let _ = writeln!(out, "  input  {name}: {from}");
    }
    for text in &p.assumed {
        let _ = writeln!(out, "  taken for granted: {text}");
    }
    for text in &p.follows {
        let _ = writeln!(out, "  follows: {text}");
    }
    if !p.kept.is_empty() {
        let kept: Vec<String> = p.kept.iter().map(|(name, count)| format!("{count} {name}")).collect();
        let _ = writeln!(out, "  stays as it is behind the conversions: {}", kept.join(", "));
    }
    for m in &p.patterns {
        pattern(out, m);
    }
    let _ = writeln!(
        out,
        "  as compiled: {:.4} cycles an element and SM on {}, {:.2} issue slots [{}]",
        p.compiled.cycles_per_element,
        p.compiled.busiest_pipe,
        p.compiled.issue_slots,
        p.compiled.provenance.kind
    );
    let _ = writeln!(out, "  {}", p.claim.statement);
    if p.claim.candidates.len() > 1 {
        let _ = writeln!(out, "  the best of {} that pay; --format json has all:", p.claim.candidates.len());
    }
    for &i in p.claim.candidates.iter().take(1) {
        let Some(c) = p.rewrite.candidates.get(i) else { continue };
        let pipes: Vec<String> = c.pipes.iter().map(|(name, cycles)| format!("{name} {cycles:.4}")).collect();
        let _ = writeln!(
            out,
            "  candidate {}: {:.4} on {}, {:.2} issue slots, chain {:.0} clk ({})",
            i + 1,
            c.cycles_per_element,
            c.busiest_pipe,
            c.issue_slots,
            c.chain,
            pipes.join(", ")
        );
        for line in c.program.lines() {
            let _ = writeln!(out, "    | {line}");
        }
        let _ = writeln!(out, "    by     {}", c.rules.join(", "));
        for guard in &c.guards {
            let _ = writeln!(out, "    guard  {guard}");
        }
        let r = &c.replay;
        let _ = writeln!(
            out,
            "    replay {} rows: {} of {} codes differ, {} explained as ties; {} values within their bounds; {} wrong",
            r.rows_count, r.differing_count, r.codes_count, r.explained_count, r.values_count, r.wrong_count
        );
        if !r.left_out.is_empty() {
            let _ = writeln!(out, "    not compared at the boundaries of: {}", r.left_out.join(", "));
        }
        if !r.errors.is_empty() {
            let _ = writeln!(out, "    error bounds, of the greatest value: {}", r.errors_text());
        }
    }
}

fn pattern(out: &mut String, m: &PatternOutcome) {
    let _ = writeln!(
        out,
        "  {}: {}\n    could be {}\n    needs {}\n    {}\n    at {}",
        m.pattern.as_str(),
        m.found,
        m.instead,
        m.condition,
        m.verdict,
        places(&m.places)
    );
}

fn places(list: &[PlaceOutcome]) -> String {
    let mut shown: Vec<String> = list.iter().take(SHOWN).map(show).collect();
    if list.len() > SHOWN {
        shown.push(format!("{} more", list.len() - SHOWN));
    }
    shown.join(", ")
}

fn show(place: &PlaceOutcome) -> String {
    match &place.source {
        Some(source) => format!("PTX line {} ({source})", place.ptx_line),
        None => format!("PTX line {}", place.ptx_line),
    }
}
