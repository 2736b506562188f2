//! Outcomes as people read them on a terminal.

use super::{Interleave, Issue, LocalMemory, MetricsOutcome, Section};
use crate::{Confidence, LoopKind};
use kbt_evidence::{Evidence, Figure, FixClass, Standing, Step, Unit, Verdict};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Runs shown before a list is cut.
const RUNS: usize = 40;

impl MetricsOutcome {
    /// One line for the terminal.
    #[must_use]
    pub fn headline(&self) -> String {
        let instructions: u64 = self.functions.iter().map(|f| f.instructions).sum();
        let spilling = self.functions.iter().filter(|f| f.local_memory.spills()).count();
        let arrays = self.functions.iter().filter(|f| f.local_memory.array).count();
        format!(
            "{} functions, {instructions} instructions; {spilling} spill, {arrays} have local arrays; {} problems",
            self.functions.len(),
            self.problems.len()
        )
    }

    /// What a listing alone says of the classes of fix: a function that spills speaks for another budget.
    #[must_use]
    pub fn verdicts(&self) -> Vec<Verdict> {
        let spilling: Vec<_> = self.functions.iter().filter(|f| f.local_memory.spills()).collect();
        if spilling.is_empty() {
            return Vec::new();
        }
        let reason = format!("{} of {} functions spill registers", spilling.len(), self.functions.len());
        let mut verdict =
            Verdict::new(FixClass::RegisterBudget, Standing::Recommended, Step::Schedule, reason);
        for function in spilling {
            let local = &function.local_memory;
            let bytes = local.spill_load_bytes + local.shared_spill_load_bytes;
            let figure = Figure::new("spill loads", bytes as f64, Unit::Bytes, self.provenance.clone());
            verdict = verdict.with(Evidence::supports(format!("`{}` spills", function.name), vec![figure]));
        }
        vec![verdict.next("kbt sass regs FILE.ptx --arch ARCH sweeps the budgets")]
    }

    /// The outcome as text.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut out = String::new();
        for function in &self.functions {
            let arch = function.arch.map_or_else(|| "unknown target".to_owned(), |a| a.to_string());
            let _ = writeln!(out, "{}  {arch}  {} instructions", function.name, function.instructions);
            section(&mut out, function, 2);
            for region in &function.regions {
                heading(&mut out, region, 2);
            }
            for part in function.loops.iter().chain(&function.blocks) {
                heading(&mut out, part, 2);
            }
        }
        let _ = writeln!(out, "pipes: weakest confidence {}; {}", word(self.confidence), self.provenance);
        for unknown in &self.unknown_mnemonics {
            let _ = writeln!(out, "unknown: {} ({} instructions)", unknown.mnemonic, unknown.instructions);
        }
        for problem in &self.problems {
            let _ = writeln!(out, "problem: {problem}");
        }
        out
    }
}

const fn word(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Unknown => "unknown",
        Confidence::Guessed => "guessed",
        Confidence::SchedulerTable => "scheduler table",
        Confidence::Measured => "measured",
        Confidence::Documented => "documented",
    }
}

fn heading(out: &mut String, part: &Section, indent: usize) {
    let note = match part.of_loop.map(|l| l.kind) {
        Some(LoopKind::Wait) => "  (waits)",
        Some(LoopKind::Replay) => "  (replay of a single-lane command)",
        Some(LoopKind::Library) => "  (a slow path of the math library)",
        _ => "",
    };
    let ranges = part.ranges.join(" ");
    let _ = writeln!(out, "{:indent$}{}  {ranges}  {} instructions{note}", "", part.name, part.instructions);
    if note.is_empty() {
        section(out, part, indent + 2);
    }
}

fn section(out: &mut String, part: &Section, indent: usize) {
    let mut line = |name: &str, text: String| {
        if !text.is_empty() {
            let _ = writeln!(out, "{:indent$}{name:<11}{text}", "");
        }
    };
    line("pipes", counts(&part.pipes));
    line("units", interleave(&part.interleave));
    line("issue", issue(part.issue));
    line("local", local(&part.local_memory));
    let operations = part.operations;
    let named = [
        ("tensor", operations.tensor),
        ("tmem", operations.tmem),
        ("tma", operations.tma),
        ("mbarrier", operations.mbarrier),
        ("barrier", operations.barrier),
        ("proxy fence", operations.proxy_fence),
        ("warpgroup wait", operations.warpgroup_wait),
    ];
    let some: Vec<_> = named.iter().filter(|(_, n)| *n > 0).map(|(name, n)| format!("{name} {n}")).collect();
    line("operations", some.join("  "));
}

/// Largest first.
fn counts(map: &BTreeMap<String, u64>) -> String {
    let mut list: Vec<_> = map.iter().collect();
    list.sort_by_key(|(name, n)| (std::cmp::Reverse(**n), (*name).clone()));
    list.iter().map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>().join("  ")
}

fn interleave(units: &Interleave) -> String {
    if units.a_instructions + units.b_instructions == 0 {
        return String::new();
    }
    let mut runs = units.run_list();
    if units.runs.len() > RUNS {
        let cut: Vec<_> = runs.split(' ').take(RUNS).collect();
        runs = format!("{} ... ({} runs)", cut.join(" "), units.runs.len());
    }
    let Interleave { a, b, a_instructions, b_instructions, transitions, possible, .. } = units;
    format!("{a} {a_instructions}, {b} {b_instructions}: {transitions} of {possible} transitions: {runs}")
}

fn issue(issue: Issue) -> String {
    let mut text = format!("{} slots", issue.issue_slots);
    if let Some(stalls) = issue.stall_cycles {
        let _ = write!(text, ", {stalls} cycles of stalls");
    }
    if let Some(waits) = issue.scoreboard_waits {
        let _ = write!(text, ", {waits} scoreboard waits");
    }
    if issue.fillers > 0 {
        let _ = write!(text, ", {} fillers", issue.fillers);
    }
    text
}

fn local(local: &LocalMemory) -> String {
    let mut parts = Vec::new();
    if local.spill_load_bytes + local.spill_store_bytes > 0 {
        let LocalMemory { spill_store_bytes, spill_load_bytes, spills_by, .. } = local;
        parts.push(format!("spills {spill_store_bytes} B out, {spill_load_bytes} B back (by {spills_by})"));
    }
    if local.shared_spill_load_bytes + local.shared_spill_store_bytes > 0 {
        let LocalMemory { shared_spill_store_bytes, shared_spill_load_bytes, .. } = local;
        parts.push(format!(
            "spills to shared {shared_spill_store_bytes} B out, {shared_spill_load_bytes} B back"
        ));
    }
    if local.array {
        let LocalMemory { array_store_bytes, array_load_bytes, .. } = local;
        parts.push(format!("local array {array_store_bytes} B stored, {array_load_bytes} B loaded"));
    }
    if !parts.is_empty() || local.stack_bytes > 0 {
        parts.push(format!("stack {} B", local.stack_bytes));
    }
    parts.join(", ")
}
