//! Two versions of one function: what kind of difference, and how they align.
//!
//! The first question is whether the bytes are the same, because then nothing else matters. Registers and
//! predicates are renamed away before orders are compared. A static order proves no speed; every result says
//! so.

mod align;
mod shape;

use crate::metrics::{LocalAccess, local_accesses};
use crate::{Function, Graph, Instruction};
use serde::{Deserialize, Serialize};
use shape::{same_text, shape};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The kinds of difference, from none to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiffKind {
    /// The same bytes; without hex columns the same text.
    Identical,
    /// The same instructions in the same order with other control fields (stalls, barriers, yield, reuse).
    ControlOnly,
    /// The same order of the same operations with other registers, constants or addresses.
    RenamedOnly,
    /// The same operations in another order.
    Reordered,
    /// The same operations but for loads and stores of spilled registers.
    SpillsChanged,
    /// Operations were added or removed.
    Changed,
}

impl DiffKind {
    /// What it means, as a phrase.
    #[must_use]
    pub const fn phrase(self) -> &'static str {
        match self {
            Self::Identical => "identical code",
            Self::ControlOnly => "the same instructions with other control fields",
            Self::RenamedOnly => "the same operations in the same order with other registers or constants",
            Self::Reordered => "the same operations in another order",
            Self::SpillsChanged => "the same operations but for spills",
            Self::Changed => "operations added or removed",
        }
    }
}

/// The difference between two functions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionDiff {
    /// The function in the first listing.
    pub a: String,
    /// The function in the second.
    pub b: String,
    /// What kind of difference.
    pub kind: DiffKind,
    /// Whether encodings were compared; else the text was.
    pub by_encoding: bool,
    /// Instructions of each.
    pub a_instructions: u64,
    /// Instructions of each.
    pub b_instructions: u64,
    /// Instructions whose control fields differ at the same place, where the instructions are the same.
    pub control_changes: u64,
    /// Operations that the second has more of, by full mnemonic.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub added: BTreeMap<String, u64>,
    /// Operations that the second has fewer of.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub removed: BTreeMap<String, u64>,
    /// Spill loads and stores in each.
    pub a_spills: u64,
    /// Spill loads and stores in each.
    pub b_spills: u64,
    /// How the instructions align, cut to what differs; absent where the code is the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alignment: Vec<AlignedLine>,
    /// What this says nothing about.
    pub caveat: String,
}

/// One line of an alignment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlignedLine {
    /// `-` in the first only, `+` in the second only, `~` in both with other registers, `c` in both with other
    /// control fields, blank in both.
    pub mark: String,
    /// The instruction, with its address.
    pub text: String,
}

/// What is true of every static comparison.
pub const CAVEAT: &str =
    "a static order proves no speed: time both, interleaved, on the device before preferring one";

/// Equal lines shown around a difference.
const CONTEXT: usize = 2;

/// Whether both say how they are scheduled, and differently.
fn control_differs(x: &Instruction, y: &Instruction) -> bool {
    x.control.zip(y.control).is_some_and(|(x, y)| x != y)
}

/// Compares two versions of a function, without the padding behind them.
#[must_use]
pub fn diff(a: &Function, b: &Function) -> FunctionDiff {
    let (left, right) = (code(a), code(b));
    let by_encoding = left.iter().chain(right).all(|i| i.encoding.is_some());
    let same_text = left.len() == right.len() && left.iter().zip(right).all(|(x, y)| same_text(x, y));
    let same_words = left.iter().zip(right).all(|(x, y)| x.encoding == y.encoding);
    let control_changes =
        if same_text { left.iter().zip(right).filter(|(x, y)| control_differs(x, y)).count() } else { 0 };
    let shapes = |code: &[Instruction]| code.iter().map(shape).collect::<Vec<_>>();
    let (left_shapes, right_shapes) = (shapes(left), shapes(right));
    let (added, removed) = changes(left, right);
    let kind = if same_text && (!by_encoding || same_words) && control_changes == 0 {
        DiffKind::Identical
    } else if same_text && control_changes > 0 {
        DiffKind::ControlOnly
    } else if left_shapes == right_shapes {
        DiffKind::RenamedOnly
    } else if sorted(&left_shapes) == sorted(&right_shapes) {
        DiffKind::Reordered
    } else if spills_apart(a, &left_shapes) == spills_apart(b, &right_shapes) {
        DiffKind::SpillsChanged
    } else {
        DiffKind::Changed
    };
    let alignment = match kind {
        DiffKind::Identical => Vec::new(),
        DiffKind::ControlOnly => align(left, right, (0..left.len()).map(|i| (i, i)).collect()),
        _ => align(left, right, align::common_shapes(&left_shapes, &right_shapes)),
    };
    FunctionDiff {
        a: a.name.clone(),
        b: b.name.clone(),
        kind,
        by_encoding,
        a_instructions: left.len() as u64,
        b_instructions: right.len() as u64,
        control_changes: control_changes as u64,
        added,
        removed,
        a_spills: spills(a),
        b_spills: spills(b),
        alignment,
        caveat: CAVEAT.to_owned(),
    }
}

fn code(function: &Function) -> &[Instruction] {
    &function.instructions[..Graph::new(function).code_len]
}

fn sorted(shapes: &[String]) -> Vec<&str> {
    let mut sorted: Vec<&str> = shapes.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    sorted
}

/// Operations added and removed, by full mnemonic.
fn changes(left: &[Instruction], right: &[Instruction]) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let mut balance: HashMap<&str, i64> = HashMap::new();
    for insn in left {
        *balance.entry(insn.opcode()).or_default() -= 1;
    }
    for insn in right {
        *balance.entry(insn.opcode()).or_default() += 1;
    }
    let pick = |sign: i64| {
        (balance.iter())
            .filter(|(_, n)| **n * sign > 0)
            .map(|(opcode, n)| ((*opcode).to_owned(), n.unsigned_abs()))
            .collect()
    };
    (pick(1), pick(-1))
}

fn spills(function: &Function) -> u64 {
    local_accesses(function).iter().filter(|a| is_spill(a)).count() as u64
}

/// The shapes without those of spill accesses, sorted.
fn spills_apart<'s>(function: &Function, shapes: &'s [String]) -> Vec<&'s str> {
    let accesses = local_accesses(function);
    let mut rest: Vec<&str> =
        shapes.iter().zip(&accesses).filter(|(_, a)| !is_spill(a)).map(|(s, _)| s.as_str()).collect();
    rest.sort_unstable();
    rest
}

const fn is_spill(access: &Option<LocalAccess>) -> bool {
    matches!(access, Some(LocalAccess::Spill | LocalAccess::SharedSpill))
}

/// The lines of an alignment, around the differences.
fn align(left: &[Instruction], right: &[Instruction], pairs: Vec<(usize, usize)>) -> Vec<AlignedLine> {
    let line = |mark: &str, insn: &Instruction| AlignedLine {
        mark: mark.to_owned(),
        text: format!("{:#06x} {insn}", insn.address),
    };
    let mut lines = Vec::new();
    let (mut i, mut j) = (0, 0);
    for (x, y) in pairs.into_iter().chain(std::iter::once((left.len(), right.len()))) {
        lines.extend(left[i..x].iter().map(|insn| line("-", insn)));
        lines.extend(right[j..y].iter().map(|insn| line("+", insn)));
        if let (Some(old), Some(new)) = (left.get(x), right.get(y)) {
            lines.push(match (same_text(old, new), old.control == new.control) {
                (true, true) => line(" ", new),
                (true, false) => {
                    let mut changed = line("c", new);
                    changed.text += &control_change(old, new);
                    changed
                }
                (false, _) => line("~", new),
            });
        }
        (i, j) = (x + 1, y + 1);
    }
    let shown: BTreeSet<usize> = (lines.iter().enumerate())
        .filter(|(_, l)| l.mark != " ")
        .flat_map(|(n, _)| n.saturating_sub(CONTEXT)..=n + CONTEXT)
        .collect();
    lines.into_iter().enumerate().filter(|(n, _)| shown.contains(n)).map(|(_, l)| l).collect()
}

/// The control fields that changed: `  stall 4 -> 2, waits 0x0 -> 0x4`.
fn control_change(old: &Instruction, new: &Instruction) -> String {
    let (Some(a), Some(b)) = (old.control, new.control) else { return "  control fields".to_owned() };
    let barrier = |b: Option<u8>| b.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let fields = [
        ("stall", a.stall.to_string(), b.stall.to_string()),
        ("yield", a.yield_flag.to_string(), b.yield_flag.to_string()),
        ("write barrier", barrier(a.write_barrier), barrier(b.write_barrier)),
        ("read barrier", barrier(a.read_barrier), barrier(b.read_barrier)),
        ("waits", format!("{:#x}", a.wait_mask), format!("{:#x}", b.wait_mask)),
        ("reuse", format!("{:#x}", a.reuse), format!("{:#x}", b.reuse)),
    ];
    let changed: Vec<_> =
        fields.iter().filter(|(_, a, b)| a != b).map(|(name, a, b)| format!("{name} {a} -> {b}")).collect();
    format!("  {}", changed.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(lines: &[&str]) -> Function {
        let mut text = String::from("\t.section\t.text.f,\"ax\",@progbits\n");
        for (n, line) in lines.iter().enumerate() {
            let (body, hex) = line.split_once(" # ").unwrap_or((line, ""));
            text += &format!("/*{:04x}*/ {body} ;", n * 16);
            if let Some((low, high)) = hex.split_once(' ') {
                text += &format!(" /* 0x{low} */\n /* 0x{high} */");
            }
            text += "\n";
        }
        crate::parse(text.as_bytes()).unwrap().functions.remove(0)
    }

    fn check(a: &[&str], b: &[&str], kind: DiffKind) -> FunctionDiff {
        let found = diff(&function(a), &function(b));
        assert_eq!(found.kind, kind, "{found:?}");
        found
    }

    const LOW: &str = "00000a00ff017b82";

    #[test]
    fn the_kinds_are_told_apart() {
        let base = ["MUFU.EX2 R0, R1", "F2FP.BF16.F32.PACK_AB R2, R0, R1", "EXIT"];
        check(&base, &base, DiffKind::Identical);
        check(&base, &["MUFU.EX2 R7, R8", "F2FP.BF16.F32.PACK_AB R9, R7, R8", "EXIT"], DiffKind::RenamedOnly);
        check(&base, &["F2FP.BF16.F32.PACK_AB R2, R0, R1", "MUFU.EX2 R0, R1", "EXIT"], DiffKind::Reordered);
        let changed = check(&base, &["MUFU.RCP R0, R1", "EXIT"], DiffKind::Changed);
        assert_eq!(changed.added.keys().collect::<Vec<_>>(), ["MUFU.RCP"]);
        assert_eq!(changed.removed.keys().collect::<Vec<_>>(), ["F2FP.BF16.F32.PACK_AB", "MUFU.EX2"]);
        let control = check(
            &[&format!("NOP # {LOW} 000e300000000800")],
            &[&format!("NOP # {LOW} 000e320000000800")],
            DiffKind::ControlOnly,
        );
        assert_eq!(control.control_changes, 1);
        // Same text and control, another encoding: an operand that the text does not show.
        check(
            &[&format!("NOP # {LOW} 000e300000000800")],
            &[&format!("NOP # {LOW} 000e300000000801")],
            DiffKind::RenamedOnly,
        );
    }

    #[test]
    fn spills_alone_are_told_from_other_changes() {
        let base = ["MUFU.EX2 R0, R1", "FADD R2, R0, R1", "EXIT"];
        let spill = "STL [R1], R2 (*\"SpillRefill\"*)";
        let refill = "LDL R2, [R1] (*\"SpillRefill\"*)";
        let found = check(
            &base,
            &["MUFU.EX2 R0, R1", spill, refill, "FADD R2, R0, R1", "EXIT"],
            DiffKind::SpillsChanged,
        );
        assert_eq!((found.a_spills, found.b_spills), (0, 2));
        // A local array is no spill.
        check(&base, &["MUFU.EX2 R0, R1", "STL [R3], R2", "FADD R2, R0, R1", "EXIT"], DiffKind::Changed);
    }

    #[test]
    fn changed_control_fields_are_told() {
        let found = check(
            &[&format!("NOP # {LOW} 000e300000000800"), "EXIT"],
            &[&format!("NOP # {LOW} 000fe20000000800"), "EXIT"],
            DiffKind::ControlOnly,
        );
        let line = &found.alignment[0];
        assert!(line.mark == "c" && line.text.contains("->"), "{line:?}");
    }
}
