//! Rules over machine code: spills, local arrays, indices, matrix instructions one by one.

use super::{Finding, LintRule};
use crate::metrics::LocalAccess;
use crate::{Analysis, Function, Instruction, Interval, Listing, LoopKind, Unit, metrics};
use std::collections::{BTreeMap, BTreeSet};

/// Looks at every function of a listing.
#[must_use]
pub fn lint(listing: &Listing) -> Vec<Finding> {
    listing.functions.iter().flat_map(lint_function).collect()
}

fn lint_function(function: &Function) -> Vec<Finding> {
    let analysis = Analysis::new(function, &Unit::mufu(), &Unit::f2fp());
    let mut found = local_memory(&analysis);
    found.extend(serialised(&analysis));
    found
}

/// Spills, and local arrays in loops; each access is told once, for the innermost loop it is in.
fn local_memory(analysis: &Analysis<'_>) -> Vec<Finding> {
    let function = analysis.function;
    let accesses = metrics::local_accesses(function);
    let homes = homes(analysis);
    // In the order of the rules, then of the loops.
    let mut groups: BTreeMap<(LintRule, Option<usize>), Vec<usize>> = BTreeMap::new();
    for i in analysis.whole().indices() {
        let home = homes[i];
        match accesses.get(i) {
            Some(Some(LocalAccess::Spill | LocalAccess::SharedSpill)) => {
                let rule = if home.is_some() { LintRule::SpillInLoop } else { LintRule::Spill };
                groups.entry((rule, home)).or_default().push(i);
            }
            Some(Some(LocalAccess::Array)) => {
                if home.is_some() {
                    groups.entry((LintRule::LocalArrayInLoop, home)).or_default().push(i);
                }
                if is_computed(&function.instructions[i]) {
                    groups.entry((LintRule::DynamicIndex, home)).or_default().push(i);
                }
            }
            _ => {}
        }
    }
    (groups.into_iter())
        .map(|((rule, home), list)| {
            let loads =
                list.iter().filter(|i| function.instructions[**i].mnemonic().starts_with("LD")).count();
            let what = match rule {
                LintRule::LocalArrayInLoop => "of a local array",
                LintRule::DynamicIndex => "of local memory at a computed address",
                _ => "of spilled registers",
            };
            let mut message = format!("{loads} loads and {} stores {what}", list.len() - loads);
            if let Some(of) = home.and_then(|l| analysis.loops.get(l)) {
                message += &format!(", at loop depth {}", of.depth + 1);
            }
            finding(analysis, rule, home, list.first().copied(), message)
        })
        .collect()
}

/// The innermost loop of the source around each instruction: where a kernel's time goes.
fn homes(analysis: &Analysis<'_>) -> Vec<Option<usize>> {
    let mut homes = vec![None; analysis.function.instructions.len()];
    let mut users: Vec<usize> =
        (0..analysis.loops.len()).filter(|n| analysis.loops[*n].kind == LoopKind::User).collect();
    users.sort_by_key(|n| analysis.loops[*n].depth);
    for n in users {
        analysis.loops[n].body.indices().for_each(|i| homes[i] = Some(n));
    }
    homes
}

fn finding(
    analysis: &Analysis<'_>,
    rule: LintRule,
    home: Option<usize>,
    at: Option<usize>,
    message: String,
) -> Finding {
    let name = &analysis.function.name;
    let place = home.map_or_else(|| name.clone(), |l| format!("{name} {}", analysis.loop_name(l)));
    let insn = at.and_then(|i| analysis.function.instructions.get(i));
    let line = insn.and_then(|i| i.line.clone());
    let mut finding = Finding::new(rule, place, message);
    finding.arch = analysis.function.arch.map(|a| a.to_string());
    finding.address = insn.map(|i| format!("{:#06x}", i.address));
    finding.source = line.map(|l| format!("{}:{}", l.file, l.line));
    finding
}

/// Whether a local access has an address that is not the stack pointer's.
fn is_computed(insn: &Instruction) -> bool {
    let address = insn.operand_list().find_map(|o| o.strip_prefix('['));
    address.is_some_and(|a| !a.starts_with("R1]") && !a.starts_with("R1+"))
}

/// Matrix instructions outside loops that stand alone between two waits and are still no accident.
const STRAIGHT: usize = 4;

/// Matrix instructions each waited for to the last before the next: in a loop two or more, and in straight code
/// a whole row of them.
fn serialised(analysis: &Analysis<'_>) -> Vec<Finding> {
    let users = || analysis.loops.iter().enumerate().filter(|(_, l)| l.kind == LoopKind::User);
    let outer: BTreeSet<usize> = users().filter_map(|(_, l)| l.parent).collect();
    let inner = users().filter(|(n, _)| !outer.contains(n)).map(|(n, l)| (Some(n), l.body.clone(), 2));
    let homes = homes(analysis);
    let outside = (0..analysis.graph.code_len).filter(|i| homes[*i].is_none()).map(|i| i..i + 1);
    let straight = std::iter::once((None, Interval::new(outside), STRAIGHT));
    inner
        .chain(straight)
        .filter_map(|(home, part, fewest)| {
            let (first, count) = waits_between(analysis, &part)?;
            let message = format!(
                "each of {count} warpgroup matrix instructions is waited for before the next is issued"
            );
            let found = || finding(analysis, LintRule::WgmmaSerialised, home, Some(first), message);
            (count >= fewest).then(found)
        })
        .collect()
}

/// The first of a part's warpgroup matrix instructions and how many there are, if a full wait stands between
/// every two of them.
fn waits_between(analysis: &Analysis<'_>, part: &Interval) -> Option<(usize, usize)> {
    let is_mma = |i: &Instruction| matches!(i.mnemonic(), "HGMMA" | "QGMMA" | "IGMMA" | "BGMMA");
    let is_full_wait = |i: &Instruction| {
        i.mnemonic() == "WARPGROUP" && i.has_modifier("DEPBAR") && i.operand_list().last() == Some("0x0")
    };
    let mut first = None;
    let mut count = 0;
    let mut waited = true;
    for i in part.indices() {
        let Some(insn) = analysis.function.instructions.get(i) else { continue };
        if is_full_wait(insn) {
            waited = true;
        } else if is_mma(insn) {
            if !waited {
                return None;
            }
            first.get_or_insert(i);
            count += 1;
            waited = false;
        }
    }
    first.map(|i| (i, count))
}
