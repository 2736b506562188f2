//! The lines of a snapshot.

use kbt_sass::outcome::Section;
use kbt_sass::{Listing, LoopKind, MeasureOptions, measure};

/// The lines that a reviewer should see change: instructions by pipe, how MUFU and F2FP alternate, spills, local
/// arrays; for each function, role region and loop of the source; and what the lints find. Counts only, no line of
/// the listing.
pub fn summary(listing: &Listing) -> Vec<String> {
    let outcome = measure(listing, MeasureOptions::default());
    let mut lines: Vec<String> = outcome.problems.iter().map(|p| format!("PROBLEM {p}")).collect();
    for function in &outcome.functions {
        lines.extend(lines_of(&function.name, function));
        for part in function.regions.iter().chain(&function.loops) {
            // Loops that wait for a barrier change with every compiler and mean nothing here.
            if part.of_loop.is_none_or(|l| l.kind == LoopKind::User) {
                lines.extend(lines_of(&format!("{} {}", function.name, part.name), part));
            }
        }
    }
    let findings = kbt_sass::lint(listing);
    lines.extend(findings.iter().map(|f| format!("{}: {} [{}]", f.place, f.message, f.rule.as_str())));
    lines
}

fn lines_of(place: &str, part: &Section) -> Vec<String> {
    let units = &part.interleave;
    let local = &part.local_memory;
    let pipes: Vec<_> = part.pipes.iter().map(|(pipe, n)| format!("{pipe} {n}")).collect();
    vec![
        format!("{place}: {} instructions: {}", part.instructions, pipes.join(", ")),
        format!("{place}: {}/{} {} of {}", units.a, units.b, units.transitions, units.possible),
        format!(
            "{place}: spills {} B out, {} B back; local array {}; stack {} B",
            local.spill_store_bytes, local.spill_load_bytes, local.array, local.stack_bytes
        ),
    ]
}
